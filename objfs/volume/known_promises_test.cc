// What clients are promised to know of an object beside its bytes: facts. What follows from them
// while messages come in any order is in knowledge_test.cc.

#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/volume/callback_table.h"

namespace abacus::objfs {
namespace knowing {
namespace {

using Answer = CallbackTable::Answer;
using Action = CallbackTable::Action;
using Kind = CallbackTable::Action::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLeaseNs = 1000, kTurnNs = 100, kQuietNs = 50;
constexpr ObjectId kId = 7;
constexpr uint16_t kA = 1, kB = 2, kC = 3;

class KnowingTest : public ::testing::Test {
 protected:
  KnowingTest() {
    for (const uint16_t writer : {kA, kB, kC}) table_.Join(writer, 0);
  }
  bool Know(uint16_t writer, ObjectId id = kId) {
    const Version stamp{++stamp_};
    const bool known = table_.Know(id, writer, stamp, now_);
    if (known) given_[writer] = stamp;
    return known;
  }
  Answer Alter(uint16_t writer, const std::vector<ObjectId>& ids = {kId}) {
    return table_.Alter(ids, writer, now_);
  }
  void Forgotten(uint16_t writer) { table_.Forgotten(kId, writer, given_[writer], now_); }
  Answer Ask(uint16_t writer, Want want) {
    return table_.Ask(kId, writer, want, Version{++stamp_}, now_, nullptr);
  }
  Action Told(Kind kind, uint16_t writer) {
    return {kind, writer, kId, kind == Kind::kWake ? Version() : given_[writer]};
  }

  CallbackTable table_{{.lease = kLeaseNs, .turn = kTurnNs, .quiet = kQuietNs, .knows_max = 3}};
  int64_t now_ = 0;
  uint64_t stamp_ = 0;
  std::map<uint16_t, Version> given_;
};

TEST_F(KnowingTest, AllOthersForgetBeforeAnythingIsChanged) {
  ASSERT_TRUE(Know(kA));
  ASSERT_TRUE(Know(kB));
  ASSERT_TRUE(Know(kC));
  EXPECT_EQ(Alter(kA), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kForget, kB), Told(Kind::kForget, kC)));
  EXPECT_FALSE(Know(kB)) << "somebody waits to change it";
  Forgotten(kB);
  EXPECT_EQ(Alter(kA), Answer::kWait) << "one of them has not obeyed";
  EXPECT_THAT(table_.TakeActions(), IsEmpty()) << "and is told once";
  Forgotten(kC);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kA)));
  now_ += kQuietNs;
  EXPECT_FALSE(Know(kB)) << "it is A's turn";
  EXPECT_EQ(Alter(kA), Answer::kGranted);
  EXPECT_FALSE(Know(kB)) << "while it lasts";
  EXPECT_FALSE(Know(kA)) << "not even who changes it";
  EXPECT_EQ(Alter(kB), Answer::kWait) << "A knows it";
  table_.EndAlter({kId}, now_);
}

TEST_F(KnowingTest, BytesAreChangedWhereNobodyElseKnowsTheObject) {
  for (const Want want : {Want::kChange, Want::kWrite}) {
    ASSERT_TRUE(Know(kA));
    ASSERT_EQ(Ask(kB, want), Answer::kWait);
    ASSERT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kForget, kA)));
    Forgotten(kA);
    now_ += kQuietNs;
    ASSERT_EQ(Ask(kB, want), Answer::kGranted);
    ASSERT_FALSE(Know(kA)) << "what B writes is not seen at the store";
    ASSERT_FALSE(Know(kB)) << "nor is it B's to keep";
    if (want == Want::kChange) table_.EndChange(kId, kB, now_);
    table_.Release(kId, kB, now_);
    table_.TakeActions();
  }
  ASSERT_TRUE(Know(kA));
  EXPECT_EQ(Ask(kB, Want::kLook), Answer::kGranted);
  EXPECT_EQ(Ask(kB, Want::kShare), Answer::kGranted);
  EXPECT_THAT(table_.TakeActions(), IsEmpty()) << "who only reads is in nobody's way";
}

TEST_F(KnowingTest, AfterABreakNobodyIsPromisedAnythingForAWhile) {
  ASSERT_TRUE(Know(kA));
  ASSERT_EQ(Alter(kB), Answer::kWait);
  Forgotten(kA);
  ASSERT_EQ(Alter(kB), Answer::kGranted);
  table_.EndAlter({kId}, now_);
  EXPECT_FALSE(Know(kA));
  EXPECT_FALSE(Know(kB));
  EXPECT_EQ(Alter(kB), Answer::kGranted) << "so that those who change it need not wait again";
  table_.EndAlter({kId}, now_);
  now_ += kQuietNs;
  EXPECT_TRUE(Know(kA));
}

