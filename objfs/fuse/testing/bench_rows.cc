#include "objfs/fuse/testing/bench_rows.h"

#include <signal.h>

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

constexpr char kNative[] = "native", kPassThrough[] = "pass-through", kLocal[] = "local",
               kRemote[] = "remote", kRemoteASecond[] = "remote, names for 1 s",
               kSpread[] = "raid5 4+1", kGluster[] = "GlusterFS",
               kDispersed[] = "GlusterFS disperse 4+1";

// Measures on one mount after the other, so that no two compete.
class MountTable {
 public:
  struct Kind {
    std::string name;
    std::function<Made()> make;
  };
  struct Row {
    std::string name;
    std::string unit;
    double scale = 1;                                   // unit / what `measure` returns
    std::map<std::string, double, std::less<>> shares;  // of kinds, of the baseline: their goals
    bool ahead = true;                                  // the goal of `ours` is to be
    std::function<double(const BenchMount&)> measure;
  };
  // `baseline`, `ours` and `peer` are names of kinds.
  MountTable(runtime::BenchReport& report, std::string baseline, std::string ours, std::string peer)
      : report_(report),
        baseline_(std::move(baseline)),
        ours_(std::move(ours)),
        peer_(std::move(peer)) {}

  void Measure(const std::vector<Kind>& kinds, const std::vector<Row>& rows) {
    std::map<std::string, std::vector<double>> seen;
    for (const Kind& kind : kinds) {
      std::cerr << "mounts: " << kind.name << "\n";
      const Made mount = kind.make();
      if (!mount.ok()) {
        report_.Note(absl::StrCat("no figures of ", kind.name, ": ", mount.status().message()));
        continue;
      }
      for (const Row& row : rows) seen[kind.name].push_back(row.measure(**mount) * row.scale);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const Kind& kind : kinds) {
        if (kind.name != baseline_ && seen.contains(kind.name)) Report(rows[i], kind.name, i, seen);
      }
    }
  }

 private:
  void Report(const Row& row, const std::string& kind, size_t i,
              const std::map<std::string, std::vector<double>>& seen) {
    const auto base = seen.find(baseline_);
    if (base == seen.end()) return;
    runtime::BenchRow out{.name = absl::StrCat(row.name, ", ", kind),
                          .value = seen.at(kind)[i],
                          .unit = row.unit,
                          .baseline_name = baseline_,
                          .baseline = base->second[i]};
    out.ratio = out.value / out.baseline;
    if (const auto share = row.shares.find(kind); share != row.shares.end()) {
      out.goal = absl::StrCat(">= ", share->second, " x ", baseline_);
      out.met = out.ratio >= share->second;
    }
    if (const auto peer = seen.find(peer_); kind == ours_ && row.ahead && peer != seen.end()) {
      out.goal += absl::StrCat(out.goal.empty() ? "" : ", ", "> ", peer_);
      out.met = out.met.value_or(true) && out.value > peer->second[i];
    }
    report_.Add(out);
  }

  runtime::BenchReport& report_;
  const std::string baseline_, ours_, peer_;
};

// One server, ours and others'.
void MeasureMounts(runtime::BenchReport& report, const BenchPlace& place,
                   const std::vector<MountTable::Row>& rows) {
  MountTable(report, kPassThrough, kRemote, kGluster)
      .Measure({{kNative, [&]() -> Made { return testing::BenchNative(place); }},
                {kPassThrough, [&] { return testing::BenchPassThrough(place); }},
                {kLocal, [&] { return testing::BenchLocal(place, ""); }},
                {kRemote, [&] { return testing::BenchRemote(place, ""); }},
                {kRemoteASecond,
                 [&] { return testing::BenchRemote(place, "", "attr_timeout=1,entry_timeout=1"); }},
                {kGluster, [&] { return testing::BenchGluster(place); }}},
               rows);
}

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
  MeasureMounts(
      report, place,
      {
          {"sequential write of 1 MiB",
           "MiB/s",
           kMiB,
           {{kLocal, 0.8}},
           true,
           [&](const BenchMount& at) { return testing::SequentialWrite(file(at), bytes); }},
          {"sequential read of 1 MiB",
           "MiB/s",
           kMiB,
           {{kLocal, 0.8}},
           true,
           [&](const BenchMount& at) { return testing::SequentialRead(file(at), bytes); }},
          {"random write of 4 KiB, buffered",
           "1/s",
           1,
           {{kLocal, 0.5}},
           true,
           [&](const BenchMount& at) {
             return testing::RandomWrites(file(at), bytes, sizes.random_writes());
           }},
      });
}

