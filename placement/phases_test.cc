#include "placement/phases.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using testing::Random;

constexpr double kSample = 0.05;

std::vector<double> Noisy(const std::vector<double>& mix, double noise, Random& random) {
  std::vector<double> costs = mix;
  for (double& cost : costs) cost *= kSample * random.Uniform(1 - noise, 1 + noise);
  return costs;
}

// Feeds `samples` of a mix; returns after how many of them a change was announced, 0 if never.
int Feed(PhaseTracker& tracker, const std::vector<double>& mix, int samples, double noise,
         Random& random, double& now_s) {
  int announced = 0;
  for (int i = 1; i <= samples; ++i) {
    now_s += kSample;
    if (tracker.Add(Noisy(mix, noise, random), now_s - kSample, now_s) && announced == 0) {
      announced = i;
    }
  }
  return announced;
}

const std::vector<double> kInsert = {0, 0.13, 0.02, 0.35, 0.5};
const std::vector<double> kScan = {0, 0.02, 0, 0.97, 0.01};

TEST(PhaseTrackerTest, AnnouncesNothingInTenMinutesOfTwentyPercentNoise) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    PhaseTracker tracker({});
    double now_s = 0;
    EXPECT_EQ(Feed(tracker, kInsert, 12'000, 0.2, random, now_s), 0) << "seed " << seed;
    EXPECT_EQ(tracker.changes(), 0u) << "seed " << seed;
  }
}

TEST(PhaseTrackerTest, AnnouncesAChangeWithinTwoSamplesAndDropsAllThatCameBefore) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    PhaseTracker tracker({});
    double now_s = 0;
    Feed(tracker, kInsert, 200, 0.2, random, now_s);
    const double changed_s = now_s;
    EXPECT_EQ(Feed(tracker, kScan, 2, 0.2, random, now_s), 2) << "seed " << seed;
    EXPECT_GE(tracker.since_s(), changed_s - 1e-9) << "seed " << seed;
  }
}

TEST(PhaseTrackerTest, ASampleOfBothPhasesIsCountedToNeither) {
  Random random(7);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 50, 0, random, now_s);
  const double changed_s = now_s;
  std::vector<double> both(kInsert.size());
  for (size_t i = 0; i < both.size(); ++i) both[i] = (kInsert[i] + kScan[i]) / 2;
  EXPECT_EQ(Feed(tracker, both, 1, 0, random, now_s), 0);
  EXPECT_EQ(Feed(tracker, kScan, 1, 0, random, now_s), 1);
  EXPECT_NEAR(tracker.since_s(), changed_s + kSample, 1e-9);
}

TEST(PhaseTrackerTest, OneWildSampleIsNoChange) {
  Random random(3);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 50, 0.2, random, now_s);
  EXPECT_EQ(Feed(tracker, kScan, 1, 0, random, now_s), 0);
  EXPECT_EQ(Feed(tracker, kInsert, 200, 0.2, random, now_s), 0);
}

TEST(PhaseTrackerTest, TheSameMixAtAnotherSpeedIsNoChange) {
  Random random(4);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 100, 0.2, random, now_s);
  std::vector<double> faster = kInsert;
  for (double& cost : faster) cost *= 40;
  EXPECT_EQ(Feed(tracker, faster, 100, 0.2, random, now_s), 0);
}

TEST(PhaseTrackerTest, ASmallLastingShiftIsADriftAndNoChange) {
  Random random(5);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, {0.5, 0.5}, 100, 0.02, random, now_s);
  EXPECT_EQ(Feed(tracker, {0.6, 0.4}, 400, 0.02, random, now_s), 0);
}

TEST(PhaseTrackerTest, LearnsHowLongEachKindOfPhaseLasts) {
  Random random(6);
  PhaseTracker tracker({});
  double now_s = 0;
  // 1 reference second a second: 8 s and 2 s of work.
  EXPECT_FALSE(tracker.RemainingRefS().has_value());
  for (int i = 0; i < 3; ++i) {
    Feed(tracker, kInsert, 160, 0.1, random, now_s);
    Feed(tracker, kScan, 40, 0.1, random, now_s);
  }
  Feed(tracker, kInsert, 40, 0.1, random, now_s);
  ASSERT_TRUE(tracker.LengthRefS().has_value());
  EXPECT_NEAR(*tracker.LengthRefS(), 8, 0.4);
  EXPECT_NEAR(tracker.done_ref_s(), 2, 0.2);
  EXPECT_NEAR(*tracker.RemainingRefS(), 6, 0.5);
  Feed(tracker, kInsert, 120, 0.1, random, now_s);
  Feed(tracker, kScan, 20, 0.1, random, now_s);
  ASSERT_TRUE(tracker.LengthRefS().has_value());
  EXPECT_NEAR(*tracker.LengthRefS(), 2, 0.2);
}

