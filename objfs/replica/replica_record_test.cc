#include "objfs/replica/replica_record.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {
namespace {

TEST(ReplicaRecordTest, ItsBytesAreThese) {
  const ReplicaRecord record{.epoch = 0x0102, .is_whole = true, .was_primary = false};
  EXPECT_EQ(absl::BytesToHexString(record.Encode().substr(0, 24)),
            "4142414355535250"
            "01000000"
            "01000000"
            "0201000000000000");
}

TEST(ReplicaRecordTest, IsReadAsItWasWrittenAndNoDamagedOneIs) {
  for (const bool is_whole : {false, true}) {
    for (const bool was_primary : {false, true}) {
      const ReplicaRecord record{.epoch = 77, .is_whole = is_whole, .was_primary = was_primary};
      const std::string bytes = record.Encode();
      ASSERT_EQ(bytes.size(), ReplicaRecord::kBytes);
      EXPECT_EQ(*ReplicaRecord::Decode(bytes), record);
      for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        std::string damaged = bytes;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
        EXPECT_TRUE(absl::IsDataLoss(ReplicaRecord::Decode(damaged).status())) << bit;
      }
      EXPECT_FALSE(ReplicaRecord::Decode(bytes + "x").ok());
      EXPECT_FALSE(ReplicaRecord::Decode(bytes.substr(1)).ok());
    }
  }
}

TEST(ReplicaRecordTest, APowerCutWhileItIsSavedLeavesTheOldOneOrTheNewOne) {
  const ReplicaRecord old{.epoch = 3, .is_whole = true, .was_primary = false};
  const ReplicaRecord fresh{.epoch = 4, .is_whole = false, .was_primary = false};
  bool is_saved = false;
  for (uint64_t cut = 0; !is_saved; ++cut) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      PowerCutDisk disk;
      ASSERT_TRUE(old.Save(disk).ok());
      disk.CutPowerAfter(cut);
      is_saved = fresh.Save(disk).ok();
      disk.PowerOn(seed);
      const auto loaded = ReplicaRecord::Load(disk);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      ASSERT_TRUE(loaded->has_value());
      EXPECT_TRUE(**loaded == fresh || (!is_saved && **loaded == old)) << cut;
      EXPECT_TRUE(fresh.Save(disk).ok()) << "after what a crash left";
    }
    ASSERT_LT(cut, 100u);
  }
}

TEST(ReplicaRecordTest, NumbersOfAnEpochAreAboveThoseOfAllEarlierOnes) {
  MemoryDisk disk;
  ObjectId last = 0;
  for (const uint64_t epoch : {1, 2, 3, 70}) {
    const auto store = OpenPrimaryStore(disk, epoch, {});
    ASSERT_TRUE(store.ok()) << store.status();
    const auto id = (*store)->Create("", 1);
    ASSERT_TRUE(id.ok());
    EXPECT_GT(*id, last);
    EXPECT_EQ(*id, epoch == 1 ? 1 : epoch << 40);
    last = *(*store)->Reserve();
  }
}

TEST(ReplicaRecordTest, NumbersOfAShardAreItsOwnInEveryEpoch) {
  MemoryDisk disk;
  for (const uint64_t epoch : {1, 2, 70}) {
    const auto store = OpenPrimaryStore(disk, epoch, {}, /*shard=*/3);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto id = (*store)->Create("", 1);
    ASSERT_TRUE(id.ok());
    EXPECT_EQ(*id, FirstIdOf(3, epoch));
    EXPECT_EQ(ShardOf(*(*store)->Reserve()), 3u);
  }
  MemoryDisk other;
  EXPECT_TRUE(absl::IsInvalidArgument(OpenPrimaryStore(other, 1, {}, kShardsMax).status()));
}

TEST(ReplicaRecordTest, AnEpochIsOpenedOnceAndNoEarlierOneAfterIt) {
  MemoryDisk disk;
  ASSERT_TRUE(OpenPrimaryStore(disk, 1, {}).ok());
  ASSERT_TRUE(OpenPrimaryStore(disk, 5, {}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPrimaryStore(disk, 5, {}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPrimaryStore(disk, 4, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenPrimaryStore(disk, 0, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenPrimaryStore(disk, kIdEpochMax + 1, {}).status()));
  EXPECT_TRUE(OpenPrimaryStore(disk, 6, {}).ok());
}

// A directory that was lost, or a disk that is not mounted.
TEST(ReplicaRecordTest, ADirectoryWithoutARecordIsNoVolumeAfterTheFirstEpoch) {
  MemoryDisk disk;
  const absl::Status refused = OpenPrimaryStore(disk, 2, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("is lost"), std::string::npos);
  EXPECT_FALSE(ReplicaRecord::Load(disk)->has_value());
  EXPECT_TRUE(disk.List("")->empty());
  ASSERT_TRUE(OpenPrimaryStore(disk, 1, {}).ok());
  EXPECT_TRUE(OpenPrimaryStore(disk, 2, {}).ok());
}

TEST(ReplicaRecordTest, WhatIsNotWholeIsNotServedFrom) {
  MemoryDisk disk;
  ASSERT_TRUE(OpenPrimaryStore(disk, 1, {}).ok());
  const ReplicaRecord cut_off{.epoch = 2, .is_whole = false, .was_primary = false};
  ASSERT_TRUE(cut_off.Save(disk).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPrimaryStore(disk, 9, {}).status()));
  EXPECT_EQ(**ReplicaRecord::Load(disk), cut_off);
}

}  // namespace
}  // namespace abacus::objfs
