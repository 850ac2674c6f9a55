#include "placement/sim/world.h"

#include <cmath>

#include "gtest/gtest.h"
#include "placement/sim/workloads.h"

namespace abacus::placement::sim {
namespace {

// The paper's table 2, from the needs of one insert and one scanned block.
TEST(WorldTest, AUnitTakesWhatItsTermsAddUpTo) {
  const Cluster cluster = InsertScan(7.76, 0.41, 1);
  World world(cluster);
  EXPECT_NEAR(world.UnitTimeAlone(0, 0, {0, 0, 1}), 0.02603, 1e-9);  // insert, cache at the client
  EXPECT_NEAR(world.UnitTimeAlone(0, 0, {0, 1, 1}), 0.00776, 1e-9);  // at the server
  EXPECT_NEAR(world.UnitTimeAlone(0, 1, {0, 0, 1}), 0.001025 + 1e-6 + 1.1 / 1.25e6, 1e-9);
  EXPECT_NEAR(world.UnitTimeAlone(0, 1, {0, 1, 1}), 0.073025, 1e-9);
}

TEST(WorldTest, PhasesEndWithinATickWhereTheirWorkEnds) {
  const Cluster cluster = InsertScan(7.76, 0.41, 1);
  World world(cluster);
  world.Place(1, 1);
  while (world.PhaseOf(0) == 0) world.Step(0.05);
  EXPECT_NEAR(world.PhaseSince(0), 7.76, 1e-6);
  while (!world.Ended(0)) world.Step(0.05);
  EXPECT_NEAR(world.EndedAt(0), 7.76 + 400 * 0.073025, 1e-6);
}

TEST(WorldTest, UsageIsTheWorkDoneWhateverTheTick) {
  const Cluster cluster = Filter(0.1, 0.5, 1.25e6);
  World fine(cluster), coarse(cluster);
  for (int i = 0; i < 100; ++i) fine.Step(0.01);
  coarse.Step(1);
  const Usage a = fine.TakeUsage(0);
  const Usage b = coarse.TakeUsage(0);
  EXPECT_NEAR(a.active_s, 1, 1e-9);
  EXPECT_NEAR(a.units, b.units, 1e-6);
  EXPECT_NEAR(a.cpu_s[1], 0.005 * a.units, 1e-9);
  EXPECT_NEAR(a.edges[1].reply_bytes, 65536 * a.units, 1e-3);
  EXPECT_EQ(fine.TakeUsage(0).units, 0) << "handed over, it begins anew";
}

TEST(WorldTest, AMoveStopsItsConsoleForQuiesceProtocolAndTransfer) {
  const Cluster cluster = InsertScan(7.76, 0.41, 1);
  World world(cluster);
  const double blackout_s = world.Move({1}, 1, 0.002);
  EXPECT_NEAR(blackout_s, 0.002 + 2.5 * 0.001 + 65536 / 1.25e6, 1e-9);
  world.Step(1);
  EXPECT_NEAR(world.TakeUsage(0).active_s, 1 - blackout_s, 1e-9);
  EXPECT_EQ(world.NodeOf(1), 1u);
}

// Filter's block: 4.4 ms of CPU, 65,600 bytes in a call below it and 6,618 above it. A frame of 0.2
// ms and 35 ns a byte, as of the paper's nodes: 2 ends x (0.4 + 2.296) ms below, and 2 x (0.4 +
// 0.2316) ms above, where it crosses there.
TEST(WorldTest, WhatMessagesCostIsWorkAtBothEndsWhereTheyCross) {
  Cluster cluster = Filter(0.1, 1, 1.25e6);
  const double below_s = 2 * (0.0004 + 65600 * 35e-9);
  const double above_s =
      2 * (0.0004 + cluster.consoles[0].phases[0].edges[0].request_bytes * 35e-9 +
           cluster.consoles[0].phases[0].edges[0].reply_bytes * 35e-9);
  const Cluster without = cluster;
  const World free(without);
  for (Node& node : cluster.nodes) node.frame_work = 0.0002, node.byte_work = 35e-9;
  World world(cluster);
  EXPECT_NEAR(world.UnitTimeAlone(0, 0, {0, 0, 1}) - free.UnitTimeAlone(0, 0, {0, 0, 1}), below_s,
              1e-9);
  EXPECT_NEAR(world.UnitTimeAlone(0, 0, {0, 1, 1}) - free.UnitTimeAlone(0, 0, {0, 1, 1}), above_s,
              1e-9);
  EXPECT_NEAR(world.UnitTime(0, 0), world.UnitTimeAlone(0, 0, {0, 0, 1}), 1e-9);
  EXPECT_NEAR(world.RoundTrip(0, 1), 0.001 + 4 * 0.0002, 1e-9);
  EXPECT_NEAR(1 / world.Bandwidth(0, 1), 1 / 1.25e6 + 2 * 35e-9, 1e-12);
  // Of the server's time it is load, and no object's.
  for (int i = 0; i < 100; ++i) world.Step(0.05);
  const Usage usage = world.TakeUsage(0);
  EXPECT_NEAR(world.Load(1), (below_s / 2 + usage.cpu_s[2] / usage.units) * usage.units / 5, 1e-6);
}

// Two tasks that need nothing but one core get half of it each.
TEST(WorldTest, TasksShareACoreFairly) {
  Cluster cluster;
  cluster.nodes = {{.cores = 1, .is_server = true}};
  for (int i = 0; i < 2; ++i) {
    AddChain(cluster, 0, 0, {"console", "storage"},
             {{.units = 1e9, .objects = {{.work = 0.01}, {}}, .edges = {{}}}});
  }
  World world(cluster);
  for (int i = 0; i < 400; ++i) world.Step(0.05);
  world.TakeUsage(0), world.TakeUsage(1);
  for (int i = 0; i < 20; ++i) world.Step(0.05);
  EXPECT_NEAR(world.Load(0), 2, 0.01);
  EXPECT_NEAR(world.TakeUsage(0).cpu_s[0], 0.5, 0.01);
  EXPECT_NEAR(world.TakeUsage(1).cpu_s[0], 0.5, 0.01);
}

TEST(WorldTest, AHotSpotSlowsDownAndLeavesAgain) {
  Cluster cluster = Filter(0.1, 1, 1.25e6);
  cluster.events = {{.at_s = 1, .node = 1, .others_load = 7}, {.at_s = 2, .node = 1}};
  World world(cluster);
  world.Place(1, 1);
  world.Step(1);
  const double free_s = world.UnitTime(0, 0);
  world.Step(1);
  EXPECT_NEAR(world.UnitTime(0, 0) - free_s, 3 * 0.0055, 0.001) << "8 tasks on 2 cores";
  world.Step(1);
  EXPECT_NEAR(world.UnitTime(0, 0), free_s, 1e-6);
}

TEST(WorldTest, MemoryFollowsTheObjects) {
  Cluster cluster = Filter(0.1, 1, 1.25e6);
  cluster.nodes[1].memory_bytes = 100'000;
  World world(cluster);
  EXPECT_EQ(world.FreeMemory(1), 100'000);
  world.Move({1}, 1, 0);
  EXPECT_EQ(world.FreeMemory(1), 100'000 - 65536);
  world.Move({1}, 0, 0);
  EXPECT_EQ(world.FreeMemory(1), 100'000);
}

}  // namespace
}  // namespace abacus::placement::sim
