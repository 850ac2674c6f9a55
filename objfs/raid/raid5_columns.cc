// The columns as the layer sees them: calls to several at once, and what becomes of one that fails.

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::ErrorKind;
using runtime::MutexLock;

namespace {

// Whether the column does not serve, as against a call that it refuses.
bool DoesNotServe(const absl::Status& status) {
  switch (runtime::KindOf(status)) {
    case ErrorKind::kOutcomeUnknown:
    case ErrorKind::kObjectLost:
    case ErrorKind::kObjectNotFound:
    case ErrorKind::kNodeUnreachable:
    case ErrorKind::kNodeFenced:
      return true;
    case ErrorKind::kNone:
      return absl::IsUnavailable(status) || absl::IsNotFound(status) ||
             absl::IsDeadlineExceeded(status);
    default:
      return false;
  }
}

Block Lengthened(const Block& block, uint64_t bytes) {
  if (block.size() == bytes) return block;
  Block whole = Block::Allocate(bytes);
  if (!block.empty()) std::memcpy(whole.mutable_data(), block.data(), block.size());
  std::memset(whole.mutable_data() + block.size(), 0, bytes - block.size());
  return whole;
}

}  // namespace

absl::Status Raid5Layer::Note(size_t column, const absl::Status& status) {
  return DoesNotServe(status) ? FailColumn(column, status) : status;
}

absl::Status Raid5Layer::FailColumn(size_t column, const absl::Status& why) {
  const absl::Status again = absl::CancelledError("raid5: a column is missing; begin again");
  MutexLock lock(mutex_);
  if (now_.missing == column && !present_) return again;
  if (now_.missing.has_value() && now_.missing != column) {
    return absl::UnavailableError(absl::StrCat("column ", column, " does not serve, and column ",
                                               *now_.missing,
                                               " is missing already: ", why.message()));
  }
  if (!now_.missing.has_value()) {
    now_.missing = column;
    now_.missing_durable = now_.all_durable;
    now_.missed.clear();
  }
  present_ = false;
  // It may lose whatever it had not flushed.
  now_.missed.Add(now_.written);
  now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  // Nor can what it had be computed from a parity that is wrong.
  now_.doubtful.Add(torn_);
  now_.doubtful.MergeTo(ColumnRecord::kDoubtfulRunsMax);
  torn_.clear();
  pending_.clear();
  ++wanted_;
  return again;
}

std::vector<size_t> Raid5Layer::LiveColumns() const {
  MutexLock lock(mutex_);
  std::vector<size_t> columns;
  for (size_t column = 0; column < below_count(); ++column) {
    if (IsLive(column)) columns.push_back(column);
  }
  return columns;
}

Raid5Layer::Mode Raid5Layer::ModeOf(uint64_t stripe) const {
  MutexLock lock(mutex_);
  return ModeLocked(stripe);
}

Raid5Layer::Mode Raid5Layer::ModeLocked(uint64_t stripe) const {
  Mode mode;
  mode.torn = torn_.Contains(stripe);
  if (!now_.missing.has_value()) return mode;
  const bool doubtful = now_.doubtful.Contains(stripe);
  if (present_ && !doubtful && !now_.missed.Contains(stripe)) return mode;
  mode.lost = now_.missing;
  mode.unit_lost = HasData(stripe, *now_.missing);
  mode.spilled = mode.unit_lost && spilled_.Contains(stripe);
  mode.doubtful = mode.unit_lost && doubtful && !mode.spilled;
  return mode;
}

std::vector<absl::StatusOr<Raid5Layer::Bytes>> Raid5Layer::ReadColumns(
    const std::vector<ColumnRead>& reads, Version now) {
  std::vector<absl::StatusOr<ReadResult>> answers;
  if (reads.size() == 1) {
    answers.push_back(below(reads[0].column)->Read(reads[0].offset, reads[0].bytes, now));
  } else {
    std::deque<runtime::BranchOf<absl::StatusOr<ReadResult>>> branches;
    for (const ColumnRead& read : reads) {
      branches.push_back(below(read.column).Fork<&Layer::Read>(read.offset, read.bytes, now));
    }
    for (auto& branch : branches) answers.push_back(branch.Join());
  }
  std::vector<absl::StatusOr<Bytes>> results;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (answers[i].ok()) {
      results.push_back(Bytes{Lengthened(answers[i]->bytes, reads[i].bytes), answers[i]->version});
    } else {
      results.push_back(Note(reads[i].column, answers[i].status()));
    }
  }
  return results;
}

