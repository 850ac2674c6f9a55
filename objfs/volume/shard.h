#ifndef ABACUS_OBJFS_VOLUME_SHARD_H_
#define ABACUS_OBJFS_VOLUME_SHARD_H_

// Shards: a volume's names and inodes may be spread over several servers. Each shard is a volume of
// its own, with a store, a map's row, copies and columns of its own, and all that is true of a
// volume is true of it. What makes them one volume: identifiers tell the shard (store/object_id.h),
// names of one lead to inodes of another, and what changes several is one transaction
// (shard_commits.h). Shard 0 has the root directory, and the volume's name; shard 2 of `home` is
// the volume `home~2`, a name that no user can give.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {

// An extended attribute of a directory: "yes" - the directories that are made in it are spread over
// the volume's shards, by their names; "no" - they are in the directory's own. Without one they are
// spread in the root only.
inline constexpr char kSpreadXattr[] = "user.abacus.spread";

// An extended attribute of a shard's root, which makes it one. No program can set it, or sees it.
inline constexpr char kShardsXattr[] = "abacus.shards";

// What that attribute says.
struct ShardState {
  uint32_t count = 0;    // of the volume's shards, 2 to kShardsMax
  ObjectId records = 0;  // the object with this one's records (shard_records.h)
  // The same of all shards that were made together, and by chance of no others, which may have the
  // same names: a shard of another volume is never taken for one of this. Not 0.
  uint64_t volume = 0;
  // "COUNT RECORDS VOLUME", decimal.
  std::string Format() const;
  // Errors: kDataLoss - it is no such text.
  static absl::StatusOr<ShardState> Parse(std::string_view text);
  friend bool operator==(const ShardState&, const ShardState&) = default;
};

struct ShardPlace {
  std::string volume;  // without the shard
  uint32_t shard = 0;
};
// REQUIRES: shard < kShardsMax.
std::string ShardName(std::string_view volume, uint32_t shard);
// What a volume's name says; `volume` is all of it where it is none of a shard.
ShardPlace PlaceOfShard(std::string_view name);
// What people are told of it: "volume 'home'", or "shard 2 of volume 'home'".
std::string VolumeText(std::string_view name);

// In which shard a directory of this name is made, where the one that it is made in spreads them.
uint32_t ShardForName(ObjectId parent, std::string_view name, uint32_t shards);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SHARD_H_
