#ifndef ABACUS_OBJFS_RAID_TESTING_RAID5_BENCHMARK_H_
#define ABACUS_OBJFS_RAID_TESTING_RAID5_BENCHMARK_H_

#include "runtime/testing/bench_report.h"

namespace abacus::objfs {

// Adds the rows of the raid5 layer. Blocking: some seconds, and 400 MiB of memory.
void MeasureRaid5Layer(runtime::BenchReport& report);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_TESTING_RAID5_BENCHMARK_H_
