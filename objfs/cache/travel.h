#ifndef ABACUS_OBJFS_CACHE_TRAVEL_H_
#define ABACUS_OBJFS_CACHE_TRAVEL_H_

#include <cstdint>

namespace abacus::objfs {

// What a cache does with its dirty blocks when it moves: the one place where that is decided.
//
//   carry   old place -> new place, and later new place -> below
//   flush   old place -> below, and later, what is written over again, new place -> below
//
// A byte that is written over before it would be written back goes below once if it is carried, and
// twice if it is flushed. So carrying costs bytes x (old_to_new + new_to_below), and flushing bytes
// x (old_to_below + again x new_to_below); the cheaper one is taken, and where both cost the same
// the blocks are carried, which spares the layer below a write. That means:
//
//   the layer below is where        what is cheaper
//   the cache goes                  carrying: it is the flush's transfer
//   the cache is                    flushing: it crosses nothing
//   neither                         flushing, but where all of it is written over again
//
// Clean blocks do not travel: one costs old_to_new for certain, and saves new_to_below only if it
// is read again, while it makes the stop of the migration longer.

// What a byte costs from place to place, in any one unit; 0 where both are one node.
struct TravelWays {
  double old_to_new = 1;
  double old_to_below = 1;
  double new_to_below = 1;
};

struct DirtySet {
  uint64_t bytes = 0;
  double again = 0;  // the share of them that is likely to be written over, 0 to 1
};

enum class DirtyTravel { kCarry, kFlush };

// Dirty bytes that a checkpoint has at most, if they can be flushed: nobody gets into the cache
// while they are copied, sent and copied, about 1 ms between processes of one machine
// (runtime/README.md) and 9 ms over 1 Gbit/s. A flush takes longer and stops nobody. Bytes.
inline constexpr uint64_t kCarryBytesMax = uint64_t{1} << 20;

// What a cache's checkpoint has beside its blocks, at most; it is not charged to the budget of the
// node that the cache goes to. Bytes.
inline constexpr uint64_t kBareStateBytesMax = 4096;

// Pure. Source: ours.
constexpr DirtyTravel ChooseTravel(const DirtySet& dirty, const TravelWays& ways) {
  if (dirty.bytes > kCarryBytesMax) return DirtyTravel::kFlush;
  const auto bytes = static_cast<double>(dirty.bytes);
  const double carry = bytes * (ways.old_to_new + ways.new_to_below);
  const double flush = bytes * (ways.old_to_below + dirty.again * ways.new_to_below);
  return carry <= flush ? DirtyTravel::kCarry : DirtyTravel::kFlush;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CACHE_TRAVEL_H_
