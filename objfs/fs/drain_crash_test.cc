// What crashes leave of files whose columns are moved off a server that is drained: all power goes,
// or the server dies that has the inodes, that is drained, or that a column goes to. Then the drain
// is said again.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/file_work.h"
#include "objfs/spread/column_store.h"
#include "objfs/volume/volume.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::testing::Eventually;
using testing::CrashDisks;
using testing::CrashWorld;
using testing::FileWork;
using testing::PointsToTry;

constexpr char kDrainedStack[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
// Of a file three of the last four have columns, so that there is one that a column can go to.
constexpr size_t kDrainServers = 5;
constexpr int kStepsBefore = 12;
constexpr int kTellsMax = 3;  // the front end, the cache and the layer over the columns
constexpr size_t kClient = 1, kHeir = 2;
constexpr uint64_t kBytesAtOnce = 20'000;
constexpr uint64_t kNever = UINT64_MAX / 2;  // the drain ends before that call

enum class Victim { kAll = 0, kInodes, kSource, kTarget };
constexpr uint64_t kVictims = 4;

bool HasColumnAt(const Node& file, uint32_t server) {
  const std::vector<uint32_t>& columns = file.inode.columns;
  return std::find(columns.begin(), columns.end(), server) != columns.end();
}
uint32_t FreeOf(const Node& file) {
  uint32_t server = 1;
  while (HasColumnAt(file, server)) ++server;
  return server;
}

// Who moves columns, as `abacus volume drain` does: a client without promises.
class Mover {
 public:
  explicit Mover(CrashWorld& world) : world_(world) {
    const auto joined = world_->volume()->Join(std::string("mover"), Ref<ClientEnd>());
    EXPECT_TRUE(joined.ok()) << joined.status();
    if (joined.ok()) writer_ = joined->writer;
  }
  ~Mover() { world_->volume()->Leave(writer_).IgnoreError(); }

  // Done between its calls.
  std::function<void()> between = [] {};
  // Somebody has died: who waits for others' promises waits no more.
  std::atomic<bool> gives_up{false};
  // The server that the column goes to that is being moved, or was last.
  std::atomic<uint32_t> target{0};

  std::vector<Node> Files() {
    const auto files = world_->volume()->Spread(0, 1000);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? files->files : std::vector<Node>();
  }
  // The first file's column is copied before the file is taken from its user, the others' then.
  absl::Status MoveAllFrom(uint32_t server) {
    bool copies = true;
    for (const Node& file : Files()) {
      if (!HasColumnAt(file, server)) continue;
      ABACUS_RETURN_IF_ERROR(Move(file, server, std::exchange(copies, false)));
    }
    return absl::OkStatus();
  }
  absl::Status Move(const Node& file, uint32_t from, bool copies) {
    target = FreeOf(file);
    ABACUS_RETURN_IF_ERROR(world_->volume()->Open(writer_, file.id).status());
    const absl::Status moved = MoveOpened(file.id, from, target, copies);
    world_->volume()->Close(writer_, file.id).IgnoreError();
    return moved;
  }

 private:
  absl::Status MoveOpened(ObjectId id, uint32_t from, uint32_t to, bool copies) {
    ColumnMove move{.from = from, .to = to, .copy = 0};
    if (copies) {
      const absl::StatusOr<uint64_t> copy = CopyBefore(id, from, to);
      // What an earlier try has left there goes when nobody uses the file.
      if (!copy.ok() && !absl::IsAlreadyExists(copy.status())) return copy.status();
      if (copy.ok()) move.copy = *copy;
    }
    absl::Status moved;
    EXPECT_TRUE(Eventually([&] {
      moved = world_->volume()->MoveColumn(writer_, id, move);
      return !IsWouldBlock(moved) || gives_up;
    }));
    return moved;
  }
  absl::StatusOr<uint64_t> CopyBefore(ObjectId id, uint32_t from, uint32_t to) {
    ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> source, world_->volume()->ColumnsAt(from));
    ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> target_store, world_->volume()->ColumnsAt(to));
    CopyProgress progress;
    while (!progress.whole) {
      ABACUS_ASSIGN_OR_RETURN(
          progress, target_store->CopyFrom(source, id, progress.copy, progress.next, kBytesAtOnce));
      between();
    }
    ABACUS_RETURN_IF_ERROR(target_store->FollowFrom(source, id, progress.copy).status());
    between();
    return progress.copy;
  }

  CrashWorld& world_;
  uint16_t writer_ = 0;
};

class DrainCrashTest : public ::testing::Test {
 protected:
  // A server that all files have a column at.
  static uint32_t ServerOfAll(const std::vector<Node>& files) {
    uint32_t server = 1;
    const auto has = [&](const Node& file) { return HasColumnAt(file, server); };
    while (server < kDrainServers && !std::all_of(files.begin(), files.end(), has)) ++server;
    return server;
  }
  void StrikeAt(uint64_t call, Victim victim);
  void DrainUntil(CrashDisks& disks, CrashWorld& world, FileWork& work, FileSystem& client,
                  uint64_t call, Victim victim);
  void GoOnWithoutOne(CrashWorld& world, FileWork& work, FileSystem& client, uint64_t seed);
  void DrainAgainAndCheck(CrashWorld& world, FileWork& work, FileSystem& client);

  const uint64_t seed_ = runtime::testing::Seed(1);
  uint32_t drained_ = 0;  // the server
  uint64_t points_ = 0;
  uint64_t cut_short_ = 0;  // drains
};

