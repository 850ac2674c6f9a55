// A server's log object and a client's writer, one rule at a time.

#include "objfs/atomicity/commit_log.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/testing/group_world.h"

namespace abacus::objfs {
namespace {

using testing::GroupWorld;
using testing::kFromServer;
using testing::kGroupServers;
using testing::MessageFate;
using Told = GroupOutcome::Kind;

class CommitLogTest : public ::testing::Test {
 protected:
  GroupPart Writes(uint64_t block, uint64_t tag) {
    GroupPart part;
    part.writes.push_back(GroupWorld::WriteOf(block, tag));
    return part;
  }
  static constexpr Version kOpening{10};
  static GroupFence By() { return {GroupWorld::kObject, Version{12}}; }
  static GroupPart Fenced(GroupPart part, Version opening = kOpening) {
    part.fences.push_back({GroupWorld::kObject, opening});
    return part;
  }
  // Server 0 is opened once more with what `change` makes of its host.
  void BeginAgain(const std::function<void(CommitLog::Host*)>& change) {
    world_.change_host = [change](size_t server, CommitLog::Host* host) {
      if (server == 0) change(host);
    };
    world_.Restart(0, 1);
    world_.Pass(2 * GroupWorld::kSecond);  // beyond the ceiling, under which all is refused
  }
  std::vector<PendingGroup> PendingAt(size_t server, ObjectId id = GroupWorld::kObject) {
    auto pending = world_[server].log->PendingOf(id);
    EXPECT_TRUE(pending.ok()) << pending.status();
    return pending.ok() ? *std::move(pending) : std::vector<PendingGroup>();
  }
  GroupOutcome Write(const GroupPart& part, uint64_t client = 1) {
    HybridClock clock = world_.Clock(static_cast<uint16_t>(client));
    return world_.Client(client, &clock)->Write(GroupWorld::Everywhere(part));
  }
  // Asks one server, as whoever began the group does.
  absl::StatusOr<CommitReply> Ask(size_t server, CommitKind kind, Version id,
                                  const GroupPart& part = {}, uint64_t epoch = 1) {
    CommitMessage question{.kind = kind, .id = id, .part = {server, 0}};
    if (kind == CommitKind::kPrepare) {
      for (uint64_t i = 0; i < kGroupServers; ++i) question.group.push_back({i, 0});
      question.payload = part.Encode();
    }
    return world_[server].log->Ask(epoch, question);
  }
  void Prepare(size_t server, Version id, const GroupPart& part) {
    const auto reply = Ask(server, CommitKind::kPrepare, id, part);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->message.kind, CommitKind::kPrepared);
  }
  Refusal RefusalOf(size_t server, Version id, const GroupPart& part) {
    const auto reply = Ask(server, CommitKind::kPrepare, id, part);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return Refusal::kNone;
    EXPECT_EQ(reply->message.kind, CommitKind::kRefused);
    return reply->refusal;
  }

  GroupWorld world_;
  HybridClock clock_ = world_.Clock(9);
};

TEST_F(CommitLogTest, AGroupIsWrittenAtAllItsServersAndOutlivesThem) {
  const GroupOutcome outcome = Write(Writes(3, 5));
  ASSERT_EQ(outcome.kind, Told::kCommitted) << outcome.why;
  for (size_t i = 0; i < kGroupServers; ++i) {
    EXPECT_EQ(world_.TagAt(i, 3), 5u);
    EXPECT_EQ(world_.VersionAt(i, 3), outcome.id);
    EXPECT_EQ(world_[i].log->Counts()->pending, 0u);
  }
  world_.Pass(GroupWorld::kSecond);
  for (size_t i = 0; i < kGroupServers; ++i) {
    world_.Restart(i, 1);
    EXPECT_EQ(world_.TagAt(i, 3), 5u);
    EXPECT_EQ(world_[i].log->Counts()->pending, 0u) << "it is not forgotten durably";
  }
}

TEST_F(CommitLogTest, WhatChangedSinceItWasReadAbortsTheGroup) {
  ASSERT_EQ(Write(Writes(0, 1)).kind, Told::kCommitted);
  GroupPart part = Writes(1, 2);
  part.reads.push_back({GroupWorld::kObject, 0, Version()});  // it was a hole then
  const GroupOutcome outcome = Write(part);
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsAborted(outcome.why)) << outcome.why;
  for (size_t i = 0; i < kGroupServers; ++i) {
    EXPECT_EQ(world_.TagAt(i, 1), 0u);
    EXPECT_EQ(world_[i].log->Counts()->pending, 0u);
  }
  part.reads[0].version = world_.VersionAt(0, 0);
  std::vector<ServerPart> parts = {{0, part}, {1, Writes(1, 2)}};
  HybridClock clock = world_.Clock(1);
  EXPECT_EQ(world_.Client(1, &clock)->Write(parts).kind, Told::kCommitted);
}

