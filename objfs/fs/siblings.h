#ifndef ABACUS_OBJFS_FS_SIBLINGS_H_
#define ABACUS_OBJFS_FS_SIBLINGS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {

class FileSystemImpl;
struct ClientWaits;

// The joinings of a volume's other shards, for the one of a shard whose names lead there.
//
// Whoever calls holds its own joining, which waits for it before it is made anew. So nothing here
// waits for another joining to be made anew: two that waited for each other would do so for ever. A
// call that cannot have the other one, or meets its end, is answered with OfSibling(), and made
// again by who holds none (ShardedFileSystem).
// Thread-safety: thread-safe. Blocking: for what is called.
class Siblings {
 public:
  virtual ~Siblings() = default;
  virtual uint32_t own() const = 0;    // the shard of whoever has this
  virtual uint32_t count() const = 0;  // of the volume's shards
  virtual ObjectId root() const = 0;   // of the volume: shard 0's
  // Calls `call` with the joining of that shard, which stays as it is meanwhile. Errors of `call`,
  // where they mean that this joining may be over; of that shard's joining that is not to be had
  // now: OfSibling(). Other errors of `call` are as they are. kStale - the volume has no such
  // shard. REQUIRES: shard != own().
  virtual absl::Status With(uint32_t shard,
                            const std::function<absl::Status(FileSystemImpl& there)>& call) = 0;
  // What the boards of all these joinings share (wait_board.h); null: nothing.
  virtual std::shared_ptr<ClientWaits> waits() { return nullptr; }
};

// That a call has met trouble with the joining of that shard, which is for who holds no joining to
// see to. `why`: what was met there, and in which of its joinings (RejoiningFileSystem::Look); OK:
// it is being made anew. Where the outcome of `why` is not known, that of this is neither.
// Its code is kUnavailable, and it never leaves the process.
absl::Status OfSibling(uint32_t shard, const absl::Status& why, uint64_t joining = 0);
struct SiblingTrouble {
  uint32_t shard = 0;
  absl::Status why;
  uint64_t joining = 0;
};
// nullopt: the status is of something else.
std::optional<SiblingTrouble> SiblingTroubleOf(const absl::Status& status);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_SIBLINGS_H_
