#ifndef ABACUS_OBJFS_RAID_RAID5_LAYER_H_
#define ABACUS_OBJFS_RAID_RAID5_LAYER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/column_record.h"
#include "objfs/raid/parity_work.h"
#include "objfs/raid/read_pace.h"
#include "objfs/raid/recorded_columns.h"
#include "objfs/raid/stripe_set.h"
#include "objfs/raid/striping.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

class ColumnReads;
class SharedStripes;

// A RAID-5 object: one file over the layers below it, its columns, with parity that goes round
// (striping.h). Any one column may be missing. How crashes and missing columns are survived, and
// why, is in README.md; the columns' records are in column_record.h.
//
// One raid5 object serves a file at a time. Its columns are its own: nobody else writes to them. Or
// several serve it together, each by SharedStripes, and then all that is said below of what is
// kept, gathered, staged and written is empty (SHARED_STRIPES.md).
//
// Invariants, beside those of RecordedColumns:
// 1. What is written while a column is missing is among what that missed, durably, before.
// 2. What the file had at a Flush() that returned OK is there after a crash, also if a column is
//    missing then: but for that column's units of stripes that were being cut off or punched with
//    it there (and what README.md names beside), which are kUnavailable until it is back.
// 3. What is gathered is seen by all calls as if it were written, is at the columns when Push(),
//    Flush(), Size() or CloseColumns() has returned OK, and moves with the object. What of it
//    cannot be written is told by those and kept, also over TakeColumns(), until CloseColumns().
// 4. Parity is the XOR of data in each stripe that nobody is writing, that is not torn and of which
//    no column lacks anything.
//
// Errors: kUnavailable - more than one column is missing, or what is asked for is known by the
// missing one only. kDataLoss - damage in two columns of one stripe. kFailedPrecondition - the
// columns are of a file with other options, or in another order. After an error of a write the file
// may have grown. Commit() is kUnimplemented.
// Thread-safety, blocking: as RecordedColumns; lock order: gather_turns_ before the turns of
// stripes.
class Raid5Layer final : public RecordedColumns {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"unit", OptionType::kBytes, "32 KiB", Striping::kStoreBlockBytes, Striping::kUnitBytesMost,
       "bytes in a row in one column: a power of two"},
      {"gather", OptionType::kFlag, "on", 0, 1, "small sequential writes become whole stripes"},
      {"journal", OptionType::kFlag, "on", 0, 1,
       "what was flushed is not written over before its new bytes are durable beside it"},
  };
  static constexpr LayerKind kKind = {"raid5", "objfs.Raid5Layer", kOptions,
                                      Striping::kColumnsLeast, Striping::kColumnsMost};
  // Of each column; from there on it has what stands in for missing units (README.md).
  static constexpr uint64_t kSpillAt = uint64_t{1} << 43;

  // From there on it has slots of staged writes (raid5_stage.cc).
  static constexpr uint64_t kStageAt = kSpillAt / 8 * 15;
  // Stripes whose writes are staged by one record.
  static constexpr uint64_t kStagedAtOnce = 8;

  // What is kept of small sequential writes of a file: a stripe. Where a stripe is larger, nothing
  // is.
  static constexpr uint64_t kGatheredBytesMost = uint64_t{4} << 20;
  // Reads that go round a column that is late, at once and of one file: more wait for their turn.
  static constexpr int kReadsRoundMost = 16;

  // `parity_work` empty: nobody is told. Without an alarm reads are waited for, however long they
  // take.
  explicit Raid5Layer(ParityWork parity_work = {}, std::shared_ptr<Alarm> alarm = nullptr)
      : parity_work_(std::move(parity_work)), alarm_(std::move(alarm)) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                           const runtime::Ref<Layer>& witness) override;
  absl::Status CloseColumns(Version now) override;
  absl::StatusOr<bool> CloseToShare(Version now) override;
  absl::Status TakeShared(const SharedColumns& shared) override;
  absl::Status NoteMissed(const std::vector<Range>& ranges, Version now) override;
  absl::StatusOr<uint64_t> Size(Version now) override;
  absl::Status Punch(Range range, Version now) override;
  // Knows holes of whole stripes only; all else is data.
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Invalidate(Range range, Version version) override;
  absl::Status Recall(Range range, Version version) override;

  absl::StatusOr<RebuildProgress> Rebuild(uint64_t from, uint64_t stripes, Version now) override;
  absl::StatusOr<ScrubProgress> Scrub(uint64_t from, uint64_t stripes, Version now) override;

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_COLUMNS_LAYER(Raid5Layer, 4)

 private:
  // How a stripe is kept now.
  struct Mode {
    std::optional<size_t> lost;  // the column that has no part in this stripe
    bool unit_lost = false;      // and its unit is one of data: where is it?
    bool spilled = false;        //   behind kSpillAt of the parity's column; parity counts no more
    bool doubtful = false;       //   nowhere; parity counts no more
    bool torn = false;           // parity may be wrong
  };
  using Time = std::chrono::steady_clock::time_point;
  // A part of one data unit, and what is written to it.
  struct PieceWrite {
    Striping::Piece piece;
    runtime::Block bytes;
  };
  absl::Status Begin() override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  // -- columns: raid5_columns.cc -----------------------------------------------------------------

  absl::Status FailColumn(size_t column, const absl::Status& why) override;
  bool IsLive(size_t column) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return present_ || now_.missing != column;
  }
  bool SomeMiss() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return now_.missing.has_value() && !present_;
  }
  void ForgetColumns() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    present_ = false;
    spilled_.clear();
    staged_in_.clear();
    noted_.clear();
    given_back_ = false;
    pace_.Reset(below_count());
  }
  bool NewestIsAtAll() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return now_.missing.has_value();
  }
  std::set<size_t> ColumnsOf(uint64_t offset, uint64_t bytes) const override;
  Mode ModeOf(uint64_t stripe) const;
  Mode ModeLocked(uint64_t stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasData(uint64_t stripe, size_t column) const {
    return striping_->ParityColumn(stripe) != column;
  }
  uint64_t SpillOf(uint64_t stripe) const { return kSpillAt + striping_->ColumnOffsetOf(stripe); }

  // -- small sequential writes: raid5_gather.cc --------------------------------------------------

  // Bytes of one stripe that were written and are not at the columns yet.
  struct Gathered {
    uint64_t offset = 0, bytes = 0;  // bytes 0: nothing
    runtime::Block stripe;           // where the stripe begins
    Version version;                 // the newest of the writes
    uint64_t end() const { return offset + bytes; }
  };
  // Keeps bytes of one stripe, and writes what was kept where they do not follow it or are its end.
  absl::Status Gather(uint64_t offset, const runtime::Block& bytes, Version now);
  // Writes what is kept. What could not be written is kept on.
  absl::Status WriteGathered();
  absl::Status WriteGatheredInTurn();
  // Where some of it is in that range of the file.
  absl::Status WriteGatheredIfIn(uint64_t begin, uint64_t end);
  absl::StatusOr<ReadResult> ReadWithGathered(uint64_t offset, uint64_t bytes, Version now);
  absl::Status PunchColumns(Range range, Version now);
  // Up to `end` at most, the end of the file. REQUIRES: the exclusive turn of the stripes.
  absl::Status WriteZeros(uint64_t offset, uint64_t bytes, uint64_t end, Version now);
  void ForgetGathered();

  // -- together with others: raid5_shared.cc -----------------------------------------------------

  // Null: alone.
  std::shared_ptr<SharedStripes> Together() const;
  // Not together any more. Whether it was.
  bool EndTogether();
  // Whether nothing of an open file is missing or being written.
  bool MayBeShared() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Attributes> SharedAttributes(uint64_t size, Version now);
  // The file's stripes of which NoteMissed() told.
  StripeSet Noted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds them to what the missing column missed.
  void AddNoted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- opening, recovery: raid5_open.cc ----------------------------------------------------------

  absl::Status OpenLocked(Version now) override;
  // `is_whole`: a column that was missing and has missed nothing, where another one lacks the file.
  absl::Status TakeRecords(std::vector<absl::StatusOr<ColumnRecord>> found,
                           std::optional<size_t>* is_whole);
  // What it has behind the file's end is of before the file was cut off.
  absl::Status CutBehindEnd(size_t column, Version now);
  absl::Status CutColumn(size_t column, uint64_t bytes, Version now);
  absl::Status SaveWithout(size_t column, Version now);
  absl::Status FindSpills(Version now);
  absl::Status Mend(uint64_t stripe, Version now) override;
  // Takes the missing column back, which answers. REQUIRES: nobody else is inside.
  absl::Status BringBack(size_t column, bool believed, Version now);
  bool Believed(const absl::StatusOr<ColumnRecord>& record, size_t column) const;

  // -- bytes: raid5_read.cc, raid5_write.cc ------------------------------------------------------

  absl::StatusOr<ReadResult> ReadOnce(uint64_t offset, uint64_t bytes, Version now) override;
  // A plan that was begun: the numbers of its calls, one a column.
  struct Begun {
    ReadPlan plan;
    std::vector<size_t> calls;
  };
  // How pieces are had, where it can be without that column.
  ReadPlan PlanOf(const std::vector<Striping::Piece>& pieces, std::optional<size_t> without) const;
  Begun BeginReads(ReadPlan plan, ColumnReads& reads) const;
  // Reads pieces; of two ways the one that is there first, where a column is late.
  absl::StatusOr<Begun> ReadRound(const std::vector<Striping::Piece>& pieces, ColumnReads& reads);
  // What of a plan was answered with an error that is none of a block.
  absl::Status Refused(const Begun& begun, const ColumnReads& reads);
  // What a piece is the XOR of. `to` null: in a block of its own.
  Bytes PieceOf(const Striping::Piece& piece, const std::vector<ReadPlan::Source>& sources,
                const std::vector<absl::StatusOr<Bytes>>& answers, char* to) const;
  // The turn of one of kReadsRoundMost.
  bool BeginRound();
  void EndRound();
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

  // -- over what was flushed: raid5_stage.cc -----------------------------------------------------

  absl::StatusOr<uint64_t> WriteStaged(uint64_t offset, const runtime::Block& bytes,
                                       Version now) override;
  // The first bytes of them, of some stripes: how many; 0: they are not staged now.
  absl::StatusOr<uint64_t> StageSome(uint64_t offset, const runtime::Block& bytes, Version now);
  // A slot each for the first stripes of `run` whose writes are staged now.
  std::vector<size_t> TakeSlots(StripeRun run, Version now);
  // Whether a slot is only free after one of the writes that are under way.
  bool AllSlotsAreUnderWay() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(const std::vector<size_t>& slots);
  // Sees to it that each of them has a record, whichever.
  bool HaveRecords(const std::set<size_t>& columns, Version now);
  // Where in columns a staged write is to be: each unit's piece, and then the parity.
  std::vector<ColumnRead> PlacesOf(const ColumnRecord::Staged& staged) const;
  // What is to be there. `end`: the file has zeros from there on.
  absl::StatusOr<std::vector<runtime::Block>> ContentsOf(const ColumnRecord::Staged& staged,
                                                         const runtime::Block& bytes, uint64_t end,
                                                         Version now);
  // Those that touch in a column as one.
  static std::vector<ColumnWrite> Joined(std::vector<ColumnWrite> writes);
  // Makes writes whose bytes are in their slots, of these columns, known. False: they are not, and
  // not staged.
  bool SaveStaged(const std::vector<ColumnRecord::Staged>& staged, const std::set<size_t>& columns,
                  Version now);
  // Whether all of them have that record, or a later one, durably.
  bool AreDurable(const std::set<size_t>& columns, uint64_t sequence) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAll(const std::vector<ColumnRecord::Staged>& staged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes zeros to the last stripe from the end of the file on, staged, and flushes them: what
  // follows cuts the slots off. False: it is not done that way now. REQUIRES: nothing is staged.
  absl::StatusOr<bool> CutByStaging(uint64_t size, Version now);
  // Puts what the record says is staged in its place, after a crash. True: there was something.
  absl::StatusOr<bool> PlaceStaged(Version now);
  // Gives back the room of slots. REQUIRES: nothing is staged.
  void EmptySlots(Version now);
  // What a column has in a slot, where that is what is staged there.
  absl::StatusOr<std::optional<runtime::Block>> ReadSlot(size_t column, size_t slot, uint64_t bytes,
                                                         uint32_t crc, Version now);
  // What one of its places lacks of a staged write, from what was `found` for all others. Nothing:
  // it is not known so. Errors: kDataLoss - a block of another column rotted.
  absl::StatusOr<std::optional<runtime::Block>> LackingOf(
      const ColumnRecord::Staged& staged, size_t lacking,
      const std::vector<std::optional<runtime::Block>>& found, Version now);
  // What is left to do of a staged write that was put in its place: nothing; the parity is to be
  // computed from the data; what one column lacks (`lost`) from the rest. Or it had not begun, and
  // nothing was changed.
  enum class Placing : uint8_t { kDone, kTorn, kLost, kNotBegun };
  absl::StatusOr<Placing> PlaceOne(const ColumnRecord::Staged& staged, ColumnRead* lost,
                                   Version now);
  absl::Status PlaceLost(uint64_t stripe, const ColumnRead& lost, Version now);
  // Puts what is staged in its place, but for blocks that rotted and are not written wholly.
  absl::Status WriteWhatIsWhole(const ColumnRead& place, const runtime::Block& bytes, Version now);
  // A column that has no room is missing from now on: IsAgain().
  absl::Status DoWithout(size_t column, const absl::Status& why, Version now);
  // The blocks of the store that a place touches.
  static ColumnRead BlocksOf(const ColumnRead& place);

  // A missing unit of what is written has to be put elsewhere first.
  absl::StatusOr<bool> BeforeAdmission(StripeRun run, bool contents, Version now) override;
  absl::Status Spill(const std::vector<uint64_t>& stripes, Version now);
  // Pieces of one stripe that was admitted. `end`: the file has zeros from there on.
  absl::Status WriteStripe(uint64_t stripe, const std::vector<PieceWrite>& pieces, uint64_t end,
                           Version now);
  absl::Status WritePlain(uint64_t stripe, const Mode& mode, const std::vector<PieceWrite>& pieces,
                          Version now);
  // The parity of units' bytes `hull`, from that of before, or from all data; ParityOf(): whichever
  // reads less.
  absl::StatusOr<runtime::Block> ParityOf(uint64_t stripe, const std::vector<PieceWrite>& pieces,
                                          StripeRun hull, bool torn, uint64_t end, Version now);
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
  absl::Status WriteRange(uint64_t offset, uint64_t bytes, const runtime::Block* content,
                          uint64_t end, Version now) override;
  // Takes notice of what became of stripes that were written whole, or with their parity.
  absl::Status Written(StripeRun run, const absl::Status& status);
  absl::Status CutTail(Version now) override;
  bool CutsByStaging(uint64_t stripe) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeforeGrowing(Version now) override;
  uint64_t BytesMax() const override {
    return (kStageAt - kSpillAt) / unit_bytes() * stripe_bytes();
  }

  // The first stripes from `from` on that are missed, up to so many, to be rebuilt at once. Empty:
  // there are none.
  StripeRun NextToRebuild(uint64_t from, uint64_t stripes);
  // Up to `end`, but for the first. Returns where to go on. `done`: all before that but those that
  // are damaged in another column, too, of which `damaged` is counted, and those that only the
  // missing column knows. REQUIRES: the exclusive turn.
  absl::StatusOr<uint64_t> RebuildRun(StripeRun run, size_t column, Time end, StripeSet* done,
                                      uint64_t* damaged, Version now);
  // Those that are whole but for that column, many in one call a column. Returns where to go on;
  // run.begin: the first one wants a look by itself.
  absl::StatusOr<uint64_t> RebuildTogether(StripeRun run, size_t column, Time end, Version now);
  // `written`: up to where, also after an error.
  absl::Status RebuildPieces(StripeRun run, size_t column, Time end, uint64_t* written,
                             Version now);
  absl::Status RebuildStripe(uint64_t stripe, size_t column, Version now);
  absl::Status FinishRebuilt(const StripeSet& stripes, size_t column, Version now);
  absl::Status ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now) override;

  // XorOf() and XorInto(), of which parity_work_ is told.
  void SumOf(absl::Span<const char* const> sources, char* to, size_t bytes) const;
  void AddTo(const char* source, char* to, size_t bytes) const;

  const ParityWork parity_work_;
  const std::shared_ptr<Alarm> alarm_;
  ReadPace pace_;
  std::optional<Striping> striping_;         // constant after Begin()
  bool gathers_ = false, journals_ = false;  // likewise
  RangeTurns gather_turns_;                  // of gathered_; before the turns of stripes

  bool present_ ABSL_GUARDED_BY(mutex_) = false;  // the missing column answers; it lacks `missed`
  StripeSet spilled_ ABSL_GUARDED_BY(mutex_);
  Gathered gathered_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_end_ ABSL_GUARDED_BY(mutex_) = 0;         // where the last write ended
  uint64_t gathered_writes_ ABSL_GUARDED_BY(mutex_) = 0;  // for people
  int rounds_ ABSL_GUARDED_BY(mutex_) = 0;                // reads that go round a late column now
  std::set<size_t> staged_in_ ABSL_GUARDED_BY(mutex_);    // columns of whose slots some were used
  uint64_t staged_writes_ ABSL_GUARDED_BY(mutex_) = 0;    // for people
  uint64_t read_round_ ABSL_GUARDED_BY(mutex_) = 0;  // that did, or knew beforehand; for people

  std::shared_ptr<SharedStripes> shared_ ABSL_GUARDED_BY(mutex_);  // null: alone
  // The columns were shared, and are not called any more.
  bool given_back_ ABSL_GUARDED_BY(mutex_) = false;
  StripeSet noted_ ABSL_GUARDED_BY(mutex_);  // by NoteMissed(), until the file is open
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_RAID5_LAYER_H_