TEST(PhaseTrackerTest, APhaseThatOutlivesAllBeforeIsExpectedToLastAsLongAgain) {
  Random random(8);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 40, 0, random, now_s);
  Feed(tracker, kScan, 40, 0, random, now_s);
  Feed(tracker, kInsert, 400, 0, random, now_s);
  EXPECT_NEAR(*tracker.RemainingRefS(), tracker.done_ref_s(), 1e-9);
}

TEST(PhaseTrackerTest, AMoveIsNoChangeThoughCpuTimesComeFromAnotherYardstick) {
  Random random(9);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, {0.3, 0.7}, 100, 0.1, random, now_s);
  tracker.Rebase();
  EXPECT_EQ(Feed(tracker, {0.6, 0.7}, 100, 0.1, random, now_s), 0);
}

// A scan that ended while the cache came to it: inserts again, as there were before.
TEST(PhaseTrackerTest, APhaseThatEndedDuringTheMoveIsOneWhereItsSuccessorIsKnown) {
  Random random(9);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 40, 0.1, random, now_s);
  ASSERT_GT(Feed(tracker, kScan, 4, 0.1, random, now_s), 0);
  tracker.Rebase();
  const double moved_s = now_s;
  EXPECT_EQ(Feed(tracker, kInsert, 40, 0.1, random, now_s), 1);
  EXPECT_EQ(tracker.changes(), 2u);
  EXPECT_DOUBLE_EQ(tracker.since_s(), moved_s);
  EXPECT_EQ(tracker.kind(), 0u);
}

// A stripe is written here, the next one there: three mixes in turn, each for 0.3 s.
TEST(PhaseTrackerTest, PhasesOfLessThanAWindowThatFollowEachOtherAreOneAfterAWindow) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    PhaseTracker tracker({});
    double now_s = 10;
    const std::vector<double> mixes[] = {
        {0.2, 0.4, 0.4, 0, 0}, {0.2, 0, 0.4, 0.4, 0}, {0.2, 0.4, 0, 0, 0.4}};
    int announced = 0;
    for (int i = 0; i < 5; ++i) {
      announced += Feed(tracker, mixes[i % 3], 6, 0.2, random, now_s) > 0 ? 1 : 0;
    }
    EXPECT_GE(announced, 2) << "seed " << seed << ": each might have lasted";
    EXPECT_EQ(tracker.since_s(), 10) << "seed " << seed << ": of the " << now_s - 10 << " s all";
    EXPECT_FALSE(tracker.kind().has_value()) << "no phase like it was seen";
    // Less what has yet to prove to be no change.
    EXPECT_NEAR(tracker.done_ref_s(), 1.35, 0.25) << "seed " << seed;
    const uint64_t changes = tracker.changes();
    for (int i = 5; i < 200; ++i) Feed(tracker, mixes[i % 3], 6, 0.2, random, now_s);
    EXPECT_EQ(tracker.changes(), changes) << "seed " << seed;
    EXPECT_EQ(tracker.since_s(), 10) << "seed " << seed;
    EXPECT_GT(Feed(tracker, {0.9, 0.1, 0, 0, 0}, 20, 0.2, random, now_s), 0) << "seed " << seed;
  }
}

// As in table 2 of the paper: a scan of 0.4 windows is worth a move.
TEST(PhaseTrackerTest, AShortPhaseBetweenLongOnesIsOneOfItsOwn) {
  Random random(16);
  PhaseTracker tracker({});
  double now_s = 0;
  for (uint64_t pass = 0; pass < 5; ++pass) {
    Feed(tracker, kInsert, 160, 0.1, random, now_s);
    EXPECT_EQ(tracker.changes(), 2 * pass);
    Feed(tracker, kScan, 8, 0.1, random, now_s);
    EXPECT_EQ(tracker.changes(), 2 * pass + 1);
    EXPECT_GE(tracker.since_s(), now_s - 8 * kSample - 1e-9);
  }
}

TEST(PhaseTrackerTest, KindsBeyondTheLimitReplaceTheOneNotSeenForLongest) {
  PhaseConfig config;
  config.kinds_max = 2;
  PhaseTracker tracker(config);
  Random random(10);
  double now_s = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t hot = 0; hot < 4; ++hot) {
      std::vector<double> mix(4, 0.05);
      mix[hot] = 0.85;
      Feed(tracker, mix, 20, 0.1, random, now_s);
    }
  }
  EXPECT_EQ(tracker.changes(), 11u);
  EXPECT_FALSE(tracker.kind().has_value()) << "four kinds cannot all be known";
}

