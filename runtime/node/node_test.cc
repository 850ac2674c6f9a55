// Joining, moves and pins by hand, names and introspection.

#include "runtime/node/node.h"

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
#include "runtime/node/testing/node_fixture.h"

namespace abacus::runtime {
namespace {

using testing::Counter;
using testing::Eventually;
using testing::Feed;
using ::testing::HasSubstr;
using testing::kAsk;
using testing::MoveLog;
using ::testing::UnorderedElementsAre;

using NodeTest = testing::NodeFixture;

// -- joining ------------------------------------------------------------------------------------

TEST_F(NodeTest, ClientAndServerKnowEachOther) {
  StartPair();
  EXPECT_TRUE(Knows(*client_, server_->instance()));
  EXPECT_TRUE(Eventually([&] { return Knows(*server_, client_->instance()); }));
  EXPECT_EQ(client_->Members().front().name, "c");
  EXPECT_GE(Id(*client_), 1u << 30);
  EXPECT_LT(Id(*server_), 1u << 30);
  EXPECT_FALSE(client_->fenced());
}

TEST_F(NodeTest, NodesOfOneServerReachEachOther) {
  StartPair();
  auto other = Start(ClientOptions("d", *server_));
  ASSERT_TRUE(Eventually([&] { return Knows(*client_, other->instance()); }));
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(counter.ok());
  const auto remote = other->binding().RefTo<Counter>(counter->rid());
  EXPECT_EQ(*remote->Add(2), 2);
}

TEST_F(NodeTest, ServersThatJoinEachOtherAreOneClusterToTheirClients) {
  StartPair();
  NodeOptions options = ServerOptions("t");
  options.servers = {server_->control_address()};
  auto second = Start(options);
  ASSERT_TRUE(Eventually([&] { return Knows(*client_, second->instance()); }));
  const auto counter = second->Create<Counter>();
  ASSERT_TRUE(counter.ok());
  second->Publish("counter", counter->rid());
  // The client has joined the second server by itself.
  absl::StatusOr<Rid> rid;
  ASSERT_TRUE(Eventually([&] { return (rid = client_->Lookup("counter")).ok(); }));
  EXPECT_EQ(*client_->binding().RefTo<Counter>(*rid)->Add(1), 1);
  EXPECT_TRUE(client_->Move({*rid}, Id(*client_)).ok());
  EXPECT_EQ(*counter->operator->()->Add(1), 2);
}

TEST_F(NodeTest, JoinOfAnotherControlVersionIsRefusedNamingBoth) {
  server_ = Start(ServerOptions("s"));
  const MemberInfo joiner{.instance = {1u << 30, 1},
                          .name = "new",
                          .data_address = "127.0.0.1:1",
                          .control_address = "127.0.0.1:2"};
  const auto answer =
      ControlClient(server_->control_address()).Join(joiner, kAsk, kControlVersion + 7);
  EXPECT_EQ(KindOf(answer.status()), ErrorKind::kVersionMismatch) << answer.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.status()));
  EXPECT_THAT(Message(answer.status()), HasSubstr(absl::StrCat("version ", kControlVersion, " ")));
  EXPECT_THAT(Message(answer.status()), HasSubstr(absl::StrCat("version ", kControlVersion + 7)));
  EXPECT_EQ(server_->Members().size(), 1u);
}

TEST_F(NodeTest, StartOfAClientWhoseServerDoesNotAnswerNamesTheAddress) {
  NodeOptions options;
  options.config = QuickConfig("c");
  options.servers = {"127.0.0.1:1"};
  const auto node = TryStart(options);
  EXPECT_TRUE(absl::IsUnavailable(node.status())) << node.status();
  EXPECT_THAT(Message(node.status()), HasSubstr("127.0.0.1:1"));
}

TEST_F(NodeTest, StartAtAPortInUseNamesTheAddressAndTheKey) {
  server_ = Start(ServerOptions("s"));
  NodeOptions control = ServerOptions("t");
  control.config.node.control_address = server_->control_address();
  const auto no_control = TryStart(control);
  EXPECT_TRUE(absl::IsUnavailable(no_control.status())) << no_control.status();
  EXPECT_THAT(Message(no_control.status()), HasSubstr(server_->control_address()));
  EXPECT_THAT(Message(no_control.status()), HasSubstr("node.control_address"));

  NodeOptions data = ServerOptions("t");
  data.config.node.data_address = server_->control_address();
  const auto no_data = TryStart(data);
  EXPECT_TRUE(absl::IsUnavailable(no_data.status())) << no_data.status();
  EXPECT_THAT(Message(no_data.status()), HasSubstr(server_->control_address()));
  EXPECT_THAT(Message(no_data.status()), HasSubstr("node.data_address"));
}

