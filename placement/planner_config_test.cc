#include "placement/planner_config.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

TEST(PlannerConfigTest, TheDefaultsAreValid) { EXPECT_TRUE(Validate(PlannerConfig()).ok()); }

TEST(PlannerConfigTest, AFieldOutOfRangeIsNamedWithItsValueAndRange) {
  PlannerConfig config;
  config.hysteresis = 0.5;
  const absl::Status status = Validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "hysteresis is 0.5, must be from 1 to 100");
}

TEST(PlannerConfigTest, EveryDoubleIsCheckedAgainstNotANumber) {
  double PlannerConfig::*const fields[] = {
      &PlannerConfig::whole_window,     &PlannerConfig::fast_window,
      &PlannerConfig::fast_gain,        &PlannerConfig::fast_calls,
      &PlannerConfig::hysteresis,       &PlannerConfig::cool_down,
      &PlannerConfig::cool_down_max,    &PlannerConfig::forgive,
      &PlannerConfig::load_step,        &PlannerConfig::settled_windows,
      &PlannerConfig::settled_thresh,   &PlannerConfig::horizon_windows_max,
      &PlannerConfig::moves_per_phase,  &PlannerConfig::undo_threshold,
      &PlannerConfig::correction_max,   &PlannerConfig::correction_half_life,
      &PlannerConfig::claim_windows_max};
  for (double PlannerConfig::*const field : fields) {
    PlannerConfig config;
    config.*field = std::nan("");
    EXPECT_FALSE(Validate(config).ok()) << "field " << (&field - fields);
  }
  PlannerConfig config;
  config.phases.alarm_sum = std::nan("");
  EXPECT_FALSE(Validate(config).ok());
  config = {};
  config.graphs_max = 0;
  EXPECT_FALSE(Validate(config).ok());
}

}  // namespace
}  // namespace abacus::placement
