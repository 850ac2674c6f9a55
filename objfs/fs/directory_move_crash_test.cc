// What crashes leave of names whose directory objects are moved between their client and servers
// meanwhile.

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_moves.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/names_work.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::CrashDisks;
using testing::CrashMoves;
using testing::CrashWorld;
using testing::Movables;
using testing::NamesWork;
using testing::PointsToTry;
using testing::Strike;
using testing::Victim;

constexpr int kSteps = 40;
constexpr size_t kClient = CrashMoves::kClient, kHeir = 2;
// Of files, whose layers stay: bytes are with the names, or over all servers of columns.
constexpr const char* kStacks[] = {"cache/isolation/storage",
                                   "cache/raid5(unit=8 KiB)/(isolation/storage)*3"};

class DirectoryMoveCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  struct Counts {
    uint64_t calls = 0, moves = 0;
  };
  // Of the work without a crash.
  Counts Count() {
    CrashDisks disks;
    CrashWorld world(disks);
    CrashMoves moves(world, Movables::kDirectory, seed_);
    const auto client = world->Client(kClient, GetParam());
    EXPECT_TRUE(world->store().FlushAll().ok());
    NamesWork work(*client, seed_);
    work.between = [&] { moves.MaybeOne(); };
    const uint64_t before = disks.calls();
    EXPECT_TRUE(work.Work(kSteps));
    const Counts counts{disks.calls() - before, moves.moves()};
    work.AllButWhatFailed();
    work.Check(*client, world->store(), world->volume());
    return counts;
  }
  // The power is back.
  void CheckAnew(CrashDisks& disks, NamesWork& work, uint64_t seed) {
    disks.At(0, nullptr);
    disks.PowerOn(seed);
    CrashWorld world(disks);
    const auto client = world->Client(kHeir);
    ASSERT_NO_FATAL_FAILURE(work.Check(*client, world->store(), world->volume()));
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
  }
  void CutPowerAt(uint64_t call);
  void StrikeInMove(const Strike& strike);

  const uint64_t seed_ = runtime::testing::Seed(1);
  uint64_t synced_writes_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stacks, DirectoryMoveCrashTest, ::testing::ValuesIn(kStacks));

void DirectoryMoveCrashTest::CutPowerAt(uint64_t call) {
  CrashDisks disks;
  std::optional<NamesWork> work;
  {
    CrashWorld world(disks);
    CrashMoves moves(world, Movables::kDirectory, seed_);
    moves.PowerIsOff([&] { return disks.IsOver(); });
    const auto client = world->Client(kClient, GetParam());
    ASSERT_TRUE(world->store().FlushAll().ok());
    work.emplace(*client, seed_);
    work->between = [&] { moves.MaybeOne(); };
    disks.At(call, [&] { disks.CutPower(); });
    const bool is_whole = work->Work(kSteps);
    EXPECT_TRUE(is_whole || disks.IsOver()) << "it failed by itself";
    if (is_whole) disks.CutPower();
    synced_writes_ += work->synced_writes();
  }
  CheckAnew(disks, *work, seed_ + call);
}

// The power of all servers goes before a call to one of their disks.
TEST_P(DirectoryMoveCrashTest, EachChangeIsWholeAfterAPowerCutWhereverTheDirectoriesWere) {
  const Counts all = Count();
  const auto tried = PointsToTry(all.calls, 24, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", call, ", cut at that call"));
    CutPowerAt(call);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the power was cut at " << tried.size() << " of " << all.calls
            << " calls between " << all.moves << " moves, behind " << synced_writes_
            << " synced writes\n";
  EXPECT_GT(all.moves, 5u);
  EXPECT_GT(synced_writes_, 0u);
}

void DirectoryMoveCrashTest::StrikeInMove(const Strike& strike) {
  CrashDisks disks;
  std::optional<NamesWork> work;
  {
    CrashWorld world(disks);
    CrashMoves moves(world, Movables::kDirectory, seed_);
    auto client = world->Client(kClient, GetParam());
    ASSERT_TRUE(world->store().FlushAll().ok());
    const auto heir = world->Client(kHeir);
    work.emplace(*client, seed_);
    work->between = [&] { moves.MaybeOne(); };
    bool is_all_away = false;
    moves.StrikeIn(strike.move, strike.point, [&](size_t from, size_t to) {
      const size_t server = from == kClient ? to : from;
      if (strike.victim == Victim::kServer && world.ServerAt(server) > 0) {
        return world.Lose(world.ServerAt(server));
      }
      if (strike.victim == Victim::kClient) return world->cluster().Kill(kClient);
      is_all_away = true;  // so it is without the server that has the names
      disks.CutPower();
    });
    bool is_whole = true;
    for (int i = 0; is_whole && i < kSteps; ++i) is_whole = work->Work(1);
    ASSERT_TRUE(moves.stopped()) << "there was no such move";
    synced_writes_ += work->synced_writes();
    if (!is_all_away) {
      if (strike.victim == Victim::kClient) world.LetLeasesRunOut(*heir);
      work->AllButWhatFailed();
      client.reset();
      EXPECT_TRUE(Eventually([&] {
        const auto clients = world->volume()->Clients();
        return clients.ok() && clients->size() == 1;
      }));
      work->Check(*heir, world->store(), world->volume());
      return;
    }
  }
  CheckAnew(disks, *work, seed_ + strike.move);
}

// Somebody dies while a directory object is on its way: all servers at once, the server that it
// goes to or comes from, or its client. Another client finds all changes but perhaps the last.
TEST_P(DirectoryMoveCrashTest, EachChangeIsWholeWhoeverDiesInTheMiddleOfAMove) {
  const uint64_t moves = Count().moves, points = moves * Strike::kInAMove;
  const auto tried = PointsToTry(points, 24, seed_);
  for (const uint64_t number : tried) {
    const Strike strike(number);
    SCOPED_TRACE(
        absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", number, ", ", strike.Text()));
    StrikeInMove(strike);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": at " << tried.size() << " of " << points << " points of " << moves
            << " moves somebody died, behind " << synced_writes_ << " synced writes\n";
  EXPECT_GT(synced_writes_, 0u);
}

}  // namespace
}  // namespace abacus::objfs
