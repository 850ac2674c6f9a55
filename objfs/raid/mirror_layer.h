#ifndef ABACUS_OBJFS_RAID_MIRROR_LAYER_H_
#define ABACUS_OBJFS_RAID_MIRROR_LAYER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/read_pace.h"
#include "objfs/raid/recorded_columns.h"
#include "objfs/raid/striping.h"
#include "runtime/object/manager.h"

namespace abacus::objfs {

// A mirror object: one file over the layers below it, its columns, each a copy of it. All but one
// of them may be missing. How that is survived, and why, is in MIRROR.md.
//
// One mirror object serves a file at a time. Its columns are its own: nobody else writes to them.
// Which of them are current is written at a witness, which none of them is: of two copies that
// each know of no other, none could tell whether the other went on without it.
//
// Invariants, beside those of RecordedColumns:
// 1. A copy that the witness has as current has, durably, what was there at each Flush() that
//    returned OK; and a record whose written set has each stripe in which it may be another than
//    the other current ones.
// 2. What a copy that is not current lacks is in the missed or the written set of each current
//    copy's record, or its own record is refused when it comes back.
// 3. A copy that is not current serves no read. The last current one is never marked as not
//    current.
//
// Errors: kUnavailable - no copy that is current serves, or what has to be written at the witness
// cannot be. kDataLoss - a block is damaged in all current copies. kFailedPrecondition - as
// Raid5Layer, or there is no witness. Commit() is kUnimplemented.
// Thread-safety, blocking: as RecordedColumns; lock order: witness_turns_ after record_turns_.
class MirrorLayer final : public RecordedColumns {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"unit", OptionType::kBytes, "256 KiB", Striping::kStoreBlockBytes, Striping::kUnitBytesMost,
       "bytes that are brought up to date at a time: a power of two"},
  };
  static constexpr LayerKind kKind = {"mirror", "objfs.MirrorLayer", kOptions,
                                      ColumnRecord::kCopiesLeast, ColumnRecord::kCopiesMost};

  // Without an alarm reads are waited for, however long they take.
  explicit MirrorLayer(std::shared_ptr<Alarm> alarm = nullptr) : alarm_(std::move(alarm)) {}

  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::StatusOr<RebuildProgress> Rebuild(uint64_t from, uint64_t stripes, Version now) override;

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_COLUMNS_LAYER(MirrorLayer, 2)

 private:
  enum class State : uint8_t {
    kAway,        // is not called
    kRebuilding,  // takes all that is written, and lacks `lacks_`
    kReady,       // lacks nothing any more; the witness is to be told
    kCurrent,
  };

  absl::Status Begin() override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  // -- copies and the witness: mirror_layer.cc ---------------------------------------------------

  bool IsLive(size_t column) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[column] != State::kAway;
  }
  // A copy that is being rebuilt holds nobody up: it goes on without it.
  bool IsDispensable(size_t column) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[column] == State::kRebuilding || states_[column] == State::kReady;
  }
  bool SomeMiss() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FailColumn(size_t column, const absl::Status& why) override;
  void ForgetColumns() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeWitness(const runtime::Ref<Layer>& witness) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    witness_ = witness;
  }
  // Those that the witness is to have as not current.
  std::set<size_t> Lacking() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsSettled() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return known_ == Lacking();
  }
  absl::Status Settle(Version now) override;
  std::vector<size_t> CurrentColumns() const;
  // A stripe is to be brought to all copies anew.
  void Torn(StripeRun run);

  // -- opening, and what a crash left: mirror_open.cc --------------------------------------------

  absl::Status OpenLocked(Version now) override;
  absl::Status TakeRecords(const std::set<size_t>& lacking, uint64_t size_elsewhere,
                           const std::vector<absl::StatusOr<ColumnRecord>>& found);
  absl::Status Mend(uint64_t stripe, Version now) override;
  absl::Status CutTail(Version now) override;

  // -- bytes: mirror_read.cc, mirror_layer.cc ----------------------------------------------------

  absl::StatusOr<ReadResult> ReadOnce(uint64_t offset, uint64_t bytes, Version now) override;
  // Of one copy or another; `column`: of which.
  absl::StatusOr<Bytes> ReadSomewhere(uint64_t offset, uint64_t bytes, size_t* column, Version now);
  absl::StatusOr<Bytes> ReadHedged(const ReadPace::Choice& choice, uint64_t offset, uint64_t bytes,
                                   size_t* column, Version now);
  // Whole blocks, each from whatever current copy has it, and written anew where it is damaged.
  // `repaired`: how many were.
  absl::StatusOr<Bytes> ReadEachBlock(uint64_t offset, uint64_t bytes, uint64_t* repaired,
                                      Version now);
  // A change from `begin` to `end`, made anew once where a block that it keeps a part of is
  // damaged: that is repaired from another copy first.
  template <typename F>
  absl::Status RoundDamage(uint64_t begin, uint64_t end, Version now, F&& change);
  // What all shall have of a stripe: of the first current copy, where it is not damaged.
  absl::StatusOr<Bytes> ReadStripe(uint64_t stripe, Version now);
  absl::Status WriteRange(uint64_t offset, uint64_t bytes, const runtime::Block* content,
                          uint64_t end, Version now) override;
  uint64_t BytesMax() const override { return kFileBytesMax; }

  // -- mirror_rebuild.cc -------------------------------------------------------------------------

  // Takes a copy back that answers. REQUIRES: nobody else is inside.
  absl::Status BringBack(size_t column, const absl::StatusOr<ColumnRecord>& record, Version now);
  absl::Status RebuildStripe(uint64_t stripe, Version now);
  absl::Status ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now) override;

  const std::shared_ptr<Alarm> alarm_;
  RangeTurns witness_turns_;
  ReadPace pace_;

  runtime::Ref<Layer> witness_ ABSL_GUARDED_BY(mutex_);
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);     // of the columns
  std::vector<StripeSet> lacks_ ABSL_GUARDED_BY(mutex_);  // each part of now_.missed
  // What the witness has; nullopt: that is not known, a call to it failed.
  std::optional<std::set<size_t>> known_ ABSL_GUARDED_BY(mutex_);
};

// Makes mirror objects that read round a copy that is late.
class MirrorManager final : public runtime::ObjectManager {
 public:
  absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CreateObj(const runtime::ClassInfo&,
                                                                   size_t) override {
    return std::make_unique<MirrorLayer>(alarm_);
  }

 private:
  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_MIRROR_LAYER_H_
