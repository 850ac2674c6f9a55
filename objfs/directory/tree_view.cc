#include "objfs/directory/tree_view.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::StatusOr<const TreeView::Loaded*> TreeView::Get(uint32_t number) {
  for (const auto& loaded : loaded_) {
    if (loaded->number == number) return loaded.get();
  }
  return Load(number);
}

absl::StatusOr<const TreeView::Loaded*> TreeView::Load(uint32_t number) {
  ABACUS_ASSIGN_OR_RETURN(BlockRead read, source_.Read(number));
  auto loaded = std::make_unique<Loaded>();
  loaded->number = number;
  loaded->version = read.version;
  // Version 0: a hole. Zeros that a store returns for it are no block.
  if (read.version != Version() && !read.bytes.empty()) {
    if (read.bytes.size() != kDirectoryBlockBytes) {
      return absl::DataLossError(
          absl::StrCat("block ", number, " of the directory: it is cut off"));
    }
    loaded->bytes = std::move(read.bytes);
    ABACUS_ASSIGN_OR_RETURN(loaded->head, DecodeHead(loaded->bytes.view(), number));
    if (number == 0) tree_.memory_.SetSeed(loaded->head.seed);
    // Not the same: a server lost its youngest changes, and the directory began again.
    if (seed_.has_value() && *seed_ != loaded->head.seed) {
      return Cross(number, "it is another directory's");
    }
    seed_ = loaded->head.seed;
  }
  loaded_.push_back(std::move(loaded));
  return loaded_.back().get();
}

absl::StatusOr<const TreeView::Loaded*> TreeView::LeafAt(Position position) {
  uint32_t number = trusting_ ? tree_.memory_.Route(position, &via_) : 0;
  int bits = -1;  // they grow with every step, so that there is an end
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const Loaded* block, Get(number));
    if (block->hole()) {
      if (number == 0) return block;
      return Cross(number, "a table leads to it, and it was never written");
    }
    if (!block->head.Covers(position) || block->head.bits <= bits) {
      return Cross(number, absl::StrCat("it is not where position ", position, " should be"));
    }
    if (block->head.kind == BlockKind::kLeaf) return block;
    ABACUS_ASSIGN_OR_RETURN(const std::vector<uint32_t> slots,
                            DecodeSlots(block->head, block->bytes.view()));
    tree_.memory_.Keep(block->head, slots);
    via_.push_back(number);
    bits = block->head.bits;
    number = slots[SlotOf(block->head, position)];
  }
}

absl::StatusOr<std::optional<HashSeed>> TreeView::Seed() {
  if (!seed_.has_value()) ABACUS_RETURN_IF_ERROR(Get(0).status());
  return seed_;
}

absl::Status TreeView::Cross(uint32_t number, const std::string& cause) {
  crossed_ = true;
  return absl::DataLossError(absl::StrCat("block ", number, " of the directory: ", cause));
}

}  // namespace abacus::objfs
