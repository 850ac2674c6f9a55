#ifndef ABACUS_OBJFS_RAID_SHARED_STRIPES_H_
#define ABACUS_OBJFS_RAID_SHARED_STRIPES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "objfs/atomicity/commit_peers.h"
#include "objfs/atomicity/group_writer.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "objfs/raid/parity_work.h"
#include "objfs/raid/range_turns.h"
#include "objfs/raid/read_pace.h"
#include "objfs/raid/read_plan.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/raid/stripe_set.h"
#include "objfs/raid/striping.h"
#include "objfs/store/object_store.h"
#include "runtime/base/block.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// One of several clients that read and write a RAID-5 file's columns at once (SHARED_STRIPES.md):
// within the size that it has, with all columns there. What a write changes in a stripe, data and
// parity, is one group of block writes (atomicity/README.md), which happens whole or not at all,
// and only where the blocks that it was computed from are as they were.
//
// Invariants:
// 1. Whoever dies at whatever point, parity is the XOR of data in each stripe, once what is
//    committed is in the stores.
// 2. A write that returned OK is durable, and seen by each read that begins later, whoever reads.
// 3. Of a stripe a write is there whole or not at all, once it has returned; a read beside it may
//    see some of its blocks and not others, each of them whole.
//
// Errors of Read() and Write(): IsNeedsAlone() - this cannot be done together, or not now: a column
// or its server does not answer, is full, or has a damaged block; others were always before this
// one; the size would change. A write may have happened then; the same write, done again when the
// file was opened alone, makes it certain. kUnauthenticated (IsNoClient()) - the columns were
// opened anew: what this one was promised is over, and none of its groups happens any more that had
// not before.
// Thread-safety: thread-safe. Blocking: for columns and servers, up to kPatience where others write
// to the same stripe, and while another call of this object writes to the same stripes.
class SharedStripes {
 public:
  static constexpr uint64_t kBlockBytes = ObjectStore::kBlockBytes;
  // In each column, of whole stripes that are written by one group; one stripe at least.
  static constexpr uint64_t kRunBytesMost = 256 << 10;
  // How often a write to a stripe is planned, and for how long, before it is left to who is alone.
  static constexpr int kTriesMost = 64;
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  // Of one group.
  static constexpr absl::Duration kGiveUp = absl::Seconds(5);

  struct Host {
    std::function<int64_t()> steady_ns;
    std::function<int64_t()> now_us;  // since 1970
    std::function<void(absl::Duration)> wait;
    std::shared_ptr<CommitPeers> peers;
  };
  // The clocks of this node, and the logs of `shared` through the runtime.
  static Host HostOf(const SharedColumns& shared);

  // Errors: kInvalidArgument - they are no columns of such a file.
  static absl::Status Check(const Striping& striping, const SharedColumns& shared);
  // REQUIRES: Check() is OK. `parity_work` empty: nobody is told.
  SharedStripes(const Striping& striping, SharedColumns shared, ParityWork parity_work, Host host);

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now);
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now);

  // What a column's error is for who called the file.
  static absl::Status OfColumn(size_t column, const absl::Status& status);

  const SharedColumns& shared() const { return shared_; }
  // Of the clock of the groups' identifiers, which moves with the object: none of them is given
  // twice.
  Version NextVersion() { return clock_.Next(); }
  void Follow(Version newest) { clock_.Follow(newest); }

  // Since it was made.
  struct Counts {
    uint64_t groups = 0;   // committed
    uint64_t again = 0;    // plans that were made anew, as something had changed
    uint64_t read = 0;     // blocks, for writes
    uint64_t written = 0;  // blocks, by groups that are committed
  };
  Counts counts() const;

 private:
  // A block that a write to a stripe has to do with, and those that lie at one place in all
  // columns, whose XOR is 0.
  struct Cell {
    size_t column = 0;
    uint64_t number = 0;  // of the block in the column
    uint64_t file = 0;    // where it begins in the file, if it is of data
    bool is_read = false, is_written = false;
    runtime::Block old;  // whole, if it is read
    Version version;     // likewise; 0: it was a hole
  };
  struct Row {
    std::vector<Cell> data;  // but those behind the end of the file, which are zeros
    Cell parity;             // read: the new one is the old one and what changes
    bool changes() const { return parity.is_written; }
  };
  using Group = std::vector<ServerPart>;

  // How the bytes [begin, end) of the file, all of that stripe, are written.
  std::vector<Row> RowsOf(uint64_t stripe, uint64_t begin, uint64_t end) const;
  Row RowOf(uint64_t stripe, uint64_t row, uint64_t begin, uint64_t end) const;
  absl::Status ReadOld(std::vector<Row>& rows, Version now);
  // `bytes` of the file from `begin` on; the parity's server is the last. REQUIRES: ReadOld().
  Group GroupOf(const std::vector<Row>& rows, uint64_t begin, const runtime::Block& bytes) const;
  runtime::Block NewOf(const Cell& cell, uint64_t begin, const runtime::Block& bytes) const;
  Group GroupOfWhole(StripeRun run, const char* bytes) const;
  GroupPart NewPart() const;
  // How many whole stripes one group writes, from `at` on; 0: it does not begin with one.
  uint64_t WholeStripes(uint64_t at, uint64_t end) const;
  // Until a plan was written, or cannot be.
  absl::Status WriteGroup(GroupWriter& writer, absl::FunctionRef<absl::StatusOr<Group>()> plan);
  GroupWriter::Host WriterHost(std::shared_ptr<CommitPeers> peers) const;
  absl::Duration Backoff(int tries);

  // Of each read what the column has of it. REQUIRES: `reads` are sorted by column.
  absl::StatusOr<std::vector<ReadResult>> ReadColumns(const std::vector<ColumnRead>& reads,
                                                      Version now);
  void Observe(Version now) { clock_.Observe(now).IgnoreError(); }
  // XorOf() and XorInto(), of which parity_work_ is told.
  void SumOf(absl::Span<const char* const> sources, char* to, size_t bytes) const;
  void AddTo(const char* source, char* to, size_t bytes) const;

  const Striping striping_;
  const SharedColumns shared_;
  const ParityWork parity_work_;
  const Host host_;
  RangeTurns turns_;  // of those who write here, so that they do not refuse each other
  ReadPace pace_;     // nobody asks it: no column can be done without
  HybridClock clock_;
  GroupWriter whole_writer_;
  // A stripe in part is prepared at its parity's server when it is at all others. So who finds it
  // prepared there knows, without one of the others, that they all had found it right.
  GroupWriter part_writer_;

  mutable runtime::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_SHARED_STRIPES_H_
