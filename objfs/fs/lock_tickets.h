#ifndef ABACUS_OBJFS_FS_LOCK_TICKETS_H_
#define ABACUS_OBJFS_FS_LOCK_TICKETS_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Names of requests for locks that may wait, at any shard of a volume. Which shard it is, and under
// which ticket it waits there (FileLocks::NewTicket), is known with the request; and the request
// may be cancelled before that, by another thread.
//
// Who asks calls New(), Begin(), then the shard's Lock(), and cancels it there where IsCancelled()
// says so afterwards; the answer calls End(). Who cancels calls Cancel(), and cancels at the shard
// that it tells. So one of the two does, whichever comes first, and to do it twice is nothing.
// Thread-safety: thread-safe. Blocking: no.
class LockTickets {
 public:
  struct AtShard {
    uint32_t shard = 0;
    uint64_t ticket = 0;  // the shard's
    friend bool operator==(const AtShard&, const AtShard&) = default;
  };

  // REQUIRES: End() follows.
  uint64_t New() {
    runtime::MutexLock lock(mutex_);
    all_[++last_];
    return last_;
  }
  // It is about to be asked for there.
  void Begin(uint64_t ticket, const AtShard& at) {
    runtime::MutexLock lock(mutex_);
    all_[ticket].at = at;
  }
  // Where it is to be cancelled; nullopt: nowhere yet, or it has been answered.
  std::optional<AtShard> Cancel(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    const auto found = all_.find(ticket);
    if (found == all_.end()) return std::nullopt;
    found->second.cancelled = true;
    return found->second.at;
  }
  // Whether it was, and has not been answered.
  bool IsCancelled(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    const auto found = all_.find(ticket);
    return found != all_.end() && found->second.cancelled;
  }
  void End(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    all_.erase(ticket);
  }

 private:
  struct Wait {
    std::optional<AtShard> at;
    bool cancelled = false;
  };
  runtime::Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Wait> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_LOCK_TICKETS_H_
