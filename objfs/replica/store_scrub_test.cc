#include "objfs/replica/store_scrub.h"

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/names.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kBlockOfScrub = ObjectStore::kBlockBytes;

// What all steps found, and how many there were.
std::pair<StoreScrub, int> ScrubAll(ObjectStore& store) {
  StoreScrub all;
  for (int steps = 1; steps < 1000; ++steps) {
    const absl::StatusOr<StoreScrub> step = ScrubSome(store, all.next);
    if (!step.ok()) {
      ADD_FAILURE() << step.status();
      break;
    }
    all.objects += step->objects;
    all.repaired += step->repaired;
    all.damaged += step->damaged;
    all.objects_failed += step->objects_failed;
    all.objects_repaired += step->objects_repaired;
    all.copy_objects += step->copy_objects;
    all.copy_missed += step->copy_missed;
    all.copy_repaired += step->copy_repaired;
    all.copy_damaged += step->copy_damaged;
    all.next = step->next;
    if (step->done) return {all, steps};
  }
  ADD_FAILURE() << "it does not end";
  return {all, 0};
}

void RotBlock(Disk& disk, ObjectId id, uint64_t block) {
  const auto contents = disk.Open(DataPath(id));
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_TRUE((*contents)->Write(block * kBlockOfScrub + 50, "rot").ok());
}

class StoreScrubTest : public ::testing::Test {
 protected:
  // So many blocks that a step does not read all of them, and an object before and one behind.
  static constexpr uint64_t kBlocks = 300;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(world_.Start());
    for (ObjectId* id : {&first_, &long_, &last_}) *id = *store().Create("blob", 1);
    for (const ObjectId id : {first_, last_}) ASSERT_TRUE(store().Write(id, 0, "short", 2).ok());
    ASSERT_TRUE(store().Write(long_, 0, std::string(kBlocks * kBlockOfScrub, 'a'), 2).ok());
    ASSERT_TRUE(store().FlushAll().ok());
  }
  ReplicatedStore& store() { return world_.primary(); }

  std::shared_ptr<MemoryDisk> of_primary_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<MemoryDisk> of_copy_ = std::make_shared<MemoryDisk>();
  testing::ReplicaWorld world_{of_primary_, of_copy_};
  ObjectId first_ = 0, long_ = 0, last_ = 0;
};

TEST_F(StoreScrubTest, WhatRottedAtThePrimaryIsPutBackFromTheCopy) {
  for (const uint64_t block : {uint64_t{3}, uint64_t{4}, kBlocks - 1}) {
    RotBlock(*of_primary_, long_, block);
  }
  RotBlock(*of_primary_, last_, 0);
  const auto [found, steps] = ScrubAll(store());
  EXPECT_EQ(found.objects, 3u);
  EXPECT_EQ(found.repaired, 4u);
  EXPECT_EQ(found.damaged, 0u);
  EXPECT_EQ(found.objects_failed, 0u);
  EXPECT_GE(steps, 3) << "each reads 1 MiB of more than 2";
  const auto [again, more_steps] = ScrubAll(store());
  EXPECT_EQ(again.objects, 3u);
  EXPECT_EQ(again.repaired, 0u) << "it is whole";
  const uint64_t errors = store().Statistics().checksum_errors;
  EXPECT_EQ(testing::ReadObject(store(), long_)->bytes, std::string(kBlocks * kBlockOfScrub, 'a'));
  EXPECT_EQ(store().Statistics().checksum_errors, errors);
}

TEST_F(StoreScrubTest, WhatBothHaveLostIsCountedAndTheRestIsRepaired) {
  for (Disk* disk : {static_cast<Disk*>(of_primary_.get()), static_cast<Disk*>(of_copy_.get())}) {
    RotBlock(*disk, long_, 5);
  }
  RotBlock(*of_primary_, long_, 6);
  RotBlock(*of_primary_, last_, 0);
  const auto [found, steps] = ScrubAll(store());
  EXPECT_EQ(found.objects, 3u);
  EXPECT_EQ(found.repaired, 2u);
  EXPECT_EQ(found.damaged, 1u);
  EXPECT_EQ(found.copy_objects, 3u);
  EXPECT_EQ(found.copy_repaired, 0u);
  EXPECT_EQ(found.copy_damaged, 1u);
}

