// Opening and calls, as all layers over columns have them.

#include "objfs/raid/recorded_columns.h"

#include <algorithm>
#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

// -- opening --------------------------------------------------------------------------------------

void RecordedColumns::SetGeometry(ColumnRecord::Kind kind, uint64_t unit_bytes,
                                  uint64_t stripe_bytes) {
  record_kind_ = kind;
  unit_bytes_ = unit_bytes;
  stripe_bytes_ = stripe_bytes;
}

uint64_t RecordedColumns::NextOpening(uint64_t sequence) {
  constexpr uint64_t kRecordsOfAnOpening = uint64_t{1} << 32;
  return (sequence / kRecordsOfAnOpening + 1) * kRecordsOfAnOpening;
}

absl::Status RecordedColumns::Open(Version now) {
  {
    MutexLock lock(mutex_);
    if (open_) return absl::OkStatus();
  }
  const Turn turn(open_turns_, kOneAtATime, RangeTurns::Kind::kExclusive);
  {
    MutexLock lock(mutex_);
    if (open_) return absl::OkStatus();
  }
  absl::Status status = OpenLocked(now);
  // A column failed meanwhile: what the others say is looked at again.
  for (size_t i = 0; i < 3 && IsAgain(status); ++i) status = OpenLocked(now);
  if (IsAgain(status)) {
    return absl::UnavailableError(
        absl::StrCat(Kind().name, ": columns come and go while the file is opened; try again"));
  }
  MutexLock lock(mutex_);
  if (status.ok()) flushed_end_ = now_.size;
  return status;
}

absl::StatusOr<ColumnRecord> RecordedColumns::ReadRecord(size_t column, Version now) {
  return RecordIn(column, below(column)->GetAttributes(now));
}

std::vector<absl::StatusOr<ColumnRecord>> RecordedColumns::ReadRecords(Version now) {
  std::deque<runtime::BranchOf<absl::StatusOr<Attributes>>> branches;
  for (size_t column = 0; column < below_count(); ++column) {
    branches.push_back(below(column).Fork<&Layer::GetAttributes>(now));
  }
  std::vector<absl::StatusOr<ColumnRecord>> records;
  for (size_t column = 0; column < below_count(); ++column) {
    records.push_back(RecordIn(column, branches[column].Join()));
  }
  return records;
}

absl::StatusOr<ColumnRecord> RecordedColumns::RecordIn(
    size_t column, const absl::StatusOr<Attributes>& attributes) const {
  if (!attributes.ok()) {
    const absl::Status& why = attributes.status();
    if (IsWouldBlock(why) || absl::IsResourceExhausted(why)) return why;
    return absl::UnavailableError(absl::StrCat("column ", column, ": ", why.message()));
  }
  if (attributes->inode.empty()) {
    if (attributes->size > 0) {
      return absl::DataLossError(absl::StrCat("column ", column, " has bytes and no record"));
    }
    return ColumnRecord();
  }
  absl::StatusOr<ColumnRecord> record = ColumnRecord::Decode(attributes->inode);
  if (!record.ok()) return record;
  if (record->kind != record_kind_) {
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", column, " below ", Kind().name,
                     " is a column of a file with another such layer"));
  }
  if (record->columns != below_count() || record->unit_bytes != unit_bytes_ ||
      record->column != column) {
    return absl::FailedPreconditionError(absl::StrCat(
        "layer ", column, " below ", Kind().name, " is column ", record->column, " of ",
        record->columns, " with units of ", record->unit_bytes, " bytes, not column ", column,
        " of ", below_count(), " with units of ", unit_bytes_,
        ": name the columns in the order, and with the options, that the file was made with"));
  }
  record->opening = attributes->opening;
  return record;
}

absl::Status RecordedColumns::Recover(Version now) {
  {
    MutexLock lock(mutex_);
    if (!now_.missing.has_value()) torn_ = now_.written;
    ragged_ = true;
    now_.ragged = record_kind_ == ColumnRecord::Kind::kRaid5;  // also for the next opening
  }
  // Nothing rests on what only some have, and each has a record before its bytes change.
  ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
  // Without room for it the file is ragged on, and does not grow.
  const absl::Status cut = CutTailIfRagged(now);
  if (!absl::IsResourceExhausted(cut)) ABACUS_RETURN_IF_ERROR(cut);
  ABACUS_RETURN_IF_ERROR(MendAll(now));
  ABACUS_RETURN_IF_ERROR(Drain(now));
  return SaveAtAll(now);
}

absl::Status RecordedColumns::MendAll(Version now) {
  StripeSet torn;
  {
    MutexLock lock(mutex_);
    torn = torn_;
  }
  for (const auto& [begin, end] : torn.runs()) {
    for (uint64_t stripe = begin; stripe < end; ++stripe) {
      ABACUS_RETURN_IF_ERROR(Mend(stripe, now));
    }
  }
  return absl::OkStatus();
}

// -- calls ----------------------------------------------------------------------------------------

