#include "objfs/volume/callbacks.h"

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace abacus::objfs