TEST_F(StoreScrubTest, WhatRottedAtTheCopyIsPutBackFromThePrimary) {
  for (const uint64_t block : {uint64_t{3}, kBlocks - 1}) RotBlock(*of_copy_, long_, block);
  RotBlock(*of_copy_, last_, 0);
  const auto [found, steps] = ScrubAll(store());
  EXPECT_EQ(found.copy_objects, 3u);
  EXPECT_EQ(found.copy_missed, 0u);
  EXPECT_EQ(found.copy_repaired, 3u);
  EXPECT_EQ(found.copy_damaged, 0u);
  EXPECT_EQ(found.repaired, 0u) << "nothing is the matter with the primary";
  const auto [again, more_steps] = ScrubAll(store());
  EXPECT_EQ(again.copy_repaired, 0u) << "it is whole";
  EXPECT_EQ(store().Report().resyncs, 1u) << "and was all the time";
  ASSERT_TRUE(store().FlushTogether(std::vector{long_, last_}).ok());
  world_.KillPrimary();
  const absl::Status promoted = world_.Promote();
  ASSERT_TRUE(promoted.ok()) << promoted;
  EXPECT_EQ(testing::ReadObject(store(), long_)->bytes, std::string(kBlocks * kBlockOfScrub, 'a'));
  EXPECT_EQ(testing::ReadObject(store(), last_)->bytes, "short");
}

TEST_F(StoreScrubTest, WhatIsWrittenMeanwhileIsNoDamageOfTheCopy) {
  for (uint64_t block = 0; block < kBlocks; ++block) RotBlock(*of_copy_, long_, block);
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (VersionNumber version = 3; !is_over; ++version) {
      const uint64_t offset = version % kBlocks * kBlockOfScrub;
      EXPECT_TRUE(store().Write(long_, offset, std::string(kBlockOfScrub, 'b'), version).ok());
    }
  });
  const auto [found, steps] = ScrubAll(store());
  is_over = true;
  writer.join();
  EXPECT_GT(found.copy_repaired, 0u);
  EXPECT_EQ(found.copy_damaged, 0u);
  EXPECT_EQ(found.copy_missed, 0u);
  EXPECT_EQ(found.damaged, 0u);
  EXPECT_EQ(ScrubAll(store()).first.copy_repaired, 0u) << "it is whole";
}

TEST_F(StoreScrubTest, WithoutItsCopyAStoreIsReadAlone) {
  world_.wire.is_cut = true;
  RotBlock(*of_primary_, last_, 0);
  const auto [found, steps] = ScrubAll(store());
  EXPECT_EQ(found.objects, 3u);
  EXPECT_EQ(found.damaged, 1u);
  EXPECT_EQ(found.copy_objects, 0u);
  EXPECT_EQ(found.copy_missed, 3u);
  world_.wire.is_cut = false;
}

