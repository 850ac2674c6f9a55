#ifndef ABACUS_MONITOR_EBPF_NODE_MONITOR_H_
#define ABACUS_MONITOR_EBPF_NODE_MONITOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "monitor-ebpf/bpf_monitor.h"
#include "monitor-ebpf/monitor.h"
#include "monitor-ebpf/plain_monitor.h"

namespace abacus::monitor {

// Where a monitor's figures of threads are to come from, the best first.
enum class MonitorSource {
  kAuto,         // the best that there is here
  kEbpf,         // or an error
  kSchedstat,    // the thread clock, and schedstat to tell ready from blocked
  kThreadClock,  // alone
};

struct MonitorOptions {
  MonitorSource source = MonitorSource::kAuto;
  PlainMonitorOptions plain;
  BpfMonitorOptions bpf;
};

// The monitor of a node. With kAuto it never fails. What a better source would need stands in
// Monitor::Missing(), also where a worse one was asked for. Errors: with kEbpf those of
// NewBpfMonitor(). Blocking: 50 ms for calibration, 10 ms for loading programs.
absl::StatusOr<std::unique_ptr<Monitor>> NewMonitor(MonitorOptions options = {});

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_NODE_MONITOR_H_
