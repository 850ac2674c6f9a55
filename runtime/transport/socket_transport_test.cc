#include "runtime/transport/socket_transport.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/testing/test_node.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kClient{1, 10};
constexpr NodeInstance kServer{2, 20};

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Bytes that tell where they are.
Block Pattern(size_t bytes, uint32_t seed) {
  Block block = Block::Allocate(bytes);
  uint32_t x = seed * 2654435761u + 1;
  for (size_t i = 0; i < bytes; ++i) {
    x = x * 1664525u + 1013904223u;
    block.mutable_data()[i] = static_cast<char>(x >> 24);
  }
  return block;
}

uint64_t SentBytes(TestNode& node, NodeInstance to) {
  for (const PeerTraffic& traffic : node.transport().Traffic()) {
    if (traffic.peer == to) return traffic.sent_bytes;
  }
  return 0;
}

// Both ends over TCP or a unix socket.
class SocketTransportTest : public testing::TestWithParam<bool> {
 protected:
  SocketTransportOptions Options(NodeInstance self) {
    SocketTransportOptions options;
    options.self = self;
    if (GetParam()) {
      options.listen_address = "unix:" + testing::TempDir() + "abacus-" + std::to_string(getpid()) +
                               "-" + self.ToString() + ".sock";
    }
    return options;
  }
  void MakeNodes(TestNode::Serve serve = {}) {
    client_ = TestNode::Make(Options(kClient));
    server_ = TestNode::Make(Options(kServer), std::move(serve));
    TestNode::Introduce(*client_, *server_);
  }

  // Ends the handlers that see the test's own variables.
  void StopNodes() {
    client_ = nullptr;
    server_ = nullptr;
  }

  std::unique_ptr<TestNode> client_;
  std::unique_ptr<TestNode> server_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, SocketTransportTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Unix" : "Tcp"; });

TEST_P(SocketTransportTest, CallReturnsTheReplyInBothDirections) {
  MakeNodes();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(client_->Call(kServer, "to the server " + std::to_string(i)),
              "to the server " + std::to_string(i));
    EXPECT_EQ(server_->Call(kClient, "back"), "back");
  }
}

TEST_P(SocketTransportTest, CallByAStrangerIsAnsweredWithoutAddPeer) {
  client_ = TestNode::Make(Options(kClient));
  server_ = TestNode::Make(Options(kServer));
  client_->transport().AddPeer(kServer, server_->transport().address());
  EXPECT_EQ(client_->Call(kServer, "who am I"), "who am I");
  // Its hello said where it is.
  EXPECT_EQ(server_->Call(kClient, "I know you"), "I know you");
}

TEST_P(SocketTransportTest, ReplyLaneWithoutTheirConnectionGoesOnOurOwn) {
  MakeNodes();
  Latch arrived;
  server_->set_take_one_way([&arrived](NodeInstance from, Frame) {
    EXPECT_EQ(from, kClient);
    arrived.Open();
  });
  client_->transport().Send(kServer, Lane::kReply, {.type = TestNode::kOneWay});
  EXPECT_TRUE(arrived.Await());
  StopNodes();
}

