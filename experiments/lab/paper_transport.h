#ifndef ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_
#define ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "experiments/lab/processor.h"
#include "runtime/transport/transport.h"

namespace abacus::lab {

// A transport around another whose messages cost what they cost the paper's nodes (paper_node.h): a
// frame's sender works before it sends, and its receiver before anybody is handed it, on the thread
// that does either, so that it is part of the caller's wait, of the node's load and of its quota.
// Thread-safety: thread-safe.
class PaperTransport final : public runtime::Transport, private runtime::FrameHandler {
 public:
  // `processor` outlives it.
  PaperTransport(std::unique_ptr<runtime::Transport> inner, Processor* processor)
      : inner_(std::move(inner)), processor_(processor) {}

  absl::Status Start(runtime::FrameHandler* handler) override;
  void Stop() override { inner_->Stop(); }
  void AddPeer(runtime::NodeInstance peer, const std::string& address) override {
    inner_->AddPeer(peer, address);
  }
  void RemovePeer(runtime::NodeInstance peer) override { inner_->RemovePeer(peer); }
  void Send(runtime::NodeInstance to, runtime::Lane lane, runtime::Frame frame) override;
  void Wait(runtime::NodeInstance peer, runtime::Waiter& waiter) override {
    inner_->Wait(peer, waiter);
  }
  void HandOffReading() override { inner_->HandOffReading(); }
  runtime::FrameLimits limits() const override { return inner_->limits(); }
  std::string address() const override { return inner_->address(); }
  std::vector<runtime::PeerTraffic> Traffic() const override { return inner_->Traffic(); }

 private:
  void OnFrame(runtime::NodeInstance from, runtime::Frame frame) override;
  void OnReconnected(runtime::NodeInstance peer) override { handler_->OnReconnected(peer); }
  void OnPeerReplaced(runtime::NodeInstance peer) override { handler_->OnPeerReplaced(peer); }
  void WorkFor(const runtime::Frame& frame);

  const std::unique_ptr<runtime::Transport> inner_;
  Processor* const processor_;
  runtime::FrameHandler* handler_ = nullptr;  // constant from Start() on
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_
