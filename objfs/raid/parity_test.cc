#include "objfs/raid/parity.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

std::string Plain(const std::vector<const char*>& sources, size_t bytes) {
  std::string sum(bytes, '\0');
  for (const char* source : sources) {
    for (size_t i = 0; i < bytes; ++i) sum[i] = static_cast<char>(sum[i] ^ source[i]);
  }
  return sum;
}

// Room for runs that begin anywhere, aligned ones among them.
class Runs {
 public:
  Runs(std::mt19937& random, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
      std::string& room = rooms_.emplace_back(bytes + 2 * kParityAlignment, '\0');
      for (char& c : room) c = static_cast<char>(random());
    }
  }
  char* At(size_t i, size_t shift) {
    auto at = reinterpret_cast<uintptr_t>(rooms_[i].data());
    at += kParityAlignment - at % kParityAlignment;
    return reinterpret_cast<char*>(at) + shift;
  }

 private:
  std::vector<std::string> rooms_;
};

TEST(ParityTest, IsThePlainLoopWhateverLengthAndAlignment) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    const size_t count = 1 + random() % (i % 50 == 0 ? 40 : 16), bytes = random() % 3000;
    const bool aligned = random() % 2 == 0, in_place = random() % 3 == 0;
    SCOPED_TRACE(absl::StrCat(i, ": ", count, " sources of ", bytes, ", aligned ", aligned));
    Runs runs(random, count + 1, bytes);
    std::vector<const char*> sources;
    for (size_t j = 0; j < count; ++j) {
      sources.push_back(runs.At(j, aligned ? 0 : random() % kParityAlignment));
    }
    const size_t own = random() % count;
    char* to = in_place ? const_cast<char*>(sources[own])
                        : runs.At(count, aligned ? 0 : random() % kParityAlignment);
    const char before = to[bytes];
    const std::string expected = Plain(sources, bytes);
    XorOf(sources, to, bytes);
    ASSERT_EQ(std::string(to, bytes), expected);
    ASSERT_EQ(to[bytes], before) << "wrote behind the end";
  }
}

TEST(ParityTest, AddsToWhatIsThere) {
  std::mt19937 random(12);
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = random() % 2000;
    Runs runs(random, 2, bytes);
    const char* source = runs.At(0, i % 2 == 0 ? 0 : random() % kParityAlignment);
    char* to = runs.At(1, i % 2 == 0 ? 0 : random() % kParityAlignment);
    const std::string expected = Plain({source, to}, bytes);
    XorInto(source, to, bytes);
    ASSERT_EQ(std::string(to, bytes), expected);
  }
}

TEST(ParityTest, FindsAnyByteThatIsNotZero) {
  std::string bytes(300, '\0');
  EXPECT_TRUE(AllZero(bytes.data(), 0));
  EXPECT_TRUE(AllZero(bytes.data(), bytes.size()));
  for (char& c : bytes) {
    c = 1;
    EXPECT_FALSE(AllZero(bytes.data(), bytes.size()));
    c = 0;
  }
}

}  // namespace
}  // namespace abacus::objfs
