#include "objfs/volume/shard.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {
namespace sharding {
namespace {

TEST(ShardTest, TheNameTellsThePlace) {
  EXPECT_EQ(ShardName("home", 0), "home");
  EXPECT_EQ(ShardName("home", 2), "home~2");
  for (uint32_t shard = 0; shard < kShardsMax; ++shard) {
    const ShardPlace place = PlaceOfShard(ShardName("home", shard));
    EXPECT_EQ(place.volume, "home");
    EXPECT_EQ(place.shard, shard);
  }
}

TEST(ShardTest, WhatIsNoShardsNameIsAVolumesOwn) {
  for (const char* const name : {"home", "home~", "home~0", "home~01", "home~16", "home~100",
                                 "home~1x", "home~-1", "home~ 1", "~1", "", "~"}) {
    const ShardPlace place = PlaceOfShard(name);
    EXPECT_EQ(place.volume, name);
    EXPECT_EQ(place.shard, 0u) << name;
  }
  EXPECT_EQ(PlaceOfShard("a~2~15").volume, "a~2");
  EXPECT_EQ(PlaceOfShard("a~2~15").shard, 15u);
}

TEST(ShardTest, PeopleAreToldOfAShardAndNotOfItsName) {
  EXPECT_EQ(VolumeText("home"), "volume 'home'");
  EXPECT_EQ(VolumeText("home~15"), "shard 15 of volume 'home'");
  EXPECT_EQ(VolumeText("home~16"), "volume 'home~16'");
}

TEST(ShardTest, WhatAShardsRootSaysIsReadAsItWasWritten) {
  for (const ShardState& state :
       {ShardState{.count = 2, .records = 2, .volume = 1},
        ShardState{.count = kShardsMax, .records = FirstIdOf(15, 7), .volume = UINT64_MAX}}) {
    const auto parsed = ShardState::Parse(state.Format());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, state);
  }
  for (const char* const text :
       {"", "2", "2 5", "2 5 ", "2 5 9 ", " 2 5 9", "2  9", "2 5 9 1", "2 5 0", "2 0 9", "1 5 9",
        "17 5 9", "02 5 9", "2 5 -9", "2 5 9x", "2 5 18446744073709551616"}) {
    EXPECT_TRUE(absl::IsDataLoss(ShardState::Parse(text).status())) << "'" << text << "'";
  }
}

// Clients of any two builds put a directory into the same shard.
TEST(ShardTest, TheShardOfANameIsTheSameForEver) {
  using ::testing::ElementsAre;
  const auto shards_of = [](ObjectId parent) {
    std::vector<uint32_t> shards;
    for (const char* const name : {"home", "a", "projects", "\xc3\xa9"}) {
      for (const uint32_t count : {2, 3, 16}) shards.push_back(ShardForName(parent, name, count));
    }
    return shards;
  };
  EXPECT_THAT(shards_of(1), ElementsAre(0, 2, 4, 1, 0, 1, 1, 2, 1, 1, 0, 13));
  EXPECT_THAT(shards_of(7), ElementsAre(1, 0, 7, 1, 0, 3, 0, 0, 4, 1, 2, 9));
  EXPECT_THAT(shards_of(ObjectId{3} << kIdShardShift | 9),
              ElementsAre(0, 0, 10, 1, 1, 13, 0, 2, 12, 1, 1, 13));
}

TEST(ShardTest, NamesAreSpreadEvenly) {
  constexpr uint64_t kNames = 16'000;
  for (const uint32_t shards : {1u, 2u, 3u, 4u, kShardsMax}) {
    std::vector<uint64_t> counts(shards);
    for (uint64_t i = 0; i < kNames; ++i) {
      const uint32_t shard = ShardForName(1, absl::StrCat("dir", i), shards);
      ASSERT_LT(shard, shards);
      ++counts[shard];
    }
    const uint64_t even = kNames / shards;
    EXPECT_GT(*std::min_element(counts.begin(), counts.end()), even * 9 / 10) << shards;
    EXPECT_LT(*std::max_element(counts.begin(), counts.end()), even * 11 / 10) << shards;
  }
}

}  // namespace
}  // namespace sharding
}  // namespace abacus::objfs
