#ifndef ABACUS_PLACEMENT_PLANNER_H_
#define ABACUS_PLACEMENT_PLANNER_H_

// The placement engine with a memory: what a storage server's loop asks, and the simulator too.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "placement/audit.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/history.h"
#include "placement/ledger.h"
#include "placement/phases.h"
#include "placement/planner_config.h"
#include "placement/statistics.h"
#include "placement/swings.h"

namespace abacus::placement {

// Decides like Decide() (engine.h), which sees one window and forgets it, and holds back what would
// not last: decisions on too little evidence, on a phase that is about to end, on a relief that
// others are already taking, or against the last decision for a small gain. After a move it looks
// whether the prediction came true, corrects itself, and takes the move back if it made things
// worse.
//
// In use: Observe() each digest's figures, Decide() after it, OnMoveEnded() after each move that a
// decision asked for. What it held back is still in its decision: `chosen` and all candidates are
// the engine's, so that explain can say what it would have done and why it did not.
//
// Invariants:
//  1. The same calls in the same order give the same decisions: no clock, no chance.
//  2. A move is only ever made to a placement that Decide() lists as paying, or (kUndo) back from
//     the last one, if objects are still allowed there and fit.
//  3. Nothing is remembered that a restart would miss for longer than a window, but the learnt
//     phases, corrections and cool-downs, without which it decides like the engine alone.
//
// Units: seconds of one clock; now_s may step: a step back is counted, decides nothing, and time
// goes on from there. Thread-safety: thread-compatible; nothing blocks. Limits: PlannerConfig; a
// graph takes about 3 KB and 2 KB an object. Source: paper 5.4.3 for the rule; the rest is ours
// (DESIGN 7).
class Planner {
 public:
  // REQUIRES: both configurations are valid; a decision by one that is not says kBadConfig.
  Planner(const Config& config, const PlannerConfig& planner_config);

  // Takes the figures of one graph for the short interval sample.window_s that ended at end_s.
  // Errors: kInvalidArgument  - a figure that is not a number or negative, or no console.
  //         kOutOfRange       - ended before one already taken, in the future, or too long ago.
  // Either way it is counted and forgotten; the next sample may be good.
  absl::Status Observe(Snapshot sample, double end_s, double now_s);

  // Decides on the samples of one graph: those of the last window H, but none from before the last
  // move or the last change of behaviour.
  Decision Decide(const ObjectId& console, double now_s);
  // The same on a window that the caller has added up; samples, where there are any, are preferred
  // as soon as the behaviour changed within the window.
  Decision Decide(const Snapshot& window, double now_s);

  // One decision of a round, and the window on which it was made (as asked()).
  struct Decided {
    Decision decision;
    Snapshot window;
    // Of moves that go together or not at all, an ejection among them: the same number, and not 0.
    uint64_t step = 0;
  };
  // Decides on many consoles at once: each as Decide(console) does; but where one wants to move, or
  // lacks memory to, and others are known on the same nodes, DecideAll (engine.h) is asked on the
  // windows of all of these, asked for here or not. A move is then only let go as part of a step of
  // that round, the best step first and the others in turn as of single decisions; else it is held
  // back: kOthersLose, or kWaitsForTurn for the steps that do go. A step that has others' objects
  // make room (paper, 6.7) is let go whole or not at all: claims, cool-downs and turns are asked of
  // all its consoles. Whoever leaves for it is decided kEjected, a move that is neither audited, as
  // being slower is its price, nor taken back as if it had been an error: as soon as there is room
  // again the object may return for the usual threshold. Only to eject in turn whoever it was
  // ejected for, within the phase, it needs hysteresis times that.
  //
  // Gives `take` a decision for each of `consoles`, those first in which others have no say.
  // Who is ejected after it was said to stay is decided twice, last kEjected. `take` may not call
  // the planner. Of the moves of one call those of kEjected are to be carried out first: they make
  // the room, for those of the same step and for no others. OnMoveEnded() is told for each console
  // that moves. Limits: kRoundPartiesAWindow parties to rounds are looked at in a window; seekers
  // wait between rounds of so many. At some 20 us a party that is a fifth of a core. Source:
  // paper, 5.4.2 and 6.7; roles, reasons and limits are ours.
  static constexpr double kRoundPartiesAWindow = 10'000;
  void DecideRound(absl::Span<const ObjectId> consoles, double now_s,
                   absl::FunctionRef<void(Decided)> take);
  // The same as a list: the last decision for each of `consoles`, in their order and each once,
  // then those of others that were ejected. REQUIRES: they are distinct.
  std::vector<Decided> DecideRound(absl::Span<const ObjectId> consoles, double now_s);

  // The moves of a decision are over. `ok`: they are where they were sent; else all is as before.
  // Units: seconds, as measured; not numbers or negative: ignored.
  void OnMoveEnded(const ObjectId& console, bool ok, double quiesce_s, double now_s);
  // The graph has ended.
  void Forget(const ObjectId& console);

