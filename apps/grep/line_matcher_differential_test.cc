// What LineMatcher prints against what the machine's GNU grep prints, for random patterns, files,
// blocks and checkpoints. ABACUS_SEED chooses other ones; ABACUS_LONG=1 makes 20 times as many.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "apps/grep/line_matcher.h"
#include "apps/grep/testing/gnu_grep.h"

namespace abacus::apps {
namespace {

constexpr size_t kRead = 96 * 1024;

class Differential : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string unsuitable = grep_.Unsuitable();
    if (!unsuitable.empty()) GTEST_SKIP() << unsuitable;
    const char* const seed = std::getenv("ABACUS_SEED");
    seed_ = seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
    random_.seed(seed_);
    const char* const is_long = std::getenv("ABACUS_LONG");
    factor_ = is_long != nullptr && *is_long == '1' ? 20 : 1;
  }

  size_t Below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }
  bool Chance(double part) { return std::bernoulli_distribution(part)(random_); }
  const std::string& Pick(const std::vector<std::string>& choices) {
    return choices[Below(choices.size())];
  }

  std::string RandomBracket() {
    static const std::vector<std::string> kMembers = {
        "a",   "b", "a-c", "[:alpha:]", "[:space:]", "[:digit:]", "[:upper:]", "[:punct:]",
        "_",   "-", ".",   "*",         "\\",        "[=a=]",     "[.-.]",     ":",
        "a-a", "[", "$",   "^",         "\xe9",      "0-9",       "z"};
    std::string text = Chance(0.4) ? "[^" : "[";
    if (Chance(0.1)) text += "]";
    for (size_t n = 1 + Below(3); n > 0; --n) text += Pick(kMembers);
    return text + (Chance(0.1) ? Pick({"", "-]", ":]"}) : "]");
  }

  std::string RandomAtom(int depth) {
    const size_t kind = Below(100);
    if (kind < 40) return std::string(1, "abcxab_ 1"[Below(9)]);
    if (kind < 48) return ".";
    if (kind < 60) return RandomBracket();
    if (kind < 72 && depth < 3) return absl::StrCat("\\(", RandomPattern(depth + 1), "\\)");
    if (kind < 80) {
      return Pick({"\\<", "\\>", "\\b", "\\B", "\\`", "\\'", "\\w", "\\W", "\\s", "\\S"});
    }
    if (kind < 85) return Pick({"^", "$"});
    if (kind < 92) {
      return Pick({"*", "\\*", "\\.", "\\+", "\\?", "\\{", "\\}", "{",   "}", "+",   "?",
                   "|", "(",   ")",   "\\-", "\\]", "]",   "\\a", "\\n", "/", "\\/", "\\\\"});
    }
    if (kind < 95) return Pick({"\\1", "\\2"});
    return Pick({"ab", "the", "foo", "\xe9", "\r"});
  }

  std::string RandomRepeat() {
    if (Chance(0.6)) return "";
    return Pick({"*", "*", "\\+", "\\?", "\\{2\\}", "\\{0,2\\}", "\\{1,\\}", "\\{0\\}", "\\{,2\\}",
                 "\\{,\\}", "\\{1\\}", "**", "*\\+", "\\{2,1\\}", "\\{x\\}"});
  }

  std::string RandomSequence(int depth) {
    std::string text;
    for (size_t n = Below(20) == 0 ? 0 : 1 + Below(4); n > 0; --n) {
      text += RandomAtom(depth) + RandomRepeat();
    }
    return text;
  }

  std::string RandomPattern(int depth) {
    std::string text = RandomSequence(depth);
    if (Chance(0.2)) text += "\\|" + RandomSequence(depth);
    return text;
  }

  std::string RandomFrom(std::string_view alphabet, size_t size) {
    std::string text;
    for (; size > 0; --size) text += alphabet[Below(alphabet.size())];
    return text;
  }

  // One pattern, several on lines of their own, a list of words, or garbage.
  std::string RandomPatterns() {
    const size_t kind = Below(100);
    if (kind < 5) return RandomFrom("ab\\()|{}*+?[]^$.1", 1 + Below(8));
    std::string text = kind < 20 ? RandomFrom("abcx_ \\.-}]nd", Below(5)) : RandomPattern(0);
    for (size_t more = kind < 35 ? 1 + Below(3) : 0; more > 0; --more) {
      text += "\n" + (kind < 20 ? RandomFrom("abcx_ \\.-}]nd", Below(5)) : RandomPattern(0));
    }
    return text;
  }

  std::string RandomText(size_t lines) {
    static const std::vector<std::string> kPieces = {
        "a", "b", "c", "ab", "_", " ", "1",  "the", "foo", "x",  "\xe9", ".", "-", "*", "$",
        "^", "|", ")", "(",  "{", "}", "\\", "A",   "\t",  "\r", "+",    "?", "[", "]", "n"};
    std::string text;
    for (; lines > 0; --lines) {
      for (size_t n = Below(7); n > 0; --n) text += Pick(kPieces);
      if (lines > 1 || Chance(0.5)) text += '\n';
    }
    return text;
  }

  // Long and short lines, of which some have what the patterns below look for, and NULs.
  std::string RandomFile(std::string_view seed_of_matches) {
    const size_t size = Pick({"1", "4", "12"})[0] == '1' ? 50000 + Below(100000) : Below(800000);
    const size_t usual = Chance(0.5) ? 80 : Chance(0.5) ? 600 : 5000;
    std::string text;
    while (text.size() < size) {
      static constexpr size_t kHuge[] = {90000, 94200, 94208, 94209, 98304, 130000, 300000};
      const size_t length = Chance(0.01) ? kHuge[Below(std::size(kHuge))] : Below(usual);
      text.append(length, "mnop"[Below(4)]);
      if (Chance(0.05)) text += seed_of_matches;
      text += Chance(0.1) ? "\r\n" : "\n";
    }
    for (size_t n = Below(3); n > 0; --n) {
      const size_t edges[] = {kRead - 1, kRead, 2 * kRead - 1, 2 * kRead, kRead - 4096};
      const size_t at = std::min(
          text.size(), Chance(0.8) ? Below(text.size() + 1) : edges[Below(std::size(edges))]);
      const size_t nuls = Chance(0.6) ? 1 : Chance(0.5) ? Below(kRead) : Below(4) * kRead;
      text.insert(at, nuls, '\0');
    }
    // A buffer that grows for a long line does so only as far as the file needs, and below 128 KiB
    // malloc does not map it: where it is then, nobody can tell. So the file goes on for a while.
    for (int i = 0; i < 14000; ++i) text += "tail\n";
    if (Chance(0.3)) text += seed_of_matches;
    return text;
  }

  // Searches in random blocks of at most `block_bytes_max`, with a checkpoint now and then.
  absl::Status Search(const std::string& pattern, std::string_view bytes, size_t block_bytes_max,
                      uint32_t lead_bytes, GnuGrep::Result* result) {
    LineMatcher::Options options;
    options.reads.file_bytes = bytes.size();
    options.reads.lead_bytes = lead_bytes;
    absl::StatusOr<LineMatcher> matcher = LineMatcher::Create(pattern, grep_.file(), options);
    if (!matcher.ok()) return matcher.status();
    while (!bytes.empty() && !matcher->done()) {
      const std::string_view block = bytes.substr(0, 1 + Below(block_bytes_max));
      bytes.remove_prefix(block.size());
      const absl::Status status = matcher->Feed(block, &result->out);
      if (!status.ok()) return status;
      if (Chance(0.1)) {
        matcher = LineMatcher::FromState(matcher->ToState());
        if (!matcher.ok()) return matcher.status();
        ++checkpoints_;
      }
    }
    const absl::Status status = matcher->Finish(&result->out);
    result->diagnostics = matcher->diagnostic();
    return status;
  }

  // Returns grep's exit code.
  int Compare(const std::string& pattern, std::string_view bytes, size_t block_bytes_max,
              uint32_t lead_bytes) {
    const GnuGrep::Result expected = grep_.Run(pattern, bytes);
    GnuGrep::Result actual;
    const absl::Status status = Search(pattern, bytes, block_bytes_max, lead_bytes, &actual);
    const std::string what =
        absl::StrCat("seed ", seed_, ", pattern '", pattern, "', ", bytes.size(), " bytes, lead ",
                     lead_bytes, "; of the file: ", std::string(bytes.substr(0, 500)));
    if (expected.exit_code == 2) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << what;
      const std::string message = absl::StrCat("grep: ", status.message(), "\n");
      EXPECT_TRUE(absl::StartsWith(expected.diagnostics, message))
          << expected.diagnostics << " against " << message << what;
    } else {
      EXPECT_TRUE(status.ok()) << status << what;
      EXPECT_TRUE(actual.out == expected.out) << "other output for " << what;
      EXPECT_EQ(actual.diagnostics, expected.diagnostics) << what;
    }
    return expected.exit_code;
  }

  GnuGrep grep_;
  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  size_t factor_ = 1;
  size_t checkpoints_ = 0;
};

