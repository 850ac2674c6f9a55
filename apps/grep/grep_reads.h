#ifndef ABACUS_APPS_GREP_GREP_READS_H_
#define ABACUS_APPS_GREP_GREP_READS_H_

// Where GNU grep 3.8 ends its reads of a regular file.
//
// grep looks for NUL bytes one read at a time, and a NUL makes every line that ends in the same
// read, and all that follow, part of a binary file. To print what grep prints we must therefore
// know where its reads end, without having its buffer. This class is that arithmetic alone: the
// sizes and alignments of grep's buffer, none of its bytes.
//
// The rules, as the released program follows them on a page of 4 KiB:
//  - The first buffer has 96 KiB, a page of slack and 8 bytes for the matchers' over-read. Reads
//    start on a page boundary and are whole pages, so the first takes 96 KiB.
//  - The next read goes behind what is kept of the last one, which is its unfinished line. The
//    line is put just in front of a page boundary, with one byte before it. As long as it fits
//    into the part of the buffer in front of the first page boundary (the lead), the read has
//    96 KiB again; else it is shorter by the pages that the line takes.
//  - When a line leaves less than a page, the buffer grows by half, but not beyond what the rest
//    of the file needs.
//
// The lead is where malloc happened to put grep's buffer: a multiple of 16 from 16 to 4096 that
// depends on how grep was started and on the pattern, not on the file. It matters to nobody unless
// the file's first NUL lies behind the first 96 KiB and an unfinished line is longer than the lead.
// Grown buffers are mapped, so that their lead is known: 4080.
//
// Thread-safety: thread-compatible. Blocking: no. Source: ours, from reading grep 3.8.

#include <cstdint>
#include <limits>

namespace abacus::apps {

class GrepReads {
 public:
  static constexpr uint64_t kUnknownFileBytes = std::numeric_limits<uint64_t>::max();
  // A lead as `grep -n PATTERN FILE` has it for short words (it differs from word to word).
  static constexpr uint32_t kLeadBytesDefault = 1136;

  struct Options {
    // The file's size, which bounds how far grep's buffer grows for a long line near the end of
    // the file. kUnknownFileBytes: as for a file without end.
    uint64_t file_bytes = kUnknownFileBytes;
    uint32_t page_bytes = 4096;  // a power of two
    uint32_t lead_bytes = kLeadBytesDefault;
  };

  // All there is to know in the middle of a file; plain data.
  struct State {
    uint64_t file_bytes = kUnknownFileBytes;
    uint32_t page_bytes = 4096;
    uint32_t lead_bytes = kLeadBytesDefault;  // of the present buffer
    uint64_t buffer_bytes = 0;
    uint64_t fill_bytes = 0;  // from the buffer's start to the end of what was read; 0: no read yet
    uint64_t read_bytes = 0;  // the present read
    uint64_t file_offset = 0;  // where the present read starts
  };

  // REQUIRES: page_bytes is a power of two, and 0 < lead_bytes <= page_bytes.
  explicit GrepReads(const Options& options);
  // REQUIRES: IsValid(state).
  explicit GrepReads(const State& state) : state_(state) {}

  // Whether `state` can be the state of a GrepReads; for states that come from elsewhere.
  static bool IsValid(const State& state);

  // Moves on to the next read and returns its size: what grep asks for, whatever is left of the
  // file. `kept_bytes` is the length of the line that the last read left unfinished.
  // REQUIRES: the last read, if any, was full. Units: bytes.
  uint64_t Next(uint64_t kept_bytes);

  const State& state() const { return state_; }

 private:
  // Makes room for `kept_bytes` and at least one page; returns where the read goes.
  uint64_t MakeRoom(uint64_t kept_bytes);

  State state_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_GREP_READS_H_
