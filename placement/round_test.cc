#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/sanitized.h"

// Decisions about many consoles at once.

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kRoundSeed = 19990720;
constexpr int kRounds = runtime::testing::kSanitized ? 80 : 400;

std::vector<Move> MovesOf(const Round& round) {
  std::vector<Move> moves;
  for (const RoundStep& step : round.steps) {
    moves.insert(moves.end(), step.moves.begin(), step.moves.end());
  }
  return moves;
}

// Clients 10 and 11, a server 1; console -> filter -> storage for each. A filter reads 1 MB in the
// window and passes `passed` of it on; links of 1 MB/s without round trips to speak of; no CPU.
constexpr NodeId kFirstClient = 10;
constexpr NodeId kSecondClient = 11;
ObjectId Filter(NodeId client) { return {client, 1, 1}; }

Snapshot TwoFilters(double passed_first, double passed_second) {
  Snapshot s;
  s.window_s = 1;
  s.nodes.push_back({.node = 1, .name = "server", .rate = 1, .cores = 1});
  for (const NodeId client : {kFirstClient, kSecondClient}) {
    s.nodes.push_back({.node = client, .rate = 1, .cores = 1});
    s.links.push_back(
        {.a = client, .b = 1, .bandwidth_bytes_s = 1e6, .round_trip_s = 0, .measured_bytes = 1e6});
    s.consoles.push_back({client, 1, 0});
    s.objects.push_back({.id = {client, 1, 0}, .class_name = "console", .node = client});
    s.objects.push_back({.id = Filter(client),
                         .class_name = "filter",
                         .node = client,
                         .mobile = true,
                         .memory_bytes = 1'000'000});
    s.objects.push_back({.id = {1, 2, client}, .class_name = "storage", .node = 1});
    const double passed = client == kFirstClient ? passed_first : passed_second;
    s.edges.push_back(
        {.from = {client, 1, 0}, .to = Filter(client), .calls = 1, .reply_bytes = passed * 1e6});
    s.edges.push_back(
        {.from = Filter(client), .to = {1, 2, client}, .calls = 1, .reply_bytes = 1e6});
  }
  s.console = s.consoles.front();
  return s;
}

TEST(DecideAllTest, WithRoomForBothBothFiltersGo) {
  const Round round = DecideAll(TwoFilters(0.6, 0.3), {}, {});
  EXPECT_THAT(MovesOf(round), UnorderedElementsAre(Move{Filter(kFirstClient), kFirstClient, 1},
                                                   Move{Filter(kSecondClient), kSecondClient, 1}));
  EXPECT_NEAR(round.mean_now_s, 1, 1e-9);
  EXPECT_NEAR(round.mean_new_s, 0.45, 1e-9);
}

TEST(DecideAllTest, WithRoomForOneTheOneThatGainsMoreGoes) {
  Snapshot s = TwoFilters(0.6, 0.3);
  NodeOf(s, 1).memory_free_bytes = 1.5e6;
  const Round round = DecideAll(s, {}, {});
  EXPECT_THAT(MovesOf(round), ElementsAre(Move{Filter(kSecondClient), kSecondClient, 1}));
  ASSERT_EQ(round.consoles.size(), 2u);
  EXPECT_EQ(round.consoles[0].reason, Reason::kNoMemory);
  EXPECT_EQ(round.consoles[1].outcome, Outcome::kMove);
}