absl::StatusOr<Attributes> RecordedColumns::GetAttributes(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  for (;;) {
    uint64_t allocated = 0;
    bool again = false;
    for (const size_t column : LiveColumns()) {
      const absl::StatusOr<Attributes> one = below(column)->GetAttributes(now);
      if (const absl::Status noted = Note(column, one.status()); !noted.ok()) {
        if (!IsAgain(noted)) return noted;
        again = true;
        break;
      }
      allocated += one->allocated;
    }
    if (again) continue;
    MutexLock lock(mutex_);
    return Attributes{now_.size, allocated, now_.changed, now_.inode};
  }
}

absl::Status RecordedColumns::SetInode(const std::string& inode, Version now) {
  if (inode.size() > ColumnRecord::kInodeBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("an inode of ", inode.size(), " bytes; under ",
                                                   Kind().name, " it has at most ",
                                                   ColumnRecord::kInodeBytesMax));
  }
  ABACUS_RETURN_IF_ERROR(Open(now));
  MutexLock lock(mutex_);
  now_.inode = inode;
  Changed(now);
  return absl::OkStatus();
}

absl::Status RecordedColumns::CheckSize(uint64_t offset, uint64_t bytes) const {
  const uint64_t most = BytesMax();
  if (offset <= most && bytes <= most - offset) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("a file under ", Kind().name, " with ", below_count(),
                                            " columns has at most ", most, " bytes"));
}

absl::StatusOr<ReadResult> RecordedColumns::Read(uint64_t offset, uint64_t bytes, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  {
    MutexLock lock(mutex_);
    if (bytes == 0 || offset >= now_.size) return ReadResult();
    bytes = std::min(bytes, now_.size - offset);
  }
  const Turn turn(turns_, StripesOf(offset, bytes), RangeTurns::Kind::kShared);
  for (;;) {
    absl::StatusOr<ReadResult> result = ReadOnce(offset, bytes, now);
    if (!IsAgain(result.status())) return result;
  }
}

// Size changes take the whole file: what is behind the end belongs to nobody else then.
absl::Status RecordedColumns::Change(bool append, const Block& bytes, uint64_t* at, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  for (;;) {
    bool grows = append;
    {
      MutexLock lock(mutex_);
      grows = grows || now_.size < *at + bytes.size();
    }
    const Turn turn(turns_, grows ? kWholeFileRun : StripesOf(*at, bytes.size()),
                    RangeTurns::Kind::kExclusive);
    {
      MutexLock lock(mutex_);
      if (append) *at = now_.size;
      if (!grows && now_.size < *at + bytes.size()) continue;  // it was cut off meanwhile
    }
    ABACUS_RETURN_IF_ERROR(CheckSize(*at, bytes.size()));
    if (grows) ABACUS_RETURN_IF_ERROR(BeforeGrowing(now));
    return WriteAt(*at, bytes, now);
  }
}

absl::Status RecordedColumns::WriteAt(uint64_t offset, const Block& bytes, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const uint64_t staged, WriteStaged(offset, bytes, now));
  if (staged == bytes.size()) return absl::OkStatus();
  return WriteInPlace(offset + staged, bytes.Slice(staged, bytes.size() - staged), now);
}

absl::Status RecordedColumns::WriteInPlace(uint64_t offset, const Block& bytes, Version now) {
  const StripeRun run = StripesOf(offset, bytes.size());
  absl::Status status = Admit(run, true, ColumnsOf(offset, bytes.size()), now);
  if (status.ok()) {
    uint64_t end = 0;
    {
      MutexLock lock(mutex_);
      end = ragged_ ? UINT64_MAX : now_.size;
    }
    status = WriteRange(offset, bytes.size(), &bytes, end, now);
    MutexLock lock(mutex_);
    if (now_.size < offset + bytes.size()) {
      now_.size = offset + bytes.size();
      Changed(now);
    }
  }
  Leave(run);
  return status;
}

absl::Status RecordedColumns::Write(uint64_t offset, const Block& bytes, Version now) {
  if (bytes.empty()) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(CheckSize(offset, bytes.size()));
  return Change(false, bytes, &offset, now);
}

absl::StatusOr<uint64_t> RecordedColumns::Append(const Block& bytes, Version now) {
  uint64_t at = 0;
  ABACUS_RETURN_IF_ERROR(Change(true, bytes, &at, now));
  return at;
}

