#ifndef ABACUS_RUNTIME_BASE_MUTEX_H_
#define ABACUS_RUNTIME_BASE_MUTEX_H_

// The project's mutex: std::mutex with clang's thread-safety annotations.
//
// Why not absl::Mutex: the distribution's Abseil is not built with ThreadSanitizer, which then
// reports correct code as racy. Why count held locks: no object may hold a lock across a call to
// another object (an up-call that meets a down-call deadlocks); the invocation path aborts on it in
// builds with assertions.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace abacus::runtime {

namespace internal {
// Locks of class Mutex that this thread holds now.
inline thread_local int held_locks = 0;
}  // namespace internal

// Number of Mutexes that the calling thread holds.
inline int HeldLocks() { return internal::held_locks; }

// Thread-safety: thread-safe. Not recursive. Lock order is stated where a Mutex is declared.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.lock();
    ++internal::held_locks;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    --internal::held_locks;
    mutex_.unlock();
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    if (!mutex_.try_lock()) return false;
    ++internal::held_locks;
    return true;
  }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits release the Mutex and take it again before they return. Spurious wake-ups happen: wait in
// a loop over the condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false where `deadline` passed first.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool signalled = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_MUTEX_H_
