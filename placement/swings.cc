#include "placement/swings.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace abacus::placement {
namespace {

constexpr size_t kForgottenPart = 8;
// 2 to the power of more is longer than any cool-down may be.
constexpr int kTurnsMax = 60;

}  // namespace

bool Swings::Rests(const ObjectId& object, const ObjectId& by, double now_s) const {
  const auto it = objects_.find(object);
  return it != objects_.end() && it->second.by != by && now_s < it->second.rests_until_s;
}

void Swings::Moved(const ObjectId& object, const ObjectId& by, const Times& times, double now_s) {
  if (objects_.size() >= kObjectsMax && !objects_.contains(object)) MakeRoom(now_s);
  const auto [it, first] = objects_.try_emplace(object);
  Swing& swing = it->second;
  if (now_s >= swing.forgiven_s) {
    swing.turns = 0;
  } else if (swing.by != by) {
    swing.turns = std::min(swing.turns + 1, kTurnsMax);
  }
  swing.by = by;
  const double rest_s = std::min(times.cool_down_max_s, times.cool_down_s * std::exp2(swing.turns));
  swing.rests_until_s = now_s + rest_s;
  swing.forgiven_s = now_s + times.forgive * rest_s;
}

void Swings::MakeRoom(double now_s) {
  absl::erase_if(objects_, [&](const auto& entry) { return now_s >= entry.second.forgiven_s; });
  if (objects_.size() < kObjectsMax) return;
  std::vector<double> forgiven_s;
  for (const auto& [object, swing] : objects_) forgiven_s.push_back(swing.forgiven_s);
  const auto last = forgiven_s.begin() + static_cast<ptrdiff_t>(kObjectsMax / kForgottenPart);
  std::nth_element(forgiven_s.begin(), last, forgiven_s.end());
  const double until_s = *last;
  absl::erase_if(objects_, [&](const auto& entry) { return entry.second.forgiven_s <= until_s; });
}

}  // namespace abacus::placement
