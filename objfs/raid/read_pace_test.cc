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

class AllButOneTest : public ::testing::Test {
 protected:
  void Sample(size_t column, absl::Duration took, ReadPace::Took how = ReadPace::Took::kExactly) {
    pace_.Sample(column, 0, took, how, now_);
  }
  std::optional<size_t> Without(const std::vector<size_t>& asked) {
    return pace_.ChooseAllButOne(asked, 0, now_).without;
  }
  ReadPace pace_{3};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(AllButOneTest, TheOneThatWouldBeLateIsDoneWithoutAndTriedOnceASecond) {
  EXPECT_EQ(pace_.ChooseAllButOne({0, 1, 2}, 0, now_).patience, ReadPace::kPatienceUnknown);
  for (const size_t column : {0, 1}) Sample(column, absl::Milliseconds(1));
  Sample(2, absl::Milliseconds(50));
  EXPECT_EQ(Without({0, 1, 2}), 2u);
  EXPECT_EQ(Without({2}), 2u);
  EXPECT_FALSE(Without({0, 1}).has_value()) << "it is not asked for anything";
  int tried = 0;
  for (int i = 0; i < 5000; ++i, now_ += absl::Milliseconds(1)) {
    if (Without({0, 1}).has_value()) ADD_FAILURE();
    if (Without({2}).has_value()) continue;
    ++tried;
    Sample(2, absl::Milliseconds(50));
  }
  EXPECT_GE(tried, 4);
  EXPECT_LE(tried, 6);
  for (int i = 0; i < 20; ++i, now_ += absl::Seconds(1)) {  // it is as quick as the others again
    if (!Without({2}).has_value()) Sample(2, absl::Milliseconds(1));
  }
  EXPECT_FALSE(Without({0, 1, 2}).has_value());
}

// Two that are slow: nothing can be read without both.
TEST_F(AllButOneTest, OneThatIsNoSlowerThanAnotherIsWaitedFor) {
  Sample(0, absl::Milliseconds(1));
  for (const size_t column : {1, 2}) Sample(column, absl::Milliseconds(50));
  const auto choice = pace_.ChooseAllButOne({0, 1, 2}, 0, now_);
  EXPECT_FALSE(choice.without.has_value());
  EXPECT_EQ(choice.patience, absl::Milliseconds(200));
}

TEST_F(AllButOneTest, WhatWasLookedForLateMakesNoneSlower) {
  for (const size_t column : {0, 1, 2}) Sample(column, absl::Milliseconds(1));
  for (int i = 0; i < 100; ++i) Sample(1, absl::Milliseconds(90), ReadPace::Took::kAtMost);
  EXPECT_EQ(pace_.Usual(1), absl::Milliseconds(1));
  Sample(1, absl::Microseconds(200), ReadPace::Took::kAtMost);
  EXPECT_LT(pace_.Usual(1), absl::Milliseconds(1));
}

}  // namespace
}  // namespace abacus::objfs
