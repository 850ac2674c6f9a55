#ifndef ABACUS_PLACEMENT_STATISTICS_H_
#define ABACUS_PLACEMENT_STATISTICS_H_

// The vocabulary in which the rest of the system tells the placement engine what it measured.
//
// A Snapshot is one observation window of one or more object graphs: what every object cost, what
// flowed between them, how fast the nodes and links are. It says nothing about how the figures were
// obtained and holds no derived figure, so that a recorded snapshot can be decided again. All types
// are plain values, thread-compatible; nothing here blocks. Units are in the names: _s is seconds,
// _bytes is bytes; counts and bytes of a window are doubles because they may be moving averages.
//
// An unknown figure is an empty optional (or, where it says so, 0), never a guess: the engine then
// names what is missing and leaves the objects where they are.
//
// Source: paper, section 5.3 (which figures); what load and rate mean is ours.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace abacus::placement {

// A machine, namespace or container that takes part. Opaque to this room.
using NodeId = uint32_t;

// An object's run-time identifier. Opaque to this room, which only compares and prints it.
struct ObjectId {
  uint32_t node = 0;
  uint32_t incarnation = 0;
  uint64_t local = 0;

  auto operator<=>(const ObjectId&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const ObjectId& id) {
    return H::combine(std::move(h), id.node, id.incarnation, id.local);
  }
};

// "node.incarnation.local" in decimal.
std::string ToString(const ObjectId& id);
std::ostream& operator<<(std::ostream& out, const ObjectId& id);

// What a node could not watch or charge since it started. Counts.
struct LostFigures {
  uint64_t threads = 0;      // threads that their own clocks tell of, for want of room
  uint64_t io_requests = 0;  // block I/O that was charged to nobody
  uint64_t io_times = 0;     // block I/O whose end was not seen: its time is charged to nobody
  uint64_t edges = 0;        // times that the figures of calls between two objects were dropped

  uint64_t all() const { return threads + io_requests + io_times + edges; }
  bool operator==(const LostFigures&) const = default;
};

// What is known of a node.
struct NodeStatistics {
  NodeId node = 0;
  std::string name;        // as people call it; may be empty
  bool is_server = false;  // has a data store; for display, the engine reads roles off the graph

  // The paper's R: work units that one core of this node, as a quota leaves it, completes in a
  // second of cpu_s. Any unit, as long as it is the same for all nodes of a snapshot. 0: not
  // calibrated.
  double rate = 0;
  // Cores that the node's tasks may use. A CPU quota of one core or more lowers this, one of less
  // lowers `rate`.
  double cores = 1;
  // The paper's L: (running + ready) task time of the node's tasks in the window / its length, the
  // stack's own tasks included. Report it as measured, also below 1: the floor of 1 is applied
  // where the figure is used. A figure already floored at 1 is accepted; it makes an idle node of
  // one core look up to half as fast as it is, and makes no difference with two cores or more.
  double load = 1;
  // How much of the slow-down that the load suggests the tasks of objects there were seen to
  // suffer, 0 to 1. A running task shares the cores with all others, as the paper has it: 1, also
  // where nothing was measured. One that mostly waits is let in at once when it wakes, and a load
  // of tasks of low priority slows nobody down: 0.
  double contention = 1;

  std::optional<double> memory_bytes;       // what the node may use in all; display
  std::optional<double> memory_free_bytes;  // what is left for objects; empty: not limited by it
  // What objects there may hold in all, by hand; empty: what the machine has. Where it is set, an
  // object whose own memory is not known (sees_memory) is not moved there.
  std::optional<double> memory_limit_bytes;

  std::string source;  // where the figures come from ("ebpf", "schedstat"); display
  // Whether that source counts context switches and block I/O of objects; where it does not, the
  // objects' figures are 0 and mean nothing. Display.
  bool sees_switches = false;
  bool sees_io = false;
  // Whether what its objects hold is measured. Where it is not, their memory_bytes mean nothing.
  bool sees_memory = true;
  // Why the source is not a better one, and how to get that: a line for people; empty where nothing
  // is missing. Display, as is what was lost.
  std::string source_missing;
  LostFigures lost;
};

// What one object used during the window.
struct ObjectStatistics {
  ObjectId id;
  std::string class_name;

  // Where it is now, and where all figures below were measured: what was observed before the
  // object's last move does not belong into the window.
  NodeId node = 0;
  bool mobile = false;        // false: anchored, never moves
  bool pinned = false;        // held where it is, by hand or by a rule
  std::string pinned_reason;  // shown to people where the pin decides; may be empty
  // Nodes that it may be moved to; empty: to any that holds an anchored object of its graph. It may
  // stay where it is even if that node is not among them.
  std::vector<NodeId> allowed;
  // Objects of one group move together, or not at all; 0: of no group. A group of which an object
  // may not move, or whose objects are on several nodes, stays.
  uint32_t attach_group = 0;

