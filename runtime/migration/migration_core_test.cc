// Facts about moves: who decides, who serves, and what late messages do. Calls under moves are in
// migration_core_calls_test.cc.

#include "runtime/base/status.h"
#include "runtime/testing/sim_test.h"

namespace abacus::runtime::sim {
namespace {

class MigrationCoreTest : public SimTest {
 protected:
  // An object of node 3 that node 1 hosts: source, home and target are three nodes.
  size_t CreateAwayFromHome() {
    const size_t object = Create(3);
    Move(object, 1);
    return object;
  }
};

// -- the plain way ------------------------------------------------------------------------------

TEST_F(MigrationCoreTest, CommitIsTheChangeOfTheHomesRow) {
  const size_t object = Create(1);
  const MigrationId id = Begin({object}, 2);
  ComeToRest();
  EXPECT_TRUE(StatusOf(id).ok());
  EXPECT_EQ(Host(object), 2u);
  EXPECT_EQ(RowOf(object)->host, node(2).self());
  EXPECT_EQ(RowOf(object)->epoch, 2u);
  EXPECT_EQ(EpochAt(2, object), 2u);
}

TEST_F(MigrationCoreTest, StateMovesWithTheObject) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  Move(object, 2);
  EXPECT_TRUE(Call(1, object).ok());
  ComeToRest();
  EXPECT_EQ(node(2).FindCopy(RidOf(object))->entries.size(), 2u);
}

TEST_F(MigrationCoreTest, SetMovesInOneStep) {
  const size_t a = Create(1);
  const size_t b = Create(1);
  Begin({a, b}, 2);
  ComeToRest();
  EXPECT_EQ(Host(a), 2u);
  EXPECT_EQ(Host(b), 2u);
  EXPECT_EQ(Sent(Type::kTransfer), 1u);
}

TEST_F(MigrationCoreTest, ObjectMovesThereAndBackAndOn) {
  const size_t object = CreateAwayFromHome();
  for (const NodeId target : {2, 3, 1, 2, 1, 3}) Move(object, target);
  ComeToRest();
  EXPECT_EQ(RowOf(object)->epoch, 8u);
}

TEST_F(MigrationCoreTest, MovesOfSeveralHomesInOneStepAreRefused) {
  const size_t a = CreateAwayFromHome();
  const size_t b = Create(1);
  EXPECT_EQ(node(1).Move({a, b}, 2).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MigrationCoreTest, MoveOfAnObjectThatIsElsewhereIsRefused) {
  const size_t object = Create(1);
  EXPECT_EQ(KindOf(node(2).Move({object}, 3).status()), ErrorKind::kObjectNotFound);
}

TEST_F(MigrationCoreTest, SecondMoveOfAMovingObjectIsRefused) {
  const size_t object = Create(1);
  Begin({object}, 2);
  EXPECT_EQ(KindOf(node(1).Move({object}, 3).status()), ErrorKind::kMoveCancelled);
  ComeToRest();
}

TEST_F(MigrationCoreTest, ObjectWhoseHomeIsDeadStaysWhereItIs) {
  const size_t object = CreateAwayFromHome();
  Kill(3);
  EXPECT_EQ(KindOf(node(1).Move({object}, 2).status()), ErrorKind::kNodeUnreachable);
}

// -- aborts -------------------------------------------------------------------------------------

TEST_F(MigrationCoreTest, SourceAbortsAloneBeforeTransfer) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kBegin, Fate::kLost);
  const size_t asked = Sent(Type::kCommit);
  const MigrationId id = Begin({object}, 2);
  node(1).Cancel(id);
  ComeToRest();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(EpochAt(1, object), 2u);
  EXPECT_EQ(Sent(Type::kCommit), asked);
  EXPECT_TRUE(Call(2, object).ok());
}

TEST_F(MigrationCoreTest, AbortAfterTransferIsDecidedByHome) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kRestored, Fate::kHeld, 1);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(2 * kMs);
  ASSERT_EQ(held(), 1u);
  node(1).Cancel(id);
  Settle();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(RowOf(object)->epoch, 3u);
  EXPECT_EQ(RowOf(object)->host, node(1).self());
  Release();
  ComeToRest();
  EXPECT_EQ(Host(object), 1u);
  EXPECT_EQ(EpochAt(1, object), 3u);
}

TEST_F(MigrationCoreTest, AbortThatComesAfterTheCommitIsTooLate) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommitReply, Fate::kHeld, 1);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  node(1).Cancel(id);
  Release();
  ComeToRest();
  EXPECT_TRUE(StatusOf(id).ok());
  EXPECT_EQ(Host(object), 2u);
}

TEST_F(MigrationCoreTest, NeitherCopyServesUntilTheHomeHasAnswered) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommitReply, Fate::kLost);
  Begin({object}, 2);
  const uint64_t call = Start(3, To(object));
  world.RunFor(1000 * kMs);
  EXPECT_FALSE(Ended(call));
  StopInterfering();
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
  EXPECT_EQ(Host(object), 2u);
}

