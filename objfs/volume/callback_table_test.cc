// The table of promises: facts, and clients that keep things under its promises while messages come
// one at a time in any order, clocks run as they like, and clients are cut off.

#include "objfs/volume/callback_table.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/layer/layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using Answer = CallbackTable::Answer;
using Action = CallbackTable::Action;
using Kind = CallbackTable::Action::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLeaseNs = 1000, kTurnNs = 100, kShareNs = 300;
constexpr ObjectId kId = 7;
constexpr uint16_t kA = 1, kB = 2, kC = 3;

class CallbackTableTest : public ::testing::Test {
 protected:
  CallbackTableTest() {
    for (const uint16_t writer : {kA, kB, kC}) table_.Join(writer, 0);
  }
  Answer Ask(uint16_t writer, Want want) {
    return table_.Ask(kId, writer, want, Version{++stamp_}, now_, &given_[writer]);
  }
  // What is granted to who wants it together, or waits for it.
  enum class Got { kWaits, kAlone, kTogether };
  Got AskTogether(uint16_t writer) {
    bool together = false;
    const Answer answer = table_.Ask(kId, writer, Want::kTogether, Version{++stamp_}, now_,
                                     &given_[writer], &together);
    if (answer != Answer::kGranted) return Got::kWaits;
    return together ? Got::kTogether : Got::kAlone;
  }
  // These have it together.
  void BringTogether(const std::vector<uint16_t>& writers) {
    ASSERT_EQ(AskTogether(writers.front()), Got::kAlone);
    ASSERT_TRUE(table_.Share(kId, writers.front(), now_));
    for (size_t i = 1; i < writers.size(); ++i) {
      ASSERT_EQ(AskTogether(writers[i]), Got::kTogether);
    }
    ASSERT_THAT(table_.TakeActions(), IsEmpty());
  }
  void Broken(uint16_t writer) { table_.Broken(kId, writer, given_[writer], now_); }
  Action Told(Kind kind, uint16_t writer) {
    return {kind, writer, kId, kind == Kind::kWake ? Version() : given_[writer]};
  }

  CallbackTable table_{{.lease = kLeaseNs, .turn = kTurnNs, .share = kShareNs}};
  int64_t now_ = 0;
  uint64_t stamp_ = 0;
  std::map<uint16_t, Version> given_;
};

TEST_F(CallbackTableTest, ReadersShareAndAreInvalidatedForAWriter) {
  EXPECT_EQ(Ask(kA, Want::kShare), Answer::kGranted);
  EXPECT_EQ(Ask(kB, Want::kShare), Answer::kGranted);
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kInvalidate, kA)));
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kWait) << "it has not obeyed yet";
  EXPECT_THAT(table_.TakeActions(), IsEmpty()) << "and is told once";
  Broken(kA);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kB)));
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kGranted);
  EXPECT_EQ(table_.WriterOf(kId), kB);
}

TEST_F(CallbackTableTest, AWriterIsRecalledForWhoeverLooks) {
  for (const Want want : {Want::kLook, Want::kChange, Want::kShare, Want::kWrite}) {
    ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
    ASSERT_EQ(Ask(kA, Want::kChange), Answer::kGranted) << "it writes back";
    table_.EndChange(kId, kA, now_);
    ASSERT_EQ(Ask(kB, want), Answer::kWait);
    ASSERT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA)));
    ASSERT_EQ(Ask(kA, Want::kChange), Answer::kGranted) << "still";
    table_.EndChange(kId, kA, now_);
    ASSERT_EQ(Ask(kA, Want::kShare), Answer::kWait) << "but it gets nothing new before";
    Broken(kA);
    ASSERT_EQ(table_.TakeActions()[0], Told(Kind::kWake, kB));
    ASSERT_EQ(Ask(kB, want), Answer::kGranted);
    if (want == Want::kChange) table_.EndChange(kId, kB, now_);
    for (const uint16_t writer : {kA, kB}) table_.Release(kId, writer, now_);
    table_.TakeActions();
  }
  EXPECT_EQ(table_.objects(), 0u) << "nothing is left behind";
}

