#ifndef ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_
#define ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/planner.h"
#include "placement/statistics.h"
#include "runtime/base/mutex.h"
#include "runtime/resource/cluster_view.h"
#include "runtime/resource/decision_log.h"
#include "runtime/resource/decision_memory.h"
#include "runtime/resource/digest.h"
#include "runtime/resource/digest_window.h"

namespace abacus::runtime {

// A move that the engine wants, to be carried out by the objects' host.
struct PlannedMove {
  Rid console;
  std::vector<Rid> rids;
  NodeId from = 0;
  NodeId to = 0;
  std::string reason;
  double predicted_gain_s = 0;  // for the work of one window
  double predicted_cost_s = 0;
  // Moves that go together or not at all: the same number; 0: of no such step.
  uint64_t step = 0;
  // An ejection, for the others of its step, which come after it.
  bool makes_room = false;
};

// Moves of which `then` may begin when all of `first` have been carried out, and not if one failed.
struct MoveStep {
  std::vector<PlannedMove> first;
  std::vector<PlannedMove> then;
};

// The moves of a round by what they wait for: each step by itself, and each move of none alone, so
// that nothing waits for room that it does not need. In the order in which they are to begin.
std::vector<MoveStep> StepsOf(std::vector<PlannedMove> moves);

// A storage server's side of placement (paper, sections 5.3 and 5.4): takes the digests of clients
// and of its own node, joins them into a snapshot per console, asks the placement library, and says
// what is to be moved.
//
// It decides for a console whose graph reaches an object of this server (of several servers, the
// one with the lowest anchored object decides) at every digest of the console's node: on the window
// that the planner makes of them (placement/planner.h). What it decided is kept for `Explain`.
// Times are of a clock that does not step (steady_time.h): how old a digest is, how long a
// cool-down lasts. Only what people read, when something was decided, is the time of day; where
// that steps against the other clock, it is counted ("wall_clock_stepped_forward", "..._back") and
// changes nothing. Thread-safety: thread-safe. Digests are taken in while a decision is being made.
// Blocking: Decide() writes the log, while nobody else waits; the others do not block.
class PlacementLoop {
 public:
  struct Options {
    placement::Config engine;
    placement::PlannerConfig planner;
    bool enabled = true;
    bool dry_run = false;            // decisions are recorded, and no move is planned
    size_t decisions_kept_max = 64;  // of each console; the log has more
    // Of all decisions that are kept in memory: the oldest go first, and are counted.
    uint64_t decision_memory_max = uint64_t{64} << 20;
    // Where decisions are written as well (decision_log.h).
    std::string log_path;
    uint64_t log_bytes_max = uint64_t{8} << 20;
  };

  PlacementLoop(NodeId self, Options options)
      : self_(self),
        log_(options.log_path, options.log_bytes_max),
        options_(std::move(options)),
        planner_(options_.engine, options_.planner),
        memory_({.of_console_max = options_.decisions_kept_max,
                 .bytes_max = options_.decision_memory_max}),
        window_(absl::Seconds(options_.engine.window_s)) {
    planner_.DryRun(options_.dry_run);
  }

  // Takes over a digest. Those of one node are to come in their order.
  // Errors, each counted: kInvalidArgument names the figure that cannot be (not a number,
  // negative); kFailedPrecondition - the node was forgotten.
  absl::Status Accept(Digest digest, absl::Time now);
  // A digest came from a process that is none of the cluster's: it is counted.
  void RefuseStranger();
  // The node is dead: what it reported counts no more, and what comes from it still is refused. It
  // may have been a member when somebody looked, and have died before its digest was taken in.
  // Limits: of kForgottenMax nodes, the last ones, long after they are members no more.
  void Forget(NodeInstance node);
  static constexpr size_t kForgottenMax = 4096;

  // Decides for every console of which there is a new sample, in one round with all that are known
  // on the same nodes (placement/planner.h). A console whose move is still under way is left out
  // until OnMoveEnded(). Moves of one call that make room come before those that need it; a console
  // that is ejected is planned for as if it had been decided on itself. `wall`: the time of day.
  std::vector<PlannedMove> Decide(absl::Time now, absl::Time wall);
  std::vector<PlannedMove> Decide(absl::Time now) { return Decide(now, now); }
  void OnMoveEnded(const PlannedMove& move, const absl::Status& status, absl::Duration quiesce,
                   absl::Time now);

  // The last decisions on an object's stack, newest first.
  std::vector<DecisionRecord> Explain(const Rid& rid, size_t max) const;
  // The same from the log, where those of before a restart stand too.
  std::vector<LoggedDecision> ExplainFromLog(const Rid& rid, size_t max) const {
    return log_.Find(rid, max);
  }

  // What each node saw in the last window and up to half of one more, for `status`.
  std::vector<Digest> Digests() const;