TEST_F(MigrationCoreTest, SlowDrainIsCancelledAndTheObjectServesOn) {
  const size_t object = Create(1);
  const uint64_t slow = Start(2, To(object, {}, 200 * kMs));
  world.RunFor(5 * kMs);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(60 * kMs);
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(node(1).cores().moves().cancelled_slow_drain, 1u);
  const uint64_t next = Start(3, To(object));
  world.RunFor(20 * kMs);
  EXPECT_TRUE(Ended(next));
  EXPECT_FALSE(Ended(slow));
  ComeToRest();
}

TEST_F(MigrationCoreTest, TransferThatTakesTooLongIsAborted) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kLost);
  const MigrationId id = Begin({object}, 2);
  ComeToRest();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(Host(object), 1u);
  EXPECT_EQ(RowOf(object)->epoch, 3u);
}

TEST_F(MigrationCoreTest, HomeRefusesAMoveOfAnObjectThatItKnowsElsewhere) {
  const size_t object = CreateAwayFromHome();
  RowOf(object)->host = node(2).self();
  const MigrationId id = Begin({object}, 2);
  Settle();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(Sent(Type::kTransfer), 1u);  // of the move that brought it here
  RowOf(object)->host = node(1).self();
}

// -- lost messages ------------------------------------------------------------------------------

class MessagesOfAMove : public MigrationCoreTest,
                        public testing::WithParamInterface<MigrationMessageType> {};

TEST_P(MessagesOfAMove, EachMayBeLost) {
  const size_t object = CreateAwayFromHome();
  Let(GetParam(), Fate::kLost, 1);
  Move(object, 2);
  ComeToRest();
}

TEST_P(MessagesOfAMove, EachMayComeAgainAfterTheNextMove) {
  const size_t object = CreateAwayFromHome();
  Let(GetParam(), Fate::kCopied, 1);
  Move(object, 2);
  ASSERT_EQ(held(), 1u);
  Move(object, 3);
  EXPECT_TRUE(Call(1, object).ok());
  Release();
  ComeToRest();
  EXPECT_EQ(Host(object), 3u);
  EXPECT_EQ(RowOf(object)->epoch, 4u);
}

INSTANTIATE_TEST_SUITE_P(
    , MessagesOfAMove,
    testing::Values(MigrationMessageType::kBegin, MigrationMessageType::kBeginReply,
                    MigrationMessageType::kTransfer, MigrationMessageType::kRestored,
                    MigrationMessageType::kCommit, MigrationMessageType::kCommitReply,
                    MigrationMessageType::kActivate, MigrationMessageType::kActivated),
    [](const auto& info) { return MessageName(static_cast<uint16_t>(info.param)); });

TEST_F(MigrationCoreTest, LateTransferDuplicateIsDiscarded) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kCopied, 1);
  Move(object, 2);
  Move(object, 3);
  const size_t restores = node(2).cores().load().incoming;
  Release();
  ComeToRest();
  EXPECT_EQ(restores, 0u);
  EXPECT_EQ(node(2).FindCopy(RidOf(object)), nullptr);
}

TEST_F(MigrationCoreTest, LateTransferAndActivationDoNotReviveAnOldCopy) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kCopied, 1);
  Let(Type::kActivate, Fate::kCopied, 1);
  Move(object, 2);
  Move(object, 3);
  ASSERT_EQ(held(), 2u);
  Release();
  ComeToRest();
  EXPECT_EQ(Host(object), 3u);
}

TEST_F(MigrationCoreTest, GivenUpMigrationIsAnsweredAtOnce) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kRestored, Fate::kLost, 1);  // the target's refusal
  world.network().lost = 0;
  const MigrationId id = Begin({object}, 2);
  world.RunFor(kMs / 2);
  // The home makes the target swear the migration off before the transfer is there.
  world.Deliver({node(3).self(), node(2).self(), MakeFrame(Type::kClaim, MigrationIdMessage{id})},
                0);
  world.RunFor(60 * kMs);
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  ComeToRest();
}

TEST_F(MigrationCoreTest, EndedMigrationsAreRememberedInBoundedSpace) {
  const size_t object = CreateAwayFromHome();
  for (int i = 0; i < 50; ++i) {
    Move(object, 2);
    Move(object, 1);
  }
  EXPECT_LE(node(1).cores().sworn_off(), 2u);
  EXPECT_LE(node(2).cores().sworn_off(), 2u);
}

// -- deaths -------------------------------------------------------------------------------------

TEST_F(MigrationCoreTest, TargetTakesOverWhenSourceDies) {
  const size_t object = CreateAwayFromHome();
  EXPECT_TRUE(Call(2, object).ok());
  Let(Type::kCommit, Fate::kHeld, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  Kill(1);
  ComeToRest();
  EXPECT_EQ(Host(object), 2u);
  EXPECT_EQ(node(2).cores().moves().taken_over, 1u);
  EXPECT_EQ(node(2).FindCopy(RidOf(object))->entries.size(), 1u);
  Release();  // the dead source's own commit
  ComeToRest();
}

TEST_F(MigrationCoreTest, HomeWaitsForATargetThatIsStillRestoring) {
  const size_t object = CreateAwayFromHome();
  Begin({object}, 2);
  world.RunUntil([&] { return node(2).cores().load().incoming == 1; }, 10 * kMs);
  Kill(1);
  ComeToRest();
  EXPECT_EQ(Host(object), 2u);
}

TEST_F(MigrationCoreTest, ObjectIsLostWhenItsHostDiesBeforeTheTransferArrives) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kHeld, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  Kill(1, /*tell=*/false);
  world.TellDead(3, {1, 1});  // the home asks the target, which swears it off
  Settle();
  EXPECT_TRUE(RowOf(object)->lost);
  Release();  // too late
  world.TellDead(2, {1, 1});
  ComeToRest();
  EXPECT_EQ(Host(object), 0u);
}

