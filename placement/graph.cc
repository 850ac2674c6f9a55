#include "placement/graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "placement/graph_reader.h"

namespace abacus::placement {

using graph_internal::Arc;
using graph_internal::BytesOf;
using graph_internal::Entry;
using graph_internal::kNone;
using graph_internal::kSeveral;
using graph_internal::NameOf;
using graph_internal::WeightOf;

void SnapshotReader::Impl::IndexObjects() {
  ids_.reserve(snapshot_.objects.size());
  for (const ObjectStatistics& object : snapshot_.objects) ids_.push_back(object.id);
  if (!std::is_sorted(ids_.begin(), ids_.end())) std::sort(ids_.begin(), ids_.end());
  std::vector<ObjectId> strangers;
  uint32_t last = 0;
  for (const EdgeStatistics& edge : snapshot_.edges) {
    for (const ObjectId& id : {edge.from, edge.to}) {
      if (Rank(id, &last) == kNone) strangers.push_back(id);
    }
  }
  if (!strangers.empty()) {
    ids_.insert(ids_.end(), strangers.begin(), strangers.end());
    std::sort(ids_.begin(), ids_.end());
  }
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  objects_.resize(ids_.size());
  for (const ObjectStatistics& object : snapshot_.objects) {
    objects_[Rank(object.id, &last)].Add(object);
  }
}

void SnapshotReader::Impl::IndexArcs() {
  arcs_.reserve(snapshot_.edges.size());
  uint32_t last = 0;
  for (const EdgeStatistics& edge : snapshot_.edges) {
    if (edge.from == edge.to) continue;
    const uint32_t from = Rank(edge.from, &last);
    arcs_.push_back({from, Rank(edge.to, &last), &edge});
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
const std::vector<uint32_t>& SnapshotReader::Impl::Reached(uint32_t console) {
  std::vector<uint32_t>& reached = reached_;
  reached.clear();
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
  bytes_in_.assign(ids_.size(), 0);
  callers_in_.assign(ids_.size(), 0);
  held_.assign(ids_.size(), false);
  for (const Arc& arc : arcs_) {
    if (owner_[arc.from] == kNone) {
      callers_[arc.to].push_back(arc.from);
    } else {
      calls_in_[arc.to] += WeightOf(*arc.edge);
      bytes_in_[arc.to] += BytesOf(*arc.edge);
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
    absl::Span<const Arc> called;
    absl::Span<const uint32_t> callers;
    size_t at = 0;  // of what is called, and then of the callers

    bool AtEnd() const { return at == called.size() + callers.size(); }
    uint32_t Next() {
      const size_t next = at++;
      return next < called.size() ? called[next].to : callers[next - called.size()];
    }
  };
  const auto frame_of = [&](uint32_t object) {
    Frame frame{.object = object, .called = ArcsFrom(object)};
    const auto callers = callers_.find(object);
    if (callers != callers_.end()) frame.callers = callers->second;
    return frame;
  };
  for (size_t r = roots.size(); r-- > 0;) {
    if (reading.index.contains(roots[r])) continue;
    if (auto refusal = Enter(roots[r], roots[r], reading)) return refusal;
    std::vector<Frame> stack = {frame_of(roots[r])};
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.AtEnd()) {
        reading.ranks.push_back(top.object);
        stack.pop_back();
        continue;
      }
      const uint32_t next = top.Next();
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
  auto& others = reading.others;  // who is there; nullptr: only allowed
  others.clear();
  for (const GraphObject& object : graph.objects) {
    others.emplace_back(object.statistics->node, object.statistics);
    if (object.fixed) continue;
    for (const NodeId node : object.statistics->allowed) others.emplace_back(node, nullptr);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < others.size();) {
    const NodeId node = others[i].first;
    const ObjectStatistics* object = nullptr;
    for (; i < others.size() && others[i].first == node; ++i) {
      if (others[i].second != nullptr) object = others[i].second;
    }
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
  Reading reading;
  return Read(together, graph, reading);
}

std::optional<Refusal> SnapshotReader::Impl::Read(absl::Span<const ObjectId> together, Graph* graph,
                                                  Reading& reading) const {
  *graph = Graph{};
  graph->consoles.assign(together.begin(), together.end());
  graph->window_s = config_.window_s;
  reading.Begin(graph);
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
  for (const uint32_t rank : reading.roots) {
    graph->at_once.push_back(objects_[rank].value->CallsAtOnce());
  }
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
  Reading reading;
  all.consoles.reserve(consoles_.size());
  all.graphs.reserve(consoles_.size());
  for (uint32_t c = 0; c < consoles_.size(); ++c) {
    all.consoles.push_back(
        {.id = consoles_[c], .refusal = Read({&consoles_[c], 1}, &single[c], reading)});
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
      if (again[c]) refusal_of[c] = Read(joint[c], &graph, reading);
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
