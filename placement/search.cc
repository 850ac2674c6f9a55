#include "placement/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "placement/cut.h"
#include "placement/limits.h"
#include "placement/search_state.h"

namespace abacus::placement {
namespace {

using search_internal::kInf;
using search_internal::LimitPrices;
using search_internal::Prices;
using search_internal::State;

// An improvement below this part is rounding: a search that followed it could go round for ever.
constexpr double kImprovement = 1e-9;
constexpr size_t kPairNodesMax = 6;    // nodes between each two of which cuts are tried
constexpr size_t kExactUnitsMax = 48;  // units whose every move is evaluated in full
constexpr size_t kHeavyEdgesMax = 64;  // edges along which pairs are moved
constexpr int kPriceStepsMax = 40;     // of what is full, each doubling it

// The choice of each unit between where it is and one other node, all at once, as a minimum cut.
class Choice {
 public:
  // `other`: by unit; where it is if it has no choice.
  Choice(const Graph& graph, const Placement& placement, const std::vector<uint32_t>& other,
         const Prices& prices)
      : graph_(graph),
        placement_(placement),
        other_(other),
        prices_(prices),
        here_s_(graph.units.size(), 0),
        there_s_(graph.units.size(), 0) {
    Collect();
  }

  // Of each unit whether it goes.
  std::vector<bool> Best() const {
    const size_t units = graph_.units.size();
    CutGraph cut(units + 2);
    const double never_s = 2 * sum_s_ + 1;
    const auto finite = [&](double s) { return std::isinf(s) ? never_s : s; };
    std::vector<double> here_s(units);
    std::vector<double> there_s(units);
    for (size_t u = 0; u < units; ++u) {
      here_s[u] = finite(here_s_[u]);
      there_s[u] = finite(there_s_[u]);
    }
    for (const auto& [pair, edge] : edges_) {
      const auto [i, j] = pair;
      const double here_here = finite(edge[0]);
      const double here_there = finite(edge[1]);
      const double there_here = finite(edge[2]);
      const double there_there = finite(edge[3]);
      // Any function of two choices is two functions of one each and a price on "i here, j there".
      // A price below 0, where the way round is shorter than the way, is left out.
      there_s[i] += there_here - here_here;
      there_s[j] += there_there - there_here;
      cut.AddArc(i, j, std::max(0.0, here_there + there_here - here_here - there_there));
    }
    for (size_t u = 0; u < units; ++u) {
      const double least_s = std::min(here_s[u], there_s[u]);  // shifts both sides alike
      cut.AddArc(units, u, there_s[u] - least_s);
      cut.AddArc(u, units + 1, here_s[u] - least_s);
    }
    const Cut best = cut.MinCut(units, units + 1);
    std::vector<bool> goes(units);
    for (size_t u = 0; u < units; ++u) goes[u] = HasChoice(u) && !best.source_side[u];
    return goes;
  }

 private:
  uint32_t Here(size_t u) const { return placement_[graph_.units[u].objects.front()]; }
  bool HasChoice(size_t u) const { return other_[u] != Here(u); }

  double Counted(double s) {
    if (std::isfinite(s)) sum_s_ += std::abs(s);
    return s;
  }

  void Collect() {
    for (uint32_t u = 0; u < graph_.units.size(); ++u) {
      if (!HasChoice(u)) continue;
      for (const uint32_t j : graph_.units[u].objects) {
        here_s_[u] += Counted(prices_.Of(j, placement_[j]));
        there_s_[u] += Counted(prices_.Of(j, other_[u]));
      }
    }
    for (const GraphEdge& edge : graph_.edges) {
      const uint32_t i = graph_.objects[edge.above].unit;
      const uint32_t j = graph_.objects[edge.below].unit;
      const uint32_t a = placement_[edge.above];
      const uint32_t b = placement_[edge.below];
      if (i == j || (!HasChoice(i) && !HasChoice(j))) continue;
      const uint32_t a_other = HasChoice(i) ? other_[i] : a;
      const uint32_t b_other = HasChoice(j) ? other_[j] : b;
      const double both[4] = {prices_.OfEdge(edge, a, b), prices_.OfEdge(edge, a, b_other),
                              prices_.OfEdge(edge, a_other, b),
                              prices_.OfEdge(edge, a_other, b_other)};
      for (const double s : both) Counted(s);
      if (!HasChoice(j)) {
        here_s_[i] += both[0];
        there_s_[i] += both[2];
      } else if (!HasChoice(i)) {
        here_s_[j] += both[0];
        there_s_[j] += both[1];
      } else {
        auto& sums = edges_.try_emplace({std::min(i, j), std::max(i, j)}).first->second;
        sums[0] += both[0];
        sums[i < j ? 1 : 2] += both[1];
        sums[i < j ? 2 : 1] += both[2];
        sums[3] += both[3];
      }
    }
  }

