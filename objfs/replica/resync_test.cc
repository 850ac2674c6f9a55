// A copy that comes back, a new one, and an old primary: what a resync makes of them.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::Fate;
using testing::ModelObject;
using testing::ReplicaWorld;
using testing::SoonHolds;

constexpr uint64_t kResyncSizeMax = 12 * ObjectStore::kBlockBytes;

// Random changes of objects by one thread.
class RandomWork {
 public:
  explicit RandomWork(uint64_t seed) : random_(seed), version_(seed << 32) {}

  void Do(ObjectStore& store, int steps) {
    for (int i = 0; i < steps; ++i) {
      const uint64_t draw = random_() % 10;
      if (objects_.empty() || draw == 0) {
        const auto id = store.Create("new", ++version_);
        ASSERT_TRUE(id.ok()) << id.status();
        objects_[*id] = {};
      } else if (draw == 1 && objects_.size() > 3) {
        const ObjectId id = Any();
        ASSERT_TRUE(store.Remove(id).ok());
        objects_.erase(id);
      } else {
        const ObjectId id = Any();
        const absl::Status changed =
            testing::ChangeBoth(random_, store, id, objects_[id], ++version_, kResyncSizeMax);
        ASSERT_TRUE(changed.ok()) << changed;
      }
    }
  }
  ObjectId Any() { return std::next(objects_.begin(), random_() % objects_.size())->first; }
  size_t objects() const { return objects_.size(); }
  // Other changes from here on, under the same versions.
  void Reseed(uint64_t seed) { random_.seed(seed); }

 private:
  std::mt19937_64 random_;
  VersionNumber version_;
  std::map<ObjectId, ModelObject> objects_;
};

class ResyncTest : public ::testing::Test {
 protected:
  ReplicatedStore& store() { return world_.primary(); }
  // All is durable at both, and the same; both are dead then.
  void ExpectEqual() {
    ASSERT_TRUE(world_.AwaitCurrent());
    ASSERT_TRUE(store().FlushAll().ok());
    world_.KillPrimary();
    world_.KillCopy();
    const auto one = LocalObjectStore::Open(*of_one_, {});
    const auto other = LocalObjectStore::Open(*of_other_, {});
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_NO_FATAL_FAILURE(testing::ExpectSame(**one, **other));
  }
  // The primary goes on without its copy.
  void LoseCopy() {
    world_.wire.is_cut = true;
    world_.KillCopy();
    ASSERT_TRUE(SoonHolds([&] { return store().FlushAll().ok() && !world_.map.counts(); }));
    world_.wire.is_cut = false;
  }

  std::shared_ptr<PowerCutDisk> of_one_ = std::make_shared<PowerCutDisk>();
  std::shared_ptr<PowerCutDisk> of_other_ = std::make_shared<PowerCutDisk>();
  ReplicaWorld world_{of_one_, of_other_};
};

TEST_F(ResyncTest, AnEmptyCopyBecomesEqual) {
  ASSERT_TRUE(world_.StartPrimary().ok());
  RandomWork work(testing::SeedFromEnvironment(1));
  ASSERT_NO_FATAL_FAILURE(work.Do(store(), 400));
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent());
  const ReplicationReport report = store().Report();
  EXPECT_EQ(report.objects_done, work.objects());
  EXPECT_EQ(report.objects_all, work.objects());
  EXPECT_EQ(report.objects_sent, work.objects());
  ExpectEqual();
}

