#include "placement/history.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

Snapshot Sample(double length_s, double cpu_s, double load) {
  Snapshot s = GrepSnapshot();
  s.window_s = length_s;
  s.measured_t_app_s = length_s / 2;
  ObjectOf(s, kGrep).cpu_s = cpu_s;
  NodeOf(s, kServer).load = load;
  return s;
}

TEST(GraphHistoryTest, AWindowIsTheSumOfItsSamplesAndTheMeanOfTheirLoads) {
  GraphHistory history(8);
  EXPECT_FALSE(history.Add(Sample(0.1, 0.01, 1), 0.1));
  EXPECT_TRUE(history.Add(Sample(0.3, 0.03, 2), 0.4));
  Snapshot window = history.Window(0);
  EXPECT_NEAR(window.window_s, 0.4, 1e-6);
  EXPECT_NEAR(ObjectOf(window, kGrep).cpu_s, 0.04, 1e-6);
  EXPECT_NEAR(NodeOf(window, kServer).load, (0.1 * 1 + 0.3 * 2) / 0.4, 1e-6);
  EXPECT_NEAR(*window.measured_t_app_s, 0.2, 1e-6);
  EXPECT_NEAR(EdgeOf(window, kGrep, kStorage).calls, 36, 1e-3);
}

// The time of the last sample alone would be taken for that of the whole window.
TEST(GraphHistoryTest, AWindowOfWhichAPartWasNotTimedHasNoTime) {
  GraphHistory history(8);
  Snapshot untimed = Sample(0.1, 0.01, 1);
  untimed.measured_t_app_s.reset();
  history.Add(untimed, 0.1);
  history.Add(Sample(0.3, 0.03, 2), 0.4);
  EXPECT_FALSE(history.Window(0).measured_t_app_s.has_value());
  EXPECT_NEAR(*history.Window(0.1).measured_t_app_s, 0.15, 1e-6);
}

TEST(GraphHistoryTest, SamplesThatBeganBeforeAreLeftOutButNeverAll) {
  GraphHistory history(8);
  for (int i = 1; i <= 4; ++i) history.Add(Sample(0.1, 0.01 * i, 1), 0.1 * i);
  Snapshot window = history.Window(0.2);
  EXPECT_NEAR(window.window_s, 0.2, 1e-6);
  EXPECT_NEAR(ObjectOf(window, kGrep).cpu_s, 0.07, 1e-6);
  EXPECT_NEAR(history.Window(99).window_s, 0.1, 1e-6);
}

TEST(GraphHistoryTest, AnObjectElsewhereOrAnotherObjectBeginsTheHistoryAnew) {
  GraphHistory history(8);
  history.Add(Sample(0.1, 0.01, 1), 0.1);
  Snapshot moved = Sample(0.1, 0.01, 1);
  ObjectOf(moved, kGrep).node = kServer;
  EXPECT_FALSE(history.Add(moved, 0.2));
  EXPECT_NEAR(history.begin_s(), 0.1, 1e-6);
  Snapshot more = moved;
  more.objects.push_back({.id = {7, 1, 9}, .node = kClient});
  EXPECT_FALSE(history.Add(more, 0.3));
  std::reverse(more.objects.begin(), more.objects.end());
  EXPECT_TRUE(history.Add(more, 0.4)) << "the order of entries carries no meaning";
  Snapshot window = history.Window(0);
  EXPECT_NEAR(ObjectOf(window, kGrep).cpu_s, 0.02, 1e-6) << "of the two that have another object";
  EXPECT_NEAR(*window.measured_t_app_s, 2 * *more.measured_t_app_s, 1e-6);
}