TEST_F(NodeTest, StartInADataDirectoryInUseIsRefused) {
  server_ = Start(ServerOptions("s"));
  const auto second = TryStart(ServerOptions("s"));
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(Message(second.status()), HasSubstr(directory_));
}

TEST_F(NodeTest, StartWithoutWhatItNeedsIsAnInvalidArgument) {
  NodeOptions server = ServerOptions("s");
  server.config.node.data_dir.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(TryStart(server).status()));
  NodeOptions any = ServerOptions("s");
  any.config.node.control_address = "0.0.0.0:0";
  const auto unreachable = TryStart(any);
  EXPECT_TRUE(absl::IsInvalidArgument(unreachable.status())) << unreachable.status();
  EXPECT_THAT(Message(unreachable.status()), HasSubstr("node.advertised_control_address"));
  NodeOptions client;
  client.config = QuickConfig("c");
  EXPECT_TRUE(absl::IsInvalidArgument(TryStart(client).status()));
  client.servers = {"no address"};
  EXPECT_TRUE(absl::IsInvalidArgument(TryStart(client).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Node::Start(ServerOptions("s"), types_, nullptr).status()));
}

TEST_F(NodeTest, ServerWithACopiedIdIsRefusedByTheLivingOne) {
  server_ = Start(ServerOptions("s"));
  std::filesystem::create_directory(directory_ + "/copy");
  std::filesystem::copy(directory_ + "/s/incarnation", directory_ + "/copy/incarnation");
  NodeOptions options = ServerOptions("copy");
  options.servers = {server_->control_address()};
  const auto copy = TryStart(options);
  EXPECT_TRUE(absl::IsAlreadyExists(copy.status())) << copy.status();
  EXPECT_FALSE(server_->fenced());
}

// -- moves by hand ------------------------------------------------------------------------------

TEST_F(NodeTest, ObjectMovedByHandThereAndBackIsCalledFromBothNodes) {
  StartPair();
  MoveLog at_client(*client_);
  MoveLog at_server(*server_);
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(counter.ok());
  const auto from_server = server_->binding().RefTo<Counter>(counter->rid());
  EXPECT_EQ(*counter->operator->()->Add(1), 1);
  EXPECT_EQ(*from_server->Add(1), 2);

  const auto there = client_->Move({counter->rid()}, Id(*server_));
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->class_names, std::vector<std::string>{"test.Counter"});
  EXPECT_EQ(there->from_name, "c");
  EXPECT_EQ(there->to_name, "s");
  EXPECT_FALSE(there->by_engine);
  EXPECT_GT(there->state_bytes, 0u);
  EXPECT_TRUE(Hosts(*server_, counter->rid()));
  EXPECT_EQ(*counter->operator->()->Add(1), 3);
  EXPECT_EQ(*from_server->Add(1), 4);

  // Asked for at the node where it is to go: passed on to its host.
  const auto back = client_->Move({counter->rid()}, Id(*client_));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(Hosts(*client_, counter->rid()));
  EXPECT_EQ(*counter->operator->()->Add(1), 5);
  EXPECT_EQ(*from_server->Add(1), 6);

  // Home and host hear of both, once, in the order in which the news reaches them.
  ASSERT_TRUE(at_client.Await(2));
  ASSERT_TRUE(at_server.Await(2));
  for (const MoveLog* log : {&at_client, &at_server}) {
    const std::vector<MoveEvent> events = log->events();
    std::vector<NodeId> targets;
    for (const MoveEvent& event : events) {
      targets.push_back(event.to);
      EXPECT_TRUE(event.status.ok()) << event.status;
    }
    EXPECT_THAT(targets, UnorderedElementsAre(Id(*server_), Id(*client_)));
  }
}

TEST_F(NodeTest, MoveAskedForByAThirdNodeFollowsTheObject) {
  StartPair();
  auto third = Start(ClientOptions("d", *server_));
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(counter.ok());
  ASSERT_TRUE(client_->Move({counter->rid()}, Id(*server_)).ok());
  const auto moved = third->Move({counter->rid()}, Id(*third));
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->from, Id(*server_));
  EXPECT_TRUE(Hosts(*third, counter->rid()));
  EXPECT_EQ(*counter->operator->()->Add(1), 1);
}

TEST_F(NodeTest, MoveToWhereTheObjectIsSucceedsWithoutOne) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const auto event = server_->Move({counter->rid()}, Id(*client_));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->from, event->to);
  EXPECT_EQ(client_->migrator().Counters().begun, 0u);
}

