// The order of a volume's changes, without the runtime: over a disk in memory and a clock that the
// test sets.

#include "objfs/volume/object_table.h"

#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"

namespace abacus::objfs {
namespace {

using runtime::Block;

constexpr uint16_t kWriter = 7;

class ObjectTableTest : public ::testing::Test {
 protected:
  ObjectTableTest() { Restart(); }
  // As after a crash: what was not flushed is gone.
  void Restart(bool whole_read_sets = false) {
    table_.reset();
    auto store = LocalObjectStore::Open(disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    table_ = std::make_unique<ObjectTable>(
        *std::move(store), [this] { return now_ns_.load(); }, whole_read_sets);
  }
  ObjectId Make(uint32_t mode, uint32_t links) {
    Inode inode;
    inode.mode = mode;
    inode.links = links;
    const auto node = table_->Make(kWriter, inode, "");
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->id : 0;
  }
  Outcome Commit(const std::vector<Part>& parts, std::optional<uint64_t> tree = std::nullopt) {
    const auto outcome = table_->Commit(kWriter, {parts, tree});
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *outcome : Outcome();
  }
  static Part WriteOf(ObjectId id, const std::string& bytes, Version read = {}) {
    Part part{.id = id};
    part.reads = {{{0, ObjectStore::kBlockBytes}, read}};
    part.writes = {{0, Block::CopyOf(bytes)}};
    return part;
  }

  MemoryDisk disk_;
  std::atomic<int64_t> now_ns_{int64_t{1'700'000'000} * 1'000'000'000};
  std::unique_ptr<ObjectTable> table_;
};

TEST_F(ObjectTableTest, ACommitIsRefusedWhereWhatItReadHasChanged) {
  const ObjectId id = Make(S_IFDIR | 0755, 2);
  const Outcome first = Commit({WriteOf(id, "one")});
  ASSERT_EQ(first.state, CommitState::kCommitted);
  EXPECT_EQ(first.version.writer(), kWriter);
  // It read the block as it was before there was one.
  const Outcome stale = Commit({WriteOf(id, "two")});
  EXPECT_EQ(stale.state, CommitState::kStale);
  EXPECT_EQ(stale.id, id);
  EXPECT_EQ(Commit({WriteOf(id, "two", first.version)}).state, CommitState::kCommitted);
}

// A write of block `block` that rests on it alone.
Part BlockOf(ObjectId id, uint64_t block, Version read) {
  constexpr uint64_t kBytes = ObjectStore::kBlockBytes;
  Part part{.id = id};
  part.reads = {{{block * kBytes, kBytes}, read}};
  part.writes = {{block * kBytes, Block::CopyOf(std::string(kBytes, 'x'))}};
  return part;
}

TEST_F(ObjectTableTest, ADirectoryMayBeOneReadSet) {
  for (const bool whole : {false, true}) {
    SCOPED_TRACE(whole);
    Restart(whole);
    const ObjectId id = Make(S_IFDIR | 0755, 2), file = Make(S_IFREG | 0644, 1);
    EXPECT_EQ(*table_->VersionOfAll(id), whole ? std::optional(Version()) : std::nullopt);
    EXPECT_EQ(*table_->VersionOfAll(file), std::nullopt);
    for (const ObjectId object : {id, file}) {
      const bool one = whole && object == id;
      const Version first = Commit({BlockOf(object, 0, {})}).version;
      // Block 1 is as it was read, and block 0 is newer.
      const Outcome second = Commit({BlockOf(object, 1, {})});
      ASSERT_EQ(second.state, one ? CommitState::kStale : CommitState::kCommitted);
      const Outcome third = Commit({BlockOf(object, 1, one ? first : second.version)});
      ASSERT_EQ(third.state, CommitState::kCommitted);
      EXPECT_EQ(*table_->VersionOfAll(object), one ? std::optional(third.version) : std::nullopt);
      EXPECT_EQ(Commit({BlockOf(object, 0, first)}).state,
                one ? CommitState::kStale : CommitState::kCommitted);
    }
  }
}

TEST_F(ObjectTableTest, OneRefusedPartLeavesAllOthersAlone) {
  const ObjectId a = Make(S_IFDIR | 0755, 2), b = Make(S_IFREG | 0644, 0);
  Part gone{.id = b, .must_be_linked = true};
  EXPECT_EQ(Commit({WriteOf(a, "x"), gone}).state, CommitState::kGone);
  EXPECT_EQ(table_->Stat(a)->size, 0u);
  Part full{.id = a};
  full.change.entries = 1;
  ASSERT_EQ(Commit({full}).state, CommitState::kCommitted);
  Part empty{.id = a, .must_be_empty = true};
  EXPECT_EQ(Commit({empty}).state, CommitState::kNotEmpty);
  EXPECT_EQ(Commit({{.id = 12345}}).state, CommitState::kGone);
}

TEST_F(ObjectTableTest, OfTwoMovesOfDirectoriesTheSecondLooksAgain) {
  const ObjectId id = Make(S_IFDIR | 0755, 2);
  const uint64_t tree = table_->TreeVersion();
  EXPECT_EQ(Commit({{.id = id}}, tree).state, CommitState::kCommitted);
  EXPECT_EQ(Commit({{.id = id}}, tree).state, CommitState::kTree);
  EXPECT_EQ(Commit({{.id = id}}, table_->TreeVersion()).state, CommitState::kCommitted);
}

TEST_F(ObjectTableTest, VersionsRiseThoughTheClockIsSetBack) {
  const ObjectId id = Make(S_IFREG | 0644, 1);
  const Version before = Commit({WriteOf(id, "x")}).version;
  ASSERT_TRUE(table_->Flush(id).ok());
  now_ns_ = now_ns_ - int64_t{86'400} * 1'000'000'000;
  Restart();
  const Outcome after = Commit({WriteOf(id, "y", before)});
  ASSERT_EQ(after.state, CommitState::kCommitted);
  EXPECT_GT(after.version, before);
}

TEST_F(ObjectTableTest, AnObjectGoesWhenItsLastNameAndItsLastUserAreGone) {
  const ObjectId directory = Make(S_IFDIR | 0755, 2), file = Make(S_IFREG | 0644, 1);
  ASSERT_TRUE(*table_->Open(1, file));
  ASSERT_FALSE(*table_->Open(2, file));
  Part unlinked{.id = file};
  unlinked.change.links = -1;
  ASSERT_EQ(Commit({WriteOf(directory, "names"), unlinked}).state, CommitState::kCommitted);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file)->id, file);
  EXPECT_FALSE(*table_->Close(1, file));
  EXPECT_TRUE(*table_->Close(2, file));
  EXPECT_TRUE(absl::IsFailedPrecondition(table_->Close(2, file).status()));
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file)->id, 0u);
}

TEST_F(ObjectTableTest, WhatWasOpenWithoutANameWhenTheServerDiedIsFoundAndRemoved) {
  const ObjectId directory = Make(S_IFDIR | 0755, 2);
  const ObjectId orphan = Make(S_IFREG | 0644, 1), in_use = Make(S_IFREG | 0644, 1);
  const ObjectId named = Make(S_IFREG | 0644, 1), early = Make(S_IFREG | 0644, 1);
  Version read;
  const auto unlink = [&](ObjectId id) {
    ASSERT_TRUE(table_->Open(1, id).ok());
    Part unlinked{.id = id};
    unlinked.change.links = -1;
    const Outcome outcome = Commit({WriteOf(directory, "names", read), unlinked});
    ASSERT_EQ(outcome.state, CommitState::kCommitted);
    read = outcome.version;
  };
  unlink(orphan);
  unlink(in_use);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  // Of this one neither the name has gone from the disk nor the count of names fallen there.
  unlink(early);
  Restart();
  ASSERT_TRUE(table_->Open(1, in_use).ok());  // its client goes on
  std::optional<ObjectId> after = 0;
  while (after.has_value()) {
    const auto next = table_->CollectOrphans(*after, 2);
    ASSERT_TRUE(next.ok()) << next.status();
    after = *next;
  }
  EXPECT_EQ(table_->waiting_removals(), 1u);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(orphan)->id, 0u);
  EXPECT_EQ(table_->Stat(in_use)->id, in_use);
  EXPECT_EQ(table_->Stat(named)->id, named);
  EXPECT_EQ(table_->Stat(early)->id, early) << "its name is there after the crash";
  ASSERT_TRUE(*table_->Close(1, in_use));
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(in_use)->id, 0u);
}

