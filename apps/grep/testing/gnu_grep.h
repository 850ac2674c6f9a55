#ifndef ABACUS_APPS_GREP_TESTING_GNU_GREP_H_
#define ABACUS_APPS_GREP_TESTING_GNU_GREP_H_

// The machine's own grep, as the judge of what our search prints. For tests and benchmarks.

#include <cstdint>
#include <string>
#include <string_view>

namespace abacus::apps {

class GnuGrep {
 public:
  struct Result {
    int exit_code = 0;  // 0: lines selected, 1: none, 2: trouble
    std::string out;
    std::string diagnostics;
  };

  // Makes a folder for the files that are searched; removed with the object.
  GnuGrep();
  ~GnuGrep();
  GnuGrep(const GnuGrep&) = delete;
  GnuGrep& operator=(const GnuGrep&) = delete;

  // Empty if grep is there and is GNU grep 3.8, the one whose reads we know; else what is not so.
  std::string Unsuitable() const;

  // Runs `LC_ALL=C grep -n -e pattern file` on a file of these bytes. Aborts if it cannot.
  Result Run(const std::string& pattern, std::string_view bytes) const;

  // Runs it on the file of the last Run, output thrown away into a pipe. Returns its seconds.
  double Time(const std::string& pattern) const;

  // Where malloc puts grep's buffer for that pattern (GrepReads::Options::lead_bytes), found out by
  // looking which of two lines grep still prints before a NUL. `line` is one that the pattern
  // matches.
  uint32_t FindLeadBytes(const std::string& pattern, std::string_view line) const;

  // The name of the searched file, as grep prints it.
  const std::string& file() const { return file_; }

 private:
  std::string folder_;
  std::string file_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_TESTING_GNU_GREP_H_
