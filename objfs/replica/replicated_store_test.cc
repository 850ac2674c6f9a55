#include "objfs/replica/replicated_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "objfs/replica/store_scrub.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/format.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::Fate;
using ::testing::HasSubstr;
using testing::ReplicaWorld;
using testing::SoonHolds;

class ReplicatedStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.options.flush_wait = absl::Milliseconds(50);
    ASSERT_NO_FATAL_FAILURE(world_.Start());
    made_ = *store().Create("made", 1);
    ASSERT_TRUE(store().FlushAll().ok());
  }
  ReplicatedStore& store() { return world_.primary(); }
  void CutPowerOfCopy() {
    world_.KillCopy();
    of_copy_->CutPower();
    of_copy_->PowerOn(1);
    ASSERT_TRUE(world_.StartCopy().ok());
  }
  void Promote() {
    world_.KillPrimary();
    ASSERT_NO_FATAL_FAILURE(CutPowerOfCopy());
    const absl::Status promoted = world_.Promote();
    ASSERT_TRUE(promoted.ok()) << promoted;
  }

  std::shared_ptr<PowerCutDisk> of_primary_ = std::make_shared<PowerCutDisk>();
  std::shared_ptr<PowerCutDisk> of_copy_ = std::make_shared<PowerCutDisk>();
  ReplicaWorld world_{of_primary_, of_copy_};
  ObjectId made_ = 0;
};

TEST_F(ReplicatedStoreTest, WhatAFlushAcknowledgedIsThereWhenTheCopyTakesOver) {
  ASSERT_TRUE(store().Write(made_, 5, "hello", 2).ok());
  ASSERT_TRUE(store().SetAttributes(made_, "told", 3).ok());
  ASSERT_TRUE(store().Flush(made_).ok());
  const ObjectId reserved = *store().Reserve();
  ASSERT_NO_FATAL_FAILURE(Promote());
  const auto object = testing::ReadObject(store(), made_);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->bytes.substr(5), "hello");
  EXPECT_EQ(object->blob, "told");
  EXPECT_EQ(object->version, 3u);
  EXPECT_GT(*store().Reserve(), reserved) << "no number is given twice";
}

