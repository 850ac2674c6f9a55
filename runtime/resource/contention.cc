#include "runtime/resource/contention.h"

#include <algorithm>
#include <cmath>

namespace abacus::runtime {

void Contention::Add(double busy_s, double ready_s, double load, double cores, double length_s,
                     double half_life_s) {
  const double longer = cores > 0 ? std::max(0.0, load / cores - 1) : 0;
  const double kept = half_life_s > 0 ? std::exp2(-length_s / half_life_s) : 0;
  ready_s_ = kept * ready_s_ + (longer > 0 ? ready_s : 0);
  ready_by_load_s_ = kept * ready_by_load_s_ + longer * busy_s;
}

double Contention::part() const {
  return std::min(1.0, (ready_s_ + kPrior_s) / (ready_by_load_s_ + kPrior_s));
}

}  // namespace abacus::runtime
