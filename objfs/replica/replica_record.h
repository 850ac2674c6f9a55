#ifndef ABACUS_OBJFS_REPLICA_REPLICA_RECORD_H_
#define ABACUS_OBJFS_REPLICA_REPLICA_RECORD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/store/local_object_store.h"

namespace abacus::objfs {

// What one server's directory of a replicated volume is worth, kept as the file `replica` beside
// its object store's. The bytes: `ABACUSRP`, u32 version 1, u32 flags (1: whole, 2: the volume's
// own), u64 epoch, u32 CRC32C of all that; little-endian.
struct ReplicaRecord {
  static constexpr size_t kBytes = 28;
  static constexpr char kFileName[] = "replica";

  uint64_t epoch = 0;  // the highest that was seen: nothing of a lower one is taken
  // All that a flush has acknowledged up to the end of the last epoch that wrote here is there. A
  // copy in the middle of a resync, or that missed something, is not: nobody may rest on it.
  bool is_whole = false;
  // It was served from here, in that epoch: there may be changes that no other server has.
  bool was_primary = false;

  std::string Encode() const;
  // Errors: kDataLoss - damaged. kFailedPrecondition - of a version that is not known here.
  static absl::StatusOr<ReplicaRecord> Decode(std::string_view bytes);
  // nullopt: there is none. Errors: as Decode(), with the way out; the disk's.
  static absl::StatusOr<std::optional<ReplicaRecord>> Load(Disk& disk);
  // Durable when it returns; a crash leaves the old one or this one.
  // REQUIRES: one call at a time.
  absl::Status Save(Disk& disk) const;

  friend bool operator==(const ReplicaRecord&, const ReplicaRecord&) = default;
};

// Opens a directory as the volume's own store, in a new epoch: the first time, after a restart, or
// a copy that takes over (after ReplicaStore::Retire(), and its destruction).
//
// Identifiers that it gives are above any that an earlier epoch can have given to anybody, and are
// of its shard (FirstIdOf(), store/object_id.h). A copy does not know which ones its primary has
// reserved, and columns of files are kept by these numbers elsewhere.
// REQUIRES: `epoch` is above that of every earlier opening, of this or another copy; the volume map
// gives it together with the lease. The disk outlives the store.
// Errors: kInvalidArgument - epoch 0, or above kIdEpochMax; no such shard.
//         kFailedPrecondition - it is a copy that is not whole, or has seen this epoch or a later
//         one; or it has no record, which all but a volume's first epoch leave: what was there is
//         lost. Nothing was changed. Those of LocalObjectStore::Open().
absl::StatusOr<std::unique_ptr<LocalObjectStore>> OpenPrimaryStore(Disk& disk, uint64_t epoch,
                                                                   LocalObjectStoreOptions options,
                                                                   uint32_t shard = 0);

// Whether a directory that was the volume's own store could be opened as that again, in a later
// epoch. Opens it and closes it. Where `reads_on` is not empty the tables of its objects are read
// too, until one is damaged or it says no; it is asked before each 256 of them.
// Errors: as of OpenPrimaryStore(). kDataLoss - also of a table that cannot be read: but for that
//         object it could be opened.
absl::Status CheckPrimaryStore(Disk& disk, LocalObjectStoreOptions options,
                               const std::function<bool()>& reads_on = nullptr);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICA_RECORD_H_
