#ifndef ABACUS_PLACEMENT_PLAUSIBILITY_H_
#define ABACUS_PLACEMENT_PLAUSIBILITY_H_

// Whether the figures of a snapshot can all be true at once.

#include <optional>
#include <string>

#include "placement/statistics.h"

namespace abacus::placement {

// What cannot be, in a few words that name the entry; empty if nothing speaks against the snapshot.
//
// Decide() refuses figures that are impossible alone. A digest that lies, or that two nodes made of
// different times, has figures that are possible alone and contradict each other:
//   - a node did more in the window than it has cores for: the objects' CPU seconds on it over
//     window x cores, by more than half;
//   - a node of load L was busy for more than L: objects of 0.9 s of CPU in 1 s on a load of 0.1;
//   - an activity was inside invocations for longer than the window, times the calls that it had
//     going on at once;
//   - more bytes crossed a link than its bandwidth carries in the window, by more than twice; times
//     the calls that went on at once, as each of them finds its part of the bandwidth only.
// The margins are wide, as honest figures are averages over windows that end at different times;
// sums below 50 ms, or a tenth of the window, are not looked at.
// Figures that are out of their ranges (not a number, negative) are left to Decide().
// Thread-safety: thread-safe (pure). Source: ours.
std::optional<std::string> FindContradiction(const Snapshot& snapshot);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_PLAUSIBILITY_H_
