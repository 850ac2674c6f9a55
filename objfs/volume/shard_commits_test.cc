// Transactions over several shards, one after the other; shard_commits_crash_test.cc has those in
// which somebody dies.

#include "objfs/volume/shard_commits.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/volume/testing/shard_commits_world.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::IsOutcomeUnknown;
using ::testing::ElementsAre;
using testing::Fate;
using ::testing::HasSubstr;
using testing::kWorldShards;
using testing::ShardCommitsWorld;

constexpr uint16_t kClient = ShardCommitsWorld::kClient, kOther = ShardCommitsWorld::kOther;
constexpr uint64_t kEntries = ShardCommitsWorld::kEntries;

class ShardCommitsTest : public ::testing::Test {
 protected:
  using World = ShardCommitsWorld;

  // `entries` from shard 1 to shard 0, which coordinates it.
  absl::StatusOr<Outcome> Transfer(int64_t entries) {
    return world_.Commit(0, world_.Changes(0, entries),
                         {World::At(1, world_.Changes(1, -entries))});
  }
  void ExpectTransferred(int64_t entries) {
    EXPECT_EQ(world_.EntriesOf(0), kEntries + static_cast<uint64_t>(entries));
    EXPECT_EQ(world_.EntriesOf(1), kEntries - static_cast<uint64_t>(entries));
    EXPECT_EQ(world_.EntriesOf(2), kEntries);
  }
  // And nobody knows of anything that is under way.
  void ExpectNothingHeld() {
    EXPECT_TRUE(world_.IsQuiet());
    for (uint32_t s = 0; s < kWorldShards; ++s) EXPECT_TRUE(world_.IsFree(s)) << s;
  }
  // A group of shard `coordinator` is prepared at shard 1, which hears no more of it.
  ShardGroup PrepareAtOne(uint32_t coordinator, int64_t entries) {
    const auto group = world_[coordinator].table->NewGroup();
    EXPECT_TRUE(group.ok()) << group.status();
    const auto prepared = world_[1].commits->Prepare({.group = *group,
                                                      .coordinator = coordinator,
                                                      .writer = kClient,
                                                      .transaction = world_.Changes(1, entries)});
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return *group;
  }

  World world_;
};

TEST_F(ShardCommitsTest, AllShardsDoTheirPartsAndThenForgetIt) {
  const auto outcome = world_.Commit(
      0, world_.Marks(0, 2, 5, "a"),
      {World::At(2, world_.Marks(2, -1, 5, "c")), World::At(1, world_.Marks(1, -1, 5, "b"))});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->state, CommitState::kCommitted);
  // Of all, the coordinator's first.
  ASSERT_EQ(outcome->nodes.size(), kWorldShards);
  for (uint32_t s = 0; s < kWorldShards; ++s) {
    EXPECT_EQ(outcome->nodes[s].id, world_[s].directory);
    EXPECT_EQ(outcome->nodes[s].inode.entries, world_.EntriesOf(s));
  }
  EXPECT_EQ(world_.EntriesOf(0), kEntries + 2);
  EXPECT_EQ(world_.EntriesOf(1), kEntries - 1);
  EXPECT_EQ(world_.EntriesOf(2), kEntries - 1);
  EXPECT_EQ(world_[0].commits->records_used(), 1u);
  EXPECT_EQ(world_[1].commits->records_used(), 0u);
  const ShardGroup group = world_.last_group;
  EXPECT_EQ(*world_[0].commits->DecisionOf(group), ShardDecision::kCommitted);
  EXPECT_GE(world_[0].released + world_[1].released + world_[2].released, 3u);

  world_.Tick(0);
  ExpectNothingHeld();
  EXPECT_EQ(*world_[0].commits->DecisionOf(group), ShardDecision::kAborted);
  world_.KillAll();
  world_.RestartTheDead(/*seed=*/1);
  ASSERT_TRUE(world_.TickUntilQuiet());
  for (uint32_t s = 0; s < kWorldShards; ++s) {
    EXPECT_EQ(world_.MarkAt(s, 5), std::string(1, static_cast<char>('a' + s)));
  }
}

// -- what is refused ------------------------------------------------------------------------------

