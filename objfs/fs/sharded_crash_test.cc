// What a power cut leaves of names in a volume of several shards: of each change all of its shards'
// parts or none, and nothing that stays held.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/sharded_names_work.h"
#include "objfs/fs/testing/sharded_world.h"

namespace abacus::objfs {
namespace {

using testing::PointsToTry;
using testing::ShardDisks;
using testing::ShardedNamesWork;
using testing::ShardedWorld;

constexpr int kChanges = 30;                   // beside one of each kind
constexpr uint64_t kNoPoint = UINT64_MAX / 2;  // the work ends before that call

class ShardedCrashTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kShards = ShardedWorld::kShards;

  // The power of one disk, or of all, goes at that call to it, or to any: the work goes on until a
  // change fails. Then all power is gone, and all servers begin anew.
  void CutAt(size_t disk, uint64_t call) {
    ShardDisks disks(kShards);
    std::optional<ShardedNamesWork> work;
    {
      ShardedWorld world(0, &disks);
      const auto a = world.Client(ShardedWorld::kOne);
      ASSERT_NE(a, nullptr);
      work.emplace(*a, seed_);
      ASSERT_NO_FATAL_FAILURE(work->Begin(world));
      const uint64_t before = disks.calls(disk);
      disks.At(disk, call, [&] {
        disks.CutPower(disk);
        // A shard that is told what was decided, and cannot write it, is told again for 5 s.
        world.LetPass(std::chrono::seconds(6));
      });
      is_whole_ = work->Work(kChanges);
      EXPECT_TRUE(is_whole_ || disks.IsOver()) << "it failed by itself";
      points_ = disks.calls(disk) - before;
      disks.At(disk, 0, nullptr);
      disks.CutPower();
    }
    Count(work->done());
    disks.PowerOn(seed_ + call);
    const auto begun = std::chrono::steady_clock::now();
    ShardedWorld world(0, &disks);
    const auto b = world.Client(ShardedWorld::kTwo);
    ASSERT_NE(b, nullptr);
    const auto joined = std::chrono::steady_clock::now() - begun;
    slowest_join_ =
        std::max(slowest_join_, std::chrono::duration_cast<std::chrono::milliseconds>(joined));
    slowest_change_ = std::max(slowest_change_, work->ChangeAll(*b));
    work->Check(*b, world, {0, 1, 2});
  }
  void CutAtEach(const std::string& what, size_t disk, uint64_t most) {
    {
      SCOPED_TRACE("at no call");
      ASSERT_NO_FATAL_FAILURE(CutAt(disk, kNoPoint));
      ASSERT_TRUE(is_whole_);
    }
    const uint64_t points = points_;
    const auto tried = PointsToTry(points, most, seed_);
    for (const uint64_t call : tried) {
      SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", ", what, " at call ", call));
      CutAt(disk, call);
      if (HasFailure()) return;
    }
    std::cout << what << " at " << tried.size() << " of " << points
              << " calls; over several shards were " << done_.made << " makings, " << done_.linked
              << " links, " << done_.renamed << " renames, " << done_.exchanged << " exchanges, "
              << done_.removed << " removals; anew in at most " << slowest_join_.count()
              << " ms, and the slowest change took " << slowest_change_.count() << " ms\n";
    EXPECT_GT(done_.made, 0u);
    EXPECT_GT(done_.linked, 0u);
    EXPECT_GT(done_.renamed, 0u);
    EXPECT_GT(done_.exchanged, 0u);
    EXPECT_GT(done_.removed, 0u);
    EXPECT_LT(slowest_change_, std::chrono::seconds(30)) << "something stayed held";
  }

  const uint64_t seed_ = runtime::testing::Seed(1);

 private:
  void Count(const ShardedNamesWork::Done& done) {
    done_.made += done.made;
    done_.linked += done.linked;
    done_.renamed += done.renamed;
    done_.exchanged += done.exchanged;
    done_.removed += done.removed;
  }

  bool is_whole_ = false;
  uint64_t points_ = 0;
  ShardedNamesWork::Done done_;
  std::chrono::milliseconds slowest_join_{0}, slowest_change_{0};
};

TEST_F(ShardedCrashTest, EachChangeIsThereWhollyOrNotAtAllAfterAPowerCut) {
  CutAtEach("the power of all was cut", ShardDisks::kAll, 24);
}

TEST_F(ShardedCrashTest, OneShardsDiskThatStopsLeavesNoPartOfAChange) {
  for (uint32_t shard = 0; shard < kShards && !HasFailure(); ++shard) {
    CutAtEach(absl::StrCat("the power of shard ", shard, " was cut"), shard, 6);
  }
}

}  // namespace
}  // namespace abacus::objfs
