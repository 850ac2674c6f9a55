#ifndef ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_
#define ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/statistics.h"
#include "runtime/base/mutex.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// A decision as it is kept: enough to explain it and to make it again.
struct DecisionRecord {
  absl::Time at;
  placement::Decision decision;
  std::string snapshot_json;
};

// A move that the engine wants, to be carried out by the objects' host.
struct PlannedMove {
  Rid console;
  std::vector<Rid> rids;
  NodeId from = 0;
  NodeId to = 0;
  std::string reason;
  double predicted_gain_s = 0;  // for the work of one window
  double predicted_cost_s = 0;
};

// A storage server's side of placement (paper, sections 5.3 and 5.4): takes the digests of clients
// and of its own node, joins them into a snapshot per console, asks the placement library, and says
// what is to be moved.
//
// It decides for a console whose graph reaches an object of this server (of several servers, the
// one with the lowest anchored object decides) once a whole observation window has been seen since
// the graph's last move, and then at every digest; what it decided is kept for `Explain`.
// Thread-safety: thread-safe. Blocking: none.
class PlacementLoop {
 public:
  struct Options {
    placement::Config engine;
    bool enabled = true;
    size_t decisions_kept_max = 256;
  };

  PlacementLoop(NodeId self, Options options) : self_(self), options_(options) {}

  // Takes over a digest; an older one of the same node is dropped.
  // Errors: kInvalidArgument names the figure that cannot be (not a number, negative).
  absl::Status Accept(Digest digest, absl::Time now);
  // The node is dead: what it reported counts no more.
  void Forget(NodeInstance node);

  // Decides for every console whose figures are fresh. A console whose move is still under way is
  // left out until OnMoveEnded().
  std::vector<PlannedMove> Decide(absl::Time now);
  void OnMoveEnded(const PlannedMove& move, const absl::Status& status, absl::Duration quiesce,
                   absl::Time now);

  // The last decisions on an object's stack, newest first.
  std::vector<DecisionRecord> Explain(const Rid& rid, size_t max) const;

  // The last statistics of each node, for `status`.
  std::vector<Digest> Digests() const;

  // Decisions counted by reason name.
  std::map<std::string, uint64_t> Counters() const;

  // New constants, from a changed configuration. Errors: kInvalidArgument.
  absl::Status SetConfig(const placement::Config& config);

 private:
  struct Received {
    Digest digest;
    absl::Time at;
  };
  struct GraphState {
    int moving = 0;  // planned moves that have not ended
    placement::MigrationHistory history;
    std::deque<DecisionRecord> decisions;
  };

  // Graphs that have ended, and decisions of each, that are kept for Explain().
  static constexpr size_t kFinishedMax = 64;
  static constexpr size_t kDecisionsOfFinishedMax = 16;

  void FinishGraphs(absl::FunctionRef<bool(const Rid& console, const GraphState& graph)> ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  placement::Snapshot Assemble(const Rid& console, const Digest& client) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Record(GraphState& graph, DecisionRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeId self_;
  mutable Mutex mutex_;
  Options options_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeInstance, Received> digests_ ABSL_GUARDED_BY(mutex_);
  std::map<Rid, GraphState> graphs_ ABSL_GUARDED_BY(mutex_);
  // The oldest first.
  std::deque<std::pair<Rid, std::deque<DecisionRecord>>> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mutex_);
};

// The snapshot as JSON, and back: a recorded decision can be replayed from it.
std::string ToJson(const placement::Snapshot& snapshot);
absl::StatusOr<placement::Snapshot> SnapshotFromJson(const std::string& text);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_