  const Graph& graph_;
  const Placement& placement_;
  const std::vector<uint32_t>& other_;
  const Prices& prices_;
  std::vector<double> here_s_;
  std::vector<double> there_s_;
  // Times by (i here, j here), (here, there), (there, here), (there, there).
  std::map<std::pair<uint32_t, uint32_t>, std::array<double, 4>> edges_;
  double sum_s_ = 0;
};

class Searcher {
 public:
  Searcher(const Situation& situation, double time_weight)
      : situation_(situation),
        graph_(*situation.graph),
        time_weight_(time_weight),
        limits_{.memory = std::vector<double>(graph_.nodes.size(), 0),
                .cpu = std::vector<double>(graph_.nodes.size(), 0)} {
    std::vector<bool> is_target(graph_.nodes.size(), false);
    for (uint32_t u = 0; u < graph_.units.size(); ++u) {
      if (graph_.units[u].fixed) continue;
      free_.push_back(u);
      for (const uint32_t n : graph_.units[u].targets) is_target[n] = true;
      is_target[NodeOf(situation.at, u)] = true;
    }
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is_target[n]) nodes_.push_back(n);
    }
    FindHeavyEdges();
  }

  Found Run() {
    Found found;
    found.best = Settled(Best(), false);
    if (FitsAll(found.best)) return found;
    found.unlimited = found.best;
    found.best = Settled(WithinLimits(), true);
    return found;
  }

  Placement Local(const Placement& from) {
    State state = At(from, true);
    Climb(state);
    return Settled(state.placement(), true);
  }

 private:
  bool FitsAll(const Placement& to) const {
    if (!Fits(situation_, to)) return false;
    if (situation_.free_cores.empty()) return true;
    return FitsCpu(situation_, At(situation_.at, false).evaluation(), to,
                   At(to, false).evaluation());
  }
  uint32_t NodeOf(const Placement& placement, uint32_t unit) const {
    return placement[graph_.units[unit].objects.front()];
  }
  bool May(uint32_t unit, uint32_t node) const { return MayBe(graph_, situation_.at, unit, node); }
  State At(const Placement& placement, bool keep_to_limits) const {
    return State(situation_, time_weight_, placement, &limits_, keep_to_limits);
  }
  static bool Better(double objective, double than) {
    return objective < than - kImprovement * std::abs(than);
  }

  void FindHeavyEdges() {
    for (const GraphEdge& edge : graph_.edges) {
      const uint32_t i = graph_.objects[edge.above].unit;
      const uint32_t j = graph_.objects[edge.below].unit;
      if (i != j && !graph_.units[i].fixed && !graph_.units[j].fixed) heavy_.push_back(&edge);
    }
    if (heavy_.size() <= kHeavyEdgesMax) return;
    std::stable_sort(heavy_.begin(), heavy_.end(), [](const GraphEdge* a, const GraphEdge* b) {
      return a->flow.bytes > b->flow.bytes;
    });
    heavy_.resize(kHeavyEdgesMax);
  }

  // Of equals the one that moves less: a unit whose move brings nothing stays where it is.
  Placement Settled(const Placement& found, bool keep_to_limits) {
    State state = At(found, keep_to_limits);
    for (const uint32_t u : free_) {
      const uint32_t there = NodeOf(state.placement(), u);
      const uint32_t home = NodeOf(situation_.at, u);
      if (there == home) continue;
      const double before = state.objective();
      state.Put(u, home);
      if (state.Evaluate() <= before + kImprovement * std::abs(before)) continue;
      state.Put(u, there);
      state.Evaluate();
    }
    return state.placement();
  }

  // From the placement as it is, and from everything on one node, for each node.
  Placement Best() {
    State best = At(situation_.at, false);
    Descend(best);
    size_t starts = 0;
    for (const uint32_t n : nodes_) {
      if (++starts > kPairNodesMax) break;
      Placement start = situation_.at;
      for (const uint32_t u : free_) {
        if (!May(u, n)) continue;
        for (const uint32_t j : graph_.units[u].objects) start[j] = n;
      }
      State state = At(start, false);
      Descend(state);
      if (Better(state.objective(), best.objective())) best = std::move(state);
    }
    return best.placement();
  }

