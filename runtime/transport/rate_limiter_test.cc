#include "runtime/transport/rate_limiter.h"

#include <algorithm>
#include <chrono>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

using Clock = RateLimiter::Clock;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

TEST(RateLimiterTest, RateOverALongTimeIsExact) {
  for (const double mbit : {1.0, 10.0, 100.0, 1000.0, 9999.0}) {
    RateLimiter limiter(mbit);
    const Clock::time_point start{std::chrono::hours(1)};
    Clock::time_point now = start;
    const auto total = static_cast<uint64_t>(mbit * 1e6 / 8 * 10);  // ten seconds' worth
    for (uint64_t left = total; left > 0;) {
      Clock::time_point when;
      left -= limiter.Reserve(left, now, &when);
      // A sleep that ends up to 300 us late, as the system's do.
      if (when <= now) continue;
      now = when + std::chrono::microseconds(left % 300);
      limiter.SentLate(now - when);
    }
    EXPECT_NEAR(Seconds(now - start), 10.0, 0.01) << mbit;
  }
}

// 500 bytes at 20 Mbit/s take 8 x 500 / 20 = 200 us, also where nothing else is on the wire, and
// on the mean also where each sleep ends 60 us late.
TEST(RateLimiterTest, ASmallMessageTakesItsTime) {
  RateLimiter limiter(20);
  Clock::time_point now{std::chrono::hours(1)};
  double waited_s = 0;
  constexpr int kMessages = 1000;
  for (int i = 0; i < kMessages; ++i) {
    Clock::time_point when;
    ASSERT_EQ(limiter.Reserve(500, now, &when), 500u);
    ASSERT_GT(when, now) << i;
    ASSERT_LE(when, now + std::chrono::microseconds(200)) << i;
    const Clock::time_point sent = when + std::chrono::microseconds(60);
    limiter.SentLate(sent - when);
    waited_s += Seconds(sent - now);
    now = sent + std::chrono::microseconds(i);  // the wire is idle for a while
  }
  EXPECT_NEAR(waited_s / kMessages, 200e-6, 1e-6);
}

// Whoever slept much too long has not earned a flood.
TEST(RateLimiterTest, WhatIsMadeUpForIsLimited) {
  RateLimiter limiter(10);
  Clock::time_point now{std::chrono::hours(1)};
  limiter.SentLate(std::chrono::seconds(1));
  uint64_t at_once = 0;
  while (true) {
    Clock::time_point when;
    const size_t bytes = limiter.Reserve(UINT64_MAX, now, &when);
    if (when > now) break;
    at_once += bytes;
  }
  // 5 ms at 1,250,000 bytes a second.
  EXPECT_GT(at_once, 0u);
  EXPECT_LE(at_once, 6250u);
}

TEST(RateLimiterTest, PiecesAreSmallAndSpreadEvenly) {
  RateLimiter limiter(10);
  Clock::time_point now{std::chrono::hours(1)};
  Clock::time_point last = now;
  for (int i = 0; i < 100; ++i) {
    Clock::time_point when;
    EXPECT_LE(limiter.Reserve(1 << 20, now, &when), 2500u);
    EXPECT_LE(when - last, std::chrono::milliseconds(3));
    last = when;
    now = std::max(now, when);
  }
}

}  // namespace
}  // namespace abacus::runtime
