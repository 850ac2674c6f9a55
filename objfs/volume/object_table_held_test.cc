// What is held for a transaction that other tables take part in.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/layer/layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/volume/object_table.h"

namespace abacus::objfs {
namespace holding {
namespace {

using runtime::Block;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint16_t kClient = 7, kOther = 8;
constexpr uint64_t kGroup = 1001, kOtherGroup = 1002;
constexpr int64_t kNowNs = int64_t{1'700'000'000} * 1'000'000'000;

std::unique_ptr<ObjectTable> TableOn(Disk& disk, const std::function<int64_t()>& now_ns) {
  auto store = LocalObjectStore::Open(disk, {});
  EXPECT_TRUE(store.ok()) << store.status();
  if (!store.ok()) return nullptr;
  return std::make_unique<ObjectTable>(*std::move(store), now_ns);
}

ObjectId MakeIn(ObjectTable& table, uint32_t mode, uint32_t links) {
  Inode inode;
  inode.mode = mode;
  inode.links = links;
  const auto node = table.Make(kClient, inode, "");
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? node->id : 0;
}

// A name comes: the directory's block is written for the first time.
Part NameIn(ObjectId directory, const std::string& name) {
  Part part{.id = directory};
  part.reads = {{{0, ObjectStore::kBlockBytes}, Version()}};
  part.writes = {{0, Block::CopyOf(name)}};
  part.change.entries = 1;
  return part;
}
Part Linked(ObjectId file, int32_t links = 1) {
  Part part{.id = file};
  part.change.links = links;
  return part;
}
Transaction Of(std::vector<Part> parts, std::optional<uint64_t> tree = std::nullopt) {
  return {std::move(parts), tree};
}

std::string ContentsOf(ObjectStore& store, ObjectId id) {
  std::string bytes(100, '?');
  const auto read = store.Read(id, 0, std::span(bytes.data(), bytes.size()));
  EXPECT_TRUE(read.ok()) << read.status();
  return bytes.substr(0, read.ok() ? *read : 0);
}

class HeldTest : public ::testing::Test {
 protected:
  HeldTest() {
    Restart();
    if (table_ == nullptr) return;
    records_ = Make(0, 1);
    directory_ = Make(S_IFDIR | 0755, 2);
    file_ = Make(S_IFREG | 0644, 1);
  }
  // As after a crash: what was not flushed is gone.
  void Restart() {
    table_.reset();
    table_ = TableOn(disk_, [this] { return now_ns_.load(); });
    ASSERT_NE(table_, nullptr);
  }
  ObjectId Make(uint32_t mode, uint32_t links) { return MakeIn(*table_, mode, links); }
  CommitState Hold(const Transaction& transaction, uint64_t group = kGroup) {
    const auto outcome = table_->Hold(kClient, transaction, group);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->state : CommitState::kGone;
  }
  absl::StatusOr<Outcome> CommitHeld(const Transaction& transaction, uint64_t group = kGroup) {
    const std::string told = absl::StrCat("group ", group);
    const ObjectUpdate beside{.id = records_, .writes = {{0, told}}, .blob = std::nullopt};
    return table_->CommitHeld(kClient, transaction, group, beside);
  }
  absl::Status Commit(uint16_t writer, const Transaction& transaction) {
    const auto outcome = table_->Commit(writer, transaction);
    if (!outcome.ok()) return outcome.status();
    EXPECT_EQ(outcome->state, CommitState::kCommitted);
    return absl::OkStatus();
  }
  std::string Records() { return ContentsOf(table_->store(), records_); }

  MemoryDisk disk_;
  std::atomic<int64_t> now_ns_{kNowNs};
  std::unique_ptr<ObjectTable> table_;
  ObjectId records_ = 0, directory_ = 0, file_ = 0;
};

TEST_F(HeldTest, WhatIsHeldIsChangedByNoOtherTransaction) {
  const Transaction link = Of({NameIn(directory_, "a name"), Linked(file_)});
  ASSERT_EQ(Hold(link), CommitState::kCommitted);
  EXPECT_EQ(table_->Stat(directory_)->size, 0u) << "nothing is changed yet";
  EXPECT_EQ(table_->Stat(file_)->inode.links, 1u);
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({Linked(file_)}))));
  EXPECT_TRUE(IsWouldBlock(Commit(kClient, Of({NameIn(directory_, "another")}))));
  EXPECT_TRUE(IsWouldBlock(table_->Change(kOther, file_, {.permissions = 0600}).status()));
  EXPECT_TRUE(IsWouldBlock(table_->Hold(kOther, Of({Linked(file_)}), kOtherGroup).status()));
  const ObjectId free = Make(S_IFREG | 0644, 1);
  EXPECT_TRUE(Commit(kOther, Of({Linked(free)})).ok());

