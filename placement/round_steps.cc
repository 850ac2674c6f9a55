// What one graph could do in a round, and who would have to make room for it.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "placement/round_maker.h"

namespace abacus::placement::round_internal {

// The placements to be considered, of a chain its splits.
std::vector<Placement> RoundMaker::PlacementsOf(const Situation& situation) const {
  const Graph& graph = *situation.graph;
  std::vector<Placement> placements;
  if (graph.path) {
    for (size_t split = 0; split + 1 < graph.objects.size(); ++split) {
      Placement to(situation.at.size(), situation.at.back());
      std::fill_n(to.begin(), split + 1, situation.at.front());
      if (Allowed(graph, situation.at, to)) placements.push_back(std::move(to));
    }
    if (graph.chain) return placements;
  }
  const Found found = Search(situation, 1 + config_.b_thresh);
  placements.push_back(found.best);
  if (found.unlimited) placements.push_back(*found.unlimited);
  placements.push_back(placement::Improve(situation, 1, found.best));
  return placements;
}

// What the consoles beside lose (negative: gain). Equation 5 counts a task in a load by its running
// time alone, but a measured load has it ready as well, slow-down times that: so, with roles (a
// round of the Planner, on measured windows), what is added to a node that is short of cores costs
// the others its slow-down times what the equation says. 2 tasks a core: twice.
double RoundMaker::OthersLoss(const Situation& situation, const Evaluation& now,
                              const Evaluation& then) const {
  const double lost_s = then.beside_s - now.beside_s;
  if (roles_ == nullptr || lost_s <= 0) return lost_s;
  double slow_down = 1;
  for (size_t n = 0; n < situation.beside.size(); ++n) {
    if (situation.beside[n].cpu_s <= 0) continue;
    slow_down = std::max(slow_down, SlowDownOn(situation.graph->nodes[n].host, then.loads[n]));
  }
  return slow_down * lost_s;
}

Way RoundMaker::WayTo(uint32_t m, const Situation& situation, const Evaluation& now,
                      const Placement& to, const Evaluation& then) const {
  const Graph& graph = *situation.graph;
  Way way{.member = m, .to = to};
  way.cost = CostOf(graph, situation.at, to, snapshot_.history, config_);
  way.benefit_s = now.response_sum_s - then.response_sum_s - OthersLoss(situation, now, then);
  way.threshold_s = config_.b_thresh * then.response_sum_s;
  if (members_[m].uncertain) {
    way.deviation_s = BenefitDeviation(graph, situation.at, now, to, then);
  }
  return way;
}

// What a placement would take if the graph's own objects made no load: no more than it does take,
// and summed up without a fixed point. Most placements of a settled round cannot even so pay.
RoundMaker::Least RoundMaker::LeastOf(const Situation& situation, const Placement& to) const {
  const Graph& graph = *situation.graph;
  double least_s = 0;
  double beside_s = 0;
  for (size_t j = 0; j < to.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    const GraphNode& node = graph.nodes[to[j]];
    least_s += object.own_stall_s +
               object.work / node.host.rate * SlowDownOn(node.host, situation.beside[to[j]].load);
  }
  for (const GraphEdge& edge : graph.edges) {
    least_s += CrossingTime(graph, edge, to[edge.above], to[edge.below]);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Beside& beside = situation.beside[n];
    if (beside.cpu_s == 0) continue;
    beside_s += beside.cpu_s * SlowDownOn(graph.nodes[n].host, beside.load);
  }
  return {least_s, beside_s};
}

// The best step of one graph at the loads as they are by now, with the room that it needs made; the
// reason where there is none. `final`: also notes the reason.
std::optional<Step> RoundMaker::StepOf(uint32_t m, bool final) {
  Member& member = members_[m];
  const Graph& graph = *member.graph;
  if (std::all_of(graph.units.begin(), graph.units.end(), [](const Unit& u) { return u.fixed; })) {
    member.reason = Reason::kNothingMobile;
    return std::nullopt;
  }
  if (!member.seeks) return std::nullopt;
  if (final) member.own_net_benefit_s = 0;
  const Situation situation = SituationOf(member);
  Trial trial(graph, options_, member.at, situation.beside);
  const Evaluation now = trial.Evaluate();
  Reason reason = now.converged ? Reason::kPresentIsBest : Reason::kNotConverged;
  std::optional<Step> best;
  const double quiesce_s =
      snapshot_.history.count > 0 ? snapshot_.history.quiesce_s : config_.quiesce_prior_s;
  const auto consider = [&](Step step) {
    const double sure_s = step.Sure(config_.confidence_z);
    if (!best || sure_s > best->Sure(config_.confidence_z)) best = std::move(step);
  };
  for (const Placement& to : PlacementsOf(situation)) {
    if (to == member.at || !now.converged) continue;
    const Least least = LeastOf(situation, to);
    const bool own_might_pay =
        roles_ != nullptr && now.response_sum_s * (1 + kProgress) - quiesce_s >=
                                 (1 + config_.b_thresh) * least.response_s;
    if (!own_might_pay && now.Total() * (1 + kProgress) - quiesce_s <
                              least.beside_s + (1 + config_.b_thresh) * least.response_s) {
      const bool faster = least.response_s + least.beside_s < now.Total();
      if (reason == Reason::kPresentIsBest && faster) reason = Reason::kBelowThreshold;
      continue;
    }
    for (uint32_t j = 0; j < to.size(); ++j) trial.Put(j, to[j]);
    const Evaluation then = trial.Evaluate();
    if (!then.possible || !then.converged) continue;
    if (now.Total() <= then.Total() && !own_might_pay) continue;
    Step step{.ways = {WayTo(m, situation, now, to, then)}};
    if (RefusedForOthers(member, step, situation, now, then)) {
      reason = Reason::kOthersLose;
    } else if (now.Total() <= then.Total()) {
      continue;
    } else if (!step.Pays(config_.confidence_z)) {
      const bool unsure = step.Net() > step.Threshold();
      if (reason != Reason::kNoMemory && reason != Reason::kNoCpu &&
          reason != Reason::kOthersLose) {
        reason = unsure ? Reason::kUncertain : Reason::kBelowThreshold;
      }
    } else if ((Fits(situation, to) && FitsCpu(situation, now, to, then)) ||
               MakeRoom(situation, then, step)) {
      consider(std::move(step));
    } else if (reason != Reason::kOthersLose) {
      reason = Fits(situation, to) ? Reason::kNoCpu : Reason::kNoMemory;
    }
  }
  if (final) member.reason = reason;
  return best;
}

// Whether the step would pay for its own consoles and it is what others lose that keeps it from it;
// notes the best such step's figures.
bool RoundMaker::RefusedForOthers(Member& member, const Step& step, const Situation& situation,
                                  const Evaluation& now, const Evaluation& then) const {
  const double lost_s = OthersLoss(situation, now, then);
  if (roles_ == nullptr || lost_s <= 0 || step.Pays(config_.confidence_z)) return false;
  const double own_s = step.Net() + lost_s;
  if (own_s - config_.confidence_z * step.Deviation() <= step.Threshold()) return false;
  if (own_s > member.own_net_benefit_s) {
    member.own_net_benefit_s = own_s;
    member.own_threshold_s = step.Threshold();
    member.others_lose_s = lost_s;
  }
  return true;
}

// Adds to a step that lacks memory or CPU the graphs that have to leave for it; false if that does
// not pay or is not enough.
bool RoundMaker::MakeRoom(const Situation& situation, const Evaluation& then, Step& step) {
  if (!Fits(situation, step.ways.front().to) && !FreeMemory(step)) return false;
  if (config_.cpu_share_max < 1 && !FreeCpu(then, step)) return false;
  return step.Pays(config_.confidence_z);
}

bool RoundMaker::FreeMemory(Step& step) {
  const Way first = step.ways.front();
  const Member& member = members_[first.member];
  std::map<uint32_t, double> gained;  // by place
  for (size_t j = 0; j < first.to.size(); ++j) {
    if (first.to[j] == member.at[j]) continue;
    const auto bytes = static_cast<double>(member.graph->objects[j].statistics->memory_bytes);
    gained[member.places[first.to[j]]] += bytes;
    gained[member.places[member.at[j]]] -= bytes;
  }
  for (const auto& [place, bytes] : gained) {
    const double lack = bytes - places_[place].free_bytes;
    if (bytes <= 0 || lack <= 0) continue;
    const size_t ways = step.ways.size();
    Eject(place, Scarce::kMemory, lack, &step);
    double freed = 0;
    for (size_t w = ways; w < step.ways.size(); ++w) freed += step.ways[w].freed;
    if (freed < lack) return false;
  }
  return true;
}

// What others that leave for memory free of CPU is not counted on: their use is of the graph that
// they are of, and one step rarely lacks both.
bool RoundMaker::FreeCpu(const Evaluation& then, Step& step) {
  const Way first = step.ways.front();
  const Member& member = members_[first.member];
  const std::vector<double> cores = PulledCores(*member.graph, first.to, then.response_s);
  for (size_t n = 0; n < cores.size(); ++n) {
    const Place& place = places_[member.places[n]];
    const double lack = place.pulled - member.pulled[n] + cores[n] - place.cpu_limit;
    if (cores[n] <= member.pulled[n] * (1 + kSameUse) || lack <= place.cpu_limit * kSameUse) {
      continue;
    }
    const size_t ways = step.ways.size();
    Eject(member.places[n], Scarce::kCpu, lack, &step);
    double freed = 0;
    for (size_t w = ways; w < step.ways.size(); ++w) freed += step.ways[w].freed;
    if (freed < lack) return false;
  }
  return true;
}

// Adds those that leave `place` until as much as is lacking is free, or nobody is left.
void RoundMaker::Eject(uint32_t place, Scarce scarce, double lack, Step* step) {
  for (const Way& leaver : LeaversOf(place, scarce)) {
    if (lack <= 0) return;
    const bool taken = std::any_of(step->ways.begin(), step->ways.end(),
                                   [&](const Way& way) { return way.member == leaver.member; });
    if (taken || members_[leaver.member].touched || step->ways.size() > kEjectedMax) continue;
    lack -= leaver.freed;
    step->ways.push_back(leaver);
  }
}

// All that a graph has on a place to its first console's node, if that frees anything.
std::optional<Way> RoundMaker::WayHome(uint32_t m, uint32_t place, Scarce scarce) const {
  const Member& member = members_[m];
  const Graph& graph = *member.graph;
  if (member.touched || !member.may_be_ejected) return std::nullopt;
  Placement to = member.at;
  const uint32_t home = member.at.front();
  double bytes = 0;
  for (uint32_t u = 0; u < graph.units.size(); ++u) {
    const uint32_t at = member.at[graph.units[u].objects.front()];
    if (graph.units[u].fixed || member.places[at] != place || at == home) continue;
    if (!MayBe(graph, member.at, u, home)) continue;
    for (const uint32_t j : graph.units[u].objects) {
      to[j] = home;
      bytes += static_cast<double>(graph.objects[j].statistics->memory_bytes);
    }
  }
  if (to == member.at || (scarce == Scarce::kMemory && bytes <= 0)) return std::nullopt;
  const Situation situation = SituationOf(member);
  if (!Fits(situation, to)) return std::nullopt;
  const Evaluation now = Trial(graph, options_, member.at, situation.beside).Evaluate();
  const Evaluation then = Trial(graph, options_, to, situation.beside).Evaluate();
  if (!now.converged || !then.converged || !then.possible) return std::nullopt;
  if (!FitsCpu(situation, now, to, then)) return std::nullopt;
  Way way = WayTo(m, situation, now, to, then);
  way.freed = bytes;
  if (scarce == Scarce::kMemory) return way;
  const std::vector<double> cores = PulledCores(graph, to, then.response_s);
  way.freed = 0;
  for (size_t n = 0; n < cores.size(); ++n) {
    if (member.places[n] == place) way.freed += member.pulled[n] - cores[n];
  }
  if (way.freed <= 0) return std::nullopt;
  return way;
}

// Who can leave a place, by what all lose by it a byte or core.
const std::vector<Way>& RoundMaker::LeaversOf(uint32_t place, Scarce scarce) {
  const auto [it, added] = leavers_.try_emplace({place, scarce});
  if (!added) return it->second;
  std::vector<Way>& leavers = it->second;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (std::optional<Way> way = WayHome(m, place, scarce)) leavers.push_back(*std::move(way));
  }
  const auto loss = [](const Way& way) { return (way.cost.Total() - way.benefit_s) / way.freed; };
  std::stable_sort(leavers.begin(), leavers.end(),
                   [&](const Way& a, const Way& b) { return loss(a) < loss(b); });
  return leavers;
}

}  // namespace abacus::placement::round_internal
