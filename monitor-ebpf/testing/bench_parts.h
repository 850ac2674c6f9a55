#ifndef ABACUS_MONITOR_EBPF_TESTING_BENCH_PARTS_H_
#define ABACUS_MONITOR_EBPF_TESTING_BENCH_PARTS_H_

// The parts of `./dev bench monitor` that stand in files of their own.

#include <sched.h>

#include <cstdint>

#include "monitor-ebpf/monitor.h"
#include "runtime/testing/bench_report.h"

namespace abacus::monitor {

inline bool BindTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

inline void SpinFor(uint64_t cpu_ns) {
  const uint64_t end = MachineTime::ThreadCpuNs() + cpu_ns;
  while (MachineTime::ThreadCpuNs() < end) {
  }
}

// What the kernel's programs take at a context switch.
void BenchSwitches(Monitor& ebpf, runtime::BenchReport& report);
// What twelve nodes on one host take. REQUIRES: the process has one thread.
void BenchTwelveNodes(runtime::BenchReport& report);
// How far a thread's figures are from the kernel's own. Takes 70 s.
void BenchExactness(Monitor& ebpf, runtime::BenchReport& report);

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_BENCH_PARTS_H_
