#ifndef ABACUS_OBJFS_REPLICA_REPLICA_OPERATION_H_
#define ABACUS_OBJFS_REPLICA_REPLICA_OPERATION_H_

// What a primary tells its copy to do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "objfs/store/object_store.h"
#include "runtime/base/block.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

struct ReplicaWrite {
  uint64_t offset = 0;
  runtime::Block bytes;
  ABACUS_FIELDS(offset, bytes)
};

// Of one object.
struct ReplicaPart {
  ObjectId id = 0;
  std::vector<ReplicaWrite> writes;
  std::optional<std::string> blob;
  bool may_lose_contents = false;
  bool gives_room_back = false;  // both as in ObjectUpdate
  ABACUS_FIELDS(id, writes, blob, may_lose_contents, gives_room_back)
};

// A change that the primary has made, or one that makes an object of the copy what it is there.
struct ReplicaOperation {
  enum class Kind : uint8_t {
    kCreate = 1,     // one part, with its blob
    kRemove,         // one part
    kWrite,          // one part, one write
    kUpdate,         // any parts
    kTruncate,       // one part; `offset` is the size
    kPunch,          // one part; `offset`, `bytes`
    kSetAttributes,  // one part, with its blob
    kForget,         // as kRemove, where the object is there
    kMakeAnew,       // as kCreate; what has the name is damaged, and goes first
  };
  Kind kind = Kind::kCreate;
  VersionNumber version = 0;
  uint64_t offset = 0, bytes = 0;
  std::vector<ReplicaPart> parts;
  ABACUS_FIELDS(kind, version, offset, bytes, parts)

  // In memory and on the way.
  uint64_t Cost() const;
  // Does it. Errors: the store's; kInvalidArgument - it is none that is known, or lacks a part.
  // kMakeAnew is only kCreate here. Thread-safety: as the store.
  absl::Status ApplyTo(ObjectStore& store) const;
};

// What is to be durable at the copy, besides all updates, when a batch is answered.
enum class ReplicaFlush : uint8_t {
  kNone,    // nothing, not even updates
  kThese,   // these objects
  kAll,     // all
  kFinish,  // all, and the copy is whole from now on
};

struct ReplicaBatch {
  uint64_t first = 0;  // sequence number of the first operation, from 1 in each session
  std::vector<ReplicaOperation> operations;
  ReplicaFlush flush = ReplicaFlush::kNone;
  std::vector<ObjectId> ids;
  ABACUS_FIELDS(first, operations, flush, ids)
};

struct ReplicaState {
  uint64_t epoch = 0;
  uint64_t session = 0;  // 0: none since it was opened
  uint64_t applied = 0;  // the last operation of that session
  // What it promises for a promotion, durable (ReplicaRecord::is_whole).
  bool is_whole = false;
  uint64_t objects = 0;
  ABACUS_FIELDS(epoch, session, applied, is_whole, objects)
};

// An object of the copy, or some blocks of it, for a comparison.
struct ReplicaObject {
  bool is_there = false;
  bool is_damaged = false;  // no call can use it
  uint64_t size = 0;
  VersionNumber version = 0;
  std::string blob;
  // Of the blocks that were asked for. Digests: CRC32C of 8192 bytes; of a damaged block none that
  // anybody compares equal to (`damaged`).
  std::vector<VersionNumber> versions;
  std::vector<uint32_t> digests;
  std::vector<uint64_t> damaged;  // block numbers
  uint64_t next = UINT64_MAX;     // the first block behind those that is no hole
  ABACUS_FIELDS(is_there, is_damaged, size, version, blob, versions, digests, damaged, next)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICA_OPERATION_H_
