// What becomes of a column that does not serve, and how a stripe is kept then.

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

absl::Status Raid5Layer::FailColumn(size_t column, const absl::Status& why) {
  const absl::Status again = Again();
  MutexLock lock(mutex_);
  if (now_.missing == column && !present_) return again;
  if (now_.missing.has_value() && now_.missing != column) {
    return absl::UnavailableError(absl::StrCat("column ", column, " does not serve, and column ",
                                               *now_.missing,
                                               " is missing already: ", why.message()));
  }
  if (!now_.missing.has_value()) {
    now_.missing = column;
    now_.missed.clear();
  }
  present_ = false;
  // It may lose whatever it had not flushed.
  now_.missed.Add(now_.written);
  now_.missed.Add(StagedStripes());
  now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  // Nor can what it had be computed from a parity that is wrong.
  now_.doubtful.Add(torn_);
  now_.doubtful.MergeTo(ColumnRecord::kDoubtfulRunsMax);
  torn_.clear();
  pending_.clear();
  ++wanted_;
  return again;
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
  ABACUS_RETURN_IF_ERROR(Layer::Recall(FileRange(*striping_, range), version));
  return WriteGathered();  // what those above have just written among it
}

}  // namespace abacus::objfs
