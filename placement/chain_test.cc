#include "placement/chain.h"

#include <functional>
#include <limits>
#include <string>

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

TEST(ReadChainTest, ReadsTheStackOffTheEdgesConsoleFirst) {
  const Snapshot s = GrepSnapshot();
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  ASSERT_EQ(chain.objects.size(), 3u);
  EXPECT_EQ(chain.objects[0]->id, kConsole);
  EXPECT_EQ(chain.objects[1]->id, kGrep);
  EXPECT_EQ(chain.objects[2]->id, kStorage);
  EXPECT_EQ(chain.present, SidesOfSplit(1, 3));
  EXPECT_EQ(chain.fixed, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(chain.client->node, kClient);
  EXPECT_EQ(chain.server->node, kServer);
  // 0.004 s on the server of rate 0.5 are 0.002 units; 18 x (64 + 65536) bytes below the grep.
  EXPECT_DOUBLE_EQ(chain.stack.layers[2].work, 0.002);
  EXPECT_DOUBLE_EQ(chain.stack.flows[1].bytes, 1'180'800);
}

// Half a second was observed and H is one second: all of the work counts twice.
TEST(ReadChainTest, ScalesTheWorkFromTheSnapshotsWindowToH) {
  Snapshot s = GrepSnapshot();
  s.window_s = 0.5;
  ObjectOf(s, kStorage).own_stall_s = 0.1;
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_EQ(chain.scale, 2);
  EXPECT_DOUBLE_EQ(chain.stack.layers[1].work, 0.04);
  EXPECT_DOUBLE_EQ(chain.stack.layers[2].own_stall_s, 0.2);
  EXPECT_DOUBLE_EQ(chain.stack.flows[1].calls, 36);
  EXPECT_DOUBLE_EQ(chain.stack.flows[1].bytes, 2 * 1'180'800);
}

TEST(ReadChainTest, CallsInBothDirectionsBetweenTwoObjectsAreOneFlow) {
  Snapshot s = GrepSnapshot();
  s.edges.push_back(
      {.from = kStorage, .to = kGrep, .calls = 2, .request_bytes = 100, .reply_bytes = 10});
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_DOUBLE_EQ(chain.stack.flows[1].calls, 20);
  EXPECT_DOUBLE_EQ(chain.stack.flows[1].bytes, 1'180'910);
}

TEST(ReadChainTest, IgnoresCallsOfAnObjectToItselfAndWhatTheConsoleDoesNotReach) {
  Snapshot s = GrepSnapshot();
  s.edges.push_back({.from = kGrep, .to = kGrep, .calls = kNaN});
  s.objects.push_back({.id = {9, 9, 9}, .class_name = "other", .node = 99, .cpu_s = kNaN});
  s.edges.push_back({.from = {9, 9, 9}, .to = {9, 9, 8}, .calls = -1});
  Chain chain;
  EXPECT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_EQ(chain.objects.size(), 3u);
}

TEST(ReadChainTest, FixesAnchoredAndPinnedObjects) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).pinned = true;
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_TRUE(chain.fixed[1]);
  ObjectOf(s, kGrep).pinned = false;
  ObjectOf(s, kGrep).mobile = false;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_TRUE(chain.fixed[1]);
}

TEST(ReadChainTest, TheConsoleStaysEvenWhereItIsReportedAsMobile) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kConsole).mobile = true;
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_TRUE(chain.fixed[0]);
}

// CPU time that only rounding can have left is none: it must not end as a divisor near 0.
TEST(ReadChainTest, CpuTimeBelowANanosecondIsNone) {
  Snapshot s = GrepSnapshot();
  ObjectOf(s, kGrep).cpu_s = 1e-300;
  Chain chain;
  ASSERT_FALSE(ReadChain(s, {}, &chain));
  EXPECT_EQ(chain.stack.layers[1].work, 0);
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
      {"GrepOnThirdNode", Reason::kThirdNode, "node 3",
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
      {"NoEdges", Reason::kNotAChain, "no other object", [](Snapshot& s) { s.edges.clear(); }},
      {"Fork", Reason::kNotAChain, "grep 7.1.2",
       [](Snapshot& s) {
         s.objects.push_back({.id = {1, 1, 2}, .node = kServer});
         s.edges.push_back({.from = kGrep, .to = {1, 1, 2}, .calls = 1});
       }},
      {"CycleThroughTheConsole", Reason::kNotAChain, "console",
       [](Snapshot& s) { s.edges.push_back({.from = kStorage, .to = kConsole}); }},
      {"CycleBelow", Reason::kNotAChain, "grep 7.1.2",
       [](Snapshot& s) {
         s.objects.push_back({.id = {1, 1, 2}, .node = kServer});
         s.edges.push_back({.from = kStorage, .to = {1, 1, 2}});
         s.edges.push_back({.from = {1, 1, 2}, .to = kGrep});
       }},
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
  EXPECT_EQ(ReasonName(decision.reason), ReasonName(GetParam().reason)) << decision.explanation;
  EXPECT_THAT(decision.explanation, HasSubstr(GetParam().detail));
  EXPECT_TRUE(decision.moves.empty());
  EXPECT_FALSE(decision.present.has_value()) << "nothing is predicted from refused figures";
  EXPECT_TRUE(decision.candidates.empty());
}

std::string CaseName(const ::testing::TestParamInfo<BadInput>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Structure, BadInputTest, ::testing::ValuesIn(StructureCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Figure, BadInputTest, ::testing::ValuesIn(FigureCases()), CaseName);

// Not read while nothing was moved yet, so it cannot spoil a decision either.
TEST(ReadChainTest, AnEmptyHistoryIsNotRead) {
  Snapshot s = GrepSnapshot();
  s.history = {.quiesce_s = kNaN, .count = 0};
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kMove);
}

TEST(ReadChainTest, AStackLongerThanTheLimitIsRefused) {
  Config config;
  config.stack_objects_max = 2;
  EXPECT_EQ(Decide(GrepSnapshot(), config).reason, Reason::kStackTooLong);
  config.stack_objects_max = 3;
  EXPECT_EQ(Decide(GrepSnapshot(), config).reason, Reason::kNetBenefit);
}

TEST(ReadChainTest, EvidenceAtTheLimitIsEnough) {
  Snapshot s = GrepSnapshot();
  s.links[0].measured_bytes = 16'384;
  EXPECT_EQ(Decide(s, {}).outcome, Outcome::kMove);
}

}  // namespace
}  // namespace abacus::placement
