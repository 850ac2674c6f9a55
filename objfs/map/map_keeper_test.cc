#include "objfs/map/map_keeper.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/map/testing/fake_map.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::MutexLock;
using runtime::testing::Eventually;
using testing::FakeMap;
using ::testing::HasSubstr;

class MapKeeperTest : public ::testing::Test {
 protected:
  MapKeeperTest() {
    {
      MutexLock lock(map_->mutex);
      map_->row = testing::RowOfTwo();
    }
    keeper_ = std::make_unique<MapKeeper>(std::make_unique<FakeMap>(map_), LeaseOptions(), 0,
                                          testing::HostAlone());
  }

  absl::Status SetCurrent(bool current) {
    return keeper_->Edit([current](VolumeRow& row) {
      row.SetCurrent(1, current);
      return absl::OkStatus();
    });
  }
  void LoseChanges(bool loses) {
    MutexLock lock(map_->mutex);
    map_->loses_changes = loses;
  }
  VolumeRow Row() {
    MutexLock lock(map_->mutex);
    return map_->row;
  }
  int Renewals() {
    MutexLock lock(map_->mutex);
    return map_->renewals;
  }

  const std::shared_ptr<FakeMap::State> map_ = std::make_shared<FakeMap::State>();
  std::unique_ptr<MapKeeper> keeper_;
};

TEST_F(MapKeeperTest, TheServerOfTheRowBeginsInANewEpochAndChangesTheRow) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  const MapKeeper::State state = keeper_->Get();
  EXPECT_EQ(state.row.epoch, 2u);
  EXPECT_TRUE(state.has_lease);
  EXPECT_TRUE(state.reachable);
  ASSERT_TRUE(SetCurrent(true).ok());
  EXPECT_TRUE(Row().IsCurrent(1));
  EXPECT_TRUE(absl::IsAborted(
      keeper_->Edit([](VolumeRow&) { return absl::AbortedError("somebody else has"); })));
}

// A change that was not answered may happen at any time: nobody is told the contrary of it before
// it has, or cannot any more.
TEST_F(MapKeeperTest, WhatMayHappenYetIsNotPassedOver) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  LoseChanges(true);
  const absl::Status lost = SetCurrent(true);
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("the fake map is away"));
  EXPECT_TRUE(absl::IsUnavailable(SetCurrent(false))) << "it may be current at any moment";
  LoseChanges(false);
  ASSERT_TRUE(SetCurrent(false).ok());
  const int before = Renewals();
  ASSERT_TRUE(Eventually([&] { return Renewals() > before + 1; }));
  EXPECT_FALSE(Row().IsCurrent(1)) << "and stays so";
}

// A map that was begun anew gives revisions a second time.
TEST(MapKeeperFollowTest, AnotherRowUnderTheSameRevisionIsToldToWhoFollowsIt) {
  const auto map = std::make_shared<FakeMap::State>();
  {
    MutexLock lock(map->mutex);
    map->row = testing::RowOfTwo();
    map->holder = "the primary";
  }
  std::atomic<int> told{0};
  MapKeeper keeper(std::make_unique<FakeMap>(map), LeaseOptions(), 1,
                   testing::HostAlone([&told] { ++told; }));
  ASSERT_TRUE(Eventually([&] { return told > 0; }));
  ASSERT_EQ(keeper.Get().row.epoch, 1u);
  const int before = told;
  {
    MutexLock lock(map->mutex);
    map->row.epoch = 5;
  }
  EXPECT_TRUE(Eventually([&] { return told > before; }));
  EXPECT_EQ(keeper.Get().row.epoch, 5u);
}

}  // namespace
}  // namespace abacus::objfs
