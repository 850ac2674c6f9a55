// Opening, records, flushes and the way of a write, as all layers over columns have them.

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

namespace {
constexpr StripeRun kWholeFileRun{0, UINT64_MAX};
constexpr StripeRun kOneAtATimeRun{0, 1};
// Of which Admit() makes use; what comes back into the set with a column has the rest.
constexpr size_t kAdmittedRunsMax = 32;
// Who closes the file, or moves the object, waits for a step: on slow columns it has fewer stripes.
constexpr std::chrono::milliseconds kScrubStep{100};
}  // namespace

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
  const Turn turn(open_turns_, kOneAtATimeRun, RangeTurns::Kind::kExclusive);
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
  return record;
}

absl::Status RecordedColumns::Recover(Version now) {
  {
    MutexLock lock(mutex_);
    if (!now_.missing.has_value()) torn_ = now_.written;
    ragged_ = true;
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

// -- what is durable ------------------------------------------------------------------------------

void RecordedColumns::Changed(Version now) {
  now_.changed = std::max(now_.changed, now);
  ++wanted_;
}

absl::StatusOr<ColumnRecord> RecordedColumns::NextRecord() {
  if (!now_.Fits()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        Kind().name, ": too many places of the file are being written at once, or its inode of ",
        now_.inode.size(), " bytes is too long; flush it"));
  }
  ++now_.sequence;
  return now_;
}

const ColumnRecord* RecordedColumns::NewestOf(
    const std::vector<absl::StatusOr<ColumnRecord>>& found) {
  const ColumnRecord* newest = nullptr;
  for (const absl::StatusOr<ColumnRecord>& record : found) {
    if (!record.ok() || record->sequence == 0) continue;
    if (newest == nullptr || newest->sequence < record->sequence) newest = &*record;
  }
  return newest;
}

absl::Status RecordedColumns::SaveWhatWasFound(
    const std::vector<absl::StatusOr<ColumnRecord>>& found, size_t columns, Version now) {
  const ColumnRecord* const newest = NewestOf(found);
  if (newest == nullptr) return absl::OkStatus();
  const auto have_it =
      std::count_if(found.begin(), found.end(), [&](const absl::StatusOr<ColumnRecord>& record) {
        return record.ok() && record->sequence == newest->sequence;
      });
  if (static_cast<size_t>(have_it) >= columns) return absl::OkStatus();
  {
    MutexLock lock(mutex_);
    ++wanted_;
  }
  const absl::Status saved = Save(now);
  return absl::IsResourceExhausted(saved) ? absl::OkStatus() : saved;  // told by the next flush
}

void RecordedColumns::ForgetRecords() {
  for (std::set<size_t>* columns : {&flushed_, &due_, &asked_, &fenced_}) columns->clear();
  placed_.clear();
  slots_.clear();
  found_durable_ = false;
}

std::vector<size_t> RecordedColumns::RecordHolders(const std::set<size_t>& due,
                                                   uint64_t sequence) const {
  std::set<size_t> holders;
  for (size_t column = 0; column < below_count(); ++column) {
    if (IsLive(column) && (NewestIsAtAll() || due.contains(column))) holders.insert(column);
  }
  // The others take turns.
  for (size_t i = 0; holders.size() < kRecordHoldersLeast && i < below_count(); ++i) {
    const size_t column = (sequence + i) % below_count();
    if (IsLive(column)) holders.insert(column);
  }
  return {holders.begin(), holders.end()};
}

absl::Status RecordedColumns::GiveRecord(ColumnRecord record, const std::vector<size_t>& columns,
                                         bool durable, Version now) {
  std::deque<runtime::BranchOf<absl::Status>> branches;
  for (const size_t column : columns) {
    record.column = column;
    branches.push_back(durable ? below(column).Fork<&Layer::SaveInode>(record.Encode(), now)
                               : below(column).Fork<&Layer::SetInode>(record.Encode(), now));
  }
  absl::Status worst;
  for (size_t i = 0; i < columns.size(); ++i) {
    const absl::Status status = Note(columns[i], branches[i].Join());
    if (!status.ok() && (worst.ok() || IsAgain(worst))) worst = status;
  }
  return worst;
}

