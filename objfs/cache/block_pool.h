#ifndef ABACUS_OBJFS_CACHE_BLOCK_POOL_H_
#define ABACUS_OBJFS_CACHE_BLOCK_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "objfs/cache/travel.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "runtime/base/block.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The cached blocks of all cache objects of one node, under one budget of bytes.
//
// It knows nothing of layers and calls nobody: a cache fetches and writes back by itself, and tells
// the pool before and after, so that no lock is held meanwhile. Blocks are numbered from 0 in each
// file, and all blocks of a file are of one length; what is behind a file's end is zeros.
//
// Invariants (each has a test in block_pool_test.cc):
// 1. A dirty block is never dropped but by Drop() and Cut(); clean ones make room, the least
//    recently used of all files first.
// 2. A block is with one write-back at a time: until it has ended no other one takes it, and it is
//    neither dropped nor cut. A block that was written meanwhile stays dirty.
// 3. A fetch does not bring back what was written, written back, invalidated or dropped after it
//    began.
// 4. used_bytes() is the sum of all blocks' lengths. It is above the budget only by dirty blocks
// and
//    by those that are being read or written now.
// Thread-safety: thread-safe. Blocking: only TakeDirty(), Drop() and Cut(), for write-backs.
// Units: bytes. Source: paper, section 4.3.1 (cache object and its manager); the rest is ours.
class BlockPool {
 public:
  using FileId = uint64_t;

  struct Found {
    runtime::Block bytes;
    Version version;
  };
  struct Dirty {
    uint64_t index = 0;
    runtime::Block bytes;
    Version version;
    uint64_t written = 0;  // the pool's: which state of the block this is
  };

  // `dirty_share`: of the budget, what may wait to be written back.
  explicit BlockPool(uint64_t budget_bytes, double dirty_share = 1) {
    SetBudget(budget_bytes, dirty_share);
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  FileId Open(uint64_t block_bytes);
  // Forgets the file and all its blocks, dirty ones too. REQUIRES: no write-back of it is under
  // way.
  void Close(FileId file);

  // Blocks first to first + count - 1; those found count as used now.
  std::vector<std::optional<Found>> Find(FileId file, uint64_t first, uint64_t count);

  // Around a fetch of blocks from elsewhere. `blocks` are those from the fetch's first on, each of
  // the file's block length; they may be fewer than asked for.
  uint64_t BeginFetch(FileId file, uint64_t first, uint64_t count);
  void EndFetch(FileId file, uint64_t fetch, const std::vector<Found>& blocks);

  // Puts `bytes` into the block at `offset`, which is dirty then. False, and nothing is done, where
  // the block is not there, unless it is written whole or, with `or_zeros`, was all zeros.
  bool Write(FileId file, uint64_t index, uint64_t offset, std::string_view bytes, Version version,
             bool or_zeros);
  // Ends a fetch of one block and writes into it. False where what was fetched is not to be put in:
  // fetch it again.
  bool WriteFetched(FileId file, uint64_t fetch, const Found& block, uint64_t offset,
                    std::string_view bytes, Version version);

  // Dirty blocks of first to last, the lowest first, in one unbroken run of at most bytes_max (but
  // one at least), for a write-back by the caller. Waits where the first of them is with another
  // one. Empty: there are none.
  std::vector<Dirty> TakeDirty(FileId file, uint64_t first, uint64_t last, uint64_t bytes_max);
  // They are clean now, if they were not written again and `written_back`.
  void EndWriteBack(FileId file, const std::vector<Dirty>& blocks, bool written_back);
  // Forgets clean blocks of first to last whose version is before `version`.
  void Invalidate(FileId file, uint64_t first, uint64_t last, Version version);
  // Forgets all blocks of first to last, dirty ones too. Waits for write-backs of them.
  void Drop(FileId file, uint64_t first, uint64_t last);
  // The file ends at `size`: forgets the blocks behind it, and zeros the rest of the last one,
  // which stays clean or dirty. Waits for write-backs of them.
  void Cut(FileId file, uint64_t size);

  // All dirty blocks as they are, for a checkpoint. REQUIRES: no write-back is under way.
  std::vector<Dirty> AllDirty(FileId file) const;
  // How many dirty bytes there are, and which share of them is in blocks of which bytes were
  // written over since they came here, also after a write-back: they are likely to be written over
  // again.
  DirtySet Dirtiness(FileId file) const;
  std::optional<uint64_t> LastDirty(FileId file) const;
  uint64_t dirty_bytes(FileId file) const;
  uint64_t used_bytes(FileId file) const;
  uint64_t used_bytes() const;
  uint64_t budget_bytes() const { return budget_bytes_; }
  // From now on. Clean blocks make room at once; dirty ones do when they have been written back.
  void SetBudget(uint64_t budget_bytes, double dirty_share);
  // Whether so many more dirty bytes stay within the share that they may have.
  bool FitsDirty(uint64_t bytes) const;

 private:
  struct Slot {
    FileId file;
    uint64_t index;
  };
  struct Entry {
    runtime::Block bytes;
    Version version;
    bool dirty = false;
    bool writing = false;
    bool again = false;                // bytes of it were written over
    uint64_t last_end = 0;             // where in it the last write ended
    uint64_t written = 0;              // counts the writes of the pool's
    std::list<Slot>::iterator recent;  // in recent_, where clean
  };
  struct Fetch {
    uint64_t first = 0, last = 0;
    std::set<uint64_t> stale;  // not to be put in
    bool all_stale = false;
  };
  struct File {
    uint64_t block_bytes = 0;
    absl::flat_hash_map<uint64_t, Entry> blocks;
    std::set<uint64_t> dirty;
    std::map<uint64_t, Fetch> fetches;
    uint64_t used_bytes = 0;
  };

  void WriteInto(File& of, uint64_t index, uint64_t offset, std::string_view bytes, Version version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  File& Of(FileId file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const File& Of(FileId file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Put(File& of, FileId file, uint64_t index, const Found& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(File& of, uint64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks of first to last that are there.
  static std::vector<uint64_t> In(const File& of, uint64_t first, uint64_t last);
  static void SpoilFetches(File& of, uint64_t first, uint64_t last);
  static void SpoilFetchesOf(File& of, uint64_t index);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsWriting(const File& of, uint64_t first, uint64_t last);

  std::atomic<uint64_t> budget_bytes_{0}, dirty_bytes_max_{0};
  mutable runtime::Mutex mutex_;
  runtime::CondVar written_back_;
  absl::flat_hash_map<FileId, File> files_ ABSL_GUARDED_BY(mutex_);
  std::list<Slot> recent_ ABSL_GUARDED_BY(mutex_);  // clean blocks, most recently used first
  uint64_t last_file_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_fetch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dirty_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CACHE_BLOCK_POOL_H_
