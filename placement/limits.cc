#include "placement/limits.h"

#include <cmath>

namespace abacus::placement {

std::vector<double> PulledCores(const Graph& graph, const Placement& placement,
                                absl::Span<const double> response_s) {
  std::vector<double> cores(graph.nodes.size(), 0);
  for (size_t j = 0; j < placement.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    const GraphNode& node = graph.nodes[placement[j]];
    if (!object.statistics->mobile || std::isinf(node.cpu_limit)) continue;
    double& used = cores[placement[j]];
    used += object.background_work / (node.host.rate * graph.window_s);
    for (uint32_t p = object.parts_begin; p < object.parts_end; ++p) {
      const ConsolePart& part = graph.parts[p];
      const double time_s = response_s[part.console];
      if (time_s <= 0) continue;
      used += graph.at_once[part.console] * part.part * object.work / node.host.rate / time_s;
    }
  }
  return cores;
}

bool FitsCpu(const Situation& situation, const Evaluation& now, const Placement& to,
             const Evaluation& then) {
  if (situation.free_cores.empty() || to == situation.at) return true;
  const std::vector<double> before = PulledCores(*situation.graph, situation.at, now.response_s);
  const std::vector<double> after = PulledCores(*situation.graph, to, then.response_s);
  for (size_t n = 0; n < after.size(); ++n) {
    const bool grows = after[n] > before[n] * (1 + kSameUse);
    if (grows && after[n] > situation.free_cores[n] * (1 + kSameUse)) return false;
  }
  return true;
}

}  // namespace abacus::placement
