#include "placement/equations.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using testing::Random;

constexpr double kHandWorked = 1e-12;

// Four objects, the numbers of the comments below. Works 0.1, 0.2, 0.3, 0.4; the client is a node
// of rate 1 and one core, the server one of rate 2 and one core; 1e6 bytes/s and 10 ms.
// C_0 = 1 call, 1e5 bytes   = 0.01 + 0.1 = 0.11 s
// C_1 = 2 calls, 2e5 bytes  = 0.02 + 0.2 = 0.22 s
// C_2 = 10 calls, 1e6 bytes = 0.1 + 1.0  = 1.1 s
Stack FourLayers() {
  Stack stack;
  stack.layers = {{0.1, 0}, {0.2, 0}, {0.3, 0}, {0.4, 0.05}};
  stack.flows = {{1, 1e5}, {2, 2e5}, {10, 1e6}};
  stack.client = {.rate = 1, .cores = 1};
  stack.server = {.rate = 2, .cores = 1};
  stack.link = {.bandwidth_bytes_s = 1e6, .round_trip_s = 0.01};
  return stack;
}

TEST(SidesOfSplitTest, PutsTheFirstObjectsOnTheClient) {
  constexpr Side kC = Side::kClient;
  constexpr Side kS = Side::kServer;
  EXPECT_EQ(SidesOfSplit(1, 4), (Sides{kC, kC, kS, kS}));
  EXPECT_EQ(SidesOfSplit(0, 2), (Sides{kC, kS}));
  EXPECT_EQ(SidesOfSplit(-1, 2), (Sides{kS, kS}));
  EXPECT_EQ(SidesOfSplit(1, 2), (Sides{kC, kC}));
}

// P = 0.1 + 0.2 + 0.3 = 0.6, C = 0 + 0.4 + 0.05 = 0.45, T_app = 1.05 s.
TEST(Equation1Test, AddsAllProcessingAndAllStallTimes) {
  EXPECT_NEAR(ResponseTime({0.1, 0.2, 0.3}, {0, 0.4, 0.05}), 1.05, kHandWorked);
  EXPECT_EQ(ResponseTime({}, {}), 0);
}

// 0.2 s at 3e8 units/s are 6e7 units. L = 5 on 2 cores leaves 3e8 x 2/5 = 1.2e8 units/s, on which
// they take 6e7 / 1.2e8 = 0.5 s; unloaded they take 0.2 s again.
TEST(Equation2Test, ProcessingTimeIsWorkOverEffectiveRate) {
  const Host host{.rate = 3e8, .cores = 2};
  const double work = WorkOf(0.2, host.rate);
  EXPECT_NEAR(work, 6e7, 1e-3);
  EXPECT_NEAR(EffectiveRate(host, 5), 1.2e8, 1e-3);
  EXPECT_NEAR(ProcessingTime(work, EffectiveRate(host, 5)), 0.5, kHandWorked);
  EXPECT_NEAR(ProcessingTime(work, EffectiveRate(host, 1)), 0.2, kHandWorked);
}

// On one core r = R / L, as the paper writes it: 3e8 / 4 = 7.5e7.
TEST(Equation2Test, EffectiveRateOnOneCoreIsTheRateOverTheLoad) {
  EXPECT_NEAR(EffectiveRate({.rate = 3e8, .cores = 1}, 4), 7.5e7, 1e-3);
}

TEST(Equation2Test, EffectiveRateIsTheFullRateUpToOneTaskPerCore) {
  const Host host{.rate = 3e8, .cores = 4};
  for (const double load : {0.0, 0.3, 1.0, 4.0}) EXPECT_EQ(EffectiveRate(host, load), 3e8) << load;
  EXPECT_LT(EffectiveRate(host, 4.1), 3e8);
}

// L = 5 on 2 cores: 2.5 times as long where all of it is suffered, 1 + 0.2 x 1.5 = 1.3 times where
// a fifth was, not at all where nothing was. 3e8 / 1.3 = 2.30769e8 units/s.
TEST(Equation2Test, ASlowDownIsThatPartOfWhatTheLoadSaysThatWasSeen) {
  EXPECT_NEAR(SlowDown(5, 2, 1), 2.5, kHandWorked);
  EXPECT_NEAR(SlowDown(5, 2, 0.2), 1.3, kHandWorked);
  EXPECT_EQ(SlowDown(5, 2, 0), 1);
  EXPECT_EQ(SlowDown(1.5, 2, 1), 1);
  EXPECT_NEAR(EffectiveRate({.rate = 3e8, .cores = 2, .contention = 0.2}, 5), 3e8 / 1.3, 1e-3);
}

