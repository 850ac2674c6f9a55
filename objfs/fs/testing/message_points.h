#ifndef ABACUS_OBJFS_FS_TESTING_MESSAGE_POINTS_H_
#define ABACUS_OBJFS_FS_TESTING_MESSAGE_POINTS_H_

// The messages between the nodes of a test cluster as points at which one of them dies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/binding/messages.h"
#include "runtime/transport/transport.h"

namespace abacus::objfs::testing {

// Counts the calls that one node makes or gets, and their answers; co-located ones are none. At one
// of them the node dies: not a frame leaves or reaches it from then on. The others are told of it
// by whoever kills it then (Cluster::Kill).
// Thread-safety: thread-safe.
class MessagePoints {
 public:
  // ClusterOptions::around. REQUIRES: this outlives what is returned.
  std::unique_ptr<runtime::Transport> Around(size_t node,
                                             std::unique_ptr<runtime::Transport> below) {
    return std::make_unique<Counted>(*this, NodeOf(node), std::move(below));
  }

  // Counts from 0 from now on. The node dies at that message, which is lost: a call, before it is
  // sent, or `answer`: an answer, after the call was executed. Then `what` is done, which may not
  // wait for the node.
  void At(size_t node, uint64_t message, bool answer, std::function<void()> what) {
    runtime::MutexLock lock(mutex_);
    node_ = NodeOf(node);
    type_ = answer ? runtime::MessageType::kReply : runtime::MessageType::kCall;
    messages_ = 0;
    at_ = message;
    what_ = std::move(what);
  }
  // From here on the node does not die by this. Returns whether it has.
  bool Stop() {
    runtime::MutexLock lock(mutex_);
    what_ = nullptr;
    return is_dead_;
  }
  uint64_t messages() {
    runtime::MutexLock lock(mutex_);
    return messages_;
  }

 private:
  class Counted final : public runtime::Transport {
   public:
    Counted(MessagePoints& points, runtime::NodeId self, std::unique_ptr<runtime::Transport> below)
        : points_(points), self_(self), below_(std::move(below)) {}
    absl::Status Start(runtime::FrameHandler* handler) override { return below_->Start(handler); }
    void Stop() override { below_->Stop(); }
    void AddPeer(runtime::NodeInstance peer, const std::string& address) override {
      below_->AddPeer(peer, address);
    }
    void RemovePeer(runtime::NodeInstance peer) override { below_->RemovePeer(peer); }
    void Send(runtime::NodeInstance to, runtime::Lane lane, runtime::Frame frame) override {
      if (points_.Passes(self_, to.node, frame.type)) below_->Send(to, lane, std::move(frame));
    }
    void Wait(runtime::NodeInstance peer, runtime::Waiter& waiter) override {
      below_->Wait(peer, waiter);
    }
    void HandOffReading() override { below_->HandOffReading(); }
    runtime::FrameLimits limits() const override { return below_->limits(); }
    std::string address() const override { return below_->address(); }
    std::vector<runtime::PeerTraffic> Traffic() const override { return below_->Traffic(); }

   private:
    MessagePoints& points_;
    const runtime::NodeId self_;
    const std::unique_ptr<runtime::Transport> below_;
  };

  static runtime::NodeId NodeOf(size_t node) { return static_cast<runtime::NodeId>(node + 1); }

  bool Passes(runtime::NodeId from, runtime::NodeId to, uint16_t type) {
    std::function<void()> what;
    {
      runtime::MutexLock lock(mutex_);
      if (from != node_ && to != node_) return true;
      if (is_dead_) return false;
      if (type != static_cast<uint16_t>(type_)) return true;
      if (messages_++ != at_ || what_ == nullptr) return true;
      is_dead_ = true;
      what = std::exchange(what_, nullptr);
    }
    what();
    return false;
  }

  runtime::Mutex mutex_;
  runtime::NodeId node_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none
  runtime::MessageType type_ ABSL_GUARDED_BY(mutex_) = runtime::MessageType::kCall;
  uint64_t messages_ ABSL_GUARDED_BY(mutex_) = 0, at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_dead_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> what_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_MESSAGE_POINTS_H_
