#include "apps/grep/line_matcher.h"

#include <gtest/gtest.h>

#include <string>

namespace abacus::apps {
namespace {

constexpr size_t kRead = 96 * 1024;  // grep's, of which the first is always one

LineMatcher MatcherOf(const std::string& pattern) {
  return *LineMatcher::Create(pattern, "data.bin");
}

std::string Nul() { return std::string(1, '\0'); }

TEST(LineMatcher, GrepWholePrintsLinesWithTheirNumbers) {
  EXPECT_EQ(*GrepWhole("b", "f", "a\nb\n\nab\n"), "2:b\n4:ab\n");
  EXPECT_EQ(*GrepWhole("b", "f", ""), "");
  EXPECT_EQ(*GrepWhole("^", "f", "\n"), "1:\n");
}

TEST(LineMatcher, GrepWholeEndsTheLastLine) {
  EXPECT_EQ(*GrepWhole("b", "f", "a\nb"), "2:b\n");
  EXPECT_EQ(*GrepWhole("", "f", "a\n\n"), "1:a\n2:\n");
}

TEST(LineMatcher, GrepWholeKeepsCarriageReturnsAndAllBytes) {
  EXPECT_EQ(*GrepWhole("b$", "f", "b\r\nb\n"), "2:b\n");
  EXPECT_EQ(*GrepWhole("b", "f", "b\r\n\xff\x80"), "1:b\r\n");
  EXPECT_EQ(*GrepWhole("\xff", "f", "\xff\x80\n"), "1:\xff\x80\n");
}

TEST(LineMatcher, GrepWholeCountsLinesOfManyVectors) {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += '\n';
  EXPECT_EQ(*GrepWhole("x", "f", bytes + "x"), "100001:x\n");
}

TEST(LineMatcher, FeedPrintsWithTheBlockThatCompletesARead) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Feed("x\n" + std::string(kRead - 3, 'a'), &out).ok());
  EXPECT_EQ(out, "");
  ASSERT_TRUE(matcher.Feed("a", &out).ok());
  EXPECT_EQ(out, "1:x\n");
  EXPECT_EQ(matcher.matches(), 1u);
  ASSERT_TRUE(matcher.Feed("\nx", &out).ok());
  EXPECT_EQ(out, "1:x\n");
  EXPECT_EQ(matcher.lines(), 2u);
  ASSERT_TRUE(matcher.Finish(&out).ok());
  EXPECT_EQ(out, "1:x\n3:x\n");
  EXPECT_TRUE(matcher.done());
  EXPECT_EQ(matcher.diagnostic(), "");
}

TEST(LineMatcher, FeedTakesBackTheLinesOfAReadWithNul) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Feed("x\n", &out).ok());
  EXPECT_FALSE(matcher.done());
  ASSERT_TRUE(matcher.Feed(Nul(), &out).ok());
  EXPECT_TRUE(matcher.done());
  ASSERT_TRUE(matcher.Feed("x\n", &out).ok());
  ASSERT_TRUE(matcher.Finish(&out).ok());
  EXPECT_EQ(out, "");
  EXPECT_EQ(matcher.matches(), 0u);
  EXPECT_EQ(matcher.diagnostic(), "grep: data.bin: binary file matches\n");
}

TEST(LineMatcher, FeedKeepsTheLinesOfReadsBeforeANul) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Feed("x\n" + std::string(kRead - 2, '\n') + "x\n" + Nul(), &out).ok());
  EXPECT_EQ(out, "1:x\n");
  EXPECT_TRUE(matcher.done());
}

TEST(LineMatcher, FeedIsSilentAboutABinaryFileWithoutMatch) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Feed("a\n" + Nul() + "b", &out).ok());
  ASSERT_TRUE(matcher.Finish(&out).ok());
  EXPECT_EQ(out, "");
  EXPECT_EQ(matcher.diagnostic(), "");
}

TEST(LineMatcher, FeedEndsLinesAtNulInABinaryFile) {
  for (const auto& [pattern, matches] : {std::pair("ab", false), {"a$", true}, {"^b", true}}) {
    LineMatcher matcher = MatcherOf(pattern);
    std::string out;
    ASSERT_TRUE(matcher.Feed("a" + Nul() + "b\n", &out).ok());
    EXPECT_EQ(matcher.done(), matches) << pattern;
  }
}

