#include "apps/grep/grep_reads.h"

#include <algorithm>

namespace abacus::apps {
namespace {

constexpr uint64_t kFirstBufferBytes = 96 * 1024;
constexpr uint64_t kOverreadBytes = 8;  // kept free behind the data
constexpr uint32_t kMappedOffset = 16;  // malloc's header at the start of a mapping
constexpr uint64_t kBufferBytesMax = uint64_t{1} << 40;  // no line that we accept needs as much

uint64_t RoundDown(uint64_t value, uint64_t unit) { return value - value % unit; }
uint64_t RoundUp(uint64_t value, uint64_t unit) { return RoundDown(value + unit - 1, unit); }

}  // namespace

GrepReads::GrepReads(const Options& options) {
  state_.file_bytes = options.file_bytes;
  state_.page_bytes = options.page_bytes;
  state_.lead_bytes = options.lead_bytes;
  state_.buffer_bytes =
      RoundUp(kFirstBufferBytes, options.page_bytes) + options.page_bytes + kOverreadBytes;
}

bool GrepReads::IsValid(const State& state) {
  const uint64_t page = state.page_bytes;
  return page != 0 && page <= kFirstBufferBytes && (page & (page - 1)) == 0 &&
         state.lead_bytes != 0 && state.lead_bytes <= page &&
         state.buffer_bytes >= kFirstBufferBytes + page && state.buffer_bytes <= kBufferBytesMax &&
         state.fill_bytes <= state.buffer_bytes && state.read_bytes <= state.buffer_bytes;
}

uint64_t GrepReads::Next(uint64_t kept_bytes) {
  state_.file_offset += state_.read_bytes;
  // Positions count from the buffer's start; the first page boundary is at lead_bytes.
  uint64_t read_at = state_.lead_bytes;
  if (state_.fill_bytes != 0) {
    const bool room_behind =
        state_.page_bytes + kOverreadBytes <= state_.buffer_bytes - state_.fill_bytes;
    read_at = room_behind ? state_.fill_bytes : MakeRoom(kept_bytes);
  }
  state_.read_bytes = RoundDown(state_.buffer_bytes - kOverreadBytes - read_at, state_.page_bytes);
  state_.fill_bytes = read_at + state_.read_bytes;
  return state_.read_bytes;
}

uint64_t GrepReads::MakeRoom(uint64_t kept_bytes) {
  const uint64_t page = state_.page_bytes;
  const uint64_t behind = page + kOverreadBytes;
  const uint64_t needed = kept_bytes + page + behind;
  if (needed > state_.buffer_bytes) {
    uint64_t grown = state_.buffer_bytes + state_.buffer_bytes / 2;
    if (state_.file_bytes != kUnknownFileBytes && state_.file_bytes >= state_.file_offset) {
      const uint64_t rest = state_.file_bytes - state_.file_offset;
      grown = std::min(grown, std::max(rest + kept_bytes + behind, needed));
    }
    state_.buffer_bytes = std::max(grown, needed);
    state_.lead_bytes = page - kMappedOffset;
  }
  // The byte in front of the kept line takes part in the alignment.
  const uint64_t end_of_kept = 1 + kept_bytes;
  return end_of_kept <= state_.lead_bytes
             ? state_.lead_bytes
             : state_.lead_bytes + RoundUp(end_of_kept - state_.lead_bytes, page);
}

}  // namespace abacus::apps
