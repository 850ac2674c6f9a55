// Together with others: how a file is left to several clients at once, and served by one of them.

#include <deque>

#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/shared_stripes.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {}  // namespace

std::shared_ptr<SharedStripes> Raid5Layer::Together() const {
  MutexLock lock(mutex_);
  return shared_;
}

bool Raid5Layer::EndTogether() {
  std::shared_ptr<SharedStripes> ended;  // ends without the lock
  MutexLock lock(mutex_);
  ended.swap(shared_);
  return ended != nullptr;
}

// -- from alone to together -----------------------------------------------------------------------

bool Raid5Layer::MayBeShared() const {
  return !now_.missing.has_value() && now_.written.empty() && now_.doubtful.empty() &&
         now_.staged.empty() && !now_.ragged && !ragged_ && torn_.empty() && writing_.empty() &&
         spilled_.empty();
}

absl::StatusOr<bool> Raid5Layer::CloseToShare(Version now) {
  if (Together() != nullptr) return false;
  ABACUS_RETURN_IF_ERROR(Open(now));
  {
    MutexLock lock(mutex_);
    if (now_.missing.has_value()) return false;
  }
  ABACUS_RETURN_IF_ERROR(WriteGathered());
  {
    const Turn turn(turns_, kWholeFileRun, RangeTurns::Kind::kExclusive);
    ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  }
  // Nobody flushes any more what is found now, but who changes it.
  ABACUS_RETURN_IF_ERROR(FlushWhatWasFound(now));
  ABACUS_RETURN_IF_ERROR(FlushWork(/*staged=*/true, now));
  {
    const Turn turn(turns_, kWholeFileRun, RangeTurns::Kind::kExclusive);
    {
      MutexLock lock(mutex_);
      if (!MayBeShared()) return false;
    }
    EmptySlots(now);
    // Two, as the first one does not tell that it is durable itself: a column that comes back with
    // what it had before, and without what was written together, is known by the second one.
    for (int i = 0; i < 2; ++i) ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
    MutexLock lock(mutex_);
    if (!MayBeShared()) return false;  // a column failed
    open_ = false;
  }
  ForgetGathered();
  return true;
}

absl::Status Raid5Layer::TakeShared(const SharedColumns& shared) {
  ABACUS_RETURN_IF_ERROR(SharedStripes::Check(*striping_, shared));
  {
    MutexLock lock(mutex_);
    if (gathered_.bytes > 0) return NeedsAlone("to write what was kept to be written");
  }
  EndTogether();
  ABACUS_RETURN_IF_ERROR(RecordedColumns::TakeColumns(shared.columns, runtime::Ref<Layer>()));
  auto together = std::make_shared<SharedStripes>(*striping_, shared, parity_work_,
                                                  SharedStripes::HostOf(shared));
  MutexLock lock(mutex_);
  shared_ = std::move(together);
  return absl::OkStatus();
}

// -- calls that are others together ---------------------------------------------------------------

absl::Status Raid5Layer::SetInode(const std::string& inode, Version now) {
  if (Together() != nullptr) return NeedsAlone("to set attributes");
  return RecordedColumns::SetInode(inode, now);
}

absl::StatusOr<ScrubProgress> Raid5Layer::Scrub(uint64_t from, uint64_t stripes, Version now) {
  if (Together() != nullptr) return NeedsAlone("a scrub");
  return RecordedColumns::Scrub(from, stripes, now);
}

absl::StatusOr<Promise> Raid5Layer::Claim(PromiseKind kind, Version now) {
  if (Together() != nullptr) return Promise{PromiseKind::kNone, kForGood};
  return RecordedColumns::Claim(kind, now);
}

// The records are those of CloseToShare(), the same at all columns.
absl::StatusOr<Attributes> Raid5Layer::SharedAttributes(uint64_t size, Version now) {
  std::deque<runtime::BranchOf<absl::StatusOr<Attributes>>> branches;
  for (size_t column = 0; column < below_count(); ++column) {
    branches.push_back(below(column).Fork<&Layer::GetAttributes>(now));
  }
  Attributes all{size, 0, Version(), std::string()};
  uint64_t newest = 0;
  for (size_t column = 0; column < below_count(); ++column) {
    const absl::StatusOr<Attributes> one = branches[column].Join();
    if (!one.ok()) return SharedStripes::OfColumn(column, one.status());
    const absl::StatusOr<ColumnRecord> record = RecordIn(column, one);
    if (!record.ok()) return SharedStripes::OfColumn(column, record.status());
    all.allocated += one->allocated;
    if (record->sequence < newest) continue;
    newest = record->sequence;
    all.version = record->changed;
    all.inode = record->inode;
  }
  return all;
}

// -- from together to alone -----------------------------------------------------------------------

// A unit of a stripe lies at the same offset in all columns, and what was written together is there
// in all columns but one: parity stands in for that one's unit, and the stripe is not in doubt.
absl::Status Raid5Layer::NoteMissed(const std::vector<Range>& ranges, Version) {
  const uint64_t unit = striping_->unit_bytes();
  MutexLock lock(mutex_);
  if (open_ || shared_ != nullptr) {
    return absl::FailedPreconditionError(
        "raid5: what a column missed is told before the file is opened: TakeColumns() first");
  }
  for (const Range& range : ranges) {
    if (range.offset >= kSpillAt) continue;  // of no file
    const bool to_the_end = range.bytes == 0 || range.bytes > kSpillAt - range.offset;
    const uint64_t end = to_the_end ? kSpillAt : range.offset + range.bytes;
    noted_.Add({range.offset / unit, (end + unit - 1) / unit});
  }
  return absl::OkStatus();
}

// What was cut off since is missed by nobody.
StripeSet Raid5Layer::Noted() const { return noted_.Within({0, striping_->Stripes(now_.size)}); }

void Raid5Layer::AddNoted() {
  const StripeSet noted = Noted();
  if (noted.empty()) return;
  now_.missed.Add(noted);
  ++wanted_;
}

}  // namespace abacus::objfs