TEST_F(ShardCommitsTest, WhatOneShardRefusesNoneDoes) {
  ASSERT_TRUE(
      world_.Commit(0, world_.Marks(0, 0, 9, "x"), {World::At(1, world_.Marks(1, 0, 9, "x"))})
          .ok());
  ASSERT_TRUE(world_.TickUntilQuiet());
  struct Case {
    CommitState state;
    std::function<Transaction(uint32_t shard)> refused;
  };
  const std::vector<Case> cases = {
      {CommitState::kStale, [&](uint32_t s) { return world_.Marks(s, 1, 9, "y"); }},
      {CommitState::kGone,
       [&](uint32_t s) {
         Transaction transaction = world_.Changes(s, 1);
         transaction.parts.push_back({.id = world_[s].directory + 1'000'000});
         return transaction;
       }},
      {CommitState::kNotEmpty,
       [&](uint32_t s) {
         Transaction transaction = world_.Changes(s, 1);
         transaction.parts.back().must_be_empty = true;
         return transaction;
       }},
      {CommitState::kTree,
       [&](uint32_t s) {
         Transaction transaction = world_.Changes(s, 1);
         transaction.tree = world_[s].table->TreeVersion() + 1;
         return transaction;
       }},
  };
  for (const Case& one : cases) {
    for (const uint32_t refuses : {0u, 1u}) {
      SCOPED_TRACE(absl::StrCat("state ", static_cast<int>(one.state), ", shard ", refuses));
      const uint64_t before = world_.messages();
      // The one before it in the order of shards is prepared when it is asked.
      const auto outcome =
          refuses == 0
              ? world_.Commit(0, one.refused(0), {World::At(1, world_.Changes(1, 1))})
              : world_.Commit(2, world_.Changes(2, 1),
                              {World::At(0, world_.Changes(0, 1)), World::At(1, one.refused(1))});
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->state, one.state);
      if (refuses == 0) {
        EXPECT_EQ(world_.messages(), before);
      }
      for (uint32_t s = 0; s < kWorldShards; ++s) EXPECT_EQ(world_.EntriesOf(s), kEntries) << s;
      ExpectNothingHeld();
    }
  }
}

TEST_F(ShardCommitsTest, WhatIsHeldForAnotherGroupIsToComeAgain) {
  const ShardGroup group = PrepareAtOne(/*coordinator=*/2, 5);
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  EXPECT_TRUE(IsWouldBlock(Transfer(1).status()));
  EXPECT_TRUE(world_.IsFree(0));
  EXPECT_FALSE(world_.IsFree(1));
  EXPECT_THAT(world_[1].table->TakeRefused({world_[1].directory}), ElementsAre(kClient, kOther));
  // A second time, as the answer was lost.
  EXPECT_TRUE(world_[1]
                  .commits
                  ->Prepare({.group = group,
                             .coordinator = 2,
                             .writer = kClient,
                             .transaction = world_.Changes(1, 5)})
                  .ok());
  EXPECT_EQ(world_[1].commits->records_used(), 1u);
  const uint64_t released = world_[1].released;
  ASSERT_TRUE(world_[1].commits->Decide(group, /*commits=*/false).ok());
  EXPECT_GT(world_[1].released.load(), released);
  ExpectNothingHeld();
  ExpectTransferred(0);
  EXPECT_TRUE(Transfer(1).ok());
  ExpectTransferred(1);
}

TEST_F(ShardCommitsTest, AClientThatAShardDoesNotKnowIsToJoinThatOne) {
  const auto outcome =
      world_.Commit(0, world_.Changes(0, 1), {World::At(1, world_.Changes(1, -1), /*writer=*/99)});
  EXPECT_EQ(ShardThatIsAway(outcome.status()), 1u);
  EXPECT_FALSE(IsNoClient(outcome.status()));
  ExpectTransferred(0);
  ExpectNothingHeld();
  EXPECT_FALSE(ShardThatIsAway(absl::OkStatus()).has_value());
  EXPECT_FALSE(ShardThatIsAway(absl::UnavailableError("shard 1")).has_value());
  EXPECT_EQ(ShardThatIsAway(ShardIsAway(15, absl::NotFoundError("x"))), 15u);
}

