// What an opening of columns makes of the groups that it finds: as a decision, and at servers.

#include "objfs/spread/settlement.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/spread/column_servers.h"
#include "objfs/spread/testing/column_server.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using testing::BlockFor;
using testing::ColumnServer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kBlock = ObjectStore::kBlockBytes;

// -- the decision ---------------------------------------------------------------------------------

// Groups of the servers 1, 2 and 3, by the opening 10.
class SettlementTest : public ::testing::Test {
 protected:
  enum class Has { kPrepared, kCommitted, kHeld };
  void Answer(uint64_t server, uint64_t recorded = 5) { answers_[server].recorded = {recorded}; }
  void Answer(uint64_t server, Has has, uint64_t recorded = 5) {
    Answer(server, recorded);
    answers_[server].pending.push_back({.id = Version{100},
                                        .group = {{1, 0}, {2, 0}, {3, 0}},
                                        .opening = Version{10},
                                        .committed = has != Has::kPrepared,
                                        .held = has == Has::kHeld,
                                        .ranges = {{server * kBlock, kBlock}}});
  }
  // Of the one group.
  SettledGroup Plan() {
    plan_ = PlanSettlement(answers_, {1, 2, 3});
    EXPECT_EQ(plan_.groups.size(), 1u);
    return plan_.groups.empty() ? SettledGroup() : plan_.groups.front();
  }

  std::map<uint64_t, ColumnAnswer> answers_;
  Settlement plan_;
};

TEST_F(SettlementTest, NothingPendingIsNothingToSettle) {
  for (const uint64_t server : {1, 2, 3}) Answer(server);
  EXPECT_TRUE(PlanSettlement(answers_, {1, 2, 3}).groups.empty());
}

TEST_F(SettlementTest, WhatAllHavePreparedIsCommitted) {
  for (const uint64_t server : {1, 2, 3}) Answer(server, Has::kPrepared);
  const SettledGroup group = Plan();
  EXPECT_EQ(group.fate, GroupFate::kCommit);
  EXPECT_THAT(group.members, ElementsAre(1u, 2u, 3u));
  EXPECT_THAT(group.told, UnorderedElementsAre(1u, 2u, 3u));
  EXPECT_EQ(group.ranges.size(), 3u);
}

TEST_F(SettlementTest, WhatOneHasNotPreparedIsAborted) {
  Answer(1, Has::kPrepared);
  Answer(2, Has::kPrepared);
  Answer(3);
  const SettledGroup group = Plan();
  EXPECT_EQ(group.fate, GroupFate::kAbort);
  EXPECT_THAT(group.told, UnorderedElementsAre(1u, 2u));
  // Whoever is away.
  answers_.erase(2);
  EXPECT_EQ(Plan().fate, GroupFate::kAbort);
}

TEST_F(SettlementTest, WhatAllThatAnswerHavePreparedIsCommittedAndHeld) {
  Answer(1, Has::kPrepared);
  Answer(2, Has::kPrepared);
  EXPECT_EQ(Plan().fate, GroupFate::kCommitHeld);
  EXPECT_THAT(plan_.lacking, IsEmpty());
}

TEST_F(SettlementTest, WhatOneHasCommittedIsCommittedAndWhoHasNothingHasForgottenIt) {
  Answer(1, Has::kCommitted);
  Answer(2, Has::kPrepared);
  Answer(3);
  const SettledGroup group = Plan();
  EXPECT_EQ(group.fate, GroupFate::kCommit);
  EXPECT_THAT(group.told, UnorderedElementsAre(1u, 2u));
  EXPECT_THAT(plan_.lacking, IsEmpty());
  answers_.erase(3);
  EXPECT_EQ(Plan().fate, GroupFate::kCommit) << "it has prepared it, and comes to commit it";
}

TEST_F(SettlementTest, OfWhatIsHeldWhoHasNothingLacksIt) {
  Answer(1, Has::kHeld);
  Answer(2, Has::kPrepared);
  Answer(3);
  EXPECT_EQ(Plan().fate, GroupFate::kCommitHeld);
  EXPECT_THAT(plan_.lacking, ElementsAre(3u));
  answers_.erase(3);
  EXPECT_EQ(Plan().fate, GroupFate::kCommitHeld);
  EXPECT_THAT(plan_.lacking, IsEmpty());
  Answer(3, Has::kPrepared);
  EXPECT_EQ(Plan().fate, GroupFate::kCommit) << "it has it after all";
  EXPECT_THAT(plan_.lacking, IsEmpty());
}

