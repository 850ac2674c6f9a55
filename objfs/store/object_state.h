#ifndef ABACUS_OBJFS_STORE_OBJECT_STATE_H_
#define ABACUS_OBJFS_STORE_OBJECT_STATE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "objfs/store/format.h"
#include "objfs/store/slots.h"

namespace abacus::objfs {

// What a flush of an object makes durable: all that changed since the last one.
struct FlushBatch {
  ObjectHead head;
  uint64_t blocks_before = 0;
  uint64_t blocks_after = 0;
  std::vector<std::pair<uint64_t, BlockEntry>> blocks;  // rising; version 0: a hole

  UpdateRecord ToRecord(ObjectId id) const;
};

// What a table has, but for where the blocks are: whether another one has the same.
struct TableDigest {
  VersionNumber version = 0;
  uint64_t blocks = 0;
  uint32_t crc = 0;  // of size and attributes, and of each block's number, version and checksum
  friend bool operator==(const TableDigest&, const TableDigest&) = default;
};

// An object's table in memory: what is durable, and what has changed since.
//
// Invariants: 1. A slot that the durable table or a batch under way names is not free, so that a
//                crash at any moment finds the contents that the table on the disk promises.
//             2. Find() of a block gives the last entry that was put there.
//             3. The durable table names no slot twice.
// Thread-safety: thread-compatible. Blocking: no.
// Why not write in place and log the old or new bytes: large overwrites would be written twice.
class ObjectState {
 public:
  // A new object: of its creation the journal knows, and a flush is to wait for that.
  explicit ObjectState(ObjectHead head)
      : head_(head),
        durable_head_(std::move(head)),
        has_head_(true),
        head_changed_(true),
        changed_pages_{0} {}
  ObjectState() = default;

  // Recovery: what a checkpoint left, then the records after it, then Recovered(): false where two
  // blocks claim one slot.
  void Load(TablePage page);
  void Replay(const UpdateRecord& record);
  void Replay(const AttributesRecord& record);
  bool Recovered();
  // Of a table with pages of different ages: where two blocks claim one slot the one with the older
  // version becomes a hole, and where nobody knows the size it ends with the last block. Before
  // Recovered(). Returns how many blocks became holes.
  uint64_t Mend();
  // The first page, or a record with all that it has, was there.
  bool has_head() const { return has_head_; }

  // Forgets all but frees(), which rises. REQUIRES: nothing has changed.
  void Unload();

  const ObjectHead& head() const { return head_; }
  // For a change. The caller sets its version.
  ObjectHead& ChangeHead() {
    head_changed_ = true;
    return head_;
  }
  BlockEntry Find(uint64_t block) const;  // version 0: a hole
  std::vector<BlockEntry> FindRange(uint64_t first, uint64_t end) const;
  uint64_t block_count() const { return block_count_; }
  uint64_t changed_blocks() const { return changed_.size(); }
  // The first block from `block` on that is no hole; kObjectBlocksMax where none follows.
  uint64_t NextBlock(uint64_t block) const;

  uint64_t CountHoles(uint64_t first, uint64_t end) const;

  uint64_t AllocateSlots(uint64_t count) { return slots_.Allocate(count); }
  void FreeSlots(SlotRange range);
  // REQUIRES: the entry's slot is allocated.
  void Put(uint64_t block, const BlockEntry& entry);
  // Makes [first, end) holes; returns how many blocks were not.
  uint64_t PutHoles(uint64_t first, uint64_t end);

  bool changed() const { return head_changed_ || !changed_.empty(); }
  FlushBatch BeginFlush();
  // The batch is durable. Returns how many blocks the durable table has more than before.
  int64_t Commit(const FlushBatch& batch);
  // It is not, or nobody knows: its slots stay in use until a later batch is durable.
  void Abort() { head_changed_ = uncertain_ = true; }
  // The attributes as they are, without the contents; that they are durable. No batch lasts.
  AttributesRecord Attributes(ObjectId id) const {
    return {.id = id, .version = head_.version, .blob = head_.blob, .blocks = durable_.size()};
  }
  void Commit(const AttributesRecord& attributes);

  // Rises whenever a slot becomes free: who read slots while it stood still read what they name.
  uint64_t frees() const { return frees_; }
  Slots& slots() { return slots_; }

  const ObjectHead& durable_head() const { return durable_head_; }
  uint64_t durable_block_count() const { return durable_.size(); }
  TableDigest DurableDigest() const;
  // Pages of the table that differ from what the last checkpoint wrote, and their contents.
  absl::btree_set<uint64_t> TakeChangedPages() { return std::exchange(changed_pages_, {}); }
  void ChangedPages(const absl::btree_set<uint64_t>& pages) {
    changed_pages_.insert(pages.begin(), pages.end());
  }
  bool has_changed_pages() const { return !changed_pages_.empty(); }
  bool IsChanged(uint64_t page) const { return changed_pages_.contains(page); }
  TablePage MakePage(ObjectId id, uint64_t page) const;

 private:
  // Frees the slot unless a batch that may be durable names it.
  void Release(const BlockEntry& entry);

  ObjectHead head_;
  ObjectHead durable_head_;
  bool has_head_ = false;
  bool head_changed_ = false;
  bool uncertain_ = false;  // a batch may be durable, and none after it is for certain
  BlockMap durable_;
  BlockMap changed_;  // over `durable_`; version 0: a hole
  // Of batches that may be durable, since the last one that is for certain.
  absl::flat_hash_set<uint64_t> pinned_;  // slots
  absl::flat_hash_set<uint64_t> batch_blocks_;
  Slots slots_;
  uint64_t frees_ = 0;
  uint64_t block_count_ = 0;
  absl::btree_set<uint64_t> changed_pages_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_OBJECT_STATE_H_
