#include "apps/grep/glibc_regex.h"

#include <locale.h>
#include <regex.h>

#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"

namespace abacus::apps {
namespace {

// For its lifetime, this thread is in the C locale: it decides what classes and ranges contain and
// the language of the messages.
class InCLocale {
 public:
  InCLocale() : locale_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(locale_)) {}
  ~InCLocale() {
    uselocale(before_);
    freelocale(locale_);
  }
  InCLocale(const InCLocale&) = delete;
  InCLocale& operator=(const InCLocale&) = delete;

 private:
  locale_t locale_;
  locale_t before_;
};

const char* CompileWithSyntax(std::string_view pattern, reg_syntax_t syntax,
                              re_pattern_buffer* compiled) {
  static runtime::Mutex mutex;  // guards re_syntax_options
  const runtime::MutexLock lock(mutex);
  const reg_syntax_t before = re_set_syntax(syntax);
  const char* const mistake = re_compile_pattern(pattern.data(), pattern.size(), compiled);
  re_set_syntax(before);
  return mistake;
}

}  // namespace

void GlibcRegex::Free::operator()(re_pattern_buffer* compiled) const {
  regfree(compiled);  // frees the fastmap too
  delete compiled;
}

absl::StatusOr<GlibcRegex::Handle> GlibcRegex::CompileFor(std::string_view pattern,
                                                          bool check_only) {
  const InCLocale in_c_locale;
  Handle compiled(new re_pattern_buffer());
  if (!check_only) compiled->fastmap = static_cast<char*>(std::malloc(UCHAR_MAX + 1));
  const reg_syntax_t syntax =
      check_only ? RE_SYNTAX_GREP | RE_NO_SUB : static_cast<reg_syntax_t>(RE_SYNTAX_GREP);
  const char* const mistake = CompileWithSyntax(pattern, syntax, compiled.get());
  if (mistake == nullptr) return compiled;
  const absl::string_view message(mistake);
  if (message == "Memory exhausted") return absl::ResourceExhaustedError(message);
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<GlibcRegex> GlibcRegex::Compile(std::string_view pattern) {
  absl::StatusOr<Handle> compiled = CompileFor(pattern, /*check_only=*/false);
  if (!compiled.ok()) return compiled.status();
  return GlibcRegex(*std::move(compiled));
}

absl::Status GlibcRegex::Check(std::string_view pattern) {
  return CompileFor(pattern, /*check_only=*/true).status();
}

absl::StatusOr<bool> GlibcRegex::Matches(std::string_view line) const {
  if (line.size() > INT_MAX) {
    return absl::ResourceExhaustedError("a line is too long for a back reference");
  }
  const regoff_t length = static_cast<regoff_t>(line.size());
  // No registers are wanted, but glibc takes another path without them than grep makes it take.
  re_registers registers = {};
  const regoff_t at = re_search(compiled_.get(), line.data(), length, 0, length, &registers);
  std::free(registers.start);
  std::free(registers.end);
  if (at < -1) return absl::ResourceExhaustedError("glibc is out of memory");
  return at >= 0;
}

}  // namespace abacus::apps
