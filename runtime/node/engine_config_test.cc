#include "runtime/node/engine_config.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/config_schema.h"

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
  EXPECT_EQ(mine.fast_calls, theirs.fast_calls);
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

// Every figure that the engine has. A field that is added there does not compile here until it is
// listed.
std::vector<double> EngineFigures(const Config& config) {
  const auto [b_thresh, window_s, evidence, link_evidence, iterations, tolerance, quiesce_s, trips,
              z, objects_max, candidates_max, cpu_share_max, load_constant] =
      ToEngineConfig(config);
  const auto [whole, fast, gain, calls, hysteresis, cool_down, cool_down_max, forgive, load_step,
              settled_windows, settled_thresh, phases, horizon, per_phase, undo, correction_max,
              half_life, graphs, samples, corrections, errors, claims] = ToPlannerConfig(config);
  std::vector<double> figures = {b_thresh,
                                 window_s,
                                 evidence,
                                 link_evidence,
                                 double(iterations),
                                 tolerance,
                                 quiesce_s,
                                 trips,
                                 z,
                                 double(objects_max),
                                 double(candidates_max),
                                 cpu_share_max,
                                 double(load_constant)};
  for (const double figure : {whole,
                              fast,
                              gain,
                              calls,
                              hysteresis,
                              cool_down,
                              cool_down_max,
                              forgive,
                              load_step,
                              settled_windows,
                              settled_thresh,
                              horizon,
                              per_phase,
                              undo,
                              correction_max,
                              half_life,
                              double(graphs),
                              double(samples),
                              double(corrections),
                              double(errors),
                              claims,
                              phases.slack_deviations,
                              phases.alarm_sum,
                              phases.evidence_per_sample_max,
                              phases.deviation_floor,
                              phases.deviation_prior,
                              phases.kind_distance,
                              double(phases.kinds_max),
                              double(phases.lengths_max)}) {
    figures.push_back(figure);
  }
  return figures;
}

// Puts the value half way to the further bound, and returns it as the engine has it.
double MoveOff(const config_internal::Row& row, Config& config) {
  const auto other = [&](double now) {
    return (now + (row.max - now > now - row.min ? row.max : row.min)) / 2;
  };
  return std::visit(config_internal::Overloaded{
                        [](bool* value) { return double(*value = !*value); },
                        [&](int64_t* value) {
                          return double(*value = static_cast<int64_t>(other(double(*value))));
                        },
                        [&](uint64_t* value) {
                          return double(*value = static_cast<uint64_t>(other(double(*value))));
                        },
                        [&](double* value) { return *value = other(*value); },
                        [&](absl::Duration* value) {
                          *value = absl::Nanoseconds(
                              static_cast<int64_t>(other(absl::ToDoubleNanoseconds(*value))));
                          return absl::ToDoubleSeconds(*value);
                        },
                        [](std::string*) { return 0.0; },
                    },
                    row.field(config));
}

// A key that is set comes to one figure of the engine, each to its own, and none is left over.
TEST(EngineConfigTest, EveryKeyComesToAFigureOfItsOwn) {
  const std::set<std::string> of_the_loop = {"placement.enabled",
                                             "placement.digest_interval",
                                             "placement.dry_run",
                                             "placement.decision_log_bytes_max",
                                             "placement.decision_memory_max",
                                             "placement.memory_limit"};
  const std::vector<double> defaults = EngineFigures(Config());
  std::set<size_t> set;
  size_t keys = 0;
  for (const config_internal::Row& row : config_internal::Rows()) {
    const std::string section = row.section;
    if (section != "placement" && section != "planner") continue;
    Config config;
    const double value = MoveOff(row, config);
    const std::vector<double> figures = EngineFigures(config);
    std::vector<size_t> changed;
    for (size_t i = 0; i < figures.size(); ++i) {
      if (figures[i] != defaults[i]) changed.push_back(i);
    }
    if (of_the_loop.contains(row.name())) {
      EXPECT_TRUE(changed.empty()) << row.name();
      continue;
    }
    ++keys;
    ASSERT_EQ(changed.size(), 1u) << row.name();
    EXPECT_DOUBLE_EQ(figures[changed[0]], value) << row.name();
    set.insert(changed[0]);
  }
  EXPECT_EQ(set.size(), keys);
  EXPECT_EQ(set.size(), defaults.size());
}

}  // namespace
}  // namespace abacus::runtime
