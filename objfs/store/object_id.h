#ifndef ABACUS_OBJFS_STORE_OBJECT_ID_H_
#define ABACUS_OBJFS_STORE_OBJECT_ID_H_

// What is in the identifiers of a volume's objects: its shard (volume/shard.h), 4 bits; the epoch
// of the volume map that they were given in, 20 bits; and a number, 40 bits. So no two shards, and
// no two servers that answered for one of them, give one identifier.

#include <cstdint>

#include "objfs/store/object_store.h"

namespace abacus::objfs {

inline constexpr int kIdEpochShift = 40, kIdShardShift = 60;
inline constexpr uint64_t kIdEpochMax = (uint64_t{1} << (kIdShardShift - kIdEpochShift)) - 1;
inline constexpr uint32_t kShardsMax = 16;

constexpr uint32_t ShardOf(ObjectId id) { return static_cast<uint32_t>(id >> kIdShardShift); }
constexpr uint64_t EpochOf(ObjectId id) { return (id >> kIdEpochShift) & kIdEpochMax; }
// None below it is given in that epoch. Those of a volume without a map, and of the first epoch,
// begin at 1.
constexpr ObjectId FirstIdOf(uint32_t shard, uint64_t epoch) {
  return (uint64_t{shard} << kIdShardShift) | (epoch <= 1 ? 1 : epoch << kIdEpochShift);
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_OBJECT_ID_H_
