#include "placement/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "placement/figures.h"

namespace abacus::placement {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kSeveral = kNone - 1;  // owners of an object

std::string NameOf(const ObjectStatistics& object) {
  return absl::StrCat(object.class_name.empty() ? "object" : object.class_name, " ",
                      ToString(object.id));
}

std::string LinkName(NodeId a, NodeId b) {
  return absl::StrCat("the link between nodes ", a, " and ", b);
}

template <typename T>
struct Entry {
  const T* value = nullptr;
  int times = 0;

  void Add(const T& other) {
    value = &other;
    ++times;
  }
};

struct Arc {
  uint32_t from;
  uint32_t to;
  const EdgeStatistics* edge;
};

double WeightOf(const EdgeStatistics& edge) {
  return edge.calls > 0 && edge.calls <= figures::kCountMax ? edge.calls : 0;
}

}  // namespace

// Objects are known by their rank among all ids, known or called, so that nothing depends on the
// order of the snapshot's entries.
class SnapshotReader::Impl {
 public:
  Impl(const Snapshot& snapshot, absl::Span<const ObjectId> consoles, const Config& config)
      : snapshot_(snapshot), config_(config) {
    IndexObjects();
    IndexArcs();
    for (const NodeStatistics& node : snapshot.nodes) nodes_[node.node].Add(node);
    for (const LinkStatistics& link : snapshot.links) {
      links_[std::minmax(link.a, link.b)].Add(link);
    }
    AddConsole(snapshot.console);
    for (const ObjectId& console : snapshot.consoles) AddConsole(console);
    for (const ObjectId& console : consoles) AddConsole(console);
    FindOwners();
  }

  std::optional<Refusal> Read(absl::Span<const ObjectId> together, Graph* graph) const;
  Graphs ReadAll();

 private:
  using Roots = std::vector<uint32_t>;
  struct Reading;  // one graph in the making

  uint32_t Rank(const ObjectId& id) const {
    const auto it = std::lower_bound(ids_.begin(), ids_.end(), id);
    return it == ids_.end() || *it != id ? kNone : static_cast<uint32_t>(it - ids_.begin());
  }

  absl::Span<const Arc> ArcsFrom(uint32_t object) const {
    return absl::MakeConstSpan(arcs_).subspan(first_[object], first_[object + 1] - first_[object]);
  }

  void IndexObjects();
  void IndexArcs();
  void AddConsole(const ObjectId& id);
  void FindOwners();
  std::vector<uint32_t> Reached(uint32_t console);

  std::optional<Refusal> Walk(const Roots& roots, Reading& reading) const;
  std::optional<Refusal> Enter(uint32_t object, uint32_t from, Reading& reading) const;
  std::optional<Refusal> FindNodes(Reading& reading) const;
  std::optional<Refusal> AddNode(NodeId node, const ObjectStatistics* who, Reading& reading) const;
  void AddAllowedNode(NodeId node, Reading& reading) const;
  std::optional<Refusal> CheckWhole() const;
  std::optional<Refusal> CheckNode(const NodeStatistics& node) const;
  std::optional<Refusal> CheckLink(NodeId a, NodeId b, GraphLink* link) const;
  std::optional<Refusal> FindEdges(Reading& reading) const;
  std::optional<Refusal> AddArc(const Arc& arc, Reading& reading) const;
  std::optional<Refusal> FindLinks(Reading& reading) const;
  void CloseRoutes(Graph& graph) const;
  void ShareOut(Reading& reading) const;
  std::optional<Refusal> ReadObjects(Reading& reading) const;
  void FindUnits(Reading& reading) const;
  void FindLabels(Reading& reading) const;
  void FindOthers(Graph& graph) const;
  bool IsPath(const Graph& graph) const;
  bool IsChain(const Graph& graph) const;

