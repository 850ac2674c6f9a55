#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/sanitized.h"

// Decisions about graphs that are not one stack between two nodes.

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kGraphSeed = 19990719;
constexpr int kGraphs = runtime::testing::kSanitized ? 250 : 1'000;

Config GraphConfig(int i) {
  Config config;
  config.client_load_constant = i % 4 == 0;
  config.b_thresh = i % 3 == 0 ? 0.05 : 0.3;
  return config;
}

TEST(DecideGraphTest, CarriedOutAndAskedAgainTheAnswerIsStay) {
  Random random(kGraphSeed);
  int moved = 0;
  int joint = 0;
  for (int i = 0; i < kGraphs; ++i) {
    const Snapshot before = RandomGraph(random, {.uncertain = 0.3});
    const Config config = GraphConfig(i);
    const Decision first = Decide(before, config);
    ASSERT_LE(first.reason, Reason::kNotConverged)
        << "graph " << i << " was refused: " << first.Explanation();
    if (first.outcome != Outcome::kMove) continue;
    ++moved;
    joint += first.moves.size() > 1;
    const Snapshot after = After(before, first, config);
    const Decision second = Decide(after, config);
    ASSERT_EQ(second.outcome, Outcome::kStay)
        << "graph " << i << "\nfirst: " << Format(first) << "second: " << Format(second);
    if (second.reason > Reason::kNotConverged) continue;  // all on one node now
    const double predicted_s = first.candidates[*first.chosen].prediction.response_s;
    ASSERT_NEAR(second.present->response_s, predicted_s, 1e-6 * predicted_s) << "graph " << i;
  }
  EXPECT_GE(moved, kGraphs / 5);
  EXPECT_GE(joint, kGraphs / 20);
}

TEST(DecideGraphTest, FiguresAreFiniteAndMovesKeepToWhatIsAllowed) {
  Random random(kGraphSeed + 1);
  for (int i = 0; i < kGraphs; ++i) {
    Snapshot s = RandomGraph(random, {.uncertain = 0.3});
    const Config config = GraphConfig(i);
    const Decision d = Decide(s, config);
    ASSERT_TRUE(d.present && std::isfinite(d.present->response_s)) << "graph " << i;
    ASSERT_EQ(d.cut_off, 0) << "graph " << i;
    ASSERT_LE(d.candidates.size(), std::max(config.candidates_max, d.stack.size()));
    for (const Candidate& c : d.candidates) {
      ASSERT_TRUE(std::isfinite(c.net_benefit_s) && std::isfinite(c.benefit_deviation_s))
          << "graph " << i;
      ASSERT_EQ(c.verdict == Verdict::kPresent, c.moves.empty()) << "graph " << i;
    }
    ASSERT_EQ(d.outcome == Outcome::kMove, !d.moves.empty()) << "graph " << i;
    std::set<NodeId> group_from, group_to;
    size_t group = 0;
    for (const Move& move : d.moves) {
      const ObjectStatistics& o = ObjectOf(s, move.object);
      ASSERT_TRUE(o.mobile && !o.pinned && o.node == move.from) << "graph " << i;
      if (!o.allowed.empty()) {
        ASSERT_TRUE(std::count(o.allowed.begin(), o.allowed.end(), move.to)) << "graph " << i;
      }
      if (o.attach_group == 0) continue;
      ++group;
      group_from.insert(move.from);
      group_to.insert(move.to);
    }
    if (group == 0) continue;
    ASSERT_EQ(group_from.size() + group_to.size(), 2u) << "graph " << i;
    ASSERT_EQ(group, static_cast<size_t>(std::count_if(
                         s.objects.begin(), s.objects.end(),
                         [](const ObjectStatistics& o) { return o.attach_group != 0; })))
        << "graph " << i << ": only a part of the group moved";
  }
}

TEST(DecideGraphTest, TheOrderOfEntriesDoesNotMatter) {
  Random random(kGraphSeed + 2);
  for (int i = 0; i < kGraphs / 10; ++i) {
    Snapshot s = RandomGraph(random, {.uncertain = 0.3});
    const Decision first = Decide(s, {});
    std::reverse(s.objects.begin(), s.objects.end());
    std::reverse(s.edges.begin(), s.edges.end());
    std::reverse(s.nodes.begin(), s.nodes.end());
    for (LinkStatistics& link : s.links) std::swap(link.a, link.b);
    const Decision second = Decide(s, {});
    ASSERT_EQ(first.moves, second.moves) << "graph " << i;
    ASSERT_EQ(Format(first), Format(second)) << "graph " << i;
  }
}

// console -> a -> b -> storage with a fork: b also reads from a second storage object at the
// client's side of the world, so that it is no chain. a and b talk a lot; either alone would draw
// that talk across the link.
Snapshot PairSnapshot() {
  Snapshot s = GrepSnapshot();
  s.objects = {{.id = kConsole, .class_name = "console", .node = kClient},
               {.id = {7, 1, 2},
                .class_name = "a",
                .node = kClient,
                .mobile = true,
                .checkpoint_bytes = 4096},
               {.id = {7, 1, 3},
                .class_name = "b",
                .node = kClient,
                .mobile = true,
                .checkpoint_bytes = 4096},
               {.id = {1, 1, 1}, .class_name = "storage", .node = kServer},
               {.id = {1, 1, 2}, .class_name = "log", .node = kServer}};
  s.edges = {{.from = kConsole, .to = {7, 1, 2}, .calls = 10, .reply_bytes = 1e3},
             {.from = {7, 1, 2}, .to = {7, 1, 3}, .calls = 100, .reply_bytes = 2e6},
             {.from = {7, 1, 2}, .to = {1, 1, 2}, .calls = 100, .reply_bytes = 1e6},
             {.from = {7, 1, 3}, .to = {1, 1, 1}, .calls = 100, .reply_bytes = 1e6}};
  return s;
}

