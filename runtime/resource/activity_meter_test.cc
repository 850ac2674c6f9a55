#include "runtime/resource/activity_meter.h"

#include <gtest/gtest.h>

namespace abacus::runtime {
namespace {

TEST(ActivityMeterTest, TimesOfThreadsAddUpAndTimeOfAnyCountsOnce) {
  ActivityMeter meter;
  meter.Begin(100);
  meter.Begin(103);
  meter.End(104);
  meter.End(105);
  EXPECT_EQ(meter.Sum(200).threads_ns, 6);
  EXPECT_EQ(meter.Sum(200).busy_ns, 5);
}

TEST(ActivityMeterTest, WorkUnderWayCountsUpToNow) {
  ActivityMeter meter;
  meter.Begin(100);
  meter.Begin(100);
  EXPECT_EQ(meter.Sum(110).threads_ns, 20);
  EXPECT_EQ(meter.Sum(110).busy_ns, 10);
  meter.End(110);
  EXPECT_EQ(meter.Sum(120).threads_ns, 30);
  EXPECT_EQ(meter.Sum(120).busy_ns, 20);
}

TEST(ActivityMeterTest, AClockThatWasReadBeforeAnothersCountsNothingTwice) {
  ActivityMeter meter;
  meter.Begin(100);
  meter.Begin(110);
  meter.End(108);
  meter.End(120);
  EXPECT_EQ(meter.Sum(200).threads_ns, 20);
  EXPECT_EQ(meter.Sum(200).busy_ns, 20);
}

}  // namespace
}  // namespace abacus::runtime
