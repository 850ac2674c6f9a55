// The power goes at some call to the disk; what is found afterwards is held against what a store
// promises (object_store.h): flushed changes are there, others whole or not at all, no identifier
// is given twice, and nothing is reported damaged.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/testing/model_object.h"

namespace abacus::objfs {
namespace {

using testing::ChangeBoth;
using testing::ModelObject;
using testing::ReadObject;

constexpr uint64_t kSizeMax = 6 * ObjectStore::kBlockBytes;

class Crash {
 public:
  Crash(uint64_t seed, uint64_t sector_bytes) : disk_(sector_bytes), random_(seed) {}

  PowerCutDisk& disk() { return disk_; }

  // Opens the store; a power cut meanwhile is survived by opening it again.
  void Open() {
    constexpr std::array<uint64_t, 3> kLogged = {0, 1, 4};
    options_.logged_blocks_max = kLogged[random_() % kLogged.size()];
    options_.journal_bytes_max = random_() % 2 == 0 ? 6'000 : 60'000;
    for (int attempt = 0; attempt < 5; ++attempt) {
      auto store = LocalObjectStore::Open(disk_, options_);
      if (store.ok()) {
        store_ = *std::move(store);
        return;
      }
      ASSERT_TRUE(absl::IsUnavailable(store.status())) << store.status();
      disk_.PowerOn(random_());
      if (attempt < 3) disk_.CutPowerAfter(random_() % 40);
    }
    FAIL() << "the store does not open any more";
  }

  // Random operations until the power is gone, or `steps` of them.
  void Work(int steps) {
    for (int step = 0; step < steps; ++step) {
      const absl::Status done = Step();
      if (done.ok()) continue;
      ASSERT_TRUE(absl::IsUnavailable(done)) << done;
      return;
    }
  }

  void Reopen() {
    store_.reset();
    disk_.PowerOn(random_());
    if (random_() % 3 == 0) disk_.CutPowerAfter(random_() % 40);
    ASSERT_NO_FATAL_FAILURE(Open());
    Check();
  }

 private:
  // What an object may be after a crash: the last durable state, and all since. nullopt: it is not.
  using History = std::vector<std::optional<ModelObject>>;

  absl::Status Step() {
    const uint64_t choice = random_() % 100;
    if (now_.empty() || (choice < 10 && now_.size() < 6)) return Create();
    const ObjectId id = std::next(now_.begin(), random_() % now_.size())->first;
    if (choice < 15) return Remove(id);
    if (choice < 35) return Flush(id);
    if (choice < 38) return FlushAll();
    if (choice < 40) return store_->Checkpoint();
    const absl::Status changed = ChangeBoth(random_, *store_, id, now_[id], ++version_, kSizeMax);
    histories_[id].push_back(now_[id]);
    return changed;
  }

  absl::Status Create() {
    const auto id = store_->Create("new", ++version_);
    if (!id.ok()) return id.status();
    EXPECT_TRUE(ids_.insert(*id).second) << "given twice: " << *id;
    now_[*id] = {.blob = "new", .version = version_};
    histories_[*id] = {std::nullopt, now_[*id]};
    return absl::OkStatus();
  }

  absl::Status Remove(ObjectId id) {
    now_.erase(id);
    histories_[id].push_back(std::nullopt);
    return store_->Remove(id);
  }

  absl::Status Flush(ObjectId id) {
    const absl::Status flushed = store_->Flush(id);
    if (!flushed.ok()) return flushed;
    histories_[id] = {now_[id]};
    RemovalsAreDurable();
    return flushed;
  }

  absl::Status FlushAll() {
    const absl::Status flushed = store_->FlushAll();
    if (!flushed.ok()) return flushed;
    for (const auto& [id, object] : now_) histories_[id] = {object};
    RemovalsAreDurable();
    return flushed;
  }

  void RemovalsAreDurable() {
    for (auto& [id, history] : histories_) {
      if (!history.back().has_value()) history = {std::nullopt};
    }
  }

  void Check() {
    const auto listed = store_->List(0, 1000);
    ASSERT_TRUE(listed.ok());
    const std::set<ObjectId> there(listed->begin(), listed->end());
    now_.clear();
    uint64_t used_bytes = 0;
    for (auto& [id, history] : histories_) {
      std::optional<ModelObject> found;
      if (there.contains(id)) {
        auto read = ReadObject(*store_, id);
        ASSERT_TRUE(read.ok()) << "object " << id << ": " << read.status();
        found = *std::move(read);
        used_bytes += found->AllocatedBytes();
      }
      ASSERT_TRUE(std::find(history.begin(), history.end(), found) != history.end())
          << "object " << id << (found ? " has a state that it never had" : " is gone") << ", of "
          << history.size() << " it may have";
      history = {found};
      if (found.has_value()) now_[id] = *found;
    }
    for (const ObjectId id : there) ASSERT_TRUE(histories_.contains(id)) << id;
    EXPECT_EQ(store_->Space()->used_bytes, used_bytes);
    EXPECT_EQ(store_->Statistics().checksum_errors, 0u);
    EXPECT_EQ(store_->Statistics().damaged_tables, 0u);
  }

  PowerCutDisk disk_;
  std::mt19937_64 random_;
  LocalObjectStoreOptions options_{.open_files_max = 2, .removed_max = 3, .ids_batch = 3};
  std::unique_ptr<LocalObjectStore> store_;
  std::map<ObjectId, ModelObject> now_;
  std::map<ObjectId, History> histories_;
  std::set<ObjectId> ids_;
  VersionNumber version_ = 0;
};

// One history of operations, cut off at each of its calls to the disk in turn.
TEST(CrashTest, APowerCutAtEveryCallLeavesOldOrNew) {
  const uint64_t seed = testing::SeedFromEnvironment(1);
  uint64_t calls = 0;
  {
    Crash whole(seed, 512);
    whole.Open();
    whole.Work(120);
    calls = whole.disk().Calls();
  }
  ASSERT_GT(calls, 200u);
  for (uint64_t cut = 0; cut <= calls; ++cut) {
    SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed << ", power cut at call " << cut);
    Crash crash(seed, cut % 2 == 0 ? 512 : 4096);
    crash.disk().CutPowerAfter(cut);
    ASSERT_NO_FATAL_FAILURE(crash.Open());
    ASSERT_NO_FATAL_FAILURE(crash.Work(120));
    ASSERT_NO_FATAL_FAILURE(crash.Reopen());
  }
}

// Many lives of one store, each ended by a power cut somewhere, in its recovery too.
TEST(CrashTest, AStoreLivesThroughManyPowerCuts) {
  const uint64_t first = testing::SeedFromEnvironment(1);
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 2'000 : 40;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed);
    Crash crash(seed, 512);
    ASSERT_NO_FATAL_FAILURE(crash.Open());
    std::mt19937_64 random(seed);
    for (int life = 0; life < 12; ++life) {
      if (random() % 4 != 0) crash.disk().CutPowerAfter(random() % 200);
      ASSERT_NO_FATAL_FAILURE(crash.Work(60)) << "life " << life;
      ASSERT_NO_FATAL_FAILURE(crash.Reopen()) << "life " << life;
    }
  }
}

}  // namespace
}  // namespace abacus::objfs
