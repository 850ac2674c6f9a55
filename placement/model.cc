#include "placement/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace abacus::placement {
namespace {

double Floored(double load) { return std::max(1.0, load); }

// One console: T falls under its own image, so the fixed point is between the two; see Predict().
Loads SolveOne(double fixed_s, absl::Span<const Use> uses, absl::Span<const NodeBase> nodes,
               const FixedPointOptions& options) {
  Loads solved;
  solved.loads.resize(nodes.size());
  const auto time_at = [&](double response_s) {
    for (size_t n = 0; n < nodes.size(); ++n) solved.loads[n] = Floored(nodes[n].load);
    double total_s = fixed_s;
    for (const Use& use : uses) {
      const NodeBase& node = nodes[use.node];
      if (response_s > 0 && !node.load_is_constant) {
        solved.loads[use.node] = Floored(node.load + use.at_once * use.cpu_s / response_s);
      }
      total_s += use.cpu_s * SlowDown(solved.loads[use.node], node.cores, node.contention);
    }
    return total_s;
  };
  double response_s = time_at(0);
  double last_distance_s = INFINITY;
  solved.converged = false;
  while (solved.iterations < options.iterations_max) {
    ++solved.iterations;
    const double next_s = time_at(response_s);
    solved.response_s = {next_s};
    const double distance_s = next_s - response_s;
    if (std::abs(distance_s) <= options.tolerance * next_s) {
      solved.converged = true;
      break;
    }
    const bool halved = std::abs(distance_s) <= last_distance_s / 2;
    response_s = halved ? next_s : response_s + distance_s / 2;
    last_distance_s = std::abs(distance_s);
  }
  return solved;
}

}  // namespace

Loads SolveLoads(absl::Span<const double> fixed_s, absl::Span<const Use> uses,
                 absl::Span<const NodeBase> nodes, const FixedPointOptions& options) {
  if (fixed_s.size() == 1) return SolveOne(fixed_s[0], uses, nodes, options);
  Loads solved;
  std::vector<double> slow_down(nodes.size());
  const auto apply = [&](const Figures* response_s) {
    for (size_t n = 0; n < nodes.size(); ++n) solved.loads[n] = nodes[n].load;
    for (const Use& use : uses) {
      if (response_s == nullptr || nodes[use.node].load_is_constant) continue;
      solved.loads[use.node] += use.at_once * use.cpu_s / (*response_s)[use.console];
    }
    for (size_t n = 0; n < nodes.size(); ++n) {
      solved.loads[n] = Floored(solved.loads[n]);
      slow_down[n] = SlowDown(solved.loads[n], nodes[n].cores, nodes[n].contention);
    }
    solved.response_s.assign(fixed_s.begin(), fixed_s.end());
    for (const Use& use : uses) solved.response_s[use.console] += use.cpu_s * slow_down[use.node];
  };
  solved.loads.resize(nodes.size());
  apply(nullptr);
  Figures response_s = solved.response_s;
  solved.converged = false;
  while (solved.iterations < options.iterations_max && !solved.converged) {
    ++solved.iterations;
    apply(&response_s);
    solved.converged = true;
    for (size_t c = 0; c < response_s.size(); ++c) {
      const double next_s = solved.response_s[c];
      solved.converged &= std::abs(next_s - response_s[c]) <= options.tolerance * next_s;
      response_s[c] = std::sqrt(response_s[c] * next_s);
    }
  }
  return solved;
}

double CrossingTime(const Graph& graph, const GraphEdge& edge, uint32_t a, uint32_t b) {
  return a == b ? 0 : StallTime(edge.flow, graph.LinkOf(a, b).link);
}

