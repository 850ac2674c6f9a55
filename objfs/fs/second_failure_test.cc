// A server of a redundant file is lost, and then something else fails: another server, all of them,
// what repairs the first failure. What can be had is right, what cannot be had is an error, and all
// of it is back when enough servers are.

#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/file_work.h"

namespace abacus::objfs {
namespace {

using testing::CrashDisks;
using testing::CrashWorld;
using testing::FileWork;
using testing::PointsToTry;
using Away = FileWork::Away;

constexpr int kStepsBefore = 10, kStepsAfter = 12;
constexpr int kTellsMax = 3;  // the front end, the cache and the layer over the columns
constexpr size_t kWorker = 1, kReader = 2;
constexpr size_t kSpares = 6;
constexpr size_t kColumnServers = CrashDisks::kServers - 1;  // those that files are on
// On three servers, so that of each file a column is lost with any of them.
constexpr const char* kRedundantStacks[] = {
    "mirror(unit=8 KiB)/(isolation/storage)*3", "cache/mirror(unit=8 KiB)/(isolation/storage)*3",
    "raid5(unit=8 KiB)/(isolation/storage)*3", "cache/raid5(unit=8 KiB)/(isolation/storage)*3"};

constexpr uint64_t kNever = UINT64_MAX / 2;  // the work ends before that call

class SecondFailureTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A world whose files were worked on, and of which one server is lost then.
  struct Lost {
    explicit Lost(uint64_t seed) : work(seed) {}
    ~Lost() { End(); }
    void End() {
      client.reset();
      world.reset();
    }
    // Another server than the first one that is lost.
    size_t Second(uint64_t draw) const {
      return 1 + (first + draw % (kColumnServers - 1)) % kColumnServers;
    }

    CrashDisks disks;
    FileWork work;
    std::optional<CrashWorld> world;
    std::unique_ptr<FileSystem> client;
    size_t first = 0;
  };

  void Begin(Lost& lost, bool loses) {
    lost.world.emplace(lost.disks, kSpares);
    lost.client = (*lost.world)->Client(kWorker, GetParam());
    ASSERT_NO_FATAL_FAILURE(lost.work.Make(*lost.client));
    const absl::Status worked = lost.work.Work(*lost.client, kStepsBefore);
    ASSERT_TRUE(worked.ok()) << worked;
    lost.first = lost.world->Server(seed_);
    if (!loses) return;
    lost.world->Lose(lost.first);
    lost.work.NodeDied();
  }
  // All servers have lost their power; those but of `away` are back.
  void BeginAnew(Lost& lost, uint64_t seed, const std::set<size_t>& away = {}) {
    lost.End();
    lost.disks.At(0, nullptr);
    lost.disks.PowerOn(seed);
    lost.work.Crashed();
    lost.world.emplace(lost.disks, kSpares);
    for (const size_t server : away) lost.world->Lose(server);
    lost.client = (*lost.world)->Client(kWorker);
    ASSERT_NE(lost.client, nullptr);
  }
  // The files are written to until `steps` are done or the power is gone, which it is then.
  void WorkUntilPowerIsCut(Lost& lost, uint64_t call) {
    const uint64_t before = lost.disks.calls();
    lost.disks.At(call, [&] { lost.disks.CutPower(); });
    const absl::Status worked = lost.work.Work(*lost.client, kStepsAfter);
    EXPECT_TRUE(worked.ok() || lost.disks.IsOver()) << worked;
    points_ = lost.disks.calls() - before;
    lost.disks.CutPower();
  }
  void LoseAt(Lost& lost, size_t server, uint64_t call, const std::function<void()>& work);
  void SyncAll(Lost& lost);
  void BeginRebuild(Lost& lost, uint64_t seed);
  void RepairAndCheck(Lost& lost, uint64_t seed);

  void CutDegraded(uint64_t call);
  void CutInRecovery(uint64_t call);
  void CutInRebuild(uint64_t call);
  void LoseAnotherInRebuild(uint64_t call);
  void LoseAnotherAtWork(uint64_t call);

  // Has `fails` done at calls to disks, after once without a failure there.
  void FailAtEach(const char* what, uint64_t most, const std::function<void(uint64_t)>& fails) {
    {
      SCOPED_TRACE("at no call");
      ASSERT_NO_FATAL_FAILURE(fails(kNever));
    }
    const uint64_t points = points_;
    const auto tried = PointsToTry(points, most, seed_);
    for (const uint64_t call : tried) {
      SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", call ", call));
      fails(call);
      if (HasFailure()) return;
    }
    std::cout << GetParam() << ": " << what << " at " << tried.size() << " of " << points
              << " calls\n";
  }

  const uint64_t seed_ = runtime::testing::Seed(1);
  uint64_t points_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stacks, SecondFailureTest, ::testing::ValuesIn(kRedundantStacks));