TEST_F(SettlementTest, WhatALaterOpeningHasWrittenDownIsSettled) {
  Answer(1, /*recorded=*/11);
  Answer(2);
  Answer(3, Has::kPrepared);  // it was away
  const SettledGroup group = Plan();
  EXPECT_EQ(group.fate, GroupFate::kAbort);
  EXPECT_THAT(group.told, ElementsAre(3u));
  EXPECT_THAT(plan_.lacking, IsEmpty());
}

// The one record that tells what it lacks may be away next time, and it would go with the others.
TEST_F(SettlementTest, WhoWasAwayCommitsWhatOthersHaveCommitted) {
  Answer(1, Has::kHeld, /*recorded=*/11);
  Answer(2, Has::kCommitted);
  Answer(3, Has::kPrepared);
  const SettledGroup group = Plan();
  EXPECT_THAT(group.told, IsEmpty());
  EXPECT_THAT(group.finish, UnorderedElementsAre(1u, 2u, 3u));
  EXPECT_THAT(plan_.lacking, IsEmpty());
}

TEST_F(SettlementTest, WhatOnlyOneThatIsAwayCouldHaveCommittedStaysAsItIs) {
  const std::set<uint64_t> columns = {1, 2, 3, 4};
  Answer(1, Has::kPrepared);
  Answer(2, Has::kPrepared);
  Answer(4, /*recorded=*/11);
  const Settlement plan = PlanSettlement(answers_, columns);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_THAT(plan.groups[0].told, IsEmpty());
  EXPECT_THAT(plan.groups[0].finish, IsEmpty());
  Answer(3);
  EXPECT_THAT(PlanSettlement(answers_, columns).groups.at(0).told, UnorderedElementsAre(1u, 2u));
}

TEST_F(SettlementTest, WhatIsCommittedAndSettledIsWaitedFor) {
  Answer(1, /*recorded=*/11);
  Answer(2, Has::kCommitted);
  Answer(3, Has::kHeld, /*recorded=*/11);
  const SettledGroup group = Plan();
  EXPECT_THAT(group.finish, UnorderedElementsAre(2u, 3u));
  EXPECT_THAT(group.told, IsEmpty());
  EXPECT_FALSE(group.is_stale);
}

// It was committed at one, by who opened the columns then and died; and by the next one, without
// that server, it was not.
TEST_F(SettlementTest, WhoHasWrittenItAndWasAwayWhenItWasSettledDoesNotGoWithTheRest) {
  Answer(1, Has::kHeld);
  Answer(2, /*recorded=*/11);
  Answer(3, /*recorded=*/11);
  const SettledGroup group = Plan();
  EXPECT_EQ(group.fate, GroupFate::kAbort);
  EXPECT_TRUE(group.is_stale);
  EXPECT_THAT(group.ranges, ElementsAre(Range{kBlock, kBlock}));
  // A record of its own that the others have not seen changes nothing.
  answers_[1].recorded = Version{11};
  for (const uint64_t server : {2, 3}) answers_[server].recorded = Version{12};
  EXPECT_TRUE(Plan().is_stale);
  EXPECT_THAT(Plan().done, IsEmpty());
}

TEST_F(SettlementTest, WhatIsHeldIsDoneWhenTwoColumnsHaveTheRecordThatTellsOfIt) {
  Answer(1, Has::kHeld, /*recorded=*/11);
  Answer(2);
  Answer(3);
  SettledGroup group = Plan();
  EXPECT_FALSE(group.is_stale);
  EXPECT_THAT(group.done, IsEmpty());
  EXPECT_EQ(OrdersOf(plan_)[1].size(), 1u);
  Answer(2, /*recorded=*/11);
  group = Plan();
  EXPECT_FALSE(group.is_stale);
  EXPECT_THAT(group.done, ElementsAre(1u));
  GroupOrders orders = OrdersOf(plan_);
  ASSERT_EQ(orders[1].size(), 2u);
  EXPECT_EQ(orders[1][0].fate, GroupFate::kCommit) << "it is in the store first";
  EXPECT_EQ(orders[1][1].fate, GroupFate::kForget);
}

