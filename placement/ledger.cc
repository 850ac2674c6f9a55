#include "placement/ledger.h"

#include <algorithm>
#include <cmath>

namespace abacus::placement {

void Ledger::Add(NodeId node, const ObjectId& by, double load, double memory_bytes, double now_s) {
  std::vector<Change>& changes = nodes_[node];
  if (changes.size() >= kChangesMax) changes.erase(changes.begin());
  changes.push_back({by, now_s, load, memory_bytes});
}

void Ledger::Apply(double now_s, double window_s, Snapshot* snapshot) const {
  if (!(window_s > 0)) return;
  for (NodeStatistics& node : snapshot->nodes) {
    const auto it = nodes_.find(node.node);
    if (it == nodes_.end()) continue;
    for (const Change& change : it->second) {
      const double unseen = 1 - (now_s - change.at_s) / window_s;
      if (unseen <= 0) continue;
      node.load = std::max(0.0, node.load + change.load * unseen);
      if (node.memory_free_bytes) {
        // Free memory is a level and not a mean: it counts until the next digest can have told it,
        // for which a window is ample; taking it twice for a while only makes others wait.
        *node.memory_free_bytes = std::max(0.0, *node.memory_free_bytes - change.memory_bytes);
        if (node.memory_bytes) {
          *node.memory_free_bytes = std::min(*node.memory_free_bytes, *node.memory_bytes);
        }
      }
    }
  }
}

double Ledger::ChangedByOthers(NodeId node, const ObjectId& than, double now_s,
                               double window_s) const {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return 0;
  double sum = 0;
  for (const Change& change : it->second) {
    if (change.console != than && now_s - change.at_s < window_s) sum += std::abs(change.load);
  }
  return sum;
}

std::vector<ObjectId> Ledger::CameFor(NodeId node, const ObjectId& than, double now_s,
                                      double window_s) const {
  std::vector<ObjectId> consoles;
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return consoles;
  for (const Change& change : it->second) {
    if (change.load <= 0 || change.console == than || now_s - change.at_s >= window_s) continue;
    if (std::find(consoles.begin(), consoles.end(), change.console) == consoles.end()) {
      consoles.push_back(change.console);
    }
  }
  return consoles;
}

bool Ledger::Claimed(const ObjectId& object, const ObjectId& by, double now_s) const {
  const auto it = claims_.find(object);
  return it != claims_.end() && it->second.console != by && now_s < it->second.until_s;
}

void Ledger::Claim(const ObjectId& object, const ObjectId& by, double now_s, double at_most_s) {
  claims_[object] = {by, now_s + at_most_s};
  claimed_by_[by].push_back(object);
}

void Ledger::Release(const ObjectId& by) {
  const auto claimed = claimed_by_.find(by);
  if (claimed == claimed_by_.end()) return;
  for (const ObjectId& object : claimed->second) {
    const auto it = claims_.find(object);
    if (it != claims_.end() && it->second.console == by) claims_.erase(it);
  }
  claimed_by_.erase(claimed);
}

void Ledger::Trim(double now_s, double window_s) {
  if (now_s == trimmed_s_) return;
  trimmed_s_ = now_s;
  absl::erase_if(claims_, [&](const auto& claim) { return now_s >= claim.second.until_s; });
  absl::erase_if(nodes_, [&](auto& node) {
    std::erase_if(node.second, [&](const Change& c) { return now_s - c.at_s >= window_s; });
    return node.second.empty();
  });
}

}  // namespace abacus::placement