TEST_F(ReplicatedStoreTest, EachKindOfChangeReachesTheCopy) {
  const ObjectId removed = *store().Create("gone", 2);
  ASSERT_TRUE(store().Write(made_, 0, std::string(30'000, 'a'), 3).ok());
  ASSERT_TRUE(store().Truncate(made_, 25'000, 4).ok());
  ASSERT_TRUE(store().Punch(made_, 8192, 8192, 5).ok());
  const ObjectUpdate updates[] = {{made_, {{100, "updated"}}, "blob"}, {removed, {}, "other"}};
  ASSERT_TRUE(store().Update(updates, 6).ok());
  ASSERT_TRUE(store().Remove(removed).ok());
  ASSERT_TRUE(store().CreateAs(*store().Reserve(), "", 7).ok());
  ASSERT_TRUE(store().FlushAll().ok());
  world_.KillPrimary();
  world_.KillCopy();
  const auto primary = LocalObjectStore::Open(*of_primary_, {});
  const auto copy = LocalObjectStore::Open(*of_copy_, {});
  ASSERT_TRUE(primary.ok() && copy.ok());
  EXPECT_EQ((*copy)->List(0, 10)->size(), 2u);
  testing::ExpectSame(**primary, **copy);
}

TEST_F(ReplicatedStoreTest, ChangesOfOneObjectByManyReachTheCopyInTheirOrder) {
  constexpr int kThreads = 4, kObjects = 40;
  std::vector<ObjectId> ids;
  for (int i = 0; i < kObjects; ++i) ids.push_back(*store().Create("", 1));
  std::atomic<VersionNumber> version{1};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string bytes(200'000, static_cast<char>('a' + i));
      for (const ObjectId id : ids) EXPECT_TRUE(store().Write(id, 0, bytes, ++version).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(SoonHolds([&] { return world_.map.counts() && store().FlushAll().ok(); }));
  EXPECT_EQ(store().Report().resyncs, 1u);
  world_.KillPrimary();
  world_.KillCopy();
  const auto primary = LocalObjectStore::Open(*of_primary_, {});
  const auto copy = LocalObjectStore::Open(*of_copy_, {});
  ASSERT_TRUE(primary.ok() && copy.ok());
  testing::ExpectSame(**primary, **copy);
}

TEST(ReplicatedTurnsTest, NobodyChangesAnObjectBetweenAChangeHereAndItsPlaceInTheStream) {
  runtime::testing::TestPoints points;
  const auto of_primary = std::make_shared<MemoryDisk>(), of_copy = std::make_shared<MemoryDisk>();
  ReplicaWorld world(of_primary, of_copy);
  world.options.points = &points;
  ASSERT_NO_FATAL_FAILURE(world.Start());
  const ObjectId id = *world.primary().Create("", 1);
  points.Hold("replica:changed", 1);
  std::thread first([&] { EXPECT_TRUE(world.primary().SetAttributes(id, "first", 2).ok()); });
  EXPECT_TRUE(points.AwaitHeld("replica:changed"));
  std::thread second([&] { EXPECT_TRUE(world.primary().SetAttributes(id, "second", 3).ok()); });
  // It would be done long before so much other work was.
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(world.primary().Create("other", 1).ok());
    EXPECT_TRUE(world.primary().FlushAll().ok());
    EXPECT_EQ(world.local().GetAttributes(id)->blob, "first");
  }
  points.ReleaseAll();
  first.join();
  second.join();
  ASSERT_TRUE(world.primary().FlushAll().ok());
  world.KillPrimary();
  world.KillCopy();
  const auto primary = LocalObjectStore::Open(*of_primary, {});
  const auto copy = LocalObjectStore::Open(*of_copy, {});
  ASSERT_TRUE(primary.ok() && copy.ok());
  testing::ExpectSame(**primary, **copy);
}

TEST_F(ReplicatedStoreTest, NothingIsAcknowledgedWhileTheMapDoesNotLetALostCopyGo) {
  world_.map.answers = false;
  world_.wire.is_cut = true;
  ASSERT_TRUE(store().SetAttributes(made_, "alone", 2).ok());
  const absl::Status flushed = store().FlushAll();
  EXPECT_TRUE(absl::IsUnavailable(flushed)) << flushed;
  EXPECT_THAT(std::string(flushed.message()), HasSubstr("the volume map does not let it go"));
  EXPECT_TRUE(absl::IsUnavailable(store().Flush(made_)));
  EXPECT_TRUE(absl::IsUnavailable(store().FlushTogether({})));
  EXPECT_TRUE(world_.map.counts());
  world_.map.answers = true;
  EXPECT_TRUE(SoonHolds([&] { return store().FlushAll().ok(); }));
  EXPECT_FALSE(world_.map.counts());
}

TEST_F(ReplicatedStoreTest, ALostCopyThatComesBackIsBroughtUpToDateAlsoWhileTheMapIsAway) {
  world_.map.answers = false;
  world_.wire.is_cut = true;
  ASSERT_TRUE(store().SetAttributes(made_, "alone", 2).ok());
  EXPECT_FALSE(store().FlushAll().ok());
  world_.wire.is_cut = false;
  EXPECT_TRUE(SoonHolds([&] { return store().FlushAll().ok(); }));
  ASSERT_NO_FATAL_FAILURE(Promote());
  EXPECT_EQ(store().GetAttributes(made_)->blob, "alone");
}

TEST(LostCopyTest, AFlushThatWaitsIsAcknowledgedWhenTheCopyIsWholeAgain) {
  const auto of_primary = std::make_shared<PowerCutDisk>();
  ReplicaWorld world(of_primary, std::make_shared<PowerCutDisk>());
  world.options.flush_wait = absl::Hours(1);
  ASSERT_NO_FATAL_FAILURE(world.Start());
  world.map.answers = false;
  world.wire.is_cut = true;
  ASSERT_TRUE(world.primary().Create("alone", 2).ok());
  ASSERT_TRUE(
      SoonHolds([&] { return world.primary().Report().link == ReplicationReport::Link::kAbsent; }));
  const uint64_t calls = of_primary->Calls();
  std::atomic<bool> is_done{false};
  std::thread flusher([&] {
    EXPECT_TRUE(world.primary().FlushAll().ok());
    is_done = true;
  });
  EXPECT_TRUE(SoonHolds([&] { return of_primary->Calls() > calls; })) << "it has begun";
  EXPECT_FALSE(is_done);
  world.wire.is_cut = false;
  EXPECT_TRUE(SoonHolds([&] { return is_done.load(); }));
  world.map.answers = true;  // else it would wait on
  flusher.join();
}

TEST(LostCopyTest, AFlushThatIsLostBetweenTheEndOfAResyncAndTheMapIsNotAcknowledged) {
  runtime::testing::TestPoints points;
  ReplicaWorld world(std::make_shared<MemoryDisk>(), std::make_shared<MemoryDisk>());
  world.options.points = &points;
  world.options.flush_wait = absl::Milliseconds(20);
  ASSERT_TRUE(world.StartCopy().ok());
  points.Hold("replica:finished", 1);
  ASSERT_TRUE(world.StartPrimary().ok());
  ReplicatedStore& store = world.primary();
  ASSERT_TRUE(points.AwaitHeld("replica:finished"));
  // The copy has said that it is whole, and dies; nobody has told the map yet.
  world.wire.is_cut = true;
  EXPECT_TRUE(store.Create("alone", 1).ok());
  EXPECT_TRUE(absl::IsUnavailable(store.FlushAll()));
  EXPECT_TRUE(absl::IsUnavailable(store.FlushAll())) << "the stream is closed since the first one";
  EXPECT_EQ(world.map.drops, 0u);
  points.Release("replica:finished");
  EXPECT_TRUE(SoonHolds([&] { return store.FlushAll().ok(); }));
  EXPECT_FALSE(world.map.counts());
  EXPECT_EQ(world.map.currents, 0u) << "the map was told of a copy that was lost";
}

TEST(LostCopyTest, ACopyThatNeverFinishesHoldsUpNothingWhileTheMapIsAway) {
  ReplicaWorld world(std::make_shared<MemoryDisk>(), std::make_shared<MemoryDisk>());
  world.options.flush_wait = absl::Milliseconds(20);
  std::atomic<int> lost{0};
  world.wire.fate = [&](uint64_t, std::string_view call) {
    if (call != "finish") return Fate::kArrives;
    ++lost;
    return Fate::kAnswerIsLost;
  };
  world.map.answers = false;
  ASSERT_TRUE(world.StartCopy().ok());
  ASSERT_TRUE(world.StartPrimary().ok());
  ASSERT_TRUE(SoonHolds([&] { return lost >= 2; }));
  ASSERT_TRUE(world.primary().Create("alone", 1).ok());
  EXPECT_TRUE(SoonHolds([&] { return world.primary().FlushAll().ok(); }));
  EXPECT_EQ(world.map.drops, 0u) << "it was never told of it";
}

TEST_F(ReplicatedStoreTest, APrimaryThatBeginsAcknowledgesNothingBeforeItsCopyIsWholeOrLetGo) {
  world_.KillPrimary();
  world_.options.epoch = 2;
  world_.options.copy_counts = true;
  world_.map.answers = false;
  world_.wire.is_cut = true;
  ASSERT_TRUE(world_.StartPrimary().ok());
  EXPECT_TRUE(absl::IsUnavailable(store().FlushTogether({}))) << "though nothing has changed";
  world_.map.answers = true;
  EXPECT_TRUE(SoonHolds([&] { return store().FlushAll().ok(); }));
}

TEST_F(ReplicatedStoreTest, WithoutItsLeaseAPrimaryAcknowledgesNothing) {
  world_.map.lease_lasts = false;
  for (const absl::Status& flushed :
       {store().FlushAll(), store().Flush(made_), store().FlushTogether({})}) {
    EXPECT_TRUE(absl::IsUnavailable(flushed)) << flushed;
    EXPECT_THAT(std::string(flushed.message()), HasSubstr("lease"));
  }
}

TEST_F(ReplicatedStoreTest, WhoMeetsALaterPrimaryAcknowledgesNothingAndDoesNotAskTheMap) {
  const uint64_t drops = world_.map.drops;
  ASSERT_TRUE(world_.copy()->Begin(9, 1).ok());
  ASSERT_TRUE(store().SetAttributes(made_, "late", 2).ok());
  const absl::Status flushed = store().FlushAll();
  EXPECT_TRUE(absl::IsUnavailable(flushed));
  EXPECT_THAT(std::string(flushed.message()), HasSubstr("the volume's primary no more"));
  EXPECT_FALSE(store().FlushTogether({}).ok());
  EXPECT_EQ(store().Report().link, ReplicationReport::Link::kFenced);
  EXPECT_EQ(world_.map.drops, drops);
  EXPECT_TRUE(world_.copy()->State()->is_whole);
}

TEST_F(ReplicatedStoreTest, ACopyWhoseDiskIsReadOnlyIsLetGoAndIsNoLaterPrimary) {
  for (const int error : {EACCES, EPERM, EROFS}) {
    SCOPED_TRACE(strerror(error));
    std::atomic<bool> forbids{false};
    DiskModel model;
    model.wait = [](absl::Duration) {};
    model.fault = [&](std::string_view call, const std::string&) {
      const bool is_it = forbids && call != "read" && call != "open" && call != "space";
      return is_it ? absl::ErrnoToStatus(error, "the copy's file") : absl::OkStatus();
    };
    MemoryDisk below;
    ReplicaWorld world(std::make_shared<MemoryDisk>(),
                       std::make_shared<ModelDisk>(below, std::move(model)));
    ASSERT_NO_FATAL_FAILURE(world.Start());
    forbids = true;
    ASSERT_TRUE(world.primary().Create("more", 1).ok());
    const absl::Status flushed = world.primary().FlushAll();
    EXPECT_TRUE(flushed.ok()) << flushed;
    EXPECT_FALSE(world.map.counts());
    EXPECT_NE(world.primary().Report().link, ReplicationReport::Link::kFenced);
  }
}

TEST_F(ReplicatedStoreTest, ACopyWhoseDiskFailsIsLetGo) {
  of_copy_->CutPower();
  ASSERT_TRUE(store().Write(made_, 0, "more", 2).ok());
  EXPECT_TRUE(SoonHolds([&] { return store().FlushAll().ok(); }));
  EXPECT_FALSE(world_.map.counts());
  EXPECT_THAT(store().Report().why, HasSubstr("power"));
}

// -- damage ---------------------------------------------------------------------------------------

class RepairTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(world_.Start());
    id_ = *store().Create("", 1);
    bytes_ = std::string(kBlock, 'a') + std::string(kBlock, 'b') + std::string(100, 'c');
    ASSERT_TRUE(store().Write(id_, 0, bytes_, 2).ok());
    ASSERT_TRUE(store().FlushAll().ok());
  }
  void Damage(Disk& disk, uint64_t block) {
    const auto file = disk.Open("1/0000000000000001.d");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(block * kBlock + 50, "rot").ok());
  }
  // The primary has the table on its disk only, where it rots. What it was last changed by may be
  // on its way to the copy.
  void RotTable(uint64_t page, const std::vector<int>& places) {
    ASSERT_TRUE(world_.local().FlushAll().ok());
    ASSERT_TRUE(world_.local().Checkpoint().ok());
    world_.local().Rest(id_);
    const auto table = of_primary_->Open(TablePath(id_));
    ASSERT_TRUE(table.ok()) << table.status();
    for (const int place : places) {
      ASSERT_TRUE((*table)->Write(OffsetOfPage(page, place) + 20, "rot").ok());
    }
    ASSERT_TRUE(absl::IsDataLoss(world_.local().GetAttributes(id_).status()));
  }
  absl::StatusOr<std::string> ReadAll() {
    std::string read(bytes_.size(), '?');
    const auto count = store().Read(id_, 0, std::span(read.data(), read.size()));
    if (!count.ok()) return count.status();
    return read;
  }
  ReplicatedStore& store() { return world_.primary(); }

  std::shared_ptr<MemoryDisk> of_primary_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<MemoryDisk> of_copy_ = std::make_shared<MemoryDisk>();
  ReplicaWorld world_{of_primary_, of_copy_};
  ObjectId id_ = 0;
  std::string bytes_;
};

TEST_F(RepairTest, ADamagedBlockIsReadAndPutBackFromTheCopy) {
  for (const uint64_t block : {0, 2}) Damage(*of_primary_, block);
  EXPECT_EQ(*ReadAll(), bytes_);
  EXPECT_EQ(store().Report().repaired_blocks, 2u);
  EXPECT_EQ(store().Report().unrepaired_blocks, 0u);
  const uint64_t errors = store().Statistics().checksum_errors;
  EXPECT_GT(errors, 0u);
  EXPECT_EQ(*ReadAll(), bytes_);
  EXPECT_EQ(store().Statistics().checksum_errors, errors) << "it is whole again";
  EXPECT_EQ(store().GetAttributes(id_)->size_bytes, bytes_.size());
  EXPECT_EQ(store().GetAttributes(id_)->version, 2u);
  ASSERT_TRUE(store().FlushAll().ok());
  world_.KillPrimary();
  const auto reopened = LocalObjectStore::Open(*of_primary_, {});
  EXPECT_EQ(testing::ReadObject(**reopened, id_)->bytes, bytes_);
}

// By whichever call it is found first; the copy has what was acknowledged.
TEST_F(ReplicatedStoreTest, ThatTheStoreHereFailsIsToldOnceWhereTheCopyCouldGoOn) {
  for (const bool has_copy : {true, false}) {
    for (const bool by_flush : {true, false}) {
      SCOPED_TRACE(absl::StrCat("copy ", has_copy, ", flush ", by_flush));
      std::atomic<bool> fails{false};
      std::atomic<int> told{0};
      DiskModel model;
      model.fault = [&](std::string_view call, const std::string& path) {
        const bool is_it = call == "sync" || (!by_flush && (call == "write" || call == "create"));
        return fails && is_it ? DiskError(EROFS, path) : absl::OkStatus();
      };
      MemoryDisk below;
      ReplicaWorld world(std::make_shared<ModelDisk>(below, std::move(model)),
                         std::make_shared<MemoryDisk>());
      world.options.tell_again = absl::Hours(1);
      world.local_fails = [&](const absl::Status& why) {
        EXPECT_TRUE(absl::IsUnavailable(why)) << why;
        EXPECT_THAT(std::string(why.message()), HasSubstr("the disk fails"));
        ++told;
      };
      if (has_copy) {
        ASSERT_NO_FATAL_FAILURE(world.Start());
      } else {
        ASSERT_TRUE(world.StartPrimary().ok());
      }
      const ObjectId id = *world.primary().Create("", 1);
      ASSERT_TRUE(world.primary().Write(id, 0, "acknowledged", 2).ok());
      ASSERT_TRUE(world.primary().FlushAll().ok());
      fails = true;
      for (int i = 0; i < 3; ++i) {
        const absl::Status written =
            world.primary().Write(id, 0, std::string(3 * ObjectStore::kBlockBytes, 'x'), 3 + i);
        const absl::Status flushed = world.primary().Flush(id);
        EXPECT_FALSE(written.ok() && flushed.ok());
        if (by_flush) {
          EXPECT_TRUE(absl::IsUnavailable(flushed)) << flushed;
        }
      }
      EXPECT_EQ(told, has_copy ? 1 : 0);
      if (!has_copy) continue;
      world.KillPrimary();
      ASSERT_TRUE(world.Promote().ok());
      std::string read(12, '?');
      ASSERT_TRUE(world.primary().Read(id, 0, std::span(read.data(), read.size())).ok());
      EXPECT_TRUE(read == "acknowledged" || read == std::string(12, 'x')) << read;
    }
  }
}

TEST_F(ReplicatedStoreTest, BytesThatThePrimarysDiskCannotReadAreReadFromTheCopyAndPutBack) {
  std::atomic<bool> bad{false};
  DiskModel model;
  model.fault = [&](std::string_view call, const std::string& path) {
    if (!path.ends_with(".d")) return absl::OkStatus();
    if (call == "write") bad = false;
    return call == "read" && bad ? ReadError(EIO, path) : absl::OkStatus();
  };
  MemoryDisk below;
  ReplicaWorld world(std::make_shared<ModelDisk>(below, std::move(model)),
                     std::make_shared<MemoryDisk>());
  ASSERT_NO_FATAL_FAILURE(world.Start());
  const ObjectId id = *world.primary().Create("", 1);
  const std::string bytes(ObjectStore::kBlockBytes, 'a');
  ASSERT_TRUE(world.primary().Write(id, 0, bytes, 2).ok());
  ASSERT_TRUE(world.primary().FlushAll().ok());
  bad = true;  // a sector, until it is written
  std::string read(bytes.size(), '?');
  const auto count = world.primary().Read(id, 0, std::span(read.data(), read.size()));
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(read, bytes);
  EXPECT_FALSE(bad) << "it was put back";
  EXPECT_EQ(world.primary().Report().repaired_blocks, 1u);
}

TEST_F(RepairTest, AWriteIntoADamagedBlockKeepsTheRestOfIt) {
  Damage(*of_primary_, 1);
  ASSERT_TRUE(store().Write(id_, kBlock + 10, "new", 3).ok());
  bytes_.replace(kBlock + 10, 3, "new");
  EXPECT_EQ(*ReadAll(), bytes_);
  Damage(*of_primary_, 2);
  ASSERT_TRUE(store().Truncate(id_, 2 * kBlock + 80, 4).ok());
  bytes_.resize(2 * kBlock + 80);
  EXPECT_EQ(*ReadAll(), bytes_);
  EXPECT_EQ(store().Report().repaired_blocks, 2u);
}

TEST_F(RepairTest, ABlockThatBothHaveLostIsAnErrorAndCounted) {
  Damage(*of_primary_, 1);
  Damage(*of_copy_, 1);
  EXPECT_TRUE(absl::IsDataLoss(ReadAll().status()));
  EXPECT_EQ(store().Report().repaired_blocks, 0u);
  EXPECT_EQ(store().Report().unrepaired_blocks, 1u);
}

TEST_F(RepairTest, WithoutACopyDamageIsAnError) {
  world_.KillCopy();
  world_.wire.is_cut = true;
  Damage(*of_primary_, 1);
  EXPECT_TRUE(absl::IsDataLoss(ReadAll().status()));
}

TEST_F(RepairTest, AnObjectWithADamagedTableIsMadeWholeFromTheCopyByWhoeverCallsIt) {
  char byte;
  const ObjectUpdate update{id_, {}, "updated"};
  const std::vector<std::function<absl::Status()>> calls = {
      [&] { return store().GetAttributes(id_).status(); },
      [&] { return store().Read(id_, 0, std::span(&byte, 1)).status(); },
      [&] { return store().ReadVersions(id_, 0, 1).status(); },
      [&] { return store().NextData(id_, 0).status(); },
      [&] { return store().NextHole(id_, 0).status(); },
      [&] { return store().SetAttributes(id_, "set", 11); },
      [&] { return store().Write(id_, 10, "written", 12); },
      [&] { return store().Truncate(id_, kBlock + 50, 13); },
      [&] { return store().Punch(id_, 0, 20, 14); },
      [&] { return store().Update(std::span(&update, 1), 15); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(RotTable(0, {0, 1}));
    const absl::Status called = calls[i]();
    EXPECT_TRUE(called.ok()) << called;
    EXPECT_EQ(store().Report().repaired_objects, i + 1);
    EXPECT_EQ(store().Statistics().repaired_objects, i + 1);
  }
  EXPECT_EQ(store().Report().resyncs, 1u) << "the copy was told of all of it";
  ASSERT_TRUE(store().FlushAll().ok());
  world_.KillPrimary();
  world_.KillCopy();
  const auto primary = LocalObjectStore::Open(*of_primary_, {});
  const auto copy = LocalObjectStore::Open(*of_copy_, {});
  ASSERT_TRUE(primary.ok() && copy.ok());
  EXPECT_EQ((*primary)->GetAttributes(id_)->blob, "updated");
  testing::ExpectSame(**primary, **copy);
}

TEST_F(RepairTest, WhicheverPageOfATableRotsAndInWhicheverPlaces) {
  ASSERT_TRUE(store().Write(id_, (kHeadPageEntries + 50) * kBlock, "of its second page", 3).ok());
  const auto before = testing::ReadObject(store(), id_);
  ASSERT_TRUE(before.ok()) << before.status();
  uint64_t repaired = 0;
  for (const uint64_t page : {0, 1}) {
    for (const std::vector<int>& places :
         {std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 1}}) {
      SCOPED_TRACE(absl::StrCat("page ", page, ", place ", places.front(), " of ", places.size()));
      ASSERT_NO_FATAL_FAILURE(RotTable(page, places));
      const auto after = testing::ReadObject(store(), id_);
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_TRUE(*after == *before);
      EXPECT_EQ(store().Report().repaired_objects, ++repaired);
    }
  }
}

TEST_F(RepairTest, WhileTheCopyIsAwayADamagedTableIsAnErrorAndTheResyncMakesItWhole) {
  world_.wire.is_cut = true;
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0}));
  EXPECT_TRUE(absl::IsDataLoss(store().GetAttributes(id_).status()));
  ASSERT_TRUE(store().FlushAll().ok()) << "the copy is let go";
  ASSERT_TRUE(SoonHolds([&] { return store().Report().link == ReplicationReport::Link::kAbsent; }));
  EXPECT_TRUE(absl::IsDataLoss(ReadAll().status()));
  EXPECT_TRUE(absl::IsDataLoss(store().SetAttributes(id_, "set", 11)));
  EXPECT_EQ(store().Report().repaired_objects, 0u);
  world_.wire.is_cut = false;
  ASSERT_TRUE(world_.AwaitCurrent()) << store().Report().why;
  EXPECT_EQ(store().Report().repaired_objects, 1u) << "nobody else has called it since";
  EXPECT_EQ(*ReadAll(), bytes_);
}

