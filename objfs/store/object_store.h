#ifndef ABACUS_OBJFS_STORE_OBJECT_STORE_H_
#define ABACUS_OBJFS_STORE_OBJECT_STORE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::objfs {

// Names an object of one store for ever: it is given by the store, never 0 and never given again,
// whatever was removed, lost or restarted in between.
using ObjectId = uint64_t;

// The value of a Version (objfs/layer/version.h), never 0. The store keeps it and does not
// interpret it: that the versions of one block rise is the caller's affair.
using VersionNumber = uint64_t;

struct ObjectAttributes {
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // blocks that are no holes
  VersionNumber version = 0;     // of the last change of any kind
  std::string blob;              // the caller's, opaque
};

struct StoreSpace {
  uint64_t capacity_bytes = 0;   // the disk's, or the quota where that is less
  uint64_t used_bytes = 0;       // by blocks that can be read
  uint64_t available_bytes = 0;  // what the disk and the quota leave
  uint64_t objects = 0;
};

struct ObjectWrite {
  uint64_t offset = 0;
  std::string_view bytes;  // not empty
};
// What Update() does to one object. No two writes may touch one block.
struct ObjectUpdate {
  ObjectId id = 0;
  std::vector<ObjectWrite> writes;
  std::optional<std::string> blob;  // takes the place of the attributes
  // No other object rests on these contents. Where they are lost as they cannot be synced, updates
  // become durable without them, and the flushes of that step say so: kUnavailable.
  bool may_lose_contents = false;
  // More names go than come, and what they led to is removed once that is durable, which it is on a
  // full disk too. Said of one of the updates that are made together it is said of all.
  bool gives_room_back = false;
};

// Since the store was opened.
struct StoreStatistics {
  uint64_t checksum_errors = 0;  // blocks found damaged or unreadable, each time they are read
  uint64_t damaged_tables = 0;   // objects whose table could not be read
  uint64_t checkpoints = 0;
  uint64_t checkpoints_failed = 0;  // they are tried again later; the journal grows meanwhile
  uint64_t refused_for_space = 0;   // calls that ended with kResourceExhausted
  uint64_t repaired_blocks = 0;     // found damaged, and put back from a copy where there is one
  uint64_t repaired_objects = 0;    // whose table was damaged, and that are whole from a copy
};

// Flat objects of bytes with attributes: the lowest layer of the file system, on one server.
//
// What a store promises:
//   1. A change is seen by every call that begins after it returned. It is whole or not at all for
//      concurrent calls, and where it fails nothing has changed.
//   2. A change is durable once a Flush that begins after it returned OK, and need not be before. A
//      creation is a change like any other; it is durable before any later change of any object.
//   3. After a crash each attribute update and each block has its old or its new contents, never
//      part of both, whatever sectors the disk tore; the block is never reported damaged for it.
//   4. Bytes that come back are those that were written: every block has a checksum, and a block
//      that fails it is kDataLoss for those who read it and for nobody else.
//   5. Each block carries the version of its last write. VersionNumber 0 means a hole: a block that
//   was
//      never written, or punched, or cut off since; it reads as zeros.
//
// Errors, of every call:
//   kNotFound          - no such object.
//   kResourceExhausted - the disk or the quota is full. Nothing changed; free some and retry.
//   kDataLoss          - a damaged block or table, or a block that the disk cannot read; names it.
//   kOutOfRange        - beyond kObjectBytesMax.
//   kInvalidArgument   - version 0, or a blob above kBlobBytesMax.
//   kUnavailable       - the disk fails; or a failed sync may have lost data: the object takes no
//                        more changes until the store is reopened; where the message names the
//                        store, no flush succeeds until then. Reopened, it has what was durable.
//   the disk's others, with what was done and where.
// Thread-safety: thread-safe; calls on different objects run in parallel. Blocking: disk I/O in
// every call; Flush waits for the disk.
// Source: ours: the storage object of the paper needs a local file; checksums, versions and
// atomicity are what the layers above it rest on.
class ObjectStore {
 public:
  static constexpr uint64_t kBlockBytes = 8192;
  static constexpr uint64_t kObjectBytesMax = uint64_t{1} << 44;
  static constexpr uint64_t kBlobBytesMax = 4096;

  virtual ~ObjectStore() = default;

