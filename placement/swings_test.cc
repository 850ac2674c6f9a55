#include "placement/swings.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

constexpr ObjectId kSwinging{1, 1, 9};
constexpr ObjectId kSwingA{10, 1, 0};
constexpr ObjectId kSwingB{11, 1, 0};
constexpr Swings::Times kTwoWindows{.cool_down_s = 2, .cool_down_max_s = 16, .forgive = 10};

TEST(SwingsTest, AnObjectRestsFromOthersAndNotFromTheConsoleThatItWasMovedFor) {
  Swings swings;
  EXPECT_FALSE(swings.Rests(kSwinging, kSwingB, 0));
  swings.Moved(kSwinging, kSwingA, kTwoWindows, 0);
  EXPECT_FALSE(swings.Rests(kSwinging, kSwingA, 0.5));
  EXPECT_TRUE(swings.Rests(kSwinging, kSwingB, 1.9));
  EXPECT_FALSE(swings.Rests(kSwinging, kSwingB, 2));
  EXPECT_FALSE(swings.Rests(kSwingA, kSwingB, 0.5)) << "another object";
}

// Turns at 0, 2, 6 and 14 rest for 2, 4, 8 and 16 windows, and no longer than the maximum after.
TEST(SwingsTest, TheRestDoublesWithEachTurnUpToTheMaximum) {
  Swings swings;
  double now_s = 0;
  ObjectId by = kSwingA;
  for (const double rest_s : {2.0, 4.0, 8.0, 16.0, 16.0, 16.0}) {
    swings.Moved(kSwinging, by, kTwoWindows, now_s);
    const ObjectId other = by == kSwingA ? kSwingB : kSwingA;
    EXPECT_TRUE(swings.Rests(kSwinging, other, now_s + 0.99 * rest_s)) << rest_s;
    EXPECT_FALSE(swings.Rests(kSwinging, other, now_s + rest_s)) << rest_s;
    now_s += rest_s;
    by = other;
  }
}

TEST(SwingsTest, TheSameConsolesMovesDoNotLengthenTheRest) {
  Swings swings;
  for (int i = 0; i < 5; ++i) swings.Moved(kSwinging, kSwingA, kTwoWindows, 3 * i);
  EXPECT_TRUE(swings.Rests(kSwinging, kSwingB, 13.9));
  EXPECT_FALSE(swings.Rests(kSwinging, kSwingB, 14));
}

TEST(SwingsTest, WhatWasLeftAloneForLongEnoughIsForgiven) {
  Swings swings;
  swings.Moved(kSwinging, kSwingA, kTwoWindows, 0);
  swings.Moved(kSwinging, kSwingB, kTwoWindows, 2);  // rests for 4, forgiven after 40
  swings.Moved(kSwinging, kSwingA, kTwoWindows, 42);
  EXPECT_FALSE(swings.Rests(kSwinging, kSwingB, 44)) << "2 windows again";
}

TEST(SwingsTest, NoMoreObjectsAreRememberedThanTheLimitSays) {
  Swings swings;
  for (uint64_t i = 0; i < Swings::kObjectsMax + 100; ++i) {
    swings.Moved({1, 1, i}, kSwingA, kTwoWindows, 1e-3 * static_cast<double>(i));
    ASSERT_LE(swings.size(), Swings::kObjectsMax);
  }
  const uint64_t last = Swings::kObjectsMax + 99;
  EXPECT_TRUE(swings.Rests({1, 1, last}, kSwingB, 1e-3 * static_cast<double>(last)));
}

}  // namespace
}  // namespace abacus::placement