TEST(PhaseTrackerTest, WhatWasLearntOfPhasesHoldsWhileCostsComeAndGo) {
  Random random(11);
  PhaseTracker tracker({});
  double now_s = 0;
  for (int i = 0; i < 3; ++i) {
    Feed(tracker, kInsert, 160, 0.1, random, now_s);
    Feed(tracker, kScan, 40, 0.1, random, now_s);
  }
  const uint64_t changes = tracker.changes();
  std::vector<double> wider = kInsert;
  wider.push_back(0.01);  // an edge that was not there before, and costs little
  Feed(tracker, wider, 40, 0.1, random, now_s);
  EXPECT_EQ(tracker.changes(), changes + 1) << "from scan to insert";
  ASSERT_TRUE(tracker.LengthRefS().has_value());
  EXPECT_NEAR(*tracker.LengthRefS(), 8, 0.4);
  Feed(tracker, kInsert, 40, 0.1, random, now_s);  // and is at rest again
  EXPECT_EQ(tracker.changes(), changes + 1);
  EXPECT_NEAR(*tracker.LengthRefS(), 8, 0.4);
  EXPECT_NEAR(tracker.done_ref_s(), 4, 0.4);
}

TEST(PhaseTrackerTest, ACostThatIsNewAndLargeIsAChange) {
  Random random(12);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, kInsert, 100, 0.1, random, now_s);
  std::vector<double> wider = kInsert;
  wider.push_back(1);
  EXPECT_GT(Feed(tracker, wider, 10, 0.1, random, now_s), 0);
}

TEST(PhaseTrackerTest, CostsThatAreKeptKeepWhatIsKnownOfThem) {
  Random random(13);
  PhaseTracker tracker({});
  double now_s = 0;
  const std::vector<double> a = {0.5, 0, 0.3, 0.2};
  const std::vector<double> b = {0.1, 0, 0.8, 0.1};
  for (int i = 0; i < 2; ++i) {
    Feed(tracker, a, 100, 0.1, random, now_s);
    Feed(tracker, b, 100, 0.1, random, now_s);
  }
  tracker.Keep({3, 0, 2});
  EXPECT_EQ(Feed(tracker, {0.1, 0.1, 0.8}, 20, 0.1, random, now_s), 0)
      << "the same under new names";
  EXPECT_GT(Feed(tracker, {0.2, 0.5, 0.3}, 20, 0.1, random, now_s), 0);
  ASSERT_TRUE(tracker.LengthRefS().has_value());
  EXPECT_NEAR(*tracker.LengthRefS(), 5, 0.3);
}

// A sample without cost names places and is not learnt of.
TEST(PhaseTrackerTest, PlacesThatWereNeverLearntOfAreKeptAsCostless) {
  Random random(15);
  PhaseTracker tracker({});
  double now_s = 0;
  Feed(tracker, {0.7, 0.3}, 50, 0.1, random, now_s);
  tracker.Keep({1, 200, 0});
  EXPECT_EQ(Feed(tracker, {0.3, 0, 0.7}, 50, 0.1, random, now_s), 0);
}

TEST(PhaseTrackerTest, NewConstantsHoldForWhatIsKnown) {
  Random random(14);
  PhaseTracker tracker({});
  double now_s = 0;
  for (int i = 0; i < 3; ++i) {
    Feed(tracker, kInsert, 80, 0.1, random, now_s);
    Feed(tracker, kScan, 40, 0.1, random, now_s);
  }
  ASSERT_TRUE(tracker.LengthRefS().has_value());
  PhaseConfig config;
  config.kinds_max = 1;
  config.alarm_sum = 1000;
  tracker.SetConfig(config);
  EXPECT_FALSE(tracker.LengthRefS().has_value()) << "of two kinds the one that ended last is kept";
  EXPECT_EQ(Feed(tracker, kInsert, 100, 0.1, random, now_s), 0) << "an alarm needs 200 samples now";
  config.alarm_sum = 8;
  tracker.SetConfig(config);
  EXPECT_GT(Feed(tracker, kScan, 20, 0.1, random, now_s), 0);
}

TEST(PhaseTrackerTest, AnEmptySampleSaysNothing) {
  PhaseTracker tracker({});
  EXPECT_FALSE(tracker.Add(std::vector<double>{0, 0}, 0, 1));
  EXPECT_FALSE(tracker.Add(std::vector<double>{1, 1}, 2, 2));
  EXPECT_EQ(tracker.done_ref_s(), 0);
}

}  // namespace
}  // namespace abacus::placement