TEST_F(Differential, RandomPatternsSelectWhatGrepSelects) {
  std::vector<size_t> outcomes(3);
  for (size_t i = 0; i < 1500 * factor_ && !HasFailure(); ++i) {
    const std::string pattern = RandomPatterns();
    ++outcomes[Compare(pattern, RandomText(Below(60)), 1 + Below(200),
                       GrepReads::kLeadBytesDefault)];
  }
  // None of the outcomes must be so rare that it goes unchecked.
  EXPECT_GT(outcomes[0], 500u);
  EXPECT_GT(outcomes[1], 150u);
  EXPECT_GT(outcomes[2], 150u);
  EXPECT_GT(checkpoints_, 500u);
}

TEST_F(Differential, FilesOfAllShapesPrintWhatGrepPrints) {
  struct Search {
    std::string pattern;
    std::string line;  // that it matches
  };
  const std::vector<Search> searches = {{"ab", "xaby"},
                                        {"x", "x"},
                                        {"^ab", "ab"},
                                        {"b$", "ab"},
                                        {"a.*b", "a..b"},
                                        {"", "qab"},
                                        {"q", "q"},
                                        {"\\(a\\)\\1", "baa"},
                                        {"foo\nab", "foo"},
                                        {"^$", ""},
                                        {"[xy]z", "yz"},
                                        {"\\<ab\\>", "-ab-"},
                                        {"mab\\|pab", "mab"},
                                        {"m\\|n", "mn"},
                                        {"a[^b]*b*\\(q\\)\\1*", "aqq"}};
  size_t binary = 0;
  for (const Search& search : searches) {
    const uint32_t lead_bytes = grep_.FindLeadBytes(search.pattern, search.line);
    for (size_t i = 0; i < 12 * factor_ && !HasFailure(); ++i) {
      const std::string bytes = RandomFile(search.line);
      binary += absl::StrContains(bytes, '\0');
      Compare(search.pattern, bytes, Chance(0.5) ? 70000 : 1 << 20, lead_bytes);
    }
  }
  EXPECT_GT(binary, 60u);
  EXPECT_GT(checkpoints_, 50u);
}

