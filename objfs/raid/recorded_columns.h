#ifndef ABACUS_OBJFS_RAID_RECORDED_COLUMNS_H_
#define ABACUS_OBJFS_RAID_RECORDED_COLUMNS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/column_record.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/range_turns.h"
#include "objfs/raid/read_plan.h"
#include "objfs/raid/stripe_set.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What the layers over columns have in common: calls to columns, a record at each, turns of
// stripes, the set of those that are being written, opening, flushing. A kind of such layers says
// how a stripe's bytes lie in its columns, and what becomes of a column that does not serve.
//
// Invariants, of all kinds:
// 1. The newest record is durable at two columns at least, and where it has to be
//    (NewestIsAtAll()) at all live ones; and Settle() has been, before what rests on it.
// 2. A stripe is in the newest record's written set before its first byte is written, or what is
//    written is staged in the newest record: its bytes are durable beside their places, and are put
//    there at the next opening, whatever a crash left of them. Not both, but after an error.
// 3. A column has a record, durably, that is newer than the one that ended the last flush of its
//    bytes before they change again, and the one that ends the next flush tells of it: so one that
//    comes back without them is known by its record.
// 4. Bytes of the columns behind the end of the file are zeros, or `ragged_` is set.
//
// Thread-safety: thread-safe. Blocking: as the layers below, and while another call is at the same
// stripes. Lock order: a turn of stripes, open_turns_, drain_turns_, record_turns_, then mutex_; no
// call is made under mutex_.
class RecordedColumns : public ColumnsLayer {
 public:
  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status Attach(uint16_t writer, const runtime::Ref<Layer>& above) override;
  absl::Status Detach(uint16_t writer) override;

  absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                           const runtime::Ref<Layer>& witness) override;
  absl::Status CloseColumns(Version now) override;
  absl::StatusOr<uint64_t> Size(Version now) override;
  absl::StatusOr<ScrubProgress> Scrub(uint64_t from, uint64_t stripes, Version now) override;

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

 protected:
  // All but one answer when a file is opened.
  static constexpr size_t kRecordHoldersLeast = 2;
  // Who closes the file, or moves the object, waits for a step of a rebuild or a scrub: on slow
  // columns it has fewer stripes.
  static constexpr std::chrono::milliseconds kStep{100};

  struct ColumnWrite {
    size_t column = 0;
    uint64_t offset = 0;
    runtime::Block bytes;
  };
  // A read that answers itself, where it has to look twice.
  struct Bytes {
    runtime::Block block;
    Version version;
  };

  // Of the kind's Begin(): how many bytes of a stripe a column has, and the file.
  void SetGeometry(ColumnRecord::Kind kind, uint64_t unit_bytes, uint64_t stripe_bytes);

  // -- what a kind says --------------------------------------------------------------------------

  // Whether a column is called.
  virtual bool IsLive(size_t column) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Whether one that refuses a call is rather done without than that call.
  virtual bool IsDispensable(size_t column) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    (void)column;
    return false;
  }
  // A column does not serve. IsAgain(): the state is another one, without it.
  virtual absl::Status FailColumn(size_t column, const absl::Status& why) = 0;
  // Other columns are below; the state is that of a new object.
  virtual void ForgetColumns() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void TakeWitness(const runtime::Ref<Layer>& witness)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    (void)witness;
  }
  // Opens the file, in turn; sets open_.
  virtual absl::Status OpenLocked(Version now) = 0;
  // What else has to be durable, elsewhere, before a record is relied on.
  virtual bool IsSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return true; }
  virtual absl::Status Settle(Version now) {
    (void)now;
    return absl::OkStatus();
  }
  // Whether one live column may have to tell alone how things are, so that each has the newest
  // record. Else two columns have it, as all but one answer when the file is opened.
  virtual bool NewestIsAtAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return true; }
  // Which columns have, or have the parity of, these bytes of the file.
  virtual std::set<size_t> ColumnsOf(uint64_t offset, uint64_t bytes) const {
    (void)offset, (void)bytes;
    return AllColumns();
  }
  // Stripes are about to be written: what has to be done for that beforehand. True: something was,
  // and the state is to be looked at again.
  virtual absl::StatusOr<bool> BeforeAdmission(StripeRun run, bool contents, Version now) {
    (void)run, (void)contents, (void)now;
    return false;
  }
  // Whether a column is away, so that it misses what is written.
  virtual bool SomeMiss() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Bytes of stripes that were admitted. `content` null: zeros. `end`: the file has zeros from
  // there on.
  virtual absl::Status WriteRange(uint64_t offset, uint64_t bytes, const runtime::Block* content,
                                  uint64_t end, Version now) = 0;
  virtual absl::StatusOr<ReadResult> ReadOnce(uint64_t offset, uint64_t bytes, Version now) = 0;
  // Removes what lies behind the end of the file. REQUIRES: nobody else is inside; admitted.
  virtual absl::Status CutTail(Version now) = 0;
  // Writes as many of the first bytes as are over stripes that have something flushed, so that they
  // are durable when it returns, without the written set; the file, where it is not ragged, grows
  // to their end. How many. 0: nothing has changed; this is not how they are written now. REQUIRES:
  // the exclusive turn of their stripes, and of the whole file where it grows.
  virtual absl::StatusOr<uint64_t> WriteStaged(uint64_t offset, const runtime::Block& bytes,
                                               Version now) {
    (void)offset, (void)bytes, (void)now;
    return 0;
  }
  // Whether what lies in that stripe behind a new end is cut off by a staged write, once the new
  // size is durable.
  virtual bool CutsByStaging(uint64_t stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    (void)stripe;
    return false;
  }
  // What lies behind the end is zeros, for all columns and whatever comes. REQUIRES: nobody else is
  // inside. Errors: kUnavailable - only the missing column knows.
  virtual absl::Status BeforeGrowing(Version now) { return CutTailIfRagged(now); }
  // Makes a torn stripe one that is relied on. Damage is no error: the stripe stays torn.
  virtual absl::Status Mend(uint64_t stripe, Version now) = 0;
  virtual absl::Status ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now) = 0;
  virtual uint64_t BytesMax() const = 0;

  // -- columns -----------------------------------------------------------------------------------

  // Takes notice of what a column answered. A column that does not serve is missing from now on:
  // kCancelled (IsAgain) asks to begin again, as the state is another.
  absl::Status Note(size_t column, const absl::Status& status);
  static bool IsAgain(const absl::Status& status) { return absl::IsCancelled(status); }
  absl::Status Again() const;
  std::vector<size_t> LiveColumns() const;
  // All at once. What a column has not is zeros. Damage comes as it is, all else through Note().
  std::vector<absl::StatusOr<Bytes>> ReadColumns(const std::vector<ColumnRead>& reads, Version now);
  // All at once. The worst answer, through Note(): a real error before IsAgain().
  absl::Status WriteColumns(const std::vector<ColumnWrite>& writes, Version now);
  // The same of bytes that become durable with the columns' next records, and not by a flush.
  absl::Status WriteSlots(const std::vector<ColumnWrite>& writes, Version now);
  // Calls a method of each of `columns` at once; answers as WriteColumns().
  template <auto kMethod, typename... Args>
  absl::Status Each(const std::vector<size_t>& columns, const Args&... args);
  // The same of methods that change what a column has.
  template <auto kMethod, typename... Args>
  absl::Status ChangeEach(const std::vector<size_t>& columns, const Args&... args) {
    const absl::Status status = Each<kMethod>(columns, args...);
    for (const size_t column : columns) ChangedIn(column);
    return status;
  }
  // After a call that changed, or may have changed, bytes of the column; before its stripes are
  // left.
  void ChangedIn(size_t column);
  // Flushes the columns that were changed since they were flushed last. `flushed`: which.
  absl::Status FlushChanged(std::vector<size_t>* flushed, Version now);
  absl::Status FlushLive(Version now) { return Each<&Layer::Flush>(LiveColumns(), now); }
  // What was read of a column, `bytes` long.
  absl::StatusOr<Bytes> BytesOf(size_t column, const absl::StatusOr<ReadResult>& answer,
                                uint64_t bytes);
  static runtime::Block ZerosOf(uint64_t bytes);

  // -- records, opening, recovery ----------------------------------------------------------------

  absl::Status Open(Version now);
  // Errors: kUnavailable - it does not answer; kDataLoss - it has something, which is no record.
  // Sequence 0: it is new.
  absl::StatusOr<ColumnRecord> ReadRecord(size_t column, Version now);
  // What a column answered to GetAttributes(), likewise.
  absl::StatusOr<ColumnRecord> RecordIn(size_t column,
                                        const absl::StatusOr<Attributes>& attributes) const;
  // Those of all columns, asked at once: of two that do not answer the waits do not add up.
  std::vector<absl::StatusOr<ColumnRecord>> ReadRecords(Version now);
  // Each opening's records follow all that it has seen, and those that only a column has which does
  // not answer now, where one opening made them: when it comes back it must not seem to know better
  // where no server tells which opening that was.
  static uint64_t NextOpening(uint64_t sequence);
  // What has to be done after a crash; the written set is what the crash left.
  absl::Status Recover(Version now);
  absl::Status MendAll(Version now);  // REQUIRES: nobody else is inside
  absl::Status MendInTurns(Version now);
  // Null: none has one.
  static const ColumnRecord* NewestOf(const std::vector<absl::StatusOr<ColumnRecord>>& found);
  // Gives these columns that record. The worst answer, as WriteColumns().
  absl::Status GiveRecord(ColumnRecord record, const std::vector<size_t>& columns, bool durable,
                          Version now);
  // The record of now with its new sequence. Errors: kResourceExhausted - it is too large.
  absl::StatusOr<ColumnRecord> NextRecord() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where fewer than `columns` had the newest record it is saved again before anything rests on it:
  // next time they may be away. One that has no room keeps nobody from reading.
  absl::Status SaveWhatWasFound(const std::vector<absl::StatusOr<ColumnRecord>>& found,
                                size_t columns, Version now);
  void ForgetRecords() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the record of now durable (invariant 1), and at those columns that wait for one.
  absl::Status Save(Version now);
  // The same, at all live columns.
  absl::Status SaveAtAll(Version now);
  // Gives all live columns the record of now; durable some time.
  absl::Status PushRecord(Version now);
  // What a flush makes durable of this opening's; `staged`: in its place too. Waits for those who
  // are writing to what others had written before.
  absl::Status FlushWork(bool staged, Version now);
  // And, once, of the openings before: a client may have died between a change and its flush.
  absl::Status FlushWhatWasFound(Version now);
  // Makes all bytes durable, and takes out of the written set what nobody is writing, and what is
  // staged and in its place. The record that says so is due then. `staged`: also where nothing else
  // asks for it.
  absl::Status Drain(Version now, bool staged = false);
  // The same of stripes that Drain() left, as somebody was writing to them.
  absl::Status DrainInTurn(const StripeSet& stripes, Version now);
  // Nothing is staged any more but what is under way, and the slots of the rest are free.
  absl::Status Unstage(Version now);
  StripeSet StagedStripes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The write in that slot is no longer staged; the slot is free when a record says so.
  void DropStaged(size_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed(Version now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- writes ------------------------------------------------------------------------------------

  // REQUIRES: the exclusive turn of these stripes. `contents`: bytes are written to them, and they
  // are not only cut off. `columns`: which change.
  absl::Status Admit(StripeRun run, bool contents, const std::set<size_t>& columns, Version now);
  void Leave(StripeRun run);
  // In its turn; `at` is where the bytes went.
  absl::Status Change(bool append, const runtime::Block& bytes, uint64_t* at, Version now);
  absl::Status WriteAt(uint64_t offset, const runtime::Block& bytes, Version now);
  absl::Status WriteInPlace(uint64_t offset, const runtime::Block& bytes, Version now);
  absl::Status CutTailIfRagged(Version now);
  absl::Status CheckSize(uint64_t offset, uint64_t bytes) const;

  uint64_t StripeAt(uint64_t offset) const { return offset / stripe_bytes_; }
  uint64_t StripesIn(uint64_t size) const {
    return size / stripe_bytes_ + (size % stripe_bytes_ > 0);
  }
  StripeRun StripesOf(uint64_t offset, uint64_t bytes) const {
    return {StripeAt(offset), StripesIn(offset + bytes)};
  }
  // A set of stripes in a checkpoint.
  using Runs = std::vector<std::pair<uint64_t, uint64_t>>;
  static Runs RunsOf(const StripeSet& set) { return {set.runs().begin(), set.runs().end()}; }
  static StripeSet SetOf(const Runs& runs);

  std::set<size_t> AllColumns() const;
  uint64_t unit_bytes() const { return unit_bytes_; }
  uint64_t stripe_bytes() const { return stripe_bytes_; }
  ColumnRecord::Kind record_kind() const { return record_kind_; }

  static constexpr StripeRun kOneAtATime{0, 1};  // of turns that are of no stripes
  static constexpr StripeRun kWholeFileRun{0, UINT64_MAX};
  // Of stripes; and one at a time.
  RangeTurns turns_, open_turns_, drain_turns_, record_turns_;

  mutable runtime::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  ColumnRecord now_ ABSL_GUARDED_BY(mutex_);   // as it would be written
  StripeSet torn_ ABSL_GUARDED_BY(mutex_);     // part of now_.written: columns do not fit together
  StripeSet writing_ ABSL_GUARDED_BY(mutex_);  // admitted, and not left
  StripeSet fresh_ ABSL_GUARDED_BY(mutex_);    // of writing_, where nobody else wrote since a flush
  StripeSet drained_ ABSL_GUARDED_BY(mutex_);  // of a Drain() under way
  StripeSet pending_ ABSL_GUARDED_BY(mutex_);  // rebuilt, not durable yet
  bool ragged_ ABSL_GUARDED_BY(mutex_) = false;
  // Up to where the file may have something that was flushed.
  uint64_t flushed_end_ ABSL_GUARDED_BY(mutex_) = 0;
  // Columns: that nothing has changed in since they were flushed; whose flush waits for its record;
  // that Admit() asks one for; that have one which is newer than that which ended it.
  std::set<size_t> flushed_ ABSL_GUARDED_BY(mutex_), due_ ABSL_GUARDED_BY(mutex_),
      asked_ ABSL_GUARDED_BY(mutex_), fenced_ ABSL_GUARDED_BY(mutex_);
  // Slots of now_.staged whose bytes are in their place as well, for the next flush.
  std::set<size_t> placed_ ABSL_GUARDED_BY(mutex_);
  // Slots in use, until that change of now_ is saved; kInUse: until it is known.
  static constexpr uint64_t kInUse = UINT64_MAX;
  std::map<size_t, uint64_t> slots_ ABSL_GUARDED_BY(mutex_);
  runtime::CondVar slots_change_;  // one is no longer that of a write that is under way
  // What an earlier opening left in columns is durable. It may be read and not be.
  bool found_durable_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;    // grows with each change of now_
  uint64_t saved_ ABSL_GUARDED_BY(mutex_) = 0;     // up to where it is durable
  uint64_t admitted_ ABSL_GUARDED_BY(mutex_) = 0;  // the change that last admitted a stripe
  uint64_t repaired_ ABSL_GUARDED_BY(mutex_) = 0;  // units, for people

 private:
  // Who gets it, of those that are live.
  std::vector<size_t> RecordHolders(const std::set<size_t>& due, uint64_t sequence) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether all of them that are live are fenced.
  bool AreFenced(const std::set<size_t>& columns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after SetGeometry().
  ColumnRecord::Kind record_kind_ = ColumnRecord::Kind::kRaid5;
  uint64_t unit_bytes_ = 0, stripe_bytes_ = 1;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_RECORDED_COLUMNS_H_
