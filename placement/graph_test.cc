#include "placement/graph.h"

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/engine.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the names of the sample snapshot
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::optional<Refusal> ReadGraph(const Snapshot& s, Graph* graph, const Config& config = {}) {
  return SnapshotReader(s, {}, config).Read({&s.console, 1}, graph);
}

TEST(ReadGraphTest, ReadsTheStackOffTheEdgesConsoleFirst) {
  const Snapshot s = GrepSnapshot();
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  ASSERT_EQ(graph.objects.size(), 3u);
  EXPECT_EQ(graph.objects[0].statistics->id, kConsole);
  EXPECT_EQ(graph.objects[1].statistics->id, kGrep);
  EXPECT_EQ(graph.objects[2].statistics->id, kStorage);
  EXPECT_EQ(graph.present, (Placement{0, 0, 1}));
  EXPECT_TRUE(graph.objects[0].fixed && !graph.objects[1].fixed && graph.objects[2].fixed);
  EXPECT_EQ(graph.nodes[0].statistics->node, kClient);
  EXPECT_EQ(graph.nodes[1].statistics->node, kServer);
  EXPECT_TRUE(graph.chain);
  // 0.004 s on the server of rate 0.5 are 0.002 units; 18 x (64 + 65536) bytes below the grep.
  EXPECT_DOUBLE_EQ(graph.objects[2].work, 0.002);
  EXPECT_DOUBLE_EQ(graph.edges[1].flow.bytes, 1'180'800);
  // 0.1 measured at the client, of which console and grep make 0.021.
  EXPECT_DOUBLE_EQ(graph.nodes[0].others, 0.079);
}

// Half a second was observed and H is one second: all of the work counts twice.
TEST(ReadGraphTest, ScalesTheWorkFromTheSnapshotsWindowToH) {
  Snapshot s = GrepSnapshot();
  s.window_s = 0.5;
  ObjectOf(s, kStorage).own_stall_s = 0.1;
  ObjectOf(s, kGrep).cpu_s_variance = 1e-6;
  ObjectOf(s, kGrep).background_cpu_s = 0.01;
  EdgeOf(s, kGrep, kStorage).bytes_variance = 100;
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.scale, 2);
  EXPECT_DOUBLE_EQ(graph.objects[1].work, 0.04);
  EXPECT_DOUBLE_EQ(graph.objects[1].work_deviation, 0.002);
  EXPECT_DOUBLE_EQ(graph.objects[1].background_work, 0.02);
  EXPECT_DOUBLE_EQ(graph.objects[2].own_stall_s, 0.2);
  EXPECT_DOUBLE_EQ(graph.edges[1].flow.calls, 36);
  EXPECT_DOUBLE_EQ(graph.edges[1].flow.bytes, 2 * 1'180'800);
  EXPECT_DOUBLE_EQ(graph.edges[1].bytes_deviation, 20);
}

TEST(ReadGraphTest, CallsInBothDirectionsBetweenTwoObjectsAreOneFlow) {
  Snapshot s = GrepSnapshot();
  s.edges.push_back(
      {.from = kStorage, .to = kGrep, .calls = 2, .request_bytes = 100, .reply_bytes = 10});
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  ASSERT_EQ(graph.edges.size(), 2u);
  EXPECT_DOUBLE_EQ(graph.edges[1].flow.calls, 20);
  EXPECT_DOUBLE_EQ(graph.edges[1].flow.bytes, 1'180'910);
}

TEST(ReadGraphTest, IgnoresCallsOfAnObjectToItselfAndWhatTheConsoleDoesNotReach) {
  Snapshot s = GrepSnapshot();
  s.edges.push_back({.from = kGrep, .to = kGrep, .calls = kNaN});
  s.objects.push_back({.id = {9, 9, 9}, .class_name = "other", .node = 99, .cpu_s = kNaN});
  s.edges.push_back({.from = {9, 9, 9}, .to = {9, 9, 8}, .calls = -1});
  Graph graph;
  EXPECT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.objects.size(), 3u);
}

