#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/sanitized.h"

// What holds for every snapshot, tried on seeded random ones. A failure prints the number of its
// snapshot, which with the seed is all that it takes to see it again.

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

constexpr uint64_t kEngineSeed = 19990715;
constexpr int kSnapshots = runtime::testing::kSanitized ? 4'000 : 20'000;

Config ConfigFor(int i) {
  Config config;
  config.client_load_constant = i % 4 == 0;
  return config;
}

bool AllFinite(const Prediction& p) {
  return std::isfinite(p.response_s) && std::isfinite(p.terms.client_cpu_s) &&
         std::isfinite(p.terms.network_s) && std::isfinite(p.terms.server_cpu_s) &&
         std::isfinite(p.terms.own_stall_s) && p.loads.client >= 1 && p.loads.server >= 1 &&
         std::isfinite(p.loads.client) && std::isfinite(p.loads.server);
}

bool AllFinite(const Decision& d) {
  if (d.present && !AllFinite(*d.present)) return false;
  if (d.model_error && !std::isfinite(*d.model_error)) return false;
  return std::all_of(d.candidates.begin(), d.candidates.end(), [](const Candidate& c) {
    return AllFinite(c.prediction) && std::isfinite(c.cost.Total()) &&
           std::isfinite(c.net_benefit_s) && std::isfinite(c.threshold_s);
  });
}

TEST(DecidePropertyTest, CarriedOutAndAskedAgainTheAnswerIsStay) {
  Random random(kEngineSeed);
  int moved = 0;
  int objects_moved = 0;
  for (int i = 0; i < kSnapshots; ++i) {
    const Snapshot before = RandomSnapshot(random);
    const Config config = ConfigFor(i);
    const Decision first = Decide(before, config);
    ASSERT_LE(first.reason, Reason::kNotConverged)
        << "snapshot " << i << " was refused: " << first.Explanation();
    if (first.outcome != Outcome::kMove) continue;
    ++moved;
    objects_moved += static_cast<int>(first.moves.size());
    const Snapshot after = After(before, first, config);
    const Decision second = Decide(after, config);
    ASSERT_EQ(second.outcome, Outcome::kStay)
        << "snapshot " << i << "\nfirst: " << Format(first) << "second: " << Format(second);
    // What was predicted for the new placement is what it is predicted to take once there.
    const double predicted_s = first.candidates[*first.chosen].prediction.response_s;
    ASSERT_NEAR(second.present->response_s, predicted_s, 1e-6 * predicted_s) << "snapshot " << i;
  }
  // The property would hold for an engine that never moves.
  EXPECT_GE(moved, kSnapshots / 4);
  EXPECT_GE(objects_moved, moved + moved / 4) << "too few moves of several objects";
}

TEST(DecidePropertyTest, ReasonsFiguresAndMovesAgreeWithEachOther) {
  Random random(kEngineSeed + 1);
  for (int i = 0; i < kSnapshots; ++i) {
    const Snapshot s = RandomSnapshot(random);
    const Config config = ConfigFor(i);
    const Decision d = Decide(s, config);
    ASSERT_TRUE(AllFinite(d)) << "snapshot " << i << ": " << Format(d);
    ASSERT_EQ(d.cut_off, 0) << "snapshot " << i << ": " << Format(d);
    ASSERT_EQ(d.outcome == Outcome::kMove, d.reason == Reason::kNetBenefit) << "snapshot " << i;
    ASSERT_EQ(d.outcome == Outcome::kMove, !d.moves.empty()) << "snapshot " << i;
    ASSERT_FALSE(d.Explanation().empty());
    for (const Candidate& c : d.candidates) {
      ASSERT_EQ(c.verdict == Verdict::kPresent, c.objects_moved == 0) << "snapshot " << i;
      if (c.verdict != Verdict::kPays) continue;
      ASSERT_EQ(d.outcome, Outcome::kMove) << "snapshot " << i;
      ASSERT_LE(c.net_benefit_s, d.candidates[*d.chosen].net_benefit_s) << "snapshot " << i;
      ASSERT_GT(c.net_benefit_s, c.threshold_s) << "snapshot " << i;
    }
    for (const Move& move : d.moves) {
      Snapshot copy = s;
      const ObjectStatistics& object = ObjectOf(copy, move.object);
      ASSERT_TRUE(object.mobile && !object.pinned) << "snapshot " << i;
      ASSERT_EQ(object.node, move.from) << "snapshot " << i;
      ASSERT_NE(move.from, move.to) << "snapshot " << i;
    }
  }
}

TEST(DecidePropertyTest, TheOrderOfEntriesDoesNotMatterNorDoesAskingTwice) {
  Random random(kEngineSeed + 2);
  for (int i = 0; i < kSnapshots / 10; ++i) {
    Snapshot s = RandomSnapshot(random);
    const Decision first = Decide(s, {});
    std::reverse(s.objects.begin(), s.objects.end());
    std::reverse(s.edges.begin(), s.edges.end());
    std::reverse(s.nodes.begin(), s.nodes.end());
    std::swap(s.links[0].a, s.links[0].b);
    const Decision second = Decide(s, {});
    ASSERT_EQ(first.moves, second.moves) << "snapshot " << i;
    ASSERT_EQ(first.reason, second.reason) << "snapshot " << i;
    ASSERT_EQ(Format(first), Format(second)) << "snapshot " << i;
    for (size_t c = 0; c < first.candidates.size(); ++c) {
      ASSERT_EQ(first.candidates[c].net_benefit_s, second.candidates[c].net_benefit_s);
    }
  }
}

