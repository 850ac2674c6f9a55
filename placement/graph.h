#ifndef ABACUS_PLACEMENT_GRAPH_H_
#define ABACUS_PLACEMENT_GRAPH_H_

// Reads what consoles reach out of a snapshot into dense graphs, and refuses what the equations
// could not be trusted with. Internal to the room.
//
// Times are seconds for the work of one window H; everything is scaled to it here and nowhere else.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/equations.h"
#include "placement/statistics.h"

namespace abacus::placement {

struct Refusal {
  Reason reason = Reason::kBadFigure;
  std::string detail;  // names the entry and the figure
};

// An assignment: of each object the index of its node in Graph::nodes.
using Placement = std::vector<uint32_t>;

// What part of an object is one console's: of several that call it, by their calls.
struct ConsolePart {
  uint32_t console = 0;  // index in Graph::consoles
  double part = 1;
};

struct GraphNode {
  const NodeStatistics* statistics = nullptr;
  Host host;
  // Load that others put on it: as measured, less what the graph's objects make of it, background
  // work included. Where `load_is_constant` (a console's node, config.client_load_constant) it is
  // the load as measured, whatever the placement.
  double others = 0;
  bool load_is_constant = false;
  double memory_free_bytes = std::numeric_limits<double>::infinity();
  // Cores that mobile objects may use together there; infinite on consoles' nodes and without a
  // limit (config.cpu_share_max).
  double cpu_limit = std::numeric_limits<double>::infinity();
};

struct GraphLink {
  bool usable = false;
  Link link;
  double bandwidth_deviation_bytes_s = 0;
  const LinkStatistics* statistics = nullptr;
  // Of moving state: seconds a byte and a round trip by the best route of usable links. Where a
  // measured link is worse than a way round it, the way round is what is believed; so moving on is
  // never cheaper by stages, which is what a decision's being final rests on (README).
  double transfer_s_byte = std::numeric_limits<double>::infinity();
  double protocol_round_trip_s = std::numeric_limits<double>::infinity();
};

struct GraphObject {
  const ObjectStatistics* statistics = nullptr;
  uint32_t rank = 0;  // among all ids of the snapshot
  uint32_t unit = 0;
  bool fixed = false;
  bool held = false;           // fixed because a console that uses it is not understood
  double work = 0;             // of all the graph's consoles in sum, their parts applied
  double work_deviation = 0;   // its standard deviation
  double background_work = 0;  // that nobody waits for
  double own_stall_s = 0;      // of all the graph's consoles in sum
  uint32_t parts_begin = 0;    // in Graph::parts; they sum to 1
  uint32_t parts_end = 0;
};

// Calls between two objects, both directions in one; `above` comes first in the graph's order.
struct GraphEdge {
  uint32_t above = 0;
  uint32_t below = 0;
  Flow flow;
  double bytes_deviation = 0;
};

// What moves as one: an object, or an attach group.
struct Unit {
  absl::InlinedVector<uint32_t, 2> objects;
  bool fixed = false;
  bool pinned = false;  // fixed by nothing but pins
  absl::InlinedVector<uint32_t, 4>
      targets;  // where it may go, or might if it were not pinned; ascending
  // Where it might go too, but for a limit on memory there and because nobody knows what it holds.
  absl::InlinedVector<uint32_t, 4> unknown_targets;
};

// Most nodes of one graph: its links are a table of nodes squared. Reached by consoles of more
// clients that share an object which may move; they are refused (kStackTooLong).
inline constexpr size_t kGraphNodesMax = 128;

// One console and what it reaches; or several that share objects which may move, and so are
// decided together.
struct Graph {
  std::vector<ObjectId> consoles;
  std::vector<double> at_once;       // calls that each of them has going on at once, at least 1
  std::vector<GraphObject> objects;  // callers first, as far as calls are not circular
  std::vector<GraphEdge> edges;
  std::vector<GraphNode> nodes;  // the consoles' first, the others by number
  std::vector<GraphLink> links;  // nodes.size() squared; of a node to itself: not usable, free
  std::vector<Unit> units;
  std::vector<ConsolePart> parts;
  std::vector<uint32_t> edges_of;    // indices of edges, by object
  std::vector<uint32_t> first_edge;  // of an object's in edges_of, with an end
  Placement present;
  double scale = 1;     // H / snapshot.window_s
  double window_s = 1;  // H
  // Whether it is one console's stack, whose last object may not move and is not on its node: edge
  // j is between objects j and j + 1.
  bool path = false;
  // Whether it is moreover between one client (node 0) and one server (node 1), and each object may
  // be on either.
  bool chain = false;
  size_t links_left_aside = 0;
  size_t nodes_left_aside = 0;

  absl::Span<const uint32_t> EdgesOf(uint32_t object) const {
    return absl::MakeConstSpan(edges_of).subspan(first_edge[object],
                                                 first_edge[object + 1] - first_edge[object]);
  }
  const GraphLink& LinkOf(uint32_t a, uint32_t b) const { return links[a * nodes.size() + b]; }
};

// One snapshot, read once, for any number of consoles.
//
// Which objects are a console's: those that calls lead to from it, downwards; and callers of these
// that no known console reaches (an object below may call one above). An object's calls to itself
// are ignored, as is all that no known console reaches: a bad figure of one graph does not keep
// another from being decided. Thread-compatible; keeps pointers into the snapshot.
class SnapshotReader {
 public:
  // Consoles are snapshot.console, snapshot.consoles and `consoles`.
  // REQUIRES: Validate(config) is OK; snapshot and config outlive the reader and its graphs.
  SnapshotReader(const Snapshot& snapshot, absl::Span<const ObjectId> consoles,
                 const Config& config);
  ~SnapshotReader();

  // One graph for the consoles in question, in sum. Returns nothing if it can be decided on: every
  // figure in it is then finite, not negative, and positive where it is divided by, and every link
  // that calls cross now is usable. Otherwise why not, `graph` being filled as far as it got.
  // Objects that a console outside `together` reaches too are charged by its part, and anchored
  // ones that are called from outside of the snapshot by the part that is not; the former are fixed
  // (held) if that console is among `not_understood`.
  // Limits: config.stack_objects_max objects for each console.
  std::optional<Refusal> Read(absl::Span<const ObjectId> together, Graph* graph) const;

  struct Console {
    ObjectId id;
    std::optional<Refusal> refusal;
    size_t graph = 0;  // index of its graph, unless refused
  };
  struct Graphs {
    std::vector<Graph> graphs;
    std::vector<Console> consoles;  // all known ones, as given: first snapshot.console and so on
  };
  // Every known console's graph; consoles that share objects which may move share a graph, and what
  // a refused console reaches too is held where it is.
  Graphs ReadAll();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_GRAPH_H_