TEST_F(CommitLogTest, WhoHasPreparedABlockKeepsOthersOffUntilItIsDecided) {
  const Version first = clock_.Next();
  GroupPart part = Writes(0, 1);
  part.reads.push_back({GroupWorld::kObject, 5, Version()});
  Prepare(0, first, part);
  EXPECT_EQ(RefusalOf(0, clock_.Next(), Writes(0, 2)), Refusal::kClaimed);
  EXPECT_EQ(RefusalOf(0, clock_.Next(), Writes(5, 2)), Refusal::kClaimed);
  GroupPart reads_it;
  reads_it.reads.push_back({GroupWorld::kObject, 0, Version()});
  EXPECT_EQ(RefusalOf(0, clock_.Next(), reads_it), Refusal::kClaimed);
  // Two may rest on one block.
  reads_it.reads[0].block = 5;
  const Version reader = clock_.Next();
  Prepare(0, reader, reads_it);
  ASSERT_TRUE(Ask(0, CommitKind::kAbort, first).ok());
  EXPECT_EQ(RefusalOf(0, clock_.Next(), Writes(5, 2)), Refusal::kClaimed);
  ASSERT_TRUE(Ask(0, CommitKind::kAbort, reader).ok());
  Prepare(0, clock_.Next(), Writes(5, 2));
  Prepare(0, clock_.Next(), Writes(0, 2));
}

TEST_F(CommitLogTest, ClaimsOutliveARestart) {
  const Version first = clock_.Next();
  Prepare(0, first, Writes(0, 1));
  world_.Restart(0, 3);
  world_.Pass(GroupWorld::kSecond * 2);  // beyond the ceiling, under which all is refused
  EXPECT_EQ(RefusalOf(0, clock_.Next(), Writes(0, 2)), Refusal::kClaimed);
  ASSERT_TRUE(Ask(0, CommitKind::kAbort, first).ok());
  Prepare(0, clock_.Next(), Writes(0, 2));
}

TEST_F(CommitLogTest, AWriterWaitsForWhoIsBeforeIt) {
  const Version first = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, first, Writes(0, 1));
  // Dead: the other one is let in a lease later, when the servers have carried it through.
  HybridClock clock = world_.Clock(1);
  const GroupOutcome outcome =
      world_.Client(1, &clock, absl::Seconds(60))->Write(GroupWorld::Everywhere(Writes(0, 2)));
  ASSERT_EQ(outcome.kind, Told::kCommitted) << outcome.why;
  EXPECT_GE(world_.now_ns(), world_.commit.lease_ns);
  EXPECT_LE(world_.now_ns(), world_.commit.lease_ns + 10 * GroupWorld::kSecond);
  EXPECT_EQ(world_.TagAt(2, 0), 2u);
}

TEST_F(CommitLogTest, AClientThatDiedAfterAllHadPreparedIsCarriedThroughByTheServers) {
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(0, 1));
  world_.resolves_meanwhile = true;
  world_.Pass(world_.commit.lease_ns - GroupWorld::kSecond);
  EXPECT_EQ(world_.TagAt(0, 0), 0u) << "its lease is not over";
  EXPECT_EQ(world_.Pending(), 3u);
  world_.Pass(2 * GroupWorld::kSecond);
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
  EXPECT_GE(world_[0].log->Counts()->resolved, 1u);
}

TEST_F(CommitLogTest, AClientThatDiedBeforeAllHadPreparedIsUndoneByTheServers) {
  const Version id = clock_.Next();
  Prepare(0, id, Writes(0, 1));
  Prepare(1, id, Writes(0, 1));
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 0u);
  // Whoever says so has sworn it.
  EXPECT_EQ(RefusalOf(2, id, Writes(0, 1)), Refusal::kOld);
  world_.Restart(2, 1);
  EXPECT_EQ(RefusalOf(2, id, Writes(0, 1)), Refusal::kOld);
}

TEST_F(CommitLogTest, AServerThatIsAwayBlocksOnlyWhatIsItsOwn) {
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(0, 1));
  world_.Kill(2);
  world_.PassALease();
  EXPECT_EQ(world_[0].log->Counts()->pending, 1u) << "it may have prepared or not";
  HybridClock clock = world_.Clock(1);
  const std::vector<ServerPart> two = {{0, Writes(4, 2)}, {1, Writes(4, 2)}};
  EXPECT_EQ(world_.Client(1, &clock)->Write(two).kind, Told::kCommitted);
  world_.Restart(2, 7);
  for (int i = 0; i < 4; ++i) world_.Pass(world_.commit.resend_ns);
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
}

