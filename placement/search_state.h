#ifndef ABACUS_PLACEMENT_SEARCH_STATE_H_
#define ABACUS_PLACEMENT_SEARCH_STATE_H_

// A placement that a search is at, and what things cost there. Internal to search.cc.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "placement/limits.h"
#include "placement/search.h"

namespace abacus::placement::search_internal {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// Of what is limited, by node; 0 where there is room.
struct LimitPrices {
  std::vector<double> memory;  // seconds a byte
  std::vector<double> cpu;     // seconds a core used
};

// One placement under way, with the sums that the objective needs beside the trial's.
class State {
 public:
  State(const Situation& situation, double time_weight, Placement placement,
        const LimitPrices* prices, bool keep_to_limits)
      : situation_(&situation),
        time_weight_(time_weight),
        prices_(prices),
        keep_to_limits_(keep_to_limits),
        trial_(*situation.graph, situation.options, situation.at, situation.beside),
        gained_bytes_(situation.graph->nodes.size(), 0) {
    if (!situation.free_cores.empty()) {
      cores_at_ = PulledCores(*situation.graph, situation.at, trial_.Evaluate().response_s);
    }
    for (uint32_t j = 0; j < placement.size(); ++j) PutObject(j, placement[j]);
    Evaluate();
  }

  const Placement& placement() const { return trial_.placement(); }
  const Evaluation& evaluation() const { return evaluation_; }
  const Trial& trial() const { return trial_; }
  double objective() const { return objective_; }
  bool keeps_to_limits() const { return keep_to_limits_; }

  void Put(uint32_t unit, uint32_t node) {
    for (const uint32_t j : situation_->graph->units[unit].objects) PutObject(j, node);
  }

  // Whether `cores` used on node `n` are more than now and more than allowed.
  bool IsFull(size_t n, double cores) const {
    return cores > cores_at_[n] * (1 + kSameUse) &&
           cores > situation_->free_cores[n] * (1 + kSameUse);
  }

  double Evaluate() {
    evaluation_ = trial_.Evaluate();
    objective_ = kInf;
    if (!evaluation_.possible || !evaluation_.converged) return objective_;
    double price_s = 0;
    for (size_t n = 0; n < gained_bytes_.size(); ++n) {
      if (keep_to_limits_ && gained_bytes_[n] > 0 && gained_bytes_[n] > situation_->free_bytes[n]) {
        return objective_;
      }
      price_s += prices_->memory[n] * gained_bytes_[n];
    }
    if (!cores_at_.empty()) {
      const std::vector<double> cores =
          PulledCores(*situation_->graph, placement(), evaluation_.response_s);
      for (size_t n = 0; n < cores.size(); ++n) {
        if (keep_to_limits_ && IsFull(n, cores[n])) return objective_;
        price_s += prices_->cpu[n] * cores[n];
      }
    }
    objective_ = time_weight_ * evaluation_.Total() + transfer_s_ + price_s;
    return objective_;
  }

 private:
  void PutObject(uint32_t j, uint32_t node) {
    const Graph& graph = *situation_->graph;
    const uint32_t from = placement()[j];
    if (from == node) return;
    const ObjectStatistics& s = *graph.objects[j].statistics;
    const auto memory_bytes = static_cast<double>(s.memory_bytes);
    gained_bytes_[from] -= memory_bytes;
    gained_bytes_[node] += memory_bytes;
    const uint32_t home = situation_->at[j];
    transfer_s_ +=
        static_cast<double>(s.checkpoint_bytes) *
        (graph.LinkOf(home, node).transfer_s_byte - graph.LinkOf(home, from).transfer_s_byte);
    trial_.Put(j, node);
  }

  const Situation* situation_;
  double time_weight_;
  const LimitPrices* prices_;
  bool keep_to_limits_;
  Trial trial_;
  Evaluation evaluation_;
  std::vector<double> gained_bytes_;
  std::vector<double> cores_at_;  // used at situation_->at; empty: no limits
  double transfer_s_ = 0;
  double objective_ = kInf;
};

// What a second of load and a placement cost at the loads of one state.
class Prices {
 public:
  // `marginal`: with what the graph's own consoles lose by the load that an object adds.
  Prices(const Situation& situation, const State& state, double time_weight,
         const LimitPrices& limits, bool marginal)
      : situation_(&situation), time_weight_(time_weight), limits_(&limits) {
    const Graph& graph = *situation.graph;
    const Evaluation& at = state.evaluation();
    for (size_t c = 0; c < at.response_s.size(); ++c) {
      share_.push_back(at.response_s[c] > 0 ? graph.at_once[c] / at.response_s[c] : 0);
    }
    for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
      const Host& host = graph.nodes[n].host;
      slow_down_.push_back(SlowDownOn(host, at.loads[n]));
      const bool busy = at.loads[n] > std::max(1.0, host.cores) && !graph.nodes[n].load_is_constant;
      double stretched_s = situation.beside[n].cpu_s * situation.beside[n].remains;
      double background_s = stretched_s;
      for (uint32_t c = 0; c < graph.consoles.size(); ++c) {
        background_s += state.trial().CpuOf(c, n);
      }
      if (marginal) stretched_s = background_s;
      load_.push_back(busy ? host.contention * stretched_s / host.cores : 0);
      background_.push_back(busy ? host.contention * background_s / host.cores : 0);
    }
  }

  // Seconds of the objective that an object costs on a node, its calls apart.
  double Of(uint32_t j, uint32_t n) const {
    const Graph& graph = *situation_->graph;
    const GraphObject& object = graph.objects[j];
    const double cpu_s = object.work / graph.nodes[n].host.rate;
    double load = 0;
    for (uint32_t p = object.parts_begin; p < object.parts_end; ++p) {
      load += graph.parts[p].part * share_[graph.parts[p].console];
    }
    const double background = object.background_work / graph.nodes[n].host.rate / graph.window_s;
    const double time_s =
        cpu_s * slow_down_[n] + cpu_s * load * load_[n] + background * background_[n];
    const double cores =
        limits_->cpu[n] > 0 && object.statistics->mobile ? cpu_s * load + background : 0;
    return time_weight_ * time_s + limits_->cpu[n] * cores +
           static_cast<double>(object.statistics->checkpoint_bytes) *
               graph.LinkOf(situation_->at[j], n).transfer_s_byte +
           limits_->memory[n] * static_cast<double>(object.statistics->memory_bytes);
  }

  double OfEdge(const GraphEdge& edge, uint32_t a, uint32_t b) const {
    if (a == b) return 0;
    const Graph& graph = *situation_->graph;
    return graph.LinkOf(a, b).usable ? time_weight_ * CrossingTime(graph, edge, a, b) : kInf;
  }

 private:
  const Situation* situation_;
  double time_weight_;
  const LimitPrices* limits_;
  std::vector<double> share_;       // calls at once / T by console
  std::vector<double> slow_down_;   // by node
  std::vector<double> load_;        // seconds that a load of 1 costs, by node
  std::vector<double> background_;  // the same of background work
};

}  // namespace abacus::placement::search_internal

#endif  // ABACUS_PLACEMENT_SEARCH_STATE_H_
