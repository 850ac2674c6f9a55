#ifndef ABACUS_OBJFS_STORE_TESTING_LOG_BENCHMARK_H_
#define ABACUS_OBJFS_STORE_TESTING_LOG_BENCHMARK_H_

#include <string>

#include "runtime/testing/bench_report.h"

namespace abacus::objfs::testing {

// Group commit on a modelled disk, and recovery of a long journal in `folder`. Throws BenchError.
void MeasureLog(runtime::BenchReport& report, const std::string& folder);

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_STORE_TESTING_LOG_BENCHMARK_H_