TEST_F(NodeTest, MoveThatCannotBeSaysWhy) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const auto feed = server_->Create<Feed>();
  const auto no_node = client_->Move({counter->rid()}, 12345);
  EXPECT_TRUE(absl::IsNotFound(no_node.status())) << no_node.status();
  EXPECT_THAT(Message(no_node.status()), HasSubstr(absl::StrCat("s (", Id(*server_), ")")));
  const auto anchored = client_->Move({feed->rid()}, Id(*client_));
  EXPECT_TRUE(absl::IsFailedPrecondition(anchored.status())) << anchored.status();
  for (const Rid& none : {Rid{client_->instance(), 999}, Rid{server_->instance(), 999}}) {
    const auto unknown = client_->Move({none}, Id(*server_));
    EXPECT_EQ(KindOf(unknown.status()), ErrorKind::kObjectNotFound) << unknown.status();
  }
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Move({}, Id(*server_)).status()));
  EXPECT_EQ(*counter->operator->()->Add(1), 1);
}

// -- pins, and who goes first -------------------------------------------------------------------

TEST_F(NodeTest, PinnedObjectIsLeftAloneByTheEngineUntilItIsUnpinned) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const Rid rid = counter->rid();
  // Asked for at the server, kept at the home, which is the client.
  const absl::Status pinned = server_->Pin(rid, Id(*server_));
  ASSERT_TRUE(pinned.ok()) << pinned;
  EXPECT_TRUE(Hosts(*server_, rid));
  const absl::Status refused = MoveByEngine(*server_, rid, Id(*client_));
  EXPECT_EQ(KindOf(refused), ErrorKind::kMoveCancelled) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("pinned"));
  EXPECT_TRUE(Hosts(*server_, rid));
  ASSERT_TRUE(server_->Unpin(rid).ok());
  const absl::Status moved = MoveByEngine(*server_, rid, Id(*client_));
  EXPECT_TRUE(moved.ok()) << moved;
  EXPECT_TRUE(Hosts(*client_, rid));
}

// The digest that the engine decides on may be of before it was said.
TEST_F(NodeTest, WhereAnObjectIsNotAllowedTheEngineDoesNotMoveItWhateverItDecidedBefore) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const Rid rid = counter->rid();
  ASSERT_TRUE(server_->Allow(rid, {Id(*client_)}).ok());
  const absl::Status refused = MoveByEngine(*client_, rid, Id(*server_));
  EXPECT_EQ(KindOf(refused), ErrorKind::kMoveCancelled) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("not allowed on node"));
  EXPECT_TRUE(Hosts(*client_, rid));
  ASSERT_TRUE(server_->Allow(rid, {Id(*client_), Id(*server_)}).ok());
  EXPECT_TRUE(MoveByEngine(*client_, rid, Id(*server_)).ok());
  EXPECT_TRUE(Hosts(*server_, rid));
}

TEST_F(NodeTest, ObjectMovedByHandIsLeftAloneByTheEngineUntilItIsUnpinned) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const Rid rid = counter->rid();
  ASSERT_TRUE(client_->Move({rid}, Id(*server_)).ok());
  const absl::Status refused = MoveByEngine(*server_, rid, Id(*client_));
  EXPECT_EQ(KindOf(refused), ErrorKind::kMoveCancelled) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("moved by hand"));
  ASSERT_TRUE(client_->Unpin(rid).ok());
  EXPECT_TRUE(MoveByEngine(*server_, rid, Id(*client_)).ok());
}

TEST_F(NodeTest, HoldOfAMoveByHandEndsByItself) {
  server_ = Start(ServerOptions("s"));
  NodeOptions options = ClientOptions("c", *server_);
  options.config.migration.hand_move_hold = absl::Milliseconds(1);
  client_ = Start(options);
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(client_->Move({counter->rid()}, Id(*server_)).ok());
  EXPECT_TRUE(
      Eventually([&] { return MoveByEngine(*server_, counter->rid(), Id(*client_)).ok(); }));
}

TEST_F(NodeTest, EnginesMoveOfAnObjectThatIsElsewhereIsNotPassedOn) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  const absl::Status status = MoveByEngine(*server_, counter->rid(), Id(*server_));
  EXPECT_EQ(KindOf(status), ErrorKind::kObjectNotFound) << status;
  EXPECT_TRUE(Hosts(*client_, counter->rid()));
}

TEST_F(NodeTest, MoveByHandWaitsForTheEnginesMoveAndFollows) {
  server_ = Start(ServerOptions("s"));
  NodeOptions options = ClientOptions("c", *server_);
  options.points = &points_;
  client_ = Start(options);
  const auto counter = client_->Create<Counter>();
  const Rid rid = counter->rid();
  points_.Hold("move:drained", 1);
  absl::Status by_engine;
  std::thread engine([&] { by_engine = MoveByEngine(*client_, rid, Id(*server_)); });
  ASSERT_TRUE(points_.AwaitHeld("move:drained"));
  absl::StatusOr<MoveEvent> by_hand;
  std::thread hand([&] { by_hand = client_->Move({rid}, Id(*client_)); });
  // The hand's command is not refused; whether it waits already or comes later makes no difference.
  points_.ReleaseAll();
  engine.join();
  hand.join();
  EXPECT_TRUE(by_engine.ok()) << by_engine;
  ASSERT_TRUE(by_hand.ok()) << by_hand.status();
  EXPECT_EQ(*counter->operator->()->Add(1), 1);
}

