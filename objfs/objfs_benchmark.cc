// ./dev bench objfs: the object store against raw calls on files of the same file system, in the
// working directory, where neither side syncs; the cache object; and the mount.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/fuse/testing/bench_rows.h"
#include "objfs/fuse/testing/bench_workloads.h"
#include "objfs/fuse/testing/plain_servers.h"
#include "objfs/layer/testing/memory_layer.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/testing/log_benchmark.h"
#include "runtime/testing/bench_report.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kFileBytes = uint64_t{1} << 30;
constexpr uint64_t kStepBytes = uint64_t{1} << 20;
constexpr int kSmallFiles = 20'000;

// Takes a folder away, also where the work in it ended early.
class Emptied {
 public:
  explicit Emptied(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
  }
  ~Emptied() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  Emptied(const Emptied&) = delete;
  Emptied& operator=(const Emptied&) = delete;

 private:
  const std::string folder_;
};

double Seconds(const std::function<absl::Status()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  if (const absl::Status status = work(); !status.ok()) {
    throw testing::BenchError(status.ToString());
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

absl::Status Steps(const std::function<absl::Status(uint64_t offset)>& step) {
  for (uint64_t at = 0; at < kFileBytes; at += kStepBytes) {
    if (auto status = step(at); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Both rates in units a second; the goal is a share of the raw one.
void Add(runtime::BenchReport& report, const std::string& name, const std::string& unit,
         double ours, double raw, double goal) {
  runtime::BenchRow row{.name = name,
                        .value = ours,
                        .unit = unit,
                        .baseline_name = "raw files",
                        .baseline = raw,
                        .ratio = ours / raw};
  if (goal > 0) {
    row.goal = absl::StrCat(">= ", goal, " x raw");
    row.met = row.ratio >= goal;
  }
  report.Add(row);
}

void Sequential(runtime::BenchReport& report, Disk& disk, ObjectStore& store) {
  std::string bytes(kStepBytes, 'x');
  const std::span<char> to(bytes.data(), bytes.size());
  const auto file = *disk.Create("raw");
  const ObjectId id = *store.Create("", 1);
  const double mib = static_cast<double>(kFileBytes) / (1 << 20);
  for (const std::string what : {"write", "overwrite"}) {
    const double raw =
        Seconds([&] { return Steps([&](uint64_t at) { return file->Write(at, bytes); }); });
    const double ours =
        Seconds([&] { return Steps([&](uint64_t at) { return store.Write(id, at, bytes, 1); }); });
    Add(report, absl::StrCat("sequential ", what, ", 1 MiB of 1 GiB"), "MiB/s", mib / ours,
        mib / raw, 0.8);
    Seconds([&] { return store.Flush(id); });
    Seconds([&] { return file->Sync(); });
  }
  const double raw =
      Seconds([&] { return Steps([&](uint64_t at) { return file->Read(at, to).status(); }); });
  const double ours =
      Seconds([&] { return Steps([&](uint64_t at) { return store.Read(id, at, to).status(); }); });
  Add(report, "sequential read, 1 MiB of 1 GiB", "MiB/s", mib / ours, mib / raw, 0.8);
}

void Small(runtime::BenchReport& report, Disk& disk, ObjectStore& store) {
  const std::string bytes(4096, 'x');
  const double raw = Seconds([&]() -> absl::Status {
    for (int i = 0; i < kSmallFiles; ++i) {
      const auto file = disk.Create("small");
      if (!file.ok()) return file.status();
      if (auto status = (*file)->Write(0, bytes); !status.ok()) return status;
      if (auto status = disk.Remove("small"); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  const double ours = Seconds([&]() -> absl::Status {
    for (int i = 0; i < kSmallFiles; ++i) {
      const auto id = store.Create("", 1);
      if (!id.ok()) return id.status();
      if (auto status = store.Write(*id, 0, bytes, 1); !status.ok()) return status;
      if (auto status = store.Remove(*id); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  Add(report, "create, write 4 KiB, remove", "1/s", kSmallFiles / ours, kSmallFiles / raw, 0);
}

// A block that is in the cache object, read through a reference by the thread that is next to it.
void CacheHits(runtime::BenchReport& report) {
  constexpr int kReads = 200'000;
  constexpr uint64_t kBlocks = 1024, kBytes = 4096;
  runtime::testing::ClusterOptions options;
  options.nodes = 1;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<testing::MemoryLayer>().Add<CacheLayer>(
        [] { return std::make_unique<CacheManager>(uint64_t{64} << 20); });
  };
  runtime::testing::Cluster cluster(options);
  using Given = std::vector<std::pair<std::string, std::string>>;
  const runtime::Ref<Layer> memory(
      cluster.Create<testing::MemoryLayer>(0, std::vector<runtime::Ref<Layer>>(), Given()).base());
  const runtime::Ref<Layer> cache(
      cluster.Create<CacheLayer>(0, std::vector<runtime::Ref<Layer>>{memory}, Given()).base());
  const Version now = Version::Of(1, 1);
  const auto filled =
      memory->Write(0, runtime::Block::CopyOf(std::string(kBlocks * kBytes, 'x')), now);
  uint64_t bytes = 0;
  const auto read_all = [&]() -> absl::Status {
    for (int i = 0; i < kReads; ++i) {
      const auto read = cache->Read(static_cast<uint64_t>(i) * 7 % kBlocks * kBytes, kBytes, now);
      if (!read.ok()) return read.status();
      bytes += read->bytes.size();
    }
    return filled;
  };
  Seconds(read_all);  // fills the cache
  const double ns = Seconds(read_all) / kReads * 1e9;
  report.Add({.name = "block hit in the cache object, 4 KiB, in process",
              .value = ns,
              .unit = "ns",
              .baseline_name = "",
              .goal = "<= 500 ns",
              .met = ns <= 500 && bytes == 2 * kReads * kBytes});
}

void Store(runtime::BenchReport& report) {
  const std::string root = std::filesystem::current_path() / "object-store-benchmark";
  const Emptied folder(root);
  report.Note("store: one thread, page cache warm, no sync inside the times");
  const auto raw = *LocalDisk::At(root + "/raw");
  const auto disk = *LocalDisk::At(root + "/store");
  const auto store = LocalObjectStore::Open(*disk, {});
  if (!store.ok()) throw testing::BenchError(store.status().ToString());
  Sequential(report, *raw, **store);
  Small(report, *raw, **store);
}

struct Arguments {
  std::string json, only;
  bool quick = false, strict = false;
};

int Run(const Arguments& arguments) {
  const MountBenchSizes sizes{.quick = arguments.quick,
                              .open_files_max = testing::RaiseOpenFiles()};
  const testing::BenchPlace place{.self = std::filesystem::read_symlink("/proc/self/exe"),
                                  .program = ABACUS_PROGRAM,
                                  .folder = std::filesystem::current_path() / "mount-benchmark"};
  const std::vector<std::pair<std::string, std::function<void(runtime::BenchReport&)>>> parts = {
      {"store", Store},
      {"log", [&](auto& report) { testing::MeasureLog(report, place.folder + "/log"); }},
      {"cache", CacheHits},
      {"reads", [&](auto& report) { MountReads(report, place, sizes); }},
      {"data", [&](auto& report) { MountData(report, place, sizes); }},
      {"names", [&](auto& report) { MountNames(report, place, sizes); }},
      {"spread", [&](auto& report) { MountSpread(report, place, sizes); }},
  };
  runtime::BenchReport report("objfs");
  report.Note("mounts: one working thread; servers and programs share all processors, not pinned");
  report.Note(
      "what the kernel keeps without asking: of pass-through and local, names and attributes for "
      "600 s, and pages (of local also those of closed files); of remote, nothing, or names and "
      "attributes for 1 s; of GlusterFS, for 1 s, its default. None collects writes");
  if (sizes.entries() < MountBenchSizes{.quick = sizes.quick}.entries()) {
    report.Note(absl::StrCat("directories have ", sizes.entries(), " entries: a process may have ",
                             sizes.open_files_max,
                             " files open here, and the pass-through server has all of them open; "
                             "raise the limit (ulimit -n; as root also fs.nr_open) for more"));
  }
  if (sizes.quick) report.Note("quick: the mounts' sizes are small, and these figures no results");
  bool any = false;
  for (const auto& [name, measure] : parts) {
    if (!arguments.only.empty() && arguments.only != name) continue;
    any = true;
    const Emptied folder(place.folder);
    measure(report);
  }
  if (!any) {
    std::cerr << "no part is named " << arguments.only << "; there are";
    for (const auto& part : parts) std::cerr << " " << part.first;
    std::cerr << "\n";
    return 2;
  }
  return runtime::FinishBench(report, arguments.json, arguments.strict);
}

}  // namespace
}  // namespace abacus::objfs

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--serve-null" && argc == 4) {
    return abacus::objfs::testing::ServeNull(argv[2], std::strtoull(argv[3], nullptr, 10));
  }
  if (first == "--serve-pass-through" && argc == 4) {
    return abacus::objfs::testing::ServePassThrough(argv[3], argv[2]);
  }
  abacus::objfs::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      arguments.quick = true;
    } else if (option == "--strict") {
      arguments.strict = true;
    } else if ((option == "--json" || option == "--only") && i + 1 < argc) {
      (option == "--json" ? arguments.json : arguments.only) = argv[++i];
    } else {
      std::cerr << "usage: abacus_objfs_benchmark [--strict] [--json FILE] [--only PART] "
                   "[--quick]\n";
      return 2;
    }
  }
  try {
    return abacus::objfs::Run(arguments);
  } catch (const std::exception& error) {
    std::cerr << "the benchmark ended early: " << error.what() << "\n";
    return 1;
  }
}
