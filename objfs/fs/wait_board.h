#ifndef ABACUS_OBJFS_FS_WAIT_BOARD_H_
#define ABACUS_OBJFS_FS_WAIT_BOARD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "objfs/store/object_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What the boards of one client have in common: it may have joined several shards of a volume, each
// with a board. Why they do: see FileSystem::AddKeeper(). What keeps the acknowledgement of a break
// at one board back may be a call that waits at another.
struct ClientWaits {
  runtime::Mutex mutex;
  runtime::CondVar changed;
  std::atomic<int> waiting{0};  // calls, for other clients; changes under mutex
};

// Where calls of a front end wait for what other clients have promised to give back. A call that
// would block takes Seen() before it asks, and waits for more than that.
//
// Thread-safety: thread-safe. Blocking: only Await(), AwaitFor(), Rest() and AwaitErrands().
class WaitBoard {
 public:
  // `waits`: the client's; null: it has no other board.
  explicit WaitBoard(std::shared_ptr<ClientWaits> waits = nullptr)
      : waits_(waits != nullptr ? std::move(waits) : std::make_shared<ClientWaits>()),
        mutex_(waits_->mutex),
        changed_(waits_->changed) {}

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
    ++waits_->waiting;
    changed_.SignalAll();
    while (!closed_ && wakes_[SlotOf(id)] == seen && changed_.WaitUntil(mutex_, due)) {
    }
    --waits_->waiting;
    return !closed_;
  }
  // As Rest(), of a call that waits for another client, and that nobody wakes.
  bool AwaitFor(std::chrono::nanoseconds time) {
    const auto due = std::chrono::steady_clock::now() + time;
    runtime::MutexLock lock(mutex_);
    ++waits_->waiting;
    changed_.SignalAll();
    while (!closed_ && changed_.WaitUntil(mutex_, due)) {
    }
    --waits_->waiting;
    return !closed_;
  }

  // Returns after that time; false once it is closed.
  bool Rest(std::chrono::nanoseconds time) {
    const auto due = std::chrono::steady_clock::now() + time;
    runtime::MutexLock lock(mutex_);
    while (!closed_ && changed_.WaitUntil(mutex_, due)) {
    }
    return !closed_;
  }

  // -- what another client waits for
  // ---------------------------------------------------------------

  // So many things that others do; each ends with Done().
  using Errands = std::shared_ptr<std::atomic<int>>;
  static Errands Begin(int errands) { return std::make_shared<std::atomic<int>>(errands); }
  void Done(const Errands& errands) {
    runtime::MutexLock lock(mutex_);
    --*errands;
    changed_.SignalAll();
  }
  // Returns when all are done, or a call of the client waits in Await() or AwaitFor(), whichever
  // board's: it may be what they wait for, and the client that it waits for may be the one that
  // waits for us.
  void AwaitErrands(const Errands& errands) {
    runtime::MutexLock lock(mutex_);
    while (!closed_ && waits_->waiting == 0 && *errands > 0) changed_.Wait(mutex_);
  }

 private:
  // Objects that share one wake each other for nothing now and then.
  static constexpr size_t kSlots = 256;
  static size_t SlotOf(ObjectId id) { return id % kSlots; }

  const std::shared_ptr<ClientWaits> waits_;
  runtime::Mutex& mutex_;
  runtime::CondVar& changed_;
  std::array<uint64_t, kSlots> wakes_ ABSL_GUARDED_BY(mutex_){};
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_WAIT_BOARD_H_
