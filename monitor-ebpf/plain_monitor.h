#ifndef ABACUS_MONITOR_EBPF_PLAIN_MONITOR_H_
#define ABACUS_MONITOR_EBPF_PLAIN_MONITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "monitor-ebpf/monitor.h"

namespace abacus::monitor {

struct PlainMonitorOptions {
  // Prefix of every path that is read, so that a test can lay out a machine. Empty: this machine.
  std::string root;
  // R as an earlier CalibrateRate() of this machine found it; 0 calibrates now (50 ms of CPU).
  double rate = 0;
  // H, the observation window.
  absl::Duration window = absl::Seconds(1);
  // Ready time of threads is told from blocked time by their schedstat, where the kernel has it.
  bool use_schedstat = true;
  // What Missing() says.
  std::string missing;
  // A monotonic clock in nanoseconds; empty: this machine's.
  std::function<uint64_t()> now_ns;
};

// A monitor that needs no privilege: it reads /proc and the cgroup's files.
//
// Running time of a machine is wall time less idle time from /proc/stat, which the kernel keeps
// exactly but prints in steps of 10 ms: +-1 % per processor and second (the columns of busy time
// are sampled at ticks and 1-3 % low). Of a cgroup it is its own counter, exact. Ready time of a
// machine is /proc/schedstat's sum where the kernel has that file (CONFIG_SCHEDSTATS), else, and of
// a cgroup, the sum of the tasks' run-queue waits (see task_scan.h for what that misses). Where
// tasks have no schedstat either, it is estimated from pressure (which sees that somebody waits,
// but not how many: a lower bound) and from the length of the run queue at the moments of asking
// (four numbers a second, so +-50 %); NodeLoad::degraded then says so.
//
// A quota's throttled time counts neither as running nor as ready; the rate is lowered so that
// Rate() x min(1, Cores() / load) is the share of a core that the tasks in fact had. The same goes
// for what neighbours outside the cgroup took. While nothing is being throttled, a quota below one
// core still lowers the rate to that share: it is what a task that arrives will get.
// Several nodes in one cgroup, or on one set of processors, are one node here: each sees the load
// of all.
//
// Never fails: what cannot be read shows in Load()'s status and in NodeLoad::degraded.
std::unique_ptr<Monitor> NewPlainMonitor(PlainMonitorOptions options = {});

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_PLAIN_MONITOR_H_