TEST_F(ShardCommitsTest, ShardsThatCannotBeAreMistakes) {
  const Transaction own = world_.Changes(0, 1);
  const auto refused = [&](const std::vector<ShardTransaction>& others) {
    return absl::IsInvalidArgument(world_.Commit(0, own, others).status());
  };
  EXPECT_TRUE(refused({World::At(0, world_.Changes(0, 1))}));
  EXPECT_TRUE(refused({World::At(kShardsMax, world_.Changes(1, 1))}));
  EXPECT_TRUE(refused({World::At(1, world_.Changes(1, 1)), World::At(1, world_.Changes(1, 1))}));
  Transaction makes = world_.Changes(1, 1);
  makes.parts.back().creation.emplace();
  EXPECT_TRUE(refused({World::At(1, makes)}));
  Transaction closes = world_.Changes(1, 1);
  closes.parts.back().closes = true;
  EXPECT_TRUE(refused({World::At(1, closes)}));
  // Of a group of another shard than it says, nobody could be asked.
  const auto group = world_[2].table->NewGroup();
  EXPECT_TRUE(absl::IsInvalidArgument(
      world_[1].commits->Prepare({.group = *group, .coordinator = 0, .writer = kClient}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(world_[1].commits->DecisionOf(*group).status()));
  ExpectTransferred(0);
  ExpectNothingHeld();
}

// Each kind of record has its share of the slots, and so has each coordinator.
TEST_F(ShardCommitsTest, NoMoreAreUnderWayThanThereAreSlotsFor) {
  std::vector<ShardGroup> groups;
  const auto prepare = [&](uint32_t coordinator) {
    const auto group = world_[coordinator].table->NewGroup();
    EXPECT_TRUE(group.ok()) << group.status();
    groups.push_back(*group);
    return world_[1]
        .commits->Prepare({.group = *group, .coordinator = coordinator, .writer = kClient})
        .status();
  };
  for (const uint32_t coordinator : {2u, 0u}) {
    EXPECT_TRUE(Transfer(0).ok()) << "the other coordinator's are not its own";
    for (size_t i = 0; i < ShardCommits::kPreparedOfOneMax; ++i) {
      const absl::Status prepared = prepare(coordinator);
      ASSERT_TRUE(prepared.ok()) << prepared;
    }
    EXPECT_TRUE(IsWouldBlock(prepare(coordinator)));
    groups.pop_back();
  }
  EXPECT_EQ(groups.size(), ShardCommits::kPreparedMax);
  EXPECT_TRUE(IsWouldBlock(Transfer(1).status()));
  // It coordinates as many as before.
  EXPECT_TRUE(world_.Commit(1, world_.Changes(1, 0), {World::At(2, world_.Changes(2, 0))}).ok());
  for (const ShardGroup group : groups) {
    ASSERT_TRUE(world_[1].commits->Decide(group, /*commits=*/false).ok());
  }
  ASSERT_TRUE(world_.TickUntilQuiet());

  for (size_t i = 0; i < ShardCommits::kCoordinatedMax; ++i) {
    ASSERT_TRUE(world_.Commit(0, world_.Changes(0, 0), {}).ok());
  }
  EXPECT_TRUE(IsWouldBlock(world_.Commit(0, world_.Changes(0, 0), {}).status()));
  // And others find it as ready as before.
  EXPECT_TRUE(world_.Commit(1, world_.Changes(1, 0), {World::At(0, world_.Changes(0, 0))}).ok());
  world_.Tick(0);
  EXPECT_TRUE(Transfer(1).ok());
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectTransferred(1);
}

// -- messages that are lost -----------------------------------------------------------------------

TEST_F(ShardCommitsTest, WhereAnAnswerToPrepareIsMissingNothingIsDone) {
  for (const Fate fate : {Fate::kIsLost, Fate::kAnswerIsLost}) {
    for (const bool loses_all : {false, true}) {
      SCOPED_TRACE(absl::StrCat("fate ", static_cast<int>(fate), ", all ", loses_all));
      const uint64_t first = world_.messages();
      world_.fate = [&](uint64_t message, uint32_t, uint32_t) {
        return message == first ? fate : loses_all ? Fate::kIsLost : Fate::kArrives;
      };
      const auto outcome = Transfer(1);
      EXPECT_EQ(ShardThatIsAway(outcome.status()), 1u) << outcome.status();
      EXPECT_FALSE(IsOutcomeUnknown(outcome.status()));
      EXPECT_TRUE(world_.IsFree(0));
      world_.fate = nullptr;
      // Who was told to abort has done so; else it asks, when it has waited for a while.
      const bool is_prepared = fate == Fate::kAnswerIsLost && loses_all;
      EXPECT_EQ(world_[1].commits->in_doubt(), is_prepared ? 1u : 0u);
      world_.Tick(1);
      EXPECT_EQ(world_[1].commits->in_doubt(), is_prepared ? 1u : 0u);
      world_.Pass(absl::Seconds(3));
      world_.Tick(1);
      ExpectNothingHeld();
      ExpectTransferred(0);
    }
  }
}

TEST_F(ShardCommitsTest, WhoHearsLateThatItIsCommittedDoesItLate) {
  for (const bool asks : {false, true}) {
    SCOPED_TRACE(asks);
    const uint64_t first = world_.messages();
    world_.fate = [&](uint64_t message, uint32_t, uint32_t) {
      return message == first ? Fate::kArrives : Fate::kIsLost;
    };
    const auto outcome = Transfer(asks ? 1 : 2);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->nodes.size(), 1u);
    EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
    EXPECT_FALSE(world_.IsFree(1));
    world_.fate = nullptr;
    world_.Pass(absl::Seconds(3));
    world_.Tick(asks ? 1 : 0);
    EXPECT_EQ(world_[1].commits->in_doubt(), 0u);
    EXPECT_TRUE(world_.IsFree(1));
    ASSERT_TRUE(world_.TickUntilQuiet());
  }
  ExpectTransferred(3);
}

// Each question to a server that answers nothing may take its time.
TEST_F(ShardCommitsTest, WhoIsSilentIsAskedOnceInALook) {
  ASSERT_TRUE(Transfer(1).ok());  // it is to be settled
  const uint64_t second = world_.messages();
  world_.fate = [&](uint64_t message, uint32_t, uint32_t) {
    return message == second ? Fate::kArrives : Fate::kIsLost;
  };
  ASSERT_TRUE(Transfer(1).ok());  // this is to be told
  world_.Pass(absl::Seconds(3));
  uint64_t before = world_.messages();
  world_.Tick(0);
  EXPECT_EQ(world_.messages(), before + 1);
  // And these are to be asked for.
  for (int i = 0; i < 2; ++i) {
    const auto group = world_[1].table->NewGroup();
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_TRUE(
        world_[0].commits->Prepare({.group = *group, .coordinator = 1, .writer = kClient}).ok());
  }
  world_.Pass(absl::Seconds(3));
  before = world_.messages();
  world_.Tick(0);
  EXPECT_EQ(world_.messages(), before + 1);
  world_.fate = nullptr;
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectTransferred(2);
  ExpectNothingHeld();
}

TEST_F(ShardCommitsTest, WhatWasDoneIsNotDoneAgain) {
  const uint64_t first = world_.messages();
  world_.fate = [&](uint64_t message, uint32_t, uint32_t) {
    return message == first + 1 ? Fate::kAnswerIsLost : Fate::kArrives;
  };
  const auto outcome = Transfer(1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->nodes.size(), 1u);  // the second answer had none
  EXPECT_TRUE(world_[1].commits->Decide(world_.last_group, /*commits=*/true).ok());
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectTransferred(1);
}

// -- who asks, and who answers --------------------------------------------------------------------

TEST_F(ShardCommitsTest, WhatNobodyKnowsIsAborted) {
  const ShardGroup group = PrepareAtOne(/*coordinator=*/0, 5);
  EXPECT_EQ(*world_[0].commits->DecisionOf(group), ShardDecision::kAborted);
  world_.Pass(absl::Seconds(3));
  world_.Tick(1);
  ExpectNothingHeld();
  ExpectTransferred(0);
}

TEST_F(ShardCommitsTest, WhoDoesNotServeSaysNothing) {
  const ShardGroup group = PrepareAtOne(/*coordinator=*/0, 5);
  world_[0].serves = false;
  EXPECT_TRUE(IsNoClient(world_[0].commits->DecisionOf(group).status()));
  world_.Pass(absl::Seconds(3));
  world_.Tick(1);
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  EXPECT_TRUE(IsNoClient(Transfer(1).status()));
  world_[1].serves = false;
  EXPECT_TRUE(IsNoClient(world_[1].commits->Decide(group, /*commits=*/true).status()));
  EXPECT_TRUE(IsNoClient(world_[1].commits->Settle({})));
  EXPECT_TRUE(IsNoClient(
      world_[1].commits->Prepare({.group = group, .coordinator = 0, .writer = kClient}).status()));
  world_[0].serves = true;
  world_.Tick(1);  // which asks nothing then
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  world_[1].serves = true;
  world_.Tick(1);
  ExpectNothingHeld();
}

TEST_F(ShardCommitsTest, WhoAsksWhileItIsBeingDecidedIsToAskAgain) {
  uint64_t asked = 0;
  world_.answered = [&](uint64_t message) {
    if (message != 0) return;
    world_.Pass(absl::Seconds(3));
    world_.Tick(1);
    ++asked;
    EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  };
  // Whatever its disk does meanwhile.
  world_.at_disk = [&](uint32_t shard, std::string_view, uint64_t) {
    if (shard != 0 || world_.last_group == 0) return absl::OkStatus();
    const auto decision = world_[0].commits->DecisionOf(world_.last_group);
    EXPECT_TRUE(decision.ok()) << decision.status();
    if (decision.ok()) {
      EXPECT_EQ(*decision, ShardDecision::kUndecided);
    }
    ++asked;
    return absl::OkStatus();
  };
  const auto outcome =
      world_.Commit(0, world_.Changes(0, 2),
                    {World::At(1, world_.Changes(1, -1)), World::At(2, world_.Changes(2, -1))});
  world_.at_disk = nullptr;
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(asked, 2u);
  EXPECT_EQ(*world_[0].commits->DecisionOf(world_.last_group), ShardDecision::kCommitted);
  ASSERT_TRUE(world_.TickUntilQuiet());
  EXPECT_EQ(world_.EntriesOf(0), kEntries + 2);
  EXPECT_EQ(world_.EntriesOf(1), kEntries - 1);
  EXPECT_EQ(world_.EntriesOf(2), kEntries - 1);
}

TEST_F(ShardCommitsTest, WhatIsCalledOffWhileItIsAtTheDiskIsNotPrepared) {
  bool called_off = false;
  world_.at_disk = [&](uint32_t shard, std::string_view call, uint64_t) {
    if (shard != 1 || call != "sync" || std::exchange(called_off, true)) return absl::OkStatus();
    // As a message that came before the answer.
    EXPECT_TRUE(world_[1].commits->Decide(world_.last_group, /*commits=*/false).ok());
    // And until it is over nobody is told that it was prepared.
    EXPECT_TRUE(absl::IsUnavailable(
        world_[1]
            .commits->Prepare({.group = world_.last_group, .coordinator = 0, .writer = kClient})
            .status()));
    return absl::OkStatus();
  };
  const auto outcome = Transfer(1);
  EXPECT_TRUE(called_off);
  EXPECT_TRUE(absl::IsUnavailable(outcome.status())) << outcome.status();
  EXPECT_THAT(outcome.status().ToString(), HasSubstr("shard 1"));
  ExpectTransferred(0);
  ExpectNothingHeld();
}

// -- disks ----------------------------------------------------------------------------------------

TEST_F(ShardCommitsTest, WhatIsPreparedIsHeldOverARestart) {
  const ShardGroup group = PrepareAtOne(/*coordinator=*/0, 5);
  world_.Kill(1);
  world_.Restart(1, /*seed=*/3);
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  EXPECT_FALSE(world_.IsFree(1));
  // Nobody is promised to know what may change.
  EXPECT_THAT(world_[1].altering_again, ElementsAre(world_[1].directory));
  EXPECT_TRUE(absl::IsFailedPrecondition(world_[1].commits->Settle({group})));
  world_.Tick(1);  // which asks at once
  ExpectNothingHeld();
  EXPECT_TRUE(world_[1].commits->Settle({group}).ok());
}

// Its flush fails for that, as no copy answers it any more.
TEST_F(ShardCommitsTest, WhoIsDeposedWhileItPreparesIsAway) {
  world_.at_disk = [&](uint32_t shard, std::string_view call, uint64_t) {
    if (shard != 1 || call != "sync" || world_.last_group == 0) return absl::OkStatus();
    world_[1].serves = false;
    return absl::UnavailableError("no copy answers");
  };
  const auto outcome = Transfer(1);
  world_.at_disk = nullptr;
  EXPECT_FALSE(world_[1].serves);
  EXPECT_EQ(ShardThatIsAway(outcome.status()), 1u) << outcome.status();
  EXPECT_TRUE(world_.IsFree(0));
  world_.Kill(1);
  world_.Restart(1, /*seed=*/1);
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectTransferred(0);
  ExpectNothingHeld();
}

// The commit point is not reached, and it is not known whether it will be.
TEST_F(ShardCommitsTest, WhatCannotBeMadeDurableIsNotDecided) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const uint64_t before = world_.EntriesOf(0), first = world_.messages();
    bool fails = false;
    world_.answered = [&](uint64_t message) { fails = message >= first; };
    world_.at_disk = [&](uint32_t shard, std::string_view call, uint64_t) {
      return fails && shard == 0 && call == "sync" ? absl::UnavailableError("the disk is broken")
                                                   : absl::OkStatus();
    };
    const auto outcome = Transfer(1);
    EXPECT_TRUE(IsOutcomeUnknown(outcome.status())) << outcome.status();
    EXPECT_EQ(*world_[0].commits->DecisionOf(world_.last_group), ShardDecision::kUndecided);
    world_.Pass(absl::Seconds(3));
    for (uint32_t s = 0; s < kWorldShards; ++s) world_.Tick(s);
    EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
    world_.at_disk = nullptr;
    world_.answered = nullptr;
    world_.Kill(0);
    world_.Restart(0, seed);
    ASSERT_TRUE(world_.TickUntilQuiet());
    ExpectNothingHeld();
    EXPECT_TRUE(world_.EntriesOf(0) == before || world_.EntriesOf(0) == before + 1);
    EXPECT_EQ(world_.EntriesOf(0) + world_.EntriesOf(1), 2 * kEntries);
  }
}

