// Peers that do not keep to the protocol: each is refused with a typed error, and the node goes on
// serving the others.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/socket_transport.h"
#include "runtime/transport/testing/raw_socket.h"
#include "runtime/transport/testing/test_node.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kClient{1, 10};
constexpr NodeInstance kServer{2, 20};
constexpr NodeInstance kRogue{3, 30};

std::string Wire(const Frame& frame) {
  FrameGather gather(frame);
  std::string wire;
  while (gather.left_bytes() > 0) {
    std::string_view part;
    gather.Next({&part, 1}, UINT64_MAX);
    wire += part;
    gather.Advance(part.size());
  }
  return wire;
}

std::string Greeting(NodeInstance sender, NodeInstance meant, std::string address = "") {
  return EncodeHello({.sender = sender, .meant = meant, .address = std::move(address)});
}

class RefusalTest : public testing::Test {
 protected:
  RefusalTest() {
    options_.self = kServer;
    options_.frame_bytes_max = 1 << 20;
    server_ = TestNode::Make(options_);
    SocketTransportOptions client_options;
    client_options.self = kClient;
    client_ = TestNode::Make(client_options);
    TestNode::Introduce(*client_, *server_);
    EXPECT_EQ(client_->Call(kServer, "before"), "before");
  }
  ~RefusalTest() override {
    // Whatever the rogue did, the others have not noticed.
    EXPECT_EQ(client_->Call(kServer, "after"), "after");
    EXPECT_EQ(client_->sockets().Counters().reconnects, 0u);
  }

  std::unique_ptr<RawSocket> Connect() {
    return std::make_unique<RawSocket>(RawSocket::ConnectTo(server_->transport().address()));
  }
  // A connection that has been welcomed.
  std::unique_ptr<RawSocket> Greet() {
    auto rogue = Connect();
    rogue->Send(Greeting(kRogue, kServer));
    EXPECT_EQ(ReceiveHello(*rogue).verdict, HelloVerdict::kWelcome);
    return rogue;
  }
  static Hello ReceiveHello(RawSocket& socket) {
    Hello hello;
    std::string bytes = socket.Receive(8);
    uint16_t rest = 0;
    EXPECT_EQ(bytes.size(), 8u);
    if (bytes.size() == 8) std::memcpy(&rest, bytes.data() + 6, sizeof rest);
    bytes += socket.Receive(rest);
    const auto taken = ParseHello(bytes, &hello);
    EXPECT_TRUE(taken.ok() && *taken == bytes.size());
    return hello;
  }
  SocketTransportCounters Counters() { return server_->sockets().Counters(); }
  // A connection is counted just after its end shows.
  void ExpectCounted(uint64_t SocketTransportCounters::*counter) {
    while (Counters().*counter == 0) std::this_thread::yield();
    EXPECT_EQ(Counters().*counter, 1u);
  }

  SocketTransportOptions options_;
  std::unique_ptr<TestNode> server_;
  std::unique_ptr<TestNode> client_;
};

TEST_F(RefusalTest, GarbageInsteadOfAHelloIsClosed) {
  auto rogue = Connect();
  rogue->Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::bad_streams);
}

TEST_F(RefusalTest, DamagedHelloIsClosed) {
  auto rogue = Connect();
  std::string hello = Greeting(kRogue, kServer);
  hello[14] = static_cast<char>(hello[14] ^ 4);
  rogue->Send(hello);
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::bad_streams);
}

TEST_F(RefusalTest, HelloThatComesByteByByteIsWelcomed) {
  auto rogue = Connect();
  for (const char c : Greeting(kRogue, kServer)) rogue->Send({&c, 1});
  EXPECT_EQ(ReceiveHello(*rogue).verdict, HelloVerdict::kWelcome);
}

TEST_F(RefusalTest, OtherWireVersionIsToldWhatWeSpeak) {
  auto rogue = Connect();
  std::string hello = Greeting(kRogue, kServer);
  hello[4] = 9;
  rogue->Send(hello);
  const Hello answer = ReceiveHello(*rogue);  // parses: so it carries our version
  EXPECT_EQ(answer.verdict, HelloVerdict::kOtherVersion);
  EXPECT_EQ(answer.sender, kServer);
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::refused_versions);
}

