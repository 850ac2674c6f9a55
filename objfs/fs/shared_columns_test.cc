// A volume opens a file's columns for several clients at once.

#include "objfs/raid/shared_columns.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/raid/column_record.h"
#include "objfs/spread/fenced_record.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using runtime::testing::Eventually;
using testing::FileSystemWorld;

// Nodes: 0 the volume's server, 1 a client, 2 not used yet, 5 to 8 the servers of columns.
class SharedColumnsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kServers = 5;
  static constexpr size_t kSpare = 2;

  SharedColumnsTest()
      : world_(9, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1), nullptr, kServers) {}

  // The client has the promise to write, and has told the size.
  void SetUp() override {
    client_ = world_.Client(1);
    const auto made = client_->Create(Caller(), client_->root(), "file", S_IFREG | 0644, O_RDWR,
                                      "raid5(unit=8 KiB)/(isolation/storage)*3");
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(client_->Write(made->handle, 0, Block::CopyOf("text")).ok());
    ASSERT_TRUE(client_->Sync(made->handle).ok());
    const auto node = client_->Lookup(Caller(), client_->root(), "file");
    ASSERT_TRUE(node.ok()) << node.status();
    id_ = node->id;
    while (writer_ < 100 && !world_.volume()->OpenColumns(writer_, id_).ok()) ++writer_;
    ASSERT_LT(writer_, 100);
    ASSERT_NO_FATAL_FAILURE(GiveRecords(/*first_is_behind=*/0));
  }
  // All columns have the newest record, as CloseToShare() leaves them, or the first one such as was
  // made before it.
  void GiveRecords(uint64_t first_is_behind) {
    const auto opened = world_.volume()->OpenColumns(writer_, id_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ColumnRecord newest;
    Version now;
    for (const Ref<Layer>& column : opened->columns) {
      const auto attributes = column->GetAttributes(Version{1});
      ASSERT_TRUE(attributes.ok()) << attributes.status();
      now = std::max(now, attributes->version);
      const auto record = ColumnRecord::Decode(attributes->inode);
      if (record.ok() && newest.sequence < record->sequence) newest = *record;
    }
    ASSERT_GT(newest.sequence, first_is_behind);
    for (size_t i = 0; i < opened->columns.size(); ++i) {
      ColumnRecord record = newest;
      record.column = i;
      record.sequence -= i == 0 ? first_is_behind : 0;
      ASSERT_TRUE(opened->columns[i]->SaveInode(record.Encode(), now).ok());
    }
  }
  std::vector<uint32_t> Servers() {
    const auto nodes = world_.volume()->Stat(std::vector<ObjectId>{id_});
    EXPECT_TRUE(nodes.ok()) << nodes.status();
    return nodes.ok() ? nodes->front().inode.columns : std::vector<uint32_t>();
  }
  // What the server of the first column says to a group of its own.
  Refusal Prepare(const SharedColumns& shared, HybridClock& clock) {
    GroupPart part;
    part.fences.push_back({id_, shared.opening});
    part.writes.push_back({id_, 0, std::string(ObjectStore::kBlockBytes, 'x')});
    CommitMessage question{.kind = CommitKind::kPrepare, .id = clock.Next()};
    question.part = {shared.servers[0], 0};
    question.group.push_back(question.part);
    question.payload = part.Encode();
    const auto reply = shared.logs[0]->Ask(uint64_t{0}, question);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return Refusal::kUnusable;
    question.kind = CommitKind::kAbort;
    EXPECT_TRUE(shared.logs[0]->Ask(uint64_t{0}, question).ok());
    return reply->refusal;
  }

  FileSystemWorld world_;
  std::unique_ptr<FileSystem> client_;
  ObjectId id_ = 0;
  uint16_t writer_ = 1;
};

