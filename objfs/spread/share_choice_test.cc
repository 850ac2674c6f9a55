#include "objfs/spread/share_choice.h"

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

using Nanos = ShareChoice::Nanos;
constexpr Nanos kSecond = 1'000'000'000;

class ShareChoiceTest : public ::testing::Test {
 protected:
  // Alone for so long, until another client breaks it.
  void AloneFor(Nanos time) {
    choice_.OpenedAlone(now_);
    now_ += time;
    choice_.Broken(now_);
  }
  void ComeToShare() {
    for (int i = 0; i < ShareChoice::kBreaksMin; ++i) AloneFor(kSecond / 2);
    ASSERT_TRUE(choice_.WantsTogether(now_));
    choice_.OpenedTogether();
  }

  ShareChoice choice_;
  Nanos now_ = 5 * kSecond;
};

TEST_F(ShareChoiceTest, ThreeBreaksThatComeSoonMakeItShare) {
  EXPECT_FALSE(choice_.WantsTogether(now_));
  AloneFor(kSecond - 1);
  AloneFor(0);
  EXPECT_FALSE(choice_.WantsTogether(now_));
  AloneFor(kSecond / 2);
  EXPECT_TRUE(choice_.WantsTogether(now_));
}

TEST_F(ShareChoiceTest, ABreakThatComesLateBeginsAnew) {
  AloneFor(0);
  AloneFor(0);
  AloneFor(kSecond);
  AloneFor(0);
  AloneFor(0);
  EXPECT_FALSE(choice_.WantsTogether(now_));
  AloneFor(0);
  EXPECT_TRUE(choice_.WantsTogether(now_));
}

TEST_F(ShareChoiceTest, OnePromiseIsBrokenOnce) {
  for (int i = 0; i < ShareChoice::kBreaksMin; ++i) choice_.Broken(now_);
  EXPECT_FALSE(choice_.WantsTogether(now_)) << "nothing was open";
  choice_.OpenedAlone(now_);
  for (int i = 0; i < ShareChoice::kBreaksMin; ++i) choice_.Broken(now_);
  EXPECT_FALSE(choice_.WantsTogether(now_));
}

TEST_F(ShareChoiceTest, ABreakOfWhatSeveralHaveCountsForNothing) {
  ComeToShare();
  now_ += ShareChoice::kTogetherMin / 2;
  choice_.Broken(now_);
  EXPECT_TRUE(choice_.WantsTogether(now_));
}

TEST_F(ShareChoiceTest, ItTriesAloneAfterAWhileAndLaterEachTimeThatTheOthersAreThere) {
  ComeToShare();
  for (Nanos together = 10 * kSecond; together <= 160 * kSecond; together *= 2) {
    now_ += together - 1;
    ASSERT_TRUE(choice_.WantsTogether(now_)) << together;
    now_ += 1;
    ASSERT_FALSE(choice_.WantsTogether(now_)) << together;
    AloneFor(0);
    ASSERT_TRUE(choice_.WantsTogether(now_)) << "one break is enough";
    choice_.OpenedTogether();
  }
  now_ += 160 * kSecond - 1;
  EXPECT_TRUE(choice_.WantsTogether(now_));
  now_ += 1;
  EXPECT_FALSE(choice_.WantsTogether(now_)) << "no longer than that";
}

TEST_F(ShareChoiceTest, WhereTheOthersAreGoneItStaysAlone) {
  ComeToShare();
  now_ += 10 * kSecond;
  AloneFor(0);
  now_ += 20 * kSecond;
  AloneFor(kSecond);
  EXPECT_FALSE(choice_.WantsTogether(now_));
  ComeToShare();
  now_ += 10 * kSecond;
  EXPECT_FALSE(choice_.WantsTogether(now_)) << "the while is as at the beginning";
}

TEST_F(ShareChoiceTest, WhatNeedsItAloneForACallDoesNotMakeItStay) {
  ComeToShare();
  now_ += 4 * kSecond;
  AloneFor(0);
  EXPECT_TRUE(choice_.WantsTogether(now_));
  now_ += 6 * kSecond;
  EXPECT_FALSE(choice_.WantsTogether(now_)) << "nor does it share longer for that";
}

TEST_F(ShareChoiceTest, WhatCannotBeSharedIsTriedAgainAfterAsManyBreaks) {
  ComeToShare();
  choice_.OpenedAlone(now_);
  choice_.CouldNotShare();
  EXPECT_FALSE(choice_.WantsTogether(now_));
  choice_.Broken(now_);
  AloneFor(0);
  EXPECT_FALSE(choice_.WantsTogether(now_));
  AloneFor(0);
  EXPECT_TRUE(choice_.WantsTogether(now_));
}

TEST_F(ShareChoiceTest, WhatItKnowsGoesWithItToAnotherClock) {
  AloneFor(0);
  AloneFor(0);
  ShareChoice there;
  there.Arrives(choice_.Travels(), 7);
  EXPECT_FALSE(there.WantsTogether(7));
  there.OpenedAlone(8);
  there.Broken(9);
  EXPECT_TRUE(there.WantsTogether(9));
  ShareChoice back;
  back.Arrives(there.Travels(), now_);
  EXPECT_TRUE(back.WantsTogether(now_));
  EXPECT_FALSE(back.WantsTogether(now_ + ShareChoice::kTogetherMin));
  ShareChoice wild;
  wild.Arrives({.breaks = -5, .together = true, .together_for = -1}, now_);
  EXPECT_TRUE(wild.WantsTogether(now_)) << "what came over the network is nobody's to trust";
}

}  // namespace
}  // namespace abacus::objfs
