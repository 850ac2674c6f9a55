// Random work of several clients of a volume with three shards, over which all directories are
// spread, against the plain model of a volume, while their directory objects are moved by force and
// servers die.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/movables.h"
#include "objfs/fs/testing/random_work.h"
#include "objfs/fs/testing/sharded_world.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::Movables;
using testing::RandomWork;
using testing::ShardDisks;
using testing::ShardedWorld;

constexpr char kCachedOfShards[] = "cache(block=4 KiB)/isolation/storage";
constexpr uint32_t kShardsAtWork = ShardedWorld::kShards;

const std::map<std::string, std::string>& SpreadEverywhere() {
  static const std::map<std::string, std::string> attributes = {{kSpreadXattr, "yes"}};
  return attributes;
}

// Each test's clients are gone before what moves their objects is.
class ShardedRandomTest : public ::testing::Test {
 protected:
  explicit ShardedRandomTest(size_t spares = 0) : world_(spares, &disks_) {}

  // How many steps: of a run beside a sanitizer, of a long one, and else.
  struct Steps {
    int sanitized = 0, many = 0, few = 0;
    int now() const {
      return runtime::testing::kSanitized ? sanitized : runtime::testing::LongRun() ? many : few;
    }
  };

  void Work(RandomWork& work, uint64_t seed, int steps, int between_checks) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed, ", step ", i));
      ASSERT_NO_FATAL_FAILURE(work.Move(movables_));
      ASSERT_NO_FATAL_FAILURE(work.Step());
      Count(work);
      if (i % between_checks != 0) continue;
      ASSERT_NO_FATAL_FAILURE(work.Check());
    }
    ASSERT_NO_FATAL_FAILURE(work.Check());
    ExpectAllWasDone(work.done());
  }
  void Count(const RandomWork& work) {
    std::array<uint64_t, kShardsAtWork> objects = {};
    for (const ObjectId id : work.Ids()) ++objects[ShardOf(id) % kShardsAtWork];
    for (uint32_t shard = 0; shard < kShardsAtWork; ++shard) {
      most_[shard] = std::max(most_[shard], objects[shard]);
    }
  }
  void ExpectAllWasDone(const RandomWork::Done& done) {
    std::cout << "shards had at most";
    for (const uint64_t most : most_) {
      std::cout << " " << most;
      EXPECT_GT(most, runtime::testing::kSanitized ? 0u : 2u);
    }
    std::cout << " objects; " << movables_.moves(Movables::kDirectory)
              << " moves of directory objects\n";
    EXPECT_GT(movables_.moves(Movables::kDirectory), 0u);
    EXPECT_GT(done.xattrs, 0u);
    EXPECT_GT(done.chmods, 0u);
    // The seldomest: the few steps beside a sanitizer may have none.
    if (!runtime::testing::kSanitized) {
      EXPECT_GT(done.exchanges, 0u);
      EXPECT_GT(done.links, 0u);
      EXPECT_GT(done.without_name, 0u);
    }
  }

  ShardDisks disks_{kShardsAtWork};
  ShardedWorld world_;
  Movables movables_{world_};

 private:
  std::array<uint64_t, kShardsAtWork> most_ = {};
};

TEST_F(ShardedRandomTest, TwoClientsWorkOverShardsIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(51);
  const auto a = world_.Client(ShardedWorld::kOne), b = world_.Client(ShardedWorld::kTwo);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  RandomWork work({a.get(), b.get()}, seed, SpreadEverywhere());
  Work(work, seed, Steps{.sanitized = 1000, .many = 30'000, .few = 1500}.now(), 75);
}

TEST_F(ShardedRandomTest, TwoClientsWorkThroughCachesOverShardsIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(52);
  const auto a = world_.Client(ShardedWorld::kOne, kCachedOfShards),
             b = world_.Client(ShardedWorld::kTwo, kCachedOfShards);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  RandomWork work({a.get(), b.get()}, seed, SpreadEverywhere());
  Work(work, seed, Steps{.sanitized = 600, .many = 30'000, .few = 1000}.now(), 75);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

class ShardedRandomDeathsTest : public ShardedRandomTest {
 protected:
  static constexpr size_t kDeaths = 6;
  ShardedRandomDeathsTest() : ShardedRandomTest(kDeaths) {}
};

// Between two steps all is durable, and then one of the servers dies and begins again on its disk:
// nothing is lost, and of what was under way with other shards nothing is left over. What is moved
// meanwhile may have been on the node that died.
TEST_F(ShardedRandomDeathsTest, WorkGoesOnOverTheDeathsOfServers) {
  const uint64_t seed = runtime::testing::Seed(53);
  const auto a = world_.Client(ShardedWorld::kOne), b = world_.Client(ShardedWorld::kTwo);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  RandomWork work({a.get(), b.get()}, seed, SpreadEverywhere());
  const int steps = Steps{.sanitized = 600, .many = 6000, .few = 600}.now();
  const int between = steps / static_cast<int>(kDeaths);
  size_t deaths = 0;
  for (int i = 1; i <= steps; ++i) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed, ", step ", i));
    // An object may be gone with its node, before its client has heard of that.
    work.TryMove(movables_).IgnoreError();
    ASSERT_NO_FATAL_FAILURE(work.Step());
    Count(work);
    if (i % between != 0 || deaths == kDeaths) continue;
    ASSERT_NO_FATAL_FAILURE(work.SyncHeld());
    for (uint32_t shard = 0; shard < kShardsAtWork; ++shard) {
      ASSERT_EQ(world_.store(shard).FlushAll(), absl::OkStatus());
    }
    const size_t victim = deaths++ % kShardsAtWork;
    disks_.CutPower(victim);
    world_.LoseServer(victim);
    disks_.PowerOn(seed + deaths, victim);
    world_.Return(victim);
    ASSERT_TRUE(Eventually([&] { return a->Renew().ok() && b->Renew().ok(); }));
    ASSERT_NO_FATAL_FAILURE(work.Check());
  }
  EXPECT_EQ(deaths, kDeaths);
  ASSERT_NO_FATAL_FAILURE(work.Check());
  ExpectAllWasDone(work.done());
}

}  // namespace
}  // namespace abacus::objfs