  // New constants from now on, of graphs that are known too. Errors: kInvalidArgument; the old ones
  // stay.
  absl::Status SetConfig(const Config& config, const PlannerConfig& planner_config);
  // While suspended it stays and shows what it would do; in a dry run, also records decisions as
  // moves that were not made (kDryRun).
  void Suspend(bool suspended) { suspended_ = suspended; }
  void DryRun(bool dry_run) { dry_run_ = dry_run; }

  struct GraphStatus {
    bool moving = false;
    double phase_since_s = 0;
    uint64_t phase_changes = 0;
    std::optional<double> phase_length_ref_s;  // learnt, of phases of this kind (phases.h)
    std::optional<double> phase_remaining_ref_s;
    double cool_down_left_s = 0;
    int undone = 0;          // moves taken back and not yet forgiven
    size_t costs_known = 0;  // objects and edges that phases are told by, some of which may be gone
  };
  // Empty: the graph is not known.
  std::optional<GraphStatus> StatusOf(const ObjectId& console, double now_s) const;

  // The window on which the last decision of this planner was made, with loads and memory as it
  // took them: Decide() (engine.h) of it gives the same predictions again, with the decision's
  // window_s.
  const Snapshot& asked() const { return asked_; }

  // Predicted / measured - 1, for placements as they were and for those moved to.
  const RunningError& present_error() const { return present_error_; }
  const RunningError& move_error() const { return move_error_; }
  std::vector<Corrections::Entry> CorrectionsInForce(double now_s) const {
    return corrections_.InForce(now_s);
  }

  struct Counters {
    uint64_t samples_refused = 0;  // in all, and by what was wrong:
    uint64_t samples_bad_figure = 0;
    uint64_t samples_without_console = 0;
    uint64_t samples_at_clock_step = 0;
    uint64_t samples_late = 0;
    uint64_t clock_steps = 0;
    uint64_t audits = 0;
    uint64_t audits_dropped = 0;  // the behaviour or the others' load changed: not comparable
    uint64_t undone = 0;
    uint64_t undos_held_back = 0;  // it got slower, but may not, or does not fit, where it was
    uint64_t graphs_evicted = 0;
    uint64_t moves_failed = 0;
  };
  const Counters& counters() const { return counters_; }
  uint64_t DecisionsFor(Reason reason) const { return by_reason_[static_cast<size_t>(reason)]; }
  size_t graphs() const { return graphs_.size(); }

 private:
  // What a second and a byte are worth in the mix of costs (phases.h); held constant, as figures
  // of links vary and the mix must not vary with them.
  struct Prices {
    double rate = 0;
    double bandwidth_bytes_s = 0;
    double round_trip_s = 0;
  };
  // A move, for as long as it matters what came of it.
  struct LastMove {
    std::vector<Move> moves;
    uint64_t phase_changes = 0;  // of the graph when it was decided
    bool undo = false;
    bool ejected = false;  // for another's sake: slower is what it was expected to be
    bool audited = true;
    // T_app for a unit of the amount of work, before and as predicted; what came of it is measured
    // at the same prices, as a link's are estimates that may have changed since.
    Prices prices;
    double before_s = 0;
    double predicted_s = 0;
    PerSide others;
    // CPU time for a unit of the amount that the objects of `moves` should need.
    std::vector<double> expected_cpu_s;
    std::vector<double> seen_cpu_s;  // of each: what that rests on
  };
  // How much of the new time the best candidate would save, window after window of one phase.
  struct Settled {
    std::vector<Move> moves;
    uint64_t phase_changes = 0;
    double at_s = -1e300;
    double windows = 0;
    double mean = 0;
    double squares = 0;  // of the distances from the mean
    // By how much it differed from window to window, before the newest: what noise that lasts as
    // long as a window does, and the samples within one do not show.
    double deviation = 0;
    bool sure = false;  // the mean is above its threshold at the confidence bound
  };
  struct Graph {
    Graph(size_t samples_max, const PhaseConfig& phases, double window_s)
        : history(samples_max), phases(phases, window_s) {}
    GraphHistory history;
    PhaseTracker phases;
    // Where each object (with no callee) and edge stands in the mix of costs: what was learnt of
    // phases holds while others come and go.
    absl::flat_hash_map<std::pair<ObjectId, ObjectId>, size_t> places;
    Prices prices;
    double window_from_s = -1e300;  // figures from before do not count
    bool moving = false;
    std::optional<LastMove> last_move;
    Settled settled;
    double cool_until_s = -1e300;
    double cool_down_s = 0;
    double forgiven_s = 0;
    int undone = 0;
    double error_at_s = -1e300;  // when the model's error was last noted
    MigrationHistory quiesces;
    uint64_t used = 0;
  };