  const auto outcome = CommitHeld(link);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->state, CommitState::kCommitted);
  ASSERT_EQ(outcome->nodes.size(), 2u) << "what is beside it is no part";
  EXPECT_EQ(outcome->nodes[0].inode.entries, 1u);
  EXPECT_EQ(outcome->nodes[0].size, 6u);
  EXPECT_EQ(outcome->nodes[1].inode.links, 2u);
  EXPECT_EQ(outcome->version.writer(), kClient);
  EXPECT_EQ(ContentsOf(table_->store(), directory_), "a name");
  EXPECT_EQ(Records(), "group 1001");
  EXPECT_TRUE(Commit(kOther, Of({Linked(file_)})).ok()) << "it is held no more";
  EXPECT_EQ(table_->Stat(file_)->inode.links, 3u);
}

TEST_F(HeldTest, WhatIsReleasedIsAsItWas) {
  const Transaction link = Of({NameIn(directory_, "a name"), Linked(file_)});
  ASSERT_EQ(Hold(link), CommitState::kCommitted);
  ASSERT_EQ(Hold(link), CommitState::kCommitted) << "a second time for the same";
  table_->Release(link, kOtherGroup);
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({Linked(file_)})))) << "that is not its own";
  table_->Release(link, kGroup);
  EXPECT_TRUE(Commit(kOther, link).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CommitHeld(link).status())) << "it is not held";
  EXPECT_EQ(table_->Stat(file_)->inode.links, 2u);
  EXPECT_EQ(Records(), "");
}

TEST_F(HeldTest, WhatWouldNotBeCommittedIsNotHeld) {
  ASSERT_TRUE(Commit(kOther, Of({NameIn(directory_, "first")})).ok());
  const auto stale = table_->Hold(kClient, Of({Linked(file_), NameIn(directory_, "x")}), kGroup);
  ASSERT_TRUE(stale.ok()) << stale.status();
  EXPECT_EQ(stale->state, CommitState::kStale);
  EXPECT_EQ(stale->id, directory_);
  EXPECT_THAT(stale->nodes, IsEmpty());
  EXPECT_EQ(Hold(Of({{.id = directory_, .must_be_empty = true}})), CommitState::kNotEmpty);
  EXPECT_EQ(Hold(Of({Linked(12345)})), CommitState::kGone);
  EXPECT_EQ(Hold(Of({Linked(file_)}, table_->TreeVersion() + 1)), CommitState::kTree);
  EXPECT_TRUE(Commit(kOther, Of({Linked(file_)}, table_->TreeVersion())).ok());
}

// What is prepared is committed some time: it must not turn out then that it cannot be.
TEST_F(HeldTest, WhatCouldNeverBeCommittedIsNotHeld) {
  const auto status = [&](Part part) {
    return table_->Hold(kClient, Of({std::move(part)}), kGroup).status();
  };
  EXPECT_TRUE(absl::IsOutOfRange(status(Linked(file_, Inode::kLinksMax))));
  Part part{.id = file_};
  part.change.xattrs = {{.name = "user.a", .value = std::nullopt, .rule = XattrRule::kMustExist}};
  EXPECT_TRUE(absl::IsNotFound(status(part)));
  part = Part{.id = directory_};
  part.writes = {{0, Block::CopyOf("x")}, {1, Block::CopyOf("y")}};
  EXPECT_TRUE(absl::IsInvalidArgument(status(part))) << "two writes to one block";
  part.writes = {{0, Block()}};
  EXPECT_TRUE(absl::IsInvalidArgument(status(part)));
  part.writes = {{ObjectStore::kObjectBytesMax, Block::CopyOf("x")}};
  EXPECT_TRUE(absl::IsOutOfRange(status(part)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      table_->Hold(kClient, Of({Linked(file_), Linked(file_)}), kGroup).status()));
  EXPECT_TRUE(Commit(kOther, Of({Linked(file_), NameIn(directory_, "x")})).ok());
}