  const Snapshot& snapshot_;
  const Config& config_;
  std::vector<ObjectId> ids_;                     // ascending
  std::vector<Entry<ObjectStatistics>> objects_;  // by rank
  std::vector<Arc> arcs_;                         // by caller, then callee
  std::vector<uint32_t> first_;                   // of a caller's arcs
  absl::flat_hash_map<NodeId, Entry<NodeStatistics>> nodes_;
  absl::flat_hash_map<std::pair<NodeId, NodeId>, Entry<LinkStatistics>> links_;
  std::vector<ObjectId> consoles_;
  std::vector<uint32_t> roots_;   // ranks of the consoles; kNone: not in the snapshot
  std::vector<uint32_t> owner_;   // the console that calls lead from; kNone, kSeveral
  std::vector<double> calls_in_;  // from callers that a console owns, and how many these are
  std::vector<double> callers_in_;
  std::map<uint32_t, std::vector<uint32_t>> callers_;  // of an object: those that nobody owns
  std::vector<bool> held_;
  std::vector<uint32_t> seen_;  // the walk that last reached an object
  uint32_t walk_ = 0;
};

struct SnapshotReader::Impl::Reading {
  Graph* graph = nullptr;
  Roots roots;
  std::vector<uint32_t> ranks;                    // of the graph's objects, callers first
  absl::flat_hash_map<uint32_t, uint32_t> index;  // rank -> index in the graph
  absl::flat_hash_map<NodeId, uint32_t> node;     // -> index in the graph
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> edge;  // -> index in the graph
  std::vector<std::vector<std::pair<uint32_t, double>>> callers;      // of an object, with weights
  double seen_bytes = 0;
};

void SnapshotReader::Impl::IndexObjects() {
  ids_.reserve(snapshot_.objects.size());
  for (const ObjectStatistics& object : snapshot_.objects) ids_.push_back(object.id);
  std::sort(ids_.begin(), ids_.end());
  const size_t known = ids_.size();
  for (const EdgeStatistics& edge : snapshot_.edges) {
    for (const ObjectId& id : {edge.from, edge.to}) {
      if (!std::binary_search(ids_.begin(), ids_.begin() + known, id)) ids_.push_back(id);
    }
  }
  if (ids_.size() > known) std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  objects_.resize(ids_.size());
  for (const ObjectStatistics& object : snapshot_.objects) objects_[Rank(object.id)].Add(object);
}