absl::Status Raid5Layer::WriteColumns(const std::vector<ColumnWrite>& writes, Version now) {
  std::deque<runtime::BranchOf<absl::Status>> branches;
  for (const ColumnWrite& write : writes) {
    branches.push_back(below(write.column).Fork<&Layer::Write>(write.offset, write.bytes, now));
  }
  absl::Status worst;
  for (size_t i = 0; i < writes.size(); ++i) {
    const absl::Status status = Note(writes[i].column, branches[i].Join());
    if (!status.ok() && (worst.ok() || IsAgain(worst))) worst = status;
  }
  return worst;
}

template <auto kMethod, typename... Args>
absl::Status Raid5Layer::Each(const std::vector<size_t>& columns, const Args&... args) {
  std::deque<runtime::BranchOf<absl::Status>> branches;
  for (const size_t column : columns) {
    branches.push_back(below(column).template Fork<kMethod>(args...));
  }
  absl::Status worst;
  for (size_t i = 0; i < columns.size(); ++i) {
    const absl::Status status = Note(columns[i], branches[i].Join());
    if (!status.ok() && (worst.ok() || IsAgain(worst))) worst = status;
  }
  return worst;
}

template absl::Status Raid5Layer::Each<&Layer::Flush>(const std::vector<size_t>&, const Version&);
template absl::Status Raid5Layer::Each<&Layer::Push>(const std::vector<size_t>&, const Version&);
template absl::Status Raid5Layer::Each<&Layer::Truncate>(const std::vector<size_t>&,
                                                         const uint64_t&, const Version&);
template absl::Status Raid5Layer::Each<&Layer::Punch>(const std::vector<size_t>&, const Range&,
                                                      const Version&);

// -- other columns --------------------------------------------------------------------------------

absl::Status Raid5Layer::TakeColumns(const std::vector<runtime::Ref<Layer>>& columns) {
  const RangeTurns::Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(ReplaceBelow(columns));
  open_ = false;
  now_ = ColumnRecord();
  present_ = ragged_ = false;
  for (StripeSet* set : {&spilled_, &torn_, &writing_, &drained_, &pending_}) set->clear();
  saved_ = admitted_ = wanted_;
  return absl::OkStatus();
}

absl::Status Raid5Layer::CloseColumns(Version now) {
  {
    MutexLock lock(mutex_);
    if (!open_) return absl::OkStatus();
  }
  const absl::Status flushed = Flush(now);
  const RangeTurns::Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
  MutexLock lock(mutex_);
  open_ = false;
  return flushed;
}

absl::StatusOr<uint64_t> Raid5Layer::Size(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  MutexLock lock(mutex_);
  return now_.size;
}

// -- upward and for all columns -------------------------------------------------------------------

absl::StatusOr<Promise> Raid5Layer::Claim(PromiseKind kind, Version now) {
  for (;;) {
    Promise all{kind, kForGood};
    bool again = false;
    for (const size_t column : LiveColumns()) {
      const absl::StatusOr<Promise> one = below(column)->Claim(kind, now);
      if (const absl::Status noted = Note(column, one.status()); !noted.ok()) {
        if (!IsAgain(noted)) return noted;
        again = true;
        break;
      }
      all.kind = std::min(all.kind, one->kind);
      all.given = std::min(all.given, one->given);
    }
    if (!again) return all;
  }
}

// A column that does not answer cannot tell either what changes; it is missing then.
absl::Status Raid5Layer::Attach(uint16_t writer, const runtime::Ref<Layer>& above) {
  const absl::Status status = Layer::Attach(writer, above);
  return DoesNotServe(status) ? absl::OkStatus() : status;
}

absl::Status Raid5Layer::Detach(uint16_t writer) {
  const absl::Status status = Layer::Detach(writer);
  return DoesNotServe(status) ? absl::OkStatus() : status;
}

namespace {

// What of the file may be in a column's range: whole stripes.
Range FileRange(const Striping& striping, Range range) {
  const uint64_t begin = range.offset % Raid5Layer::kSpillAt;
  const uint64_t first = begin / striping.unit_bytes();
  if (range.bytes == 0) return {striping.OffsetOf(first), 0};
  const uint64_t last = (begin + range.bytes - 1) / striping.unit_bytes();
  return {striping.OffsetOf(first), striping.OffsetOf(last + 1) - striping.OffsetOf(first)};
}

}  // namespace

absl::Status Raid5Layer::Invalidate(Range range, Version version) {
  return Layer::Invalidate(FileRange(*striping_, range), version);
}
absl::Status Raid5Layer::Recall(Range range, Version version) {
  return Layer::Recall(FileRange(*striping_, range), version);
}

}  // namespace abacus::objfs
