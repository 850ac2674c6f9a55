// Rebuild and scrub of a mirrored file: steps that their caller paces.

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "objfs/raid/mirror_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {
absl::Status WentAway(const absl::Status& status) {
  return absl::IsCancelled(status)
             ? absl::UnavailableError("mirror: a copy that was coming back does not serve")
             : status;
}
}  // namespace

absl::StatusOr<RebuildProgress> MirrorLayer::Rebuild(uint64_t from, uint64_t stripes, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  RebuildProgress progress;
  absl::Status silent;  // of a copy that does not answer
  for (size_t column = 0; column < below_count(); ++column) {
    {
      MutexLock lock(mutex_);
      if (states_[column] != State::kAway) continue;
    }
    const Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
    const absl::StatusOr<ColumnRecord> record = ReadRecord(column, now);
    if (!record.ok() && !absl::IsDataLoss(record.status())) {
      silent.Update(record.status());
    } else {
      ABACUS_RETURN_IF_ERROR(WentAway(BringBack(column, record, now)));
    }
  }
  StripeSet left;
  bool some = false;
  {
    MutexLock lock(mutex_);
    for (size_t column = 0; column < below_count(); ++column) {
      some = some || states_[column] == State::kRebuilding || states_[column] == State::kReady;
      left.Add(lacks_[column]);
    }
  }
  if (!some) {
    ABACUS_RETURN_IF_ERROR(silent);
    return progress;
  }
  std::vector<uint64_t> todo;
  const StripeSet ahead = left.Within({from, UINT64_MAX});
  for (const auto& [begin, end] : ahead.runs()) {
    for (uint64_t s = begin; s < end && todo.size() < stripes; ++s) todo.push_back(s);
  }
  if (todo.size() < ahead.count()) progress.next = todo.empty() ? from : todo.back() + 1;
  StripeSet rebuilt;
  const auto end = std::chrono::steady_clock::now() + kStep;
  for (const uint64_t stripe : todo) {
    if (stripe != todo.front() && std::chrono::steady_clock::now() >= end) {
      progress.next = stripe;
      break;
    }
    const Turn turn(turns_, {stripe, stripe + 1}, RangeTurns::Kind::kExclusive);
    const absl::Status status = RebuildStripe(stripe, now);
    if (absl::IsDataLoss(status)) {
      ++progress.damaged;
      continue;
    }
    ABACUS_RETURN_IF_ERROR(WentAway(status));
    rebuilt.Add({stripe, stripe + 1});
  }
  ABACUS_RETURN_IF_ERROR(WentAway(FlushLive(now)));
  progress.rebuilt = rebuilt.count();
  {
    MutexLock lock(mutex_);
    StripeSet lacking;
    for (size_t column = 0; column < below_count(); ++column) {
      lacks_[column].Remove(rebuilt);
      lacking.Add(lacks_[column]);
      if (states_[column] == State::kRebuilding && lacks_[column].empty()) {
        states_[column] = State::kReady;
      }
    }
    // What one lacks that is away is not known apart from the others'.
    if (!SomeMiss()) now_.missed = lacking;
    ++wanted_;
    progress.left = lacking.count();
  }
  // It has what the others have, and its record says what is being written, before the witness has
  // it as current.
  ABACUS_RETURN_IF_ERROR(Save(now));
  // Those that came back are whole, and others did not.
  if (progress.left == 0) ABACUS_RETURN_IF_ERROR(silent);
  return progress;
}

absl::Status MirrorLayer::BringBack(size_t column, const absl::StatusOr<ColumnRecord>& record,
                                    Version now) {
  uint64_t keep = 0;
  StripeSet lacks;
  {
    MutexLock lock(mutex_);
    // One that has less than was durable with it there, or knows of records that there are not, has
    // lost something, or was another file's.
    const bool believed = record.ok() && record->sequence >= now_.durable[column] &&
                          record->sequence <= now_.sequence;
    if (believed) {
      keep = now_.size;
      lacks = now_.missed;  // what it was writing when it went is in there: the others knew of it
    } else {
      lacks.Add({0, StripesIn(now_.size)});
    }
    lacks.Remove({StripesIn(now_.size), UINT64_MAX});
    now_.missed.Add(lacks);
    now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
    ++wanted_;
  }
  // The others know what it lacks before it has a record that does not tell.
  ABACUS_RETURN_IF_ERROR(Save(now));
  // What it has behind the end is of before the file was cut off.
  const absl::Status cut = below(column)->Truncate(keep, now);
  ChangedIn(column);
  if (!cut.ok()) {
    return absl::UnavailableError(absl::StrCat("column ", column, ": ", cut.message()));
  }
  {
    MutexLock lock(mutex_);
    states_[column] = State::kRebuilding;
    lacks_[column] = lacks;
    ++wanted_;
  }
  return Save(now);
}

absl::Status MirrorLayer::RebuildStripe(uint64_t stripe, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Bytes all, ReadStripe(stripe, now));
  if (all.block.empty()) return absl::OkStatus();  // it was cut off
  std::vector<ColumnWrite> writes;
  {
    MutexLock lock(mutex_);
    for (size_t column = 0; column < below_count(); ++column) {
      if (!lacks_[column].Contains(stripe)) continue;
      writes.push_back({column, stripe * unit_bytes(), all.block});
    }
  }
  return WriteColumns(writes, now);
}

absl::Status MirrorLayer::ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now) {
  {
    MutexLock lock(mutex_);
    if (stripe * unit_bytes() >= now_.size) return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(Mend(stripe, now));
  const uint64_t offset = stripe * unit_bytes();
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    bytes = std::min(unit_bytes(), now_.size - offset);
  }
  const std::vector<size_t> current = CurrentColumns();
  progress->partial += current.size() < below_count();
  std::vector<ColumnRead> reads;
  for (const size_t column : current) reads.push_back({column, offset, bytes});
  std::vector<absl::StatusOr<Bytes>> found = ReadColumns(reads, now);
  const bool damaged = std::any_of(found.begin(), found.end(), [](const absl::StatusOr<Bytes>& f) {
    return absl::IsDataLoss(f.status());
  });
  if (damaged) {
    uint64_t repaired = 0;
    const absl::Status whole = ReadEachBlock(offset, bytes, &repaired, now).status();
    if (!absl::IsDataLoss(whole)) ABACUS_RETURN_IF_ERROR(whole);
    ++progress->checked;
    progress->repaired += repaired;
    progress->damaged += !whole.ok();
    return absl::OkStatus();
  }
  std::vector<ColumnWrite> writes;
  for (size_t i = 0; i < current.size(); ++i) {
    ABACUS_RETURN_IF_ERROR(found[i].status());
    // All checksums are right, so that which copy is wrong cannot be told: the first is believed.
    if (found[i]->block.view() == found.front()->block.view()) continue;
    writes.push_back({current[i], offset, found.front()->block});
  }
  ++progress->checked;
  if (writes.empty()) return absl::OkStatus();
  ++progress->mismatched;
  return WriteColumns(writes, now);
}

}  // namespace abacus::objfs