  // Decisions counted by reason name; what was refused, by what was wrong with it: "digest_bad_..."
  // of digests (those of this node also as "own_digest_refused"; "digest_stale" of nodes that fell
  // silent), "sample_..." of what was made of them. Of decisions that left something aside,
  // whatever their reason: "decided_without_a_link", "decided_without_a_node" of what has no
  // figures to be trusted, "decided_with_a_cut_off" of predictions that did not converge. Counters
  // of what never happened are left out.
  std::map<std::string, uint64_t> Counters() const;

  struct Mode {
    bool enabled = true;
    bool suspended = false;
    bool dry_run = false;
  };
  Mode mode() const;

  // How far predictions of response times were off: |predicted / measured - 1|, of the last ones
  // (planner.errors_max). 0 where there are none.
  struct ModelError {
    uint64_t count = 0;
    double median = 0;
    double p95 = 0;
  };
  // Of placements as they were, and of those moved to.
  ModelError PresentError() const;
  ModelError MoveError() const;

  void Enable(bool enabled);
  // While suspended it decides and explains, and moves nothing.
  void Suspend(bool suspended);
  void DryRun(bool dry_run);

  // From now on (Options::decision_memory_max).
  void SetDecisionMemory(uint64_t bytes_max);

  // New constants, from a changed configuration. Errors: kInvalidArgument; the old ones stay.
  absl::Status SetConfig(const placement::Config& config,
                         const placement::PlannerConfig& planner_config);

 private:
  struct Reported {
    Digest pending;  // since the last decision; of no node where nothing came
    DigestWindow window;
    absl::Time at;
  };
  struct GraphState {
    // Of the decision that is being carried out: a decision about a graph may take several moves.
    int moving = 0;
    bool all_moved = true;
    absl::Duration quiesce;  // the longest
    absl::Time recorded_at = absl::InfinitePast();
    // What the log has last.
    std::optional<std::pair<placement::Outcome, placement::Reason>> logged;
    absl::Time logged_at;
  };
  // Decisions of a round, for the log.
  struct ToLog {
    std::vector<DecisionRecord> records;
    size_t stays = 0, held_back = 0;
  };
  // When a round is made: for spans, and for people.
  struct Moment {
    absl::Time now;
    absl::Time wall;
  };

  void FinishGraphs(absl::FunctionRef<bool(const Rid& console, const GraphState& graph)> ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<NodeInstance> TakeSamples(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Observe(const ClusterView& cluster, const Rid& console, const Digest& client, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<PlannedMove> DecideAll(const Moment& at, ToLog* to_log);
  // Threads that wait for the lock come later than the time that they read.
  absl::Time InOrder(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return last_now_ = std::max(last_now_, now);
  }
  // Counts steps of the time of day.
  void CompareClocks(const Moment& at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(placement::Planner::Decided decided, const Moment& at, std::vector<PlannedMove>& moves,
            ToLog* to_log) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Record(const Rid& console, const Moment& at, placement::Planner::Decided decided,
              ToLog* to_log) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Log(GraphState& graph, const DecisionRecord& record, absl::Time now, ToLog* to_log)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeId self_;
  DecisionLog log_;
  mutable Mutex mutex_;
  Options options_ ABSL_GUARDED_BY(mutex_);
  bool suspended_ ABSL_GUARDED_BY(mutex_) = false;
  placement::Planner planner_ ABSL_GUARDED_BY(mutex_);
  // What the last decision took.
  std::map<NodeInstance, Digest> samples_ ABSL_GUARDED_BY(mutex_);
  std::map<Rid, GraphState> graphs_ ABSL_GUARDED_BY(mutex_);
  DecisionMemory memory_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_now_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // The time of day less the steady one, at the last round.
  std::optional<absl::Duration> wall_offset_ ABSL_GUARDED_BY(mutex_);

  // Of what comes in, and never held for long. Acquired after mutex_.
  mutable Mutex inbox_mutex_;
  std::map<NodeInstance, Reported> reported_ ABSL_GUARDED_BY(inbox_mutex_);
  absl::Duration window_ ABSL_GUARDED_BY(inbox_mutex_);
  std::map<std::string, uint64_t> digests_refused_ ABSL_GUARDED_BY(inbox_mutex_);  // by what for
  uint64_t strangers_ ABSL_GUARDED_BY(inbox_mutex_) = 0;
  std::set<NodeInstance> forgotten_ ABSL_GUARDED_BY(inbox_mutex_);
  std::deque<NodeInstance> forgotten_in_order_ ABSL_GUARDED_BY(inbox_mutex_);  // the oldest first
};

// The snapshot as JSON, and back: a recorded decision can be replayed from it.
std::string ToJson(const placement::Snapshot& snapshot);
absl::StatusOr<placement::Snapshot> SnapshotFromJson(const std::string& text);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_PLACEMENT_LOOP_H_
