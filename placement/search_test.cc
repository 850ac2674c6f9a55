#include "placement/search.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/oracle.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/sanitized.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

constexpr uint64_t kSearchSeed = 19990718;
constexpr int kSearchedGraphs = runtime::testing::kSanitized ? 100 : 400;

struct Score {
  double oracle_s = 0;  // what the best placements gain, in sum
  double found_s = 0;
  double worst = 1;  // part of one graph's gain
  int worst_graph = -1;
  int gained = 0;  // graphs in which there is anything to gain
};

void CheckPlacement(const Situation& situation, const Placement& to, int i) {
  const Graph& graph = *situation.graph;
  ASSERT_TRUE(Fits(situation, to)) << "graph " << i;
  for (uint32_t u = 0; u < graph.units.size(); ++u) {
    const Unit& unit = graph.units[u];
    for (const uint32_t j : unit.objects) {
      if (unit.fixed) {
        ASSERT_EQ(to[j], situation.at[j]) << "graph " << i;
      } else {
        ASSERT_EQ(to[j], to[unit.objects.front()]) << "graph " << i << ": a group was torn apart";
        ASSERT_TRUE(MayBe(graph, situation.at, u, to[j])) << "graph " << i;
      }
    }
  }
}

Score ScoreOf(uint64_t seed, int graphs, const GraphShape& shape, double weight,
              const Config& config = {}) {
  Random random(seed);
  Score score;
  for (int i = 0; i < graphs; ++i) {
    const Snapshot s = RandomGraph(random, shape);
    Graph graph;
    const auto refusal = SnapshotReader(s, {}, config).Read({&s.console, 1}, &graph);
    EXPECT_FALSE(refusal) << "graph " << i << ": " << refusal->detail;
    if (refusal) continue;
    const Situation situation = Situation::Of(graph, FixedPointOptionsOf(config));
    const OracleAnswer oracle = BestByTrying(situation, weight);
    const Found found = Search(situation, weight);
    CheckPlacement(situation, found.best, i);
    const double found_s = ObjectiveOf(situation, weight, found.best);
    EXPECT_LE(found_s, oracle.at_s * (1 + 1e-9)) << "graph " << i << ": worse than staying";
    const double best = oracle.at_s - oracle.best_s;
    if (best <= 1e-9 * oracle.at_s) continue;
    ++score.gained;
    // In parts of the present time: so a graph of slow links does not outweigh all others.
    score.oracle_s += best / oracle.at_s;
    score.found_s += (oracle.at_s - found_s) / oracle.at_s;
    const double part = (oracle.at_s - found_s) / best;
    if (part < score.worst) {
      score.worst = part;
      score.worst_graph = i;
    }
  }
  return score;
}

TEST(SearchTest, ReachesNearlyAllOfTheOraclesGainOnRandomGraphs) {
  const Score score = ScoreOf(kSearchSeed, kSearchedGraphs, {.memory_limits = 0}, 1.3);
  RecordProperty("part_percent", static_cast<int>(100 * score.found_s / score.oracle_s));
  EXPECT_GE(score.gained, kSearchedGraphs / 2);
  EXPECT_GE(score.found_s, 0.95 * score.oracle_s)
      << "worst: " << score.worst << " of graph " << score.worst_graph;
}

TEST(SearchTest, ReachesNearlyAllOfTheOraclesGainWithinMemoryLimits) {
  const Score score = ScoreOf(kSearchSeed + 1, kSearchedGraphs, {.memory_limits = 0.8}, 1.3);
  RecordProperty("part_percent", static_cast<int>(100 * score.found_s / score.oracle_s));
  EXPECT_GE(score.gained, kSearchedGraphs * 3 / 8);
  EXPECT_GE(score.found_s, 0.95 * score.oracle_s)
      << "worst: " << score.worst << " of graph " << score.worst_graph;
}

TEST(SearchTest, ReachesNearlyAllOfTheOraclesGainWithinCpuLimits) {
  for (const double share : {0.05, 0.2, 0.5}) {
    Config config;
    config.cpu_share_max = share;
    const Score score =
        ScoreOf(kSearchSeed + 2, kSearchedGraphs * 3 / 4, {.memory_limits = 0.2}, 1.3, config);
    RecordProperty("part_percent_at_" + std::to_string(static_cast<int>(100 * share)),
                   static_cast<int>(100 * score.found_s / score.oracle_s));
    EXPECT_GE(score.gained, kSearchedGraphs / 4) << share;
    EXPECT_GE(score.found_s, 0.95 * score.oracle_s)
        << share << ", worst: " << score.worst << " of graph " << score.worst_graph;
  }
}

}  // namespace
}  // namespace abacus::placement
