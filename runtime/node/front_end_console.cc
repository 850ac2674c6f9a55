#include "runtime/node/front_end_console.h"

#include <chrono>

#include "runtime/object/thread_context.h"

namespace abacus::runtime {
namespace {

int64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

// A console takes the thread that makes it and the one that ends it; both are given back at once.
FrontEndConsole::FrontEndConsole(Node& node)
    : node_(node), meter_(std::make_shared<ActivityMeter>()) {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  const uint32_t outer = thread.base_slot();
  console_ = std::make_unique<Console>(node_, meter_);
  slot_ = thread.base_slot();
  thread.SetBase(outer);
}

FrontEndConsole::~FrontEndConsole() {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  const uint32_t outer = thread.base_slot();
  console_.reset();
  thread.SetBase(outer);
}

uint32_t FrontEndConsole::Begin() const {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  const uint32_t outer = thread.base_slot();
  if (thread.depth() == 0) {
    thread.SetBase(slot_);
    // A thread that works for it already is no second one.
    if (outer != slot_) meter_->Begin(NowNs());
  }
  return outer;
}

void FrontEndConsole::End(uint32_t outer) const {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  if (thread.depth() > 0) return;
  if (outer != slot_) meter_->End(NowNs());
  thread.SetBase(outer);
}

}  // namespace abacus::runtime
