// What is durable, and by which records: of all layers over columns.

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "objfs/raid/recorded_columns.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {
// Of which Admit() makes use; what comes back into the set with a column has the rest.
constexpr size_t kAdmittedRunsMax = 32;
}  // namespace

// -- records --------------------------------------------------------------------------------------

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
    if (newest == nullptr || newest->Order() < record->Order()) newest = &*record;
  }
  return newest;
}

absl::Status RecordedColumns::SaveWhatWasFound(
    const std::vector<absl::StatusOr<ColumnRecord>>& found, size_t columns, Version now) {
  const ColumnRecord* const newest = NewestOf(found);
  if (newest == nullptr) return absl::OkStatus();
  const auto have_it =
      std::count_if(found.begin(), found.end(), [&](const absl::StatusOr<ColumnRecord>& record) {
        return record.ok() && record->Order() == newest->Order();
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
  const Turn turn(record_turns_, kOneAtATime, RangeTurns::Kind::kExclusive);
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
  const Turn turn(record_turns_, kOneAtATime, RangeTurns::Kind::kExclusive);
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

// -- flushes, and what they end -------------------------------------------------------------------

absl::Status RecordedColumns::Drain(Version now, bool staged) {
  const Turn turn(drain_turns_, kOneAtATime, RangeTurns::Kind::kExclusive);
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

// -- what may be written --------------------------------------------------------------------------

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

// -- calls ----------------------------------------------------------------------------------------

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

}  // namespace abacus::objfs
