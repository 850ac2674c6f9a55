// What crashes leave of files on each stack, over several servers: of names, bytes, and columns.

#include <functional>
#include <future>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/names_work.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::CrashDisks;
using testing::CrashWorld;
using testing::NamesWork;
using testing::PointsToTry;

constexpr int kNamesSteps = 40;
constexpr const char* kStacks[] = {"isolation/storage",
                                   "cache/isolation/storage",
                                   "mirror(unit=8 KiB)/(isolation/storage)*2",
                                   "cache/mirror(unit=8 KiB)/(isolation/storage)*2",
                                   "raid5(unit=8 KiB)/(isolation/storage)*3",
                                   "cache/raid5(unit=8 KiB)/(isolation/storage)*3"};

class SpreadCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  // How many calls to disks the work takes without a crash.
  uint64_t CountCalls() {
    CrashDisks disks;
    CrashWorld world(disks);
    const auto client = world->Client(1, GetParam());
    EXPECT_TRUE(world->store().FlushAll().ok());
    const uint64_t before = disks.calls();
    EXPECT_TRUE(NamesWork(*client, seed_).Work(kNamesSteps));
    return disks.calls() - before;
  }

  const uint64_t seed_ = runtime::testing::Seed(1);
};
INSTANTIATE_TEST_SUITE_P(Stacks, SpreadCrashTest, ::testing::ValuesIn(kStacks));

// The power of all servers goes before a call to one of their disks, from those of the first
// opening of columns on.
TEST_P(SpreadCrashTest, WhatWasSyncedIsThereAndTheRestIsWholeAfterAPowerCut) {
  uint64_t synced_writes = 0;
  const uint64_t points = CountCalls();
  const auto tried = PointsToTry(points, 40, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", cut at call ", call));
    CrashDisks disks;
    std::optional<NamesWork> work;
    {
      CrashWorld world(disks);
      const auto client = world->Client(1, GetParam());
      ASSERT_TRUE(world->store().FlushAll().ok());
      work.emplace(*client, seed_);
      disks.At(call, [&] { disks.CutPower(); });
      if (work->Work(kNamesSteps)) disks.CutPower();
    }
    disks.At(0, nullptr);
    disks.PowerOn(seed_ + call);
    CrashWorld world(disks);
    const auto client = world->Client(1);
    ASSERT_NO_FATAL_FAILURE(work->Check(*client, world->store(), world->volume()));
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
    synced_writes += work->synced_writes();
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the power was cut at " << tried.size() << " of " << points
            << " calls, behind " << synced_writes << " synced writes\n";
  EXPECT_GT(synced_writes, 0u);
}

// A client dies about when a disk gets a call. Another one finds all that was synced, and all names
// but perhaps the last, once the dead one's lease is over.
TEST_P(SpreadCrashTest, AnotherClientTakesOverTheFilesOfOneThatDied) {
  const uint64_t points = CountCalls();
  const auto tried = PointsToTry(points, 4, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", dies at call ", call));
    CrashDisks disks;
    CrashWorld world(disks);
    auto victim = world->Client(1, GetParam());
    const auto heir = world->Client(2);
    NamesWork work(*victim, seed_);
    std::promise<void> now;
    std::thread killer([&, said = now.get_future()]() mutable {
      said.wait();
      world->cluster().Kill(1);
    });
    disks.At(call, [&] { now.set_value(); });
    work.Work(kNamesSteps);
    if (!disks.IsOver()) {
      disks.At(0, nullptr);
      now.set_value();
    }
    killer.join();
    work.LastChangeOnly();
    world.LetLeasesRunOut(*heir);
    EXPECT_TRUE(Eventually([&] {
      const auto clients = world->volume()->Clients();
      return clients.ok() && clients->size() == 1;
    }));
    ASSERT_NO_FATAL_FAILURE(work.Check(*heir, world->store(), world->volume()));
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*heir));
    victim.reset();  // what it says now reaches nobody
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the client died at " << tried.size() << " of " << points
            << " calls\n";
}

}  // namespace
}  // namespace abacus::objfs
