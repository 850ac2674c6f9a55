#include "runtime/transport/fault_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/socket_transport.h"
#include "runtime/transport/testing/test_node.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kSelf{1, 10};
constexpr NodeInstance kPeer{2, 20};

// Remembers what is sent, in order; frames to it come by Receive().
class RecordingTransport : public Transport {
 public:
  absl::Status Start(FrameHandler* handler) override {
    handler_ = handler;
    return absl::OkStatus();
  }
  void Stop() override {}
  void AddPeer(NodeInstance, const std::string&) override {}
  void RemovePeer(NodeInstance) override {}
  void Send(NodeInstance, Lane, Frame frame) override {
    MutexLock lock(mutex_);
    sent_.push_back(frame.type);
    changed_.SignalAll();
  }
  void Wait(NodeInstance, Waiter& waiter) override {
    while (!waiter.done()) waiter.Sleep(absl::InfiniteDuration());
  }
  void HandOffReading() override {}
  std::string address() const override { return "nowhere"; }
  std::vector<PeerTraffic> Traffic() const override { return {}; }

  void Receive(Frame frame) { handler_->OnFrame(kPeer, std::move(frame)); }
  std::vector<uint16_t> AwaitSent(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    MutexLock lock(mutex_);
    while (sent_.size() < count && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return sent_;
  }

 private:
  FrameHandler* handler_ = nullptr;
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint16_t> sent_ ABSL_GUARDED_BY(mutex_);
};

class Recorder : public FrameHandler {
 public:
  void OnFrame(NodeInstance, Frame frame) override {
    if (on_frame) on_frame(frame);
    ++frames;
  }
  void OnReconnected(NodeInstance peer) override {
    EXPECT_EQ(peer, kPeer);
    ++reconnected;
  }
  void OnPeerReplaced(NodeInstance) override {}

  std::function<void(const Frame&)> on_frame;
  std::atomic<int> frames{0};
  std::atomic<int> reconnected{0};
};

class FaultTransportTest : public testing::Test {
 protected:
  void Make(FaultOptions options) {
    options.self = kSelf;
    auto inner = std::make_unique<RecordingTransport>();
    inner_ = inner.get();
    transport_ = std::make_unique<FaultTransport>(std::move(inner), std::move(options));
    EXPECT_TRUE(transport_->Start(&handler_).ok());
  }
  void SendNumbered(int count) {
    for (int i = 0; i < count; ++i) {
      transport_->Send(kPeer, Lane::kRequest, {.type = static_cast<uint16_t>(i)});
    }
  }

  Recorder handler_;
  RecordingTransport* inner_ = nullptr;
  std::unique_ptr<FaultTransport> transport_;
};

TEST(DecideFaultTest, SameSeedDecidesTheSameAndAnotherDoesNot) {
  const FaultKnobs knobs{.lose = 0.2, .duplicate = 0.2, .reorder = 0.2, .delay = 0.2, .cut = 0.01};
  int different = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto one = DecideFault(knobs, 7, kPeer, FaultDirection::kSend, i);
    EXPECT_EQ(one, DecideFault(knobs, 7, kPeer, FaultDirection::kSend, i));
    different += one != DecideFault(knobs, 8, kPeer, FaultDirection::kSend, i);
    different += one != DecideFault(knobs, 7, kPeer, FaultDirection::kReceive, i);
    different += one != DecideFault(knobs, 7, kSelf, FaultDirection::kSend, i);
  }
  EXPECT_GT(different, 1000);
}

TEST(DecideFaultTest, FrequenciesAreTheKnobs) {
  const FaultKnobs knobs{.lose = 0.1, .duplicate = 0.3, .reorder = 0.5, .delay = 0.7, .cut = 0.01};
  constexpr int kFrames = 20000;
  int lost = 0, duplicated = 0, reordered = 0, delayed = 0, cut = 0;
  for (uint64_t i = 0; i < kFrames; ++i) {
    const auto decision = DecideFault(knobs, 1, kPeer, FaultDirection::kSend, i);
    lost += decision.lose;
    duplicated += decision.duplicate;
    reordered += decision.reorder;
    delayed += decision.delay > absl::ZeroDuration();
    cut += decision.cut;
    if (decision.delay > absl::ZeroDuration()) {
      EXPECT_GE(decision.delay, knobs.delay_min);
      EXPECT_LE(decision.delay, knobs.delay_max);
    }
  }
  EXPECT_NEAR(lost, 0.1 * kFrames, 200);
  EXPECT_NEAR(duplicated, 0.3 * kFrames, 300);
  EXPECT_NEAR(reordered, 0.5 * kFrames, 300);
  EXPECT_NEAR(delayed, 0.7 * kFrames, 300);
  EXPECT_NEAR(cut, 0.01 * kFrames, 60);
}

TEST(DecideFaultTest, OneKnobLeavesTheFateByTheOthersAsItIs) {
  for (uint64_t i = 0; i < 200; ++i) {
    const auto a = DecideFault({.lose = 0.5}, 3, kPeer, FaultDirection::kSend, i);
    const auto b = DecideFault({.lose = 0.5, .delay = 1}, 3, kPeer, FaultDirection::kSend, i);
    EXPECT_EQ(a.lose, b.lose);
  }
}