  // Doubles the price of memory or CPU on nodes that are too full until they are not. A cut moves a
  // whole step at one price, so what fits may leave room: the last search fills it.
  Placement WithinLimits() {
    const double objective = At(situation_.at, true).objective();
    Placement found = situation_.at;
    for (int step = 0; step < kPriceStepsMax; ++step) {
      const Placement next = Best();
      const bool memory = RaiseMemory(next, objective);
      const bool cpu = RaiseCpu(next, objective);
      if (memory || cpu) continue;
      found = next;
      break;
    }
    std::fill(limits_.memory.begin(), limits_.memory.end(), 0);
    std::fill(limits_.cpu.begin(), limits_.cpu.end(), 0);
    State best = At(situation_.at, true);
    Climb(best);
    State priced = At(found, true);
    Climb(priced);
    return Better(priced.objective(), best.objective()) ? priced.placement() : best.placement();
  }

  static void Raise(double first, double* price) { *price = *price == 0 ? first : 2 * *price; }

  bool RaiseMemory(const Placement& to, double objective) {
    const std::vector<bool> full = FullNodes(to);
    for (size_t n = 0; n < full.size(); ++n) {
      if (!full[n]) continue;
      Raise(objective / (1024 * (1 + situation_.free_bytes[n])), &limits_.memory[n]);
    }
    return std::find(full.begin(), full.end(), true) != full.end();
  }

  bool RaiseCpu(const Placement& to, double objective) {
    if (situation_.free_cores.empty()) return false;
    const State there = At(to, false);
    const std::vector<double> cores = PulledCores(graph_, to, there.evaluation().response_s);
    bool any = false;
    for (size_t n = 0; n < cores.size(); ++n) {
      if (!there.IsFull(n, cores[n])) continue;
      Raise(objective / (1024 * cores[n]), &limits_.cpu[n]);
      any = true;
    }
    return any;
  }

  std::vector<bool> FullNodes(const Placement& to) const {
    std::vector<double> gained(graph_.nodes.size(), 0);
    for (size_t j = 0; j < to.size(); ++j) {
      const auto bytes = static_cast<double>(graph_.objects[j].statistics->memory_bytes);
      gained[to[j]] += bytes;
      gained[situation_.at[j]] -= bytes;
    }
    std::vector<bool> full(gained.size());
    for (size_t n = 0; n < gained.size(); ++n) {
      full[n] = gained[n] > 0 && gained[n] > situation_.free_bytes[n];
    }
    return full;
  }

  void Descend(State& state) {
    for (int round = 0; round < kSearchRoundsMax; ++round) {
      bool better = false;
      if (nodes_.size() <= kPairNodesMax) {
        for (size_t i = 0; i < nodes_.size(); ++i) {
          for (size_t k = i + 1; k < nodes_.size(); ++k) {
            better |= CutUntilSettled(state, nodes_[i], nodes_[k], true);
          }
        }
      }
      for (const uint32_t n : nodes_) {
        if (nodes_.size() > 2) better |= CutUntilSettled(state, n, n, false);
      }
      better |= Climb(state);
      if (!better) return;
    }
  }

  // Cuts at the loads of the placement that the last cut gave, until it gives the same again; the
  // best by the full model is kept.
  bool CutUntilSettled(State& best, uint32_t a, uint32_t b, bool swap) {
    bool better = false;
    for (const bool marginal : {false, true}) {
      State state = best;
      for (int round = 0; round < kSearchRoundsMax; ++round) {
        const std::vector<uint32_t> other = Others(state.placement(), a, b, swap);
        const Prices prices(situation_, state, time_weight_, limits_, marginal);
        const std::vector<bool> goes = Choice(graph_, state.placement(), other, prices).Best();
        bool any = false;
        for (uint32_t u = 0; u < goes.size(); ++u) {
          if (!goes[u]) continue;
          state.Put(u, other[u]);
          any = true;
        }
        if (!any) break;
        state.Evaluate();
        if (!Better(state.objective(), best.objective())) continue;
        best = state;
        better = true;
      }
    }
    return better;
  }

