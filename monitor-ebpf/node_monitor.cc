#include "monitor-ebpf/node_monitor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::monitor {

absl::StatusOr<std::unique_ptr<Monitor>> NewMonitor(MonitorOptions options) {
  if (options.source == MonitorSource::kAuto || options.source == MonitorSource::kEbpf) {
    auto monitor = NewBpfMonitor(options.plain, options.bpf);
    if (monitor.ok() || options.source == MonitorSource::kEbpf) return monitor;
    options.plain.missing =
        absl::StrCat("blocked time is not told apart by disk, and short waits are found late: ",
                     monitor.status().message());
  }
  if (options.source == MonitorSource::kThreadClock) {
    options.plain.use_schedstat = false;
    options.plain.missing =
        "blocked time is not told from ready time: the configuration asks for the thread clock "
        "alone; a monitor.source of 'auto' takes the best that there is";
  } else if (options.source == MonitorSource::kSchedstat) {
    options.plain.missing =
        "blocked time is not told apart by disk, and short waits are found late: the configuration "
        "asks for no eBPF; a monitor.source of 'auto' takes the best that there is";
  }
  return NewPlainMonitor(std::move(options.plain));
}

}  // namespace abacus::monitor