TEST_F(SharedColumnsTest, WhoMayWriteAloneSharesTheColumnsAndAllHaveOneOpening) {
  const auto shared = world_.volume()->BeginShared(writer_, id_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->columns.size(), 3u);
  EXPECT_EQ(shared->logs.size(), 3u);
  EXPECT_EQ(shared->servers, Servers());
  EXPECT_EQ(shared->id, id_);
  EXPECT_EQ(shared->size, 4u);
  const auto again = world_.volume()->OpenShared(writer_, id_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->opening, shared->opening);
  EXPECT_TRUE(again->columns == shared->columns);
  EXPECT_TRUE(again->logs == shared->logs);
  // Each has a number of its own, which no client has or comes to have.
  EXPECT_NE(shared->writer, 0);
  EXPECT_NE(again->writer, shared->writer);
  const auto joined = world_.volume()->Join(std::string("another"), Ref<ClientEnd>());
  ASSERT_TRUE(joined.ok()) << joined.status();
  for (const uint16_t number : {shared->writer, again->writer}) {
    EXPECT_NE(number, writer_);
    EXPECT_NE(number, joined->writer);
  }
  // Nobody may write alone now, and who has no such promise is not among them.
  EXPECT_TRUE(IsWouldBlock(world_.volume()->OpenColumns(writer_, id_).status()));
  EXPECT_TRUE(IsWouldBlock(world_.volume()->BeginShared(writer_, id_).status()));
  ASSERT_TRUE(world_.volume()->Open(joined->writer, id_).ok());
  EXPECT_TRUE(IsWouldBlock(world_.volume()->OpenShared(joined->writer, id_).status()));
  for (const Ref<Layer>& column : shared->columns) {
    EXPECT_TRUE(column->Read(0, 8, Version{1}).ok());
  }
}

// Else a server that was started again would let an earlier one in, which is alone by what it
// knows.
TEST_F(SharedColumnsTest, ColumnsThatAreSharedKnowTheirOpeningDurably) {
  const auto shared = world_.volume()->BeginShared(writer_, id_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  for (const uint32_t server : shared->servers) {
    const auto attributes = world_.column_store(server).GetAttributes(id_);
    ASSERT_TRUE(attributes.ok()) << attributes.status();
    const auto record = FencedRecord::Decode(attributes->blob);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->opening, shared->opening) << "at server " << server;
  }
  const uint32_t server = shared->servers[0];
  world_.LoseColumns(server);
  world_.StartColumns(server, kSpare);
  const auto columns = world_.volume()->ColumnsAt(server);
  ASSERT_TRUE(columns.ok()) << columns.status();
  const Version earlier{shared->opening.value - 1};
  EXPECT_TRUE(absl::IsUnauthenticated((*columns)->Open(id_, earlier).status()));
}

// They would all be of one opening, by which the right one could not be told any more.
TEST_F(SharedColumnsTest, ColumnsOfWhichOneHasLostItsRecordAreNotShared) {
  ASSERT_NO_FATAL_FAILURE(GiveRecords(/*first_is_behind=*/1));
  EXPECT_TRUE(absl::IsUnavailable(world_.volume()->BeginShared(writer_, id_).status()));
}

TEST_F(SharedColumnsTest, WithoutAllColumnsNothingIsShared) {
  const uint32_t away = Servers()[0];
  world_.LoseColumns(away);
  EXPECT_TRUE(absl::IsUnavailable(world_.volume()->BeginShared(writer_, id_).status()));
  EXPECT_TRUE(IsWouldBlock(world_.volume()->OpenShared(writer_, id_).status()));
  world_.StartColumns(away, kSpare);
  const auto shared = world_.volume()->BeginShared(writer_, id_);
  EXPECT_TRUE(shared.ok()) << shared.status();
}

TEST_F(SharedColumnsTest, ALaterOpeningEndsWhatIsShared) {
  const auto shared = world_.volume()->BeginShared(writer_, id_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  HybridClock clock(shared->writer, [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  });
  EXPECT_EQ(Prepare(*shared, clock), Refusal::kNone);
  const auto mover = world_.volume()->Join(std::string("mover"), Ref<ClientEnd>());
  ASSERT_TRUE(mover.ok()) << mover.status();
  ASSERT_TRUE(world_.volume()->Open(mover->writer, id_).ok());
  const std::vector<uint32_t> before = Servers();
  uint32_t to = 1;
  while (std::count(before.begin(), before.end(), to) > 0) ++to;
  absl::Status moved;
  ASSERT_TRUE(Eventually([&] {
    moved = world_.volume()->MoveColumn(mover->writer, id_, ColumnMove{before[1], to, 0});
    return !IsWouldBlock(moved);
  }));
  ASSERT_TRUE(moved.ok()) << moved;
  EXPECT_EQ(Prepare(*shared, clock), Refusal::kShutOut);
  EXPECT_TRUE(IsWouldBlock(world_.volume()->OpenShared(writer_, id_).status()));
}

}  // namespace
}  // namespace abacus::objfs
