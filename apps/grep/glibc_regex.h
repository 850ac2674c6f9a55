#ifndef ABACUS_APPS_GREP_GLIBC_REGEX_H_
#define ABACUS_APPS_GREP_GLIBC_REGEX_H_

// glibc's regular expressions as GNU grep uses them: to say what is wrong with a pattern, and to
// decide the lines of patterns with back references.
//
// Patterns are compiled in the C locale whatever the process's locale is. The syntax to compile
// with is a variable of glibc's that all threads share; we set it under a lock of our own, so code
// elsewhere in the process that calls re_compile_pattern must not run while a pattern is compiled
// here (regcomp and std::regex do not read it).

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct re_pattern_buffer;

namespace abacus::apps {

class GlibcRegex {
 public:
  // Compiles `pattern`; a newline in it separates alternatives.
  // REQUIRES: the pattern is within the bounds of bre.h: glibc has none of its own.
  // Errors: kInvalidArgument   - not a pattern, in glibc's words.
  //         kResourceExhausted - glibc is out of memory.
  static absl::StatusOr<GlibcRegex> Compile(std::string_view pattern);

  // What Compile would say, without keeping the result.
  static absl::Status Check(std::string_view pattern);

  // Whether the line (without its '\n') has a match.
  // Errors: kResourceExhausted - the line has more than INT_MAX bytes, or glibc is out of memory.
  // Thread-safety: thread-safe (glibc locks the compiled pattern). Blocking: no; time and memory
  // may grow with the square of the line.
  absl::StatusOr<bool> Matches(std::string_view line) const;

 private:
  struct Free {
    void operator()(re_pattern_buffer* compiled) const;
  };
  using Handle = std::unique_ptr<re_pattern_buffer, Free>;

  explicit GlibcRegex(Handle compiled) : compiled_(std::move(compiled)) {}

  static absl::StatusOr<Handle> CompileFor(std::string_view pattern, bool check_only);

  Handle compiled_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_GLIBC_REGEX_H_