absl::Status RecordedColumns::Truncate(uint64_t size, Version now) {
  ABACUS_RETURN_IF_ERROR(CheckSize(size, 0));
  ABACUS_RETURN_IF_ERROR(Open(now));
  const Turn turn(turns_, kWholeFileRun, RangeTurns::Kind::kExclusive);
  ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  uint64_t before = 0;
  {
    MutexLock lock(mutex_);
    before = now_.size;
  }
  if (size == before) return absl::OkStatus();
  if (size > before) {
    ABACUS_RETURN_IF_ERROR(BeforeGrowing(now));
    MutexLock lock(mutex_);
    now_.size = size;
    Changed(now);
    return absl::OkStatus();
  }
  // Now, as the record that ends it would have the new size without what it cuts off.
  ABACUS_RETURN_IF_ERROR(Unstage(now));
  StripeRun run{StripeAt(size), StripesIn(before)};
  bool staged = false;
  if (size % stripe_bytes_ > 0) {
    MutexLock lock(mutex_);
    staged = CutsByStaging(run.begin);
  }
  absl::Status status;
  if (staged) {
    ++run.begin;
  } else if (size % stripe_bytes_ > 0) {
    status = Admit({run.begin, run.begin + 1}, true, AllColumns(), now);
  }
  if (status.ok()) {
    {
      MutexLock lock(mutex_);
      now_.size = size;
      // Until it is cut off: also after a flush that follows one that failed half-way.
      now_.ragged = record_kind_ == ColumnRecord::Kind::kRaid5;
      flushed_end_ = std::min(flushed_end_, size);
      ragged_ = true;
      Changed(now);
    }
    // One record has the new size and that what it cuts off is being written. With the old size it
    // would have the crash leave stripes in doubt that nobody wrote to and that are still the
    // file's. And the new size is durable before anything is cut off.
    status = Admit(run, false, AllColumns(), now);
    if (status.ok()) status = Save(now);
    if (status.ok()) status = CutTailIfRagged(now);
  }
  Leave(run);
  return status;
}

absl::Status RecordedColumns::CutTailIfRagged(Version now) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!ragged_) return absl::OkStatus();
    }
    ABACUS_RETURN_IF_ERROR(Save(now));  // a record may have been refused that has the size
    const absl::Status status = CutTail(now);
    if (!IsAgain(status)) return status;
  }
}

absl::StatusOr<CommitResult> RecordedColumns::Commit(const std::vector<RangeVersion>&,
                                                     const std::vector<RangeWrite>&, Version) {
  return absl::UnimplementedError(
      "a commit over several columns needs the atomicity layer, which no stack has yet");
}

absl::StatusOr<ScrubProgress> RecordedColumns::Scrub(uint64_t from, uint64_t stripes, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  ScrubProgress progress;
  uint64_t all = 0;
  {
    MutexLock lock(mutex_);
    all = StripesIn(now_.size);
  }
  progress.next = from;
  const auto end = std::chrono::steady_clock::now() + kStep;
  for (; progress.next < all && stripes > 0; ++progress.next, --stripes) {
    if (progress.next > from && std::chrono::steady_clock::now() >= end) break;
    const Turn turn(turns_, {progress.next, progress.next + 1}, RangeTurns::Kind::kExclusive);
    absl::Status status;
    do {
      status = ScrubStripe(progress.next, &progress, now);
    } while (IsAgain(status));
    ABACUS_RETURN_IF_ERROR(status);
  }
  progress.done = progress.next >= all;
  progress.bytes = progress.checked * below_count() * unit_bytes_;
  return progress;
}

// -- state ----------------------------------------------------------------------------------------

std::set<size_t> RecordedColumns::AllColumns() const {
  std::set<size_t> all;
  for (size_t column = 0; column < below_count(); ++column) all.insert(column);
  return all;
}

StripeSet RecordedColumns::SetOf(const Runs& runs) {
  StripeSet set;
  for (const auto& [begin, end] : runs) set.Add({begin, end});
  return set;
}

// No call is inside: nothing is being written, drained or rebuilt, and what is staged is in its
// place. Which columns are flushed and
// fenced is found out anew.
void RecordedColumns::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  MutexLock lock(mutex_);
  writer.Write(open_);
  writer.Write(open_ ? now_.Encode() : std::string());
  writer.Write(RunsOf(torn_));
  writer.Write(std::vector<uint64_t>(due_.begin(), due_.end()));
  writer.Write(Runs(slots_.begin(), slots_.end()));
  writer.Write(ragged_);
  writer.Write(flushed_end_);
  writer.Write(wanted_);
  writer.Write(saved_);
  writer.Write(repaired_);
}

absl::Status RecordedColumns::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  const auto open = reader.Read<bool>();
  const auto record = reader.Read<std::string>();
  MutexLock lock(mutex_);
  if (open) {
    ABACUS_ASSIGN_OR_RETURN(now_, ColumnRecord::Decode(record));
    open_ = true;
  }
  torn_ = SetOf(reader.Read<Runs>());
  const auto due = reader.Read<std::vector<uint64_t>>();
  due_.insert(due.begin(), due.end());
  for (const auto& [slot, until] : reader.Read<Runs>()) slots_[slot] = until;
  for (const ColumnRecord::Staged& one : now_.staged) placed_.insert(one.slot);
  reader.Read(ragged_);
  reader.Read(flushed_end_);
  reader.Read(wanted_);
  reader.Read(saved_);
  admitted_ = wanted_;
  reader.Read(repaired_);
  return reader.status();
}

}  // namespace abacus::objfs