TEST_F(CallbackTableTest, AChangeKeepsPromisesBackWhileItLasts) {
  ASSERT_EQ(Ask(kA, Want::kChange), Answer::kGranted);
  EXPECT_EQ(Ask(kB, Want::kChange), Answer::kGranted) << "the store orders them";
  EXPECT_EQ(Ask(kC, Want::kLook), Answer::kGranted);
  EXPECT_EQ(Ask(kC, Want::kShare), Answer::kWait);
  EXPECT_EQ(Ask(kA, Want::kChange), Answer::kWait) << "changes do not go before who waits for ever";
  table_.EndChange(kId, kA, now_);
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
  table_.EndChange(kId, kB, now_);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kC)));
  EXPECT_EQ(Ask(kC, Want::kShare), Answer::kGranted);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kInvalidate, kC))) << "for A's change";
}

TEST_F(CallbackTableTest, WhoWasWokenComesFirstUntilItsTurnLapses) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait);
  ASSERT_EQ(Ask(kC, Want::kWrite), Answer::kWait);
  Broken(kA);
  table_.TakeActions();
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kWait) << "it is B's turn";
  EXPECT_EQ(Ask(kA, Want::kShare), Answer::kWait);
  now_ += kTurnNs;
  table_.Tick(now_);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kC)));
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kGranted);
}

TEST_F(CallbackTableTest, ATurnThatLapsedIsPassedWhenAnotherOneAsks) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait);
  Broken(kA);
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kWait) << "it is B's turn";
  table_.TakeActions();
  now_ += kTurnNs;  // B was killed; nobody looks at the time
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kC)));
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kGranted);
}

TEST_F(CallbackTableTest, WhoHasMoreThanItWaitedForTakesNoTurn) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  ASSERT_EQ(Ask(kB, Want::kShare), Answer::kWait);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait) << "another call of the client";
  Broken(kA);
  table_.TakeActions();
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kGranted);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kB))) << "for the first call";
  EXPECT_EQ(Ask(kC, Want::kLook), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kB)));
  Broken(kB);
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kGranted) << "nobody is before it";
}

TEST_F(CallbackTableTest, WhoWasServedOtherwisePassesItsTurn) {
  ASSERT_EQ(Ask(kA, Want::kShare), Answer::kGranted);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait);
  // A second call of A's, which is then served under the promise that is still A's for a moment.
  ASSERT_EQ(Ask(kA, Want::kShare), Answer::kWait);
  Broken(kA);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kGranted);
  Broken(kB);
  table_.TakeActions();
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kWait) << "A comes first, and does not ask";
  table_.Pass(kId, kA, now_);
  EXPECT_THAT(table_.TakeActions(),
              ::testing::UnorderedElementsAre(Told(Kind::kWake, kA), Told(Kind::kWake, kC)));
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kGranted);
  table_.Pass(kId, kA, now_);
  EXPECT_THAT(table_.TakeActions(), IsEmpty()) << "there is no turn to pass";
}

TEST_F(CallbackTableTest, ABreakOfAnOlderPromiseBreaksNoNewerOne) {
  ASSERT_EQ(Ask(kA, Want::kShare), Answer::kGranted);
  const Version old = given_[kA];
  table_.Release(kId, kA, now_);
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  table_.Broken(kId, kA, old, now_);
  EXPECT_EQ(table_.WriterOf(kId), kA);
}

TEST_F(CallbackTableTest, ASilentHolderIsWaitedForUntilItsLeaseHasRunOut) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  now_ = kLeaseNs / 2;
  ASSERT_TRUE(table_.Renew(kB, now_));
  ASSERT_EQ(Ask(kB, Want::kShare), Answer::kWait);
  now_ = kLeaseNs - 1;
  table_.Tick(now_);
  EXPECT_EQ(Ask(kB, Want::kShare), Answer::kWait);
  EXPECT_THAT(table_.TakeSilent(), IsEmpty());
  now_ = kLeaseNs;
  table_.Tick(now_);
  EXPECT_THAT(table_.TakeSilent(), ElementsAre(kA));
  EXPECT_EQ(Ask(kB, Want::kShare), Answer::kGranted);
  EXPECT_EQ(Ask(kA, Want::kChange), Answer::kLeft) << "what it kept is void";
  EXPECT_FALSE(table_.Renew(kA, now_));
}

