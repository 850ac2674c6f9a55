// The Planner's decisions on many consoles at once: who takes part, and what of a round goes.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "placement/engine.h"
#include "placement/planner.h"
#include "placement/planner_terms.h"
#include "placement/plausibility.h"

namespace abacus::placement {
namespace {

// Changes no older than this were made by the same call.
constexpr double kAtOnce_s = 1e-9;

// Windows of several graphs as one snapshot of h_s seconds. What is in several windows (a node, an
// object that consoles share) has the same figures in all, up to when each was taken: nodes get the
// mean, as noise is less in it; of anything else the first counts, so that the freshest is to come
// first.
class JointSnapshot {
 public:
  explicit JointSnapshot(double h_s) { joint_.window_s = h_s; }

  void Add(const Snapshot& window) {
    const double scale = joint_.window_s / window.window_s;
    joint_.consoles.push_back(window.console);
    for (const ObjectId& console : window.consoles) joint_.consoles.push_back(console);
    for (const NodeStatistics& node : window.nodes) AddNode(node, window.window_s);
    for (const ObjectStatistics& object : window.objects) AddObject(object, scale);
    for (const EdgeStatistics& edge : window.edges) AddEdge(edge, scale);
    for (const LinkStatistics& link : window.links) {
      if (links_.insert(std::minmax(link.a, link.b)).second) joint_.links.push_back(link);
    }
    if (window.history.count > joint_.history.count) joint_.history = window.history;
  }

  Snapshot Take() {
    for (NodeStatistics& node : joint_.nodes) {
      const Mean& mean = nodes_.at(node.node);
      node.load = mean.load / mean.seconds;
      node.rate = mean.rate / mean.seconds;
    }
    joint_.console = joint_.consoles.front();
    return std::move(joint_);
  }

 private:
  struct Mean {
    double seconds = 0;
    double load = 0;
    double rate = 0;
  };

  void AddNode(const NodeStatistics& node, double window_s) {
    Mean& mean = nodes_[node.node];
    if (mean.seconds == 0) joint_.nodes.push_back(node);
    mean.seconds += window_s;
    mean.load += node.load * window_s;
    mean.rate += node.rate * window_s;
  }

  void AddObject(const ObjectStatistics& object, double scale) {
    if (!objects_.insert(object.id).second) return;
    ObjectStatistics& added = joint_.objects.emplace_back(object);
    for (const auto figure : kObjectSums) added.*figure *= scale;
    added.cpu_s_variance *= scale * scale;
  }

  void AddEdge(const EdgeStatistics& edge, double scale) {
    if (!edges_.insert({edge.from, edge.to}).second) return;
    EdgeStatistics& added = joint_.edges.emplace_back(edge);
    for (const auto figure : kEdgeSums) added.*figure *= scale;
    added.bytes_variance *= scale * scale;
  }

