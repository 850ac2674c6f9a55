// The engine at work, and the ends of nodes.

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"
#include "runtime/node/node.h"
#include "runtime/node/testing/node_fixture.h"
#include "runtime/resource/placement_loop.h"

namespace abacus::runtime {
namespace {

using testing::Counter;
using testing::Eventually;
using testing::Feed;
using ::testing::HasSubstr;
using testing::kAsk;
using testing::MoveLog;
using testing::Scanner;

using NodeLifeTest = testing::NodeFixture;

// -- the engine, from counted bytes to a moved object -------------------------------------------

TEST_F(NodeLifeTest, EngineMovesAScannerToItsDataAndExplainsWhy) {
  NodeOptions server = ServerOptions("s");
  server.config.placement.enabled = true;
  server.config.transport.rate_limit_mbit = 20;
  server_ = Start(server);
  NodeOptions client = ClientOptions("c", *server_);
  client.config.transport.rate_limit_mbit = 20;
  client_ = Start(client);
  MoveLog moves(*client_);
  const auto feed = server_->Create<Feed>();
  const auto scanner = client_->Create<Scanner>();
  const auto remote_feed = client_->binding().RefTo<Feed>(feed->rid());
  {
    Console console(*client_);
    const bool moved = Eventually([&] {
      EXPECT_EQ(*scanner->operator->()->Scan(remote_feed), 64u * 1024);
      return !moves.events().empty();
    });
    ASSERT_TRUE(moved);
  }
  const MoveEvent event = moves.events().front();
  EXPECT_TRUE(event.by_engine);
  EXPECT_TRUE(event.status.ok()) << event.status;
  EXPECT_EQ(event.rids, std::vector<Rid>{scanner->rid()});
  EXPECT_EQ(event.to, Id(*server_));
  EXPECT_GT(event.predicted_gain, absl::ZeroDuration());
  EXPECT_FALSE(event.reason.empty());
  EXPECT_TRUE(Hosts(*server_, scanner->rid()));

  for (const Node* node : {server_.get(), client_.get()}) {  // the client asks its server
    const auto decisions =
        ControlClient(node->control_address()).Explain(scanner->rid(), 1000, kAsk);
    ASSERT_TRUE(decisions.ok()) << decisions.status();
    bool said_so = false;
    for (const DecisionText& decision : *decisions) {
      if (decision.outcome != "move") continue;
      said_so = true;
      EXPECT_EQ(decision.explanation, event.reason);
      EXPECT_FALSE(decision.details.empty());
      EXPECT_TRUE(SnapshotFromJson(decision.snapshot).ok());
      ASSERT_EQ(decision.nodes.size(), 2u);
      for (const placement::NodeStatistics& of_decision : decision.nodes) {
        EXPECT_NE(of_decision.source, "") << of_decision.name << ": where its figures come from";
      }
    }
    EXPECT_TRUE(said_so);
  }
}

TEST_F(NodeLifeTest, EngineLeavesAPinnedScannerAndSaysWhy) {
  NodeOptions server = ServerOptions("s");
  server.config.placement.enabled = true;
  server.config.transport.rate_limit_mbit = 20;
  server_ = Start(server);
  NodeOptions client = ClientOptions("c", *server_);
  client.config.transport.rate_limit_mbit = 20;
  client_ = Start(client);
  const auto feed = server_->Create<Feed>();
  const auto scanner = client_->Create<Scanner>();
  ASSERT_TRUE(client_->Pin(scanner->rid(), 0).ok());
  const auto remote_feed = client_->binding().RefTo<Feed>(feed->rid());
  Console console(*client_);
  ControlClient control(server_->control_address());
  ASSERT_TRUE(Eventually([&] {
    EXPECT_TRUE(scanner->operator->()->Scan(remote_feed).ok());
    const auto decisions = control.Explain(scanner->rid(), 1, kAsk);
    return decisions.ok() && decisions->front().reason == "pinned";
  }));
  EXPECT_TRUE(Hosts(*client_, scanner->rid()));
}

// -- ends ---------------------------------------------------------------------------------------

TEST_F(NodeLifeTest, ObjectsOfAClientThatLeftAreDestroyedAfterTheGraceTime) {
  StartPair();
  const NodeInstance gone = client_->instance();
  Rid rid;
  {
    const auto counter = client_->Create<Counter>();
    rid = counter->rid();
    ASSERT_TRUE(client_->Move({rid}, Id(*server_)).ok());
  }
  ASSERT_TRUE(Hosts(*server_, rid));
  client_->Stop();
  client_->Stop();
  EXPECT_TRUE(Eventually([&] { return !Knows(*server_, gone); }));
  EXPECT_TRUE(Eventually([&] { return !Hosts(*server_, rid); }));
  EXPECT_EQ(server_->binding().Counters().orphans_destroyed, 1u);
}

TEST_F(NodeLifeTest, CallUnderWayAtAClientThatStopsEndsWithATypedError) {
  NodeOptions options = ServerOptions("s");
  options.points = &points_;
  server_ = Start(options);
  client_ = Start(ClientOptions("c", *server_));
  const auto counter = server_->Create<Counter>();
  points_.Hold("call:before", 1);
  absl::StatusOr<int64_t> sum;
  std::thread caller([&] {
    const auto ref = client_->binding().RefTo<Counter>(counter->rid());
    sum = ref->Add(1);
  });
  ASSERT_TRUE(points_.AwaitHeld("call:before"));
  client_->Stop();
  caller.join();
  EXPECT_FALSE(sum.ok());
  EXPECT_NE(KindOf(sum.status()), ErrorKind::kNone) << sum.status();
}

TEST_F(NodeLifeTest, StopLetsGoOfAMoveThatIsUnderWay) {
  server_ = Start(ServerOptions("s"));
  NodeOptions options = ClientOptions("c", *server_);
  options.points = &points_;
  client_ = Start(options);
  auto counter = client_->Create<Counter>();
  const Rid rid = counter->rid();
  points_.Hold("move:drained", 1);
  absl::StatusOr<MoveEvent> moved;
  std::thread mover([&] { moved = client_->Move({rid}, Id(*server_)); });
  ASSERT_TRUE(points_.AwaitHeld("move:drained"));
  std::thread stopper([&] { client_->Stop(); });
  mover.join();  // although the checkpoint is not taken yet
  EXPECT_EQ(KindOf(moved.status()), ErrorKind::kNodeUnreachable) << moved.status();
  points_.ReleaseAll();
  stopper.join();
  counter = absl::CancelledError("");  // no reference outlives its node
}

TEST_F(NodeLifeTest, RestartedServerIsANewIncarnationAndTheClientJoinsItAgain) {
  NodeOptions options = ServerOptions("s");
  server_ = Start(options);
  options.config.node.control_address = server_->control_address();
  client_ = Start(ClientOptions("c", *server_));
  Rid old_rid;
  {
    const auto counter = server_->Create<Counter>();
    old_rid = counter->rid();
    server_->Publish("counter", old_rid);
  }
  const auto old_ref = client_->binding().RefTo<Counter>(old_rid);
  ASSERT_TRUE(old_ref->Add(1).ok());
  const NodeInstance before = server_->instance();
  server_.reset();
  // It left in good order: the client need not wait for dead_after.
  ASSERT_TRUE(Eventually([&] { return !Knows(*client_, before); }));
  EXPECT_FALSE(old_ref->Add(1).ok());

  server_ = Start(options);
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(server_->instance().node, before.node);
  EXPECT_EQ(server_->instance().incarnation, before.incarnation + 1);
  ASSERT_TRUE(Eventually([&] { return Knows(*client_, server_->instance()); }));
  ASSERT_TRUE(Eventually([&] { return Knows(*server_, client_->instance()); }));
  EXPECT_FALSE(client_->fenced());
  const auto counter = server_->Create<Counter>();
  EXPECT_NE(counter->rid(), old_rid);
  server_->Publish("counter", counter->rid());
  absl::StatusOr<Rid> found;
  ASSERT_TRUE(Eventually([&] {
    found = client_->Lookup("counter");
    return found.ok() && *found == counter->rid();
  }));
  EXPECT_EQ(*client_->binding().RefTo<Counter>(*found)->Add(5), 5);
  EXPECT_FALSE(old_ref->Add(1).ok());  // what was lost stays lost
}

TEST_F(NodeLifeTest, ServerIsReachedWhenItStartsAndAgainWhenItWasRestarted) {
  server_ = Start(ServerOptions("s"));
  // A port that nobody listens at yet: that of a server that was there.
  NodeOptions options = ServerOptions("t");
  auto other = Start(options);
  const std::string address = other->control_address();
  options.config.node.control_address = address;
  other.reset();
  server_->Reach(address);
  EXPECT_EQ(KindOf(server_->LookupAt(address, "counter").status()), ErrorKind::kNodeUnreachable);
  for (int life = 0; life < 2; ++life) {
    other = Start(options);
    ASSERT_NE(other, nullptr);
    Rid rid;
    {
      const auto counter = other->Create<Counter>();
      rid = counter->rid();
      other->Publish("counter", rid);
    }
    ASSERT_TRUE(Eventually([&] {
      const auto found = server_->LookupAt(address, "counter");
      return found.ok() && *found == rid;
    })) << life;
    EXPECT_EQ(*server_->binding().RefTo<Counter>(rid)->Add(2), 2);
    EXPECT_TRUE(absl::IsNotFound(server_->LookupAt(address, "nothing").status()));
    other.reset();
    ASSERT_TRUE(Eventually([&] { return !server_->LookupAt(address, "counter").ok(); }));
  }
}

TEST_F(NodeLifeTest, ClientThatWasDeclaredDeadIsFencedAndItsObjectsServeNobody) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(counter->operator->()->Add(1).ok());
  const auto from_server = server_->binding().RefTo<Counter>(counter->rid());
  ASSERT_TRUE(from_server->Add(1).ok());
  ASSERT_TRUE(ControlClient(server_->control_address()).Leave(client_->instance(), kAsk).ok());
  ASSERT_TRUE(Eventually([&] { return client_->fenced(); }));
  ASSERT_TRUE(Eventually(
      [&] { return KindOf(counter->operator->()->Add(1).status()) == ErrorKind::kNodeFenced; }));
  EXPECT_FALSE(from_server->Add(1).ok());
  const auto report = ControlClient(client_->control_address()).GetStatus(10, kAsk);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->health, HasSubstr("fenced"));
}