TEST_F(ShardCommitsTest, WhoIsDeposedBeforeItCommitsItsPartAborts) {
  world_.answered = [&](uint64_t message) {
    if (message == 0) world_[0].serves = false;
  };
  const auto outcome = Transfer(1);
  world_.answered = nullptr;
  EXPECT_TRUE(IsNoClient(outcome.status())) << outcome.status();
  EXPECT_EQ(world_[0].commits->records_used(), 0u);
  world_[0].serves = true;
  ExpectTransferred(0);
  ExpectNothingHeld();
}

TEST_F(ShardCommitsTest, WhoIsDeposedBeforeItHasDecidedTellsNobody) {
  std::atomic<bool> prepared{false};
  world_.answered = [&](uint64_t) { prepared = true; };
  world_.at_disk = [&](uint32_t shard, std::string_view call, uint64_t) {
    if (shard == 0 && call == "sync" && prepared) world_[0].serves = false;
    return absl::OkStatus();
  };
  const auto outcome = Transfer(1);
  world_.answered = nullptr;
  world_.at_disk = nullptr;
  EXPECT_TRUE(IsOutcomeUnknown(outcome.status())) << outcome.status();
  world_.Pass(absl::Seconds(3));
  world_.Tick(0);
  world_.Tick(1);
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  // It is found that it had been the one that answers all the time.
  world_[0].serves = true;
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectTransferred(1);
  ExpectNothingHeld();
}

