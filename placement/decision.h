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
  kNetBenefit,      // move: the net benefit of the chosen split is above the threshold
  kPresentIsBest,   // no other allowed split is predicted to be faster
  kBelowThreshold,  // one is faster, but its net benefit is not above the threshold
  kPinned,          // one would pay, but an object that it moves is pinned
  kNoMemory,        // one would pay, but its objects do not fit into the target's free memory
  kNothingMobile,   // no object of the stack may move
  kSuspended,       // one pays, but the engine is told to leave everything alone
  kNotConverged,    // equations 5 and 6 were cut off where it would have mattered
  // The model was evaluated, and the Planner (planner.h) had the last word. Its outcome is stay but
  // for kUndo; `chosen` is then what it held back.
  kUndo,            // move back: the last move made the graph slower
  kDryRun,          // one pays, but decisions are only to be recorded
  kMoveUnderWay,    // a move of this graph has not ended yet
  kWaitsForWindow,  // one pays, but not by so much that less than a whole window would do
  kNotConfident,    // one pays on average, but not at the lower confidence bound
  kCoolDown,        // one pays, but the last move was too short a time ago
  kHysteresis,      // one pays, but undoes the last move, for which more is asked
  kPhaseTooShort,   // one would pay, but not in what is left of the phase
  kWaitsForTurn,    // one pays, but others that rest on the same node's load are moving there now
  kClaimed,         // one pays, but an object of it is being moved for another console
  // The snapshot does not describe one stack between one client and one server.
  kUnknownConsole,  // the console is not among the objects
  kUnknownObject,   // an edge leads to an object that is not in the snapshot
  kUnknownNode,     // an object is on a node that is not in the snapshot
  kUnknownLink,     // no link between the two nodes is in the snapshot
  kDuplicateEntry,  // an object, edge, node or link is there twice
  kNotAChain,       // the console's graph branches, has a cycle, or is the console alone
  kStackTooLong,    // more objects than stack_objects_max
  kOneNode,         // console and storage are on one node: there is no link to save
  kThirdNode,       // an object is neither at the client nor at the server
  kNoStorage,       // the chain does not end in an anchored object
  // The figures are not to be trusted, or are missing.
  kBadFigure,          // not a number, negative, or absurd
  kRateUnknown,        // a node is not calibrated yet
  kBandwidthUnknown,   // of the link between the two nodes
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
  kSlower,          // predicted not to be faster
  kPinned,          // moves an object that is pinned
  kAnchored,        // moves an object that can never move
  kNoMemory,        // does not fit into the target's free memory
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

// One split and what is predicted for it.
struct Candidate {
  int split = 0;  // the paper's k: objects 0..k at the client
  size_t objects_moved = 0;
  Prediction prediction;
  MigrationCost cost;        // zero where nothing moves
  double benefit_s = 0;      // T_app now - T_app of this split
  double net_benefit_s = 0;  // less the cost
  double threshold_s = 0;    // B_thresh x T_app of this split
  Verdict verdict = Verdict::kPresent;
  // Would pay if it were allowed and had the memory: tells a pin that costs from one that does not.
  bool above_threshold = false;
};

// One object of the stack, console first.
struct StackObject {
  ObjectId id;
  std::string class_name;
  Side side = Side::kClient;  // now
  bool fixed = false;         // anchored or pinned: stays
  bool pinned = false;        // fixed by a pin and not by nature
  std::string pinned_reason;
  Layer layer;  // work and own stall of one window H
  Flow below;   // to the next object, in one window H; zero for the last
};

// One decision. Up to `moves` the fields say what to do; the others say why, and are filled as far
// as the snapshot could be read.
struct Decision {
  Outcome outcome = Outcome::kStay;
  Reason reason = Reason::kPresentIsBest;
  std::vector<Move> moves;  // empty unless kMove; carried out together, as one step

  ObjectId console;
  std::string explanation;  // a few sentences for people, numbers included
  double window_s = 0;      // H
  double b_thresh = 0;

  std::vector<StackObject> stack;
  NodeStatistics client;
  NodeStatistics server;
  LinkStatistics link;
  PerSide others;  // load that others put on the two nodes

  // The prediction for the placement as it is; candidates are compared with this, not with the
  // measured time, so that what the model leaves out is left out on both sides.
  std::optional<Prediction> present;
  // Every split, k ascending. The present placement is among them if it is a split.
  std::vector<Candidate> candidates;
  // Index of the candidate with the highest net benefit among those that pay. Set without a move
  // only where the engine is suspended or the Planner held the move back.
  std::optional<size_t> chosen;

  // Model error: predicted / measured - 1 for the present placement, where T_app was measured.
  std::optional<double> measured_t_app_s;  // scaled to H
  std::optional<double> model_error;
  int cut_off = 0;  // predictions that did not converge, the present one included
};

// The decision for people: the explanation, then one line per candidate with its terms.
// Ends with a newline.
std::string Format(const Decision& decision);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_DECISION_H_
