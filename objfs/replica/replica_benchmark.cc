// ./dev bench replica: what a copy at another node costs, over loopback: creations that are synced,
// one by one and by several threads at once. Both stores are on this machine's disk, so that a
// server of its own for the copy does better.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/replica/replica_link.h"
#include "objfs/replica/replica_record.h"
#include "objfs/replica/replica_store.h"
#include "objfs/replica/replicated_store.h"
#include "objfs/store/local_disk.h"
#include "runtime/testing/bench_report.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::BenchReport;

// Disks of shared machines change their speed: rounds alternate, and the middle one counts.
constexpr auto kRunTime = std::chrono::milliseconds(500);
constexpr int kRounds = 5;

template <typename T>
T Need(absl::StatusOr<T> value, const std::string& what) {
  if (value.ok()) return *std::move(value);
  fprintf(stderr, "%s: %s\n", what.c_str(), value.status().ToString().c_str());
  exit(1);
}

// What a creation of a file asks of the store: the object, its name and inode in one update, a
// flush.
void CreateSynced(ObjectStore& store, ObjectId directory, std::atomic<uint64_t>& version) {
  const ObjectId id = Need(store.Create(std::string(200, 'i'), ++version), "create");
  const std::string block(4096, 'n');
  const ObjectUpdate updates[] = {{directory, {{0, block}}, std::string(200, 'd')},
                                  {id, {}, std::string(200, 'j')}};
  const absl::Status updated = store.Update(updates, ++version);
  const absl::Status flushed = updated.ok() ? store.FlushTogether({}) : updated;
  if (!flushed.ok()) Need(absl::StatusOr<int>(flushed), "flush");
}

double CreatesPerSecond(ObjectStore& store, int threads) {
  std::atomic<uint64_t> version{1}, creations{0};
  std::vector<ObjectId> directories;
  for (int i = 0; i < threads; ++i) directories.push_back(Need(store.Create("", 1), "create"));
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      while (std::chrono::steady_clock::now() < begun + kRunTime) {
        CreateSynced(store, directories[i], version);
        ++creations;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  return static_cast<double>(creations) / took.count();
}

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void MeasureReplica(BenchReport& report) {
  runtime::testing::ClusterOptions options;
  options.nodes = 2;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ReplicaStore>();
  };
  runtime::testing::Cluster cluster(options);
  const auto disk_at = [&](const std::string& name) {
    const std::string path = absl::StrCat(cluster.directory(), "/", name);
    std::filesystem::create_directories(path);
    return std::shared_ptr<Disk>(Need(LocalDisk::At(path), path));
  };
  const auto of_plain = disk_at("plain"), of_primary = disk_at("primary"),
             of_copy = disk_at("copy");
  const auto plain = Need(LocalObjectStore::Open(*of_plain, {}), "plain");
  const runtime::Ref<ReplicaStore> copy =
      cluster[1].binding().Adopt(Need(ReplicaStore::Open(of_copy, {}), "copy"));
  std::atomic<bool> is_current{false};
  ReplicatedStore::Host host;
  host.find_copy = [&]() -> absl::StatusOr<std::shared_ptr<ReplicaLink>> {
    return LinkTo(cluster[0].RefTo<ReplicaStore>(copy.rid()), absl::Seconds(30));
  };
  host.drop_copy = [&] { return absl::UnavailableError("never"); };
  host.copy_is_current = [&] {
    is_current = true;
    return absl::OkStatus();
  };
  const auto store = ReplicatedStore::Make(Need(OpenPrimaryStore(*of_primary, 1, {}), "primary"),
                                           {.epoch = 1}, std::move(host));
  while (!is_current) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const int threads : {1, 16}) {
    std::vector<double> of_plain_rounds, of_copy_rounds;
    for (int round = 0; round < kRounds; ++round) {
      of_plain_rounds.push_back(CreatesPerSecond(*plain, threads));
      of_copy_rounds.push_back(CreatesPerSecond(*store, threads));
    }
    const double alone = Middle(std::move(of_plain_rounds));
    const double with_copy = Middle(std::move(of_copy_rounds));
    report.Add({.name = absl::StrCat("synced creations, ", threads, " threads, with a copy"),
                .value = with_copy,
                .unit = "1/s",
                .baseline_name = "without a copy",
                .baseline = alone,
                .ratio = with_copy / alone});
  }
}

}  // namespace
}  // namespace abacus::objfs

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "replica", abacus::objfs::MeasureReplica);
}
