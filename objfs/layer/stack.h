#ifndef ABACUS_OBJFS_LAYER_STACK_H_
#define ABACUS_OBJFS_LAYER_STACK_H_

// A stack as text: which layers a file goes through, from the file system down to the stores.
//
//   filesystem/cache(block=8 KiB,ahead=1 MiB)/raid5(unit=32 KiB)/(isolation/storage)*5
//
// The text is chosen when a file is created and kept with the file, so its grammar only ever grows:
//   stack   = level *( "/" level ) [ "/" branch ]   ; top first
//   level   = kind [ "(" option *( "," option ) ")" ]
//   option  = name "=" value
//   branch  = "(" stack ")" "*" count               ; that many copies, side by side
// White space around words is allowed and not kept.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/options.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

struct StackLevel {
  std::string kind;
  std::vector<OptionText> options;
  size_t at = 0;  // where it stands in the text
};

// Either the levels end in a layer that stands on nothing, or `branch` is what the last one stands
// on, `copies` times. Thread-compatible: plain data.
struct Stack {
  static constexpr size_t kTextBytesMax = 4096;
  static constexpr size_t kLevelsMax = 32;  // in all, from top to bottom
  static constexpr size_t kCopiesMax = 64;
  static constexpr size_t kLayersMax = 256;  // of all copies

  std::vector<StackLevel> levels;  // top first; at least one
  std::shared_ptr<const Stack> branch;
  size_t copies = 0;
  size_t branch_at = 0;

  // The canonical text: ParseStack() of it gives the same stack.
  std::string ToString() const;
};

// The kinds that a program was built with. main() fills one. Thread-compatible.
class LayerKinds {
 public:
  // Adds layer class T. REQUIRES: no kind of that name was added before.
  template <typename T>
  LayerKinds& Add() {
    return Add(T::kKind);
  }
  LayerKinds& Add(const LayerKind& kind);
  // Null where there is none.
  const LayerKind* Find(std::string_view name) const;
  // In the order in which they were added.
  const std::vector<LayerKind>& All() const { return kinds_; }

 private:
  std::vector<LayerKind> kinds_;
};

// Errors: kInvalidArgument - the message shows the text, the place of the mistake and the way out.
absl::StatusOr<Stack> ParseStack(std::string_view text);

// Whether a stack can be built: every kind and option is known, and every layer stands on as many
// as it can. Errors: kInvalidArgument, likewise.
absl::Status CheckStack(const Stack& stack, const LayerKinds& kinds);

// How the builder brings a layer into the runtime and takes it away, without knowing a node.
// `place` numbers the layers of a stack from 0, top first, each copy of a branch after the other:
// for an anchored kind it says which store is meant.
struct LayerHost {
  std::function<absl::StatusOr<runtime::Ref<Layer>>(
      const LayerKind& kind, const std::vector<runtime::Ref<Layer>>& below,
      const std::vector<std::pair<std::string, std::string>>& options, size_t place)>
      make;
  std::function<void(const runtime::Ref<Layer>&)> end;
};

// The layers of one stack, by place.
struct BuiltStack {
  std::vector<runtime::Ref<Layer>> layers;
  const runtime::Ref<Layer>& top() const { return layers.front(); }
};

// Builds a stack, bottom first. Those that were made are ended where a later one could not be.
// Errors: as CheckStack; those of `host`, with the layer's kind and place. Blocking: as `host`.
absl::StatusOr<BuiltStack> BuildStack(const Stack& stack, const LayerKinds& kinds,
                                      const LayerHost& host);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_STACK_H_
