// What crashes leave of files whose layers are moved between their client and servers meanwhile.

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_moves.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/file_work.h"
#include "objfs/fs/testing/movables.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::CrashDisks;
using testing::CrashMoves;
using testing::CrashWorld;
using testing::FileWork;
using testing::Movables;
using testing::PointsToTry;
using testing::Strike;
using testing::Victim;

constexpr int kMovedSteps = 30;
constexpr int kTellsMax = 3;  // the front end, the cache and the layer over the columns
constexpr size_t kClient = CrashMoves::kClient, kHeir = 2;
constexpr const char* kMovedStacks[] = {
    "cache/isolation/storage", "mirror(unit=8 KiB)/(isolation/storage)*2",
    "cache/mirror(unit=8 KiB)/(isolation/storage)*2", "raid5(unit=8 KiB)/(isolation/storage)*3",
    "cache/raid5(unit=8 KiB)/(isolation/storage)*3"};

class MoveCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  struct Counts {
    uint64_t calls = 0, moves = 0;
  };
  // Of the work without a crash.
  Counts Count() {
    CrashDisks disks;
    CrashWorld world(disks);
    CrashMoves moves(world, Movables::kLayer, seed_);
    FileWork work(seed_);
    const auto client = world->Client(kClient, GetParam());
    work.Make(*client);
    work.between = [&] { moves.MaybeOne(); };
    const uint64_t before = disks.calls();
    const absl::Status worked = work.Work(*client, kMovedSteps);
    EXPECT_TRUE(worked.ok()) << worked;
    work.Check(*client, FileWork::Away::kNothing, /*stays=*/false);
    return {disks.calls() - before, moves.moves()};
  }
  static bool IsSpread() { return std::string_view(GetParam()).find('*') != std::string::npos; }
  // The power is back.
  void CheckAnew(CrashDisks& disks, FileWork& work, uint64_t seed) {
    disks.At(0, nullptr);
    disks.PowerOn(seed);
    work.Crashed();
    work.between = nullptr;
    CrashWorld world(disks);
    const auto client = world->Client(kHeir);
    ASSERT_NO_FATAL_FAILURE(work.Check(*client));
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
  }
  void CutPowerAt(uint64_t call);
  void StrikeInMove(const Strike& strike);
  void GoOnWithout(size_t server, CrashWorld& world, FileWork& work, FileSystem& client);
  void TakeOver(CrashWorld& world, FileWork& work);

  const uint64_t seed_ = runtime::testing::Seed(1);
  uint64_t syncs_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stacks, MoveCrashTest, ::testing::ValuesIn(kMovedStacks));

void MoveCrashTest::CutPowerAt(uint64_t call) {
  CrashDisks disks;
  FileWork work(seed_);
  {
    CrashWorld world(disks);
    CrashMoves moves(world, Movables::kLayer, seed_);
    moves.PowerIsOff([&] { return disks.IsOver(); });
    const auto client = world->Client(kClient, GetParam());
    ASSERT_NO_FATAL_FAILURE(work.Make(*client));
    work.between = [&] { moves.MaybeOne(); };
    disks.At(call, [&] { disks.CutPower(); });
    if (work.Work(*client, kMovedSteps).ok()) disks.CutPower();
    syncs_ += work.syncs();
  }
  CheckAnew(disks, work, seed_ + call);
}

// The power of all servers goes before a call to one of their disks.
TEST_P(MoveCrashTest, WhatWasSyncedIsThereAfterAPowerCutWhereverTheLayersWere) {
  const Counts all = Count();
  const auto tried = PointsToTry(all.calls, 12, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", cut at call ", call));
    CutPowerAt(call);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the power was cut at " << tried.size() << " of " << all.calls
            << " calls between " << all.moves << " moves, behind " << syncs_ << " syncs\n";
  EXPECT_GT(all.moves, 5u);
  EXPECT_GT(syncs_, 0u);
}

