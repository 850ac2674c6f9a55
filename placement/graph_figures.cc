// Reading a graph's figures out of a snapshot: checked, scaled to H, and shared out among consoles.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "placement/graph_reader.h"

namespace abacus::placement {

using graph_internal::Arc;
using graph_internal::kSeveral;
using graph_internal::LinkName;
using graph_internal::NameOf;
using graph_internal::WeightOf;

std::optional<Refusal> SnapshotReader::Impl::CheckWhole() const {
  figures::Check check;
  check.Within("window_s", snapshot_.window_s, figures::kWindowMin, figures::kSecondsMax);
  check.Within("measured_t_app_s", snapshot_.measured_t_app_s.value_or(0), 0, figures::kSecondsMax);
  if (check.failed()) return Refusal{Reason::kBadFigure, check.DetailOf("the snapshot")};
  if (snapshot_.history.count > 0) {
    check.Within("quiesce_s", snapshot_.history.quiesce_s, 0, figures::kSecondsMax);
  }
  if (!check.failed()) return std::nullopt;
  return Refusal{Reason::kBadFigure, check.DetailOf("the migration history")};
}

std::optional<Refusal> SnapshotReader::Impl::CheckNode(const NodeStatistics& node) const {
  const std::string name = absl::StrCat("node ", node.node);
  if (node.rate == 0) {
    return Refusal{Reason::kRateUnknown,
                   absl::StrCat("the processing rate of ", name, " is not calibrated yet")};
  }
  figures::Check check;
  check.Within("rate", node.rate, figures::kRateMin, figures::kRateMax);
  check.Within("cores", node.cores, figures::kCoresMin, figures::kCoresMax);
  check.Within("load", node.load, 0, figures::kLoadMax);
  check.Within("contention", node.contention, 0, 1);
  check.Within("memory_bytes", node.memory_bytes.value_or(0), 0, figures::kCountMax);
  check.Within("memory_free_bytes", node.memory_free_bytes.value_or(0), 0, figures::kCountMax);
  check.Within("memory_limit_bytes", node.memory_limit_bytes.value_or(0), 0, figures::kCountMax);
  // More free than there is: one of the two is wrong, and nothing says which.
  if (node.memory_bytes) {
    check.Within("memory_free_bytes", node.memory_free_bytes.value_or(0), 0, *node.memory_bytes);
  }
  if (!check.failed()) return std::nullopt;
  return Refusal{Reason::kBadFigure, check.DetailOf(name)};
}

std::optional<Refusal> SnapshotReader::Impl::CheckLink(NodeId a, NodeId b, GraphLink* link) const {
  const auto it = links_.find(std::minmax(a, b));
  if (it == links_.end()) {
    return Refusal{Reason::kUnknownLink,
                   absl::StrCat("the snapshot does not hold ", LinkName(a, b))};
  }
  if (it->second.times > 1) {
    return Refusal{Reason::kDuplicateEntry,
                   absl::StrCat("the snapshot holds ", LinkName(a, b), " twice")};
  }
  const LinkStatistics& s = *it->second.value;
  const std::string name = LinkName(a, b);
  if (!s.bandwidth_bytes_s || *s.bandwidth_bytes_s == 0) {
    return Refusal{Reason::kBandwidthUnknown,
                   absl::StrCat("the bandwidth of ", name, " is not known yet")};
  }
  if (!s.round_trip_s) {
    return Refusal{Reason::kRoundTripUnknown,
                   absl::StrCat("the round trip time of ", name, " is not known yet")};
  }
  figures::Check check;
  check.Within("bandwidth_bytes_s", *s.bandwidth_bytes_s, figures::kBandwidthMin,
               figures::kBandwidthMax);
  check.Within("round_trip_s", *s.round_trip_s, 0, figures::kRoundTripMax);
  check.Within("round_trip_bytes", s.round_trip_bytes, 0, figures::kCountMax);
  check.Within("measured_bytes", s.measured_bytes, 0, figures::kCountMax);
  check.Within("bandwidth_variance", s.bandwidth_variance, 0, figures::kVarianceMax);
  if (check.failed()) return Refusal{Reason::kBadFigure, check.DetailOf(name)};
  if (s.measured_bytes < config_.min_link_evidence_bytes) {
    return Refusal{Reason::kWeakLinkEvidence,
                   absl::StrCat("the bandwidth of ", name, " was measured over ", s.measured_bytes,
                                " bytes, fewer than ", config_.min_link_evidence_bytes)};
  }
  *link = {.usable = true,
           .link = {.bandwidth_bytes_s = *s.bandwidth_bytes_s,
                    .round_trip_s = *s.round_trip_s,
                    .round_trip_bytes = s.round_trip_bytes},
           .bandwidth_deviation_bytes_s = std::sqrt(s.bandwidth_variance),
           .statistics = &s,
           .transfer_s_byte = 1 / *s.bandwidth_bytes_s,
           .protocol_round_trip_s = *s.round_trip_s};
  return std::nullopt;
}

std::optional<Refusal> SnapshotReader::Impl::AddArc(const Arc& arc, Reading& reading) const {
  const EdgeStatistics& s = *arc.edge;
  figures::Check check;
  check.Within("calls", s.calls, 0, figures::kCountMax);
  check.Within("request_bytes", s.request_bytes, 0, figures::kCountMax);
  check.Within("reply_bytes", s.reply_bytes, 0, figures::kCountMax);
  check.Within("bytes_variance", s.bytes_variance, 0, figures::kVarianceMax);
  if (check.failed()) {
    const std::string name = absl::StrCat("the edge ", ToString(s.from), " to ", ToString(s.to));
    return Refusal{Reason::kBadFigure, check.DetailOf(name)};
  }
  Graph& graph = *reading.graph;
  const uint32_t from = reading.index[arc.from];
  const uint32_t to = reading.index[arc.to];
  const std::pair<uint32_t, uint32_t> ends(std::min(from, to), std::max(from, to));
  const auto [it, added] =
      reading.edge.try_emplace(ends, static_cast<uint32_t>(graph.edges.size()));
  if (added) graph.edges.push_back({.above = ends.first, .below = ends.second});
  GraphEdge& edge = graph.edges[it->second];
  edge.flow.calls += s.calls * graph.scale;
  edge.flow.bytes += (s.request_bytes + s.reply_bytes) * graph.scale;
  // Variances of what is independent add up; the deviation is their root.
  edge.bytes_deviation =
      std::hypot(edge.bytes_deviation, std::sqrt(s.bytes_variance) * graph.scale);
  reading.seen_bytes += s.request_bytes + s.reply_bytes;
  return std::nullopt;
}

std::optional<Refusal> SnapshotReader::Impl::FindEdges(Reading& reading) const {
  Graph& graph = *reading.graph;
  if (reading.callers.size() < graph.objects.size()) reading.callers.resize(graph.objects.size());
  for (const uint32_t rank : reading.ranks) {
    const Arc* last = nullptr;
    for (const Arc& arc : ArcsFrom(rank)) {
      if (!reading.index.contains(arc.to)) continue;  // another console
      if (last != nullptr && last->to == arc.to) {
        return Refusal{Reason::kDuplicateEntry,
                       absl::StrCat("the snapshot holds the edge ", ToString(arc.edge->from),
                                    " to ", ToString(arc.edge->to), " twice")};
      }
      last = &arc;
      if (auto refusal = AddArc(arc, reading)) return refusal;
      reading.callers[reading.index[arc.to]].push_back(
          {reading.index[arc.from], WeightOf(*arc.edge)});
    }
  }
  std::sort(graph.edges.begin(), graph.edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::pair(a.above, a.below) < std::pair(b.above, b.below);
  });
  graph.first_edge.assign(graph.objects.size() + 1, 0);
  for (const GraphEdge& edge : graph.edges) {
    ++graph.first_edge[edge.above + 1];
    ++graph.first_edge[edge.below + 1];
  }
  std::partial_sum(graph.first_edge.begin(), graph.first_edge.end(), graph.first_edge.begin());
  graph.edges_of.resize(2 * graph.edges.size());
  std::vector<uint32_t> at(graph.first_edge.begin(), graph.first_edge.end() - 1);
  for (uint32_t e = 0; e < graph.edges.size(); ++e) {
    graph.edges_of[at[graph.edges[e].above]++] = e;
    graph.edges_of[at[graph.edges[e].below]++] = e;
  }
  return std::nullopt;
}

