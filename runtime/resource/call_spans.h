#ifndef ABACUS_RUNTIME_RESOURCE_CALL_SPANS_H_
#define ABACUS_RUNTIME_RESOURCE_CALL_SPANS_H_

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "runtime/object/accounts.h"

namespace abacus::runtime {

// What passed over an edge in an interval: EdgeSums as fractions. Times are in seconds.
struct EdgeFlow {
  double calls = 0;
  double request_bytes = 0;
  double reply_bytes = 0;
  double busy_s = 0;
  double blocked_s = 0;
  double ready_s = 0;
  double disk_s = 0;  // part of blocked_s
  double voluntary_switches = 0;
  double involuntary_switches = 0;
  double remote_calls = 0;
  double remote_wait_s = 0;

  void Add(const EdgeFlow& other, double share);
};

using EdgeFlowsByKey = absl::flat_hash_map<EdgeKey, EdgeFlow>;

// Spreads calls that take longer than a sample over as much time as they took.
//
// The invocation path counts a call when it ends, and a thread's time when the thread leaves or
// waits. A megabyte over 10 Mbit/s takes 0.84 s: in samples of 50 ms that is nothing sixteen times,
// and then more than the link carries, which says of no sample what happened in it, cannot be
// believed, and varies so much that nothing is ever sure. Here a call that took s seconds is
// credited evenly over the s seconds after its end:
//   calls of 0.84 s, one after the other: 0.05 / 0.84 = 6 % of a call and of its bytes a sample,
// which is what happens. Sums over time stay as they are; figures come late by one call at most.
// Calls shorter than a sample are credited at once, and so is work of many threads, which adds up
// to more time than there was.
//
// How long a call took is known of those that left the node. Of others it is the time that the
// callee, and what it calls, used or waited since the last one ended; of neither is it more than
// the time since that. Units: seconds. Thread-safety: thread-compatible. Limits: kSpanMax_s.
// Source: ours.
class CallSpans {
 public:
  // Nothing is spread over more than this.
  static constexpr double kSpanMax_s = 60;

  // What counts for the interval of length_s that has just ended, in which the sums of the edges
  // grew by `grown`. Edges that are not in it are forgotten, so name all that are known, at rest or
  // not. REQUIRES: length_s > 0.
  EdgeFlowsByKey Take(const EdgeSumsByKey& grown, double length_s);

  // Drops what is still to be credited on these edges: their objects came, left or are gone.
  void Drop(absl::FunctionRef<bool(EdgeKey)> edges);
  void Clear() { edges_.clear(); }

 private:
  // Calls and bytes, or thread times, on their way into samples.
  struct Part {
    EdgeFlow left;
    double left_s = 0;   // so long it still takes
    double quiet_s = 0;  // since it last grew
    bool grew_before = false;

    void Take(const EdgeFlow& grown, bool grew, double took_s, double length_s, EdgeFlow& now);
  };
  struct Edge {
    Part calls;
    Part times;
    double inside_s = 0;  // used and waited by the callee since a call over the edge last ended
  };

  absl::flat_hash_map<EdgeKey, Edge> edges_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_CALL_SPANS_H_