// A crash never finds a name whose object is gone.
TEST_F(ObjectTableTest, TheNameGoesFromTheDiskBeforeTheObject) {
  const ObjectId directory = Make(S_IFDIR | 0755, 2), file = Make(S_IFREG | 0644, 1);
  const Version named = Commit({WriteOf(directory, "a name")}).version;
  ASSERT_TRUE(table_->Flush(directory).ok());
  Part unlinked{.id = file};
  unlinked.change.links = -1;
  ASSERT_EQ(Commit({WriteOf(directory, "no name", named), unlinked}).state,
            CommitState::kCommitted);
  // Another object's flush takes the name along, and the count of names with it.
  const ObjectId other = Make(S_IFREG | 0644, 1);
  ASSERT_TRUE(table_->store().Flush(other).ok());
  Restart();
  EXPECT_EQ(table_->Stat(directory)->size, 7u);
  EXPECT_EQ(table_->Stat(file)->id, file);
  EXPECT_EQ(table_->Stat(file)->inode.links, 0u);
  ASSERT_TRUE(table_->CollectOrphans(0, 100).ok());
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  EXPECT_EQ(table_->Stat(file)->id, 0u);
}

TEST_F(ObjectTableTest, WhatANameReliesOnIsOnTheDiskWithIt) {
  const ObjectId directory = Make(S_IFDIR | 0755, 2), file = Make(S_IFREG | 0644, 1);
  const ObjectId moved = Make(S_IFDIR | 0755, 2), elsewhere = Make(S_IFDIR | 0755, 2);
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  Part linked{.id = file};
  linked.change.links = 1;
  const Version two = Commit({WriteOf(directory, "two names"), linked}).version;
  Part turned{.id = moved};
  turned.change.parent = elsewhere;
  ASSERT_EQ(Commit({WriteOf(directory, "a directory more", two), turned}).state,
            CommitState::kCommitted);
  ASSERT_TRUE(table_->Flush(moved).ok());
  Restart();
  EXPECT_EQ(table_->Stat(directory)->size, 16u);
  EXPECT_EQ(table_->Stat(file)->inode.links, 2u);
  EXPECT_EQ(table_->Stat(moved)->inode.parent, elsewhere);
}

