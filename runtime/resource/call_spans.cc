#include "runtime/resource/call_spans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "monitor-ebpf/thread_clock.h"
#include "runtime/object/thread_context.h"

namespace abacus::runtime {
namespace {

EdgeFlow CallsOf(const EdgeSums& sums) {
  return {.calls = static_cast<double>(sums.calls),
          .request_bytes = static_cast<double>(sums.request_bytes),
          .reply_bytes = static_cast<double>(sums.reply_bytes),
          .remote_calls = static_cast<double>(sums.remote_calls),
          .remote_wait_s = static_cast<double>(sums.remote_wait_ns) * 1e-9};
}

EdgeFlow TimesOf(const EdgeSums& sums) {
  const double s_per_tick = monitor::ThreadClock::NsPerTick() * 1e-9;
  return {.busy_s = static_cast<double>(sums.busy_ticks) * s_per_tick,
          .blocked_s = static_cast<double>(sums.blocked_ticks) * s_per_tick,
          .ready_s = static_cast<double>(sums.ready_ticks) * s_per_tick,
          .disk_s = static_cast<double>(sums.disk_ticks) * s_per_tick,
          .voluntary_switches = static_cast<double>(sums.voluntary_switches),
          .involuntary_switches = static_cast<double>(sums.involuntary_switches)};
}

double SpentIn(const EdgeFlow& times) { return times.busy_s + times.blocked_s + times.ready_s; }

// What each object used and waited for, with all that it calls here.
class Inclusive {
 public:
  explicit Inclusive(const EdgeSumsByKey& grown) {
    for (const auto& [key, sums] : grown) {
      own_s_[CalleeOf(key)] += SpentIn(TimesOf(sums));
      if (CallerOf(key) == kOutsideSlot) continue;
      own_s_[CallerOf(key)] += CallsOf(sums).remote_wait_s;
      callees_[CallerOf(key)].push_back(CalleeOf(key));
    }
  }

  double Of(uint32_t slot, uint32_t depth = 0) {
    if (depth > kNestingMax) return 0;
    // An object that is met again, by a call back, was counted where it was met first.
    const auto [it, unseen] = with_callees_s_.try_emplace(slot, 0);
    if (!unseen) return it->second;
    double sum_s = 0;
    if (const auto own = own_s_.find(slot); own != own_s_.end()) sum_s += own->second;
    if (const auto callees = callees_.find(slot); callees != callees_.end()) {
      for (const uint32_t callee : callees->second) sum_s += Of(callee, depth + 1);
    }
    return with_callees_s_[slot] = sum_s;
  }

 private:
  absl::flat_hash_map<uint32_t, double> own_s_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> callees_;
  absl::flat_hash_map<uint32_t, double> with_callees_s_;
};

}  // namespace

void EdgeFlow::Add(const EdgeFlow& o, double share) {
  calls += share * o.calls;
  request_bytes += share * o.request_bytes;
  reply_bytes += share * o.reply_bytes;
  busy_s += share * o.busy_s;
  blocked_s += share * o.blocked_s;
  ready_s += share * o.ready_s;
  disk_s += share * o.disk_s;
  voluntary_switches += share * o.voluntary_switches;
  involuntary_switches += share * o.involuntary_switches;
  remote_calls += share * o.remote_calls;
  remote_wait_s += share * o.remote_wait_s;
}

void CallSpans::Part::Take(const EdgeFlow& grown, bool grew, double took_s, double length_s,
                           EdgeFlow& now) {
  quiet_s += length_s;
  if (grew) {
    // The first call of an edge may have begun at any time.
    const double since_s = std::exchange(grew_before, true) ? quiet_s : kSpanMax_s;
    const double span_s = std::min({took_s, since_s, kSpanMax_s});
    quiet_s = 0;
    if (span_s <= length_s) {
      now.Add(grown, 1);
    } else {
      left.Add(grown, 1);
      left_s = std::max(left_s, span_s);
    }
  }
  if (left_s <= 0) return;
  const double share = std::min(1.0, length_s / left_s);
  now.Add(left, share);
  EdgeFlow rest;
  rest.Add(left, 1 - share);
  left = rest;
  left_s -= length_s;
}

EdgeFlowsByKey CallSpans::Take(const EdgeSumsByKey& grown, double length_s) {
  absl::erase_if(edges_, [&](const auto& edge) { return !grown.contains(edge.first); });
  Inclusive inclusive(grown);
  EdgeFlowsByKey flows;
  for (const auto& [key, sums] : grown) {
    Edge& edge = edges_[key];
    const EdgeFlow calls = CallsOf(sums);
    const EdgeFlow times = TimesOf(sums);
    edge.inside_s += inclusive.Of(CalleeOf(key));
    double took_s = 0;
    if (sums.remote_calls > 0) took_s = calls.remote_wait_s / calls.remote_calls;
    if (sums.calls > sums.remote_calls) {
      took_s = std::max(took_s, edge.inside_s / (calls.calls - calls.remote_calls));
    }
    if (sums.calls > 0) edge.inside_s = 0;
    EdgeFlow& now = flows[key];
    edge.calls.Take(calls, sums.calls > 0, took_s, length_s, now);
    // What was charged up to the end of a call is as much of it as its bytes: at once, it would
    // stand against an eighth of the call where that took eight samples.
    const double spent_s = SpentIn(times);
    edge.times.Take(times, spent_s > 0, std::max(spent_s, took_s), length_s, now);
  }
  return flows;
}

void CallSpans::Drop(absl::FunctionRef<bool(EdgeKey)> edges) {
  absl::erase_if(edges_, [&](const auto& edge) { return edges(edge.first); });
}

}  // namespace abacus::runtime
