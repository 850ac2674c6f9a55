#ifndef ABACUS_APPS_GREP_LINE_MATCHER_H_
#define ABACUS_APPS_GREP_LINE_MATCHER_H_

// Prints what `LC_ALL=C grep -n PATTERN FILE` of GNU grep 3.8 prints, from the file's bytes as they
// come, in blocks of any size.
//
// Byte for byte the same: basic regular expressions with GNU's extensions, newlines in the pattern
// as alternatives, long lines, a last line without '\n' (it gets one), CRLF (kept), any bytes, and
// grep's rule for binary files: from the read on in which grep meets a NUL, nothing is printed any
// more, NULs end lines like '\n', and the first line that matches ends the search with
// "grep: FILE: binary file matches". grep writes that line to its standard error, so it is not in
// the output here either: see diagnostic().
//
// Since a NUL takes back the lines of its own read, the lines that match are held until the read
// (grep's, 96 KiB at least; see grep_reads.h) is complete. Output therefore comes with the block
// that completes a read, and in Finish. Held at any time: the unfinished line, and the selected
// lines of one read.
//
// Where the same bytes can print differently: a file whose first NUL is behind its first 96 KiB,
// when a line that is cut by the end of a read is longer than a constant of grep's heap
// (GrepReads::Options::lead_bytes), or is cut near the end of the file and file_bytes is unknown;
// and a file with holes, whose NULs grep learns of without reading them.
//
// Lines inside a block are matched where they are; only the line that a block or read cuts is
// copied. (In a binary file each piece is copied, to turn its NULs into line ends.)
//
// Limits: Options::line_bytes_max; the pattern's in bre.h.
// Thread-safety: thread-compatible. Blocking: no.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/grep/grep_reads.h"
#include "apps/grep/line_finder.h"

namespace abacus::apps {

class LineMatcher {
 public:
  static constexpr uint64_t kLineBytesMax = uint64_t{1} << 30;

  struct Options {
    GrepReads::Options reads;
    uint64_t line_bytes_max = kLineBytesMax;  // at most kLineBytesMax
  };

  // Everything that the rest of the search depends on; plain data. ToState and FromState between
  // any two calls change nothing in what is printed.
  struct State {
    std::string pattern;
    std::string name;
    uint64_t line_bytes_max = kLineBytesMax;
    GrepReads::State reads;
    uint64_t read_left_bytes = 0;  // of the present read
    std::string partial_line;      // what came of the line that is not finished
    std::string held_output;       // of the present read
    uint64_t held_matches = 0;
    uint64_t lines = 0;
    uint64_t matches = 0;
    bool is_binary = false;
    // The present read will count as never made if all of it is NUL, and so far all of it was.
    bool read_may_vanish = false;
    bool binary_matches = false;
    bool is_finished = false;  // by Finish or by an error
  };

  // `name` is the file's name as it stands in the diagnostic.
  // Errors: those of LineFinder::Compile.
  // REQUIRES: `options.reads` is as GrepReads wants it.
  static absl::StatusOr<LineMatcher> Create(std::string pattern, std::string name,
                                            const Options& options);
  static absl::StatusOr<LineMatcher> Create(std::string pattern, std::string name) {
    return Create(std::move(pattern), std::move(name), Options());
  }

  // Errors: kInvalidArgument - the state contradicts itself, or its pattern does not compile.
  static absl::StatusOr<LineMatcher> FromState(State state);
  State ToState() const;

  // Searches the next bytes of the file and appends to `*out` the output that they decide.
  // Errors: kResourceExhausted  - a line that a block cuts is longer than line_bytes_max, or glibc
  //                               cannot decide a line; the search cannot go on.
  //         kFailedPrecondition - after Finish, or after an error.
  absl::Status Feed(std::string_view block, std::string* out);

  // The file ends here. Appends the rest of the output. Errors: as Feed.
  absl::Status Finish(std::string* out);

  // No further input changes what is printed: the file is binary and matches, or Finish was called.
  bool done() const { return state_.binary_matches || state_.is_finished; }

  // What grep writes to its standard error: empty, or one line with its '\n'.
  std::string diagnostic() const;

  // Line ends passed so far, until the file turns out binary.
  uint64_t lines() const { return state_.lines; }
  // Lines printed so far; those held are not counted yet.
  uint64_t matches() const { return state_.matches; }

 private:
  LineMatcher(State state, LineFinder finder)
      : state_(std::move(state)), finder_(std::move(finder)), reads_(state_.reads) {}

  absl::Status FeedPiece(std::string_view piece);
  absl::Status FeedText(std::string_view text);
  absl::Status FeedBinary(std::string_view piece);
  absl::Status SearchLines(std::string_view lines);
  absl::Status SearchPartialLine();
  absl::Status AppendToPartialLine(std::string_view text);
  void HoldLine(std::string_view line);
  void BecomeBinary();
  void EndRead(std::string* out);
  void Release(std::string* out);

  State state_;  // but for `reads`, which is in reads_
  LineFinder finder_;
  GrepReads reads_;
};

// What grep prints for the whole file `bytes`, for tests and small texts.
absl::StatusOr<std::string> GrepWhole(std::string pattern, std::string name,
                                      std::string_view bytes);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_LINE_MATCHER_H_