TEST_F(CommitLogTest, AGroupThatAServerWasNeverAskedForIsCalledOffForCertain) {
  world_.Kill(1);
  const GroupOutcome outcome = Write(Writes(0, 1));
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsUnavailable(outcome.why)) << outcome.why;
  EXPECT_EQ(world_[0].log->Counts()->pending, 0u) << "it was told";
}

TEST_F(CommitLogTest, AGroupWhoseServerDiedInTheMiddleIsInDoubtUntilItReturns) {
  world_.resolves_meanwhile = false;
  world_.fate = [&](uint64_t message, uint64_t) {
    return message == 2 ? MessageFate::kServerDiesAfter : MessageFate::kArrives;
  };
  const GroupOutcome outcome = Write(Writes(0, 1));
  EXPECT_EQ(outcome.kind, Told::kInDoubt);
  EXPECT_FALSE(outcome.why.ok());
  world_.Restart(2, 1);
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
}

// All may have prepared it, though nobody says so: to call that off would be a guess.
TEST_F(CommitLogTest, AGroupThatNobodyAnswersForIsInDoubtAndNotCalledOff) {
  world_.resolves_meanwhile = false;
  world_.fate = [](uint64_t, uint64_t) { return MessageFate::kAnswerIsLost; };
  EXPECT_EQ(Write(Writes(0, 1)).kind, Told::kInDoubt);
  world_.fate = nullptr;
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
}

// The same where one of them turns away a later question, after it has prepared it.
TEST_F(CommitLogTest, AServerThatTurnsAwayWhatItMayHavePreparedIsNoProofThatItHasNot) {
  world_.resolves_meanwhile = false;
  world_.fate = [&](uint64_t message, uint64_t) {
    if (message < kGroupServers) return MessageFate::kAnswerIsLost;
    if (message == kGroupServers) {
      EXPECT_TRUE(Ask(1, CommitKind::kInquire, clock_.Next(), {}, 2).ok());
    }
    return MessageFate::kArrives;
  };
  const GroupOutcome outcome = Write(Writes(0, 1));
  EXPECT_EQ(outcome.kind, Told::kInDoubt);
  world_.fate = nullptr;
  world_.epoch = 2;
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
}

TEST_F(CommitLogTest, AnOlderEpochChangesNothingAlsoAfterARestart) {
  const Version id = clock_.Next();
  Prepare(0, id, Writes(0, 1));
  ASSERT_TRUE(Ask(0, CommitKind::kInquire, id, {}, 3).ok());
  for (int life = 0; life < 2; ++life) {
    for (const CommitKind kind : {CommitKind::kPrepare, CommitKind::kCommit, CommitKind::kAbort,
                                  CommitKind::kInquire, CommitKind::kForget}) {
      const auto reply = Ask(0, kind, id, Writes(0, 1), 2);
      EXPECT_TRUE(absl::IsPermissionDenied(reply.status())) << reply.status();
    }
    EXPECT_EQ(world_[0].log->Counts()->pending, 1u);
    world_.Restart(0, 1);
  }
  world_.epoch = 2;
  const GroupOutcome outcome = Write(Writes(1, 1));
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsPermissionDenied(outcome.why)) << outcome.why;
  EXPECT_EQ(world_[1].log->Counts()->pending, 0u) << "it was told";
  world_.epoch = 3;
  EXPECT_EQ(Write(Writes(1, 1)).kind, Told::kCommitted);
}

TEST_F(CommitLogTest, WhoseClockIsBehindLearnsFromARefusal) {
  HybridClock ahead = world_.Clock(2);
  ASSERT_TRUE(ahead.Observe(Version::Of(clock_.Next().ticks() + 5'000'000, 2)).ok());
  const auto written = world_.Client(2, &ahead)->Write(GroupWorld::Everywhere(Writes(0, 1)));
  ASSERT_EQ(written.kind, Told::kCommitted) << written.why;
  const GroupOutcome outcome = Write(Writes(0, 2));
  ASSERT_EQ(outcome.kind, Told::kCommitted) << outcome.why;
  EXPECT_GT(outcome.id, written.id);
  EXPECT_EQ(world_.TagAt(0, 0), 2u);
}

