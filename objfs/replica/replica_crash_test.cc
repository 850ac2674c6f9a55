// Threads work on a volume's store and its copy; the power of the copy goes at some call to its
// disk, or the primary dies; what a flush acknowledged is held against what the next primary has.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using testing::ModelObject;
using testing::ReplicaWorld;

constexpr uint64_t kCrashSizeMax = 4 * ObjectStore::kBlockBytes;

// One thread's objects, which nobody else changes, and two more whose attributes it changes
// together.
class CrashWork {
 public:
  CrashWork(uint64_t seed, VersionNumber version) : random_(seed), version_(version) {}

  // Until something is refused, or `steps` of it.
  void Do(ObjectStore& store, int steps) {
    const absl::Status made = MakePair(store);
    if (!made.ok()) return;
    for (int step = 0; step < steps; ++step) {
      const absl::Status done = Step(store);
      if (done.ok()) continue;
      EXPECT_TRUE(absl::IsUnavailable(done)) << done;
      return;
    }
  }

  void Check(ObjectStore& store) const {
    for (const auto& [id, history] : histories_) {
      std::optional<ModelObject> found;
      auto read = testing::ReadObject(store, id);
      if (read.ok()) found = *std::move(read);
      ASSERT_TRUE(found.has_value() || absl::IsNotFound(read.status())) << read.status();
      ASSERT_TRUE(std::find(history.begin(), history.end(), found) != history.end())
          << "object " << id << (found ? " has a state that it never had" : " is gone") << ", of "
          << history.size() << " it may have";
    }
    if (!has_pair_) return;
    const auto a = store.GetAttributes(pair_[0]), b = store.GetAttributes(pair_[1]);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(a->blob, b->blob) << "half of an update";
    uint64_t number = 0;
    ASSERT_TRUE(absl::SimpleAtoi(a->blob, &number));
    EXPECT_GE(number, pair_acknowledged_);
  }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  using History = std::vector<std::optional<ModelObject>>;

  absl::Status MakePair(ObjectStore& store) {
    for (ObjectId& id : pair_) {
      const auto made = store.Create("0", ++version_);
      if (!made.ok()) return made.status();
      id = *made;
    }
    const absl::Status flushed = store.FlushTogether(pair_);
    has_pair_ = flushed.ok();
    return flushed;
  }
  absl::Status Step(ObjectStore& store) {
    const uint64_t draw = random_() % 100;
    if (now_.empty() || (draw < 10 && now_.size() < 5)) return Create(store);
    const ObjectId id = std::next(now_.begin(), random_() % now_.size())->first;
    if (draw < 15) {
      now_.erase(id);
      histories_[id].push_back(std::nullopt);
      return store.Remove(id);
    }
    if (draw < 30) {
      const std::string number = absl::StrCat(++pair_now_);
      const ObjectUpdate both[] = {{pair_[0], {}, number}, {pair_[1], {}, number}};
      return store.Update(both, ++version_);
    }
    if (draw < 45) return Flush(store, id);
    const absl::Status changed =
        testing::ChangeBoth(random_, store, id, now_[id], ++version_, kCrashSizeMax);
    histories_[id].push_back(now_[id]);
    return changed;
  }
  absl::Status Create(ObjectStore& store) {
    const auto id = store.Create("new", ++version_);
    if (!id.ok()) return id.status();
    EXPECT_FALSE(histories_.contains(*id)) << "given twice: " << *id;
    now_[*id] = {.blob = "new", .version = version_};
    histories_[*id] = {std::nullopt, now_[*id]};
    return absl::OkStatus();
  }
  absl::Status Flush(ObjectStore& store, ObjectId id) {
    const uint64_t kind = random_() % 3;
    const absl::Status flushed = kind == 0   ? store.Flush(id)
                                 : kind == 1 ? store.FlushTogether(std::span(&id, 1))
                                             : store.FlushAll();
    if (!flushed.ok()) return flushed;
    ++acknowledged_;
    pair_acknowledged_ = pair_now_;
    for (auto& [of, history] : histories_) {
      if (!history.back().has_value()) history = {std::nullopt};
      if (of == id || kind == 2) history = {history.back()};
    }
    return flushed;
  }

  std::mt19937_64 random_;
  VersionNumber version_;
  std::map<ObjectId, ModelObject> now_;
  std::map<ObjectId, History> histories_;
  ObjectId pair_[2] = {};
  bool has_pair_ = false;
  uint64_t pair_now_ = 0, pair_acknowledged_ = 0, acknowledged_ = 0;
};