TEST_F(NodeTest, PinOfAnObjectThatDoesNotExistIsNotFound) {
  StartPair();
  for (Node* node : {server_.get(), client_.get()}) {
    const absl::Status status = node->Pin(Rid{client_->instance(), 999}, 0);
    EXPECT_EQ(KindOf(status), ErrorKind::kObjectNotFound) << status;
  }
  const absl::Status dead = client_->Pin(Rid{{77, 1}, 1}, 0);
  EXPECT_EQ(KindOf(dead), ErrorKind::kNodeUnreachable) << dead;
}

// -- names --------------------------------------------------------------------------------------

TEST_F(NodeTest, LookupFindsWhatWasPublishedBeforeAndAfterTheJoin) {
  server_ = Start(ServerOptions("s"));
  const auto early = server_->Create<Counter>();
  server_->Publish("early", early->rid());
  client_ = Start(ClientOptions("c", *server_));
  const auto late = server_->Create<Counter>();
  server_->Publish("late", late->rid());
  EXPECT_EQ(*client_->Lookup("early"), early->rid());
  EXPECT_EQ(*client_->Lookup("late"), late->rid());
  EXPECT_EQ(*server_->Lookup("late"), late->rid());
  const auto none = client_->Lookup("none");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(Message(none.status()), HasSubstr("early, late"));
  EXPECT_EQ(*client_->binding().RefTo<Counter>(*client_->Lookup("early"))->Add(3), 3);
}

// -- introspection ------------------------------------------------------------------------------

TEST_F(NodeTest, StatusShowsMembersObjectsMovesAndCounters) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  ASSERT_TRUE(client_->Move({counter->rid()}, Id(*server_)).ok());
  ASSERT_TRUE(counter->operator->()->Add(1).ok());
  ControlClient control(server_->control_address());
  absl::StatusOr<NodeReport> report;
  // The client's digest, and with it its pin, comes by itself.
  ASSERT_TRUE(Eventually([&] {
    report = control.GetStatus(100, kAsk);
    if (!report.ok() || report->members.size() != 2 || !report->members[1].measured) return false;
    if (report->moves.empty()) return false;  // told by itself, too
    for (const auto& object : report->objects) {
      if (object.rid == counter->rid() && object.pinned) return true;
    }
    return false;
  })) << report.status();
  EXPECT_EQ(report->self.name, "s");
  // A machine may lack what the monitor would like to read.
  EXPECT_THAT(report->health,
              ::testing::AnyOf(::testing::StartsWith("OK"), ::testing::StartsWith("the monitor")));
  EXPECT_EQ(report->members[0].info.name, "s");
  EXPECT_EQ(report->members[1].info.name, "c");
  EXPECT_GT(report->members[1].statistics.rate, 0);
  for (const auto& object : report->objects) {
    if (object.rid != counter->rid()) continue;
    EXPECT_EQ(object.class_name, "test.Counter");
    EXPECT_EQ(object.node, Id(*server_));
    EXPECT_TRUE(object.mobile);
    EXPECT_THAT(object.pinned_reason, HasSubstr("moved by hand"));
  }
  ASSERT_EQ(report->moves.size(), 1u);
  EXPECT_EQ(report->moves[0].event.from_name, "c");
  EXPECT_EQ(report->moves[0].event.reason, "by hand");
  uint64_t executed = 0;
  for (const auto& one : report->counters) {
    if (one.name == "calls.executed") executed = one.value;
  }
  EXPECT_GE(executed, 1u);
  EXPECT_TRUE(control.GetStatus(0, kAsk)->objects.empty());
}

TEST_F(NodeTest, ExplainOfAnObjectWithoutDecisionsIsNotFoundAtBothKindsOfNode) {
  StartPair();
  const auto counter = client_->Create<Counter>();
  for (const Node* node : {server_.get(), client_.get()}) {
    const auto decisions = ControlClient(node->control_address()).Explain(counter->rid(), 5, kAsk);
    EXPECT_TRUE(absl::IsNotFound(decisions.status())) << decisions.status();
  }
}

TEST_F(NodeTest, DigestOfANodeThatHasNotJoinedIsRefused) {
  StartPair();
  Digest digest;
  digest.from = {1u << 30, 5};
  EXPECT_FALSE(ControlClient(server_->control_address()).SendDigest(digest, kAsk).ok());
  EXPECT_FALSE(ControlClient(client_->control_address()).SendDigest(digest, kAsk).ok());
}

}  // namespace
}  // namespace abacus::runtime
