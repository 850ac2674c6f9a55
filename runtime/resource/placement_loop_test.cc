#include "runtime/resource/placement_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "placement/engine.h"

namespace abacus::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr NodeInstance kServer{1, 1};
constexpr NodeInstance kClient{9, 4};
constexpr Rid kConsole{kClient, 1};
constexpr Rid kGrep{kClient, 2};
constexpr Rid kFile{kServer, 5};

// Of the processor, by this thread.
absl::Duration ThreadTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

placement::NodeStatistics Node(NodeId id, bool server) {
  return {.node = id, .is_server = server, .rate = 1e9, .cores = 2, .load = 0.2, .source = "test"};
}

placement::ObjectStatistics Object(const Rid& rid, NodeId node, bool mobile, double cpu_s) {
  return {.id = ToObjectId(rid),
          .class_name = "c",
          .node = node,
          .mobile = mobile,
          .cpu_s = cpu_s,
          .bytes_processed = 1e6,
          .calls = 20,
          .checkpoint_bytes = 4096};
}

// A grep at the client that reads 1.2 MB over a 10 Mbit/s link in a second and lets `passes` of it
// through to the console.
Digest ClientDigest(double passes) {
  Digest digest{.from = kClient, .window_s = 1};
  digest.node = Node(kClient.node, false);
  digest.objects = {Object(kConsole, kClient.node, false, 0.001),
                    Object(kGrep, kClient.node, true, 0.01)};
  digest.objects[1].stall_s = 0.96;
  digest.edges = {{ToObjectId(kConsole), ToObjectId(kGrep), 20, 800, passes * 1.2e6},
                  {ToObjectId(kGrep), ToObjectId(kFile), 20, 800, 1.2e6}};
  digest.links = {{kClient.node, kServer.node, 1.25e6, 0.0003, 1e7}};
  digest.consoles = {kConsole};
  return digest;
}

Digest ServerDigest() {
  Digest digest{.from = kServer, .window_s = 1};
  digest.node = Node(kServer.node, true);
  digest.objects = {Object(kFile, kServer.node, false, 0.002)};
  return digest;
}

constexpr double kSampleS = 0.05;

// The part of a second's digest that a sample sees.
Digest SampleOf(Digest digest) {
  digest.window_s = kSampleS;
  for (auto& object : digest.objects) {
    for (double* figure :
         {&object.cpu_s, &object.stall_s, &object.bytes_processed, &object.calls}) {
      *figure *= kSampleS;
    }
  }
  for (auto& edge : digest.edges) {
    for (double* figure : {&edge.calls, &edge.request_bytes, &edge.reply_bytes}) {
      *figure *= kSampleS;
    }
  }
  return digest;
}

class PlacementLoopTest : public ::testing::Test {
 protected:
  // Both nodes report what they see in so many samples, or until a move is planned.
  std::vector<PlannedMove> Watch(PlacementLoop& loop, const Digest& client, int samples = 24) {
    std::vector<PlannedMove> moves;
    for (int i = 0; i < samples && moves.empty(); ++i) {
      now_ += absl::Seconds(kSampleS);
      EXPECT_TRUE(loop.Accept(SampleOf(ServerDigest()), now_).ok());
      EXPECT_TRUE(loop.Accept(SampleOf(client), now_).ok());
      moves = loop.Decide(now_);
    }
    return moves;
  }
  std::vector<PlannedMove> DecideOn(const Digest& client) { return Watch(loop_, client); }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  PlacementLoop loop_{kServer.node, {}};
};

TEST_F(PlacementLoopTest, ASelectiveObjectIsSentToItsData) {
  const auto moves = DecideOn(ClientDigest(0.05));
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].rids, std::vector<Rid>{kGrep});
  EXPECT_EQ(moves[0].from, kClient.node);
  EXPECT_EQ(moves[0].to, kServer.node);
  EXPECT_GT(moves[0].predicted_gain_s, 0.5);
  EXPECT_GT(moves[0].predicted_cost_s, 0);
  EXPECT_THAT(moves[0].reason, HasSubstr("node 1"));
}

TEST_F(PlacementLoopTest, AnObjectThatPassesNearlyEverythingStaysAndTheReasonIsKept) {
  EXPECT_THAT(DecideOn(ClientDigest(1.05)), IsEmpty());
  const auto records = loop_.Explain(kGrep, 10);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records[0].decision.outcome, placement::Outcome::kStay);
  EXPECT_FALSE(records[0].decision.Explanation().empty());
}

// At 0.75 out of 1 the gain is over the threshold and under a factor of two.
TEST_F(PlacementLoopTest, ASmallGainWaitsForAWholeWindow) {
  EXPECT_THAT(Watch(loop_, ClientDigest(0.6), 10), IsEmpty());
  const auto records = loop_.Explain(kGrep, 1);
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].decision.reason, placement::Reason::kWaitsForWindow)
      << records[0].decision.Explanation();
  EXPECT_THAT(Watch(loop_, ClientDigest(0.6)), SizeIs(1));
}

