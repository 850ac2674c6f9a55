#ifndef ABACUS_OBJFS_FS_TESTING_SHARDED_WORLD_H_
#define ABACUS_OBJFS_FS_TESTING_SHARDED_WORLD_H_

// A volume of three shards with clients, and disks of its servers that lose their power at a
// certain call.

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"
#include "runtime/base/mutex.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

// The disks of the shards' servers, in memory. Their calls that change or flush something are
// counted, those of each and those of all: what is durable changes at these only, so that between
// two of them it does not matter when power goes.
// Thread-safety: thread-safe.
class ShardDisks {
 public:
  static constexpr size_t kAll = SIZE_MAX;

  explicit ShardDisks(size_t count) : calls_(count) {
    for (size_t i = 0; i < count; ++i) {
      disks_.push_back(std::make_unique<PowerCutDisk>());
      DiskModel model;
      model.wait = [](absl::Duration) {};
      model.fault = [this, i](std::string_view call, const std::string&) {
        Count(i, call);
        return absl::OkStatus();
      };
      counted_.push_back(std::make_unique<ModelDisk>(*disks_.back(), std::move(model)));
    }
  }
  std::vector<Disk*> all() const {
    std::vector<Disk*> all;
    for (const auto& disk : counted_) all.push_back(disk.get());
    return all;
  }

  // Does `what` before that call from now of one disk, or of whichever. It is done on the call's
  // thread, which has locks of the store: it may wait for the test, and for nothing of the volume.
  void At(size_t disk, uint64_t call, std::function<void()> what) {
    runtime::MutexLock lock(mutex_);
    at_ = disk;
    calls_left_ = call;
    what_ = std::move(what);
  }
  // Whether that call has come.
  bool IsOver() {
    runtime::MutexLock lock(mutex_);
    return what_ == nullptr;
  }
  uint64_t calls(size_t disk = kAll) {
    runtime::MutexLock lock(mutex_);
    uint64_t calls = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (disk == kAll || disk == i) calls += calls_[i];
    }
    return calls;
  }
  void CutPower(size_t disk = kAll) {
    for (size_t i = 0; i < disks_.size(); ++i) {
      if (disk == kAll || disk == i) disks_[i]->CutPower();
    }
  }
  void PowerOn(uint64_t seed, size_t disk = kAll) {
    for (size_t i = 0; i < disks_.size(); ++i) {
      if (disk == kAll || disk == i) disks_[i]->PowerOn(seed + i);
    }
  }
  // Waits until nothing was written for so long: what is done behind the calls of clients is over.
  // Longer than the second after which a shard looks for what is settled, and its flush.
  [[nodiscard]] bool AwaitQuiet(std::chrono::milliseconds quiet = std::chrono::milliseconds(1500)) {
    uint64_t seen = calls();
    auto since = std::chrono::steady_clock::now();
    return runtime::testing::Eventually([&] {
      const auto now = std::chrono::steady_clock::now();
      if (const uint64_t now_seen = calls(); now_seen != seen) {
        seen = now_seen;
        since = now;
      }
      return now - since >= quiet;
    });
  }

 private:
  void Count(size_t disk, std::string_view call) {
    static const std::set<std::string, std::less<>> kReading = {"read", "open", "list", "space"};
    if (kReading.contains(call)) return;
    std::function<void()> what;
    {
      runtime::MutexLock lock(mutex_);
      ++calls_[disk];
      const bool counts = what_ != nullptr && (at_ == kAll || at_ == disk);
      if (counts && calls_left_-- == 0) what = std::exchange(what_, nullptr);
    }
    if (what != nullptr) what();
  }

  std::vector<std::unique_ptr<PowerCutDisk>> disks_;
  std::vector<std::unique_ptr<ModelDisk>> counted_;
  runtime::Mutex mutex_;
  std::vector<uint64_t> calls_ ABSL_GUARDED_BY(mutex_);  // of each disk
  size_t at_ ABSL_GUARDED_BY(mutex_) = kAll;
  uint64_t calls_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> what_ ABSL_GUARDED_BY(mutex_);
};

// The clock of leases, and of how long shards wait for each other.
struct ShardsClock {
  int64_t Now() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return ahead_ns + std::chrono::nanoseconds(now).count();
  }
  // Who waits for no longer than this waits no more; of a lease it is to be a part.
  void LetPass(std::chrono::nanoseconds time) { ahead_ns += time.count(); }

  std::atomic<int64_t> ahead_ns{0};
};

// The shards' servers are on the first nodes, two clients behind them, and behind these are spare
// nodes, where servers begin again.
class ShardedWorld : public ShardsClock, public FileSystemWorld {
 public:
  static constexpr uint32_t kShards = 3;
  static constexpr size_t kOne = kShards, kTwo = kShards + 1;  // the clients' nodes

  // Clients may keep what they know of an object right after another has changed it.
  explicit ShardedWorld(size_t spares = 0, ShardDisks* disks = nullptr,
                        const std::optional<runtime::FaultKnobs>& faults = std::nullopt)
      : FileSystemWorld(
            kSpare + spares,
            ShardsOptions{.count = kShards,
                          .disks = disks == nullptr ? std::vector<Disk*>() : disks->all(),
                          .faults = faults},
            [clock = static_cast<const ShardsClock*>(this)] { return clock->Now(); },
            absl::ZeroDuration()),
        spares_(spares) {}

  // From now on its server hears nothing, and nothing that it says is heard.
  void Isolate(size_t shard) {
    const size_t node = ServerNode(shard);
    for (size_t other = 0; other < cluster().size(); ++other) {
      if (other != node) cluster()[node].transport().RemovePeer(cluster()[other].self());
    }
  }
  // The shard's server begins at a node that has not been used yet.
  void Return(size_t shard) {
    ASSERT_LT(used_, spares_) << "the world has no spare node left";
    StartServer(kSpare + used_++, shard);
  }

  // A name for a directory in `parent`, which spreads them, by which it comes to that shard.
  static std::string NameIn(uint32_t shard, ObjectId parent, const std::string& stem) {
    for (int i = 0;; ++i) {
      std::string name = absl::StrCat(stem, i);
      if (ShardForName(parent, name, kShards) == shard) return name;
    }
  }
  // A directory of the root in each shard.
  static std::array<ObjectId, kShards> MakeOneInEach(FileSystem& at, const std::string& stem) {
    std::array<ObjectId, kShards> made = {};
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const auto node =
          at.Make(Caller(), at.root(), NameIn(shard, at.root(), stem), S_IFDIR | 0755, 0, "");
      EXPECT_TRUE(node.ok()) << node.status();
      if (!node.ok()) continue;
      EXPECT_EQ(ShardOf(node->id), shard);
      made[shard] = node->id;
    }
    return made;
  }

 private:
  static constexpr size_t kSpare = kShards + 2;
  const size_t spares_;
  size_t used_ = 0;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_SHARDED_WORLD_H_
