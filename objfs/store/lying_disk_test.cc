// A disk that says of what it was to sync that it has, and has not, until the power goes. A store
// cannot tell while it works; what it finds afterwards is an earlier state, or told as damage.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/testing/model_object.h"

namespace abacus::objfs {
namespace {

// Steps that are flushed, and acknowledged, one after the other, on a disk that lies from the first
// one on.
class LiedToStore {
 public:
  using Objects = std::map<ObjectId, testing::ModelObject>;

  LiedToStore(uint64_t seed, uint64_t logged_blocks_max) : random_(seed) {
    options_.logged_blocks_max = logged_blocks_max;
    EXPECT_EQ(Open(), absl::OkStatus());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(Create(), absl::OkStatus());
      EXPECT_EQ(Change(), absl::OkStatus());
    }
    EXPECT_EQ(store_->FlushAll(), absl::OkStatus());
    EXPECT_EQ(store_->Checkpoint(), absl::OkStatus());
    disk_.LieAboutSyncs(true);
    Ended();
  }

  void ChangeOften(int steps) {
    for (int i = 0; i < steps; ++i) {
      EXPECT_EQ(Change(), absl::OkStatus());
      EXPECT_EQ(store_->FlushAll(), absl::OkStatus());
      Ended();
    }
  }
  // Objects come and go as well, and journals with them.
  void DoAll(int steps) {
    for (int i = 0; i < steps; ++i) {
      const uint64_t choice = random_() % 10;
      absl::Status done;
      if (choice == 0) {
        done = Create();
      } else if (choice == 1 && now_.size() > 1) {
        const ObjectId id = now_.begin()->first;
        now_.erase(id);
        done = store_->Remove(id);
      } else {
        done = choice == 2 ? store_->Checkpoint() : Change();
      }
      EXPECT_EQ(done, absl::OkStatus());
      EXPECT_EQ(store_->FlushAll(), absl::OkStatus());
      Ended();
    }
  }

  // The power goes, and when it is back the disk lies no more.
  void LosePower() {
    disk_.CutPower();
    store_.reset();
    disk_.LieAboutSyncs(false);
  }
  PowerCutDisk& disk() { return disk_; }
  absl::Status Open() {
    auto store = LocalObjectStore::Open(disk_, options_);
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }

  // Whether the store is as it was after that step, but for blocks that are reported damaged.
  bool IsAsAfter(size_t step, bool* damaged) {
    *damaged = false;
    if (step >= states_.size()) return false;
    const auto ids = store_->List(0, 100);
    if (!ids.ok() || ids->size() != states_[step].size()) return false;
    for (const auto& [id, object] : states_[step]) {
      const auto attributes = store_->GetAttributes(id);
      const bool is_that = attributes.ok() && attributes->blob == object.blob &&
                           attributes->version == object.version &&
                           attributes->size_bytes == object.bytes.size();
      if (!is_that || !HasBytes(id, object.bytes, damaged)) return false;
    }
    return true;
  }
  // The disk's calls when each step was acknowledged; the first: when the disk began to lie.
  const std::vector<uint64_t>& ends() const { return ends_; }
  size_t steps() const { return states_.size() - 1; }

 private:
  static constexpr uint64_t kBytesMax = 6 * ObjectStore::kBlockBytes;

  absl::Status Create() {
    const auto id = store_->Create("new", ++version_);
    if (id.ok()) now_[*id] = {.blob = "new", .version = version_};
    return id.status();
  }
  absl::Status Change() {
    auto& [id, object] = *std::next(now_.begin(), static_cast<int64_t>(random_() % now_.size()));
    return testing::ChangeBoth(random_, *store_, id, object, ++version_, kBytesMax);
  }
  void Ended() {
    states_.push_back(now_);
    ends_.push_back(disk_.Calls());
  }
  bool HasBytes(ObjectId id, const std::string& expected, bool* damaged) {
    for (uint64_t at = 0; at < expected.size(); at += testing::kBlock) {
      std::string bytes(std::min<uint64_t>(testing::kBlock, expected.size() - at), '?');
      const auto read = store_->Read(id, at, std::span(bytes.data(), bytes.size()));
      if (absl::IsDataLoss(read.status())) {
        *damaged = true;
      } else if (!read.ok() || expected.compare(at, bytes.size(), bytes) != 0) {
        return false;
      }
    }
    return true;
  }

  PowerCutDisk disk_;
  std::mt19937_64 random_;
  LocalObjectStoreOptions options_;
  std::unique_ptr<LocalObjectStore> store_;
  Objects now_;
  std::vector<Objects> states_;  // by steps
  std::vector<uint64_t> ends_;
  VersionNumber version_ = 0;
};

// As of each call in turn: the end of what was acknowledged is gone, and nothing else.
TEST(LyingDiskTest, WhereTheEndIsLostTheStoreIsAsItWasThen) {
  const uint64_t seed = testing::SeedFromEnvironment(1);
  uint64_t later = 0;
  for (;; ++later) {
    SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed << ", " << later << " calls kept");
    LiedToStore store(seed, 4);
    store.DoAll(25);
    const uint64_t calls = store.ends().front() + later;
    if (calls > store.ends().back()) break;
    store.LosePower();
    store.disk().PowerOnAsOf(calls);
    ASSERT_EQ(store.Open(), absl::OkStatus());
    const auto& ends = store.ends();
    const auto whole =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), calls) - ends.begin() - 1);
    // What was not acknowledged yet may be there.
    bool damaged = false;
    const bool is_there = (store.IsAsAfter(whole, &damaged) && !damaged) ||
                          (store.IsAsAfter(whole + 1, &damaged) && !damaged);
    EXPECT_TRUE(is_there) << whole << " steps had ended";
  }
  EXPECT_GT(later, 30u);
}

// Any part of it: some of the journal, of one object's contents and of another's. No table had been
// written since.
TEST(LyingDiskTest, WhereSomeOfItIsLostTheStoreIsAsAfterAStepOrTellsDamage) {
  const uint64_t first = testing::SeedFromEnvironment(1);
  uint64_t refused = 0, damaged = 0, older = 0;
  for (uint64_t seed = first; seed < first + 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed);
    LiedToStore store(seed, seed % 2 == 0 ? 0 : 4);
    store.ChangeOften(12);
    store.LosePower();
    store.disk().PowerOn(seed);
    if (const absl::Status opened = store.Open(); !opened.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(opened)) << opened;
      ++refused;
      continue;
    }
    bool some = false;
    size_t back = 0;
    while (back <= store.steps() && !store.IsAsAfter(store.steps() - back, &some)) ++back;
    ASSERT_LE(back, store.steps()) << "a state that never was";
    damaged += some ? 1 : 0;
    older += back > 0 ? 1 : 0;
  }
  std::cout << refused << " refused, " << damaged << " with damaged blocks, " << older
            << " older\n";
  EXPECT_GT(refused, 0u) << "a record that is lost before one that is there";
  EXPECT_GT(damaged, 0u) << "contents that are lost";
  EXPECT_GT(older, 0u) << "the end, which nothing tells";
}

}  // namespace
}  // namespace abacus::objfs