// Those who come while one saves go along with the next.
absl::Status RecordedColumns::Save(Version now) {
  uint64_t goal = 0;
  {
    MutexLock lock(mutex_);
    goal = wanted_;
  }
  const Turn turn(record_turns_, kOneAtATimeRun, RangeTurns::Kind::kExclusive);
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (saved_ >= goal && due_.empty() && asked_.empty()) return absl::OkStatus();
    }
    ABACUS_RETURN_IF_ERROR(Settle(now));
    ColumnRecord record;
    std::vector<size_t> columns;
    std::set<size_t> due, asked;
    uint64_t saves = 0;
    {
      MutexLock lock(mutex_);
      // A column that fails from here on has this record, or is found not to take it.
      if (!IsSettled()) continue;
      ABACUS_ASSIGN_OR_RETURN(record, NextRecord());
      saves = wanted_;
      due.swap(due_);
      asked.swap(asked_);
      std::set<size_t> all = due;
      all.insert(asked.begin(), asked.end());
      columns = RecordHolders(all, record.sequence);
    }
    const absl::Status given = GiveRecord(record, columns, /*durable=*/true, now);
    MutexLock lock(mutex_);
    if (given.ok()) {
      saved_ = saves;
      for (const size_t column : columns) now_.durable[column] = record.sequence;
      // Not by the record that ends a flush: it does not tell yet that it is durable itself.
      for (const size_t column : columns) {
        if (asked.contains(column) || !due.contains(column)) fenced_.insert(column);
      }
      return absl::OkStatus();
    }
    // Who asked asks again; a column that has no room holds up nobody else.
    due_.insert(due.begin(), due.end());
    if (!IsAgain(given)) return given;  // else: without the column that failed
  }
}

absl::Status RecordedColumns::SaveAtAll(Version now) {
  {
    MutexLock lock(mutex_);
    due_ = AllColumns();
  }
  ABACUS_RETURN_IF_ERROR(Save(now));
  MutexLock lock(mutex_);
  found_durable_ = true;
  return absl::OkStatus();
}

absl::Status RecordedColumns::PushRecord(Version now) {
  const Turn turn(record_turns_, kOneAtATimeRun, RangeTurns::Kind::kExclusive);
  for (;;) {
    ABACUS_RETURN_IF_ERROR(Settle(now));
    ColumnRecord record;
    std::vector<size_t> columns;
    {
      MutexLock lock(mutex_);
      if (saved_ >= wanted_) return absl::OkStatus();
      if (!IsSettled()) continue;
      ABACUS_ASSIGN_OR_RETURN(record, NextRecord());
      columns = RecordHolders(AllColumns(), record.sequence);
    }
    const absl::Status given = GiveRecord(record, columns, /*durable=*/false, now);
    if (!IsAgain(given)) return given;
  }
}

absl::Status RecordedColumns::Drain(Version now, bool staged) {
  const Turn turn(drain_turns_, kOneAtATimeRun, RangeTurns::Kind::kExclusive);
  std::set<size_t> placed;
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    placed = placed_;
    size = now_.size;
    drained_ = now_.written;
    drained_.Remove(writing_);
    drained_.Remove(torn_);
    // A mirrored file's record does not say that it is ragged: the opening cuts what is in the set.
    if (ragged_ && record_kind_ == ColumnRecord::Kind::kMirror) {
      drained_.Remove({StripeAt(size), UINT64_MAX});
    }
    // Also where somebody is writing to all of them: earlier bytes of theirs are to be durable.
    if (now_.written.empty() && (!staged || placed.empty())) {
      flushed_end_ = size;  // what is staged is durable, too
      return absl::OkStatus();
    }
  }
  std::vector<size_t> columns;
  absl::Status flushed;
  do {
    flushed = FlushChanged(&columns, now);
  } while (IsAgain(flushed));
  ABACUS_RETURN_IF_ERROR(flushed);
  MutexLock lock(mutex_);
  drained_.Remove(torn_);
  now_.written.Remove(drained_);
  drained_.clear();
  flushed_end_ = std::min(std::max(flushed_end_, size), now_.size);
  for (const size_t column : columns) fenced_.erase(column);
  due_.insert(columns.begin(), columns.end());
  ++wanted_;
  for (const size_t slot : placed) DropStaged(slot);
  return absl::OkStatus();
}

