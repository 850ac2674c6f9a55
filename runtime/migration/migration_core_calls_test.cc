// Facts about calls: where they go, that they run once, and what callers are told.

#include "runtime/base/status.h"
#include "runtime/testing/sim_test.h"

namespace abacus::runtime::sim {
namespace {

class CallCoreTest : public SimTest {
 protected:
  using SimTest::SimTest;
  size_t CreateAwayFromHome() {
    const size_t object = Create(3);
    Move(object, 1);
    return object;
  }
};

// -- where calls go -----------------------------------------------------------------------------

TEST_F(CallCoreTest, CallFindsItsObjectThroughTheHome) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  EXPECT_TRUE(Call(1, object).ok());
  EXPECT_TRUE(Call(3, object).ok());
  EXPECT_EQ(CallsRun(object), 3u);
}

TEST_F(CallCoreTest, StaleHintIsRepairedByOldHost) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());  // 2 knows now that it is on 1
  Move(object, 3);
  Move(object, 2);
  Move(object, 3);  // 2 has forgotten nothing; 1 knows an old place
  const size_t redirects = Sent(MessageType::kRedirect);
  EXPECT_TRUE(Call(1, object).ok());
  EXPECT_LE(Sent(MessageType::kRedirect), redirects + 1);
}

class CallCoreWithoutHints : public CallCoreTest {
 protected:
  CallCoreWithoutHints() : CallCoreTest(Options()) {}
  static WorldOptions Options() {
    WorldOptions options = Defaults();
    options.core.hints_max = 1;
    return options;
  }
};

TEST_F(CallCoreWithoutHints, AskHomeWhenOldHostForgot) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  Move(object, 3);
  const size_t other = Create(2);
  EXPECT_TRUE(Call(1, other).ok());   // pushes out what 1 knew of the object
  EXPECT_TRUE(Call(2, object).ok());  // 2 asks 1, 1 says "ask home"
  ComeToRest();
}

TEST_F(CallCoreTest, CallParkedDuringAMoveRunsAtTheTarget) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kHeld, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  const uint64_t call = Start(3, To(object));
  const uint64_t local = Start(1, To(object));
  world.RunFor(5 * kMs);
  EXPECT_FALSE(Ended(call));
  EXPECT_EQ(node(1).cores().counters().parked, 2u);
  Release();
  ComeToRest();
  EXPECT_EQ(Record(call).ran_on, node(2).self());
  EXPECT_EQ(Record(local).ran_on, node(2).self());
}

TEST_F(CallCoreTest, CallThatComesBeforeTheActivationWaitsForIt) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kActivate, Fate::kHeld, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  const uint64_t call = Start(3, To(object));
  world.RunFor(5 * kMs);
  EXPECT_FALSE(Ended(call));
  EXPECT_EQ(node(2).cores().counters().parked, 1u);
  Release();
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
}

TEST_F(CallCoreTest, CallThatWasSentRunsWhenItsObjectComesToTheCaller) {
  const size_t object = CreateAwayFromHome();
  Let(MessageType::kCall, Fate::kHeld, 1);
  const uint64_t call = Start(2, To(object));
  world.RunFor(kMs);
  Move(object, 2);
  Release();  // finds that the object has left for the caller's own node
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(CallsRun(object), 1u);
}

TEST_F(CallCoreTest, CallsWithFreshHintWorkWhileHomeIsDead) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  Kill(3);
  EXPECT_TRUE(Call(2, object).ok());
  EXPECT_TRUE(Call(1, object).ok());
  world.Start(4);
  world.TellDead(4, {3, 1});
  EXPECT_EQ(KindOf(Call(4, object)), ErrorKind::kNodeUnreachable);
}

TEST_F(CallCoreTest, OldHintsThatPointAtEachOtherLeadNowhere) {
  const size_t object = CreateAwayFromHome();
  Move(object, 2);
  // 1 knows 2; 2 will know 1, and nobody has the object.
  world.Start(4);
  Move(object, 4);
  node(1).cores().locations().Forget(RidOf(object));
  node(2).cores().locations().Forget(RidOf(object));
  node(1).cores().locations().Learn(RidOf(object), node(2).self(), 3);
  node(2).cores().locations().Learn(RidOf(object), node(1).self(), 2);
  Kill(3);
  Kill(4);
  EXPECT_EQ(KindOf(Call(1, object)), ErrorKind::kNodeUnreachable);
  EXPECT_LE(node(1).cores().counters().redirects, 2u);
}