// Of the two that are left one has it and the other one has not, and nobody else says so.
TEST_F(SettlementTest, WhoFailsTakesWhatItsRecordToldAlong) {
  const std::set<uint64_t> columns = {1, 2, 3};
  Answer(1, Has::kHeld, /*recorded=*/11);
  Answer(2, Has::kHeld);
  Answer(3);
  Plan();
  EXPECT_THAT(plan_.lacking, IsEmpty());
  EXPECT_THAT(EndSettlement(plan_, answers_, columns, {}).gone, IsEmpty());
  EXPECT_THAT(EndSettlement(plan_, answers_, columns, {1}).gone, UnorderedElementsAre(1u, 3u));
  EXPECT_THAT(EndSettlement(plan_, answers_, columns, {3}).gone, ElementsAre(3u));
}

TEST_F(SettlementTest, WhereOneIsAwayNobodyStaysThatLacksSomething) {
  const std::set<uint64_t> columns = {1, 2, 3, 4};
  Answer(1, Has::kHeld);
  Answer(2);
  Answer(3, /*recorded=*/0);
  Answer(4);
  Settlement plan = PlanSettlement(answers_, columns);
  ASSERT_THAT(plan.lacking, UnorderedElementsAre(2u, 3u));
  EXPECT_THAT(EndSettlement(plan, answers_, columns, {}).gone, IsEmpty());
  answers_.erase(4);
  plan = PlanSettlement(answers_, columns);
  EXPECT_THAT(EndSettlement(plan, answers_, columns, {}).gone, UnorderedElementsAre(2u, 3u));
}

TEST_F(SettlementTest, WhoAloneHasWhatIsHeldIsLeftOut) {
  Answer(1, Has::kHeld);
  Answer(2);
  Answer(3);
  EXPECT_EQ(Plan().fate, GroupFate::kCommitHeld);
  EXPECT_THAT(plan_.lacking, ElementsAre(1u));
  Answer(3, /*recorded=*/0);
  Plan();
  EXPECT_THAT(plan_.lacking, UnorderedElementsAre(2u, 3u)) << "one is new";
}

// Who could have prepared it there was asked when the column was moved.
TEST_F(SettlementTest, WhoseColumnWasMovedHasNotPreparedIt) {
  const std::set<uint64_t> columns = {1, 2, 4};
  Answer(4);
  Answer(1, Has::kPrepared);
  Answer(2, Has::kPrepared);
  EXPECT_EQ(PlanSettlement(answers_, columns).groups.at(0).fate, GroupFate::kAbort);
  answers_.clear();
  Answer(4);
  Answer(2);
  Answer(1, Has::kCommitted);
  EXPECT_EQ(PlanSettlement(answers_, columns).groups.at(0).fate, GroupFate::kCommit);
  answers_.clear();
  Answer(4);
  Answer(2);
  Answer(1, Has::kHeld);
  EXPECT_THAT(PlanSettlement(answers_, columns).lacking, ElementsAre(1u));
}

// -- at servers -----------------------------------------------------------------------------------

constexpr ObjectId kSettled = 7;

// A file with columns at the servers 1, 2 and 3 of a volume; clients that shared it have died.
class SettlingTest : public ::testing::Test {
 protected:
  static constexpr size_t kServers = 4;

  SettlingTest() {
    for (uint64_t i = 1; i < kServers; ++i) {
      servers_.push_back(std::make_unique<ColumnServer>(binding(), i));
      Publish(i, true);
    }
    ColumnServers::Host host;
    host.find = [this](size_t server) -> absl::StatusOr<Ref<ColumnStore>> {
      runtime::MutexLock lock(mutex_);
      const auto found = published_.find(server);
      if (found == published_.end()) return absl::UnavailableError("it is away");
      return found->second;
    };
    host.adopt = [this](std::unique_ptr<AbsentColumn> column) {
      return Ref<Layer>(binding().Adopt(std::move(column)).base());
    };
    host.end = [this](const Ref<Layer>& layer) { binding().Destroy(layer.rid()).IgnoreError(); };
    host.exists = [this](ObjectId) { return exists_.load(); };
    volume_ = std::make_unique<ColumnServers>(
        std::make_shared<ServerAddresses>(std::vector<std::string>{"a:1", "b:1", "c:1", "d:1"}),
        std::move(host));
  }
  ~SettlingTest() override { volume_.reset(); }

