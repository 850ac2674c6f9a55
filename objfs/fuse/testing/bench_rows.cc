#include "objfs/fuse/testing/bench_rows.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/fuse/testing/bench_workloads.h"

namespace abacus::objfs {
namespace {

using testing::BenchMount;
using testing::BenchPlace;
using Made = absl::StatusOr<std::unique_ptr<BenchMount>>;

// Goals as shares of the pass-through server's figure.
struct Goals {
  double local = 0, remote = 0;
  bool ahead_of_gluster = false;
};

class MountTable {
 public:
  MountTable(runtime::BenchReport& report, const BenchPlace& place)
      : report_(report), place_(place) {}

  // Measures `row` on each mount, one mount after the other, so that no two compete.
  struct Row {
    std::string name;
    std::string unit;
    double scale = 1;  // unit / what `measure` returns
    Goals goals;
    std::function<double(const BenchMount&)> measure;
  };
  void Measure(const std::vector<Row>& rows) {
    const std::vector<std::pair<std::string, std::function<Made()>>> kinds = {
        {kNative, [this]() -> Made { return testing::BenchNative(place_); }},
        {kPassThrough, [this] { return testing::BenchPassThrough(place_); }},
        {kLocal, [this] { return testing::BenchLocal(place_, ""); }},
        {kRemote, [this] { return testing::BenchRemote(place_, ""); }},
        {kRemoteASecond,
         [this] { return testing::BenchRemote(place_, "", "attr_timeout=1,entry_timeout=1"); }},
        {kGluster, [this] { return testing::BenchGluster(place_); }},
    };
    std::map<std::string, std::vector<double>> seen;
    for (const auto& [kind, make] : kinds) {
      std::cerr << "mounts: " << kind << "\n";
      const Made mount = make();
      if (!mount.ok()) {
        report_.Note(absl::StrCat("no figures of ", kind, ": ", mount.status().message()));
        continue;
      }
      for (const Row& row : rows) seen[kind].push_back(row.measure(**mount) * row.scale);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const char* kind : {kNative, kLocal, kRemote, kRemoteASecond, kGluster}) {
        if (seen.contains(kind)) Report(rows[i], kind, i, seen);
      }
    }
  }

 private:
  static constexpr char kNative[] = "native", kPassThrough[] = "pass-through", kLocal[] = "local",
                        kRemote[] = "remote", kRemoteASecond[] = "remote, names for 1 s",
                        kGluster[] = "GlusterFS";

  void Report(const Row& row, const std::string& kind, size_t i,
              const std::map<std::string, std::vector<double>>& seen) {
    const auto base = seen.find(kPassThrough);
    if (base == seen.end()) return;
    runtime::BenchRow out{.name = absl::StrCat(row.name, ", ", kind),
                          .value = seen.at(kind)[i],
                          .unit = row.unit,
                          .baseline_name = kPassThrough,
                          .baseline = base->second[i]};
    out.ratio = out.value / out.baseline;
    const double share = kind == kLocal ? row.goals.local : kind == kRemote ? row.goals.remote : 0;
    if (share > 0) {
      out.goal = absl::StrCat(">= ", share, " x pass-through");
      out.met = out.ratio >= share;
    }
    if (const auto gluster = seen.find(kGluster);
        kind == kRemote && row.goals.ahead_of_gluster && gluster != seen.end()) {
      out.goal += absl::StrCat(out.goal.empty() ? "" : ", ", "> GlusterFS");
      out.met = out.met.value_or(true) && out.value > gluster->second[i];
    }
    report_.Add(out);
  }

  runtime::BenchReport& report_;
  const BenchPlace& place_;
};

}  // namespace

