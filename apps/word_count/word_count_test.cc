#include "apps/word_count/word_count.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/testing/any_bytes.h"
#include "apps/testing/file_at_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::apps {
namespace {

using ::testing::HasSubstr;

class WordCountTest : public testing::FileAtServer<WordCount> {
 protected:
  // What wc(1) counts.
  static Counts Expected(const std::string& text) {
    std::string path = ::testing::TempDir() + "abacus_word_count_XXXXXX";
    const int fd = mkstemp(path.data());
    EXPECT_GE(fd, 0);
    close(fd);
    std::ofstream(path, std::ios::binary) << text;
    FILE* wc = popen(absl::StrCat("LC_ALL=C wc -lwc < ", path).c_str(), "r");
    Counts counts;
    unsigned long long lines = 0, words = 0, bytes = 0;
    EXPECT_EQ(fscanf(wc, "%llu %llu %llu", &lines, &words, &bytes), 3);
    EXPECT_EQ(pclose(wc), 0);
    std::filesystem::remove(path);
    counts.lines = lines, counts.words = words, counts.bytes = bytes;
    return counts;
  }
};

TEST_F(WordCountTest, CountsAsWcDoesHoweverTheTextIsCut) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::string text = testing::AnyBytes(seed * 37, seed);
    const Counts expected = Expected(text);
    std::mt19937 random(seed);
    WordCounter counter;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t bytes = 1 + random() % rest.size();
      counter.Feed(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    EXPECT_EQ(counter.Total(), expected) << "seed " << seed << ": " << counter.Total().words
                                         << " words, " << expected.words << " expected";
  }
}

TEST_F(WordCountTest, CountsTheSameWhenItMovesBetweenAllBlocks) {
  const std::string text = testing::AnyBytes(10'000, 99);
  const objfs::Subgraph file = Store(text);
  const Counts expected = Expected(text);
  ASSERT_GT(expected.words, 100u);
  for (const bool moving : {false, true}) {
    const auto last = ReadAll(Make(uint64_t{100}), file, moving);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_EQ(last->so_far, expected) << "moving: " << moving;
  }
}

TEST_F(WordCountTest, AfterARestartItCountsAnotherFileWhereverItIs) {
  // The first ends within a word, and the second begins within one.
  const std::string first = testing::AnyBytes(3'000, 1) + " cut",
                    second = "off " + testing::AnyBytes(5'000, 2);
  const objfs::Subgraph one = Store(first), other = Store(second);
  const auto counter = Make(uint64_t{100});
  auto last = ReadAll(counter, one, false);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->so_far, Expected(first));
  ASSERT_TRUE(cluster_->Move(counter.rid(), kClient, kServer).ok());
  ASSERT_TRUE(counter->Restart().ok());
  last = ReadAll(counter, other, false);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->so_far, Expected(second));
}

TEST_F(WordCountTest, BlocksThatMakeNoSenseAreRefused) {
  EXPECT_THAT(std::string(Refused(uint64_t{0}).message()), HasSubstr("read_bytes is 0"));
  EXPECT_THAT(std::string(Refused(WordCount::kReadBytesMax + 1).message()), HasSubstr("from 1 to"));
}

}  // namespace
}  // namespace abacus::apps