TEST_F(RefusalTest, AnswerOfAnotherWireVersionIsATypedErrorOfThatPeer) {
  RawListener listener;
  std::thread rogue([&listener] {
    RawSocket socket(listener.Accept());
    ReceiveHello(socket);
    std::string answer = EncodeHello({.verdict = HelloVerdict::kOtherVersion, .sender = kRogue});
    answer[4] = 9;
    socket.Send(answer);
    EXPECT_TRUE(socket.AwaitClosed());
  });
  client_->transport().AddPeer(kRogue, listener.address());
  client_->transport().Send(kRogue, Lane::kRequest, {.type = TestNode::kOneWay});
  rogue.join();
  const absl::Status status = client_->sockets().PeerStatus(kRogue);
  EXPECT_EQ(KindOf(status), ErrorKind::kVersionMismatch);
  EXPECT_NE(std::string(status.message()).find("9"), std::string::npos) << status.ToString();
  EXPECT_EQ(client_->sockets().Counters().lost_frames, 1u);
  client_->transport().RemovePeer(kRogue);
}

TEST_F(RefusalTest, CallMeantForAnotherIncarnationIsAnsweredWithOurs) {
  auto rogue = Connect();
  rogue->Send(Greeting(kRogue, {kServer.node, kServer.incarnation - 1}));
  const Hello answer = ReceiveHello(*rogue);
  EXPECT_EQ(answer.verdict, HelloVerdict::kOtherInstance);
  EXPECT_EQ(answer.sender, kServer);
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::refused_instances);
}

TEST_F(RefusalTest, LaterIncarnationThatAnswersReplacesThePeer) {
  const NodeInstance before{kServer.node, kServer.incarnation - 1};
  client_->transport().AddPeer(before, server_->transport().address());
  client_->transport().Send(before, Lane::kRequest, {.type = TestNode::kOneWay});
  EXPECT_TRUE(client_->AwaitReplaced(before));
  EXPECT_EQ(KindOf(client_->sockets().PeerStatus(before)), ErrorKind::kNodeUnreachable);
}

TEST_F(RefusalTest, LaterIncarnationThatCallsReplacesThePeerAndTheEarlierIsFenced) {
  const NodeInstance later{kRogue.node, kRogue.incarnation + 1};
  auto rogue = Greet();
  auto next = Connect();
  next->Send(Greeting(later, kServer));
  EXPECT_EQ(ReceiveHello(*next).verdict, HelloVerdict::kWelcome);
  EXPECT_TRUE(server_->AwaitReplaced(kRogue));
  EXPECT_TRUE(rogue->AwaitClosed());

  auto ghost = Connect();
  ghost->Send(Greeting(kRogue, kServer));
  EXPECT_EQ(ReceiveHello(*ghost).verdict, HelloVerdict::kFenced);
  EXPECT_TRUE(ghost->AwaitClosed());
}

TEST_F(RefusalTest, OtherNodeAtTheAddressIsUnreachableAndNotReplaced) {
  client_->transport().AddPeer(kRogue, server_->transport().address());
  client_->transport().Send(kRogue, Lane::kRequest, {.type = TestNode::kOneWay});
  const absl::Status status = client_->sockets().PeerStatus(kRogue);
  EXPECT_EQ(KindOf(status), ErrorKind::kNodeUnreachable);
  EXPECT_NE(std::string(status.message()).find(kServer.ToString()), std::string::npos);
  client_->transport().RemovePeer(kRogue);
}

TEST_F(RefusalTest, GarbageInsteadOfAFrameIsClosed) {
  auto rogue = Greet();
  rogue->Send(std::string(1000, 'g'));
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::bad_streams);
}

TEST_F(RefusalTest, DamagedFrameIsNotDeliveredAndClosed) {
  bool delivered = false;
  server_->set_take_one_way([&](NodeInstance, Frame) { delivered = true; });
  auto rogue = Greet();
  std::string wire = Wire({.type = TestNode::kOneWay, .payload = {.inline_bytes = "arguments"}});
  wire.back() = static_cast<char>(wire.back() ^ 1);
  rogue->Send(wire);
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::bad_streams);
  EXPECT_FALSE(delivered);
}

TEST_F(RefusalTest, FrameOfAnotherWireVersionIsClosed) {
  auto rogue = Greet();
  std::string wire = Wire({.type = TestNode::kOneWay});
  wire[4] = 9;
  rogue->Send(wire);
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::refused_versions);
}

TEST_F(RefusalTest, OversizedFrameIsClosedBeforeItsBytesAreTaken) {
  auto rogue = Greet();
  const std::string wire = Wire({.payload = {.blocks = {Block::Allocate(2 << 20)}}});
  rogue->Send(std::string_view(wire).substr(0, kFrameHeaderBytes));
  EXPECT_TRUE(rogue->AwaitClosed());
  ExpectCounted(&SocketTransportCounters::bad_streams);
}

