#ifndef ABACUS_OBJFS_CHECK_SHARDS_SCAN_H_
#define ABACUS_OBJFS_CHECK_SHARDS_SCAN_H_

// What the checks of a volume's shards, each of its own names and inodes, say together. Pure:
// whoever asks the shards is elsewhere (apps/abacus/fsck_online.cc).

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/check/report.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/transaction.h"

namespace abacus::objfs {

struct ShardFault {
  Fault fault;  // of an object in the shard that is to be told of it
  // Of the inode that does not fit, as it was when it was looked at; 0: there is none.
  VersionNumber version = 0;
  // Of fault.object: what makes it right; nullopt: `text` says what is to be done.
  std::optional<InodeChange> repair;
};

struct ShardsComparison {
  std::vector<ShardFault> faults;
  std::vector<ObjectId> gone;       // rising: names lead to these, and there are no such files
  std::vector<uint64_t> followed;   // by shard: its names that were compared
  std::vector<uint64_t> unsettled;  // by shard: what looked wrong and may have been changing
  std::vector<GroupInDoubt> in_doubt;
};

// Objects to which names of other shards lead, and of which the looks say nothing: as they are
// explained where they are, or as they are not there. By rising id.
// REQUIRES: looks[i] is that of shard i, and each says that there are as many.
std::vector<ObjectId> ToAsk(const std::vector<ShardLook>& looks);
// Adds what the shard of `look` answers for those of `ids` that are its own (Volume::Stat); of what
// it cannot read (kDataLoss) nothing is said. Errors: other ones of `nodes`.
absl::Status TakeAsked(const std::vector<ObjectId>& ids,
                       const absl::StatusOr<std::vector<Node>>& nodes, ShardLook* look);

// Names that lead to nothing, or to a thing of another type; counts that the names of all shards do
// not explain; directories with no name, with several, or with another parent than the directory of
// their name. What one shard's own names explain, or contradict, its own check tells.
//
// What is changed between two shards' looks looks wrong: only what StillSo() leaves counts.
// REQUIRES: as ToAsk(), and all of these were asked for.
// Limits: objects beyond what a look tells (ShardLook::kToldMax) are not compared.
ShardsComparison CompareShards(const std::vector<ShardLook>& looks);

// What looked wrong in the same way both times, the inode not having been changed between; the rest
// is unsettled. So is what a transaction that was in doubt both times may be about.
// REQUIRES: between the two passed more time than a transaction over several shards takes, where
// all are served.
ShardsComparison StillSo(const ShardsComparison& first, ShardsComparison second);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_SHARDS_SCAN_H_
