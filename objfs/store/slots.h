#ifndef ABACUS_OBJFS_STORE_SLOTS_H_
#define ABACUS_OBJFS_STORE_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"

namespace abacus::objfs {

struct SlotRange {
  uint64_t first = 0;
  uint64_t count = 0;
  friend bool operator==(const SlotRange&, const SlotRange&) = default;
};

// Which slots of an object's data file are free. It is not kept on disk: what no table entry names
// is free.
// Thread-safety: thread-compatible. Blocking: no.
class Slots {
 public:
  // Begins anew with these slots in use. False where one is named twice.
  bool Reset(std::vector<uint64_t> used);

  // Takes `count` slots that follow each other, and returns the first: the lowest free range that
  // is large enough among the first few, else the end of the file.
  uint64_t Allocate(uint64_t count);
  void Free(uint64_t slot) { Free({slot, 1}); }
  // REQUIRES: all of the range is in use.
  void Free(SlotRange range);

  // Slots from here on were never used, or were cut off: they are no part of the file.
  uint64_t end() const { return end_; }
  uint64_t free_count() const { return free_count_; }
  // How many became free since the file last gave back the space of all that were.
  uint64_t unpunched() const { return unpunched_; }
  void Punched() { unpunched_ = 0; }
  std::vector<SlotRange> FreeRanges() const;
  // Moves the end down over the free slots before it; true where it moved.
  bool TrimEnd();

 private:
  static constexpr int kRangesLookedAtMax = 64;

  absl::btree_map<uint64_t, uint64_t> free_;  // first -> count; no two ranges touch
  uint64_t free_count_ = 0;
  uint64_t unpunched_ = 0;
  uint64_t end_ = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_SLOTS_H_
