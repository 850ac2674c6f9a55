#ifndef ABACUS_PLACEMENT_CHAIN_H_
#define ABACUS_PLACEMENT_CHAIN_H_

// Reads one stack off a snapshot, and refuses what the equations could not be trusted with.

#include <optional>
#include <string>
#include <vector>

#include "placement/config.h"
#include "placement/decision.h"
#include "placement/equations.h"
#include "placement/statistics.h"

namespace abacus::placement {

// The console's stack, as the equations want it: work units instead of seconds, scaled from the
// snapshot's window to the configured window H.
struct Chain {
  // Points into the snapshot; console first.
  std::vector<const ObjectStatistics*> objects;
  Sides present;
  std::vector<bool> fixed;  // anchored (the ends always are) or pinned
  Stack stack;
  const NodeStatistics* client = nullptr;
  const NodeStatistics* server = nullptr;
  const LinkStatistics* link = nullptr;
  double scale = 1;  // H / snapshot.window_s
};

struct Refusal {
  Reason reason = Reason::kBadFigure;
  std::string detail;  // names the entry and the figure
};

// Walks from the console along the edges and fills `chain` as far as it gets.
//
// Calls in either direction between two neighbours are one flow; an object's calls to itself are
// ignored, as are objects that the console does not reach: one snapshot may hold several stacks,
// and a bad figure of one does not keep the others from being decided.
// REQUIRES: Validate(config) is OK; `snapshot` outlives `chain`.
// Returns nothing if the stack can be decided on: every figure in `chain` is then finite, not
// negative, and positive where it is divided by. Otherwise why not.
std::optional<Refusal> ReadChain(const Snapshot& snapshot, const Config& config, Chain* chain);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_CHAIN_H_
