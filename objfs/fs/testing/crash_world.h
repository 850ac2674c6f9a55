#ifndef ABACUS_OBJFS_FS_TESTING_CRASH_WORLD_H_
#define ABACUS_OBJFS_FS_TESTING_CRASH_WORLD_H_

// Servers of a volume whose disks lose power at a certain call, and what must hold of their columns
// afterwards.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/message_points.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {

// Which of a workload's points are tried: all of them in a long run, else `most`, one drawn by
// `seed` from each of so many equal parts: so some are early and some late, however often points
// differ. ABACUS_POINT=n: that one alone.
inline std::vector<uint64_t> PointsToTry(uint64_t points, uint64_t most, uint64_t seed) {
  if (const char* only = std::getenv("ABACUS_POINT"); only != nullptr) {
    return {std::strtoull(only, nullptr, 10)};
  }
  if (runtime::testing::kSanitized) most = std::max<uint64_t>(4, most / 8);
  most = runtime::testing::LongRun() ? points : std::min(most, points);
  std::mt19937_64 random(seed);
  std::vector<uint64_t> some;
  for (uint64_t part = 0; part < most; ++part) {
    const uint64_t begin = points * part / most, end = points * (part + 1) / most;
    some.push_back(begin + random() % (end - begin));
  }
  return some;
}

// The disks of all servers, whose calls that change or flush something are counted together: what
// is durable changes at these only, so that between two of them it does not matter when power goes.
// Thread-safety: thread-safe.
class CrashDisks {
 public:
  static constexpr size_t kServers = 4;  // the first has the inodes

  // Of so many servers, and of a copy of the inodes.
  explicit CrashDisks(size_t servers = kServers) : disks_(servers + 2) {
    for (PowerCutDisk& disk : disks_) {
      DiskModel model;
      model.wait = [](absl::Duration) {};
      model.fault = [this](std::string_view call, const std::string&) { return Count(call); };
      counted_.push_back(std::make_unique<ModelDisk>(disk, std::move(model)));
    }
  }
  Disk* of_inodes() { return counted_[0].get(); }
  std::vector<Disk*> of_columns() {
    std::vector<Disk*> all;
    for (size_t i = 1; i <= servers(); ++i) all.push_back(counted_[i].get());
    return all;
  }
  Disk* of_copy() { return counted_.back().get(); }
  size_t servers() const { return disks_.size() - 2; }

  // Does `what` before that call from now which changes something. Whether what was given before
  // has not been done: then it never is.
  bool At(uint64_t call, std::function<void()> what) {
    runtime::MutexLock lock(mutex_);
    calls_left_ = call;
    return std::exchange(what_, std::move(what)) != nullptr;
  }
  // Whether that call has come.
  bool IsOver() {
    runtime::MutexLock lock(mutex_);
    return what_ == nullptr;
  }
  uint64_t calls() {
    runtime::MutexLock lock(mutex_);
    return calls_;
  }
  void CutPower() {
    for (PowerCutDisk& disk : disks_) disk.CutPower();
  }
  void PowerOn(uint64_t seed) {
    for (PowerCutDisk& disk : disks_) disk.PowerOn(seed++);
  }
  void CutPowerOfInodes() { disks_[0].CutPower(); }
  // Of one server's columns.
  void CutPowerOf(size_t server) { disks_[1 + server].CutPower(); }
  void PowerOnAt(size_t server, uint64_t seed) { disks_[1 + server].PowerOn(seed); }

 private:
  absl::Status Count(std::string_view call) {
    static const std::set<std::string, std::less<>> kReading = {"read", "open", "list", "space"};
    if (kReading.contains(call)) return absl::OkStatus();
    runtime::MutexLock lock(mutex_);
    ++calls_;
    if (what_ != nullptr && calls_left_-- == 0) std::exchange(what_, nullptr)();
    return absl::OkStatus();
  }

  std::vector<PowerCutDisk> disks_;
  std::vector<std::unique_ptr<ModelDisk>> counted_;
  runtime::Mutex mutex_;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t calls_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> what_ ABSL_GUARDED_BY(mutex_);
};

