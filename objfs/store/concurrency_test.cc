// Many threads on one store: on objects of their own, on one that they share, and beside flushes,
// checkpoints and removals.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/testing/model_object.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using testing::ChangeBoth;
using testing::kBlock;
using testing::ModelObject;
using testing::ReadObject;

class ConcurrencyTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    store_.reset();
    auto store = LocalObjectStore::Open(
        disk_,
        {.journal_bytes_max = 20'000, .open_files_max = 2, .removed_max = 2, .ids_batch = 3});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // One client's work on objects of its own; returns what they are in the end.
  void OwnObjects(uint64_t seed, std::vector<std::pair<ObjectId, ModelObject>>& kept) {
    std::mt19937_64 random(seed);
    VersionNumber version = 0;
    for (int round = 0; round < 12; ++round) {
      const auto id = store_->Create("", ++version);
      ASSERT_TRUE(id.ok()) << id.status();
      ModelObject model{.version = version};
      for (int step = 0; step < 10; ++step) {
        ASSERT_TRUE(ChangeBoth(random, *store_, *id, model, ++version, 5 * kBlock).ok());
        if (random() % 3 == 0) {
          ASSERT_TRUE(store_->Flush(*id).ok());
        }
        const auto read = ReadObject(*store_, *id);
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(*read == model, true) << "object " << *id;
      }
      if (random() % 2 == 0) {
        ASSERT_TRUE(store_->Remove(*id).ok());
      } else {
        kept.emplace_back(*id, model);
      }
    }
  }

  MemoryDisk disk_;
  std::unique_ptr<LocalObjectStore> store_;
};

TEST_F(ConcurrencyTest, CallsOnDifferentObjectsDoNotMeet) {
  const uint64_t seed = testing::SeedFromEnvironment(1);
  SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed);
  std::vector<std::vector<std::pair<ObjectId, ModelObject>>> kept(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kept.size(); ++i) {
    threads.emplace_back([this, &kept, i, seed] { OwnObjects(seed * 10 + i, kept[i]); });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();
  size_t count = 0;
  for (const auto& objects : kept) {
    for (const auto& [id, model] : objects) {
      ++count;
      const auto read = ReadObject(*store_, id);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read == model, true) << "object " << id;
    }
  }
  EXPECT_EQ(store_->List(0, 1000)->size(), count);
}

// Each write fills both blocks with one letter: a reader that sees two has seen half a write.
TEST_F(ConcurrencyTest, AReaderSeesAWriteWholeOrNotAtAll) {
  const ObjectId id = *store_->Create("", 1);
  ASSERT_TRUE(store_->Write(id, 0, std::string(2 * kBlock, 'a'), 1).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0}, failed{0}, reads{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      std::string bytes(2 * kBlock, '\0');
      while (!stop.load()) {
        const auto read = store_->Read(id, 0, std::span(bytes.data(), bytes.size()));
        failed += read.ok() ? 0 : 1;
        torn += bytes.find_first_not_of(bytes[0]) == std::string::npos ? 0 : 1;
        ++reads;
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop.load()) failed += store_->Flush(id).ok() ? 0 : 1;
  });
  for (VersionNumber version = 2; version < 500 || reads.load() < 100; ++version) {
    const std::string bytes(2 * kBlock, static_cast<char>('a' + version % 26));
    ASSERT_TRUE(store_->Write(id, 0, bytes, version).ok());
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(torn.load(), 0);
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(store_->Statistics().checksum_errors, 0u);
}

