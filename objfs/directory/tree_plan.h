#ifndef ABACUS_OBJFS_DIRECTORY_TREE_PLAN_H_
#define ABACUS_OBJFS_DIRECTORY_TREE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/directory/block_format.h"
#include "objfs/directory/tree_view.h"

namespace abacus::objfs {

// Names, identifiers and types that may be written, each name once.
// Errors: kInvalidArgument.
absl::Status CheckChanges(const std::vector<EntryChange>& changes);

// Makes one plan (DirectoryTree::Plan) over one view. What is removed goes first, so that what is
// inserted finds its room. Thread-compatible, for one use.
// REQUIRES: the changes outlive it.
class TreePlanner {
 public:
  TreePlanner(TreeView& view, const std::function<HashSeed()>& make_seed)
      : view_(view), make_seed_(make_seed) {}

  absl::StatusOr<Part> Plan(const std::vector<EntryChange>& changes);

 private:
  // A block as it is to be.
  struct Draft {
    BlockHead head;
    std::vector<uint32_t> slots;     // of a table
    std::vector<LeafEntry> entries;  // of a leaf; names are of the view's blocks, or the changes'
    size_t entry_bytes = 0;
    Version version;       // as it was read
    bool fresh = false;    // it is not on the disk yet
    bool decides = false;  // the plan holds only where it is still as it was read
    bool changed = false;
  };
  struct Place {
    Draft* leaf = nullptr;  // null: the directory never had an entry
    Position first = 0;     // the lowest that the name can have
  };

  absl::StatusOr<Draft*> DraftOf(uint32_t number);
  Draft* Insert(uint32_t number, Draft draft);
  absl::StatusOr<Draft*> LeafAt(Position position);
  absl::StatusOr<Place> PlaceOf(std::string_view name);
  // A new block; it takes what block 0 says is free.
  absl::StatusOr<Draft*> NewBlock(BlockHead head);

  absl::Status Check(const EntryChange& change);
  absl::Status RemoveOrReplace(const EntryChange& change);
  absl::Status Add(const EntryChange& change);
  // Makes the directory's first leaf.
  void Begin();

  absl::Status Split(Draft& leaf);
  absl::Status SplitRoot(Draft& root);
  // The table that leads to the leaf itself.
  absl::StatusOr<Draft*> TableOf(const Draft& leaf);
  // The leaf becomes one of one bit more; `upper` gets the other half.
  static void Halve(Draft& leaf, Draft& upper);

  Part Finish() const;

  TreeView& view_;
  const std::function<HashSeed()>& make_seed_;
  std::map<uint32_t, Draft> drafts_;  // by number
  bool empty_ = false;                // block 0 was read, and was never written
  Version empty_version_;
  std::optional<HashSeed> seed_;
  bool split_ = false;  // drafts of tables lead elsewhere than the blocks that were read
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_TREE_PLAN_H_
