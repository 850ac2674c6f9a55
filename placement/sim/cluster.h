#ifndef ABACUS_PLACEMENT_SIM_CLUSTER_H_
#define ABACUS_PLACEMENT_SIM_CLUSTER_H_

// What a simulated cluster is made of: nodes, links, objects, and consoles whose graphs work
// through phases. Plain values that a World (world.h) plays; nothing here is known to the engine.
//
// Objects and nodes are named by their index in the cluster's vectors. Units are in the names; work
// is in the units of NodeStatistics::rate, so that a node of rate 1 does one unit a second per
// core. Thread-safety: thread-compatible. Source: ours; the workloads follow the paper, section 6.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "placement/statistics.h"

namespace abacus::placement::sim {

struct Node {
  double rate = 1;
  double cores = 2;
  double others_load = 0;     // tasks that are none of the consoles', running or ready all the time
  double nic_bytes_s = 1e12;  // shared by all flows of the node
  // What the node's processor does for its end of a message: of each frame that it sends or
  // receives, a call being one of either, and of each byte in them. It is no object's, so that the
  // engine is told of it as the time that links take, and as load.
  double frame_work = 0;
  double byte_work = 0;
  bool is_server = false;
  std::optional<double> memory_bytes;  // for mobile objects; empty: no limit
};

// The way between two nodes, used by one console at a time as by all (the NIC is what is shared).
struct Link {
  size_t a = 0;
  size_t b = 0;
  double bandwidth_bytes_s = 1.25e6;
  double round_trip_s = 0.001;
};

struct Object {
  std::string class_name;
  size_t node = 0;  // at the start
  bool mobile = false;
  uint64_t checkpoint_bytes = 4096;
  uint64_t memory_bytes = 65536;
  // What the engine cannot know beforehand: on servers the object needs this many times the CPU
  // time that the nodes' rates would say (a class that suits one kind of processor badly).
  double server_factor = 1;
};

// What one unit of a console's work asks of one object, and of one edge.
struct ObjectNeed {
  double work = 0;
  double stall_s = 0;
};
struct EdgeNeed {
  double calls = 1;
  double request_bytes = 64;
  double reply_bytes = 64;
};

struct Phase {
  std::string name;
  double units = 1;                 // of work, after which the next phase begins
  std::vector<ObjectNeed> objects;  // as Console::objects
  std::vector<EdgeNeed> edges;      // as Console::edges
};

// A root and the objects that it reaches. An object may belong to several consoles.
struct Console {
  struct Edge {
    size_t from = 0;  // positions in `objects`
    size_t to = 0;
  };
  std::vector<size_t> objects;  // indices in Cluster::objects; the console itself first
  std::vector<Edge> edges;
  std::vector<Phase> phases;
  // Consoles of one group (not 0) write the same data by an optimistic scheme: what crosses the
  // link at `contended_edge`, and the work of the object that sends it, is done again each time
  // that another of the group was faster. Where that edge crosses no link its server does one after
  // the other, and nothing is done twice (paper, 6.5).
  size_t contention_group = 0;
  size_t contended_edge = 0;
  size_t passes = 0;  // through all phases before it ends; 0: for ever
  double starts_s = 0;
  double ends_s = 1e18;
};

// Something that happens to a node from outside: a hot spot comes or goes, a CPU quota changes.
struct NodeEvent {
  double at_s = 0;
  size_t node = 0;
  double others_load = 0;
};

struct Cluster {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<Object> objects;
  std::vector<Console> consoles;
  std::vector<NodeEvent> events;  // by time
  // Any exchange of two consoles gives the same cluster, so that only numbers of them matter.
  bool consoles_alike = false;
};

// Appends a console that calls `classes[1..]` as one chain: the first object is the console on
// `client`, the last is anchored on `server`, those between are mobile and start on `client`.
// Returns the console's index. REQUIRES: at least two classes; `phases` fit the chain.
size_t AddChain(Cluster& cluster, size_t client, size_t server,
                const std::vector<std::string>& classes, std::vector<Phase> phases);

// Index + 1, so that no id is 0.
NodeId ToNodeId(size_t node);
ObjectId ToObjectId(const Cluster& cluster, size_t object);

}  // namespace abacus::placement::sim

#endif  // ABACUS_PLACEMENT_SIM_CLUSTER_H_
