// Stripes that several clients write together, settled and mended by openings, under deaths of all
// kinds, on many seeds; and ways to break them, one rule at a time, with the proof that the
// simulation notices each.
//
//   ABACUS_LONG=1   10^8 steps instead of 10^6
//   ABACUS_SEED=n   from that seed on, instead of 1
//
// What is checked is listed in testing/shared_simulator.h.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/testing/mutations.h"
#include "objfs/raid/testing/shared_simulator.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs::testing {
namespace {

TEST(SharedSimulation, PromisesHoldOnEverySeed) {
  constexpr uint64_t kStepsUsually = runtime::testing::kSanitized ? 200'000 : 1'000'000;
  const uint64_t steps_min = LongRun() ? 100'000'000 : kStepsUsually;
  SharedStats stats;
  uint64_t steps = 0, seeds = 0;
  for (uint64_t seed = runtime::testing::Seed(1); steps < steps_min; ++seed, ++seeds) {
    const SimResult result = StripesWorld<FaithfulSharedPolicy>(seed, &stats).Run();
    ASSERT_EQ(result.broken, "") << "replay: ABACUS_SEED=" << seed;
    steps += result.steps;
  }
  const auto number = [](uint64_t value) { return static_cast<int>(value); };
  std::printf(
      "%d steps, %d seeds: %d writes, %d acknowledged, %d refused, %d and %d crashes of servers "
      "and "
      "clients, %d openings, %d of them with all columns and %d without one, %d groups settled, %d "
      "held and %d aborted, %d late orders, %d rows mended, %d writes alone, %d runs given up\n",
      number(steps), number(seeds), number(stats.writes), number(stats.acknowledged),
      number(stats.refused), number(stats.server_crashes), number(stats.client_crashes),
      number(stats.openings), number(stats.shared), number(stats.degraded), number(stats.settled),
      number(stats.held), number(stats.aborted), number(stats.late_orders), number(stats.mended),
      number(stats.alone), number(stats.given_up));
  // What does not happen is not tested.
  for (const uint64_t count :
       {stats.acknowledged, stats.refused, stats.server_crashes, stats.client_crashes, stats.shared,
        stats.degraded, stats.held, stats.aborted, stats.late_orders, stats.mended, stats.alone}) {
    EXPECT_GE(count, steps_min / 100'000);
  }
  EXPECT_LE(stats.given_up * 10, seeds);
}

TEST(SharedSimulation, ASeedIsARun) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SharedStats first, again;
    const SimResult one = StripesWorld<FaithfulSharedPolicy>(seed, &first).Run();
    const SimResult two = StripesWorld<FaithfulSharedPolicy>(seed, &again).Run();
    EXPECT_EQ(one.steps, two.steps);
    EXPECT_EQ(first.acknowledged, again.acknowledged);
    EXPECT_EQ(first.settled, again.settled);
  }
}

// -- mutations ------------------------------------------------------------------------------------

// Not constants as in the faithful one: one build serves for all mutations.
struct SwitchedPolicy {
  static inline bool kClaimBlocks = true;
  static inline bool kReleaseDecided = true;
  static inline bool kCompareReads = true;
  static inline bool kCompareWrites = true;
  static inline bool kCommitOnlyIfAll = true;
  static inline bool kKeepCommitted = true;
  static inline bool kLastWhenAllHave = true;
  static inline bool kFencePrepares = true;
  static inline bool kFenceOrders = true;
};

std::vector<Mutation> Mutations() {
  using P = SwitchedPolicy;
  return {
      {"ClaimNothing", &P::kClaimBlocks, "two groups prepare writes of one block"},
      {"KeepClaims", &P::kReleaseDecided, "a claim is kept when its group is decided"},
      {"ReadAnything", &P::kCompareReads, "a block may have changed since it was read"},
      {"WriteUnderNewer", &P::kCompareWrites, "a write comes under a newer one"},
      {"ParityFirst", &P::kLastWhenAllHave, "the parity's server prepares first"},
      {"CommitIfAny", &P::kCommitOnlyIfAll, "an opening commits what one has not prepared"},
      {"AbortCommitted", &P::kKeepCommitted, "an opening aborts what another server committed"},
      {"LatePrepares", &P::kFencePrepares, "a group of an earlier opening is prepared"},
      {"LateOrders", &P::kFenceOrders, "late orders of an earlier opening are carried out"},
  };
}

constexpr uint64_t kSeedsMax = 4000;

SimResult RunSwitched(uint64_t seed) {
  SharedStats stats;
  return StripesWorld<SwitchedPolicy>(seed, &stats).Run();
}

class SharedMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(SharedMutation, IsCaught) { ExpectCaught(GetParam(), kSeedsMax, RunSwitched); }

INSTANTIATE_TEST_SUITE_P(, SharedMutation, ::testing::ValuesIn(Mutations()), NameOfMutation);

TEST(SharedMutations, WithoutOneAllSeedsPass) {
  ExpectNothingCaught(runtime::testing::kSanitized ? kSeedsMax / 200 : kSeedsMax / 20, RunSwitched);
}

}  // namespace
}  // namespace abacus::objfs::testing