// Filter 1 came first and fills the server: 0.6 s there, 1 s at its client. Filter 2 takes 1 s at
// its client, 0.3 s there. The swap gains 0.7 - 0.4 = 0.3 s in sum, costs two quiesces of 2 ms, and
// 0.296 s is more than 0.3 x 0.3 s, the threshold of the filter that it is for.
TEST(DecideAllTest, TheFilterThatGainsMoreEjectsTheOtherInOneStep) {
  Snapshot s = TwoFilters(0.6, 0.3);
  ObjectOf(s, Filter(kFirstClient)).node = 1;
  NodeOf(s, 1).memory_free_bytes = 5e5;
  const Round round = DecideAll(s, {}, {});
  ASSERT_EQ(round.steps.size(), 1u);
  EXPECT_THAT(round.steps[0].moves,
              UnorderedElementsAre(Move{Filter(kSecondClient), kSecondClient, 1},
                                   Move{Filter(kFirstClient), 1, kFirstClient}));
  EXPECT_NEAR(round.steps[0].benefit_s, 0.3, 1e-9);
  EXPECT_NEAR(round.steps[0].cost.Total(), 0.004, 1e-9);
  EXPECT_NEAR(round.steps[0].threshold_s, 0.09, 1e-9);
  EXPECT_THAT(MovesOf(DecideAll(After(s, MovesOf(round), {}), {}, {})), IsEmpty());
}

// Each filter computes 0.1 s. There filter 1 uses 0.1 / 0.7 = 0.14 cores, filter 2 0.1 / 0.4 =
// 0.25; together 0.39. A limit of 0.3 has room for one of them, and 2 gains 0.7 s and 1 only 0.4 s.
Snapshot TwoFiltersThatCompute() {
  Snapshot s = TwoFilters(0.6, 0.3);
  for (const NodeId client : {kFirstClient, kSecondClient}) {
    ObjectOf(s, Filter(client)).cpu_s = 0.1;
    NodeOf(s, client).load = 0.1;
  }
  return s;
}

TEST(DecideAllTest, WithCpuLentForOneTheOneThatGainsMoreGoes) {
  const Snapshot s = TwoFiltersThatCompute();
  EXPECT_EQ(MovesOf(DecideAll(s, {}, {.cpu_share_max = 0.5})).size(), 2u);
  const Config config{.cpu_share_max = 0.3};
  const Round round = DecideAll(s, {}, config);
  EXPECT_THAT(MovesOf(round), ElementsAre(Move{Filter(kSecondClient), kSecondClient, 1}));
  ASSERT_EQ(round.consoles.size(), 2u);
  EXPECT_EQ(round.consoles[0].reason, Reason::kNoCpu);
  EXPECT_THAT(MovesOf(DecideAll(After(s, MovesOf(round), config), {}, config)), IsEmpty());
}

TEST(DecideAllTest, WhereCpuIsLentForOneTheFilterThatGainsMoreEjectsTheOther) {
  const Snapshot s =
      After(TwoFiltersThatCompute(), {Move{Filter(kFirstClient), kFirstClient, 1}}, {});
  const Config config{.cpu_share_max = 0.3};
  const Round round = DecideAll(s, {}, config);
  ASSERT_EQ(round.steps.size(), 1u);
  EXPECT_THAT(round.steps[0].moves,
              UnorderedElementsAre(Move{Filter(kSecondClient), kSecondClient, 1},
                                   Move{Filter(kFirstClient), 1, kFirstClient}));
  EXPECT_THAT(MovesOf(DecideAll(After(s, MovesOf(round), config), {}, config)), IsEmpty());
}

TEST(DecideAllTest, AStepIsExplainedInOneSentence) {
  Snapshot s = TwoFilters(0.6, 0.3);
  NodeOf(s, 1).memory_free_bytes = 1.5e6;
  const Round round = DecideAll(s, {}, {});
  ASSERT_EQ(round.steps.size(), 1u);
  EXPECT_EQ(
      Format(round.steps[0], s),
      "Moving filter 11.1.1 from node 11 to server (node 1) gains 0.7 s over all consoles and "
      "costs 2 ms; net benefit 0.698 s > threshold 0.09 s.");
}

