#ifndef ABACUS_OBJFS_VOLUME_VOLUME_LOCKS_H_
#define ABACUS_OBJFS_VOLUME_VOLUME_LOCKS_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/volume/lock_client.h"
#include "objfs/volume/lock_table.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// The locks of a volume's clients, and the news to those whose requests have waited.
//
// A client is told on a thread of its own, which begins with the first news: one that does not
// answer keeps no other one waiting. News that do not arrive are not repeated; who waits asks now
// and then with Waiting().
// Invariant: who is no client has no locks, also where its request comes late.
// Errors: IsNoClient() - `writer` is no client; those of LockTable.
// Thread-safety: thread-safe. Blocking: no; the destructor waits for the calls under way.
class VolumeLocks {
 public:
  ~VolumeLocks();

  void Begin(uint16_t writer);
  // All its locks go, and its requests.
  void End(uint16_t writer);
  absl::Status Listen(uint16_t writer, const runtime::Ref<LockClient>& client);

  absl::StatusOr<LockState> Lock(uint16_t writer, const LockRequest& request);
  absl::Status Unlock(uint16_t writer, const LockRequest& request);
  absl::StatusOr<std::optional<HeldLock>> Excluding(uint16_t writer, const LockRequest& request);
  // False: the request does not wait; it was granted.
  absl::StatusOr<bool> Cancel(uint16_t writer, uint64_t ticket);
  // Those of `tickets` that wait.
  absl::StatusOr<std::vector<uint64_t>> Waiting(uint16_t writer,
                                                const std::vector<uint64_t>& tickets);
  LockCounts counts();

 private:
  struct Client {
    runtime::Ref<LockClient> object;
    std::vector<uint64_t> granted;  // to be told
    bool ended = false;
    bool done = false;  // the thread has nothing more to do
    std::thread teller;
  };
  using ClientPtr = std::shared_ptr<Client>;

  absl::Status Check(uint16_t writer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const LockTable::Grants& grants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellNowAndThen(Client& client);
  // Threads that are at their end.
  std::vector<ClientPtr> TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  runtime::Mutex mutex_;  // not held over calls
  runtime::CondVar changed_;
  LockTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<uint16_t, ClientPtr> clients_ ABSL_GUARDED_BY(mutex_);
  std::list<ClientPtr> leaving_ ABSL_GUARDED_BY(mutex_);  // whose threads are still to be joined
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_VOLUME_LOCKS_H_