  double cpu_s =
      0;  // CPU time in its methods for the console; a quota makes it longer, as rate less
  // Of cpu_s: what it would vary between windows like this one, judged by how it varied within it;
  // and the number of samples that this rests on. Evidence of bytes: bytes_processed.
  double cpu_s_variance = 0;  // s squared
  double samples = 0;
  // CPU time inside its methods that no console waited for: read-ahead, write-back. It makes load
  // where the object is, and is in no response time; not in cpu_s.
  double background_cpu_s = 0;
  double bytes_processed = 0;  // arguments in and results out
  // Blocked inside its own methods (disk, timer, lock), not in a call to another object. It moves
  // with the object and is the same on every node. Of a storage object: the paper's C_n.
  double own_stall_s = 0;
  double disk_s = 0;   // the part of own_stall_s that was a wait for a disk; 0 where not told apart
  double ready_s = 0;  // able to run inside its methods, and no processor was free; display
  // Waiting in calls to other objects (paper 5.3). Evidence for people: equations 3 to 6 predict
  // this wait from bytes, bandwidth and round trips, and do not read it.
  double stall_s = 0;
  double calls = 0;  // that entered it, from whomever; by them a graph is charged an anchored one
  // Of a console that several threads may work for: the time that they did, in sum over them, and
  // the time in which any did. 0 of all else, and of a console with a thread of its own.
  double threads_s = 0;
  double busy_s = 0;
  // Context switches inside its methods, because they blocked and because another thread was to
  // run; background work's as well. Display.
  double voluntary_switches = 0;
  double involuntary_switches = 0;
  // Block I/O that its methods began, and the time from its submission to its completion, summed
  // over requests; background work's as well. Display.
  double io_bytes = 0;
  double io_requests = 0;
  double io_s = 0;

  uint64_t checkpoint_bytes = 0;  // estimate of what a move has to transfer
  uint64_t memory_bytes = 0;      // what it holds

  // How many calls a console has going on at once while it has any; 1 where nothing says more.
  //   Two threads inside for 0.4 s each in a window, for 0.2 s of it both: 0.8 / 0.6 = 1.33.
  double CallsAtOnce() const { return threads_s > busy_s && busy_s > 0 ? threads_s / busy_s : 1; }
};

// What flowed between a caller and a callee during the window, whether or not it crossed a link.
struct EdgeStatistics {
  ObjectId from;  // the caller
  ObjectId to;    // the callee
  double calls = 0;
  double request_bytes = 0;  // from -> to
  double reply_bytes = 0;    // to -> from
  // Of request_bytes + reply_bytes: what they would vary between windows like this one, and the
  // number of samples that this rests on.
  double bytes_variance = 0;  // bytes squared
  double samples = 0;
};

// What adds up over time: a longer window has their sums. Variances add up too, but where figures
// are multiplied they are so twice.
inline constexpr double ObjectStatistics::*kObjectSums[] = {&ObjectStatistics::cpu_s,
                                                            &ObjectStatistics::background_cpu_s,
                                                            &ObjectStatistics::bytes_processed,
                                                            &ObjectStatistics::own_stall_s,
                                                            &ObjectStatistics::disk_s,
                                                            &ObjectStatistics::ready_s,
                                                            &ObjectStatistics::stall_s,
                                                            &ObjectStatistics::calls,
                                                            &ObjectStatistics::threads_s,
                                                            &ObjectStatistics::busy_s,
                                                            &ObjectStatistics::voluntary_switches,
                                                            &ObjectStatistics::involuntary_switches,
                                                            &ObjectStatistics::io_bytes,
                                                            &ObjectStatistics::io_requests,
                                                            &ObjectStatistics::io_s};
inline constexpr double EdgeStatistics::*kEdgeSums[] = {
    &EdgeStatistics::calls, &EdgeStatistics::request_bytes, &EdgeStatistics::reply_bytes};

// What is known of the way between two nodes. Undirected: one entry a pair, in either order.
struct LinkStatistics {
  NodeId a = 0;
  NodeId b = 0;
  std::optional<double> bandwidth_bytes_s;  // empty or 0: unknown
  std::optional<double> round_trip_s;       // of a null invocation; empty: unknown. 0 is a value.
  // The evidence: bytes over which the bandwidth was measured, of all windows that still count. A
  // bandwidth known beforehand (a prior) comes with the bytes that it is considered worth.
  double measured_bytes = 0;
  // Of bandwidth_bytes_s, as it varied between measurements.
  double bandwidth_variance = 0;  // (bytes per second) squared
  // What the invocations carried over which round_trip_s was measured, both ways: so much a call is
  // in it already.
  double round_trip_bytes = 0;
};

// How long quiescing this graph took when objects of it were moved before.
struct MigrationHistory {
  double quiesce_s = 0;  // mean; not read while count is 0
  uint64_t count = 0;
};

struct SnapshotOptions {
  // The engine is told to leave everything alone: it still computes and explains all candidates.
  bool suspended = false;
};

// One observation window. Order within the vectors carries no meaning.
struct Snapshot {
  double window_s = 0;  // what the figures cover; the engine scales to its own window H
  ObjectId console;     // the root of the graph to decide on
  // Every console whose objects may be among those below, `console` or not; needed only where
  // graphs share objects. Calls are followed downwards from each, so that another's objects are
  // not taken for this one's and the cost of a shared object is charged to all that use it.
  std::vector<ObjectId> consoles;
  // Time in which the console's activity was inside invocations during the window, where measured;
  // in sum over its threads, so up to CallsAtOnce() times the window.
  // The decision reports the model's error against it; it is not an input of the decision.
  std::optional<double> measured_t_app_s;

  std::vector<NodeStatistics> nodes;
  std::vector<ObjectStatistics> objects;
  std::vector<EdgeStatistics> edges;
  std::vector<LinkStatistics> links;
  MigrationHistory history;
  SnapshotOptions options;
};

}  // namespace abacus::placement

template <>
struct std::hash<abacus::placement::ObjectId> {
  size_t operator()(const abacus::placement::ObjectId& id) const noexcept {
    // Multiply-and-shift mixing: `local` counts upwards and would else fill neighbouring buckets.
    uint64_t h = (uint64_t{id.node} << 32 | id.incarnation) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h = (h ^ id.local) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(h ^ (h >> 29));
  }
};

#endif  // ABACUS_PLACEMENT_STATISTICS_H_
