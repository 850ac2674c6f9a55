// What crashes leave of files over several servers: of names, bytes, parity and columns.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/names_work.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::FileSystemWorld;
using testing::NamesWork;

constexpr size_t kServers = 4;  // the first has the inodes
constexpr size_t kDisks = 1 + kServers;
constexpr char kStacks[][48] = {"cache/raid5(unit=8 KiB)/(isolation/storage)*3",
                                "raid5(unit=8 KiB)/(isolation/storage)*3"};

// The disks of all servers, whose calls are counted together.
class Disks {
 public:
  Disks() {
    for (auto& disk : disks_) {
      DiskModel model;
      model.wait = [](absl::Duration) {};
      model.fault = [this](std::string_view call, const std::string&) { return Count(call); };
      counted_.push_back(std::make_unique<ModelDisk>(disk, std::move(model)));
    }
  }
  Disk* of_inodes() { return counted_[0].get(); }
  std::vector<Disk*> of_columns() {
    std::vector<Disk*> all;
    for (size_t i = 1; i < kDisks; ++i) all.push_back(counted_[i].get());
    return all;
  }

  // Does `what` before that call from now which changes something.
  void At(uint64_t call, std::function<void()> what) {
    runtime::MutexLock lock(mutex_);
    calls_left_ = call;
    what_ = std::move(what);
  }
  // Whether that call has come.
  bool IsOver() {
    runtime::MutexLock lock(mutex_);
    return what_ == nullptr;
  }
  void CutPower() {
    for (PowerCutDisk& disk : disks_) disk.CutPower();
  }
  void PowerOn(uint64_t seed) {
    for (PowerCutDisk& disk : disks_) disk.PowerOn(seed++);
  }

 private:
  absl::Status Count(std::string_view call) {
    static const std::set<std::string, std::less<>> kReading = {"read", "open", "list", "space"};
    if (kReading.contains(call)) return absl::OkStatus();
    runtime::MutexLock lock(mutex_);
    if (what_ != nullptr && calls_left_-- == 0) std::exchange(what_, nullptr)();
    return absl::OkStatus();
  }

  std::array<PowerCutDisk, kDisks> disks_;
  std::vector<std::unique_ptr<ModelDisk>> counted_;
  runtime::Mutex mutex_;
  uint64_t calls_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> what_ ABSL_GUARDED_BY(mutex_);
};

// Servers over those disks, on nodes 0 and 3 to 5; clients are on 1 and 2.
class World {
 public:
  explicit World(Disks& disks)
      : world_(
            6, disks.of_inodes(),
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            kLease, absl::Seconds(1), nullptr, kServers, disks.of_columns()) {}

  FileSystemWorld* operator->() { return &world_; }
  // The clients that do not renew are given up.
  void LetLeasesRunOut(FileSystem& but_of) {
    for (int i = 0; i < 4; ++i) {
      steady_ns_ += absl::ToInt64Nanoseconds(kLease) * 6 / 10;
      ASSERT_TRUE(but_of.Renew().ok());
    }
  }

