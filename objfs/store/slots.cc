#include "objfs/store/slots.h"

#include <algorithm>
#include <iterator>

namespace abacus::objfs {

bool Slots::Reset(std::vector<uint64_t> used) {
  *this = Slots();
  std::sort(used.begin(), used.end());
  if (std::adjacent_find(used.begin(), used.end()) != used.end()) return false;
  for (const uint64_t slot : used) {
    if (slot > end_) {
      free_.emplace_hint(free_.end(), end_, slot - end_);
      free_count_ += slot - end_;
    }
    end_ = slot + 1;
  }
  return true;
}

uint64_t Slots::Allocate(uint64_t count) {
  int looked_at = 0;
  for (auto range = free_.begin(); range != free_.end() && looked_at < kRangesLookedAtMax;
       ++range, ++looked_at) {
    if (range->second < count) continue;
    const uint64_t first = range->first;
    const SlotRange rest{range->first + count, range->second - count};
    free_.erase(range);
    if (rest.count > 0) free_.emplace(rest.first, rest.count);
    free_count_ -= count;
    return first;
  }
  end_ += count;
  return end_ - count;
}

void Slots::Free(SlotRange range) {
  free_count_ += range.count;
  unpunched_ += range.count;
  auto next = free_.lower_bound(range.first);
  if (next != free_.end() && next->first == range.first + range.count) {
    range.count += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == range.first) {
      before->second += range.count;
      return;
    }
  }
  free_.emplace(range.first, range.count);
}

std::vector<SlotRange> Slots::FreeRanges() const {
  std::vector<SlotRange> ranges;
  for (const auto& [first, count] : free_) ranges.push_back({first, count});
  return ranges;
}

bool Slots::TrimEnd() {
  if (free_.empty()) return false;
  const auto last = std::prev(free_.end());
  if (last->first + last->second != end_) return false;
  end_ = last->first;
  free_count_ -= last->second;
  free_.erase(last);
  return true;
}

}  // namespace abacus::objfs
