// The columns of one server: who may use one, over restarts too.

#include "objfs/spread/column_store.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/spread/testing/column_server.h"
#include "objfs/store/object_id.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using testing::BlockFor;
using testing::ColumnServer;

constexpr ObjectId kFile = 7;
constexpr Version kNow{1};

class ColumnStoreTest : public ::testing::Test {
 protected:
  static runtime::testing::ClusterOptions Nodes() {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<ColumnStore>().Add<ColumnLayer>().Add<CommitLog>();
    };
    return options;
  }
  runtime::BindingManager& binding() { return cluster_[0].binding(); }
  static absl::StatusOr<Ref<Layer>> OpenAt(ColumnServer& server, uint64_t epoch) {
    return server.ref()->Open(kFile, Version{epoch});
  }
  absl::StatusOr<Ref<Layer>> Open(uint64_t epoch) { return OpenAt(server_, epoch); }

  // Of a group of this server's alone; kNone: it is prepared.
  Refusal Prepare(Version id, const GroupPart& part) {
    const auto reply = server_.Prepare(id, {0}, part);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return Refusal::kUnusable;
    EXPECT_EQ(reply->message.kind,
              reply->refusal == Refusal::kNone ? CommitKind::kPrepared : CommitKind::kRefused);
    return reply->refusal;
  }

  static void WriteRecord(const Ref<Layer>& column, const std::string& record, bool durable) {
    const absl::Status set = column->SetInode(record, kNow);
    ASSERT_TRUE(set.ok()) << set;
    if (!durable) return;
    ASSERT_TRUE(column->Flush(kNow).ok());
  }
  static std::string RecordOf(const Ref<Layer>& column) {
    const auto attributes = column->GetAttributes(kNow);
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    return attributes.ok() ? attributes->inode : "an error";
  }

  runtime::testing::Cluster cluster_{Nodes()};
  ColumnServer server_{binding()};
  HybridClock clock_{9, ColumnServer::NowUs};
};

TEST_F(ColumnStoreTest, AnEarlierOpeningIsRefusedAfterARestart) {
  WriteRecord(*Open(10), "R5 of 10", /*durable=*/true);
  server_.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(Open(9).status()));
  const auto later = Open(11);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(RecordOf(*later), "R5 of 10");
  EXPECT_TRUE(absl::IsUnauthenticated(Open(10).status()));
}

TEST_F(ColumnStoreTest, AnEarlierOpeningIsRefusedAfterTheLaterOneWasClosed) {
  WriteRecord(*Open(10), "R5 of 10", /*durable=*/false);
  ASSERT_TRUE(server_.columns().Close(kFile, {10}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Open(9).status()));
  EXPECT_TRUE(Open(10).ok()) << "the same once more";
}

// It has changed nothing that an earlier one could destroy.
TEST_F(ColumnStoreTest, AnOpeningThatWroteNoRecordRefusesNobodyAfterARestart) {
  WriteRecord(*Open(5), "R5 of 5", /*durable=*/true);
  ASSERT_TRUE(Open(10).ok());
  server_.Restart();
  EXPECT_TRUE(absl::IsUnauthenticated(Open(4).status()));
  const auto earlier = Open(9);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  ASSERT_TRUE(Open(10).ok());
  EXPECT_TRUE(absl::IsUnauthenticated((*earlier)->SetInode("R5 of 9", kNow)));
}

