#ifndef ABACUS_OBJFS_FS_WAIT_BOARD_H_
#define ABACUS_OBJFS_FS_WAIT_BOARD_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "objfs/store/object_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Where calls of a front end wait for what other clients have promised to give back. A call that
// would block takes Seen() before it asks, and waits for more than that.
//
// Thread-safety: thread-safe. Blocking: only Await().
class WaitBoard {
 public:
  // A wake-up can be lost with its message: then it is asked again after this time.
  static constexpr std::chrono::seconds kAskAgain{1};

  uint64_t Seen(ObjectId id) {
    runtime::MutexLock lock(mutex_);
    return wakes_[SlotOf(id)];
  }
  void Wake(ObjectId id) {
    runtime::MutexLock lock(mutex_);
    ++wakes_[SlotOf(id)];
    changed_.SignalAll();
  }
  // Nobody waits any more, from now on.
  void Close() {
    runtime::MutexLock lock(mutex_);
    closed_ = true;
    changed_.SignalAll();
  }
  // Returns when there was a Wake() since `seen`, or after kAskAgain; false once it is closed.
  bool Await(ObjectId id, uint64_t seen) {
    const auto due = std::chrono::steady_clock::now() + kAskAgain;
    runtime::MutexLock lock(mutex_);
    while (!closed_ && wakes_[SlotOf(id)] == seen && changed_.WaitUntil(mutex_, due)) {
    }
    return !closed_;
  }

 private:
  // Objects that share one wake each other for nothing now and then.
  static constexpr size_t kSlots = 256;
  static size_t SlotOf(ObjectId id) { return id % kSlots; }

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::array<uint64_t, kSlots> wakes_ ABSL_GUARDED_BY(mutex_){};
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_WAIT_BOARD_H_
