#include "objfs/fuse/testing/bench_rows.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
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

constexpr size_t kSpreadServers = 5;
constexpr char kSpreadStack[] = "raid5/(isolation/storage)*5";
constexpr double kMiBPerByte = 1.0 / (1 << 20);
constexpr double kSpreadGoal = 0.5;

runtime::BenchRow AtLeastHalf(std::string name, std::string unit, double value,
                              std::string baseline_name, double baseline) {
  return {.name = std::move(name),
          .value = value,
          .unit = std::move(unit),
          .baseline_name = std::move(baseline_name),
          .baseline = baseline,
          .ratio = value / baseline,
          .goal = absl::StrCat(">= ", kSpreadGoal, " x"),
          .met = value >= kSpreadGoal * baseline};
}

void DegradedReads(runtime::BenchReport& report, const BenchPlace& place, uint64_t bytes) {
  const Made mount = testing::BenchSpread(place, kSpreadServers, kSpreadStack);
  if (!mount.ok()) {
    report.Note(absl::StrCat("no degraded reads: ", mount.status().message()));
    return;
  }
  const std::string file = (*mount)->path() + "/large";
  testing::SyncedWrite(file, bytes);
  const double healthy = testing::SequentialRead(file, bytes) * kMiBPerByte;
  kill((*mount)->servers().back(), SIGKILL);
  testing::SequentialRead(file, bytes);  // finds it dead
  const double degraded = testing::SequentialRead(file, bytes) * kMiBPerByte;
  report.Add(AtLeastHalf("sequential read of 1 MiB, one server dead, raid5 4+1", "MiB/s", degraded,
                         "all servers there", healthy));
}

// A file over servers, one after the other of which is lost for good.
class LosingFile {
 public:
  // `mount` has spare servers behind kSpreadServers, and outlives it.
  LosingFile(const BenchPlace& place, const BenchMount& mount, uint64_t bytes)
      : place_(place), mount_(mount), bytes_(bytes), path_(mount.path() + "/large") {
    testing::SyncedWrite(path_, bytes_);
  }

  // Kills a server. An empty one is in its place then, so that the file lacks a column.
  void Lose(size_t server) {
    const std::vector<std::string> addresses = mount_.addresses();
    kill(mount_.servers()[server], SIGKILL);
    testing::SequentialRead(path_, bytes_);  // finds it dead, which takes seconds
    Must(Abacus({"volume", "replace-server", testing::kBenchVolume, addresses[server],
                 addresses.at(spare_++), "--force"}));
    if (IsWhole()) throw testing::BenchError("a file is whole of which a server was lost");
  }
  absl::Status Rebuild() const { return Abacus({"rebuild", testing::kBenchVolume}); }
  // Throws where it was not rebuilt.
  void CheckRebuilt(const absl::Status& rebuilt) const {
    Must(rebuilt);
    if (!IsWhole()) throw testing::BenchError("a rebuild has left something");
  }

 private:
  static void Must(const absl::Status& status) {
    if (!status.ok()) throw testing::BenchError(status.ToString());
  }
  absl::Status Abacus(std::vector<std::string> words) const {
    words.insert(words.begin(), place_.program);
    words.insert(words.end(), {"--server", mount_.addresses()[0]});
    return testing::RunProgram(words);
  }
  bool IsWhole() const { return Abacus({"volume", "status", testing::kBenchVolume}).ok(); }

  const BenchPlace& place_;
  const BenchMount& mount_;
  const uint64_t bytes_;
  const std::string path_;
  size_t spare_ = kSpreadServers;
};

void RebuildAlone(runtime::BenchReport& report, const BenchPlace& place, LosingFile& file,
                  uint64_t column_bytes) {
  file.Lose(kSpreadServers - 1);
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status rebuilt = file.Rebuild();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  file.CheckRebuilt(rebuilt);
  const std::string raw = place.folder + "/raw";
  const double disk = testing::SyncedWrite(raw, column_bytes);
  std::filesystem::remove(raw);
  const double link = testing::LoopbackStream(column_bytes);
  const double rate = static_cast<double>(column_bytes) / took.count();
  report.Add(AtLeastHalf("rebuild of a column, raid5 4+1", "MiB/s", rate * kMiBPerByte,
                         disk < link ? "raw disk, synced at the end" : "loopback link",
                         std::min(disk, link) * kMiBPerByte));
}

using IsRebuilding = std::function<bool()>;