TEST_P(SocketTransportTest, LargeFramesArriveWholeInBothDirections) {
  MakeNodes();
  std::vector<Block> blocks;
  for (const size_t bytes : {1u << 20, 1024u, 0u, 3u << 20, 70000u, 12u << 20, 1u}) {
    blocks.push_back(Pattern(bytes, static_cast<uint32_t>(bytes)));
  }
  for (const Lane lane : {Lane::kRequest, Lane::kBulk}) {
    const Payload reply =
        client_->Call(kServer, {.inline_bytes = std::string(300000, 'x'), .blocks = blocks}, lane);
    EXPECT_EQ(reply.inline_bytes, std::string(300000, 'x'));
    ASSERT_EQ(reply.blocks.size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(reply.blocks[i] == blocks[i]) << i;
  }
}

TEST_P(SocketTransportTest, ManyCallersAtOnceGetTheirOwnReplies) {
  MakeNodes();
  constexpr int kCallers = 64;
  constexpr int kCalls = 50;
  std::atomic<int> right{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < kCalls; ++call) {
        const std::string text = std::to_string(caller) + "." + std::to_string(call) +
                                 std::string(static_cast<size_t>(caller) * 40, '-');
        right += client_->Call(kServer, text) == text;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right, kCallers * kCalls);
}

TEST_P(SocketTransportTest, ServerCallsBackWhileTheFirstCallIsOpen) {
  MakeNodes([this](NodeInstance from, const Payload& request) -> Payload {
    const std::string& depth = request.inline_bytes;
    return {.inline_bytes = depth + server_->Call(from, depth)};
  });
  EXPECT_EQ(client_->Call(kServer, "deep"), "deepdeep");
}

TEST_P(SocketTransportTest, CallsNestManyLevelsDeepInBothNodes) {
  client_ = TestNode::Make(Options(kClient), [this](NodeInstance from, const Payload& request) {
    const int left = std::stoi(request.inline_bytes);
    if (left == 0) return Payload{.inline_bytes = "."};
    return Payload{.inline_bytes = "c" + client_->Call(from, std::to_string(left - 1))};
  });
  server_ = TestNode::Make(Options(kServer), [this](NodeInstance from, const Payload& request) {
    const int left = std::stoi(request.inline_bytes);
    if (left == 0) return Payload{.inline_bytes = "."};
    return Payload{.inline_bytes = "s" + server_->Call(from, std::to_string(left - 1))};
  });
  TestNode::Introduce(*client_, *server_);
  const std::string reply = client_->Call(kServer, "64");
  EXPECT_EQ(reply.size(), 65u);
  EXPECT_EQ(reply.substr(0, 4), "scsc");
}

TEST_P(SocketTransportTest, HandOffReadingLetsTheNextRequestRun) {
  Latch first_runs, second_ran;
  MakeNodes([&](NodeInstance, const Payload& request) -> Payload {
    if (request.inline_bytes == "first") {
      server_->transport().HandOffReading();
      server_->transport().HandOffReading();  // costs nothing
      first_runs.Open();
      return {.inline_bytes = second_ran.Await() ? "met" : "missed"};
    }
    second_ran.Open();
    return {};
  });
  std::thread first([this] { EXPECT_EQ(client_->Call(kServer, "first"), "met"); });
  EXPECT_TRUE(first_runs.Await());
  client_->Call(kServer, "second");
  first.join();
}

TEST_P(SocketTransportTest, HandOffReadingPassesOnFramesThatHaveBeenReadAlready) {
  std::atomic<int> inside{0};
  constexpr int kFrames = 12;
  Latch all_inside;
  MakeNodes();
  server_->set_take_one_way([&](NodeInstance, Frame) {
    server_->transport().HandOffReading();
    if (++inside == kFrames) all_inside.Open();
    EXPECT_TRUE(all_inside.Await());
  });
  // So small and quick that one read takes several of them.
  for (int i = 0; i < kFrames; ++i) {
    client_->transport().Send(kServer, Lane::kRequest, {.type = TestNode::kOneWay});
  }
  EXPECT_TRUE(all_inside.Await());
  StopNodes();
}

TEST_P(SocketTransportTest, BackPressureBlocksTheSenderAndLosesNothing) {
  MakeNodes();
  constexpr int kFrames = 64;
  constexpr size_t kBytes = 1 << 20;  // together far more than sockets buffer
  Latch gate, all;
  int received = 0;
  server_->set_take_one_way([&](NodeInstance, Frame frame) {
    EXPECT_TRUE(gate.Await());
    int number = 0;
    std::memcpy(&number, frame.payload.inline_bytes.data(), sizeof number);
    EXPECT_EQ(number, received);
    EXPECT_EQ(frame.payload.blocks.at(0).size(), kBytes);
    if (++received == kFrames) all.Open();
  });
  std::atomic<bool> sent_all{false};
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) {
      client_->transport().Send(
          kServer, Lane::kBulk,
          {.type = TestNode::kOneWay,
           .payload = {.inline_bytes = std::string(reinterpret_cast<const char*>(&i), sizeof i),
                       .blocks = {Block::Allocate(kBytes)}}});
    }
    sent_all = true;
  });
  // Blocked: something was sent, and then nothing more for a while.
  uint64_t last = 0;
  auto since = std::chrono::steady_clock::now();
  while (last == 0 || std::chrono::steady_clock::now() - since < std::chrono::milliseconds(200)) {
    const uint64_t now = SentBytes(*client_, kServer);
    if (now != last) since = std::chrono::steady_clock::now();
    last = now;
    std::this_thread::yield();
  }
  EXPECT_FALSE(sent_all);
  EXPECT_LT(last, uint64_t{kFrames} * kBytes / 2);
  gate.Open();
  EXPECT_TRUE(all.Await());
  sender.join();
  EXPECT_EQ(client_->sockets().Counters().lost_frames, 0u);
  StopNodes();
}

