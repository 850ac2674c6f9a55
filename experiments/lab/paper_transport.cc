#include "experiments/lab/paper_transport.h"

#include "experiments/lab/paper_node.h"
#include "runtime/transport/frame.h"

namespace abacus::lab {

absl::Status PaperTransport::Start(runtime::FrameHandler* handler) {
  handler_ = handler;
  return inner().Start(this);
}

void PaperTransport::WorkFor(const runtime::Frame& frame) {
  const Cost cost = CostOf(runtime::FrameWireBytes(frame));
  processor_->Do({.at_paper = cost.at_paper, .cpu = cost.cpu});
}

void PaperTransport::Send(runtime::NodeInstance to, runtime::Lane lane, runtime::Frame frame) {
  WorkFor(frame);
  inner().Send(to, lane, std::move(frame));
}

// Frames behind this one wait meanwhile, as the processor has no time for them.
void PaperTransport::OnFrame(runtime::NodeInstance from, runtime::Frame frame) {
  WorkFor(frame);
  handler_->OnFrame(from, std::move(frame));
}

}  // namespace abacus::lab
