#include "apps/grep/line_dfa.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "apps/grep/bre.h"

namespace abacus::apps {
namespace {

LineDfa DfaOf(const std::string& pattern) { return LineDfa(*ParseBre(pattern)); }

TEST(LineDfa, FindPointsIntoTheFirstLineThatMatches) {
  LineDfa dfa = DfaOf("b.d");
  EXPECT_EQ(dfa.Find("abc\nxbad\nbed\n"), 7u);
  EXPECT_EQ(dfa.Find("b\nd\n"), LineDfa::kNotFound);
  EXPECT_EQ(dfa.Find(""), LineDfa::kNotFound);
}

TEST(LineDfa, FindDecidesAssertionsByBothNeighbours) {
  EXPECT_EQ(DfaOf("^b").Find("ab\nba\n"), 3u);
  EXPECT_EQ(DfaOf("b$").Find("ba\nab\n"), 5u);
  EXPECT_EQ(DfaOf("^$").Find("a\n\n"), 2u);
  EXPECT_EQ(DfaOf("\\<b").Find("ab\n-b\n"), 4u);
  EXPECT_EQ(DfaOf("b\\>").Find("ba\nb-\n"), 4u);
  EXPECT_EQ(DfaOf("\\>").Find("--\n-b\n"), 5u);
  EXPECT_EQ(DfaOf("a\\bb").Find("ab\n"), LineDfa::kNotFound);
  EXPECT_EQ(DfaOf("a\\Bb").Find("ab\n"), 1u);
}

TEST(LineDfa, FindGoesOnAfterALineThatCanNoLongerMatch) {
  LineDfa dfa = DfaOf("^abc");
  EXPECT_EQ(dfa.Find("x" + std::string(1000, 'a') + "\nabc\n"), 1004u);
}

TEST(LineDfa, FindTakesUnknownPartsForAnyBytes) {
  LineDfa dfa = DfaOf("\\(a\\)b\\1c");
  EXPECT_EQ(dfa.Find("abc\n"), 2u);
  EXPECT_EQ(dfa.Find("ab\nc\n"), LineDfa::kNotFound);
}

// Each state remembers which of the last 17 bytes were an 'a': 131072 states, more than may exist.
TEST(LineDfa, FindDropsStatesAtTheLimitAndStaysRight) {
  LineDfa dfa = DfaOf("a[ab]\\{15\\}c");
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 300000; ++i) text += random() % 2 == 0 ? 'a' : 'b';
  text[text.size() - 16] = 'a';
  EXPECT_EQ(dfa.Find(text + "\n"), LineDfa::kNotFound);
  EXPECT_GT(dfa.resets(), 0u);
  EXPECT_LT(dfa.states() * sizeof(uint32_t), kDfaTableBytesMax);
  EXPECT_EQ(dfa.Find(text + "c\n"), text.size());
}

// A matcher that starts over at each byte needs 10^12 steps here.
TEST(LineDfa, FindIsLinearInALongLine) {
  LineDfa dfa = DfaOf("a.*a.*a.*b");
  EXPECT_EQ(dfa.Find(std::string(1000000, 'a') + "\n"), LineDfa::kNotFound);
}

TEST(LineDfa, FindIsLinearInNestedRepetitions) {
  LineDfa dfa = DfaOf("\\(\\(a*\\)*b*\\)*\\(a\\?\\)\\{30\\}a\\{30\\}c");
  EXPECT_EQ(dfa.Find(std::string(100000, 'a') + "\n"), LineDfa::kNotFound);
}

}  // namespace
}  // namespace abacus::apps