TEST(DecideAllTest, AnObjectSharedFromMoreNodesThanTheLimitIsRefused) {
  Snapshot s = TwoFilters(0.6, 0.3);
  for (NodeId client = 100; client < 230; ++client) {
    s.nodes.push_back({.node = client, .rate = 1});
    s.objects.push_back({.id = {client, 1, 0}, .node = client});
    s.consoles.push_back({client, 1, 0});
    s.edges.push_back(
        {.from = {client, 1, 0}, .to = Filter(kFirstClient), .calls = 1, .reply_bytes = 1e6});
    s.links.push_back({.a = client,
                       .b = kFirstClient,
                       .bandwidth_bytes_s = 1e6,
                       .round_trip_s = 0,
                       .measured_bytes = 1e6});
    s.links.push_back(
        {.a = client, .b = 1, .bandwidth_bytes_s = 1e6, .round_trip_s = 0, .measured_bytes = 1e6});
  }
  const Round round = DecideAll(s, {}, {});
  EXPECT_EQ(round.consoles[0].reason, Reason::kStackTooLong) << round.consoles[0].detail;
  EXPECT_THAT(MovesOf(round), ElementsAre(Move{Filter(kSecondClient), kSecondClient, 1}));
}

TEST(DecideAllTest, AFilterThatGainsLittleMoreEjectsNobody) {
  Snapshot s = TwoFilters(0.6, 0.55);
  ObjectOf(s, Filter(kFirstClient)).node = 1;
  NodeOf(s, 1).memory_free_bytes = 5e5;
  EXPECT_THAT(MovesOf(DecideAll(s, {}, {})), IsEmpty());
}

// Each filter computes 0.3 s, at the server as at its client, and passes on half: 1.3 s at its
// client. The server has one core, on which others keep a load of 0.8.
//   Alone there: T = 0.5 + 0.3 (0.8 + 0.3 / T), T^2 - 0.74 T - 0.09 = 0, T = 0.84634 s: 0.45366 s
//   of gain > 0.3 x 0.84634 = 0.2539 s.
//   Both there: T^2 - 0.74 T - 0.18 = 0, T = 0.93294 s each. The second would gain 0.36706 s, more
//   than its threshold of 0.27988 s; but the first would lose 0.0866 s of what it has, and
//   0.2805 - 0.002 s of cost are not enough.
TEST(DecideAllTest, TheSlowDownOfTheOthersIsInEachMovesBenefit) {
  Snapshot s = TwoFilters(0.5, 0.5);
  for (const NodeId client : {kFirstClient, kSecondClient}) {
    ObjectOf(s, Filter(client)).cpu_s = 0.3;
    NodeOf(s, client).load = 0.3;
  }
  NodeOf(s, 1).load = 0.8;
  const Round one = DecideAll(s, {}, {});
  EXPECT_THAT(MovesOf(one), ElementsAre(Move{Filter(kFirstClient), kFirstClient, 1}));
  EXPECT_NEAR(one.mean_new_s, (0.84634 + 1.3) / 2, 1e-5);
  EXPECT_EQ(one.consoles[1].reason, Reason::kBelowThreshold);
  for (const ObjectId& console : s.consoles) {
    Snapshot alone = s;
    alone.console = console;
    alone.consoles.clear();
    EXPECT_EQ(Decide(alone, {}).outcome, Outcome::kMove) << "by itself either would go";
  }
  NodeOf(s, 1).load = 0.4;
  EXPECT_EQ(MovesOf(DecideAll(s, {}, {})).size(), 2u);
  NodeOf(s, 1).load = 2.4;
  EXPECT_THAT(MovesOf(DecideAll(s, {}, {})), IsEmpty());
}

TEST(DecideAllTest, ARefusedConsoleKeepsNoOtherFromBeingDecided) {
  Snapshot s = TwoFilters(0.6, 0.3);
  ObjectOf(s, Filter(kFirstClient)).cpu_s = std::nan("");
  const Round round = DecideAll(s, {}, {});
  EXPECT_THAT(MovesOf(round), ElementsAre(Move{Filter(kSecondClient), kSecondClient, 1}));
  EXPECT_EQ(round.consoles[0].reason, Reason::kBadFigure);
  EXPECT_THAT(round.consoles[0].detail, ::testing::HasSubstr("cpu_s"));
}