  Snapshot joint_;
  absl::flat_hash_map<NodeId, Mean> nodes_;
  absl::flat_hash_set<ObjectId> objects_;
  absl::flat_hash_set<std::pair<ObjectId, ObjectId>> edges_;
  absl::flat_hash_set<std::pair<NodeId, NodeId>> links_;
};

bool Holds(const Snapshot& window, const ObjectId& id) {
  return std::any_of(window.objects.begin(), window.objects.end(),
                     [&](const ObjectStatistics& object) { return object.id == id; });
}

}  // namespace

bool Planner::Seeks(const Proposal& proposal) const {
  if (!proposal.given || proposal.graph == nullptr || proposal.window.options.suspended) {
    return false;
  }
  if (proposal.goes) return !proposal.harmless;
  return proposal.decision.reason == Reason::kNoMemory && proposal.decision.present.has_value();
}

bool Planner::MayBeEjected(const Proposal& proposal, double now_s) const {
  const Graph& graph = *proposal.graph;
  return !graph.moving && !proposal.window.options.suspended && now_s >= graph.cool_until_s;
}

// Whether the graph need not wait for what others brought to the node within the last window. What
// it waits for is a load that may come out higher than predicted; but calls of one anchored object
// get into each other's way, and those from afar most: changes that were overtaken are made again,
// copies are called back. Then who waits is a cost to those who went, and waiting pays only if the
// move might not: it goes if it pays even where all of these and itself never stop computing there.
bool Planner::FollowsAtWorst(const Decision& decision, NodeId node, double now_s) const {
  const std::vector<ObjectId> before =
      ledger_.CameFor(node, decision.console, now_s, config_.window_s);
  const std::vector<ObjectId> callees = AnchoredCallees(decision, node);
  const auto shares = [&](const ObjectId& console) {
    const auto it = graphs_.find(console);
    return it != graphs_.end() &&
           std::any_of(callees.begin(), callees.end(),
                       [&](const ObjectId& id) { return Holds(it->second->history.latest(), id); });
  };
  return !before.empty() && std::all_of(before.begin(), before.end(), shares) &&
         PaysAtWorst(decision, node, static_cast<double>(before.size()));
}

bool Planner::MayTakeTurn(const Decision& decision, double now_s, bool in_round) const {
  const std::vector<LoadChange> changes = LoadChanges(decision);
  return std::all_of(changes.begin(), changes.end(), [&](const LoadChange& change) {
    const NodeStatistics& node = *NodeOf(decision, change.node);
    const auto others = [&](double within_s) {
      return ledger_.ChangedByOthers(node.node, decision.console, now_s, within_s);
    };
    // A node that stays half idle gives and takes relief to nobody.
    const double step = planner_.load_step * node.cores;
    // The decision's window does not show what has been let go at this very moment, in one round.
    const double unseen = in_round ? others(kAtOnce_s) : 0;
    // What moved there before this round has no figures yet that a limit on CPU could be held to.
    const bool limited = config_.cpu_share_max < 1 && change.load > 0;
    if (limited && others(config_.window_s) > unseen) return false;
    if (node.load + unseen + std::max(0.0, change.load) <= step) return true;
    const double changed = others(config_.window_s);
    if (changed == 0 || changed + std::abs(change.load) <= step) return true;
    return change.load > 0 && !limited && FollowsAtWorst(decision, node.node, now_s);
  });
}

// Graphs that were not asked for and are on a node with one that seeks: by id, as the table's order
// is by chance.
void Planner::AddParties(double now_s, const absl::flat_hash_set<ObjectId>& refused,
                         std::vector<Proposal>* proposals) {
  std::set<NodeId> nodes;
  std::set<ObjectId> given;
  for (const Proposal& proposal : *proposals) {
    given.insert(proposal.decision.console);
    if (!Seeks(proposal)) continue;
    for (const NodeStatistics& node : proposal.window.nodes) nodes.insert(node.node);
  }
  // The freshest first, as theirs are the figures of what several know.
  std::map<std::pair<double, ObjectId>, Graph*> others;
  for (const auto& [console, graph] : graphs_) {
    if (graph->moving || graph->history.empty() || given.contains(console)) continue;
    if (refused.contains(console)) continue;
    if (graph->history.end_s() < now_s - config_.window_s) continue;
    const std::vector<NodeStatistics>& on = graph->history.latest().nodes;
    const bool beside = std::any_of(on.begin(), on.end(), [&](const NodeStatistics& node) {
      return nodes.contains(node.node);
    });
    if (beside) others[{-graph->history.end_s(), console}] = graph.get();
  }
  proposals->reserve(proposals->size() + others.size());
  for (const auto& [age, graph] : others) {
    const ObjectId& console = age.second;
    Snapshot window = graph->history.Window(SinceOf(*graph, graph->history.end_s()));
    if (FindContradiction(window)) continue;
    Proposal& party = proposals->emplace_back(Proposal{.graph = graph, .given = false});
    party.window = std::move(window);
    ledger_.Apply(now_s, party.window.window_s, &party.window);
    if (party.window.history.count == 0) party.window.history = graph->quiesces;
    party.window.options.suspended = party.window.options.suspended || suspended_;
    party.decision.console = console;
  }
}

Planner::Asked Planner::AskRound(const std::vector<Proposal>& parties, double now_s) const {
  std::vector<ObjectId> all;
  std::vector<ObjectId> seek;
  std::vector<ObjectId> may_be_ejected;
  JointSnapshot windows(config_.window_s);
  Config config = config_;
  double horizon_s = 0;
  for (const bool seeking : {true, false}) {
    for (const Proposal& party : parties) {
      // What the engine did not understand alone is left out; what is on its way is in the ledger.
      if (party.given && !party.decision.present) continue;
      if (party.graph->moving || Seeks(party) != seeking) continue;
      const ObjectId& console = party.decision.console;
      windows.Add(party.window);
      all.push_back(console);
      if (MayBeEjected(party, now_s)) may_be_ejected.push_back(console);
      if (!seeking) continue;
      seek.push_back(console);
      horizon_s = std::max(horizon_s, Horizon(*party.graph, party.window));
    }
  }
  if (all.size() < 2) return {};
  // Each has already paid its cost within its own horizon; here it is paid in the longest of them,
  // so that the cost alone refuses nobody twice.
  config.window_s = horizon_s;
  const RoundRoles roles{.seek = seek, .may_be_ejected = may_be_ejected};
  Asked asked{.round = DecideAll(windows.Take(), all, config, &roles)};
  for (size_t i = 0; i < asked.round.consoles.size(); ++i) {
    asked.console.try_emplace(asked.round.consoles[i].console, i);
  }
  for (size_t i = 0; i < parties.size(); ++i) {
    asked.proposal.try_emplace(parties[i].decision.console, i);
  }
  return asked;
}

// The step's decisions, one for each console that moves objects: those that seek first, as an
// object that several share moves for one of them. None where a part of it is not to be had: of a
// party that was not asked for, which is now, nothing may be known that it could be moved on.
std::vector<Planner::Part> Planner::PartsOf(const RoundStep& step, const Asked& asked,
                                            std::vector<Proposal>* proposals) const {
  std::set<size_t> of_step;
  for (const ObjectId& console : step.consoles) {
    const auto it = asked.proposal.find(console);
    if (it != asked.proposal.end()) of_step.insert(it->second);
  }
  std::vector<Move> left = step.moves;
  std::vector<Part> parts;
  Snapshot named;  // what the step is about, for people
  for (const bool seeking : {true, false}) {
    for (const size_t index : of_step) {
      Proposal& proposal = (*proposals)[index];
      if (Seeks(proposal) != seeking) continue;
      // Of thousands of parties few are in a step.
      if (!proposal.given) proposal.decision = placement::Decide(proposal.window, config_);
      const ObjectId& console = proposal.decision.console;
      if (!proposal.decision.present) return {};
      std::vector<Move> moves;
      std::erase_if(left, [&](const Move& move) {
        const bool own = Holds(proposal.window, move.object);
        if (own) moves.push_back(move);
        return own;
      });
      if (moves.empty()) continue;
      Part& part = parts.emplace_back(Part{.proposal = &proposal, .seeks = seeking});
      part.decision = proposal.decision;
      part.as_proposed = proposal.goes && std::is_permutation(moves.begin(), moves.end(),
                                                              proposal.decision.moves.begin(),
                                                              proposal.decision.moves.end());
      if (part.as_proposed) continue;
      const RoundConsole& predicted = asked.round.consoles[asked.console.at(console)];
      part.decision.chosen = CandidateFor(moves, predicted.t_new_s, &part.decision);
      part.decision.outcome = Outcome::kMove;
      part.decision.reason = seeking ? Reason::kNetBenefit : Reason::kEjected;
      part.decision.moves = std::move(moves);
    }
  }
  for (const Part& part : parts) {
    const Snapshot& window = part.proposal->window;
    named.objects.insert(named.objects.end(), window.objects.begin(), window.objects.end());
    named.nodes.insert(named.nodes.end(), window.nodes.begin(), window.nodes.end());
  }
  for (Part& part : parts) {
    if (part.as_proposed) continue;
    part.decision.explained = part.seeks
                                  ? Format(step, named)
                                  : absl::StrCat("Making room at a full node for console ",
                                                 ToString(parts.front().decision.console),
                                                 ", which gains more there. ", Format(step, named));
  }
  return parts;
}

std::optional<Reason> Planner::HoldBackStep(const RoundStep& step, const std::vector<Part>& parts,
                                            double now_s) const {
  const bool ejects =
      std::any_of(parts.begin(), parts.end(), [](const Part& p) { return !p.seeks; });
  for (const Part& part : parts) {
    const Graph& graph = *part.proposal->graph;
    if (part.seeks && !part.as_proposed) {
      const auto why = WhyNot(graph, part.proposal->window, part.decision, *part.decision.chosen);
      if (why) return why;
    }
    const bool was_ejected = graph.last_move && graph.last_move->ejected &&
                             graph.last_move->phase_changes == graph.phases.changes();
    const double sure_s = step.net_benefit_s - config_.confidence_z * step.benefit_deviation_s;
    if (part.seeks && ejects && was_ejected && sure_s <= planner_.hysteresis * step.threshold_s) {
      return Reason::kHysteresis;
    }
    if (const auto held = HoldBack(graph, part.decision, now_s, true)) return held;
  }
  return std::nullopt;
}

// No step of the round is for it.
void Planner::Refrain(const Asked& asked, double now_s, Proposal* proposal) {
  if (!proposal->goes) return;
  const auto it = asked.console.find(proposal->decision.console);
  const RoundConsole* of = it == asked.console.end() ? nullptr : &asked.round.consoles[it->second];
  const Reason reason = of == nullptr ? Reason::kPresentIsBest : of->reason;
  if (reason == Reason::kOthersLose) {
    Hold(reason,
         absl::StrCat("others on the node would lose ", of->others_lose_s, " s, which leaves ",
                      of->own_net_benefit_s - of->others_lose_s, " s of its net benefit of ",
                      of->own_net_benefit_s, " s: not above the threshold of ", of->own_threshold_s,
                      " s"),
         &proposal->decision);
  } else if (reason == Reason::kNoMemory) {
    Hold(reason, "others gain more by the memory that is free there", &proposal->decision);
  } else if (reason == Reason::kNoCpu) {
    Hold(reason,
         absl::StrCat("the server's CPU limit, ", 100 * config_.cpu_share_max,
                      " % of its capacity for objects that it pulls, is used by others"),
         &proposal->decision);
  } else if (!asked.round.steps.empty()) {
    Hold(Reason::kWaitsForTurn, &proposal->decision);
  } else {
    Conclude(now_s, proposal);
  }
  proposal->goes = false;
}

void Planner::DecideTogether(double now_s, const absl::flat_hash_set<ObjectId>& refused,
                             std::vector<Proposal>* proposals) {
  const size_t given = proposals->size();
  AddParties(now_s, refused, proposals);
  const auto parties = static_cast<double>(proposals->size());
  next_round_s_ = now_s + config_.window_s * parties / kRoundPartiesAWindow;
  const Asked asked = AskRound(*proposals, now_s);
  std::set<const Proposal*> settled;
  for (const RoundStep& step : asked.round.steps) {
    std::vector<Part> parts = PartsOf(step, asked, proposals);
    const std::optional<Reason> held = HoldBackStep(step, parts, now_s);
    const bool ejects =
        std::any_of(parts.begin(), parts.end(), [](const Part& p) { return !p.seeks; });
    const uint64_t number = ejects && !held ? ++steps_ : 0;
    for (Part& part : parts) {
      if (held && !part.seeks) continue;
      Proposal& proposal = *part.proposal;
      proposal.decision = std::move(part.decision);
      proposal.goes = false;
      proposal.step = number;
      settled.insert(&proposal);
      if (held) {
        Hold(*held, &proposal.decision);
      } else {
        LetGo(*proposal.graph, proposal.window, proposal.decision, now_s);
      }
    }
  }
  for (Proposal& proposal : *proposals) {
    if (Seeks(proposal) && !settled.contains(&proposal)) Refrain(asked, now_s, &proposal);
  }
  proposals->erase(
      std::remove_if(
          proposals->begin() + static_cast<ptrdiff_t>(given), proposals->end(),
          [](const Proposal& party) { return party.decision.reason != Reason::kEjected; }),
      proposals->end());
}

void Planner::DecideRound(absl::Span<const ObjectId> consoles, double now_s,
                          absl::FunctionRef<void(Decided)> take) {
  const std::optional<double> now = Now(now_s);
  const auto give = [&](Proposal& proposal) {
    Conclude(now.value_or(0), &proposal);
    take({Count(std::move(proposal.decision)), std::move(proposal.window), proposal.step});
  };
  // Of most consoles there is no more to say: as one of many they would only take memory.
  std::vector<Proposal> proposals;
  absl::flat_hash_set<ObjectId> refused;
  for (const ObjectId& console : consoles) {
    Proposal proposal = ProposeFor(console, now);
    if (proposal.goes || Seeks(proposal)) {
      proposals.push_back(std::move(proposal));
    } else {
      if (!proposal.decision.present) refused.insert(console);
      give(proposal);
    }
  }
  const bool seek = std::any_of(proposals.begin(), proposals.end(),
                                [&](const Proposal& proposal) { return Seeks(proposal); });
  if (now && seek && graphs_.size() > 1) {
    if (*now >= next_round_s_) {
      DecideTogether(*now, refused, &proposals);
    } else {
      for (Proposal& proposal : proposals) {
        if (!proposal.goes || proposal.harmless) continue;
        Hold(Reason::kWaitsForTurn, &proposal.decision);
        proposal.goes = false;
      }
    }
  }
  for (Proposal& proposal : proposals) give(proposal);
}

std::vector<Planner::Decided> Planner::DecideRound(absl::Span<const ObjectId> consoles,
                                                   double now_s) {
  absl::flat_hash_map<ObjectId, size_t> place;
  for (const ObjectId& console : consoles) place.try_emplace(console, place.size());
  std::vector<Decided> decided(place.size());
  DecideRound(consoles, now_s, [&](Decided one) {
    const auto [it, ejected] = place.try_emplace(one.decision.console, decided.size());
    if (ejected) decided.emplace_back();
    decided[it->second] = std::move(one);
  });
  return decided;
}

}  // namespace abacus::placement