TEST_F(CommitLogTest, QuestionsThatMakeNoSenseAreRefused) {
  const Version id = clock_.Next();
  const auto is_invalid = [&](CommitMessage question) {
    return absl::IsInvalidArgument(world_[0].log->Ask(1, question).status());
  };
  CommitMessage good{.kind = CommitKind::kPrepare, .id = id, .part = {0, 0}};
  good.group = {{0, 0}, {1, 0}};
  good.payload = Writes(0, 1).Encode();
  std::vector<CommitMessage> bad(9, good);
  bad[0].kind = CommitKind::kPrepared;
  bad[1].id = Version();
  bad[2].part = {1, 0};
  bad[3].part = {0, 1};
  bad[4].group = {{1, 0}, {2, 0}};
  bad[5].group = {{0, 0}, {0, 0}};
  bad[6].group.clear();
  bad[7].payload.pop_back();
  bad[8].id = Version::Of(id.ticks() + 2 * HybridClock::kAheadTicksMax, 1);
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_TRUE(is_invalid(bad[i])) << i;
  EXPECT_TRUE(world_[0].log->Ask(1, good).ok());
  EXPECT_EQ(world_[0].log->Counts()->pending, 1u);
}

TEST_F(CommitLogTest, AnIdentifierIsOfOneGroup) {
  const Version id = clock_.Next();
  Prepare(0, id, Writes(0, 1));
  Prepare(0, id, Writes(0, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(0, CommitKind::kPrepare, id, Writes(1, 2)).status()));
  EXPECT_EQ(world_[0].log->Counts()->pending, 1u);
  ASSERT_TRUE(Ask(0, CommitKind::kCommit, id).ok());
  EXPECT_EQ(world_.TagAt(0, 0), 1u);
  EXPECT_EQ(world_.TagAt(0, 1), 0u);
}

TEST_F(CommitLogTest, AnObjectThatIsNotThereIsToldAndOneThatGoesIsPassedOver) {
  GroupPart part = Writes(0, 1);
  part.writes[0].id = 99;
  const GroupOutcome outcome = Write(part);
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsNotFound(outcome.why)) << outcome.why;
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(0, 1));
  ASSERT_TRUE(world_[1].store->Remove(GroupWorld::kObject).ok());
  world_.PassALease();
  EXPECT_EQ(world_.Pending(), 0u);
  EXPECT_EQ(world_[1].log->Counts()->dropped, 1u);
  EXPECT_EQ(world_.TagAt(0, 0), 1u);
}

// What is prepared and not decided fills the log; then groups are refused, the file does not grow,
// and what must be written can be.
TEST_F(CommitLogTest, TheLogIsBoundedAndAFullOneRefusesUntilItIsForgotten) {
  std::vector<Version> prepared;
  Refusal refusal = Refusal::kNone;
  for (uint64_t block = 0; block < 100 && refusal == Refusal::kNone; ++block) {
    const Version id = clock_.Next();
    const auto reply = Ask(0, CommitKind::kPrepare, id, Writes(block, 1));
    ASSERT_TRUE(reply.ok()) << reply.status();
    refusal = reply->refusal;
    if (refusal == Refusal::kNone) prepared.push_back(id);
  }
  EXPECT_EQ(refusal, Refusal::kFull);
  // A half of 64 KiB: six blocks in a checkpoint, with what goes with them, and one as a record.
  EXPECT_EQ(prepared.size(), 6u);
  const auto size = [&] { return *(*world_[0].disk->Open(LogFile::Name()))->Size(); };
  for (int round = 0; round < 200; ++round) {
    for (Version& id : prepared) {
      ASSERT_TRUE(Ask(0, round % 2 == 0 ? CommitKind::kAbort : CommitKind::kCommit, id).ok());
      ASSERT_TRUE(Ask(0, CommitKind::kForget, id).ok());
      id = clock_.Next();
      Prepare(0, id, Writes(100 + round, 1));
      break;  // one goes, one comes: it stays full
    }
    ASSERT_LE(size(), LogFile::kHeaderBytes + 2 * LogFile::kHalfBytesMin);
    if (round % 20 == 19) {
      ASSERT_GE(world_[0].log->Counts()->checkpoints, 3u);
      world_.Restart(0, round);
      ASSERT_EQ(world_[0].log->Counts()->pending, 6u);
      world_.Pass(2 * GroupWorld::kSecond);
    }
  }
}

TEST_F(CommitLogTest, AGroupLargerThanTheLogIsRefusedAndToldSo) {
  GroupPart part;
  part.writes.push_back({GroupWorld::kObject, 0, std::string(9 * ObjectStore::kBlockBytes, 'x')});
  const GroupOutcome outcome = Write(part);
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.why)) << outcome.why;
}