TEST_F(HeldTest, BytesTimesAndColumnsOfWhatIsHeldGoOn) {
  ASSERT_TRUE(table_->Open(kOther, file_).ok());
  const Transaction link = Of({Linked(file_)});
  ASSERT_EQ(Hold(link), CommitState::kCommitted);
  now_ns_ = kNowNs + 1000;
  const absl::Status written = table_->ChangeBytes(kOther, file_, [&](Version version) {
    return table_->store().Write(file_, 0, "bytes", version.value);
  });
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_TRUE(table_->SetLacking(file_, {}).ok());
  EXPECT_TRUE(table_->Flush(file_).ok());
  EXPECT_TRUE(table_->Close(kOther, file_).ok());
  const auto outcome = CommitHeld(link);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->nodes[0].inode.links, 2u);
  EXPECT_EQ(outcome->nodes[0].inode.modified_ns, kNowNs + 1000);
  EXPECT_EQ(outcome->nodes[0].size, 5u);
}

TEST_F(HeldTest, TheTreeIsHeldToo) {
  const uint64_t before = table_->TreeVersion();
  // The shard with the tree may have nothing else of it.
  const Transaction moved = Of({}, before);
  ASSERT_EQ(Hold(moved), CommitState::kCommitted);
  EXPECT_EQ(table_->TreeVersion(), before);
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({Linked(file_)}, before))));
  EXPECT_TRUE(Commit(kOther, Of({Linked(file_)})).ok()) << "that moves no directory";
  ASSERT_TRUE(CommitHeld(moved).ok());
  EXPECT_EQ(table_->TreeVersion(), before + 1);
  EXPECT_EQ(Records(), "group 1001");
  EXPECT_EQ(Hold(Of({Linked(file_)}, before)), CommitState::kTree);
  const Transaction again = Of({Linked(file_)}, before + 1);
  ASSERT_EQ(Hold(again), CommitState::kCommitted);
  table_->Release(again, kGroup);
  EXPECT_EQ(table_->TreeVersion(), before + 1);
  EXPECT_TRUE(Commit(kOther, again).ok());
}

TEST_F(HeldTest, WhatWasHeldWhenTheStoreWasClosedIsHeldAgainWithoutAQuestion) {
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  // By another table: this one's versions of the tree are others.
  const Transaction link = Of({NameIn(directory_, "a name"), Linked(file_)}, 77);
  Restart();
  table_->HoldAgain(link, kGroup);
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({Linked(file_)}))));
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({}, table_->TreeVersion()))));
  const uint64_t before = table_->TreeVersion();
  const auto outcome = CommitHeld(link);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->state, CommitState::kCommitted);
  EXPECT_EQ(table_->Stat(file_)->inode.links, 2u);
  EXPECT_EQ(table_->TreeVersion(), before + 1);
}

TEST_F(HeldTest, WhatIsHeldIsNotRemovedBeforeItIsFree) {
  ASSERT_TRUE(Commit(kOther, Of({Linked(file_, -1)})).ok());
  const Transaction unlinked = Of({{.id = file_}});
  ASSERT_EQ(Hold(unlinked), CommitState::kCommitted);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(table_->FlushAndRemove().ok());
    EXPECT_EQ(table_->Stat(file_)->id, file_);
    EXPECT_EQ(table_->waiting_removals(), 1u) << "it is looked at again";
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(table_->Discard(file_)));
  table_->Release(unlinked, kGroup);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file_)->id, 0u);
  EXPECT_EQ(table_->waiting_removals(), 0u);
}

