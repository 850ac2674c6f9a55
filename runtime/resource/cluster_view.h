#ifndef ABACUS_RUNTIME_RESOURCE_CLUSTER_VIEW_H_
#define ABACUS_RUNTIME_RESOURCE_CLUSTER_VIEW_H_

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/statistics.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// The newest digests of all nodes, so arranged that the snapshot of one console costs what the
// console reaches and not what the cluster holds.
//
// Made once for all consoles of a round. A copy of everything for each console was 2.5 million
// objects looked at for 1,000 consoles of 2.5.
// Thread-safety: thread-compatible; const once made. Ownership: keeps pointers into `digests`,
// which must outlive it. Source: paper, section 5.3 (joining of digests); the rest is ours.
class ClusterView {
 public:
  explicit ClusterView(const std::map<NodeInstance, Digest>& digests);

  struct Joined {
    // The console's graph, and those of other consoles that cannot be decided apart from it, as if
    // all nodes had been seen for as long as the console's own.
    placement::Snapshot snapshot;
    // Why the figures are none: they begin anew, as a node has none yet or an object came or left;
    // or two nodes both say that they host an object.
    bool begins_anew = false;
    bool on_two_nodes = false;
  };
  // `client`: of the console's own node.
  Joined SnapshotOf(const Rid& console, const Digest& client) const;

 private:
  using ObjectId = placement::ObjectId;
  using Ids = absl::flat_hash_set<ObjectId>;

  struct Object {
    const placement::ObjectStatistics* figures = nullptr;
    double length_s = 0;  // of the digest
    bool anew = false;
    bool on_two_nodes = false;
  };
  struct Call {
    const placement::EdgeStatistics* figures = nullptr;
    double length_s = 0;
  };

  // The best that was seen of a node's links.
  struct Reach {
    double bandwidth_bytes_s = 0;
    double evident_bandwidth_bytes_s = 0;  // over bytes enough to be decided by
    double round_trip_s = std::numeric_limits<double>::infinity();
  };

  void AddDigest(const Digest& digest);
  // The consoles, what calls of theirs can reach, and what is attached to it.
  Ids Reachable(const std::vector<ObjectId>& consoles) const;
  absl::Span<const ObjectId> AttachedTo(const ObjectId& id) const;
  bool IsMobile(const ObjectId& id) const;
  std::set<ObjectId> ConsolesThatReach(const std::vector<ObjectId>& objects) const;
  std::vector<ObjectId> ConsolesBeside(const ObjectId& console, const Ids& own) const;
  void AddObjects(const Ids& reached, double window_s, Joined* joined) const;
  void AddEdges(const Ids& reached, double window_s, placement::Snapshot* snapshot) const;
  void AddAttachments(std::vector<placement::EdgeStatistics>* edges) const;
  void AddNodes(placement::Snapshot* snapshot) const;
  std::optional<placement::LinkStatistics> LinkBetween(NodeId a, NodeId b) const;
  // What is guessed of a link of which too little was measured; `link`: what was.
  static std::optional<placement::LinkStatistics> BetweenServers(
      NodeId a, NodeId b, std::optional<placement::LinkStatistics> link, const Reach& of_a,
      const Reach& of_b);
  static std::optional<placement::LinkStatistics> OfClient(
      std::optional<placement::LinkStatistics> link, const Reach& of_client);

  absl::flat_hash_map<ObjectId, Object> objects_;
  absl::flat_hash_map<ObjectId, absl::InlinedVector<Call, 2>> calls_;        // by caller
  absl::flat_hash_map<ObjectId, absl::InlinedVector<ObjectId, 2>> callers_;  // of each callee
  absl::flat_hash_set<ObjectId> consoles_;
  absl::flat_hash_map<ObjectId, const PinRecord*> told_;
  absl::flat_hash_map<uint32_t, std::vector<ObjectId>> groups_;  // of objects that are attached
  absl::flat_hash_map<NodeId, const placement::NodeStatistics*> nodes_;
  absl::flat_hash_map<std::pair<NodeId, NodeId>, const placement::LinkStatistics*> links_;
  absl::flat_hash_map<NodeId, Reach> reach_;
  absl::flat_hash_set<ObjectId> anew_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_CLUSTER_VIEW_H_
