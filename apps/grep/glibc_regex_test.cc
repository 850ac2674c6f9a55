#include "apps/grep/glibc_regex.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <barrier>
#include <clocale>
#include <string>
#include <thread>

namespace abacus::apps {
namespace {

TEST(GlibcRegex, CompileNamesTheMistake) {
  EXPECT_EQ(GlibcRegex::Compile("\\(a").status().message(), "Unmatched ( or \\(");
  EXPECT_EQ(GlibcRegex::Check("a\\{1").message(), "Unmatched \\{");
  EXPECT_TRUE(absl::IsInvalidArgument(GlibcRegex::Check("[z-a]")));
}

TEST(GlibcRegex, MatchesTakesTheLineAsTheWholeText) {
  const absl::StatusOr<GlibcRegex> regex = GlibcRegex::Compile("^\\(ab*\\)\\1$");
  ASSERT_TRUE(regex.ok());
  EXPECT_TRUE(*regex->Matches("abbabb"));
  EXPECT_FALSE(*regex->Matches("abbabbx"));
  EXPECT_FALSE(*regex->Matches(""));
}

TEST(GlibcRegex, CompileLeavesTheSyntaxOfOthersAlone) {
  const reg_syntax_t before = re_set_syntax(RE_SYNTAX_EMACS);
  ASSERT_TRUE(GlibcRegex::Check("a\\|b").ok());
  EXPECT_EQ(re_set_syntax(before), static_cast<reg_syntax_t>(RE_SYNTAX_EMACS));
}

TEST(GlibcRegex, MatchesBytesWhateverTheProcessLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  if (std::setlocale(LC_ALL, "C.UTF-8") == nullptr) GTEST_SKIP() << "there is no locale C.UTF-8";
  const absl::StatusOr<GlibcRegex> regex = GlibcRegex::Compile("^\\(.\\)\\1$");
  ASSERT_TRUE(regex.ok());
  EXPECT_TRUE(*regex->Matches("\xff\xff"));
  EXPECT_FALSE(*regex->Matches("\xc3\xa4\xc3\xa4"));
  std::setlocale(LC_ALL, before.c_str());
}

// What two threads compile at once is compiled with the syntax that each of them asked for: the
// pattern means something else in the syntax that is set before and after.
TEST(GlibcRegex, ThreadsDoNotChangeEachOthersSyntax) {
  for (int round = 0; round < 300; ++round) {
    const reg_syntax_t before = re_set_syntax(RE_SYNTAX_EMACS);
    std::barrier start(2);
    const auto compile = [&start] {
      start.arrive_and_wait();
      for (int i = 0; i < 20; ++i) {
        const absl::StatusOr<GlibcRegex> regex =
            GlibcRegex::Compile("^\\([[:digit:]]\\{2\\}\\)\\1$");
        ASSERT_TRUE(regex.ok());
        ASSERT_TRUE(*regex->Matches("4747")) << "compiled with another syntax";
      }
    };
    std::thread other(compile);
    compile();
    other.join();
    EXPECT_EQ(re_set_syntax(before), static_cast<reg_syntax_t>(RE_SYNTAX_EMACS));
    if (HasFailure()) return;
  }
}

TEST(GlibcRegex, ThreadsMatchWithOneRegexAtOnce) {
  const absl::StatusOr<GlibcRegex> regex = GlibcRegex::Compile("\\([a-z]\\)\\1");
  ASSERT_TRUE(regex.ok());
  const auto match = [&regex] {
    for (int i = 0; i < 2000; ++i) {
      ASSERT_TRUE(*regex->Matches("hello"));
      ASSERT_FALSE(*regex->Matches("helo"));
    }
  };
  std::thread other(match);
  match();
  other.join();
}

}  // namespace
}  // namespace abacus::apps
