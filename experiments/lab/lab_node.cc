#include "experiments/lab/lab_node.h"

#include <time.h>

#include <utility>

#include "apps/abacus/client_node.h"
#include "apps/abacus/log_setup.h"
#include "apps/abacus/monitor_of.h"
#include "apps/abacus/volumes.h"
#include "apps/filter/filter.h"
#include "experiments/lab/paper_node.h"
#include "experiments/lab/paper_transport.h"
#include "experiments/lab/relayed_transport.h"
#include "runtime/base/status.h"

namespace abacus::lab {
namespace {

// `processor`: of the paper's node, which parity takes its time of; null: of this machine only.
runtime::ObjectTypes TypesOf(const runtime::Config& config, Processor* processor) {
  objfs::ParityWork work;
  if (processor != nullptr) {
    work = [processor](uint64_t bytes) {
      const Cost cost = ParityCostOf(bytes);
      processor->Do({.at_paper = cost.at_paper, .cpu = cost.cpu});
    };
  }
  runtime::ObjectTypes types = apps::Classes(apps::CacheOf(config.cache), work);
  types.Add<apps::Filter>().Add<Echo>();
  return types;
}

}  // namespace

int64_t ProcessCpuNs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::StatusOr<int64_t> Echo::Call(const runtime::Block& bytes) {
  static_cast<void>(bytes);
  return ProcessCpuNs();
}

LabNode::LabNode(runtime::Config config, const LabNodeOptions& options)
    : config_(std::move(config)),
      processor_(options.share > 0 ? options.share : kShare * options.machine, options.machine),
      types_(TypesOf(config_, options.paper ? &processor_ : nullptr)) {}

absl::StatusOr<std::unique_ptr<LabNode>> LabNode::Start(const LabNodeOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(runtime::Config config, apps::ConfigOf(options.config));
  ABACUS_RETURN_IF_ERROR(apps::SetUpLog(config.log));
  auto lab = std::unique_ptr<LabNode>(new LabNode(std::move(config), options));
  runtime::NodeOptions node;
  node.config = lab->config_;
  node.server = options.servers.empty();
  node.servers = options.servers;
  node.wrap_transport = [ways = options.ways, paper = options.paper,
                         processor = &lab->processor_](std::unique_ptr<runtime::Transport> made) {
    if (!ways.empty()) made = std::make_unique<RelayedTransport>(std::move(made), ways);
    if (paper) made = std::make_unique<PaperTransport>(std::move(made), processor);
    return made;
  };
  ABACUS_ASSIGN_OR_RETURN(auto monitor, apps::MonitorOf(lab->config_));
  lab->monitor_ = monitor.get();
  ABACUS_ASSIGN_OR_RETURN(lab->node_, runtime::Node::Start(node, lab->types_, std::move(monitor)));
  return lab;
}

}  // namespace abacus::lab
