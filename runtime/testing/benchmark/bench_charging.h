#ifndef ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_CHARGING_H_
#define ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_CHARGING_H_

#include "runtime/testing/bench_report.h"

namespace abacus::runtime {

// How exactly objects are charged, by each source of figures that this machine permits: threads
// call objects that compute and block by script and note down what their thread's CPU clock says.
// Takes 21 s a source.
void ChargingExactness(BenchReport& report);

// What it costs to find an edge's cell, with few edges and with many, of one thread and of 1,000.
void CellCosts(BenchReport& report);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_CHARGING_H_
