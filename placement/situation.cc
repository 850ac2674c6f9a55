// What may be where, from one placement on (search.h).

#include <algorithm>
#include <cmath>

#include "placement/search.h"

namespace abacus::placement {

Situation Situation::Of(const Graph& graph, const FixedPointOptions& options) {
  Situation situation{.graph = &graph, .at = graph.present, .options = options};
  bool limited = false;
  for (const GraphNode& node : graph.nodes) {
    situation.free_bytes.push_back(node.memory_free_bytes);
    situation.beside.push_back({.load = node.others});
    limited |= std::isfinite(node.cpu_limit);
  }
  if (!limited) return situation;
  for (const GraphNode& node : graph.nodes) situation.free_cores.push_back(node.cpu_limit);
  return situation;
}

Situation Situation::MovedTo(const Placement& to) const {
  Situation moved = *this;
  moved.at = to;
  for (size_t j = 0; j < to.size(); ++j) {
    const auto bytes = static_cast<double>(graph->objects[j].statistics->memory_bytes);
    moved.free_bytes[at[j]] += bytes;
    moved.free_bytes[to[j]] -= bytes;
  }
  return moved;
}

FixedPointOptions FixedPointOptionsOf(const Config& config) {
  return {.iterations_max = config.fixed_point_iterations_max,
          .tolerance = config.fixed_point_tolerance,
          .client_load_constant = config.client_load_constant};
}

MigrationCost CostOf(const Graph& graph, const Placement& from, const Placement& to,
                     const MigrationHistory& history, const Config& config) {
  if (from == to) return {};
  MigrationCost cost;
  cost.quiesce_s = history.count > 0 ? history.quiesce_s : config.quiesce_prior_s;
  double round_trip_s = 0;
  for (size_t j = 0; j < from.size(); ++j) {
    if (from[j] == to[j]) continue;
    const GraphLink& link = graph.LinkOf(from[j], to[j]);
    const auto bytes = static_cast<double>(graph.objects[j].statistics->checkpoint_bytes);
    cost.checkpoint_bytes += bytes;
    cost.transfer_s += bytes * link.transfer_s_byte;
    round_trip_s = std::max(round_trip_s, link.protocol_round_trip_s);
  }
  cost.protocol_s = config.protocol_round_trips * round_trip_s;
  return cost;
}

bool MemoryKnown(const Situation& situation, const Placement& to) {
  const Graph& graph = *situation.graph;
  for (size_t j = 0; j < to.size(); ++j) {
    // Limits that the machine sets are soft; one set by hand is meant.
    const uint32_t from = situation.at[j];
    if (to[j] != from && graph.nodes[to[j]].statistics->memory_limit_bytes &&
        !graph.nodes[from].statistics->sees_memory) {
      return false;
    }
  }
  return true;
}

bool Fits(const Situation& situation, const Placement& to) {
  if (!MemoryKnown(situation, to)) return false;
  std::vector<double> gained(situation.free_bytes.size(), 0);
  for (size_t j = 0; j < to.size(); ++j) {
    if (to[j] == situation.at[j]) continue;
    const auto bytes = static_cast<double>(situation.graph->objects[j].statistics->memory_bytes);
    gained[to[j]] += bytes;
    gained[situation.at[j]] -= bytes;
  }
  for (size_t n = 0; n < gained.size(); ++n) {
    if (gained[n] > 0 && gained[n] > situation.free_bytes[n]) return false;
  }
  return true;
}

bool MayBe(const Graph& graph, const Placement& at, uint32_t unit, uint32_t node) {
  const Unit& u = graph.units[unit];
  if (at[u.objects.front()] == node) return true;
  return std::binary_search(u.targets.begin(), u.targets.end(), node);
}

bool Allowed(const Graph& graph, const Placement& at, const Placement& to) {
  for (uint32_t j = 0; j < at.size(); ++j) {
    const uint32_t unit = graph.objects[j].unit;
    if (to[j] != at[j] && (graph.units[unit].fixed || !MayBe(graph, at, unit, to[j]))) return false;
    if (to[j] != to[graph.units[unit].objects.front()] && to[j] != at[j]) return false;
  }
  return true;
}

}  // namespace abacus::placement