// DESIGN: 150 ms after the change, where digests come every 50 ms.
TEST_F(PlacementLoopTest, ALargeGainIsDecidedOnAfterThreeSamples) {
  EXPECT_THAT(Watch(loop_, ClientDigest(0.01), 3), SizeIs(1));
}

// Histories are of graphs: who else joins the cluster or leaves it is not a part of them.
TEST_F(PlacementLoopTest, NodesThatComeAndGoDoNotMakeAnotherGraphOfIt) {
  for (int i = 0; i < 24; ++i) {
    if (i % 3 != 0) {
      const NodeInstance other{100 + static_cast<NodeId>(i), 1};
      Digest digest{.from = other, .window_s = kSampleS};
      digest.node = Node(other.node, false);
      digest.links = {{other.node, kServer.node, 1e6, 0.001, 1e7}};
      ASSERT_TRUE(loop_.Accept(digest, now_).ok());
    }
    const auto moves = Watch(loop_, ClientDigest(0.6), 1);
    if (!moves.empty()) {
      EXPECT_GT(i, 10) << "it takes a whole window";
      return;
    }
  }
  ADD_FAILURE() << loop_.Explain(kGrep, 1)[0].decision.Explanation();
}

TEST_F(PlacementLoopTest, StaysThatRepeatTakeEachOthersPlace) {
  EXPECT_THAT(Watch(loop_, ClientDigest(1.05), 400), IsEmpty());  // 20 windows
  EXPECT_LE(loop_.Explain(kGrep, 1000).size(), 6u);
}

TEST_F(PlacementLoopTest, DecisionsBeyondTheMemoryForThemAreDroppedAndCounted) {
  EXPECT_THAT(DecideOn(ClientDigest(1.05)), IsEmpty());
  ASSERT_FALSE(loop_.Explain(kGrep, 10).empty());
  EXPECT_EQ(loop_.Counters().count("decision_dropped"), 0u);
  loop_.SetDecisionMemory(100);
  EXPECT_THAT(loop_.Explain(kGrep, 10), IsEmpty());
  const uint64_t dropped = loop_.Counters()["decision_dropped"];
  EXPECT_GE(dropped, 1u);
  EXPECT_THAT(DecideOn(ClientDigest(0.05)), SizeIs(1)) << "it decides as before";
  EXPECT_THAT(loop_.Explain(kGrep, 10), IsEmpty());
  EXPECT_GT(loop_.Counters()["decision_dropped"], dropped);
  loop_.SetDecisionMemory(1 << 20);
  loop_.OnMoveEnded({.console = kConsole, .rids = {kGrep}}, absl::OkStatus(), {}, now_);
  DecideOn(ClientDigest(1.05));
  EXPECT_FALSE(loop_.Explain(kGrep, 10).empty());
}

TEST_F(PlacementLoopTest, NoSecondMoveIsPlannedWhileOneIsUnderWay) {
  ASSERT_THAT(DecideOn(ClientDigest(0.05)), SizeIs(1));
  EXPECT_THAT(DecideOn(ClientDigest(0.05)), IsEmpty());
}

TEST_F(PlacementLoopTest, AfterAMoveOldFiguresDoNotCount) {
  const auto moves = DecideOn(ClientDigest(0.05));
  ASSERT_THAT(moves, SizeIs(1));
  loop_.OnMoveEnded(moves[0], absl::OkStatus(), absl::Milliseconds(5), now_);
  EXPECT_THAT(loop_.Decide(now_), IsEmpty());
  EXPECT_EQ(loop_.Counters()["moves_committed"], 1u);
}

TEST_F(PlacementLoopTest, AFailedMoveIsTriedAgainOnNewFiguresAndNotAtOnce) {
  const auto moves = DecideOn(ClientDigest(0.05));
  ASSERT_THAT(moves, SizeIs(1));
  loop_.OnMoveEnded(moves[0], absl::AbortedError("drain"), absl::ZeroDuration(), now_);
  EXPECT_THAT(Watch(loop_, ClientDigest(0.05), 5), IsEmpty());
  EXPECT_THAT(Watch(loop_, ClientDigest(0.05), 100), SizeIs(1));
}

TEST_F(PlacementLoopTest, InADryRunDecisionsAreRecordedAndNothingIsMoved) {
  PlacementLoop loop(kServer.node, {.dry_run = true});
  EXPECT_THAT(Watch(loop, ClientDigest(0.05)), IsEmpty());
  const auto records = loop.Explain(kGrep, 1);
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].decision.reason, placement::Reason::kDryRun);
}

TEST_F(PlacementLoopTest, APinnedObjectStaysWhereItIs) {
  Digest client = ClientDigest(0.05);
  client.pins = {{kGrep, "pinned"}};
  EXPECT_THAT(DecideOn(client), IsEmpty());
  const auto records = loop_.Explain(kGrep, 1);
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].decision.reason, placement::Reason::kPinned);
}

