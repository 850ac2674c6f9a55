// A round as a whole: what everybody's placement amounts to, pass after pass, and the report.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "placement/round_maker.h"

namespace abacus::placement {
namespace round_internal {

uint32_t RoundMaker::PlaceOf(const GraphNode& node) {
  const auto [it, added] =
      place_of_.try_emplace(node.statistics, static_cast<uint32_t>(places_.size()));
  if (added) {
    places_.push_back({.statistics = node.statistics,
                       .base = {.cores = node.host.cores,
                                .contention = node.host.contention,
                                .load = node.statistics->load},
                       .free_bytes = node.memory_free_bytes});
  }
  Place& place = places_[it->second];
  place.base.load_is_constant |= node.load_is_constant;
  place.cpu_limit = std::min(place.cpu_limit, node.cpu_limit);
  return it->second;
}

void RoundMaker::AddMembers(const SnapshotReader::Graphs& read,
                            absl::Span<const ObjectId> consoles) {
  absl::flat_hash_map<ObjectId, bool> wanted;
  for (const ObjectId& console : consoles) wanted[console] = true;
  std::vector<bool> understood(read.graphs.size(), false);
  for (const SnapshotReader::Console& console : read.consoles) {
    if (!console.refusal) understood[console.graph] = true;
  }
  uint32_t first_console = 0;
  members_.reserve(read.graphs.size());
  for (size_t g = 0; g < read.graphs.size(); ++g) {
    const Graph& graph = read.graphs[g];
    const bool any = wanted.empty() ||
                     std::any_of(graph.consoles.begin(), graph.consoles.end(),
                                 [&](const ObjectId& console) { return wanted.contains(console); });
    if (!any || !understood[g]) continue;
    Member member{.graph = &graph, .at = graph.present, .first_console = first_console};
    for (const GraphNode& node : graph.nodes) member.places.push_back(PlaceOf(node));
    for (const GraphObject& o : graph.objects) member.uncertain |= o.work_deviation > 0;
    for (const GraphEdge& e : graph.edges) member.uncertain |= e.bytes_deviation > 0;
    for (const GraphLink& l : graph.links) member.uncertain |= l.bandwidth_deviation_bytes_s > 0;
    first_console += static_cast<uint32_t>(graph.consoles.size());
    member_of_[g] = static_cast<uint32_t>(members_.size());
    members_.push_back(std::move(member));
  }
  response_s_.assign(first_console, 0);
}

void RoundMaker::AssignRoles() {
  absl::flat_hash_map<ObjectId, bool> seek;
  absl::flat_hash_map<ObjectId, bool> ejectable;
  for (const ObjectId& console : roles_->seek) seek[console] = true;
  for (const ObjectId& console : roles_->may_be_ejected) ejectable[console] = true;
  for (Member& member : members_) {
    const std::vector<ObjectId>& consoles = member.graph->consoles;
    member.seeks = std::any_of(consoles.begin(), consoles.end(),
                               [&](const ObjectId& console) { return seek.contains(console); });
    member.may_be_ejected =
        std::all_of(consoles.begin(), consoles.end(),
                    [&](const ObjectId& console) { return ejectable.contains(console); });
  }
}

// As graph.cc does for one graph: what was measured less what all of them make of it.
void RoundMaker::FindOthers() {
  for (const Member& member : members_) {
    const Graph& graph = *member.graph;
    for (size_t j = 0; j < graph.objects.size(); ++j) {
      Place& place = places_[member.places[graph.present[j]]];
      if (place.base.load_is_constant) continue;
      const GraphObject& object = graph.objects[j];
      place.base.load -=
          (object.work + object.background_work) / (place.statistics->rate * graph.window_s);
    }
  }
  for (Place& place : places_) place.base.load = std::max(0.0, place.base.load);
}

// Equation 7: every console's time and every node's load at once, from nothing but the placement.
void RoundMaker::Predict() {
  ++passes_;
  std::vector<double> fixed_s(response_s_.size(), 0);
  std::vector<Use> uses;
  std::vector<NodeBase> bases;
  std::vector<Trial> trials;
  trials.reserve(members_.size());
  for (const Place& place : places_) bases.push_back(place.base);
  for (const Member& member : members_) {
    const Trial& trial = trials.emplace_back(*member.graph, options_, member.at);
    for (uint32_t c = 0; c < member.graph->consoles.size(); ++c) {
      fixed_s[member.first_console + c] = trial.FixedOf(c);
      for (uint32_t n = 0; n < member.places.size(); ++n) {
        if (trial.CpuOf(c, n) > 0) {
          uses.push_back({member.first_console + c, member.places[n], trial.CpuOf(c, n),
                          member.graph->at_once[c]});
        }
      }
    }
    for (uint32_t n = 0; n < member.places.size(); ++n) {
      NodeBase& base = bases[member.places[n]];
      if (!base.load_is_constant) base.load += trial.BackgroundOn(n);
    }
  }
  Loads solved = SolveLoads(fixed_s, uses, bases, options_);
  converged_ = solved.converged;
  response_s_.assign(solved.response_s.begin(), solved.response_s.end());
  for (size_t p = 0; p < places_.size(); ++p) {
    places_[p].load = places_[p].base.load;
    places_[p].cpu_s = places_[p].squares = places_[p].pulled = 0;
  }
  for (size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    Weigh(member, trials[m],
          absl::MakeConstSpan(response_s_)
              .subspan(member.first_console, member.graph->consoles.size()));
    Count(member, 1);
    member.touched = false;
  }
  leavers_.clear();
}

void RoundMaker::Weigh(Member& member, const Trial& trial, absl::Span<const double> response_s) {
  const size_t nodes = member.places.size();
  member.load.assign(nodes, 0);
  member.cpu_s.assign(nodes, 0);
  member.squares.assign(nodes, 0);
  member.pulled.assign(nodes, 0);
  if (config_.cpu_share_max < 1) {
    member.pulled = PulledCores(*member.graph, trial.placement(), response_s);
  }
  for (uint32_t n = 0; n < nodes; ++n) {
    const NodeBase& base = places_[member.places[n]].base;
    if (base.load_is_constant) continue;
    member.load[n] = trial.BackgroundOn(n);
    for (uint32_t c = 0; c < response_s.size(); ++c) {
      const double cpu_s = trial.CpuOf(c, n);
      if (cpu_s <= 0) continue;
      const double at_once = member.graph->at_once[c];
      const double share = cpu_s / response_s[c];  // of one of the calls that are going on
      member.load[n] += at_once * share;
      member.cpu_s[n] += cpu_s;
      member.squares[n] += at_once * base.contention * share * share / base.cores;
    }
  }
}

void RoundMaker::Count(const Member& member, double sign) {
  for (size_t n = 0; n < member.places.size(); ++n) {
    Place& place = places_[member.places[n]];
    place.load += sign * member.load[n];
    place.cpu_s += sign * member.cpu_s[n];
    place.squares += sign * member.squares[n];
    place.pulled += sign * member.pulled[n];
  }
}

double RoundMaker::Total() const {
  double total_s = 0;
  for (const double s : response_s_) total_s += s;
  return total_s;
}

Situation RoundMaker::SituationOf(const Member& member) const {
  Situation situation{.graph = member.graph, .at = member.at, .options = options_};
  for (size_t n = 0; n < member.places.size(); ++n) {
    const Place& place = places_[member.places[n]];
    situation.free_bytes.push_back(place.free_bytes);
    if (config_.cpu_share_max < 1) {
      const double others = std::max(0.0, place.pulled - member.pulled[n]);
      situation.free_cores.push_back(std::max(0.0, member.graph->nodes[n].cpu_limit - others));
    }
    const double load = place.load - member.load[n];
    const bool busy = load > std::max(1.0, place.base.cores);
    const double squares = std::max(0.0, place.squares - member.squares[n]);
    situation.beside.push_back({.load = std::max(0.0, load),
                                .cpu_s = std::max(0.0, place.cpu_s - member.cpu_s[n]),
                                .remains = busy ? 1 / (1 + squares) : 1});
  }
  return situation;
}

// Whether nowhere more CPU is used by what was pulled there than before and than is allowed: a step
// is judged at what others use by then, and what others gain by it may let them use more.
bool RoundMaker::CpuIsKeptTo(absl::Span<const Place> before) const {
  for (size_t p = 0; p < places_.size(); ++p) {
    const double cores = places_[p].pulled;
    if (cores > before[p].pulled * (1 + kSameUse) &&
        cores > places_[p].cpu_limit * (1 + kSameUse)) {
      return false;
    }
  }
  return true;
}

void RoundMaker::Apply(const Step& step) {
  for (const Way& way : step.ways) {
    Member& member = members_[way.member];
    Count(member, -1);

    for (size_t j = 0; j < way.to.size(); ++j) {
      const auto bytes = static_cast<double>(member.graph->objects[j].statistics->memory_bytes);
      places_[member.places[member.at[j]]].free_bytes += bytes;
      places_[member.places[way.to[j]]].free_bytes -= bytes;
    }
    member.at = way.to;
    std::vector<Beside> beside;
    for (size_t n = 0; n < member.places.size(); ++n) {
      beside.push_back({.load = std::max(0.0, places_[member.places[n]].load)});
    }
    const Trial trial(*member.graph, options_, member.at, std::move(beside));
    Weigh(member, trial, trial.Evaluate().response_s);
    Count(member, 1);
    member.touched = true;
  }
}

// Steps by net benefit, each judged anew at the loads that those before it have left: more load
// makes the others' steps worse, so what was at the top and still is, is the best.
std::vector<Step> RoundMaker::Pass() {
  std::priority_queue<Entry> queue;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    const std::optional<Step> step = StepOf(m, true);
    if (step) queue.push({step->Sure(config_.confidence_z), m});
  }
  std::vector<Step> steps;
  while (!queue.empty()) {
    const Entry top = queue.top();
    queue.pop();
    if (members_[top.member].touched) continue;
    std::optional<Step> step = StepOf(top.member, false);
    if (!step) continue;
    const double sure_s = step->Sure(config_.confidence_z);
    // Rounding alone must not send an entry round for ever.
    if (!queue.empty() && sure_s < queue.top().sure_s && sure_s < top.sure_s * (1 - kProgress)) {
      queue.push({sure_s, top.member});
      continue;
    }
    Apply(*step);
    steps.push_back(*std::move(step));
  }
  return steps;
}

// One pass, and as much of it as does what it promised. False: nothing is left to be done.
bool RoundMaker::Improve() {
  struct Saved {
    std::vector<Placement> at;
    std::vector<double> free_bytes;
  } saved;
  for (const Member& member : members_) saved.at.push_back(member.at);
  for (const Place& place : places_) saved.free_bytes.push_back(place.free_bytes);
  const double before_s = Total();
  const std::vector<Place> before = places_;
  std::vector<Step> steps = Pass();
  if (steps.empty()) return false;
  while (!steps.empty()) {
    for (size_t m = 0; m < members_.size(); ++m) members_[m].at = saved.at[m];
    for (size_t p = 0; p < places_.size(); ++p) places_[p].free_bytes = saved.free_bytes[p];
    double cost_s = 0;
    for (const Step& step : steps) {
      for (const Way& way : step.ways) {
        Member& member = members_[way.member];
        cost_s += way.cost.Total();
        for (size_t j = 0; j < way.to.size(); ++j) {
          const auto bytes = static_cast<double>(member.graph->objects[j].statistics->memory_bytes);
          places_[member.places[member.at[j]]].free_bytes += bytes;
          places_[member.places[way.to[j]]].free_bytes -= bytes;
        }
        member.at = way.to;
      }
    }
    Predict();
    if (converged_ && Total() + cost_s < before_s * (1 - kProgress) && CpuIsKeptTo(before)) {
      made_.insert(made_.end(), std::make_move_iterator(steps.begin()),
                   std::make_move_iterator(steps.end()));
      return true;
    }
    steps.resize(steps.size() / 2);
  }
  for (size_t m = 0; m < members_.size(); ++m) members_[m].at = saved.at[m];
  for (size_t p = 0; p < places_.size(); ++p) places_[p].free_bytes = saved.free_bytes[p];
  Predict();
  return false;
}

Round RoundMaker::Run(absl::Span<const ObjectId> consoles) {
  Round round;
  const SnapshotReader::Graphs read = SnapshotReader(snapshot_, consoles, config_).ReadAll();
  AddMembers(read, consoles);
  if (roles_ != nullptr) AssignRoles();
  FindOthers();
  Predict();
  first_response_s_ = response_s_;
  if (converged_) {
    while (Improve()) {
      if (passes_ < kRoundPassesMax) continue;
      ++cut_off_;
      break;
    }
  } else {
    ++cut_off_;
  }
  Report(read, consoles, &round);
  return round;
}

void RoundMaker::Report(const SnapshotReader::Graphs& read, absl::Span<const ObjectId> consoles,
                        Round* round) const {
  round->passes = passes_;
  round->cut_off = cut_off_;
  // Graphs that moved in one step stay in one, whatever moved them later.
  std::vector<uint32_t> together(members_.size());
  for (uint32_t m = 0; m < together.size(); ++m) together[m] = m;
  const auto find = [&](uint32_t m) {
    while (together[m] != m) m = together[m] = together[together[m]];
    return m;
  };
  std::map<uint32_t, size_t> step_of;
  for (const Step& step : made_) {
    for (const Way& way : step.ways) {
      together[find(way.member)] = find(step.ways.front().member);
    }
  }
  for (const Step& step : made_) {
    const uint32_t root = find(step.ways.front().member);
    const auto [it, added] = step_of.try_emplace(root, round->steps.size());
    if (added) round->steps.push_back({});
    RoundStep& out = round->steps[it->second];
    out.benefit_s += step.Benefit();
    out.threshold_s += step.Threshold();
    out.benefit_deviation_s = std::hypot(out.benefit_deviation_s, step.Deviation());
    for (const Way& way : step.ways) {
      out.cost.quiesce_s += way.cost.quiesce_s;
      out.cost.transfer_s += way.cost.transfer_s;
      out.cost.protocol_s += way.cost.protocol_s;
      out.cost.checkpoint_bytes += way.cost.checkpoint_bytes;
    }
    out.net_benefit_s = out.benefit_s - out.cost.Total();
  }
  for (uint32_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    const auto it = step_of.find(find(m));
    if (member.at == member.graph->present || it == step_of.end()) continue;
    RoundStep& out = round->steps[it->second];
    out.consoles.insert(out.consoles.end(), member.graph->consoles.begin(),
                        member.graph->consoles.end());
    for (size_t j = 0; j < member.at.size(); ++j) {
      const uint32_t from = member.graph->present[j];
      if (member.at[j] == from) continue;
      out.moves.push_back({.object = member.graph->objects[j].statistics->id,
                           .from = member.graph->nodes[from].statistics->node,
                           .to = member.graph->nodes[member.at[j]].statistics->node});
    }
  }
  round->steps.erase(std::remove_if(round->steps.begin(), round->steps.end(),
                                    [](const RoundStep& step) { return step.moves.empty(); }),
                     round->steps.end());
  std::stable_sort(
      round->steps.begin(), round->steps.end(),
      [](const RoundStep& a, const RoundStep& b) { return a.net_benefit_s > b.net_benefit_s; });
  const bool suspended = snapshot_.options.suspended;
  if (suspended) round->steps.clear();

  absl::flat_hash_map<ObjectId, bool> wanted;
  for (const ObjectId& console : consoles) wanted[console] = true;
  size_t understood = 0;
  for (const SnapshotReader::Console& console : read.consoles) {
    const bool named = console.id == snapshot_.console && snapshot_.console == ObjectId();
    if (wanted.empty() ? named : !wanted.contains(console.id)) continue;
    RoundConsole& out = round->consoles.emplace_back();
    out.console = console.id;
    if (console.refusal) {
      out.reason = console.refusal->reason;
      out.detail = console.refusal->detail;
      continue;
    }
    const Member& member = members_[member_of_.at(console.graph)];
    const Graph& graph = *member.graph;
    const auto at = std::find(graph.consoles.begin(), graph.consoles.end(), console.id);
    const size_t index = member.first_console + static_cast<size_t>(at - graph.consoles.begin());
    const bool moved = member.at != graph.present;
    out.outcome = moved && !suspended ? Outcome::kMove : Outcome::kStay;
    out.reason = !moved ? member.reason : suspended ? Reason::kSuspended : Reason::kNetBenefit;
    if (!converged_) out.reason = Reason::kNotConverged;
    if (out.reason == Reason::kOthersLose) {
      out.own_net_benefit_s = member.own_net_benefit_s;
      out.own_threshold_s = member.own_threshold_s;
      out.others_lose_s = member.others_lose_s;
    }
    out.t_now_s = first_response_s_[index];
    out.t_new_s = response_s_[index];
    round->mean_now_s += out.t_now_s;
    round->mean_new_s += out.t_new_s;
    ++understood;
  }
  if (understood == 0) return;
  round->mean_now_s /= static_cast<double>(understood);
  round->mean_new_s /= static_cast<double>(understood);
}

}  // namespace round_internal

Round DecideAll(const Snapshot& snapshot, absl::Span<const ObjectId> consoles, const Config& config,
                const RoundRoles* roles) {
  if (const absl::Status status = Validate(config); !status.ok()) {
    Round round;
    for (const ObjectId& console : consoles) {
      round.consoles.push_back({.console = console,
                                .reason = Reason::kBadConfig,
                                .detail = std::string(status.message())});
    }
    return round;
  }
  return round_internal::RoundMaker(snapshot, config, roles).Run(consoles);
}

}  // namespace abacus::placement