TEST_F(CallbackTableTest, ASilentClientThatNobodyWaitsForHasTwoLeases) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  now_ = 2 * kLeaseNs - 1;
  table_.Tick(now_);
  EXPECT_TRUE(table_.Has(kA));
  EXPECT_EQ(table_.WriterOf(kId), kA);
  ASSERT_TRUE(table_.Renew(kA, now_)) << "and goes on";
  now_ = 3 * kLeaseNs;
  table_.Tick(now_);
  EXPECT_THAT(table_.TakeSilent(), ElementsAre(kB, kC));
  EXPECT_EQ(table_.WriterOf(kId), kA);
}

TEST_F(CallbackTableTest, WhatALostClientIsChangingKeepsPromisesBack) {
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  ASSERT_EQ(Ask(kA, Want::kChange), Answer::kGranted);
  now_ = kLeaseNs;
  ASSERT_TRUE(table_.Renew(kB, now_));
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait) << "its bytes are on their way to the disk";
  table_.EndChange(kId, kA, now_);
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kGranted);
}

// -- together -------------------------------------------------------------------------------------

TEST_F(CallbackTableTest, TheFirstHasItAloneAndLetsTheOthersInWhenItShares) {
  EXPECT_EQ(AskTogether(kA), Got::kAlone);
  const Version given = given_[kA];
  EXPECT_EQ(table_.WriterOf(kId), kA);
  EXPECT_FALSE(table_.IsShared(kId, kA));
  EXPECT_EQ(AskTogether(kB), Got::kWaits);
  EXPECT_EQ(AskTogether(kC), Got::kWaits);
  EXPECT_THAT(table_.TakeActions(), IsEmpty()) << "A makes it ready for them";
  EXPECT_TRUE(table_.Share(kId, kA, now_));
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kB), Told(Kind::kWake, kC)));
  EXPECT_EQ(AskTogether(kC), Got::kTogether) << "they go beside each other";
  EXPECT_EQ(AskTogether(kB), Got::kTogether);
  EXPECT_EQ(AskTogether(kA), Got::kTogether);
  EXPECT_EQ(given_[kA], given) << "it has that one yet";
  EXPECT_EQ(table_.WriterOf(kId), 0);
  for (const uint16_t writer : {kA, kB, kC}) EXPECT_TRUE(table_.IsShared(kId, writer));
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
}

TEST_F(CallbackTableTest, OnlyWhoMayWriteShares) {
  EXPECT_FALSE(table_.Share(kId, kA, now_));
  ASSERT_EQ(Ask(kA, Want::kShare), Answer::kGranted);
  EXPECT_FALSE(table_.Share(kId, kA, now_));
  table_.Release(kId, kA, now_);
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  EXPECT_FALSE(table_.Share(kId, kB, now_));
  ASSERT_EQ(Ask(kB, Want::kLook), Answer::kWait);
  EXPECT_FALSE(table_.Share(kId, kA, now_)) << "it is being broken";
  EXPECT_EQ(table_.WriterOf(kId), kA);
  EXPECT_FALSE(table_.IsShared(kId, kA));
}

TEST_F(CallbackTableTest, WhoSharesTooLateOrNotAtAllIsBroken) {
  ASSERT_EQ(AskTogether(kA), Got::kAlone);
  now_ = kShareNs - 1;
  ASSERT_EQ(AskTogether(kB), Got::kWaits);
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
  now_ = kShareNs;
  table_.Tick(now_);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA)));
  Broken(kA);
  table_.TakeActions();
  ASSERT_EQ(AskTogether(kB), Got::kAlone);
  ASSERT_EQ(AskTogether(kA), Got::kWaits);
  EXPECT_THAT(table_.TakeActions(), IsEmpty());
  table_.StayAlone(kId, kB, now_);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kB)));
  Broken(kB);
  table_.TakeActions();
  ASSERT_EQ(AskTogether(kA), Got::kAlone);
  ASSERT_EQ(AskTogether(kB), Got::kWaits);
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted) << "it wants it for itself now";
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA)));
}

TEST_F(CallbackTableTest, WhoIsAboutToShareIsBrokenForAllElseAtOnce) {
  for (const Want want : {Want::kLook, Want::kChange, Want::kShare, Want::kWrite}) {
    ASSERT_EQ(AskTogether(kA), Got::kAlone);
    ASSERT_EQ(AskTogether(kB), Got::kWaits);
    ASSERT_EQ(Ask(kC, want), Answer::kWait);
    // Those that come in their turn wait for B.
    if (want == Want::kLook) {
      EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA)));
    } else {
      EXPECT_THAT(table_.TakeActions(), IsEmpty());
    }
    for (const uint16_t writer : {kA, kB, kC}) table_.Release(kId, writer, now_);
    ASSERT_EQ(AskTogether(kA), Got::kAlone);
    ASSERT_EQ(Ask(kC, want), Answer::kWait);
    table_.TakeActions();
    EXPECT_FALSE(table_.Share(kId, kA, now_)) << "C waits";
    for (const uint16_t writer : {kA, kB, kC}) table_.Release(kId, writer, now_);
    table_.TakeActions();
  }
  EXPECT_EQ(table_.objects(), 0u);
}