// -- once ---------------------------------------------------------------------------------------

TEST_F(CallCoreTest, LostCallIsSentAgain) {
  const size_t object = Create(1);
  Let(MessageType::kCall, Fate::kLost, 1);
  EXPECT_TRUE(Call(2, object).ok());
  EXPECT_EQ(CallsRun(object), 1u);
}

TEST_F(CallCoreTest, LostReplyIsSentAgainAndTheCallIsNotRunTwice) {
  const size_t object = Create(1);
  Let(MessageType::kReply, Fate::kLost, 1);
  EXPECT_TRUE(Call(2, object).ok());
  EXPECT_EQ(CallsRun(object), 1u);
}

TEST_F(CallCoreTest, ResultSurvivesMoveAndIsNotRunTwice) {
  const size_t object = CreateAwayFromHome();
  Let(MessageType::kReply, Fate::kLost, 1);
  const uint64_t call = Start(3, To(object));
  world.RunFor(2 * kMs);
  ASSERT_EQ(CallsRun(object), 1u);
  Begin({object}, 2);
  ComeToRest();
  ASSERT_EQ(Host(object), 2u);
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(CallsRun(object), 1u);
}

TEST_F(CallCoreTest, LateCopyOfAnAnsweredCallIsNotRun) {
  const size_t object = Create(1);
  Let(MessageType::kCall, Fate::kCopied, 1);
  EXPECT_TRUE(Call(2, object).ok());
  world.RunFor(10 * kMs);  // the result is acknowledged and let go
  Release();
  EXPECT_EQ(CallsRun(object), 1u);
  EXPECT_EQ(node(1).cores().counters().dedup.duplicates, 1u);
}

TEST_F(CallCoreTest, LateCopyOfACallIsNotRunAfterItsSuccessor) {
  const size_t object = Create(1);
  const size_t outer = Create(2);
  Let(MessageType::kCall, Fate::kCopied, 1);
  // Two calls of one activity at one level, from node 2.
  EXPECT_TRUE(Call(2, To(outer, {To(object), To(object)})).ok());
  Release();
  EXPECT_EQ(CallsRun(object), 2u);
}

TEST_F(CallCoreTest, NestedCallsFromTwoNodesDoNotShareNumbers) {
  // 1 calls 2, which calls 3; then 1 calls 3 at the same level as 2 did.
  const size_t a = Create(1);
  const size_t b = Create(2);
  const size_t c = Create(3);
  EXPECT_TRUE(Call(1, To(a, {To(b, {To(c)}), To(b, {To(c)}), To(c)})).ok());
  EXPECT_EQ(CallsRun(c), 3u);
  EXPECT_EQ(node(3).cores().counters().dedup.duplicates, 0u);
}

class CallCoreWithFewRecords : public CallCoreTest {
 protected:
  CallCoreWithFewRecords() : CallCoreTest(Options()) {}
  static WorldOptions Options() {
    WorldOptions options = Defaults();
    options.core.dedup.entries_max = 2;
    options.core.dedup.result_bytes_max = 8;
    return options;
  }
};

TEST_F(CallCoreWithFewRecords, EvictedDedupEntryIsTypedRefusal) {
  const size_t object = Create(1);
  Let(MessageType::kCall, Fate::kHeld, 1);
  const uint64_t late = Start(2, To(object));
  world.RunFor(kMs);
  for (int i = 0; i < 4; ++i) {
    const uint64_t later = Start(2, To(object));
    world.RunFor(2 * kMs);
    EXPECT_TRUE(Record(later).status.ok());
  }
  ASSERT_FALSE(Ended(late));
  Release();
  EXPECT_EQ(KindOf(Record(late).status), ErrorKind::kDuplicateEvicted);
  EXPECT_EQ(node(1).cores().counters().dedup.refused, 1u);
}

