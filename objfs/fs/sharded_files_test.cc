// The bytes, handles, locks and space of a volume whose files are in several shards.

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/sharded_fixture.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::testing::Eventually;
using testing::ShardedWorld;

constexpr char kCachedHere[] = "cache(block=512 B)/isolation/storage";

class ShardedFilesTest : public testing::ShardedFixture {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ShardedFixture::SetUp());
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      files_[shard] = MakeFile(*a_, in_[shard], "f", absl::StrCat("of shard ", shard));
      ASSERT_EQ(ShardOf(files_[shard]), shard);
    }
  }

  static LockRequest Want(ObjectId file, uint64_t owner) {
    return {.file = file, .exclusive = true, .range = {0, 9}, .owner = owner, .pid = 4711};
  }
  // At once.
  static FsError TryLock(FileSystem& at, const LockRequest& request) {
    std::promise<FsError> answer;
    at.Lock(request,
            [&answer](const absl::Status& status) { answer.set_value(FsErrorOf(status)); });
    return answer.get_future().get();
  }
  // Begins to wait.
  static std::future<FsError> WaitForLock(FileSystem& at, LockRequest request, uint64_t ticket) {
    const auto answer = std::make_shared<std::promise<FsError>>();
    request.ticket = ticket;
    at.Lock(request,
            [answer](const absl::Status& status) { answer->set_value(FsErrorOf(status)); });
    return answer->get_future();
  }
  bool AwaitWaiting(uint32_t shard, uint64_t waiting) {
    return Eventually([&] {
      const auto counts = world_.volume(shard)->Locks();
      return counts.ok() && counts->waiting == waiting;
    });
  }

  std::array<ObjectId, kShards> files_ = {};  // by shard
};

TEST_F(ShardedFilesTest, HandlesOfAllShardsAreToldApart) {
  std::set<FileHandle> handles;
  std::array<FileHandle, kShards> of_shard = {};
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    of_shard[shard] = Open(*a_, files_[shard]);
    handles.insert(of_shard[shard]);
    handles.insert(Open(*a_, files_[shard]));
  }
  EXPECT_EQ(handles.size(), size_t{2} * kShards);
  EXPECT_FALSE(handles.contains(0));
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const FileHandle handle = of_shard[shard];
    EXPECT_EQ(ReadOpen(*a_, handle), absl::StrCat("of shard ", shard));
    EXPECT_EQ(a_->Append(handle, Block::CopyOf("!")).value_or(0), 10u);
    EXPECT_EQ(a_->Push(handle), absl::OkStatus());
    EXPECT_EQ(a_->SyncData(handle), absl::OkStatus());
    EXPECT_EQ(a_->Sync(handle), absl::OkStatus());
    EXPECT_EQ(a_->SeekHole(handle, 0).value_or(0), 11u);
    EXPECT_EQ(a_->SeekData(handle, 5).value_or(0), 5u);
    EXPECT_EQ(a_->Allocate(handle, 0, 0, 100), absl::OkStatus());
    EXPECT_EQ(b_->Stat(files_[shard])->size, 100u);
    EXPECT_EQ(b_->SyncDirectory(in_[shard]), absl::OkStatus());
    EXPECT_EQ(a_->StackOf(files_[shard]).value_or(""), "isolation/storage");
  }
  for (const FileHandle handle : handles) EXPECT_EQ(a_->Release(handle), absl::OkStatus());
  // None of them is one any more, and neither is one of a shard that there is not.
  const FileHandle of_none = (FileHandle{15} << kIdShardShift) | 1;
  for (const FileHandle handle : {of_shard[0], of_shard[2], FileHandle{0}, of_none}) {
    EXPECT_EQ(ErrorOf(a_->Read(handle, 0, 1).status()), FsError::kBadHandle);
  }
}

TEST_F(ShardedFilesTest, AnIdentifierOfNoShardIsOfNoFile) {
  const ObjectId of_none = FirstIdOf(kShardsMax - 1, 1) + 5;
  EXPECT_EQ(ErrorOf(a_->Stat(of_none).status()), FsError::kStale);
  EXPECT_EQ(ErrorOf(a_->Lookup(kRoot, of_none, "f").status()), FsError::kStale);
  EXPECT_EQ(ErrorOf(a_->Open(kRoot, of_none, O_RDONLY).status()), FsError::kStale);
}

