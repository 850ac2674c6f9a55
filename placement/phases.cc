#include "placement/phases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace abacus::placement {
namespace {

// Samples that the reference remembers: about those of one window, so that a slow drift is
// followed.
constexpr double kReferenceSamples = 32;
// The prior of a share's deviation is worth so many samples.
constexpr double kPriorOfPhase = 4;
// A sample is of the new phase if it is nearer to it than this part of the way from the old one.
constexpr double kOfNewPhase = 1.0 / 3;
// Samples that may wait for the proof of a change. With the slack taken off each, sums that neither
// reach the alarm nor return to zero in so many samples are drift.
constexpr size_t kPendingMax = 32;
// So many short phases at least are joined: a single one between two long ones is a phase.
constexpr size_t kShortMin = 2;

double Sum(absl::Span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Total variation: the part of the costs that would have to change its place.
double Distance(absl::Span<const double> a, absl::Span<const double> b) {
  if (a.size() != b.size()) return 1;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / 2;
}

}  // namespace

bool PhaseTracker::Add(absl::Span<const double> cost_ref_s, double begin_s, double end_s) {
  const double total = Sum(cost_ref_s);
  if (!(total > 0) || end_s <= begin_s) return false;
  std::vector<double> shares(cost_ref_s.begin(), cost_ref_s.end());
  for (double& share : shares) share /= total;
  if (reference_.mean.empty()) {
    Begin(shares, begin_s);
    done_ref_s_ = total;
    return false;
  }
  Widen(shares.size());
  shares.resize(reference_.mean.size(), 0);
  if (reference_.rebase) {
    for (const Pending& pending : pending_) done_ref_s_ += Sum(pending.cost_ref_s);
    if (OtherKind(shares).has_value()) {
      EndPhase();
      Begin(shares, begin_s);
      done_ref_s_ = total;
      kind_ = FindKind(shares);  // the end may have taken the oldest kind away
      ++changes_;
      return true;
    }
    const double kept_since_s = since_s_;
    Begin(shares, kept_since_s);
    done_ref_s_ += total;
    return false;
  }
  const bool alarm = Accumulate(shares);
  const double highest = *std::max_element(sums_.begin(), sums_.end());
  if (highest == 0) {
    for (const Pending& pending : pending_) done_ref_s_ += Sum(pending.cost_ref_s);
    pending_.clear();
    done_ref_s_ += total;
    Learn(shares);
    return false;
  }
  pending_.push_back({begin_s, {cost_ref_s.begin(), cost_ref_s.end()}});
  pending_.back().cost_ref_s.resize(shares.size(), 0);
  if (alarm) return Change(end_s);
  if (pending_.size() > kPendingMax) {
    done_ref_s_ += Sum(pending_.front().cost_ref_s);
    pending_.erase(pending_.begin());
  }
  // Below half of the alarm it may be either; the reference follows, or a drift would add up.
  if (highest < config_.alarm_sum / 2) Learn(shares);
  return false;
}

// A change is proven; whether it is another kind of behaviour or only a drift is seen in the mix.
// It began with the first of the last samples that are all much more like the newest than like the
// reference: one that is in part of the phase before is left out, and so is noise that came before.
bool PhaseTracker::Change(double now_s) {
  const std::vector<double> newest = PendingMix(pending_.size() - 1, pending_.size());
  const double whole = Distance(reference_.mean, newest);
  size_t first = pending_.size() - 1;
  while (first > 0 && Distance(PendingMix(first - 1, first), newest) < kOfNewPhase * whole) --first;
  // The first of several may still hold a little of the old phase, and a little is much where the
  // new phase costs next to nothing elsewhere.
  if (first + 1 < pending_.size()) ++first;
  const std::vector<double> mix = PendingMix(first, pending_.size());
  const double since_s = pending_[first].begin_s;
  if (Distance(mix, reference_.mean) < config_.kind_distance) {
    for (const Pending& pending : pending_) done_ref_s_ += Sum(pending.cost_ref_s);
    const double kept_since_s = since_s_;
    Begin(mix, kept_since_s);
    return false;
  }
  for (size_t i = 0; i < first; ++i) done_ref_s_ += Sum(pending_[i].cost_ref_s);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(first));
  NoteShort(since_s);
  if (short_.phases >= kShortMin && now_s - short_.since_s >= window_s_) {
    JoinShort();
    return false;
  }
  EndPhase();
  double done_ref_s = 0;
  for (const Pending& pending : pending_) done_ref_s += Sum(pending.cost_ref_s);
  Begin(mix, since_s);
  done_ref_s_ = done_ref_s;
  kind_ = FindKind(mix);
  ++changes_;
  return true;
}

