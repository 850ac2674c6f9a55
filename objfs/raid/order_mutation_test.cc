// Ways to break timestamp ordering, one rule at a time, and the proof that the simulation notices
// each. The rules are the switches of FaithfulOrderPolicy and FaithfulCommitPolicy.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/testing/mutations.h"
#include "objfs/raid/small_write_inl.h"
#include "objfs/raid/testing/order_simulator.h"
#include "objfs/raid/timestamp_order_inl.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs::testing {
namespace {

// Not constants as in the faithful one: one build serves for all mutations.
struct SwitchedPolicy {
  static inline bool kAnswerAfterDurable = true;
  static inline bool kPersistPrepare = true;
  static inline bool kFloorAfterRestart = true;
  static inline bool kRaiseCeiling = true;
  static inline bool kRememberCommitted = true;
  // The commit's simulator breaks these: here the times of reads hide them, or nothing is under
  // way.
  static constexpr bool kSwearOff = true;
  static constexpr bool kRedoAfterRestart = true;
  static constexpr bool kAcknowledgeApplied = true;
  static inline bool kResolveAfterLease = true;
  static inline bool kForwardOnlyIfAll = true;
  static inline bool kWaitForAllPrepared = true;
  static inline bool kNoAbortInDoubt = true;
  static inline bool kForgetAfterAll = true;
  static constexpr bool kDoubtAfterLease = true;
  static inline bool kSendAgain = true;
  static inline bool kRefuseUnderReads = true;
  static inline bool kRefuseUnderWrites = true;
  static inline bool kRefuseReadUnderWrites = true;
  static inline bool kWaitForPrewrites = true;
  static inline bool kWaitForReservations = true;
  static inline bool kReadsCount = true;
  static inline bool kReservationsCount = true;
  static inline bool kReadsRaiseCeiling = true;
  static inline bool kOnlyOverOlder = true;
  static inline bool kReservationsEnd = true;
  static inline bool kRecoverPending = true;
  static inline bool kRetryNewer = true;
  static inline bool kLearnFromRefusal = true;
};

std::vector<Mutation> Mutations() {
  using P = SwitchedPolicy;
  return {
      {"AnswerBeforeDurable", &P::kAnswerAfterDurable, "a prewrite is told that a crash takes"},
      {"ForgetPrewrites", &P::kPersistPrepare, "prewrites are not written to the log"},
      {"NoFloor", &P::kFloorAfterRestart, "a restarted store admits times of before"},
      {"NoCeiling", &P::kRaiseCeiling, "a restarted store does not know what it had seen"},
      {"ForgetCommitted", &P::kRememberCommitted, "who asks takes a commit for never prewritten"},
      {"LeaveTheDead", &P::kResolveAfterLease, "prewrites of dead clients stay"},
      {"ForwardIfAny", &P::kForwardOnlyIfAll, "a write goes forward that is not on all servers"},
      {"CommitAtFirst", &P::kWaitForAllPrepared, "a client commits after the first prewrite"},
      {"AbortInDoubt", &P::kNoAbortInDoubt, "a client calls off what others may carry on"},
      {"ForgetAtFirst", &P::kForgetAfterAll, "a commit is forgotten before all have it"},
      {"SendOnce", &P::kSendAgain, "a lost message is not sent again"},
      {"WriteUnderReads", &P::kRefuseUnderReads, "a write comes under a read that missed it"},
      {"WriteUnderWrites", &P::kRefuseUnderWrites, "a write is based on a newer one"},
      {"ReadUnderWrites", &P::kRefuseReadUnderWrites, "a read sees a write that is newer than it"},
      {"ReadBesidePrewrites", &P::kWaitForPrewrites, "a read misses an older write"},
      {"ReadBesideReservations", &P::kWaitForReservations, "the same, before its prewrite"},
      {"ForgetReads", &P::kReadsCount, "reads leave no timestamp"},
      {"ForgetReservedReads", &P::kReservationsCount, "reads of round 1 leave no timestamp"},
      {"ReadsAboveCeiling", &P::kReadsRaiseCeiling, "reads of before a restart do not count"},
      {"OlderOverNewer", &P::kOnlyOverOlder, "a late commit overwrites a newer one"},
      {"EndlessReservations", &P::kReservationsEnd, "reservations of dead clients stay"},
      {"LosePending", &P::kRecoverPending, "a restarted store drops its prewrites"},
      {"RetrySameTime", &P::kRetryNewer, "the loser comes with the same time again"},
      {"LearnNothing", &P::kLearnFromRefusal, "a client whose clock is behind never wins"},
  };
}

constexpr uint64_t kSeedsMax = 4000;

SimResult RunSwitched(uint64_t seed) {
  OrderStats stats;
  return OrderWorld<SwitchedPolicy>(seed, &stats).Run();
}

class OrderMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(OrderMutation, IsCaught) { ExpectCaught(GetParam(), kSeedsMax, RunSwitched); }

INSTANTIATE_TEST_SUITE_P(, OrderMutation, ::testing::ValuesIn(Mutations()), NameOfMutation);

TEST(OrderMutations, WithoutOneAllSeedsPass) {
  ExpectNothingCaught(runtime::testing::kSanitized ? kSeedsMax / 20 : kSeedsMax, RunSwitched);
}

}  // namespace
}  // namespace abacus::objfs::testing