// As one that hangs: a call of it is over when it has lasted too long.
TEST_F(RepairTest, WhoWaitedAtADamagedTableForACallThatWasLostDoesNotAskTheLostCopyToo) {
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0, 1}));
  constexpr int kCallers = 4;
  std::latch over(1);
  std::atomic<int> asked{0}, failed{0};
  std::atomic<bool> is_gone{false};
  world_.wire.fate = [&](uint64_t, std::string_view call) {
    if (call == "describe") {
      ++asked;
      over.wait();
      return Fate::kIsLost;
    }
    return is_gone ? Fate::kIsLost : Fate::kArrives;
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back(
        [&] { failed += absl::IsDataLoss(store().GetAttributes(id_).status()) ? 1 : 0; });
  }
  EXPECT_TRUE(SoonHolds([&] { return asked == 1; }));
  is_gone = true;
  EXPECT_TRUE(store().FlushAll().ok()) << "the copy is let go";
  EXPECT_TRUE(SoonHolds([&] { return store().Report().link == ReplicationReport::Link::kAbsent; }));
  over.count_down();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, kCallers);
  EXPECT_EQ(asked, 1);
  world_.KillPrimary();  // which uses the wire
}

TEST_F(RepairTest, WhereTheCopyHasLostABlockOfItTooADamagedTableStaysAnError) {
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0}));
  Damage(*of_copy_, 1);
  EXPECT_TRUE(absl::IsDataLoss(store().GetAttributes(id_).status()));
  EXPECT_EQ(store().Report().repaired_objects, 0u);
}