TEST(ReadGraphTest, FixesAnchoredAndPinnedObjects) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).pinned = true;
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_TRUE(graph.objects[1].fixed);
  EXPECT_TRUE(graph.units[1].pinned);
  ObjectOf(s, kGrep).pinned = false;
  ObjectOf(s, kGrep).mobile = false;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_TRUE(graph.objects[1].fixed);
  EXPECT_FALSE(graph.units[1].pinned);
}

TEST(ReadGraphTest, TheConsoleStaysEvenWhereItIsReportedAsMobile) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kConsole).mobile = true;
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_TRUE(graph.objects[0].fixed);
}

// CPU time that only rounding can have left is none: it must not end as a divisor near 0.
TEST(ReadGraphTest, CpuTimeBelowANanosecondIsNone) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s = 1e-300;
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.objects[1].work, 0);
}

// A mirror: console and mirror at the client, a storage object on each of two servers.
constexpr NodeId kServer2 = 2;
constexpr ObjectId kStorage2{2, 1, 1};

Snapshot MirrorSnapshot() {
  Snapshot s = GrepSnapshot();
  s.nodes.push_back({.node = kServer2, .name = "second", .is_server = true, .rate = 1});
  s.objects.push_back({.id = kStorage2, .class_name = "storage", .node = kServer2});
  s.edges.push_back({.from = kGrep, .to = kStorage2, .calls = 18, .reply_bytes = 1e5});
  LinkStatistics link = s.links[0];
  link.b = kServer2;
  s.links.push_back(link);
  return s;
}

TEST(ReadGraphTest, ATreeOverTwoServersIsReadCallersFirst) {
  const Snapshot s = MirrorSnapshot();
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph)) << Decide(s, {}).Explanation();
  ASSERT_EQ(graph.objects.size(), 4u);
  EXPECT_EQ(graph.objects[0].statistics->id, kConsole);
  EXPECT_EQ(graph.objects[1].statistics->id, kGrep);
  EXPECT_EQ(graph.edges.size(), 3u);
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[0].statistics->node, kClient);
  EXPECT_FALSE(graph.path || graph.chain);
  EXPECT_EQ(graph.units[1].targets, (absl::InlinedVector<uint32_t, 4>{0, 1, 2}));
  // Nobody calls across the servers, so that they do not know each other's link is no refusal.
  EXPECT_EQ(graph.links_left_aside, 1u);
}

TEST(ReadGraphTest, AMissingLinkIsRefusedOnlyWhereCallsCrossItNow) {
  Snapshot s = MirrorSnapshot();
  s.links[1].bandwidth_bytes_s.reset();
  Graph graph;
  const auto refusal = ReadGraph(s, &graph);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, Reason::kBandwidthUnknown);
  ObjectOf(s, kStorage2).node = kServer;
  ObjectOf(s, kGrep).allowed = {kServer2, kServer};
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.links_left_aside, 2u);
  EXPECT_EQ(graph.units[1].targets, (absl::InlinedVector<uint32_t, 4>{1}))
      << "the way there is not known";
}

TEST(ReadGraphTest, AnAllowedNodeThatIsNotToBeTrustedIsLeftAside) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).allowed = {kServer, 55, kServer2};
  s.nodes.push_back({.node = kServer2, .rate = kNaN});
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.nodes_left_aside, 2u);
  EXPECT_EQ(graph.units[1].targets, (absl::InlinedVector<uint32_t, 4>{1}));
}

// Way round: 1/1e6 + 1/1e6 s a byte through the client instead of 1/1e5 directly.
TEST(ReadGraphTest, StateIsPricedByTheBestWayThere) {
  Snapshot s = MirrorSnapshot();
  s.links[0].bandwidth_bytes_s = s.links[1].bandwidth_bytes_s = 1e6;
  s.links.push_back({.a = kServer,
                     .b = kServer2,
                     .bandwidth_bytes_s = 1e5,
                     .round_trip_s = 1e-4,
                     .measured_bytes = 1e6});
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_DOUBLE_EQ(graph.LinkOf(1, 2).transfer_s_byte, 2e-6);
  EXPECT_DOUBLE_EQ(graph.LinkOf(1, 2).protocol_round_trip_s, 1e-4);
  EXPECT_DOUBLE_EQ(graph.LinkOf(1, 2).link.bandwidth_bytes_s, 1e5);
}