TEST_F(CommitLogTest, WhatIsWrittenTwiceIsWrittenOnceAndNeverOverNewer) {
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(0, 1));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Ask(0, CommitKind::kCommit, id).ok());
  // It is applied and not yet forgotten: after a restart it is applied again, and the later one,
  // which is forgotten, is not.
  const Version later = clock_.Next();
  const CommitMessage alone{.kind = CommitKind::kPrepare,
                            .id = later,
                            .part = {0, 0},
                            .group = {{0, 0}},
                            .payload = Writes(0, 2).Encode()};
  ASSERT_EQ(world_[0].log->Ask(1, alone)->message.kind, CommitKind::kPrepared);
  ASSERT_TRUE(Ask(0, CommitKind::kCommit, later).ok());
  ASSERT_TRUE(Ask(0, CommitKind::kForget, later).ok());
  world_[0].log->Resolve();  // which makes that durable
  EXPECT_EQ(world_.TagAt(0, 0), 2u);
  world_.Restart(0, 1);
  EXPECT_EQ(world_[0].log->Counts()->pending, 1u);
  EXPECT_EQ(world_.TagAt(0, 0), 2u);
  EXPECT_EQ(world_.VersionAt(0, 0), later);
}

// -- objects that are opened ----------------------------------------------------------------------

TEST_F(CommitLogTest, WhatIsShutOutIsRefusedForEverAndItsWriterToldSo) {
  bool is_open = false;
  uint64_t entered = 0, inside = 0;
  BeginAgain([&](CommitLog::Host* host) {
    host->enter = [&](const GroupPart& part) -> absl::StatusOr<std::shared_ptr<const void>> {
      EXPECT_EQ(part.fences.size(), 1u);
      EXPECT_EQ(part.fences[0].opening, kOpening);
      if (!is_open) return absl::UnauthenticatedError("it was opened for another client");
      ++entered;
      ++inside;
      return std::shared_ptr<const void>(&inside, [&](const void*) { --inside; });
    };
  });
  const GroupPart part = Fenced(Writes(0, 1));
  const Version id = clock_.Next();
  EXPECT_EQ(RefusalOf(0, id, part), Refusal::kShutOut);
  is_open = true;
  EXPECT_EQ(RefusalOf(0, id, part), Refusal::kOld) << "for ever";
  const Version later = clock_.Next();
  Prepare(0, later, part);
  EXPECT_EQ(entered, 2u);
  EXPECT_EQ(inside, 0u) << "it is inside until it is answered";
  is_open = false;
  // What was prepared is so, whoever asks once more.
  Prepare(0, later, part);
  const GroupOutcome outcome = Write(Fenced(Writes(5, 1)));
  EXPECT_EQ(outcome.kind, Told::kAborted);
  EXPECT_TRUE(absl::IsUnauthenticated(outcome.why)) << outcome.why;
  EXPECT_EQ(world_[1].log->Counts()->pending, 0u) << "it was told";
  ASSERT_TRUE(Ask(0, CommitKind::kAbort, later).ok());
  is_open = true;
  EXPECT_EQ(Write(Fenced(Writes(5, 1))).kind, Told::kCommitted);
}

TEST_F(CommitLogTest, WhatALaterOpeningHasPunchedDoesNotComeBack) {
  bool is_over = false;
  BeginAgain([&](CommitLog::Host* host) {
    host->is_over = [&](const GroupFence& fence) -> absl::StatusOr<bool> {
      EXPECT_EQ(fence.id, GroupWorld::kObject);
      EXPECT_EQ(fence.opening, kOpening);
      return is_over;
    };
  });
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Fenced(Writes(0, 1)));
  ASSERT_TRUE(Ask(0, CommitKind::kCommit, id).ok());
  ASSERT_EQ(world_.TagAt(0, 0), 1u);
  const auto punch = [&] {
    ObjectStore& store = *world_[0].store;
    ASSERT_TRUE(
        store.Punch(GroupWorld::kObject, 0, ObjectStore::kBlockBytes, clock_.Next().value).ok());
    ASSERT_TRUE(store.Flush(GroupWorld::kObject).ok());
  };
  // It is committed and not forgotten. Nobody has told this server that it is settled:
  punch();
  world_.Restart(0, 1);
  EXPECT_EQ(world_.TagAt(0, 0), 1u);
  punch();
  is_over = true;
  world_.Restart(0, 1);
  EXPECT_EQ(world_.TagAt(0, 0), 0u);
  EXPECT_EQ(world_[0].log->Counts()->dropped, 1u);
  EXPECT_EQ(world_[0].log->Counts()->applied, 1u) << "it may be forgotten";
}

TEST_F(CommitLogTest, WhatIsWrittenIsTold) {
  std::vector<std::pair<uint64_t, uint64_t>> told;
  BeginAgain([&](CommitLog::Host* host) {
    host->written = [&](ObjectId id, uint64_t offset, uint64_t bytes) {
      EXPECT_EQ(id, GroupWorld::kObject);
      told.emplace_back(offset, bytes);
    };
  });
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(3, 1));
  EXPECT_TRUE(told.empty()) << "it is not written yet";
  ASSERT_TRUE(Ask(0, CommitKind::kCommit, id).ok());
  constexpr uint64_t kBytes = ObjectStore::kBlockBytes;
  EXPECT_EQ(told, (std::vector<std::pair<uint64_t, uint64_t>>{{3 * kBytes, kBytes}}));
}