  runtime::BindingManager& binding() { return cluster_[0].binding(); }
  ColumnServer& At(uint64_t server) { return *servers_[server - 1]; }
  void Publish(uint64_t server, bool is_there) {
    runtime::MutexLock lock(mutex_);
    published_.erase(server);
    if (is_there) published_[server] = At(server).ref();
  }
  void Lose(uint64_t server) { Publish(server, false); }
  void Return(uint64_t server, uint64_t seed) {
    At(server).LosePower(seed);
    Publish(server, true);
  }

  OpenedAtServers Open(uint64_t opening) {
    const auto opened = volume_->Open(kSettled, {1, 2, 3}, Version{opening});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : OpenedAtServers();
  }
  void ExpectWhole(const OpenedAtServers& opened) {
    EXPECT_EQ(opened.absent, 0u);
    EXPECT_THAT(opened.missed, IsEmpty());
  }
  // What the client has come to, at one server: a block of a group of all three.
  void Prepare(uint64_t server, Version id, uint64_t opening) {
    const auto reply =
        At(server).Prepare(id, {1, 2, 3}, BlockFor(kSettled, Version{opening}, 2, 'g'));
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->message.kind, CommitKind::kPrepared) << reply->why;
  }
  std::string Bytes() {
    std::string bytes;
    for (uint64_t server = 1; server < kServers; ++server) {
      const char byte = At(server).ByteAt(kSettled, 2);
      bytes += byte == '\0' ? '-' : byte;
    }
    return bytes;
  }
  uint64_t Pending() {
    uint64_t pending = 0;
    for (const auto& server : servers_) pending += server->log().Counts()->pending;
    return pending;
  }
  static void WriteRecords(const OpenedAtServers& opened, const std::vector<size_t>& columns) {
    for (const size_t column : columns) {
      ASSERT_TRUE(opened.columns[column]->SetInode("a record", Version{1}).ok());
      ASSERT_TRUE(opened.columns[column]->Flush(Version{1}).ok());
    }
  }

  runtime::testing::Cluster cluster_{[] {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<ColumnStore>().Add<ColumnLayer>().Add<AbsentColumn>().Add<CommitLog>();
    };
    return options;
  }()};
  std::vector<std::unique_ptr<ColumnServer>> servers_;
  std::atomic<bool> exists_ = true;  // the file
  runtime::Mutex mutex_;
  std::map<size_t, Ref<ColumnStore>> published_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ColumnServers> volume_;
  HybridClock clock_{9, ColumnServer::NowUs};
};

// The removal came first, and found none.
TEST_F(SettlingTest, ColumnsThatAnOpeningMadeOfAFileThatIsGoneAreRemoved) {
  const auto has_none = [this] {
    return std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
      const auto columns = server->ref()->List(0, 10);
      return columns.ok() && columns->empty();
    });
  };
  // Once they have been gone through nobody looks at them again.
  Open(10);
  EXPECT_FALSE(has_none());
  volume_->Removed(kSettled, {1, 2, 3});
  ASSERT_TRUE(runtime::testing::Eventually(has_none));
  exists_ = false;
  Open(11);
  EXPECT_TRUE(runtime::testing::Eventually(has_none));
}

TEST_F(SettlingTest, WhatAllHavePreparedIsWritten) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  EXPECT_EQ(Bytes(), "---");
  ExpectWhole(Open(11));
  EXPECT_EQ(Bytes(), "ggg");
  EXPECT_EQ(Pending(), 0u) << "all were told to forget it";
}

TEST_F(SettlingTest, WhatOneHasNotPreparedIsUndone) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2}) Prepare(server, id, 10);
  ExpectWhole(Open(11));
  EXPECT_EQ(Bytes(), "---");
  EXPECT_EQ(Pending(), 0u);
  // And it never will be.
  const auto late = At(3).Prepare(id, {1, 2, 3}, BlockFor(kSettled, Version{10}, 2, 'g'));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->refusal, Refusal::kShutOut);
}

