#include "runtime/node/engine_config.h"

namespace abacus::runtime {

placement::Config ToEngineConfig(const Config& config) {
  const Config::Placement& from = config.placement;
  placement::Config to;
  to.b_thresh = from.threshold;
  to.window_s = absl::ToDoubleSeconds(from.window);
  to.min_evidence_bytes = static_cast<double>(from.min_evidence_bytes);
  to.min_link_evidence_bytes = static_cast<double>(from.min_link_evidence_bytes);
  to.confidence_z = from.confidence;
  to.quiesce_prior_s = absl::ToDoubleSeconds(from.quiesce_prior);
  to.protocol_round_trips = from.protocol_round_trips;
  to.fixed_point_iterations_max = static_cast<int>(from.fixed_point_iterations_max);
  to.fixed_point_tolerance = from.fixed_point_tolerance;
  to.stack_objects_max = from.stack_objects_max;
  to.candidates_max = from.candidates_max;
  to.cpu_share_max = from.cpu_share_max;
  to.client_load_constant = from.client_load_constant;
  return to;
}

placement::PlannerConfig ToPlannerConfig(const Config& config) {
  const Config::Planner& from = config.planner;
  placement::PlannerConfig to;
  to.whole_window = from.whole_window;
  to.fast_window = from.fast_window;
  to.fast_gain = from.fast_gain;
  to.fast_calls = from.fast_calls;
  to.hysteresis = from.hysteresis;
  to.cool_down = from.cool_down;
  to.cool_down_max = from.cool_down_max;
  to.forgive = from.forgive;
  to.load_step = from.load_step;
  to.settled_windows = from.settled_windows;
  to.settled_thresh = from.settled_thresh;
  to.horizon_windows_max = from.horizon_windows_max;
  to.moves_per_phase = from.moves_per_phase;
  to.undo_threshold = from.undo_threshold;
  to.correction_max = from.correction_max;
  to.correction_half_life = from.correction_half_life;
  to.claim_windows_max = from.claim_windows_max;
  to.graphs_max = from.graphs_max;
  to.samples_max = from.samples_max;
  to.corrections_max = from.corrections_max;
  to.errors_max = from.errors_max;
  to.phases.slack_deviations = from.phase_slack_deviations;
  to.phases.alarm_sum = from.phase_alarm_sum;
  to.phases.evidence_per_sample_max = from.phase_evidence_per_sample_max;
  to.phases.deviation_floor = from.phase_deviation_floor;
  to.phases.deviation_prior = from.phase_deviation_prior;
  to.phases.kind_distance = from.phase_kind_distance;
  to.phases.kinds_max = from.phase_kinds_max;
  to.phases.lengths_max = from.phase_lengths_max;
  return to;
}

}  // namespace abacus::runtime
