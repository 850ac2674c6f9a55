#include "placement/planner_terms.h"

#include <algorithm>

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

// The part of the response time that the object is running or ready on the node.
double ShareOf(const StackObject& object, const NodeStatistics& node, double load,
               double response_s) {
  return object.layer.work / node.rate * std::max(1.0, load / node.cores) /
         std::max(kResponseMin_s, response_s);
}

LoadChange& ChangeOf(std::vector<LoadChange>& changes, NodeId node) {
  const auto it = std::find_if(changes.begin(), changes.end(),
                               [node](const LoadChange& change) { return change.node == node; });
  return it != changes.end() ? *it : changes.emplace_back(LoadChange{.node = node});
}

}  // namespace

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
        ShareOf(object, *node_before, load_before, present.response_s);
    ChangeOf(changes, to).load +=
        ShareOf(object, *node_after, LoadOf(decision, chosen, to), chosen.prediction.response_s);
  }
  return changes;
}

}  // namespace abacus::placement