// What the fence costs: nothing when a column is opened, used and closed, and with a record no more
// than the record. The reference is an object of the same store that has no fence.
TEST_F(ColumnStoreTest, AnOpeningSyncsNothingAndARecordNoMoreThanItself) {
  constexpr ObjectId kPlain = kFile + 1;
  const auto cost = [this](auto&& what) {
    const uint64_t before = server_.DiskCalls();
    what();
    return server_.DiskCalls() - before;
  };
  const auto write_plain = [this](uint64_t epoch) {
    ASSERT_TRUE(server_.store().SetAttributes(kPlain, "R5, not fenced", epoch).ok());
    ASSERT_TRUE(server_.store().Flush(kPlain).ok());
  };
  // The journal's own beginning is none of theirs.
  ASSERT_TRUE(server_.store().CreateAs(kFile + 2, "", 1).ok());
  ASSERT_TRUE(server_.store().Flush(kFile + 2).ok());
  // A new one first.
  const uint64_t plain_new = cost([&] {
    ASSERT_TRUE(server_.store().CreateAs(kPlain, "", 1).ok());
    write_plain(10);
  });
  EXPECT_EQ(cost([&] { WriteRecord(*Open(10), "R5 of 10", /*durable=*/true); }), plain_new);
  const uint64_t plain_set =
      cost([&] { ASSERT_TRUE(server_.store().SetAttributes(kPlain, "R5, not fenced", 11).ok()); });
  const uint64_t plain_again = cost([&] { write_plain(12); });
  ASSERT_GT(plain_again, 0u) << "or nothing would be compared";
  for (uint64_t epoch = 11; epoch < 14; ++epoch) {
    SCOPED_TRACE(epoch);
    // Nothing is left to be made durable later, either: a flush has nothing to do.
    EXPECT_EQ(cost([&] {
                const auto column = Open(epoch);
                ASSERT_TRUE(column.ok()) << column.status();
                ASSERT_TRUE((*column)->Flush(kNow).ok());
                ASSERT_TRUE(server_.store().FlushAll().ok());
                ASSERT_TRUE(server_.columns().Close(kFile, {epoch}).ok());
              }),
              0u);
    const auto column = Open(epoch);
    ASSERT_TRUE(column.ok()) << column.status();
    EXPECT_EQ(cost([&] { WriteRecord(*column, "R5, not flushed", /*durable=*/false); }), plain_set);
    for (const char* const record : {"R5, the first", "R5, the next"}) {
      EXPECT_EQ(cost([&] { WriteRecord(*column, record, /*durable=*/true); }), plain_again)
          << record;
    }
  }
  // And it is a fence.
  server_.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(Open(12).status()));
}

TEST_F(ColumnStoreTest, ARecordOfAnEarlierBuildIsReadAndRefusesNobody) {
  ASSERT_TRUE(server_.store().CreateAs(kFile, "", 1).ok());
  ASSERT_TRUE(server_.store().SetAttributes(kFile, "R5 of long ago", 99).ok());
  const auto opened = Open(3);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(RecordOf(*opened), "R5 of long ago");
  EXPECT_EQ(server_.columns().States(0, 10)->at(0).record, "R5 of long ago");
  WriteRecord(*opened, "R5 of 3", /*durable=*/true);
  EXPECT_EQ(RecordOf(*opened), "R5 of 3");
  EXPECT_EQ(server_.columns().States(0, 10)->at(0).record, "R5 of 3");
  server_.Restart();
  EXPECT_TRUE(absl::IsUnauthenticated(Open(2).status()));
}

TEST_F(ColumnStoreTest, ACopyOfAColumnRefusesWhomTheColumnRefused) {
  WriteRecord(*Open(10), "R5 of 10", /*durable=*/true);
  ColumnServer other(binding());
  const absl::Status copied = other.columns().FinishFrom(server_.ref(), kFile, 0);
  ASSERT_TRUE(copied.ok()) << copied;
  other.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(OpenAt(other, 9).status()));
  const auto there = OpenAt(other, 11);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(RecordOf(*there), "R5 of 10");
}

// Whatever the power leaves: who wrote the record that is there refuses all before, and nobody else
// is refused.
TEST_F(ColumnStoreTest, WhoWroteTheRecordThatIsThereRefusesAllBefore) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    ASSERT_TRUE(server_.columns().Remove({kFile}).ok());
    uint64_t epoch = 100, durable = 0;
    for (int step = 0; step < 8; ++step) {
      epoch += 1 + random() % 3;
      const auto column = Open(epoch);
      ASSERT_TRUE(column.ok()) << column.status();
      if (random() % 3 == 0) continue;
      const bool flushes = random() % 2 == 0;
      WriteRecord(*column, std::to_string(epoch), flushes);
      if (flushes) durable = epoch;
    }
    server_.LosePower(random());
    const auto states = server_.columns().States(0, 10);
    ASSERT_TRUE(states.ok()) << states.status();
    const std::string record = states->empty() ? "" : states->at(0).record;
    const uint64_t wrote = record.empty() ? 0 : std::stoull(record);
    EXPECT_GE(wrote, durable);
    if (wrote > 0) {
      EXPECT_TRUE(absl::IsUnauthenticated(Open(wrote - 1).status()));
      EXPECT_TRUE(absl::IsUnauthenticated(Open(1).status()));
    }
    EXPECT_TRUE(Open(std::max<uint64_t>(wrote, 1)).ok());
  }
}

// -- groups of blocks, of several clients
// -----------------------------------------------------------