TEST_F(FaultTransportTest, WithoutFaultsFramesPassOnTheSameThreadInOrder) {
  Make({});
  SendNumbered(100);
  const auto sent = inner_->AwaitSent(0);
  ASSERT_EQ(sent.size(), 100u);
  EXPECT_TRUE(std::is_sorted(sent.begin(), sent.end()));
  inner_->Receive({.type = 5});
  EXPECT_EQ(handler_.frames, 1);
}

TEST_F(FaultTransportTest, SameSeedLosesTheSameFrames) {
  std::vector<uint16_t> first;
  for (int run = 0; run < 2; ++run) {
    Make({.seed = 42, .send = {.lose = 0.3}});
    SendNumbered(200);
    const auto sent = inner_->AwaitSent(0);
    EXPECT_EQ(transport_->Counts().lost, 200 - sent.size());
    EXPECT_GT(sent.size(), 100u);
    EXPECT_LT(sent.size(), 180u);
    if (run == 0) {
      first = sent;
    } else {
      EXPECT_EQ(sent, first);
    }
  }
}

TEST_F(FaultTransportTest, LossIsAnnouncedOnceAndNotWhereItShallBeSilent) {
  Make({.send = {.lose = 1}, .announce_after = absl::Milliseconds(5)});
  SendNumbered(10);
  while (handler_.reconnected == 0) std::this_thread::yield();
  EXPECT_EQ(transport_->Counts().announced, 1u);

  Make({.send = {.lose = 1}, .announce_after = absl::InfiniteDuration()});
  SendNumbered(10);
  EXPECT_EQ(transport_->Counts().lost, 10u);
  transport_->Stop();
  EXPECT_EQ(transport_->Counts().announced, 0u);
}

TEST_F(FaultTransportTest, DuplicatesComeTwice) {
  Make({.send = {.duplicate = 1}});
  SendNumbered(20);
  auto sent = inner_->AwaitSent(40);
  ASSERT_EQ(sent.size(), 40u);
  std::sort(sent.begin(), sent.end());
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i], i / 2);
  EXPECT_EQ(transport_->Counts().duplicated, 20u);
}

TEST_F(FaultTransportTest, DuplicateOfAReceivedFrameHasBlocksOfItsOwn) {
  Make({.receive = {.duplicate = 1}});
  std::vector<const char*> data;
  Mutex mutex;
  handler_.on_frame = [&](const Frame& frame) {
    MutexLock lock(mutex);
    data.push_back(frame.payload.blocks.at(0).data());
  };
  const Block block = Block::CopyOf("state");
  inner_->Receive({.payload = {.blocks = {block}}});
  while (handler_.frames < 2) std::this_thread::yield();
  EXPECT_NE(data[0], data[1]);
  transport_->Stop();
}

TEST_F(FaultTransportTest, ReorderedFramesArePassedByTheNextAndNoneIsLost) {
  Make({.seed = 3, .send = {.reorder = 0.3, .delay_max = absl::Seconds(60)}});
  SendNumbered(200);
  const FaultCounts counts = transport_->Counts();
  EXPECT_GT(counts.reordered, 20u);
  auto sent = inner_->AwaitSent(199);  // the last one may wait for one that never comes
  size_t passed = 0;
  for (size_t i = 1; i < sent.size(); ++i) passed += sent[i] < sent[i - 1];
  EXPECT_GE(passed + 1, counts.reordered);
  std::sort(sent.begin(), sent.end());
  EXPECT_TRUE(std::adjacent_find(sent.begin(), sent.end()) == sent.end());
}

TEST_F(FaultTransportTest, ReorderedFrameThatNothingPassesComesAfterDelayMax) {
  Make({.send = {.reorder = 1, .delay_max = absl::Milliseconds(5)}});
  SendNumbered(1);
  EXPECT_EQ(inner_->AwaitSent(1).size(), 1u);
}

TEST_F(FaultTransportTest, DelayedFramesAllComeAndNotBeforeTheirTime) {
  Make({.send = {
            .delay = 1, .delay_min = absl::Milliseconds(20), .delay_max = absl::Milliseconds(30)}});
  const auto start = std::chrono::steady_clock::now();
  SendNumbered(50);
  const size_t early = inner_->AwaitSent(0).size();
  // Where this thread was stopped for as long as that, some were due.
  if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) {
    EXPECT_EQ(early, 0u);
  }
  EXPECT_EQ(inner_->AwaitSent(50).size(), 50u);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST_F(FaultTransportTest, LatencyAndRateKeepTheOrderAndTakeTheirTime) {
  Make({.send = {.latency = absl::Milliseconds(10), .rate_mbit = 8}});
  const auto start = std::chrono::steady_clock::now();
  for (uint16_t i = 0; i < 20; ++i) {  // 1,000 bytes at 8 Mbit/s: 1 ms each
    transport_->Send(kPeer, Lane::kRequest,
                     {.type = i, .payload = {.inline_bytes = std::string(968, 'x')}});
  }
  const auto sent = inner_->AwaitSent(20);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(sent.size(), 20u);
  EXPECT_TRUE(std::is_sorted(sent.begin(), sent.end()));
  EXPECT_GE(took, std::chrono::milliseconds(30));
}