// Server `server` dies at that call of `work`.
void SecondFailureTest::LoseAt(Lost& lost, size_t server, uint64_t call,
                               const std::function<void()>& work) {
  std::promise<void> now;
  std::thread killer([&, said = now.get_future()]() mutable {
    said.wait();
    lost.world->Lose(server);
  });
  const uint64_t before = lost.disks.calls();
  lost.disks.At(call, [&] {
    lost.disks.CutPowerOf(server);
    now.set_value();
  });
  work();
  points_ = lost.disks.calls() - before;
  if (lost.disks.At(0, nullptr)) now.set_value();
  killer.join();
  lost.work.NodeDied();
  lost.work.Doubt();
}

// Each layer tells once what it lost.
void SecondFailureTest::SyncAll(Lost& lost) {
  absl::Status synced;
  int tells = 0;
  do {
    synced = lost.work.SyncAll(*lost.client);
  } while (!synced.ok() && ++tells <= kTellsMax);
  ASSERT_TRUE(synced.ok()) << synced;
}

// A server was lost, the files were written to without it, and it is back.
void SecondFailureTest::BeginRebuild(Lost& lost, uint64_t seed) {
  ASSERT_NO_FATAL_FAILURE(Begin(lost, true));
  const absl::Status worked = lost.work.Work(*lost.client, kStepsAfter);
  ASSERT_TRUE(worked.ok()) << worked;
  const absl::Status synced = lost.work.SyncAll(*lost.client);
  ASSERT_TRUE(synced.ok()) << synced;
  lost.world->Return(lost.first, seed);
}

// All are there again and are repaired; then it does not matter which one is asked.
void SecondFailureTest::RepairAndCheck(Lost& lost, uint64_t seed) {
  while (!lost.world->lost().empty()) lost.world->Return(*lost.world->lost().begin(), seed++);
  const absl::Status rebuilt = lost.work.RebuildAll(*lost.client);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt;
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*lost.client));
  ASSERT_NO_FATAL_FAILURE(lost.world->CheckColumns(*lost.client));
  lost.client.reset();
  lost.world->Lose(lost.Second(seed));
  const auto reader = (*lost.world)->Client(kReader);
  SCOPED_TRACE(absl::StrCat("repaired, without server ", lost.Second(seed)));
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*reader));
}

// -- degraded, and all power goes
// ------------------------------------------------------------------

void SecondFailureTest::CutDegraded(uint64_t call) {
  Lost lost(seed_);
  ASSERT_NO_FATAL_FAILURE(Begin(lost, true));
  WorkUntilPowerIsCut(lost, call);
  // The lost one does not come back at first, every other time.
  std::set<size_t> away;
  if (call % 2 == 0) away = {lost.first};
  ASSERT_NO_FATAL_FAILURE(BeginAnew(lost, seed_ + call, away));
  const Away may_be = away.empty() ? Away::kNothing : Away::kDoubtful;
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*lost.client, may_be));
  ASSERT_TRUE(lost.work.Open(*lost.client).ok());
  const absl::Status worked = lost.work.Work(*lost.client, 4);
  ASSERT_TRUE(worked.ok() || may_be == Away::kDoubtful) << worked;
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*lost.client, may_be, /*stays=*/false));
  lost.work.Release(*lost.client);
  RepairAndCheck(lost, seed_ + call);
}

TEST_P(SecondFailureTest, WhatWasSyncedWithAServerLostIsThereAfterAPowerCut) {
  FailAtEach("with a server lost the power was cut", 10,
             [this](uint64_t call) { CutDegraded(call); });
}

// -- a crash in what mends a crash
// -----------------------------------------------------------------

void SecondFailureTest::CutInRecovery(uint64_t call) {
  std::mt19937_64 random(seed_ + call);
  Lost lost(seed_);
  ASSERT_NO_FATAL_FAILURE(Begin(lost, false));
  WorkUntilPowerIsCut(lost, random() % 60);
  std::set<size_t> away;
  if (random() % 3 == 0) away = {lost.first};
  ASSERT_NO_FATAL_FAILURE(BeginAnew(lost, seed_ + call, away));
  const uint64_t before = lost.disks.calls();
  lost.disks.At(call, [&] { lost.disks.CutPower(); });
  ASSERT_TRUE(lost.work.Open(*lost.client).ok());
  lost.work.Look(*lost.client);
  lost.work.Release(*lost.client);
  points_ = lost.disks.calls() - before;
  lost.disks.CutPower();
  ASSERT_NO_FATAL_FAILURE(BeginAnew(lost, seed_ + call + 1, away));
  ASSERT_NO_FATAL_FAILURE(
      lost.work.Check(*lost.client, away.empty() ? Away::kNothing : Away::kDoubtful));
  RepairAndCheck(lost, seed_ + call);
}

TEST_P(SecondFailureTest, WhatWasSyncedIsThereAfterAPowerCutInTheRecoveryFromAnother) {
  FailAtEach("while a crash was mended the power was cut", 6,
             [this](uint64_t call) { CutInRecovery(call); });
}

// -- rebuilding, and all power goes
// --------------------------------------------------------------

