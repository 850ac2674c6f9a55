#include "objfs/store/object_id.h"

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

TEST(ObjectIdTest, TellsItsShardAndItsEpoch) {
  for (const uint32_t shard : {0u, 1u, kShardsMax - 1}) {
    for (const uint64_t epoch : {uint64_t{2}, uint64_t{70}, kIdEpochMax}) {
      const ObjectId first = FirstIdOf(shard, epoch);
      EXPECT_EQ(ShardOf(first), shard);
      EXPECT_EQ(EpochOf(first), epoch);
      const ObjectId last = first + (ObjectId{1} << kIdEpochShift) - 1;
      EXPECT_EQ(ShardOf(last), shard);
      EXPECT_EQ(EpochOf(last), epoch);
    }
  }
}

TEST(ObjectIdTest, ThoseOfTheFirstEpochBeginAtOneAndNoneIsZero) {
  for (const uint64_t epoch : {0, 1}) {
    EXPECT_EQ(FirstIdOf(0, epoch), 1u) << "as of volumes that were made before there were shards";
    EXPECT_EQ(FirstIdOf(2, epoch), (ObjectId{2} << kIdShardShift) + 1);
  }
  EXPECT_EQ(FirstIdOf(0, 7), ObjectId{7} << kIdEpochShift);
}

TEST(ObjectIdTest, TheyRiseWithTheEpochAndThenWithTheShard) {
  ObjectId last = 0;
  for (uint32_t shard = 0; shard < kShardsMax; ++shard) {
    for (const uint64_t epoch : {uint64_t{1}, uint64_t{2}, kIdEpochMax}) {
      EXPECT_GT(FirstIdOf(shard, epoch), last);
      last = FirstIdOf(shard, epoch);
    }
  }
}

}  // namespace
}  // namespace abacus::objfs