  // Makes an empty object.
  virtual absl::StatusOr<ObjectId> Create(std::string_view blob, VersionNumber version) = 0;
  // The same in two steps, for who has to know the identifier before: one that no object has had or
  // will have but for a CreateAs(), also after a crash.
  virtual absl::StatusOr<ObjectId> Reserve() = 0;
  // Makes the object `id`. REQUIRES: no object of this store had it before, and it was reserved
  // since the store was opened; or all of the store's objects are made under identifiers that its
  // user chooses. Errors: kInvalidArgument - 0; kAlreadyExists - an object has it.
  virtual absl::Status CreateAs(ObjectId id, std::string_view blob, VersionNumber version) = 0;
  // The object is gone for every later call, and for calls under way at some point of theirs.
  // Durable with the next Flush of any object that returns OK.
  virtual absl::Status Remove(ObjectId id) = 0;

  // Reads into `bytes`; returns how many, fewer only where the object ends.
  virtual absl::StatusOr<uint64_t> Read(ObjectId id, uint64_t offset, std::span<char> bytes) = 0;
  virtual absl::Status Write(ObjectId id, uint64_t offset, std::string_view bytes,
                             VersionNumber version) = 0;
  // Changes several objects in one step: all of it or nothing for concurrent calls, where it fails,
  // and after a crash. What updates changed becomes durable with the next flush of whatever object:
  // the attributes of all these objects, and the contents of those that an update wrote to.
  // Errors: kInvalidArgument - an object named twice, two writes to one block.
  //         kUnavailable - as above; also where updates can never become durable, see
  //         FlushTogether(): none is taken any more.
  virtual absl::Status Update(std::span<const ObjectUpdate> updates, VersionNumber version) = 0;
  // Cuts the object off or extends it by a hole.
  virtual absl::Status Truncate(ObjectId id, uint64_t size_bytes, VersionNumber version) = 0;
  // Makes the range read as zeros; whole blocks become holes. The size stays.
  virtual absl::Status Punch(ObjectId id, uint64_t offset, uint64_t bytes,
                             VersionNumber version) = 0;

  // The first byte from `offset` on that is in no hole, or that is. Holes are whole blocks, and the
  // end is one. Errors: kOutOfRange - `offset` is at the end or beyond, or no data follows.
  virtual absl::StatusOr<uint64_t> NextData(ObjectId id, uint64_t offset) = 0;
  virtual absl::StatusOr<uint64_t> NextHole(ObjectId id, uint64_t offset) = 0;

  // Versions of `count` blocks from block `first` on, 0 for holes and beyond the end.
  // Limits: `count` <= 65,536, else kInvalidArgument.
  virtual absl::StatusOr<std::vector<VersionNumber>> ReadVersions(ObjectId id, uint64_t first,
                                                                  uint64_t count) = 0;

  virtual absl::StatusOr<ObjectAttributes> GetAttributes(ObjectId id) = 0;
  virtual absl::Status SetAttributes(ObjectId id, std::string_view blob, VersionNumber version) = 0;

  // Up to `count_max` identifiers above `after` that name objects now, rising. Begin with 0; fewer
  // than asked for means that it was the end.
  virtual absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) = 0;

  // Makes the object's changes durable, and all updates.
  virtual absl::Status Flush(ObjectId id) = 0;
  // Makes the changes of these objects, and all updates, durable in one step: after a crash all of
  // it is there or nothing. What is removed meanwhile is passed over, and so is what is damaged: it
  // has taken no changes. Of an object whose contents cannot be synced, these are left out, the
  // rest is flushed, and the error is returned. Where that is an object that an update wrote to, no
  // update becomes durable by this step. After a failed sync (kUnavailable) none ever will until
  // the store is reopened: every flush says so, and Update() takes none. Only contents that the
  // update may lose are left out like others. After other errors (descriptors are used up) the next
  // flush tries again.
  // Concurrent flushes share a step: who comes while one lasts goes along with the next.
  virtual absl::Status FlushTogether(std::span<const ObjectId> ids) = 0;
  // Makes all changes durable, of whatever object, in one step. On an error the rest is flushed
  // nevertheless, and the first error returned. Whoever calls this is taken for a flusher in the
  // background: contents that an update may lose and that are lost are told to the next
  // FlushTogether() with objects as well.
  virtual absl::Status FlushAll() = 0;

  virtual absl::StatusOr<StoreSpace> Space() = 0;
  virtual StoreStatistics Statistics() = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_OBJECT_STORE_H_