  // Of each unit the other node of its choice: of a pair of nodes the other one, or node `a`.
  std::vector<uint32_t> Others(const Placement& placement, uint32_t a, uint32_t b,
                               bool swap) const {
    std::vector<uint32_t> other;
    for (uint32_t u = 0; u < graph_.units.size(); ++u) {
      const uint32_t here = NodeOf(placement, u);
      uint32_t there = here;
      if (swap && (here == a || here == b)) there = here == a ? b : a;
      if (!swap) there = a;
      const bool may = !graph_.units[u].fixed && May(u, there);
      other.push_back(may ? there : here);
    }
    return other;
  }

  bool Climb(State& state) {
    bool better = false;
    for (int round = 0; round < kSearchRoundsMax; ++round) {
      if (!ClimbOnce(state)) return better;
      better = true;
    }
    return better;
  }

  // Every move of one unit, then of two that call each other, each taken if it is better.
  bool ClimbOnce(State& state) {
    bool better = false;
    const bool large = free_.size() > kExactUnitsMax;
    std::optional<Prices> prices;
    for (const uint32_t u : free_) {
      for (const uint32_t n : nodes_) {
        if (n == NodeOf(state.placement(), u) || !May(u, n)) continue;
        if (large) {
          if (!prices) prices.emplace(situation_, state, time_weight_, limits_, true);
          if (Estimate(state, *prices, u, n) >= 0) continue;
        }
        if (!TryMove(state, {{u, n}})) continue;
        better = true;
        prices.reset();
      }
    }
    if (state.keeps_to_limits() && !large) better |= Exchange(state);
    for (const GraphEdge* edge : heavy_) {
      const uint32_t i = graph_.objects[edge->above].unit;
      const uint32_t j = graph_.objects[edge->below].unit;
      for (const uint32_t n : nodes_) {
        const bool apart = NodeOf(state.placement(), i) != n || NodeOf(state.placement(), j) != n;
        if (apart && May(i, n) && May(j, n)) better |= TryMove(state, {{i, n}, {j, n}});
      }
    }
    return better;
  }

  // Two units change places: where memory is full, one comes only if another goes.
  bool Exchange(State& state) {
    bool better = false;
    for (size_t a = 0; a < free_.size(); ++a) {
      for (size_t b = a + 1; b < free_.size(); ++b) {
        const uint32_t i = free_[a];
        const uint32_t j = free_[b];
        const uint32_t at_i = NodeOf(state.placement(), i);
        const uint32_t at_j = NodeOf(state.placement(), j);
        if (at_i == at_j || !May(i, at_j) || !May(j, at_i)) continue;
        better |= TryMove(state, {{i, at_j}, {j, at_i}});
      }
    }
    return better;
  }

  double Estimate(const State& state, const Prices& prices, uint32_t unit, uint32_t node) const {
    double change_s = 0;
    for (const uint32_t j : graph_.units[unit].objects) {
      const uint32_t from = state.placement()[j];
      change_s += prices.Of(j, node) - prices.Of(j, from);
      for (const uint32_t e : state.trial().EdgesOf(j)) {
        const GraphEdge& edge = graph_.edges[e];
        const uint32_t far = edge.above == j ? edge.below : edge.above;
        if (graph_.objects[far].unit == unit) continue;
        const double now_s = prices.OfEdge(edge, from, state.placement()[far]);
        const double then_s = prices.OfEdge(edge, node, state.placement()[far]);
        if (std::isinf(now_s)) continue;
        change_s += then_s - now_s;
      }
    }
    return change_s;
  }

  // Units and where each is to go.
  bool TryMove(State& state, std::initializer_list<std::pair<uint32_t, uint32_t>> moves) {
    const double before = state.objective();
    std::vector<std::pair<uint32_t, uint32_t>> back;
    for (const auto& [u, n] : moves) {
      back.push_back({u, NodeOf(state.placement(), u)});
      state.Put(u, n);
    }
    if (Better(state.Evaluate(), before)) return true;
    for (const auto& [u, n] : back) state.Put(u, n);
    state.Evaluate();
    return false;
  }

  const Situation& situation_;
  const Graph& graph_;
  const double time_weight_;
  LimitPrices limits_;
  std::vector<uint32_t> free_;   // units that may move
  std::vector<uint32_t> nodes_;  // where any of them may be
  std::vector<const GraphEdge*> heavy_;
};

}  // namespace

Found Search(const Situation& situation, double time_weight) {
  return Searcher(situation, time_weight).Run();
}

Placement Improve(const Situation& situation, double time_weight, const Placement& from) {
  return Searcher(situation, time_weight).Local(from);
}

}  // namespace abacus::placement
