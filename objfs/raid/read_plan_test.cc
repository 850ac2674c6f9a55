#include "objfs/raid/read_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Source = ReadPlan::Source;

TEST(ReadPlanTest, WhatTouchesInAColumnIsOneRead) {
  const ReadPlan plan = ReadPlan::Of({{{0, 0, 10}}, {{1, 0, 10}}, {{0, 10, 5}}, {{0, 16, 4}}});
  EXPECT_THAT(plan.reads,
              ElementsAre(ColumnRead{0, 0, 15}, ColumnRead{0, 16, 4}, ColumnRead{1, 0, 10}));
  EXPECT_THAT(plan.sources, ElementsAre(ElementsAre(Source{0, 0}), ElementsAre(Source{2, 0}),
                                        ElementsAre(Source{0, 10}), ElementsAre(Source{1, 0})));
}

// Units of a stripe, of which one is computed from the others, which are wanted themselves.
TEST(ReadPlanTest, WhatIsWantedTwiceIsReadOnce) {
  const ReadPlan plan =
      ReadPlan::Of({{{0, 4, 8}}, {{1, 0, 8}}, {{0, 0, 8}, {1, 0, 8}, {3, 0, 8}}, {{1, 2, 3}}});
  EXPECT_THAT(plan.reads,
              ElementsAre(ColumnRead{0, 0, 12}, ColumnRead{1, 0, 8}, ColumnRead{3, 0, 8}));
  EXPECT_THAT(plan.sources, ElementsAre(ElementsAre(Source{0, 4}), ElementsAre(Source{1, 0}),
                                        ElementsAre(Source{0, 0}, Source{1, 0}, Source{2, 0}),
                                        ElementsAre(Source{1, 2})));
}

TEST(ReadPlanTest, WhatIsNotToBeHadIsNotRead) {
  const ReadPlan plan = ReadPlan::Of({{}, {{2, 7, 1}}});
  EXPECT_THAT(plan.reads, ElementsAre(ColumnRead{2, 7, 1}));
  EXPECT_THAT(plan.sources, ElementsAre(IsEmpty(), ElementsAre(Source{0, 0})));
}

TEST(ReadPlanTest, WhatIsOfAColumnIsTogether) {
  const ReadPlan plan = ReadPlan::Of({{{2, 9, 4}}, {{0, 0, 9}}, {{2, 0, 4}}, {}, {{3, 9, 1}}});
  EXPECT_THAT(plan.ByColumn(), ElementsAre(ElementsAre(ColumnRead{0, 0, 9}),
                                           ElementsAre(ColumnRead{2, 0, 4}, ColumnRead{2, 9, 4}),
                                           ElementsAre(ColumnRead{3, 9, 1})));
  EXPECT_THAT(ReadPlan().ByColumn(), IsEmpty());
}

}  // namespace
}  // namespace abacus::objfs