TEST_F(ConcurrencyTest, ARemovalEndsCallsUnderWay) {
  for (int round = 0; round < 30; ++round) {
    const ObjectId id = *store_->Create("", 1);
    ASSERT_TRUE(store_->Write(id, 0, std::string(kBlock, 'a'), 1).ok());
    std::atomic<int> wrong{0};
    const auto is_expected = [](const absl::Status& status) {
      return status.ok() || absl::IsNotFound(status);
    };
    std::thread writer([&] {
      absl::Status status;
      while (status.ok()) status = store_->Write(id, 0, std::string(kBlock, 'b'), 2);
      wrong += is_expected(status) ? 0 : 1;
    });
    std::thread flusher([&] {
      absl::Status status;
      while (status.ok()) status = store_->Flush(id);
      wrong += is_expected(status) ? 0 : 1;
    });
    EXPECT_TRUE(store_->Remove(id).ok());
    writer.join();
    flusher.join();
    EXPECT_EQ(wrong.load(), 0);
  }
  ASSERT_TRUE(store_->FlushAll().ok());
  EXPECT_EQ(store_->Space()->used_bytes, 0u);
  Open();
  EXPECT_EQ(store_->List(0, 1)->size(), 0u);
}

// What was flushed while updates went on is, at any moment, what one of them left.
TEST_F(ConcurrencyTest, AFlushTakesUpdatesAlongWhollyOrNotAtAll) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(*store_->Create("none", 1));
  ASSERT_TRUE(store_->FlushAll().ok());
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> stop{false}, begun{false};
    std::atomic<int> wrong{0};
    std::thread updater([this, ids, round, &stop, &begun, &wrong]() mutable {
      std::mt19937_64 random(static_cast<uint64_t>(round));
      for (VersionNumber version = 2; !stop; ++version) {
        // All of them the same, in a new order: the first ones also in their bytes.
        std::shuffle(ids.begin(), ids.end(), random);
        const std::string text = std::to_string(1'000'000 + version);
        std::vector<ObjectUpdate> updates;
        for (const ObjectId id : ids) updates.push_back({id, {}, text});
        updates[0].writes = updates[1].writes = {{0, text}};
        wrong += store_->Update(updates, version).ok() ? 0 : 1;
        begun = true;
      }
    });
    std::vector<std::thread> flushers;
    for (int i = 0; i < 4; ++i) {
      flushers.emplace_back([this, id = ids[static_cast<size_t>(i)], &begun, &wrong] {
        while (!begun) std::this_thread::yield();
        for (int flush = 0; flush < 5; ++flush) wrong += store_->Flush(id).ok() ? 0 : 1;
      });
    }
    for (std::thread& flusher : flushers) flusher.join();
    stop = true;
    updater.join();
    EXPECT_EQ(wrong.load(), 0);
    Open();  // without what came after the last flush
    const std::string first = store_->GetAttributes(ids[0])->blob;
    for (const ObjectId id : ids) EXPECT_EQ(store_->GetAttributes(id)->blob, first);
  }
}

// One object's disk hangs: flushes and updates that need the object wait, those of others do not.
TEST_F(ConcurrencyTest, AWriteThatWaitsForItsDiskStopsNoUpdateOfOthers) {
  std::atomic<bool> hangs{false}, met{false};
  ModelDisk disk(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                   if (call == "write" && path.ends_with(".d") && hangs && !met.exchange(true)) {
                     met.notify_all();
                     hangs.wait(true);
                   }
                   return absl::OkStatus();
                 }});
  auto opened = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  LocalObjectStore& store = **opened;
  const ObjectId slow = *store.Create("", 1), other = *store.Create("", 1);
  const auto update = [&](ObjectId id, VersionNumber version) {
    const ObjectUpdate name{id, {}, std::to_string(version)};
    EXPECT_TRUE(store.Update(std::span(&name, 1), version).ok());
  };
  update(slow, 2);  // now every flush takes it along
  hangs = true;
  std::vector<std::thread> waiting;
  waiting.emplace_back([&] { EXPECT_TRUE(store.Write(slow, 0, "x", 3).ok()); });
  met.wait(false);
  std::atomic<int> done{0};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { EXPECT_TRUE(store.Flush(other).ok()); }, [&] { update(slow, 4); }}) {
    waiting.emplace_back([&done, call] {
      call();
      ++done;
    });
  }
  // Long enough for the two to begin; where they are late, less is tested.
  auto updates = std::async(std::launch::async, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    VersionNumber version = 5;
    while (std::chrono::steady_clock::now() < end) update(other, ++version);
    return version;
  });
  EXPECT_EQ(updates.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(done.load(), 0);
  hangs = false;
  hangs.notify_all();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(store.GetAttributes(other)->blob, std::to_string(updates.get()));
  EXPECT_EQ(store.GetAttributes(slow)->blob, "4");
}

