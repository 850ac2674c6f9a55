#include <utility>

#include "runtime/node/node.h"
#include "runtime/object/thread_context.h"

namespace abacus::runtime {

Console::Console(Node& node, std::shared_ptr<const ActivityMeter> meter)
    : node_(node),
      self_(node.binding().NewConsole()),
      outer_slot_(ThreadContext::Of(node.binding()).base_slot()) {
  ThreadContext::Of(node_.binding()).SetBase(self_.entry()->slot);
  node_.ConsoleBegan(self_.rid(), std::move(meter));
}

Console::~Console() {
  ThreadContext::Of(node_.binding()).SetBase(outer_slot_);
  node_.ConsoleEnded(self_.rid());
  // It fails only where the node has ended, and its table with it.
  node_.binding().Destroy(self_.rid()).IgnoreError();
}

}  // namespace abacus::runtime