TEST_F(CallbackTableTest, ABreakReachesAllWhoHaveItTogether) {
  for (const Want want : {Want::kLook, Want::kChange, Want::kShare, Want::kWrite}) {
    ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB}));
    ASSERT_EQ(Ask(kC, want), Answer::kWait);
    ASSERT_THAT(table_.TakeActions(),
                ElementsAre(Told(Kind::kRecall, kA), Told(Kind::kRecall, kB)));
    ASSERT_EQ(AskTogether(kB), Got::kWaits) << "it gives its own back first";
    ASSERT_TRUE(table_.IsShared(kId, kB)) << "which is its own until then";
    Broken(kB);
    ASSERT_THAT(table_.TakeActions(), IsEmpty()) << "A has not obeyed";
    ASSERT_EQ(Ask(kC, want), Answer::kWait);
    Broken(kA);
    ASSERT_EQ(table_.TakeActions()[0], Told(Kind::kWake, kC));
    ASSERT_EQ(AskTogether(kB), Got::kWaits) << "C comes first";
    ASSERT_EQ(Ask(kC, want), Answer::kGranted);
    if (want == Want::kChange) table_.EndChange(kId, kC, now_);
    for (const uint16_t writer : {kA, kB, kC}) table_.Release(kId, writer, now_);
    table_.TakeActions();
  }
  EXPECT_EQ(table_.objects(), 0u) << "nothing is left behind";
}

TEST_F(CallbackTableTest, WhoWantsItAloneGetsItHoweverManyWantItTogether) {
  ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB, kC}));
  // One of those who have it.
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kB), Told(Kind::kRecall, kC)));
  Broken(kB);
  EXPECT_EQ(AskTogether(kB), Got::kWaits) << "though C has it together yet";
  Broken(kC);
  EXPECT_EQ(AskTogether(kC), Got::kWaits);
  EXPECT_EQ(AskTogether(kB), Got::kWaits);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kWake, kA)));
  const Version before = given_[kA];
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  EXPECT_GT(given_[kA], before) << "another promise: a break of that one is none of this";
  EXPECT_EQ(table_.WriterOf(kId), kA);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA))) << "for those who wait";
}

TEST_F(CallbackTableTest, OfTwoWhoHaveItTogetherAndWantItAloneBothGetIt) {
  ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB}));
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kWait);
  ASSERT_EQ(Ask(kB, Want::kWrite), Answer::kWait);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kB))) << "A was first";
  Broken(kB);
  table_.TakeActions();
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kGranted);
  EXPECT_THAT(table_.TakeActions(), ElementsAre(Told(Kind::kRecall, kA)));
  Broken(kA);
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kGranted);
}

TEST_F(CallbackTableTest, WhoHasItTogetherHasItUntilItIsBrokenThoughTheOthersAreGone) {
  ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB}));
  table_.Release(kId, kA, now_);
  EXPECT_EQ(AskTogether(kB), Got::kTogether);
  EXPECT_EQ(AskTogether(kC), Got::kTogether) << "and lets others in";
  table_.Release(kId, kC, now_);
  EXPECT_EQ(Ask(kB, Want::kWrite), Answer::kGranted) << "nobody is in the way";
}

// While B gives its own back nobody can say which opening there will be.
TEST_F(CallbackTableTest, NobodyComesToThoseOfWhomOneIsBeingBroken) {
  ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB}));
  ASSERT_EQ(Ask(kA, Want::kWrite), Answer::kWait);
  table_.TakeActions();
  table_.Pass(kId, kA, now_);  // it was served otherwise
  table_.TakeActions();
  EXPECT_EQ(AskTogether(kC), Got::kWaits);
  Broken(kB);
  EXPECT_EQ(table_.TakeActions().back(), Told(Kind::kWake, kC));
  EXPECT_EQ(AskTogether(kC), Got::kTogether);
}