TEST_F(KnowingTest, SeveralObjectsAreWaitedForTogether) {
  ASSERT_TRUE(Know(kB));
  ASSERT_EQ(Alter(kA, {8, kId, 9}), Answer::kWait);
  EXPECT_FALSE(Know(kB, 8)) << "A would have to wait again";
  table_.TakeActions();
  Forgotten(kB);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kA)));
  ASSERT_EQ(Alter(kA, {8, kId, 9}), Answer::kGranted);
  table_.EndAlter({8, kId, 9}, now_);
  EXPECT_TRUE(Know(kB, 8));
  table_.Forgotten(8, kB, given_[kB], now_);
  now_ += kQuietNs;
  table_.Tick(now_);
  EXPECT_EQ(table_.objects(), 0u) << "nothing is left behind";
}

TEST_F(KnowingTest, WhoGivesUpHisTurnKeepsNobodyFromKnowingForLong) {
  ASSERT_TRUE(Know(kB));
  ASSERT_EQ(Alter(kA, {8, kId}), Answer::kWait);
  Forgotten(kB);
  now_ += kTurnNs;
  table_.Tick(now_);
  EXPECT_TRUE(Know(kB));
  EXPECT_TRUE(Know(kB, 8));
}

TEST_F(KnowingTest, ASilentClientIsWaitedForUntilItsLeaseHasRunOut) {
  ASSERT_TRUE(Know(kA));
  now_ = kLeaseNs / 2;
  ASSERT_TRUE(table_.Renew(kB, now_));
  ASSERT_EQ(Alter(kB), Answer::kWait);
  now_ = kLeaseNs - 1;
  EXPECT_EQ(Alter(kB), Answer::kWait);
  now_ = kLeaseNs;
  EXPECT_EQ(Alter(kB), Answer::kWait) << "it is asked once more";
  EXPECT_THAT(table_.TakeSilent(), ElementsAre(kA));
  EXPECT_EQ(Alter(kB), Answer::kGranted);
  EXPECT_FALSE(Know(kA)) << "it is no client any more";
  EXPECT_EQ(table_.Alter({kId}, kA, now_), Answer::kLeft);
}

TEST_F(KnowingTest, WhatIsGivenBackOfAnOlderPromiseEndsNoNewerOne) {
  ASSERT_TRUE(Know(kA));
  const Version old = given_[kA];
  ASSERT_TRUE(Know(kA)) << "it had thrown it away";
  table_.Forgotten(kId, kA, old, now_);
  EXPECT_EQ(Alter(kB), Answer::kWait) << "A knows it again";
  EXPECT_FALSE(Know(kA)) << "a promise that breaks is not renewed";
  Forgotten(kA);
  EXPECT_EQ(Alter(kB), Answer::kGranted);
}

TEST_F(KnowingTest, APromiseThatBreaksIsNotRenewedThoughWhoWaitedHasLeft) {
  ASSERT_TRUE(Know(kA));
  ASSERT_EQ(Alter(kB), Answer::kWait);
  table_.Leave(kB, now_);
  now_ += kQuietNs;
  EXPECT_FALSE(Know(kA)) << "it is on its way to be forgotten";
  Forgotten(kA);
  EXPECT_TRUE(Know(kA));
}

TEST_F(KnowingTest, AClientKnowsSoManyObjects) {
  for (ObjectId id = 1; id <= 3; ++id) ASSERT_TRUE(Know(kA, id));
  EXPECT_FALSE(Know(kA, 4));
  EXPECT_TRUE(Know(kA, 2)) << "one of those";
  EXPECT_TRUE(Know(kB, 4)) << "another client";
  table_.Forgotten(2, kA, Version{stamp_}, now_);
  EXPECT_EQ(table_.KnownBy(kA), 2u);
  EXPECT_TRUE(Know(kA, 4));
}

// A transaction that was under way when the volume was closed, and whose end nobody knows yet.
TEST_F(KnowingTest, WhatBeganBeforeTheTableIsAlteredOn) {
  table_.GoOnAltering({kId, 8});
  EXPECT_FALSE(Know(kA)) << "nobody knows what it will be";
  EXPECT_FALSE(Know(kA, 8));
  EXPECT_TRUE(Know(kA, 9));
  EXPECT_EQ(Alter(kB), Answer::kGranted) << "who applies changes orders them";
  table_.EndAlter({kId}, now_);
  EXPECT_FALSE(Know(kA));
  table_.EndAlter({kId, 8}, now_);
  EXPECT_TRUE(Know(kA));
  EXPECT_TRUE(Know(kB, 8));
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
}

}  // namespace
}  // namespace knowing
}  // namespace abacus::objfs
