#include "placement/plausibility.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

TEST(FindContradictionTest, HonestFiguresPass) {
  EXPECT_EQ(FindContradiction(GrepSnapshot()), std::nullopt);
  Random random(11);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Snapshot s = RandomSnapshot(random);
    // Its bytes are drawn with no regard to what its link carries.
    s.links[0].bandwidth_bytes_s = 1e15;
    refused += FindContradiction(s).has_value();
  }
  EXPECT_EQ(refused, 0);
}

TEST(FindContradictionTest, MoreCpuThanTheNodeHasIsNamed) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s = 4;
  NodeOf(s, kClient).load = 5;
  const auto what = FindContradiction(s);
  ASSERT_TRUE(what.has_value());
  EXPECT_NE(what->find("on 2 cores"), std::string::npos) << *what;
}

TEST(FindContradictionTest, MoreCpuThanTheLoadIsNamed) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s = 0.9;
  const auto what = FindContradiction(s);
  ASSERT_TRUE(what.has_value());
  EXPECT_NE(what->find("under a load of 0.1"), std::string::npos) << *what;
}

TEST(FindContradictionTest, AnActivityLongerThanItsWindowIsNamed) {
  Snapshot s = GrepSnapshot();
  s.measured_t_app_s = 2;
  ASSERT_TRUE(FindContradiction(s).has_value());
}

// 3.6 threads of 1 s each where any was at work for 0.9 s of it: four at once.
TEST(FindContradictionTest, CallsThatGoOnAtOnceTakeAsManyWindows) {
  Snapshot s = GrepSnapshot();
  s.measured_t_app_s = 3.5;
  EXPECT_TRUE(FindContradiction(s).has_value());
  ObjectOf(s, kConsole).threads_s = 3.6;
  ObjectOf(s, kConsole).busy_s = 0.9;
  EXPECT_EQ(FindContradiction(s), std::nullopt);
  s.measured_t_app_s = 8;
  EXPECT_TRUE(FindContradiction(s).has_value());
}

// Each of four calls at once is measured to get a quarter of the bandwidth.
TEST(FindContradictionTest, CallsThatGoOnAtOnceEachFindAPartOfTheBandwidth) {
  Snapshot s = GrepSnapshot();
  s.measured_t_app_s.reset();
  EdgeOf(s, kGrep, kStorage).reply_bytes = 5e6;
  EXPECT_TRUE(FindContradiction(s).has_value());
  ObjectOf(s, kConsole).threads_s = 4;
  ObjectOf(s, kConsole).busy_s = 1;
  EXPECT_EQ(FindContradiction(s), std::nullopt);
}

TEST(FindContradictionTest, MoreBytesThanTheLinkCarriesIsNamed) {
  Snapshot s = GrepSnapshot();
  EdgeOf(s, kGrep, kStorage).reply_bytes = 5e6;
  const auto what = FindContradiction(s);
  ASSERT_TRUE(what.has_value());
  EXPECT_NE(what->find("nodes 7 and 1"), std::string::npos) << *what;
}

TEST(FindContradictionTest, FiguresOutOfRangeAreLeftToTheEngine) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s = std::nan("");
  NodeOf(s, kClient).load = -1;
  s.links[0].bandwidth_bytes_s = 0;
  EXPECT_EQ(FindContradiction(s), std::nullopt);
}

}  // namespace
}  // namespace abacus::placement
