#include "placement/model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "placement/search.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the names of the sample snapshot

constexpr uint64_t kModelSeed = 19990717;

Graph GraphOf(const Snapshot& s, const Config& config = {}) {
  Graph graph;
  const auto refusal = SnapshotReader(s, {}, config).Read({&s.console, 1}, &graph);
  EXPECT_FALSE(refusal) << refusal->detail;
  return graph;
}

// The same chain for equations.h.
Stack StackOf(const Graph& graph) {
  Stack stack;
  for (const GraphObject& o : graph.objects) stack.layers.push_back({o.work, o.own_stall_s});
  for (const GraphEdge& e : graph.edges) stack.flows.push_back(e.flow);
  stack.client = graph.nodes[0].host;
  stack.server = graph.nodes[1].host;
  stack.link = graph.LinkOf(0, 1).link;
  return stack;
}

// R / r: 1.5 tasks on two cores run at full rate, 5 at 2/5 of it; below 1 a load counts as 1.
TEST(ModelTest, SlowDownIsTheLoadOverTheCoresAndAtLeastOne) {
  EXPECT_EQ(SlowDown(1.5, 2, 1), 1);
  EXPECT_EQ(SlowDown(5, 2, 1), 2.5);
  EXPECT_EQ(SlowDown(0.2, 1, 1), 1);
  EXPECT_EQ(SlowDown(0.2, 0.5, 1), 2);
}

TEST(ModelTest, ForAChainItIsEquationsFiveAndSix) {
  Random random(kModelSeed);
  for (int i = 0; i < 3'000; ++i) {
    const Snapshot s = RandomSnapshot(random);
    Config config;
    config.client_load_constant = i % 4 == 0;
    const Graph graph = GraphOf(s, config);
    ASSERT_TRUE(graph.chain) << "snapshot " << i;
    const Stack stack = StackOf(graph);
    const FixedPointOptions options = FixedPointOptionsOf(config);
    Sides present;
    for (const uint32_t n : graph.present)
      present.push_back(n == 0 ? Side::kClient : Side::kServer);
    const PerSide measured{graph.nodes[0].statistics->load, graph.nodes[1].statistics->load};
    PerSide others = LoadOfOthers(stack, present, measured, config.window_s);
    if (config.client_load_constant) others.client = measured.client;
    const auto k = static_cast<int>(random.Below(graph.objects.size()));
    const Sides sides = SidesOfSplit(k, graph.objects.size());
    Placement placement;
    for (const Side side : sides) placement.push_back(side == Side::kClient ? 0 : 1);
    const Prediction expected = Predict(stack, sides, others, options);
    const Trial trial(graph, options, placement);
    const Prediction got = trial.ToPrediction(trial.Evaluate(), 0, 1);
    const double near = 1e-7 * expected.response_s;
    ASSERT_NEAR(got.response_s, expected.response_s, near) << "snapshot " << i;
    ASSERT_NEAR(got.terms.client_cpu_s, expected.terms.client_cpu_s, near) << "snapshot " << i;
    ASSERT_NEAR(got.terms.network_s, expected.terms.network_s, near) << "snapshot " << i;
    ASSERT_NEAR(got.loads.server, expected.loads.server, 1e-6 * expected.loads.server)
        << "snapshot " << i;
  }
}

// T = 0.6 x (0.6 / T + 0.6 / T) = 0.72 / T: T = sqrt(0.72) = 0.8485 s, L = 1.2 / T = 1.414.
TEST(ModelTest, TwoConsolesThatShareACoreWaitForEachOther) {
  const std::vector<double> fixed = {0, 0};
  const std::vector<Use> uses = {{0, 0, 0.6}, {1, 0, 0.6}};
  const std::vector<NodeBase> nodes = {{.cores = 1, .load = 0}};
  const Loads solved = SolveLoads(fixed, uses, nodes, {});
  EXPECT_TRUE(solved.converged);
  EXPECT_NEAR(solved.response_s[0], std::sqrt(0.72), 1e-8);
  EXPECT_NEAR(solved.response_s[1], std::sqrt(0.72), 1e-8);
  EXPECT_NEAR(solved.loads[0], std::sqrt(2), 1e-8);
}

