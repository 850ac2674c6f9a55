#include "runtime/resource/call_spans.h"

#include <gtest/gtest.h>

#include <random>

#include "monitor-ebpf/thread_clock.h"

namespace abacus::runtime {
namespace {

constexpr double kSample_s = 0.05;
constexpr EdgeKey kRead = uint64_t{2} << 32 | 3;  // an object to its store
constexpr EdgeKey kTurn = uint64_t{1} << 32 | 2;  // a console to the object

uint64_t Ticks(double s) {
  return static_cast<uint64_t>(s * 1e9 / monitor::ThreadClock::NsPerTick());
}
EdgeSums Remote(uint64_t calls, uint64_t bytes, double wait_s) {
  return {.calls = calls,
          .reply_bytes = bytes,
          .remote_calls = calls,
          .remote_wait_ns = static_cast<uint64_t>(wait_s * 1e9)};
}

class CallSpansTest : public ::testing::Test {
 protected:
  // One sample in which the edges grew by this.
  EdgeFlowsByKey Sample(const EdgeSums& read, const EdgeSums& turn = {}) {
    return spans_.Take({{kRead, read}, {kTurn, turn}}, kSample_s);
  }
  EdgeFlowsByKey Rest() { return Sample({}); }

  CallSpans spans_;
};

// 1 MB in 0.85 s: 17 samples of 50 ms, each of 1 / 17 of it.
TEST_F(CallSpansTest, ACallLongerThanASampleIsSpreadOverTheTimeThatItTook) {
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Rest()[kRead].calls, 0);
  EXPECT_NEAR(Sample(Remote(1, 1'000'000, 0.85))[kRead].reply_bytes, 1'000'000 / 17.0, 1);
  for (int i = 0; i < 16; ++i) {
    const EdgeFlow flow = Rest()[kRead];
    EXPECT_NEAR(flow.reply_bytes, 1'000'000 / 17.0, 1);
    EXPECT_NEAR(flow.calls, 1 / 17.0, 1e-6);
    EXPECT_NEAR(flow.remote_wait_s, 0.05, 1e-6) << "an activity cannot wait longer than it is";
  }
  EXPECT_NEAR(Rest()[kRead].reply_bytes, 0, 1e-3);
}

TEST_F(CallSpansTest, LongCallsOneAfterTheOtherMakeSamplesThatAreAllAlike) {
  double least = 1e300;
  double most = 0;
  for (int i = 0; i < 170; ++i) {
    const bool ends = i % 17 == 16;
    const EdgeFlow flow = Sample(ends ? Remote(1, 1'000'000, 0.85) : EdgeSums())[kRead];
    if (i < 17) continue;
    least = std::min(least, flow.reply_bytes);
    most = std::max(most, flow.reply_bytes);
  }
  EXPECT_GT(least, 0.99 * 1'000'000 / 17);
  EXPECT_LT(most, 1.01 * 1'000'000 / 17);
}

// A turn reads for 0.85 s and then computes for 1 ms. Were that credited at once, the sample would
// say that a turn takes 17 ms to compute.
TEST_F(CallSpansTest, WhatALongCallComputedIsSpreadAsItIs) {
  for (int i = 0; i < 16; ++i) Rest();
  Sample(Remote(1, 1'000'000, 0.85), {.calls = 1, .busy_ticks = Ticks(0.001)});
  for (int i = 0; i < 15; ++i) {
    const EdgeFlow turn = Rest()[kTurn];
    EXPECT_NEAR(turn.busy_s / turn.calls, 0.001, 1e-5) << i;
  }
}

TEST_F(CallSpansTest, ShortCallsCountAtOnce) {
  const EdgeFlow flow = Sample(Remote(5, 5000, 5 * 0.04))[kRead];
  EXPECT_EQ(flow.calls, 5);
  EXPECT_EQ(flow.reply_bytes, 5000);
  EXPECT_EQ(Rest()[kRead].calls, 0);
}

TEST_F(CallSpansTest, ALongCallAfterAPauseIsSpreadOverItsOwnTimeOnly) {
  Sample(Remote(1, 1000, 0.01));
  for (int i = 0; i < 200; ++i) Rest();
  EXPECT_NEAR(Sample(Remote(1, 1000, 0.1))[kRead].reply_bytes, 500, 1e-6);
  EXPECT_NEAR(Rest()[kRead].reply_bytes, 500, 1e-6);
  EXPECT_EQ(Rest()[kRead].reply_bytes, 0);
}

// Four threads compute all the time: 0.2 s in 50 ms are no call of 0.2 s.
TEST_F(CallSpansTest, TimeOfManyThreadsIsNotSpread) {
  const EdgeSums busy = {.calls = 4, .busy_ticks = Ticks(0.2)};
  // Of the first one nobody knows when it began.
  for (int i = 0; i < 5; ++i) Sample({}, busy);
  for (int i = 0; i < 5; ++i) {
    const EdgeFlow flow = Sample({}, busy)[kTurn];
    EXPECT_NEAR(flow.busy_s, 0.2, 1e-3);  // a young process knows its ticks to 2e-4
    EXPECT_EQ(flow.calls, 4);
  }
}

TEST_F(CallSpansTest, ComputingThatIsChargedAtItsEndIsSpread) {
  Sample({}, {.calls = 1, .busy_ticks = Ticks(0.001)});
  for (int i = 0; i < 7; ++i) Rest();
  EXPECT_NEAR(Sample({}, {.calls = 1, .busy_ticks = Ticks(0.4)})[kTurn].busy_s, 0.05, 1e-3);
  EXPECT_NEAR(Rest()[kTurn].busy_s, 0.05, 1e-3);
}

// The console's call of the object takes as long as the two reads in it.
TEST_F(CallSpansTest, ACallThatWaitedForLongCallsIsSpreadLikeThem) {
  Sample({}, {.calls = 1});
  for (int i = 0; i < 9; ++i) Rest();
  Sample(Remote(1, 1000, 0.5));
  for (int i = 0; i < 9; ++i) Rest();
  EXPECT_NEAR(Sample(Remote(1, 1000, 0.5), {.calls = 1, .reply_bytes = 100})[kTurn].reply_bytes, 5,
              1e-6);
  for (int i = 0; i < 19; ++i) EXPECT_NEAR(Rest()[kTurn].calls, 0.05, 1e-6);
  EXPECT_NEAR(Rest()[kTurn].calls, 0, 1e-9);
}

TEST_F(CallSpansTest, ObjectsThatCallEachOtherInACircleAreFollowedOnce) {
  const EdgeKey back = uint64_t{3} << 32 | 2;
  const auto flows = spans_.Take({{kRead, {.calls = 1}}, {back, {.calls = 1}}}, kSample_s);
  EXPECT_EQ(flows.at(kRead).calls, 1);
  EXPECT_EQ(flows.at(back).calls, 1);
}

TEST_F(CallSpansTest, WhatIsDroppedIsNotCreditedAnyMore) {
  Sample(Remote(1, 1'000'000, 0.85), Remote(1, 1'000'000, 0.85));
  spans_.Drop([](EdgeKey key) { return CalleeOf(key) == 3; });
  const EdgeFlowsByKey flows = Rest();
  EXPECT_EQ(flows.at(kRead).reply_bytes, 0);
  EXPECT_GT(flows.at(kTurn).reply_bytes, 0);
}

TEST_F(CallSpansTest, NothingIsLostOrMadeUpWhateverTheCallsTake) {
  constexpr uint64_t kSeed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  double grown = 0;
  double credited = 0;
  for (int i = 0; i < 3000; ++i) {
    EdgeSums sums;
    if (i < 1500 && random() % 4 == 0) {
      const uint64_t calls = 1 + random() % 5;
      sums =
          Remote(calls, random() % 100'000, static_cast<double>(calls * (random() % 2000)) / 1e3);
    }
    grown += static_cast<double>(sums.reply_bytes);
    const double now = Sample(sums)[kRead].reply_bytes;
    EXPECT_GE(now, 0);
    credited += now;
  }
  EXPECT_NEAR(credited, grown, 1e-6 * grown);
}

}  // namespace
}  // namespace abacus::runtime
