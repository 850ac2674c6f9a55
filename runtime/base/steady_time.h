#ifndef ABACUS_RUNTIME_BASE_STEADY_TIME_H_
#define ABACUS_RUNTIME_BASE_STEADY_TIME_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace abacus::runtime {

// What the time of day was when this process first asked, and steadily on from there: for spans,
// which are right with it when somebody sets the clock. What people read is absl::Now().
// Thread-safety: thread-safe. Blocking: none.
inline absl::Time SteadyNow() {
  struct Start {
    absl::Time wall = absl::Now();
    std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  };
  static const Start start;
  return start.wall + absl::FromChrono(std::chrono::steady_clock::now() - start.steady);
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_STEADY_TIME_H_