StripeSet RecordedColumns::StagedStripes() const {
  StripeSet stripes;
  for (const ColumnRecord::Staged& one : now_.staged) stripes.Add({one.stripe, one.stripe + 1});
  return stripes;
}

void RecordedColumns::DropStaged(size_t slot) {
  std::erase_if(now_.staged, [&](const ColumnRecord::Staged& one) { return one.slot == slot; });
  placed_.erase(slot);
  slots_[slot] = ++wanted_;
  admitted_ = wanted_;  // a record without it comes before the stripe is written otherwise
  slots_change_.SignalAll();
}

absl::Status RecordedColumns::Unstage(Version now) {
  bool staged = false, dropped = false;  // dropped: and no record says so yet
  {
    MutexLock lock(mutex_);
    staged = !now_.staged.empty();
    for (const auto& [slot, until] : slots_) {
      if (until == kInUse || until <= saved_) continue;
      dropped = true;
      wanted_ = std::max(wanted_, until);
    }
  }
  if (staged) ABACUS_RETURN_IF_ERROR(Drain(now, /*staged=*/true));
  return staged || dropped ? Save(now) : absl::OkStatus();
}

std::set<size_t> RecordedColumns::AllColumns() const {
  std::set<size_t> all;
  for (size_t column = 0; column < below_count(); ++column) all.insert(column);
  return all;
}

bool RecordedColumns::AreFenced(const std::set<size_t>& columns) const {
  for (const size_t column : columns) {
    if (IsLive(column) && !fenced_.contains(column)) return false;
  }
  return true;
}

absl::Status RecordedColumns::Admit(StripeRun run, bool contents, const std::set<size_t>& columns,
                                    Version now) {
  if (run.begin >= run.end) return absl::OkStatus();
  for (bool drained = false, unstaged = false;;) {
    bool known = false, full = false, staged = false;
    {
      MutexLock lock(mutex_);
      writing_.Add(run);
      staged = !StagedStripes().Within(run).empty();
      drained_.Remove(run);
      pending_.Remove(run);
      // Not by a record that could not be written.
      known = saved_ >= admitted_ && AreFenced(columns) && now_.written.ContainsAll(run) &&
              (!SomeMiss() || now_.missed.ContainsAll(run));
      StripeSet written = now_.written;
      written.Add(run);
      full = written.runs().size() > kAdmittedRunsMax;
      if (!known && !now_.staged.empty() && !unstaged) {
        ColumnRecord with = now_;
        with.written = std::move(written);
        unstaged = !with.Fits(with.SpareForMissed());
        staged = staged || unstaged;
      }
    }
    // Else the next opening would put what is staged over what is written now; or the record is
    // full.
    if (staged) {
      ABACUS_RETURN_IF_ERROR(Unstage(now));
      continue;
    }
    if (!known && full) {
      if (drained) {
        return absl::ResourceExhaustedError(absl::StrCat(
            Kind().name, ": too many places of the file are being written at once; try again"));
      }
      drained = true;
      ABACUS_RETURN_IF_ERROR(Drain(now));
      continue;
    }
    ABACUS_ASSIGN_OR_RETURN(const bool changed, BeforeAdmission(run, contents, now));
    if (changed) continue;
    if (known) return absl::OkStatus();
    {
      MutexLock lock(mutex_);
      StripeSet fresh;
      fresh.Add(run);
      fresh.Remove(now_.written);
      fresh_.Add(fresh);
      now_.written.Add(run);
      if (SomeMiss()) {
        now_.missed.Add(run);
        now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
      }
      for (const size_t column : columns) {
        if (!fenced_.contains(column)) asked_.insert(column);
      }
      admitted_ = ++wanted_;
    }
    ABACUS_RETURN_IF_ERROR(Save(now));
  }
}

