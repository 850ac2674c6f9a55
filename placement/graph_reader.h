#ifndef ABACUS_PLACEMENT_GRAPH_READER_H_
#define ABACUS_PLACEMENT_GRAPH_READER_H_

// How a snapshot is read (SnapshotReader in graph.h): what graph.cc, which finds out what consoles
// reach, and graph_figures.cc, which checks and scales what was measured, share. Internal to these.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "placement/figures.h"
#include "placement/graph.h"

namespace abacus::placement {
namespace graph_internal {

inline constexpr uint32_t kNone = ~uint32_t{0};
inline constexpr uint32_t kSeveral = kNone - 1;  // owners of an object

inline std::string NameOf(const ObjectStatistics& object) {
  return absl::StrCat(object.class_name.empty() ? "object" : object.class_name, " ",
                      ToString(object.id));
}

inline std::string LinkName(NodeId a, NodeId b) {
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

inline double WeightOf(const EdgeStatistics& edge) {
  return edge.calls > 0 && edge.calls <= figures::kCountMax ? edge.calls : 0;
}

inline double BytesOf(const EdgeStatistics& edge) {
  const double bytes = edge.request_bytes + edge.reply_bytes;
  return bytes > 0 && bytes <= figures::kCountMax ? bytes : 0;
}

}  // namespace graph_internal

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
    return it == ids_.end() || *it != id ? graph_internal::kNone
                                         : static_cast<uint32_t>(it - ids_.begin());
  }
  // The same, looked for beside the last answer first: neighbours in a snapshot mostly are of one
  // stack.
  uint32_t Rank(const ObjectId& id, uint32_t* last) const {
    for (uint32_t near = *last > 0 ? *last - 1 : 0; near < ids_.size() && near <= *last + 1;
         ++near) {
      if (ids_[near] == id) return *last = near;
    }
    const uint32_t rank = Rank(id);
    if (rank != graph_internal::kNone) *last = rank;
    return rank;
  }

  absl::Span<const graph_internal::Arc> ArcsFrom(uint32_t object) const {
    return absl::MakeConstSpan(arcs_).subspan(first_[object], first_[object + 1] - first_[object]);
  }

  void IndexObjects();
  void IndexArcs();
  void AddConsole(const ObjectId& id);
  void FindOwners();
  // Valid until the next call.
  const std::vector<uint32_t>& Reached(uint32_t console);

  std::optional<Refusal> Read(absl::Span<const ObjectId> together, Graph* graph,
                              Reading& reading) const;
  std::optional<Refusal> Walk(const Roots& roots, Reading& reading) const;
  std::optional<Refusal> Enter(uint32_t object, uint32_t from, Reading& reading) const;
  std::optional<Refusal> FindNodes(Reading& reading) const;
  std::optional<Refusal> AddNode(NodeId node, const ObjectStatistics* who, Reading& reading) const;
  void AddAllowedNode(NodeId node, Reading& reading) const;
  std::optional<Refusal> CheckWhole() const;
  std::optional<Refusal> CheckNode(const NodeStatistics& node) const;
  std::optional<Refusal> CheckLink(NodeId a, NodeId b, GraphLink* link) const;
  std::optional<Refusal> FindEdges(Reading& reading) const;
  std::optional<Refusal> AddArc(const graph_internal::Arc& arc, Reading& reading) const;
  std::optional<Refusal> FindLinks(Reading& reading) const;
  void CloseRoutes(Graph& graph) const;
  std::vector<double> KnownParts(const Reading& reading) const;
  void ShareOut(Reading& reading) const;
  std::optional<Refusal> ReadObjects(Reading& reading) const;
  void FindUnits(Reading& reading) const;
  void FindLabels(Reading& reading) const;
  void FindOthers(Graph& graph) const;
  bool IsPath(const Graph& graph) const;
  bool IsChain(const Graph& graph) const;

  const Snapshot& snapshot_;
  const Config& config_;
  std::vector<ObjectId> ids_;                                     // ascending
  std::vector<graph_internal::Entry<ObjectStatistics>> objects_;  // by rank
  std::vector<graph_internal::Arc> arcs_;                         // by caller, then callee
  std::vector<uint32_t> first_;                                   // of a caller's arcs
  absl::flat_hash_map<NodeId, graph_internal::Entry<NodeStatistics>> nodes_;
  absl::flat_hash_map<std::pair<NodeId, NodeId>, graph_internal::Entry<LinkStatistics>> links_;
  std::vector<ObjectId> consoles_;
  std::vector<uint32_t> roots_;   // ranks of the consoles; kNone: not in the snapshot
  std::vector<uint32_t> owner_;   // the console that calls lead from; kNone, kSeveral
  std::vector<double> calls_in_;  // from callers that a console owns, and how many these are
  std::vector<double> callers_in_, bytes_in_;
  std::map<uint32_t, std::vector<uint32_t>> callers_;  // of an object: those that nobody owns
  std::vector<bool> held_;
  std::vector<uint32_t> seen_;  // the walk that last reached an object
  std::vector<uint32_t> reached_;
  uint32_t walk_ = 0;
};

// One after the other use the same, as a round reads thousands of small graphs.
struct SnapshotReader::Impl::Reading {
  void Begin(Graph* of) {
    graph = of;
    roots.clear();
    ranks.clear();
    index.clear();
    node.clear();
    edge.clear();
    for (auto& of_object : callers) of_object.clear();
    seen_bytes = 0;
  }

  Graph* graph = nullptr;
  Roots roots;
  std::vector<uint32_t> ranks;                    // of the graph's objects, callers first
  absl::flat_hash_map<uint32_t, uint32_t> index;  // rank -> index in the graph
  absl::flat_hash_map<NodeId, uint32_t> node;     // -> index in the graph
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> edge;  // -> index in the graph
  std::vector<std::vector<std::pair<uint32_t, double>>> callers;      // of an object, with weights
  std::vector<std::pair<NodeId, const ObjectStatistics*>> others;     // scratch of FindNodes()
  double seen_bytes = 0;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_GRAPH_READER_H_