TEST_F(ColumnStoreTest, AGroupOfAnEarlierOpeningIsRefused) {
  ASSERT_TRUE(Open(10).ok());
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{10}, 0, 'a')), Refusal::kNone);
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{11}, 1, 'a')), Refusal::kShutOut);
  ASSERT_TRUE(Open(11).ok());
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{10}, 1, 'a')), Refusal::kShutOut);
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{11}, 1, 'a')), Refusal::kNone);
  // Nor one that says nothing of an opening, or has to do with a column that is not open.
  GroupPart unfenced = BlockFor(kFile, Version{11}, 2, 'a');
  unfenced.fences.clear();
  EXPECT_EQ(Prepare(clock_.Next(), unfenced), Refusal::kShutOut);
  GroupPart more = BlockFor(kFile, Version{11}, 2, 'a');
  more.reads.push_back({kFile + 1, 0, Version()});
  EXPECT_EQ(Prepare(clock_.Next(), more), Refusal::kShutOut);
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile + 1, Version{11}, 2, 'a')), Refusal::kShutOut);
  ASSERT_TRUE(server_.columns().Close(kFile, {11}).ok());
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{11}, 2, 'a')), Refusal::kShutOut);
}

TEST_F(ColumnStoreTest, AnOpeningWaitsForAGroupThatIsBeingPrepared) {
  std::promise<void> entered, may_go_on;
  auto goes_on = may_go_on.get_future().share();
  ColumnServer server(binding(), 0, [&](CommitLog::Host* host) {
    host->enter = [&, enter = host->enter](const GroupPart& part) {
      auto inside = enter(part);
      entered.set_value();
      goes_on.wait();
      return inside;
    };
  });
  ASSERT_TRUE(OpenAt(server, 10).ok());
  const Version id = clock_.Next();
  auto prepared = std::async(std::launch::async, [&] {
    return server.Prepare(id, {0}, BlockFor(kFile, Version{10}, 0, 'a'));
  });
  entered.get_future().wait();
  auto opened =
      std::async(std::launch::async, [&] { return server.ref()->OpenAndTell(kFile, Version{11}); });
  EXPECT_EQ(opened.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_go_on.set_value();
  const auto reply = prepared.get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->message.kind, CommitKind::kPrepared);
  const auto column = opened.get();
  ASSERT_TRUE(column.ok()) << column.status();
  ASSERT_EQ(column->pending.size(), 1u) << "it did not wait";
  EXPECT_EQ(column->pending[0].id, id);
  EXPECT_TRUE(column->log);
}

// Also where nobody has the column open any more, and it is opened anew.
TEST_F(ColumnStoreTest, WhoClosesAColumnWaitsForAGroupThatIsBeingPrepared) {
  std::promise<void> entered, may_go_on;
  auto goes_on = may_go_on.get_future().share();
  ColumnServer server(binding(), 0, [&](CommitLog::Host* host) {
    host->enter = [&, enter = host->enter](const GroupPart& part) {
      auto inside = enter(part);
      entered.set_value();
      goes_on.wait();
      return inside;
    };
  });
  ASSERT_TRUE(OpenAt(server, 10).ok());
  auto prepared = std::async(std::launch::async, [&] {
    return server.Prepare(clock_.Next(), {0}, BlockFor(kFile, Version{10}, 0, 'a'));
  });
  entered.get_future().wait();
  auto opened = std::async(std::launch::async, [&] {
    EXPECT_TRUE(server.ref()->Close(kFile, Version{10}).ok());
    return server.ref()->OpenAndTell(kFile, Version{11});
  });
  EXPECT_EQ(opened.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_go_on.set_value();
  EXPECT_TRUE(prepared.get().ok());
  const auto column = opened.get();
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ(column->pending.size(), 1u) << "it did not wait";
}

TEST_F(ColumnStoreTest, AServerThatWasStartedAgainRefusesGroupsUntilTheColumnIsOpened) {
  WriteRecord(*Open(10), "R5 of 10", /*durable=*/true);
  server_.LosePower(1);
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{10}, 0, 'a')), Refusal::kShutOut);
  const auto column = server_.ref()->OpenAndTell(kFile, Version{11});
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ(column->recorded, Version{10});
  EXPECT_TRUE(column->pending.empty());
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{11}, 0, 'a')), Refusal::kNone);
}

