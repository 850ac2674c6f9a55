#ifndef ABACUS_PLACEMENT_JUDGE_H_
#define ABACUS_PLACEMENT_JUDGE_H_

// Benefit, cost and threshold of one placement against another. Internal to the room.

#include <cstdint>

#include "placement/config.h"
#include "placement/decision.h"
#include "placement/model.h"
#include "placement/search.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Judges placements as seen from one situation, from sums that are made afresh for each: the same
// placement gets the same figures wherever it was found. Thread-compatible.
class Judge {
 public:
  // `server`: the node that Prediction::loads.server speaks of. REQUIRES: the arguments outlive it.
  Judge(const Situation& from, const MigrationHistory& history, const Config& config,
        uint32_t server);

  // The prediction for the placement as it is.
  const Prediction& present() const { return present_; }
  const Evaluation& at() const { return at_; }

  // The verdict is kPays if (benefit - confidence_z x deviation) - cost > b_thresh x T_app there,
  // everything that moves may move, and it fits into free memory and the limit on CPU.
  Candidate Of(const Placement& to, int split) const;

 private:
  Verdict VerdictOf(const Candidate& candidate, const Placement& to, const Evaluation& there) const;

  const Situation& from_;
  const MigrationHistory& history_;
  const Config& config_;
  uint32_t client_;
  uint32_t server_;
  Evaluation at_;
  Prediction present_;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_JUDGE_H_