// Who had it open when the server died comes back within a lease, and may come after the outcome.
TEST_F(HeldTest, WhatLosesItsNameAfterARestartWaitsForThoseWhoHadItOpen) {
  const ObjectId other = Make(S_IFREG | 0644, 1);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  const Transaction unlinked = Of({Linked(file_, -1), Linked(other, -1)});
  Restart();
  table_->HoldAgain(unlinked, kGroup);
  ASSERT_TRUE(CommitHeld(unlinked).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(table_->FlushAndRemove().ok());
    EXPECT_EQ(table_->Stat(file_)->id, file_);
    EXPECT_EQ(table_->waiting_removals(), 2u) << "it is looked at again";
  }
  ASSERT_TRUE(table_->Open(kClient, file_).ok());
  ASSERT_TRUE(table_->CollectOrphans(0, 100).ok());
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file_)->id, file_);
  EXPECT_EQ(table_->Stat(other)->id, 0u) << "nobody came for it";
  ASSERT_TRUE(table_->Close(kClient, file_).ok());
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file_)->id, 0u);
}

TEST_F(HeldTest, WhatGetsANameWhileItWaitsForItsRemovalStays) {
  ASSERT_TRUE(Commit(kOther, Of({Linked(file_, -1)})).ok());
  const Transaction linked = Of({Linked(file_)});
  ASSERT_EQ(Hold(linked), CommitState::kCommitted);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  ASSERT_TRUE(CommitHeld(linked).ok());
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file_)->inode.links, 1u);
}

TEST_F(HeldTest, AnObjectIsMadeWithItsNameWhenItIsCommitted) {
  const ObjectId made = *table_->Reserve();
  Part part = Linked(made);
  part.creation.emplace();
  part.creation->inode.mode = S_IFLNK | 0777;
  part.creation->contents = "target";
  const Transaction named = Of({NameIn(directory_, "a name"), part});
  ASSERT_EQ(Hold(named), CommitState::kCommitted);
  EXPECT_EQ(table_->Stat(made)->id, 0u);
  const auto outcome = CommitHeld(named);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(table_->Stat(made)->inode.links, 1u);
  EXPECT_EQ(ContentsOf(table_->store(), made), "target");
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(made)->id, made);
}

