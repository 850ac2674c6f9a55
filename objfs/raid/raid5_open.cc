// Opening a file: whose record is believed, and what is done after a crash.

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Turn = RangeTurns::Turn;

bool Raid5Layer::Believed(const absl::StatusOr<ColumnRecord>& record, size_t column) const {
  MutexLock lock(mutex_);
  // Before a column has a record nothing is written there: one that never had any lacks nothing.
  return record.ok() && record->sequence >= now_.durable[column] &&
         record->sequence <= now_.sequence;
}

absl::Status Raid5Layer::TakeRecords(std::vector<absl::StatusOr<ColumnRecord>> found,
                                     std::optional<size_t>* is_whole) {
  std::optional<size_t> best, absent, foreign;
  for (size_t column = 0; column < found.size(); ++column) {
    const absl::Status& status = found[column].status();
    if (absl::IsUnavailable(status)) {
      if (absent.has_value()) {
        return absl::UnavailableError(
            absl::StrCat("two columns do not answer: ", found[*absent].status().message(), "; ",
                         status.message()));
      }
      absent = column;
    } else if (absl::IsDataLoss(status)) {
      foreign = column;
    } else if (!status.ok()) {
      return status;
    } else if (found[column]->sequence > 0 &&
               (!best.has_value() || found[*best]->Order() < found[column]->Order())) {
      best = column;
    }
  }
  if (!best.has_value() && foreign.has_value()) return found[*foreign].status();
  std::optional<size_t> lacking;
  {
    MutexLock lock(mutex_);
    now_ = best.has_value() ? *found[*best] : ColumnRecord();
    now_.columns = below_count();
    now_.durable.resize(below_count());
    now_.unit_bytes = striping_->unit_bytes();
    if (best.has_value()) now_.sequence = NextOpening(now_.sequence);
    // The one that is away may have the only record of an opening that began where this one would.
    if (best.has_value() && absent.has_value()) now_.sequence = NextOpening(now_.sequence);
    present_ = false;
    ragged_ = false;
    flushed_end_ = now_.size;
    saved_ = wanted_;
    for (StripeSet* set : {&spilled_, &torn_, &writing_, &fresh_, &drained_, &pending_})
      set->clear();
    ForgetRecords();
    found_durable_ = !best.has_value();
    if (!best.has_value()) lacking = absent;
  }
  for (size_t column = 0; best.has_value() && column < found.size(); ++column) {
    {
      MutexLock lock(mutex_);
      if (now_.missing == column) continue;
    }
    if (Believed(found[column], column)) continue;
    if (lacking.has_value()) {
      return absl::UnavailableError(
          absl::StrCat("columns ", *lacking, " and ", column, " lack what the others had flushed"));
    }
    lacking = column;
  }
  std::optional<size_t> was_missing;
  {
    MutexLock lock(mutex_);
    was_missing = now_.missing;
  }
  const bool is_back = was_missing.has_value() && Believed(found[*was_missing], *was_missing);
  MutexLock lock(mutex_);
  // Any of these records may be what a crash leaves, until this opening has saved one.
  for (const absl::StatusOr<ColumnRecord>& record : found) {
    if (!record.ok()) continue;
    for (const ColumnRecord::Staged& one : record->staged) slots_[one.slot] = wanted_ + 1;
  }
  if (now_.missing.has_value()) {
    // It may have been there, to be rebuilt, and written to like the others. What it had not
    // flushed of that it may lack, its parity too.
    now_.missed.Add(now_.written);  // what is staged is there since FailColumn()
    AddNoted();
    now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  }
  if (!lacking.has_value()) {
    if (!now_.missing.has_value()) {
      // All have something there, and not all have what was written: the parity is computed anew.
      now_.written.Add(Noted());
      now_.written.MergeTo(ColumnRecord::kWrittenRunsMax);
    }
    return absl::OkStatus();
  }
  // Nobody has written since it was missed, or only what is behind the end now: the file can do
  // without another one instead.
  if (is_back && now_.missed.Within({0, StripesIn(now_.size)}).empty() && now_.written.empty() &&
      now_.doubtful.empty() && now_.staged.empty() && !now_.ragged) {
    *is_whole = now_.missing;
    now_.missing.reset();
  }
  if (now_.missing.has_value()) {
    const absl::StatusOr<ColumnRecord>& has = found[*lacking];
    return absl::UnavailableError(
        absl::StrCat("column ", *lacking, " does not have the file (",
                     has.ok() ? absl::StrCat("its record ", has->sequence, " is not between ",
                                             now_.durable[*lacking], " and ", now_.sequence)
                              : std::string(runtime::ToStd(has.status().message())),
                     "), and column ", *now_.missing, " is missing already"));
  }
  now_.missing = lacking;
  now_.missed = now_.written;
  now_.missed.Add(StagedStripes());
  AddNoted();
  now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  ++wanted_;
  return absl::OkStatus();
}

