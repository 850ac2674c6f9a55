#ifndef ABACUS_APPS_GREP_LINE_FINDER_H_
#define ABACUS_APPS_GREP_LINE_FINDER_H_

// A compiled pattern that finds the lines GNU grep 3.8 selects (`LC_ALL=C grep PATTERN`).
//
// Three ways, by what the pattern is:
//  - a plain string: a search for the string in the whole text;
//  - no back reference: the automaton of line_dfa.h over the whole text;
//  - a back reference: lines that the automaton finds possible are asked of glibc, one by one.
// The latter two skip to the next line with a string that every match contains, if there is one.
//
// Thread-safety: thread-compatible; a Find changes caches. Blocking: no.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/grep/glibc_regex.h"
#include "apps/grep/line_dfa.h"

namespace abacus::apps {

class LineFinder {
 public:
  struct Line {
    size_t begin = 0;
    size_t end = 0;  // behind the line's '\n'
  };

  // Compiles a basic regular expression with GNU's extensions; newlines separate alternatives.
  // Errors: kInvalidArgument   - not a pattern (in glibc's words, or grep's where glibc finds no
  //                              fault), or it has a NUL, which no argument of a command can have.
  //         kResourceExhausted - beyond the bounds of bre.h.
  static absl::StatusOr<LineFinder> Compile(std::string_view pattern);

  // The first line of `lines` at or behind `from` that matches, if there is one.
  // REQUIRES: `lines` is whole lines without NUL (empty, or its last byte is '\n'); `from` is where
  // one of them starts, or the end.
  // Errors: kResourceExhausted - glibc cannot decide a line, as in GlibcRegex::Matches.
  absl::StatusOr<std::optional<Line>> Find(std::string_view lines, size_t from);

  // Whether an empty line matches.
  bool matches_empty_line() const { return matches_empty_line_; }

 private:
  LineFinder() = default;

  absl::Status Prepare(const std::vector<std::string>& alternatives);
  // Stops skipping with required_ where it is in nearly every line.
  void CountSkip(size_t bytes);
  // The first line that may match (that does, if `regexes_` is empty).
  std::optional<Line> FindPossible(std::string_view lines, size_t from);

  bool is_string_ = false;      // the pattern is `required_` and nothing else
  std::string required_;        // in every line that matches; empty: nothing to skip with
  uint64_t candidates_ = 0;     // lines that required_ led to
  uint64_t skipped_bytes_ = 0;  // on the way to them
  std::optional<LineDfa> dfa_;
  std::vector<GlibcRegex> regexes_;
  bool matches_empty_line_ = false;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_LINE_FINDER_H_