TEST_F(ShardedFilesTest, AReadSeesWhatWasWrittenWhereverTheNameIs) {
  const auto c = world_.Client(ShardedWorld::kOne, kCachedHere);
  const auto d = world_.Client(ShardedWorld::kTwo, kCachedHere);
  ASSERT_TRUE(c != nullptr && d != nullptr);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    const ObjectId file = MakeFile(*c, in_[shard], "cached");
    const FileHandle at_c = Open(*c, file), at_d = Open(*d, file), at_b = Open(*b_, file);
    EXPECT_EQ(c->Write(at_c, 0, Block::CopyOf("first")), absl::OkStatus());
    EXPECT_EQ(ReadOpen(*d, at_d), "first");
    // What is held back is not lost by a change of its names.
    EXPECT_EQ(d->Write(at_d, 0, Block::CopyOf("FIRST, and more")), absl::OkStatus());
    const ObjectId other = in_[(shard + 1) % kShards];
    EXPECT_EQ(Rename(*c, in_[shard], "cached", other, "moved"), absl::OkStatus());
    for (FileSystem* const at : {d.get(), c.get(), b_.get()}) {
      EXPECT_EQ(at->Lookup(kRoot, other, "moved")->size, 15u);
    }
    EXPECT_EQ(ReadOpen(*b_, at_b), "FIRST, and more");
    EXPECT_EQ(c->Write(at_c, 0, Block::CopyOf("f")), absl::OkStatus());
    EXPECT_EQ(d->Unlink(kRoot, other, "moved"), absl::OkStatus());
    EXPECT_EQ(ReadOpen(*d, at_d), "fIRST, and more");
    EXPECT_EQ(c->Release(at_c), absl::OkStatus());
    EXPECT_EQ(d->Release(at_d), absl::OkStatus());
    EXPECT_EQ(ReadOpen(*b_, at_b), "fIRST, and more");
    EXPECT_EQ(b_->Release(at_b), absl::OkStatus());
    EXPECT_TRUE(IsGoneSoon(file));
  }
}

TEST_F(ShardedFilesTest, ANewNameInAnotherShardTellsTheSizeThatAnotherClientHoldsBack) {
  const auto c = world_.Client(ShardedWorld::kTwo, kCachedHere);
  ASSERT_NE(c, nullptr);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    const ObjectId file = MakeFile(*c, in_[shard], "cached"), other = in_[(shard + 1) % kShards];
    const FileHandle handle = Open(*c, file);
    EXPECT_EQ(c->Write(handle, 0, Block::CopyOf("held back")), absl::OkStatus());
    const auto linked = a_->Link(kRoot, file, other, "linked");
    ASSERT_TRUE(linked.ok()) << linked.status();
    EXPECT_EQ(linked->size, 9u);
    EXPECT_EQ(linked->inode.links, 2u);
    EXPECT_EQ(c->Write(handle, 9, Block::CopyOf(" again")), absl::OkStatus());
    EXPECT_EQ(b_->Lookup(kRoot, other, "linked")->size, 15u);
    EXPECT_EQ(c->Release(handle), absl::OkStatus());
  }
}

// With the names that they were given in other shards.
TEST_F(ShardedFilesTest, WhatWasSyncedIsThereAfterAPowerCutOfAllServers) {
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const ObjectId other = in_[(shard + 1) % kShards];
    ASSERT_EQ(Rename(*b_, in_[shard], "f", other, "synced"), absl::OkStatus());
    const FileHandle handle = Open(*a_, files_[shard]);
    EXPECT_EQ(a_->Write(handle, 0, Block::CopyOf("OF")), absl::OkStatus());
    EXPECT_EQ(a_->Sync(handle), absl::OkStatus());
    EXPECT_EQ(a_->Release(handle), absl::OkStatus());
  }
  disks_.CutPower();
  Restart([&] { disks_.PowerOn(7); });
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const ObjectId other = in_[(shard + 1) % kShards];
    EXPECT_EQ(Named(*a_, other, "synced"), files_[shard]);
    EXPECT_EQ(Named(*b_, in_[shard], "f"), 0u);
    EXPECT_EQ(Read(*b_, files_[shard]), absl::StrCat("OF shard ", shard));
  }
}

