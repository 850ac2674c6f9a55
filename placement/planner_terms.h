#ifndef ABACUS_PLACEMENT_PLANNER_TERMS_H_
#define ABACUS_PLACEMENT_PLANNER_TERMS_H_

// What the Planner reads off a decision. Internal to the room; pure functions.

#include <cstddef>
#include <string>
#include <vector>

#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Turns a decision into one to stay, for a reason that `why` says in words.
void Refuse(Reason reason, const std::string& why, Decision* decision);
// The same for a decision to move, which is kept in the explanation. `why` is said in the words of
// WhyHeldBack() where none is given.
const char* WhyHeldBack(Reason reason);
void Hold(Reason reason, Decision* decision);
void Hold(Reason reason, const std::string& why, Decision* decision);

// The candidate that makes exactly these moves. Of a large graph only the best are listed: one that
// is not is added, predicted to take response_s at the present loads.
// REQUIRES: decision->present is set.
size_t CandidateFor(const std::vector<Move>& moves, double response_s, Decision* decision);

// Null where the decision has no such object or node.
const StackObject* StackObjectOf(const Decision& decision, const ObjectId& id);
const NodeStatistics* NodeOf(const Decision& decision, NodeId node);

// L that is predicted of the node under the candidate.
double LoadOf(const Decision& decision, const Candidate& candidate, NodeId node);

// Whether it differs from the present placement by how long it takes alone: neither pinned nor
// without memory.
bool Comparable(const Candidate& candidate);

// The net benefit of which the figures make sure.
double SureNetBenefit(const Decision& decision, const Candidate& candidate);

// How many calls of the window the figures rest on that the moves are decided by: those that went
// into the objects that would move, or those over the edge with the most bytes among the edges that
// would come on to a link or off it, whichever are fewer.
double CallsBehind(const Snapshot& window, const std::vector<Move>& moves);

// By how much the chosen candidate changes what the graph adds to a node's load: the parts of the
// response time that its objects are running or ready there, as a load is measured (statistics.h).
struct LoadChange {
  NodeId node = 0;
  double load = 0;
};
// One for each node that objects leave or come to, and for the others on which they run, whose
// share changes with the response time. REQUIRES: decision.chosen and decision.present are set.
std::vector<LoadChange> LoadChanges(const Decision& decision);

// The anchored objects on the node that the chosen candidate's moves would be called from there.
// REQUIRES: decision.chosen is set.
std::vector<ObjectId> AnchoredCallees(const Decision& decision, NodeId node);

// Whether the chosen candidate is surely above the threshold even if `tasks` more than the node's
// load says compute there all the time, and each of those waits for all that the graph computes
// there.
//   Response 0.12 s, 0.055 s of it on the node's one core at a load of 1; three come beside a load
//   of 0.4. At worst: 4.4 tasks there, 0.12 + 3.4 x 0.055 = 0.31 s, and the others lose 3.4 x 0.055
//   = 0.19 s. From 1.03 s it gains 0.53 s, above 0.3 x 0.31 s.
// REQUIRES: decision.chosen and decision.present are set.
bool PaysAtWorst(const Decision& decision, NodeId node, double tasks);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_PLANNER_TERMS_H_
