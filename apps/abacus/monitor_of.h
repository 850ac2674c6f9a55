#ifndef ABACUS_APPS_ABACUS_MONITOR_OF_H_
#define ABACUS_APPS_ABACUS_MONITOR_OF_H_

#include <memory>

#include "absl/status/statusor.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/config.h"

namespace abacus::apps {

// The monitor that the configuration asks for (monitor.source). Errors: kPermissionDenied,
// kFailedPrecondition where eBPF was asked for by name and is not to be had.
absl::StatusOr<std::unique_ptr<monitor::Monitor>> MonitorOf(const runtime::Config& config);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_MONITOR_OF_H_