void SnapshotReader::Impl::IndexArcs() {
  arcs_.reserve(snapshot_.edges.size());
  for (const EdgeStatistics& edge : snapshot_.edges) {
    if (edge.from != edge.to) arcs_.push_back({Rank(edge.from), Rank(edge.to), &edge});
  }
  std::sort(arcs_.begin(), arcs_.end(), [](const Arc& a, const Arc& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });
  first_.assign(ids_.size() + 1, 0);
  for (const Arc& arc : arcs_) ++first_[arc.from + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

void SnapshotReader::Impl::AddConsole(const ObjectId& id) {
  // Lists of consoles are long where there are few objects to each; a set would hold them twice.
  const uint32_t rank = Rank(id);
  if (owner_.empty()) owner_.assign(ids_.size() + 1, kNone);
  if (rank == kNone) {
    if (std::find(consoles_.begin(), consoles_.end(), id) != consoles_.end()) return;
  } else {
    if (owner_[rank] != kNone) return;
    owner_[rank] = static_cast<uint32_t>(consoles_.size());
  }
  consoles_.push_back(id);
  roots_.push_back(rank);
}

// The objects that calls lead to from a console, itself included. Another console is not entered.
std::vector<uint32_t> SnapshotReader::Impl::Reached(uint32_t console) {
  std::vector<uint32_t> reached;
  if (roots_[console] == kNone) return reached;
  seen_.resize(ids_.size(), 0);
  ++walk_;
  reached.push_back(roots_[console]);
  seen_[roots_[console]] = walk_;
  for (size_t at = 0; at < reached.size(); ++at) {
    for (const Arc& arc : ArcsFrom(reached[at])) {
      const bool is_console = owner_[arc.to] < consoles_.size() && roots_[owner_[arc.to]] == arc.to;
      if (is_console || seen_[arc.to] == walk_) continue;
      seen_[arc.to] = walk_;
      reached.push_back(arc.to);
    }
  }
  return reached;
}

void SnapshotReader::Impl::FindOwners() {
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    for (const uint32_t object : Reached(c)) {
      if (owner_[object] == c) continue;
      owner_[object] = owner_[object] == kNone ? c : kSeveral;
    }
  }
  calls_in_.assign(ids_.size(), 0);
  callers_in_.assign(ids_.size(), 0);
  held_.assign(ids_.size(), false);
  for (const Arc& arc : arcs_) {
    if (owner_[arc.from] == kNone) {
      callers_[arc.to].push_back(arc.from);
    } else {
      calls_in_[arc.to] += WeightOf(*arc.edge);
      callers_in_[arc.to] += 1;
    }
  }
}

std::optional<Refusal> SnapshotReader::Impl::Enter(uint32_t object, uint32_t from,
                                                   Reading& reading) const {
  const Entry<ObjectStatistics>& entry = objects_[object];
  if (entry.times == 0) {
    return Refusal{Reason::kUnknownObject,
                   absl::StrCat("an edge of ", ToString(ids_[from]), " leads to ",
                                ToString(ids_[object]), ", which the snapshot does not hold")};
  }
  if (entry.times > 1) {
    return Refusal{Reason::kDuplicateEntry,
                   absl::StrCat("the snapshot holds ", NameOf(*entry.value), " twice")};
  }
  reading.index[object] = 0;
  if (reading.index.size() > config_.stack_objects_max * reading.roots.size()) {
    return Refusal{Reason::kStackTooLong,
                   absl::StrCat("the stack has more than ", config_.stack_objects_max, " objects")};
  }
  return std::nullopt;
}

// Depth first, an object being listed once all that it calls is: read backwards, callers come
// first. Without recursion, as a stack may be as long as the limit.
std::optional<Refusal> SnapshotReader::Impl::Walk(const Roots& roots, Reading& reading) const {
  struct Frame {
    uint32_t object;
    std::vector<uint32_t> next;
    size_t at = 0;
  };
  const auto frame_of = [&](uint32_t object) {
    Frame frame{object, {}};
    for (const Arc& arc : ArcsFrom(object)) frame.next.push_back(arc.to);
    const auto callers = callers_.find(object);
    if (callers != callers_.end()) {
      frame.next.insert(frame.next.end(), callers->second.begin(), callers->second.end());
    }
    return frame;
  };
  for (size_t r = roots.size(); r-- > 0;) {
    if (reading.index.contains(roots[r])) continue;
    if (auto refusal = Enter(roots[r], roots[r], reading)) return refusal;
    std::vector<Frame> stack = {frame_of(roots[r])};
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.at == top.next.size()) {
        reading.ranks.push_back(top.object);
        stack.pop_back();
        continue;
      }
      const uint32_t next = top.next[top.at++];
      const uint32_t owner = owner_[next];
      const bool console = owner < consoles_.size() && roots_[owner] == next;
      if (console || reading.index.contains(next)) continue;
      if (auto refusal = Enter(next, top.object, reading)) return refusal;
      stack.push_back(frame_of(next));
    }
  }
  std::reverse(reading.ranks.begin(), reading.ranks.end());
  for (uint32_t j = 0; j < reading.ranks.size(); ++j) {
    reading.index[reading.ranks[j]] = j;
    const ObjectStatistics* object = objects_[reading.ranks[j]].value;
    reading.graph->objects.push_back({.statistics = object, .rank = reading.ranks[j]});
  }
  if (reading.ranks.size() <= roots.size()) {
    return Refusal{Reason::kConsoleAlone, "the console has called no other object"};
  }
  return std::nullopt;
}

std::optional<Refusal> SnapshotReader::Impl::AddNode(NodeId node, const ObjectStatistics* who,
                                                     Reading& reading) const {
  if (reading.node.contains(node)) return std::nullopt;
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) {
    return Refusal{Reason::kUnknownNode, absl::StrCat(NameOf(*who), " is on node ", node,
                                                      ", which the snapshot does not hold")};
  }
  if (it->second.times > 1) {
    return Refusal{Reason::kDuplicateEntry,
                   absl::StrCat("the snapshot holds node ", node, " twice")};
  }
  reading.node[node] = static_cast<uint32_t>(reading.graph->nodes.size());
  const NodeStatistics& statistics = *it->second.value;
  GraphNode added{
      .statistics = &statistics,
      .host = {
          .rate = statistics.rate, .cores = statistics.cores, .contention = statistics.contention}};
  if (statistics.memory_free_bytes) added.memory_free_bytes = *statistics.memory_free_bytes;
  reading.graph->nodes.push_back(added);
  return std::nullopt;
}

