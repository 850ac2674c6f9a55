#ifndef ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_
#define ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_

// What nodes and commands tell each other on the control plane, beside membership.h and digests.
// Plain values; proto_convert.h turns them into messages. Limits on what others send are checked
// where the messages arrive (control_service.cc).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "placement/statistics.h"
#include "runtime/base/ids.h"
#include "runtime/node/membership.h"
#include "runtime/node/node.h"
#include "runtime/resource/placement_loop.h"

namespace abacus::runtime {

// Builds whose control messages mean something else have another one.
inline constexpr uint32_t kControlVersion = 1;

// A digest has a few hundred bytes for each object that was called in the window.
inline constexpr int kControlMessageBytesMax = 64 << 20;

// A command is passed on to where its object is at most so often.
inline constexpr uint32_t kHopsMax = 3;

struct MoveCommand {
  std::vector<Rid> rids;
  NodeId target = 0;
  bool by_engine = false;
  std::string reason;
  absl::Duration predicted_gain;
  absl::Duration predicted_cost;
  uint32_t hops = 0;
};

// A move that has ended, as its source tells it.
struct MoveRecord {
  MoveEvent event;
  NodeInstance source;  // with `serial`, the name of this move
  uint64_t serial = 0;
  absl::Duration quiesce;
  absl::Time ended;
};

struct PinCommand {
  Rid rid;
  bool pinned = false;
  NodeId node = 0;      // where to hold it; 0: where it is
  absl::Duration hold;  // zero: until unpinned
  uint32_t hops = 0;
  // Where one of these is set the command is about it, and not about pins.
  std::optional<std::vector<NodeId>> allowed;  // empty: any node
  std::optional<uint32_t> attach_group;        // 0: none
};

// How a server's engine is to go on, and how it goes on.
struct EngineCommand {
  std::optional<bool> suspended;
  std::optional<bool> dry_run;
};
struct EngineState {
  bool enabled = false;  // placement.enabled of its configuration
  bool suspended = false;
  bool dry_run = false;
  // How far predictions were off; see PlacementLoop::ModelError.
  PlacementLoop::ModelError present_error;
  PlacementLoop::ModelError move_error;
};

// One decision of the engine, in words.
struct DecisionText {
  absl::Time at;
  std::string outcome;
  std::string reason;
  std::string explanation;
  std::string details;
  std::string snapshot;  // JSON
  // Those of the snapshot: where the figures of each came from stands there. None where it cannot
  // be read any more.
  std::vector<placement::NodeStatistics> nodes;
};

// What `abacus status` shows.
struct NodeReport {
  struct MemberLine {
    MemberInfo info;
    absl::Duration heard_age;
    bool measured = false;  // `statistics` came in a digest
    placement::NodeStatistics statistics;
  };
  struct ObjectLine {
    Rid rid;
    std::string class_name;
    NodeId node = 0;
    bool mobile = false;
    bool pinned = false;
    std::string pinned_reason;
    // Seconds per second inside its methods: computing, blocked (of that, on a disk) and ready with
    // no processor free; and waiting in calls to other nodes.
    double cpu_share = 0;
    double blocked_share = 0;
    double disk_share = 0;
    double ready_share = 0;
    double background_share = 0;  // computing that no console waits for; not in cpu_share
    double stall_share = 0;
    double bytes_s = 0;     // arguments in and results out
    double bytes_in_s = 0;  // those of its own calls to others counted as well
    double bytes_out_s = 0;
    uint64_t memory_bytes = 0;  // 0: nothing, or not counted
    // Context switches inside its methods, because they blocked and because another thread was to
    // run; block I/O that they began. Empty: the source of its node's figures does not see them.
    std::optional<double> voluntary_switches_s;
    std::optional<double> involuntary_switches_s;
    std::optional<double> io_bytes_s;
    std::optional<double> io_requests_s;
    std::optional<double> io_share;  // from submission to completion, summed over requests

    // CPU time per byte processed; 0 where there was none.
    double ns_per_byte() const { return bytes_s > 0 ? cpu_share * 1e9 / bytes_s : 0; }
  };
  // What flowed between two objects.
  struct EdgeLine {
    Rid from;  // the caller
    Rid to;
    double calls_s = 0;
    double request_bytes_s = 0;
    double reply_bytes_s = 0;
  };
  // What the reporting node's kernel knows of its TCP connections with a peer.
  struct LinkLine {
    NodeId node = 0;           // 0: no node that is known is at the address
    uint64_t connections = 0;  // that there are now; the bytes are also of those before
    std::string peer;          // address:port of the one that was used last
    double delivered_bytes_s = 0;
    bool app_limited = false;  // that is a lower bound
    absl::Duration round_trip;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
  };
  struct Counter {
    std::string name;
    uint64_t value = 0;
  };

  MemberInfo self;
  std::string health;  // "OK", or sentences that say what is wrong
  std::vector<MemberLine> members;
  std::vector<ObjectLine> objects;
  uint64_t objects_total = 0;
  std::vector<EdgeLine> edges;  // of those objects
  std::vector<LinkLine> links;
  std::vector<MoveRecord> moves;  // newest first
  std::vector<Counter> counters;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_
