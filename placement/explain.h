#ifndef ABACUS_PLACEMENT_EXPLAIN_H_
#define ABACUS_PLACEMENT_EXPLAIN_H_

// The sentences that tell people why something moved or stayed. Internal to the room.

#include <string>

#include "placement/decision.h"

namespace abacus::placement {

// A few sentences from the other fields of `decision`, which came from an evaluated model: its
// reason is one of kNetBenefit to kNotConverged.
std::string Explain(const Decision& decision);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_EXPLAIN_H_
