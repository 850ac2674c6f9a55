// A volume's row and its lease in a real etcd.

#include "apps/abacus/etcd_map.h"

#include <signal.h>

#include <memory>
#include <string>

#include "apps/abacus/testing/etcd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using objfs::MapAnswer;
using objfs::MapCall;
using objfs::MapStore;
using objfs::VolumeRow;
using ::testing::HasSubstr;
using Kind = MapCall::Kind;
using State = MapAnswer::State;

VolumeRow SampleRow() {
  return {.key = 7,
          .epoch = 1,
          .primary = 0,
          .servers = {"127.0.0.1:1", "127.0.0.1:2"},
          .copies = {{0, true}, {1, false}}};
}

class EtcdMapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Etcd::IsInstalled()) GTEST_SKIP() << "no etcd (Debian's etcd-server)";
    etcd_ = std::make_unique<Etcd>();
    map_ = Open("home");
    ASSERT_TRUE(runtime::testing::Eventually([&] { return map_->Remove().ok(); }));
  }
  std::unique_ptr<MapStore> Open(const std::string& name) {
    auto map = OpenEtcdMap(etcd_->url(), name, 7, absl::Seconds(10));
    EXPECT_TRUE(map.ok()) << map.status();
    return *std::move(map);
  }
  MapAnswer Call(const MapCall& call) {
    const auto answer = map_->Call(call);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(MapAnswer());
  }
  MapCall Take(const MapAnswer& seen, uint64_t lease) {
    return {.kind = Kind::kTake,
            .revision = seen.reading.revision,
            .holder_revision = seen.reading.holder_revision,
            .lease = lease,
            .holder = "holder " + std::to_string(lease),
            .row = seen.reading.row};
  }

  std::unique_ptr<Etcd> etcd_;
  std::unique_ptr<MapStore> map_;
};

TEST_F(EtcdMapTest, ARowIsMadeOnceReadAndChangedByCompareAndSet) {
  EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status()));
  ASSERT_TRUE(map_->Create(SampleRow()).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(map_->Create(SampleRow())));
  const MapAnswer first = Call({.kind = Kind::kRead});
  EXPECT_EQ(first.reading.row, SampleRow());
  EXPECT_EQ(first.reading.holder, "");
  EXPECT_EQ(first.reading.holder_revision, 0);

  VolumeRow next = SampleRow();
  next.SetCurrent(1, true);
  const MapCall set{.kind = Kind::kSet, .revision = first.reading.revision, .row = next};
  const MapAnswer changed = Call(set);
  EXPECT_EQ(changed.state, State::kDone);
  EXPECT_EQ(Call(set).state, State::kRefused) << "the row has changed since";
  const MapAnswer second = Call({.kind = Kind::kRead});
  EXPECT_EQ(second.reading.row, next);
  EXPECT_EQ(second.reading.revision, changed.reading.revision);

  // Another volume, and another one of the same name, have rows of their own.
  EXPECT_TRUE(Open("work")->Create(SampleRow()).ok());
  ASSERT_TRUE(map_->Remove().ok());
  EXPECT_TRUE(map_->Remove().ok());
  EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status()));
  EXPECT_TRUE(Open("work")->Call({.kind = Kind::kRead}).ok());
}

TEST_F(EtcdMapTest, ThePrimarysLeaseKeepsOthersOutUntilItIsOver) {
  ASSERT_TRUE(map_->Create(SampleRow()).ok());
  const MapAnswer seen = Call({.kind = Kind::kRead});
  EXPECT_EQ(Call(Take(seen, 11)).state, State::kRefused) << "there is no such lease";
  EXPECT_EQ(Call({.kind = Kind::kRenew, .lease = 11}).state, State::kRefused);
  ASSERT_EQ(Call({.kind = Kind::kGrant, .lease = 11}).state, State::kDone);
  ASSERT_EQ(Call({.kind = Kind::kGrant, .lease = 12}).state, State::kDone);
  const MapAnswer taken = Call(Take(seen, 11));
  ASSERT_EQ(taken.state, State::kDone);
  const MapAnswer held = Call({.kind = Kind::kRead});
  EXPECT_EQ(held.reading.holder, "holder 11");
  EXPECT_EQ(held.reading.revision, taken.reading.revision);
  EXPECT_EQ(held.reading.holder_revision, taken.reading.holder_revision);
  EXPECT_EQ(Call({.kind = Kind::kRenew, .lease = 11}).state, State::kDone);

  // Who has seen the row of now, and not the lease.
  MapCall late = Take(held, 12);
  late.holder_revision = 0;
  EXPECT_EQ(Call(late).state, State::kRefused);
  // It is over by itself.
  ASSERT_TRUE(runtime::testing::Eventually(
      [&] { return Call({.kind = Kind::kRead}).reading.holder.empty(); }));
  ASSERT_EQ(Call({.kind = Kind::kGrant, .lease = 13}).state, State::kDone);
  EXPECT_EQ(Call(Take(Call({.kind = Kind::kRead}), 13)).state, State::kDone);
}

TEST_F(EtcdMapTest, OneThatStandsStillIsNotWaitedForAndLosesNothing) {
  ASSERT_TRUE(map_->Create(SampleRow()).ok());
  ASSERT_TRUE(map_->Call({.kind = Kind::kRead}).ok());
  etcd_->Signal(SIGSTOP);
  for (const Kind kind : {Kind::kRead, Kind::kGrant, Kind::kRenew}) {
    const auto answer = map_->Call({.kind = kind, .lease = 21});
    EXPECT_THAT(answer.status().ToString(), HasSubstr("etcd at 127.0.0.1:"));
  }
  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(runtime::testing::Eventually([&] { return map_->Call({.kind = Kind::kRead}).ok(); }));
  etcd_->Kill();
  EXPECT_FALSE(map_->Call({.kind = Kind::kRead}).ok());
  etcd_->Begin();
  ASSERT_TRUE(runtime::testing::Eventually([&] { return map_->Call({.kind = Kind::kRead}).ok(); }));
  EXPECT_EQ(Call({.kind = Kind::kRead}).reading.row, SampleRow());
}

TEST(EtcdAddressTest, IsTheSchemeAndMembers) {
  EXPECT_THAT(*EtcdMembers("etcd://a:1"), ::testing::ElementsAre("a:1"));
  EXPECT_THAT(*EtcdMembers("etcd://a:1,[::1]:2"), ::testing::ElementsAre("a:1", "[::1]:2"));
  for (const char* wrong : {"", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:1,", "a:1",
                            "zookeeper://a:1", "etcd://a:1/x"}) {
    const auto members = EtcdMembers(wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(members.status())) << wrong;
    EXPECT_THAT(members.status().ToString(), HasSubstr("etcd://HOST:PORT")) << wrong;
  }
}

}  // namespace
}  // namespace abacus::apps::testing