  // Of every file the parity is right, and every column is a file's.
  void CheckColumns(FileSystem& at) {
    std::set<ObjectId> files;
    const auto listed = at.List(Caller(), at.root(), 0, 1000, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    ASSERT_NO_FATAL_FAILURE(CheckParity(at, at.root()));
    EXPECT_TRUE(Eventually([&] { return AllColumnsAreOfFiles(); }));
  }

 private:
  static constexpr absl::Duration kLease = absl::Seconds(30);

  static void CheckParity(FileSystem& at, ObjectId directory) {
    const auto listed = at.List(Caller(), directory, 0, 1000, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    for (const auto& entry : *listed) {
      if (entry.name == "." || entry.name == "..") continue;
      const auto node = at.Lookup(Caller(), directory, entry.name);
      ASSERT_TRUE(node.ok()) << node.status();
      if (node->inode.IsDirectory()) {
        ASSERT_NO_FATAL_FAILURE(CheckParity(at, node->id));
      }
      if (!S_ISREG(node->inode.mode)) continue;
      const auto handle = at.Open(Caller(), node->id, O_RDWR);
      ASSERT_TRUE(handle.ok()) << handle.status();
      const auto scrubbed = at.Scrub(*handle, 0, UINT64_MAX);
      ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
      EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u) << entry.name;
      EXPECT_TRUE(at.Release(*handle).ok());
    }
  }
  bool AllColumnsAreOfFiles() {
    const auto files = world_.store().List(0, 10'000);
    for (size_t i = 0; i < kServers; ++i) {
      const auto columns = world_.column_store(i).List(0, 10'000);
      if (!files.ok() || !columns.ok()) return false;
      for (const ObjectId id : *columns) {
        if (!std::binary_search(files->begin(), files->end(), id)) return false;
      }
    }
    return true;
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
};

// How many calls lie between two crashes that are tried.
uint64_t Stride(uint64_t otherwise) {
  return std::getenv("ABACUS_LONG") != nullptr ? 1 : otherwise;
}

// The power of all servers goes at each of their disks' calls in turn, from those of the first
// opening of columns on, until the work is done before.
TEST(SpreadCrashTest, WhatWasSyncedIsThereAndTheRestIsWholeAfterAPowerCut) {
  for (const char* stack : kStacks) {
    bool whole = false;
    uint64_t cuts = 0, synced_writes = 0;
    const uint64_t stride = Stride(3);
    for (uint64_t call = 0; !whole && !::testing::Test::HasFailure(); call += stride, ++cuts) {
      SCOPED_TRACE(absl::StrCat(stack, ", cut at call ", call));
      Disks disks;
      std::optional<NamesWork> work;
      {
        World world(disks);
        const auto client = world->Client(1, stack);
        ASSERT_TRUE(world->store().FlushAll().ok());
        work.emplace(*client, 1);
        disks.At(call, [&] { disks.CutPower(); });
        whole = work->Work(40);
        if (whole) disks.CutPower();
      }
      disks.At(0, nullptr);
      disks.PowerOn(call);
      World world(disks);
      const auto client = world->Client(1);
      ASSERT_NO_FATAL_FAILURE(work->Check(*client, world->store(), world->volume()));
      ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
      synced_writes += work->synced_writes();
    }
    std::cout << stack << ": " << cuts << " cuts, behind " << synced_writes << " synced writes\n";
    EXPECT_GT(synced_writes, 0u);
  }
}

// A client dies about when a disk gets each of its calls in turn. Another one finds all that was
// synced, and all names but perhaps the last, once the dead one's lease is over.
TEST(SpreadCrashTest, AnotherClientTakesOverTheFilesOfOneThatDied) {
  for (const char* stack : kStacks) {
    bool whole = false;
    uint64_t deaths = 0;
    const uint64_t stride = Stride(17);
    for (uint64_t call = 0; !whole && !::testing::Test::HasFailure(); call += stride, ++deaths) {
      SCOPED_TRACE(absl::StrCat(stack, ", dies at call ", call));
      Disks disks;
      World world(disks);
      auto victim = world->Client(1, stack);
      const auto heir = world->Client(2);
      NamesWork work(*victim, 2);
      std::promise<void> now;
      std::thread killer([&, said = now.get_future()]() mutable {
        said.wait();
        world->cluster().Kill(1);
      });
      disks.At(call, [&] { now.set_value(); });
      whole = work.Work(40);
      if (!disks.IsOver()) {
        disks.At(0, nullptr);
        now.set_value();
      }
      killer.join();
      work.LastChangeOnly();
      world.LetLeasesRunOut(*heir);
      EXPECT_TRUE(Eventually([&] {
        const auto clients = world->volume()->Clients();
        return clients.ok() && clients->size() == 1;
      }));
      ASSERT_NO_FATAL_FAILURE(work.Check(*heir, world->store(), world->volume()));
      ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*heir));
      victim.reset();  // what it says now reaches nobody
    }
    std::cout << stack << ": " << deaths << " deaths\n";
  }
}

}  // namespace
}  // namespace abacus::objfs
