// Random work of one client and of several against a plain model, while their layers and directory
// objects are moved by force.

#include "objfs/fs/testing/random_work.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/movables.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::FileSystemWorld;
using testing::Movables;
using testing::RandomWork;

constexpr char kCachedStack[] = "cache(block=4 KiB)/isolation/storage";

// Each test's clients are gone before what moves their objects is.
class RandomWorkTest : public ::testing::Test {
 protected:
  explicit RandomWorkTest(absl::Duration quiet = absl::Seconds(1))
      : world_(4, nullptr, nullptr, absl::Seconds(30), quiet) {}

  void Work(RandomWork& work, uint64_t seed, int steps, int between_checks) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
      ASSERT_NO_FATAL_FAILURE(work.Move(movables_));
      ASSERT_NO_FATAL_FAILURE(work.Step());
      if (i % between_checks != 0) continue;
      ASSERT_NO_FATAL_FAILURE(work.Check());
    }
    ASSERT_NO_FATAL_FAILURE(work.Check());
    ExpectAllWasDone(work.done());
  }
  void ExpectAllWasDone(const RandomWork::Done& done) {
    EXPECT_GT(movables_.moves(Movables::kDirectory), 0u);
    EXPECT_GT(done.links, 0u);
    EXPECT_GT(done.exchanges, 0u);
    EXPECT_GT(done.xattrs, 0u);
    EXPECT_GT(done.chmods, 0u);
    // The seldomest: the few steps beside a sanitizer may have none.
    if (!runtime::testing::kSanitized) {
      EXPECT_GT(done.without_name, 0u);
    }
  }

  FileSystemWorld world_;
  Movables movables_{world_};
};

TEST_F(RandomWorkTest, TwoClientsWorkIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(31);
  const auto a = world_.Client(1), b = world_.Client(2);
  RandomWork work({a.get(), b.get()}, seed);
  const int steps = runtime::testing::kSanitized ? 300 : runtime::testing::LongRun() ? 50000 : 3000;
  Work(work, seed, steps, 100);
}

// Each file's layers are of the client that opens it, by the stack of the one that made it.
TEST_F(RandomWorkTest, TwoClientsWorkThroughCachesIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(34);
  const auto a = world_.Client(1, kCachedStack), b = world_.Client(2, kCachedStack);
  RandomWork work({a.get(), b.get()}, seed);
  const int steps = runtime::testing::kSanitized ? 300 : runtime::testing::LongRun() ? 50000 : 2000;
  Work(work, seed, steps, 100);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

// The same through caches, one client.
TEST_F(RandomWorkTest, OneClientsWorkThroughCachesIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(32);
  const auto cached = world_.Client(2, kCachedStack);
  RandomWork work({cached.get()}, seed);
  Work(work, seed, runtime::testing::kSanitized ? 300 : 2000, 500);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

// While somebody moves what there is beside the work, and not between its steps.
TEST_F(RandomWorkTest, WhatIsMovedBesideTheWorkChangesNothingOfIt) {
  const uint64_t seed = runtime::testing::Seed(35);
  const auto a = world_.Client(1, kCachedStack), b = world_.Client(2);
  RandomWork work({a.get(), b.get()}, seed);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    std::mt19937_64 random(seed);
    // A move that is refused is of an object that was about to be ended.
    while (!stop) movables_.MoveOne(random()).IgnoreError();
  });
  const int steps = runtime::testing::kSanitized ? 200 : runtime::testing::LongRun() ? 20000 : 1000;
  for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    work.Step();
    if (i % 100 == 0) work.Check();
  }
  stop = true;
  mover.join();
  work.Check();
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
  ExpectAllWasDone(work.done());
}

// Three, one with a cache, who have looked at all that others change.
class KnowingRandomWorkTest : public RandomWorkTest {
 protected:
  KnowingRandomWorkTest() : RandomWorkTest(absl::ZeroDuration()) {}
};

TEST_F(KnowingRandomWorkTest, ThreeClientsThatKnowWhatTheySawWorkAsTheModel) {
  const uint64_t seed = runtime::testing::Seed(33);
  const auto a = world_.Client(1), b = world_.Client(2), c = world_.Client(3, kCachedStack);
  RandomWork work({a.get(), b.get(), c.get()}, seed);
  Work(work, seed, runtime::testing::kSanitized ? 100 : 700, 5);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

}  // namespace
}  // namespace abacus::objfs
