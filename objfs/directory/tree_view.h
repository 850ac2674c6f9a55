#ifndef ABACUS_OBJFS_DIRECTORY_TREE_VIEW_H_
#define ABACUS_OBJFS_DIRECTORY_TREE_VIEW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "objfs/directory/block_format.h"
#include "objfs/directory/directory_tree.h"
#include "runtime/base/block.h"

namespace abacus::objfs {

// The blocks that one search or plan has read, each once. For DirectoryTree alone.
// Thread-compatible. Blocking: as the source.
class TreeView {
 public:
  struct Loaded {
    uint32_t number = 0;
    runtime::Block bytes;
    Version version;
    BlockHead head;
    bool hole() const { return bytes.empty(); }
  };

  // `trusting`: goes by what is remembered of tables, else reads them all.
  // REQUIRES: `source` outlives it.
  TreeView(DirectoryTree& tree, BlockSource& source, bool trusting)
      : tree_(tree),
        source_(source),
        trusting_(trusting),
        seed_(trusting ? tree.memory_.seed() : std::nullopt) {}

  // Ownership: the view's.
  absl::StatusOr<const Loaded*> Get(uint32_t number);
  // The leaf that covers the position; block 0, a hole, where the directory never had an entry.
  absl::StatusOr<const Loaded*> LeafAt(Position position);
  // The directory's; none where it never had an entry.
  absl::StatusOr<std::optional<HashSeed>> Seed();
  // The lowest position that the name can have.
  Position FirstPositionOf(const HashSeed& seed, std::string_view name) const {
    return FirstPosition(tree_.options_.hash(seed, name));
  }

  // Two blocks do not fit together: one of them is out of date, or damaged.
  absl::Status Cross(uint32_t number, const std::string& cause);
  bool crossed() const { return crossed_; }
  // Forgets what led there.
  void Distrust() { tree_.memory_.Drop(via_); }

 private:
  absl::StatusOr<const Loaded*> Load(uint32_t number);

  DirectoryTree& tree_;
  BlockSource& source_;
  const bool trusting_;
  bool crossed_ = false;
  std::optional<HashSeed> seed_;  // that all blocks must have
  std::vector<uint32_t> via_;
  std::vector<std::unique_ptr<Loaded>> loaded_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_TREE_VIEW_H_
