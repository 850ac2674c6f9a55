// Timestamp ordering under faults of every kind, on many seeds.
//
//   ABACUS_LONG=1   10^8 steps instead of 10^6
//
// What is checked is listed in testing/order_oracle.h.

#include <cstdint>
#include <cstdio>

#include "gtest/gtest.h"
#include "objfs/raid/testing/order_simulator.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs::testing {
namespace {

TEST(OrderSimulation, PromisesHoldOnEverySeed) {
  constexpr uint64_t kStepsUsually = runtime::testing::kSanitized ? 200'000 : 1'000'000;
  const uint64_t steps_min = LongRun() ? 100'000'000 : kStepsUsually;
  OrderStats stats;
  uint64_t steps = 0;
  uint64_t seed = 0;
  while (steps < steps_min) {
    const SimResult result = OrderWorld<FaithfulOrderPolicy>(++seed, &stats).Run();
    ASSERT_EQ(result.broken, "") << "seed " << seed;
    steps += result.steps;
  }
  std::printf(
      "%d steps, %d seeds: %d small and %d stripe writes in %d attempts, %d reads, %d blocked, "
      "%d too old, %d and %d crashes of servers and clients, %d ticks with resolutions\n",
      static_cast<int>(steps), static_cast<int>(seed), static_cast<int>(stats.writes),
      static_cast<int>(stats.whole_stripes), static_cast<int>(stats.attempts),
      static_cast<int>(stats.reads), static_cast<int>(stats.blocked),
      static_cast<int>(stats.too_old), static_cast<int>(stats.server_crashes),
      static_cast<int>(stats.client_crashes), static_cast<int>(stats.resolutions));
  // What does not happen is not tested.
  const uint64_t often = steps_min / 2000;
  for (const uint64_t count :
       {stats.writes, stats.whole_stripes, stats.reads, stats.blocked, stats.too_old,
        stats.server_crashes, stats.client_crashes, stats.resolutions}) {
    EXPECT_GE(count, often);
  }
  EXPECT_GT(stats.attempts, stats.writes + stats.whole_stripes);
}

}  // namespace
}  // namespace abacus::objfs::testing
