#include "objfs/fs/siblings.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "objfs/fs/error.h"
#include "objfs/fs/rejoining_file_system.h"
#include "objfs/layer/layer.h"
#include "objfs/store/shared_gate.h"
#include "objfs/volume/callbacks.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::ErrorKind;

TEST(OfSiblingTest, ItTellsWhatWasMetAndWhere) {
  const absl::Status all[] = {
      absl::OkStatus(),
      NoClient(7),
      FsStatus(FsError::kNoEntry, "there is no 'a'"),
      runtime::MakeError(ErrorKind::kNodeUnreachable, "node 3"),
      runtime::MakeError(ErrorKind::kOutcomeUnknown, "node 3"),
      absl::CancelledError(""),
      absl::InternalError(std::string("with a \0 in it", 14)),
  };
  for (const absl::Status& why : all) {
    const auto trouble = SiblingTroubleOf(OfSibling(11, why, uint64_t{1} << 40));
    ASSERT_TRUE(trouble.has_value()) << why;
    EXPECT_EQ(trouble->shard, 11u);
    EXPECT_EQ(trouble->joining, uint64_t{1} << 40);
    EXPECT_EQ(trouble->why, why);  // with its payloads
    EXPECT_EQ(FsErrorOf(trouble->why), FsErrorOf(why));
    EXPECT_EQ(runtime::KindOf(trouble->why), runtime::KindOf(why));
  }
}

TEST(OfSiblingTest, ToWhoKnowsNothingOfShardsTheVolumeIsAway) {
  for (const absl::Status& why : {absl::OkStatus(), NoClient(7), absl::CancelledError("")}) {
    const absl::Status status = OfSibling(2, why);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(FsErrorOf(status), FsError::kInputOutput);
    EXPECT_FALSE(IsWouldBlock(status) || IsNoClient(status)) << status;
    EXPECT_FALSE(runtime::IsOutcomeUnknown(status)) << status;
  }
}

TEST(OfSiblingTest, AnOutcomeThatIsNotKnownStaysSo) {
  const absl::Status status =
      OfSibling(2, runtime::MakeError(ErrorKind::kOutcomeUnknown, "node 3"));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(runtime::IsOutcomeUnknown(status)) << status;
}

TEST(OfSiblingTest, NoOtherStatusIsTakenForOne) {
  EXPECT_FALSE(SiblingTroubleOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(SiblingTroubleOf(absl::UnavailableError("shard 2")).has_value());
  EXPECT_FALSE(SiblingTroubleOf(NoClient(7)).has_value());
  for (const char* bytes : {"", "ab", "abcdefghijklmnopqrstuvwxyzabcdef"}) {
    absl::Status status = absl::UnavailableError("forged");
    status.SetPayload("abacus/sibling-trouble", absl::Cord(bytes));
    EXPECT_FALSE(SiblingTroubleOf(status).has_value()) << bytes;
  }
}

// Else the joining that met it would be made anew as well.
TEST(OfSiblingTest, WhatWasMetAtASiblingIsNotTheEndOfTheJoiningThatAskedIt) {
  const absl::Status ends[] = {NoClient(7), runtime::MakeError(ErrorKind::kNodeUnreachable, ""),
                               runtime::MakeError(ErrorKind::kObjectLost, ""),
                               runtime::MakeError(ErrorKind::kOutcomeUnknown, "")};
  for (const absl::Status& why : ends) {
    EXPECT_TRUE(RejoiningFileSystem::MayBeOver(why)) << why;
    EXPECT_FALSE(RejoiningFileSystem::MayBeOver(OfSibling(2, why))) << why;
  }
  EXPECT_TRUE(RejoiningFileSystem::WasSentAway(absl::CancelledError("")));
  EXPECT_FALSE(RejoiningFileSystem::WasSentAway(OfSibling(2, absl::CancelledError(""))));
  EXPECT_FALSE(RejoiningFileSystem::MayBeOver(absl::OkStatus()));
  EXPECT_FALSE(RejoiningFileSystem::MayBeOver(absl::UnavailableError("")));
}

TEST(SharedGateTest, WhoTriesPassesAnOpenGateBesideOthers) {
  SharedGate gate;
  EXPECT_TRUE(gate.TryEnter());
  EXPECT_TRUE(gate.TryEnter());
  const SharedGate::Pass pass(gate);
  gate.Leave();
  gate.Leave();
}

TEST(SharedGateTest, WhoTriesIsSentAwayFromAClosedGate) {
  SharedGate gate;
  gate.Close();
  EXPECT_FALSE(gate.TryEnter());
  gate.Open();
  EXPECT_TRUE(gate.TryEnter());
  gate.Leave();
}

// Two joinings whose calls try the other's gate while both are being closed wait for nobody.
TEST(SharedGateTest, WhoTriesAGateThatIsAboutToBeClosedIsSentAwayToo) {
  SharedGate gate;
  ASSERT_TRUE(gate.TryEnter());
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    gate.Close();
    closed = true;
  });
  while (gate.TryEnter()) {
    gate.Leave();
    std::this_thread::yield();
  }
  EXPECT_FALSE(closed.load()) << "somebody is inside";
  gate.Leave();
  closer.join();
  EXPECT_TRUE(closed.load());
  gate.Open();
}

}  // namespace
}  // namespace abacus::objfs
