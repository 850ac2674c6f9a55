#include "apps/grep/line_finder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/grep/bre.h"

namespace abacus::apps {
namespace {

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// The lines of `text` that `pattern` selects.
std::vector<std::string> Select(const std::string& pattern, const std::string& text) {
  absl::StatusOr<LineFinder> finder = LineFinder::Compile(pattern);
  EXPECT_TRUE(finder.ok()) << finder.status();
  std::vector<std::string> selected;
  for (size_t at = 0; finder.ok();) {
    const auto line = finder->Find(text, at);
    EXPECT_TRUE(line.ok()) << line.status();
    if (!line.ok() || !line->has_value()) break;
    selected.push_back(text.substr((*line)->begin, (*line)->end - (*line)->begin - 1));
    at = (*line)->end;
  }
  return selected;
}

using Lines = std::vector<std::string>;

TEST(LineFinder, FindSelectsAllThreeKindsOfPatterns) {
  const std::string text = "one\ntwo two\nthree\n\ntwotwo\n";
  EXPECT_EQ(Select("two", text), (Lines{"two two", "twotwo"}));
  EXPECT_EQ(Select("^t[hw]o*", text), (Lines{"two two", "three", "twotwo"}));
  EXPECT_EQ(Select("\\(two\\)\\1", text), (Lines{"twotwo"}));
  EXPECT_EQ(Select("", text).size(), 5u);
  EXPECT_EQ(Select("one\nthree", text), (Lines{"one", "three"}));
  EXPECT_EQ(Select("e$\n\\(.\\)\\1", text), (Lines{"one", "three"}));
}

TEST(LineFinder, FindRepeatsAssertionsLikeGrep) {
  EXPECT_EQ(Select("x\\<*", "x\ny\n"), (Lines{"x"}));
  EXPECT_EQ(Select("^*a", "a\n*a\n"), (Lines{"*a"}));
}

TEST(LineFinder, FindAllowsABackslashAtTheEndOfAListOnly) {
  EXPECT_EQ(Select("a\nb\\", "b\\\nc\n"), (Lines{"b\\"}));
  EXPECT_EQ(LineFinder::Compile("b\\").status().message(), "Trailing backslash");
  EXPECT_EQ(LineFinder::Compile("b\\\na").status().message(), "Trailing backslash");
}

TEST(LineFinder, FindStaysRightWhenSkippingIsGivenUp) {
  std::string text = Repeated("ab\n", 2000);
  text += "abc\n";
  EXPECT_EQ(Select("ab[c]", text), (Lines{"abc"}));
  EXPECT_EQ(Select("\\(b\\)\\(c\\)*d", text + "abd\n"), (Lines{"abd"}));
}

TEST(LineFinder, CompileKnowsWhetherAnEmptyLineMatches) {
  EXPECT_TRUE(LineFinder::Compile("")->matches_empty_line());
  EXPECT_TRUE(LineFinder::Compile("^$")->matches_empty_line());
  EXPECT_TRUE(LineFinder::Compile("\\(a*\\)\\1")->matches_empty_line());
  EXPECT_FALSE(LineFinder::Compile("a")->matches_empty_line());
}

// The bounds keep glibc from taking the whole memory: each of these patterns would.
TEST(LineFinder, CompileRefusesPatternsBeyondItsBounds) {
  std::string list = "a*";
  for (size_t i = 0; i < kPatternOperatorsMax; ++i) list += "\n" + std::to_string(i);
  const Lines patterns = {
      std::string(kPatternBytesMax + 1, 'a'),
      Repeated("\\(", kGroupDepthMax + 1) + Repeated("\\)", kGroupDepthMax + 1),
      "\\(\\(a\\{500\\}\\)\\{500\\}\\)\\{500\\}",
      "a" + Repeated("\\+", 60),
      "a" + Repeated("\\{2\\}", 40),
      "a" + Repeated("*", kPatternOperatorsMax + 1),
      "a" + Repeated("\\|a", kPatternOperatorsMax + 1),
      list,
      "\\(a*\\)\\{2000\\}",
      "a" + Repeated("\\+", 60) + "\\(",
  };
  for (const std::string& pattern : patterns) {
    const absl::Status status = LineFinder::Compile(pattern).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << pattern.substr(0, 60) << ": " << status;
  }
}

TEST(LineFinder, CompileAllowsPatternsAtItsBounds) {
  const Lines patterns = {
      std::string(kPatternBytesMax, 'a'),
      Repeated("\\(", kGroupDepthMax) + "a" + Repeated("\\)", kGroupDepthMax),
      "a" + Repeated("*", kPatternOperatorsMax),
      "a\\{32767\\}",
  };
  for (const std::string& pattern : patterns) {
    EXPECT_TRUE(LineFinder::Compile(pattern).ok()) << pattern.substr(0, 60);
  }
}

TEST(LineFinder, CompileAllowsLongListsOfWords) {
  std::string words = "w0";
  for (int i = 1; i < 5000; ++i) words += "\nw" + std::to_string(i) + ";";
  EXPECT_EQ(Select(words, "w4999\nw4999;\nw5000;\n"), (Lines{"w4999;"}));
}

TEST(LineFinder, CompileRefusesNul) {
  EXPECT_TRUE(absl::IsInvalidArgument(LineFinder::Compile(std::string("a\0b", 3)).status()));
}

}  // namespace
}  // namespace abacus::apps
