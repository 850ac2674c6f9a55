#ifndef ABACUS_OBJFS_RAID_RAID5_LAYER_H_
#define ABACUS_OBJFS_RAID_RAID5_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/column_record.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/parity_work.h"
#include "objfs/raid/range_turns.h"
#include "objfs/raid/stripe_set.h"
#include "objfs/raid/striping.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// A RAID-5 object: one file over the layers below it, its columns, with parity that goes round
// (striping.h). Any one column may be missing. How crashes and missing columns are survived, and
// why, is in README.md; the columns' records are in column_record.h.
//
// One raid5 object serves a file at a time. Its columns are its own: nobody else writes to them.
//
// Invariants:
// 1. A stripe is in the written set of every live column's record, durably, before its first byte
//    is written; while a column is missing it is among the missed ones too.
// 2. What the file had at a Flush() that returned OK is there after a crash, also if a column is
//    missing then: but for that column's units of stripes that were being written with it there,
//    which are kUnavailable until it is back.
// 3. Parity is the XOR of data in each stripe that nobody is writing, that is not torn and of which
//    no column lacks anything.
// 4. Bytes of the columns behind the end of the file are zeros, or `ragged_` is set.
//
// Errors: kUnavailable - more than one column is missing, or what is asked for is known by the
// missing one only. kDataLoss - damage in two columns of one stripe. kFailedPrecondition - the
// columns are of a file with other options, or in another order. After an error of a write the file
// may have grown. Commit() is kUnimplemented.
// Thread-safety: thread-safe. Blocking: as the layers below, and while another call is at the same
// stripes. Lock order: a turn of stripes, open_turns_, drain_turns_, record_turns_, then mutex_; no
// call is made under mutex_.
class Raid5Layer final : public ColumnsLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"unit", OptionType::kBytes, "32 KiB", Striping::kStoreBlockBytes, Striping::kUnitBytesMost,
       "bytes in a row in one column: a power of two"},
  };
  static constexpr LayerKind kKind = {"raid5", "objfs.Raid5Layer", kOptions,
                                      Striping::kColumnsLeast, Striping::kColumnsMost};
  // Of each column; from there on it has what stands in for missing units (README.md).
  static constexpr uint64_t kSpillAt = uint64_t{1} << 43;

  // `parity_work` empty: nobody is told.
  explicit Raid5Layer(ParityWork parity_work = {}) : parity_work_(std::move(parity_work)) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  // Knows holes of whole stripes only; all else is data.
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status Attach(uint16_t writer, const runtime::Ref<Layer>& above) override;
  absl::Status Detach(uint16_t writer) override;
  absl::Status Invalidate(Range range, Version version) override;
  absl::Status Recall(Range range, Version version) override;

  absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>& columns) override;
  absl::Status CloseColumns(Version now) override;
  absl::StatusOr<uint64_t> Size(Version now) override;
  absl::StatusOr<RebuildProgress> Rebuild(uint64_t stripes, Version now) override;
  absl::StatusOr<ScrubProgress> Scrub(uint64_t from, uint64_t stripes, Version now) override;

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_COLUMNS_LAYER(Raid5Layer, 1)

 private:
  // How a stripe is kept now.
  struct Mode {
    std::optional<size_t> lost;  // the column that has no part in this stripe
    bool unit_lost = false;      // and its unit is one of data: where is it?
    bool spilled = false;        //   behind kSpillAt of the parity's column; parity counts no more
    bool doubtful = false;       //   nowhere; parity counts no more
    bool torn = false;           // parity may be wrong
  };
  struct ColumnRead {
    size_t column = 0;
    uint64_t offset = 0, bytes = 0;
  };
  struct ColumnWrite {
    size_t column = 0;
    uint64_t offset = 0;
    runtime::Block bytes;
  };
  // A part of one data unit, and what is written to it.
  struct PieceWrite {
    Striping::Piece piece;
    runtime::Block bytes;
  };
  // A read that answers itself, where it has to look twice.
  struct Bytes {
    runtime::Block block;
    Version version;
  };

  absl::Status Begin() override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  // -- columns: raid5_columns.cc -----------------------------------------------------------------

  // Takes notice of what a column answered. A column that does not serve is missing from now on:
  // kCancelled (IsAgain) asks to begin again, as the state is another.
  absl::Status Note(size_t column, const absl::Status& status);
  static bool IsAgain(const absl::Status& status) { return absl::IsCancelled(status); }
  absl::Status FailColumn(size_t column, const absl::Status& why);
  bool IsLive(size_t column) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return present_ || now_.missing != column;
  }
  std::vector<size_t> LiveColumns() const;
  Mode ModeOf(uint64_t stripe) const;
  Mode ModeLocked(uint64_t stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasData(uint64_t stripe, size_t column) const {
    return striping_->ParityColumn(stripe) != column;
  }
  uint64_t SpillOf(uint64_t stripe) const { return kSpillAt + striping_->ColumnOffsetOf(stripe); }
  // All at once. What a column has not is zeros. Damage comes as it is, all else through Note().
  std::vector<absl::StatusOr<Bytes>> ReadColumns(const std::vector<ColumnRead>& reads, Version now);
  // All at once. The worst answer, through Note(): a real error before IsAgain().
  absl::Status WriteColumns(const std::vector<ColumnWrite>& writes, Version now);
  // Calls a method of each of `columns` at once; answers as WriteColumns().
  template <auto kMethod, typename... Args>
  absl::Status Each(const std::vector<size_t>& columns, const Args&... args);
  absl::Status FlushLive(Version now) { return Each<&Layer::Flush>(LiveColumns(), now); }

  // -- records, opening, recovery: raid5_record.cc, raid5_open.cc --------------------------------

  absl::Status Open(Version now);
  absl::Status OpenLocked(Version now);  // in turn
  absl::Status TakeRecords(std::vector<absl::StatusOr<ColumnRecord>> found);
  absl::StatusOr<ColumnRecord> ReadRecord(size_t column, Version now);
  absl::Status FindSpills(Version now);
  absl::Status Recover(Version now);
  absl::Status MendAll(Version now);
  absl::Status Mend(uint64_t stripe, Version now);
  // Takes the missing column back, which answers. REQUIRES: nobody else is inside.
  absl::Status BringBack(size_t column, bool believed, Version now);
  bool Believed(const absl::StatusOr<ColumnRecord>& record, size_t column) const;
  // Makes the record of now that of all live columns; durable, unless pushed only.
  absl::Status Save(Version now, bool durable = true);
  // Makes all bytes durable, and takes out of the written set what nobody is writing.
  absl::Status Drain(Version now);
  void Changed(Version now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- bytes: raid5_read.cc, raid5_write.cc ------------------------------------------------------

  absl::StatusOr<ReadResult> ReadOnce(uint64_t offset, uint64_t bytes, Version now);
  absl::StatusOr<Bytes> ReadPiece(const Striping::Piece& piece, Version now);
  // A part of any column's unit of a stripe, from the others where it has to be.
  absl::StatusOr<Bytes> ReadUnit(uint64_t stripe, size_t column, uint64_t at, uint64_t bytes,
                                 Version now);
  absl::StatusOr<Bytes> XorOthers(uint64_t stripe, size_t column, uint64_t at, uint64_t bytes,
                                  Version now);
  absl::StatusOr<Bytes> Repair(uint64_t stripe, size_t column, uint64_t at, uint64_t bytes,
                               const absl::Status& damage, Version now);
  // Parts of units of one stripe, as ReadUnit(), at once.
  struct Part {
    size_t column = 0;
    uint64_t at = 0, bytes = 0;
  };
  absl::StatusOr<std::vector<Bytes>> ReadParts(uint64_t stripe, const std::vector<Part>& parts,
                                               Version now);

  // In its turn; `at` is where the bytes went.
  absl::Status Change(bool append, const runtime::Block& bytes, uint64_t* at, Version now);
  absl::Status WriteAt(uint64_t offset, const runtime::Block& bytes, Version now);
  // REQUIRES: the exclusive turn of these stripes. `contents`: bytes are written to them, so that a
  // missing unit has to be put elsewhere first.
  absl::Status Admit(StripeRun run, bool contents, Version now);
  absl::Status Spill(const std::vector<uint64_t>& stripes, Version now);
  void Leave(StripeRun run);
  // Pieces of one stripe that was admitted. `end`: the file has zeros from there on.
  absl::Status WriteStripe(uint64_t stripe, const std::vector<PieceWrite>& pieces, uint64_t end,
                           Version now);
  absl::Status WritePlain(uint64_t stripe, const Mode& mode, const std::vector<PieceWrite>& pieces,
                          Version now);
  // The parity of units' bytes `hull`, from that of before, or from all data.
  absl::StatusOr<runtime::Block> ParityByChange(uint64_t stripe,
                                                const std::vector<PieceWrite>& pieces,
                                                StripeRun hull, uint64_t end, Version now);
  absl::StatusOr<runtime::Block> ParityFromAll(uint64_t stripe,
                                               const std::vector<PieceWrite>& pieces,
                                               StripeRun hull, uint64_t end, Version now);
  std::vector<Part> PartsForAll(uint64_t stripe, const std::vector<PieceWrite>& pieces,
                                StripeRun hull, uint64_t end) const;
  std::vector<Part> PartsForChange(uint64_t stripe, const std::vector<PieceWrite>& pieces,
                                   StripeRun hull, uint64_t end) const;
  absl::Status WriteFullStripes(StripeRun run, const char* bytes, Version now);
  // `content` null: zeros.
  absl::Status WriteRange(uint64_t offset, uint64_t bytes, const runtime::Block* content,
                          uint64_t end, Version now);
  // Takes notice of what became of stripes that were written whole, or with their parity.
  absl::Status Written(StripeRun run, const absl::Status& status);
  // Removes what lies behind the end of the file. REQUIRES: nobody else is inside; admitted.
  absl::Status CutTail(Version now);
  absl::Status CutTailIfRagged(Version now);
  // What lies behind the end is zeros, for all columns and whatever comes. REQUIRES: nobody else is
  // inside. Errors: kUnavailable - only the missing column knows.
  absl::Status BeforeGrowing(Version now);

  StripeRun StripesOf(uint64_t offset, uint64_t bytes) const {
    return {striping_->StripeOf(offset), striping_->Stripes(offset + bytes)};
  }
  absl::Status CheckSize(uint64_t offset, uint64_t bytes) const;
  // XorOf() and XorInto(), of which parity_work_ is told.
  void SumOf(absl::Span<const char* const> sources, char* to, size_t bytes) const;
  void AddTo(const char* source, char* to, size_t bytes) const;

  absl::Status RebuildStripe(uint64_t stripe, size_t column, Version now);
  absl::Status FinishRebuilt(const StripeSet& stripes, size_t column, Version now);
  absl::Status ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now);

  const ParityWork parity_work_;
  std::optional<Striping> striping_;                    // constant after Begin()
  RangeTurns turns_;                                    // of stripes
  RangeTurns open_turns_, drain_turns_, record_turns_;  // one at a time

  mutable runtime::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  ColumnRecord now_ ABSL_GUARDED_BY(mutex_);      // as it would be written
  bool present_ ABSL_GUARDED_BY(mutex_) = false;  // the missing column answers; it lacks `missed`
  StripeSet spilled_ ABSL_GUARDED_BY(mutex_);
  StripeSet torn_ ABSL_GUARDED_BY(mutex_);     // part of now_.written
  StripeSet writing_ ABSL_GUARDED_BY(mutex_);  // admitted, and not left
  StripeSet drained_ ABSL_GUARDED_BY(mutex_);  // of a Drain() under way
  StripeSet pending_ ABSL_GUARDED_BY(mutex_);  // rebuilt, not durable yet
  uint64_t rebuild_at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ragged_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;    // grows with each change of now_
  uint64_t saved_ ABSL_GUARDED_BY(mutex_) = 0;     // up to where it is durable
  uint64_t admitted_ ABSL_GUARDED_BY(mutex_) = 0;  // the change that last admitted a stripe
  uint64_t repaired_ ABSL_GUARDED_BY(mutex_) = 0;  // units, for people
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_RAID5_LAYER_H_