TEST_F(RepairTest, OfACopyThatHasAnotherVersionOfADamagedObjectNoBlockIsRead) {
  ASSERT_TRUE(world_.local().SetAttributes(id_, "the copy is not told", 9).ok());
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0, 1}));
  std::atomic<int> described{0}, read{0};
  world_.wire.fate = [&](uint64_t, std::string_view call) {
    described += call == "describe" ? 1 : 0;
    read += call == "digests" || call == "read" ? 1 : 0;
    return Fate::kArrives;
  };
  EXPECT_TRUE(absl::IsDataLoss(store().GetAttributes(id_).status()));
  EXPECT_EQ(described, 2) << "and once more when the copy has all that was on its way";
  EXPECT_EQ(read, 0);
}

// It may have had changes that the copy lacks, or lack some that the copy has.
TEST_F(RepairTest, AfterARestartADamagedTableStaysAnErrorThoughTheCopyHasTheObject) {
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0}));
  world_.KillPrimary();
  ++world_.options.epoch;
  ASSERT_TRUE(world_.StartPrimary().ok());
  EXPECT_TRUE(SoonHolds([&] {
    return store().Report().why.find("of its table is damaged") != std::string::npos;
  })) << "the resync names it";
  EXPECT_TRUE(absl::IsDataLoss(store().GetAttributes(id_).status()));
  EXPECT_EQ(store().Report().repaired_objects, 0u);
  EXPECT_EQ(store().Report().resyncs, 0u);
  ASSERT_TRUE(store().Remove(id_).ok());
  EXPECT_TRUE(world_.AwaitCurrent()) << "and goes on where it is removed";
}

