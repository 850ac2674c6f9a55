#include "placement/swings.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

constexpr ObjectId kShared{1, 1, 9};
constexpr ObjectId kOneConsole{10, 1, 0};
constexpr ObjectId kOtherConsole{11, 1, 0};
constexpr Swings::Times kTwoWindows{.cool_down_s = 2, .cool_down_max_s = 16, .forgive = 10};

TEST(SwingsTest, AnObjectRestsFromOthersAndNotFromTheConsoleThatItWasMovedFor) {
  Swings swings;
  EXPECT_FALSE(swings.Rests(kShared, kOtherConsole, 0));
  swings.Moved(kShared, kOneConsole, kTwoWindows, 0);
  EXPECT_FALSE(swings.Rests(kShared, kOneConsole, 0.5));
  EXPECT_TRUE(swings.Rests(kShared, kOtherConsole, 1.9));
  EXPECT_FALSE(swings.Rests(kShared, kOtherConsole, 2));
  EXPECT_FALSE(swings.Rests(kOneConsole, kOtherConsole, 0.5)) << "another object";
}

// Turns at 0, 2, 6 and 14 rest for 2, 4, 8 and 16 windows, and no longer than the maximum after.
TEST(SwingsTest, TheRestDoublesWithEachTurnUpToTheMaximum) {
  Swings swings;
  double now_s = 0;
  ObjectId by = kOneConsole;
  for (const double rest_s : {2.0, 4.0, 8.0, 16.0, 16.0, 16.0}) {
    swings.Moved(kShared, by, kTwoWindows, now_s);
    const ObjectId other = by == kOneConsole ? kOtherConsole : kOneConsole;
    EXPECT_TRUE(swings.Rests(kShared, other, now_s + 0.99 * rest_s)) << rest_s;
    EXPECT_FALSE(swings.Rests(kShared, other, now_s + rest_s)) << rest_s;
    now_s += rest_s;
    by = other;
  }
}

TEST(SwingsTest, TheSameConsolesMovesDoNotLengthenTheRest) {
  Swings swings;
  for (int i = 0; i < 5; ++i) swings.Moved(kShared, kOneConsole, kTwoWindows, 3 * i);
  EXPECT_TRUE(swings.Rests(kShared, kOtherConsole, 13.9));
  EXPECT_FALSE(swings.Rests(kShared, kOtherConsole, 14));
}

TEST(SwingsTest, WhatWasLeftAloneForLongEnoughIsForgiven) {
  Swings swings;
  swings.Moved(kShared, kOneConsole, kTwoWindows, 0);
  swings.Moved(kShared, kOtherConsole, kTwoWindows, 2);  // rests for 4, forgiven after 40
  swings.Moved(kShared, kOneConsole, kTwoWindows, 42);
  EXPECT_FALSE(swings.Rests(kShared, kOtherConsole, 44)) << "2 windows again";
}

TEST(SwingsTest, NoMoreObjectsAreRememberedThanTheLimitSays) {
  Swings swings;
  for (uint64_t i = 0; i < Swings::kObjectsMax + 100; ++i) {
    swings.Moved({1, 1, i}, kOneConsole, kTwoWindows, 1e-3 * static_cast<double>(i));
    ASSERT_LE(swings.size(), Swings::kObjectsMax);
  }
  const uint64_t last = Swings::kObjectsMax + 99;
  EXPECT_TRUE(swings.Rests({1, 1, last}, kOtherConsole, 1e-3 * static_cast<double>(last)));
}

}  // namespace
}  // namespace abacus::placement