TEST_F(CallCoreWithFewRecords, NewCallOfAForgottenActivityIsRun) {
  const size_t object = Create(1);
  const size_t outer = Create(2);
  // The outer activity's record is evicted between its two calls.
  const uint64_t call = Start(2, {.object = outer,
                                  .work_ns = 0,
                                  .steps = {{.work_ns = 0, .calls = {To(object)}},
                                            {.work_ns = 10 * kMs, .calls = {To(object)}}}});
  world.RunFor(2 * kMs);
  for (int i = 0; i < 4; ++i) {
    Start(2, To(object));
    world.RunFor(kMs);
  }
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(CallsRun(object), 6u);
  EXPECT_EQ(node(1).cores().counters().dedup.refused, 0u);
}

TEST_F(CallCoreWithFewRecords, ResultThatIsNotKeptIsAnUnknownOutcome) {
  const size_t object = Create(1);
  Let(MessageType::kReply, Fate::kLost, 1);
  const uint64_t call = Start(2, To(object));
  world.RunFor(2 * kMs);
  Start(3, To(object));  // its result pushes the other out
  ComeToRest();
  EXPECT_EQ(KindOf(Record(call).status), ErrorKind::kOutcomeUnknown);
}

// -- what callers are told ----------------------------------------------------------------------

TEST_F(CallCoreTest, OutcomeIsUnknownWhenTheHostDiesWithTheCallInside) {
  const size_t object = CreateAwayFromHome();
  const uint64_t inside = Start(2, To(object, {}, 50 * kMs));
  world.RunFor(5 * kMs);
  Kill(1);
  ComeToRest();
  EXPECT_EQ(KindOf(Record(inside).status), ErrorKind::kOutcomeUnknown);
  EXPECT_EQ(KindOf(Call(2, object)), ErrorKind::kObjectLost);
  EXPECT_EQ(KindOf(Call(3, object)), ErrorKind::kObjectLost);
}

TEST_F(CallCoreTest, CallUnderWayRunsOnceInTheCopyThatWasTakenOver) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kLost, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  const uint64_t call = Start(3, To(object));  // parked at 1
  world.RunFor(2 * kMs);
  Kill(1);
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(Record(call).ran_on, node(2).self());
}

TEST_F(CallCoreTest, CallThatRanAndWasNotAnsweredIsNotCalledNotRun) {
  // It runs, its reply is lost, the object moves on and is lost with its new host. The old host,
  // which the caller asks, lives.
  const size_t object = CreateAwayFromHome();
  Let(MessageType::kReply, Fate::kLost, 1);
  const uint64_t call = Start(3, To(object));
  world.RunFor(2 * kMs);
  ASSERT_EQ(CallsRun(object), 1u);
  Let(MessageType::kProbe, Fate::kLost);
  Begin({object}, 2);
  world.RunFor(10 * kMs);
  ASSERT_EQ(Host(object), 2u);
  Kill(2);
  StopInterfering();
  ComeToRest();
  EXPECT_EQ(KindOf(Record(call).status), ErrorKind::kOutcomeUnknown);
}

TEST_F(CallCoreTest, ActivityGoesOnAfterAnUnknownOutcome) {
  const size_t object = CreateAwayFromHome();
  const size_t outer = Create(2);
  const size_t other = Create(3);
  const uint64_t call =
      Start(2, To(outer, {To(other), To(object, {To(other)}, 50 * kMs), To(other), To(other)}));
  world.RunFor(5 * kMs);
  Kill(1);
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(CallsRun(other), 3u);
}

TEST_F(CallCoreTest, CallOfALostPartOfAnActivityEndsToo) {
  // 1 dies while its call to `relay` on 2 is under way; the activity goes on from 3 and calls
  // `object` first. The lost part's call to `object` is older: it is refused, not forgotten.
  const size_t object = Create(3);
  const size_t relay = Create(2);
  const size_t doomed = Create(1);
  const size_t outer = Create(3);
  const size_t fresh = Create(2);
  Script relayed = To(relay);
  relayed.steps.push_back({.work_ns = 30 * kMs, .calls = {To(object)}});
  const uint64_t call =
      Start(3, To(outer, {To(doomed, {relayed}), To(fresh, {To(fresh, {To(object)})})}));
  world.RunFor(5 * kMs);
  Kill(1);
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
}

