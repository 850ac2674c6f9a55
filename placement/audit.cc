#include "placement/audit.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace abacus::placement {

void RunningError::Add(double predicted, double measured) {
  const double error = std::abs(predicted / measured - 1);
  if (errors_.size() < errors_max_) {
    errors_.push_back(error);
  } else {
    errors_[next_] = error;
  }
  next_ = (next_ + 1) % errors_max_;
}

void RunningError::SetLimit(size_t errors_max) {
  // The oldest first, so that these can go.
  if (errors_.size() == errors_max_) {
    std::rotate(errors_.begin(), errors_.begin() + static_cast<ptrdiff_t>(next_), errors_.end());
  }
  errors_max_ = errors_max;
  if (errors_.size() > errors_max_) {
    errors_.erase(errors_.begin(), errors_.end() - static_cast<ptrdiff_t>(errors_max_));
  }
  next_ = errors_.size() % errors_max_;
}

void RunningError::Pool(const RunningError& other) {
  SetLimit(errors_max_ + other.errors_.size());
  errors_.insert(errors_.end(), other.errors_.begin(), other.errors_.end());
  next_ = errors_.size() % errors_max_;
}

double RunningError::Quantile(double part) const {
  if (errors_.empty()) return 0;
  std::vector<double> sorted = errors_;
  const auto last = static_cast<double>(sorted.size() - 1);
  const auto at = static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * last));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

double Corrections::LogFactor(const Learnt& learnt, double now_s) const {
  return learnt.log_factor * std::exp2(-std::max(0.0, now_s - learnt.at_s) / half_life_s_);
}

double Corrections::Factor(const std::string& class_name, NodeId node, double now_s) const {
  const auto it = learnt_.find(Key(class_name, node));
  return it == learnt_.end() ? 1 : std::exp(LogFactor(it->second, now_s));
}

void Corrections::Learn(const std::string& class_name, NodeId node, double expected,
                        double measured, double now_s) {
  const Key key(class_name, node);
  if (learnt_.size() >= corrections_max_ && !learnt_.contains(key)) DropOldest();
  Learnt& learnt = learnt_[key];
  const double bound = std::log(factor_max_);
  learnt.log_factor =
      std::clamp(LogFactor(learnt, now_s) + std::log(measured / expected), -bound, bound);
  learnt.at_s = now_s;
}

void Corrections::DropOldest() {
  learnt_.erase(std::min_element(learnt_.begin(), learnt_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.at_s, a.first) < std::tie(b.second.at_s, b.first);
  }));
}

void Corrections::SetLimits(size_t corrections_max, double factor_max, double half_life_s) {
  corrections_max_ = corrections_max;
  factor_max_ = factor_max;
  half_life_s_ = half_life_s;
  while (learnt_.size() > corrections_max_) DropOldest();
  const double bound = std::log(factor_max_);
  for (auto& [key, learnt] : learnt_) {
    learnt.log_factor = std::clamp(learnt.log_factor, -bound, bound);
  }
}

std::vector<Corrections::Entry> Corrections::InForce(double now_s) const {
  std::vector<Entry> entries;
  for (const auto& [key, learnt] : learnt_) {
    const double factor = std::exp(LogFactor(learnt, now_s));
    if (std::abs(factor - 1) > 0.01) entries.push_back({key.first, key.second, factor});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.class_name, a.node) < std::tie(b.class_name, b.node);
  });
  return entries;
}

}  // namespace abacus::placement
