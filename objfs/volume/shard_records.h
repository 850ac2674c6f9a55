#ifndef ABACUS_OBJFS_VOLUME_SHARD_RECORDS_H_
#define ABACUS_OBJFS_VOLUME_SHARD_RECORDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/codec.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Names a transaction over several shards: an identifier that its coordinator has reserved, of no
// object.
using ShardGroup = ObjectId;

// What a shard knows of such a transaction, over restarts.
struct ShardRecord {
  enum class Kind : uint8_t {
    kPrepared = 1,  // it is ready to commit its part
    kDecided = 2,   // it is the coordinator, and the group is committed
  };
  Kind kind = Kind::kPrepared;
  ShardGroup group = 0;
  // kPrepared:
  uint32_t coordinator = 0;
  uint16_t writer = 0;
  Transaction transaction;
  // kDecided: who else is in it.
  std::vector<uint32_t> shards;

  // A version, a checksum, then the fields that its kind has. Errors of Decode: kDataLoss;
  // kFailedPrecondition - of a later version.
  std::string Encode() const;
  static absl::StatusOr<ShardRecord> Decode(std::string_view bytes);
};

// The records of a shard: slots of one object of its store, so that a record comes and goes in one
// step with what it is about, and a copy of the store has them as well. The object is no file: its
// inode has no type (kMode), and no name leads to it. A slot, little-endian: the record's length
// u32, 0: it is empty; 0 u32; the record.
// Thread-safety: thread-safe. Blocking: only Open(), for the disk.
class ShardRecords {
 public:
  using Slot = uint32_t;
  static constexpr uint32_t kMode = 0;  // of its inode
  static constexpr uint32_t kSlots = 64;
  static constexpr uint64_t kSlotBytes = uint64_t{64} << 13;  // 64 blocks
  static constexpr uint64_t kRecordBytesMax = kSlotBytes - 8;
  // Of each slot, that take their blocks before there is a record (Volume::SetShards): two, as of
  // one that changes a block of a directory. Who removes something where the disk, or the quota, is
  // used up finds room for the record of that.
  static constexpr uint64_t kReadyBytes = uint64_t{2} << 13;

  // The records in object `id`. Errors: kDataLoss - one is damaged, or the object is gone; the
  // message says that, and the way out. kFailedPrecondition - one is of a later version. Those of
  // the store.
  static absl::StatusOr<std::unique_ptr<ShardRecords>> Open(std::shared_ptr<ObjectStore> store,
                                                            ObjectId id);
  // What is in one slot of object `id`; nullopt: nothing. Errors: kDataLoss - it is damaged;
  // kFailedPrecondition - a record of a later version. Those of the store.
  static absl::StatusOr<std::optional<ShardRecord>> ReadSlot(ObjectStore& store, ObjectId id,
                                                             Slot slot);

  // What was there when it was opened.
  std::vector<std::pair<Slot, ShardRecord>> TakeFound();

  // Something to put into a step of the store; the bytes are its own.
  struct Change {
    ObjectId id = 0;
    uint64_t offset = 0;
    std::string bytes;
    ObjectUpdate update() const {  // valid as long as this lives
      return {.id = id, .writes = {{offset, bytes}}, .blob = std::nullopt};
    }
  };
  // Takes a slot. Errors: kResourceExhausted - all are taken, or the record is too large.
  absl::StatusOr<Slot> Take(const ShardRecord& record, Change* change);
  // What empties it; it can be taken again after GiveBack().
  Change Emptied(Slot slot) const;
  void GiveBack(Slot slot);
  size_t used();

 private:
  ShardRecords(std::shared_ptr<ObjectStore> store, ObjectId id);
  absl::Status ReadAll();

  const std::shared_ptr<ObjectStore> store_;
  const ObjectId id_;
  runtime::Mutex mutex_;
  std::vector<std::pair<Slot, ShardRecord>> found_ ABSL_GUARDED_BY(mutex_);
  std::set<Slot> used_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SHARD_RECORDS_H_