TEST_F(CallCoreTest, LocalCallToALostObjectFailsAtOnce) {
  const size_t object = CreateAwayFromHome();
  Kill(1);
  EXPECT_EQ(KindOf(Call(3, object)), ErrorKind::kObjectLost);
  EXPECT_EQ(Sent(MessageType::kProbe), 0u);
}

// -- the end of an object -----------------------------------------------------------------------

TEST_F(CallCoreTest, DestroyedObjectIsNotFound) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  ASSERT_TRUE(node(1).Destroy(object).ok());
  ComeToRest();
  for (const NodeId id : {1, 2, 3}) EXPECT_EQ(KindOf(Call(id, object)), ErrorKind::kObjectNotFound);
  EXPECT_EQ(RowOf(object), nullptr);
}

TEST_F(CallCoreTest, HomeLearnsOfADestructionThoughMessagesAreLost) {
  const size_t object = CreateAwayFromHome();
  Let(MessageType::kDestroyed, Fate::kLost, 2);
  Let(MessageType::kDestroyedAck, Fate::kLost, 1);
  ASSERT_TRUE(node(1).Destroy(object).ok());
  EXPECT_EQ(KindOf(Call(2, object)), ErrorKind::kObjectNotFound);  // the host knows meanwhile
  ComeToRest();
  EXPECT_EQ(RowOf(object), nullptr);
}

TEST_F(CallCoreTest, CallBackIntoAnObjectThatIsBeingDestroyedIsNotFound) {
  const size_t object = CreateAwayFromHome();
  const size_t other = Create(2);
  Script call_back = To(other);
  call_back.steps.push_back({.work_ns = 5 * kMs, .calls = {To(object)}});
  const uint64_t call = Start(3, To(object, {call_back, To(object)}));
  world.RunFor(3 * kMs);
  ASSERT_TRUE(node(1).Destroy(object).ok());
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());  // it was inside; its call-backs were refused
  EXPECT_EQ(CallsRun(object), 1u);
}

TEST_F(CallCoreTest, OrphanIsDestroyedAfterGrace) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  Kill(3);
  world.RunFor(SimCoreOptions().orphan_grace_ns - 10 * kMs);
  EXPECT_EQ(Host(object), 1u);
  world.RunFor(20 * kMs);
  EXPECT_EQ(Host(object), 0u);
  EXPECT_EQ(node(1).cores().counters().orphans_destroyed, 1u);
  EXPECT_EQ(KindOf(Call(2, object)), ErrorKind::kNodeUnreachable);
}

// -- insiders and sets that wait for each other -------------------------------------------------

TEST_F(CallCoreTest, CallBackIntoAQuiescingSetIsAdmitted) {
  const size_t a = Create(1);
  const size_t b = Create(2);
  Script call_back = To(b);
  call_back.steps.push_back({.work_ns = 5 * kMs, .calls = {To(a)}});
  const uint64_t call = Start(3, To(a, {call_back}));
  world.RunFor(3 * kMs);
  const MigrationId id = Begin({a}, 3);
  ComeToRest();
  EXPECT_TRUE(StatusOf(id).ok());
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(CallsRun(a), 2u);
}

TEST_F(CallCoreTest, CallBetweenTwoObjectsOfOneMovingSetIsAdmitted) {
  const size_t a = Create(1);
  const size_t b = Create(1);
  Script slow = To(a);
  slow.steps.push_back({.work_ns = 5 * kMs, .calls = {To(b)}});
  const uint64_t call = Start(1, slow);
  world.RunFor(2 * kMs);
  const MigrationId id = Begin({a, b}, 2);
  ComeToRest();
  EXPECT_TRUE(StatusOf(id).ok());
  EXPECT_TRUE(Record(call).status.ok());
}