struct CrashOptions {
  // The inodes have a copy at another server, as in a volume with a map. Nobody lets it go.
  bool has_copy = false;
  MessagePoints* messages = nullptr;  // between all nodes; outlives the world
};

// Servers over those disks: on node 0 the one with the inodes, on the last ones those of columns.
// Clients are on 1 and 2; servers come back on the `spares` nodes behind.
class CrashWorld {
 public:
  static constexpr size_t kSpare = 3;

  explicit CrashWorld(CrashDisks& disks, size_t spares = 0, const CrashOptions& options = {})
      : disks_(disks),
        spares_(spares),
        nodes_(disks.servers()),
        replicas_(options.has_copy ? MakeReplicas(disks) : nullptr),
        world_(
            kSpare + spares + disks.servers() - 1, disks.of_inodes(),
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            kLease, absl::Seconds(1), nullptr, disks.servers(), disks.of_columns(),
            PartsOf(options)) {
    if (replicas_ != nullptr) replicas_->map.answers = false;
    for (size_t i = 1; i < nodes_.size(); ++i) nodes_[i] = kSpare + spares + i - 1;
  }

  FileSystemWorld* operator->() { return &world_; }
  FileSystemWorld& operator*() { return world_; }

  // The volume begins with whatever server when it chooses those of its first file's columns. Who
  // counts servers from that one on finds the same in every world.
  size_t Server(uint64_t number) {
    const auto files = world_.volume()->Spread(0, 100);
    const uint64_t first =
        files.ok() && !files->files.empty() ? files->files.front().inode.columns.front() : 1;
    return 1 + (first - 1 + number) % (disks_.servers() - 1);
  }

  // A server of columns loses its power, or comes back with what its disk has kept.
  void Lose(size_t server) {
    disks_.CutPowerOf(server);
    world_.LoseColumns(server);
    lost_.insert(server);
  }
  void Return(size_t server, uint64_t seed) {
    ASSERT_LT(used_spares_, spares_);
    nodes_[server] = kSpare + used_spares_++;
    disks_.PowerOnAt(server, seed);
    world_.StartColumns(server, nodes_[server]);
    lost_.erase(server);
  }
  const std::set<size_t>& lost() const { return lost_; }
  // The server with the inodes loses its power, where it has not, and that of their copy answers
  // for the volume, in the next epoch. REQUIRES: has_copy; no client is left.
  void TakeOver() {
    ASSERT_LT(used_spares_, spares_);
    disks_.CutPowerOfInodes();
    world_.LoseServer();
    replicas_->KillPrimary();
    const absl::Status promoted = replicas_->Promote();
    ASSERT_TRUE(promoted.ok()) << promoted;
    world_.StartServer(kSpare + used_spares_++);
  }
  size_t NodeOf(size_t server) const { return nodes_[server]; }
  // 0 too where there is no server of columns.
  size_t ServerAt(size_t node) const {
    const auto at = std::find(nodes_.begin() + 1, nodes_.end(), node);
    return at == nodes_.end() ? 0 : static_cast<size_t>(at - nodes_.begin());
  }

  // The clients that do not renew are given up.
  void LetLeasesRunOut(FileSystem& but_of) {
    for (int i = 0; i < 4; ++i) {
      steady_ns_ += absl::ToInt64Nanoseconds(kLease) * 6 / 10;
      ASSERT_TRUE(but_of.Renew().ok());
    }
  }

  // Of every file the parity is right, or the copies are the same, as the layer over the columns
  // finds and as their bytes are; and every column is a file's. REQUIRES: all servers are there.
  void CheckColumns(FileSystem& at) {
    ASSERT_NO_FATAL_FAILURE(CheckBelow(at, at.root()));
    EXPECT_TRUE(runtime::testing::Eventually([&] { return AllColumnsAreOfFiles(); }));
  }

 private:
  static constexpr absl::Duration kLease = absl::Seconds(30);