// Strict only where calls cross now: without that link the present cannot be predicted. Any other
// that is missing only means that nothing goes where it would be needed.
std::optional<Refusal> SnapshotReader::Impl::FindLinks(Reading& reading) const {
  Graph& graph = *reading.graph;
  const auto nodes = static_cast<uint32_t>(graph.nodes.size());
  std::vector<bool> needed(nodes * nodes, false);
  for (const GraphEdge& edge : graph.edges) {
    const auto [a, b] = std::minmax(graph.present[edge.above], graph.present[edge.below]);
    if (a != b) needed[a * nodes + b] = true;
  }
  graph.links.assign(nodes * nodes, {});
  for (uint32_t a = 0; a < nodes; ++a) {
    GraphLink& self = graph.links[a * nodes + a];
    self.transfer_s_byte = self.protocol_round_trip_s = 0;
    for (uint32_t b = a + 1; b < nodes; ++b) {
      GraphLink link;
      auto refusal =
          CheckLink(graph.nodes[a].statistics->node, graph.nodes[b].statistics->node, &link);
      if (refusal && needed[a * nodes + b]) return refusal;
      if (refusal) ++graph.links_left_aside;
      graph.links[a * nodes + b] = graph.links[b * nodes + a] = link;
    }
  }
  CloseRoutes(graph);
  return std::nullopt;
}