// grep jumps over reads that are nothing but NUL, so that a line goes on behind them.
TEST(LineMatcher, FeedJumpsOverReadsOfNulsInABinaryFile) {
  LineMatcher matcher = MatcherOf("ab");
  std::string out;
  std::string bytes = Nul() + std::string(kRead - 2, '\n') + "a";
  bytes += std::string(kRead, '\0');
  ASSERT_TRUE(matcher.Feed(bytes, &out).ok());
  EXPECT_FALSE(matcher.done());
  ASSERT_TRUE(matcher.Feed("b\n", &out).ok());
  EXPECT_TRUE(matcher.done());
}

TEST(LineMatcher, FeedDoesNotJumpWhenEmptyLinesMatch) {
  LineMatcher matcher = MatcherOf("^$");
  std::string out;
  ASSERT_TRUE(matcher.Feed("a" + Nul() + std::string(kRead - 2, 'b'), &out).ok());
  ASSERT_TRUE(matcher.Feed(Nul(), &out).ok());
  EXPECT_FALSE(matcher.done());
  ASSERT_TRUE(matcher.Feed(Nul(), &out).ok());
  EXPECT_TRUE(matcher.done());
}

TEST(LineMatcher, FeedRefusesALineBeyondTheLimit) {
  LineMatcher::Options options;
  options.line_bytes_max = 1000;
  LineMatcher matcher = *LineMatcher::Create("x", "f", options);
  std::string out;
  ASSERT_TRUE(matcher.Feed(std::string(1000, 'a'), &out).ok());
  const absl::Status status = matcher.Feed("a", &out);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "line 1 is longer than 1000 bytes");
  EXPECT_TRUE(absl::IsFailedPrecondition(matcher.Feed("\n", &out)));
  EXPECT_TRUE(absl::IsFailedPrecondition(matcher.Finish(&out)));
}

TEST(LineMatcher, FeedAfterFinishIsRefused) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Finish(&out).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(matcher.Feed("x", &out)));
}

TEST(LineMatcher, CreateNamesTheMistakeInThePattern) {
  const auto message = [](const std::string& pattern) {
    return std::string(LineMatcher::Create(pattern, "f").status().message());
  };
  EXPECT_EQ(message("a\\("), "Unmatched ( or \\(");
  EXPECT_EQ(message("[a"), "Unmatched [, [^, [:, [., or [=");
  EXPECT_EQ(message("[:space:]"), "character class syntax is [[:space:]], not [:space:]");
}

TEST(LineMatcher, FromStateGoesOnInTheMiddleOfALine) {
  LineMatcher first = MatcherOf("xy");
  std::string out;
  ASSERT_TRUE(first.Feed("xy\nx", &out).ok());
  absl::StatusOr<LineMatcher> second = LineMatcher::FromState(first.ToState());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->lines(), 1u);
  ASSERT_TRUE(second->Feed("y", &out).ok());
  ASSERT_TRUE(second->Finish(&out).ok());
  EXPECT_EQ(out, "1:xy\n2:xy\n");
}

TEST(LineMatcher, FromStateRefusesWhatContradictsItself) {
  LineMatcher matcher = MatcherOf("x");
  std::string out;
  ASSERT_TRUE(matcher.Feed("x\na", &out).ok());
  ASSERT_TRUE(LineMatcher::FromState(matcher.ToState()).ok());
  for (const auto spoil : {
           +[](LineMatcher::State* s) { s->read_left_bytes = 0; },
           +[](LineMatcher::State* s) { s->read_left_bytes = s->reads.read_bytes + 1; },
           +[](LineMatcher::State* s) { s->reads.page_bytes = 3; },
           +[](LineMatcher::State* s) { s->partial_line = "a\nb"; },
           +[](LineMatcher::State* s) { s->partial_line = std::string(1, '\0'); },
           +[](LineMatcher::State* s) { s->held_output.clear(); },
           +[](LineMatcher::State* s) { s->line_bytes_max = 0; },
           +[](LineMatcher::State* s) { s->line_bytes_max = ~uint64_t{0}; },
           +[](LineMatcher::State* s) { s->pattern = "\\("; },
       }) {
    LineMatcher::State state = matcher.ToState();
    spoil(&state);
    EXPECT_TRUE(absl::IsInvalidArgument(LineMatcher::FromState(state).status()));
  }
}

}  // namespace
}  // namespace abacus::apps
