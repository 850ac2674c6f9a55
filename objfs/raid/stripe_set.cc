#include "objfs/raid/stripe_set.h"

#include <algorithm>
#include <iterator>

namespace abacus::objfs {

void StripeSet::Add(StripeRun run) {
  if (run.begin >= run.end) return;
  auto it = runs_.upper_bound(run.begin);
  if (it != runs_.begin() && std::prev(it)->second >= run.begin) --it;
  while (it != runs_.end() && it->first <= run.end) {
    run.begin = std::min(run.begin, it->first);
    run.end = std::max(run.end, it->second);
    it = runs_.erase(it);
  }
  runs_.emplace(run.begin, run.end);
}

void StripeSet::Add(const StripeSet& other) {
  for (const auto& [begin, end] : other.runs_) Add({begin, end});
}

void StripeSet::Remove(StripeRun run) {
  if (run.begin >= run.end) return;
  auto it = runs_.upper_bound(run.begin);
  if (it != runs_.begin() && std::prev(it)->second > run.begin) --it;
  while (it != runs_.end() && it->first < run.end) {
    const auto [begin, end] = *it;
    it = runs_.erase(it);
    if (begin < run.begin) runs_.emplace(begin, run.begin);
    if (end > run.end) runs_.emplace(run.end, end);
  }
}

void StripeSet::Remove(const StripeSet& other) {
  for (const auto& [begin, end] : other.runs_) Remove({begin, end});
}

bool StripeSet::Contains(uint64_t stripe) const { return ContainsAll({stripe, stripe + 1}); }

bool StripeSet::ContainsAll(StripeRun run) const {
  if (run.begin >= run.end) return true;
  const auto it = runs_.upper_bound(run.begin);
  return it != runs_.begin() && std::prev(it)->second >= run.end;
}

StripeSet StripeSet::Within(StripeRun run) const {
  StripeSet within;
  auto it = runs_.upper_bound(run.begin);
  if (it != runs_.begin()) --it;
  for (; it != runs_.end() && it->first < run.end; ++it) {
    within.Add({std::max(run.begin, it->first), std::min(run.end, it->second)});
  }
  return within;
}

uint64_t StripeSet::count() const {
  uint64_t count = 0;
  for (const auto& [begin, end] : runs_) count += end - begin;
  return count;
}

void StripeSet::MergeTo(size_t runs_max) {
  while (runs_.size() > runs_max) {
    auto nearest = runs_.begin();
    for (auto it = runs_.begin(); std::next(it) != runs_.end(); ++it) {
      if (std::next(it)->first - it->second < std::next(nearest)->first - nearest->second) {
        nearest = it;
      }
    }
    const auto next = std::next(nearest);
    nearest->second = next->second;
    runs_.erase(next);
  }
}

}  // namespace abacus::objfs