// Whatever the lead is, it makes no difference here: no line is as long as the smallest lead.
TEST_F(Differential, ShortLinesNeedNoLead) {
  for (size_t i = 0; i < 20 * factor_ && !HasFailure(); ++i) {
    std::string bytes;
    const size_t size = Below(600000);
    while (bytes.size() < size) bytes += RandomFrom("abc ", Below(15)) + "\n";
    bytes.insert(Below(bytes.size() + 1), 1, '\0');
    Compare("ab*c", bytes, 70000, GrepReads::kLeadBytesDefault);
  }
}

TEST_F(Differential, SmallBlocksPrintTheSame) {
  const std::string bytes = RandomText(400) + std::string(1, '\0') + RandomText(100);
  for (const char* const pattern : {"ab", "^$", "\\(b\\)\\1", "zzz"}) {
    Compare(pattern, bytes, 1, GrepReads::kLeadBytesDefault);
  }
}

// Lines that odd patterns may mean.
constexpr char kOddText[] =
    "a\nb\nab\nba\naa\n*a\na*b\n*b\n^*\na^b\na$b\na$)\na$|\na$)x\na$|x\n$\n:\nc:\n]\na]"
    "\n\\\n\\2\n2\nb]\nx\n"
    "x*\n{1}\na{1\naab\nabab\ncac\n-\n=\n.\n\nab ab\n+\n?\n|\n(a)\nn\n";

