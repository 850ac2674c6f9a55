#include "placement/judge.h"

#include <utility>

#include "placement/limits.h"

namespace abacus::placement {

Judge::Judge(const Situation& from, const MigrationHistory& history, const Config& config,
             uint32_t server)
    : from_(from), history_(history), config_(config), client_(from.at.front()), server_(server) {
  const Trial trial(*from.graph, from.options, from.at, from.beside);
  at_ = trial.Evaluate();
  present_ = trial.ToPrediction(at_, client_, server_);
}

Candidate Judge::Of(const Placement& to, int split) const {
  const Graph& graph = *from_.graph;
  const Trial trial(graph, from_.options, to, from_.beside);
  const Evaluation there = trial.Evaluate();
  Candidate candidate;
  candidate.split = split;
  candidate.prediction = trial.ToPrediction(there, client_, server_);
  for (size_t j = 0; j < to.size(); ++j) {
    if (to[j] == from_.at[j]) continue;
    candidate.moves.push_back({.object = graph.objects[j].statistics->id,
                               .from = graph.nodes[from_.at[j]].statistics->node,
                               .to = graph.nodes[to[j]].statistics->node});
  }
  candidate.objects_moved = candidate.moves.size();
  candidate.cost = CostOf(graph, from_.at, to, history_, config_);
  candidate.benefit_s = at_.Total() - there.Total();
  candidate.net_benefit_s = candidate.benefit_s - candidate.cost.Total();
  candidate.threshold_s = config_.b_thresh * there.response_sum_s;
  candidate.benefit_deviation_s = BenefitDeviation(graph, from_.at, at_, to, there);
  const double sure_s =
      candidate.net_benefit_s - config_.confidence_z * candidate.benefit_deviation_s;
  candidate.above_threshold = candidate.objects_moved > 0 && there.possible && at_.converged &&
                              there.converged && sure_s > candidate.threshold_s;
  candidate.verdict = VerdictOf(candidate, to, there);
  if (!graph.chain) candidate.node_loads.assign(there.loads.begin(), there.loads.end());
  return candidate;
}

Verdict Judge::VerdictOf(const Candidate& candidate, const Placement& to,
                         const Evaluation& there) const {
  const Graph& graph = *from_.graph;
  if (candidate.objects_moved == 0) return Verdict::kPresent;
  bool pinned = false;
  for (size_t j = 0; j < to.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    if (to[j] == from_.at[j] || !object.fixed) continue;
    if (!graph.units[object.unit].pinned) return Verdict::kAnchored;
    pinned = true;
  }
  if (pinned) return Verdict::kPinned;
  if (!candidate.prediction.converged || !at_.converged) return Verdict::kNotConverged;
  if (!MemoryKnown(from_, to)) return Verdict::kMemoryUnknown;
  if (!Fits(from_, to)) return Verdict::kNoMemory;
  if (!FitsCpu(from_, at_, to, there)) return Verdict::kNoCpu;
  if (candidate.benefit_s <= 0) return Verdict::kSlower;
  if (candidate.above_threshold) return Verdict::kPays;
  return candidate.net_benefit_s > candidate.threshold_s ? Verdict::kUncertain
                                                         : Verdict::kBelowThreshold;
}

}  // namespace abacus::placement