TEST(DecideAllTest, ANodeThatReportsMoreMemoryThanItHasIsRefused) {
  Snapshot s = TwoFilters(0.6, 0.3);
  NodeOf(s, 1).memory_bytes = 1e6;
  NodeOf(s, 1).memory_free_bytes = 2e6;
  const Round round = DecideAll(s, {}, {});
  EXPECT_THAT(MovesOf(round), IsEmpty());
  for (const RoundConsole& console : round.consoles) EXPECT_EQ(console.reason, Reason::kBadFigure);
}

TEST(DecideAllTest, OnlyTheConsolesThatAreNamedAreDecided) {
  const Snapshot s = TwoFilters(0.6, 0.3);
  const std::vector<ObjectId> named = {{kFirstClient, 1, 0}, {77, 7, 7}};
  const Round round = DecideAll(s, named, {});
  EXPECT_THAT(MovesOf(round), ElementsAre(Move{Filter(kFirstClient), kFirstClient, 1}));
  ASSERT_EQ(round.consoles.size(), 2u);
  EXPECT_EQ(round.consoles[1].reason, Reason::kUnknownConsole);
}

TEST(DecideAllTest, ASuspendedRoundMovesNothingAndSaysWho) {
  Snapshot s = TwoFilters(0.6, 0.3);
  s.options.suspended = true;
  const Round round = DecideAll(s, {}, {});
  EXPECT_THAT(round.steps, IsEmpty());
  for (const RoundConsole& console : round.consoles) {
    EXPECT_EQ(console.reason, Reason::kSuspended);
    EXPECT_EQ(console.outcome, Outcome::kStay);
  }
}

TEST(DecideAllTest, ABadConfigurationRefusesEveryConsole) {
  Config config;
  config.confidence_z = -1;
  const std::vector<ObjectId> named = {{kFirstClient, 1, 0}};
  const Round round = DecideAll(TwoFilters(0.6, 0.3), named, config);
  ASSERT_EQ(round.consoles.size(), 1u);
  EXPECT_EQ(round.consoles[0].reason, Reason::kBadConfig);
}