TEST_F(ShardedFilesTest, BytesAreCopiedFromShardToShard) {
  const std::string bytes(300'000, 'c');
  Write(*a_, files_[1], bytes);
  const FileHandle from = Open(*a_, files_[1], O_RDONLY), to = Open(*a_, files_[2]);
  EXPECT_EQ(a_->CopyRange(from, 100, to, 9, 200'000).value_or(0), 200'000u);
  EXPECT_EQ(ReadOpen(*a_, to), "of shard " + bytes.substr(0, 200'000));
  EXPECT_EQ(a_->CopyRange(from, 299'990, to, 0, 1000).value_or(0), 10u) << "the source ends";
  EXPECT_EQ(Read(*b_, files_[2]).size(), 200'009u);
  EXPECT_EQ(a_->CopyRange(from, 400'000, to, 0, 1000).value_or(1), 0u);
  EXPECT_EQ(ErrorOf(a_->CopyRange(to, 0, from, 0, 10).status()), FsError::kBadHandle)
      << "it is open for reading only";
  EXPECT_EQ(a_->CopyRange(to, 0, to, 200'009, 9).value_or(0), 9u) << "within one as ever";
  EXPECT_EQ(a_->Release(from), absl::OkStatus());
  EXPECT_EQ(ErrorOf(a_->CopyRange(from, 0, to, 0, 10).status()), FsError::kBadHandle);
  EXPECT_EQ(a_->Release(to), absl::OkStatus());
}

TEST_F(ShardedFilesTest, WhoKeepsPagesIsToldOfFilesOfEachShard) {
  runtime::Mutex mutex;
  std::set<ObjectId> told;
  const auto is_told = [&](ObjectId file) {
    runtime::MutexLock lock(mutex);
    return told.contains(file);
  };
  const uint64_t keeper = a_->AddKeeper([&](ObjectId file, const std::function<void()>& done) {
    {
      runtime::MutexLock lock(mutex);
      told.insert(file);
    }
    done();
  });
  std::array<FileHandle, kShards> handles = {};
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    handles[shard] = Open(*a_, files_[shard]);
    ASSERT_TRUE(a_->Stat(files_[shard]).ok());
    EXPECT_TRUE(a_->IsTold(files_[shard]));
    EXPECT_FALSE(is_told(files_[shard]));
    Write(*b_, files_[shard], "another client's");
    EXPECT_TRUE(is_told(files_[shard])) << "before the other client goes on";
  }
  a_->RemoveKeeper(keeper);
  told.clear();
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    ASSERT_TRUE(a_->Stat(files_[shard]).ok());
    Write(*b_, files_[shard], "again");
    EXPECT_FALSE(is_told(files_[shard]));
    EXPECT_EQ(a_->Release(handles[shard]), absl::OkStatus());
  }
}

TEST_F(ShardedFilesTest, LocksOfAFileAreInItsShard) {
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    const LockRequest request = Want(files_[shard], 5);
    EXPECT_EQ(TryLock(*a_, request), FsError::kNone);
    EXPECT_EQ(TryLock(*b_, request), FsError::kWouldBlock);
    EXPECT_EQ(TryLock(*a_, Want(files_[shard], 6)), FsError::kWouldBlock);
    const auto held = b_->GetLock(request);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_TRUE(held->has_value());
    // Wherever its name is.
    ASSERT_EQ(Rename(*b_, in_[shard], "f", in_[(shard + 1) % kShards], "g"), absl::OkStatus());
    EXPECT_EQ(TryLock(*b_, request), FsError::kWouldBlock);
  }
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    EXPECT_EQ(a_->UnlockAll(files_[shard], LockKind::kRecord, 5), absl::OkStatus());
    for (uint32_t other = shard + 1; other < kShards; ++other) {
      EXPECT_EQ(TryLock(*b_, Want(files_[other], 7)), FsError::kWouldBlock) << "it is another's";
    }
    EXPECT_EQ(TryLock(*b_, Want(files_[shard], 7)), FsError::kNone);
    EXPECT_EQ(b_->Unlock(Want(files_[shard], 7)), absl::OkStatus());
  }
}

TEST_F(ShardedFilesTest, WhoWaitsForLocksOfSeveralShardsIsToldOfEach) {
  std::array<uint64_t, kShards> tickets = {};
  std::vector<std::future<FsError>> answers;
  std::set<uint64_t> told_apart;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    ASSERT_EQ(TryLock(*a_, Want(files_[shard], 5)), FsError::kNone);
    tickets[shard] = b_->NewLockTicket();
    told_apart.insert(tickets[shard]);
    answers.push_back(WaitForLock(*b_, Want(files_[shard], 6), tickets[shard]));
    EXPECT_TRUE(AwaitWaiting(shard, 1));
  }
  EXPECT_EQ(told_apart.size(), size_t{kShards});
  b_->CancelLock(tickets[1]);
  EXPECT_EQ(answers[1].get(), FsError::kInterrupted);
  EXPECT_TRUE(AwaitWaiting(1, 0));
  EXPECT_TRUE(AwaitWaiting(0, 1));
  EXPECT_TRUE(AwaitWaiting(2, 1));
  for (const uint32_t shard : {2u, 0u}) {
    EXPECT_EQ(a_->Unlock(Want(files_[shard], 5)), absl::OkStatus());
    EXPECT_EQ(answers[shard].get(), FsError::kNone);
    EXPECT_EQ(TryLock(*a_, Want(files_[shard], 5)), FsError::kWouldBlock);
  }
  // A client that leaves lets go, in every shard.
  b_.reset();
  for (const uint32_t shard : {0u, 2u}) {
    EXPECT_EQ(TryLock(*a_, Want(files_[shard], 5)), FsError::kNone);
  }
}

TEST_F(ShardedFilesTest, SpaceIsThatOfAllShards) {
  Write(*a_, files_[1], std::string(100'000, 'x'));
  const auto is_the_sum = [&] {
    const auto space = b_->Space();
    EXPECT_TRUE(space.ok()) << space.status();
    if (!space.ok()) return false;
    VolumeSpace sum;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const auto part = world_.volume(shard)->Space();
      EXPECT_TRUE(part.ok()) << part.status();
      if (!part.ok()) return false;
      EXPECT_EQ(space->block_bytes, part->block_bytes);
      EXPECT_LT(part->capacity_bytes, space->capacity_bytes);
      sum.capacity_bytes += part->capacity_bytes;
      sum.available_bytes += part->available_bytes;
      sum.objects += part->objects;
    }
    return space->capacity_bytes == sum.capacity_bytes &&
           space->available_bytes == sum.available_bytes && space->objects == sum.objects;
  };
  // What is done behind calls may come between the questions.
  EXPECT_TRUE(Eventually(is_the_sum));
}

}  // namespace
}  // namespace abacus::objfs
