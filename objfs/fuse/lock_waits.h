#ifndef ABACUS_OBJFS_FUSE_LOCK_WAITS_H_
#define ABACUS_OBJFS_FUSE_LOCK_WAITS_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::fuse {

// The kernel's requests that wait for a lock, and keep no thread of the mount meanwhile.
// Thread-safety: thread-safe.
class LockWaits {
 public:
  explicit LockWaits(FileSystem& files) : files_(files) {}

  // `ticket` is the file system's. REQUIRES: Remove() follows when the request was answered.
  void Add(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    tickets_.insert(ticket);
  }
  void Remove(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    tickets_.erase(ticket);
    changed_.SignalAll();
  }
  // Ends all waits, and returns when each was answered.
  // Blocking: calls of the volume. REQUIRES: no more are added.
  void CancelAll() {
    std::vector<uint64_t> tickets;
    {
      runtime::MutexLock lock(mutex_);
      tickets.assign(tickets_.begin(), tickets_.end());
    }
    for (const uint64_t ticket : tickets) files_.CancelLock(ticket);
    runtime::MutexLock lock(mutex_);
    while (!tickets_.empty()) changed_.Wait(mutex_);
  }

 private:
  FileSystem& files_;
  runtime::Mutex mutex_;  // not held over calls
  runtime::CondVar changed_;
  absl::flat_hash_set<uint64_t> tickets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_LOCK_WAITS_H_
