#ifndef ABACUS_PLACEMENT_ENGINE_H_
#define ABACUS_PLACEMENT_ENGINE_H_

// The decision: where to split one stack.

#include "placement/config.h"
#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Decides whether the stack of `snapshot.console` is split at another place.
//
// Predicts T_app of every split by equations 5 and 6 and moves to the one with the highest net
// benefit, (T_app now - T_app new) - migration cost, among those where it is above
// b_thresh x T_app new; of equals to the one that moves fewer objects. A snapshot that cannot be
// trusted is answered with kStay and a reason that names what is wrong. Several stacks are decided
// one by one: the load that one stack's move causes is known to the next decision once measured.
//
// The same arguments give the same decision, whatever the order of the snapshot's entries. Carried
// out on an unchanged workload, a decision is followed by kStay (README, "Invariants").
//
// Thread-safety: pure function. Blocking: none. Limits: O(stack length squared); at most
// config.stack_objects_max objects. Source: paper, sections 5.4.1 and 5.4.3.
Decision Decide(const Snapshot& snapshot, const Config& config);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_ENGINE_H_