// A directory at client 10 that both consoles call; neither's calls alone would pay for moving its
// 2 MB of state, both together do: each gains, and the gain is of both.
TEST(DecideAllTest, AnObjectThatTwoConsolesShareMovesForTheGainOfBoth) {
  Snapshot s = TwoFilters(1, 1);
  const ObjectId directory{kFirstClient, 1, 50};
  s.objects.push_back({.id = directory,
                       .class_name = "directory",
                       .node = kFirstClient,
                       .mobile = true,
                       .checkpoint_bytes = 500'000});
  s.edges.push_back(
      {.from = directory, .to = {1, 2, kFirstClient}, .calls = 10, .reply_bytes = 2e6});
  for (const NodeId client : {kFirstClient, kSecondClient}) {
    s.edges.push_back({.from = {client, 1, 0}, .to = directory, .calls = 5, .reply_bytes = 1e4});
  }
  s.links.push_back({.a = kFirstClient,
                     .b = kSecondClient,
                     .bandwidth_bytes_s = 1e6,
                     .round_trip_s = 0,
                     .measured_bytes = 1e6});
  const Round round = DecideAll(s, {}, {});
  ASSERT_EQ(round.steps.size(), 1u);
  EXPECT_THAT(round.steps[0].moves, ElementsAre(Move{directory, kFirstClient, 1}));
  EXPECT_EQ(round.steps[0].consoles.size(), 2u);
  for (const RoundConsole& console : round.consoles) EXPECT_LT(console.t_new_s, console.t_now_s);
  EXPECT_EQ(Decide(s, {}).moves, round.steps[0].moves) << "the same by itself";
}

TEST(DecideAllPropertyTest, OfOneChainItIsTheDecisionThatDecideMakes) {
  Random random(kRoundSeed);
  constexpr int kChains = runtime::testing::kSanitized ? 500 : 5'000;
  int moved = 0;
  for (int i = 0; i < kChains; ++i) {
    const Snapshot s = RandomSnapshot(random);
    Config config;
    config.client_load_constant = i % 4 == 0;
    const Decision one = Decide(s, config);
    const Round round = DecideAll(s, {}, config);
    ASSERT_EQ(MovesOf(round), one.moves) << "snapshot " << i << ": " << Format(one);
    moved += !one.moves.empty();
  }
  EXPECT_GE(moved, kChains / 5);
}

TEST(DecideAllPropertyTest, CarriedOutAndAskedAgainTheRoundIsEmpty) {
  Random random(kRoundSeed + 1);
  int moved = 0;
  int swaps = 0;
  for (int i = 0; i < kRounds; ++i) {
    const Snapshot before = RandomRound(random, 2 + random.Below(7));
    const Round first = DecideAll(before, {}, {});
    ASSERT_EQ(first.cut_off, 0) << "round " << i;
    const std::vector<Move> moves = MovesOf(first);
    if (moves.empty()) continue;
    ++moved;
    swaps += std::any_of(first.steps.begin(), first.steps.end(),
                         [](const RoundStep& step) { return step.consoles.size() > 1; });
    const Round second = DecideAll(After(before, moves, {}), {}, {});
    ASSERT_THAT(MovesOf(second), IsEmpty()) << "round " << i;
    ASSERT_NEAR(second.mean_now_s, first.mean_new_s, 1e-6 * first.mean_new_s) << "round " << i;
  }
  EXPECT_GE(moved, kRounds / 2);
  EXPECT_GE(swaps, kRounds / 40);
}

TEST(DecideAllPropertyTest, TheMeanFallsByMoreThanTheCostAndMemoryIsNeverExceeded) {
  Random random(kRoundSeed + 2);
  for (int i = 0; i < kRounds; ++i) {
    const Snapshot s = RandomRound(random, 2 + random.Below(7));
    const Round round = DecideAll(s, {}, {});
    double cost_s = 0;
    for (const RoundStep& step : round.steps) cost_s += step.cost.Total();
    const auto consoles = static_cast<double>(round.consoles.size());
    ASSERT_LE(consoles * round.mean_new_s + cost_s, consoles * round.mean_now_s * (1 + 1e-9))
        << "round " << i;
    const Snapshot after = After(s, MovesOf(round), {});
    for (size_t n = 0; n < s.nodes.size(); ++n) {
      ASSERT_GE(after.nodes[n].memory_free_bytes.value_or(0), 0) << "round " << i;
    }
  }
}

TEST(DecideAllPropertyTest, WithinCpuLimitsTheRoundThatWasCarriedOutIsFollowedByAnEmptyOne) {
  Random random(kRoundSeed + 4);
  size_t refused = 0;
  for (int i = 0; i < kRounds; ++i) {
    const Snapshot s = RandomRound(random, 2 + random.Below(7));
    const Config config{.cpu_share_max = random.LogUniform(0.005, 0.5)};
    const Round round = DecideAll(s, {}, config);
    for (const RoundConsole& console : round.consoles) refused += console.reason == Reason::kNoCpu;
    const Round again = DecideAll(After(s, MovesOf(round), config), {}, config);
    ASSERT_THAT(MovesOf(again), IsEmpty()) << "round " << i;
  }
  EXPECT_GT(refused, static_cast<size_t>(kRounds / 8));
}

TEST(DecideAllPropertyTest, TheOrderOfEntriesDoesNotMatter) {
  Random random(kRoundSeed + 3);
  for (int i = 0; i < kRounds / 4; ++i) {
    Snapshot s = RandomRound(random, 2 + random.Below(7));
    const std::vector<Move> first = MovesOf(DecideAll(s, {}, {}));
    std::reverse(s.objects.begin(), s.objects.end());
    std::reverse(s.edges.begin(), s.edges.end());
    std::reverse(s.nodes.begin(), s.nodes.end());
    ASSERT_EQ(MovesOf(DecideAll(s, {}, {})), first) << "round " << i;
  }
}

}  // namespace
}  // namespace abacus::placement
