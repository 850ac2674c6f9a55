// The columns as a layer sees them: calls to several at once, and what becomes of one that fails.

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "objfs/raid/recorded_columns.h"
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

}  // namespace

absl::Status RecordedColumns::Again() const {
  return absl::CancelledError(absl::StrCat(Kind().name, ": a column is missing; begin again"));
}

absl::Status RecordedColumns::Note(size_t column, const absl::Status& status) {
  if (status.ok()) return status;
  bool dispensable = false;
  {
    MutexLock lock(mutex_);
    dispensable = IsDispensable(column);
  }
  return dispensable || DoesNotServe(status) ? FailColumn(column, status) : status;
}

std::vector<size_t> RecordedColumns::LiveColumns() const {
  MutexLock lock(mutex_);
  std::vector<size_t> columns;
  for (size_t column = 0; column < below_count(); ++column) {
    if (IsLive(column)) columns.push_back(column);
  }
  return columns;
}

Block RecordedColumns::ZerosOf(uint64_t bytes) {
  Block zeros = Block::Allocate(bytes);
  std::memset(zeros.mutable_data(), 0, bytes);
  return zeros;
}

absl::StatusOr<RecordedColumns::Bytes> RecordedColumns::BytesOf(
    size_t column, const absl::StatusOr<ReadResult>& answer, uint64_t bytes) {
  if (!answer.ok()) return Note(column, answer.status());
  const Block& block = answer->bytes;
  if (block.size() == bytes) return Bytes{block, answer->version};
  Block whole = Block::Allocate(bytes);
  if (!block.empty()) std::memcpy(whole.mutable_data(), block.data(), block.size());
  std::memset(whole.mutable_data() + block.size(), 0, bytes - block.size());
  return Bytes{std::move(whole), answer->version};
}

std::vector<absl::StatusOr<RecordedColumns::Bytes>> RecordedColumns::ReadColumns(
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
    results.push_back(BytesOf(reads[i].column, answers[i], reads[i].bytes));
  }
  return results;
}

absl::Status RecordedColumns::WriteColumns(const std::vector<ColumnWrite>& writes, Version now) {
  const absl::Status status = WriteSlots(writes, now);
  for (const ColumnWrite& write : writes) ChangedIn(write.column);
  return status;
}

absl::Status RecordedColumns::WriteSlots(const std::vector<ColumnWrite>& writes, Version now) {
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
absl::Status RecordedColumns::Each(const std::vector<size_t>& columns, const Args&... args) {
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

void RecordedColumns::ChangedIn(size_t column) {
  MutexLock lock(mutex_);
  flushed_.erase(column);
}

absl::Status RecordedColumns::FlushChanged(std::vector<size_t>* flushed, Version now) {
  std::vector<size_t>& columns = *flushed;
  columns.clear();
  {
    MutexLock lock(mutex_);
    for (size_t column = 0; column < below_count(); ++column) {
      // Whoever changes it from here on says so when that is done.
      if (IsLive(column) && flushed_.insert(column).second) columns.push_back(column);
    }
  }
  const absl::Status status = Each<&Layer::Flush>(columns, now);
  if (status.ok()) return status;
  for (const size_t column : columns) ChangedIn(column);
  return status;
}

template absl::Status RecordedColumns::Each<&Layer::Flush>(const std::vector<size_t>&,
                                                           const Version&);
template absl::Status RecordedColumns::Each<&Layer::Push>(const std::vector<size_t>&,
                                                          const Version&);
template absl::Status RecordedColumns::Each<&Layer::Truncate>(const std::vector<size_t>&,
                                                              const uint64_t&, const Version&);
template absl::Status RecordedColumns::Each<&Layer::Punch>(const std::vector<size_t>&, const Range&,
                                                           const Version&);

// -- other columns --------------------------------------------------------------------------------

absl::Status RecordedColumns::TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                                          const runtime::Ref<Layer>& witness) {
  const RangeTurns::Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(ReplaceBelow(columns));
  open_ = ragged_ = false;
  now_ = ColumnRecord();
  for (StripeSet* set : {&torn_, &writing_, &fresh_, &drained_, &pending_}) set->clear();
  ForgetRecords();
  saved_ = admitted_ = wanted_;
  flushed_end_ = 0;
  ForgetColumns();
  TakeWitness(witness);
  return absl::OkStatus();
}

absl::Status RecordedColumns::CloseColumns(Version now) {
  {
    MutexLock lock(mutex_);
    if (!open_) return absl::OkStatus();
  }
  const absl::Status flushed = FlushWork(/*staged=*/true, now);
  const RangeTurns::Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
  MutexLock lock(mutex_);
  open_ = false;
  return flushed;
}

absl::StatusOr<uint64_t> RecordedColumns::Size(Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  MutexLock lock(mutex_);
  return now_.size;
}

// -- upward and for all columns -------------------------------------------------------------------

absl::StatusOr<Promise> RecordedColumns::Claim(PromiseKind kind, Version now) {
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
absl::Status RecordedColumns::Attach(uint16_t writer, const runtime::Ref<Layer>& above) {
  const absl::Status status = Layer::Attach(writer, above);
  return DoesNotServe(status) ? absl::OkStatus() : status;
}

absl::Status RecordedColumns::Detach(uint16_t writer) {
  const absl::Status status = Layer::Detach(writer);
  return DoesNotServe(status) ? absl::OkStatus() : status;
}

}  // namespace abacus::objfs
