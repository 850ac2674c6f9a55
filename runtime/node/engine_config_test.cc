#include "runtime/node/engine_config.h"

#include <gtest/gtest.h>

namespace abacus::runtime {
namespace {

// The defaults stand where they are explained, in placement/, and in the schema: they are the same.
TEST(EngineConfigTest, DefaultsAreThoseOfTheEngine) {
  const placement::Config mine = ToEngineConfig(Config()), theirs;
  EXPECT_EQ(mine.b_thresh, theirs.b_thresh);
  EXPECT_EQ(mine.window_s, theirs.window_s);
  EXPECT_EQ(mine.min_evidence_bytes, theirs.min_evidence_bytes);
  EXPECT_EQ(mine.min_link_evidence_bytes, theirs.min_link_evidence_bytes);
  EXPECT_EQ(mine.confidence_z, theirs.confidence_z);
  EXPECT_EQ(mine.quiesce_prior_s, theirs.quiesce_prior_s);
  EXPECT_EQ(mine.protocol_round_trips, theirs.protocol_round_trips);
  EXPECT_EQ(mine.fixed_point_iterations_max, theirs.fixed_point_iterations_max);
  EXPECT_EQ(mine.fixed_point_tolerance, theirs.fixed_point_tolerance);
  EXPECT_EQ(mine.stack_objects_max, theirs.stack_objects_max);
  EXPECT_EQ(mine.candidates_max, theirs.candidates_max);
  EXPECT_EQ(mine.cpu_share_max, theirs.cpu_share_max);
  EXPECT_EQ(mine.client_load_constant, theirs.client_load_constant);
}

TEST(EngineConfigTest, DefaultsAreThoseOfThePlanner) {
  const placement::PlannerConfig mine = ToPlannerConfig(Config()), theirs;
  EXPECT_EQ(mine.whole_window, theirs.whole_window);
  EXPECT_EQ(mine.fast_window, theirs.fast_window);
  EXPECT_EQ(mine.fast_gain, theirs.fast_gain);
  EXPECT_EQ(mine.hysteresis, theirs.hysteresis);
  EXPECT_EQ(mine.cool_down, theirs.cool_down);
  EXPECT_EQ(mine.cool_down_max, theirs.cool_down_max);
  EXPECT_EQ(mine.forgive, theirs.forgive);
  EXPECT_EQ(mine.load_step, theirs.load_step);
  EXPECT_EQ(mine.settled_windows, theirs.settled_windows);
  EXPECT_EQ(mine.settled_thresh, theirs.settled_thresh);
  EXPECT_EQ(mine.horizon_windows_max, theirs.horizon_windows_max);
  EXPECT_EQ(mine.moves_per_phase, theirs.moves_per_phase);
  EXPECT_EQ(mine.undo_threshold, theirs.undo_threshold);
  EXPECT_EQ(mine.correction_max, theirs.correction_max);
  EXPECT_EQ(mine.correction_half_life, theirs.correction_half_life);
  EXPECT_EQ(mine.claim_windows_max, theirs.claim_windows_max);
  EXPECT_EQ(mine.graphs_max, theirs.graphs_max);
  EXPECT_EQ(mine.samples_max, theirs.samples_max);
  EXPECT_EQ(mine.corrections_max, theirs.corrections_max);
  EXPECT_EQ(mine.errors_max, theirs.errors_max);
  EXPECT_EQ(mine.phases.slack_deviations, theirs.phases.slack_deviations);
  EXPECT_EQ(mine.phases.alarm_sum, theirs.phases.alarm_sum);
  EXPECT_EQ(mine.phases.evidence_per_sample_max, theirs.phases.evidence_per_sample_max);
  EXPECT_EQ(mine.phases.deviation_floor, theirs.phases.deviation_floor);
  EXPECT_EQ(mine.phases.deviation_prior, theirs.phases.deviation_prior);
  EXPECT_EQ(mine.phases.kind_distance, theirs.phases.kind_distance);
  EXPECT_EQ(mine.phases.kinds_max, theirs.phases.kinds_max);
  EXPECT_EQ(mine.phases.lengths_max, theirs.phases.lengths_max);
}

}  // namespace
}  // namespace abacus::runtime