TEST(ModelTest, ACutOffSolutionSaysSo) {
  const std::vector<double> fixed = {0, 0};
  const std::vector<Use> uses = {{0, 0, 0.6}, {1, 0, 0.2}};
  const std::vector<NodeBase> nodes = {{.cores = 1, .load = 0.5}};
  FixedPointOptions options;
  options.iterations_max = 2;
  EXPECT_FALSE(SolveLoads(fixed, uses, nodes, options).converged);
  EXPECT_EQ(SolveLoads(fixed, uses, nodes, options).iterations, 2);
}

struct Problem {
  std::vector<double> fixed_s;
  std::vector<Use> uses;
  std::vector<NodeBase> nodes;
};

Problem RandomProblem(Random& random, uint64_t consoles) {
  Problem p;
  const uint64_t nodes = 1 + random.Below(4);
  for (uint64_t n = 0; n < nodes; ++n) {
    p.nodes.push_back({.cores = static_cast<double>(1 + random.Below(4)),
                       .contention = random.Chance(0.5) ? 1 : random.Uniform(0, 1),
                       .load = random.Chance(0.3) ? 0 : random.LogUniform(0.01, 50),
                       .load_is_constant = random.Chance(0.1)});
  }
  for (uint32_t c = 0; c < consoles; ++c) {
    p.fixed_s.push_back(random.Chance(0.3) ? 0 : random.LogUniform(1e-4, 1));
    const double at_once = random.Chance(0.5) ? 1 : random.Uniform(1, 16);
    for (uint32_t n = 0; n < nodes; ++n) {
      if (random.Chance(0.7)) p.uses.push_back({c, n, random.LogUniform(1e-5, 2), at_once});
    }
  }
  return p;
}

double TimeOf(const Problem& p, uint32_t console, const std::vector<double>& response_s) {
  double total_s = p.fixed_s[console];
  for (const Use& use : p.uses) {
    if (use.console != console) continue;
    double load = p.nodes[use.node].load;
    for (const Use& other : p.uses) {
      if (other.node != use.node || p.nodes[use.node].load_is_constant) continue;
      load += other.at_once * other.cpu_s / response_s[other.console];
    }
    total_s += use.cpu_s * SlowDown(load, p.nodes[use.node].cores, p.nodes[use.node].contention);
  }
  return total_s;
}

// Two calls at once are two consoles of half the work each: of 1.2 s on one core, 0.849 s each.
TEST(ModelTest, AConsoleOfSeveralCallsAtOnceIsAsManyConsoles) {
  const NodeBase core{.cores = 1};
  const Loads one = SolveLoads({0}, {{0, 0, 1.2, 2}}, {core}, {});
  EXPECT_NEAR(one.response_s[0], std::sqrt(2.88), 1e-8);
  EXPECT_NEAR(one.loads[0], std::sqrt(2.0), 1e-8);
  const Loads two = SolveLoads({0, 0}, {{0, 0, 0.6}, {1, 0, 0.6}}, {core}, {});
  EXPECT_NEAR(two.response_s[0] + two.response_s[1], one.response_s[0], 1e-7);
  // On two cores neither waits for the other, and with a call at a time there is none to wait for.
  EXPECT_NEAR(SolveLoads({0}, {{0, 0, 1.2, 2}}, {{.cores = 2}}, {}).response_s[0], 1.2, 1e-8);
  EXPECT_NEAR(SolveLoads({0}, {{0, 0, 1.2}}, {core}, {}).response_s[0], 1.2, 1e-8);

  Random random(kModelSeed + 3);
  for (int i = 0; i < 500; ++i) {
    Problem p = RandomProblem(random, 1);
    const auto calls = static_cast<uint32_t>(2 + random.Below(4));
    Problem apart{.fixed_s = std::vector<double>(calls, p.fixed_s[0] / calls), .nodes = p.nodes};
    for (Use& use : p.uses) {
      use.at_once = calls;
      for (uint32_t c = 0; c < calls; ++c) apart.uses.push_back({c, use.node, use.cpu_s / calls});
    }
    const Loads together = SolveLoads(p.fixed_s, p.uses, p.nodes, {});
    const Loads each = SolveLoads(apart.fixed_s, apart.uses, apart.nodes, {});
    ASSERT_TRUE(together.converged && each.converged) << "problem " << i;
    double sum_s = 0;
    for (const double s : each.response_s) sum_s += s;
    ASSERT_NEAR(together.response_s[0], sum_s, 1e-6 * sum_s) << "problem " << i;
  }
}

