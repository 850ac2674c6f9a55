// Many threads on one store: on objects of their own, on one that they share, and beside flushes,
// checkpoints and removals.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
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
  auto opened = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(opened.ok());
  LocalObjectStore& store = **opened;
  std::vector<ObjectId> ids;
  for (int i = 0; i <= kThreads; ++i) ids.push_back(*store.Create("", 1));
  ASSERT_TRUE(store.FlushAll().ok());
  for (const ObjectId id : ids) {
    if (id != ids[0]) ASSERT_TRUE(store.Write(id, 0, "x", 2).ok());
  }
  ASSERT_TRUE(store.SetAttributes(ids[0], "x", 2).ok());
  {
    runtime::MutexLock lock(mutex);
    data_syncs = journal_syncs = 0;
    holds = true;
  }
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_TRUE(store.Flush(ids[0]).ok()); });
  {
    runtime::MutexLock lock(mutex);
    while (!held) changed.Wait(mutex);
  }
  for (int i = 1; i <= kThreads; ++i) {
    threads.emplace_back(
        [&store, id = ids[static_cast<size_t>(i)]] { EXPECT_TRUE(store.Flush(id).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  runtime::MutexLock lock(mutex);
  // One of the first and one of those that waited meanwhile, and who was late.
  EXPECT_LE(journal_syncs, kThreads / 2);
}

}  // namespace
}  // namespace abacus::objfs