  // A decision up to where other consoles come in.
  struct Proposal {
    Decision decision;
    Snapshot window;
    Graph* graph = nullptr;  // null: not known
    bool goes = false;       // to be moved, as far as this graph is concerned
    bool harmless = false;   // and no other can lose by it (Settle)
    bool given = true;       // was asked for, and is not only a party to the round
    uint64_t step = 0;       // that it is let go with, if that ejects (Decided::step)
  };
  // What a step of a round is for one console.
  struct Part {
    Proposal* proposal = nullptr;
    Decision decision;
    bool seeks = false;        // else it is ejected
    bool as_proposed = false;  // the very moves that the graph was decided on by itself
  };

  // Time that never goes back; nothing if now_s is not to be believed.
  std::optional<double> Now(double now_s);
  Graph& GraphOf(const ObjectId& console);
  void EvictGraphs();
  double SinceOf(const Graph& graph, double now_s) const;
  Decision Count(Decision decision);
  Proposal ProposeFor(const ObjectId& console, std::optional<double> now);
  Proposal Propose(Graph& graph, Snapshot window, double now_s);
  void Weigh(double now_s, Proposal* proposal);
  void WeighMove(double now_s, Proposal* proposal);
  void Conclude(double now_s, Proposal* proposal);
  double Horizon(const Graph& graph, const Snapshot& window) const;
  bool ShortensPhase(const Graph& graph, const Snapshot& window, const Decision& decision) const;

  // Steps of a decision, each of which may hold a move back.
  void Correct(double now_s, Decision* decision) const;
  // Lowers the threshold of a candidate that has been better for long enough.
  void Settle(Graph& graph, const Snapshot& window, double now_s, Decision* decision) const;
  std::optional<Reason> Choose(const Graph& graph, const Snapshot& window,
                               Decision* decision) const;
  std::optional<Reason> WhyNot(const Graph& graph, const Snapshot& window, const Decision& decision,
                               size_t candidate) const;
  bool TakesBack(const Graph& graph, const std::vector<Move>& moves) const;
  std::optional<Reason> HoldBack(const Graph& graph, const Decision& decision, double now_s,
                                 bool in_round = false) const;
  void LearnCorrections(const LastMove& last, const Snapshot& window, double amount, double now_s);

  // Rounds (planner_round.cc).
  bool MayTakeTurn(const Decision& decision, double now_s, bool in_round) const;
  bool FollowsAtWorst(const Decision& decision, NodeId node, double now_s) const;
  bool Seeks(const Proposal& proposal) const;
  bool MayBeEjected(const Proposal& proposal, double now_s) const;
  // `refused`: what was not understood in this very round.
  void AddParties(double now_s, const absl::flat_hash_set<ObjectId>& refused,
                  std::vector<Proposal>* proposals);
  // A round's answers and its proposals by console: steps are many where consoles are.
  struct Asked {
    Round round;
    absl::flat_hash_map<ObjectId, size_t> console;   // index in round.consoles
    absl::flat_hash_map<ObjectId, size_t> proposal;  // index in the proposals
  };
  Asked AskRound(const std::vector<Proposal>& parties, double now_s) const;
  std::vector<Part> PartsOf(const RoundStep& step, const Asked& asked,
                            std::vector<Proposal>* proposals) const;
  std::optional<Reason> HoldBackStep(const RoundStep& step, const std::vector<Part>& parts,
                                     double now_s) const;
  void Refrain(const Asked& asked, double now_s, Proposal* proposal);
  void DecideTogether(double now_s, const absl::flat_hash_set<ObjectId>& refused,
                      std::vector<Proposal>* proposals);

  // Compares the last move with what came of it. Returns true if it is to be taken back.
  bool AuditLastMove(Graph& graph, const Snapshot& window, const Decision& decision, double now_s);
  std::string WhyNotBack(const std::vector<Move>& back, const std::optional<Candidate>& there,
                         const Decision& decision, double now_s) const;
  std::string Undo(Graph& graph, const Snapshot& window, Decision* decision, double now_s);
  void LetGo(Graph& graph, const Snapshot& window, const Decision& decision, double now_s);
  static std::vector<double> CostsOf(const Prices& prices, const Snapshot& snapshot);
  static std::vector<double> MixOf(Graph& graph, const Snapshot& snapshot);
  static double AmountOf(const Prices& prices, const Snapshot& snapshot);
  static bool SetPrices(const Snapshot& sample, Prices* prices);

  Config config_;
  PlannerConfig planner_;
  absl::Status valid_;
  bool suspended_ = false;
  bool dry_run_ = false;
  double last_now_s_ = 0;
  double clock_offset_s_ = 0;
  bool started_ = false;
  uint64_t uses_ = 0;
  double next_round_s_ = -1e300;
  uint64_t steps_ = 0;  // that ejected
  absl::flat_hash_map<ObjectId, std::unique_ptr<Graph>> graphs_;
  Ledger ledger_;
  Swings swings_;
  Corrections corrections_;
  Snapshot asked_;
  RunningError present_error_;
  RunningError move_error_;
  Counters counters_;
  std::array<uint64_t, 64> by_reason_{};
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_PLANNER_H_