TEST(ModelTest, OneConsoleSettlesWhereBisectionDoes) {
  Random random(kModelSeed + 1);
  for (int i = 0; i < 3'000; ++i) {
    const Problem p = RandomProblem(random, 1);
    if (p.uses.empty()) continue;
    const Loads solved = SolveLoads(p.fixed_s, p.uses, p.nodes, {});
    ASSERT_TRUE(solved.converged) << "problem " << i;
    double low = 1e-9;
    double high = 1e9;
    for (int step = 0; step < 200; ++step) {
      const double middle = std::sqrt(low * high);
      (TimeOf(p, 0, {middle}) > middle ? low : high) = middle;
    }
    ASSERT_NEAR(solved.response_s[0], high, 1e-7 * high) << "problem " << i;
  }
}

// The reference goes a twentieth of the way, in logarithms, ten thousand times.
TEST(ModelTest, ManyConsolesSettleWhereALongDampedIterationDoes) {
  Random random(kModelSeed + 2);
  int most = 0;
  for (int i = 0; i < 60; ++i) {
    const Problem p = RandomProblem(random, 2 + random.Below(10));
    const Loads solved = SolveLoads(p.fixed_s, p.uses, p.nodes, {});
    ASSERT_TRUE(solved.converged) << "problem " << i;
    most = std::max(most, solved.iterations);
    std::vector<double> response_s(p.fixed_s.size(), 1);
    for (int step = 0; step < 1'000; ++step) {
      std::vector<double> next_s;
      for (uint32_t c = 0; c < response_s.size(); ++c) next_s.push_back(TimeOf(p, c, response_s));
      for (size_t c = 0; c < response_s.size(); ++c) {
        // A console without any cost has T = 0, which a damped step only approaches.
        response_s[c] =
            next_s[c] == 0 ? 1 : response_s[c] * std::pow(next_s[c] / response_s[c], 0.05);
      }
    }
    for (uint32_t c = 0; c < response_s.size(); ++c) {
      const double expected = TimeOf(p, c, response_s);
      ASSERT_NEAR(solved.response_s[c], expected, 1e-6 * expected) << "problem " << i;
    }
  }
  EXPECT_LE(most, 60) << "a step should at least halve the distance";
}

TEST(ModelTest, ConvergesForEveryRandomProblem) {
  Random random(kModelSeed + 3);
  for (int i = 0; i < 3'000; ++i) {
    const Problem p = RandomProblem(random, 2 + random.Below(30));
    const Loads solved = SolveLoads(p.fixed_s, p.uses, p.nodes, {});
    ASSERT_TRUE(solved.converged) << "problem " << i << " after " << solved.iterations;
    for (const double s : solved.response_s) ASSERT_TRUE(std::isfinite(s)) << "problem " << i;
  }
}

// The server's only core is busy with others; 0.1 s of background work of the grep, 0.2 s at half
// the rate, add 0.2 to its load and nothing else: 0.04 x 1.26 instead of 0.04 x 1.06 and so on.
TEST(ModelTest, BackgroundWorkMakesLoadButIsInNoResponseTime) {
  Snapshot s = GrepSnapshot();
  NodeOf(s, kServer).cores = 1;
  NodeOf(s, kServer).load = 2;
  const Graph without = GraphOf(s);
  ObjectOf(s, kGrep).background_cpu_s = 0.1;
  NodeOf(s, kClient).load += 0.1;
  const Graph with = GraphOf(s);
  EXPECT_NEAR(with.nodes[0].others, without.nodes[0].others, 1e-12);
  const Placement at_server = {0, 1, 1};
  EXPECT_NEAR(Trial(with, {}, with.present).Evaluate().response_sum_s,
              Trial(without, {}, without.present).Evaluate().response_sum_s, 1e-12);
  const Evaluation added = Trial(with, {}, at_server).Evaluate();
  const Evaluation plain = Trial(without, {}, at_server).Evaluate();
  EXPECT_NEAR(added.loads[1] - plain.loads[1], 0.2, 0.06);
  // T = 0.02044 + 0.044 (2.196 + 0.044 / T): T^2 - 0.117064 T - 0.001936 = 0, T = 0.131758 s.
  EXPECT_NEAR(added.response_sum_s, 0.131758, 1e-6);
}