// All of what the copy has is as it was at one time, so nothing is half an update.
TEST_F(RepairTest, WhereTheCopyTakesOverAfterwardsAnObjectWithADamagedTableIsWholeAtBoth) {
  ASSERT_NO_FATAL_FAILURE(RotTable(0, {0, 1}));
  world_.KillPrimary();
  EXPECT_TRUE(CheckPrimaryStore(*of_primary_, {}).ok()) << "it can be opened";
  const absl::Status checked = CheckPrimaryStore(*of_primary_, {}, [] { return true; });
  EXPECT_TRUE(absl::IsDataLoss(checked)) << checked;
  EXPECT_THAT(std::string(checked.message()),
              HasSubstr("object 1: page 0 of its table is damaged"));
  EXPECT_TRUE(CheckPrimaryStore(*of_primary_, {}, [] { return false; }).ok()) << "it is let be";
  ASSERT_TRUE(world_.Promote().ok());
  EXPECT_EQ(*ReadAll(), bytes_);
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent()) << store().Report().why;
  world_.KillPrimary();
  world_.KillCopy();
  EXPECT_TRUE(CheckPrimaryStore(*of_primary_, {}, [] { return true; }).ok());
  const auto first = LocalObjectStore::Open(*of_primary_, {});
  const auto second = LocalObjectStore::Open(*of_copy_, {});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(testing::ReadObject(**first, id_)->bytes, bytes_);
  testing::ExpectSame(**first, **second);
}

