#ifndef ABACUS_PLACEMENT_DECISION_H_
#define ABACUS_PLACEMENT_DECISION_H_

// What the placement engine answers: move or stay, and all the numbers that the answer rests on.
//
// Plain values, thread-compatible. Times are seconds for the work of one window H (`window_s`).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/equations.h"
#include "placement/statistics.h"

namespace abacus::placement {

enum class Outcome : uint8_t { kStay, kMove };

// Why. One reason per decision; reasons are what refused snapshots are counted by.
enum class Reason : uint8_t {
  // The model was evaluated.
  kNetBenefit,      // move: the net benefit of the chosen placement is above the threshold
  kPresentIsBest,   // no other allowed placement is predicted to be faster
  kBelowThreshold,  // one is faster, but its net benefit is not above the threshold
  kUncertain,       // one would be above it, but its figures vary too much to be sure
  kPinned,          // one would pay, but an object that it moves is pinned
  kNoMemory,        // one would pay, but its objects do not fit into the target's free memory
  kMemoryUnknown,   // one would pay, but what its objects hold is unknown, and memory is limited
  kNoCpu,           // one would pay, but its objects would use more CPU than a server lends
  kNothingMobile,   // no object of the stack may move
  kSuspended,       // one pays, but the engine is told to leave everything alone
  kNotConverged,    // equations 5 and 6 were cut off where it would have mattered
  // The model was evaluated, and the Planner (planner.h) had the last word. Its outcome is stay but
  // for kUndo and kEjected; `chosen` is then what it held back.
  kUndo,            // move back: the last move made the graph slower
  kDryRun,          // one pays, but decisions are only to be recorded
  kMoveUnderWay,    // a move of this graph has not ended yet
  kWaitsForWindow,  // one pays, but not by so much that less than a whole window would do
  kCoolDown,        // one pays, but the last move was too short a time ago
  kHysteresis,      // one pays, but undoes the last move, for which more is asked
  kPhaseTooShort,   // one would pay, but not in what is left of the phase
  kWaitsForTurn,    // one pays, but others that rest on the same node's load are moving there now
  kClaimed,         // one pays, but an object of it is being moved for another console
  // Of a round (engine.h, Planner::DecideRound).
  kOthersLose,  // one pays for its console, but others on the node would lose more than it gains
  kEjected,     // move: its place on a full node goes to a console that gains more there
  // The snapshot does not describe a graph that could be placed otherwise.
  kUnknownConsole,  // the console is not among the objects
  kUnknownObject,   // an edge leads to an object that is not in the snapshot
  kUnknownNode,     // an object is on a node that is not in the snapshot
  kUnknownLink,     // no link between two nodes that objects call each other across
  kDuplicateEntry,  // an object, edge, node or link is there twice
  kConsoleAlone,    // the console has called no other object
  kStackTooLong,    // more objects than stack_objects_max
  kOneNode,         // everything is on one node and may not leave it: there is no link to save
  kNoStorage,       // no object below the console is anchored
  // The figures are not to be trusted, or are missing.
  kBadFigure,          // not a number, negative, or absurd
  kRateUnknown,        // a node is not calibrated yet
  kBandwidthUnknown,   // of a link that objects call each other across
  kRoundTripUnknown,   // of that link
  kWeakLinkEvidence,   // its bandwidth was measured over too few bytes
  kTooLittleEvidence,  // too few bytes flowed along the stack in the window
  kBadConfig,          // Validate(config) fails
  kClockStepped,       // the time is before that of the last call, or not a number
  kImplausible,        // figures contradict each other: one of them is not true
};

// "net_benefit", "present_is_best", ...: for logs, metrics and JSON.
std::string_view ReasonName(Reason reason);
std::string_view OutcomeName(Outcome outcome);

// All reasons in declaration order, for counters that show zeros.
std::vector<Reason> AllReasons();

// What became of one candidate.
enum class Verdict : uint8_t {
  kPresent,         // the placement as it is
  kPays,            // net benefit above the threshold
  kBelowThreshold,  // faster, but not by enough after the cost
  kUncertain,       // by enough, but not surely so
  kSlower,          // predicted not to be faster
  kPinned,          // moves an object that is pinned
  kAnchored,        // moves an object that can never move
  kNoMemory,        // does not fit into the target's free memory
  kMemoryUnknown,   // what it moves holds nobody knows how much, and the target has a limit
  kNoCpu,           // would use more CPU of a server than cpu_share_max
  kNotConverged,    // its prediction was cut off
};

std::string_view VerdictName(Verdict verdict);

struct Move {
  ObjectId object;
  NodeId from = 0;
  NodeId to = 0;

  bool operator==(const Move&) const = default;
};

struct MigrationCost {
  double quiesce_s = 0;   // mean of the history, or the configured prior
  double transfer_s = 0;  // checkpoint bytes of all objects that move / bandwidth
  double protocol_s = 0;  // round trips of the protocol
  double checkpoint_bytes = 0;