TEST_F(ResyncTest, ACopyThatComesBackIsSentOnlyWhatItMissed) {
  ASSERT_NO_FATAL_FAILURE(world_.Start());
  const auto large = store().Create("", 1);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(store().Create("same", 1).ok());
    ASSERT_TRUE(store().Write(*large, i << 20, std::string(100'000, 'x'), 2).ok());
  }
  ASSERT_TRUE(store().FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(LoseCopy());
  ASSERT_TRUE(store().Write(*large, 20 << 20, "y", 3).ok());
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent());
  const ReplicationReport report = store().Report();
  EXPECT_EQ(report.resyncs, 2u);
  EXPECT_EQ(report.objects_done, 41u);
  EXPECT_EQ(report.objects_sent, 1u);
  EXPECT_EQ(report.operations, 3u) << "a block, the size, the attributes";
  ExpectEqual();
}

TEST_F(ResyncTest, WhatNeedsNothingLeavesTheCopyWholeAllTheWhile) {
  ASSERT_NO_FATAL_FAILURE(world_.Start());
  ASSERT_TRUE(store().Create("same", 1).ok());
  ASSERT_TRUE(store().FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(LoseCopy());
  std::atomic<bool> was_whole{true};
  world_.wire.fate = [&](uint64_t, std::string_view call) {
    if (call == "finish") was_whole = world_.copy()->State()->is_whole;
    return Fate::kArrives;
  };
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent());
  EXPECT_TRUE(was_whole);
  ExpectEqual();
}

// The primary's last changes are known to nobody else, the copy takes over and goes on; the old one
// becomes its copy.
TEST_F(ResyncTest, AnOldPrimaryEndsByteForByteAsTheNewOne) {
  const uint64_t first = testing::SeedFromEnvironment(1);
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 300 : 25;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed));
    of_one_ = std::make_shared<PowerCutDisk>();
    of_other_ = std::make_shared<PowerCutDisk>();
    ReplicaWorld world(of_one_, of_other_);
    ASSERT_NO_FATAL_FAILURE(world.Start());
    RandomWork work(seed);
    ASSERT_NO_FATAL_FAILURE(work.Do(world.primary(), 60));
    ASSERT_TRUE(world.primary().FlushAll().ok());
    RandomWork of_the_next = work;
    of_the_next.Reseed(seed + 1000);
    world.wire.is_cut = true;
    ASSERT_NO_FATAL_FAILURE(work.Do(world.primary(), 30));
    ASSERT_TRUE(world.local().FlushAll().ok());
    world.KillPrimary();
    const absl::Status promoted = world.Promote();
    ASSERT_TRUE(promoted.ok()) << promoted;
    // The same versions for other bytes, as two clocks may give them.
    ASSERT_NO_FATAL_FAILURE(of_the_next.Do(world.primary(), 30));
    ASSERT_TRUE(world.StartCopy().ok());
    EXPECT_FALSE(world.copy()->State()->is_whole);
    ASSERT_TRUE(world.AwaitCurrent()) << world.primary().Report().why;
    EXPECT_TRUE(world.copy()->State()->is_whole);
    ASSERT_TRUE(world.primary().FlushAll().ok());
    world.KillPrimary();
    world.KillCopy();
    const auto one = LocalObjectStore::Open(*of_one_, {});
    const auto other = LocalObjectStore::Open(*of_other_, {});
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_NO_FATAL_FAILURE(testing::ExpectSame(**one, **other));
  }
}

