#ifndef ABACUS_RUNTIME_BASE_IDS_H_
#define ABACUS_RUNTIME_BASE_IDS_H_

// The names of things: nodes, processes of nodes, objects, activities and calls.
//
// All of them are plain values: copyable, comparable, hashable (absl::Hash) and
// printable. None is ever reused, because each carries the incarnation of the process that made it.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace abacus::runtime {

// A machine (or a namespace, or a container) that takes part. 0 names no node.
using NodeId = uint32_t;

// One process life of a node. A restarted node has another incarnation, so that messages, location
// rows and rids of its dead process can be told from those of the living one.
struct NodeInstance {
  NodeId node = 0;
  uint32_t incarnation = 0;

  auto operator<=>(const NodeInstance&) const = default;
  bool valid() const { return node != 0; }
  std::string ToString() const;  // "7.41"

  template <typename H>
  friend H AbslHashValue(H h, const NodeInstance& n) {
    return H::combine(std::move(h), n.node, n.incarnation);
  }
};

// The run-time identifier of an object, unique in the network and never reused. It encodes the home
// node: the process that created the object and keeps its location row (paper, section 5.1).
struct Rid {
  NodeInstance home;
  uint64_t local = 0;

  auto operator<=>(const Rid&) const = default;
  bool valid() const { return home.valid(); }

  std::string ToString() const;  // "7.41.3"
  // Returns nothing where `text` is not three decimal numbers that ToString() could have printed.
  static std::optional<Rid> Parse(std::string_view text);

  template <typename H>
  friend H AbslHashValue(H h, const Rid& r) {
    return H::combine(std::move(h), r.home, r.local);
  }
};

// One logical chain of nested invocations. A branch of a fork is an activity of its own, whose
// `CallId::root` is the activity that a console or front end began.
struct ActivityId {
  NodeInstance origin;
  uint64_t local = 0;

  // No console waits for it: read-ahead, write-back. The mark is a part of the name, so that every
  // node on its way knows.
  static constexpr uint64_t kBackgroundMark = uint64_t{1} << 63;

  auto operator<=>(const ActivityId&) const = default;
  bool valid() const { return origin.valid(); }
  bool is_background() const { return (local & kBackgroundMark) != 0; }
  std::string ToString() const;

  template <typename H>
  friend H AbslHashValue(H h, const ActivityId& a) {
    return H::combine(std::move(h), a.origin, a.local);
  }
};

// Where a branch of a fork comes from: the activity that forked it, and how deep that was in calls
// then. A branch that forks again has one for each fork, the outermost first.
struct ForkPoint {
  ActivityId parent;
  uint32_t level = 0;
  bool operator==(const ForkPoint&) const = default;
};
using Lineage = std::vector<ForkPoint>;

// One invocation. An activity has one outstanding call at each nesting level, and the sequence
// numbers of an activity only grow, in the order in which its calls begin, on whichever nodes they
// begin: that is what makes "older than the last one seen" decidable at the callee.
struct CallId {
  ActivityId activity;
  uint32_t level = 0;  // 0: called by a console or front end
  uint64_t sequence = 0;

  auto operator<=>(const CallId&) const = default;
  std::string ToString() const;

  template <typename H>
  friend H AbslHashValue(H h, const CallId& c) {
    return H::combine(std::move(h), c.activity, c.level, c.sequence);
  }
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_IDS_H_