TEST_F(CallbackTableTest, ADeadHolderIsWaitedForByWhoWantsItAloneAndByNobodyElse) {
  ASSERT_NO_FATAL_FAILURE(BringTogether({kA, kB}));
  now_ = kLeaseNs / 2;
  for (const uint16_t writer : {kB, kC}) ASSERT_TRUE(table_.Renew(writer, now_));
  EXPECT_EQ(AskTogether(kC), Got::kTogether);
  ASSERT_EQ(Ask(kC, Want::kWrite), Answer::kWait);
  Broken(kB);
  now_ = kLeaseNs;
  table_.Tick(now_);
  EXPECT_THAT(table_.TakeSilent(), ElementsAre(kA));
  EXPECT_EQ(Ask(kC, Want::kWrite), Answer::kGranted);
  EXPECT_EQ(Ask(kA, Want::kTogether), Answer::kLeft);
}

// -- the property ---------------------------------------------------------------------------------

// A message in flight. From a client to the server or back; `link` is the client's place.
struct Message {
  enum class What {
    kClaim,
    kClaimAnswer,
    kFetch,
    kFetchAnswer,
    kStore,
    kStoreAnswer,
    kShare,  // what was promised together is to be shared
    kShareAnswer,
    kBeside,  // a read or a write beside those of others, under a promise together
    kBesideAnswer,
    kRenew,
    kRenewAnswer,
    kBreak,
    kObeyed,
    kWake,
  };
  What what;
  size_t link = 0;
  uint16_t writer = 0;  // whose it was when it was sent
  Want want = Want::kLook;
  bool good = true;
  bool together = false;
  uint64_t opening = 0;  // of what is read and written together
  Version given;
  uint64_t value = 0;
  int64_t sent = 0;  // by the client's clock
};
using What = Message::What;

// A client with one call at a time: what a cache does with promises, in its plainest form.
struct Client {
  uint16_t writer = 0;
  int64_t clock = 0;
  double rate = 1;
  int64_t lease_until = 0;
  bool cut_off = false;
  Promise promise;
  Version broken;
  std::optional<uint64_t> clean, dirty;
  std::optional<Version> breaking;
  bool storing = false;
  bool wants_together = false;  // its next promise
  bool alone = false;           // the call cannot be made together
  uint64_t opening = 0;         // under a promise together
  // The call that is under way.
  std::optional<Want> call;
  uint64_t floor = 0;  // what it has to see
  bool claiming = false, blocked = false, fetching = false, sharing = false, beside = false;

