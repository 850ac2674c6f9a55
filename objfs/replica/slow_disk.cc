#include "objfs/replica/slow_disk.h"

#include <algorithm>
#include <iterator>

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kUnitBytes = 128 << 10;

bool IsLate(const SlowDisk::Reading& reading, SlowDisk::Time now) {
  return absl::FromChrono(now - reading.begun) > reading.late;
}

}  // namespace

std::optional<SlowDisk::Ticket> SlowDisk::Begin(uint64_t bytes, Time now) {
  MutexLock lock(mutex_);
  // Of those that last, one that began later is not late if this is not, but for its size.
  if (!readings_.empty() && IsLate(readings_.front(), now)) FindSlow(now);
  if (!is_slow_) return Add(bytes, now, /*tries=*/false);
  if (now < until_ || is_tried_) return std::nullopt;
  return Add(bytes, now, /*tries=*/true);
}

SlowDisk::Ticket SlowDisk::BeginAnyway(uint64_t bytes, Time now) {
  MutexLock lock(mutex_);
  return Add(bytes, now, /*tries=*/false);
}

SlowDisk::Ticket SlowDisk::Add(uint64_t bytes, Time now, bool tries) {
  const double units = static_cast<double>(bytes) / static_cast<double>(kUnitBytes);
  readings_.push_back({.begun = now, .late = options_.late * (1 + units), .tries = tries});
  is_tried_ |= tries;
  return std::prev(readings_.end());
}

void SlowDisk::Ended(Ticket ticket, Time now) {
  MutexLock lock(mutex_);
  const Reading reading = *ticket;
  readings_.erase(ticket);
  if (reading.tries) is_tried_ = false;
  if (IsLate(reading, now)) {
    FindSlow(now);
  } else if (reading.tries) {
    is_slow_ = false;
    until_ = now;
  }
}

void SlowDisk::NoBetterElsewhere(Time now) {
  MutexLock lock(mutex_);
  is_slow_ = false;
  until_ = now + absl::ToChronoNanoseconds(options_.hold);
}

void SlowDisk::FindSlow(Time now) {
  // Many reads are late at once, and those that began before it was found so tell nothing new.
  if (now < until_) return;
  const bool is_new = hold_ == hold_.zero() || (!is_slow_ && now > found_ + 2 * hold_);
  hold_ = absl::ToChronoNanoseconds(
      is_new ? options_.hold : std::min(2 * absl::FromChrono(hold_), options_.hold_max));
  is_slow_ = true;
  found_ = now;
  until_ = now + hold_;
}

}  // namespace abacus::objfs
