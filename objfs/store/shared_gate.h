#ifndef ABACUS_OBJFS_STORE_SHARED_GATE_H_
#define ABACUS_OBJFS_STORE_SHARED_GATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Many pass at a time, or one has it alone; who wants it alone is not overtaken. Why not
// std::shared_mutex: it escapes the project's thread-safety analysis and count of held locks.
// Thread-safety: thread-safe. Blocking: yes. Not recursive.
class SharedGate {
 public:
  void Enter() {
    runtime::MutexLock lock(mutex_);
    while (closed_) changed_.Wait(mutex_);
    ++inside_;
  }
  // False: it is closed, or about to be. Waits for nobody.
  bool TryEnter() {
    runtime::MutexLock lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void Leave() {
    runtime::MutexLock lock(mutex_);
    if (--inside_ == 0) changed_.SignalAll();
  }
  void Close() {
    runtime::MutexLock lock(mutex_);
    while (closed_) changed_.Wait(mutex_);
    closed_ = true;
    while (inside_ > 0) changed_.Wait(mutex_);
  }
  void Open() {
    runtime::MutexLock lock(mutex_);
    closed_ = false;
    changed_.SignalAll();
  }

  class Pass {
   public:
    explicit Pass(SharedGate& gate) : gate_(gate) { gate_.Enter(); }
    ~Pass() { gate_.Leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    SharedGate& gate_;
  };

 private:
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_SHARED_GATE_H_