TEST_F(SettlingTest, AClientThatDiedBetweenPrepareAndCommitHasWrittenItEverywhere) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  ASSERT_TRUE(At(2).Tell(CommitKind::kCommit, id).ok());
  EXPECT_EQ(Bytes(), "-g-");
  ExpectWhole(Open(11));
  EXPECT_EQ(Bytes(), "ggg");
  EXPECT_EQ(Pending(), 0u);
}

TEST_F(SettlingTest, WhoHasForgottenWhatIsWrittenEverywhereLacksNothing) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  for (const uint64_t server : {1, 2, 3}) {
    ASSERT_TRUE(At(server).Tell(CommitKind::kCommit, id).ok());
  }
  ASSERT_TRUE(At(1).Tell(CommitKind::kForget, id).ok());
  ExpectWhole(Open(11));
  EXPECT_EQ(Bytes(), "ggg");
  EXPECT_EQ(Pending(), 0u);
}

TEST_F(SettlingTest, AServerThatIsAwayHasMissedItUntilThatIsWrittenDown) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2}) Prepare(server, id, 10);
  Lose(3);
  const Range missed{2 * kBlock, kBlock};
  // Who opens it may die: the next one is told the same.
  for (const uint64_t opening : {11, 12}) {
    const OpenedAtServers opened = Open(opening);
    EXPECT_EQ(opened.absent, 1u);
    EXPECT_THAT(opened.missed, ElementsAre(missed));
    EXPECT_EQ(Bytes(), "gg-");
    EXPECT_EQ(Pending(), 2u);
  }
  // Also where the server is back by then, which says that it has nothing to do with it.
  Return(3, 1);
  ASSERT_TRUE(At(3).Tell(CommitKind::kCommit, id).ok());
  ASSERT_TRUE(At(1).Tell(CommitKind::kForget, id).ok());
  const OpenedAtServers opened = Open(13);
  EXPECT_EQ(opened.absent, 1u);
  EXPECT_TRUE(absl::IsUnavailable(opened.columns[2]->Read(0, 1, Version{1}).status()));
  EXPECT_THAT(opened.missed, ElementsAre(missed));
  // Now the columns' own records tell.
  ASSERT_NO_FATAL_FAILURE(WriteRecords(opened, {0, 1}));
  EXPECT_EQ(Pending(), 2u);
  ExpectWhole(Open(14));
  EXPECT_EQ(Bytes(), "gg-");
  EXPECT_EQ(Pending(), 0u) << "two records tell of it";
}

TEST_F(SettlingTest, AServerThatWasAwayAndHadPreparedItWritesItWhenItIsBack) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  Lose(3);
  EXPECT_EQ(Open(11).missed.size(), 1u);
  Return(3, 2);
  ExpectWhole(Open(12));
  EXPECT_EQ(Bytes(), "ggg");
  EXPECT_EQ(Pending(), 0u);
}

TEST_F(SettlingTest, AServerWhoseLogFailsCountsAsOneThatIsAway) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  At(3).log().Stop();
  const OpenedAtServers opened = Open(11);
  EXPECT_EQ(opened.absent, 1u);
  EXPECT_EQ(opened.missed.size(), 1u);
  EXPECT_EQ(Bytes(), "gg-");
}

// More than one cannot be left out: the file could not be opened any more.
TEST_F(SettlingTest, WhereTwoServersLackItBothAreThere) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  Prepare(1, id, 10);
  const GroupFence by{kSettled, Version{10}};
  ASSERT_TRUE(At(1).log().Settle(by, {{id, GroupFate::kCommitHeld}}).ok());
  const OpenedAtServers opened = Open(11);
  EXPECT_EQ(opened.absent, 0u);
  EXPECT_THAT(opened.missed, ElementsAre(Range{2 * kBlock, kBlock}));
}