// What may only be removed once names are durable waits, and nothing grows by trying.
TEST(ObjectTableFaultTest, NothingIsRemovedWhileNamesCannotBecomeDurable) {
  MemoryDisk memory;
  std::atomic<bool> fails{false};
  ModelDisk disk(memory, {.fault = [&](std::string_view call, const std::string&) -> absl::Status {
                   if (!fails || call != "sync") return absl::OkStatus();
                   return absl::ResourceExhaustedError("no space");
                 }});
  auto store = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(store.ok()) << store.status();
  ObjectTable table(*std::move(store), [] { return int64_t{1'700'000'000} * 1'000'000'000; });
  const auto make = [&](uint32_t mode) {
    Inode inode;
    inode.mode = mode;
    inode.links = 1;
    return table.Make(kWriter, inode, "")->id;
  };
  const ObjectId from = make(S_IFDIR | 0755), file = make(S_IFREG | 0644);
  ASSERT_TRUE(table.FlushAndRemove().ok());
  Part changed{.id = from}, gone{.id = file};
  changed.writes = {{0, Block::CopyOf("x")}};
  gone.change.links = -1;
  ASSERT_TRUE(table.Commit(kWriter, {{changed, gone}, std::nullopt}).ok());
  fails = true;
  EXPECT_TRUE(absl::IsUnavailable(table.FlushAndRemove()));
  EXPECT_EQ(table.waiting_removals(), 1u);
  fails = false;
  EXPECT_TRUE(absl::IsUnavailable(table.FlushAndRemove())) << "what was lost stays lost";
  EXPECT_EQ(table.waiting_removals(), 1u);
  EXPECT_EQ(table.Stat(file)->id, file);
}

// A symbolic link whose contents cannot be synced is told once and keeps no name waiting.
TEST(ObjectTableFaultTest, ContentsThatCannotBeSyncedKeepNoNameWaiting) {
  MemoryDisk memory;
  std::atomic<bool> fails{false};
  ModelDisk disk(memory, {.fault = [&](std::string_view call, const std::string& path) {
                   return fails && call == "sync" && path.ends_with(".d")
                              ? absl::InternalError("bad sector")
                              : absl::OkStatus();
                 }});
  const auto now = [] { return int64_t{1'700'000'000} * 1'000'000'000; };
  ObjectId directory = 0;
  {
    auto store = LocalObjectStore::Open(disk, {.logged_blocks_max = 0});
    ASSERT_TRUE(store.ok()) << store.status();
    ObjectTable table(*std::move(store), now);
    Inode inode;
    inode.mode = S_IFLNK | 0777;
    inode.links = 1;
    ASSERT_TRUE(table.Make(kWriter, inode, "target").ok());
    inode.mode = S_IFDIR | 0755;
    directory = table.Make(kWriter, inode, "")->id;
    fails = true;
    EXPECT_TRUE(absl::IsUnavailable(table.Flush(directory)));
    fails = false;
    Part named{.id = directory};
    named.writes = {{0, Block::CopyOf("a name")}};
    ASSERT_TRUE(table.Commit(kWriter, {{named}, std::nullopt}).ok());
    EXPECT_TRUE(table.Flush(directory).ok());
  }
  auto store = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->GetAttributes(directory)->size_bytes, 6u);
}

// While one thread's large file is synced, another one's sync of a directory is acknowledged; then
// the power goes.
TEST(ObjectTableFaultTest, ASyncedNameOfASymbolicLinkIsThereWithItsTargetWhoeverSyncsBesideIt) {
  const auto now = [] { return int64_t{1'700'000'000} * 1'000'000'000; };
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    PowerCutDisk power;
    std::atomic<bool> holds{false}, held{false};
    std::string large_file;
    ModelDisk disk(power, {.fault = [&](std::string_view call, const std::string& path) {
                     if (holds && call == "sync" && path == large_file) {
                       held = true;
                       held.notify_all();
                       holds.wait(true);
                     }
                     return absl::OkStatus();
                   }});
    ObjectId directory = 0, link = 0;
    {
      auto store = LocalObjectStore::Open(disk, {});
      ASSERT_TRUE(store.ok()) << store.status();
      ObjectTable table(*std::move(store), now);
      Inode inode;
      inode.links = 1;
      inode.mode = S_IFDIR | 0755;
      directory = table.Make(kWriter, inode, "")->id;
      inode.mode = S_IFREG | 0644;
      const ObjectId large = table.Make(kWriter, inode, "")->id;
      ASSERT_TRUE(table.FlushAndRemove().ok());
      inode.mode = S_IFLNK | 0777;
      link = table.Make(kWriter, inode, "target")->id;
      ASSERT_TRUE(table.store().Write(large, 0, std::string(100'000, 'x'), 1).ok());
      large_file = DataPath(large);
      holds = true;
      std::thread other([&] { EXPECT_FALSE(table.Flush(large).ok()) << "there is no power"; });
      held.wait(false);
      Part named{.id = directory};
      named.writes = {{0, Block::CopyOf("a name")}};
      ASSERT_TRUE(table.Commit(kWriter, {{named}, std::nullopt}).ok());
      EXPECT_EQ(table.Flush(directory), absl::OkStatus());
      power.CutPowerAfter(0);
      holds = false;
      holds.notify_all();
      other.join();
    }
    power.PowerOn(seed);
    auto store = LocalObjectStore::Open(disk, {});
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->GetAttributes(directory)->size_bytes, 6u);
    std::string target(100, '?');
    const auto read = (*store)->Read(link, 0, std::span(target.data(), target.size()));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(target.substr(0, *read), "target");
  }
}

// Nobody syncs anything: what was made is durable with the volume's own flushes.
TEST_F(ObjectTableTest, WhatWasMadeIsDurableWithTheFlushOfAll) {
  Inode inode;
  inode.mode = S_IFLNK | 0777;
  inode.links = 1;
  const ObjectId link = table_->Make(kWriter, inode, "target")->id;
  ASSERT_TRUE(table_->FlushAndRemove().ok());
  Restart();
  EXPECT_EQ(table_->Stat(link)->size, 6u);
}

TEST_F(ObjectTableTest, WritesShowInTheTimesAtOnceAndReachTheStoreWithTheLastClose) {
  const ObjectId file = Make(S_IFREG | 0644, 1);
  ASSERT_TRUE(table_->Open(1, file).ok());
  now_ns_ = now_ns_ + 1000;
  ASSERT_TRUE(table_
                  ->ChangeBytes(kWriter, file,
                                [&](Version version) {
                                  return table_->store().Write(file, 0, "x", version.value);
                                })
                  .ok());
  EXPECT_EQ(table_->Stat(file)->inode.modified_ns, now_ns_.load());
  ASSERT_TRUE(table_->Close(1, file).ok());
  ASSERT_TRUE(table_->store().Flush(file).ok());
  Restart();
  EXPECT_EQ(table_->Stat(file)->inode.modified_ns, now_ns_.load());
}

// What a client kept for a while has the time at which it was written, unless that is told late.
class ToldTimesTest : public ObjectTableTest {
 protected:
  static constexpr uint16_t kOther = 8;
  ToldTimesTest() : file_(Make(S_IFREG | 0644, 1)) {
    EXPECT_TRUE(table_->Open(kWriter, file_).ok());
    EXPECT_TRUE(table_->Open(kOther, file_).ok());
  }
  // At the clock's time, which goes on; that time.
  int64_t Write(uint16_t writer) {
    now_ns_ = now_ns_ + 1000;
    const absl::Status written = table_->ChangeBytes(writer, file_, [&](Version version) {
      return table_->store().Write(file_, 0, "x", version.value);
    });
    EXPECT_TRUE(written.ok()) << written;
    return now_ns_;
  }
  int64_t Tell(uint16_t writer, int64_t when_ns) {
    EXPECT_TRUE(table_->ToldWhenWritten(writer, file_, when_ns).ok());
    return Modified();
  }
  int64_t Modified() { return table_->Stat(file_)->inode.modified_ns; }

  const ObjectId file_;
};

TEST_F(ToldTimesTest, TheTimeIsThatOfTheWriteAndNotOfItsArrival) {
  const int64_t came_ns = Write(kWriter);
  EXPECT_EQ(Modified(), came_ns);
  EXPECT_EQ(Tell(kWriter, came_ns - 500), came_ns - 500);
  EXPECT_EQ(table_->Stat(file_)->inode.changed_ns, came_ns);
  ASSERT_TRUE(table_->Flush(file_).ok());
  Restart();
  EXPECT_EQ(Modified(), came_ns - 500);
}

TEST_F(ToldTimesTest, ATimeThatIsToldAfterTheFlushIsTakenToo) {
  const int64_t came_ns = Write(kWriter);
  ASSERT_TRUE(table_->Flush(file_).ok());
  EXPECT_EQ(Tell(kWriter, came_ns - 500), came_ns - 500);
  ASSERT_TRUE(table_->Close(kOther, file_).ok());
  ASSERT_TRUE(table_->Close(kWriter, file_).ok());
  ASSERT_TRUE(table_->store().Flush(file_).ok());
  Restart();
  EXPECT_EQ(Modified(), came_ns - 500);
}

TEST_F(ToldTimesTest, WhatIsToldAfterAnotherClientWroteSetsNothingBack) {
  const int64_t came_ns = Write(kWriter), others_ns = Write(kOther);
  EXPECT_EQ(Tell(kWriter, came_ns - 500), others_ns);
  EXPECT_EQ(Tell(kWriter, others_ns + 500), others_ns) << "not its own bytes";
  // Its next bytes are newer than the other's, however slow its own clock is.
  const int64_t again_ns = Write(kWriter);
  EXPECT_EQ(Tell(kWriter, others_ns), again_ns);
  EXPECT_EQ(Tell(kWriter, others_ns + 1), others_ns + 1);
}

TEST_F(ToldTimesTest, OfTwoThatAreToldTheNewerStays) {
  const int64_t first_ns = Write(kWriter), second_ns = Write(kWriter);
  EXPECT_EQ(Tell(kWriter, second_ns - 1), second_ns - 1);
  EXPECT_EQ(Tell(kWriter, first_ns - 1), second_ns - 1);
  Write(kWriter);
  EXPECT_EQ(Tell(kWriter, second_ns - 1), now_ns_) << "of bytes that were told of before";
}

TEST_F(ToldTimesTest, ATimeThatWasSetIsNotSetBack) {
  const int64_t came_ns = Write(kWriter);
  ASSERT_TRUE(table_->Change(kOther, file_, {.modified_ns = 5}).ok());
  EXPECT_EQ(Tell(kWriter, came_ns - 500), 5);
  const int64_t again_ns = Write(kWriter);
  EXPECT_EQ(Tell(kWriter, again_ns - 1), again_ns - 1);
  ASSERT_TRUE(table_->Change(kWriter, file_, {.permissions = 0600}).ok());
  EXPECT_EQ(Modified(), again_ns - 1) << "other changes leave it alone";
  ASSERT_TRUE(table_->Close(kWriter, file_).ok());
  ASSERT_TRUE(table_->Close(kOther, file_).ok());
  EXPECT_EQ(Tell(kWriter, again_ns), again_ns - 1) << "nobody has it open";
}

// Changes are added, whoever else adds: a count is never lost.
TEST_F(ObjectTableTest, ChangesAtOnceAreAllInTheInode) {
  constexpr int kEach = 500;
  const ObjectId id = Make(S_IFREG | 0644, 1);
  std::vector<std::thread> threads;
  for (uint16_t writer = 1; writer <= 4; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE(table_->Change(writer, id, {.links = 1}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table_->Stat(id)->inode.links, 4u * kEach + 1);
}

}  // namespace
}  // namespace abacus::objfs