TEST_F(Differential, OddBracketsMeanWhatTheyMeanToGrep) {
  for (const char* const pattern :
       {"[:a-c:]", "[:a[:digit:]:]", "[:]", "[::]", "[:a]", "[:xa-c:]", "[a]b]", "[]a]", "[^]a]",
        "[\\]", "[\\2]", "\\(a\\)[\\1]", "[[=a=]b]", "[[.-.]]", "[^[=a=]]", "[a-[.c.]]", "[a\\]"}) {
    Compare(pattern, kOddText, 40, GrepReads::kLeadBytesDefault);
  }
}

TEST_F(Differential, OddAnchorsMeanWhatTheyMeanToGrep) {
  for (const char* const pattern :
       {"a$)", "a$|", "a$)x", "a$|x", "a$\\|b", "\\(a$\\)", "a^b", "a$b", "^*", "^*a", "$*",
        "\\(^*a\\)", "a\\{,1\\}b$", "\\`a", "a\\'", "\\B\\B"}) {
    Compare(pattern, kOddText, 40, GrepReads::kLeadBytesDefault);
  }
}

TEST_F(Differential, OddRepetitionsMeanWhatTheyMeanToGrep) {
  for (const char* const pattern :
       {"*a", "\\(*a\\)", "b\\|*a", "q\n*b", "x\\<*", "x\\b\\+", "\\<*x", "x\\{0\\}a", "a\\{0\\}*b",
        "\\(x\\{0\\}\\)", "\\{1\\}", "\\{1", "a\\{1\\}\\{2\\}", "a**\\+\\?b", "\\+", "\\?"}) {
    Compare(pattern, kOddText, 40, GrepReads::kLeadBytesDefault);
  }
}

TEST_F(Differential, OddGroupsAndAlternativesMeanWhatTheyMeanToGrep) {
  for (const char* const pattern :
       {"\\(a*\\)\\1b", "\\(a\\|b\\)*c\\1", "\\(ab\\) \\1", "q\n\\(a\\)\\1", "\\(a\\)\\1\nx*$",
        "\\(\\)\\1", "a\\|", "\\(\\|x\\)", "\\n", "\\-", "a\n\\", "a\n\nb", "a\na", "x\nx\\"}) {
    Compare(pattern, kOddText, 40, GrepReads::kLeadBytesDefault);
  }
}

TEST_F(Differential, MistakesHaveGrepsWords) {
  for (const char* const pattern :
       {"[",     "[a",         "[[:foo:]]", "[:space:]",    "[[.ab.]]",     "[b-a]",
        "\\(",   "\\)",        "a\\)",      "\\(\\)\\)",    "\\1",          "\\(a\\2\\)",
        "a\\{1", "a\\{2,1\\}", "a\\{x\\}",  "a\\{1,2,3\\}", "a\\{40000\\}", "\\",
        "a\n[",  "[\n]",       "[[=",       "[a-[:digit:]]"}) {
    EXPECT_EQ(Compare(pattern, "a\n", 10, GrepReads::kLeadBytesDefault), 2) << pattern;
  }
}

}  // namespace
}  // namespace abacus::apps
