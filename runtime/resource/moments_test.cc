#include "runtime/resource/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace abacus::runtime {
namespace {

TEST(MomentsTest, NothingIsKnownBeforeASampleAndNoVarianceBeforeTheSecond) {
  Moments moments;
  EXPECT_EQ(moments.samples(), 0);
  EXPECT_EQ(moments.variance(), 0);
  EXPECT_EQ(moments.VarianceOfWindow(1), 0);
  moments.Add(5, 0.1, 1);
  EXPECT_DOUBLE_EQ(moments.mean(), 5);
  EXPECT_EQ(moments.variance(), 0);
  EXPECT_DOUBLE_EQ(moments.samples(), 1);
}

TEST(MomentsTest, SteadyRateHasNoVariance) {
  Moments moments;
  for (int i = 0; i < 100; ++i) moments.Add(0.25, 0.1, 1);
  EXPECT_NEAR(moments.mean(), 0.25, 1e-12);
  EXPECT_NEAR(moments.variance(), 0, 1e-12);
}

TEST(MomentsTest, NoisyRateShowsItsMeanAndItsDeviation) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(10, 2);
  Moments moments;
  double mean = 0, variance = 0;
  constexpr int kSamples = 20'000;
  for (int i = 0; i < kSamples; ++i) {
    moments.Add(noise(random), 0.01, 1);
    mean += moments.mean() / kSamples;
    variance += moments.variance() / kSamples;
  }
  EXPECT_NEAR(mean, 10, 0.1);
  EXPECT_NEAR(variance, 4, 0.2);
  // Two windows' worth of samples, by the fading: 2 x H / length.
  EXPECT_NEAR(moments.samples(), 200, 5);
}

TEST(MomentsTest, OldSamplesFadeWithinAFewWindows) {
  Moments moments;
  for (int i = 0; i < 100; ++i) moments.Add(100, 0.1, 1);
  for (int i = 0; i < 50; ++i) moments.Add(1, 0.1, 1);
  EXPECT_NEAR(moments.mean(), 1, 1);
}

TEST(MomentsTest, LongSamplesWeighMoreThanShortOnes) {
  Moments moments;
  for (int i = 0; i < 200; ++i) {
    moments.Add(0, 0.03, 1);
    moments.Add(4, 0.01, 1);
  }
  EXPECT_NEAR(moments.mean(), 1, 0.05);
}

}  // namespace
}  // namespace abacus::runtime