TEST_F(MigrationCoreTest, CopyOfAnAbortedMoveIsNotTakenOver) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kRestored, Fate::kLost);
  Let(Type::kDiscard, Fate::kLost);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(5 * kMs);
  node(1).Cancel(id);
  world.RunFor(5 * kMs);
  EXPECT_TRUE(Call(3, object).ok());  // the copy at 2 has not seen this
  Kill(1);
  StopInterfering();
  ComeToRest();
  EXPECT_EQ(Host(object), 0u);
  EXPECT_EQ(KindOf(Call(2, object)), ErrorKind::kObjectLost);
}

TEST_F(MigrationCoreTest, HomeDiesSourceResumesAtEpochPlusTwo) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kHeld);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  Kill(3);
  ComeToRest();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(Host(object), 1u);
  EXPECT_EQ(EpochAt(1, object), 4u);
  EXPECT_TRUE(Call(2, object).ok());  // the target knows who has it
}

TEST_F(MigrationCoreTest, HomeDiesAfterTheCommitSourceStillResumesOnce) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommitReply, Fate::kHeld);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  Kill(3);
  Settle();
  EXPECT_EQ(Host(object), 1u);
  EXPECT_EQ(EpochAt(1, object), 4u);
  Release();  // the dead home's answer
  ComeToRest();
  EXPECT_EQ(Host(object), 1u);
}

TEST_F(MigrationCoreTest, ObjectStaysBlockedWhileHomeIsDeadAndTargetUnreachable) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kHeld);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  world.Cut(1, 2, true);
  world.Cut(2, 1, true);
  Kill(3);
  const uint64_t call = Start(1, To(object));
  world.RunFor(1000 * kMs);
  EXPECT_FALSE(Ended(call));
  world.Cut(1, 2, false);
  world.Cut(2, 1, false);
  ComeToRest();
  EXPECT_TRUE(Record(call).status.ok());
}

TEST_F(MigrationCoreTest, HomeThatIsTheTargetDiesSourceResumes) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommitReply, Fate::kLost);
  Begin({object}, 3);
  world.RunFor(5 * kMs);
  Kill(3);
  ComeToRest();
  EXPECT_EQ(Host(object), 1u);
  EXPECT_EQ(EpochAt(1, object), 4u);
}

TEST_F(MigrationCoreTest, HomeAndTargetDieOneAfterTheOtherSourceResumes) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kLost);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  Kill(2);
  Kill(3);
  ComeToRest();
  EXPECT_EQ(Host(object), 1u);
}

TEST_F(MigrationCoreTest, CopyWhoseSourceAndHomeAreDeadGoes) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kLost);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  Kill(3);
  Kill(1);
  ComeToRest();
  EXPECT_EQ(node(2).FindCopy(RidOf(object)), nullptr);
}

TEST_F(MigrationCoreTest, CommitForATargetThatTheHomeKnowsDeadStaysAtTheSource) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kHeld, 1);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(5 * kMs);
  ASSERT_EQ(held(), 1u);
  Kill(2, /*tell=*/false);
  world.TellDead(3, {2, 1});
  Release();
  world.TellDead(1, {2, 1});
  ComeToRest();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_EQ(Host(object), 1u);
  EXPECT_FALSE(RowOf(object)->lost);
}

TEST_F(MigrationCoreTest, TargetDiesDuringTheTransferSourceServesOn) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kTransfer, Fate::kLost);
  const MigrationId id = Begin({object}, 2);
  world.RunFor(5 * kMs);
  Kill(2);
  ComeToRest();
  EXPECT_EQ(KindOf(StatusOf(id)), ErrorKind::kMoveCancelled);
  EXPECT_TRUE(Call(3, object).ok());
}

TEST_F(MigrationCoreTest, StaleClaimDoesNotLoseAnObjectThatHasGoneOn) {
  const size_t object = CreateAwayFromHome();
  Let(Type::kCommit, Fate::kLost, 1);
  Begin({object}, 2);
  world.RunFor(5 * kMs);
  Kill(1);
  world.Start(4);
  // Taken over by 2 and moved on to 4 before the home ticks; then 2 dies.
  world.RunUntil([&] { return Host(object) == 2; }, 100 * kMs);
  Move(object, 4);
  Kill(2);
  ComeToRest();
  EXPECT_EQ(Host(object), 4u);
  EXPECT_FALSE(RowOf(object)->lost);
}

}  // namespace
}  // namespace abacus::runtime::sim