struct CrashResult {
  uint64_t calls = 0;
  uint64_t acknowledged = 0;
  bool was_promoted = false;
};

// What is cut off.
enum class Cut { kCopy, kPrimary };

void Run(uint64_t seed, Cut what, std::optional<uint64_t> cut, CrashResult* result) {
  const auto of_primary = std::make_shared<PowerCutDisk>(seed % 2 == 0 ? 512 : 4096);
  const auto of_copy = std::make_shared<PowerCutDisk>(seed % 2 == 0 ? 4096 : 512);
  ReplicaWorld world(of_primary, of_copy);
  world.options.flush_wait = absl::Milliseconds(5);
  world.store_options = {
      .journal_bytes_max = 20'000, .open_files_max = 4, .removed_max = 3, .ids_batch = 3};
  PowerCutDisk& cut_disk = what == Cut::kCopy ? *of_copy : *of_primary;
  ASSERT_NO_FATAL_FAILURE(world.Start());
  const uint64_t calls = cut_disk.Calls();
  world.map.answers = false;  // nobody lets the copy go
  if (cut.has_value()) cut_disk.CutPowerAfter(*cut);
  constexpr int kThreads = 3;
  std::vector<CrashWork> works;
  for (int i = 0; i < kThreads; ++i) {
    works.emplace_back(seed * kThreads + i, static_cast<VersionNumber>(i + 1) << 40);
  }
  std::vector<std::thread> threads;
  for (CrashWork& work : works) {
    threads.emplace_back([&] { work.Do(world.primary(), 60); });
  }
  for (std::thread& thread : threads) thread.join();
  result->calls = cut_disk.Calls() - calls;
  for (const CrashWork& work : works) result->acknowledged += work.acknowledged();
  // The primary dies, and in half of the cases the copy's machine as well.
  world.KillPrimary();
  ASSERT_TRUE(world.map.counts());
  if (what == Cut::kCopy || seed % 2 == 0) {
    world.KillCopy();
    of_copy->CutPower();
    of_copy->PowerOn(seed);
    ASSERT_TRUE(world.StartCopy().ok());
  }
  of_primary->CutPower();
  of_primary->PowerOn(seed);
  const absl::Status promoted = world.Promote();
  if (!promoted.ok()) {
    // It missed something, and was not asked to forget it: nothing was acknowledged since.
    FAIL() << promoted;
  }
  for (const CrashWork& work : works) ASSERT_NO_FATAL_FAILURE(work.Check(world.primary()));
  // What is left of the old primary becomes its copy.
  world.map.answers = true;
  ASSERT_TRUE(world.StartCopy().ok());
  ASSERT_TRUE(world.AwaitCurrent()) << world.primary().Report().why;
  ASSERT_TRUE(world.primary().FlushAll().ok());
  world.KillPrimary();
  world.KillCopy();
  const auto one = LocalObjectStore::Open(*of_primary, {});
  const auto other = LocalObjectStore::Open(*of_copy, {});
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_NO_FATAL_FAILURE(testing::ExpectSame(**one, **other));
}

void CutManyTimes(Cut what) {
  const uint64_t seed = testing::SeedFromEnvironment(1);
  CrashResult whole;
  ASSERT_NO_FATAL_FAILURE(Run(seed, what, std::nullopt, &whole));
  ASSERT_GT(whole.calls, 100u);
  const uint64_t cuts = std::getenv("ABACUS_LONG") != nullptr ? whole.calls : 60;
  uint64_t acknowledged = 0;
  for (uint64_t i = 0; i < cuts; ++i) {
    const uint64_t cut = i * whole.calls / cuts;
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed, ", cut at call ", cut, " of ", whole.calls));
    CrashResult result;
    ASSERT_NO_FATAL_FAILURE(Run(seed + i, what, cut, &result));
    acknowledged += result.acknowledged;
  }
  std::cout << cuts << " cuts over " << whole.calls << " calls to the disk, behind " << acknowledged
            << " flushes that were acknowledged\n";
  EXPECT_GT(acknowledged, cuts);
}

TEST(ReplicaCrashTest, WhereverTheCopysPowerGoesItHasWhatWasAcknowledged) {
  CutManyTimes(Cut::kCopy);
}

TEST(ReplicaCrashTest, WhereverThePrimarysPowerGoesTheCopyHasWhatWasAcknowledged) {
  CutManyTimes(Cut::kPrimary);
}

}  // namespace
}  // namespace abacus::objfs
