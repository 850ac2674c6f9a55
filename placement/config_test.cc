#include "placement/config.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

TEST(ConfigTest, DefaultsAreValidAndThePapersOwn) {
  const Config config;
  EXPECT_TRUE(Validate(config).ok());
  EXPECT_EQ(config.b_thresh, 0.30);
  EXPECT_EQ(config.window_s, 1.0);
}

TEST(ConfigTest, ValidateNamesTheFieldThatIsOutOfRange) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Case {
    const char* field;
    std::function<void(Config&)> spoil;
  };
  const Case cases[] = {
      {"b_thresh", [](Config& c) { c.b_thresh = -0.1; }},
      {"b_thresh", [](Config& c) { c.b_thresh = kNaN; }},
      {"b_thresh", [](Config& c) { c.b_thresh = 1001; }},
      {"window_s", [](Config& c) { c.window_s = 0; }},
      {"window_s", [](Config& c) { c.window_s = kInf; }},
      {"min_evidence_bytes", [](Config& c) { c.min_evidence_bytes = -1; }},
      {"min_link_evidence_bytes", [](Config& c) { c.min_link_evidence_bytes = kNaN; }},
      {"fixed_point_iterations_max", [](Config& c) { c.fixed_point_iterations_max = 0; }},
      {"fixed_point_iterations_max", [](Config& c) { c.fixed_point_iterations_max = 10001; }},
      {"fixed_point_tolerance", [](Config& c) { c.fixed_point_tolerance = 0; }},
      {"fixed_point_tolerance", [](Config& c) { c.fixed_point_tolerance = 0.2; }},
      {"quiesce_prior_s", [](Config& c) { c.quiesce_prior_s = -1e-9; }},
      {"protocol_round_trips", [](Config& c) { c.protocol_round_trips = 1001; }},
      {"cpu_share_max", [](Config& c) { c.cpu_share_max = -0.01; }},
      {"cpu_share_max", [](Config& c) { c.cpu_share_max = 1.01; }},
      {"cpu_share_max", [](Config& c) { c.cpu_share_max = kNaN; }},
      {"stack_objects_max", [](Config& c) { c.stack_objects_max = 1; }},
      {"stack_objects_max", [](Config& c) { c.stack_objects_max = 4097; }},
  };
  for (const Case& test : cases) {
    Config config;
    test.spoil(config);
    const absl::Status status = Validate(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.field;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(std::string(test.field) + " "))
        << status;
  }
}

TEST(ConfigTest, ValidateAcceptsTheEndsOfTheRanges) {
  Config config;
  config.b_thresh = 0;
  config.window_s = 3600;
  config.fixed_point_iterations_max = 1;
  config.fixed_point_tolerance = 0.1;
  config.stack_objects_max = 2;
  EXPECT_TRUE(Validate(config).ok()) << Validate(config);
}

}  // namespace
}  // namespace abacus::placement
