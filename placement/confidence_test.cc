#include "placement/confidence.h"

#include <cmath>

#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

// Candidate 0 is split 0, the grep at the server.
TEST(BenefitDeviationTest, FiguresWithoutVarianceAreExact) {
  const Snapshot s = GrepSnapshot();
  EXPECT_EQ(BenefitDeviation(s, Decide(s, {}), 0), 0);
}

TEST(BenefitDeviationTest, ACpuTimeCountsByHowMuchLongerItTakesThere) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s_variance = 0.004 * 0.004;
  // Rate 1 to 0.5, both free: (1 - 2) x 0.004.
  EXPECT_NEAR(BenefitDeviation(s, Decide(s, {}), 0), 0.004, 1e-12);
}

TEST(BenefitDeviationTest, OnlyEdgesThatStopOrBeginToCrossCount) {
  Snapshot s = GrepSnapshot();
  EdgeOf(s, kGrep, kStorage).bytes_variance = 1e5 * 1e5;
  EXPECT_NEAR(BenefitDeviation(s, Decide(s, {}), 0), 0.08, 1e-12);  // 0.1 MB at 1.25 MB/s
  EXPECT_EQ(BenefitDeviation(s, Decide(s, {}), 1), 0) << "the present placement";
}

TEST(BenefitDeviationTest, ABandwidthCountsByTheBytesThatItConcerns) {
  Snapshot s = GrepSnapshot();
  s.links[0].bandwidth_variance = 1.25e5 * 1.25e5;
  // 1,180,800 - 1,800 bytes fewer, a tenth of deviation: 0.9432 s / 10.
  EXPECT_NEAR(BenefitDeviation(s, Decide(s, {}), 0), 0.09432, 1e-9);
}

TEST(BenefitDeviationTest, IndependentDeviationsAddUpInSquares) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s_variance = 0.004 * 0.004;
  EdgeOf(s, kGrep, kStorage).bytes_variance = 1e5 * 1e5;
  EXPECT_NEAR(BenefitDeviation(s, Decide(s, {}), 0), std::sqrt(0.004 * 0.004 + 0.08 * 0.08), 1e-12);
}

TEST(BenefitDeviationTest, AShortWindowIsScaledWithItsFigures) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s_variance = 0.004 * 0.004;
  s.window_s = 0.5;
  EXPECT_NEAR(BenefitDeviation(s, Decide(s, {}), 0), 0.008, 1e-12);
}

TEST(BenefitDeviationTest, ARefusedDecisionHasNone) {
  Snapshot s = GrepSnapshot();
  Decision refused = Decide(s, {});
  refused.present.reset();
  EXPECT_EQ(BenefitDeviation(s, refused, 0), 0);
}

// Linear propagation against what really comes out of figures drawn with these deviations.
TEST(BenefitDeviationTest, AgreesWithTheSpreadOfBenefitsOfDrawnFigures) {
  Random random(20261121);
  Snapshot mean = GrepSnapshot();
  constexpr double kPart = 0.05;
  const auto normal = [&] {  // sum of 12 uniforms
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random.Uniform(0, 1);
    return sum;
  };
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    Snapshot s = mean;
    ObjectOf(s, kGrep).cpu_s *= 1 + kPart * normal();
    EdgeOf(s, kGrep, kStorage).reply_bytes *= 1 + kPart * normal();
    *s.links[0].bandwidth_bytes_s *= 1 + kPart * normal();
    const double benefit_s = Decide(s, {}).candidates[0].benefit_s;
    sum += benefit_s;
    squares += benefit_s * benefit_s;
  }
  const double spread = std::sqrt(squares / kDraws - sum / kDraws * (sum / kDraws));
  ObjectOf(mean, kGrep).cpu_s_variance = std::pow(kPart * 0.020, 2);
  EdgeOf(mean, kGrep, kStorage).bytes_variance = std::pow(kPart * 65536 * 18, 2);
  mean.links[0].bandwidth_variance = std::pow(kPart * 1.25e6, 2);
  EXPECT_NEAR(BenefitDeviation(mean, Decide(mean, {}), 0), spread, 0.05 * spread);
}

}  // namespace
}  // namespace abacus::placement