  double Total() const { return quiesce_s + transfer_s + protocol_s; }
};

// One placement and what is predicted for it.
struct Candidate {
  int split = -1;           // of a chain the paper's k: objects 0..k at the client; else -1
  std::vector<Move> moves;  // what it changes, in the order of Decision::stack
  size_t objects_moved = 0;
  Prediction prediction;
  std::vector<double> node_loads;  // L of each of Decision::nodes; empty for a chain
  MigrationCost cost;              // zero where nothing moves
  double benefit_s = 0;            // T_app now - T_app of this placement
  double net_benefit_s = 0;        // less the cost
  double threshold_s = 0;          // B_thresh x T_app of this placement
  // Standard deviation of benefit_s, from the variances of CPU times, bytes and bandwidths; 0 where
  // none is known. The move is judged by net_benefit_s - confidence_z x this.
  double benefit_deviation_s = 0;
  Verdict verdict = Verdict::kPresent;
  // Would pay if it were allowed and had the memory: tells a pin that costs from one that does not.
  bool above_threshold = false;
};

// One object of the stack, console first.
struct StackObject {
  ObjectId id;
  std::string class_name;
  NodeId node = 0;            // now
  Side side = Side::kClient;  // kServer: not on the console's node
  bool fixed = false;         // anchored, pinned or attached to one that is: stays
  bool pinned = false;        // fixed by a pin and not by nature
  std::string pinned_reason;
  Layer layer;  // work and own stall of one window H
  Flow below;   // of a chain: to the next object, in one window H; zero for the last
};

// Two objects of the graph that call each other: indices into Decision::stack.
struct StackEdge {
  size_t above = 0;
  size_t below = 0;
  Flow flow;  // in one window H
};

// One decision. Up to `moves` the fields say what to do; the others say why, and are filled as far
// as the snapshot could be read.
struct Decision {
  Outcome outcome = Outcome::kStay;
  Reason reason = Reason::kPresentIsBest;
  std::vector<Move> moves;  // empty unless kMove; carried out together, as one step

  ObjectId console;
  // Why it moves or stays: a few sentences for people, numbers included.  They take microseconds to
  // make, and are made when somebody asks; of a refusal, and of what was held back, at once. Empty
  // where nothing was decided.
  std::string Explanation() const;
  std::string explained;  // where it is more than the other fields say; else empty
  double window_s = 0;    // H
  double b_thresh = 0;
  double confidence_z = 0;
  double cpu_share_max = 1;

  bool chain = false;              // decided by trying every split
  std::vector<StackObject> stack;  // callers before those they call
  std::vector<StackEdge> edges;
  // Where the objects are or may go: the consoles' nodes first, the others by number; and the load
  // that others put on each.
  std::vector<NodeStatistics> nodes;
  std::vector<double> nodes_others;
  std::vector<LinkStatistics> links;  // those between `nodes` that could be used
  // Left aside: links between `nodes` without usable figures, and nodes that were allowed but are
  // unknown or not to be trusted. Placements that would need them were not considered.
  size_t links_left_aside = 0;
  size_t nodes_left_aside = 0;

  // The console's node, the node of the anchored object lowest in the stack (the first other node
  // where that is the console's), the link between them, and the load that others put on the two.
  // They are all that there is where the graph is a chain.
  NodeStatistics client;
  NodeStatistics server;
  LinkStatistics link;
  PerSide others;

  // The prediction for the placement as it is; candidates are compared with this, not with the
  // measured time, so that what the model leaves out is left out on both sides.
  std::optional<Prediction> present;
  std::vector<double> present_loads;  // L of each of `nodes`
  // Of a chain every split, k ascending; the present placement is among them if it is a split. Of
  // another graph the present placement, then the best joint ones and the best move of each single
  // object, by net benefit, at most candidates_max in all.
  std::vector<Candidate> candidates;
  // Index of the candidate with the highest net benefit among those that pay. Set without a move
  // only where the engine is suspended or the Planner held the move back.
  std::optional<size_t> chosen;

  // Model error: predicted / measured - 1 for the present placement, where T_app was measured.
  std::optional<double> measured_t_app_s;  // scaled to H
  // Calls that go on at once while any does: response times are sums over them. Of several consoles
  // the mean, by their times.
  double calls_at_once = 1;
  std::optional<double> model_error;
  int cut_off = 0;  // predictions that did not converge, the present one included
};

// Moves of a round that are carried out as one step: of one console's objects, or of those that
// consoles share; with what others' objects have to leave a full node for them.
struct RoundStep {
  std::vector<ObjectId> consoles;  // whose objects move
  std::vector<Move> moves;
  MigrationCost cost;
  // What all consoles gain in sum, others' slow-down taken off; estimated where many are on a node.
  double benefit_s = 0;
  double net_benefit_s = 0;
  double threshold_s = 0;  // B_thresh x T_app there of those that it is for
  double benefit_deviation_s = 0;
};

// What a round means for one console.
struct RoundConsole {
  ObjectId console;
  Outcome outcome = Outcome::kStay;  // kMove: it is in one of the steps
  Reason reason = Reason::kPresentIsBest;
  std::string detail;  // of a refusal: names the entry and the figure
  double t_now_s = 0;  // predicted as placed now; 0 if refused
  double t_new_s = 0;  // predicted once the whole round is carried out
  // Of kOthersLose, of the placement that it was refused: what it would gain itself, its threshold,
  // and what all others would lose.
  double own_net_benefit_s = 0;
  double own_threshold_s = 0;
  double others_lose_s = 0;
};

// A decision about many consoles at once.
struct Round {
  std::vector<RoundStep> steps;  // the most net benefit first; none where the engine is suspended
  std::vector<RoundConsole> consoles;
  double mean_now_s = 0;  // over the consoles that were not refused
  double mean_new_s = 0;
  int passes = 0;   // times that the whole was predicted anew
  int cut_off = 0;  // predictions that did not converge, and rounds that were ended by the limit
};

// "Moving grep ...": a step for people, in one sentence. `snapshot` names objects and nodes.
std::string Format(const RoundStep& step, const Snapshot& snapshot);

// The decision for people: the explanation, then one line per candidate with its terms.
// Ends with a newline.
std::string Format(const Decision& decision);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_DECISION_H_
