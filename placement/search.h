#ifndef ABACUS_PLACEMENT_SEARCH_H_
#define ABACUS_PLACEMENT_SEARCH_H_

// The best joint placement of a graph. Internal to the room.
//
// For given loads the best split between two nodes is a minimum cut (cut.h): a unit's time, moving
// cost and price of memory on either node are its arcs to the two ends, a crossing edge's time is
// the arc between two units. Loads follow from placements, so cut and load are repeated until
// neither changes. Several nodes: cuts between each two, and cuts "stay or go to this node" for
// each, then moves of single units and of pairs that call each other. Whatever is found is judged
// by the full model (model.h) and never by the cut's own sum. Memory: a price per byte on what is
// full, raised until it fits, and a last search that keeps to the limit. A limit on CPU likewise,
// by a price per core used.
//
// Source: ours; the paper's splits and greedy allocation are what it has to beat.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/graph.h"
#include "placement/model.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Where a search begins, and what is around: a graph as it is placed, or as it would be after
// moves.
struct Situation {
  const Graph* graph = nullptr;
  Placement at;
  std::vector<double> free_bytes;  // by node, at `at`; infinite: not limited
  std::vector<Beside> beside;      // by node
  // By node: cores that the graph's mobile objects may use there (limits.h). Empty: no limits.
  std::vector<double> free_cores;
  FixedPointOptions options;

  // The graph as the snapshot has it.
  static Situation Of(const Graph& graph, const FixedPointOptions& options);
  // The same after moving to `to`.
  Situation MovedTo(const Placement& to) const;
};

FixedPointOptions FixedPointOptionsOf(const Config& config);

// What it costs to get from one placement to another as one step: one quiesce and one run of the
// protocol, whatever the size; zero where nothing moves. Never more than by way of a third one.
//   4096 B at 1.25 MB/s, 2.5 round trips of 1 ms, 2 ms to quiesce: 7.78 ms.
MigrationCost CostOf(const Graph& graph, const Placement& from, const Placement& to,
                     const MigrationHistory& history, const Config& config);

// Whether what moves to a node with a limit on memory that was set by hand comes from where it is
// measured what objects hold.
bool MemoryKnown(const Situation& situation, const Placement& to);

// Whether that is so, and no node gains more memory than it has free. What a node loses or keeps is
// never a reason.
bool Fits(const Situation& situation, const Placement& to);

// Whether unit `unit` may be on `node` as seen from `at`: a target, or where it is.
bool MayBe(const Graph& graph, const Placement& at, uint32_t unit, uint32_t node);

// Whether a placement moves only what may move, to where it may, and no group in parts.
bool Allowed(const Graph& graph, const Placement& at, const Placement& to);

struct Found {
  Placement best;  // keeps to the limits; `at` if nothing is better
  // The best one that does not keep to them, where that is another: what more room would bring.
  std::optional<Placement> unlimited;
};

// The placement with the smallest time_weight x T + seconds of state transfer, T being the sum over
// consoles and what those beside lose; not worse than `at`. With time_weight = 1 + b_thresh it is
// below that of `at` by more than quiesce and protocol exactly if it pays.
//
// A heuristic in general: exact for two nodes whose loads do not depend on the placement; of random
// graphs it reaches what search_test.cc and README say. Deterministic; independent of the order of
// entries up to equals. Limits: O(rounds x nodes^2 x cut); rounds are at most kSearchRoundsMax.
inline constexpr int kSearchRoundsMax = 8;
Found Search(const Situation& situation, double time_weight);

// Tries moves of single units and of neighbouring pairs from `from` only, within limits.
Placement Improve(const Situation& situation, double time_weight, const Placement& from);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_SEARCH_H_
