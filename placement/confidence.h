#ifndef ABACUS_PLACEMENT_CONFIDENCE_H_
#define ABACUS_PLACEMENT_CONFIDENCE_H_

// How sure a predicted benefit is, from how much the figures under it vary.

#include <cstddef>

#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Standard deviation of candidate.benefit_s, in seconds for the work of decision.window_s, by
// linear error propagation from the variances in the snapshot, which are taken as independent:
//
//   an object of CPU time x (variance v) that runs at rates R, slowed down s = max(1, L / c) times
//   where it is, and at R', s' in the candidate:   (s - s' R / R')^2 v
//   an edge of b bytes (variance v) that crosses the link in one of the two only:   v / bandwidth^2
//   the bandwidth w (variance v), D bytes more crossing in one than in the other:   (D / w^2)^2 v
//
// Loads are held at their predicted values: their own answer to x is of second order.
// Worked: an object of 0.020 s with a deviation of 0.004 s goes from rate 1 to 0.5, both free:
// (1 - 2)^2 x 0.004^2; an edge of 1.18 MB with a deviation of 0.1 MB at 1.25 MB/s that stops
// crossing: (0.1 / 1.25)^2 = 0.08^2. Together sqrt(0.004^2 + 0.08^2) = 0.0801 s.
//
// A figure without a variance counts as exact. 0 where the decision was refused.
// REQUIRES: `decision` came from `snapshot`; candidate < decision.candidates.size().
// Thread-safety: thread-safe (pure). Source: ours; DESIGN 7 asks for it.
double BenefitDeviation(const Snapshot& snapshot, const Decision& decision, size_t candidate);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_CONFIDENCE_H_