TEST_F(CommitLogTest, GroupsOfAnObjectAreToldUntilTheyAreForgotten) {
  constexpr uint64_t kBytes = ObjectStore::kBlockBytes;
  const Version first = clock_.Next(), other = clock_.Next(), second = clock_.Next();
  Prepare(0, first, Fenced(Writes(3, 1)));
  Prepare(0, other, Writes(4, 1));  // of no opening
  Prepare(0, second, Fenced(Writes(5, 1), Version{11}));
  EXPECT_TRUE(PendingAt(0, GroupWorld::kObject + 1).empty());
  EXPECT_TRUE(PendingAt(1).empty());
  EXPECT_EQ(world_[0].log->NewestOpening().value_or(Version()), Version{11});
  EXPECT_EQ(world_[1].log->NewestOpening().value_or(Version{1}), Version());
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    const std::vector<PendingGroup> pending = PendingAt(0);
    ASSERT_EQ(pending.size(), 2u);
    EXPECT_EQ(pending[0].id, first);
    EXPECT_EQ(pending[0].opening, kOpening);
    EXPECT_EQ(pending[0].group.size(), kGroupServers);
    EXPECT_EQ(pending[0].ranges, (std::vector<Range>{{3 * kBytes, kBytes}}));
    EXPECT_EQ(pending[1].id, second);
    EXPECT_EQ(pending[1].opening, Version{11});
    EXPECT_FALSE(pending[0].committed || pending[0].held || pending[1].committed);
    world_.Restart(0, 1);
  }
  using Orders = std::vector<GroupOrder>;
  const Orders orders{{first, GroupFate::kCommit}, {second, GroupFate::kAbort}};
  ASSERT_TRUE(world_[0].log->Settle(By(), orders).ok());
  EXPECT_EQ(world_.TagAt(0, 3), 1u);
  EXPECT_EQ(world_.TagAt(0, 5), 0u);
  ASSERT_EQ(PendingAt(0).size(), 1u);
  EXPECT_TRUE(PendingAt(0)[0].committed);
  EXPECT_FALSE(PendingAt(0)[0].held);
  ASSERT_TRUE(world_[0].log->Settle(By(), Orders{{first, GroupFate::kForget}}).ok());
  EXPECT_TRUE(PendingAt(0).empty());
}

// Else who has been told of it would have it committed at one server, and find it gone at another.
TEST_F(CommitLogTest, WhatAnOpeningWasToldOfIsAbortedByNobodyElse) {
  using Orders = std::vector<GroupOrder>;
  const Version first = clock_.Next(), second = clock_.Next();
  Prepare(0, first, Fenced(Writes(0, 1)));
  Prepare(0, second, Fenced(Writes(1, 1)));
  ASSERT_EQ(PendingAt(0).size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(Ask(0, CommitKind::kAbort, first).status()));
  ASSERT_TRUE(world_[0].log->Settle(By(), Orders{{first, GroupFate::kAbort}}).ok());
  EXPECT_EQ(PendingAt(0).size(), 1u);
  // Had committed by somebody meanwhile, it is, and is written when the order was carried out.
  ASSERT_TRUE(Ask(0, CommitKind::kCommit, second).ok());
  ASSERT_TRUE(world_[0].log->Settle(By(), Orders{{second, GroupFate::kAbort}}).ok());
  EXPECT_EQ(world_.TagAt(0, 1), 1u);
  ASSERT_EQ(PendingAt(0).size(), 1u);
  EXPECT_TRUE(PendingAt(0)[0].committed);
}

