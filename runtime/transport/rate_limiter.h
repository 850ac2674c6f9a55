#ifndef ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_
#define ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/base/mutex.h"

namespace abacus::runtime {

// A wire as a clock: each piece takes bytes / rate from when the wire is free, so that a small
// message that is alone on it takes its time as well, as it does in the model of the placement
// engine (a token bucket lets it pass at once). A sleep ends late by about what a small message
// takes: the sender says so, and what follows is sent by so much earlier. Thus the mean time of a
// message and the rate over a long time are exact.
//
// Why not the kernel's shaper: it needs the right to make network interfaces, which a user's
// process does not have.
// Thread-safety: thread-safe. All senders to one peer share one.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  // What was lost by sleeps that ended late is made up for to this amount.
  static constexpr std::chrono::nanoseconds kLateMax = std::chrono::milliseconds(5);

  // Units: megabits (10^6 bits) per second. REQUIRES: rate_mbit > 0.
  explicit RateLimiter(double rate_mbit);

  // Reserves the wire for the first piece of `bytes` and returns its size. The piece may be sent at
  // `*when`, when its last bit would have left; it may have passed.
  size_t Reserve(uint64_t bytes, Clock::time_point now, Clock::time_point* when);
  // The sender of a piece that had to wait sends it at last, `by` after `*when`.
  void SentLate(std::chrono::nanoseconds by);

 private:
  const double ns_per_byte_;
  const size_t piece_bytes_max_;
  Mutex mutex_;
  Clock::time_point free_at_ ABSL_GUARDED_BY(mutex_);
  std::chrono::nanoseconds late_ ABSL_GUARDED_BY(mutex_){0};  // not made up for yet
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_RATE_LIMITER_H_
