#ifndef ABACUS_PLACEMENT_PLANNER_CONFIG_H_
#define ABACUS_PLACEMENT_PLANNER_CONFIG_H_

// Every constant that the Planner adds to those of Decide() (config.h): when a decision that pays
// is carried out, and what is remembered.

#include <cstddef>

#include "absl/status/status.h"
#include "placement/phases.h"

namespace abacus::placement {

// Times are in windows H where they should follow it. The ranges are those that Validate() accepts.
// Thread-safety: thread-compatible. Source: ours, each with its reason.
struct PlannerConfig {
  // --- Evidence ---

  // A window counts as whole from this part of H on, as samples come on a grid. 0.1 to 1.
  double whole_window = 0.95;
  // Fast lane: figures of this part of H decide if the predicted speed-up is over `fast_gain` at
  // the confidence bound. 0.05 is one sample of 50 ms at H = 1 s. 2 is the goal's figure; anything
  // well above 1 + B_thresh keeps a decision on a few samples from being taken back on more. 0.001
  // to 1; 1 to 1000.
  double fast_window = 0.05;
  double fast_gain = 2;
  // And more than so many calls must have gone into the objects that would move, and over the edge
  // that the move is about. A call returns much or nothing, and one that is under way has not
  // returned yet: a call says little of the next. 2: a filter hands out what it finds in blocks of
  // its own, so that two replies in a row may have next to nothing and the third all of it. 0 to
  // 1e6.
  double fast_calls = 2;

  // --- Stability ---

  // To undo the last move within one phase the net benefit must be over this many times B_thresh.
  // 2 turns 1.3 into 1.6: +-20 % on each of two times can make 1.2 / 0.8 = 1.5 out of nothing.
  // 1 to 100.
  double hysteresis = 2;
  // After a move none is made for so many windows unless the graph's behaviour changes, doubled for
  // each move that had to be undone, or was taken back for a gain within one phase, up to
  // `cool_down_max`; one undo is forgotten after `forgive` times the cool-down without another. 2:
  // one window to see the new place, one more to be sure of it. 64 windows bound what a model that
  // is wrong for a graph can cost. 0 to 1e6; 0 to 1e6; 1 to 1000.
  double cool_down = 2;
  double cool_down_max = 64;
  double forgive = 10;
  // By how many cores' worth of load moves may change a node within a window before the others that
  // want to go there or away wait for a new measurement; one move is always let go. The load model
  // is checked against the measured load once a window, and half a core is what a wrong prediction
  // may cost those who are already there. As part of the node's cores. 0.01 to 1000.
  double load_step = 0.5;

  // B_thresh keeps a graph that would gain 20 % where it is, for ever. It stands for what one
  // window may get wrong; so a gain that was there on average over this many windows of one phase,
  // at the confidence bound of their mean, needs to be over `settled_thresh` only. 10 windows make
  // the deviation of the mean a third; 0.05 is how near to the best placement a long run is to
  // come. Only where it leaves both nodes with a core for every task: on a node that is short of
  // cores a small gain for one is a loss for the others that is larger in sum. 2 to 1e6; 0 to 1000
  // (b_thresh or above: the rule is off).
  double settled_windows = 10;
  double settled_thresh = 0.05;

  // --- Phases ---

  PhaseConfig phases;
  // Benefit and cost are compared for the work of this many windows at most, where it is known that
  // the phase has as much left. 8: beyond, the cost is below an eighth of what it is in the paper's
  // rule, and the threshold decides alone. 1 to 1000.
  double horizon_windows_max = 8;
  // A move into a phase that is known to end is paid for so many times: there and back. 1 to 10.
  double moves_per_phase = 2;

  // --- Audit ---

  // A move is undone if the same work takes this much longer than before it. Above what noise makes
  // of two windows of 20 samples of +-20 % (0.115 / sqrt(20) x sqrt(2) = 3.7 % deviation). 0.01 to
  // 100.
  double undo_threshold = 0.2;
  // A correction of a class on a node goes at most this far, and half of it is forgotten in so many
  // windows. 4: a rate that is wrong by more is a fault of its calibration, not of a class. 1 to
  // 1000; 1 to 1e6.
  double correction_max = 4;
  double correction_half_life = 120;

  // --- Limits: reached, the least recently used goes, and what it stood for is learnt anew ---

  size_t graphs_max = 20000;      // consoles remembered. 1 to 1e7
  size_t samples_max = 32;        // of each graph. 2 to 4096
  size_t corrections_max = 1024;  // (class, node) pairs. 1 to 1e6
  size_t errors_max = 256;        // audits in the running error. 1 to 1e6
  // A claim on an object whose move never ended lapses after so many windows. 1 to 1e6.
  double claim_windows_max = 30;
};

// OK, or kInvalidArgument naming the first field out of range, its value and the range.
absl::Status Validate(const PlannerConfig& config);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_PLANNER_CONFIG_H_
