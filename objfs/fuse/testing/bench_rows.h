#ifndef ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_
#define ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "objfs/fuse/testing/bench_mounts.h"
#include "runtime/testing/bench_report.h"

namespace abacus::objfs {

// Sizes of what the mounts are measured with. Quick: for a look while one works; its figures are
// no results.
struct MountBenchSizes {
  // A pass-through server has each file open that the kernel knows, and some more.
  static constexpr uint64_t kOtherFiles = 1'000;
  bool quick = false;
  uint64_t file_bytes() const { return uint64_t{quick ? 128u : 1024u} << 20; }
  uint64_t rebuilt_bytes() const { return uint64_t{quick ? 64u : 1024u} << 20; }  // of a file
  int direct_reads() const { return quick ? 5'000 : 50'000; }
  int random_writes() const { return quick ? 2'000 : 20'000; }
  int synced_writes() const { return quick ? 200 : 2'000; }
  int small_files() const { return quick ? 300 : 3'000; }
  uint64_t open_files_max = UINT64_MAX;  // of a process; see RaiseOpenFiles()
  int entries() const {
    const uint64_t left = open_files_max - std::min(open_files_max, kOtherFiles);
    return static_cast<int>(std::min<uint64_t>(quick ? 3'000 : 100'000, left));
  }
  int open_files() const { return std::min(quick ? 1'000 : 10'000, entries()); }
};

// The mount against servers that do as little as possible, a file system below, and another
// distributed one. Parts may be measured alone.
void MountReads(runtime::BenchReport& report, const testing::BenchPlace& place,
                const MountBenchSizes& sizes);
void MountData(runtime::BenchReport& report, const testing::BenchPlace& place,
               const MountBenchSizes& sizes);
void MountNames(runtime::BenchReport& report, const testing::BenchPlace& place,
                const MountBenchSizes& sizes);
// Files over five servers, with parity: also while one is dead, and while what was lost with one is
// rebuilt.
void MountSpread(runtime::BenchReport& report, const testing::BenchPlace& place,
                 const MountBenchSizes& sizes);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_
