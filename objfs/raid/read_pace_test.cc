#include "objfs/raid/read_pace.h"

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

class ReadPaceTest : public ::testing::Test {
 protected:
  // A read that nobody else reads beside.
  size_t Read(absl::Duration first, absl::Duration second) {
    const ReadPace::Choice choice = pace_.Choose({0, 1}, 0, now_);
    pace_.Ended(choice.copy, 0, choice.copy == 0 ? first : second, false, now_);
    return choice.copy;
  }
  ReadPace pace_{2};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ReadPaceTest, TheQuickerOneIsAskedAndTheOtherOnceASecond) {
  const absl::Duration quick = absl::Milliseconds(1), slow = absl::Milliseconds(50);
  int slow_reads = 0;
  for (int i = 0; i < 10'000; ++i, now_ += absl::Milliseconds(1)) {
    slow_reads += Read(slow, quick) == 0;
  }
  EXPECT_GE(slow_reads, 9);
  EXPECT_LE(slow_reads, 12);
  // When it has become the quicker one it is found.
  int now_quick = 0;
  for (int i = 0; i < 60'000; ++i, now_ += absl::Milliseconds(1)) {
    now_quick += Read(absl::Microseconds(100), quick) == 0;
  }
  EXPECT_GT(now_quick, 45'000);
}

TEST_F(ReadPaceTest, WhoWaitsAlreadyCounts) {
  Read(absl::Milliseconds(1), absl::Milliseconds(1));
  Read(absl::Milliseconds(1), absl::Milliseconds(1));
  const size_t first = pace_.Choose({0, 1}, 0, now_).copy;
  EXPECT_NE(pace_.Choose({0, 1}, 0, now_).copy, first);
}

TEST_F(ReadPaceTest, PatienceIsAMultipleOfWhatTheQuickestTakesForAsManyBytes) {
  for (int i = 0; i < 100; ++i) Read(absl::Milliseconds(10), absl::Milliseconds(80));
  const auto small = pace_.Choose({0, 1}, 0, now_);
  EXPECT_EQ(small.patience, absl::Milliseconds(40));
  EXPECT_EQ(pace_.Choose({0, 1}, ReadPace::kUnitBytes, now_).patience, absl::Milliseconds(80));
  ReadPace fresh(2);
  EXPECT_EQ(fresh.Choose({0, 1}, 0, now_).patience, ReadPace::kPatienceUnknown);
  EXPECT_FALSE(fresh.Choose({1}, 0, now_).other.has_value());
}

TEST_F(ReadPaceTest, WhatWasGivenUpMakesSlowerAndNeverQuicker) {
  for (int i = 0; i < 10; ++i) Read(absl::Milliseconds(1), absl::Milliseconds(2));
  const absl::Duration before = pace_.Usual(0);
  pace_.Begun(0);
  pace_.Ended(0, 0, absl::Milliseconds(30), /*given_up=*/true, now_);
  EXPECT_GT(pace_.Usual(0), 5 * before);
  const absl::Duration slow = pace_.Usual(0);
  pace_.Begun(0);
  pace_.Ended(0, 0, absl::Microseconds(10), /*given_up=*/true, now_);
  EXPECT_EQ(pace_.Usual(0), slow);
}

}  // namespace
}  // namespace abacus::objfs