// The present phase ends at until_s: whether it is one of several short ones.
void PhaseTracker::NoteShort(double until_s) {
  if (until_s - since_s_ >= window_s_) {
    short_ = {};
    return;
  }
  if (short_.phases == 0) {
    short_.reference.mean.assign(reference_.mean.size(), 0);
    short_.reference.square = short_.reference.mean;
    short_.since_s = since_s_;
  }
  ++short_.phases;
  short_.done_ref_s += done_ref_s_;
  Reference& all = short_.reference;
  all.samples += reference_.samples;
  const double weight = reference_.samples / all.samples;
  for (size_t i = 0; i < all.mean.size(); ++i) {
    all.mean[i] += weight * (reference_.mean[i] - all.mean[i]);
    all.square[i] += weight * (reference_.square[i] - all.square[i]);
  }
}

// They go on as one phase, of no kind that was seen before.
void PhaseTracker::JoinShort() {
  reference_ = std::exchange(short_.reference, {});
  since_s_ = short_.since_s;
  done_ref_s_ = short_.done_ref_s;
  short_ = {};
  for (size_t i = 0; i < pending_.size(); ++i) {
    Learn(PendingMix(i, i + 1));
    done_ref_s_ += Sum(pending_[i].cost_ref_s);
  }
  pending_.clear();
  sums_.assign(sums_.size(), 0);
  kind_.reset();
  joined_ = true;
}

std::vector<double> PhaseTracker::PendingMix(size_t from, size_t to) const {
  std::vector<double> mix(reference_.mean.size(), 0);
  for (size_t p = from; p < to; ++p) {
    for (size_t i = 0; i < mix.size(); ++i) mix[i] += pending_[p].cost_ref_s[i];
  }
  const double total = Sum(mix);
  for (double& share : mix) share /= total;
  return mix;
}

double PhaseTracker::Deviation(size_t i) const {
  const double mean = reference_.mean[i];
  const double seen = std::max(0.0, reference_.square[i] - mean * mean) * reference_.samples;
  const double prior = config_.deviation_prior * mean * (1 - mean);
  const double variance = (seen + kPriorOfPhase * prior * prior) /
                          (std::max(0.0, reference_.samples - 1) + kPriorOfPhase);
  return std::max(config_.deviation_floor, std::sqrt(variance));
}

// Page's two-sided test of every share against the reference. Returns whether one raises an alarm.
bool PhaseTracker::Accumulate(absl::Span<const double> shares) {
  bool alarm = false;
  const size_t n = shares.size();
  for (size_t i = 0; i < 2 * n; ++i) {
    const double z = (shares[i % n] - reference_.mean[i % n]) / Deviation(i % n);
    const double step =
        std::min((i < n ? z : -z) - config_.slack_deviations, config_.evidence_per_sample_max);
    sums_[i] = std::max(0.0, sums_[i] + step);
    alarm = alarm || sums_[i] > config_.alarm_sum;
  }
  return alarm;
}

void PhaseTracker::Rebase() {
  reference_.rebase = !joined_;
  short_ = {};
}

void PhaseTracker::Learn(absl::Span<const double> shares) {
  reference_.samples = std::min(reference_.samples + 1, kReferenceSamples);
  const double weight = 1 / reference_.samples;
  for (size_t i = 0; i < shares.size(); ++i) {
    reference_.mean[i] += weight * (shares[i] - reference_.mean[i]);
    reference_.square[i] += weight * (shares[i] * shares[i] - reference_.square[i]);
  }
}

void PhaseTracker::Begin(absl::Span<const double> mix, double since_s) {
  joined_ = false;
  reference_ = {};
  reference_.mean.assign(mix.size(), 0);
  reference_.square.assign(mix.size(), 0);
  Learn(mix);
  sums_.assign(2 * mix.size(), 0);
  pending_.clear();
  since_s_ = since_s;
}

// An edge or object that is new cost nothing until now, in every phase that is remembered.
void PhaseTracker::Widen(size_t places) {
  const size_t known = reference_.mean.size();
  if (places <= known) return;
  reference_.mean.resize(places, 0);
  reference_.square.resize(places, 0);
  if (short_.phases > 0) {
    short_.reference.mean.resize(places, 0);
    short_.reference.square.resize(places, 0);
  }
  sums_.insert(sums_.begin() + static_cast<ptrdiff_t>(known), places - known, 0);
  sums_.resize(2 * places, 0);
  for (Pending& pending : pending_) pending.cost_ref_s.resize(places, 0);
  for (Kind& kind : kinds_) kind.mix.resize(places, 0);
}

