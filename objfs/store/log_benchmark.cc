// What a store's journal does for those who flush, and for whoever starts it again.

#include "objfs/store/testing/log_benchmark.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "objfs/fuse/testing/bench_workloads.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs::testing {
namespace {

void Check(const absl::Status& status) {
  if (!status.ok()) throw BenchError(status.ToString());
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Synced writes of 4 KiB a second, each client to an object of its own, on a disk of which a flush
// takes 5 ms and one is served at a time.
double CommitsPerSecond(int clients, int each) {
  MemoryDisk memory;
  ModelDisk disk(memory, {.flush = absl::Milliseconds(5), .wait = absl::SleepFor});
  const auto store = LocalObjectStore::Open(disk, {});
  Check(store.status());
  std::vector<ObjectId> ids;
  for (int i = 0; i < clients; ++i) ids.push_back(*(*store)->Create("", 1));
  Check((*store)->FlushAll());
  std::atomic<int> failed{0};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (const ObjectId id : ids) {
    threads.emplace_back([&store, &failed, id, each] {
      const std::string bytes(4096, 'x');
      for (int i = 0; i < each; ++i) {
        const uint64_t offset = static_cast<uint64_t>(i) * bytes.size();
        const auto version = static_cast<VersionNumber>(i + 2);
        if (!(*store)->Write(id, offset, bytes, version).ok()) ++failed;
        if (!(*store)->Flush(id).ok()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed > 0) throw BenchError(absl::StrCat(failed.load(), " calls failed"));
  return clients * each / SecondsSince(begin);
}

void GroupCommit(runtime::BenchReport& report) {
  const double one = CommitsPerSecond(1, 100);
  const double many = CommitsPerSecond(64, 100);
  report.Add({.name = "synced writes of 4 KiB, 64 clients, a flush takes 5 ms",
              .value = many,
              .unit = "1/s",
              .baseline_name = "one client",
              .baseline = one,
              .ratio = many / one,
              .goal = ">= 10 x",
              .met = many >= 10 * one});
}

// A journal of 100 MB of synced writes of 4 KiB, which no checkpoint has shortened.
void Recovery(runtime::BenchReport& report, const std::string& folder) {
  constexpr uint64_t kJournalBytes = 100'000'000;
  constexpr uint64_t kRecordBytes = ObjectStore::kBlockBytes + 200;
  constexpr uint64_t kObjects = 64;
  const auto disk = LocalDisk::At(folder);
  Check(disk.status());
  {
    const auto store = LocalObjectStore::Open(**disk, {.journal_bytes_max = UINT64_MAX});
    Check(store.status());
    std::vector<ObjectId> ids;
    for (uint64_t i = 0; i < kObjects; ++i) ids.push_back(*(*store)->Create("", 1));
    const std::string bytes(4096, 'x');
    for (uint64_t i = 0; i * kRecordBytes * kObjects < kJournalBytes; ++i) {
      for (const ObjectId id : ids) {
        Check((*store)->Write(id, i * ObjectStore::kBlockBytes, bytes, i + 2));
      }
      Check((*store)->FlushTogether(ids));
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto store = LocalObjectStore::Open(**disk, {});
  Check(store.status());
  const double seconds = SecondsSince(begin);
  report.Add({.name = "start with a journal of 100 MB",
              .value = seconds,
              .unit = "s",
              .baseline_name = "",
              .goal = "<= 5 s",
              .met = seconds <= 5});
}

}  // namespace

void MeasureLog(runtime::BenchReport& report, const std::string& folder) {
  GroupCommit(report);
  Recovery(report, folder);
}

}  // namespace abacus::objfs::testing
