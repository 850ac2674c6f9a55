#include "objfs/volume/callbacks.h"

#include <atomic>
#include <memory>

#include "gtest/gtest.h"
#include "objfs/volume/client_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

// A server whose lease is over: another one may answer for the volume.
TEST(CallbacksTest, WhileTheServerMayNotServeNothingIsReadKeptOrChanged) {
  constexpr uint16_t kClient = 1;
  constexpr ObjectId kObject = 7;
  bool may_serve = true;
  Callbacks callbacks(
      {.lease = absl::Seconds(30), .steady_ns = {}, .may_serve = [&] { return may_serve; }});
  callbacks.Join(kClient, {});
  EXPECT_TRUE(callbacks.Look(kObject, kClient).ok());
  EXPECT_TRUE(callbacks.BeginChange(kObject, kClient).ok());
  EXPECT_TRUE(callbacks.BeginAlter({kObject}, kClient).ok());
  may_serve = false;
  EXPECT_TRUE(IsNoClient(callbacks.Look(kObject, kClient)));
  EXPECT_TRUE(IsNoClient(callbacks.BeginChange(kObject, kClient).status()));
  EXPECT_TRUE(IsNoClient(callbacks.BeginAlter({kObject}, kClient).status()));
  EXPECT_TRUE(IsNoClient(callbacks.Claim(kObject, kClient, PromiseKind::kShare).status()));
  may_serve = true;
  EXPECT_TRUE(callbacks.Look(kObject, kClient).ok());
}

// What the table says is told as kinds of promises; callback_table_test.cc has the rest.
TEST(CallbacksTest, WhoIsFirstIsPromisedToWriteAndSharesItThen) {
  constexpr uint16_t kOne = 1, kTwo = 2;
  constexpr ObjectId kObject = 7;
  runtime::testing::ClusterOptions options;
  options.nodes = 1;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ClientEnd>();
  };
  runtime::testing::Cluster cluster(options);
  std::atomic<int> breaks{0};
  const auto end = cluster[0].binding().Adopt(
      std::make_unique<ClientEnd>(ClientEnd::Handlers{.on_break =
                                                          [&](ObjectId, bool write_back, Version) {
                                                            EXPECT_TRUE(write_back);
                                                            ++breaks;
                                                            return absl::OkStatus();
                                                          },
                                                      .on_wake = [](ObjectId) {},
                                                      .on_forget = [](ObjectId, Version) {}}));
  bool may_serve = true;
  Callbacks callbacks(
      {.lease = absl::Seconds(30), .steady_ns = {}, .may_serve = [&] { return may_serve; }});
  for (const uint16_t client : {kOne, kTwo}) callbacks.Join(client, end);
  const auto first = callbacks.Claim(kObject, kOne, PromiseKind::kTogether);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->kind, PromiseKind::kWrite);
  EXPECT_TRUE(IsWouldBlock(callbacks.Claim(kObject, kTwo, PromiseKind::kTogether).status()));
  may_serve = false;
  EXPECT_FALSE(callbacks.Share(kObject, kOne)) << "another server may answer for the volume";
  may_serve = true;
  EXPECT_TRUE(callbacks.Share(kObject, kOne));
  EXPECT_TRUE(callbacks.IsShared(kObject, kOne));
  EXPECT_FALSE(callbacks.IsShared(kObject, kTwo));
  EXPECT_EQ(callbacks.WriterOf(kObject), 0);
  const auto second = callbacks.Claim(kObject, kTwo, PromiseKind::kTogether);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->kind, PromiseKind::kTogether);
  const auto again = callbacks.Claim(kObject, kOne, PromiseKind::kTogether);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->kind, PromiseKind::kTogether);
  EXPECT_EQ(again->given, first->given);
  EXPECT_EQ(breaks, 0);
  // A change at the store, by one of them: the other one is told, and obeys.
  EXPECT_TRUE(IsWouldBlock(callbacks.BeginChange(kObject, kOne).status()));
  EXPECT_TRUE(
      runtime::testing::Eventually([&] { return callbacks.BeginChange(kObject, kOne).ok(); }));
  EXPECT_EQ(breaks, 1);
  EXPECT_FALSE(callbacks.IsShared(kObject, kTwo));
  callbacks.Stop();
}

TEST(CallbacksTest, WhoWillNotShareKeepsNobodyWaiting) {
  constexpr uint16_t kClient = 1;
  constexpr ObjectId kObject = 7;
  Callbacks callbacks({.lease = absl::Seconds(30), .steady_ns = {}, .may_serve = {}});
  callbacks.Join(kClient, {});
  // Without an end it is promised nothing; and who has nothing may say so all the same.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      callbacks.Claim(kObject, kClient, PromiseKind::kTogether).status()));
  const auto none = callbacks.Claim(kObject, kClient, PromiseKind::kNone);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->kind, PromiseKind::kNone);
  EXPECT_FALSE(callbacks.Share(kObject, kClient));
}

runtime::testing::ClusterOptions OneNodeOfEnds() {
  runtime::testing::ClusterOptions options;
  options.nodes = 1;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ClientEnd>();
  };
  return options;
}

// Those who were refused for what promises have nothing to do with.
TEST(CallbacksTest, WhoIsToAskAgainIsWokenWhereItIsThere) {
  constexpr uint16_t kOne = 1, kWithoutEnd = 2, kNobody = 3;
  constexpr ObjectId kObject = 7;
  runtime::testing::Cluster cluster(OneNodeOfEnds());
  std::atomic<int> wakes{0};
  const auto end = cluster[0].binding().Adopt(std::make_unique<ClientEnd>(
      ClientEnd::Handlers{.on_break = [](ObjectId, bool, Version) { return absl::OkStatus(); },
                          .on_wake =
                              [&](ObjectId id) {
                                EXPECT_EQ(id, kObject);
                                ++wakes;
                              },
                          .on_forget = [](ObjectId, Version) {}}));
  Callbacks callbacks({.lease = absl::Seconds(30), .steady_ns = {}, .may_serve = {}});
  callbacks.Join(kOne, end);
  callbacks.Join(kWithoutEnd, {});
  callbacks.WakeAll(kObject, {});
  callbacks.WakeAll(kObject, {kNobody, kOne, kWithoutEnd});
  EXPECT_TRUE(runtime::testing::Eventually([&] { return wakes == 1; }));
  callbacks.Leave(kOne);
  callbacks.WakeAll(kObject, {kOne});
  callbacks.Stop();
  EXPECT_EQ(wakes, 1);
}

TEST(CallbacksTest, WhatBeganBeforeIsAlteredUntilItEnds) {
  constexpr uint16_t kClient = 1;
  constexpr ObjectId kObject = 7;
  runtime::testing::Cluster cluster(OneNodeOfEnds());
  const auto end = cluster[0].binding().Adopt(std::make_unique<ClientEnd>(
      ClientEnd::Handlers{.on_break = [](ObjectId, bool, Version) { return absl::OkStatus(); },
                          .on_wake = [](ObjectId) {},
                          .on_forget = [](ObjectId, Version) {}}));
  Callbacks callbacks({.lease = absl::Seconds(30), .steady_ns = {}, .may_serve = {}});
  {
    const Callbacks::Alteration lasting = callbacks.GoOnAltering({kObject});
    callbacks.Join(kClient, end);
    EXPECT_EQ(callbacks.Know({kObject}, kClient).front(), Version());
  }
  EXPECT_NE(callbacks.Know({kObject}, kClient).front(), Version());
  callbacks.Stop();
}

}  // namespace
}  // namespace abacus::objfs
