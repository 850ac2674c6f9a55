#include "objfs/store/wrong_bit.h"

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "objfs/store/format.h"

namespace abacus::objfs {
namespace {

std::string SealedBytes(std::mt19937_64& random, size_t bytes) {
  std::string sealed(bytes, '\0');
  for (char& c : sealed) c = static_cast<char>(random());
  const uint32_t crc = Crc32c(sealed);
  for (int i = 0; i < 4; ++i) sealed.push_back(static_cast<char>(crc >> (8 * i)));
  return sealed;
}

void Turn(std::string* bytes, uint64_t bit) {
  (*bytes)[bit / 8] =
      static_cast<char>(static_cast<uint8_t>((*bytes)[bit / 8]) ^ (1u << (bit % 8)));
}

TEST(WrongBitTest, EachBitIsSetRightThatOfTheChecksumToo) {
  std::mt19937_64 random(1);
  for (const size_t bytes : {0, 1, 60, 517}) {
    const std::string sealed = SealedBytes(random, bytes);
    for (uint64_t bit = 0; bit < 8 * sealed.size(); ++bit) {
      std::string rotten = sealed;
      Turn(&rotten, bit);
      EXPECT_EQ(WrongBit::SetRight(rotten), sealed) << "bit " << bit << " of " << bytes << " bytes";
    }
  }
  const std::string page = SealedBytes(random, kTablePageBytes - 4);
  for (uint64_t bit = 0; bit < 8 * page.size(); bit += 211) {
    std::string rotten = page;
    Turn(&rotten, bit);
    EXPECT_EQ(WrongBit::SetRight(rotten), page);
  }
}

// Two wrong bits are never taken for one, as no strings that fit are so near; more seldom are.
TEST(WrongBitTest, TwoBitsAreNotTakenForOne) {
  std::mt19937_64 random(2);
  const std::string page = SealedBytes(random, kTablePageBytes - 4);
  for (int i = 0; i < 2000; ++i) {
    std::string rotten = page;
    const uint64_t first = random() % (8 * page.size());
    const uint64_t second = (first + 1 + random() % (8 * page.size() - 1)) % (8 * page.size());
    Turn(&rotten, first);
    Turn(&rotten, second);
    EXPECT_EQ(WrongBit::SetRight(rotten), std::nullopt) << first << " and " << second;
  }
}

TEST(WrongBitTest, OfTooManyBytesNoneIsSought) {
  std::mt19937_64 random(3);
  std::string sealed = SealedBytes(random, kWrongBitBytesMax + 1);
  Turn(&sealed, 77);
  EXPECT_EQ(WrongBit::SetRight(sealed), std::nullopt);
  EXPECT_EQ(WrongBit::SetRight("abc"), std::nullopt);
}

}  // namespace
}  // namespace abacus::objfs