// A client whose lease is over lets nobody in, and does again once a server has answered.
TEST_F(NodeLifeTest, ClientWithoutItsOnlyServerIsFencedUntilOneComesAgain) {
  NodeOptions options = ServerOptions("s");
  server_ = Start(options);
  options.config.node.control_address = server_->control_address();
  NodeOptions client = ClientOptions("c", *server_);
  // Longer than a busy machine holds a heartbeat up.
  client.config.membership.lease = absl::Seconds(3);
  client.config.membership.dead_after = absl::Seconds(6);
  client_ = Start(client);
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(counter->operator->()->Add(1).ok());
  server_.reset();
  ASSERT_TRUE(Eventually(
      [&] { return KindOf(counter->operator->()->Add(0).status()) == ErrorKind::kNodeFenced; }));
  server_ = Start(options);
  ASSERT_NE(server_, nullptr);
  ASSERT_TRUE(Eventually([&] { return counter->operator->()->Add(0).ok(); }));
  EXPECT_FALSE(client_->fenced());
  EXPECT_EQ(*counter->operator->()->Add(1), 2);
}

// -- bad input on the control plane -------------------------------------------------------------

TEST_F(NodeLifeTest, CommandsThatAreNoCommandsAreRefusedAndTheNodeGoesOn) {
  StartPair();
  ControlClient control(server_->control_address());
  EXPECT_TRUE(absl::IsInvalidArgument(control.Move(MoveCommand(), kAsk).status()));
  MoveCommand command;
  command.rids.resize(2);
  EXPECT_TRUE(absl::IsInvalidArgument(control.Move(command, kAsk).status()));
  command.rids.assign(5000, Rid{client_->instance(), 1});
  EXPECT_EQ(KindOf(control.Move(command, kAsk).status()), ErrorKind::kBackPressure);
  EXPECT_TRUE(absl::IsInvalidArgument(control.Pin(PinCommand(), kAsk)));
  EXPECT_TRUE(absl::IsInvalidArgument(control.Explain(Rid(), 1, kAsk).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(control.Join(MemberInfo(), kAsk).status()));
  MemberInfo to_client{
      .instance = {5, 1}, .name = "x", .data_address = "a:1", .control_address = "a:2"};
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ControlClient(client_->control_address()).Join(to_client, kAsk).status()));
  EXPECT_TRUE(control.GetStatus(10, kAsk).ok());
}

}  // namespace
}  // namespace abacus::runtime
