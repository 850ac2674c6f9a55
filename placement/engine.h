#ifndef ABACUS_PLACEMENT_ENGINE_H_
#define ABACUS_PLACEMENT_ENGINE_H_

// The decision: where the objects of one console, or of many, are to run.

#include <optional>

#include "absl/types/span.h"
#include "placement/config.h"
#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Decides whether the objects of `snapshot.console` are placed otherwise.
//
// A chain between one client and one server: predicts T_app of every split by equations 5 and 6.
// Any other graph: searches for the best joint placement (search.h) and lists the best single moves
// beside it. It moves to the placement with the highest net benefit, (T_app now - T_app new) -
// migration cost, less confidence_z deviations of it, among those where that is above b_thresh x
// T_app new; of equals to the one that moves fewer objects. Consoles that share objects which may
// move are decided as one, T_app being their sum. A snapshot that cannot be trusted is answered
// with kStay and a reason that names what is wrong.
//
// The same arguments give the same decision, whatever the order of the snapshot's entries. Carried
// out on an unchanged workload, a decision is followed by kStay (README, "Invariants").
//
// Thread-safety: pure function. Blocking: none. Limits: config.stack_objects_max objects; a chain
// takes O(length squared), a graph a few dozen minimum cuts. Source: paper, sections 5.4.1
// and 5.4.3; graphs are ours.
Decision Decide(const Snapshot& snapshot, const Config& config);

// The same for one placement, listed in the decision or not: the one after `moves`, as a candidate
// with its verdict. Empty where it cannot be judged or is not allowed: the snapshot is refused, an
// object is not of the console's graph or not at Move::from, or may not be at Move::to (no anchored
// object there, not among `allowed`, or apart from its attach group).
std::optional<Candidate> JudgeMoves(const Snapshot& snapshot, absl::Span<const Move> moves,
                                    const Config& config);

// Decides on many consoles at once: allocates what servers have to their objects, greedily by net
// benefit, so that the mean response time falls.
//
// A step moves the objects of one console (or of consoles that share objects) to the placement of
// the highest net benefit, which counts what all other consoles gain or lose by the load that it
// adds and takes away: the sum over all of (T_app now - T_app new) - migration cost. It is made if
// that is above b_thresh x T_app new of the consoles that it is for, by what is sure of it, as
// in Decide(). Where it lacks memory on a node, others' objects are ejected from there with it,
// those first that lose least a byte, if all together still pay: a swap is one step. Consoles that
// are refused keep none of the others from being decided. A console not among `consoles` stays as
// it is and counts as load of others; none given: all that the snapshot knows.
//
// Carried out on an unchanged workload, a round is followed by an empty one: it ends only where,
// predicted anew, no step pays or none does what it promised (README, "Invariants").
//
// With `roles`, only consoles that seek may get a step of their own, and only objects of those that
// may be ejected leave for another's step; what the others gain and lose counts all the same. A
// graph that several consoles share has the roles of all of them. Reasons are exact then: a step
// that would pay for its own console is refused as kOthersLose, with figures. And loads are taken
// for measured ones: what others lose on a node that is short of cores is weighed with its
// slow-down, as a task is in a measured load also while it is ready (round.cc).
//
// Source: paper, sections 5.4.2 (equation 7), 5.4.3 and 6.7; the swap, the lazy queue and the roles
// are ours: who is cooling down, say, must neither move nor be left out of the sum.
// Thread-safety: pure function. Blocking: none. Limits: kRoundPassesMax passes, each O(consoles x
// length squared) and a queue of consoles; 10,000 stacks of 4 within 100 ms and 200 MB is the goal.
inline constexpr int kRoundPassesMax = 32;
struct RoundRoles {
  absl::Span<const ObjectId> seek;
  absl::Span<const ObjectId> may_be_ejected;
};
Round DecideAll(const Snapshot& snapshot, absl::Span<const ObjectId> consoles, const Config& config,
                const RoundRoles* roles = nullptr);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_ENGINE_H_
