#ifndef ABACUS_OBJFS_REPLICA_REPLICA_LINK_H_
#define ABACUS_OBJFS_REPLICA_REPLICA_LINK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/replica/replica_operation.h"
#include "objfs/replica/replica_store.h"
#include "runtime/base/block.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// A primary's way to its copy: ReplicaStore's calls, whose errors beside the copy's own are
// kUnavailable and kDeadlineExceeded, after which nobody knows whether the call was made. Why not
// the reference itself: a call has to end although the copy's disk hangs, and tests lose messages
// here. Thread-safety: thread-safe. Blocking: a call to another server; not under a lock.
class ReplicaLink {
 public:
  virtual ~ReplicaLink() = default;
  virtual absl::StatusOr<ReplicaState> State() = 0;
  virtual absl::StatusOr<ReplicaState> Begin(uint64_t epoch, uint64_t session) = 0;
  virtual absl::Status Apply(uint64_t epoch, uint64_t session, const ReplicaBatch& batch) = 0;
  virtual absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) = 0;
  virtual absl::StatusOr<ReplicaObject> Describe(ObjectId id, uint64_t first, uint64_t count,
                                                 bool digests) = 0;
  virtual absl::StatusOr<runtime::Block> ReadBlock(ObjectId id, uint64_t block) = 0;
  virtual absl::Status PutBack(ObjectId id, uint64_t block, const runtime::Block& bytes) = 0;
};

// The way through the runtime. A call that is not answered within `answer_max` is given up
// (kDeadlineExceeded); one to an object of this node is not.
std::shared_ptr<ReplicaLink> LinkTo(runtime::Ref<ReplicaStore> copy, absl::Duration answer_max);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICA_LINK_H_
