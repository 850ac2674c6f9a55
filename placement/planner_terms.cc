#include "placement/planner_terms.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace abacus::placement {
namespace {

// A response time of nothing adds no load.
constexpr double kResponseMin_s = 1e-12;

double LoadOf(const Decision& decision, const std::vector<double>& node_loads, const PerSide& loads,
              NodeId node) {
  for (size_t i = 0; i < node_loads.size() && i < decision.nodes.size(); ++i) {
    if (decision.nodes[i].node == node) return node_loads[i];
  }
  return node == decision.client.node ? loads.client : loads.server;
}

// The part of the time that calls to the object are running or ready on the node.
double ShareOf(const Decision& decision, const StackObject& object, const NodeStatistics& node,
               double load, double response_s) {
  return decision.calls_at_once * object.layer.work / node.rate *
         SlowDown(load, node.cores, node.contention) / std::max(kResponseMin_s, response_s);
}

LoadChange& ChangeOf(std::vector<LoadChange>& changes, NodeId node) {
  const auto it = std::find_if(changes.begin(), changes.end(),
                               [node](const LoadChange& change) { return change.node == node; });
  return it != changes.end() ? *it : changes.emplace_back(LoadChange{.node = node});
}

}  // namespace

void Refuse(Reason reason, const std::string& why, Decision* decision) {
  decision->outcome = Outcome::kStay;
  decision->reason = reason;
  decision->moves.clear();
  decision->explained = absl::StrCat("Staying: ", why, ".");
}

const char* WhyHeldBack(Reason reason) {
  switch (reason) {
    case Reason::kDryRun:
      return "decisions are only recorded";
    case Reason::kMoveUnderWay:
      return "the last move of this graph has not ended yet";
    case Reason::kWaitsForWindow:
      return "less than a whole window was seen, and the gain is not so large, or the calls not so "
             "many, that it would do";
    case Reason::kUncertain:
      return "the figures vary so much that it might not pay";
    case Reason::kCoolDown:
      return "the last move was too short a time ago";
    case Reason::kHysteresis:
      return "it would undo the last move, for which the gain is too small";
    case Reason::kPhaseTooShort:
      return "the phase is expected to end before the move has paid for itself";
    case Reason::kWaitsForTurn:
      return "others are moving for the same relief, and what they leave is measured first";
    case Reason::kClaimed:
      return "an object of it is being moved for another console";
    default:
      return "held back";
  }
}

void Hold(Reason reason, Decision* decision) { Hold(reason, WhyHeldBack(reason), decision); }

void Hold(Reason reason, const std::string& why, Decision* decision) {
  const std::string would = decision->Explanation();
  Refuse(reason, why, decision);
  absl::StrAppend(&decision->explained, " Else it would be: ", would);
}

const StackObject* StackObjectOf(const Decision& decision, const ObjectId& id) {
  for (const StackObject& object : decision.stack) {
    if (object.id == id) return &object;
  }
  return nullptr;
}

const NodeStatistics* NodeOf(const Decision& decision, NodeId node) {
  for (const NodeStatistics& one : decision.nodes) {
    if (one.node == node) return &one;
  }
  if (decision.client.node == node) return &decision.client;
  return decision.server.node == node ? &decision.server : nullptr;
}

double LoadOf(const Decision& decision, const Candidate& candidate, NodeId node) {
  return LoadOf(decision, candidate.node_loads, candidate.prediction.loads, node);
}

size_t CandidateFor(const std::vector<Move>& moves, double response_s, Decision* decision) {
  const auto found = std::find_if(
      decision->candidates.begin(), decision->candidates.end(), [&](const Candidate& candidate) {
        return std::is_permutation(candidate.moves.begin(), candidate.moves.end(), moves.begin(),
                                   moves.end());
      });
  if (found != decision->candidates.end()) {
    return static_cast<size_t>(found - decision->candidates.begin());
  }
  Candidate& added = decision->candidates.emplace_back();
  added.moves = moves;
  added.objects_moved = moves.size();
  added.prediction = *decision->present;
  added.prediction.response_s = response_s;
  added.node_loads = decision->present_loads;
  added.benefit_s = decision->present->response_s - response_s;
  added.net_benefit_s = added.benefit_s;
  added.threshold_s = decision->b_thresh * response_s;
  added.verdict = Verdict::kPays;
  return decision->candidates.size() - 1;
}

