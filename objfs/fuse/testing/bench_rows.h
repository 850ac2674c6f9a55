#ifndef ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_
#define ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_

#include <string>

#include "objfs/fuse/testing/bench_mounts.h"
#include "runtime/testing/bench_report.h"

namespace abacus::objfs {

// Sizes of what the mounts are measured with. Quick: for a look while one works; its figures are
// no results.
struct MountBenchSizes {
  bool quick = false;
  uint64_t file_bytes() const { return uint64_t{quick ? 128u : 1024u} << 20; }
  int direct_reads() const { return quick ? 5'000 : 50'000; }
  int random_writes() const { return quick ? 2'000 : 20'000; }
  int small_files() const { return quick ? 300 : 3'000; }
  int entries() const { return quick ? 3'000 : 100'000; }
  int open_files() const { return quick ? 1'000 : 10'000; }
};

// The mount against servers that do as little as possible, a file system below, and another
// distributed one. Parts may be measured alone.
void MountReads(runtime::BenchReport& report, const testing::BenchPlace& place,
                const MountBenchSizes& sizes);
void MountData(runtime::BenchReport& report, const testing::BenchPlace& place,
               const MountBenchSizes& sizes);
void MountNames(runtime::BenchReport& report, const testing::BenchPlace& place,
                const MountBenchSizes& sizes);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_TESTING_BENCH_ROWS_H_
