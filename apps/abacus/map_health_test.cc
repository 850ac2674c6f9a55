#include "apps/abacus/map_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace abacus::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kShard[] = "shard 1 of volume 'home'";

objfs::MapReport WithACopy() {
  objfs::MapReport map;
  map.url = "etcd://map:2379";
  map.reachable = map.is_primary = map.may_serve = map.has_lease = true;
  map.epoch = 7;
  map.servers = {"a:1", "b:1"};
  map.copies = map.current = {0, 1};
  return map;
}

TEST(MapHealthTest, DamageOfNamesAndInodesIsToldWhereThereWasSome) {
  objfs::MapReport map = WithACopy();
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("damaged")));
  map.repaired_blocks = 3;
  EXPECT_THAT(MapText(kShard, map), HasSubstr("at a:1, put back from the copy: 3\n"));
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("could not help")));
  map.repaired_blocks = 0;
  map.unrepaired_blocks = 2;
  EXPECT_THAT(MapText(kShard, map),
              HasSubstr("the copy could not help with, each time counted: 2\n"));
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("put back")));
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("made whole")));
  map.repaired_objects = 4;
  EXPECT_THAT(MapText(kShard, map), HasSubstr("at a:1, made whole from the copy: 4\n"));
}

TEST(MapHealthTest, ThatTheDiskOfThePrimaryIsSlowIsTold) {
  objfs::MapReport map = WithACopy();
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("slow")));
  map.reads_at_copy = 5;
  EXPECT_THAT(MapText(kShard, map), HasSubstr("went round the disk of a:1, as it was slow: 5\n"));
  EXPECT_EQ(nlohmann::json::parse(MapJson(map))["reads_at_copy"], 5);
}

TEST(MapHealthTest, WhatNobodyAnswersForIsNamed) {
  objfs::MapReport map = WithACopy();
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("nobody answers")));
  map.may_serve = false;
  EXPECT_THAT(MapText(kShard, map), HasSubstr("nobody answers for shard 1 of volume 'home' now\n"));
  map.url.clear();
  EXPECT_THAT(MapText(kShard, map), HasSubstr("nothing of shard 1 of volume 'home' is served"));
}

TEST(MapHealthTest, WhatKeepsTheMapIsTold) {
  objfs::MapReport map = WithACopy();
  EXPECT_EQ(nlohmann::json::parse(MapJson(map))["kind"], "etcd");
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("keeps its map")));
  map.url = "abacus://c:1";
  EXPECT_EQ(nlohmann::json::parse(MapJson(map))["kind"], "server");
  EXPECT_THAT(MapText(kShard, map),
              HasSubstr("c:1 is none of the volume's servers, and keeps its map"));
  map.servers.push_back("c:1");
  EXPECT_THAT(MapText(kShard, map), HasSubstr("map: abacus://c:1, epoch 7"));
  EXPECT_THAT(MapText(kShard, map), Not(HasSubstr("keeps its map")));
  map.url.clear();
  EXPECT_EQ(nlohmann::json::parse(MapJson(map))["kind"], "embedded");
}

TEST(MapHealthTest, DamageOfNamesAndInodesIsInTheJson) {
  objfs::MapReport map = WithACopy();
  map.repaired_blocks = 3;
  map.unrepaired_blocks = 2;
  map.repaired_objects = 4;
  const auto json = nlohmann::json::parse(MapJson(map));
  EXPECT_EQ(json["repaired_blocks"], 3);
  EXPECT_EQ(json["unrepaired_blocks"], 2);
  EXPECT_EQ(json["repaired_objects"], 4);
}

}  // namespace
}  // namespace abacus::apps
