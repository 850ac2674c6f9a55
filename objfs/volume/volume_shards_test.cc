// A volume that is a shard, without the others.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_commits.h"
#include "objfs/volume/volume.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

class VolumeShardsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kVolume = 4711;

  VolumeShardsTest() { Open("home~1"); }

  // As after a stop of its server.
  absl::Status TryOpen(const std::string& name) {
    volume_.reset();
    store_.reset();
    auto store =
        LocalObjectStore::Open(disk_, {.quota_bytes = quota_bytes_, .ids_begin = FirstIdOf(1, 1)});
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    Volume::Host host;
    host.now_ns = [] { return int64_t{1'700'000'000} * 1'000'000'000; };
    host.steady_ns = [this] { return steady_ns_.load(); };
    if (at_search_) {
      host.find_shard = [this](uint32_t) -> absl::StatusOr<runtime::Ref<Volume>> {
        at_search_();
        return absl::UnavailableError("there is none");
      };
    }
    auto volume = Volume::Make(store_, {.name = name}, std::move(host));
    if (!volume.ok()) return volume.status();
    volume_ = *std::move(volume);
    return absl::OkStatus();
  }
  void Open(const std::string& name) {
    const absl::Status opened = TryOpen(name);
    ASSERT_TRUE(opened.ok()) << opened;
  }
  absl::StatusOr<VolumeInfo> Join() { return volume_->Join("client", {}); }
  static InodeChange SetsShards() {
    InodeChange change;
    change.xattrs.push_back({.name = kShardsXattr, .value = "2 1 7", .rule = XattrRule::kAny});
    return change;
  }
  // Of its root, for a group of shard 0.
  ShardPrepare RootOf(const VolumeInfo& info) {
    ShardPrepare prepare{.group = FirstIdOf(0, 1) + 77, .coordinator = 0, .writer = info.writer};
    prepare.transaction.parts.push_back({.id = info.root});
    return prepare;
  }

  MemoryDisk memory_;
  std::atomic<bool> syncs_fail_{false};
  ModelDisk disk_{memory_,
                  {.wait = [](absl::Duration) {},
                   .fault =
                       [this](std::string_view call, const std::string&) {
                         return syncs_fail_ && call == "sync"
                                    ? absl::UnavailableError("the disk is broken")
                                    : absl::OkStatus();
                       }}};
  uint64_t quota_bytes_ = UINT64_MAX;  // of what is opened from now on
  std::shared_ptr<ObjectStore> store_;
  std::atomic<int64_t> steady_ns_{1'000'000'000};
  std::function<void()> at_search_;  // for another shard, by what is opened from now on
  std::unique_ptr<Volume> volume_;
};

TEST_F(VolumeShardsTest, IsOneFromThenOn) {
  EXPECT_EQ(*volume_->Shards(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->SettleShards(kVolume, {})));
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->BecomeShard(1, kVolume)));
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->BecomeShard(3, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->BecomeShard(kShardsMax + 1, kVolume)));
  ASSERT_TRUE(volume_->BecomeShard(3, kVolume).ok());
  EXPECT_TRUE(volume_->BecomeShard(3, kVolume).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->BecomeShard(2, kVolume)));
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->BecomeShard(3, kVolume + 1)));
  const auto first = Join();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->shards, 3u);
  Open("home~1");
  const auto second = Join();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->shards, 3u);
  for (const VolumeInfo& info : {*first, *second}) EXPECT_EQ(info.volume, kVolume);
  EXPECT_TRUE(volume_->BecomeShard(3, kVolume).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->BecomeShard(3, kVolume + 1)));
  EXPECT_EQ(second->root, first->root);
  EXPECT_NE(second->life, first->life);
  // Under another name it would take itself for another shard.
  EXPECT_TRUE(absl::IsDataLoss(TryOpen("home~3")));
  EXPECT_TRUE(absl::IsDataLoss(TryOpen("home~2")));
  EXPECT_TRUE(absl::IsDataLoss(TryOpen("home")));
  Open("home~1");
}

TEST_F(VolumeShardsTest, HasTheStackForItsFilesAfterARestartAndNoClientSetsIt) {
  const std::string stack = "cache/mirror/(isolation/storage)*2";
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->KeepFileStack("cache/(storage")));
  ASSERT_TRUE(volume_->KeepFileStack(stack).ok());
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  Open("home~1");
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->own_file_stack, stack);
  EXPECT_EQ(info->file_stack, Volume::Options().file_stack);
  InodeChange change;
  change.xattrs.push_back({.name = kFileStackXattr, .value = std::nullopt});
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->Change(info->writer, info->root, change).status()));
  // A client of the server's own makes no files.
  ASSERT_TRUE(volume_->Leave(info->writer).ok());
  ASSERT_TRUE(volume_->Join(absl::StrCat(Volume::kOwnClients, "scrub"), {}).ok());
  EXPECT_TRUE(volume_->KeepFileStack("isolation/storage").ok());
  EXPECT_EQ(Join()->own_file_stack, "isolation/storage");
}