absl::Status Raid5Layer::OpenLocked(Version now) {
  {
    MutexLock lock(mutex_);
    if (given_back_) return NeedsAlone("the columns that were shared have been given back");
  }
  const std::vector<absl::StatusOr<ColumnRecord>> found = ReadRecords(now);
  std::optional<size_t> is_whole;
  ABACUS_RETURN_IF_ERROR(TakeRecords(found, &is_whole));
  if (is_whole.has_value()) {
    ABACUS_RETURN_IF_ERROR(CutBehindEnd(*is_whole, now));
    ABACUS_RETURN_IF_ERROR(FlushLive(now));  // before a record says that it is whole
    ABACUS_RETURN_IF_ERROR(SaveWithout(*is_whole, now));
  }
  // Where one was missing already, all others have it.
  const ColumnRecord* const newest = NewestOf(found);
  const size_t holders =
      newest != nullptr && newest->missing.has_value() ? below_count() - 1 : kRecordHoldersLeast;
  ABACUS_ASSIGN_OR_RETURN(const bool staged, PlaceStaged(now));
  std::optional<size_t> missing;
  bool written = false;
  {
    MutexLock lock(mutex_);
    missing = now_.missing;
    written = !now_.written.empty() || now_.ragged;
  }
  if (missing.has_value()) {
    ABACUS_RETURN_IF_ERROR(FindSpills(now));
    if (Believed(found[*missing], *missing)) {
      ABACUS_RETURN_IF_ERROR(BringBack(*missing, true, now));
    }
  }
  if (written) {
    ABACUS_RETURN_IF_ERROR(Recover(now));
  } else if (!staged) {
    ABACUS_RETURN_IF_ERROR(SaveWhatWasFound(found, holders, now));
  }
  MutexLock lock(mutex_);
  open_ = true;
  noted_.clear();  // it is among what was missed, or its parity is that of its data
  return absl::OkStatus();
}

// What stands in for missing units is what lies whole behind kSpillAt, of stripes that the record
// says were missed. Else it is of a write that had not begun when the crash came, and goes.
absl::Status Raid5Layer::FindSpills(Version now) {
  const uint64_t unit = striping_->unit_bytes();
  size_t missing = 0;
  StripeSet may;
  {
    MutexLock lock(mutex_);
    missing = *now_.missing;
    may = now_.missed;
    may.Add(now_.doubtful);
  }
  StripeSet spilled;
  bool punched = false;
  for (const size_t column : LiveColumns()) {
    uint64_t at = kSpillAt;
    for (;;) {
      const absl::StatusOr<uint64_t> data = below(column)->Seek(at, true, now);
      if (absl::IsOutOfRange(data.status())) break;
      if (data.ok() && *data >= kStageAt) break;
      ABACUS_RETURN_IF_ERROR(Note(column, data.status()));
      absl::StatusOr<uint64_t> hole = below(column)->Seek(*data, false, now);
      ABACUS_RETURN_IF_ERROR(Note(column, hole.status()));
      *hole = std::min(*hole, kStageAt);
      const uint64_t first = (*data - kSpillAt) / unit, end = (*hole - kSpillAt + unit - 1) / unit;
      for (uint64_t stripe = first; stripe < end; ++stripe) {
        const bool whole = *data <= SpillOf(stripe) && SpillOf(stripe) + unit <= *hole;
        if (whole && may.Contains(stripe) && striping_->ParityColumn(stripe) == column &&
            HasData(stripe, missing)) {
          spilled.Add({stripe, stripe + 1});
        } else {
          ABACUS_RETURN_IF_ERROR(
              Note(column, below(column)->Punch(Range{SpillOf(stripe), unit}, now)));
          punched = true;
        }
      }
      at = kSpillAt + end * unit;
    }
  }
  if (punched) ABACUS_RETURN_IF_ERROR(FlushLive(now));
  MutexLock lock(mutex_);
  spilled_ = std::move(spilled);
  // What was being written while the missing column was there, and not since: only that column
  // knows its unit. Runs go on over stripes whose parity it has, where nothing is in doubt.
  StripeSet doubtful;
  for (const auto& [begin, end] : now_.written.runs()) {
    for (uint64_t stripe = begin; stripe < end; ++stripe) {
      const bool fills = stripe > begin && doubtful.Contains(stripe - 1);
      if (HasData(stripe, missing) ? !spilled_.Contains(stripe) : fills) {
        doubtful.Add({stripe, stripe + 1});
      }
    }
  }
  now_.doubtful.Add(doubtful);
  now_.doubtful.Remove(spilled_);
  now_.doubtful.MergeTo(ColumnRecord::kDoubtfulRunsMax);
  if (!now_.doubtful.empty()) ++wanted_;
  return absl::OkStatus();
}

