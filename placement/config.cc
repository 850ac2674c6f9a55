#include "placement/config.h"

#include "absl/strings/str_cat.h"

namespace abacus::placement {
namespace {

// Also false for NaN, which compares with nothing.
bool Within(double value, double low, double high) { return value >= low && value <= high; }

absl::Status Check(const char* field, double value, double low, double high) {
  if (Within(value, low, high)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be from ", low, " to ", high));
}

}  // namespace

absl::Status Validate(const Config& config) {
  struct Rule {
    const char* field;
    double value, low, high;
  };
  const Rule rules[] = {
      {"b_thresh", config.b_thresh, 0, 1000},
      {"window_s", config.window_s, 0.001, 3600},
      {"min_evidence_bytes", config.min_evidence_bytes, 0, 1e18},
      {"min_link_evidence_bytes", config.min_link_evidence_bytes, 0, 1e18},
      {"fixed_point_iterations_max", static_cast<double>(config.fixed_point_iterations_max), 1,
       1e4},
      // Below the low end rounding alone could keep an iteration from converging.
      {"fixed_point_tolerance", config.fixed_point_tolerance, 1e-12, 0.1},
      {"quiesce_prior_s", config.quiesce_prior_s, 0, 3600},
      {"protocol_round_trips", config.protocol_round_trips, 0, 1000},
      {"confidence_z", config.confidence_z, 0, 10},
      {"stack_objects_max", static_cast<double>(config.stack_objects_max), 2, 4096},
      {"cpu_share_max", config.cpu_share_max, 0, 1},
      {"candidates_max", static_cast<double>(config.candidates_max), 2, 4096},
  };
  for (const Rule& rule : rules) {
    absl::Status status = Check(rule.field, rule.value, rule.low, rule.high);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace abacus::placement
