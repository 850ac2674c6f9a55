#include "apps/abacus/monitor_of.h"

#include <string>
#include <utility>

#include "monitor-ebpf/calibration.h"
#include "monitor-ebpf/node_monitor.h"

namespace abacus::apps {

absl::StatusOr<std::unique_ptr<monitor::Monitor>> MonitorOf(const runtime::Config& config) {
  using monitor::MonitorSource;
  const std::string& source = config.monitor.source;
  monitor::MonitorOptions options{.plain = {.rate = monitor::CachedRate(config.monitor.rate_file),
                                            .window = config.placement.window}};
  if (source == "ebpf") options.source = MonitorSource::kEbpf;
  if (source == "schedstat") options.source = MonitorSource::kSchedstat;
  if (source == "thread-clock") options.source = MonitorSource::kThreadClock;
  return monitor::NewMonitor(std::move(options));
}

}  // namespace abacus::apps
