#include <cstddef>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/planner.h"

// The Planner's decisions on many consoles at once.

namespace abacus::placement {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr double kRoundTick = 0.05;
constexpr NodeId kServerNode = 1;
constexpr NodeId kFirst = 10;
constexpr NodeId kSecond = 11;
constexpr uint64_t kFilterBytes = 1'000'000;
ObjectId ConsoleAt(NodeId client) { return {client, 1, 0}; }
ObjectId FilterOf(NodeId client) { return {client, 1, 1}; }

// Two consoles with a filter each, storage on one server, links of 1 MB/s without round trips to
// speak of. A filter reads 1 MB in a window and passes part of it on, wherever it runs.
class PlannerRoundTest : public ::testing::Test {
 protected:
  struct Stack {
    NodeId at = 0;
    double passes = 0.5;
    double reads_bytes = 1e6;
    double cpu_s = 0;
  };

  Snapshot Sample(NodeId client) const {
    const Stack& stack = client == kFirst ? first_ : second_;
    Snapshot s;
    s.window_s = kRoundTick;
    s.measured_t_app_s = kRoundTick * active_;
    s.console = ConsoleAt(client);
    const double load = others_ + (first_.at == kServerNode ? first_.cpu_s : 0) +
                        (second_.at == kServerNode ? second_.cpu_s : 0);
    s.nodes = {{.node = kServerNode, .rate = 1, .cores = 1, .load = load},
               {.node = client, .rate = 1, .cores = 1, .load = stack.cpu_s}};
    if (free_bytes_ >= 0) s.nodes[0].memory_free_bytes = free_bytes_;
    s.links = {{.a = client,
                .b = kServerNode,
                .bandwidth_bytes_s = 1e6,
                .round_trip_s = 0,
                .measured_bytes = 1e6}};
    const ObjectId storage{kServerNode, 2, client};
    s.objects = {{.id = ConsoleAt(client), .class_name = "console", .node = client},
                 {.id = FilterOf(client),
                  .class_name = "filter",
                  .node = stack.at,
                  .mobile = true,
                  .cpu_s = stack.cpu_s * kRoundTick,
                  .memory_bytes = kFilterBytes},
                 {.id = storage, .class_name = "storage", .node = kServerNode}};
    const double bytes = stack.reads_bytes * kRoundTick;
    s.edges = {{.from = ConsoleAt(client),
                .to = FilterOf(client),
                .calls = 1,
                .reply_bytes = stack.passes * bytes},
               {.from = FilterOf(client), .to = storage, .calls = 1, .reply_bytes = bytes}};
    return s;
  }

  // Both report for so many ticks; then they are decided on.
  void Watch(int ticks) {
    for (int i = 0; i < ticks; ++i) {
      now_s_ += kRoundTick;
      for (const NodeId client : {kFirst, kSecond}) {
        ASSERT_TRUE(planner_.Observe(Sample(client), now_s_, now_s_).ok());
      }
    }
  }
  std::vector<Decision> Round(const std::vector<ObjectId>& consoles) {
    std::vector<Decision> decisions;
    for (auto& one : planner_.DecideRound(consoles, now_s_)) {
      decisions.push_back(std::move(one.decision));
    }
    return decisions;
  }
  std::vector<Decision> RoundOfBoth() { return Round({ConsoleAt(kFirst), ConsoleAt(kSecond)}); }

  // Filter 1 is at the server and fills it: 0.6 s of its window there, 1 s at its client. Filter 2
  // takes 1 s at its client and 0.1 s at the server.
  void FillTheServer() {
    first_ = {.at = kServerNode, .passes = 0.6};
    second_ = {.at = kSecond, .passes = 0.1};
    free_bytes_ = 5e5;
  }

