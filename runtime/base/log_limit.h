#ifndef ABACUS_RUNTIME_BASE_LOG_LIMIT_H_
#define ABACUS_RUNTIME_BASE_LOG_LIMIT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {

// Lets so many messages of a second through, so that what fails all the time does not fill a disk.
// Thread-safety: thread-safe. Blocking: no.
class LogLimit {
 public:
  explicit LogLimit(unsigned per_second_max) : per_second_max_(per_second_max) {}

  // How many were held back since the last that went through; nullopt: this one is held back.
  std::optional<uint64_t> Pass(absl::Time now) {
    MutexLock lock(mutex_);
    // A clock that was set back begins a new second as well.
    if (now - second_ >= absl::Seconds(1) || now < second_) {
      second_ = now;
      passed_ = 0;
    }
    if (passed_ >= per_second_max_) {
      ++held_back_;
      return std::nullopt;
    }
    ++passed_;
    return std::exchange(held_back_, 0);
  }

 private:
  const unsigned per_second_max_;
  Mutex mutex_;
  absl::Time second_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // begin of the current one
  unsigned passed_ ABSL_GUARDED_BY(mutex_) = 0;                       // within it
  uint64_t held_back_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_LOG_LIMIT_H_