  bool Leased() const { return clock < lease_until; }
  PromiseKind Effective() const {
    if (!Leased()) return PromiseKind::kNone;
    return sharing ? PromiseKind::kTogether : promise.kind;  // it uses nothing until it is told
  }
  bool IsWaitingForServer() const { return claiming || fetching || storing || sharing || beside; }
  // Whether the promise is enough for the call.
  bool MayServe() const {
    switch (promise.kind) {
      case PromiseKind::kNone:
        return false;
      case PromiseKind::kShare:
        return *call == Want::kShare;
      case PromiseKind::kWrite:
        return true;
      case PromiseKind::kTogether:
        return !alone;
    }
    return false;
  }
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    for (Client& client : clients_) {
      client.rate = 0.95 + 0.1 * static_cast<double>(Draw(1000)) / 1000;
      Join(client);
    }
  }

  void Step(bool quiet) {
    switch (Draw(quiet ? 10 : 20)) {
      case 0:
        Advance(static_cast<int64_t>(Draw(kLeaseNs / 20)));
        break;
      case 1:
        table_.Tick(now_);
        break;
      case 2:
        Renew(Any());
        break;
      case 10:
      case 11:
      case 12:
        Begin(Any());
        break;
      case 13: {
        // Rarely, and for long.
        Client& client = Any();
        if (Draw(client.cut_off ? 150 : 400) == 0) client.cut_off = !client.cut_off;
        break;
      }
      case 14:
        if (Draw(30) == 0) Advance(static_cast<int64_t>(Draw(kLeaseNs)));
        break;
      default:
        Deliver();
    }
    Post();
    for (Client& client : clients_) GoOn(client);
    Check();
  }
  void Heal() {
    for (Client& client : clients_) client.cut_off = false;
  }
  bool Idle() const {
    return std::none_of(clients_.begin(), clients_.end(),
                        [](const Client& client) { return client.call.has_value(); });
  }
  uint64_t calls = 0, losses = 0, breaks = 0;
  uint64_t together = 0;  // calls beside those of others

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  Client& Any() { return clients_[Draw(clients_.size())]; }
  size_t PlaceOf(const Client& client) const {
    return static_cast<size_t>(&client - clients_.data());
  }
  void Send(const Client& client, Message message) {
    message.link = PlaceOf(client);
    message.writer = client.writer;
    net_.push_back(message);
  }
  void Advance(int64_t by) {
    now_ += by;
    for (Client& client : clients_) {
      client.clock += static_cast<int64_t>(static_cast<double>(by) * client.rate);
    }
  }

  // -- clients ---------------------------------------------------------------------------------

  void Join(Client& client) {
    const std::optional<Want> call = client.call;
    const bool cut_off = client.cut_off;
    client = Client{.clock = client.clock, .rate = client.rate};
    client.cut_off = cut_off;
    client.call = call;
    client.floor = required_;
    client.writer = ++last_writer_;
    client.lease_until = client.clock + kLeaseNs * 9 / 10;
    table_.Join(client.writer, now_);
  }
  void Renew(Client& client) { Send(client, {.what = What::kRenew, .sent = client.clock}); }
  void Begin(Client& client) {
    if (client.call.has_value()) return;
    client.call = Draw(2) == 0 ? Want::kShare : Want::kWrite;
    client.floor = required_;
    if (Draw(8) == 0) client.wants_together = !client.wants_together;
    client.alone = Draw(6) == 0;
  }

  void GoOn(Client& client) {
    if (client.breaking.has_value()) Obey(client);
    if (!client.call.has_value() || client.IsWaitingForServer() || client.blocked) return;
    if (client.breaking.has_value() || !client.Leased()) return;
    const bool writes = *client.call == Want::kWrite;
    if (!client.MayServe()) {
      client.claiming = true;
      // Under a promise together that is not enough it is to write: nobody else may read then.
      const bool has_it = client.promise.kind == PromiseKind::kTogether;
      Want want = has_it ? Want::kWrite : *client.call;
      if (client.wants_together && !client.alone) want = Want::kTogether;
      Send(client, {.what = What::kClaim, .want = want});
      return;
    }
    if (client.promise.kind == PromiseKind::kTogether) {
      client.beside = true;
      Send(client, {.what = What::kBeside, .want = *client.call, .opening = client.opening});
    } else if (writes) {
      client.dirty = ++last_value_;
      required_ = *client.dirty;
      End(client);
    } else if (client.dirty.has_value() || client.clean.has_value()) {
      EndRead(client, client.dirty.has_value() ? *client.dirty : *client.clean);
    } else {
      client.fetching = true;
      Send(client, {.what = What::kFetch});
    }
  }
  void End(Client& client) {
    client.call.reset();
    ++calls;
  }
  void EndRead(Client& client, uint64_t value) {
    ASSERT_GE(value, client.floor) << "a write that had returned was not seen";
    End(client);
  }

  // A break waits for the call that is inside, and for what was written to be at the store.
  void Obey(Client& client) {
    if (client.IsWaitingForServer()) return;
    const Version given = *client.breaking;
    const bool ends = client.promise.kind != PromiseKind::kNone && client.promise.given <= given;
    if (ends && client.dirty.has_value()) {
      client.storing = true;
      Send(client, {.what = What::kStore, .value = *client.dirty});
      return;
    }
    if (ends) {
      client.promise = Promise();
      client.clean.reset();
    }
    client.broken = std::max(client.broken, given);
    client.breaking.reset();
    client.blocked = false;
    Send(client, {.what = What::kObeyed, .given = given});
  }

  // -- messages ----------------------------------------------------------------------------------

  // What the table says goes out one after the other to each client.
  void Post() {
    for (const Action& action : table_.TakeActions()) outbox_[action.writer].push_back(action);
    for (const uint16_t writer : table_.TakeSilent()) {
      outbox_.erase(writer);
      for (Client& client : clients_) {
        if (client.writer != writer || !client.dirty.has_value()) continue;
        // What only it had is lost, and nobody has to see it.
        ++losses;
        required_ = std::min(required_, stored_);
        for (Client& other : clients_) other.floor = std::min(other.floor, required_);
      }
    }
    for (Client& client : clients_) {
      std::deque<Action>& actions = outbox_[client.writer];
      if (actions.empty() || telling_[client.writer]) continue;
      const Action action = actions.front();
      actions.pop_front();
      const bool wake = action.kind == Kind::kWake;
      telling_[client.writer] = !wake;
      breaks += wake ? 0 : 1;
      Send(client, {.what = wake ? What::kWake : What::kBreak, .given = action.given});
    }
  }

  void Deliver() {
    if (net_.empty()) return;
    const size_t place = Draw(net_.size());
    const Message message = net_[place];
    Client& client = clients_[message.link];
    if (client.cut_off) return;
    net_.erase(net_.begin() + static_cast<ptrdiff_t>(place));
    switch (message.what) {
      case What::kClaim:
      case What::kFetch:
      case What::kStore:
      case What::kShare:
      case What::kBeside:
      case What::kRenew:
      case What::kObeyed:
        return AtServer(client, message);
      default:
        // Of an earlier life of the client.
        if (message.writer == client.writer) AtClient(client, message);
    }
  }

  void Reply(const Client& client, const Message& to, What what, Answer answer) {
    Message reply = to;
    reply.what = what;
    reply.good = answer == Answer::kGranted;
    if (answer == Answer::kLeft) reply.what = What::kRenewAnswer;
    if (to.writer == client.writer) net_.push_back(reply);
  }

  void AtServer(Client& client, Message message) {
    switch (message.what) {
      case What::kClaim: {
        const Answer answer = table_.Ask(kId, message.writer, message.want, Version{++stamp_}, now_,
                                         &message.given, &message.together);
        // Who has it alone opens it, which shuts out all that was to be read or written together.
        if (answer == Answer::kGranted && !message.together) ++opening_;
        message.opening = opening_;
        return Reply(client, message, What::kClaimAnswer, answer);
      }
      case What::kShare: {
        message.together = table_.Share(kId, message.writer, now_);
        if (message.together) ++opening_;
        message.opening = opening_;
        return Reply(client, message, What::kShareAnswer, Answer::kGranted);
      }
      case What::kBeside: {
        const bool is_shut_out = message.opening != opening_;
        if (!is_shut_out) {
          ASSERT_EQ(table_.WriterOf(kId), 0) << "somebody has it alone, and keeps something of it";
          if (message.want == Want::kWrite) stored_ = ++last_value_;
        }
        message.value = stored_;
        return Reply(client, message, What::kBesideAnswer,
                     is_shut_out ? Answer::kWait : Answer::kGranted);
      }
      case What::kFetch: {
        const Answer answer =
            table_.Ask(kId, message.writer, Want::kLook, Version{++stamp_}, now_, nullptr);
        message.value = stored_;
        return Reply(client, message, What::kFetchAnswer, answer);
      }
      case What::kStore: {
        const Answer answer =
            table_.Ask(kId, message.writer, Want::kChange, Version{++stamp_}, now_, nullptr);
        if (answer == Answer::kGranted) {
          ASSERT_GT(message.value, stored_) << "an older write came over a newer one";
          stored_ = message.value;
          table_.EndChange(kId, message.writer, now_);
        }
        ASSERT_NE(answer, Answer::kWait) << "who writes back waits for nobody";
        return Reply(client, message, What::kStoreAnswer, answer);
      }
      case What::kRenew:
        return Reply(client, message, What::kRenewAnswer,
                     table_.Renew(message.writer, now_) ? Answer::kGranted : Answer::kLeft);
      default:
        telling_[message.writer] = false;
        table_.Broken(kId, message.writer, message.given, now_);
    }
  }

  void AtClient(Client& client, const Message& message) {
    switch (message.what) {
      case What::kClaimAnswer: {
        client.claiming = false;
        if (!message.good) {
          client.blocked = !woken_early_[client.writer];
          woken_early_[client.writer] = false;
          return;
        }
        if (message.given <= client.broken) return;
        Take(client, message);
        if (message.want == Want::kTogether && !message.together) {
          client.sharing = true;
          Send(client, {.what = What::kShare});
          return;
        }
        return ServeWhateverBreaks(client);
      }
      case What::kShareAnswer:
        client.sharing = false;
        // Else it goes on alone.
        if (message.together) {
          client.promise.kind = PromiseKind::kTogether;
          client.opening = message.opening;
          client.clean.reset();
        }
        return ServeWhateverBreaks(client);
      case What::kBesideAnswer:
        client.beside = false;
        if (!message.good) {
          client.alone = true;  // shut out: it claims anew
          return;
        }
        ++together;
        if (message.want != Want::kWrite) return EndRead(client, message.value);
        required_ = std::max(required_, message.value);
        return End(client);
      case What::kFetchAnswer:
        client.fetching = false;
        if (!message.good) return;
        client.clean = message.value;
        return EndRead(client, message.value);
      case What::kStoreAnswer:
        client.storing = false;
        client.clean = std::exchange(client.dirty, std::nullopt);
        return;
      case What::kRenewAnswer:
        if (!message.good) return Join(client);
        client.lease_until = std::max(client.lease_until, message.sent + kLeaseNs * 9 / 10);
        return;
      case What::kBreak:
        client.breaking = message.given;
        return;
      default:
        // It may come before the answer that it is for.
        woken_early_[client.writer] = client.claiming;
        client.blocked = false;
    }
  }

  void Take(Client& client, const Message& message) {
    Promise& promise = client.promise;
    const bool is_first = promise.kind == PromiseKind::kNone;
    promise.given = std::max(promise.given, message.given);
    if (message.together) {
      client.opening = message.opening;
      promise.kind = PromiseKind::kTogether;
      client.clean.reset();
      return;
    }
    if (is_first || promise.kind == PromiseKind::kTogether) client.clean.reset();
    const bool shares = message.want == Want::kShare && promise.kind != PromiseKind::kWrite;
    promise.kind = shares ? PromiseKind::kShare : PromiseKind::kWrite;
  }
  // Each claim that was granted serves its call, also where a break has come already.
  void ServeWhateverBreaks(Client& client) {
    const std::optional<Version> breaking = std::exchange(client.breaking, std::nullopt);
    GoOn(client);
    client.breaking = breaking;
  }

  void Check() {
    int writers = 0, holders = 0, sharers = 0, beside = 0;
    for (const Client& client : clients_) {
      const PromiseKind kind = client.Effective();
      writers += kind == PromiseKind::kWrite ? 1 : 0;
      holders += kind != PromiseKind::kNone ? 1 : 0;
      sharers += kind == PromiseKind::kShare ? 1 : 0;
      beside += kind == PromiseKind::kTogether ? 1 : 0;
    }
    ASSERT_TRUE(writers == 0 || holders == 1)
        << writers << " clients believe that they may write, and " << holders << " that they have "
        << "a promise";
    ASSERT_TRUE(sharers == 0 || beside == 0)
        << beside << " clients write together what " << sharers << " believe that nobody writes";
  }

  std::mt19937_64 random_;
  CallbackTable table_{{.lease = kLeaseNs, .turn = kTurnNs, .share = kShareNs}};
  std::array<Client, 3> clients_;
  std::vector<Message> net_;
  std::map<uint16_t, std::deque<Action>> outbox_;
  std::map<uint16_t, bool> telling_, woken_early_;
  int64_t now_ = 0;
  uint64_t stamp_ = 0, last_value_ = 0, stored_ = 0, opening_ = 0;
  uint64_t required_ = 0;  // the last write that returned and was not lost
  uint16_t last_writer_ = 0;
};

TEST(CallbackPropertyTest, NothingOldIsReadWhateverComesWhen) {
  const uint64_t seeds = runtime::testing::kSanitized ? 20 : 100;
  const uint64_t first = runtime::testing::Seed(1);
  uint64_t calls = 0, losses = 0, breaks = 0, together = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed);
    for (int step = 0; step < 20'000; ++step) {
      world.Step(false);
      if (HasFatalFailure()) return;
    }
    // Whoever is connected gets on.
    world.Heal();
    for (int step = 0; step < 200'000 && !world.Idle(); ++step) {
      world.Step(true);
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(world.Idle()) << "somebody waits for ever";
    calls += world.calls;
    losses += world.losses;
    breaks += world.breaks;
    together += world.together;
  }
  std::cout << calls << " calls, " << together << " of them together, " << breaks << " breaks, "
            << losses << " losses\n";
  EXPECT_GT(calls, seeds * 100);
  EXPECT_GT(breaks, seeds * 50);
  EXPECT_GT(losses, 0u);
  EXPECT_GT(together, seeds * 10);
}

}  // namespace
}  // namespace abacus::objfs
