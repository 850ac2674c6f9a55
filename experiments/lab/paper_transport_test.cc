#include "experiments/lab/paper_transport.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/lab/paper_node.h"
#include "runtime/transport/frame.h"

namespace abacus::lab {
namespace {

using runtime::Frame;
using runtime::Lane;
using runtime::NodeInstance;

absl::Duration ThreadCpu() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

Frame FrameOf(size_t bytes) {
  Frame frame{.type = 1};
  frame.payload.blocks.push_back(runtime::Block::FromString(std::string(bytes, 'x')));
  return frame;
}

// The header's worked examples.
TEST(PaperNodeTest, CostsAreThoseOfTheArithmetic) {
  const Cost empty = CostOf(0), block = CostOf(8192);
  EXPECT_EQ(empty.at_paper, absl::Microseconds(200));
  EXPECT_EQ(empty.cpu, absl::ZeroDuration());  // 200 us x 0.12 - 24 us
  EXPECT_NEAR(absl::ToDoubleNanoseconds(CostOf(1 << 20).cpu), (1 << 20) * 1.9, 1);
  EXPECT_EQ(block.at_paper - empty.at_paper, absl::Nanoseconds(8192 * 35));
  EXPECT_NEAR(absl::ToDoubleNanoseconds(block.cpu - empty.cpu), 8192 * (35 * 0.12 - kOwnByteNs), 1);
  EXPECT_EQ(ParityCostOf(3 * 32768).at_paper, absl::Microseconds(983.04));
  EXPECT_EQ(ParityCostOf(100'000'000).at_paper, absl::Seconds(1));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(ParityCostOf(100'000'000).cpu), 120, 1e-6);
  // A null call: two frames a side.
  EXPECT_EQ(2 * empty.at_paper, absl::Milliseconds(0.4));
}

constexpr int kAttempts = 20;

TEST(ProcessorTest, WorkTakesItsTimeAtTheNodesShareAndItsProcessorTime) {
  Processor node(kShare), slow(kShare / 2);
  EXPECT_EQ(Processor::TimeOf(absl::Milliseconds(3), kShare), absl::Milliseconds(3));
  EXPECT_EQ(Processor::TimeOf(absl::Milliseconds(3), kShare / 2), absl::Milliseconds(6));
  for (Processor* processor : {&node, &slow}) {
    absl::Duration least = absl::InfiniteDuration();  // a hypervisor's theft may be in the others
    for (int i = 0; i < kAttempts && least >= absl::Milliseconds(4); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const absl::Duration cpu = ThreadCpu();
      processor->Do({.at_paper = absl::Milliseconds(20), .cpu = absl::Milliseconds(2)});
      const absl::Duration spent = ThreadCpu() - cpu;
      const absl::Duration took = absl::FromChrono(std::chrono::steady_clock::now() - begin);
      EXPECT_GE(took, absl::Milliseconds(processor == &node ? 20 : 40));
      EXPECT_GE(spent, absl::Milliseconds(2));
      least = std::min(least, spent);
    }
    EXPECT_LT(least, absl::Milliseconds(4));
  }
}

// On a machine that takes twice the CPU time a node has twice the share, and is as fast.
TEST(ProcessorTest, OnASlowerMachineWorkTakesMoreOfItAndItsTime) {
  absl::Duration least = absl::InfiniteDuration();
  for (int i = 0; i < kAttempts && least >= absl::Milliseconds(40); ++i) {
    Processor node(2 * kShare, /*machine=*/2);
    const auto begin = std::chrono::steady_clock::now();
    const absl::Duration cpu = ThreadCpu();
    node.Do({.at_paper = absl::Milliseconds(20), .cpu = absl::Milliseconds(2)});
    EXPECT_GE(ThreadCpu() - cpu, absl::Milliseconds(4));
    EXPECT_EQ(node.cpu(), absl::Milliseconds(4));
    const absl::Duration took = absl::FromChrono(std::chrono::steady_clock::now() - begin);
    EXPECT_GE(took, absl::Milliseconds(20));
    least = std::min(least, took);
  }
  EXPECT_LT(least, absl::Milliseconds(40));
}

TEST(ProcessorTest, ThreadsWorkOneAfterTheOther) {
  Processor node(kShare);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&node] { node.Do({.at_paper = absl::Milliseconds(10), .cpu = {}}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(absl::FromChrono(std::chrono::steady_clock::now() - begin), absl::Milliseconds(40));
}

// Sleeping costs more CPU time than such work, so it is waited for in pieces, and in the mean none
// of it is missing.
TEST(ProcessorTest, SmallWorkIsMadeUpInPiecesAndTakesWhatItShouldInTheMean) {
  Processor node(kShare);
  constexpr int kTimes = 300;
  const absl::Duration small = absl::Microseconds(100);
  const auto begin = std::chrono::steady_clock::now();
  int waited = 0;
  for (int i = 0; i < kTimes; ++i) {
    const auto one = std::chrono::steady_clock::now();
    node.Do({.at_paper = small, .cpu = {}});
    waited += absl::FromChrono(std::chrono::steady_clock::now() - one) > small / 2 ? 1 : 0;
  }
  const absl::Duration took = absl::FromChrono(std::chrono::steady_clock::now() - begin);
  EXPECT_GE(took, kTimes * small - Processor::kPiece);
  // A piece is three of these; a wait that was late makes the next one shorter, or spares it.
  EXPECT_LE(waited, kTimes / 3 + kTimes / 5) << "others are held up by this machine at times";
}

// Keeps what is sent, and lets a test receive.
class Wire final : public runtime::Transport {
 public:
  absl::Status Start(runtime::FrameHandler* to) override {
    handler = to;
    return absl::OkStatus();
  }
  void Stop() override {}
  void AddPeer(NodeInstance, const std::string&) override {}
  void RemovePeer(NodeInstance) override {}
  void Send(NodeInstance, Lane, Frame frame) override { sent.push_back(std::move(frame)); }
  void Wait(NodeInstance, runtime::Waiter&) override {}
  void HandOffReading() override {}
  std::string address() const override { return ""; }
  std::vector<runtime::PeerTraffic> Traffic() const override { return {}; }

  runtime::FrameHandler* handler = nullptr;
  std::vector<Frame> sent;
};

class Receiver final : public runtime::FrameHandler {
 public:
  void OnFrame(NodeInstance, Frame frame) override { received.push_back(std::move(frame)); }
  void OnReconnected(NodeInstance) override {}
  void OnPeerReplaced(NodeInstance) override {}

  std::vector<Frame> received;
};

TEST(PaperTransportTest, AFrameCostsItsSenderAndItsReceiverOnTheirThreads) {
  Processor processor(kShare);
  auto owned = std::make_unique<Wire>();
  Wire& wire = *owned;
  PaperTransport transport(std::move(owned), &processor);
  Receiver receiver;
  ASSERT_TRUE(transport.Start(&receiver).ok());
  const size_t bytes = 1 << 20;
  const absl::Duration cost = CostOf(runtime::FrameWireBytes(FrameOf(bytes))).cpu;
  EXPECT_GT(cost, absl::Milliseconds(1.9));  // 1,048,576 x 1.9 ns

  absl::Duration before = ThreadCpu();
  transport.Send({1, 1}, Lane::kRequest, FrameOf(bytes));
  EXPECT_GE(ThreadCpu() - before, cost);
  ASSERT_EQ(wire.sent.size(), 1u);
  EXPECT_EQ(wire.sent[0].payload.bytes(), bytes);

  before = ThreadCpu();
  wire.handler->OnFrame({1, 1}, FrameOf(bytes));
  EXPECT_GE(ThreadCpu() - before, cost);
  ASSERT_EQ(receiver.received.size(), 1u);
  EXPECT_EQ(receiver.received[0].payload.bytes(), bytes);
  EXPECT_NEAR(absl::ToDoubleNanoseconds(processor.cpu()), absl::ToDoubleNanoseconds(2 * cost), 2);
}

}  // namespace
}  // namespace abacus::lab