TEST(ModelTest, ATrialThatWasChangedIsAFreshOne) {
  Random random(kModelSeed + 4);
  for (int i = 0; i < 500; ++i) {
    const Snapshot s = RandomGraph(random, {});
    const Graph graph = GraphOf(s);
    Trial trial(graph, {}, graph.present);
    for (int step = 0; step < 10; ++step) {
      const auto unit = static_cast<uint32_t>(random.Below(graph.units.size()));
      trial.PutUnit(unit, static_cast<uint32_t>(random.Below(graph.nodes.size())));
    }
    const Evaluation changed = trial.Evaluate();
    const Evaluation fresh = Trial(graph, {}, trial.placement()).Evaluate();
    ASSERT_EQ(changed.possible, fresh.possible) << "graph " << i;
    ASSERT_NEAR(changed.Total(), fresh.Total(), 1e-7 * fresh.Total()) << "graph " << i;
  }
}

// The grep: 0.02 units +- 0.002 are 0.002 s at the client, 0.004 s at the server. Below it 1.1808
// MB +- 0.1 MB cross, or not: 0.08 s. The bandwidth +- 0.125 MB/s: (1,180,800 - 1,800) bytes /
// (1.25e6)^2 x 1.25e5 = 0.09432 s. Together sqrt(0.002^2 + 0.08^2 + 0.09432^2) = 0.123695 s.
TEST(ModelTest, TheDeviationOfABenefitIsTheOneWorkedByHand) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s_variance = 4e-6;
  EdgeOf(s, kGrep, kStorage).bytes_variance = 1e10;
  s.links[0].bandwidth_variance = 1.25e5 * 1.25e5;
  const Graph graph = GraphOf(s);
  const Placement to = {0, 1, 1};
  const Evaluation now = Trial(graph, {}, graph.present).Evaluate();
  const Evaluation then = Trial(graph, {}, to).Evaluate();
  EXPECT_NEAR(BenefitDeviation(graph, graph.present, now, to, then), 0.123695, 1e-6);
  EXPECT_EQ(BenefitDeviation(graph, to, then, to, then), 0);
}

TEST(ModelTest, DeviationsObeyTheTriangleInequality) {
  Random random(kModelSeed + 5);
  for (int i = 0; i < 1'000; ++i) {
    const Snapshot s = RandomGraph(random, {.uncertain = 1});
    const Graph graph = GraphOf(s);
    std::vector<Placement> placements;
    std::vector<Evaluation> at;
    for (int p = 0; p < 3; ++p) {
      Placement placement = graph.present;
      for (uint32_t u = 0; u < graph.units.size(); ++u) {
        if (graph.units[u].fixed) continue;
        for (const uint32_t n : graph.units[u].targets) {
          if (!random.Chance(0.5)) continue;
          for (const uint32_t j : graph.units[u].objects) placement[j] = n;
        }
      }
      placements.push_back(placement);
      at.push_back(Trial(graph, {}, placement).Evaluate());
    }
    const auto deviation = [&](int a, int b) {
      return BenefitDeviation(graph, placements[a], at[a], placements[b], at[b]);
    };
    ASSERT_LE(deviation(0, 2), deviation(0, 1) + deviation(1, 2) + 1e-12) << "graph " << i;
    ASSERT_NEAR(deviation(0, 1), deviation(1, 0), 1e-12) << "graph " << i;
  }
}

}  // namespace
}  // namespace abacus::placement
