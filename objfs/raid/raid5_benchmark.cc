// The raid5 layer over five columns in this process, each a store on a disk in memory, against one
// such store by itself.

#include "objfs/raid/testing/raid5_benchmark.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "objfs/raid/testing/test_columns.h"
#include "objfs/store/memory_disk.h"

namespace abacus::objfs {
namespace {

using runtime::BenchRow;
using runtime::Block;
using runtime::Ref;
using testing::ColumnSwitch;
using testing::TestColumn;

constexpr size_t kBenchColumns = 5;
constexpr uint64_t kMebibyte = 1 << 20, kFileBytes = 64 * kMebibyte;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << "raid benchmark: " << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) Must(absl::StatusOr<int>(status));
}

class Files {
 public:
  Files() {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<Raid5Layer>().Add<StorageLayer>().Add<TestColumn>();
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    plain_ = Storage();
    std::vector<Ref<Layer>> below;
    for (size_t i = 0; i < kBenchColumns; ++i) {
      switches_.push_back(std::make_shared<ColumnSwitch>());
      auto column = std::make_unique<TestColumn>(switches_[i]);
      Must(column->Init({Storage()}, {}));
      below.emplace_back((*cluster_)[0].binding().Adopt(std::move(column)).base());
    }
    const std::vector<std::pair<std::string, std::string>> unit = {{"unit", "32 KiB"}};
    raid_ = Ref<Layer>(cluster_->Create<Raid5Layer>(0, below, unit).base());
  }
  ~Files() {
    plain_ = raid_ = Ref<Layer>();
    cluster_.reset();
  }

  const Ref<Layer>& plain() const { return plain_; }
  const Ref<Layer>& raid() const { return raid_; }
  ColumnSwitch& column(size_t i) { return *switches_[i]; }
  void ResetCounters() {
    for (auto& one : switches_) one->reads = one->writes = one->staged = one->records = 0;
  }
  uint64_t Sum(std::atomic<uint64_t> ColumnSwitch::*counter) const {
    uint64_t sum = 0;
    for (const auto& one : switches_) sum += (*one).*counter;
    return sum;
  }
  Version Now() { return Version::Of(++ticks_, 1); }

  // GB/s, over the whole file; the best of several looks.
  double Rate(const std::function<void(uint64_t at)>& work) {
    double best = 0;
    for (int look = 0; look < 5; ++look) {
      const auto begin = std::chrono::steady_clock::now();
      for (uint64_t at = 0; at < kFileBytes; at += kMebibyte) work(at);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::max(best, kFileBytes / took.count() / 1e9);
    }
    return best;
  }
  double Write(const Ref<Layer>& file) {
    return Rate([&](uint64_t at) {
      Must(file->Write(at, block_, Now()));
      if (at + kMebibyte == kFileBytes) Must(file->Flush(Now()));
    });
  }
  double Read(const Ref<Layer>& file) {
    return Rate([&](uint64_t at) { Must(file->Read(at, kMebibyte, Now())); });
  }

 private:
  Ref<Layer> Storage() {
    disks_.push_back(std::make_unique<MemoryDisk>());
    std::shared_ptr<ObjectStore> store = Must(LocalObjectStore::Open(*disks_.back(), {}));
    const ObjectId id = Must(store->Create("", Now().value));
    return Ref<Layer>(
        (*cluster_)[0].binding().Adopt(std::make_unique<StorageLayer>(store, id)).base());
  }

  std::vector<std::unique_ptr<MemoryDisk>> disks_;
  std::vector<std::shared_ptr<ColumnSwitch>> switches_;
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  Ref<Layer> plain_, raid_;
  const Block block_ = Block::CopyOf(std::string(kMebibyte, 'x'));
  uint64_t ticks_ = 0;
};

BenchRow Compared(std::string name, double ours, std::string baseline, double other, double least) {
  BenchRow row{.name = std::move(name),
               .value = ours,
               .unit = "GB/s",
               .baseline_name = std::move(baseline),
               .baseline = other,
               .ratio = ours / other,
               .goal = absl::StrCat(">= ", least, " x")};
  row.met = row.ratio >= least;
  return row;
}

// What a 4 KiB write over what was flushed does to the columns. None begins where the last one
// ended: such are gathered.
void MeasureSmallWrites(runtime::BenchReport& report, Files& files) {
  constexpr uint64_t kSmallWrites = 100, kSmallBytes = 4096;
  files.ResetCounters();
  for (uint64_t i = 0; i < kSmallWrites; ++i) {
    const Block bytes = Block::CopyOf(std::string(kSmallBytes, 'y'));
    Must(files.raid()->Write((kSmallWrites - 1 - i) * kSmallBytes, bytes, files.Now()));
  }
  const auto each = [&](std::atomic<uint64_t> ColumnSwitch::*counter) {
    return static_cast<double>(files.Sum(counter)) / kSmallWrites;
  };
  const double ios = each(&ColumnSwitch::reads) + each(&ColumnSwitch::writes);
  report.Add({.name = "raid5, block I/Os of a 4 KiB write",
              .value = ios,
              .unit = "calls",
              .baseline_name = "2 reads + 2 writes",
              .baseline = 4,
              .ratio = ios / 4,
              .goal = "<= 1 x",
              .met = ios <= 4});
  // The log by which a crash leaves the write old or new: no part of that goal.
  const std::pair<const char*, std::atomic<uint64_t> ColumnSwitch::*> logged[] = {
      {"raid5, writes to slots beside these", &ColumnSwitch::staged},
      {"raid5, records beside these", &ColumnSwitch::records}};
  for (const auto& [name, counter] : logged) {
    report.Add({.name = name,
                .value = each(counter),
                .unit = "calls",
                .baseline_name = "columns that are written",
                .baseline = 2,
                .ratio = each(counter) / 2});
  }
}

}  // namespace

void MeasureRaid5Layer(runtime::BenchReport& report) {
  Files files;
  report.Note("raid5 rows: 4+1, units of 32 KiB, calls of 1 MiB, columns in this process on disks");
  report.Note("in memory; written bytes are flushed at the end; plain: one such storage layer");
  const double plain_write = files.Write(files.plain()), write = files.Write(files.raid());
  const double plain_read = files.Read(files.plain()), read = files.Read(files.raid());
  report.Add(Compared("raid5, sequential writes", write, "plain", plain_write, 0.5));
  report.Add(Compared("raid5, sequential reads", read, "plain", plain_read, 0.5));

  MeasureSmallWrites(report, files);

  files.column(1).dead = true;
  Must(files.raid()->Read(0, kMebibyte, files.Now()));  // finds that it is missing
  report.Add(Compared("raid5, reads with a column missing", files.Read(files.raid()), "healthy",
                      read, 0.5));
}

}  // namespace abacus::objfs
