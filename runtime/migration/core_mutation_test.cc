// Twenty ways to break the protocol, one rule at a time, and the proof that the simulation notices
// each. The rules are the switches of FaithfulPolicy (runtime/binding/core_types.h). The library is
// built with that policy; only this test compiles the core with one whose rules can be switched
// off.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/binding/call_core_inl.h"
#include "runtime/migration/migration_core_inl.h"
#include "runtime/testing/simulator.h"

namespace abacus::runtime::sim {
namespace {

// Not constants as in the faithful one: one build of the core serves for all mutations.
struct SwitchedPolicy {
  static inline bool kCheckDuplicates = true;
  static inline bool kDropOlderCalls = true;
  static inline bool kKeepTombstones = true;
  static inline bool kCarrySequence = true;
  static inline bool kParkWhileQuiescing = true;
  static inline bool kAdmitInsiders = true;
  static inline bool kFenceTheDead = true;
  static inline bool kReportUnknownOutcome = true;
  static inline bool kCheckEpochAtHome = true;
  static inline bool kRecordCommit = true;
  static inline bool kMoveDedupTable = true;
  static inline bool kWaitForDrain = true;
  static inline bool kActivateAfterCommit = true;
  static inline bool kDepartAfterCommit = true;
  static inline bool kNoRollbackAfterCommit = true;
  static inline bool kAbortThroughHome = true;
  static inline bool kDiscardOnAbort = true;
  static inline bool kTakeOverThroughHome = true;
  static inline bool kHonourRefusal = true;
  static inline bool kSwearOff = true;
};

struct Mutation {
  const char* name;
  bool* rule;
  const char* what;  // goes wrong
};

std::vector<Mutation> Mutations() {
  using P = SwitchedPolicy;
  return {
      {"ForgetDuplicates", &P::kCheckDuplicates, "a call that was sent again runs again"},
      {"RunOlderCalls", &P::kDropOlderCalls, "a late copy of a call runs after its successor"},
      {"ForgetAckedCalls", &P::kKeepTombstones,
       "with the result goes the knowledge that the call ran"},
      {"RestartSequence", &P::kCarrySequence,
       "calls of one activity from two nodes carry the same number"},
      {"AdmitWhileQuiescing", &P::kParkWhileQuiescing,
       "calls run in an object whose state has been taken"},
      {"StopInsiders", &P::kAdmitInsiders, "a call-back waits for the set that waits for it"},
      {"ListenToTheDead", &P::kFenceTheDead, "calls of processes that are known to be dead run"},
      {"GuessOutcome", &P::kReportUnknownOutcome,
       "a call that a dead process ran is reported as not run"},
      {"SkipEpochCheck", &P::kCheckEpochAtHome, "a late commit overwrites a newer row"},
      {"ForgetCommit", &P::kRecordCommit, "the home agrees to a move and does not write it down"},
      {"LeaveDedupTable", &P::kMoveDedupTable, "a call that ran before the move runs again after"},
      {"SkipDrain", &P::kWaitForDrain, "an object leaves with calls inside"},
      {"ActivateTwice", &P::kActivateAfterCommit, "the target serves before the commit"},
      {"StayAfterCommit", &P::kDepartAfterCommit, "the source serves after the commit"},
      {"RollBackAfterCommit", &P::kNoRollbackAfterCommit,
       "the source takes an object back that may be committed"},
      {"AbortAlone", &P::kAbortThroughHome,
       "the source takes an object back that the target may take over"},
      {"NeverDiscard", &P::kDiscardOnAbort, "copies of aborted moves stay for ever"},
      {"TakeOverAlone", &P::kTakeOverThroughHome,
       "the target of a dead source serves without asking the home"},
      {"IgnoreRefusal", &P::kHonourRefusal, "a copy that the home has refused serves"},
      {"RestoreAgain", &P::kSwearOff, "a late transfer and a late activation revive an old copy"},
  };
}

// Most seeds are of the kind that is short; the rest have all kinds of calls.
SimulationOptions OptionsOf(uint64_t seed) {
  return seed % 8 == 0 ? OptionsForSeed(seed) : MovingOptionsForSeed(seed);
}

// Within so many seeds each mutation must be caught.
constexpr uint64_t kSeedsMax = 8000;

class CoreMutation : public testing::TestWithParam<Mutation> {
 protected:
  void TearDown() override { *GetParam().rule = true; }
};

TEST_P(CoreMutation, IsCaught) {
  *GetParam().rule = false;
  SimulationSeries series(SimCoresOf<SwitchedPolicy>::Factory());
  uint64_t seed = 1;
  while (seed <= kSeedsMax && series.Run(OptionsOf(seed))) ++seed;
  ASSERT_LE(seed, kSeedsMax) << "nobody noticed that " << GetParam().what;
  std::printf("%s: %s. Caught by \"%s\", seed %d, after %d steps.\n", GetParam().name,
              GetParam().what, series.check().c_str(), static_cast<int>(seed),
              static_cast<int>(series.stats()[Stat::kSteps]));
}

INSTANTIATE_TEST_SUITE_P(, CoreMutation, testing::ValuesIn(Mutations()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CoreMutations, AreTwenty) {
  EXPECT_EQ(Mutations().size(), 20u);
  for (const Mutation& mutation : Mutations()) EXPECT_TRUE(*mutation.rule) << mutation.name;
}

TEST(CoreMutations, WithoutOneAllSeedsPass) {
  SimulationSeries series(SimCoresOf<SwitchedPolicy>::Factory());
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    ASSERT_TRUE(series.Run(OptionsOf(seed))) << series.report();
  }
}

}  // namespace
}  // namespace abacus::runtime::sim