// Each write lasts longer than a step tries to have its object, and the next one follows at once.
TEST_F(ConcurrencyTest, WritesWithoutPauseHoldUpNoFlush) {
  constexpr int kWritesMax = 60;
  runtime::Mutex mutex;
  runtime::CondVar changed;
  bool slow = false, flushed = false;
  int begun = 0;
  ModelDisk disk(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                   if (call != "write" || !path.ends_with(".d")) return absl::OkStatus();
                   runtime::MutexLock lock(mutex);
                   if (!slow) return absl::OkStatus();
                   ++begun;
                   changed.SignalAll();
                   const auto end =
                       std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
                   while (!flushed && changed.WaitUntil(mutex, end)) {
                   }
                   return absl::OkStatus();
                 }});
  auto opened = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  LocalObjectStore& store = **opened;
  const std::vector<ObjectId> busy = {*store.Create("", 1), *store.Create("", 1)};
  const ObjectId other = *store.Create("", 1);
  const std::vector<ObjectUpdate> names = {{busy[0], {}, "name"}, {busy[1], {}, "name"}};
  ASSERT_TRUE(store.Update(names, 2).ok());  // now every flush takes them along
  slow = true;
  std::vector<std::thread> writers;
  for (const ObjectId id : busy) {
    writers.emplace_back([&, id] {
      VersionNumber version = 3;
      for (bool goes_on = true; goes_on; ++version) {
        EXPECT_TRUE(store.Write(id, 0, "x", version).ok());
        runtime::MutexLock lock(mutex);
        goes_on = !flushed && begun < kWritesMax;
      }
    });
  }
  {
    runtime::MutexLock lock(mutex);
    while (begun < 2) changed.Wait(mutex);
  }
  EXPECT_EQ(store.Flush(other), absl::OkStatus());
  int begun_before = 0;
  {
    runtime::MutexLock lock(mutex);
    flushed = true;
    begun_before = begun;
    changed.SignalAll();
  }
  for (std::thread& writer : writers) writer.join();
  std::cout << begun_before << " writes before the flush was done\n";
  EXPECT_LE(begun_before, kWritesMax / 3);
  // Whoever waited for the flush goes on.
  ASSERT_TRUE(store.Update(names, 100).ok());
  EXPECT_EQ(store.FlushAll(), absl::OkStatus());
}

// What was written to a large file while it was synced is synced before the step as well: flushes
// of others go on meanwhile.
TEST_F(ConcurrencyTest, MuchThatIsWrittenDuringASyncHoldsUpNoFlushOfOthers) {
  constexpr size_t kMuch = size_t{16} << 20;
  LocalObjectStore* store = nullptr;
  ObjectId large = 0, other = 0;
  int syncs = 0;
  std::future<absl::Status> flush;
  ModelDisk disk(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                   if (call != "sync" || path != DataPath(large)) return absl::OkStatus();
                   ++syncs;
                   if (syncs == 1) {
                     EXPECT_TRUE(store->Write(large, 0, std::string(kMuch, 'y'), 3).ok());
                   } else if (syncs == 2) {
                     flush = std::async(std::launch::async, [&] { return store->Flush(other); });
                     EXPECT_EQ(flush.wait_for(std::chrono::seconds(10)), std::future_status::ready);
                   }
                   return absl::OkStatus();
                 }});
  auto opened = LocalObjectStore::Open(disk, {.logged_blocks_max = 0});
  ASSERT_TRUE(opened.ok()) << opened.status();
  store = opened->get();
  large = *store->Create("", 1);
  other = *store->Create("", 1);
  ASSERT_TRUE(store->FlushAll().ok());
  ASSERT_TRUE(store->Write(large, 0, "x", 2).ok());
  ASSERT_TRUE(store->SetAttributes(other, "x", 2).ok());
  EXPECT_EQ(store->Flush(large), absl::OkStatus());
  EXPECT_EQ(syncs, 2);
  ASSERT_TRUE(flush.valid());
  EXPECT_EQ(flush.get(), absl::OkStatus());
}

