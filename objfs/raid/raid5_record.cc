// What is durable: the columns' records, the written set, flushes.

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {
constexpr StripeRun kOneRecordRun{0, 1};
// Of which Admit() makes use; what comes back into the set with a column has the rest.
constexpr size_t kAdmittedRunsMax = 32;
}  // namespace

void Raid5Layer::Changed(Version now) {
  now_.changed = std::max(now_.changed, now);
  ++wanted_;
}

// Those who come while one saves go along with the next.
absl::Status Raid5Layer::Save(Version now, bool durable) {
  uint64_t goal = 0;
  {
    MutexLock lock(mutex_);
    goal = wanted_;
  }
  const Turn turn(record_turns_, kOneRecordRun, RangeTurns::Kind::kExclusive);
  for (;;) {
    ColumnRecord record;
    std::vector<size_t> columns;
    uint64_t saves = 0;
    {
      MutexLock lock(mutex_);
      if (saved_ >= goal) return absl::OkStatus();
      if (!now_.Fits()) {
        return absl::ResourceExhaustedError(
            absl::StrCat("raid5: too many places of the file are being written at once, or its "
                         "inode of ",
                         now_.inode.size(), " bytes is too long; flush it"));
      }
      ++now_.sequence;
      record = now_;
      saves = wanted_;
      for (size_t column = 0; column < below_count(); ++column) {
        if (IsLive(column)) columns.push_back(column);
      }
    }
    std::deque<runtime::BranchOf<absl::Status>> branches;
    for (const size_t column : columns) {
      record.column = column;
      branches.push_back(below(column).Fork<&Layer::SetInode>(record.Encode(), now));
    }
    absl::Status worst;
    for (size_t i = 0; i < columns.size(); ++i) {
      const absl::Status status = Note(columns[i], branches[i].Join());
      if (!status.ok() && (worst.ok() || IsAgain(worst))) worst = status;
    }
    if (worst.ok() && durable) worst = Each<&Layer::Flush>(columns, now);
    if (IsAgain(worst)) continue;  // without the column that failed
    ABACUS_RETURN_IF_ERROR(worst);
    if (!durable) return absl::OkStatus();
    MutexLock lock(mutex_);
    saved_ = saves;
    now_.all_durable = record.sequence;
    if (present_ || !now_.missing.has_value()) now_.missing_durable = record.sequence;
  }
}

absl::Status Raid5Layer::Drain(Version now) {
  const Turn turn(drain_turns_, kOneRecordRun, RangeTurns::Kind::kExclusive);
  {
    MutexLock lock(mutex_);
    drained_ = now_.written;
    drained_.Remove(writing_);
    drained_.Remove(torn_);
    // Also where somebody is writing to all of them: earlier bytes of theirs are to be durable.
    if (now_.written.empty()) return absl::OkStatus();
  }
  absl::Status flushed = FlushLive(now);
  while (IsAgain(flushed)) flushed = FlushLive(now);
  ABACUS_RETURN_IF_ERROR(flushed);
  MutexLock lock(mutex_);
  drained_.Remove(torn_);
  now_.written.Remove(drained_);
  drained_.clear();
  ++wanted_;
  return absl::OkStatus();
}

absl::Status Raid5Layer::Admit(StripeRun run, bool contents, Version now) {
  if (run.begin >= run.end) return absl::OkStatus();
  for (bool drained = false;;) {
    std::vector<uint64_t> to_spill;
    bool save_first = false, known = false, full = false;
    {
      MutexLock lock(mutex_);
      writing_.Add(run);
      drained_.Remove(run);
      pending_.Remove(run);
      save_first = saved_ < wanted_;
      // Behind the end too, where it is zeros: else a crash that leaves the new size without it
      // would have the missing column asked for the unit, which has there what was cut off without
      // it.
      for (uint64_t stripe = run.begin; contents && now_.missing && stripe < run.end; ++stripe) {
        const Mode mode = ModeLocked(stripe);
        if (mode.unit_lost && !mode.spilled && !mode.doubtful) to_spill.push_back(stripe);
      }
      const bool all_missed = now_.missing.has_value() && !present_;
      // Not by a record that could not be written.
      known = saved_ >= admitted_ && now_.written.ContainsAll(run) &&
              (!all_missed || now_.missed.ContainsAll(run));
      StripeSet written = now_.written;
      written.Add(run);
      full = written.runs().size() > kAdmittedRunsMax;
    }
    if (!known && full) {
      if (drained) {
        return absl::ResourceExhaustedError(
            "raid5: too many places of the file are being written at once; try again");
      }
      drained = true;
      ABACUS_RETURN_IF_ERROR(Drain(now));
      continue;
    }
    if (!to_spill.empty()) {
      // That the column is missing is known before anything lies where only that makes sense of it.
      if (save_first) ABACUS_RETURN_IF_ERROR(Save(now));
      const absl::Status spilled = Spill(to_spill, now);
      if (!IsAgain(spilled)) ABACUS_RETURN_IF_ERROR(spilled);
      continue;  // the state may be another
    }
    if (known) return absl::OkStatus();
    {
      MutexLock lock(mutex_);
      now_.written.Add(run);
      if (now_.missing.has_value() && !present_) {
        now_.missed.Add(run);
        now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
      }
      admitted_ = ++wanted_;
    }
    ABACUS_RETURN_IF_ERROR(Save(now));
  }
}

void Raid5Layer::Leave(StripeRun run) {
  MutexLock lock(mutex_);
  writing_.Remove(run);
}

absl::Status Raid5Layer::Push(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  absl::Status status;
  do {
    status = Each<&Layer::Push>(LiveColumns(), now);
  } while (IsAgain(status));
  ABACUS_RETURN_IF_ERROR(status);
  return Save(now, /*durable=*/false);
}

absl::Status Raid5Layer::Flush(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
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
  ABACUS_RETURN_IF_ERROR(Drain(now));
  return Save(now);
}

absl::StatusOr<Attributes> Raid5Layer::GetAttributes(Version now) {
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

absl::Status Raid5Layer::SetInode(const std::string& inode, Version now) {
  if (inode.size() > ColumnRecord::kInodeBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("an inode of ", inode.size(),
                                                   " bytes; under raid5 it has at most ",
                                                   ColumnRecord::kInodeBytesMax));
  }
  ABACUS_RETURN_IF_ERROR(Open(now));
  MutexLock lock(mutex_);
  now_.inode = inode;
  Changed(now);
  return absl::OkStatus();
}

}  // namespace abacus::objfs
