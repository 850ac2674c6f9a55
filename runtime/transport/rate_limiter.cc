#include "runtime/transport/rate_limiter.h"

#include <algorithm>

namespace abacus::runtime {
namespace {

// Two milliseconds' worth: smooth, and still few system calls. At 10 Mbit/s 2,500 bytes.
constexpr double kPiece_ns = 2e6;
constexpr double kPieceBytesMin = 2048;
constexpr double kPieceBytesMax = 65536;

}  // namespace

// 1 Mbit/s is 125,000 bytes in 1e9 ns: 8,000 ns a byte. At 10 Mbit/s a byte takes 800 ns.
RateLimiter::RateLimiter(double rate_mbit)
    : ns_per_byte_(8000.0 / rate_mbit),
      piece_bytes_max_(static_cast<size_t>(
          std::clamp(kPiece_ns / ns_per_byte_, kPieceBytesMin, kPieceBytesMax))) {}

size_t RateLimiter::Reserve(uint64_t bytes, Clock::time_point now, Clock::time_point* when) {
  const size_t piece = std::min<uint64_t>(bytes, piece_bytes_max_);
  const auto takes = std::chrono::nanoseconds(static_cast<int64_t>(piece * ns_per_byte_ + 0.5));
  MutexLock lock(mutex_);
  const Clock::time_point begins = std::max(free_at_, now - late_);
  if (begins < now) late_ -= std::min<std::chrono::nanoseconds>(now - begins, takes);
  free_at_ = begins + takes;
  *when = free_at_;
  return piece;
}

void RateLimiter::SentLate(std::chrono::nanoseconds by) {
  MutexLock lock(mutex_);
  late_ = std::min(late_ + by, kLateMax);
}

}  // namespace abacus::runtime
