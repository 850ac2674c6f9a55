// Transactions and their logs under faults of every kind, on many seeds; and ways to break them,
// one rule at a time, with the proof that the simulation notices each.
//
//   ABACUS_LONG=1   10^8 steps instead of 10^6

#include <cstdint>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/commit_core_inl.h"
#include "objfs/atomicity/log_core_inl.h"
#include "objfs/atomicity/testing/commit_simulator.h"
#include "objfs/atomicity/testing/mutations.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs::testing {
namespace {

struct ShippedPolicy : FaithfulCommitPolicy, FaithfulLogPolicy {};

TEST(CommitSimulation, PromisesHoldOnEverySeed) {
  constexpr uint64_t kStepsUsually = runtime::testing::kSanitized ? 200'000 : 1'000'000;
  const uint64_t steps_min = LongRun() ? 100'000'000 : kStepsUsually;
  CommitStats stats;
  uint64_t steps = 0;
  uint64_t seed = 0;
  while (steps < steps_min) {
    const SimResult result = CommitWorld<ShippedPolicy>(++seed, &stats).Run();
    ASSERT_EQ(result.broken, "") << "seed " << seed;
    steps += result.steps;
  }
  const auto number = [](uint64_t value) { return static_cast<int>(value); };
  std::printf(
      "%d steps, %d seeds: %d transactions, %d acknowledged, %d called off, %d and %d crashes of "
      "servers and clients, %d torn writes, %d ticks with resolutions, %d records in %d writes, %d "
      "of them checkpoints, %d times full\n",
      number(steps), number(seed), number(stats.transactions), number(stats.acknowledged),
      number(stats.called_off), number(stats.server_crashes), number(stats.client_crashes),
      number(stats.torn_writes), number(stats.resolutions), number(stats.records),
      number(stats.writes), number(stats.checkpoints), number(stats.full));
  // What does not happen is not tested.
  for (const uint64_t count :
       {stats.acknowledged, stats.called_off, stats.server_crashes, stats.client_crashes,
        stats.resolutions, stats.checkpoints, stats.full}) {
    EXPECT_GE(count, steps_min / 2000);
  }
  EXPECT_GE(stats.torn_writes, steps_min / 10'000);
  EXPECT_GT(stats.records, stats.writes);
}

// -- mutations ----------------------------------------------------------------------------------

// Not constants as in the faithful ones: one build serves for all mutations.
struct SwitchedPolicy {
  static inline bool kAnswerAfterDurable = true;
  static inline bool kPersistPrepare = true;
  static inline bool kFloorAfterRestart = true;
  static inline bool kRaiseCeiling = true;
  static inline bool kSwearOff = true;
  static inline bool kRememberCommitted = true;
  static inline bool kRedoAfterRestart = true;
  static inline bool kAcknowledgeApplied = true;
  static inline bool kResolveAfterLease = true;
  static inline bool kForwardOnlyIfAll = true;
  static inline bool kWaitForAllPrepared = true;
  static inline bool kNoAbortInDoubt = true;
  static inline bool kForgetAfterAll = true;
  static inline bool kDoubtAfterLease = true;
  static inline bool kSendAgain = true;
  static constexpr bool kJumpSequence = true;  // log_core_test.cc breaks it
  static inline bool kReserveForSnapshot = true;
  static inline bool kOtherHalf = true;
  static inline bool kAcknowledgeFlushed = true;
};

std::vector<Mutation> Mutations() {
  using P = SwitchedPolicy;
  return {
      {"AnswerBeforeDurable", &P::kAnswerAfterDurable, "it is prepared, says who forgets it"},
      {"ForgetPrepared", &P::kPersistPrepare, "preparations are not written to the log"},
      {"NoFloor", &P::kFloorAfterRestart, "a restarted server prepares what it had refused"},
      {"NoCeiling", &P::kRaiseCeiling, "a restarted server does not know what it had refused"},
      {"AnswerInquiryOnly", &P::kSwearOff, "what was called missing is prepared after that"},
      {"ForgetCommitted", &P::kRememberCommitted, "who asks takes a commit for never prepared"},
      {"NoRedo", &P::kRedoAfterRestart, "what was committed before a crash is not applied"},
      {"AcknowledgeUnapplied", &P::kAcknowledgeApplied, "what is not applied yet is forgotten"},
      {"LeaveTheDead", &P::kResolveAfterLease, "what dead clients have prepared stays"},
      {"ForwardIfAny", &P::kForwardOnlyIfAll, "it goes forward where one has refused"},
      {"CommitAtFirst", &P::kWaitForAllPrepared, "it is committed after the first has prepared"},
      {"AbortInDoubt", &P::kNoAbortInDoubt, "one calls off what others may carry on"},
      {"ForgetAtFirst", &P::kForgetAfterAll, "a commit is forgotten before all have it"},
      {"CertainAfterLease", &P::kDoubtAfterLease, "one takes a forgotten commit for called off"},
      {"SendOnce", &P::kSendAgain, "a lost message is not sent again"},
      {"FillUp", &P::kReserveForSnapshot, "there is no room for the next checkpoint"},
      {"OverwriteCheckpoint", &P::kOtherHalf, "a torn checkpoint has destroyed the one before"},
      {"AcknowledgeWritten", &P::kAcknowledgeFlushed, "what is not flushed is called durable"},
  };
}

constexpr uint64_t kSeedsMax = 6000;

SimResult RunSwitched(uint64_t seed) {
  CommitStats stats;
  return CommitWorld<SwitchedPolicy>(seed, &stats).Run();
}

class CommitMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(CommitMutation, IsCaught) { ExpectCaught(GetParam(), kSeedsMax, RunSwitched); }

INSTANTIATE_TEST_SUITE_P(, CommitMutation, ::testing::ValuesIn(Mutations()), NameOfMutation);

TEST(CommitMutations, WithoutOneAllSeedsPass) {
  ExpectNothingCaught(runtime::testing::kSanitized ? kSeedsMax / 30 : kSeedsMax / 3, RunSwitched);
}

}  // namespace
}  // namespace abacus::objfs::testing
