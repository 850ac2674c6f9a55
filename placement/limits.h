#ifndef ABACUS_PLACEMENT_LIMITS_H_
#define ABACUS_PLACEMENT_LIMITS_H_

// What a server lends to the objects that are pulled to it. Internal to the room.
//
// A limited node is one that no console of the graph is on; what counts are the graph's mobile
// objects there. The limit on CPU is one on what they use while they run, and that follows from the
// response time: cpu_s / T_app cores for each console, and what background work takes. So it is a
// function of the placement alone, as memory is, and a decision that was carried out keeps to it.
//   0.04 s of CPU in a window's work that takes 0.0644 s: 0.62 cores.
// Source: paper, section 6.7 (a server lends only part of its CPU); its measure is ours.
// Thread-safety: pure functions. Blocking: none.

#include <vector>

#include "absl/types/span.h"
#include "placement/graph.h"
#include "placement/model.h"
#include "placement/search.h"

namespace abacus::placement {

// Differences of CPU use below this part are rounding of a fixed point and no growth.
inline constexpr double kSameUse = 1e-6;

// Cores that the graph's mobile objects use, by node; 0 on nodes that are not limited.
std::vector<double> PulledCores(const Graph& graph, const Placement& placement,
                                absl::Span<const double> response_s);

// Whether no limited node's use grows and is then above what there is for the graph. What stays or
// falls is never a reason, even above the limit. `now`: of the placement situation.at.
bool FitsCpu(const Situation& situation, const Evaluation& now, const Placement& to,
             const Evaluation& then);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_LIMITS_H_
