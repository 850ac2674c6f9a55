#include "runtime/resource/link_estimator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace abacus::runtime {
namespace {

constexpr NodeInstance kPeer{2, 1};
constexpr double kBandwidth = 1.25e6;  // 10 Mbit/s
constexpr double kRoundTrip = 0.3e-3;
constexpr uint64_t kFollows = 300'000;  // a call soon after another
constexpr uint64_t kPauses = 50'000'000;

// What a call over that link takes.
uint64_t NetworkNs(uint64_t bytes) {
  return static_cast<uint64_t>((kRoundTrip + static_cast<double>(bytes) / kBandwidth) * 1e9);
}

const LinkEstimator::Estimate Only(const LinkEstimator& links) {
  const auto estimates = links.Estimates();
  EXPECT_EQ(estimates.size(), 1u);
  return estimates.front();
}

TEST(LinkEstimatorTest, NothingIsKnownBeforeACall) {
  EXPECT_TRUE(LinkEstimator().Estimates().empty());
}

TEST(LinkEstimatorTest, SmallCallsTellTheRoundTripAndNoBandwidth) {
  LinkEstimator links;
  for (int i = 0; i < 10; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  const auto link = Only(links);
  EXPECT_NEAR(*link.round_trip_s, kRoundTrip, 0.1e-3);
  EXPECT_NEAR(link.round_trip_bytes, 64, 1e-9) << "so much is in that time";
  EXPECT_FALSE(link.bandwidth_bytes_s.has_value());
}

// Blocks of 8 KiB over 12.5 MB/s and 1 ms, after a start in which small calls took 2.3 ms:
// believed, these leave a block's bytes no time, and calls seem to be all that costs.
TEST(LinkEstimatorTest, ARoundTripOfAnotherTimeLeavesLargeCallsTheTimeOfTheirBytes) {
  LinkEstimator links;
  for (int i = 0; i < 10; ++i) links.Observe(kPeer, 40, 24, 2'300'000, kPauses);
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 8192, 0, 1'655'000, kFollows);
  EXPECT_LT(*Only(links).bandwidth_bytes_s, 2 * 12.5e6);
  EXPECT_GT(*Only(links).bandwidth_bytes_s, 12.5e6 / 2);
  EXPECT_LT(*Only(links).round_trip_s, 1.655e-3);
  for (int i = 0; i < 40; ++i) links.Observe(kPeer, 40, 24, 1'000'000, kFollows);
  EXPECT_NEAR(*Only(links).round_trip_s, 1e-3, 0.1e-3) << "a new one is believed";
}

// As they come in over 20 Mbit/s and 40 ms: a connection is made, few small calls follow, and then
// blocks of 8 KiB of which nearly all is the round trip.
TEST(LinkEstimatorTest, OfALongWayTheBytesAreTheSmallPartThatTheyAre) {
  LinkEstimator links;
  links.Observe(kPeer, 0, 91, 122'800'000, kPauses);
  for (int i = 0; i < 12; ++i) links.Observe(kPeer, 10, 16, 41'500'000 + i % 4 * 100'000, kFollows);
  for (int i = 0; i < 200; ++i) {
    const bool late = i % 8 == 0;
    links.Observe(kPeer, 20, 8192, 44'300'000 + i % 5 * 100'000 + (late ? 6'000'000 : 0), kFollows);
    const auto link = Only(links);
    ASSERT_NEAR(*link.round_trip_s, 41.6e-3, 0.5e-3) << i;
    if (i >= 20) ASSERT_NEAR(*link.bandwidth_bytes_s, 2.5e6, 0.75e6) << i;
  }
}

// At a start many small calls are late, behind those of other clients, and then large ones alone
// come: 64 KiB in 64 ms, where the bytes take 62.8 of it.
TEST(LinkEstimatorTest, OfFewSmallCallsTheFastOnesCount) {
  for (const std::vector<double>& starts_ms : std::vector<std::vector<double>>{
           {57.4, 1.2, 31.1, 1.2, 38.2, 21.3}, {1.3, 19.7, 18.2, 14.1, 1.2, 27.1}, {49, 1.2, 6}}) {
    LinkEstimator links;
    for (const double ms : starts_ms) {
      links.Observe(kPeer, 24, 8, static_cast<uint64_t>(ms * 1e6), kPauses);
    }
    for (int i = 0; i < 100; ++i) links.Observe(kPeer, 24, 65536, 64'000'000, kPauses);
    EXPECT_NEAR(*Only(links).round_trip_s, 1.2e-3, 0.2e-3);
    EXPECT_NEAR(*Only(links).bandwidth_bytes_s, 1.044e6, 0.02e6);
  }
}

// Behind other calls one waits for so long whatever the way is: over a long one that is no
// multiple.
TEST(LinkEstimatorTest, OfALongWayCallsThatWaitedForOthersAreNoRoundTrip) {
  LinkEstimator links;
  for (int i = 0; i < 12; ++i) {
    links.Observe(kPeer, 10, 16, i % 3 == 0 ? 56'500'000 : 41'500'000, kFollows);
  }
  EXPECT_NEAR(*Only(links).round_trip_s, 41.5e-3, 0.1e-3);
}

// One call whose residence was measured too long is no proof against the small ones.
TEST(LinkEstimatorTest, OneLargeCallThatSeemsToTakeNoTimeChangesNoRoundTrip) {
  LinkEstimator links;
  for (int i = 0; i < 10; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  for (int i = 0; i < 100; ++i) {
    links.Observe(kPeer, 40, 65536, i % 32 == 31 ? 0 : NetworkNs(65576), kFollows);
  }
  EXPECT_NEAR(*Only(links).round_trip_s, kRoundTrip, 0.1e-3);
}

TEST(LinkEstimatorTest, TheBandwidthVariesByAsMuchAsItsMeasurementsDo) {
  LinkEstimator steady, rough;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> factor(0.7, 1.3);
  for (int i = 0; i < 200; ++i) {
    for (LinkEstimator* links : {&steady, &rough}) {
      links->Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
      const double slower = links == &rough ? factor(random) : 1;
      links->Observe(kPeer, 40, 65536,
                     static_cast<uint64_t>(slower * static_cast<double>(NetworkNs(65576))),
                     kFollows);
    }
  }
  EXPECT_LT(std::sqrt(Only(steady).bandwidth_variance), 0.01 * kBandwidth);
  // A call deviates by 17 % (0.6 / sqrt(12)), the mean of some 63 of them by 2.2 %.
  const double deviation = std::sqrt(Only(rough).bandwidth_variance) / kBandwidth;
  EXPECT_GT(deviation, 0.01);
  EXPECT_LT(deviation, 0.04);
}

TEST(LinkEstimatorTest, LargeCallsTellTheBandwidthWithinFivePercent) {
  LinkEstimator links;
  for (int i = 0; i < 20; ++i) {
    links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
    links.Observe(kPeer, 40, 65536, NetworkNs(65576), kFollows);
  }
  const auto link = Only(links);
  EXPECT_NEAR(*link.bandwidth_bytes_s, kBandwidth, 0.05 * kBandwidth);
  EXPECT_GE(link.measured_bytes, 20 * 65536);
}

TEST(LinkEstimatorTest, LargeCallsAloneGiveBothWithinTenPercentOfTheBandwidth) {
  LinkEstimator links;
  for (int i = 0; i < 20; ++i) links.Observe(kPeer, 40, 65536, NetworkNs(65576), kFollows);
  const auto link = Only(links);
  EXPECT_NEAR(*link.bandwidth_bytes_s, kBandwidth, 0.1 * kBandwidth);
  EXPECT_GT(*link.round_trip_s, 0);
  EXPECT_LT(*link.round_trip_s, 0.1 * static_cast<double>(NetworkNs(65576)) * 1e-9);
}

TEST(LinkEstimatorTest, AFewSlowCallsHardlyMoveTheRoundTrip) {
  LinkEstimator links;
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    const bool late = random() % 10 == 0;
    links.Observe(kPeer, 40, 24, NetworkNs(64) * (late ? 50 : 1), kFollows);
  }
  EXPECT_LT(*Only(links).round_trip_s, 2 * kRoundTrip);
}

// Calls that wait for a move are few, come together, and none may follow for a while.
TEST(LinkEstimatorTest, CallsThatWaitedForAMoveAreNoRoundTrip) {
  LinkEstimator links;
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  for (int i = 0; i < 4; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 5, kFollows);
  const double once = static_cast<double>(NetworkNs(64)) * 1e-9;
  EXPECT_NEAR(*Only(links).round_trip_s, once, 0.05 * once);
}

TEST(LinkEstimatorTest, ARoundTripThatBecomesAnotherIsSeenWithinThirtyTwoCalls) {
  LinkEstimator links;
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  for (int i = 0; i < 32; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 10, kFollows);
  const double once = static_cast<double>(NetworkNs(64)) * 1e-9;
  EXPECT_NEAR(*Only(links).round_trip_s, 10 * once, 0.05 * once);
}

// Work that calls seldom tells little of the round trips of work that does nothing else.
TEST(LinkEstimatorTest, CallsAfterAPauseCountWhereNoneFollowOthersOrWakingDoesNotExplainThem) {
  const double once = static_cast<double>(NetworkNs(64)) * 1e-9;
  LinkEstimator links;
  for (int i = 0; i < 50; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 2, kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, 2 * once, 0.01 * once);
  for (int i = 0; i < 3; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  for (int i = 0; i < 50; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 2, kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, once, 0.01 * once);
  // Another link now.
  for (int i = 0; i < 50; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 10, kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, 10 * once, 0.01 * once);
}

TEST(LinkEstimatorTest, CallsThatFollowedOthersOnceDoNotCountForEver) {
  const double once = static_cast<double>(NetworkNs(64)) * 1e-9;
  LinkEstimator links;
  // One was late by chance: waking explains no call that is faster.
  links.Observe(kPeer, 40, 24, NetworkNs(64) * 100, kFollows);
  for (int i = 0; i < 32; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, once, 0.01 * once);
  // The link becomes a little slower, which waking would explain.
  for (int i = 0; i < 32; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64), kFollows);
  for (int i = 0; i < 1000; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 2, kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, once, 0.01 * once);
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 40, 24, NetworkNs(64) * 2, kPauses);
  EXPECT_NEAR(*Only(links).round_trip_s, 2 * once, 0.01 * once);
}

// Half of them take twice as long, as their threads were asleep: 1.5 round trips are to be
// expected.
TEST(LinkEstimatorTest, TheRoundTripIsWhatCallsTakeInTheMean) {
  LinkEstimator links;
  for (int i = 0; i < 1000; ++i)
    links.Observe(kPeer, 40, 24, NetworkNs(64) * (1 + i % 2), kFollows);
  const double once = static_cast<double>(NetworkNs(64)) * 1e-9;
  EXPECT_NEAR(*Only(links).round_trip_s, 1.5 * once, 0.1 * once);
}

TEST(LinkEstimatorTest, ALinkThatBecomesTenTimesFasterIsSeenWithinAHundredCalls) {
  LinkEstimator links;
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 40, 65536, NetworkNs(65576), kFollows);
  for (int i = 0; i < 100; ++i) links.Observe(kPeer, 40, 65536, NetworkNs(65576) / 10, kFollows);
  EXPECT_GT(*Only(links).bandwidth_bytes_s, 6 * kBandwidth);
}

TEST(LinkEstimatorTest, AForgottenPeerIsUnknownAgain) {
  LinkEstimator links;
  links.Observe(kPeer, 40, 65536, NetworkNs(65576), kFollows);
  links.Forget(kPeer);
  EXPECT_TRUE(links.Estimates().empty());
}

TEST(LinkEstimatorTest, WhatWasKnownBeforeARestartCountsUntilCallsSayOtherwise) {
  LinkEstimator links;
  links.SetPriors({{7, 1.25e6, 0.0003}});
  EXPECT_TRUE(links.Estimates().empty()) << "nobody has come yet";
  const NodeInstance peer{7, 3};
  links.Observe(peer, 64, 64, 300'000, kFollows);
  auto estimate = links.Estimates().at(0);
  EXPECT_NEAR(*estimate.bandwidth_bytes_s, 1.25e6, 1);
  EXPECT_NEAR(std::sqrt(estimate.bandwidth_variance), 0.2 * 1.25e6, 1);
  EXPECT_EQ(estimate.measured_bytes, 32 * 1024);
  // The link is ten times as fast now.
  for (int i = 0; i < 5; ++i) links.Observe(peer, 64, 65536, 300'000 + 65'600'000 / 12.5, kFollows);
  EXPECT_GT(*links.Estimates().at(0).bandwidth_bytes_s, 6e6);
  for (int i = 0; i < 200; ++i)
    links.Observe(peer, 64, 65536, 300'000 + 65'600'000 / 12.5, kFollows);
  EXPECT_NEAR(*links.Estimates().at(0).bandwidth_bytes_s, 12.5e6, 0.2e6);
}

TEST(LinkEstimatorTest, WhatIsKnownIsWhatWasMeasuredAndWhoHasNotComeBack) {
  LinkEstimator links;
  links.SetPriors({{7, 1e6, 0.0003}, {8, 2e6, 0.0003}});
  const NodeInstance peer{7, 3};
  for (int i = 0; i < 100; ++i) {
    links.Observe(peer, 64, 64, 300'000, kFollows);
    links.Observe(peer, 64, 65536, 300'000 + 65'600'000, kFollows);
  }
  const std::vector<KnownLink> known = links.Known();
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].peer, 7u);
  EXPECT_NEAR(known[0].bandwidth_bytes_s, 1e6, 5e4);
  EXPECT_EQ(known[1], (KnownLink{8, 2e6, 0.0003}));
}

TEST(LinkEstimatorTest, OfANodeThatComesBackWhatWasMeasuredBeforeIsAPrior) {
  LinkEstimator links;
  for (int i = 0; i < 100; ++i) {
    links.Observe({7, 3}, 64, 64, 300'000, kFollows);
    links.Observe({7, 3}, 64, 65536, 300'000 + 65'600'000, kFollows);
  }
  links.Forget({7, 3});
  EXPECT_TRUE(links.Estimates().empty());
  links.Observe({7, 4}, 64, 64, 300'000, kFollows);
  const auto estimate = links.Estimates().at(0);
  EXPECT_NEAR(*estimate.bandwidth_bytes_s, 1e6, 5e4);
  EXPECT_EQ(estimate.measured_bytes, 32 * 1024) << "a prior, and no more";
}

}  // namespace
}  // namespace abacus::runtime
