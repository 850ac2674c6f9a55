#include "objfs/raid/read_pace.h"

#include <algorithm>

namespace abacus::objfs {

using runtime::MutexLock;

void ReadPace::Reset(size_t copies) {
  MutexLock lock(mutex_);
  copies_.assign(copies, Copy());
}

ReadPace::Choice ReadPace::Choose(const std::vector<size_t>& copies, uint64_t bytes,
                                  absl::Time now) {
  MutexLock lock(mutex_);
  const auto expected = [this](size_t copy) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return copies_[copy].unit_ns * (1 + copies_[copy].reading);
  };
  std::vector<size_t> order = copies;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return expected(a) < expected(b); });
  // One that is due is tried, with the quickest behind it. It counts as asked from now on, or all
  // who come before its answer would try it.
  for (size_t i = 1; i < order.size(); ++i) {
    if (now - copies_[order[i]].sampled < kLookAgain) continue;
    std::rotate(order.begin(), order.begin() + static_cast<ptrdiff_t>(i),
                order.begin() + static_cast<ptrdiff_t>(i) + 1);
    break;
  }
  Choice choice;
  choice.copy = order.front();
  copies_[choice.copy].due = now - copies_[choice.copy].sampled >= kLookAgain;
  copies_[choice.copy].sampled = now;
  ++copies_[choice.copy].reading;
  if (order.size() > 1) choice.other = order[1];
  double least_ns = 0;
  for (const size_t copy : copies) {
    const double unit_ns = copies_[copy].unit_ns;
    if (unit_ns > 0 && (least_ns == 0 || unit_ns < least_ns)) least_ns = unit_ns;
  }
  choice.patience =
      least_ns == 0
          ? kPatienceUnknown
          : std::max(kPatienceLeast, absl::Nanoseconds(kLateTimes * least_ns * UnitsOf(bytes)));
  return choice;
}

void ReadPace::Begun(size_t copy) {
  MutexLock lock(mutex_);
  ++copies_[copy].reading;
  ++hedged_;
}

void ReadPace::Ended(size_t copy, uint64_t bytes, absl::Duration took, bool given_up,
                     absl::Time now) {
  const double unit_ns =
      std::max(1.0, absl::ToDoubleNanoseconds(took) / UnitsOf(bytes)) * (given_up ? 2 : 1);
  MutexLock lock(mutex_);
  Copy& one = copies_[copy];
  --one.reading;
  one.sampled = now;
  // That a read was given up early says nothing of one that is slower anyway.
  if (given_up && unit_ns < one.unit_ns) return;
  const double share = one.unit_ns == 0 ? 1 : one.due ? kShareAfterLong : kSampleShare;
  one.due = false;
  one.unit_ns += (unit_ns - one.unit_ns) * share;
}

void ReadPace::Failed(size_t copy) {
  MutexLock lock(mutex_);
  --copies_[copy].reading;
}

absl::Duration ReadPace::Usual(size_t copy) const {
  MutexLock lock(mutex_);
  return absl::Nanoseconds(copies_[copy].unit_ns);
}

uint64_t ReadPace::hedged() const {
  MutexLock lock(mutex_);
  return hedged_;
}

}  // namespace abacus::objfs
