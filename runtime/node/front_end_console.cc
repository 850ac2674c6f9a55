#include "runtime/node/front_end_console.h"

#include "runtime/object/thread_context.h"

namespace abacus::runtime {

// A console takes the thread that makes it and the one that ends it; both are given back at once.
FrontEndConsole::FrontEndConsole(Node& node) : node_(node) {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  const uint32_t outer = thread.base_slot();
  console_ = std::make_unique<Console>(node_);
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
  if (thread.depth() == 0) thread.SetBase(slot_);
  return outer;
}

void FrontEndConsole::End(uint32_t outer) const {
  ThreadContext& thread = ThreadContext::Of(node_.binding());
  if (thread.depth() == 0) thread.SetBase(outer);
}

}  // namespace abacus::runtime