TEST_F(ShardCommitsTest, WhoHasNoRoomForWhatItPreparedDoesItWhenThereIsSome) {
  world_[1].quota_bytes = 64 * ObjectStore::kBlockBytes;
  world_.Restart(1, /*seed=*/1);
  constexpr uint64_t kFillerVersion = 1;
  ObjectStore& store = *world_[1].store;
  const auto filler = store.Create("", kFillerVersion);
  ASSERT_TRUE(filler.ok()) << filler.status();
  const auto fill = [&] {
    const std::string block(ObjectStore::kBlockBytes, 'f');
    for (uint64_t at = 0;; at += block.size()) {
      const absl::Status written = store.Write(*filler, at, block, kFillerVersion);
      if (written.ok()) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(written)) << written;
      return;
    }
  };
  const uint64_t first = world_.messages();
  world_.fate = [&](uint64_t message, uint32_t, uint32_t) {
    if (message == first + 1) fill();  // it has prepared
    return Fate::kArrives;
  };
  const auto outcome =
      world_.Commit(0, world_.Marks(0, 1, 3, "x"), {World::At(1, world_.Marks(1, -1, 3, "y"))});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->nodes.size(), 1u);
  EXPECT_EQ(world_.messages(), first + 2) << "its client waits for no space";
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  EXPECT_EQ(world_.MarkAt(1, 3), "");
  world_.Pass(absl::Seconds(3));
  for (uint32_t s = 0; s < kWorldShards; ++s) world_.Tick(s);
  EXPECT_EQ(world_[1].commits->in_doubt(), 1u);
  // Others of the same shards go on.
  EXPECT_TRUE(world_.Commit(0, world_.Changes(0, 1), {World::At(2, world_.Changes(2, -1))}).ok());

  ASSERT_TRUE(store.Remove(*filler).ok());
  ASSERT_TRUE(world_[1].table->FlushAndRemove().ok());
  ASSERT_TRUE(world_.TickUntilQuiet());
  EXPECT_EQ(world_.MarkAt(1, 3), "y");
  EXPECT_EQ(world_.EntriesOf(1), kEntries - 1);
  ExpectNothingHeld();
}

