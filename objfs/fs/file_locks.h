#ifndef ABACUS_OBJFS_FS_FILE_LOCKS_H_
#define ABACUS_OBJFS_FS_FILE_LOCKS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/fs/error.h"
#include "objfs/volume/lock_client.h"
#include "objfs/volume/lock_table.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// Is told what became of a request for a lock: once, on any thread. It must not block.
using LockDone = std::function<void(const absl::Status& status)>;

// The locks that one client has of a volume, and its requests that wait. Waiting is here and not at
// the volume: the volume tells a LockClient when a lock is there, and where its news are lost this
// end asks every kAskAgain.
//
// Invariants:
// 1. Each request is answered once.
// 2. What was cancelled and yet answered with OK is locked.
// Errors: kWouldBlock, kDeadlock; kInterrupted where cancelled; kNoLocks - too many; kInputOutput -
//         the client has left the volume, or was silent for longer than its lease, and has no locks
//         any more.
// Thread-safety: thread-safe. Blocking: calls of the volume, which waits for no client.
class FileLocks {
 public:
  static constexpr std::chrono::milliseconds kAskAgain{5000};
  // After so many failures in a row those that wait are told of the last one.
  static constexpr int kFailuresMax = 3;

  struct Host {
    std::function<runtime::Ref<LockClient>(std::unique_ptr<LockClient>)> adopt;
    std::function<void(const runtime::Ref<LockClient>&)> end;
  };

  FileLocks(runtime::Ref<Volume> volume, uint16_t writer, Host host,
            std::chrono::milliseconds ask_again = kAskAgain);
  // Tickets go on from those that the client was given before.
  void GoOnFrom(const FileLocks& before) { last_ticket_ = before.last_ticket_.load(); }
  // Files that this client may have locks of.
  std::vector<ObjectId> LockedFiles();
  // Requests that still wait are told kInputOutput.
  ~FileLocks();
  // REQUIRES: called once, before the first request that waits.
  absl::Status Listen();

  // A name for a request that is to wait. REQUIRES: Lock() follows.
  uint64_t NewTicket();
  // Without a ticket: `done` is called before this returns.
  void Lock(const LockRequest& request, const LockDone& done);
  // Blocking: no. From NewTicket() on; what has been answered is not changed.
  void Cancel(uint64_t ticket);
  absl::Status Unlock(const LockRequest& request);
  // All that the owner has of the file. Asks the volume only where there may be something.
  absl::Status UnlockAll(ObjectId file, LockKind kind, uint64_t owner);
  // `pid` is 0 where the owner is another client's.
  absl::StatusOr<std::optional<HeldLock>> Excluding(const LockRequest& request);

 private:
  using OwnerOfFile = std::tuple<ObjectId, LockKind, uint64_t>;
  static OwnerOfFile OwnerOf(const LockRequest& request) {
    return {request.file, request.kind, request.owner};
  }

  struct Wait {
    LockRequest request;
    LockDone done;
    bool accepted = false;  // the volume has put it among those that wait
    bool cancelled = false;
  };
  // Outlives the locks while the volume may still tell the LockClient something.
  struct Waits {
    // The request's end, where nobody has told it before.
    void Finish(uint64_t ticket, const absl::Status& status);

    runtime::Mutex mutex;
    runtime::CondVar changed;
    absl::flat_hash_map<uint64_t, Wait> all ABSL_GUARDED_BY(mutex);  // by ticket
    std::vector<uint64_t> cancels ABSL_GUARDED_BY(mutex);            // to be told to the volume
    // Who may have locks.
    absl::flat_hash_set<OwnerOfFile> owners ABSL_GUARDED_BY(mutex);
    bool stopping ABSL_GUARDED_BY(mutex) = false;
  };

  void AskNowAndThen();
  void CancelAtVolume(uint64_t ticket);
  void AskAgain(int* failures);
  absl::Status StatusOf(const absl::StatusOr<LockState>& state) const;
  void TakeBack(const LockRequest& request);

  const runtime::Ref<Volume> volume_;
  const uint16_t writer_;
  const Host host_;
  const std::chrono::milliseconds ask_again_;
  const std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
  std::atomic<uint64_t> last_ticket_{0};
  runtime::Ref<LockClient> client_;  // constant after Listen()
  std::thread asker_;                // constant after Listen()
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_FILE_LOCKS_H_
