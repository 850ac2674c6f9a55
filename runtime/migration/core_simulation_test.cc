// The protocol core under faults of every kind, on many seeds; and a crash at every step of a move.
//
//   ABACUS_LONG=1   10^8 steps instead of a few 10^6
//   ABACUS_SEED=n   one seed, with a trace
//
// What is checked is listed in runtime/testing/simulator.h.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/testing/sanitized.h"
#include "runtime/testing/simulator.h"

namespace abacus::runtime::sim {
namespace {

SimCoresFactory Shipped() { return SimCoresOf<FaithfulPolicy>::Factory(); }

bool LongRun() {
  const char* value = std::getenv("ABACUS_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

// Even seeds mix all faults; odd ones have few calls and much moving, so that rare meetings of
// moves, aborts and deaths happen.
SimulationOptions OptionsOf(uint64_t seed) {
  return seed % 2 == 0 ? OptionsForSeed(seed) : MovingOptionsForSeed(seed);
}

TEST(CoreSimulation, PromisesHoldOnEverySeed) {
  if (const char* text = std::getenv("ABACUS_SEED"); text != nullptr && *text != '\0') {
    SimulationOptions options = OptionsOf(std::strtoull(text, nullptr, 10));
    options.world.trace = true;
    options.world.trace_lines_max = 1 << 20;
    const SimulationResult result = RunSimulation(options, Shipped());
    std::printf("%s\n", absl::StrJoin(result.trace, "\n").c_str());
    EXPECT_TRUE(result.ok) << result.check << ": " << result.what;
    return;
  }
  constexpr uint64_t kStepsUsually = testing::kSanitized ? 200'000 : 4'000'000;
  const uint64_t steps_min = LongRun() ? 100'000'000 : kStepsUsually;
  SimulationSeries series(Shipped());
  for (uint64_t seed = 1; series.stats()[Stat::kSteps] < steps_min; ++seed) {
    ASSERT_TRUE(series.Run(OptionsOf(seed)))
        << series.report() << "Replay: ABACUS_SEED=" << seed << " abacus_core_simulation_test";
  }
  const SimStats& stats = series.stats();
  std::printf("%s", stats.ToString().c_str());
  // Each of these is a part of the protocol that would go untested if it did not happen.
  const auto often = [&](Stat stat, uint64_t times) {
    EXPECT_GE(stats[stat], times) << StatName(stat);
  };
  for (const Stat stat : {Stat::kCallsOk,          Stat::kCallsUnknown,
                          Stat::kCallsNotRun,      Stat::kCallsLocal,
                          Stat::kCallsInsideLocal, Stat::kCallsInsideRemote,
                          Stat::kCallbacks,        Stat::kForks,
                          Stat::kGivenUp,          Stat::kParked,
                          Stat::kRedirects,        Stat::kProbes,
                          Stat::kResent,           Stat::kDuplicates,
                          Stat::kEvicted,          Stat::kHintsEvicted,
                          Stat::kMovesCommitted,   Stat::kMovesCancelled,
                          Stat::kMovesWithCalls,   Stat::kSetMoves,
                          Stat::kSlowDrains,       Stat::kCrossings,
                          Stat::kCrashes,          Stat::kRestarts,
                          Stat::kPartitions,       Stat::kDestroyed,
                          Stat::kObjectsLost,      Stat::kMessagesLost,
                          Stat::kMessagesCopied,   Stat::kMessagesLate,
                          Stat::kFromTheDead}) {
    often(stat, steps_min / 4000);
  }
  for (const Stat stat : {Stat::kTakeOvers, Stat::kResumedWithoutHome, Stat::kOrphansDestroyed,
                          Stat::kRestoresFailed}) {
    often(stat, steps_min / 40'000);
  }
  often(Stat::kRefusedDuplicates, steps_min / 400'000);
  // Moves that only ever fail would test nothing of the other half.
  EXPECT_GE(stats[Stat::kMovesCommitted] * 4, stats[Stat::kMovesBegun]);
}

TEST(CoreSimulation, ASeedIsARun) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SimulationOptions options = OptionsOf(seed);
    options.world.trace = true;
    const SimulationResult first = RunSimulation(options, Shipped());
    const SimulationResult again = RunSimulation(options, Shipped());
    EXPECT_EQ(first.stats.ToString(), again.stats.ToString());
    EXPECT_EQ(first.trace, again.trace);
  }
}

// -- a crash at every step ----------------------------------------------------------------------

enum class Victim { kSource, kTarget, kHome };
enum class HomeIs { kSource, kTarget, kThird };

struct SweepCase {
  Victim victim;
  HomeIs home;
  bool calls;
};

// One move from node 1 to node 2. The victim dies after `steps` events; the others are told at
// different times. Returns false where the move had ended before.
class Sweep {
 public:
  Sweep(const SweepCase& which, uint64_t seed, bool trace)
      : which_(which), world_(Options(seed, trace), Shipped()) {}

  // Where `second` is given, that node dies too, after `steps_between` more events.
  bool Run(uint64_t steps, std::optional<Victim> second = std::nullopt, uint64_t steps_between = 0);
  SimWorld& world() { return world_; }

 private:
  static WorldOptions Options(uint64_t seed, bool trace) {
    WorldOptions options;
    options.seed = seed;
    options.core = SimCoreOptions();
    options.pool_max_ns = 100 * kUs;
    options.checkpoint_max_ns = 500 * kUs;
    options.restore_max_ns = 500 * kUs;
    options.trace = trace;
    return options;
  }
  NodeId NodeOf(Victim victim) const;
  void Kill(Victim which);
  void CallFromAll();

  const SweepCase which_;
  SimWorld world_;
};

bool Sweep::Run(uint64_t steps, std::optional<Victim> second, uint64_t steps_between) {
  for (NodeId id = 1; id <= 4; ++id) world_.Start(id);
  const NodeId home = NodeOf(Victim::kHome);
  const size_t object = world_.node(home)->CreateObject();
  world_.oracle().AfterEvent(*world_.node(home));
  const auto quiet = [this] { return world_.Quiet(); };
  const auto move = [&](NodeId target) {
    SimNode& host = *world_.HostOf(object);
    const absl::StatusOr<MigrationId> id = host.Move({object}, target);
    world_.oracle().AfterEvent(host);
    return *id;
  };
  if (home != 1) {
    move(1);
    world_.RunUntil(quiet, 1000 * kMs);
  }
  // Every node knows where it is, and has called it once.
  CallFromAll();
  world_.RunUntil(quiet, 1000 * kMs);
  const MigrationId id = move(2);
  if (which_.calls) CallFromAll();
  for (uint64_t i = 0; i < steps; ++i) world_.Step();
  const bool under_way = world_.node(1)->Ended(id) == nullptr || !world_.Quiet();
  Kill(which_.victim);
  if (second.has_value()) {
    for (uint64_t i = 0; i < steps_between; ++i) world_.Step();
    if (world_.node(NodeOf(*second)) != nullptr) Kill(*second);
  }
  if (which_.calls) CallFromAll();
  world_.RunFor(50 * kMs);
  world_.RunUntil(quiet, 5000 * kMs);
  if (!world_.oracle().failed()) world_.oracle().AtEnd();
  return under_way;
}

NodeId Sweep::NodeOf(Victim victim) const {
  if (victim == Victim::kSource) return 1;
  if (victim == Victim::kTarget) return 2;
  return which_.home == HomeIs::kSource ? 1 : which_.home == HomeIs::kTarget ? 2 : 3;
}

void Sweep::Kill(Victim which) {
  const NodeId victim = NodeOf(which);
  const NodeInstance dead = world_.node(victim)->self();
  world_.Crash(victim);
  for (NodeId observer = 1; observer <= 4; ++observer) {
    world_.After(world_.random().Between(0, 10 * kMs),
                 [this, observer, dead] { world_.TellDead(observer, dead); });
  }
}

void Sweep::CallFromAll() {
  world_.ForEachNode([](SimNode& node) {
    node.Call({.object = 0, .work_ns = 300 * kUs});
    node.Call({.object = 0, .work_ns = 0});
  });
}

class CrashAtEveryStep : public ::testing::TestWithParam<SweepCase> {};

TEST_P(CrashAtEveryStep, Invariant1OneLiveCopyAndOnlyWhatDiedWithItsHostIsLost) {
  constexpr uint64_t kSeeds = testing::kSanitized ? 6 : 30;
  uint64_t crashes = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (uint64_t steps = 0;; ++steps) {
      Sweep sweep(GetParam(), seed, /*trace=*/false);
      const bool under_way = sweep.Run(steps);
      if (sweep.world().oracle().failed()) {
        Sweep traced(GetParam(), seed, /*trace=*/true);
        traced.Run(steps);
        FAIL() << "seed " << seed << ", crash after " << steps
               << " steps: " << traced.world().oracle().check() << ": "
               << traced.world().oracle().what() << "\n"
               << absl::StrJoin(traced.world().trace(), "\n");
      }
      ++crashes;
      if (!under_way) break;
    }
  }
  // Begin, its answer, checkpoint, transfer, restore, its answer, commit, its answer, activation,
  // its answer: there is at least one event of each.
  EXPECT_GE(crashes, 10 * kSeeds);
}

TEST_P(CrashAtEveryStep, FollowedByASecondOneAtEveryStep) {
  constexpr uint64_t kStepsBetweenMax = 24, kStride = testing::kSanitized ? 5 : 1;
  for (const Victim second : {Victim::kSource, Victim::kTarget, Victim::kHome}) {
    if (second == GetParam().victim) continue;
    bool under_way = true;
    for (uint64_t steps = 0; under_way; ++steps) {
      for (uint64_t between = 0; between <= kStepsBetweenMax; between += kStride + steps % 2) {
        Sweep sweep(GetParam(), steps, /*trace=*/false);
        under_way = sweep.Run(steps, second, between);
        if (!sweep.world().oracle().failed()) continue;
        Sweep traced(GetParam(), steps, /*trace=*/true);
        traced.Run(steps, second, between);
        FAIL() << "crashes after " << steps << " and " << between
               << " more steps: " << traced.world().oracle().check() << ": "
               << traced.world().oracle().what() << "\n"
               << absl::StrJoin(traced.world().trace(), "\n");
      }
    }
  }
}

std::string CaseName(const ::testing::TestParamInfo<SweepCase>& info) {
  const char* victims[] = {"SourceDies", "TargetDies", "HomeDies"};
  const char* homes[] = {"HomeIsSource", "HomeIsTarget", "HomeIsThird"};
  return absl::StrCat(victims[static_cast<int>(info.param.victim)],
                      homes[static_cast<int>(info.param.home)],
                      info.param.calls ? "WithCalls" : "Idle");
}

std::vector<SweepCase> Cases() {
  std::vector<SweepCase> cases;
  for (const Victim victim : {Victim::kSource, Victim::kTarget, Victim::kHome}) {
    for (const HomeIs home : {HomeIs::kSource, HomeIs::kTarget, HomeIs::kThird}) {
      for (const bool calls : {false, true}) cases.push_back({victim, home, calls});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(OfOneMove, CrashAtEveryStep, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace abacus::runtime::sim