TEST_F(HeldTest, WhoWasRefusedIsToldOnceForEachRelease) {
  const Transaction held = Of({Linked(directory_), Linked(file_)}, table_->TreeVersion());
  ASSERT_EQ(Hold(held), CommitState::kCommitted);
  for (const uint16_t writer : {3, 1, 3}) {
    EXPECT_TRUE(IsWouldBlock(Commit(writer, Of({Linked(file_)}))));
  }
  EXPECT_TRUE(IsWouldBlock(table_->Change(2, directory_, {.permissions = 0700}).status()));
  EXPECT_TRUE(IsWouldBlock(table_->Hold(5, Of({}, table_->TreeVersion()), kOtherGroup).status()));
  EXPECT_THAT(table_->TakeRefused({12345}), IsEmpty());
  table_->Release(held, kGroup);
  EXPECT_THAT(table_->TakeRefused({file_, directory_}), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(table_->TakeRefused({file_, directory_}), IsEmpty());
}

TEST_F(HeldTest, WhoWaitsForTheTreeIsNotToldWhileItIsHeld) {
  const Transaction moved = Of({}, table_->TreeVersion()), linked = Of({Linked(file_)});
  ASSERT_EQ(Hold(moved), CommitState::kCommitted);
  ASSERT_EQ(Hold(linked, kOtherGroup), CommitState::kCommitted);
  EXPECT_TRUE(IsWouldBlock(Commit(kOther, Of({}, table_->TreeVersion()))));
  ASSERT_TRUE(CommitHeld(linked, kOtherGroup).ok());
  EXPECT_THAT(table_->TakeRefused({file_}), IsEmpty());
  ASSERT_TRUE(CommitHeld(moved).ok());
  EXPECT_THAT(table_->TakeRefused({}), ElementsAre(kOther));
}

TEST_F(HeldTest, AStepThatIsNoTransactionIsPut) {
  const ObjectUpdate update{.id = records_, .writes = {{0, "a record"}}, .blob = std::nullopt};
  ASSERT_TRUE(table_->Put(update).ok());
  EXPECT_EQ(Records(), "a record");
  const auto group = table_->NewGroup(), next = table_->NewGroup();
  ASSERT_TRUE(group.ok() && next.ok());
  EXPECT_NE(*group, *next);
  EXPECT_EQ(table_->Stat(*group)->id, 0u) << "it is no object";
}

TEST(HeldFaultTest, WhatTheStoreRefusesIsHeldAsBefore) {
  MemoryDisk memory;
  std::atomic<bool> full{false};
  ModelDisk disk(memory, {.fault = [&](std::string_view call, const std::string& path) {
                   return full && call == "write" && path.ends_with(".d")
                              ? absl::ResourceExhaustedError("no space")
                              : absl::OkStatus();
                 }});
  const auto table = TableOn(disk, [] { return kNowNs; });
  ASSERT_NE(table, nullptr);
  const ObjectId records = MakeIn(*table, 0, 1), directory = MakeIn(*table, S_IFDIR | 0755, 2);
  const Transaction named = Of({NameIn(directory, "a name")});
  ASSERT_TRUE(table->Hold(kClient, named, kGroup).ok());
  const ObjectUpdate beside{.id = records, .writes = {{0, "decided"}}, .blob = std::nullopt};
  full = true;
  const absl::Status refused = table->CommitHeld(kClient, named, kGroup, beside).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(IsWouldBlock(table->Commit(kOther, named).status()));
  full = false;
  const auto outcome = table->CommitHeld(kClient, named, kGroup, beside);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(ContentsOf(table->store(), directory), "a name");
  EXPECT_EQ(ContentsOf(table->store(), records), "decided");
}

// The power goes at each call to the disk in turn.
TEST(HeldCrashTest, WhatIsCommittedAndWhatIsBesideItAreThereBothOrNeither) {
  const auto now = [] { return kNowNs; };
  bool whole = false;
  uint64_t cuts = 0, lost = 0;
  for (; !whole && !::testing::Test::HasFailure(); ++cuts) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("cut after ", cuts, " calls, seed ", seed));
      PowerCutDisk disk;
      ObjectId records = 0, directory = 0, file = 0;
      {
        const auto table = TableOn(disk, now);
        ASSERT_NE(table, nullptr);
        records = MakeIn(*table, 0, 1);
        directory = MakeIn(*table, S_IFDIR | 0755, 2);
        file = MakeIn(*table, S_IFREG | 0644, 1);
        ASSERT_TRUE(table->FlushAndRemove().ok());
        const Transaction link = Of({NameIn(directory, "a name"), Linked(file)});
        ASSERT_TRUE(table->Hold(kClient, link, kGroup).ok());
        const ObjectUpdate beside{.id = records, .writes = {{0, "decided"}}, .blob = std::nullopt};
        disk.CutPowerAfter(cuts);
        whole = table->CommitHeld(kClient, link, kGroup, beside).ok() && table->Flush(file).ok();
      }
      disk.CutPower();
      disk.PowerOn(seed);
      const auto table = TableOn(disk, now);
      ASSERT_NE(table, nullptr);
      const bool is_decided = ContentsOf(table->store(), records) == "decided";
      EXPECT_EQ(ContentsOf(table->store(), directory) == "a name", is_decided);
      EXPECT_EQ(table->Stat(file)->inode.links == 2, is_decided);
      EXPECT_EQ(table->Stat(directory)->inode.entries == 1, is_decided);
      EXPECT_TRUE(is_decided || !whole);
      lost += is_decided ? 0 : 1;
    }
    ASSERT_LT(cuts, 100u);
  }
  EXPECT_GT(cuts, 1u);
  EXPECT_GT(lost, 0u);
}

}  // namespace
}  // namespace holding
}  // namespace abacus::objfs