TEST_F(SettlingTest, OrdersOfAnEarlierOpeningComeTooLate) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  ASSERT_TRUE(At(1).ref()->Open(kSettled, Version{12}).ok());
  const GroupFence by{kSettled, Version{11}};
  EXPECT_TRUE(absl::IsUnauthenticated(At(1).log().Settle(by, {{id, GroupFate::kAbort}})));
  EXPECT_EQ(Pending(), 3u);
  ExpectWhole(Open(12));
  EXPECT_EQ(Bytes(), "ggg");
}

TEST_F(SettlingTest, WhoWroteItAndWasAwayWhenOthersOpenedTheFileHasMissedIt) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  Prepare(1, id, 10);
  Lose(2);
  Lose(3);
  EXPECT_EQ(Open(11).absent, 2u);
  EXPECT_EQ(Bytes(), "g--");
  Lose(1);
  Publish(2, true);
  Publish(3, true);
  const OpenedAtServers without = Open(12);
  EXPECT_EQ(without.absent, 1u);
  EXPECT_THAT(without.missed, IsEmpty());
  ASSERT_NO_FATAL_FAILURE(WriteRecords(without, {1, 2}));
  Publish(1, true);
  const OpenedAtServers opened = Open(13);
  EXPECT_EQ(opened.absent, 0u);
  EXPECT_THAT(opened.missed, ElementsAre(Range{2 * kBlock, kBlock}));
}

// Those of the opening 11 died when one column had their record, which the next ones do not see.
TEST_F(SettlingTest, WhatOneRecordAloneTellsOfStaysHeld) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  ASSERT_TRUE(At(1).Prepare(id, {1, 2}, BlockFor(kSettled, Version{10}, 2, 'g')).ok());
  Lose(2);
  ASSERT_NO_FATAL_FAILURE(WriteRecords(Open(11), {0}));
  EXPECT_EQ(Bytes(), "g--");
  Lose(1);
  Publish(2, true);
  const OpenedAtServers without = Open(12);
  EXPECT_EQ(without.absent, 1u);
  EXPECT_THAT(without.missed, IsEmpty());
  ASSERT_NO_FATAL_FAILURE(WriteRecords(without, {1, 2}));
  // The other member, which has nothing of it, has told its server so.
  ASSERT_TRUE(At(1).Tell(CommitKind::kForget, id).ok());
  Publish(1, true);
  EXPECT_THAT(Open(13).missed, ElementsAre(Range{2 * kBlock, kBlock}));
}

TEST_F(SettlingTest, WhoWasAwayGoesWithTheOthersWhateverColumnIsAwayNext) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  ASSERT_TRUE(At(2).Tell(CommitKind::kCommit, id).ok());  // all have prepared it
  Lose(1);
  ASSERT_NO_FATAL_FAILURE(WriteRecords(Open(11), {2}));
  EXPECT_EQ(Bytes(), "-gg");
  Publish(1, true);
  Open(12);
  EXPECT_EQ(Bytes(), "ggg");
}

TEST_F(SettlingTest, WhatOnlyAServerThatIsAwayKnowsIsNotAborted) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2}) {
    const GroupPart part = BlockFor(kSettled, Version{10}, 2, 'g');
    ASSERT_TRUE(At(server).Prepare(id, {1, 2}, part).ok());
  }
  ASSERT_TRUE(At(2).Tell(CommitKind::kCommit, id).ok());
  Lose(1);
  ASSERT_NO_FATAL_FAILURE(WriteRecords(Open(11), {2}));
  Lose(2);
  Publish(1, true);
  EXPECT_EQ(Open(12).absent, 1u);
  EXPECT_EQ(Bytes(), "-g-");
  Lose(3);
  Publish(2, true);
  EXPECT_EQ(Open(13).absent, 1u);
  EXPECT_EQ(Bytes(), "gg-");
}

TEST_F(SettlingTest, AnEarlierOpeningSettlesNothing) {
  ExpectWhole(Open(10));
  const Version id = clock_.Next();
  for (const uint64_t server : {1, 2, 3}) Prepare(server, id, 10);
  EXPECT_TRUE(absl::IsUnauthenticated(volume_->Open(kSettled, {1, 2, 3}, Version{9}).status()));
  EXPECT_EQ(Bytes(), "---");
  EXPECT_EQ(Pending(), 3u);
}

}  // namespace
}  // namespace abacus::objfs
