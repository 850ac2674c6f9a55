#include "objfs/layer/version.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

constexpr int64_t kNowUs = int64_t{1'795'000'000} * 1'000'000;  // in November 2026

TEST(HybridClockTest, VersionsGrowWhateverThePhysicalClockDoes) {
  int64_t now = kNowUs;
  HybridClock clock(7, [&] { return now; });
  Version last = clock.Next();
  EXPECT_EQ(last.writer(), 7);
  for (const int64_t step : std::vector<int64_t>{0, 0, 5, 1'000'000, -3'600'000'000, 0, 10}) {
    now += step;
    const Version next = clock.Next();
    EXPECT_GT(next, last) << "after a step of " << step << " us";
    last = next;
  }
}

TEST(HybridClockTest, StaysAtThePhysicalClockWhereNothingDrivesItOn) {
  int64_t now = kNowUs;
  HybridClock clock(1, [&] { return now; });
  const uint64_t first = clock.Next().ticks();
  now += 5'000'000;
  EXPECT_EQ(clock.Next().ticks() - first, 5'000'000u / Version::kTickUs);
}

TEST(HybridClockTest, NextIsAfterWhatWasObserved) {
  int64_t now = kNowUs;
  HybridClock ahead(1, [&] { return now + 60'000'000; });
  HybridClock clock(2, [&] { return now; });
  const Version seen = ahead.Next();
  ASSERT_TRUE(clock.Observe(seen).ok());
  EXPECT_GT(clock.Next(), seen);
  // What is older changes nothing.
  const Version before = clock.Next();
  ASSERT_TRUE(clock.Observe(Version::Of(1, 9)).ok());
  EXPECT_EQ(clock.Next().ticks(), before.ticks() + 1);
}

TEST(HybridClockTest, RefusesTheVersionOfAClockThatIsWrong) {
  int64_t now = kNowUs;
  HybridClock clock(2, [&] { return now; });
  const Version before = clock.Next();
  const absl::Status status = clock.Observe(Version::Of(Version::kTicksMax, 3));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(clock.Next().ticks(), before.ticks() + 1);
}

TEST(HybridClockTest, TwoWritersNeverHaveOneVersion) {
  HybridClock a(1, [] { return kNowUs; });
  HybridClock b(2, [] { return kNowUs; });
  EXPECT_NE(a.Next(), b.Next());
}

TEST(HybridClockTest, WorksOnAMachineThatBelievesToBeIn1970) {
  HybridClock clock(1, [] { return 0; });
  const Version first = clock.Next();
  EXPECT_GT(first, Version());
  EXPECT_GT(clock.Next(), first);
}

TEST(HybridClockTest, ThreadsGetVersionsOfTheirOwn) {
  constexpr int kThreads = 4, kEach = 2000;
  HybridClock clock(1, [] { return kNowUs; });
  runtime::Mutex mutex;
  std::set<Version> all;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::vector<Version> own;
      for (int n = 0; n < kEach; ++n) own.push_back(clock.Next());
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
      runtime::MutexLock lock(mutex);
      all.insert(own.begin(), own.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(all.size(), size_t{kThreads} * kEach);
}

TEST(HybridClockTest, ItsOwnVersionsAreFollowedHoweverFarAhead) {
  int64_t now_us = int64_t{1'700'000'000} * 1'000'000;
  HybridClock clock(1, [&now_us] { return now_us; });
  const Version before = clock.Next();
  now_us -= int64_t{86'400} * 1'000'000;
  HybridClock restarted(1, [&now_us] { return now_us; });
  EXPECT_FALSE(restarted.Observe(before).ok());
  restarted.Follow(before);
  EXPECT_GT(restarted.Next(), before);
}

}  // namespace
}  // namespace abacus::objfs
