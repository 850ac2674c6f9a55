#ifndef ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_
#define ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/base/mutex.h"

namespace abacus::runtime {

// A token bucket as a clock: each piece moves the time at which the link is free again by what the
// piece takes at the rate. Tokens are never rounded away, so the rate over a long time is exact; a
// link that was idle lets kBurst worth of bytes through at once, which also makes up for sleeps
// that end late.
//
// Why not the kernel's shaper: it needs the right to make network interfaces, which a user's
// process does not have.
// Thread-safety: thread-safe. All senders to one peer share one.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds kBurst = std::chrono::milliseconds(5);

  // Units: megabits (10^6 bits) per second. REQUIRES: rate_mbit > 0.
  explicit RateLimiter(double rate_mbit);

  // Reserves the link for the first piece of `bytes` and returns its size. The piece may be sent at
  // `*when`, which may have passed.
  size_t Reserve(uint64_t bytes, Clock::time_point now, Clock::time_point* when);

 private:
  const double ns_per_byte_;
  const size_t piece_bytes_max_;
  Mutex mutex_;
  Clock::time_point free_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_
