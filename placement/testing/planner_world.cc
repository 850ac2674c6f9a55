#include "placement/testing/planner_world.h"

#include <algorithm>

#include "placement/config.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement::testing {

NodeId PlannerWorld::NodeOf(const ObjectId& object) { return ObjectOf(truth_, object).node; }

std::set<ObjectId> PlannerWorld::ReachedBy(const ObjectId& console) const {
  std::set<ObjectId> reached = {console};
  std::vector<ObjectId> next = {console};
  while (!next.empty()) {
    const ObjectId from = next.back();
    next.pop_back();
    for (const EdgeStatistics& edge : truth_.edges) {
      if (edge.from == from && reached.insert(edge.to).second) next.push_back(edge.to);
    }
  }
  return reached;
}

Snapshot PlannerWorld::SampleOf(const ObjectId& console, double length_s, bool together) const {
  Snapshot s;
  s.window_s = length_s;
  s.console = console;
  std::set<ObjectId> reached = ReachedBy(console);
  const auto mobile = [&](const ObjectId& id) {
    return std::any_of(truth_.objects.begin(), truth_.objects.end(),
                       [&](const ObjectStatistics& o) { return o.id == id && o.mobile; });
  };
  std::set<ObjectId> joined = {console};
  for (size_t before = 0; together && before != joined.size();) {
    before = joined.size();
    for (const ObjectId& other : truth_.consoles) {
      const std::set<ObjectId> own = ReachedBy(other);
      const bool shares = std::any_of(own.begin(), own.end(), [&](const ObjectId& id) {
        return reached.contains(id) && mobile(id);
      });
      if (!shares) continue;
      joined.insert(other);
      reached.insert(own.begin(), own.end());
    }
  }
  if (joined.size() > 1) s.consoles.assign(joined.begin(), joined.end());
  const double scale = length_s / truth_.window_s;
  std::set<NodeId> nodes;
  for (const ObjectStatistics& object : truth_.objects) {
    if (!reached.contains(object.id)) continue;
    nodes.insert(object.node);
    ObjectStatistics& part = s.objects.emplace_back(object);
    for (double* figure : {&part.cpu_s, &part.background_cpu_s, &part.own_stall_s,
                           &part.bytes_processed, &part.threads_s, &part.busy_s, &part.calls}) {
      *figure *= scale;
    }
  }
  for (const EdgeStatistics& edge : truth_.edges) {
    if (!reached.contains(edge.from)) continue;
    EdgeStatistics& part = s.edges.emplace_back(edge);
    for (double* figure : {&part.calls, &part.request_bytes, &part.reply_bytes}) *figure *= scale;
  }
  for (const NodeStatistics& node : truth_.nodes) {
    if (nodes.contains(node.node)) s.nodes.push_back(node);
  }
  for (const LinkStatistics& link : truth_.links) {
    if (nodes.contains(link.a) && nodes.contains(link.b)) s.links.push_back(link);
  }
  return s;
}

void PlannerWorld::CarryOut(const std::vector<Move>& moves) {
  truth_ = After(truth_, moves, Config());
}

}  // namespace abacus::placement::testing