TEST_F(FaultTransportTest, PartitionOneWayLosesThatWayOnlyAndHeals) {
  Make({.announce_after = absl::Milliseconds(1)});
  transport_->PartitionOneWay(kSelf.node, kPeer.node);
  SendNumbered(3);
  inner_->Receive({});
  EXPECT_EQ(inner_->AwaitSent(0).size(), 0u);
  EXPECT_EQ(handler_.frames, 1);
  EXPECT_EQ(transport_->Counts().partitioned, 3u);
  EXPECT_EQ(handler_.reconnected, 0);  // not as long as the way is cut
  transport_->HealAll();
  while (handler_.reconnected == 0) std::this_thread::yield();
  SendNumbered(1);
  EXPECT_EQ(inner_->AwaitSent(1).size(), 1u);

  transport_->Partition(kSelf.node, kPeer.node);
  inner_->Receive({});
  EXPECT_EQ(handler_.frames, 1);
  transport_->Heal(kPeer.node, kSelf.node);
  inner_->Receive({});
  EXPECT_EQ(handler_.frames, 2);
}

TEST_F(FaultTransportTest, CutLosesTheFrameAndCallsTheHook) {
  std::vector<NodeInstance> cut;
  Make({.send = {.cut = 1}, .cut = [&cut](NodeInstance peer) { cut.push_back(peer); }});
  SendNumbered(1);
  EXPECT_EQ(cut, std::vector<NodeInstance>{kPeer});
  EXPECT_EQ(transport_->Counts().cuts, 1u);
  EXPECT_EQ(inner_->AwaitSent(0).size(), 0u);
}

TEST_F(FaultTransportTest, HandlerThatBlocksAfterAHandOffHoldsUpNoOther) {
  Make({.receive = {.latency = absl::Milliseconds(1)}});
  Latch second;
  handler_.on_frame = [&](const Frame& frame) {
    if (frame.type == 2) return second.Open();
    transport_->HandOffReading();
    EXPECT_TRUE(second.Await());
  };
  inner_->Receive({.type = 1});
  inner_->Receive({.type = 2});
  EXPECT_TRUE(second.Await());
  transport_->Stop();
}

TEST_F(FaultTransportTest, KnobsCanBeTurnedWhileItRuns) {
  Make({});
  transport_->SetKnobs(FaultDirection::kSend, {.lose = 1});
  SendNumbered(5);
  transport_->SetKnobs(FaultDirection::kSend, {});
  SendNumbered(2);
  EXPECT_EQ(inner_->AwaitSent(2).size(), 2u);
  EXPECT_EQ(transport_->Counts().lost, 5u);
  EXPECT_EQ(transport_->Counts().frames, 7u);
}

// Calls over real sockets through everything at once: the losses are announced, the calls are sent
// again, and each ends with its own reply.
TEST(FaultySocketsTest, CallsSurviveLossDelayDuplicationReorderingAndCuts) {
  const FaultKnobs knobs{.lose = 0.03,
                         .duplicate = 0.05,
                         .reorder = 0.05,
                         .delay = 0.05,
                         .cut = 0.005,
                         .delay_min = absl::Microseconds(100),
                         .delay_max = absl::Milliseconds(3)};
  const auto server = TestNode::Make({.self = kPeer});
  auto sockets = std::make_unique<SocketTransport>(SocketTransportOptions{.self = kSelf});
  SocketTransport* const raw = sockets.get();
  auto faulty = std::make_unique<FaultTransport>(
      std::move(sockets),
      FaultOptions{.self = kSelf,
                   .seed = 11,
                   .send = knobs,
                   .receive = knobs,
                   .cut = [raw](NodeInstance peer) { raw->CutConnections(peer); },
                   .announce_after = absl::Milliseconds(2)});
  FaultTransport* const faults = faulty.get();
  TestNode client(std::move(faulty));
  ASSERT_TRUE(client.Start().ok());
  client.transport().AddPeer(kPeer, server->transport().address());

  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&client, caller] {
      for (int i = 0; i < 100; ++i) {
        const std::string text = std::to_string(caller) + "/" + std::to_string(i);
        EXPECT_EQ(client.Call(kPeer, text), text);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const FaultCounts counts = faults->Counts();
  EXPECT_GT(counts.lost, 0u);
  EXPECT_GT(counts.cuts, 0u);
  EXPECT_GT(counts.duplicated, 0u);
  EXPECT_GT(counts.reordered, 0u);
  EXPECT_GT(counts.delayed, 0u);
  EXPECT_GT(counts.announced, 0u);
}

}  // namespace
}  // namespace abacus::runtime
