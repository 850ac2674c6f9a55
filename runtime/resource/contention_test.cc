#include "runtime/resource/contention.h"

#include <gtest/gtest.h>

namespace abacus::runtime {
namespace {

TEST(ContentionTest, NothingKnownIsTheEquationsWord) { EXPECT_EQ(Contention().part(), 1); }

// 4 tasks on 2 cores: 0.3 s should have meant 0.3 s of waiting. (0.01 + 0.02) / (0.3 + 0.02).
TEST(ContentionTest, IsReadyTimeOverWhatTheLoadSays) {
  Contention contention;
  contention.Add(0.3, 0.01, 4, 2, 0.4, 10);
  EXPECT_NEAR(contention.part(), 0.03 / 0.32, 1e-12);
}

TEST(ContentionTest, IsNeverMoreThanAll) {
  Contention contention;
  contention.Add(0.3, 5, 4, 2, 0.4, 10);
  EXPECT_EQ(contention.part(), 1);
}

TEST(ContentionTest, WhereNoCoreIsShortNothingIsLearnt) {
  Contention contention;
  contention.Add(10, 3, 1.9, 2, 10, 1e9);
  contention.Add(10, 3, 1, 0, 10, 1e9);
  EXPECT_EQ(contention.part(), 1);
}

// After one half-life 0.3 s counts as 0.15 s.
TEST(ContentionTest, ForgetsWhatIsOld) {
  Contention contention;
  contention.Add(0.3, 0, 4, 2, 0.4, 10);
  contention.Add(0, 0, 4, 2, 10, 10);
  EXPECT_NEAR(contention.part(), 0.02 / 0.17, 1e-12);
}

}  // namespace
}  // namespace abacus::runtime