TEST_F(VolumeShardsTest, BecomesNoneOnceItHasClients) {
  ASSERT_TRUE(Join().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->BecomeShard(2, kVolume)));
  EXPECT_EQ(*volume_->Shards(), 1u);
}

TEST_F(VolumeShardsTest, NoClientSaysThatItIsOne) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(
      absl::IsInvalidArgument(volume_->Change(info->writer, info->root, SetsShards()).status()));
  Transaction transaction;
  transaction.parts.push_back({.id = info->root});
  transaction.parts.back().change = SetsShards();
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->Commit(info->writer, transaction).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(volume_->CommitTogether(info->writer, transaction, {}).status()));
  ShardPrepare prepare = RootOf(*info);
  prepare.transaction = transaction;
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->PrepareShard(kVolume, prepare).status()));
}

// Or nothing could be removed that other shards have a part in.
TEST_F(VolumeShardsTest, RecordsTakeNoSpaceFromAQuotaThatIsUsedUp) {
  quota_bytes_ = uint64_t{2} << 20;
  Open("home~1");
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  Open("home~1");
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const auto filler = store_->Create("", 1);
  ASSERT_TRUE(filler.ok()) << filler.status();
  const std::string block(ObjectStore::kBlockBytes, 'f');
  absl::Status filled;
  for (uint64_t at = 0; filled.ok(); at += block.size()) {
    filled = store_->Write(*filler, at, block, 1);
  }
  ASSERT_TRUE(absl::IsResourceExhausted(filled)) << filled;
  // One that changes a block of a directory, which has no room for it afterwards.
  ShardPrepare prepare = RootOf(*info);
  prepare.transaction.parts.back().writes = {{0, runtime::Block::CopyOf(block)}};
  const auto prepared = volume_->PrepareShard(kVolume, prepare);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE(volume_->DecideShard(kVolume, prepare.group, /*commits=*/false).ok());
  prepare.transaction.parts.clear();
  for (size_t i = 0; i < ShardCommits::kPreparedOfOneMax; ++i) {
    prepare.group = FirstIdOf(0, 1) + i;
    ASSERT_TRUE(volume_->PrepareShard(kVolume, prepare).ok()) << i;
  }
  Transaction own;
  own.parts.push_back({.id = info->root});
  own.parts.back().change.touch_changed = true;
  for (size_t i = 0; i < 2; ++i) {
    const auto outcome = volume_->CommitTogether(info->writer, own, {});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  }
  for (size_t i = 0; i < ShardCommits::kPreparedOfOneMax; ++i) {
    EXPECT_TRUE(volume_->DecideShard(kVolume, FirstIdOf(0, 1) + i, /*commits=*/true).ok()) << i;
  }
}

TEST_F(VolumeShardsTest, NoClientNamesTheObjectWithItsRecords) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const auto root = volume_->Stat({info->root});
  ASSERT_TRUE(root.ok()) << root.status();
  const auto state = ShardState::Parse(root->front().inode.xattrs.at(kShardsXattr));
  ASSERT_TRUE(state.ok()) << state.status();
  const ObjectId records = state->records;
  EXPECT_EQ(volume_->Stat({records})->front().id, records);
  const uint16_t writer = info->writer;
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->Open(writer, records).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(volume_->Change(writer, records, {.permissions = 0600}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->TellWhenWritten(writer, records, 1)));
  Transaction transaction;
  transaction.parts.push_back({.id = records});
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->Commit(writer, transaction).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->CommitTogether(writer, transaction, {}).status()));
  ShardPrepare prepare = RootOf(*info);
  prepare.transaction = transaction;
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->PrepareShard(kVolume, prepare).status()));
  // Also after a restart.
  Open("home~1");
  const auto again = Join();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->Open(again->writer, records).status()));
}

TEST_F(VolumeShardsTest, WhatCannotBeDoneTogetherMakesNothing) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const auto ids = volume_->Reserve(info->writer, 1);
  ASSERT_TRUE(ids.ok()) << ids.status();
  Transaction own;
  own.parts.push_back({.id = ids->front()});
  own.parts.back().creation.emplace().inode.mode = S_IFDIR | 0755;
  own.parts.back().change.links = 2;
  const std::vector<ShardTransaction> others = {{.shard = 0, .writer = 1, .transaction = {}}};
  // What it would have made stays the client's.
  for (int again = 0; again < 2; ++again) {
    const auto outcome = volume_->CommitTogether(info->writer, own, others);
    EXPECT_EQ(ShardThatIsAway(outcome.status()), 0u) << outcome.status();
    const auto nodes = volume_->Stat(*ids);
    ASSERT_TRUE(nodes.ok()) << nodes.status();
    EXPECT_EQ(nodes->front().id, 0u);
  }
  // With nobody else it is a transaction like others.
  const auto outcome = volume_->CommitTogether(info->writer, own, {});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->state, CommitState::kCommitted);
  EXPECT_EQ(volume_->Stat(*ids)->front().inode.links, 2u);
  own.parts.back().creation->opens = true;
  EXPECT_TRUE(absl::IsInvalidArgument(volume_->CommitTogether(info->writer, own, others).status()));
}

