#ifndef ABACUS_OBJFS_CACHE_CACHE_LAYER_H_
#define ABACUS_OBJFS_CACHE_CACHE_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "objfs/cache/block_pool.h"
#include "objfs/layer/layer.h"
#include "runtime/base/mutex.h"
#include "runtime/object/manager.h"

namespace abacus::objfs {

// A cache object: keeps blocks of a file where it runs, and changes until they are written back
// (paper, section 4.3.1).
//
// What is not here is read from the layer below in runs; a reader that goes on where it stopped
// gets `ahead` bytes more at a time. A write stays here until there is too much of it (`dirty`, a
// share of the node's budget), until somebody asks for it to be durable, or until another client
// wants to read it. With `through` it is written below before Write() returns. When it
// moves, dirty blocks are written below first or move with it, whichever costs less
// (cache/travel.h); clean ones are read anew.
//
// It keeps something only under a promise of the layer below (Layer::Claim): a call that finds none
// claims it, and answers IsWouldBlock() where another client has to give its own back first. A
// promise ends by Invalidate() or Recall(), which wait for the calls that are inside under it, so
// that each claim that was granted serves one call at least. The promise moves with the object.
//
// Where the layer below answers a claim with no promise at all - other clients write the file at
// the same time - the call goes below as it is, and nothing of it is kept. Such calls and a promise
// exclude each other: one that comes is used when the last of them has ended, or what they write
// could be written over by a block that was read before it.
//
// Invariants:
// 1. A read sees every write that returned before it began, wherever the object was then.
// 2. After Flush() returned OK all that was written before is durable below.
// 3. After Recall() or Invalidate() returned OK nothing older is read here.
// 4. A write-back that failed leaves its blocks dirty, and whoever caused it is told. The next
//    Flush() tries again. Only where the promise ends are they dropped: another client waits for
//    them, and the next Flush() or Push() tells what became of them, once.
// 5. Blocks, dirty ones and the size are here only under a promise. None is dirty while a call goes
//    below that was answered none.
// A cache may stand on a cache: then it asks the lower one, and tells the upper one.
// Thread-safety: thread-safe. Blocking: as the layer below, where something is not here.
class CacheLayer final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"block", OptionType::kBytes, "8 KiB", 512, 1 << 20, "bytes that are cached as one"},
      {"ahead", OptionType::kBytes, "128 KiB", 0, 16 << 20, "read ahead of a sequential reader"},
      {"dirty", OptionType::kShare, "0.5", 0, 1, "of the node's cache that may wait to be written"},
      {"through", OptionType::kFlag, "off", 0, 1, "write below at once"},
  };
  static constexpr LayerKind kKind = {"cache", "objfs.CacheLayer", kOptions};

  // A cache that no manager made has a pool of its own, of this size.
  static constexpr uint64_t kOwnBudgetBytes = uint64_t{8} << 20;

  CacheLayer() : CacheLayer(std::make_shared<BlockPool>(kOwnBudgetBytes)) {}
  // Made by a CacheManager, whose pool all caches of a node share.
  explicit CacheLayer(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}
  ~CacheLayer() override;

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  // Written below at once: only there the end of the file is known.
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::Status FlushData(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  // For a cache above: it has what this one has.
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status Invalidate(Range range, Version version) override;
  absl::Status Recall(Range range, Version version) override;

  // Flushes where that costs less than to carry what is dirty, or where the target had no room for
  // it; from here on little more than may be carried gets dirty. What cannot be flushed is carried.
  bool BeforeMove(const runtime::MoveAhead& ahead) override;
  void StaysHere() override;
  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_LAYER(CacheLayer, 2)

 private:
  // Bytes that one call below moves at most.
  static constexpr uint64_t kRunBytesMax = uint64_t{1} << 20;

  struct Blocks {
    uint64_t first = 0, last = 0;
  };

  // A call that is inside under a promise. The promise does not end while it lives.
  class Inside {
   public:
    Inside(CacheLayer* cache, bool passes) : cache_(cache), passes_(passes) {}
    Inside(Inside&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), passes_(other.passes_) {}
    Inside& operator=(Inside&&) = delete;
    ~Inside() {
      if (cache_ != nullptr) cache_->Leave(passes_);
    }
    // There is no such promise: the call goes below as it is, and nothing is kept of it.
    bool passes() const { return passes_; }

   private:
    CacheLayer* cache_;
    const bool passes_;
  };
  // Changes come one after the other: what one of them knows of the end of the file, and of what is
  // dirty, holds until it has told the layer below. Not a mutex: it is kept over calls below, which
  // wait for no other client under a promise to write.
  class Changing {
   public:
    explicit Changing(CacheLayer* cache) : cache_(cache) { cache_->BeginChange(); }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;
    ~Changing() { cache_->EndChange(); }

   private:
    CacheLayer* const cache_;
  };
  void BeginChange();
  void EndChange();
  absl::StatusOr<Inside> Enter(PromiseKind kind, Version now, bool for_above = false);
  void Leave(bool passes);
  // A call that passed has changed these blocks below, and maybe the size.
  void Passed(Blocks blocks);
  // Empties the cache of what it has without a promise, then has it.
  void Take(const Promise& promise) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends promises given up to `version`, or where they are for good, forgets `range`.
  absl::Status GiveBack(Range range, Version version, bool write_back);
  absl::Status WriteBackOrLose(Blocks blocks, bool ends);
  absl::Status TakeLost();
  // Accepted bytes are gone, because of this: told by the next Flush() or Push().
  void Lost(const absl::Status& why) {
    runtime::MutexLock lock(mutex_);
    lost_.Update(why);
  }

  absl::Status Begin() override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  Blocks BlocksOf(Range range) const;
  absl::StatusOr<uint64_t> Size(Version now);
  // Reads blocks first to last from below; the last one may be beyond the end.
  absl::StatusOr<std::vector<BlockPool::Found>> ReadBelow(uint64_t first, uint64_t last,
                                                          Version now);
  // And keeps them here.
  absl::StatusOr<std::vector<BlockPool::Found>> Fetch(uint64_t first, uint64_t last, Version now);
  // All blocks of `blocks`, fetched where they are not here, and more behind them for a reader that
  // goes on.
  absl::StatusOr<std::vector<BlockPool::Found>> Get(Blocks blocks, uint64_t ahead_bytes,
                                                    uint64_t size, Version now);
  uint64_t AheadOf(uint64_t offset, uint64_t bytes);
  // A part of one block.
  absl::Status WriteWithin(uint64_t offset, std::string_view bytes, Version now);
  // Writes the part that whole blocks do not cover, and says which whole blocks are left.
  absl::Status ZeroEdges(Range range, Version now, Range* whole);
  absl::Status WriteBack(Blocks blocks);
  absl::Status MakeRoomForDirty(uint64_t bytes);
  // More than a checkpoint is to have, in a cache that is about to move.
  bool TooMuchToCarry(uint64_t more_bytes) const;
  void ForgetSize();

  const std::shared_ptr<BlockPool> pool_;
  BlockPool::FileId file_ = 0;
  uint64_t block_bytes_ = 0;
  bool through_ = false;

  mutable runtime::Mutex mutex_;
  runtime::CondVar changed_;
  Promise promise_ ABSL_GUARDED_BY(mutex_);
  Version broken_ ABSL_GUARDED_BY(mutex_);    // the newest promise that was broken
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;    // calls under the promise, or that pass
  int passing_ ABSL_GUARDED_BY(mutex_) = 0;   // of them those that pass
  int claiming_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that wait for the answer to a claim
  bool changing_ ABSL_GUARDED_BY(mutex_) = false;
  int breaking_ ABSL_GUARDED_BY(mutex_) = 0;   // breaks under way: nobody enters
  int recalling_ ABSL_GUARDED_BY(mutex_) = 0;  // those above are being told: they get no promise
  int leaving_ ABSL_GUARDED_BY(mutex_) = 0;    // moves that are about to begin
  uint64_t carry_bytes_max_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last of them
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);             // why blocks were dropped; told once
  // Unknown: the layer below knows it, and what is dirty here.
  std::optional<uint64_t> size_ ABSL_GUARDED_BY(mutex_);
  uint64_t size_changes_ ABSL_GUARDED_BY(mutex_) = 0;
  // The newest write here. A block may be newer, where another client wrote it before, but it is
  // always in this client's name that it is written back.
  Version written_ ABSL_GUARDED_BY(mutex_);
  uint64_t dirty_end_ ABSL_GUARDED_BY(mutex_) = 0;    // where the furthest write ended
  uint64_t next_offset_ ABSL_GUARDED_BY(mutex_) = 0;  // where a sequential reader goes on
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0, misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The object manager of a node's cache objects: one budget for all of them.
class CacheManager final : public runtime::ObjectManager {
 public:
  explicit CacheManager(uint64_t budget_bytes)
      : CacheManager(std::make_shared<BlockPool>(budget_bytes)) {}
  // With a pool whose budget somebody else may change.
  explicit CacheManager(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

  // Errors: kResourceExhausted - the dirty blocks that a cache brings along do not fit.
  absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CreateObj(const runtime::ClassInfo& info,
                                                                   size_t state_bytes) override;
  const BlockPool& pool() const { return *pool_; }

 private:
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CACHE_CACHE_LAYER_H_