// The console has the answer of one call, which took 13 blocks from storage on the grep's own node;
// the grep has run a second one.
TEST(AlignCallsTest, CalleesAreBroughtToTheCallsThatTheirCallersHaveSeen) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).node = kServer;
  ObjectOf(s, kGrep).calls = 2;
  ObjectOf(s, kGrep).cpu_s = 0.02;
  ObjectOf(s, kGrep).cpu_s_variance = 4e-6;
  EdgeOf(s, kConsole, kGrep).calls = 1;
  EdgeOf(s, kConsole, kGrep).reply_bytes = 100;
  EdgeOf(s, kGrep, kStorage).calls = 26;
  EdgeOf(s, kGrep, kStorage).reply_bytes = 26e3;
  ObjectOf(s, kStorage).calls = 26;
  ObjectOf(s, kStorage).own_stall_s = 0.004;
  AlignCalls(&s);
  EXPECT_EQ(EdgeOf(s, kConsole, kGrep).reply_bytes, 100);
  EXPECT_NEAR(ObjectOf(s, kGrep).cpu_s, 0.01, 1e-12);
  EXPECT_NEAR(ObjectOf(s, kGrep).cpu_s_variance, 1e-6, 1e-15);
  EXPECT_NEAR(EdgeOf(s, kGrep, kStorage).calls, 13, 1e-9);
  EXPECT_NEAR(EdgeOf(s, kGrep, kStorage).reply_bytes, 13e3, 1e-6);
  EXPECT_NEAR(ObjectOf(s, kStorage).own_stall_s, 0.002, 1e-12);
  Snapshot again = s;
  AlignCalls(&again);
  EXPECT_NEAR(ObjectOf(again, kGrep).cpu_s, 0.01, 1e-12) << "once is enough";
}

TEST(AlignCallsTest, LargerDifferencesStayAsTheyAre) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).node = kServer;
  ObjectOf(s, kGrep).calls = 20;
  EdgeOf(s, kConsole, kGrep).calls = 10;
  ObjectOf(s, kGrep).cpu_s = 0.02;
  AlignCalls(&s);
  EXPECT_EQ(ObjectOf(s, kGrep).cpu_s, 0.02);
}

TEST(GraphHistoryTest, KeepsTheNewestSamplesUpToItsLimit) {
  GraphHistory history(3);
  for (int i = 1; i <= 10; ++i) history.Add(Sample(0.1, 0.01 * i, 1), 0.1 * i);
  Snapshot window = history.Window(0);
  EXPECT_NEAR(window.window_s, 0.3, 1e-6);
  EXPECT_NEAR(ObjectOf(window, kGrep).cpu_s, 0.08 + 0.09 + 0.10, 1e-6);
  EXPECT_NEAR(history.begin_s(), 0.7, 1e-6);
  history.SetSamplesMax(2);
  window = history.Window(0);
  EXPECT_NEAR(ObjectOf(window, kGrep).cpu_s, 0.09 + 0.10, 1e-6);
  EXPECT_NEAR(history.begin_s(), 0.8, 1e-6);
}

TEST(GraphHistoryTest, TheVarianceOfAWindowIsThatOfASumOfItsSamples) {
  Random random(3);
  GraphHistory history(4096);
  constexpr int kSamples = 4000;
  for (int i = 1; i <= kSamples; ++i) {
    history.Add(Sample(0.05, 0.01 * random.Uniform(0.8, 1.2), 1), 0.05 * i);
  }
  Snapshot window = history.Window(0);
  // Uniform over a range of 0.004: a deviation of 0.004 / sqrt(12), times sqrt(4000) for the sum.
  const double deviation = 0.004 / std::sqrt(12) * std::sqrt(kSamples);
  EXPECT_NEAR(std::sqrt(ObjectOf(window, kGrep).cpu_s_variance), deviation, 0.05 * deviation);
  EXPECT_EQ(ObjectOf(window, kGrep).samples, kSamples);
}

TEST(GraphHistoryTest, OneSampleIsTakenToVaryByAFifth) {
  GraphHistory history(8);
  history.Add(Sample(0.1, 0.01, 1), 0.1);
  Snapshot window = history.Window(0);
  EXPECT_NEAR(std::sqrt(ObjectOf(window, kGrep).cpu_s_variance), 0.2 * 0.01, 1e-6);
}

TEST(GraphHistoryTest, AnUnknownBandwidthOrRateStaysUnknown) {
  GraphHistory history(8);
  history.Add(Sample(0.1, 0.01, 1), 0.1);
  Snapshot unknown = Sample(0.1, 0.01, 1);
  unknown.links[0].bandwidth_bytes_s.reset();
  NodeOf(unknown, kServer).rate = 0;
  history.Add(unknown, 0.2);
  Snapshot window = history.Window(0);
  EXPECT_FALSE(window.links[0].bandwidth_bytes_s.has_value());
  EXPECT_EQ(NodeOf(window, kServer).rate, 0);
}

}  // namespace
}  // namespace abacus::placement