// A task that runs is itself a load of 1: alone on half a core it gets half the rate.
TEST(Equation2Test, ALoadBelowOneCountsAsOne) {
  EXPECT_EQ(EffectiveRate({.rate = 3e8, .cores = 0.5}, 0.1), 1.5e8);
}

// 20 calls of 1 ms and 1e6 bytes at 1.25e6 bytes/s: 0.02 + 0.8 = 0.82 s.
// 1000 calls of 300 bytes at 1.25e6 bytes/s; 250 of each are in the 1 ms: 1 + 1000 x 50 / 1.25e6.
TEST(StallTimeTest, WhatTheRoundTripWasMeasuredOverIsNotCountedTwice) {
  const Link link{.bandwidth_bytes_s = 1.25e6, .round_trip_s = 0.001, .round_trip_bytes = 250};
  EXPECT_DOUBLE_EQ(StallTime({.calls = 1000, .bytes = 300'000}, link), 1.04);
  EXPECT_DOUBLE_EQ(StallTime({.calls = 1000, .bytes = 100'000}, link), 1);
}

TEST(StallTimeTest, IsRoundTripsPlusBytesOverBandwidth) {
  EXPECT_NEAR(StallTime({20, 1e6}, {1.25e6, 0.001}), 0.82, kHandWorked);
  EXPECT_EQ(StallTime({0, 0}, {1.25e6, 0.001}), 0);
}

// k = 1, r_client = 0.5, r_server = 1: (0.1 + 0.2) / 0.5 + 0.22 + (0.3 + 0.4) / 1 + 0.05 own stall
// = 0.6 + 0.22 + 0.7 + 0.05 = 1.57 s.
TEST(Equation3Test, SplitsProcessingByNodeAndPaysOnlyTheFlowThatCrosses) {
  const Terms terms = TermsAtRates(FourLayers(), SidesOfSplit(1, 4), {0.5, 1});
  EXPECT_NEAR(terms.client_cpu_s, 0.6, kHandWorked);
  EXPECT_NEAR(terms.network_s, 0.22, kHandWorked);
  EXPECT_NEAR(terms.server_cpu_s, 0.7, kHandWorked);
  EXPECT_NEAR(terms.own_stall_s, 0.05, kHandWorked);
  EXPECT_NEAR(terms.Total(), 1.57, kHandWorked);
}

// Client, server, client, server: all three flows cross, 0.11 + 0.22 + 1.1 = 1.43 s.
TEST(Equation3Test, AnInterleavedStackPaysForEveryCrossing) {
  const Sides sides = {Side::kClient, Side::kServer, Side::kClient, Side::kServer};
  EXPECT_NEAR(TermsAtRates(FourLayers(), sides, {1, 2}).network_s, 1.43, kHandWorked);
}

// Equation 3 is equation 1 with the local flows' C at 0: for k = 2 at full rates
// P = {0.1, 0.2, 0.3, 0.4/2}, C = {0, 0, 1.1, 0.05}: 0.8 + 1.15 = 1.95 s.
TEST(Equation3Test, AgreesWithEquation1) {
  const Terms terms = TermsAtRates(FourLayers(), SidesOfSplit(2, 4), {1, 2});
  EXPECT_NEAR(terms.Total(), ResponseTime({0.1, 0.2, 0.3, 0.2}, {0, 0, 1.1, 0.05}), kHandWorked);
  EXPECT_NEAR(terms.Total(), 1.95, kHandWorked);
}

// L_client = 3, L_server = 1.5 on one core each, k = 1:
// 3 x (0.3 / 1) + 0.22 + 1.5 x (0.7 / 2) + 0.05 = 0.9 + 0.22 + 0.525 + 0.05 = 1.695 s.
TEST(Equation4Test, LoadsStretchTheProcessingOfTheirNode) {
  const Terms terms = TermsAtLoads(FourLayers(), SidesOfSplit(1, 4), {3, 1.5});
  EXPECT_NEAR(terms.client_cpu_s, 0.9, kHandWorked);
  EXPECT_NEAR(terms.server_cpu_s, 0.525, kHandWorked);
  EXPECT_NEAR(terms.Total(), 1.695, kHandWorked);
}

// From k = 2 to k' = 0 the server gains O_1 and O_2 (k'+1..k), 0.2 + 0.3 units, at R = 2 in 1.25 s:
// 1.1 + 0.5 / (2 x 1.25) = 1.3. Counting from k', as printed, would add O_0's 0.1 and give 1.34.
TEST(Equation5Test, PullingObjectsAddsTheirShareToTheServer) {
  const Stack stack = FourLayers();
  EXPECT_NEAR(
      LoadOfPlacement(stack, Side::kServer, SidesOfSplit(2, 4), SidesOfSplit(0, 4), 1.1, 1.25), 1.3,
      kHandWorked);
}

// The other way, from k = 0 to k' = 2, O_1 and O_2 (k+1..k') leave: 1.3 - 0.5 / (2 x 1.25) = 1.1.
TEST(Equation5Test, EjectingObjectsTakesTheirShareFromTheServer) {
  const Stack stack = FourLayers();
  EXPECT_NEAR(
      LoadOfPlacement(stack, Side::kServer, SidesOfSplit(0, 4), SidesOfSplit(2, 4), 1.3, 1.25), 1.1,
      kHandWorked);
}

// The client mirrors it: O_1 and O_2 arrive there at R = 1, 0.4 + 0.5 / 1.25 = 0.8.
TEST(Equation5Test, TheClientGainsWhatTheServerLoses) {
  const Stack stack = FourLayers();
  EXPECT_NEAR(
      LoadOfPlacement(stack, Side::kClient, SidesOfSplit(0, 4), SidesOfSplit(2, 4), 0.4, 1.25), 0.8,
      kHandWorked);
}

TEST(Equation5Test, NeitherMovesNothingNorGoesBelowZero) {
  Stack stack = FourLayers();
  const Sides sides = SidesOfSplit(1, 4);
  EXPECT_EQ(LoadOfPlacement(stack, Side::kServer, sides, sides, 1.7, 0), 1.7);
  EXPECT_EQ(LoadOfPlacement(stack, Side::kServer, SidesOfSplit(0, 4), SidesOfSplit(2, 4), 0.1, 1),
            0);
  // Objects without work move without a response time to take a fraction of.
  stack.layers = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  EXPECT_EQ(LoadOfPlacement(stack, Side::kServer, SidesOfSplit(2, 4), SidesOfSplit(0, 4), 1.5, 0),
            1.5);
}

// k = 1, H = 1 s. Client: 0.9 measured, 0.1 + 0.2 units at rate 1 are 0.3 of it, others 0.6.
// Server: 1.5 measured, 0.3 + 0.4 units at rate 2 are 0.35 of it, others 1.15.
TEST(LoadOfOthersTest, TakesTheStacksOwnShareOutOfTheMeasuredLoads) {
  const PerSide others = LoadOfOthers(FourLayers(), SidesOfSplit(1, 4), {0.9, 1.5}, 1);
  EXPECT_NEAR(others.client, 0.6, kHandWorked);
  EXPECT_NEAR(others.server, 1.15, kHandWorked);
}

// One core, others 1. x = 0.6 s of CPU at the server, A = 0.3 s of everything else.
// T = 0.3 + 0.6 (1 + 0.6/T)  =>  T^2 - 0.9 T - 0.36 = 0  =>  T = (0.9 + 1.5) / 2 = 1.2 s,
// L = 1 + 0.6/1.2 = 1.5, server term 0.6 x 1.5 = 0.9 s.
Stack OneCore() {
  Stack stack;
  stack.layers = {{0, 0}, {0.6, 0}};
  stack.flows = {{0, 0.3e6}};
  stack.link = {.bandwidth_bytes_s = 1e6, .round_trip_s = 0};
  return stack;
}

TEST(Equation6Test, FixedPointMeetsTheQuadraticSolvedByHand) {
  const Prediction p = Predict(OneCore(), SidesOfSplit(0, 2), {1, 1}, {});
  EXPECT_TRUE(p.converged);
  EXPECT_NEAR(p.response_s, 1.2, 1e-8);
  EXPECT_NEAR(p.loads.server, 1.5, 1e-8);
  EXPECT_NEAR(p.terms.server_cpu_s, 0.9, 1e-8);
  EXPECT_NEAR(p.terms.network_s, 0.3, kHandWorked);
  EXPECT_EQ(p.response_s, p.terms.Total());
}

// Others leave the core free: L = 0 + 0.6/T < 1, the object runs at full rate, T = 0.3 + 0.6.
TEST(Equation6Test, AnIdleNodeRunsAnObjectAtFullRate) {
  const Prediction p = Predict(OneCore(), SidesOfSplit(0, 2), {0, 0}, {});
  EXPECT_NEAR(p.response_s, 0.9, kHandWorked);
  EXPECT_EQ(p.loads.server, 1);
  EXPECT_EQ(p.iterations, 1);
}

// Both nodes add: x_c = 0.4 with others 0.5 and x_s = 0.4 with others 0.5, one core each, no
// network. L = 0.5 + 0.4/T on both; T = 0.8 (0.5 + 0.4/T)  =>  T^2 - 0.4 T - 0.32 = 0  =>
// T = (0.4 + sqrt(0.16 + 1.28)) / 2 = (0.4 + 1.2) / 2 = 0.8, where L = 1: just at full rate.
TEST(Equation6Test, LoadOnBothNodesIsPartOfOneFixedPoint) {
  Stack stack = OneCore();
  stack.layers = {{0.4, 0}, {0.4, 0}};
  stack.flows = {{0, 0}};
  const Prediction p = Predict(stack, SidesOfSplit(0, 2), {0.5, 0.5}, {});
  EXPECT_NEAR(p.response_s, 0.8, 1e-8);
  EXPECT_NEAR(p.loads.client, 1, 1e-8);
  EXPECT_NEAR(p.loads.server, 1, 1e-8);
}

// The paper's assumption: the client's load is 1.5 whatever runs there, T = 1.5 x 0.4 = 0.6 s.
// With the stack's own share, T = 0.4 (1.5 + 0.4/T)  =>  T^2 - 0.6 T - 0.16 = 0  =>  T = 0.8 s.
TEST(Equation6Test, ClientLoadConstantLeavesTheStacksShareOut) {
  Stack stack = OneCore();
  stack.layers = {{0.4, 0}, {0, 0}};
  stack.flows = {{0, 0}};
  FixedPointOptions options;
  EXPECT_NEAR(Predict(stack, SidesOfSplit(0, 2), {1.5, 0}, options).response_s, 0.8, 1e-8);
  options.client_load_constant = true;
  EXPECT_NEAR(Predict(stack, SidesOfSplit(0, 2), {1.5, 0}, options).response_s, 0.6, kHandWorked);
}

TEST(Equation6Test, IsCutOffAfterTheGivenIterationsAndSaysSo) {
  const Prediction p = Predict(OneCore(), SidesOfSplit(0, 2), {1, 1}, {.iterations_max = 2});
  EXPECT_FALSE(p.converged);
  EXPECT_EQ(p.iterations, 2);
  EXPECT_TRUE(std::isfinite(p.response_s));
}

TEST(Equation6Test, AStackWithoutWorkTakesNoTime) {
  Stack stack = OneCore();
  stack.layers = {{0, 0}, {0, 0}};
  stack.flows = {{0, 0}};
  const Prediction p = Predict(stack, SidesOfSplit(0, 2), {3, 3}, {});
  EXPECT_TRUE(p.converged);
  EXPECT_EQ(p.response_s, 0);
}

// One step of equations 5 and 6 falls as T grows, so the fixed point can also be found by halving
// the interval: an oracle that shares no line with the iteration.
double FixedPointByBisection(double fixed_s, double x_client, double x_server,
                             const PerSide& others, double cores) {
  const auto step = [&](double t) {
    return fixed_s + x_client * std::max(1.0, std::max(1.0, others.client + x_client / t) / cores) +
           x_server * std::max(1.0, std::max(1.0, others.server + x_server / t) / cores);
  };
  double low = fixed_s + x_client + x_server;
  double high = step(low);
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (step(middle) > middle ? low : high) = middle;
  }
  return low;
}

TEST(Equation6Test, ConvergesToTheOnlyFixedPointForRandomStacks) {
  Random random(20261121);
  int iterations_max = 0;
  for (int i = 0; i < 20'000; ++i) {
    Stack stack = OneCore();
    const double fixed_s = random.Chance(0.3) ? 0 : random.LogUniform(1e-6, 10);
    const double x_client = random.LogUniform(1e-6, 10);
    const double x_server = random.LogUniform(1e-6, 10);
    stack.layers = {{x_client, fixed_s}, {x_server, 0}};
    stack.flows = {{0, 0}};
    // Also less than one core and next to no other load, where plain repetition only oscillates.
    const double cores = random.Chance(0.2) ? random.LogUniform(0.01, 1) : 1 + random.Below(4);
    stack.client.cores = stack.server.cores = cores;
    const PerSide others{
        random.Chance(0.3) ? random.LogUniform(1e-9, 1e-3) : random.Uniform(0, 20),
        random.Chance(0.3) ? random.LogUniform(1e-9, 1e-3) : random.Uniform(0, 20)};
    const Prediction p = Predict(stack, SidesOfSplit(0, 2), others, {});
    const double oracle_s = FixedPointByBisection(fixed_s, x_client, x_server, others, cores);
    ASSERT_TRUE(p.converged) << "case " << i;
    ASSERT_NEAR(p.response_s, oracle_s, 1e-7 * oracle_s) << "case " << i;
    iterations_max = std::max(iterations_max, p.iterations);
  }
  // Far from the cut-off; the count tells when a change makes the iteration slower.
  EXPECT_LE(iterations_max, 40);
}

}  // namespace
}  // namespace abacus::placement