// A member that has not prepared it says that it is committed when it is asked, and would let all
// others forget it.
TEST_F(CommitLogTest, WhatIsCommittedWithoutTheWordOfAllIsToldUntilALaterOpeningHasSeenToIt) {
  bool is_over = false;
  BeginAgain([&](CommitLog::Host* host) {
    host->is_over = [&](const GroupFence&) -> absl::StatusOr<bool> { return is_over; };
  });
  const Version id = clock_.Next();
  Prepare(0, id, Fenced(Writes(0, 1)));
  Prepare(1, id, Fenced(Writes(0, 1)));
  using Orders = std::vector<GroupOrder>;
  ASSERT_TRUE(world_[0].log->Settle(By(), Orders{{id, GroupFate::kCommitHeld}}).ok());
  EXPECT_EQ(world_.TagAt(0, 0), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      world_[0].log->Settle(By(), Orders{{clock_.Next(), GroupFate::kCommitHeld}})));
  world_.resolves_meanwhile = false;
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    ASSERT_TRUE(Ask(0, CommitKind::kAbort, id).ok());
    ASSERT_TRUE(Ask(0, CommitKind::kForget, id).ok());
    ASSERT_EQ(PendingAt(0).size(), 1u);
    EXPECT_TRUE(PendingAt(0)[0].committed && PendingAt(0)[0].held);
    EXPECT_EQ(world_.TagAt(0, 0), 1u);
    world_.Restart(0, 1);
  }
  // Nor by the servers themselves: the third one, which has nothing of it, has been asked.
  world_.PassALease();
  ASSERT_EQ(PendingAt(0).size(), 1u);
  EXPECT_TRUE(PendingAt(0)[0].held);
  EXPECT_EQ(world_.TagAt(1, 0), 0u)
      << "who has only prepared it is told by an opening's order only";
  // Nor where such an opening has written a record here: no other server may have one.
  is_over = true;
  world_.PassALease();
  EXPECT_EQ(PendingAt(0).size(), 1u);
  ASSERT_TRUE(world_[0].log->Settle(By(), Orders{{id, GroupFate::kForget}}).ok());
  EXPECT_TRUE(PendingAt(0).empty());
}

// Nobody opens it here any more.
TEST_F(CommitLogTest, WhatIsHeldOfAnObjectThatWasRemovedIsForgotten) {
  const Version id = clock_.Next();
  Prepare(0, id, Fenced(Writes(0, 1)));
  const std::vector<GroupOrder> orders{{id, GroupFate::kCommitHeld}};
  ASSERT_TRUE(world_[0].log->Settle(By(), orders).ok());
  world_.PassALease();
  EXPECT_EQ(PendingAt(0).size(), 1u);
  ASSERT_TRUE(world_[0].store->Remove(GroupWorld::kObject).ok());
  world_.PassALease();
  EXPECT_TRUE(PendingAt(0).empty());
}

// A later opening could find it prepared, and commit it without those who have nothing of it.
TEST_F(CommitLogTest, WhatAnOpeningHasAbortedIsNotBackAfterACrash) {
  const Version id = clock_.Next();
  Prepare(0, id, Fenced(Writes(0, 1)));
  const std::vector<GroupOrder> orders{{id, GroupFate::kAbort}};
  ASSERT_TRUE(world_[0].log->Settle(By(), orders).ok());
  world_.Restart(0, 1);
  EXPECT_TRUE(PendingAt(0).empty());
}

TEST_F(CommitLogTest, ALogThatIsStoppedSaysNothingMore) {
  const Version id = clock_.Next();
  Prepare(0, id, Fenced(Writes(0, 1)));
  const uint64_t calls = world_[0].disk->Calls();
  world_[0].log->Stop();
  EXPECT_FALSE(Ask(0, CommitKind::kCommit, id).ok());
  EXPECT_TRUE(absl::IsUnavailable(world_[0].log->PendingOf(GroupWorld::kObject).status()));
  EXPECT_FALSE(world_[0].log->Settle(By(), std::vector<GroupOrder>{{id, GroupFate::kCommit}}).ok());
  world_[0].log->Resolve();
  EXPECT_EQ(world_[0].disk->Calls(), calls);
  world_.Restart(0, 1);
  EXPECT_EQ(PendingAt(0).size(), 1u);
}

// It keeps its blocks, also over a restart: who comes later would rest on what is not there yet.
TEST_F(CommitLogTest, WhatTheStoreDoesNotTakeKeepsItsBlocksAndIsTriedAgain) {
  world_.quota_bytes = 20 * ObjectStore::kBlockBytes;
  world_.Restart(0, 1);
  world_.Pass(2 * GroupWorld::kSecond);
  ObjectStore& store = *world_[0].store;
  const Version id = clock_.Next();
  for (size_t i = 0; i < kGroupServers; ++i) Prepare(i, id, Writes(0, 1));
  ASSERT_TRUE(store.CreateAs(8, "", 1).ok());
  const std::string all(20 * ObjectStore::kBlockBytes, 'x');
  ASSERT_TRUE(store.Write(8, 0, all, 1).ok());
  ASSERT_TRUE(store.Flush(8).ok());
  GroupPart more = Writes(1, 3);
  EXPECT_EQ(RefusalOf(0, clock_.Next(), more), Refusal::kFull);
  EXPECT_TRUE(absl::IsUnavailable(Ask(0, CommitKind::kCommit, id).status()));
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(world_[0].log->Counts()->stuck, 1u);
    EXPECT_EQ(world_.TagAt(0, 0), 0u);
    GroupPart rests_on_it;
    rests_on_it.reads.push_back({GroupWorld::kObject, 0, Version()});
    EXPECT_EQ(RefusalOf(0, clock_.Next(), rests_on_it), Refusal::kClaimed);
    if (life == 0) {
      // Of what was not answered nothing need be durable; this makes it so.
      rests_on_it.reads[0].block = 9;
      const Version other = clock_.Next();
      Prepare(0, other, rests_on_it);
      ASSERT_TRUE(Ask(0, CommitKind::kAbort, other).ok());
      world_.Restart(0, 1);
    }
    world_.Pass(2 * GroupWorld::kSecond);
  }
  ASSERT_TRUE(world_[0].store->Truncate(8, 0, 2).ok());
  ASSERT_TRUE(world_[0].store->Flush(8).ok());
  world_.PassALease();
  EXPECT_EQ(world_[0].log->Counts()->stuck, 0u);
  EXPECT_EQ(world_.Pending(), 0u);
  for (size_t i = 0; i < kGroupServers; ++i) EXPECT_EQ(world_.TagAt(i, 0), 1u);
}

