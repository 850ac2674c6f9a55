#ifndef ABACUS_OBJFS_REPLICA_REPLICA_STREAM_H_
#define ABACUS_OBJFS_REPLICA_REPLICA_STREAM_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "objfs/replica/replica_operation.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The operations that are on their way to a copy, in their order, and the flushes that wait for
// them. One thread takes batches out and says how they went.
//
// A flush covers the operations that were put before it. Flushes that come while a batch is under
// way go with the next one together.
// Thread-safety: thread-safe. Blocking: only where it is said.
// Limits: Room() waits while more than `bytes_max` wait; a Put() itself never does, as its caller
//         has an object's turn.
class ReplicaStream {
 public:
  struct Options {
    uint64_t bytes_max = uint64_t{16} << 20;
    uint64_t batch_bytes_max = uint64_t{1} << 20;
    // Operations that no flush waits for go when there are so many bytes, or after so long.
    uint64_t batch_bytes_min = uint64_t{64} << 10;
    absl::Duration linger = absl::Milliseconds(2);
  };
  // Flushes that are answered together.
  struct Flush {
    uint64_t covers = 0;  // operations up to this one
    ReplicaFlush kind = ReplicaFlush::kNone;
    std::vector<ObjectId> ids;
    bool is_done = false;
    absl::Status status;
  };
  using FlushPtr = std::shared_ptr<Flush>;
  struct Taken {
    ReplicaBatch batch;
    std::vector<FlushPtr> flushes;
    uint64_t cost = 0;
  };

  explicit ReplicaStream(Options options) : options_(options) {}

  // Begins anew, with operation 1. REQUIRES: it is closed, as at first.
  void Open();
  // Nothing is taken any more; flushes that wait, and those that come, fail with `why`, an error.
  // That it is closed already changes nothing.
  void Close(const absl::Status& why);
  bool IsOpen();

  // Waits until there is room, or it is closed. Blocking: for the copy.
  void Room();
  // Dropped where it is closed.
  void Put(ReplicaOperation operation);
  // Asks for a flush of what was put before. `ids`: of kThese.
  FlushPtr Ask(ReplicaFlush kind, std::span<const ObjectId> ids);
  // Blocking: for the copy.
  absl::Status Await(const FlushPtr& flush);

  // The next batch for the copy; nullopt: it is closed. Blocking: until there is one.
  std::optional<Taken> Take();
  void Answered(const Taken& taken, const absl::Status& status);
  // How many operations were put, and answered with OK, since Open().
  uint64_t put();
  uint64_t answered();

 private:
  // Something is to go now.
  bool IsDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const FlushPtr& flush) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  runtime::Mutex mutex_;
  runtime::CondVar due_;   // for Take()
  runtime::CondVar done_;  // room, or an answer
  absl::Status closed_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("there is no copy");
  std::deque<ReplicaOperation> operations_ ABSL_GUARDED_BY(mutex_);
  std::deque<FlushPtr> flushes_ ABSL_GUARDED_BY(mutex_);  // that nobody took; covers rise
  std::optional<std::chrono::steady_clock::time_point> oldest_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of operations that are not answered
  uint64_t put_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICA_STREAM_H_