TEST_P(SocketTransportTest, RequestsPassWhileABulkFrameIsUnderWay) {
  Latch gate;
  MakeNodes();
  server_->set_take_one_way([&](NodeInstance, Frame) { EXPECT_TRUE(gate.Await()); });
  std::thread sender([&] {
    for (int i = 0; i < 2; ++i) {
      client_->transport().Send(
          kServer, Lane::kBulk,
          {.type = TestNode::kOneWay, .payload = {.blocks = {Block::Allocate(32 << 20)}}});
    }
  });
  EXPECT_EQ(client_->Call(kServer, "not behind it"), "not behind it");
  gate.Open();
  sender.join();
  StopNodes();
}

TEST_P(SocketTransportTest, TrafficCountsEveryByteOfTheFrames) {
  MakeNodes();
  const Payload request{.inline_bytes = std::string(100, 'a'), .blocks = {Pattern(5000, 1)}};
  Payload on_the_wire = request;
  on_the_wire.inline_bytes.insert(0, 8, '\0');  // TestNode's number
  const uint64_t bytes = FrameWireBytes({.payload = on_the_wire});
  EXPECT_EQ(bytes, kFrameHeaderBytes + 8 + 108 + 5000);
  constexpr uint64_t kCalls = 10;
  for (uint64_t i = 0; i < kCalls; ++i) client_->Call(kServer, request);
  const auto at_client = client_->transport().Traffic();
  ASSERT_EQ(at_client.size(), 1u);
  EXPECT_EQ(at_client[0].peer, kServer);
  EXPECT_EQ(at_client[0].sent_frames, kCalls);
  EXPECT_EQ(at_client[0].received_frames, kCalls);
  EXPECT_EQ(at_client[0].sent_bytes, kCalls * bytes);
  EXPECT_EQ(at_client[0].received_bytes, kCalls * bytes);
}

TEST_P(SocketTransportTest, CutConnectionIsReportedAndTrafficResumes) {
  MakeNodes();
  for (int round = 1; round <= 5; ++round) {
    EXPECT_EQ(client_->Call(kServer, "before"), "before");
    client_->sockets().CutConnections(kServer);
    EXPECT_EQ(client_->Call(kServer, "after"), "after");
    EXPECT_TRUE(client_->AwaitReconnected(kServer, round));
  }
}

TEST_P(SocketTransportTest, CallThatIsOpenWhenTheServerCutsIsRepairedInTheBackground) {
  std::atomic<bool> first{true};
  MakeNodes([&](NodeInstance from, const Payload& request) {
    if (first.exchange(false)) {
      server_->transport().AddPeer(from, "unix:/nowhere");  // no other way for the reply
      server_->sockets().CutConnections(from);
    }
    return request;
  });
  EXPECT_EQ(client_->Call(kServer, "again"), "again");
  EXPECT_TRUE(client_->AwaitReconnected(kServer));
}

TEST_P(SocketTransportTest, CallsGoOnWhileConnectionsAreCutAllTheTime) {
  MakeNodes();
  std::atomic<bool> over{false};
  std::thread cutter([&] {
    while (!over) {
      client_->sockets().CutConnections(kServer);
      server_->sockets().CutConnections(kClient);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      const std::string text = "caller " + std::to_string(caller);
      while (!over) EXPECT_EQ(client_->Call(kServer, text), text);
    });
  }
  // Each costs a longer pause before the next attempt: eight take half a second.
  while (client_->sockets().Counters().cut_connections < 8) std::this_thread::yield();
  over = true;
  cutter.join();
  for (std::thread& caller : callers) caller.join();
}

TEST_P(SocketTransportTest, PeerThatStartsLateIsReachedOnceItIsThere) {
  client_ = TestNode::Make(Options(kClient));
  // An address that is free, because its owner is gone.
  server_ = TestNode::Make(Options(kServer));
  const std::string address = server_->transport().address();
  server_ = nullptr;
  client_->transport().AddPeer(kServer, address);
  std::thread caller([this] { EXPECT_EQ(client_->Call(kServer, "early"), "early"); });
  while (client_->sockets().Counters().lost_frames == 0) std::this_thread::yield();
  EXPECT_EQ(KindOf(client_->sockets().PeerStatus(kServer)), ErrorKind::kNodeUnreachable);
  SocketTransportOptions options = Options(kServer);
  options.listen_address = address;
  server_ = TestNode::Make(options);
  caller.join();
  EXPECT_TRUE(client_->AwaitReconnected(kServer));
  EXPECT_TRUE(client_->sockets().PeerStatus(kServer).ok());
}