TEST_F(PlacementLoopTest, AnotherServerWithTheLowerAnchorDecides) {
  PlacementLoop other(7, {});
  EXPECT_THAT(Watch(other, ClientDigest(0.05)), IsEmpty());
  EXPECT_THAT(other.Explain(kGrep, 10), IsEmpty());
}

// It was a member when somebody looked, and died before its digest was taken in.
TEST_F(PlacementLoopTest, WhatComesFromANodeThatIsForgottenIsRefusedAndBringsNothingBack) {
  ASSERT_THAT(DecideOn(ClientDigest(1.05)), IsEmpty());
  loop_.Forget(kClient);
  const absl::Status late = loop_.Accept(SampleOf(ClientDigest(1.05)), now_);
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition) << late;
  EXPECT_EQ(loop_.Counters()["digest_of_a_stranger"], 1u);
  loop_.Decide(now_);
  ASSERT_THAT(loop_.Digests(), SizeIs(1)) << "the server's";
  EXPECT_EQ(loop_.Digests()[0].from, kServer);
  // Another process of its node is another one.
  Digest next = ClientDigest(1.05);
  next.from.incarnation += 1;
  next.consoles.clear();
  EXPECT_TRUE(loop_.Accept(next, now_).ok());
}

TEST_F(PlacementLoopTest, NoMoreNodesThatAreForgottenAreRememberedThanTheLimitSays) {
  const auto accepts = [&](uint32_t incarnation) {
    Digest digest{.from = {77, incarnation}, .window_s = 1};
    digest.node = Node(77, false);
    return loop_.Accept(digest, now_).ok();
  };
  for (uint32_t i = 1; i <= PlacementLoop::kForgottenMax; ++i) loop_.Forget({77, i});
  loop_.Forget({77, 2});  // once more is no other
  EXPECT_FALSE(accepts(1));
  loop_.Forget({77, PlacementLoop::kForgottenMax + 1});
  EXPECT_TRUE(accepts(1)) << "the oldest goes";
  EXPECT_FALSE(accepts(2));
}

TEST_F(PlacementLoopTest, StaleDigestsAreDroppedAndCounted) {
  ASSERT_TRUE(loop_.Accept(ServerDigest(), now_).ok());
  ASSERT_TRUE(loop_.Accept(ClientDigest(0.05), now_).ok());
  EXPECT_THAT(loop_.Decide(now_ + absl::Seconds(10)), IsEmpty());
  EXPECT_THAT(loop_.Digests(), IsEmpty());
  EXPECT_EQ(loop_.Counters()["digest_stale"], 2u);
}

TEST_F(PlacementLoopTest, SamplesThatSayNothingAreCountedByWhy) {
  ASSERT_TRUE(loop_.Accept(ServerDigest(), now_).ok());
  Digest client = ClientDigest(0.05);
  client.begin_anew = {kGrep};
  ASSERT_TRUE(loop_.Accept(client, now_).ok());
  loop_.Decide(now_);
  EXPECT_EQ(loop_.Counters()["sample_begins_anew"], 1u);
  EXPECT_EQ(loop_.Counters().count("sample_object_on_two_nodes"), 0u);
  // The server says that it hosts the grep too.
  now_ += absl::Seconds(kSampleS);
  Digest server = ServerDigest();
  server.objects.push_back(Object(kGrep, kServer.node, true, 0.01));
  ASSERT_TRUE(loop_.Accept(server, now_).ok());
  ASSERT_TRUE(loop_.Accept(ClientDigest(0.05), now_).ok());
  loop_.Decide(now_);
  EXPECT_EQ(loop_.Counters()["sample_begins_anew"], 1u);
  EXPECT_EQ(loop_.Counters()["sample_object_on_two_nodes"], 1u);
}

// It is allowed on a node that nobody knows, and on one to which no link is.
TEST_F(PlacementLoopTest, DecisionsThatLeaveNodesOrLinksAsideAreCountedAndSaySo) {
  Digest client = ClientDigest(1.05);
  client.pins = {{.rid = kGrep, .reason = "", .allowed = {kServer.node, 50, 51}}};
  Digest third{.from = {50, 1}, .window_s = kSampleS};
  third.node = Node(50, false);
  for (int i = 0; i < 24; ++i) {
    now_ += absl::Seconds(kSampleS);
    ASSERT_TRUE(loop_.Accept(SampleOf(ServerDigest()), now_).ok());
    ASSERT_TRUE(loop_.Accept(third, now_).ok());
    ASSERT_TRUE(loop_.Accept(SampleOf(client), now_).ok());
    loop_.Decide(now_);
  }
  EXPECT_GT(loop_.Counters()["decided_without_a_link"], 0u);
  EXPECT_GT(loop_.Counters()["decided_without_a_node"], 0u);
  const auto records = loop_.Explain(kGrep, 1);
  ASSERT_THAT(records, SizeIs(1));
  const std::string text = placement::Format(records[0].decision);
  EXPECT_THAT(text, HasSubstr("left aside, without figures to be trusted: 2 links"));
  EXPECT_THAT(text, HasSubstr("left aside, without figures to be trusted: 1 node"));
}