  Planner planner_{Config(), PlannerConfig()};
  double now_s_ = 100;
  Stack first_{.at = kFirst};
  Stack second_{.at = kSecond};
  double others_ = 0;       // load on the server
  double free_bytes_ = -1;  // of the server; negative: not limited
  double active_ = 1;       // part of the time in invocations
};

TEST_F(PlannerRoundTest, WithRoomForAllARoundIsWhatEachWouldDecide) {
  Watch(21);
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  for (const Decision& d : decisions) {
    EXPECT_EQ(d.reason, Reason::kNetBenefit) << d.Explanation();
    EXPECT_EQ(d.moves.size(), 1u);
  }
}

TEST_F(PlannerRoundTest, AConsoleThatIsTheOnlyOneKnownIsDecidedAsByItself) {
  Planner alone{Config(), PlannerConfig()};
  now_s_ += kRoundTick;
  for (Planner* planner : {&alone, &planner_}) {
    ASSERT_TRUE(planner->Observe(Sample(kFirst), now_s_, now_s_).ok());
  }
  const Decision one = alone.Decide(ConsoleAt(kFirst), now_s_);
  const std::vector<Decision> round = Round({ConsoleAt(kFirst)});
  ASSERT_EQ(round.size(), 1u);
  EXPECT_EQ(Format(round[0]), Format(one));
  EXPECT_EQ(round[0].moves, one.moves);
}

// round_test has the arithmetic: either gains alone, and the second would cost the first as much.
TEST_F(PlannerRoundTest, WhoWouldCostTheOthersMoreThanItGainsStaysAndSaysHowMuch) {
  first_ = {.at = kServerNode, .passes = 0.5, .cpu_s = 0.3};
  second_ = {.at = kSecond, .passes = 0.5, .cpu_s = 0.3};
  others_ = 0.85;
  Watch(21);
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[1].reason, Reason::kOthersLose) << decisions[1].Explanation();
  EXPECT_EQ(decisions[1].outcome, Outcome::kStay);
  EXPECT_TRUE(decisions[1].moves.empty());
  EXPECT_TRUE(decisions[1].chosen.has_value());
  EXPECT_THAT(decisions[1].Explanation(), HasSubstr("others on the node would lose 0."));
  EXPECT_THAT(decisions[1].Explanation(), HasSubstr("Else it would be: Moving"));
  EXPECT_EQ(planner_.Decide(ConsoleAt(kSecond), now_s_).outcome, Outcome::kMove)
      << "by itself it would go";
}

// Each uses 0.1 s of 0.7 s there: 0.14 cores. A limit of 0.2 lends enough for one, and the second
// gains too little more than the first to eject it.
TEST_F(PlannerRoundTest, WhatTheServersCpuLimitKeepsAwayIsHeldForThatAndSaysSo) {
  first_ = {.at = kServerNode, .passes = 0.6, .cpu_s = 0.1};
  second_ = {.at = kSecond, .passes = 0.55, .cpu_s = 0.1};
  ASSERT_TRUE(planner_.SetConfig({.cpu_share_max = 0.2}, PlannerConfig()).ok());
  Watch(21);
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[1].reason, Reason::kNoCpu) << decisions[1].Explanation();
  EXPECT_EQ(decisions[1].outcome, Outcome::kStay);
  EXPECT_THAT(decisions[1].Explanation(),
              HasSubstr("the server's CPU limit, 20 % of its capacity"));
  EXPECT_EQ(planner_.Decide(ConsoleAt(kSecond), now_s_).outcome, Outcome::kMove)
      << "by itself it would go";
}

TEST_F(PlannerRoundTest, TheFilterThatGainsMoreEjectsTheOtherAsOneStep) {
  FillTheServer();
  Watch(21);
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].reason, Reason::kEjected) << decisions[0].Explanation();
  EXPECT_EQ(decisions[0].moves, (std::vector<Move>{{FilterOf(kFirst), kServerNode, kFirst}}));
  EXPECT_THAT(decisions[0].Explanation(), HasSubstr("Making room"));
  EXPECT_EQ(decisions[1].reason, Reason::kNetBenefit) << decisions[1].Explanation();
  EXPECT_EQ(decisions[1].moves, (std::vector<Move>{{FilterOf(kSecond), kSecond, kServerNode}}));
  EXPECT_THAT(decisions[1].Explanation(), HasSubstr("over all consoles"));
}

// Alone the one sample of the first filter is too little evidence to move it on; scaled to a window
// among others it would be enough.
TEST_F(PlannerRoundTest, ForAPartyOfWhichTooLittleIsKnownNobodyGoesHalfAStep) {
  FillTheServer();
  first_.reads_bytes = 1e5;
  for (int i = 0; i < 21; ++i) {
    now_s_ += kRoundTick;
    ASSERT_TRUE(planner_.Observe(Sample(kSecond), now_s_, now_s_).ok());
  }
  ASSERT_TRUE(planner_.Observe(Sample(kFirst), now_s_, now_s_).ok());
  for (const Decision& d : Round({ConsoleAt(kSecond)})) {
    EXPECT_EQ(d.outcome, Outcome::kStay) << d.Explanation();
  }
  now_s_ += 1;
  Watch(1);
  for (const Decision& d : RoundOfBoth()) EXPECT_EQ(d.outcome, Outcome::kStay) << d.Explanation();
}