void PhaseTracker::Keep(absl::Span<const size_t> places) {
  const auto keep = [places](std::vector<double>& values, size_t offset) {
    std::vector<double> kept;
    for (const size_t place : places) kept.push_back(values[offset + place]);
    return kept;
  };
  if (reference_.mean.empty()) return;
  // Places of samples that were not learnt of, because they had no cost.
  for (const size_t place : places) Widen(place + 1);
  std::vector<double> sums = keep(sums_, 0);
  const std::vector<double> down = keep(sums_, reference_.mean.size());
  sums.insert(sums.end(), down.begin(), down.end());
  sums_ = std::move(sums);
  reference_.mean = keep(reference_.mean, 0);
  reference_.square = keep(reference_.square, 0);
  if (short_.phases > 0) {
    short_.reference.mean = keep(short_.reference.mean, 0);
    short_.reference.square = keep(short_.reference.square, 0);
  }
  for (Pending& pending : pending_) pending.cost_ref_s = keep(pending.cost_ref_s, 0);
  for (Kind& kind : kinds_) kind.mix = keep(kind.mix, 0);
}

void PhaseTracker::SetConfig(const PhaseConfig& config, double window_s) {
  config_ = config;
  window_s_ = window_s;
  for (Kind& kind : kinds_) {
    auto& lengths = kind.lengths_ref_s;
    if (lengths.size() <= config_.lengths_max) continue;
    lengths.erase(lengths.begin(), lengths.end() - static_cast<ptrdiff_t>(config_.lengths_max));
  }
  while (kinds_.size() > config_.kinds_max) {
    const auto oldest = std::min_element(
        kinds_.begin(), kinds_.end(), [](const Kind& a, const Kind& b) { return a.used < b.used; });
    const auto gone = static_cast<size_t>(oldest - kinds_.begin());
    if (kind_ == gone) kind_.reset();
    if (kind_ > gone) --*kind_;
    kinds_.erase(oldest);
  }
}

std::optional<size_t> PhaseTracker::FindKind(absl::Span<const double> mix) const {
  std::optional<size_t> nearest;
  double distance = config_.kind_distance;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const double d = Distance(kinds_[k].mix, mix);
    if (d < distance) distance = d, nearest = k;
  }
  return nearest;
}

// Phases may be shorter than a move takes: what comes after it looks like the present one or, where
// another yardstick and a cold start made that of it, like nothing that is known. A mix that is far
// from the present one and that of a phase of before is that phase again.
std::optional<size_t> PhaseTracker::OtherKind(absl::Span<const double> mix) const {
  if (Distance(reference_.mean, mix) < config_.kind_distance) return std::nullopt;
  const std::optional<size_t> kind = FindKind(mix);
  return kind == FindKind(reference_.mean) ? std::nullopt : kind;
}

void PhaseTracker::EndPhase() {
  std::optional<size_t> kind = FindKind(reference_.mean);
  if (!kind && kinds_.size() < config_.kinds_max) {
    kind = kinds_.size();
    kinds_.emplace_back();
  } else if (!kind) {
    const auto oldest = std::min_element(
        kinds_.begin(), kinds_.end(), [](const Kind& a, const Kind& b) { return a.used < b.used; });
    kind = static_cast<size_t>(oldest - kinds_.begin());
    *oldest = {};
  }
  Kind& ended = kinds_[*kind];
  ended.mix = reference_.mean;
  ended.used = ++clock_;
  ended.lengths_ref_s.push_back(done_ref_s_);
  if (ended.lengths_ref_s.size() > config_.lengths_max) {
    ended.lengths_ref_s.erase(ended.lengths_ref_s.begin());
  }
}

std::optional<double> PhaseTracker::LengthRefS() const {
  if (!kind_ || kinds_[*kind_].lengths_ref_s.empty()) return std::nullopt;
  const auto& lengths = kinds_[*kind_].lengths_ref_s;
  return Sum(lengths) / static_cast<double>(lengths.size());
}

std::optional<double> PhaseTracker::RemainingRefS() const {
  if (!kind_ || kinds_[*kind_].lengths_ref_s.empty()) return std::nullopt;
  double sum = 0;
  int longer = 0;
  for (const double length : kinds_[*kind_].lengths_ref_s) {
    if (length <= done_ref_s_) continue;
    sum += length - done_ref_s_;
    ++longer;
  }
  return longer > 0 ? sum / longer : done_ref_s_;
}

}  // namespace abacus::placement