void MountReads(runtime::BenchReport& report, const BenchPlace& place,
                const MountBenchSizes& sizes) {
  constexpr uint64_t kBytes = uint64_t{8} << 20, kBlock = 4096;
  constexpr double kGoal = 1.5;  // times that of the null server
  const auto null = testing::BenchNull(place, kBytes);
  if (!null.ok()) {
    report.Note(absl::StrCat("no direct reads: ", null.status().message()));
    return;
  }
  const double null_us =
      1e6 / testing::DirectReads((*null)->path() + "/file", kBytes, kBlock, sizes.direct_reads());
  const std::string stack = "cache/isolation/storage";
  for (const bool local : {true, false}) {
    const Made mount =
        local ? testing::BenchLocal(place, stack) : testing::BenchRemote(place, stack);
    const std::string name = absl::StrCat("direct read of 4 KiB, block in the cache object, ",
                                          local ? "local" : "remote");
    if (!mount.ok()) {
      report.Note(absl::StrCat("no figure of ", name, ": ", mount.status().message()));
      continue;
    }
    const std::string file = (*mount)->path() + "/file";
    testing::SequentialWrite(file, kBytes);
    const double us = 1e6 / testing::DirectReads(file, kBytes, kBlock, sizes.direct_reads());
    report.Add({.name = name,
                .value = us,
                .unit = "us",
                .baseline_name = "null FUSE server",
                .baseline = null_us,
                .ratio = us / null_us,
                .goal = absl::StrCat("<= ", kGoal, " x null"),
                .met = us <= kGoal * null_us});
  }
}

void MountData(runtime::BenchReport& report, const BenchPlace& place,
               const MountBenchSizes& sizes) {
  const uint64_t bytes = sizes.file_bytes();
  const auto file = [](const BenchMount& mount) { return mount.path() + "/large"; };
  constexpr double kMiB = 1.0 / (1 << 20);
  MountTable(report, place)
      .Measure({
          {"sequential write of 1 MiB",
           "MiB/s",
           kMiB,
           {0.8, 0, true},
           [&](const BenchMount& at) { return testing::SequentialWrite(file(at), bytes); }},
          {"sequential read of 1 MiB",
           "MiB/s",
           kMiB,
           {0.8, 0, true},
           [&](const BenchMount& at) { return testing::SequentialRead(file(at), bytes); }},
          {"random write of 4 KiB, buffered",
           "1/s",
           1,
           {0.5, 0, true},
           [&](const BenchMount& at) {
             return testing::RandomWrites(file(at), bytes, sizes.random_writes());
           }},
      });
}

void MountNames(runtime::BenchReport& report, const BenchPlace& place,
                const MountBenchSizes& sizes) {
  const auto many = [](const BenchMount& at) { return at.path() + "/many"; };
  MountTable(report, place)
      .Measure({
          {"create, write 4 KiB, close, unlink",
           "1/s",
           1,
           {0.5, 0.3, true},
           [&](const BenchMount& at) { return testing::Churn(at.path(), sizes.small_files()); }},
          {"create of an empty file",
           "1/s",
           1,
           {},
           [&](const BenchMount& at) { return testing::MakeFiles(many(at), sizes.entries()); }},
          {"stat",
           "1/s",
           1,
           {0.5, 0, true},
           [&](const BenchMount& at) { return testing::Stats(many(at), sizes.entries()); }},
          {"rename",
           "1/s",
           1,
           {0.5, 0, true},
           [&](const BenchMount& at) { return testing::Renames(many(at), sizes.small_files()); }},
          {absl::StrCat("entry of a listing of ", sizes.entries(), " with attributes"),
           "1/s",
           1,
           {0.5, 0, true},
           [&](const BenchMount& at) { return testing::List(many(at), sizes.entries()); }},
      });
  for (const bool local : {true, false}) {
    const Made mount = local ? testing::BenchLocal(place, "") : testing::BenchRemote(place, "");
    if (!mount.ok()) {
      report.Note(absl::StrCat("no memory of open files: ", mount.status().message()));
      continue;
    }
    testing::MakeFiles(many(**mount), sizes.open_files());
    const double bytes =
        testing::BytesOfAnOpenFile(many(**mount), sizes.open_files(), (*mount)->server());
    report.Add({.name = absl::StrCat("memory of an open file, ", local ? "local" : "remote"),
                .value = bytes,
                .unit = "B",
                .baseline_name = "",
                .goal = "<= 4096 B",
                .met = bytes <= 4096});
  }
}

}  // namespace abacus::objfs