// Now 2 MB and 200 calls cross: 1.6 + 0.2 = 1.8 s. With a alone at the server 2 + 1 MB and 210
// calls, with b alone 2 + 1 MB and 200 calls; with both 1 kB and 10 calls: 0.0108 s.
TEST(DecideGraphTest, APairThatPaysOnlyTogetherIsOneDecision) {
  const Snapshot s = PairSnapshot();
  const Decision d = Decide(s, {});
  EXPECT_THAT(d.moves,
              ElementsAre(Move{{7, 1, 2}, kClient, kServer}, Move{{7, 1, 3}, kClient, kServer}))
      << Format(d);
  EXPECT_FALSE(d.chain);
  EXPECT_NEAR(d.present->response_s, 1.8, 1e-9);
  EXPECT_NEAR(d.candidates[*d.chosen].prediction.response_s, 0.0108, 1e-9);
  int singles = 0;
  for (const Candidate& c : d.candidates) {
    if (c.objects_moved != 1) continue;
    ++singles;
    EXPECT_EQ(c.verdict, Verdict::kSlower) << Format(d);
  }
  EXPECT_EQ(singles, 2) << Format(d);
  EXPECT_THAT(d.Explanation(), HasSubstr("Moving a and b from client (node 7) to server (node 1)"));
}

TEST(DecideGraphTest, OfUnknownMemoryNothingGoesToWhereALimitIsAndTheReasonSaysSo) {
  Snapshot s = PairSnapshot();
  // Alone the first would gain: what it says to the second is little.
  EdgeOf(s, {7, 1, 2}, {7, 1, 3}).reply_bytes = 1e4;
  ASSERT_EQ(Decide(s, {}).outcome, Outcome::kMove);
  NodeOf(s, kClient).sees_memory = false;
  ASSERT_EQ(Decide(s, {}).outcome, Outcome::kMove) << "no limit was set";
  NodeOf(s, kServer).memory_limit_bytes = 1e12;
  const Decision d = Decide(s, {});
  EXPECT_EQ(d.outcome, Outcome::kStay);
  EXPECT_EQ(d.reason, Reason::kMemoryUnknown) << Format(d);
  EXPECT_THAT(d.Explanation(), HasSubstr("memory that is not measured where it is"));
  EXPECT_THAT(Format(d), HasSubstr("memory_unknown"));
  EXPECT_TRUE(DecideAll(s, {}, {}).steps.empty());
  NodeOf(s, kClient).sees_memory = true;
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kMove);
}

TEST(DecideGraphTest, WithItsPartnerPinnedThePairStaysAndThePinIsTheReasonOnlyIfItCosts) {
  Snapshot s = PairSnapshot();
  ObjectOf(s, {7, 1, 3}).pinned = true;
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kStay) << Decide(s, {}).Explanation();
}

// The mirror of two servers: most bytes come from the second, so the mirror goes there.
TEST(DecideGraphTest, OfTwoServersTheOneWithMoreToReadIsChosen) {
  Snapshot s = GrepSnapshot();
  s.nodes.push_back({.node = 2, .name = "second", .is_server = true, .rate = 1, .cores = 2});
  s.objects.push_back({.id = {2, 1, 1}, .class_name = "storage", .node = 2});
  s.edges.push_back({.from = kGrep, .to = {2, 1, 1}, .calls = 18, .reply_bytes = 2e6});
  LinkStatistics link = s.links[0];
  link.b = 2;
  s.links.push_back(link);
  link = {.a = 1, .b = 2, .bandwidth_bytes_s = 1e8, .round_trip_s = 1e-4, .measured_bytes = 1e6};
  s.links.push_back(link);
  const Decision d = Decide(s, {});
  EXPECT_THAT(d.moves, ElementsAre(Move{kGrep, kClient, 2})) << Format(d);
  EXPECT_EQ(d.nodes.size(), 3u);
  EXPECT_THAT(Format(d), HasSubstr("as now"));
  // Without the link between the servers the mirror has nowhere to go: wherever it went, half of
  // its reads would have no way.
  s.links.pop_back();
  const Decision none = Decide(s, {});
  EXPECT_EQ(none.outcome, Outcome::kStay) << Format(none);
  EXPECT_EQ(none.links_left_aside, 1u);
}

// 0.9154 s of net benefit against 0.0193 s of threshold; 1.645 x 0.55 s = 0.905 s is too much.
TEST(DecideGraphTest, AMoveThatIsNotSureToPayIsNotMade) {
  Snapshot s = GrepSnapshot();
  EdgeOf(s, kGrep, kStorage).bytes_variance = 687'500.0 * 687'500;
  const Decision d = Decide(s, {});
  EXPECT_EQ(d.reason, Reason::kUncertain) << d.Explanation();
  EXPECT_NEAR(d.candidates[0].benefit_deviation_s, 0.55, 1e-12);
  EXPECT_EQ(d.candidates[0].verdict, Verdict::kUncertain);
  EXPECT_THAT(d.Explanation(),
              HasSubstr("less 0.905 s (1.645 x 0.55 s of uncertainty) <= threshold"));
  Config paper;
  paper.confidence_z = 0;
  EXPECT_EQ(Decide(s, paper).reason, Reason::kNetBenefit);
  EdgeOf(s, kGrep, kStorage).bytes_variance = 680'000.0 * 680'000;
  EXPECT_EQ(Decide(s, {}).reason, Reason::kNetBenefit) << Decide(s, {}).Explanation();
}

}  // namespace
}  // namespace abacus::placement