TEST_F(ResyncTest, BytesThatDifferUnderOneVersionAreFound) {
  ASSERT_NO_FATAL_FAILURE(world_.Start());
  const ObjectId id = *store().Create("", 1);
  ASSERT_TRUE(store().Write(id, 0, std::string(20'000, 'x'), 2).ok());
  ASSERT_TRUE(store().FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(LoseCopy());
  {
    const auto other = LocalObjectStore::Open(*of_other_, {});
    ASSERT_TRUE((*other)->Write(id, 9'000, "y", 2).ok());
    ASSERT_TRUE((*other)->FlushAll().ok());
  }
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent());
  EXPECT_EQ(store().Report().objects_sent, 1u);
  ExpectEqual();
}

TEST_F(ResyncTest, DamageAtEitherEndIsMadeGoodByTheOther) {
  ASSERT_NO_FATAL_FAILURE(world_.Start());
  ObjectId ids[3];
  for (ObjectId& id : ids) {
    id = *store().Create("", 1);
    ASSERT_TRUE(store().Write(id, 0, std::string(20'000, 'x'), 2).ok());
  }
  ASSERT_TRUE(store().FlushAll().ok());
  ASSERT_TRUE(world_.local().Checkpoint().ok());
  ASSERT_NO_FATAL_FAILURE(LoseCopy());
  {
    const auto other = LocalObjectStore::Open(*of_other_, {});  // which makes a checkpoint
    ASSERT_TRUE(other.ok());
  }
  const auto damage = [](Disk& disk, const std::string& path, uint64_t at) {
    const auto file = disk.Open(path);
    ASSERT_TRUE(file.ok()) << path;
    ASSERT_TRUE((*file)->Write(at, "rot").ok());
    ASSERT_TRUE((*file)->Write(at + 8192, "rot").ok());
    ASSERT_TRUE((*file)->Sync().ok());
  };
  damage(*of_one_, absl::StrCat("1/000000000000000", ids[0], ".d"), 100);
  damage(*of_other_, absl::StrCat("2/000000000000000", ids[1], ".d"), 100);
  damage(*of_other_, absl::StrCat("3/000000000000000", ids[2], ".t"), 100);
  ASSERT_TRUE(world_.StartCopy().ok());
  ASSERT_TRUE(world_.AwaitCurrent()) << store().Report().why;
  EXPECT_EQ(store().Report().repaired_blocks, 2u);
  ExpectEqual();
}

TEST_F(ResyncTest, WhatBothHaveLostMakesNoCopyThatIsBelieved) {
  ASSERT_NO_FATAL_FAILURE(world_.Start());
  const ObjectId id = *store().Create("", 1);
  // More than the journals have as well.
  ASSERT_TRUE(store().Write(id, 0, std::string(60'000, 'x'), 2).ok());
  ASSERT_TRUE(store().FlushAll().ok());
  // Else the journals still have the bytes, and a replay makes the damage good.
  ASSERT_TRUE(world_.local().Checkpoint().ok());
  ASSERT_NO_FATAL_FAILURE(LoseCopy());
  ASSERT_TRUE(LocalObjectStore::Open(*of_other_, {}).ok());  // which makes a checkpoint
  for (const auto& disk : {of_one_, of_other_}) {
    ASSERT_TRUE((*disk->Open("1/0000000000000001.d"))->Write(8300, "rot").ok());
  }
  ASSERT_TRUE(world_.StartCopy().ok());
  EXPECT_TRUE(SoonHolds([&] {
    return store().Report().why.find("do not match their checksum") != std::string::npos;
  }));
  EXPECT_FALSE(world_.map.counts());
  ASSERT_TRUE(store().Remove(id).ok());
  store().Poke();
  EXPECT_TRUE(world_.AwaitCurrent());
  ExpectEqual();
}

// Threads change objects from before the resync until after it.
TEST_F(ResyncTest, WorkGoesOnMeanwhileAndBothAreEqualThen) {
  world_.options.stream.bytes_max = 1 << 20;
  ASSERT_TRUE(world_.StartPrimary().ok());
  constexpr int kThreads = 3;
  std::vector<RandomWork> works;
  for (int i = 0; i < kThreads; ++i) {
    works.emplace_back(i + 1);
    ASSERT_NO_FATAL_FAILURE(works.back().Do(store(), 200));
  }
  const ObjectId large = *store().Create("", 1);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(store().Write(large, i * 100'000, std::string(60'000, 'l'), 2 + i).ok());
  }
  const ObjectId high = *store().Create("", 1);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      while (!is_over) works[i].Do(store(), 1);
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random(7);
    for (VersionNumber version = 100; !is_over; ++version) {
      const std::string bytes = testing::RandomBytes(random, 50'000);
      EXPECT_TRUE(store().Write(large, random() % 4'000'000, bytes, version).ok());
    }
  });
  threads.emplace_back([&] {
    // Two objects at a time, of which one may be in step and the other not yet.
    for (VersionNumber version = UINT64_MAX / 2; !is_over; ++version) {
      const std::string blob = absl::StrCat(version);
      const ObjectUpdate both[] = {{large, {}, blob}, {high, {{0, blob}}, blob}};
      EXPECT_TRUE(store().Update(both, version).ok());
    }
  });
  ASSERT_TRUE(world_.StartCopy().ok());
  EXPECT_TRUE(world_.AwaitCurrent());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(store().FlushAll().ok());
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store().Report().resyncs, 1u) << store().Report().why;
  ExpectEqual();
}

TEST_F(ResyncTest, ACreationThatIsListedBeforeItIsStreamedIsSentOnce) {
  runtime::testing::TestPoints points;
  world_.options.points = &points;
  std::atomic<int> begun{0}, described{0};
  world_.wire.fate = [&](uint64_t, std::string_view call) {
    begun += call == "begin" ? 1 : 0;
    described += call == "describe" ? 1 : 0;
    return Fate::kArrives;
  };
  ASSERT_TRUE(world_.StartPrimary().ok());
  points.Hold("replica:changed", 1);
  std::thread maker([&] { EXPECT_TRUE(store().Create("born", 1).ok()); });
  EXPECT_TRUE(points.AwaitHeld("replica:changed"));
  EXPECT_TRUE(world_.StartCopy().ok());
  EXPECT_TRUE(SoonHolds([&] { return described == 1; })) << "the resync has found it";
  points.ReleaseAll();
  maker.join();
  EXPECT_TRUE(world_.AwaitCurrent());
  EXPECT_EQ(begun, 1) << "the copy has refused something: " << store().Report().why;
  ExpectEqual();
}

// From each message of a resync on nothing arrives, and the power of the copy goes: where anything
// was changed there it is not believed, and it is whole after the next resync.
TEST_F(ResyncTest, ACopyThatIsCutOffInTheMiddleIsNotBelieved) {
  uint64_t changed_and_cut = 0;
  bool is_done = false;
  for (uint64_t cut = 0; !is_done && !HasFailure(); ++cut) {
    SCOPED_TRACE(cut);
    of_one_ = std::make_shared<PowerCutDisk>();
    of_other_ = std::make_shared<PowerCutDisk>();
    ReplicaWorld world(of_one_, of_other_);
    world.options.stream.batch_bytes_max = 1;  // an operation, a message
    world.options.stream.batch_bytes_min = 1;
    world.store_options.removed_max = 0;  // a removal is durable at once
    ASSERT_NO_FATAL_FAILURE(world.Start());
    std::vector<ObjectId> ids;
    for (int i = 0; i < 6; ++i) ids.push_back(*world.primary().Create("old", 1));
    ASSERT_TRUE(world.primary().FlushAll().ok());
    world.wire.is_cut = true;
    world.KillCopy();
    const ObjectUpdate pair[] = {{ids[0], {}, "new"}, {ids[5], {}, "new"}};
    ASSERT_TRUE(world.primary().Update(pair, 2).ok());
    ASSERT_TRUE(world.primary().Remove(ids[2]).ok());
    ASSERT_TRUE(SoonHolds([&] { return world.primary().FlushAll().ok(); }));
    ASSERT_FALSE(world.map.counts());
    std::atomic<uint64_t> finished{0};
    const uint64_t before = world.wire.messages();
    world.wire.fate = [&](uint64_t message, std::string_view call) {
      if (message >= before + cut) return Fate::kIsLost;
      if (call == "finish") ++finished;
      return Fate::kArrives;
    };
    world.wire.is_cut = false;
    ASSERT_TRUE(world.StartCopy().ok());
    ASSERT_TRUE(
        SoonHolds([&] { return world.wire.messages() > before + cut || world.map.counts(); }));
    is_done = finished > 0;
    world.KillPrimary();
    world.KillCopy();
    of_other_->CutPower();
    of_other_->PowerOn(cut);
    const auto other = LocalObjectStore::Open(*of_other_, {});
    const auto one = LocalObjectStore::Open(*of_one_, {});
    ASSERT_TRUE(one.ok() && other.ok());
    const bool was_changed = !(*other)->GetAttributes(ids[2]).ok();
    if (is_done) {
      testing::ExpectSame(**one, **other);
    } else if (was_changed) {
      ++changed_and_cut;
      EXPECT_FALSE((*ReplicaRecord::Load(*of_other_))->is_whole);
      EXPECT_FALSE(world.map.counts());
    }
  }
  EXPECT_GT(changed_and_cut, 0u) << "the power cuts left nothing of it";
}

}  // namespace
}  // namespace abacus::objfs
