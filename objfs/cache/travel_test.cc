// Worked by hand: what goes over which link, in units of one link's price a byte.

#include "objfs/cache/travel.h"

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

constexpr TravelWays kBelowIsThere{.old_to_new = 1, .old_to_below = 1, .new_to_below = 0};
constexpr TravelWays kBelowIsHere{.old_to_new = 1, .old_to_below = 0, .new_to_below = 1};
constexpr TravelWays kBelowIsElsewhere{.old_to_new = 1, .old_to_below = 1, .new_to_below = 1};

TEST(ChooseTravelTest, TowardsTheLayerBelowCarryingIsTheFlush) {
  // 1000 x (1 + 0) against 1000 x (1 + again x 0): the same, whatever is written over.
  EXPECT_EQ(ChooseTravel({1000, 0}, kBelowIsThere), DirtyTravel::kCarry);
  EXPECT_EQ(ChooseTravel({1000, 1}, kBelowIsThere), DirtyTravel::kCarry);
}

TEST(ChooseTravelTest, AwayFromTheLayerBelowAFlushCrossesNothing) {
  // 1000 x (1 + 1) against 1000 x (0 + 0), and against 1000 x (0 + 1).
  EXPECT_EQ(ChooseTravel({1000, 0}, kBelowIsHere), DirtyTravel::kFlush);
  EXPECT_EQ(ChooseTravel({1000, 1}, kBelowIsHere), DirtyTravel::kFlush);
}

TEST(ChooseTravelTest, BetweenOthersWhatIsWrittenOverAgainIsCarried) {
  // 2000 against 1000 x (1 + 0), 1000 x (1 + 0.75), 1000 x (1 + 1).
  EXPECT_EQ(ChooseTravel({1000, 0}, kBelowIsElsewhere), DirtyTravel::kFlush);
  EXPECT_EQ(ChooseTravel({1000, 0.75}, kBelowIsElsewhere), DirtyTravel::kFlush);
  EXPECT_EQ(ChooseTravel({1000, 1}, kBelowIsElsewhere), DirtyTravel::kCarry);
}

TEST(ChooseTravelTest, ALinkThatIsFastMakesCarryingCheap) {
  // 1000 x (0.25 + 1) against 1000 x (1 + again): carried from a quarter on.
  constexpr TravelWays kNear{.old_to_new = 0.25, .old_to_below = 1, .new_to_below = 1};
  EXPECT_EQ(ChooseTravel({1000, 0.125}, kNear), DirtyTravel::kFlush);
  EXPECT_EQ(ChooseTravel({1000, 0.25}, kNear), DirtyTravel::kCarry);
}

TEST(ChooseTravelTest, NoMoreIsCarriedThanTheStopMayTake) {
  EXPECT_EQ(ChooseTravel({kCarryBytesMax, 1}, kBelowIsThere), DirtyTravel::kCarry);
  EXPECT_EQ(ChooseTravel({kCarryBytesMax + 1, 1}, kBelowIsThere), DirtyTravel::kFlush);
}

TEST(ChooseTravelTest, NothingIsNotFlushed) {
  EXPECT_EQ(ChooseTravel({0, 0}, kBelowIsHere), DirtyTravel::kCarry);
}

}  // namespace
}  // namespace abacus::objfs