TEST_F(RefusalTest, OversizedFrameOfOurOwnIsNotSentAndTheConnectionLives) {
  server_->transport().Send(kClient, Lane::kBulk,
                            {.payload = {.blocks = {Block::Allocate(2 << 20)}}});
  EXPECT_EQ(Counters().oversized_frames, 1u);
  EXPECT_EQ(Counters().lost_frames, 1u);
}

TEST_F(RefusalTest, FrameCutShortByAHangUpIsCounted) {
  auto rogue = Greet();
  const std::string wire = Wire({.payload = {.inline_bytes = std::string(500, 'x')}});
  rogue->Send(std::string_view(wire).substr(0, 300));
  rogue->Close();
  ExpectCounted(&SocketTransportCounters::bad_streams);
}

TEST_F(RefusalTest, HangUpBetweenFramesIsNoError) {
  auto rogue = Greet();
  rogue->Close();
  ExpectCounted(&SocketTransportCounters::cut_connections);
  EXPECT_EQ(Counters().bad_streams, 0u);
}

TEST_F(RefusalTest, SilentPeerDoesNotHoldUpADialForEver) {
  RawListener listener;  // never answers the hello
  SocketTransportOptions options;
  options.self = {9, 9};
  options.dial_timeout = absl::Milliseconds(300);
  const auto node = TestNode::Make(options);
  node->transport().AddPeer(kRogue, listener.address());
  node->transport().Send(kRogue, Lane::kRequest, {.type = TestNode::kOneWay});
  EXPECT_EQ(KindOf(node->sockets().PeerStatus(kRogue)), ErrorKind::kNodeUnreachable);
  // Those after the first lose their frames at once.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {
    node->transport().Send(kRogue, Lane::kRequest, {.type = TestNode::kOneWay});
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("ten sends took %.3f s; waiting for each would take 3 s\n", took.count());
  EXPECT_LT(took.count(), 1.5);
  EXPECT_EQ(node->sockets().Counters().lost_frames, 11u);
}

TEST_F(RefusalTest, StateTooLargeForMemoryIsReceivedIntoFiles) {
  SocketTransportOptions options;
  options.self = {5, 50};
  options.bulk_memory_bytes_max = 100'000;
  options.spill_directory = testing::TempDir();
  const auto node = TestNode::Make(options);
  TestNode::Introduce(*client_, *node);
  const std::string state(20 << 20, 's');
  const Payload reply = client_->Call({5, 50}, {.blocks = {Block::CopyOf(state)}}, Lane::kBulk);
  ASSERT_EQ(reply.blocks.size(), 1u);
  EXPECT_TRUE(reply.blocks[0].view() == state);
  EXPECT_EQ(node->sockets().Counters().spill_failures, 0u);
}

TEST_F(RefusalTest, SpillDirectoryThatTakesNothingIsCountedAndTheStateArrives) {
  SocketTransportOptions options;
  options.self = {5, 50};
  options.bulk_memory_bytes_max = 100'000;
  options.spill_directory = "/nowhere";
  const auto node = TestNode::Make(options);
  TestNode::Introduce(*client_, *node);
  const std::string state(200'000, 's');
  const Payload reply = client_->Call({5, 50}, {.blocks = {Block::CopyOf(state)}}, Lane::kBulk);
  ASSERT_EQ(reply.blocks.size(), 1u);
  EXPECT_TRUE(reply.blocks[0].view() == state);
  EXPECT_EQ(node->sockets().Counters().spill_failures, 1u);
}

TEST(RateLimitTest, FramesTakeTheTimeOfTheirRate) {
  SocketTransportOptions options;
  options.self = kServer;
  options.rate_limit_mbit = 40;
  const auto server = TestNode::Make(options);
  options.self = kClient;
  const auto client = TestNode::Make(options);
  TestNode::Introduce(*client, *server);
  client->Call(kServer, "connect");
  const auto start = std::chrono::steady_clock::now();
  constexpr int kCalls = 4;
  for (int i = 0; i < kCalls; ++i) {
    client->Call(kServer, {.blocks = {Block::Allocate(250'000)}});  // there, and back
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  // 4 x 2 x 2 Mbit at 40 Mbit/s.
  std::printf("took %.3f s\n", took.count());
  EXPECT_GT(took.count(), 0.4 / 2);
}

}  // namespace
}  // namespace abacus::runtime
