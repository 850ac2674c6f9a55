#include "runtime/binding/location_table.h"

namespace abacus::runtime {

LocationRow& LocationTable::AddRow(const Rid& rid) {
  LocationRow& row = rows_[rid.local];
  row.host = self_;
  return row;
}

LocationRow* LocationTable::FindRow(const Rid& rid) {
  if (rid.home != self_) return nullptr;
  const auto it = rows_.find(rid.local);
  return it == rows_.end() ? nullptr : &it->second;
}

std::optional<LocationHint> LocationTable::Find(const Rid& rid) const {
  if (rid.home == self_) {
    const auto it = rows_.find(rid.local);
    if (it == rows_.end()) return std::nullopt;
    return LocationHint{it->second.host, it->second.epoch};
  }
  const auto it = hints_.find(rid);
  if (it == hints_.end()) return std::nullopt;
  return it->second.hint;
}

void LocationTable::Learn(const Rid& rid, NodeInstance host, uint64_t epoch) {
  if (rid.home == self_) return;  // the row knows better
  if (host == self_) return;      // the table of objects knows what is here
  const auto it = hints_.find(rid);
  if (it != hints_.end()) {
    if (epoch > it->second.hint.epoch) it->second.hint = {host, epoch};
    return;
  }
  while (hints_.size() >= hints_max_ && !order_.empty()) {
    hints_evicted_ += IsCurrent(order_.front()) ? hints_.erase(order_.front().rid) : 0;
    order_.pop_front();
  }
  // Forgotten hints stay in line until it is twice as long as the table.
  if (order_.size() >= 2 * hints_max_) {
    std::erase_if(order_, [this](const Learnt& learnt) { return !IsCurrent(learnt); });
  }
  hints_.emplace(rid, Kept{{host, epoch}, ++learnt_});
  order_.push_back({rid, learnt_});
}

bool LocationTable::IsCurrent(const Learnt& learnt) const {
  const auto it = hints_.find(learnt.rid);
  return it != hints_.end() && it->second.number == learnt.number;
}

void LocationTable::ForgetHost(NodeInstance host) {
  absl::erase_if(hints_, [host](const auto& hint) { return hint.second.hint.host == host; });
}

}  // namespace abacus::runtime