// Floyd and Warshall; graphs have few nodes.
void SnapshotReader::Impl::CloseRoutes(Graph& graph) const {
  const auto nodes = static_cast<uint32_t>(graph.nodes.size());
  for (uint32_t via = 0; via < nodes; ++via) {
    for (uint32_t a = 0; a < nodes; ++a) {
      for (uint32_t b = 0; b < nodes; ++b) {
        GraphLink& link = graph.links[a * nodes + b];
        const GraphLink& first = graph.LinkOf(a, via);
        const GraphLink& second = graph.LinkOf(via, b);
        link.transfer_s_byte =
            std::min(link.transfer_s_byte, first.transfer_s_byte + second.transfer_s_byte);
        link.protocol_round_trip_s = std::min(
            link.protocol_round_trip_s, first.protocol_round_trip_s + second.protocol_round_trip_s);
      }
    }
  }
}

// The part of each object's work that this graph's callers cause, callers first. An anchored object
// may be called by others as well, which are in no snapshot together with these; what they make it
// do is not charged to these, nor what it then uses of objects below. By calls or by bytes,
// whichever is more: few calls that move much are not to be had for nothing.
std::vector<double> SnapshotReader::Impl::KnownParts(const Reading& reading) const {
  std::vector<double> known(reading.ranks.size(), 1);
  for (size_t j = 0; j < known.size(); ++j) {
    const uint32_t rank = reading.ranks[j];
    const ObjectStatistics& object = *objects_[rank].value;
    const bool is_root =
        std::find(reading.roots.begin(), reading.roots.end(), rank) != reading.roots.end();
    if (object.mobile || is_root || callers_in_[rank] == 0) continue;
    const double all = std::max(calls_in_[rank], object.calls);
    if (!(all > 0 && all <= figures::kCountMax)) continue;
    double calls = 0, ours = 0;  // of this graph's callers
    for (const auto& [caller, weight] : reading.callers[j]) {
      calls += weight;
      ours += weight * known[caller];
    }
    const double bytes = object.bytes_processed;
    const bool has_bytes = bytes > 0 && bytes <= figures::kCountMax;
    const double of_bytes = has_bytes ? std::min(1.0, bytes_in_[rank] / bytes) : 0;
    known[j] = calls > 0 ? ours / calls * std::max(calls_in_[rank] / all, of_bytes) : 0;
  }
  return known;
}

