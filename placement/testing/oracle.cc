#include "placement/testing/oracle.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "placement/limits.h"
#include "placement/model.h"

namespace abacus::placement::testing {

double ObjectiveOf(const Situation& situation, double time_weight, const Placement& to) {
  const Graph& graph = *situation.graph;
  const Evaluation at = Trial(graph, situation.options, to, situation.beside).Evaluate();
  if (!at.possible || !at.converged || !Fits(situation, to)) {
    return std::numeric_limits<double>::infinity();
  }
  const Evaluation now = Trial(graph, situation.options, situation.at, situation.beside).Evaluate();
  if (!FitsCpu(situation, now, to, at)) return std::numeric_limits<double>::infinity();
  double transfer_s = 0;
  for (size_t j = 0; j < to.size(); ++j) {
    const auto bytes = static_cast<double>(graph.objects[j].statistics->checkpoint_bytes);
    transfer_s += bytes * graph.LinkOf(situation.at[j], to[j]).transfer_s_byte;
  }
  return time_weight * at.Total() + transfer_s;
}

OracleAnswer BestByTrying(const Situation& situation, double time_weight) {
  const Graph& graph = *situation.graph;
  OracleAnswer answer{.best = situation.at};
  answer.at_s = answer.best_s = ObjectiveOf(situation, time_weight, situation.at);
  Placement placement = situation.at;
  const auto try_from = [&](auto&& self, uint32_t unit) -> void {
    if (unit == graph.units.size()) {
      if (++answer.tried > 1'000'000) std::abort();
      const double objective = ObjectiveOf(situation, time_weight, placement);
      if (objective < answer.best_s) {
        answer.best_s = objective;
        answer.best = placement;
      }
      return;
    }
    self(self, unit + 1);
    if (graph.units[unit].fixed) return;
    const uint32_t home = placement[graph.units[unit].objects.front()];
    for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
      if (n == home || !MayBe(graph, situation.at, unit, n)) continue;
      for (const uint32_t j : graph.units[unit].objects) placement[j] = n;
      self(self, unit + 1);
    }
    for (const uint32_t j : graph.units[unit].objects) placement[j] = home;
  };
  try_from(try_from, 0);
  return answer;
}

}  // namespace abacus::placement::testing
