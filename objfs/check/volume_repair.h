#ifndef ABACUS_OBJFS_CHECK_VOLUME_REPAIR_H_
#define ABACUS_OBJFS_CHECK_VOLUME_REPAIR_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/check/checker.h"
#include "objfs/check/volume_scan.h"
#include "objfs/directory/directory_tree.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/transaction.h"

namespace abacus::objfs {

// A directory's blocks as the store has them, each with the version that its bytes are of.
class StoredBlocks final : public BlockSource {
 public:
  StoredBlocks(ObjectStore& store, ObjectId id) : store_(store), id_(id) {}
  absl::StatusOr<BlockRead> Read(uint32_t number) override;

 private:
  ObjectStore& store_;
  const ObjectId id_;
};

// What names are to become in one directory, and its counts with them. Errors: those of a plan.
absl::StatusOr<Part> ChangeNames(ObjectStore& store, const Facts& directory,
                                 const std::vector<EntryChange>& changes);
// What makes a count, or the parent, right.
InodeChange RightCount(FaultKind kind, const Facts& facts, ObjectId root);

// Makes right what one scan found, of one stage. For CheckVolume() alone. Thread-compatible.
class VolumeRepair {
 public:
  static constexpr char kLostAndFound[] = "lost+found";

  // `kept`: takes the objects that this makes, as VolumeScan wants them; null: they are not wanted.
  VolumeRepair(ObjectTable& table, const CheckOptions& options, VolumeScan& scan,
               std::set<ObjectId>* kept = nullptr)
      : table_(table), store_(table.store()), options_(options), scan_(scan), kept_(kept) {}

  // Sets what was done in the fault. Not durable before the store's next flush.
  // Errors: why it could not be; then nothing was changed that the next scan would not find.
  absl::Status Repair(Found* found);

 private:
  absl::Status RepairRecords(Found* found);
  absl::Status TellSalvaged(Found* found);
  absl::StatusOr<ObjectId> KeepUnnamed(ObjectId id);
  absl::Status MakeRoot(Found* found);
  absl::Status RemakeInode(Found* found);
  absl::Status CountNames(ObjectId id, Inode* inode);
  uint32_t TypeOf(const Facts& facts);
  // That this shard knows enough of an inode to make it anew as one of that type.
  absl::Status CheckKnownHere(const Facts& facts, uint32_t type);
  absl::Status RebuildDirectory(Found* found);
  absl::Status ChangeName(Found* found);
  absl::Status Attach(Found* found);
  absl::Status SetCount(Found* found);

  absl::Status Commit(const Transaction& transaction);
  // The directory of that name in the root, or with a number where that is of no use; it is made
  // where there is none.
  absl::StatusOr<ObjectId> LostAndFound();
  absl::Status MakeLostAndFound(const std::string& name);
  // `wanted`, or with a number where the directory has such a name.
  absl::StatusOr<std::string> FreeName(ObjectId directory, const std::string& wanted);

  ObjectTable& table_;
  ObjectStore& store_;
  const CheckOptions& options_;
  VolumeScan& scan_;
  std::set<ObjectId>* const kept_;
  std::string lost_and_found_name_;
  std::optional<ObjectId> lost_and_found_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_VOLUME_REPAIR_H_