TEST_F(PlacementLoopTest, DecisionsOfWhichAPredictionWasCutOffAreCounted) {
  PlacementLoop loop(kServer.node, {.engine = {.fixed_point_iterations_max = 1}});
  for (int i = 0; i < 24; ++i) {
    now_ += absl::Seconds(kSampleS);
    Digest server = SampleOf(ServerDigest());
    server.node.load = 5;  // of two cores: how long it takes there depends on what it adds
    ASSERT_TRUE(loop.Accept(server, now_).ok());
    ASSERT_TRUE(loop.Accept(SampleOf(ClientDigest(1.05)), now_).ok());
    loop.Decide(now_);
  }
  EXPECT_GT(loop.Counters()["decided_with_a_cut_off"], 0u);
}

// The end of a move may be told with a later time than that of the round that comes after it.
TEST_F(PlacementLoopTest, ThreadsThatReadTheClockInAnotherOrderAreNoStep) {
  const std::vector<PlannedMove> moves = DecideOn(ClientDigest(0.05));
  ASSERT_THAT(moves, SizeIs(1));
  loop_.OnMoveEnded(moves[0], absl::OkStatus(), absl::Milliseconds(1),
                    now_ + absl::Seconds(2 * kSampleS));
  ASSERT_TRUE(loop_.Accept(SampleOf(ClientDigest(0.05)), now_).ok());
  now_ += absl::Seconds(kSampleS);
  loop_.Decide(now_);
  EXPECT_EQ(loop_.Counters().count("clock_step"), 0u);
  EXPECT_EQ(loop_.Counters().count("clock_stepped"), 0u);
}

// A round over thousands is not held up by what people may ask later.
TEST_F(PlacementLoopTest, OfManyThatStayTheLogGetsSomeEachRoundAndAllInTheEnd) {
  constexpr NodeId kClients = 250;
  const std::string path =
      ::testing::TempDir() + "abacus_placement_loop_test_" + std::to_string(getpid());
  PlacementLoop loop(kServer.node, {.log_path = path});
  const auto console_of = [](NodeId c) { return Rid{{100 + c, 1}, 1}; };
  const auto logged = [&] {
    size_t consoles = 0;
    for (NodeId c = 0; c < kClients; ++c) {
      consoles += loop.ExplainFromLog(console_of(c), 1).empty() ? 0 : 1;
    }
    return consoles;
  };
  const auto round = [&] {
    now_ += absl::Seconds(kSampleS);
    ASSERT_TRUE(loop.Accept(SampleOf(ServerDigest()), now_).ok());
    for (NodeId c = 0; c < kClients; ++c) {
      const NodeInstance client{100 + c, 1};
      Digest digest{.from = client, .window_s = kSampleS};
      digest.node = Node(client.node, false);
      digest.objects = {Object(console_of(c), client.node, false, 0.001)};
      digest.edges = {{ToObjectId(console_of(c)), ToObjectId(kFile), 1, 40, 1e5}};
      digest.links = {{client.node, kServer.node, 1.25e6, 0.0003, 1e7}};
      digest.consoles = {console_of(c)};
      ASSERT_TRUE(loop.Accept(std::move(digest), now_).ok());
    }
    EXPECT_THAT(loop.Decide(now_), IsEmpty());
  };
  round();
  const size_t first = logged();
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, size_t{kClients} / 2);
  // Each is recorded once a window, and logged then if it is new to the log.
  for (int i = 0; i < 80; ++i) round();
  EXPECT_EQ(logged(), size_t{kClients});
  std::filesystem::remove(path);
}