// Each console's part of each object: all of what only it reaches; of the rest what its part of
// every caller makes of that caller's calls, callers first. What has no calls is shared by heads.
void SnapshotReader::Impl::ShareOut(Reading& reading) const {
  Graph& graph = *reading.graph;
  const size_t consoles = reading.roots.size();
  std::vector<double> parts(graph.objects.size() * consoles, 0);
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    const uint32_t rank = reading.ranks[j];
    double* part = &parts[j * consoles];
    const uint32_t owner = owner_[rank];
    if (owner != kSeveral) {
      // Also where nobody owns it: then only one graph has it.
      uint32_t mine = 0;
      for (uint32_t c = 0; c < consoles; ++c) {
        if (owner < consoles_.size() && roots_[owner] == reading.roots[c]) mine = c;
      }
      part[mine] = 1;
      continue;
    }
    const bool counted = calls_in_[rank] > 0;
    for (const auto& [caller, weight] : reading.callers[j]) {
      const double of = counted ? weight / calls_in_[rank] : 1 / std::max(1.0, callers_in_[rank]);
      for (size_t c = 0; c < consoles; ++c) part[c] += of * parts[caller * consoles + c];
    }
  }
  const std::vector<double> known = KnownParts(reading);
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    GraphObject& object = graph.objects[j];
    double sum = 0;
    for (size_t c = 0; c < consoles; ++c) sum += parts[j * consoles + c];
    // An object that may move is used by nobody else than these consoles.
    const double all = object.fixed ? std::min(1.0, sum) * known[j] : 1;
    object.parts_begin = static_cast<uint32_t>(graph.parts.size());
    for (uint32_t c = 0; c < consoles; ++c) {
      const double part = sum > 0 ? parts[j * consoles + c] / sum : 1.0 / consoles;
      if (part > 0) graph.parts.push_back({c, part});
    }
    object.parts_end = static_cast<uint32_t>(graph.parts.size());
    object.work = sum > 0 ? all : 0;  // the factor; ReadObjects() multiplies
  }
}

std::optional<Refusal> SnapshotReader::Impl::ReadObjects(Reading& reading) const {
  Graph& graph = *reading.graph;
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    GraphObject& object = graph.objects[j];
    const ObjectStatistics& s = *object.statistics;
    figures::Check check;
    check.Within("cpu_s", s.cpu_s, 0, figures::kSecondsMax);
    check.Within("cpu_s_variance", s.cpu_s_variance, 0, figures::kVarianceMax);
    check.Within("background_cpu_s", s.background_cpu_s, 0, figures::kSecondsMax);
    check.Within("own_stall_s", s.own_stall_s, 0, figures::kSecondsMax);
    check.Within("stall_s", s.stall_s, 0, figures::kSecondsMax);
    check.Within("bytes_processed", s.bytes_processed, 0, figures::kCountMax);
    check.Within("calls", s.calls, 0, figures::kCountMax);
    check.Within("threads_s", s.threads_s, 0, figures::kSecondsMax);
    check.Within("busy_s", s.busy_s, 0, figures::kSecondsMax);
    check.Within("threads_s / busy_s", s.CallsAtOnce(), 1, figures::kAtOnceMax);
    check.Within("checkpoint_bytes", static_cast<double>(s.checkpoint_bytes), 0,
                 figures::kCountMax);
    check.Within("memory_bytes", static_cast<double>(s.memory_bytes), 0, figures::kCountMax);
    if (check.failed()) return Refusal{Reason::kBadFigure, check.DetailOf(NameOf(s))};

    const double rate = graph.nodes[graph.present[j]].host.rate;
    const double factor = object.work * graph.scale;
    const auto cpu_s = [](double seconds) { return seconds < figures::kCpuMin ? 0 : seconds; };
    object.work = WorkOf(cpu_s(s.cpu_s), rate) * factor;
    object.work_deviation = WorkOf(std::sqrt(s.cpu_s_variance), rate) * factor;
    object.background_work = WorkOf(cpu_s(s.background_cpu_s), rate) * factor;
    object.own_stall_s = s.own_stall_s * factor;
  }
  return std::nullopt;
}

