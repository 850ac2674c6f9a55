#ifndef ABACUS_RUNTIME_TRANSPORT_TESTING_TEST_NODE_H_
#define ABACUS_RUNTIME_TRANSPORT_TESTING_TEST_NODE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/socket_transport.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

inline constexpr std::chrono::seconds kTestPatience{30};

// Something that is false and becomes true once. Waiting for it gives up after kTestPatience.
class Latch {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  bool Await() {
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    MutexLock lock(mutex_);
    while (!open_) {
      if (!changed_.WaitUntil(mutex_, deadline) && !open_) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// A transport with calls on top: a request carries a number, and its reply carries the same one.
// Calls that are open when a way is reported to work again are sent again.
class TestNode : public FrameHandler {
 public:
  static constexpr uint16_t kRequest = 1;
  static constexpr uint16_t kReply = 2;
  static constexpr uint16_t kOneWay = 3;

  using Serve = std::function<Payload(NodeInstance from, const Payload& request)>;
  using TakeOneWay = std::function<void(NodeInstance from, Frame frame)>;

  // Without `serve` requests are answered by themselves.
  explicit TestNode(std::unique_ptr<Transport> transport, Serve serve = {})
      : transport_(std::move(transport)), serve_(std::move(serve)) {}
  ~TestNode() override { transport_->Stop(); }

  static std::unique_ptr<TestNode> Make(const SocketTransportOptions& options, Serve serve = {}) {
    auto transport = std::make_unique<SocketTransport>(options);
    SocketTransport* const sockets = transport.get();
    auto node = std::make_unique<TestNode>(std::move(transport), std::move(serve));
    node->sockets_ = sockets;
    node->self_ = options.self;
    const absl::Status started = node->Start();
    EXPECT_TRUE(started.ok()) << started.ToString();
    return node;
  }

  absl::Status Start() { return transport_->Start(this); }
  Transport& transport() { return *transport_; }
  SocketTransport& sockets() { return *sockets_; }
  NodeInstance self() const { return self_; }
  void set_take_one_way(TakeOneWay take) { take_one_way_ = std::move(take); }

  static void Introduce(TestNode& a, TestNode& b) {
    a.transport().AddPeer(b.self(), b.transport().address());
    b.transport().AddPeer(a.self(), a.transport().address());
  }

  Payload Call(NodeInstance to, Payload request, Lane lane = Lane::kRequest) {
    Pending pending{.to = to, .lane = lane};
    uint64_t id = 0;
    {
      MutexLock lock(mutex_);
      id = ++last_id_;
      request.inline_bytes.insert(0, reinterpret_cast<const char*>(&id), sizeof id);
      pending.request = {.type = kRequest, .payload = std::move(request)};
      pending_.emplace(id, &pending);
    }
    transport_->Send(to, lane, pending.request);
    transport_->Wait(to, pending.waiter);
    return std::move(pending.reply);
  }
  std::string Call(NodeInstance to, const std::string& text) {
    return Call(to, Payload{.inline_bytes = text}).inline_bytes;
  }

  // Makes all open calls return an empty reply.
  void AbandonCalls() {
    std::map<uint64_t, Pending*> pending;
    {
      MutexLock lock(mutex_);
      pending.swap(pending_);
    }
    for (auto& [id, call] : pending) call->waiter.Complete();
  }

  // Waits until the way to `peer` has been reported as working again `times` times.
  bool AwaitReconnected(NodeInstance peer, int times = 1) {
    return AwaitEvent(reconnected_, peer, times);
  }
  bool AwaitReplaced(NodeInstance peer) { return AwaitEvent(replaced_, peer, 1); }

  void OnFrame(NodeInstance from, Frame frame) override {
    if (frame.type == kOneWay) {
      if (take_one_way_) take_one_way_(from, std::move(frame));
      return;
    }
    std::string& bytes = frame.payload.inline_bytes;
    uint64_t id = 0;
    ASSERT_GE(bytes.size(), sizeof id);
    bytes.copy(reinterpret_cast<char*>(&id), sizeof id);
    bytes.erase(0, sizeof id);
    if (frame.type == kReply) return TakeReply(id, std::move(frame.payload));
    Payload reply = serve_ ? serve_(from, frame.payload) : std::move(frame.payload);
    reply.inline_bytes.insert(0, reinterpret_cast<const char*>(&id), sizeof id);
    transport_->Send(from, Lane::kReply, {.type = kReply, .payload = std::move(reply)});
  }
  void OnReconnected(NodeInstance peer) override {
    std::vector<std::pair<Lane, Frame>> again;
    {
      MutexLock lock(mutex_);
      ++reconnected_[peer];
      changed_.SignalAll();
      for (const auto& [id, pending] : pending_) {
        if (pending->to == peer) again.emplace_back(pending->lane, pending->request);
      }
    }
    for (auto& [lane, frame] : again) transport_->Send(peer, lane, std::move(frame));
  }
  void OnPeerReplaced(NodeInstance peer) override {
    MutexLock lock(mutex_);
    ++replaced_[peer];
    changed_.SignalAll();
  }

 private:
  struct Pending {
    NodeInstance to;
    Lane lane = Lane::kRequest;
    Frame request;
    Payload reply;
    Waiter waiter;
  };

  void TakeReply(uint64_t id, Payload reply) {
    Pending* pending = nullptr;
    {
      MutexLock lock(mutex_);
      const auto found = pending_.find(id);
      if (found == pending_.end()) return;  // answered twice
      pending = found->second;
      pending_.erase(found);
    }
    pending->reply = std::move(reply);
    pending->waiter.Complete();
  }

  bool AwaitEvent(const std::map<NodeInstance, int>& events, NodeInstance peer, int times) {
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    MutexLock lock(mutex_);
    while (true) {
      const auto found = events.find(peer);
      if (found != events.end() && found->second >= times) return true;
      if (std::chrono::steady_clock::now() >= deadline) return false;
      changed_.WaitUntil(mutex_, deadline);
    }
  }

  const std::unique_ptr<Transport> transport_;
  SocketTransport* sockets_ = nullptr;
  NodeInstance self_;
  const Serve serve_;
  TakeOneWay take_one_way_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Pending*> pending_;
  std::map<NodeInstance, int> reconnected_;
  std::map<NodeInstance, int> replaced_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_TESTING_TEST_NODE_H_
