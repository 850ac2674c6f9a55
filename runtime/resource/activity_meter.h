#ifndef ABACUS_RUNTIME_RESOURCE_ACTIVITY_METER_H_
#define ABACUS_RUNTIME_RESOURCE_ACTIVITY_METER_H_

#include <cstdint>

#include "runtime/base/mutex.h"

namespace abacus::runtime {

// How long threads work for a console that has none of its own: in sum, and any of them. Their
// ratio is how many work at once, of which an average over all time would know nothing.
//   Two threads, the first from 0 to 4 s, the second from 3 to 5 s: 6 s in sum, 5 s any.
// Times are of one clock that does not go back. Units: in the names. Thread-safety: thread-safe.
// Blocking: no. Source: ours.
class ActivityMeter {
 public:
  void Begin(int64_t now_ns) { Change(1, now_ns); }
  // REQUIRES: a Begin() without its End().
  void End(int64_t now_ns) { Change(-1, now_ns); }

  struct Times {
    int64_t threads_ns = 0;
    int64_t busy_ns = 0;
  };
  // Up to now, work under way included.
  Times Sum(int64_t now_ns) const {
    MutexLock lock(mutex_);
    return Until(now_ns);
  }

 private:
  void Change(int by, int64_t now_ns) {
    MutexLock lock(mutex_);
    sum_ = Until(now_ns);
    threads_ += by;
    // Threads read the clock before they come here, in another order maybe.
    if (now_ns > at_ns_) at_ns_ = now_ns;
  }
  Times Until(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t since_ns = now_ns > at_ns_ ? now_ns - at_ns_ : 0;
    if (threads_ == 0) return sum_;
    return {sum_.threads_ns + threads_ * since_ns, sum_.busy_ns + since_ns};
  }

  mutable Mutex mutex_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t at_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // up to here sum_ says all
  Times sum_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_ACTIVITY_METER_H_
