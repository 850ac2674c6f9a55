#include "placement/planner_config.h"

#include "absl/strings/str_cat.h"

namespace abacus::placement {

absl::Status Validate(const PlannerConfig& config) {
  struct Rule {
    const char* field;
    double value, low, high;
  };
  const Rule rules[] = {
      {"whole_window", config.whole_window, 0.1, 1},
      {"fast_window", config.fast_window, 0.001, 1},
      {"fast_gain", config.fast_gain, 1, 1000},
      {"fast_calls", config.fast_calls, 0, 1e6},
      {"hysteresis", config.hysteresis, 1, 100},
      {"cool_down", config.cool_down, 0, 1e6},
      {"cool_down_max", config.cool_down_max, 0, 1e6},
      {"forgive", config.forgive, 1, 1000},
      {"load_step", config.load_step, 0.01, 1000},
      {"settled_windows", config.settled_windows, 2, 1e6},
      {"settled_thresh", config.settled_thresh, 0, 1000},
      {"phases.slack_deviations", config.phases.slack_deviations, 0.1, 10},
      {"phases.alarm_sum", config.phases.alarm_sum, 1, 1000},
      {"phases.evidence_per_sample_max", config.phases.evidence_per_sample_max, 1, 1000},
      {"phases.deviation_floor", config.phases.deviation_floor, 0.001, 0.5},
      {"phases.deviation_prior", config.phases.deviation_prior, 0.01, 1},
      {"phases.kind_distance", config.phases.kind_distance, 0.01, 1},
      {"phases.kinds_max", static_cast<double>(config.phases.kinds_max), 1, 64},
      {"phases.lengths_max", static_cast<double>(config.phases.lengths_max), 1, 64},
      {"horizon_windows_max", config.horizon_windows_max, 1, 1000},
      {"moves_per_phase", config.moves_per_phase, 1, 10},
      {"undo_threshold", config.undo_threshold, 0.01, 100},
      {"correction_max", config.correction_max, 1, 1000},
      {"correction_half_life", config.correction_half_life, 1, 1e6},
      {"graphs_max", static_cast<double>(config.graphs_max), 1, 1e7},
      {"samples_max", static_cast<double>(config.samples_max), 2, 4096},
      {"corrections_max", static_cast<double>(config.corrections_max), 1, 1e6},
      {"errors_max", static_cast<double>(config.errors_max), 1, 1e6},
      {"claim_windows_max", config.claim_windows_max, 1, 1e6},
  };
  for (const Rule& rule : rules) {
    // Also false for NaN, which compares with nothing.
    if (rule.value >= rule.low && rule.value <= rule.high) continue;
    return absl::InvalidArgumentError(absl::StrCat(rule.field, " is ", rule.value,
                                                   ", must be from ", rule.low, " to ", rule.high));
  }
  return absl::OkStatus();
}

}  // namespace abacus::placement