// -- a copy that is lost at any message -----------------------------------------------------------

// Two objects that are always changed together, and what is known of them.
class PairWork {
 public:
  // False where a flush was not acknowledged.
  bool Work(ObjectStore& store) {
    const auto a = store.Create("0", ++version_), b = store.Create("0", ++version_);
    if (!a.ok() || !b.ok()) return false;
    a_ = *a;
    b_ = *b;
    if (!store.FlushAll().ok()) return false;
    acknowledged_ = 0;
    for (int i = 1; i <= 6; ++i) {
      const std::string number = absl::StrCat(i);
      const ObjectUpdate both[] = {{a_, {}, number}, {b_, {{0, number}}, number}};
      EXPECT_TRUE(store.Update(both, ++version_).ok());
      if (i % 2 == 1) continue;
      const absl::Status flushed = i % 4 == 0 ? store.Flush(a_) : store.FlushTogether({});
      if (!flushed.ok()) {
        EXPECT_TRUE(absl::IsUnavailable(flushed)) << flushed;
        return false;
      }
      acknowledged_ = i;
    }
    return true;
  }
  void Check(ObjectStore& store) const {
    if (acknowledged_ < 0) return;
    const auto a = testing::ReadObject(store, a_), b = testing::ReadObject(store, b_);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(a->blob, b->blob) << "half an update";
    int found = -1;
    ASSERT_TRUE(absl::SimpleAtoi(a->blob, &found));
    EXPECT_GE(found, acknowledged_);
    if (found > 0) {
      EXPECT_EQ(b->bytes, a->blob);
    }
  }
  int acknowledged() const { return acknowledged_; }

 private:
  ObjectId a_ = 0, b_ = 0;
  VersionNumber version_ = 0;
  int acknowledged_ = -1;
};

// From the `at`-th message of the work on nothing arrives, or that one's answer is lost and nothing
// after it. Returns how many messages there were.
uint64_t LoseCopyAt(uint64_t at, bool arrives, bool map_answers) {
  SCOPED_TRACE(absl::StrCat("message ", at, arrives ? " arrives, not its answer" : " is lost",
                            map_answers ? "" : "; the map is away"));
  const auto of_primary = std::make_shared<PowerCutDisk>();
  const auto of_copy = std::make_shared<PowerCutDisk>();
  ReplicaWorld world(of_primary, of_copy);
  if (!map_answers) world.options.flush_wait = absl::Milliseconds(10);
  std::atomic<uint64_t> begun{UINT64_MAX};
  world.wire.fate = [&](uint64_t message, std::string_view) {
    if (message < begun || message - begun < at) return Fate::kArrives;
    if (!map_answers) world.map.answers = false;
    return message - begun == at && arrives ? Fate::kAnswerIsLost : Fate::kIsLost;
  };
  world.Start();
  begun = world.wire.messages();
  PairWork work;
  const bool is_done = work.Work(world.primary());
  EXPECT_TRUE(is_done || !map_answers);
  const uint64_t messages = world.wire.messages() - begun;
  world.KillPrimary();
  world.KillCopy();
  for (const auto& disk : {of_primary, of_copy}) {
    disk->CutPower();
    disk->PowerOn(at);
  }
  // What the map says decides who is the next primary.
  if (world.map.counts()) {
    EXPECT_TRUE(world.StartCopy().ok());
    const absl::Status promoted = world.Promote();
    EXPECT_TRUE(promoted.ok()) << promoted;
    if (promoted.ok()) work.Check(world.primary());
    return messages;
  }
  const auto again = OpenPrimaryStore(*of_primary, 2, {});
  EXPECT_TRUE(again.ok());
  if (again.ok()) work.Check(**again);
  return messages;
}

TEST(LostCopyTest, AtAnyMessageWhatWasAcknowledgedIsWithWhoeverTheMapNames) {
  const uint64_t messages = LoseCopyAt(1'000'000, false, true);
  ASSERT_GE(messages, 4u);
  for (const bool arrives : {false, true}) {
    for (const bool map_answers : {true, false}) {
      for (uint64_t at = 0; at <= messages && !HasFailure(); ++at) {
        LoseCopyAt(at, arrives, map_answers);
      }
    }
  }
}

// -- a disk that is slow --------------------------------------------------------------------------

// A primary whose reads of contents are all late: the first one is made there, and none after it.
class SlowPrimaryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlocks = 10;

  void SetUp() override {
    world_.options.slow.late = absl::ZeroDuration();
    world_.options.slow.hold = absl::Hours(1);
    ASSERT_NO_FATAL_FAILURE(world_.Start());
    id_ = *store().Create("", 1);
    for (uint64_t i = 0; i < kBlocks; ++i) {
      bytes_ += std::string(ObjectStore::kBlockBytes, static_cast<char>('a' + i));
    }
    bytes_ += "the end";
    ASSERT_TRUE(store().Write(id_, 0, bytes_, 2).ok());
    ASSERT_TRUE(store().FlushAll().ok());
  }
  ReplicatedStore& store() { return world_.primary(); }
  std::string Read(ObjectId id, uint64_t offset, uint64_t count) {
    std::string read(count, '?');
    const auto got = store().Read(id, offset, std::span(read.data(), read.size()));
    EXPECT_TRUE(got.ok()) << got.status();
    read.resize(got.value_or(0));
    return read;
  }
  std::string Read(uint64_t offset, uint64_t count) { return Read(id_, offset, count); }
  uint64_t reads_at_copy() { return store().Report().reads_at_copy; }
  // All reads here are late: from now on none is made here that the copy can give.
  void FindSlow() {
    EXPECT_EQ(Read(0, 100), bytes_.substr(0, 100));
    EXPECT_EQ(Read(0, 100), bytes_.substr(0, 100));
    ASSERT_EQ(reads_here_, 1u);
    ASSERT_EQ(reads_at_copy(), 1u);
  }

  // Asked before each read of contents at the primary.
  std::function<void()> before_read_ = [] {};
  std::atomic<uint64_t> reads_here_{0};
  MemoryDisk below_;
  std::shared_ptr<MemoryDisk> of_copy_ = std::make_shared<MemoryDisk>();
  ReplicaWorld world_{std::make_shared<ModelDisk>(below_, Counting()), of_copy_};
  ObjectId id_ = 0;
  std::string bytes_;

 private:
  DiskModel Counting() {
    DiskModel model;
    model.fault = [this](std::string_view call, const std::string& path) {
      if (call != "read" || !path.ends_with(".d")) return absl::OkStatus();
      ++reads_here_;
      before_read_();
      return absl::OkStatus();
    };
    return model;
  }
};