void MountNames(runtime::BenchReport& report, const BenchPlace& place,
                const MountBenchSizes& sizes) {
  const auto many = [](const BenchMount& at) { return at.path() + "/many"; };
  MeasureMounts(
      report, place,
      {
          {"create, write 4 KiB, close, unlink",
           "1/s",
           1,
           {{kLocal, 0.5}, {kRemote, 0.3}},
           true,
           [&](const BenchMount& at) { return testing::Churn(at.path(), sizes.small_files()); }},
          {"create of an empty file",
           "1/s",
           1,
           {},
           false,
           [&](const BenchMount& at) { return testing::MakeFiles(many(at), sizes.entries()); }},
          {"stat",
           "1/s",
           1,
           {{kLocal, 0.5}},
           true,
           [&](const BenchMount& at) { return testing::Stats(many(at), sizes.entries()); }},
          {"rename",
           "1/s",
           1,
           {{kLocal, 0.5}},
           true,
           [&](const BenchMount& at) { return testing::Renames(many(at), sizes.small_files()); }},
          {absl::StrCat("entry of a listing of ", sizes.entries(), " with attributes"),
           "1/s",
           1,
           {{kLocal, 0.5}},
           true,
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

void MountSpread(runtime::BenchReport& report, const BenchPlace& place,
                 const MountBenchSizes& sizes) {
  constexpr size_t kServers = 5;
  constexpr char kStack[] = "raid5/(isolation/storage)*5";
  constexpr double kMiB = 1.0 / (1 << 20);
  const uint64_t bytes = sizes.file_bytes();
  const auto file = [](const BenchMount& mount) { return mount.path() + "/large"; };
  MountTable(report, kRemote, kSpread, kDispersed)
      .Measure(
          {{kRemote, [&] { return testing::BenchRemote(place, ""); }},
           {kSpread, [&] { return testing::BenchSpread(place, kServers, kStack); }},
           {kDispersed, [&] { return testing::BenchGluster(place, kServers); }}},
          {{"sequential write of 1 MiB, synced at the end",
            "MiB/s",
            kMiB,
            {{kSpread, 0.5}},
            true,
            [&](const BenchMount& at) { return testing::SyncedWrite(file(at), bytes); }},
           {"sequential read of 1 MiB",
            "MiB/s",
            kMiB,
            {{kSpread, 0.5}},
            true,
            [&](const BenchMount& at) { return testing::SequentialRead(file(at), bytes); }},
           {"random write of 4 KiB, each synced",
            "1/s",
            1,
            {},
            true,
            [&](const BenchMount& at) {
              return testing::SyncedRandomWrites(file(at), bytes, sizes.synced_writes());
            }},
           {"create, write 4 KiB, close, unlink",
            "1/s",
            1,
            {},
            true,
            [&](const BenchMount& at) { return testing::Churn(at.path(), sizes.small_files()); }},
           {"create of an empty file", "1/s", 1, {}, true, [&](const BenchMount& at) {
              return testing::MakeFiles(at.path() + "/many", sizes.small_files());
            }}});
  constexpr double kGoal = 0.5;
  const Made mount = testing::BenchSpread(place, kServers, kStack);
  if (!mount.ok()) {
    report.Note(absl::StrCat("no degraded reads: ", mount.status().message()));
    return;
  }
  testing::SyncedWrite(file(**mount), bytes);
  const double healthy = testing::SequentialRead(file(**mount), bytes) * kMiB;
  kill((*mount)->servers().back(), SIGKILL);
  testing::SequentialRead(file(**mount), bytes);  // finds it dead
  const double degraded = testing::SequentialRead(file(**mount), bytes) * kMiB;
  report.Add({.name = "sequential read of 1 MiB, one server dead, raid5 4+1",
              .value = degraded,
              .unit = "MiB/s",
              .baseline_name = "all servers there",
              .baseline = healthy,
              .ratio = degraded / healthy,
              .goal = absl::StrCat(">= ", kGoal, " x"),
              .met = degraded >= kGoal * healthy});
}

}  // namespace abacus::objfs
