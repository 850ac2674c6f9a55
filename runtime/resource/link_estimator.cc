#include "runtime/resource/link_estimator.h"

#include <algorithm>
#include <map>

namespace abacus::runtime {
namespace {

// The bytes of a large call take most of its time, so this small part of the fastest one is a
// cautious guess of the round trip until a small call has been seen.
constexpr double kRoundTripOfLarge = 0.05;
// A call that took so many times what the fastest quarter takes, or so much more, does not count.
// Threads that sleep and threads that are awake differ by less.
constexpr double kSmallMax = 3;
constexpr double kLater_s = 10e-3;
// What a processor takes to wake, at most, and when one may have gone to sleep.
constexpr double kWaking_s = 0.5e-3;
constexpr uint64_t kQuietNs = 2'000'000;
// The bytes of large calls take this part of their time at least.
constexpr double kTransferOfLargeMin = 0.05;
constexpr double kRoundTripOfOtherTimes = 0.5;

}  // namespace

void LinkEstimator::Observe(NodeInstance peer, uint64_t request_bytes, uint64_t reply_bytes,
                            uint64_t network_ns, uint64_t quiet_ns) {
  const uint64_t bytes = request_bytes + reply_bytes;
  const double seconds = static_cast<double>(network_ns) * 1e-9;
  MutexLock lock(mutex_);
  const auto [it, is_new] = links_.try_emplace(peer);
  Link& link = it->second;
  if (const auto prior = priors_.find(peer.node); is_new && prior != priors_.end()) {
    link = FromPrior(prior->second);
  }
  if (bytes <= kSmallBytes) {
    ObserveSmall(&link, seconds, static_cast<double>(bytes), quiet_ns);
  } else if (bytes >= kLargeBytes) {
    link.large_bytes += static_cast<double>(bytes) - link.large_bytes * kDecay;
    link.large_s += seconds - link.large_s * kDecay;
    link.large_calls += 1 - link.large_calls * kDecay;
    link.total_large_bytes += static_cast<double>(bytes);
    const double transfer_s = std::max(seconds - std::max(RoundTripOf(link), 0.0), 0.0);
    const auto b = static_cast<double>(bytes);
    constexpr double kKept = (1 - kDecay) * (1 - kDecay);
    link.tt = link.tt * kKept + transfer_s * transfer_s;
    link.tb = link.tb * kKept + transfer_s * b;
    link.bb = link.bb * kKept + b * b;
    link.last_large_s[link.large_count++ % kLargeCalls] = static_cast<float>(seconds);
  }
}

void LinkEstimator::ObserveSmall(Link* link, double seconds, double bytes, uint64_t quiet_ns) {
  const bool follows = quiet_ns < kQuietNs;
  (follows ? link->following : link->others).Add(seconds, bytes);
  link->others_since = follows ? 0 : link->others_since + 1;
  if (link->others_since == kOthersMax) link->following = SmallCalls();
  link->following_since = follows ? link->following_since + 1 : 0;
  if (link->following_since == kSmallCalls) link->others = SmallCalls();
  const double following_s = link->following.Mean();
  const double others_s = link->others.Mean();
  // Waking makes calls later and never earlier; what makes them later still may have been a start.
  const bool is_waking = others_s >= following_s && others_s <= following_s + kWaking_s;
  const bool is_new = others_s < following_s || link->others_since >= kSmallCalls;
  const bool follow = following_s >= 0 && (others_s < 0 || is_waking || !is_new);
  link->small_s = follow ? following_s : others_s;
  link->small_bytes = (follow ? link->following : link->others).bytes;
}

void LinkEstimator::SmallCalls::Add(double seconds, double carried) {
  last_s[count++ % kSmallCalls] = static_cast<float>(seconds);
  bytes += (carried - bytes) / static_cast<double>(std::min(count, kSmallCalls));
}

double LinkEstimator::SmallCalls::Mean() const {
  if (count == 0) return -1;
  std::array<float, kSmallCalls> sorted = last_s;
  const size_t n = std::min(count, kSmallCalls);
  std::sort(sorted.begin(), sorted.begin() + n);
  const double fast_s = sorted[(n - 1) / 4];
  const double latest_s = std::min(kSmallMax * fast_s, fast_s + kLater_s);
  double sum_s = 0;
  size_t counted = 0;
  while (counted < n && sorted[counted] <= latest_s) sum_s += sorted[counted++];
  return sum_s / static_cast<double>(counted);
}

double LinkEstimator::FastLarge(const Link& link) {
  if (link.large_count == 0) return -1;
  std::array<float, kLargeCalls> last_s = link.last_large_s;
  const size_t n = std::min(link.large_count, kLargeCalls);
  const auto eighth = last_s.begin() + static_cast<ptrdiff_t>((n - 1) / 8);
  std::nth_element(last_s.begin(), eighth, last_s.begin() + static_cast<ptrdiff_t>(n));
  return *eighth;
}

double LinkEstimator::RoundTripOf(const Link& link) {
  const double fast_s = FastLarge(link);
  const bool of_other_times = fast_s >= 0 && link.small_s > fast_s;
  return of_other_times ? kRoundTripOfOtherTimes * fast_s : link.small_s;
}

// Sums as large calls of kPriorBytes in all would have left them.
LinkEstimator::Link LinkEstimator::FromPrior(const KnownLink& known) {
  Link link;
  link.large_bytes = kPriorBytes;
  link.large_s = kPriorBytes / known.bandwidth_bytes_s;
  link.total_large_bytes = kPriorBytes;
  link.tt = kPriorDeviation * kPriorDeviation * link.large_s * link.large_s;
  link.last_large_s[link.large_count++] =
      static_cast<float>(known.round_trip_s / kRoundTripOfLarge);
  return link;
}

void LinkEstimator::SetPriors(const std::vector<KnownLink>& links) {
  MutexLock lock(mutex_);
  for (const KnownLink& link : links) priors_[link.peer] = link;
}

std::vector<KnownLink> LinkEstimator::Known() const {
  // Of several processes at one node the one that began last comes last, and counts.
  std::map<NodeId, KnownLink> by_node;
  for (const Estimate& link : Estimates()) {
    if (!link.bandwidth_bytes_s || !link.round_trip_s || *link.round_trip_s <= 0) continue;
    by_node[link.peer.node] = {link.peer.node, *link.bandwidth_bytes_s, *link.round_trip_s};
  }
  std::vector<KnownLink> known;
  for (const auto& [node, link] : by_node) known.push_back(link);
  MutexLock lock(mutex_);
  for (const auto& [node, prior] : priors_) {
    if (!by_node.contains(node)) known.push_back(prior);
  }
  return known;
}

std::vector<LinkEstimator::Estimate> LinkEstimator::Estimates() const {
  MutexLock lock(mutex_);
  std::vector<Estimate> estimates;
  for (const auto& [peer, link] : links_) {
    Estimate estimate{.peer = peer};
    const double round_trip_s = RoundTripOf(link);
    if (round_trip_s >= 0) {
      estimate.round_trip_s = round_trip_s;
      estimate.round_trip_bytes = link.small_bytes;
    }
    if (link.large_s > 0) {
      // The time that the bytes took is what is left of the network time without the round trips.
      const double round_trips_s = link.large_calls * std::max(round_trip_s, 0.0);
      const double transfer_s =
          std::max(link.large_s - round_trips_s, link.large_s * kTransferOfLargeMin);
      estimate.bandwidth_bytes_s = link.large_bytes / transfer_s;
      estimate.measured_bytes = link.total_large_bytes;
      const double q = transfer_s / link.large_bytes;
      const double off = std::max(0.0, link.tt - 2 * q * link.tb + q * q * link.bb);
      const double relative_variance = off / (transfer_s * transfer_s);
      estimate.bandwidth_variance =
          relative_variance * *estimate.bandwidth_bytes_s * *estimate.bandwidth_bytes_s;
      if (!estimate.round_trip_s) {
        estimate.round_trip_s = FastLarge(link) * kRoundTripOfLarge;
      }
    }
    if (estimate.round_trip_s || estimate.bandwidth_bytes_s) estimates.push_back(estimate);
  }
  return estimates;
}

void LinkEstimator::Forget(NodeInstance peer) {
  for (const Estimate& link : Estimates()) {
    if (link.peer != peer || !link.bandwidth_bytes_s || link.round_trip_s.value_or(0) <= 0)
      continue;
    MutexLock lock(mutex_);
    if (priors_.size() >= LinkBook::kLinksMax && !priors_.contains(peer.node)) {
      priors_.erase(priors_.begin());
    }
    priors_[peer.node] = {peer.node, *link.bandwidth_bytes_s, *link.round_trip_s};
  }
  MutexLock lock(mutex_);
  links_.erase(peer);
}

}  // namespace abacus::runtime