// -- many at once ---------------------------------------------------------------------------------

// Clients move entries between directories of shards, while others look after what is settled. None
// is lost, and none is there twice.
TEST_F(ShardCommitsTest, WhatManyDoAtOnceIsDoneOnceEach) {
  const uint64_t seed = runtime::testing::Seed(1);
  const int clients = 4;
  const int times = runtime::testing::LongRun() ? 3000 : runtime::testing::kSanitized ? 60 : 200;
  std::atomic<int64_t> moved[kWorldShards] = {};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> tickers, workers;
  for (uint32_t s = 0; s < kWorldShards; ++s) {
    tickers.emplace_back([&, s] {
      while (!stopping) {
        world_.Tick(s);
        std::this_thread::yield();
      }
    });
  }
  for (int client = 0; client < clients; ++client) {
    workers.emplace_back([&, client] {
      std::mt19937_64 random(seed * 100 + static_cast<uint64_t>(client));
      for (int i = 0; i < times;) {
        const auto from = static_cast<uint32_t>(random() % kWorldShards);
        const auto to = static_cast<uint32_t>((from + 1 + random() % 2) % kWorldShards);
        const auto count = static_cast<int64_t>(1 + random() % 3);
        std::vector<ShardTransaction> others = {World::At(to, world_.Changes(to, count))};
        const uint32_t third = kWorldShards - from - to;
        if (random() % 3 == 0) others.push_back(World::At(third, world_.Changes(third, 0)));
        const auto outcome = world_.Commit(from, world_.Changes(from, -count), others);
        if (IsWouldBlock(outcome.status())) {
          // Two that want each other's directories do not meet in step for ever.
          for (uint64_t turns = random() % 64; turns > 0; --turns) std::this_thread::yield();
          continue;
        }
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        ASSERT_EQ(outcome->state, CommitState::kCommitted);
        moved[from] -= count;
        moved[to] += count;
        ++i;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  stopping = true;
  for (std::thread& ticker : tickers) ticker.join();
  ASSERT_TRUE(world_.TickUntilQuiet());
  ExpectNothingHeld();
  uint64_t sum = 0;
  for (uint32_t s = 0; s < kWorldShards; ++s) {
    EXPECT_EQ(static_cast<int64_t>(world_.EntriesOf(s)), static_cast<int64_t>(kEntries) + moved[s])
        << s;
    sum += world_.EntriesOf(s);
  }
  EXPECT_EQ(sum, kWorldShards * kEntries);
}

}  // namespace
}  // namespace abacus::objfs
