#ifndef ABACUS_PLACEMENT_TESTING_ORACLE_H_
#define ABACUS_PLACEMENT_TESTING_ORACLE_H_

// The best placement of a small graph, found by trying every one.

#include <cstddef>

#include "placement/search.h"

namespace abacus::placement::testing {

struct OracleAnswer {
  Placement best;
  double at_s = 0;    // the objective of the placement as it is
  double best_s = 0;  // of the best one; at most at_s
  size_t tried = 0;
};

// What Search() looks for: the smallest time_weight x T + seconds of state transfer that keeps to
// the memory limits. Limits: tries nodes^units placements; aborts beyond a million.
OracleAnswer BestByTrying(const Situation& situation, double time_weight);

// The objective of one placement; infinite where it is impossible, does not converge or does not
// fit.
double ObjectiveOf(const Situation& situation, double time_weight, const Placement& to);

}  // namespace abacus::placement::testing

#endif  // ABACUS_PLACEMENT_TESTING_ORACLE_H_