// The consoles' nodes first, then those that other objects are or may be on.
std::optional<Refusal> SnapshotReader::Impl::FindNodes(Reading& reading) const {
  Graph& graph = *reading.graph;
  bool stored = false;
  for (GraphObject& object : graph.objects) {
    const ObjectStatistics& s = *object.statistics;
    const bool console = std::any_of(reading.roots.begin(), reading.roots.end(),
                                     [&](uint32_t root) { return objects_[root].value == &s; });
    object.held = s.mobile && !s.pinned && held_[object.rank];
    object.fixed = console || !s.mobile || s.pinned || object.held;
    stored |= object.fixed && !console && !object.held;
  }
  if (!stored) {
    return Refusal{Reason::kNoStorage,
                   absl::StrCat("the stack ends in ", NameOf(*graph.objects.back().statistics),
                                ", and nothing below the console is anchored")};
  }
  for (const uint32_t root : reading.roots) {
    const ObjectStatistics& console = *objects_[root].value;
    if (auto refusal = AddNode(console.node, &console, reading)) return refusal;
  }
  const size_t consoles_nodes = graph.nodes.size();
  // By number, whoever is there now: what is decided must not depend on an order that moves change.
  std::map<NodeId, const ObjectStatistics*> others;  // who is there; nullptr: only allowed
  for (const GraphObject& object : graph.objects) {
    others[object.statistics->node] = object.statistics;
    if (object.fixed) continue;
    for (const NodeId node : object.statistics->allowed) others.try_emplace(node, nullptr);
  }
  for (const auto& [node, object] : others) {
    if (object == nullptr) {
      AddAllowedNode(node, reading);
    } else if (auto refusal = AddNode(node, object, reading)) {
      return refusal;
    }
  }
  for (size_t n = consoles_nodes; n < graph.nodes.size() && config_.cpu_share_max < 1; ++n) {
    graph.nodes[n].cpu_limit = config_.cpu_share_max * graph.nodes[n].host.cores;
  }
  for (const GraphObject& object : graph.objects) {
    graph.present.push_back(reading.node[object.statistics->node]);
  }
  return std::nullopt;
}

// A node that nothing is on yet is left aside, not refused, where it is not to be trusted.
void SnapshotReader::Impl::AddAllowedNode(NodeId node, Reading& reading) const {
  if (reading.node.contains(node)) return;
  const auto it = nodes_.find(node);
  if (it == nodes_.end() || it->second.times > 1 || CheckNode(*it->second.value)) {
    ++reading.graph->nodes_left_aside;
  } else {
    (void)AddNode(node, nullptr, reading);
  }
}

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
  reading.callers.resize(graph.objects.size());
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
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    GraphObject& object = graph.objects[j];
    double sum = 0;
    for (size_t c = 0; c < consoles; ++c) sum += parts[j * consoles + c];
    // An object that may move is used by nobody else than these consoles.
    const double all = object.fixed ? std::min(1.0, sum) : 1;
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
    if (object.unit == next) graph.units.push_back({});
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

bool SnapshotReader::Impl::IsPath(const Graph& graph) const {
  const size_t objects = graph.objects.size();
  if (graph.consoles.size() != 1 || graph.edges.size() + 1 != objects) return false;
  for (size_t j = 0; j + 1 < objects; ++j) {
    if (graph.edges[j].above != j || graph.edges[j].below != j + 1) return false;
  }
  return graph.objects.back().fixed && graph.present.front() != graph.present.back();
}

bool SnapshotReader::Impl::IsChain(const Graph& graph) const {
  if (!graph.path || graph.nodes.size() != 2) return false;
  if (graph.units.size() != graph.objects.size()) return false;
  return std::all_of(graph.objects.begin(), graph.objects.end(), [](const GraphObject& object) {
    return !object.held && object.statistics->allowed.empty();
  });
}

