// Opening a mirrored file: which copies are current, and what is done after a crash.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "objfs/raid/mirror_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

absl::Status MirrorLayer::OpenLocked(Version now) {
  Ref<Layer> witness;
  {
    MutexLock lock(mutex_);
    witness = witness_;
  }
  if (!witness) {
    return absl::FailedPreconditionError(
        "a mirror needs a witness of which copies are current: it stands on columns of a volume "
        "over several servers");
  }
  const absl::StatusOr<Attributes> kept = witness->GetAttributes(now);
  if (!kept.ok()) {
    if (absl::IsUnauthenticated(kept.status()) || IsWouldBlock(kept.status())) {
      return kept.status();
    }
    return absl::UnavailableError(
        absl::StrCat("which copies are current is not known: ", kept.status().message()));
  }
  ABACUS_ASSIGN_OR_RETURN(const std::set<size_t> lacking, LackingOf(kept->inode, below_count()));
  const std::vector<absl::StatusOr<ColumnRecord>> found = ReadRecords(now);
  ABACUS_RETURN_IF_ERROR(TakeRecords(lacking, kept->size, found));
  bool written = false;
  {
    MutexLock lock(mutex_);
    written = !now_.written.empty();
  }
  // What is found then stays: its record is saved, and so the witness told of a copy that is away
  // and may have something else, before anything is read.
  ABACUS_RETURN_IF_ERROR(written ? Recover(now)
                                 : SaveWhatWasFound(found, CurrentColumns().size(), now));
  MutexLock lock(mutex_);
  open_ = true;
  return absl::OkStatus();
}

absl::Status MirrorLayer::TakeRecords(const std::set<size_t>& lacking, uint64_t size_elsewhere,
                                      const std::vector<absl::StatusOr<ColumnRecord>>& found) {
  // Of those that the witness has as current the newest record is believed.
  std::optional<size_t> best;
  absl::Status why = absl::UnavailableError("no copy is current");
  for (size_t column = 0; column < found.size(); ++column) {
    const absl::Status& status = found[column].status();
    if (!status.ok() && !absl::IsUnavailable(status) && !absl::IsDataLoss(status)) return status;
    if (lacking.contains(column)) continue;
    if (!status.ok()) {
      why = status;
    } else if (!best.has_value() || found[*best]->Order() < found[column]->Order()) {
      best = column;
    }
  }
  if (!best.has_value()) {
    return absl::UnavailableError(absl::StrCat("no copy that is current serves: ", why.message()));
  }
  const ColumnRecord& newest = *found[*best];
  if (newest.sequence == 0 && size_elsewhere > 0) {
    return absl::UnavailableError(absl::StrCat(
        "the file has ", size_elsewhere, " bytes, and no copy that is current and serves has any"));
  }
  MutexLock lock(mutex_);
  ForgetColumns();
  now_ = newest;
  now_.kind = ColumnRecord::Kind::kMirror;
  now_.columns = below_count();
  now_.column = 0;
  now_.unit_bytes = unit_bytes();
  now_.durable.resize(below_count());
  if (now_.sequence > 0) now_.sequence = NextOpening(now_.sequence);
  ragged_ = false;
  saved_ = wanted_;
  for (StripeSet* set : {&torn_, &writing_, &fresh_, &drained_, &pending_}) set->clear();
  ForgetRecords();
  found_durable_ = newest.sequence == 0;
  known_ = now_.lacking = lacking;
  for (size_t column = 0; column < found.size(); ++column) {
    if (lacking.contains(column)) continue;
    if (found[column].ok() && found[column]->sequence >= now_.durable[column]) {
      // Before there was a record on all columns nothing was written: one without any lacks
      // nothing.
      states_[column] = State::kCurrent;
    } else {
      now_.lacking.insert(column);
    }
  }
  if (now_.lacking.empty()) {
    now_.missed.clear();
  } else {
    // It may have been there, to be rebuilt, and written to like the others.
    now_.missed.Add(now_.written);
    now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  }
  if (!now_.written.empty()) ++wanted_;
  return absl::OkStatus();
}

absl::Status MirrorLayer::Mend(uint64_t stripe, Version now) {
  {
    MutexLock lock(mutex_);
    if (!torn_.Contains(stripe)) return absl::OkStatus();
  }
  absl::StatusOr<Bytes> all = ReadStripe(stripe, now);
  if (absl::IsDataLoss(all.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(all.status());
  if (!all->block.empty()) {
    const std::vector<size_t> live = LiveColumns();
    std::vector<ColumnRead> reads;
    for (const size_t column : live) {
      reads.push_back({column, stripe * unit_bytes(), all->block.size()});
    }
    const std::vector<absl::StatusOr<Bytes>> found = ReadColumns(reads, now);
    std::vector<ColumnWrite> writes;
    for (size_t i = 0; i < live.size(); ++i) {
      if (!found[i].ok() && !absl::IsDataLoss(found[i].status())) return found[i].status();
      if (found[i].ok() && found[i]->block.view() == all->block.view()) continue;
      writes.push_back({live[i], stripe * unit_bytes(), all->block});
    }
    ABACUS_RETURN_IF_ERROR(WriteColumns(writes, now));
  }
  MutexLock lock(mutex_);
  torn_.Remove({stripe, stripe + 1});
  return absl::OkStatus();
}

}  // namespace abacus::objfs