Trial::Trial(const Graph& graph, const FixedPointOptions& options, Placement placement,
             std::vector<Beside> beside)
    : graph_(&graph),
      options_(options),
      placement_(std::move(placement)),
      beside_(std::move(beside)),
      nodes_(graph.nodes.size()),
      cpu_s_(graph.consoles.size() * nodes_, 0),
      network_s_(graph.consoles.size(), 0),
      stall_s_(graph.consoles.size(), 0),
      background_(nodes_, 0) {
  if (beside_.empty()) {
    for (const GraphNode& node : graph.nodes) beside_.push_back({.load = node.others});
  }
  for (uint32_t j = 0; j < graph.objects.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    for (uint32_t p = object.parts_begin; p < object.parts_end; ++p) {
      stall_s_[graph.parts[p].console] += graph.parts[p].part * object.own_stall_s;
    }
    AddObject(j, placement_[j], 1);
  }
  for (const GraphEdge& edge : graph.edges) {
    AddEdge(edge, placement_[edge.above], placement_[edge.below], 1);
  }
}

void Trial::AddObject(uint32_t object, uint32_t node, double sign) {
  const GraphObject& o = graph_->objects[object];
  const double rate = graph_->nodes[node].host.rate;
  for (uint32_t p = o.parts_begin; p < o.parts_end; ++p) {
    const ConsolePart& part = graph_->parts[p];
    cpu_s_[part.console * nodes_ + node] += sign * part.part * ProcessingTime(o.work, rate);
  }
  background_[node] += sign * o.background_work / (rate * graph_->window_s);
}

void Trial::AddEdge(const GraphEdge& edge, uint32_t a, uint32_t b, double sign) {
  if (a == b) return;
  if (!graph_->LinkOf(a, b).usable) {
    impossible_ += sign > 0 ? 1 : -1;
    return;
  }
  const double crossing_s = CrossingTime(*graph_, edge, a, b);
  const GraphObject& caller = graph_->objects[edge.above];
  for (uint32_t p = caller.parts_begin; p < caller.parts_end; ++p) {
    const ConsolePart& part = graph_->parts[p];
    network_s_[part.console] += sign * part.part * crossing_s;
  }
}

void Trial::Put(uint32_t object, uint32_t node) {
  const uint32_t from = placement_[object];
  if (from == node) return;
  for (const uint32_t e : EdgesOf(object)) {
    const GraphEdge& edge = graph_->edges[e];
    const uint32_t other = placement_[edge.above == object ? edge.below : edge.above];
    AddEdge(edge, from, other, -1);
    AddEdge(edge, node, other, 1);
  }
  AddObject(object, from, -1);
  AddObject(object, node, 1);
  placement_[object] = node;
}

void Trial::PutUnit(uint32_t unit, uint32_t node) {
  for (const uint32_t object : graph_->units[unit].objects) Put(object, node);
}

Evaluation Trial::Evaluate() const {
  const size_t consoles = network_s_.size();
  // Small on the stack's terms: a search asks this many thousand times.
  Figures fixed_s(consoles);
  absl::InlinedVector<NodeBase, 4> nodes(nodes_);
  absl::InlinedVector<Use, 4> uses;
  uses.reserve(cpu_s_.size());
  for (uint32_t c = 0; c < consoles; ++c) fixed_s[c] = FixedOf(c);
  for (uint32_t n = 0; n < nodes_; ++n) {
    const GraphNode& node = graph_->nodes[n];
    nodes[n] = {.cores = node.host.cores,
                .contention = node.host.contention,
                .load = beside_[n].load,
                .load_is_constant = node.load_is_constant};
    if (!node.load_is_constant) nodes[n].load += std::max(0.0, background_[n]);
  }
  for (uint32_t c = 0; c < consoles; ++c) {
    for (uint32_t n = 0; n < nodes_; ++n) {
      const double cpu_s = cpu_s_[c * nodes_ + n];
      if (cpu_s > 0) uses.push_back({c, n, cpu_s, graph_->at_once[c]});
    }
  }
  Loads solved = SolveLoads(fixed_s, uses, nodes, options_);
  Evaluation evaluation;
  evaluation.possible = impossible_ == 0;
  evaluation.response_s = std::move(solved.response_s);
  for (const double s : evaluation.response_s) evaluation.response_sum_s += s;
  for (uint32_t n = 0; n < nodes_; ++n) {
    const Beside& beside = beside_[n];
    if (beside.cpu_s == 0) continue;
    const double added = beside.remains * (solved.loads[n] - Floored(beside.load));
    evaluation.beside_s +=
        beside.cpu_s * SlowDownOn(graph_->nodes[n].host, Floored(beside.load) + added);
  }
  evaluation.loads = std::move(solved.loads);
  evaluation.iterations = solved.iterations;
  evaluation.converged = solved.converged;
  return evaluation;
}

