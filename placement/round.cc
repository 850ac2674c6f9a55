#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "placement/engine.h"
#include "placement/graph.h"
#include "placement/limits.h"
#include "placement/model.h"
#include "placement/search.h"

namespace abacus::placement {
namespace {

constexpr size_t kEjectedMax = 8;   // graphs ejected for one step
constexpr double kProgress = 1e-9;  // least part by which a pass must lower the sum of times

// A node as all graphs together see it.
struct Place {
  const NodeStatistics* statistics = nullptr;
  NodeBase base;  // load: of those that are not decided on
  double free_bytes = std::numeric_limits<double>::infinity();
  // At the loads of the last prediction, kept up to date while steps are made.
  double load = 0;     // not floored
  double cpu_s = 0;    // of all consoles decided on
  double squares = 0;  // sum of cpu_s^2 / (T^2 c)
  double pulled = 0;   // cores that objects pulled here use; 0 without a limit on them
  double cpu_limit = std::numeric_limits<double>::infinity();  // on that
};

// One graph, where its objects are by now, and what it makes of each of its nodes.
struct Member {
  const Graph* graph = nullptr;
  std::vector<uint32_t> places;  // of Graph::nodes
  Placement at;
  uint32_t first_console = 0;
  std::vector<double> load;  // by node of the graph
  std::vector<double> cpu_s;
  std::vector<double> squares;
  std::vector<double> pulled;  // cores (limits.h)
  bool uncertain = false;
  Reason reason = Reason::kPresentIsBest;
  bool touched = false;  // in this pass
  bool seeks = true;
  bool may_be_ejected = true;
  // Of the best placement that would pay but for the others; its gain is 0 where there is none.
  double own_net_benefit_s = 0;
  double own_threshold_s = 0;
  double others_lose_s = 0;
};

// One graph's way to another placement.
struct Way {
  uint32_t member = 0;
  Placement to;
  MigrationCost cost;
  double benefit_s = 0;
  double deviation_s = 0;
  double threshold_s = 0;
  double freed = 0;  // of what it leaves for: bytes or cores
};

// Ways that are gone together: the first for its benefit, the others to make room.
struct Step {
  std::vector<Way> ways;

  double Benefit() const {
    return Sum([](const Way& w) { return w.benefit_s; });
  }
  double Net() const {
    return Sum([](const Way& w) { return w.benefit_s - w.cost.Total(); });
  }
  // Of those that it is for. What those lose that make room is in the benefit.
  double Threshold() const { return ways.front().threshold_s; }
  double Deviation() const {
    return std::sqrt(Sum([](const Way& w) { return w.deviation_s * w.deviation_s; }));
  }
  double Sure(double confidence_z) const { return Net() - confidence_z * Deviation(); }
  bool Pays(double confidence_z) const { return Sure(confidence_z) > Threshold(); }

 private:
  template <typename F>
  double Sum(F of) const {
    double sum = 0;
    for (const Way& way : ways) sum += of(way);
    return sum;
  }
};

class RoundMaker {
 public:
  RoundMaker(const Snapshot& snapshot, const Config& config, const RoundRoles* roles)
      : snapshot_(snapshot),
        config_(config),
        options_(FixedPointOptionsOf(config)),
        roles_(roles) {}

  Round Run(absl::Span<const ObjectId> consoles);

 private:
  struct Entry {
    double sure_s;
    uint32_t member;
    bool operator<(const Entry& other) const {
      return sure_s != other.sure_s ? sure_s < other.sure_s : member > other.member;
    }
  };

  void AddMembers(const SnapshotReader::Graphs& read, absl::Span<const ObjectId> consoles);
  void AssignRoles();
  uint32_t PlaceOf(const GraphNode& node);
  void FindOthers();
  void Predict();
  void Weigh(Member& member, const Trial& trial, absl::Span<const double> response_s);
  void Count(const Member& member, double sign);
  double Total() const;

  Situation SituationOf(const Member& member) const;
  struct Least {
    double response_s = 0;
    double beside_s = 0;
  };
  Least LeastOf(const Situation& situation, const Placement& to) const;
  std::optional<Step> StepOf(uint32_t m, bool final);
  double OthersLoss(const Situation& situation, const Evaluation& now,
                    const Evaluation& then) const;
  bool RefusedForOthers(Member& member, const Step& step, const Situation& situation,
                        const Evaluation& now, const Evaluation& then) const;
  std::vector<Placement> PlacementsOf(const Situation& situation) const;
  Way WayTo(uint32_t m, const Situation& situation, const Evaluation& now, const Placement& to,
            const Evaluation& then) const;
  enum class Scarce : uint8_t { kMemory, kCpu };
  bool MakeRoom(const Situation& situation, const Evaluation& then, Step& step);
  bool FreeMemory(Step& step);
  bool FreeCpu(const Evaluation& then, Step& step);
  void Eject(uint32_t place, Scarce scarce, double lack, Step* step);
  const std::vector<Way>& LeaversOf(uint32_t place, Scarce scarce);
  std::optional<Way> WayHome(uint32_t m, uint32_t place, Scarce scarce) const;
  bool CpuIsKeptTo(absl::Span<const Place> before) const;
  std::vector<Step> Pass();
  void Apply(const Step& step);
  bool Improve();
  void Report(const SnapshotReader::Graphs& read, absl::Span<const ObjectId> consoles,
              Round* round) const;

  const Snapshot& snapshot_;
  const Config& config_;
  const FixedPointOptions options_;
  const RoundRoles* const roles_;
  std::vector<Place> places_;
  absl::flat_hash_map<const NodeStatistics*, uint32_t> place_of_;
  std::vector<Member> members_;
  absl::flat_hash_map<size_t, uint32_t> member_of_;  // by index of the graph
  std::vector<double> response_s_;                   // by console of all members
  std::vector<double> first_response_s_;
  std::vector<Step> made_;
  // By place and what is scarce there, at the last prediction.
  std::map<std::pair<uint32_t, Scarce>, std::vector<Way>> leavers_;
  bool converged_ = true;
  int cut_off_ = 0;
  int passes_ = 0;
};

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
          uses.push_back({member.first_console + c, member.places[n], trial.CpuOf(c, n)});
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
      const double share = cpu_s / response_s[c];
      member.load[n] += share;
      member.cpu_s[n] += cpu_s;
      member.squares[n] += base.contention * share * share / base.cores;
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

}  // namespace

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
  return RoundMaker(snapshot, config, roles).Run(consoles);
}

}  // namespace abacus::placement