std::optional<Refusal> SnapshotReader::Impl::Read(absl::Span<const ObjectId> together,
                                                  Graph* graph) const {
  *graph = Graph{};
  graph->consoles.assign(together.begin(), together.end());
  graph->window_s = config_.window_s;
  Reading reading;
  reading.graph = graph;
  for (const ObjectId& console : together) {
    const uint32_t rank = Rank(console);
    if (rank == kNone || objects_[rank].times == 0) {
      return Refusal{Reason::kUnknownConsole,
                     absl::StrCat("the snapshot does not hold the console ", ToString(console))};
    }
    reading.roots.push_back(rank);
  }
  std::optional<Refusal> refusal = Walk(reading.roots, reading);
  if (!refusal) refusal = FindNodes(reading);
  if (!refusal) refusal = CheckWhole();
  for (size_t n = 0; !refusal && n < graph->nodes.size(); ++n) {
    refusal = CheckNode(*graph->nodes[n].statistics);
  }
  if (refusal) return refusal;
  if (graph->nodes.size() > kGraphNodesMax) {
    return Refusal{Reason::kStackTooLong,
                   absl::StrCat("the graph is on more than ", kGraphNodesMax, " nodes")};
  }
  if (graph->nodes.size() == 1) {
    return Refusal{Reason::kOneNode, absl::StrCat("console and storage are both on node ",
                                                  graph->nodes[0].statistics->node)};
  }
  graph->scale = config_.window_s / snapshot_.window_s;
  refusal = FindEdges(reading);
  if (!refusal) refusal = FindLinks(reading);
  if (refusal) return refusal;
  ShareOut(reading);
  refusal = ReadObjects(reading);
  if (refusal) return refusal;
  if (reading.seen_bytes < config_.min_evidence_bytes) {
    return Refusal{
        Reason::kTooLittleEvidence,
        absl::StrCat(reading.seen_bytes, " bytes flowed along the stack in the window, fewer than ",
                     config_.min_evidence_bytes)};
  }
  FindUnits(reading);
  FindLabels(reading);
  FindOthers(*graph);
  graph->path = IsPath(*graph);
  graph->chain = IsChain(*graph);
  return std::nullopt;
}

SnapshotReader::Graphs SnapshotReader::Impl::ReadAll() {
  Graphs all;
  std::vector<Graph> single(consoles_.size());
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    all.consoles.push_back({.id = consoles_[c], .refusal = Read({&consoles_[c], 1}, &single[c])});
    if (!all.consoles[c].refusal) continue;
    for (const uint32_t object : Reached(c)) held_[object] = true;
  }
  // Consoles that share an object which may move come together; `first` leads to the first of them.
  std::vector<uint32_t> first(consoles_.size());
  std::iota(first.begin(), first.end(), 0);
  const auto find = [&](uint32_t c) {
    while (first[c] != c) c = first[c] = first[first[c]];
    return c;
  };
  absl::flat_hash_map<const ObjectStatistics*, uint32_t> user;
  std::vector<bool> again(consoles_.size(), false);
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    if (all.consoles[c].refusal) continue;
    for (const GraphObject& object : single[c].objects) {
      const uint32_t rank = object.rank;
      if (owner_[rank] != kSeveral || object.fixed) continue;
      again[c] = true;
      if (held_[rank]) continue;
      const uint32_t other = user.try_emplace(object.statistics, c).first->second;
      const uint32_t a = find(c);
      const uint32_t b = find(other);
      first[std::max(a, b)] = std::min(a, b);
    }
  }
  std::map<uint32_t, std::vector<ObjectId>> joint;
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    if (again[c]) joint[find(c)].push_back(consoles_[c]);
  }
  std::vector<size_t> graph_of(consoles_.size());
  std::vector<std::optional<Refusal>> refusal_of(consoles_.size());
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    if (all.consoles[c].refusal) continue;
    const uint32_t at = find(c);
    if (!again[c] || at == c) {
      graph_of[c] = all.graphs.size();
      Graph& graph = all.graphs.emplace_back(std::move(single[c]));
      if (again[c]) refusal_of[c] = Read(joint[c], &graph);
    }
    all.consoles[c].graph = graph_of[at];
    all.consoles[c].refusal = refusal_of[at];
  }
  return all;
}

SnapshotReader::SnapshotReader(const Snapshot& snapshot, absl::Span<const ObjectId> consoles,
                               const Config& config)
    : impl_(std::make_unique<Impl>(snapshot, consoles, config)) {}
SnapshotReader::~SnapshotReader() = default;

std::optional<Refusal> SnapshotReader::Read(absl::Span<const ObjectId> together,
                                            Graph* graph) const {
  return impl_->Read(together, graph);
}

SnapshotReader::Graphs SnapshotReader::ReadAll() { return impl_->ReadAll(); }

}  // namespace abacus::placement