// Computes the parity of a torn stripe anew. Where a unit is damaged that is not possible, and the
// stripe stays torn.
absl::Status Raid5Layer::Mend(uint64_t stripe, Version now) {
  const Mode mode = ModeOf(stripe);
  if (!mode.torn) return absl::OkStatus();
  const absl::Status status = WriteStripe(stripe, {}, UINT64_MAX, now);
  return absl::IsDataLoss(status) ? absl::OkStatus() : status;
}

absl::Status Raid5Layer::CutBehindEnd(size_t column, Version now) {
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  return CutColumn(column, striping_->ColumnOffsetOf(striping_->Stripes(size)), now);
}

// The next opening may be without that column: it is not to have the only record of this one.
absl::Status Raid5Layer::SaveWithout(size_t column, Version now) {
  std::vector<size_t> others = LiveColumns();
  std::erase(others, column);
  ColumnRecord record;
  {
    MutexLock lock(mutex_);
    ABACUS_ASSIGN_OR_RETURN(record, NextRecord());
  }
  return GiveRecord(std::move(record), others, /*durable=*/true, now);
}

absl::Status Raid5Layer::CutColumn(size_t column, uint64_t bytes, Version now) {
  // Not longer than it is: bytes in a column that never had a record would be nobody's.
  const absl::StatusOr<Attributes> attributes = below(column)->GetAttributes(now);
  if (!attributes.ok() || attributes->size <= bytes) return Note(column, attributes.status());
  const absl::Status cut = below(column)->Truncate(bytes, now);
  ChangedIn(column);
  return Note(column, cut);
}

absl::Status Raid5Layer::BringBack(size_t column, bool believed, Version now) {
  ABACUS_RETURN_IF_ERROR(Unstage(now));  // what it has in slots is cut off
  if (!believed) {
    // The others know that it lacks all before it has a record, which would have it believed.
    {
      MutexLock lock(mutex_);
      now_.missed.clear();
      now_.missed.Add({0, striping_->Stripes(now_.size)});
      ++wanted_;
    }
    ABACUS_RETURN_IF_ERROR(Save(now));
  }
  ABACUS_RETURN_IF_ERROR(believed ? CutBehindEnd(column, now) : CutColumn(column, 0, now));
  bool torn = false;
  {
    MutexLock lock(mutex_);
    present_ = true;
    if (believed) {
      // What only this column knew is known again, but for the parity.
      StripeSet mend = now_.written;
      mend.Remove(now_.missed);
      mend.Add(now_.doubtful);
      mend.Remove(spilled_);
      torn_.Add(mend);
      now_.written.Add(mend);
      now_.missed.Remove(mend);
      now_.doubtful.clear();
      torn = !torn_.empty();
      ragged_ = ragged_ || torn;
    }
    ++wanted_;
  }
  ABACUS_RETURN_IF_ERROR(Save(now));
  if (!torn) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  return MendAll(now);
}

}  // namespace abacus::objfs