// Somebody dies at that call to a disk, or nobody where it does not come.
void DrainCrashTest::DrainUntil(CrashDisks& disks, CrashWorld& world, FileWork& work,
                                FileSystem& client, uint64_t call, Victim victim) {
  Mover mover(world);
  drained_ = ServerOfAll(mover.Files());
  ASSERT_LT(drained_, kDrainServers);
  mover.between = [&] {
    const absl::Status worked = work.Step(client);
    EXPECT_TRUE(worked.ok() || mover.gives_up) << worked;
  };
  std::promise<void> now;
  size_t dead = 0;  // of the servers of columns
  std::thread killer([&, said = now.get_future()]() mutable {
    said.wait();
    if (dead != 0) world.Lose(dead);
  });
  const uint64_t before = disks.calls();
  disks.At(call, [&] {
    mover.gives_up = true;
    if (victim == Victim::kAll) disks.CutPower();
    if (victim == Victim::kInodes) disks.CutPowerOfInodes();
    if (victim == Victim::kSource) dead = drained_;
    if (victim == Victim::kTarget) dead = mover.target;
    if (dead != 0) disks.CutPowerOf(dead);
    now.set_value();
  });
  const absl::Status drained = mover.MoveAllFrom(drained_);
  EXPECT_TRUE(drained.ok() || mover.gives_up) << drained;
  points_ = disks.calls() - before;
  if (disks.At(0, nullptr)) now.set_value();  // from here on it does not come
  killer.join();
  if (!drained.ok()) ++cut_short_;
}

// What was lost is told; all the rest is there without the dead server.
void DrainCrashTest::GoOnWithoutOne(CrashWorld& world, FileWork& work, FileSystem& client,
                                    uint64_t seed) {
  work.NodeDied();
  absl::Status synced;
  int tells = 0;
  do {
    synced = work.SyncAll(client);
  } while (!synced.ok() && ++tells <= kTellsMax);
  ASSERT_TRUE(synced.ok()) << synced;
  ASSERT_NO_FATAL_FAILURE(work.Check(client));
  world.Return(*world.lost().begin(), seed);
  const absl::Status rebuilt = work.RebuildAll(client);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt;
}

void DrainCrashTest::DrainAgainAndCheck(CrashWorld& world, FileWork& work, FileSystem& client) {
  ASSERT_NO_FATAL_FAILURE(work.Check(client));
  Mover mover(world);
  const absl::Status drained = mover.MoveAllFrom(drained_);
  ASSERT_TRUE(drained.ok()) << drained;
  const std::vector<Node> files = mover.Files();
  ASSERT_EQ(files.size(), FileWork::kFiles);
  for (const Node& file : files) EXPECT_FALSE(HasColumnAt(file, drained_)) << file.id;
  ASSERT_NO_FATAL_FAILURE(work.Check(client));
  // A move back there takes away what the crash may have left.
  for (const Node& file : files) {
    ASSERT_EQ(FreeOf(file), drained_);
    const absl::Status moved = mover.Move(file, file.inode.columns.front(), /*copies=*/true);
    ASSERT_TRUE(moved.ok()) << moved;
  }
  for (const Node& file : mover.Files()) {
    EXPECT_TRUE(HasColumnAt(file, drained_)) << file.id;
    for (uint32_t server = 0; server < kDrainServers; ++server) {
      EXPECT_EQ(world->column_store(server).GetAttributes(file.id).ok(), HasColumnAt(file, server))
          << "object " << file.id << " at server " << server;
    }
  }
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(client));
  ASSERT_NO_FATAL_FAILURE(work.Check(client));
}

void DrainCrashTest::StrikeAt(uint64_t call, Victim victim) {
  CrashDisks disks(kDrainServers);
  FileWork work(seed_);
  {
    CrashWorld world(disks, 1);
    auto client = world->Client(kClient, kDrainedStack);
    ASSERT_NE(client, nullptr);
    ASSERT_NO_FATAL_FAILURE(work.Make(*client));
    const absl::Status worked = work.Work(*client, kStepsBefore);
    ASSERT_TRUE(worked.ok()) << worked;
    ASSERT_NO_FATAL_FAILURE(DrainUntil(disks, world, work, *client, call, victim));
    if (victim == Victim::kSource || victim == Victim::kTarget) {
      if (!world.lost().empty()) {
        ASSERT_NO_FATAL_FAILURE(GoOnWithoutOne(world, work, *client, seed_ + call));
      }
      return DrainAgainAndCheck(world, work, *client);
    }
    client.reset();
    disks.CutPower();
  }
  disks.PowerOn(seed_ + call);
  work.Crashed();
  CrashWorld world(disks);
  const auto client = world->Client(kHeir, kDrainedStack);
  ASSERT_NE(client, nullptr);
  DrainAgainAndCheck(world, work, *client);
}

TEST_F(DrainCrashTest, WhoeverDiesEachColumnIsInOnePlaceAndTheNextMoveCleansUp) {
  {
    SCOPED_TRACE("at no call");
    ASSERT_NO_FATAL_FAILURE(StrikeAt(kNever, Victim::kSource));
  }
  const uint64_t points = points_;
  const auto tried = PointsToTry(points * kVictims, 40, seed_);
  for (const uint64_t number : tried) {
    const uint64_t call = number / kVictims, victim = number % kVictims;
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", call ", call, ", victim ", victim));
    StrikeAt(call, static_cast<Victim>(victim));
    if (HasFailure()) return;
  }
  std::cout << "somebody died at " << tried.size() << " of " << points * kVictims
            << " points of a drain, which was cut short " << cut_short_ << " times\n";
  EXPECT_GT(cut_short_, 0u);
}

}  // namespace
}  // namespace abacus::objfs
