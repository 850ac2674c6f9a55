#ifndef ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_
#define ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_

#include <memory>
#include <utility>

#include "experiments/lab/processor.h"
#include "experiments/lab/transport_around.h"

namespace abacus::lab {

// A transport around another whose messages cost what they cost the paper's nodes (paper_node.h): a
// frame's sender works before it sends, and its receiver before anybody is handed it, on the thread
// that does either, so that it is part of the caller's wait, of the node's load and of its quota.
// Thread-safety: thread-safe.
class PaperTransport final : public TransportAround, private runtime::FrameHandler {
 public:
  // `processor` outlives it.
  PaperTransport(std::unique_ptr<runtime::Transport> inner, Processor* processor)
      : TransportAround(std::move(inner)), processor_(processor) {}

  absl::Status Start(runtime::FrameHandler* handler) override;
  void Send(runtime::NodeInstance to, runtime::Lane lane, runtime::Frame frame) override;

 private:
  void OnFrame(runtime::NodeInstance from, runtime::Frame frame) override;
  void OnReconnected(runtime::NodeInstance peer) override { handler_->OnReconnected(peer); }
  void OnPeerReplaced(runtime::NodeInstance peer) override { handler_->OnPeerReplaced(peer); }
  void WorkFor(const runtime::Frame& frame);

  Processor* const processor_;
  runtime::FrameHandler* handler_ = nullptr;  // constant from Start() on
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_PAPER_TRANSPORT_H_