TEST(ReadGraphTest, AnAttachGroupIsOneUnitAndStaysIfOneOfItMust) {
  Snapshot s = MirrorSnapshot();
  s.objects.push_back({.id = {7, 1, 3}, .node = kClient, .mobile = true, .attach_group = 5});
  s.edges.push_back({.from = kGrep, .to = {7, 1, 3}, .calls = 1});
  ObjectOf(s, kGrep).attach_group = 5;
  Graph graph;
  ASSERT_FALSE(ReadGraph(s, &graph));
  const Unit& unit = graph.units[graph.objects[1].unit];
  EXPECT_EQ(unit.objects.size(), 2u);
  EXPECT_FALSE(unit.fixed);
  ObjectOf(s, {7, 1, 3}).mobile = false;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_TRUE(graph.objects[1].fixed);
  ObjectOf(s, {7, 1, 3}).mobile = true;
  ObjectOf(s, {7, 1, 3}).node = kServer;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_TRUE(graph.objects[1].fixed) << "a group on several nodes stays";
}

// Consoles a and b at two clients; both call a directory object, b three times as often.
constexpr ObjectId kOther{8, 1, 1};
constexpr NodeId kClient2 = 8;

Snapshot SharedSnapshot() {
  Snapshot s = GrepSnapshot();
  s.consoles = {kConsole, kOther};
  s.nodes.push_back({.node = kClient2, .name = "client 2", .rate = 1, .cores = 2});
  s.objects.push_back({.id = kOther, .class_name = "console", .node = kClient2, .cpu_s = 0.001});
  s.edges.push_back({.from = kOther, .to = kGrep, .calls = 54, .reply_bytes = 5'400});
  LinkStatistics link = s.links[0];
  link.a = kClient2;
  s.links.push_back(link);
  link.b = kClient;
  s.links.push_back(link);
  return s;
}

TEST(ReadGraphTest, ConsolesThatShareAMobileObjectAreOneGraphChargedByCalls) {
  const Snapshot s = SharedSnapshot();
  const Config config;
  const SnapshotReader::Graphs read = SnapshotReader(s, {}, config).ReadAll();
  ASSERT_EQ(read.graphs.size(), 1u);
  EXPECT_FALSE(read.consoles[0].refusal || read.consoles[1].refusal);
  const Graph& graph = read.graphs[0];
  ASSERT_EQ(graph.objects.size(), 4u);
  EXPECT_EQ(graph.objects[0].statistics->id, kConsole);
  const GraphObject& grep = graph.objects[2];
  ASSERT_EQ(grep.statistics->id, kGrep);
  ASSERT_EQ(grep.parts_end - grep.parts_begin, 2u);
  EXPECT_DOUBLE_EQ(graph.parts[grep.parts_begin].part, 0.25);
  EXPECT_DOUBLE_EQ(graph.parts[grep.parts_begin + 1].part, 0.75);
  EXPECT_DOUBLE_EQ(grep.work, 0.02);
}

TEST(ReadGraphTest, ASharedObjectThatIsAnchoredIsChargedInPartAndLeavesGraphsApart) {
  Snapshot s = SharedSnapshot();
  ObjectOf(s, kGrep).mobile = false;
  const Config config;
  const SnapshotReader::Graphs read = SnapshotReader(s, {}, config).ReadAll();
  ASSERT_EQ(read.graphs.size(), 2u);
  EXPECT_DOUBLE_EQ(read.graphs[0].objects[1].work, 0.005);
  EXPECT_DOUBLE_EQ(read.graphs[1].objects[1].work, 0.015);
}

// As a server sees it where many clients call one storage object: each client's snapshot has its
// own calls only, and the object's figures in sum.
TEST(ReadGraphTest, WhatOthersCallOfAnAnchoredObjectIsNotCharged) {
  const Config config;
  Graph graph;
  for (const double calls : {0.0, 10.0, 18.0, 72.0}) {  // of which 18 are the console's
    Snapshot s = GrepSnapshot();
    ObjectOf(s, kStorage).calls = calls;
    ObjectOf(s, kStorage).own_stall_s = 0.4;
    ASSERT_FALSE(ReadGraph(s, &graph));
    const double part = calls > 18 ? 18 / calls : 1;
    EXPECT_DOUBLE_EQ(graph.objects[2].work, 0.5 * 0.004 * part) << calls;
    EXPECT_DOUBLE_EQ(graph.objects[2].own_stall_s, 0.4 * part) << calls;
  }
  // Nor what it calls for them.
  Snapshot s = GrepSnapshot();
  const ObjectId below{1, 1, 9};
  s.objects.push_back(
      {.id = below, .class_name = "log", .node = kServer, .cpu_s = 0.01, .calls = 40});
  s.edges.push_back({.from = kStorage, .to = below, .calls = 40});
  ObjectOf(s, kStorage).calls = 72;
  ASSERT_FALSE(ReadGraph(s, &graph));
  ASSERT_EQ(graph.objects[3].statistics->id, below);
  EXPECT_DOUBLE_EQ(graph.objects[3].work, 0.5 * 0.01 / 4);
  // Few calls that move much of what it moves are charged by their bytes.
  ObjectOf(s, kStorage).bytes_processed = 2 * 65600 * 18;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_DOUBLE_EQ(graph.objects[2].work, 0.5 * 0.004 / 2);
  // Of several consoles that the snapshot has, each is charged its own calls.
  s = SharedSnapshot();
  ObjectOf(s, kGrep).mobile = false;
  ObjectOf(s, kGrep).calls = 144;  // half of them of these two
  const SnapshotReader::Graphs read = SnapshotReader(s, {}, config).ReadAll();
  ASSERT_EQ(read.graphs.size(), 2u);
  EXPECT_DOUBLE_EQ(read.graphs[0].objects[1].work, 0.0025);
  EXPECT_DOUBLE_EQ(read.graphs[1].objects[1].work, 0.0075);
  // One that may move has no others to be called by.
  s = GrepSnapshot();
  ObjectOf(s, kGrep).calls = 72;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_DOUBLE_EQ(graph.objects[1].work, 0.02);
  EXPECT_DOUBLE_EQ(graph.objects[2].work, 0.5 * 0.004) << "and so has what it calls";
  ObjectOf(s, kGrep).pinned = true;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_DOUBLE_EQ(graph.objects[1].work, 0.02);
  // Nothing of what others do, where the console made no call in the window.
  EdgeOf(s, kGrep, kStorage).calls = 0;
  ObjectOf(s, kStorage).calls = 72;
  ASSERT_FALSE(ReadGraph(s, &graph));
  EXPECT_EQ(graph.objects[2].work, 0);
}

TEST(ReadGraphTest, WhatAConsoleThatIsNotUnderstoodUsesIsHeldAndOthersAreDecided) {
  Snapshot s = SharedSnapshot();
  ObjectOf(s, kOther).cpu_s = kNaN;
  const Config config;
  const SnapshotReader::Graphs read = SnapshotReader(s, {}, config).ReadAll();
  ASSERT_TRUE(read.consoles[1].refusal);
  EXPECT_EQ(read.consoles[1].refusal->reason, Reason::kBadFigure);
  ASSERT_FALSE(read.consoles[0].refusal);
  const Graph& graph = read.graphs[read.consoles[0].graph];
  ASSERT_EQ(graph.objects.size(), 3u);
  EXPECT_TRUE(graph.objects[1].held && graph.objects[1].fixed);
  EXPECT_EQ(Decide(s, {}).reason, Reason::kNothingMobile);
}

TEST(ReadGraphTest, ABadFigureOfOneConsoleDoesNotKeepAnotherFromBeingDecided) {
  Snapshot s = GrepSnapshot();
  s.consoles = {kOther};
  s.objects.push_back({.id = kOther, .node = kClient, .cpu_s = kNaN});
  s.edges.push_back({.from = kOther, .to = kStorage, .calls = 1});
  EXPECT_EQ(Decide(s, {}).reason, Reason::kNetBenefit) << Decide(s, {}).Explanation();
}

struct BadInput {
  const char* name;  // of the fact
  Reason reason;
  const char* detail;  // part of the explanation
  std::function<void(Snapshot&)> spoil;
};

EdgeStatistics& LowerEdge(Snapshot& s) { return EdgeOf(s, kGrep, kStorage); }

std::vector<BadInput> StructureCases() {
  return {
      {"NoObjects", Reason::kUnknownConsole, "7.1.1", [](Snapshot& s) { s.objects.clear(); }},
      {"ConsoleNotThere", Reason::kUnknownConsole, "5.5.5",
       [](Snapshot& s) {
         s.console = {5, 5, 5};
       }},
      {"EdgeToUnknownObject", Reason::kUnknownObject, "1.1.2",
       [](Snapshot& s) {
         LowerEdge(s).to = {1, 1, 2};
       }},
      {"EmptySnapshot", Reason::kUnknownConsole, "0.0.0", [](Snapshot& s) { s = Snapshot{}; }},
      {"NoNodes", Reason::kUnknownNode, "node 7", [](Snapshot& s) { s.nodes.clear(); }},
      {"StorageOnUnknownNode", Reason::kUnknownNode, "node 66",
       [](Snapshot& s) { ObjectOf(s, kStorage).node = 66; }},
      {"GrepOnUnknownNode", Reason::kUnknownNode, "grep 7.1.2",
       [](Snapshot& s) { ObjectOf(s, kGrep).node = 66; }},
      {"GrepOnThirdNodeWithoutALink", Reason::kUnknownLink, "nodes 7 and 3",
       [](Snapshot& s) {
         s.nodes.push_back({.node = 3, .rate = 1});
         ObjectOf(s, kGrep).node = 3;
       }},
      {"NoLink", Reason::kUnknownLink, "nodes 7 and 1", [](Snapshot& s) { s.links.clear(); }},
      {"LinkElsewhere", Reason::kUnknownLink, "nodes 7 and 1",
       [](Snapshot& s) { s.links[0].b = 2; }},
      {"ObjectTwice", Reason::kDuplicateEntry, "grep 7.1.2",
       [](Snapshot& s) { s.objects.push_back(ObjectOf(s, kGrep)); }},
      {"NodeTwice", Reason::kDuplicateEntry, "node 1",
       [](Snapshot& s) { s.nodes.push_back(NodeOf(s, kServer)); }},
      {"LinkTwiceTurnedRound", Reason::kDuplicateEntry, "link between",
       [](Snapshot& s) {
         LinkStatistics turned = s.links[0];
         std::swap(turned.a, turned.b);
         s.links.push_back(turned);
       }},
      {"EdgeTwice", Reason::kDuplicateEntry, "7.1.2 to 1.1.1",
       [](Snapshot& s) { s.edges.push_back(LowerEdge(s)); }},
      {"NoEdges", Reason::kConsoleAlone, "no other object", [](Snapshot& s) { s.edges.clear(); }},
      {"AllOnOneNode", Reason::kOneNode, "both on node 1",
       [](Snapshot& s) {
         for (ObjectStatistics& object : s.objects) object.node = kServer;
       }},
      {"EndNotAnchored", Reason::kNoStorage, "storage 1.1.1",
       [](Snapshot& s) { ObjectOf(s, kStorage).mobile = true; }},
  };
}

std::vector<BadInput> FigureCases() {
  return {
      {"WindowZero", Reason::kBadFigure, "window_s", [](Snapshot& s) { s.window_s = 0; }},
      {"WindowNegative", Reason::kBadFigure, "window_s", [](Snapshot& s) { s.window_s = -1; }},
      {"WindowNaN", Reason::kBadFigure, "window_s", [](Snapshot& s) { s.window_s = kNaN; }},
      {"MeasuredTimeNegative", Reason::kBadFigure, "measured_t_app_s",
       [](Snapshot& s) { s.measured_t_app_s = -1; }},
      {"CpuNaN", Reason::kBadFigure, "cpu_s of grep 7.1.2 is nan",
       [](Snapshot& s) { ObjectOf(s, kGrep).cpu_s = kNaN; }},
      {"CpuNegative", Reason::kBadFigure, "cpu_s",
       [](Snapshot& s) { ObjectOf(s, kConsole).cpu_s = -1e-9; }},
      {"CpuAbsurd", Reason::kBadFigure, "cpu_s",
       [](Snapshot& s) { ObjectOf(s, kStorage).cpu_s = 1e7; }},
      {"OwnStallInfinite", Reason::kBadFigure, "own_stall_s",
       [](Snapshot& s) { ObjectOf(s, kStorage).own_stall_s = kInf; }},
      {"CpuVarianceNegative", Reason::kBadFigure, "cpu_s_variance",
       [](Snapshot& s) { ObjectOf(s, kGrep).cpu_s_variance = -1; }},
      {"BackgroundCpuNaN", Reason::kBadFigure, "background_cpu_s",
       [](Snapshot& s) { ObjectOf(s, kGrep).background_cpu_s = kNaN; }},
      {"ThreadsTimeNegative", Reason::kBadFigure, "threads_s",
       [](Snapshot& s) { ObjectOf(s, kConsole).threads_s = -1; }},
      {"BusyTimeNaN", Reason::kBadFigure, "busy_s",
       [](Snapshot& s) { ObjectOf(s, kConsole).busy_s = kNaN; }},
      {"CallsAtOnceAbsurd", Reason::kBadFigure, "threads_s / busy_s",
       [](Snapshot& s) {
         ObjectOf(s, kConsole).threads_s = 1;
         ObjectOf(s, kConsole).busy_s = 1e-300;
       }},
      {"BytesVarianceNaN", Reason::kBadFigure, "bytes_variance",
       [](Snapshot& s) { LowerEdge(s).bytes_variance = kNaN; }},
      {"BandwidthVarianceInfinite", Reason::kBadFigure, "bandwidth_variance",
       [](Snapshot& s) { s.links[0].bandwidth_variance = kInf; }},
      {"StallNaN", Reason::kBadFigure, "stall_s",
       [](Snapshot& s) { ObjectOf(s, kGrep).stall_s = kNaN; }},
      {"BytesProcessedNegative", Reason::kBadFigure, "bytes_processed",
       [](Snapshot& s) { ObjectOf(s, kGrep).bytes_processed = -1; }},
      {"ObjectCallsNaN", Reason::kBadFigure, "calls",
       [](Snapshot& s) { ObjectOf(s, kGrep).calls = kNaN; }},
      {"CheckpointAbsurd", Reason::kBadFigure, "checkpoint_bytes",
       [](Snapshot& s) { ObjectOf(s, kGrep).checkpoint_bytes = ~uint64_t{0}; }},
      {"MemoryAbsurd", Reason::kBadFigure, "memory_bytes",
       [](Snapshot& s) { ObjectOf(s, kGrep).memory_bytes = ~uint64_t{0}; }},
      {"EdgeCallsNegative", Reason::kBadFigure, "calls of the edge 7.1.2 to 1.1.1",
       [](Snapshot& s) { LowerEdge(s).calls = -1; }},
      {"RequestBytesNaN", Reason::kBadFigure, "request_bytes",
       [](Snapshot& s) { LowerEdge(s).request_bytes = kNaN; }},
      {"ReplyBytesInfinite", Reason::kBadFigure, "reply_bytes",
       [](Snapshot& s) { LowerEdge(s).reply_bytes = kInf; }},
      {"RateUnknown", Reason::kRateUnknown, "node 1",
       [](Snapshot& s) { NodeOf(s, kServer).rate = 0; }},
      {"RateNegative", Reason::kBadFigure, "rate of node 7",
       [](Snapshot& s) { NodeOf(s, kClient).rate = -1; }},
      {"RateNaN", Reason::kBadFigure, "rate of node 1",
       [](Snapshot& s) { NodeOf(s, kServer).rate = kNaN; }},
      {"CoresZero", Reason::kBadFigure, "cores", [](Snapshot& s) { NodeOf(s, kServer).cores = 0; }},
      {"LoadNaN", Reason::kBadFigure, "load", [](Snapshot& s) { NodeOf(s, kServer).load = kNaN; }},
      {"LoadNegative", Reason::kBadFigure, "load",
       [](Snapshot& s) { NodeOf(s, kClient).load = -0.5; }},
      {"FreeMemoryNegative", Reason::kBadFigure, "memory_free_bytes",
       [](Snapshot& s) { NodeOf(s, kServer).memory_free_bytes = -1; }},
      {"MemoryLimitNegative", Reason::kBadFigure, "memory_limit_bytes",
       [](Snapshot& s) { NodeOf(s, kServer).memory_limit_bytes = -1; }},
      {"MoreMemoryFreeThanThereIs", Reason::kBadFigure, "memory_free_bytes",
       [](Snapshot& s) {
         NodeOf(s, kServer).memory_bytes = 1e6;
         NodeOf(s, kServer).memory_free_bytes = 2e6;
       }},
      {"BandwidthMissing", Reason::kBandwidthUnknown, "nodes 7 and 1",
       [](Snapshot& s) { s.links[0].bandwidth_bytes_s.reset(); }},
      {"BandwidthZero", Reason::kBandwidthUnknown, "nodes 7 and 1",
       [](Snapshot& s) { s.links[0].bandwidth_bytes_s = 0; }},
      {"BandwidthNaN", Reason::kBadFigure, "bandwidth_bytes_s",
       [](Snapshot& s) { s.links[0].bandwidth_bytes_s = kNaN; }},
      {"BandwidthNegative", Reason::kBadFigure, "bandwidth_bytes_s",
       [](Snapshot& s) { s.links[0].bandwidth_bytes_s = -5; }},
      {"RoundTripMissing", Reason::kRoundTripUnknown, "nodes 7 and 1",
       [](Snapshot& s) { s.links[0].round_trip_s.reset(); }},
      {"RoundTripNaN", Reason::kBadFigure, "round_trip_s",
       [](Snapshot& s) { s.links[0].round_trip_s = kNaN; }},
      {"LinkEvidenceNaN", Reason::kBadFigure, "measured_bytes",
       [](Snapshot& s) { s.links[0].measured_bytes = kNaN; }},
      {"LinkEvidenceWeak", Reason::kWeakLinkEvidence, "16383 bytes",
       [](Snapshot& s) { s.links[0].measured_bytes = 16'383; }},
      {"LittleFlowed", Reason::kTooLittleEvidence, "fewer than 16384",
       [](Snapshot& s) { LowerEdge(s).reply_bytes = 100; }},
      {"QuiesceNaN", Reason::kBadFigure, "quiesce_s",
       [](Snapshot& s) { s.history = {.quiesce_s = kNaN, .count = 3}; }},
  };
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, StaysForTheNamedReasonAndSaysWhat) {
  Snapshot s = GrepSnapshot();
  ASSERT_EQ(Decide(s, {}).outcome, Outcome::kMove) << "the sample itself must be decidable";
  GetParam().spoil(s);
  const Decision decision = Decide(s, {});
  EXPECT_EQ(decision.outcome, Outcome::kStay);
  EXPECT_EQ(ReasonName(decision.reason), ReasonName(GetParam().reason)) << decision.Explanation();
  EXPECT_THAT(decision.Explanation(), HasSubstr(GetParam().detail));
  EXPECT_TRUE(decision.moves.empty());
  EXPECT_FALSE(decision.present.has_value()) << "nothing is predicted from refused figures";
  EXPECT_TRUE(decision.candidates.empty());
}

std::string CaseName(const ::testing::TestParamInfo<BadInput>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Structure, BadInputTest, ::testing::ValuesIn(StructureCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Figure, BadInputTest, ::testing::ValuesIn(FigureCases()), CaseName);

// Not read while nothing was moved yet, so it cannot spoil a decision either.
TEST(ReadGraphTest, AnEmptyHistoryIsNotRead) {
  Snapshot s = GrepSnapshot();
  s.history = {.quiesce_s = kNaN, .count = 0};
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kMove);
}

TEST(ReadGraphTest, AStackLongerThanTheLimitIsRefused) {
  Config config;
  config.stack_objects_max = 2;
  EXPECT_EQ(Decide(GrepSnapshot(), config).reason, Reason::kStackTooLong);
  config.stack_objects_max = 3;
  EXPECT_EQ(Decide(GrepSnapshot(), config).reason, Reason::kNetBenefit);
}

TEST(ReadGraphTest, EvidenceAtTheLimitIsEnough) {
  Snapshot s = GrepSnapshot();
  s.links[0].measured_bytes = 16'384;
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kMove);
}

}  // namespace
}  // namespace abacus::placement