TEST_F(VolumeShardsTest, WhoWaitsForColumnsToBeChosenWaitsForNoShard) {
  std::atomic<bool> avoided{false};
  at_search_ = [&] { avoided = avoided || volume_->AvoidServer(1).ok(); };
  Open("home~1");
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const auto ids = volume_->Reserve(info->writer, 1);
  ASSERT_TRUE(ids.ok()) << ids.status();
  Transaction own;
  own.parts.push_back({.id = ids->front()});
  own.parts.back().creation.emplace().inode.mode = S_IFDIR | 0755;
  const auto outcome =
      volume_->CommitTogether(info->writer, own, {{.shard = 0, .writer = 1, .transaction = {}}});
  EXPECT_EQ(ShardThatIsAway(outcome.status()), 0u) << outcome.status();
  EXPECT_TRUE(avoided);
  volume_.reset();
}

// A client that took its server for dead would join it anew, for nothing.
TEST_F(VolumeShardsTest, WhatCannotBeMadeDurableIsNotTheEndOfTheServer) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  Transaction own;
  own.parts.push_back({.id = info->root});
  own.parts.back().change.touch_changed = true;
  syncs_fail_ = true;
  const absl::Status told = volume_->CommitTogether(info->writer, own, {}).status();
  EXPECT_TRUE(absl::IsUnknown(told)) << told;
  EXPECT_EQ(runtime::KindOf(told), runtime::ErrorKind::kNone) << told;
  EXPECT_TRUE(volume_->Renew(info->writer).ok());
}

TEST_F(VolumeShardsTest, AClientOfAnotherLifeIsNone) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  ShardPrepare prepare = RootOf(*info);
  prepare.life = info->life + 1;
  EXPECT_TRUE(IsNoClient(volume_->PrepareShard(kVolume, prepare).status()));
  prepare.life = info->life;
  EXPECT_TRUE(volume_->PrepareShard(kVolume, prepare).ok());
  EXPECT_TRUE(volume_->DecideShard(kVolume, prepare.group, /*commits=*/false).ok());
}

// Else a coordinator that does not know a group, for it is of another volume, would abort it.
TEST_F(VolumeShardsTest, ToShardsOfAnotherVolumeItIsNotThere) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const ShardPrepare prepare = RootOf(*info);
  const uint64_t own = FirstIdOf(1, 1) + 77;  // a group that it would coordinate
  ASSERT_TRUE(volume_->PrepareShard(kVolume, prepare).ok());
  ASSERT_EQ(volume_->DecisionOfShards(kVolume, own).value_or(ShardDecision::kUndecided),
            ShardDecision::kAborted);
  const absl::Status all[] = {
      volume_->PrepareShard(kVolume + 1, prepare).status(),
      volume_->DecideShard(kVolume + 1, prepare.group, /*commits=*/false).status(),
      volume_->SettleShards(kVolume + 1, {}),
      volume_->DecisionOfShards(kVolume + 1, own).status(),
  };
  for (const absl::Status& status : all) {
    EXPECT_EQ(runtime::KindOf(status), runtime::ErrorKind::kObjectNotFound) << status;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(volume_->SettleShards(kVolume, {prepare.group})))
      << "what is prepared was decided for another volume";
  EXPECT_TRUE(volume_->DecideShard(kVolume, prepare.group, /*commits=*/false).ok());
  EXPECT_TRUE(volume_->SettleShards(kVolume, {prepare.group}).ok());
}

TEST_F(VolumeShardsTest, NobodyJoinsForAWhileWhileItIsInDoubt) {
  ASSERT_TRUE(volume_->BecomeShard(2, kVolume).ok());
  const auto info = Join();
  ASSERT_TRUE(info.ok()) << info.status();
  const ShardPrepare prepare = RootOf(*info);
  ASSERT_TRUE(volume_->PrepareShard(kVolume, prepare).ok());
  EXPECT_TRUE(Join().ok()) << "it began after the volume was opened";
  Open("home~1");
  EXPECT_TRUE(absl::IsUnavailable(Join().status()));
  steady_ns_ += int64_t{6} * 1'000'000'000;
  const auto later = Join();
  ASSERT_TRUE(later.ok()) << later.status();
  // Who changes what it is about comes again, and others do not.
  Transaction transaction;
  transaction.parts.push_back({.id = info->root});
  EXPECT_TRUE(IsWouldBlock(volume_->Commit(later->writer, transaction).status()));
  ASSERT_TRUE(volume_->DecideShard(kVolume, prepare.group, /*commits=*/true).ok());
  EXPECT_TRUE(volume_->Commit(later->writer, transaction).ok());
  Open("home~1");
  EXPECT_TRUE(Join().ok());
}

}  // namespace
}  // namespace abacus::objfs