TEST_F(CallCoreTest, CrossingSetsOneGivesWay) {
  const size_t a = Create(1);
  const size_t b = Create(2);
  const auto into = [](size_t first, size_t then) {
    Script script = To(first);
    script.steps.push_back({.work_ns = 5 * kMs, .calls = {To(then)}});
    return script;
  };
  const uint64_t one = Start(1, into(a, b));
  const uint64_t other = Start(2, into(b, a));
  world.RunFor(2 * kMs);
  const MigrationId lower = Begin({a}, 2);
  const MigrationId higher = Begin({b}, 1);
  world.RunFor(25 * kMs);  // long before the drain deadline
  EXPECT_EQ(KindOf(StatusOf(higher)), ErrorKind::kMoveCancelled);
  EXPECT_TRUE(StatusOf(lower).ok());
  ComeToRest();
  EXPECT_TRUE(Record(one).status.ok());
  EXPECT_TRUE(Record(other).status.ok());
  EXPECT_EQ(node(2).cores().moves().cancelled_crossing, 1u);
}

class WaitBehindASet : public CallCoreTest {
 protected:
  // Node 1 calls b on 2, which calls a on 1, which calls b, which calls c on 3: and c is being
  // moved and has not got away. Then b works on for a while.
  void SetUp() override {
    c_ = Create(1);
    Move(c_, 3);
    const size_t a = Create(1);
    b_ = Create(2);
    Let(Type::kTransfer, Fate::kHeld, 1);
    Begin({c_}, 1);
    world.RunFor(2 * kMs);
    Script script = To(b_, {To(a, {To(b_, {To(c_)})})});
    script.steps.push_back({.work_ns = 20 * kMs, .calls = {}});
    call_ = Start(1, script);
    world.RunFor(15 * kMs);
  }
  size_t b_ = 0;
  size_t c_ = 0;
  uint64_t call_ = 0;
};

TEST_F(WaitBehindASet, IsToldOutwardsOnly) {
  EXPECT_FALSE(Ended(call_));
  EXPECT_GE(Sent(MessageType::kParked), 3u);
  EXPECT_LE(Sent(MessageType::kParked), 6u);
  Release();
  ComeToRest();
}

TEST_F(WaitBehindASet, MakesASetThatTheActivityIsInsideOfGiveWay) {
  const MigrationId id = Begin({b_}, 3);
  world.RunFor(5 * kMs);
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(node(2).cores().moves().cancelled_crossing, 1u);
  Release();
  ComeToRest();
}

TEST_F(WaitBehindASet, IsTakenBackWhenItIsOver) {
  world.RunUntil([&] { return Host(c_) == 1; }, 100 * kMs);  // the transfer is sent again
  world.RunFor(5 * kMs);
  ASSERT_FALSE(Ended(call_));  // b still works
  const MigrationId id = Begin({b_}, 3);
  ComeToRest();
  EXPECT_TRUE(StatusOf(id).ok());
}

// -- bad input ----------------------------------------------------------------------------------

TEST_F(CallCoreTest, FramesThatDoNotDecodeAreCountedAndChangeNothing) {
  const size_t object = Create(1);
  uint64_t sent = 0;
  for (uint16_t type = 0; type < 64; ++type) {
    for (const size_t bytes : {0, 1, 7, 40}) {
      Frame frame;
      frame.type = type;
      frame.payload.inline_bytes = std::string(bytes, '\xff');
      node(1).Receive(node(2).self(), std::move(frame));
      ++sent;
    }
  }
  EXPECT_GT(node(1).cores().counters().bad_frames, sent / 2);
  EXPECT_TRUE(Call(2, object).ok());
  ComeToRest();
}

TEST_F(CallCoreTest, CallsNestedBeyondTheLimitAreRefused) {
  const size_t a = Create(1);
  const size_t b = Create(2);
  Script script = To(a);
  for (int i = 0; i < 70; ++i) script = To(i % 2 == 0 ? b : a, {script});
  EXPECT_TRUE(Call(1, script).ok());  // a method whose nested call fails returns all the same
  bool refused = false;
  for (uint64_t call = 1; call <= world.oracle().calls(); ++call) {
    refused = refused || KindOf(Record(call).status) == ErrorKind::kNestingTooDeep;
  }
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace abacus::runtime::sim
