#ifndef ABACUS_APPS_MULTIPHASE_MULTIPHASE_H_
#define ABACUS_APPS_MULTIPHASE_MULTIPHASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "apps/table/record_table.h"

namespace abacus::apps {

// A part of an application's life in which it does one thing.
struct Phase {
  enum class Kind : uint8_t { kInsert, kScan };
  Kind kind = Kind::kInsert;
  uint64_t operations = 0;  // on records at random
};

struct PhaseResult {
  Phase phase;
  absl::Duration elapsed;
};

// Runs phases one after the other on one table (paper, section 6.6). `done` is told of each
// operation that is over.
// Errors: those of the table; kDataLoss - a record is not what was inserted last, as far as this
//         call knows.
// Blocking: as the table.
absl::StatusOr<std::vector<PhaseResult>> RunPhases(RecordTable& table,
                                                   const std::vector<Phase>& phases, uint64_t seed,
                                                   const std::function<void()>& done);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_MULTIPHASE_MULTIPHASE_H_