  static std::unique_ptr<ReplicaWorld> MakeReplicas(CrashDisks& disks) {
    const auto not_owned = [](Disk* disk) {
      return std::shared_ptr<Disk>(std::shared_ptr<Disk>(), disk);
    };
    auto replicas =
        std::make_unique<ReplicaWorld>(not_owned(disks.of_inodes()), not_owned(disks.of_copy()));
    replicas->options.flush_wait = absl::Milliseconds(5);  // no test waits for what cannot be
    replicas->Start();
    return replicas;
  }
  WorldParts PartsOf(const CrashOptions& options) {
    WorldParts parts;
    if (replicas_ != nullptr) {
      parts.open_store = [this]() -> std::shared_ptr<ObjectStore> {
        return replicas_->shared_primary();
      };
      parts.epoch = [this] { return replicas_->options.epoch; };
    }
    if (options.messages != nullptr) {
      parts.around = [messages = options.messages](size_t node,
                                                   std::unique_ptr<runtime::Transport> below) {
        return messages->Around(node, std::move(below));
      };
    }
    return parts;
  }

  void CheckBelow(FileSystem& at, ObjectId directory) {
    const auto listed = at.List(Caller(), directory, 0, 1000, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    for (const auto& entry : *listed) {
      if (entry.name == "." || entry.name == "..") continue;
      SCOPED_TRACE(entry.name);
      const auto node = at.Lookup(Caller(), directory, entry.name);
      ASSERT_TRUE(node.ok()) << node.status();
      if (node->inode.IsDirectory()) {
        ASSERT_NO_FATAL_FAILURE(CheckBelow(at, node->id));
      }
      if (node->inode.IsSpread()) {
        ASSERT_NO_FATAL_FAILURE(CheckFile(at, node->id));
      }
    }
  }
  void CheckFile(FileSystem& at, ObjectId id) {
    const auto handle = at.Open(Caller(), id, O_RDWR);
    ASSERT_TRUE(handle.ok()) << handle.status();
    const auto scrubbed =
        ScrubInSteps([&](uint64_t from) { return at.Scrub(*handle, from, UINT64_MAX); });
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
    EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
    EXPECT_TRUE(at.Release(*handle).ok());
    CheckBytes(id, at.StackOf(id).value_or(""), at.Stat(id)->size);
  }
  // Without the layers' help. Units of one stripe are at the same place in every column.
  void CheckBytes(ObjectId id, const std::string& stack, uint64_t size) {
    const bool is_mirror = absl::StrContains(stack, "mirror");
    std::string all(size, '\0');
    bool is_first = true;
    for (size_t i = 0; i < disks_.servers(); ++i) {
      std::string bytes(size, '\0');
      const auto read = world_.column_store(i).Read(id, 0, std::span<char>(bytes));
      if (absl::IsNotFound(read.status())) continue;
      ASSERT_TRUE(read.ok()) << read.status();
      if (is_mirror && !std::exchange(is_first, false)) {
        EXPECT_TRUE(bytes == all) << "copies differ";
      }
      for (size_t at = 0; at < size; ++at) all[at] = is_mirror ? bytes[at] : all[at] ^ bytes[at];
    }
    EXPECT_TRUE(is_mirror || all.find_first_not_of('\0') == std::string::npos)
        << "the parity is not that of the data, from byte " << all.find_first_not_of('\0')
        << " of the columns on";
  }
  bool AllColumnsAreOfFiles() {
    const auto files = world_.store().List(0, 10'000);
    for (size_t i = 0; i < disks_.servers(); ++i) {
      const auto columns = world_.column_store(i).List(0, 10'000);
      if (!files.ok() || !columns.ok()) return false;
      for (const ObjectId id : *columns) {
        if (!std::binary_search(files->begin(), files->end(), id)) return false;
      }
    }
    return true;
  }

  CrashDisks& disks_;
  const size_t spares_;
  size_t used_spares_ = 0;
  std::vector<size_t> nodes_;  // by server
  std::set<size_t> lost_;
  const std::unique_ptr<ReplicaWorld> replicas_;  // none: there is no copy
  std::atomic<int64_t> steady_ns_{0};             // by how much the clock of leases is ahead
  FileSystemWorld world_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_CRASH_WORLD_H_
