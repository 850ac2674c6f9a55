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
  MutexLock lock(mutex_);
  --copies_[copy].reading;
  SampleLocked(copy, bytes, took, given_up ? Took::kAtLeast : Took::kExactly, now);
}

void ReadPace::Sample(size_t copy, uint64_t bytes, absl::Duration took, Took how, absl::Time now) {
  MutexLock lock(mutex_);
  SampleLocked(copy, bytes, took, how, now);
}

void ReadPace::SampleLocked(size_t copy, uint64_t bytes, absl::Duration took, Took how,
                            absl::Time now) {
  const double unit_ns = std::max(1.0, absl::ToDoubleNanoseconds(took) / UnitsOf(bytes)) *
                         (how == Took::kAtLeast ? 2 : 1);
  Copy& one = copies_[copy];
  one.sampled = now;
  // That a read was given up early says nothing of one that is slower anyway; nor does one that was
  // looked for late of one that is quicker.
  if (how == Took::kAtLeast && unit_ns < one.unit_ns) return;
  if (how == Took::kAtMost && one.unit_ns > 0 && unit_ns > one.unit_ns) return;
  const double share = one.unit_ns == 0 ? 1 : one.due ? kShareAfterLong : kSampleShare;
  one.due = false;
  one.unit_ns += (unit_ns - one.unit_ns) * share;
}

ReadPace::AllButOne ReadPace::ChooseAllButOne(const std::vector<size_t>& asked, uint64_t bytes,
                                              absl::Time now) {
  MutexLock lock(mutex_);
  size_t slowest = 0;
  double most_ns = 0, next_ns = 0;
  for (size_t copy = 0; copy < copies_.size(); ++copy) {
    const double unit_ns = copies_[copy].unit_ns;
    if (unit_ns > most_ns) {
      next_ns = most_ns;
      most_ns = unit_ns;
      slowest = copy;
    } else {
      next_ns = std::max(next_ns, unit_ns);
    }
  }
  if (next_ns == 0) return {std::nullopt, kPatienceUnknown};
  const double units = UnitsOf(bytes);
  AllButOne choice{std::nullopt,
                   std::max(kPatienceLeast, absl::Nanoseconds(kLateTimes * next_ns * units))};
  const bool late = absl::Nanoseconds(most_ns * units) > choice.patience;
  if (!late || std::find(asked.begin(), asked.end(), slowest) == asked.end()) return choice;
  Copy& one = copies_[slowest];
  if (now - one.sampled < kLookAgain) {
    choice.without = slowest;
  } else {  // it counts as asked from now on, or all who come before its answer would try it
    one.due = true;
    one.sampled = now;
  }
  return choice;
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
