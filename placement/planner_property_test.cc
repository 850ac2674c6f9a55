#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/planner.h"
#include "placement/testing/snapshots.h"

// What holds of the Planner whatever it is told, tried on seeded random histories. A failure prints
// its seed and step.

namespace abacus::placement {
namespace {

using testing::Random;
using testing::RandomSnapshot;

constexpr int kHistories = 60;
constexpr int kSteps = 120;

// Anything that a broken source can put into a figure.
void Spoil(Random& random, Snapshot* s) {
  const double values[] = {std::nan(""), INFINITY, -1, 0, 1e-300, 1e300, 1e12};
  const double value = values[random.Below(std::size(values))];
  switch (random.Below(7)) {
    case 0:
      s->objects[random.Below(s->objects.size())].cpu_s = value;
      break;
    case 1:
      s->edges[random.Below(s->edges.size())].reply_bytes = value;
      break;
    case 2:
      s->nodes[random.Below(s->nodes.size())].load = value;
      break;
    case 3:
      s->nodes[random.Below(s->nodes.size())].rate = value;
      break;
    case 4:
      s->links[0].bandwidth_bytes_s = value;
      break;
    case 5:
      s->window_s = value;
      break;
    default:
      s->measured_t_app_s = value;
  }
}

bool IsFinite(const Decision& d) {
  if (d.present && !std::isfinite(d.present->response_s)) return false;
  return std::all_of(d.candidates.begin(), d.candidates.end(), [](const Candidate& c) {
    return std::isfinite(c.prediction.response_s) && std::isfinite(c.net_benefit_s) &&
           std::isfinite(c.threshold_s);
  });
}

void CheckDecision(const Decision& d, const std::string& where) {
  ASSERT_TRUE(IsFinite(d)) << where;
  ASSERT_EQ(d.Explanation().find("nan s "), std::string::npos) << where << d.Explanation();
  ASSERT_EQ(d.outcome == Outcome::kMove, !d.moves.empty()) << where;
  if (d.outcome == Outcome::kStay) return;
  ASSERT_TRUE(d.reason == Reason::kNetBenefit || d.reason == Reason::kUndo) << where;
  ASSERT_TRUE(d.chosen.has_value()) << where;
  if (d.reason == Reason::kNetBenefit) {
    ASSERT_EQ(d.candidates[*d.chosen].verdict, Verdict::kPays) << where;
    ASSERT_GT(d.candidates[*d.chosen].net_benefit_s, d.candidates[*d.chosen].threshold_s) << where;
  }
  for (const Move& move : d.moves) {
    const auto object = std::find_if(d.stack.begin(), d.stack.end(), [&](const StackObject& other) {
      return other.id == move.object;
    });
    ASSERT_NE(object, d.stack.end()) << where;
    ASSERT_FALSE(object->fixed) << where << "moves what is anchored or pinned";
    ASSERT_NE(move.from, move.to) << where;
  }
}

// Plays one history of samples of changing graphs, some spoiled, on a clock that may step; returns
// the decisions' reasons and moves as text.
std::string Play(uint64_t seed, bool spoil) {
  Random random(seed);
  Planner planner{Config(), PlannerConfig()};
  std::string trace;
  double now_s = random.Uniform(0, 1e6);
  Snapshot world = RandomSnapshot(random);
  for (int step = 0; step < kSteps; ++step) {
    const std::string where = "seed " + std::to_string(seed) + ", step " + std::to_string(step);
    now_s += spoil && random.Chance(0.02) ? random.Uniform(-100, 100) : 0.05;
    if (random.Chance(0.03)) world = RandomSnapshot(random);
    Snapshot s = world;
    s.window_s = 0.05;
    s.measured_t_app_s = 0.05;
    for (auto& object : s.objects) {
      object.cpu_s *= 0.05 / world.window_s * random.Uniform(0.8, 1.2);
      object.calls *= 0.05 / world.window_s;
    }
    for (auto& edge : s.edges) {
      edge.calls *= 0.05 / world.window_s;
      edge.reply_bytes *= 0.05 / world.window_s;
    }
    *s.links[0].bandwidth_bytes_s *= 10;
    if (spoil && random.Chance(0.3)) Spoil(random, &s);
    planner.Observe(s, now_s, now_s).IgnoreError();
    const Decision d =
        random.Chance(0.2) ? planner.Decide(s, now_s) : planner.Decide(s.console, now_s);
    CheckDecision(d, where);
    trace += std::string(ReasonName(d.reason)) + std::to_string(d.moves.size()) + "\n";
    if (d.outcome != Outcome::kMove) continue;
    for (const Move& move : d.moves) {
      for (auto& object : world.objects) {
        if (object.id == move.object) object.node = move.to;
      }
    }
    planner.OnMoveEnded(d.console, random.Chance(0.9), random.Uniform(0, 0.01), now_s);
  }
  return trace;
}

TEST(PlannerPropertyTest, OnlyWhatPaysIsMovedAndNoFigureIsEverNotANumber) {
  size_t moves = 0;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    const std::string trace = Play(seed, false);
    if (::testing::Test::HasFatalFailure()) return;
    for (size_t at = trace.find("net_benefit"); at != std::string::npos;
         at = trace.find("net_benefit", at + 1)) {
      ++moves;
    }
  }
  EXPECT_GE(moves, 20u) << "or nothing was tried";
}

TEST(PlannerPropertyTest, SpoiledFiguresAndClocksThatStepMoveNothingThatDoesNotPay) {
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    Play(seed, true);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PlannerPropertyTest, TheSameCallsGiveTheSameDecisions) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(Play(seed, true), Play(seed, true)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace abacus::placement