// A table is in memory while its object is open: here, that of one object at a time.
TEST(CopyScrubTest, WhoseTableRottedAtTheCopyIsMadeAnewByAResync) {
  const auto of_primary = std::make_shared<MemoryDisk>(), of_copy = std::make_shared<MemoryDisk>();
  testing::ReplicaWorld world(of_primary, of_copy);
  world.store_options.open_files_max = 1;
  world.store_options.journal_bytes_max = 1;  // each flush brings tables up to date
  ASSERT_NO_FATAL_FAILURE(world.Start());
  std::vector<ObjectId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(*world.primary().Create("blob", 1));
    ASSERT_TRUE(world.primary().Write(ids.back(), 0, "some bytes", 2).ok());
    ASSERT_TRUE(world.primary().FlushAll().ok());
  }
  const auto table = of_copy->Open(TablePath(ids[0]));
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_TRUE((*table)->Write(20, "rot").ok());
  const auto [found, steps] = ScrubAll(world.primary());
  EXPECT_EQ(found.objects, ids.size());
  EXPECT_EQ(found.copy_damaged, 1u);
  EXPECT_EQ(found.objects_failed, 0u);
  ASSERT_TRUE(testing::SoonHolds([&] { return world.primary().Report().resyncs == 2; }));
  ASSERT_TRUE(world.AwaitCurrent());
  const auto [again, more_steps] = ScrubAll(world.primary());
  EXPECT_EQ(again.copy_objects, ids.size());
  EXPECT_EQ(again.copy_damaged, 0u);
  world.KillPrimary();
  const absl::Status promoted = world.Promote();
  ASSERT_TRUE(promoted.ok()) << promoted;
  for (const ObjectId id : ids) {
    EXPECT_EQ(testing::ReadObject(world.primary(), id)->bytes, "some bytes");
  }
}

TEST_F(StoreScrubTest, WhoseTableRottedAtThePrimaryIsMadeWholeFromTheCopy) {
  ASSERT_TRUE(world_.local().Checkpoint().ok());
  for (const ObjectId id : {first_, long_}) {
    world_.local().Rest(id);
    const auto table = of_primary_->Open(TablePath(id));
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_TRUE((*table)->Write(20, "rot").ok());
  }
  RotBlock(*of_primary_, last_, 0);
  const auto [found, steps] = ScrubAll(store());
  EXPECT_EQ(found.objects, 3u);
  EXPECT_EQ(found.objects_repaired, 2u);
  EXPECT_EQ(found.objects_failed, 0u);
  EXPECT_EQ(found.repaired, 1u);
  EXPECT_EQ(found.damaged, 0u);
  const auto [again, more_steps] = ScrubAll(store());
  EXPECT_EQ(again.objects_repaired, 0u) << "they are whole";
  EXPECT_EQ(testing::ReadObject(store(), long_)->bytes, std::string(kBlocks * kBlockOfScrub, 'a'));
}

TEST(LocalStoreScrubTest, AnObjectWithoutAUsableTableFailsAndTheOthersAreRead) {
  MemoryDisk disk;
  std::vector<ObjectId> ids;
  {
    const auto store = *LocalObjectStore::Open(disk, {});
    for (int i = 0; i < 3; ++i) ids.push_back(*store->Create("blob", 1));
    ASSERT_TRUE(store->Write(ids[2], 2 * kBlockOfScrub, "behind a hole", 2).ok());
    ASSERT_TRUE(store->FlushAll().ok());
    ASSERT_TRUE(store->Checkpoint().ok());
  }
  const auto table = disk.Open(TablePath(ids[1]));
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_TRUE((*table)->Write(20, "rot").ok());
  const auto store = *LocalObjectStore::Open(disk, {});
  RotBlock(disk, ids[2], 0);  // its only block has the first slot
  const auto [found, steps] = ScrubAll(*store);
  EXPECT_EQ(found.objects, 3u);
  EXPECT_EQ(found.objects_failed, 1u);
  EXPECT_EQ(found.damaged, 1u) << "nothing to put it back from";
  EXPECT_EQ(found.repaired, 0u);
  EXPECT_EQ(steps, 1);
}

TEST(LocalStoreScrubTest, MoreObjectsThanAStepTakesAreAllVisited) {
  MemoryDisk disk;
  const auto store = *LocalObjectStore::Open(disk, {});
  EXPECT_TRUE(ScrubSome(*store, {})->done) << "there is nothing";
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(store->Create("", 1).ok());
  const auto [found, steps] = ScrubAll(*store);
  EXPECT_EQ(found.objects, 600u);
  EXPECT_GE(steps, 3);
}

}  // namespace
}  // namespace abacus::objfs