// Somebody sets the clock, by a year, in the midst of it: what is decided, kept and logged is what
// it would be, and people read the time that the clock shows.
TEST_F(PlacementLoopTest, AStepOfTheTimeOfDayIsCountedAndChangesNothing) {
  for (const absl::Duration step : {absl::Hours(8760), -absl::Hours(8760)}) {
    PlacementLoop stepped(kServer.node, {});
    PlacementLoop steady(kServer.node, {});
    absl::Time wall = absl::FromUnixSeconds(2'000'000'000);
    for (int i = 0; i < 60; ++i) {
      now_ += absl::Seconds(kSampleS);
      wall += i == 35 ? step : absl::Seconds(kSampleS);
      for (PlacementLoop* loop : {&stepped, &steady}) {
        // From the 40th on the client is silent.
        ASSERT_TRUE(loop->Accept(SampleOf(ServerDigest()), now_).ok());
        if (i < 40) {
          ASSERT_TRUE(loop->Accept(SampleOf(ClientDigest(1.05)), now_).ok());
        }
      }
      EXPECT_THAT(stepped.Decide(now_, wall), IsEmpty());
      EXPECT_THAT(steady.Decide(now_), IsEmpty());
    }
    const auto records = stepped.Explain(kGrep, 1000);
    EXPECT_THAT(records, SizeIs(steady.Explain(kGrep, 1000).size()));
    ASSERT_FALSE(records.empty());
    EXPECT_GT(records.front().at, absl::FromUnixSeconds(1'900'000'000)) << "as the clock shows it";
    std::map<std::string, uint64_t> counters = stepped.Counters();
    const char* name =
        step > absl::ZeroDuration() ? "wall_clock_stepped_forward" : "wall_clock_stepped_back";
    EXPECT_EQ(counters[name], 1u);
    counters.erase(name);
    EXPECT_EQ(counters, steady.Counters());
    EXPECT_THAT(stepped.Digests(), SizeIs(2)) << "a second of silence is not much";
    now_ += absl::Seconds(3);
    wall += absl::Seconds(3);
    ASSERT_TRUE(stepped.Accept(SampleOf(ServerDigest()), now_).ok());
    stepped.Decide(now_, wall);
    EXPECT_THAT(stepped.Digests(), SizeIs(1)) << "four seconds are";
  }
}

TEST_F(PlacementLoopTest, AFigureThatCannotBeIsRefusedAndCountedByWhatItIs) {
  const double bad = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* counter;
    const char* said;
    void (*spoil)(Digest& digest, double bad);
  } cases[] = {
      {"digest_bad_sender", "sender", [](Digest& d, double) { d.from = {}; }},
      {"digest_bad_window", "window", [](Digest& d, double b) { d.window_s = b; }},
      {"digest_bad_node", "node", [](Digest& d, double b) { d.node.load = b; }},
      {"digest_bad_object", "object", [](Digest& d, double b) { d.objects[1].cpu_s = b; }},
      {"digest_bad_edge", "edge", [](Digest& d, double b) { d.edges[0].calls = b; }},
      {"digest_object_of_another", "another node",
       [](Digest& d, double) { d.objects[1].node = kServer.node; }},
      {"digest_console_of_another", "another node",
       [](Digest& d, double) {
         d.consoles.push_back(Rid{kServer, 77});
       }},
  };
  for (const auto& c : cases) {
    Digest client = ClientDigest(0.05);
    c.spoil(client, bad);
    const absl::Status status = loop_.Accept(client, now_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.counter;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.said));
    EXPECT_EQ(loop_.Counters()[c.counter], 1u) << c.counter;
  }
  EXPECT_THAT(loop_.Counters(), SizeIs(std::size(cases))) << "each by its own name alone";
  Digest own = ServerDigest();
  own.objects[0].cpu_s = -1;
  EXPECT_EQ(loop_.Accept(own, now_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(loop_.Counters()["digest_bad_object"], 2u);
  EXPECT_EQ(loop_.Counters()["own_digest_refused"], 1u);
}

// Both servers have an anchored object of the graph and see the same digests: the one of the lower
// decides, and if it is gone with its object, the other.
TEST_F(PlacementLoopTest, OfTwoServersThatSeeTheSameOnlyOneMovesAnObject) {
  constexpr NodeInstance kOtherServer{2, 1};
  constexpr Rid kOtherFile{kOtherServer, 1};
  PlacementLoop other(kOtherServer.node, {});
  bool first_is_there = true;
  // The grep reads from both files, most from the one of `most`.
  const auto watch = [&](bool most_of_other, int samples) {
    Digest client = ClientDigest(0.01);
    client.edges[1].reply_bytes *= most_of_other ? 0.1 : 1;
    client.edges.push_back(
        {ToObjectId(kGrep), ToObjectId(kOtherFile), 20, 800, most_of_other ? 1.2e6 : 1e5});
    client.links.push_back({kClient.node, kOtherServer.node, 1.25e6, 0.0003, 1e7});
    if (!first_is_there) {
      client.edges.erase(client.edges.begin() + 1);
      client.links.erase(client.links.begin());
    }
    Digest second{.from = kOtherServer, .window_s = 1};
    second.node = Node(kOtherServer.node, true);
    second.objects = {Object(kOtherFile, kOtherServer.node, false, 0.002)};
    second.links = {{kOtherServer.node, kServer.node, 1.25e6, 0.0003, 1e7}};
    std::pair<size_t, size_t> moves;  // of the first server's, and of the other's
    for (int i = 0; i < samples; ++i) {
      now_ += absl::Seconds(kSampleS);
      for (PlacementLoop* loop : {&loop_, &other}) {
        if (loop == &loop_ && !first_is_there) continue;
        if (first_is_there) {
          EXPECT_TRUE(loop->Accept(SampleOf(ServerDigest()), now_).ok());
        }
        EXPECT_TRUE(loop->Accept(SampleOf(second), now_).ok());
        EXPECT_TRUE(loop->Accept(SampleOf(client), now_).ok());
        (loop == &loop_ ? moves.first : moves.second) += loop->Decide(now_).size();
      }
    }
    return moves;
  };
  EXPECT_EQ(watch(true, 24), std::pair(size_t{1}, size_t{0}));
  EXPECT_THAT(other.Explain(kGrep, 10), IsEmpty());
  first_is_there = false;
  other.Forget(kServer);
  now_ += absl::Seconds(10);  // what was said of the first one is of no use any more
  EXPECT_EQ(watch(true, 24), std::pair(size_t{0}, size_t{1}));
}

TEST_F(PlacementLoopTest, WhatWasDecidedOnAGraphCanBeAskedForWhenItHasEnded) {
  ASSERT_THAT(DecideOn(ClientDigest(1.05)), IsEmpty());
  Digest without = ClientDigest(1.05);
  without.consoles.clear();
  ASSERT_THAT(DecideOn(without), IsEmpty());
  EXPECT_THAT(loop_.Explain(kGrep, 10), Not(IsEmpty()));
  loop_.Forget(kClient);
  EXPECT_THAT(loop_.Explain(kGrep, 10), Not(IsEmpty()));
  // Not for ever: those that end later take its place.
  for (uint64_t i = 0; i < 100; ++i) {
    Digest next = ClientDigest(1.05);
    next.from = NodeInstance{kClient.node, kClient.incarnation + 1};
    const Rid console{next.from, 100 + 2 * i}, grep{next.from, 101 + 2 * i};
    next.consoles = {console};
    next.objects[0].id = ToObjectId(console);
    next.objects[1].id = ToObjectId(grep);
    next.edges[0].from = ToObjectId(console);
    next.edges[0].to = next.edges[1].from = ToObjectId(grep);
    DecideOn(next);
    EXPECT_THAT(loop_.Explain(grep, 10), Not(IsEmpty()));
  }
  EXPECT_THAT(loop_.Explain(kGrep, 10), IsEmpty());
}

TEST_F(PlacementLoopTest, AMoveThatEndsAfterItsConsoleBringsNothingBack) {
  const std::vector<PlannedMove> moves = DecideOn(ClientDigest(0.05));
  ASSERT_THAT(moves, SizeIs(1));
  loop_.Forget(kClient);
  loop_.OnMoveEnded(moves[0], absl::OkStatus(), absl::Milliseconds(1), now_);
  loop_.OnMoveEnded(moves[0], absl::OkStatus(), absl::Milliseconds(1), now_);
  EXPECT_THAT(loop_.Explain(kGrep, 10), Not(IsEmpty()));
}

// What the planner asked the engine can be asked again: the same predictions come of it.
TEST_F(PlacementLoopTest, Invariant6ADecisionIsReplayedFromItsRecordedSnapshot) {
  for (const double passes : {0.05, 0.6, 1.05}) {
    PlacementLoop loop(kServer.node, {});
    Watch(loop, ClientDigest(passes));
    const auto records = loop.Explain(kGrep, 1);
    ASSERT_THAT(records, SizeIs(1));
    const placement::Decision& recorded = records[0].decision;
    const auto snapshot = SnapshotFromJson(ToJson(records[0].snapshot));
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    const placement::Decision again = placement::Decide(*snapshot, {.window_s = recorded.window_s});
    EXPECT_EQ(again.outcome, recorded.outcome);
    EXPECT_EQ(again.reason, recorded.reason);
    EXPECT_EQ(again.moves, recorded.moves);
    EXPECT_EQ(again.Explanation(), recorded.Explanation());
    ASSERT_EQ(again.candidates.size(), recorded.candidates.size());
    for (size_t i = 0; i < again.candidates.size(); ++i) {
      EXPECT_EQ(again.candidates[i].prediction.response_s,
                recorded.candidates[i].prediction.response_s);
      EXPECT_EQ(again.candidates[i].net_benefit_s, recorded.candidates[i].net_benefit_s);
    }
  }
}

constexpr NodeInstance kClient2{8, 3};
constexpr Rid kConsole2{kClient2, 1};
constexpr Rid kGrep2{kClient2, 2};
constexpr Rid kFile2{kServer, 6};

// Filter 1 fills the server: there its second of work would take 1.6 s at its client. Filter 2
// takes a second at its client, 0.02 s at the server.
class FullServerTest : public PlacementLoopTest {
 protected:
  static Digest Full(Digest server) {
    server.node.memory_free_bytes = 5e5;
    server.objects.push_back(Object(kFile2, kServer.node, false, 0.002));
    server.objects.push_back(Object(kGrep, kServer.node, true, 0.01));
    server.objects.back().memory_bytes = 1'000'000;
    server.edges = {{ToObjectId(kGrep), ToObjectId(kFile), 20, 800, 2e6}};
    return server;
  }
  static Digest First() {
    Digest digest = ClientDigest(1);
    digest.objects.pop_back();
    digest.edges.pop_back();
    return digest;
  }
  static Digest Second() {
    Digest digest = ClientDigest(0.02);
    digest.from = kClient2;
    digest.node.node = kClient2.node;
    digest.objects = {Object(kConsole2, kClient2.node, false, 0.001),
                      Object(kGrep2, kClient2.node, true, 0.01)};
    digest.objects[1].stall_s = 0.96;
    digest.objects[1].memory_bytes = 1'000'000;
    digest.edges = {{ToObjectId(kConsole2), ToObjectId(kGrep2), 20, 800, 0.02 * 1.2e6},
                    {ToObjectId(kGrep2), ToObjectId(kFile2), 20, 800, 1.2e6}};
    digest.links = {{kClient2.node, kServer.node, 1.25e6, 0.0003, 1e7}};
    digest.consoles = {kConsole2};
    return digest;
  }

  // `apart`: the clients' digests never come for the same call.
  std::vector<PlannedMove> WatchAll(bool apart, int samples = 30) {
    std::vector<PlannedMove> moves;
    for (int i = 0; i < samples && moves.empty(); ++i) {
      now_ += absl::Seconds(kSampleS);
      EXPECT_TRUE(loop_.Accept(SampleOf(Full(ServerDigest())), now_).ok());
      EXPECT_TRUE(loop_.Accept(SampleOf(First()), now_).ok());
      if (apart) moves = loop_.Decide(now_);
      EXPECT_TRUE(moves.empty());
      EXPECT_TRUE(loop_.Accept(SampleOf(Second()), now_).ok());
      moves = loop_.Decide(now_);
    }
    return moves;
  }

  // Of digests that are decided on one after the other (`apart`) or at once.
  void ExpectThatTheSecondTakesThePlaceOfTheFirst(bool apart) {
    const std::vector<PlannedMove> moves = WatchAll(apart);
    ASSERT_THAT(moves, SizeIs(2));
    EXPECT_EQ(moves[0].console, kConsole);
    EXPECT_EQ(moves[0].rids, std::vector<Rid>{kGrep});
    EXPECT_EQ(moves[0].to, kClient.node);
    EXPECT_TRUE(moves[0].makes_room);
    EXPECT_EQ(moves[1].console, kConsole2);
    EXPECT_EQ(moves[1].rids, std::vector<Rid>{kGrep2});
    EXPECT_EQ(moves[1].to, kServer.node);
    EXPECT_FALSE(moves[1].makes_room);
    EXPECT_NE(moves[0].step, 0u);
    EXPECT_EQ(moves[1].step, moves[0].step) << "one waits for the other";
    const auto records = loop_.Explain(kGrep, 1);
    ASSERT_THAT(records, SizeIs(1));
    EXPECT_EQ(records[0].decision.reason, placement::Reason::kEjected);
    EXPECT_THAT(records[0].decision.Explanation(), HasSubstr("Making room"));
    EXPECT_THAT(WatchAll(apart, 5), IsEmpty()) << "both are under way";
  }
};

TEST_F(FullServerTest, TheFilterThatGainsMoreGetsThePlaceOfTheOtherWhichGoesFirst) {
  ExpectThatTheSecondTakesThePlaceOfTheFirst(false);
}

TEST_F(FullServerTest, TheSameComesOfDigestsThatAreDecidedOnOneAfterTheOther) {
  ExpectThatTheSecondTakesThePlaceOfTheFirst(true);
}

// Two consoles of one node call the same grep.
TEST_F(PlacementLoopTest, ConsolesThatShareAMobileObjectAreDecidedAsOneAndItMovesOnce) {
  constexpr Rid kOther{kClient, 7};
  Digest client = ClientDigest(0.05);
  client.objects.push_back(Object(kOther, kClient.node, false, 0.001));
  client.edges[0].calls = 10;
  client.edges.push_back({ToObjectId(kOther), ToObjectId(kGrep), 10, 400, 0.05 * 1.2e6});
  client.consoles.push_back(kOther);
  const std::vector<PlannedMove> moves = DecideOn(client);
  ASSERT_THAT(moves, SizeIs(1));
  EXPECT_EQ(moves[0].rids, std::vector<Rid>{kGrep});
  for (const DecisionRecord& record : loop_.Explain(kGrep, 2)) {
    const auto snapshot = SnapshotFromJson(ToJson(record.snapshot));
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_THAT(snapshot->consoles, SizeIs(2));
    EXPECT_THAT(snapshot->objects, SizeIs(4));
  }
}

TEST_F(PlacementLoopTest, StorageThatConsolesShareIsNoReasonToDecideThemAsOne) {
  constexpr Rid kOther{kClient, 7};
  constexpr Rid kOtherGrep{kClient, 8};
  Digest client = ClientDigest(1.05);
  client.objects.push_back(Object(kOther, kClient.node, false, 0.001));
  client.objects.push_back(Object(kOtherGrep, kClient.node, true, 0.01));
  client.edges.push_back({ToObjectId(kOther), ToObjectId(kOtherGrep), 2, 80, 1e4});
  client.edges.push_back({ToObjectId(kOtherGrep), ToObjectId(kFile), 2, 80, 1e4});
  client.consoles.push_back(kOther);
  EXPECT_THAT(DecideOn(client), IsEmpty());
  const auto records = loop_.Explain(kGrep, 1);
  ASSERT_THAT(records, SizeIs(1));
  const auto snapshot = SnapshotFromJson(ToJson(records[0].snapshot));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_THAT(snapshot->consoles, IsEmpty());
  EXPECT_THAT(snapshot->objects, SizeIs(3));
}

PlannedMove Planned(uint64_t console, uint64_t step, bool makes_room) {
  return {.console = Rid{kClient, console}, .step = step, .makes_room = makes_room};
}

TEST(StepsOfTest, OnlyMovesOfOneStepWaitForItsEjections) {
  const auto steps = StepsOf({Planned(1, 7, true), Planned(2, 8, true), Planned(3, 0, false),
                              Planned(4, 8, false), Planned(5, 7, false), Planned(6, 0, false)});
  const auto consoles = [](const std::vector<PlannedMove>& moves) {
    std::vector<uint64_t> locals;
    for (const PlannedMove& move : moves) locals.push_back(move.console.local);
    return locals;
  };
  ASSERT_THAT(steps, SizeIs(4));
  EXPECT_EQ(consoles(steps[0].first), std::vector<uint64_t>{1});
  EXPECT_EQ(consoles(steps[0].then), std::vector<uint64_t>{5});
  EXPECT_EQ(consoles(steps[1].first), std::vector<uint64_t>{2});
  EXPECT_EQ(consoles(steps[1].then), std::vector<uint64_t>{4});
  for (const size_t alone : {2, 3}) EXPECT_THAT(steps[alone].first, IsEmpty());
  EXPECT_EQ(consoles(steps[2].then), std::vector<uint64_t>{3});
  EXPECT_EQ(consoles(steps[3].then), std::vector<uint64_t>{6});
}

TEST_F(PlacementLoopTest, OnlyGraphsOfWhatMovedBeginAnew) {
  const Rid other_console{kClient, 7};
  const Rid other_grep{kClient, 8};
  Digest client = ClientDigest(0.95);
  client.consoles.push_back(other_console);
  client.objects.push_back(Object(other_console, kClient.node, false, 0.001));
  client.objects.push_back(Object(other_grep, kClient.node, true, 0.01));
  client.edges.push_back({ToObjectId(other_console), ToObjectId(other_grep), 20, 800, 1e6});
  client.edges.push_back({ToObjectId(other_grep), ToObjectId(kFile), 20, 800, 1.1e6});
  client.begin_anew = {kGrep};
  Watch(loop_, client, 30);
  EXPECT_THAT(loop_.Explain(kConsole, 10), IsEmpty()) << "its grep moves all the time";
  EXPECT_THAT(loop_.Explain(other_console, 10), Not(IsEmpty()))
      << "whose objects do not, goes unobserved";
}

TEST_F(PlacementLoopTest, AnObjectThatTwoNodesSayTheyHostIsNotDecidedOn) {
  Digest server = ServerDigest();
  server.objects.push_back(Object(kGrep, kServer.node, true, 0.01));
  for (int i = 0; i < 30; ++i) {
    now_ += absl::Seconds(kSampleS);
    ASSERT_TRUE(loop_.Accept(SampleOf(server), now_).ok());
    ASSERT_TRUE(loop_.Accept(SampleOf(ClientDigest(0.05)), now_).ok());
    EXPECT_THAT(loop_.Decide(now_), IsEmpty());
  }
}

// Eight times the consoles are eight times the work: 64 times, if each looked at all. The time is
// the processor's: others' load does not count.
TEST_F(PlacementLoopTest, ADecisionTakesTimeByTheConsolesAndNotByTheirSquare) {
  const auto time_of = [](uint32_t consoles) {
    Digest client{.from = kClient, .window_s = kSampleS};
    client.node = Node(kClient.node, false);
    client.links = {{kClient.node, kServer.node, 1.25e6, 0.0003, 1e7}};
    for (uint32_t i = 0; i < consoles; ++i) {
      const Rid console{kClient, 10 + 2 * i};
      const Rid grep{kClient, 11 + 2 * i};
      client.consoles.push_back(console);
      client.objects.push_back(Object(console, kClient.node, false, 0.00001));
      client.objects.push_back(Object(grep, kClient.node, true, 0.00001));
      client.edges.push_back({ToObjectId(console), ToObjectId(grep), 1, 10, 1000});
      client.edges.push_back({ToObjectId(grep), ToObjectId(kFile), 1, 10, 1000});
    }
    absl::Duration best = absl::InfiniteDuration();
    for (int run = 0; run < 3; ++run) {
      PlacementLoop loop(kServer.node, {});
      const absl::Time now = absl::FromUnixSeconds(1000);
      EXPECT_TRUE(loop.Accept(SampleOf(ServerDigest()), now).ok());
      EXPECT_TRUE(loop.Accept(client, now).ok());
      const absl::Duration begin = ThreadTime();
      loop.Decide(now);
      best = std::min(best, ThreadTime() - begin);
      uint64_t decided = 0;
      for (const auto& [reason, count] : loop.Counters()) decided += count;
      EXPECT_EQ(decided, consoles) << "each console was decided for";
    }
    return best;
  };
  const absl::Duration few = time_of(200);
  const absl::Duration many = time_of(1600);
  std::cout << "200 consoles: " << few << ", 1600: " << many << "\n";
  EXPECT_LT(many, 24 * few);
}

}  // namespace
}  // namespace abacus::runtime
