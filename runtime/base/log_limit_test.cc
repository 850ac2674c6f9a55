#include "runtime/base/log_limit.h"

#include <optional>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

TEST(LogLimitTest, SoManyASecondPassAndTheOthersAreCounted) {
  LogLimit limit(2);
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Pass(start), 0u);
  EXPECT_EQ(limit.Pass(start), 0u);
  EXPECT_EQ(limit.Pass(start + absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.Pass(start + absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.Pass(start + absl::Seconds(1)), 2u);
  EXPECT_EQ(limit.Pass(start + absl::Seconds(1)), 0u) << "told once";
  EXPECT_EQ(limit.Pass(start + absl::Seconds(1)), std::nullopt);
  EXPECT_EQ(limit.Pass(start), 1u) << "the clock was set back";
}

}  // namespace
}  // namespace abacus::runtime
