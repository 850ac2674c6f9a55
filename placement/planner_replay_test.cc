#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/planner_world.h"
#include "placement/testing/recording.h"
#include "placement/testing/snapshots.h"

// Rounds of the Planner that were recorded are decided again as they were. The recording in
// testing/recorded_rounds.txt pins down what this version decides; who changes that on purpose
// writes it anew: ABACUS_WRITE_RECORDING=FILE placement_test --gtest_filter=*Recorded*.

namespace abacus::placement {
namespace {

using testing::PlannerWorld;
using testing::Random;
using testing::RecordingPlanner;
using testing::Replay;
using testing::ReplayRounds;

constexpr double kReplayTick_s = 0.25;
constexpr int kReplayTicks = 60;
constexpr uint64_t kRecordedSeed = 8;

// A quarter of a minute of a few consoles: rounds, a behaviour that changes, a move that fails, a
// digest that cannot be, a while of being told to stay, a console that ends.
std::string Record(uint64_t seed, int ticks = kReplayTicks) {
  Random random(seed);
  PlannerWorld world(testing::RandomRound(random, 4));
  RecordingPlanner planner{Config(), PlannerConfig()};
  std::vector<ObjectId> consoles = world.consoles();
  bool fails = true;
  for (int tick = 1; tick <= ticks; ++tick) {
    const double now_s = 1000 + kReplayTick_s * tick;
    if (tick == 25) {
      for (EdgeStatistics& edge : world.truth().edges) {
        if (edge.from == consoles[0] || edge.from == consoles[1]) edge.reply_bytes *= 30;
      }
    }
    if (tick == 35) planner.Suspend(true);
    if (tick == 40) planner.Suspend(false);
    if (tick == 50) {
      planner.Forget(consoles.back());
      consoles.pop_back();
    }
    for (const ObjectId& console : consoles) {
      Snapshot sample = world.SampleOf(console, kReplayTick_s, true);
      if (tick % 16 == 0 && console == consoles[0]) sample.window_s = -1;
      planner.Observe(sample, now_s, now_s).IgnoreError();
    }
    std::vector<std::pair<ObjectId, bool>> ended;
    for (const Planner::Decided& one : planner.DecideRound(consoles, now_s)) {
      if (one.decision.outcome != Outcome::kMove) continue;
      const bool ok = !std::exchange(fails, false);
      if (ok) world.CarryOut(one.decision.moves);
      ended.emplace_back(one.decision.console, ok);
    }
    for (const auto& [console, ok] : ended) planner.OnMoveEnded(console, ok, 0.002, now_s);
  }
  return planner.text();
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(PlannerReplayTest, TheRecordedRoundsAreDecidedAsTheyWere) {
  if (const char* path = std::getenv("ABACUS_WRITE_RECORDING"); path != nullptr) {
    std::ofstream(path, std::ios::binary) << Record(kRecordedSeed);
  }
  const absl::StatusOr<Replay> replay = ReplayRounds(ReadAll(ABACUS_RECORDED_ROUNDS));
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_GE(replay->rounds, 50u);
  EXPECT_GE(replay->moves, 4u);
  for (const std::string& difference : replay->differences) ADD_FAILURE() << difference;
}

TEST(PlannerReplayTest, AnyRecordingIsDecidedAsItWas) {
  size_t moves = 0;
  for (const uint64_t seed : {2, 11}) {
    const absl::StatusOr<Replay> replay = ReplayRounds(Record(seed));
    ASSERT_TRUE(replay.ok()) << "seed " << seed << ": " << replay.status();
    EXPECT_TRUE(replay->differences.empty())
        << "seed " << seed << ": " << replay->differences.front();
    EXPECT_EQ(replay->rounds, static_cast<size_t>(kReplayTicks));
    moves += replay->moves;
  }
  EXPECT_GE(moves, 6u) << "or nothing was decided";
}

TEST(PlannerReplayTest, AnotherAnswerOrAnotherConstantIsADifference) {
  const std::string text = Record(kRecordedSeed);
  std::string other = text;
  const size_t at = other.find(" move net_benefit ");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 18, " move undo ");
  absl::StatusOr<Replay> replay = ReplayRounds(other);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ(replay->differences.size(), 1u);

  other = text;
  const std::string thresh = "b_thresh 0.3 ";
  other.replace(other.find(thresh), thresh.size(), "b_thresh 900 ");
  replay = ReplayRounds(other);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ(replay->moves, 0u);
  EXPECT_GE(replay->differences.size(), 1u);
}

TEST(PlannerReplayTest, WhatIsNotOfTheFormatIsRefusedWithItsLine) {
  const std::string text = Record(kRecordedSeed, 4);
  EXPECT_FALSE(ReplayRounds("").ok());
  EXPECT_FALSE(ReplayRounds("abacus-planner-rounds 2\n").ok());
  for (const std::string bad : {"observe 99999 1 1", "round x", "edge 1.1.1", "nonsense",
                                "snapshot 7 1", "ended 1.1.1 2", "forget 1.1"}) {
    const absl::StatusOr<Replay> replay = ReplayRounds(text + bad + "\n");
    ASSERT_FALSE(replay.ok()) << bad;
    EXPECT_NE(std::string(replay.status().message()).find(bad), std::string::npos)
        << replay.status();
  }
  // Cut off anywhere it is refused or ends earlier, and nothing else.
  for (size_t bytes = 0; bytes < text.size(); bytes += 997) {
    ReplayRounds(text.substr(0, bytes)).IgnoreError();
  }
}

}  // namespace
}  // namespace abacus::placement
