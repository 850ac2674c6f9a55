#include "objfs/map/map_keeper.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::MutexLock;
using runtime::testing::Eventually;
using ::testing::HasSubstr;

// A map whose changes of the row can be lost.
class FakeMap final : public MapStore {
 public:
  struct State {
    runtime::Mutex mutex;
    VolumeRow row ABSL_GUARDED_BY(mutex);
    int64_t revision ABSL_GUARDED_BY(mutex) = 1;
    std::string holder ABSL_GUARDED_BY(mutex);
    int64_t holder_revision ABSL_GUARDED_BY(mutex) = 0;
    bool loses_changes ABSL_GUARDED_BY(mutex) = false;
    int renewals ABSL_GUARDED_BY(mutex) = 0;
  };
  explicit FakeMap(std::shared_ptr<State> state) : state_(std::move(state)) {}

  absl::StatusOr<MapAnswer> Call(const MapCall& call) override {
    MutexLock lock(state_->mutex);
    State& map = *state_;
    const bool changes = call.kind == MapCall::Kind::kTake || call.kind == MapCall::Kind::kSet;
    if (call.kind == MapCall::Kind::kRenew) ++map.renewals;
    if (call.kind == MapCall::Kind::kSet && map.loses_changes) {
      return absl::UnavailableError("the fake map is away");
    }
    MapAnswer answer{.state = MapAnswer::State::kDone, .reading = {}};
    if (changes && call.revision != map.revision) answer.state = MapAnswer::State::kRefused;
    if (changes && answer.state == MapAnswer::State::kDone) {
      map.row = call.row;
      ++map.revision;
      if (call.kind == MapCall::Kind::kTake) map.holder = call.holder;
      if (call.kind == MapCall::Kind::kTake) map.holder_revision = map.revision;
    }
    answer.reading = {.revision = map.revision,
                      .row = map.row,
                      .holder = map.holder,
                      .holder_revision = map.holder_revision};
    return answer;
  }
  absl::Status Create(const VolumeRow&) override { return absl::OkStatus(); }
  absl::Status Remove() override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<State> state_;
};

class MapKeeperTest : public ::testing::Test {
 protected:
  MapKeeperTest() {
    {
      MutexLock lock(map_->mutex);
      map_->row = {.key = 1,
                   .epoch = 1,
                   .primary = 0,
                   .servers = {"a:1", "b:1"},
                   .copies = {{0, true}, {1, false}}};
    }
    MapKeeper::Host host;
    host.ask = [](const std::string&, uint64_t) -> absl::StatusOr<PromiseAnswer> {
      return absl::UnavailableError("there is no other server");
    };
    host.may_stand = [] { return true; };
    host.changed = [] {};
    keeper_ = std::make_unique<MapKeeper>(std::make_unique<FakeMap>(map_), LeaseOptions(), 0,
                                          std::move(host));
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

}  // namespace
}  // namespace abacus::objfs