// Where each sync finds as much as the one before, it is in vain to go on.
TEST_F(ConcurrencyTest, AFileThatIsWrittenAsFastAsItIsSyncedIsFlushedNevertheless) {
  constexpr size_t kMuch = size_t{8} << 20;
  LocalObjectStore* store = nullptr;
  ObjectId large = 0;
  VersionNumber version = 1;
  int syncs = 0;
  ModelDisk disk(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                   if (call != "sync" || !path.ends_with(".d") || ++syncs > 20) {
                     return absl::OkStatus();
                   }
                   return store->Write(large, 0, std::string(kMuch, 'y'), ++version);
                 }});
  auto opened = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  store = opened->get();
  large = *store->Create("", 1);
  ASSERT_TRUE(store->Write(large, 0, std::string(kMuch, 'x'), ++version).ok());
  EXPECT_EQ(store->Flush(large), absl::OkStatus());
  EXPECT_LE(syncs, 4);
}

TEST_F(ConcurrencyTest, FlushesThatComeAtOnceShareAStep) {
  constexpr int kThreads = 16;
  runtime::Mutex mutex;
  runtime::CondVar changed;
  bool holds = false, held = false;  // the first step, until all others have synced their data
  int data_syncs = 0, journal_syncs = 0;
  ModelDisk disk(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                   if (call != "sync") return absl::OkStatus();
                   runtime::MutexLock lock(mutex);
                   if (path.ends_with(".d")) ++data_syncs;
                   const bool is_journal = path.starts_with("journal.");
                   if (is_journal) ++journal_syncs;
                   if (is_journal && holds) held = true;
                   changed.SignalAll();
                   while (is_journal && holds && data_syncs < kThreads) changed.Wait(mutex);
                   return absl::OkStatus();
                 }});
  auto opened = LocalObjectStore::Open(disk, {.logged_blocks_max = 0});
  ASSERT_TRUE(opened.ok());
  LocalObjectStore& store = **opened;
  std::vector<ObjectId> ids;
  for (int i = 0; i <= kThreads; ++i) ids.push_back(*store.Create("", 1));
  ASSERT_TRUE(store.FlushAll().ok());
  // Who is kept from running between its own data and the step comes too late to share one: so of
  // many rounds. Without sharing, each round has a step of each thread.
  constexpr int kRounds = 10;
  int steps = 0;
  for (VersionNumber version = 2; version < 2 + kRounds; ++version) {
    for (size_t i = 1; i < ids.size(); ++i) {
      ASSERT_TRUE(store.Write(ids[i], 0, "x", version).ok());
    }
    ASSERT_TRUE(store.SetAttributes(ids[0], "x", version).ok());
    {
      runtime::MutexLock lock(mutex);
      data_syncs = journal_syncs = 0;
      holds = true;
      held = false;
    }
    std::vector<std::thread> threads;
    threads.emplace_back([&] { EXPECT_TRUE(store.Flush(ids[0]).ok()); });
    {
      runtime::MutexLock lock(mutex);
      while (!held) changed.Wait(mutex);
    }
    for (size_t i = 1; i < ids.size(); ++i) {
      threads.emplace_back([&store, id = ids[i]] { EXPECT_TRUE(store.Flush(id).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
    runtime::MutexLock lock(mutex);
    holds = false;
    steps += journal_syncs;
  }
  std::cout << steps << " steps of " << kRounds * (kThreads + 1) << " flushes\n";
  EXPECT_LE(steps, kRounds * (kThreads + 1) / 2);
}

}  // namespace
}  // namespace abacus::objfs