bool Comparable(const Candidate& candidate) {
  switch (candidate.verdict) {
    case Verdict::kPays:
    case Verdict::kBelowThreshold:
    case Verdict::kUncertain:
    case Verdict::kSlower:
      return true;
    default:
      return false;
  }
}

double SureNetBenefit(const Decision& decision, const Candidate& candidate) {
  return candidate.net_benefit_s - decision.confidence_z * candidate.benefit_deviation_s;
}

double CallsBehind(const Snapshot& window, const std::vector<Move>& moves) {
  absl::flat_hash_map<ObjectId, NodeId> before;
  for (const ObjectStatistics& object : window.objects) before.emplace(object.id, object.node);
  absl::flat_hash_map<ObjectId, NodeId> after = before;
  absl::flat_hash_set<ObjectId> moved;
  for (const Move& move : moves) {
    after[move.object] = move.to;
    moved.insert(move.object);
  }
  const auto together = [](const auto& nodes, const EdgeStatistics& edge) {
    return nodes.at(edge.from) == nodes.at(edge.to);
  };
  double entering = 0;
  double heaviest_bytes = -1;
  double calls_of_heaviest = std::numeric_limits<double>::infinity();
  for (const EdgeStatistics& edge : window.edges) {
    // A digest may tell of calls to what it does not know.
    if (!before.contains(edge.from) || !before.contains(edge.to)) continue;
    if (moved.contains(edge.to) && !moved.contains(edge.from)) entering += edge.calls;
    if (together(before, edge) == together(after, edge)) continue;
    const double bytes = edge.request_bytes + edge.reply_bytes;
    if (bytes <= heaviest_bytes) continue;
    heaviest_bytes = bytes;
    calls_of_heaviest = edge.calls;
  }
  return std::min(entering, calls_of_heaviest);
}

std::vector<LoadChange> LoadChanges(const Decision& decision) {
  const Candidate& chosen = decision.candidates[*decision.chosen];
  const Prediction& present = *decision.present;
  std::vector<LoadChange> changes;
  for (const StackObject& object : decision.stack) {
    NodeId to = object.node;
    for (const Move& move : chosen.moves) {
      if (move.object == object.id) to = move.to;
    }
    const NodeStatistics* node_before = NodeOf(decision, object.node);
    const NodeStatistics* node_after = NodeOf(decision, to);
    if (node_before == nullptr || node_after == nullptr) continue;
    const double load_before = LoadOf(decision, decision.present_loads, present.loads, object.node);
    ChangeOf(changes, object.node).load -=
        ShareOf(decision, object, *node_before, load_before, present.response_s);
    ChangeOf(changes, to).load += ShareOf(
        decision, object, *node_after, LoadOf(decision, chosen, to), chosen.prediction.response_s);
  }
  return changes;
}

std::vector<ObjectId> AnchoredCallees(const Decision& decision, NodeId node) {
  const std::vector<Move>& moves = decision.candidates[*decision.chosen].moves;
  std::vector<ObjectId> callees;
  for (const StackEdge& edge : decision.edges) {
    const ObjectId& caller = decision.stack[edge.above].id;
    const StackObject& callee = decision.stack[edge.below];
    if (callee.node != node || !callee.fixed) continue;
    const bool moves_there = std::any_of(moves.begin(), moves.end(), [&](const Move& move) {
      return move.object == caller && move.to == node;
    });
    if (moves_there) callees.push_back(callee.id);
  }
  return callees;
}

bool PaysAtWorst(const Decision& decision, NodeId node, double tasks) {
  const Candidate& chosen = decision.candidates[*decision.chosen];
  const NodeStatistics* at = NodeOf(decision, node);
  if (at == nullptr || !(at->rate > 0) || !(at->cores > 0)) return false;
  double cpu_s = 0;
  for (const StackObject& object : decision.stack) {
    NodeId to = object.node;
    for (const Move& move : chosen.moves) {
      if (move.object == object.id) to = move.to;
    }
    if (to == node) cpu_s += object.layer.work / at->rate;
  }
  const double beside = at->load + tasks;
  const double predicted = SlowDown(LoadOf(decision, chosen, node), at->cores, at->contention);
  const double slower_s = cpu_s * std::max(0.0, SlowDown(beside + 1, at->cores, 1) - predicted);
  const double others_lose_s = beside * cpu_s / at->cores;
  const double response_s = chosen.prediction.response_s + slower_s;
  return SureNetBenefit(decision, chosen) - slower_s - others_lose_s >
         decision.b_thresh * response_s;
}

}  // namespace abacus::placement