TEST_P(SocketTransportTest, RemovedPeerIsRefusedUntilItIsAddedAgain) {
  MakeNodes();
  client_->Call(kServer, "known");
  server_->transport().RemovePeer(kClient);
  EXPECT_EQ(KindOf(server_->sockets().PeerStatus(kClient)), ErrorKind::kNodeFenced);
  std::thread caller([this] { client_->Call(kServer, "fenced"); });
  while (KindOf(client_->sockets().PeerStatus(kServer)) != ErrorKind::kNodeFenced) {
    std::this_thread::yield();
  }
  EXPECT_GE(server_->sockets().Counters().refused_instances, 1u);
  server_->transport().AddPeer(kClient, client_->transport().address());
  caller.join();
}

TEST_P(SocketTransportTest, WaiterThatIsCompletedByAnotherThreadReturnsAtOnce) {
  MakeNodes([this](NodeInstance, const Payload& request) -> Payload {
    if (request.inline_bytes == "connect") return {};
    client_->AbandonCalls();  // while the caller reads the connection
    return {};
  });
  client_->Call(kServer, "connect");
  for (int i = 0; i < 200; ++i) client_->Call(kServer, "abandon");
}

TEST_P(SocketTransportTest, StopWhileBusyJoinsAllAndLeavesNoDescriptor) {
  const size_t before = OpenDescriptors();
  MakeNodes();
  constexpr int kCallers = 8;
  std::atomic<bool> over{false};
  std::atomic<int> left{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      const Payload request{.blocks = {Pattern(caller % 2 ? 100'000 : 10, 1)}};
      while (!over) client_->Call(kServer, request);
      ++left;
    });
  }
  while (SentBytes(*client_, kServer) < (1 << 20)) std::this_thread::yield();
  server_->transport().Stop();
  client_->transport().Stop();
  client_->transport().Stop();  // idempotent
  over = true;
  while (left < kCallers) {  // one may begin another call before it looks at `over`
    client_->AbandonCalls();
    std::this_thread::yield();
  }
  for (std::thread& caller : callers) caller.join();
  StopNodes();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(SocketTransportTest, IdleThreadsStayFew) {
  MakeNodes();
  for (int i = 0; i < 200; ++i) client_->Call(kServer, "null");
  // Those of the option, the housekeeper, and one started at a hand-off at most.
  EXPECT_LE(client_->sockets().Threads(), 4u);
  EXPECT_LE(server_->sockets().Threads(), 4u);
}

TEST(SocketTransportOptionsTest, PortInUseIsNamedWithTheWayOut) {
  SocketTransportOptions options;
  options.self = kClient;
  const auto first = TestNode::Make(options);
  options.listen_address = first->transport().address();
  SocketTransport second(options);
  TestNode handler(std::make_unique<SocketTransport>(options));
  const absl::Status status = second.Start(&handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  const std::string message(status.message());
  EXPECT_NE(message.find(options.listen_address), std::string::npos) << message;
  EXPECT_NE(message.find("port 0 lets the system choose"), std::string::npos) << message;
}

TEST(SocketTransportOptionsTest, UnixSocketOfAKilledProcessIsTakenOver) {
  SocketTransportOptions options;
  options.self = kClient;
  const std::string path = testing::TempDir() + "abacus-stale-" + std::to_string(getpid());
  options.listen_address = "unix:" + path;
  auto first = TestNode::Make(options);
  SocketTransport second(options);
  EXPECT_EQ(second.Start(first.get()).code(), absl::StatusCode::kAlreadyExists);
  // What a killed process leaves: the file, and nobody behind it.
  std::filesystem::rename(path, path + ".kept");
  first = nullptr;
  std::filesystem::rename(path + ".kept", path);
  const auto third = TestNode::Make(options);
  EXPECT_EQ(third->transport().address(), options.listen_address);
}

TEST(SocketTransportOptionsTest, NonsenseIsRefusedByName) {
  SocketTransportOptions options;
  options.self = kClient;
  TestNode handler(std::make_unique<SocketTransport>(options));
  for (const std::string address :
       {"nowhere", "127.0.0.1:70000", "127.0.0.1:", "::1:80", "unix:"}) {
    options.listen_address = address;
    const absl::Status status = SocketTransport(options).Start(&handler);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_NE(std::string(status.message()).find(address), std::string::npos) << status.ToString();
  }
  options = {};
  EXPECT_EQ(SocketTransport(options).Start(&handler).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace abacus::runtime