// The first one is back, and what it missed is rebuilt while the files are written to.
void SecondFailureTest::CutInRebuild(uint64_t call) {
  Lost lost(seed_);
  ASSERT_NO_FATAL_FAILURE(BeginRebuild(lost, seed_ + call));
  const uint64_t before = lost.disks.calls();
  lost.disks.At(call, [&] { lost.disks.CutPower(); });
  bool is_stepping = false;  // steps call it as well
  lost.work.between = [&] {
    if (std::exchange(is_stepping, true)) return;
    const absl::Status step = lost.work.Step(*lost.client);
    EXPECT_TRUE(step.ok() || lost.disks.IsOver()) << step;
    is_stepping = false;
  };
  const absl::Status rebuilt = lost.work.RebuildAll(*lost.client);
  EXPECT_TRUE(rebuilt.ok() || lost.disks.IsOver()) << rebuilt;
  lost.work.between = nullptr;
  points_ = lost.disks.calls() - before;
  lost.disks.CutPower();
  // None is away then, or that one, or another one, without which what was not rebuilt is not
  // known.
  std::set<size_t> away;
  Away may_be = Away::kNothing;
  if (call % 4 == 0) away = {lost.first}, may_be = Away::kDoubtful;
  if (call % 4 == 2) away = {lost.Second(call / 4)}, may_be = Away::kAnything;
  ASSERT_NO_FATAL_FAILURE(BeginAnew(lost, seed_ + call, away));
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*lost.client, may_be, /*stays=*/false));
  RepairAndCheck(lost, seed_ + call);
}

TEST_P(SecondFailureTest, WhatWasSyncedIsThereAfterAPowerCutInARebuild) {
  FailAtEach("while one was rebuilt the power was cut", 8,
             [this](uint64_t call) { CutInRebuild(call); });
}

// -- rebuilding, and another one dies
// --------------------------------------------------------------

// The first one is back, and one of those dies that it is repaired from.
void SecondFailureTest::LoseAnotherInRebuild(uint64_t call) {
  Lost lost(seed_);
  ASSERT_NO_FATAL_FAILURE(BeginRebuild(lost, seed_ + call));
  const size_t second = lost.Second(call);
  LoseAt(lost, second, call, [&] { lost.work.RebuildAll(*lost.client).IgnoreError(); });
  // What is answered is right, and what is written now makes nothing worse.
  const auto reader = (*lost.world)->Client(kReader);
  ASSERT_NO_FATAL_FAILURE(lost.work.Check(*reader, Away::kAnything, /*stays=*/false));
  lost.work.Work(*lost.client, 3).IgnoreError();
  lost.work.SyncAll(*lost.client).IgnoreError();
  lost.world->Return(second, seed_ + call);
  ASSERT_NO_FATAL_FAILURE(SyncAll(lost));
  RepairAndCheck(lost, seed_ + call);
}

TEST_P(SecondFailureTest, AllIsBackWithAServerThatDiedWhileAnotherOneWasRebuilt) {
  FailAtEach("while one was rebuilt another server died", 6,
             [this](uint64_t call) { LoseAnotherInRebuild(call); });
}

// -- two are dead at once
// --------------------------------------------------------------------------

void SecondFailureTest::LoseAnotherAtWork(uint64_t call) {
  const bool is_mirror = std::string_view(GetParam()).find("mirror") != std::string_view::npos;
  Lost lost(seed_);
  ASSERT_NO_FATAL_FAILURE(Begin(lost, true));
  const size_t second = lost.Second(call);
  LoseAt(lost, second, call, [&] {
    for (int i = 0; i < kStepsAfter; ++i) lost.work.Step(*lost.client).IgnoreError();
  });
  const auto reader = (*lost.world)->Client(kReader);
  // One copy is enough, two columns of three are needed.
  ASSERT_NO_FATAL_FAILURE(
      lost.work.Check(*reader, is_mirror ? Away::kNothing : Away::kAnything, /*stays=*/false));
  lost.work.Work(*lost.client, 2).IgnoreError();
  // The one that missed more is not believed.
  if (call % 2 == 0) {
    lost.world->Return(lost.first, seed_ + call);
    ASSERT_NO_FATAL_FAILURE(lost.work.Check(*reader, Away::kAnything, /*stays=*/false));
    lost.work.Work(*lost.client, 2).IgnoreError();
  }
  lost.world->Return(second, seed_ + call);
  if (!is_mirror && !lost.world->lost().empty()) {
    // A file that noticed only the death of the one that is back has that one down as missing, and
    // cannot do without the other as well (raid/README.md).
    lost.work.SyncAll(*lost.client).IgnoreError();
    ASSERT_NO_FATAL_FAILURE(lost.work.Check(*reader, Away::kAnything));
  } else {
    ASSERT_NO_FATAL_FAILURE(SyncAll(lost));
    ASSERT_NO_FATAL_FAILURE(lost.work.Check(*reader));
  }
  RepairAndCheck(lost, seed_ + call);
}

TEST_P(SecondFailureTest, AllIsBackWithOneOfTwoServersThatDiedAtWork) {
  FailAtEach("with a server lost another one died", 5,
             [this](uint64_t call) { LoseAnotherAtWork(call); });
}

}  // namespace
}  // namespace abacus::objfs