// What it had refused is not known any more.
TEST_F(CommitLogTest, ALogThatWasLostRefusesWhatIsOlderThanTheNewOne) {
  const Version id = clock_.Next();
  world_.Pass(GroupWorld::kSecond);
  world_[0].log.reset();
  ASSERT_TRUE(world_[0].disk->Remove(LogFile::Name()).ok());
  ASSERT_TRUE(world_[0].disk->SyncDirectory("").ok());
  world_.Restart(0, 1);
  EXPECT_EQ(RefusalOf(0, id, Writes(0, 1)), Refusal::kOld);
  world_.Pass(GroupWorld::kSecond);
  Prepare(0, clock_.Next(), Writes(0, 1));
}

TEST_F(CommitLogTest, ALogThatCannotBeWrittenSaysSoAndIsRecovered) {
  const Version id = clock_.Next();
  Prepare(0, id, Writes(0, 1));
  world_[0].disk->CutPowerAfter(0);
  EXPECT_FALSE(Ask(0, CommitKind::kPrepare, clock_.Next(), Writes(1, 1)).ok());
  EXPECT_TRUE(absl::IsUnavailable(Ask(0, CommitKind::kInquire, id).status()));
  world_.Restart(0, 1);
  EXPECT_EQ(world_[0].log->Counts()->pending, 1u);
}

TEST_F(CommitLogTest, ADiskWithoutRoomForTheLogRefusesWhatIsNewUntilThereIsSome) {
  bool is_full = false;
  world_.log_fault = [&](size_t server, std::string_view call) {
    return server == 0 && is_full && call == "write" ? absl::ResourceExhaustedError("full")
                                                     : absl::OkStatus();
  };
  world_.Restart(0, 1);
  world_.Pass(2 * GroupWorld::kSecond);
  const Version first = clock_.Next(), cut_off = clock_.Next(), last = clock_.Next();
  Prepare(0, first, Writes(0, 1));
  is_full = true;
  // Nobody knows whether it is prepared.
  const auto asked = Ask(0, CommitKind::kPrepare, cut_off, Writes(1, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(asked.status())) << asked.status();
  EXPECT_EQ(RefusalOf(0, clock_.Next(), Writes(2, 1)), Refusal::kFull);
  EXPECT_TRUE(Ask(0, CommitKind::kInquire, first).ok()) << "what is durable is told";
  world_.Pass(2 * GroupWorld::kSecond);
  const auto beyond = Ask(0, CommitKind::kPrepare, clock_.Next(), Writes(2, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(beyond.status())) << "its refusal is not durable";
  for (int again = 0; again < 2; ++again) {
    const auto of_new_epoch = Ask(0, CommitKind::kInquire, first, {}, 2);
    EXPECT_TRUE(absl::IsResourceExhausted(of_new_epoch.status())) << of_new_epoch.status();
  }
  is_full = false;
  EXPECT_TRUE(Ask(0, CommitKind::kInquire, first, {}, 2).ok());
  for (const auto& [id, block] : {std::pair(cut_off, 1), std::pair(last, 2)}) {
    const auto prepared = Ask(0, CommitKind::kPrepare, id, Writes(block, 1), 2);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_EQ(prepared->message.kind, CommitKind::kPrepared);
  }
  is_full = true;
  world_.Restart(0, 1);
  ASSERT_TRUE(world_.IsUp(0)) << "it is recovered, and waits for room";
  EXPECT_EQ(world_[0].log->Counts()->pending, 3u);
  const auto inquired = Ask(0, CommitKind::kInquire, first, {}, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(inquired.status())) << inquired.status();
  is_full = false;
  EXPECT_TRUE(Ask(0, CommitKind::kInquire, first, {}, 2).ok());
  world_.Restart(0, 2);
  EXPECT_EQ(world_[0].log->Counts()->pending, 3u);
}

}  // namespace
}  // namespace abacus::objfs
