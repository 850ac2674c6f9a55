#include "placement/cut.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using placement::testing::Random;

constexpr double kInfinite = INFINITY;

// Source 0, a 1, b 2, sink 3. Cuts: {0} 5 + 4 = 9, {0,a} 4 + 1 + 2 = 7, {0,b} 5 + 6 = 11,
// {0,a,b} 2 + 6 = 8.
TEST(CutTest, MinCutOfFourVerticesIsTheOneWorkedByHand) {
  CutGraph graph(4);
  graph.AddArc(0, 1, 5);
  graph.AddArc(0, 2, 4);
  graph.AddArc(1, 2, 1);
  graph.AddArc(1, 3, 2);
  graph.AddArc(2, 3, 6);
  const Cut cut = graph.MinCut(0, 3);
  EXPECT_EQ(cut.capacity, 7);
  EXPECT_EQ(cut.flow, 7);
  EXPECT_EQ(cut.source_side, (std::vector<bool>{true, true, false, false}));
}

TEST(CutTest, AnArcAgainstTheCutCostsNothing) {
  CutGraph graph(2);
  graph.AddArc(1, 0, 9);
  EXPECT_EQ(graph.MinCut(0, 1).capacity, 0);
  graph.AddArc(0, 1, 2, 7);
  EXPECT_EQ(graph.MinCut(0, 1).capacity, 2);
  EXPECT_EQ(graph.MinCut(1, 0).capacity, 16);
}

TEST(CutTest, AnInfiniteArcIsNeverCut) {
  CutGraph graph(4);
  graph.AddArc(0, 1, kInfinite);
  graph.AddArc(1, 2, 8, kInfinite);
  graph.AddArc(2, 3, kInfinite);
  const Cut cut = graph.MinCut(0, 3);
  EXPECT_EQ(cut.capacity, 8);
  EXPECT_EQ(cut.source_side, (std::vector<bool>{true, true, false, false}));
}

TEST(CutTest, WithoutAFiniteCutTheCapacityIsInfiniteAndTheSourceAlone) {
  CutGraph graph(3);
  graph.AddArc(0, 1, kInfinite);
  graph.AddArc(1, 2, kInfinite);
  const Cut cut = graph.MinCut(0, 2);
  EXPECT_TRUE(std::isinf(cut.capacity));
  EXPECT_TRUE(std::isinf(cut.flow));
  EXPECT_EQ(cut.source_side, (std::vector<bool>{true, false, false}));
}

TEST(CutTest, VerticesThatNothingConnectsAreCutForNothing) {
  EXPECT_EQ(CutGraph(5).MinCut(1, 4).capacity, 0);
  CutGraph loop(2);
  loop.AddArc(0, 0, 3);
  EXPECT_EQ(loop.MinCut(0, 1).capacity, 0);
}

struct Arc {
  size_t from, to;
  double capacity;
};

double CapacityOf(const std::vector<Arc>& arcs, uint64_t source_side) {
  double sum = 0;
  for (const Arc& arc : arcs) {
    if ((source_side >> arc.from & 1) && !(source_side >> arc.to & 1)) sum += arc.capacity;
  }
  return sum;
}

// Capacities over fifteen orders of magnitude, some 0, some infinite, some equal.
double AnyCapacity(Random& random) {
  if (random.Chance(0.1)) return kInfinite;
  if (random.Chance(0.1)) return 0;
  return random.Chance(0.3) ? 1 : random.LogUniform(1e-9, 1e6);
}

TEST(CutTest, NoneOfAllCutsOfRandomGraphsIsSmaller) {
  Random random(19990715);
  int infinite = 0;
  for (int i = 0; i < 5'000; ++i) {
    const size_t n = 2 + random.Below(8);
    CutGraph graph(n);
    std::vector<Arc> arcs;
    for (uint64_t left = random.Below(3 * n); left > 0; --left) {
      const Arc arc{random.Below(n), random.Below(n), AnyCapacity(random)};
      const double back = random.Chance(0.5) ? AnyCapacity(random) : 0;
      graph.AddArc(arc.from, arc.to, arc.capacity, back);
      arcs.push_back(arc);
      arcs.push_back({arc.to, arc.from, back});
    }
    double smallest = kInfinite;
    for (uint64_t side = 1; side < uint64_t{1} << (n - 1); side += 2) {  // n - 1 is the sink
      smallest = std::min(smallest, CapacityOf(arcs, side));
    }
    const Cut cut = graph.MinCut(0, n - 1);
    ASSERT_TRUE(cut.source_side[0] && !cut.source_side[n - 1]) << "graph " << i;
    if (std::isinf(smallest)) {
      ++infinite;
      ASSERT_TRUE(std::isinf(cut.capacity)) << "graph " << i;
      continue;
    }
    ASSERT_NEAR(cut.capacity, smallest, 1e-9 * smallest) << "graph " << i;
    ASSERT_NEAR(cut.flow, smallest, 1e-9 * smallest) << "graph " << i;
    uint64_t side = 0;
    for (size_t v = 0; v < n; ++v) side |= uint64_t{cut.source_side[v]} << v;
    ASSERT_EQ(CapacityOf(arcs, side), cut.capacity) << "graph " << i;
  }
  EXPECT_GE(infinite, 50) << "too few graphs without a finite cut";
}

TEST(CutTest, TheLargestFlowIsTheSmallestCutOfLargeGraphs) {
  Random random(19990716);
  for (int i = 0; i < 20; ++i) {
    const size_t n = 100 + random.Below(400);
    CutGraph graph(n);
    for (size_t v = 1; v + 1 < n; ++v) {
      graph.AddArc(0, v, random.LogUniform(1e-6, 1));
      graph.AddArc(v, n - 1, random.LogUniform(1e-6, 1));
    }
    for (size_t e = 0; e < 5 * n; ++e) {
      const double capacity = random.LogUniform(1e-6, 1);
      graph.AddArc(random.Below(n), random.Below(n), capacity, capacity);
    }
    const Cut cut = graph.MinCut(0, n - 1);
    ASSERT_GT(cut.capacity, 0) << "graph " << i;
    ASSERT_NEAR(cut.flow, cut.capacity, 1e-9 * cut.capacity) << "graph " << i;
  }
}

// A path as long as the graph: the depth of the search is no depth of the machine's stack.
TEST(CutTest, AChainOfAHundredThousandVerticesIsCutAtItsThinnestArc) {
  constexpr size_t kVertices = 100'000;
  CutGraph graph(kVertices);
  for (size_t v = 0; v + 1 < kVertices; ++v) graph.AddArc(v, v + 1, v == 77'777 ? 0.5 : 1, 1);
  const Cut cut = graph.MinCut(0, kVertices - 1);
  EXPECT_EQ(cut.capacity, 0.5);
  EXPECT_TRUE(cut.source_side[77'777]);
  EXPECT_FALSE(cut.source_side[77'778]);
}

}  // namespace
}  // namespace abacus::placement
