#include "objfs/replica/slow_disk.h"

#include <algorithm>
#include <iterator>

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kUnitBytes = 128 << 10;

}  // namespace

std::optional<SlowDisk::Ticket> SlowDisk::Begin(uint64_t bytes, Time now) {
  MutexLock lock(mutex_);
  if (std::any_of(readings_.begin(), readings_.end(),
                  [now](const Reading& reading) { return IsLate(reading, now); })) {
    FindSlow(now);
  }
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

void SlowDisk::Ended(Ticket ticket, Outcome outcome, Time now) {
  MutexLock lock(mutex_);
  const Reading reading = *ticket;
  readings_.erase(ticket);
  if (reading.tries) is_tried_ = false;
  if (outcome == Outcome::kNoWay || IsLate(reading, now)) {
    FindSlow(now);
  } else if (reading.tries && outcome == Outcome::kBytes) {
    is_slow_ = false;
  }
}

void SlowDisk::FindSlow(Time now) {
  // Many reads are late at once, and those that began before it was found so tell nothing new.
  if (is_slow_ && now < until_) return;
  const bool is_new = hold_ == hold_.zero() || (!is_slow_ && now > found_ + 2 * hold_);
  hold_ = absl::ToChronoNanoseconds(
      is_new ? options_.hold : std::min(2 * absl::FromChrono(hold_), options_.hold_max));
  is_slow_ = true;
  found_ = now;
  until_ = now + hold_;
}

}  // namespace abacus::objfs