// Anything that a broken source can put into a double.
double AnyDouble(Random& random) {
  switch (random.Below(8)) {
    case 0:
      return std::nan("");
    case 1:
      return INFINITY;
    case 2:
      return -random.LogUniform(1e-300, 1e300);
    case 3:
      return 0;
    case 4:
      return random.LogUniform(1e-320, 1e-300);
    default:
      return random.LogUniform(1e-20, 1e20);
  }
}

TEST(DecidePropertyTest, SpoiledFiguresNeverGetIntoAPredictionOrAMove) {
  Random random(kEngineSeed + 3);
  int refused = 0;
  int survived = 0;
  for (int i = 0; i < kSnapshots; ++i) {
    Snapshot s = RandomSnapshot(random);
    for (uint64_t spoiled = 1 + random.Below(3); spoiled > 0; --spoiled) {
      ObjectStatistics& object = s.objects[random.Below(s.objects.size())];
      EdgeStatistics& edge = s.edges[random.Below(s.edges.size())];
      NodeStatistics& node = s.nodes[random.Below(s.nodes.size())];
      double* const figures[] = {&object.cpu_s,        &object.own_stall_s,
                                 &edge.calls,          &edge.reply_bytes,
                                 &node.rate,           &node.cores,
                                 &node.load,           &s.window_s,
                                 &s.history.quiesce_s, &s.links[0].measured_bytes};
      const uint64_t which = random.Below(std::size(figures) + 3);
      const double value = AnyDouble(random);
      if (which < std::size(figures)) *figures[which] = value;
      if (which == std::size(figures)) s.links[0].bandwidth_bytes_s = value;
      if (which == std::size(figures) + 1) s.links[0].round_trip_s = value;
      if (which == std::size(figures) + 2) s.measured_t_app_s = value;
    }
    const Decision d = Decide(s, {});
    ASSERT_TRUE(AllFinite(d)) << "snapshot " << i << ": " << Format(d);
    ASSERT_EQ(d.Explanation().find("nan s"), std::string::npos) << "snapshot " << i;
    ++(d.reason > Reason::kNotConverged ? refused : survived);
  }
  EXPECT_GE(refused, kSnapshots / 4);
  EXPECT_GE(survived, kSnapshots / 10);
}

// A world that is not the engine's model: a task gets c / (others + 1) of a core at most, whatever
// its share of the window; the console never rests, so a faster placement does more work in a
// window; the load is measured with all of the stack's running and ready time in it.
class FairSharingWorld {
 public:
  explicit FairSharingWorld(Random& random) : work_(RandomSnapshot(random)) {
    for (NodeStatistics& node : work_.nodes) {
      node.cores = static_cast<double>(1 + random.Below(2));
      Others(node.node) = random.Chance(0.3) ? 0 : random.Uniform(0, 4);
    }
    work_.window_s = 1;
    work_.measured_t_app_s.reset();
  }

  // Seconds for one and the same work as it is placed now.
  double ResponseTime() {
    double total_s = 0;
    for (const ObjectStatistics& o : work_.objects) {
      total_s += o.cpu_s * Slowdown(o.node) + o.own_stall_s;
    }
    const LinkStatistics& link = work_.links[0];
    for (const EdgeStatistics& e : work_.edges) {
      if (ObjectOf(work_, e.from).node == ObjectOf(work_, e.to).node) continue;
      total_s += e.calls * *link.round_trip_s +
                 (e.request_bytes + e.reply_bytes) / *link.bandwidth_bytes_s;
    }
    return total_s;
  }

  Snapshot Measure() {
    Snapshot s = work_;
    const double repeats = s.window_s / ResponseTime();
    for (NodeStatistics& node : s.nodes) node.load = Others(node.node);
    for (ObjectStatistics& o : s.objects) {
      o.cpu_s *= repeats;
      o.own_stall_s *= repeats;
      NodeOf(s, o.node).load += o.cpu_s * Slowdown(o.node) / s.window_s;
    }
    for (EdgeStatistics& e : s.edges) {
      e.calls *= repeats;
      e.request_bytes *= repeats;
      e.reply_bytes *= repeats;
    }
    return s;
  }

  void CarryOut(const Decision& decision) {
    for (const Move& move : decision.moves) {
      ObjectStatistics& o = ObjectOf(work_, move.object);
      o.cpu_s *= NodeOf(work_, move.from).rate / NodeOf(work_, move.to).rate;
      o.node = move.to;
    }
  }

 private:
  double& Others(NodeId node) { return node == kServer ? others_.server : others_.client; }
  double Slowdown(NodeId node) {
    return std::max(1.0, (Others(node) + 1) / NodeOf(work_, node).cores);
  }

  Snapshot work_;
  PerSide others_;
};

TEST(DecidePropertyTest, SettlesWithinThreeMovesInAWorldThatIsNotItsModel) {
  Random random(kEngineSeed + 4);
  Config config;
  config.min_evidence_bytes = 0;  // a slow stack may pass few bytes in a window
  int moved = 0;
  int slower = 0;
  for (int i = 0; i < kSnapshots / 2; ++i) {
    FairSharingWorld world(random);
    const double first_s = world.ResponseTime();
    int moves = 0;
    for (; moves <= 3; ++moves) {
      const Decision d = Decide(world.Measure(), config);
      ASSERT_LE(d.reason, Reason::kNotConverged) << "world " << i << ": " << d.Explanation();
      if (d.outcome == Outcome::kStay) break;
      world.CarryOut(d);
    }
    ASSERT_LE(moves, 3) << "world " << i << " does not settle";
    moved += moves > 0;
    slower += moves > 0 && world.ResponseTime() > first_s;
  }
  EXPECT_GE(moved, kSnapshots / 10);
  EXPECT_EQ(slower, 0) << "of " << moved << " worlds ended slower than they began";
}

}  // namespace
}  // namespace abacus::placement
