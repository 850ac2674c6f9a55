#ifndef ABACUS_OBJFS_DIRECTORY_DIRECTORY_TREE_H_
#define ABACUS_OBJFS_DIRECTORY_DIRECTORY_TREE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/directory/block_format.h"
#include "objfs/directory/entry.h"
#include "objfs/directory/siphash.h"
#include "objfs/layer/version.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/block.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// A block as it is now. No bytes: it was never written; then its version counts nevertheless.
struct BlockRead {
  runtime::Block bytes;
  Version version;
};

// Where a directory's blocks are read. Thread-safety and blocking: the implementation says so.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual absl::StatusOr<BlockRead> Read(uint32_t number) = 0;
};

// Which table leads where, as they were when they were last read. What is out of date here leads to
// a leaf that does not cover the position (FORMAT.md), so nobody has to say when a table changes.
// Thread-safety: thread-safe. Blocking: no.
class TableMemory {
 public:
  // Tables beyond it are read each time. Enough for some 8,000,000 entries.
  static constexpr size_t kSlotsMax = size_t{1} << 17;  // 512 KiB

  // The number of the first block on the way to `position` that is no table remembered here, and in
  // `via` the tables on that way.
  uint32_t Route(Position position, std::vector<uint32_t>* via) const;
  void Keep(const BlockHead& table, const std::vector<uint32_t>& slots);
  void Drop(const std::vector<uint32_t>& numbers);

  // The directory's. With another one all tables are forgotten.
  std::optional<HashSeed> seed() const;
  void SetSeed(const HashSeed& seed);

 private:
  struct Table {
    BlockHead head;
    std::vector<uint32_t> slots;
  };
  mutable runtime::Mutex mutex_;
  absl::flat_hash_map<uint32_t, Table> tables_ ABSL_GUARDED_BY(mutex_);
  size_t slots_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<HashSeed> seed_ ABSL_GUARDED_BY(mutex_);
};

// The names of one directory in its blocks: finds and lists them, and plans their changes. It
// writes nothing, and knows neither the volume nor the runtime.
//
// Invariants:
// 1. What Lookup() says was so at the moment when its last block was read.
// 2. A plan's reads prove it: where none of them has changed, each name's entry is what the change
//    says it was before, and the writes leave the tree whole, with just these changes.
// 3. A plan reads the leaves of its names and no others; one that splits also block 0 and the
//    leaf's table.
// A search reads block 0, at most one table for each further 10 bits (one for 1,000,000 entries),
// and the leaf; what it remembers of tables spares it all but the leaf.
// Errors: as Directory's. kDataLoss names the block.
// Thread-safety: thread-safe. Blocking: as the source.
class DirectoryTree {
 public:
  static constexpr uint32_t kListMax = 4096;  // entries of one List()
  // Blocks are read one after the other, so one may be of before a split and the next of after it.
  // What does not fit is read again this often; then it is damage.
  static constexpr int kTriesMax = 8;

  struct Options {
    // Of a directory's first name; nullptr: at random.
    std::function<HashSeed()> make_seed;
    uint64_t (*hash)(const HashSeed& seed, std::string_view name) = &SipHash;
  };

  // REQUIRES: `source` outlives it.
  explicit DirectoryTree(BlockSource& source) : DirectoryTree(source, Options()) {}
  DirectoryTree(BlockSource& source, Options options);

  absl::StatusOr<std::optional<Entry>> Lookup(const std::string& name);
  absl::StatusOr<std::vector<ListedEntry>> List(uint64_t cookie, uint32_t max);
  // Of Part, `reads`, `writes` and `must_be_linked`: nothing is inserted into a removed directory.
  absl::StatusOr<Part> Plan(const std::vector<EntryChange>& changes) {
    return Plan(changes, source_);
  }
  // The same with blocks of another source, which may be out of date: what the plan reads tells.
  absl::StatusOr<Part> Plan(const std::vector<EntryChange>& changes, BlockSource& source);

 private:
  friend class TreeView;
  friend class TreePlanner;

  // Calls `step` with a view of the tree until what it read fits together.
  template <typename Step>
  auto WithView(BlockSource& source, Step step);

  BlockSource& source_;
  const Options options_;
  TableMemory memory_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_DIRECTORY_TREE_H_
