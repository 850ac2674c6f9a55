#include "objfs/replica/slow_disk.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace abacus::objfs {
namespace {

using std::chrono::milliseconds;

class SlowDiskTest : public ::testing::Test {
 protected:
  using Outcome = SlowDisk::Outcome;

  // A read that takes so long; whether it was made here.
  bool Read(milliseconds took, uint64_t bytes = 0, Outcome outcome = Outcome::kBytes) {
    const auto ticket = disk_.Begin(bytes, now_);
    if (!ticket.has_value()) return false;
    now_ += took;
    disk_.Ended(*ticket, outcome, now_);
    return true;
  }
  // For how long from now no read is made here.
  milliseconds Held() {
    const SlowDisk::Time begun = now_;
    for (; now_ < begun + std::chrono::minutes(1); now_ += milliseconds(10)) {
      if (Read(milliseconds(0))) break;
    }
    return std::chrono::duration_cast<milliseconds>(now_ - begun);
  }

  SlowDisk disk_{
      {.late = absl::Milliseconds(50), .hold = absl::Seconds(1), .hold_max = absl::Seconds(8)}};
  SlowDisk::Time now_{std::chrono::hours(1)};
};

TEST_F(SlowDiskTest, AReadThatIsLateHoldsOthersOffUntilOneWasInTime) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Read(milliseconds(50)));
  EXPECT_TRUE(Read(milliseconds(51)));
  EXPECT_EQ(Held(), std::chrono::seconds(1));
  EXPECT_TRUE(Read(milliseconds(1)));
}

TEST_F(SlowDiskTest, AReadThatIsLateIsFoundWhileItLasts) {
  const auto stands_still = disk_.Begin(0, now_);
  ASSERT_TRUE(stands_still.has_value());
  now_ += milliseconds(50);
  EXPECT_TRUE(Read(milliseconds(0)));
  now_ += milliseconds(1);
  for (int i = 0; i < 1000; ++i, now_ += milliseconds(100)) EXPECT_FALSE(Read(milliseconds(0)));
  disk_.Ended(*stands_still, Outcome::kBytes, now_);
  EXPECT_LE(Held(), std::chrono::seconds(8));
  EXPECT_TRUE(Read(milliseconds(1)));
}

TEST_F(SlowDiskTest, OneReadTriesASlowDiskAtATime) {
  EXPECT_TRUE(Read(milliseconds(51)));
  now_ += std::chrono::seconds(1);
  const auto tries = disk_.Begin(0, now_);
  ASSERT_TRUE(tries.has_value());
  EXPECT_FALSE(disk_.Begin(0, now_).has_value());
  now_ += milliseconds(1);
  disk_.Ended(*tries, Outcome::kBytes, now_);
  EXPECT_TRUE(Read(milliseconds(1)));
}

// What is in memory is read in no time from a disk that is slow.
TEST_F(SlowDiskTest, ItIsTriedLessOftenEachTimeThatItIsSlowAgainUntilItWasNot) {
  for (const int seconds : {1, 2, 4, 8, 8}) {
    EXPECT_TRUE(Read(milliseconds(200)));
    EXPECT_EQ(Held(), std::chrono::seconds(seconds));
    EXPECT_TRUE(Read(milliseconds(0)));
  }
  now_ += std::chrono::seconds(17);
  EXPECT_TRUE(Read(milliseconds(200)));
  EXPECT_EQ(Held(), std::chrono::seconds(1));
}

TEST_F(SlowDiskTest, ManyThatAreLateAtOnceAreOne) {
  std::vector<SlowDisk::Ticket> many;
  for (int i = 0; i < 10; ++i) many.push_back(*disk_.Begin(0, now_));
  now_ += milliseconds(200);
  for (const SlowDisk::Ticket& ticket : many) disk_.Ended(ticket, Outcome::kBytes, now_);
  EXPECT_EQ(Held(), std::chrono::seconds(1));
}

TEST_F(SlowDiskTest, ALargeReadMayTakeLonger) {
  constexpr uint64_t kBytes = 1 << 20;
  EXPECT_TRUE(Read(milliseconds(450), kBytes));
  EXPECT_TRUE(Read(milliseconds(451), kBytes));
  EXPECT_FALSE(Read(milliseconds(0), kBytes));
}

TEST_F(SlowDiskTest, ASmallReadThatIsLateIsFoundBehindALargeOne) {
  const SlowDisk::Ticket large = *disk_.Begin(64 << 20, now_), small = *disk_.Begin(0, now_);
  now_ += milliseconds(51);
  EXPECT_FALSE(Read(milliseconds(0)));
  disk_.Ended(large, Outcome::kBytes, now_);
  disk_.Ended(small, Outcome::kBytes, now_);
}

TEST_F(SlowDiskTest, WhatCameWithoutBytesDoesNotTellThatItIsWell) {
  EXPECT_TRUE(Read(milliseconds(51)));
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(Read(milliseconds(0), 0, Outcome::kNothing));
  const auto tries = disk_.Begin(0, now_);
  ASSERT_TRUE(tries.has_value());
  EXPECT_FALSE(disk_.Begin(0, now_).has_value()) << "it is tried still";
  disk_.Ended(*tries, Outcome::kBytes, now_);
  EXPECT_TRUE(Read(milliseconds(0)));
}

TEST_F(SlowDiskTest, WhereThereIsNoWayItIsAsIfItHadBeenLate) {
  EXPECT_TRUE(Read(milliseconds(0), 0, Outcome::kNoWay));
  EXPECT_EQ(Held(), std::chrono::seconds(1));
}

TEST_F(SlowDiskTest, WhoReadsAnywayIsCountedToo) {
  EXPECT_TRUE(Read(milliseconds(200)));
  ASSERT_FALSE(disk_.Begin(0, now_).has_value());
  now_ += milliseconds(900);
  const SlowDisk::Ticket anyway = disk_.BeginAnyway(0, now_);
  now_ += milliseconds(110);
  EXPECT_FALSE(Read(milliseconds(0))) << "that one is late";
  disk_.Ended(anyway, Outcome::kBytes, now_);
}

}  // namespace
}  // namespace abacus::objfs