void RecordedColumns::Leave(StripeRun run) {
  MutexLock lock(mutex_);
  writing_.Remove(run);
  fresh_.Remove(run);
}

absl::Status RecordedColumns::Push(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  absl::Status status;
  do {
    status = Each<&Layer::Push>(LiveColumns(), now);
  } while (IsAgain(status));
  ABACUS_RETURN_IF_ERROR(status);
  return PushRecord(now);
}

// What cannot be mended stays torn and is told; all else is durable then.
absl::Status RecordedColumns::Flush(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  ABACUS_RETURN_IF_ERROR(FlushWhatWasFound(now));
  return FlushWork(/*staged=*/false, now);
}

absl::Status RecordedColumns::FlushWork(bool staged, Version now) {
  absl::Status status = MendInTurns(now);
  StripeSet before;
  {
    MutexLock lock(mutex_);
    before = now_.written;
    before.Remove(fresh_);
    staged = staged || (!now_.staged.empty() && !now_.Fits());
  }
  absl::Status drained = Drain(now, staged);
  if (drained.ok()) drained = DrainInTurn(before, now);
  status.Update(drained.ok() ? Save(now) : drained);
  return status;
}

// A stripe in which something was written before this flush must not stay in the written set: a
// crash would have it in doubt, and what is flushed with it.
absl::Status RecordedColumns::DrainInTurn(const StripeSet& stripes, Version now) {
  StripeRun left{UINT64_MAX, 0};
  {
    MutexLock lock(mutex_);
    StripeSet written = now_.written;
    written.Remove(torn_);
    for (const auto& [begin, end] : stripes.runs()) {
      const StripeSet within = written.Within({begin, end});
      if (within.empty()) continue;
      left.begin = std::min(left.begin, within.runs().begin()->first);
      left.end = std::max(left.end, within.runs().rbegin()->second);
    }
  }
  if (left.begin >= left.end) return absl::OkStatus();
  const Turn turn(turns_, left, RangeTurns::Kind::kShared);
  return Drain(now);
}

absl::Status RecordedColumns::FlushWhatWasFound(Version now) {
  {
    MutexLock lock(mutex_);
    if (found_durable_) return absl::OkStatus();
  }
  absl::Status flushed;
  do {
    flushed = FlushLive(now);
  } while (IsAgain(flushed));
  ABACUS_RETURN_IF_ERROR(flushed);
  MutexLock lock(mutex_);
  found_durable_ = true;
  return absl::OkStatus();
}

absl::Status RecordedColumns::MendInTurns(Version now) {
  StripeSet torn;
  {
    MutexLock lock(mutex_);
    torn = torn_;
  }
  for (const auto& [begin, end] : torn.runs()) {
    for (uint64_t stripe = begin; stripe < end; ++stripe) {
      const Turn turn(turns_, {stripe, stripe + 1}, RangeTurns::Kind::kExclusive);
      absl::Status mended;
      do {
        mended = Mend(stripe, now);
      } while (IsAgain(mended));
      ABACUS_RETURN_IF_ERROR(mended);
    }
  }
  return absl::OkStatus();
}

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

// -- calls ----------------------------------------------------------------------------------------

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
  const auto end = std::chrono::steady_clock::now() + kScrubStep;
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