// A server of columns has died with the layer that was on it.
void MoveCrashTest::GoOnWithout(size_t server, CrashWorld& world, FileWork& work,
                                FileSystem& client) {
  for (int i = 0; i < 6; ++i) work.Step(client).IgnoreError();
  // What was lost is told; from then on all is as ever, but for what only the dead server knows.
  for (int i = 0; i < kTellsMax; ++i) work.SyncAll(client).IgnoreError();
  ASSERT_NO_FATAL_FAILURE(work.Check(client, FileWork::Away::kDoubtful, /*stays=*/false));
  const auto other = world->Client(kHeir);
  ASSERT_NO_FATAL_FAILURE(work.Check(*other, FileWork::Away::kDoubtful));
  world.Return(server, seed_);
  work.Release(client);
  if (IsSpread()) {
    const absl::Status rebuilt = work.RebuildAll(*other);
    ASSERT_TRUE(rebuilt.ok()) << rebuilt;
  }
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*other));
  ASSERT_NO_FATAL_FAILURE(work.Check(*other));
}

// The client has died, and with it the layers that were there.
void MoveCrashTest::TakeOver(CrashWorld& world, FileWork& work) {
  work.Crashed();
  const auto heir = world->Client(kHeir);
  world.LetLeasesRunOut(*heir);
  EXPECT_TRUE(Eventually([&] {
    const auto clients = world->volume()->Clients();
    return clients.ok() && clients->size() == 1;
  }));
  ASSERT_NO_FATAL_FAILURE(work.Check(*heir));
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*heir));
}

void MoveCrashTest::StrikeInMove(const Strike& strike) {
  CrashDisks disks;
  FileWork work(seed_);
  {
    CrashWorld world(disks, 1);
    CrashMoves moves(world, Movables::kLayer, seed_);
    size_t dead_server = 0;
    auto client = world->Client(kClient, GetParam());
    ASSERT_NO_FATAL_FAILURE(work.Make(*client));
    work.between = [&] { moves.MaybeOne(); };
    moves.StrikeIn(strike.move, strike.point, [&](size_t from, size_t to) {
      if (strike.victim == Victim::kAll) disks.CutPower();
      if (strike.victim == Victim::kClient) world->cluster().Kill(kClient);
      if (strike.victim == Victim::kServer) {
        dead_server = world.ServerAt(from == kClient ? to : from);
        world.Lose(dead_server);
        work.NodeDied();
        work.Doubt();  // with the column died the layer that knew what it lacked
      }
    });
    for (int i = 0; i < kMovedSteps && !moves.stopped(); ++i) {
      const absl::Status worked = work.Step(*client);
      EXPECT_TRUE(worked.ok() || moves.stopped()) << worked;
    }
    ASSERT_TRUE(moves.stopped()) << "there was no such move";
    work.between = nullptr;
    if (strike.victim == Victim::kServer) GoOnWithout(dead_server, world, work, *client);
    if (strike.victim == Victim::kClient) TakeOver(world, work);
    client.reset();
    syncs_ += work.syncs();
    if (strike.victim != Victim::kAll) return;
  }
  CheckAnew(disks, work, seed_ + strike.move);
}

// Somebody dies while a layer is on its way: all servers at once, the server that it goes to or
// comes from, or its client.
TEST_P(MoveCrashTest, WhatWasSyncedIsThereWhoeverDiesInTheMiddleOfAMove) {
  const uint64_t moves = Count().moves, points = moves * Strike::kInAMove;
  const auto tried = PointsToTry(points, 12, seed_);
  for (const uint64_t number : tried) {
    const Strike strike(number);
    SCOPED_TRACE(
        absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", number, ", ", strike.Text()));
    StrikeInMove(strike);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": at " << tried.size() << " of " << points << " points of " << moves
            << " moves somebody died, behind " << syncs_ << " syncs\n";
  EXPECT_GT(syncs_, 0u);
}

}  // namespace
}  // namespace abacus::objfs