TEST_F(ColumnStoreTest, WhatWasPunchedUnderALaterRecordDoesNotComeBackWithTheLog) {
  ASSERT_TRUE(Open(10).ok());
  const Version id = clock_.Next();
  ASSERT_EQ(Prepare(id, BlockFor(kFile, Version{10}, 0, 'a')), Refusal::kNone);
  ASSERT_TRUE(server_.Tell(CommitKind::kCommit, id).ok());
  ASSERT_EQ(server_.ByteAt(kFile, 0), 'a');
  const auto later = Open(11);
  ASSERT_TRUE(later.ok()) << later.status();
  WriteRecord(*later, "R5 of 11", /*durable=*/true);
  ASSERT_TRUE((*later)->Punch(Range{0, ObjectStore::kBlockBytes}, clock_.Next()).ok());
  ASSERT_TRUE((*later)->Flush(clock_.Next()).ok());
  server_.LosePower(2);
  EXPECT_EQ(server_.ByteAt(kFile, 0), '\0');
  EXPECT_EQ(server_.log().Counts()->dropped, 1u);
}

TEST_F(ColumnStoreTest, WhatGroupsWriteIsToldToWhoCopiesTheColumn) {
  ASSERT_TRUE(Open(10).ok());
  const auto watch = server_.columns().Watch(kFile);
  ASSERT_TRUE(watch.ok()) << watch.status();
  const Version id = clock_.Next();
  ASSERT_EQ(Prepare(id, BlockFor(kFile, Version{10}, 3, 'a')), Refusal::kNone);
  ASSERT_TRUE(server_.Tell(CommitKind::kCommit, id).ok());
  const auto changes = server_.columns().TakeChanges(kFile, *watch);
  ASSERT_TRUE(changes.ok()) << changes.status();
  constexpr uint64_t kBytes = ObjectStore::kBlockBytes;
  EXPECT_EQ(changes->ranges, (std::vector<Range>{{3 * kBytes, kBytes}}));
}

TEST_F(ColumnStoreTest, WhoRepairsAFileSeesWhetherOthersUseColumns) {
  const auto own = Open(10);
  const auto other = server_.ref()->Open(kFile + 1, Version{11});
  ASSERT_TRUE(own.ok() && other.ok()) << own.status() << other.status();
  uint64_t seen = server_.ref()->UsesBut(kFile).value_or(0);
  const auto grows = [&] {
    const uint64_t uses = server_.ref()->UsesBut(kFile).value_or(0);
    return std::exchange(seen, uses) != uses;
  };
  ASSERT_TRUE((*own)->Write(0, runtime::Block::CopyOf("own"), kNow).ok());
  ASSERT_TRUE((*own)->Flush(kNow).ok());
  EXPECT_FALSE(grows());
  ASSERT_TRUE((*other)->Read(0, 1, kNow).ok());
  EXPECT_TRUE(grows()) << "a read of another file's";
  EXPECT_FALSE(grows());
  ASSERT_EQ(Prepare(clock_.Next(), BlockFor(kFile + 1, Version{11}, 0, 'a')), Refusal::kNone);
  EXPECT_TRUE(grows()) << "a group in another file's";
  ASSERT_TRUE(Open(12).ok());
  EXPECT_TRUE(grows()) << "the file's own was opened for somebody else";
  EXPECT_FALSE(grows());
}

TEST_F(ColumnStoreTest, TheEpochOfGroupsThatAreNotForgottenIsSeen) {
  const Version opening{uint64_t{5} << 40 | 1};
  ASSERT_TRUE(Open(opening.value).ok());
  ASSERT_EQ(Prepare(clock_.Next(), BlockFor(kFile, opening, 0, 'a')), Refusal::kNone);
  server_.Restart();
  EXPECT_EQ(server_.columns().SeenEpoch().value_or(0), 5u);
}

TEST_F(ColumnStoreTest, TheEpochThatIsSeenIsNoneOfTheShardsThatNumbersTell) {
  ASSERT_TRUE(server_.ref()->Open(FirstIdOf(3, 6), Version{uint64_t{5} << kIdEpochShift}).ok());
  EXPECT_EQ(server_.columns().SeenEpoch().value_or(0), 6u);
}

TEST_F(ColumnStoreTest, ALogOutlivesItsColumns) {
  ASSERT_TRUE(Open(10).ok());
  const Version id = clock_.Next();
  ASSERT_EQ(Prepare(id, BlockFor(kFile, Version{10}, 0, 'a')), Refusal::kNone);
  server_.EndColumns();
  EXPECT_TRUE(server_.Tell(CommitKind::kCommit, id).ok());
  EXPECT_EQ(server_.ByteAt(kFile, 0), 'a');
  EXPECT_EQ(Prepare(clock_.Next(), BlockFor(kFile, Version{9}, 1, 'a')), Refusal::kShutOut);
}

}  // namespace
}  // namespace abacus::objfs
