// Stack texts: whatever the bytes, a stack that reads back as itself, or a mistake in its text.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "objfs/layer/probe_layer.h"
#include "objfs/layer/stack.h"
#include "objfs/layer/template_layer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using abacus::objfs::ParseStack;
  static const abacus::objfs::LayerKinds* const kKinds = [] {
    auto* kinds = new abacus::objfs::LayerKinds();
    kinds->Add<abacus::objfs::TemplateLayer>()
        .Add<abacus::objfs::ErrorLayer>()
        .Add<abacus::objfs::DelayLayer>()
        .Add<abacus::objfs::TraceLayer>()
        .Add({"raid", "fuzz.Raid", {}, 2, 64})
        .Add({"storage", "fuzz.Storage", {}, 0, 0});
    return kinds;
  }();
  const auto stack = ParseStack({reinterpret_cast<const char*>(data), size});
  if (!stack.ok()) return 0;
  const auto again = ParseStack(stack->ToString());
  if (!again.ok() || again->ToString() != stack->ToString()) abort();
  const absl::Status status = CheckStack(*stack, *kKinds);
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) abort();
  return 0;
}