Prediction Trial::ToPrediction(const Evaluation& evaluation, uint32_t client,
                               uint32_t server) const {
  Prediction prediction;
  std::vector<bool> is_client(nodes_, false);
  for (uint32_t j = 0; j < graph_->objects.size(); ++j) {
    const ObjectId& id = graph_->objects[j].statistics->id;
    const auto& consoles = graph_->consoles;
    if (std::find(consoles.begin(), consoles.end(), id) != consoles.end()) {
      is_client[graph_->present[j]] = true;
    }
  }
  for (size_t c = 0; c < network_s_.size(); ++c) {
    prediction.terms.network_s += network_s_[c];
    prediction.terms.own_stall_s += stall_s_[c];
    for (uint32_t n = 0; n < nodes_; ++n) {
      const double cpu_s = CpuOf(static_cast<uint32_t>(c), n) *
                           SlowDownOn(graph_->nodes[n].host, evaluation.loads[n]);
      (is_client[n] ? prediction.terms.client_cpu_s : prediction.terms.server_cpu_s) += cpu_s;
    }
  }
  prediction.response_s = evaluation.response_sum_s;
  prediction.loads = {evaluation.loads[client], evaluation.loads[server]};
  prediction.iterations = evaluation.iterations;
  prediction.converged = evaluation.converged;
  return prediction;
}

double BenefitDeviation(const Graph& graph, const Placement& from, const Evaluation& at_from,
                        const Placement& to, const Evaluation& at_to) {
  double variance = 0;
  const auto add = [&](double derivative, double deviation) {
    variance += (derivative * deviation) * (derivative * deviation);
  };
  const auto seconds_a_unit = [&](const Evaluation& at, uint32_t n) {
    const Host& host = graph.nodes[n].host;
    return SlowDownOn(host, at.loads[n]) / host.rate;
  };
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    if (object.work_deviation == 0) continue;
    add(seconds_a_unit(at_from, from[j]) - seconds_a_unit(at_to, to[j]), object.work_deviation);
  }
  const auto link_index = [&](const GraphEdge& edge, const Placement& placement) {
    const auto [a, b] = std::minmax(placement[edge.above], placement[edge.below]);
    return a * graph.nodes.size() + b;
  };
  std::vector<double> bytes(graph.links.size(), 0);  // more that crosses a link before than after
  for (const GraphEdge& edge : graph.edges) {
    const size_t before = link_index(edge, from);
    const size_t after = link_index(edge, to);
    const GraphLink& link_before = graph.links[before];
    const GraphLink& link_after = graph.links[after];
    const double seconds_before = link_before.usable ? 1 / link_before.link.bandwidth_bytes_s : 0;
    const double seconds_after = link_after.usable ? 1 / link_after.link.bandwidth_bytes_s : 0;
    add(seconds_before - seconds_after, edge.bytes_deviation);
    bytes[before] += edge.flow.bytes;
    bytes[after] -= edge.flow.bytes;
  }
  for (size_t l = 0; l < graph.links.size(); ++l) {
    const GraphLink& link = graph.links[l];
    if (!link.usable || bytes[l] == 0) continue;
    const double bandwidth = link.link.bandwidth_bytes_s;
    add(bytes[l] / bandwidth / bandwidth, link.bandwidth_deviation_bytes_s);
  }
  return std::sqrt(variance);
}

}  // namespace abacus::placement