// What `work` returns, which is done while a server's column is rebuilt.
double BesideRebuild(LosingFile& file, const std::function<double(const IsRebuilding&)>& work) {
  auto rebuilt = std::async(std::launch::async, [&file] { return file.Rebuild(); });
  const double both = work([&rebuilt] {
    return rebuilt.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  });
  file.CheckRebuilt(rebuilt.get());
  return both;
}

void ReadsBesideRebuild(runtime::BenchReport& report, const BenchMount& mount, LosingFile& file,
                        const MountBenchSizes& sizes) {
  file.Lose(kSpreadServers - 3);
  const std::string beside = mount.path() + "/read";
  const uint64_t bytes = sizes.rebuilt_bytes() / 4;
  testing::SyncedWrite(beside, bytes);
  const double alone = testing::SequentialRead(beside, bytes);
  const double both = BesideRebuild(file, [&](const IsRebuilding& is_rebuilding) {
    double seconds = 0;
    int reads = 0;
    do {
      seconds += static_cast<double>(bytes) / testing::SequentialRead(beside, bytes);
      ++reads;
    } while (is_rebuilding());
    return static_cast<double>(bytes) * reads / seconds;
  });
  report.Add(AtLeastHalf("sequential read of 1 MiB beside a rebuild, raid5 4+1", "MiB/s",
                         both * kMiBPerByte, "no rebuild", alone * kMiBPerByte));
}

void WritesBesideRebuild(runtime::BenchReport& report, const BenchMount& mount, LosingFile& file,
                         const MountBenchSizes& sizes) {
  file.Lose(kSpreadServers - 2);
  // It is made with all servers there, and so lacks nothing.
  const std::string beside = mount.path() + "/beside";
  const uint64_t bytes = sizes.rebuilt_bytes() / 4;
  testing::SyncedWrite(beside, bytes);
  const double alone = testing::SyncedRandomWrites(beside, bytes, sizes.synced_writes());
  const double both = BesideRebuild(file, [&](const IsRebuilding& is_rebuilding) {
    return testing::SyncedRandomWritesWhile(beside, bytes, is_rebuilding);
  });
  report.Add(AtLeastHalf("synced write of 4 KiB beside a rebuild, raid5 4+1", "1/s", both,
                         "no rebuild", alone));
}

void Rebuilds(runtime::BenchReport& report, const BenchPlace& place, const MountBenchSizes& sizes) {
  const Made mount = testing::BenchSpread(place, kSpreadServers, kSpreadStack, /*spares=*/3);
  if (!mount.ok()) {
    report.Note(absl::StrCat("no rebuild: ", mount.status().message()));
    return;
  }
  report.Note(
      "rebuild: abacus rebuild from its start to its end, of what an empty server lacks that is in "
      "the place of a killed one; beside others it rests as long as it works");
  LosingFile file(place, **mount, sizes.rebuilt_bytes());
  RebuildAlone(report, place, file, sizes.rebuilt_bytes() / (kSpreadServers - 1));
  WritesBesideRebuild(report, **mount, file, sizes);
  ReadsBesideRebuild(report, **mount, file, sizes);
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
  MeasureMounts(
      report, place,
      {
          {"sequential write of 1 MiB",
           "MiB/s",
           kMiBPerByte,
           {{kLocal, 0.8}},
           true,
           [&](const BenchMount& at) { return testing::SequentialWrite(file(at), bytes); }},
          {"sequential read of 1 MiB",
           "MiB/s",
           kMiBPerByte,
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
  const uint64_t bytes = sizes.file_bytes();
  const auto file = [](const BenchMount& mount) { return mount.path() + "/large"; };
  MountTable(report, kRemote, kSpread, kDispersed)
      .Measure(
          {{kRemote, [&] { return testing::BenchRemote(place, ""); }},
           {kSpread, [&] { return testing::BenchSpread(place, kSpreadServers, kSpreadStack); }},
           {kDispersed, [&] { return testing::BenchGluster(place, kSpreadServers); }}},
          {{"sequential write of 1 MiB, synced at the end",
            "MiB/s",
            kMiBPerByte,
            {{kSpread, kSpreadGoal}},
            true,
            [&](const BenchMount& at) { return testing::SyncedWrite(file(at), bytes); }},
           {"sequential read of 1 MiB",
            "MiB/s",
            kMiBPerByte,
            {{kSpread, kSpreadGoal}},
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
  DegradedReads(report, place, bytes);
  Rebuilds(report, place, sizes);
}

}  // namespace abacus::objfs