TEST_F(SlowPrimaryTest, ReadsGoRoundADiskThatWasSlow) {
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  EXPECT_EQ(Read(0, bytes_.size() + 100), bytes_);
  EXPECT_EQ(Read(8000, 9000), bytes_.substr(8000, 9000));
  EXPECT_EQ(Read(bytes_.size() - 3, 10), "end");
  EXPECT_EQ(Read(bytes_.size(), 10), "");
  EXPECT_EQ(reads_here_, 1u);
  EXPECT_EQ(reads_at_copy(), 4u) << "that one had no bytes";
}

TEST_F(SlowPrimaryTest, ReadsGoRoundADiskThatStandsStill) {
  std::latch is_there(1), goes_on(1);
  before_read_ = [&] {
    is_there.count_down();
    goes_on.wait();
  };
  std::thread stuck([&] { EXPECT_EQ(Read(0, 100), bytes_.substr(0, 100)); });
  is_there.wait();
  EXPECT_EQ(Read(0, bytes_.size()), bytes_);
  EXPECT_EQ(reads_here_, 1u);
  goes_on.count_down();
  stuck.join();
  EXPECT_EQ(reads_at_copy(), 1u);
}

TEST_F(SlowPrimaryTest, WhatIsReadAtTheCopyIsWhatWasWrittenLast) {
  constexpr int kSteps = 400;
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  const uint64_t seed = runtime::testing::Seed(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([this, seed, t] {
      std::mt19937_64 random(seed + t);
      const ObjectId id = *store().Create("", 10);
      std::string model;
      for (int step = 0; step < kSteps && !HasFailure(); ++step) {
        const uint64_t offset = random() % 40'000, count = 1 + random() % 20'000;
        const uint64_t kind = random() % 8;
        if (kind == 7) {
          const uint64_t end = std::min<uint64_t>(model.size(), offset + count);
          if (offset >= end) continue;
          model.replace(offset, end - offset, end - offset, '\0');
          EXPECT_TRUE(store().Punch(id, offset, end - offset, 11 + step).ok());
        } else if (kind == 0) {
          model.resize(offset, '\0');
          EXPECT_TRUE(store().Truncate(id, offset, 11 + step).ok());
        } else if (kind < 4) {
          const std::string bytes(count, static_cast<char>('a' + step % 26));
          model.resize(std::max<size_t>(model.size(), offset + count), '\0');
          model.replace(offset, count, bytes);
          EXPECT_TRUE(store().Write(id, offset, bytes, 11 + step).ok());
        } else {
          const std::string wanted = offset < model.size() ? model.substr(offset, count) : "";
          EXPECT_TRUE(Read(id, offset, count) == wanted) << "seed " << seed << ", step " << step;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << reads_at_copy() << " reads at the copy\n";
  EXPECT_GT(reads_at_copy(), kSteps / 2u);
}

TEST_F(SlowPrimaryTest, AReadAtTheCopyIsOfOneMomentAlsoBesideAWriter) {
  constexpr uint64_t kWrites = 300, kBytes = 4 * ObjectStore::kBlockBytes;
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  const ObjectId id = *store().Create("", 10);
  const auto contents = [](uint64_t write) {
    std::string bytes(kBytes, '\0');
    for (uint64_t at = 0; at < kBytes; at += sizeof write) {
      std::memcpy(bytes.data() + at, &write, sizeof write);
    }
    return bytes;
  };
  ASSERT_TRUE(store().Write(id, 0, contents(0), 11).ok());
  std::atomic<uint64_t> begun{0}, written{0}, reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (written < kWrites && !HasFailure()) {
        const uint64_t at_least = written;
        const std::string bytes = Read(id, 0, kBytes);
        const uint64_t at_most = begun;
        uint64_t is = 0;
        std::memcpy(&is, bytes.data(), std::min(bytes.size(), sizeof is));
        EXPECT_GE(is, at_least);
        EXPECT_LE(is, at_most);
        EXPECT_TRUE(bytes == contents(is)) << "of several moments";
        ++reads;
      }
    });
  }
  for (uint64_t write = 1; write <= kWrites; ++write) {
    begun = write;
    EXPECT_TRUE(store().Write(id, 0, contents(write), 11 + write).ok());
    written = write;
    // A few at a time: who is always overtaken reads here.
    if (write % 4 != 0 || write == kWrites) continue;
    for (const uint64_t seen = reads; reads < seen + 3 && !HasFailure();) {
      std::this_thread::yield();
    }
  }
  for (std::thread& reader : readers) reader.join();
  std::cout << reads_at_copy() << " reads at the copy, " << reads_here_ << " here\n";
  EXPECT_GT(reads_at_copy(), 1u);
}

TEST_F(SlowPrimaryTest, WhatTheCopyDoesNotAnswerIsReadHere) {
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  world_.wire.is_cut = true;
  const uint64_t messages = world_.wire.messages();
  EXPECT_EQ(Read(0, bytes_.size()), bytes_);
  EXPECT_EQ(world_.wire.messages(), messages + 1);
  EXPECT_EQ(Read(0, bytes_.size()), bytes_);
  EXPECT_EQ(world_.wire.messages(), messages + 1) << "it is not asked by each read";
  EXPECT_EQ(reads_at_copy(), 1u);
}

TEST_F(SlowPrimaryTest, BytesThatAreNotTheRightOnesAreReadHere) {
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  uint64_t asked = 0;
  world_.wire.fate = [&](uint64_t, std::string_view call) {
    asked += call == "read" ? 1 : 0;
    return Fate::kArrives;
  };
  const auto file = of_copy_->Open(absl::StrCat("1/", absl::Hex(id_, absl::kZeroPad16), ".d"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(7, "rot").ok());
  const uint64_t before = reads_here_;
  EXPECT_EQ(Read(0, bytes_.size()), bytes_);
  EXPECT_EQ(asked, 1u);
  EXPECT_GT(reads_here_, before);
  // Of other blocks it is asked still.
  const uint64_t second = ObjectStore::kBlockBytes;
  EXPECT_EQ(Read(second, 100), bytes_.substr(second, 100));
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(reads_at_copy(), 2u);
}

TEST_F(SlowPrimaryTest, WhoLooksForDamageReadsHere) {
  ASSERT_NO_FATAL_FAILURE(FindSlow());
  const auto file = below_.Open(absl::StrCat("1/", absl::Hex(id_, absl::kZeroPad16), ".d"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(7, "rot").ok());
  EXPECT_EQ(Read(0, 100), bytes_.substr(0, 100));
  EXPECT_EQ(store().Report().repaired_blocks, 0u);
  EXPECT_TRUE(ScrubSome(store(), {}).ok());
  EXPECT_EQ(store().Report().repaired_blocks, 1u);
}

// -- through the runtime --------------------------------------------------------------------------

TEST(ReplicaLinkTest, ACopyAtAnotherNodeIsBroughtUpToDateAndItsDeathIsNoticed) {
  runtime::testing::ClusterOptions cluster_options;
  cluster_options.nodes = 2;
  cluster_options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ReplicaStore>();
  };
  const auto of_copy = std::make_shared<MemoryDisk>();
  MemoryDisk of_primary;
  testing::MapRow map;
  runtime::testing::Cluster cluster(cluster_options);
  auto opened = ReplicaStore::Open(of_copy, {});
  ASSERT_TRUE(opened.ok());
  const runtime::Ref<ReplicaStore> copy = cluster[1].binding().Adopt(*std::move(opened));
  {
    std::shared_ptr<LocalObjectStore> local = *OpenPrimaryStore(of_primary, 1, {});
    ReplicatedStore::Options options;
    options.epoch = 1;
    options.retry = absl::Milliseconds(10);
    ReplicatedStore::Host host;
    host.find_copy = [&]() -> absl::StatusOr<std::shared_ptr<ReplicaLink>> {
      return LinkTo(cluster[0].RefTo<ReplicaStore>(copy.rid()), absl::Seconds(30));
    };
    host.drop_copy = [&] { return map.Drop(); };
    host.copy_is_current = [&] { return map.Current(); };
    const auto store = ReplicatedStore::Make(local, options, host);
    const auto id = store->Create("far", 1);
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(store->Write(*id, 0, std::string(100'000, 'x'), 2).ok());
    ASSERT_TRUE(SoonHolds([&] { return map.counts(); }));
    ASSERT_TRUE(store->Write(*id, 50'000, std::string(100'000, 'y'), 3).ok());
    ASSERT_TRUE(store->FlushAll().ok());
    EXPECT_EQ(copy->State()->objects, 1u);
    EXPECT_EQ(copy->ReadBlock(*id, 7)->view()[0], 'y');
    cluster.Kill(1);
    ASSERT_TRUE(store->Write(*id, 0, "z", 4).ok());
    const absl::Status flushed = store->FlushAll();
    EXPECT_TRUE(flushed.ok()) << flushed;
    EXPECT_FALSE(map.counts());
  }
}

TEST(ReplicaLinkTest, AnotherServersCopyIsFilledWhereTheMapHasMovedIt) {
  runtime::testing::ClusterOptions cluster_options;
  cluster_options.nodes = 3;
  cluster_options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ReplicaStore>();
  };
  const auto of_first = std::make_shared<MemoryDisk>(), of_second = std::make_shared<MemoryDisk>();
  MemoryDisk of_primary;
  testing::MapRow map;
  std::atomic<bool> is_moved{false};
  runtime::testing::Cluster cluster(cluster_options);
  const runtime::Ref<ReplicaStore> first =
      cluster[1].binding().Adopt(*ReplicaStore::Open(of_first, {}));
  const runtime::Ref<ReplicaStore> second =
      cluster[2].binding().Adopt(*ReplicaStore::Open(of_second, {}));
  {
    ReplicatedStore::Options options;
    options.epoch = 1;
    options.retry = absl::Milliseconds(10);
    ReplicatedStore::Host host;
    host.find_copy = [&]() -> absl::StatusOr<std::shared_ptr<ReplicaLink>> {
      const runtime::Rid rid = is_moved ? second.rid() : first.rid();
      return LinkTo(cluster[0].RefTo<ReplicaStore>(rid), absl::Seconds(30));
    };
    host.drop_copy = [&] { return map.Drop(); };
    // The row is moved after the first copy was brought up to date, and before it says so.
    host.copy_is_current = [&] {
      return is_moved.exchange(true) ? map.Current() : absl::AbortedError("it is another's");
    };
    const auto store = ReplicatedStore::Make(*OpenPrimaryStore(of_primary, 1, {}), options, host);
    ASSERT_TRUE(store->Create("far", 1).ok());
    ASSERT_TRUE(SoonHolds([&] { return is_moved && map.counts(); }));
    ASSERT_TRUE(store->Create("more", 2).ok());
    ASSERT_TRUE(store->FlushAll().ok());
    EXPECT_EQ(second->State()->objects, 2u);
    EXPECT_LT(first->State()->objects, 2u) << "it is told of nothing any more";
  }
}

}  // namespace
}  // namespace abacus::objfs
