#ifndef ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_
#define ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_

// What nodes and commands tell each other on the control plane, beside membership.h and digests.
// Plain values; proto_convert.h turns them into messages. Limits on what others send are checked
// where the messages arrive (control_service.cc).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "placement/statistics.h"
#include "runtime/base/ids.h"
#include "runtime/node/membership.h"
#include "runtime/node/node.h"

namespace abacus::runtime {

// Builds whose control messages mean something else have another one.
inline constexpr uint32_t kControlVersion = 1;

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
};

// One decision of the engine, in words.
struct DecisionText {
  absl::Time at;
  std::string outcome;
  std::string reason;
  std::string explanation;
  std::string details;
  std::string snapshot;  // JSON
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
    double cpu_share = 0;  // CPU seconds per second
    double bytes_s = 0;
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
  std::vector<MoveRecord> moves;  // newest first
  std::vector<Counter> counters;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_CONTROL_TYPES_H_