TEST_F(PlannerRoundTest, WhoseFiguresContradictEachOtherIsNotEjectedOnThem) {
  FillTheServer();
  for (int i = 0; i < 21; ++i) {
    now_s_ += kRoundTick;
    active_ = 5;  // five times the time that there was
    ASSERT_TRUE(planner_.Observe(Sample(kFirst), now_s_, now_s_).ok());
    active_ = 1;
    ASSERT_TRUE(planner_.Observe(Sample(kSecond), now_s_, now_s_).ok());
  }
  for (const Decision& d : Round({ConsoleAt(kSecond)})) {
    EXPECT_EQ(d.outcome, Outcome::kStay) << "not asked for: " << d.Explanation();
  }
  now_s_ += 0.01;
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].reason, Reason::kImplausible) << decisions[0].Explanation();
  for (const Decision& d : decisions) EXPECT_EQ(d.outcome, Outcome::kStay) << d.Explanation();
}

TEST_F(PlannerRoundTest, WhoIsEjectedIsDecidedOnThoughItWasNotAskedFor) {
  FillTheServer();
  Watch(21);
  const std::vector<Decision> decisions = Round({ConsoleAt(kSecond)});
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].console, ConsoleAt(kSecond));
  EXPECT_EQ(decisions[0].outcome, Outcome::kMove);
  EXPECT_EQ(decisions[1].console, ConsoleAt(kFirst));
  EXPECT_EQ(decisions[1].reason, Reason::kEjected);
  EXPECT_TRUE(planner_.StatusOf(ConsoleAt(kFirst), now_s_)->moving);
}

// Room can not be made by one that is cooling down: then nobody goes.
TEST_F(PlannerRoundTest, OfAStepThatNeedsOneThatIsCoolingDownNothingGoes) {
  first_ = {.at = kFirst, .passes = 0.6};
  second_ = {.at = kSecond, .passes = 0.1};
  Watch(21);
  ASSERT_EQ(Round({ConsoleAt(kFirst)})[0].outcome, Outcome::kMove);
  planner_.OnMoveEnded(ConsoleAt(kFirst), true, 0.002, now_s_);
  FillTheServer();
  Watch(21);
  for (const Decision& d : RoundOfBoth()) EXPECT_EQ(d.outcome, Outcome::kStay) << d.Explanation();
  Watch(30);
  std::vector<Reason> reasons;
  for (const Decision& d : RoundOfBoth()) reasons.push_back(d.reason);
  EXPECT_THAT(reasons, UnorderedElementsAre(Reason::kEjected, Reason::kNetBenefit));
}

// The audit would take back a move after which the same work takes 0.2 longer; this one makes it
// 0.67 longer, as was known.
TEST_F(PlannerRoundTest, AnEjectionIsNotTakenBackBecauseTheConsoleGotSlower) {
  FillTheServer();
  Watch(21);
  ASSERT_EQ(RoundOfBoth()[0].reason, Reason::kEjected);
  for (const NodeId client : {kFirst, kSecond}) {
    planner_.OnMoveEnded(ConsoleAt(client), true, 0.002, now_s_);
  }
  first_ = {.at = kFirst, .passes = 0.6, .reads_bytes = 0.6e6};
  second_ = {.at = kServerNode, .passes = 0.1, .reads_bytes = 1e7};
  for (int i = 0; i < 100; ++i) {
    Watch(1);
    for (const Decision& d : RoundOfBoth()) {
      ASSERT_EQ(d.outcome, Outcome::kStay) << i << ": " << d.Explanation();
    }
  }
  EXPECT_EQ(planner_.counters().undone, 0u);
  // Room again: it returns without the hysteresis of a move that is taken back.
  free_bytes_ = 2e6;
  std::vector<Decision> decisions;
  for (int i = 0; i < 25 && (decisions.empty() || decisions[0].outcome == Outcome::kStay); ++i) {
    Watch(1);
    decisions = RoundOfBoth();
  }
  EXPECT_EQ(decisions[0].reason, Reason::kNetBenefit) << decisions[0].Explanation();
}

TEST_F(PlannerRoundTest, InADryRunNobodyIsEjected) {
  FillTheServer();
  planner_.DryRun(true);
  Watch(21);
  const std::vector<Decision> decisions = RoundOfBoth();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].outcome, Outcome::kStay);
  EXPECT_EQ(decisions[1].reason, Reason::kDryRun) << decisions[1].Explanation();
}

TEST_F(PlannerRoundTest, WhileSuspendedNobodyIsEjected) {
  FillTheServer();
  planner_.Suspend(true);
  Watch(21);
  for (const Decision& d : RoundOfBoth()) EXPECT_EQ(d.outcome, Outcome::kStay) << d.Explanation();
}

TEST_F(PlannerRoundTest, AClockThatStepsBackDecidesNothing) {
  FillTheServer();
  Watch(21);
  now_s_ -= 50;
  for (const Decision& d : RoundOfBoth()) EXPECT_EQ(d.reason, Reason::kClockStepped);
}

}  // namespace
}  // namespace abacus::placement
