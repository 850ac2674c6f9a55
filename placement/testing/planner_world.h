#ifndef ABACUS_PLACEMENT_TESTING_PLANNER_WORLD_H_
#define ABACUS_PLACEMENT_TESTING_PLANNER_WORLD_H_

// Consoles at work, for tests of the Planner: what it decides is carried out, and the next samples
// say so.

#include <set>
#include <utility>
#include <vector>

#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement::testing {

// The truth is one snapshot of all consoles (RandomRound); its window's work is done in every
// window, wherever the objects are. Loads follow as After() says. Thread-safety: thread-compatible.
class PlannerWorld {
 public:
  explicit PlannerWorld(Snapshot truth) : truth_(std::move(truth)) {}

  Snapshot& truth() { return truth_; }
  const std::vector<ObjectId>& consoles() const { return truth_.consoles; }
  NodeId NodeOf(const ObjectId& object);

  // What length_s of the console's work looks like. `together`: as a server sees it that knows the
  // other consoles which share its objects, theirs in it; else what this console reaches, alone.
  Snapshot SampleOf(const ObjectId& console, double length_s, bool together) const;

  // REQUIRES: each move is from where its object is.
  void CarryOut(const std::vector<Move>& moves);

 private:
  std::set<ObjectId> ReachedBy(const ObjectId& console) const;

  Snapshot truth_;
};

}  // namespace abacus::placement::testing

#endif  // ABACUS_PLACEMENT_TESTING_PLANNER_WORLD_H_