void SnapshotReader::Impl::FindUnits(Reading& reading) const {
  Graph& graph = *reading.graph;
  std::map<uint32_t, uint32_t> groups;  // attach group -> unit
  for (uint32_t j = 0; j < graph.objects.size(); ++j) {
    GraphObject& object = graph.objects[j];
    const uint32_t group = object.statistics->attach_group;
    const auto next = static_cast<uint32_t>(graph.units.size());
    object.unit = group == 0 ? next : groups.try_emplace(group, next).first->second;
    if (object.unit == next) graph.units.emplace_back();
    Unit& unit = graph.units[object.unit];
    unit.objects.push_back(j);
    unit.fixed |= object.fixed || graph.present[j] != graph.present[unit.objects.front()];
  }
  for (Unit& unit : graph.units) {
    unit.pinned = unit.fixed;
    for (const uint32_t j : unit.objects) {
      const ObjectStatistics& s = *graph.objects[j].statistics;
      const bool console =
          std::find(graph.consoles.begin(), graph.consoles.end(), s.id) != graph.consoles.end();
      const bool loose = s.mobile && !console && !graph.objects[j].held;
      unit.pinned &= loose && graph.present[j] == graph.present[unit.objects.front()];
      graph.objects[j].fixed = unit.fixed;
    }
  }
}

// Where each unit may go: to nodes that hold something anchored, or that all of its objects are
// allowed on. Nodes that hold only what may leave again are no targets.
void SnapshotReader::Impl::FindLabels(Reading& reading) const {
  Graph& graph = *reading.graph;
  std::vector<bool> anchors(graph.nodes.size(), false);
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    const GraphObject& object = graph.objects[j];
    if (object.fixed) anchors[graph.present[j]] = true;
  }
  for (Unit& unit : graph.units) {
    const uint32_t present = graph.present[unit.objects.front()];
    for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
      const bool may = std::all_of(unit.objects.begin(), unit.objects.end(), [&](uint32_t j) {
        const std::vector<NodeId>& allowed = graph.objects[j].statistics->allowed;
        return allowed.empty() ? bool{anchors[n]}
                               : std::find(allowed.begin(), allowed.end(),
                                           graph.nodes[n].statistics->node) != allowed.end();
      });
      const bool reachable = std::isfinite(graph.LinkOf(present, n).transfer_s_byte);
      // Whether it fits there nobody can say.
      const bool unknown = n != present && graph.nodes[n].statistics->memory_limit_bytes &&
                           !graph.nodes[present].statistics->sees_memory;
      if ((unit.fixed && !unit.pinned) || !may || !reachable) continue;
      (unknown ? unit.unknown_targets : unit.targets).push_back(n);
    }
  }
}

// A measured load contains the graph's objects as they are placed now, averaged over the window:
// cpu_s CPU seconds make cpu_s / H of it. Equation 5 with a minus sign; see LoadOfOthers().
void SnapshotReader::Impl::FindOthers(Graph& graph) const {
  for (GraphNode& node : graph.nodes) node.others = node.statistics->load;
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    GraphNode& node = graph.nodes[graph.present[j]];
    const GraphObject& object = graph.objects[j];
    node.others -= (object.work + object.background_work) / (node.host.rate * graph.window_s);
  }
  for (GraphNode& node : graph.nodes) node.others = std::max(0.0, node.others);
  if (!config_.client_load_constant) return;
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    const ObjectId& id = graph.objects[j].statistics->id;
    if (std::find(graph.consoles.begin(), graph.consoles.end(), id) == graph.consoles.end()) {
      continue;
    }
    GraphNode& node = graph.nodes[graph.present[j]];
    node.load_is_constant = true;
    node.others = node.statistics->load;
  }
}

}  // namespace abacus::placement
