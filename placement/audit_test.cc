#include "placement/audit.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

TEST(RunningErrorTest, QuantilesAreOfTheAbsoluteErrors) {
  RunningError errors(100);
  EXPECT_EQ(errors.Quantile(0.5), 0);
  for (int i = 1; i <= 21; ++i) errors.Add(i % 2 == 0 ? 100 + i : 100 - i, 100);
  EXPECT_NEAR(errors.Quantile(0.5), 0.11, 1e-9);
  EXPECT_NEAR(errors.Quantile(0.95), 0.20, 1e-9);
  EXPECT_NEAR(errors.Quantile(1), 0.21, 1e-9);
}

TEST(RunningErrorTest, RemembersTheLastOnesOnly) {
  RunningError errors(4);
  for (int i = 0; i < 4; ++i) errors.Add(200, 100);
  for (int i = 0; i < 4; ++i) errors.Add(100, 100);
  EXPECT_EQ(errors.count(), 4u);
  EXPECT_EQ(errors.Quantile(1), 0);
}

// A server that predicts well and one that does not: the mean of their quantiles would be 0.3.
TEST(RunningErrorTest, QuantilesOfSeveralAreOfAllTheirErrors) {
  RunningError good(10);
  RunningError bad(10);
  for (int i = 0; i < 15; ++i) good.Add(100, 100);
  for (int i = 0; i < 10; ++i) bad.Add(160, 100);
  bad.Add(190, 100);  // the first one goes for it
  RunningError all(1);
  all.Pool(good);
  all.Pool(bad);
  EXPECT_EQ(all.count(), 20u);
  EXPECT_NEAR(all.Quantile(0.25), 0, 1e-9);
  EXPECT_NEAR(all.Quantile(0.75), 0.6, 1e-9);
  EXPECT_NEAR(all.Quantile(1), 0.9, 1e-9);
  all.Add(100, 100);
  EXPECT_EQ(all.count(), 21u) << "the limit of before is left";
}

TEST(RunningErrorTest, ANewLimitKeepsTheNewest) {
  RunningError errors(4);
  for (int i = 1; i <= 6; ++i) errors.Add(100 + i, 100);
  errors.SetLimit(2);
  EXPECT_EQ(errors.count(), 2u);
  EXPECT_NEAR(errors.Quantile(0), 0.05, 1e-9);
  errors.SetLimit(3);
  errors.Add(107, 100);
  errors.Add(108, 100);
  EXPECT_EQ(errors.count(), 3u);
  EXPECT_NEAR(errors.Quantile(0), 0.06, 1e-9);
}

TEST(CorrectionsTest, NewLimitsHoldForWhatWasLearnt) {
  Corrections corrections(10, 4, 1e6);
  corrections.Learn("a", 1, 1, 4, 0);
  corrections.Learn("b", 1, 1, 4, 1);
  corrections.SetLimits(1, 2, 60);
  EXPECT_EQ(corrections.Factor("a", 1, 1), 1);
  EXPECT_NEAR(corrections.Factor("b", 1, 1), 2, 1e-9);
  EXPECT_NEAR(corrections.Factor("b", 1, 61), std::sqrt(2), 1e-9);
}

TEST(CorrectionsTest, TheFactorIsMeasuredOverExpectedAndMultiplies) {
  Corrections corrections(10, 4, 60);
  EXPECT_EQ(corrections.Factor("grep", 1, 0), 1);
  corrections.Learn("grep", 1, 0.4, 0.6, 0);
  EXPECT_NEAR(corrections.Factor("grep", 1, 0), 1.5, 1e-12);
  corrections.Learn("grep", 1, 0.6, 0.6, 0);
  EXPECT_NEAR(corrections.Factor("grep", 1, 0), 1.5, 1e-12) << "now it is expected";
  EXPECT_EQ(corrections.Factor("grep", 2, 0), 1) << "another node";
  EXPECT_EQ(corrections.Factor("sort", 1, 0), 1) << "another class";
}

TEST(CorrectionsTest, FactorsAreBoundedAndHalfOfThemIsForgottenInAHalfLife) {
  Corrections corrections(10, 4, 60);
  corrections.Learn("grep", 1, 0.001, 1000, 0);
  EXPECT_NEAR(corrections.Factor("grep", 1, 0), 4, 1e-9);
  EXPECT_NEAR(corrections.Factor("grep", 1, 60), 2, 1e-9);
  corrections.Learn("sort", 1, 1000, 0.001, 0);
  EXPECT_NEAR(corrections.Factor("sort", 1, 0), 0.25, 1e-9);
  EXPECT_TRUE(corrections.InForce(6000).empty());
  EXPECT_EQ(corrections.InForce(0).size(), 2u);
}

TEST(CorrectionsTest, AtTheLimitTheOneLearntLongestAgoGoes) {
  Corrections corrections(2, 4, 1e6);
  corrections.Learn("a", 1, 1, 2, 0);
  corrections.Learn("b", 1, 1, 2, 1);
  corrections.Learn("c", 1, 1, 2, 2);
  EXPECT_EQ(corrections.Factor("a", 1, 2), 1);
  EXPECT_NEAR(corrections.Factor("b", 1, 2), 2, 1e-4);
}

}  // namespace
}  // namespace abacus::placement
