#ifndef ABACUS_RUNTIME_RESOURCE_LINK_ESTIMATOR_H_
#define ABACUS_RUNTIME_RESOURCE_LINK_ESTIMATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/resource/link_book.h"

namespace abacus::runtime {

// What a link to a peer does, from the calls that crossed it: nothing is configured and no probe
// traffic is sent.
//
// A call's network time is its wait less the callee's residence. Small calls show the round trip:
// the mean of the last ones, without those that were much later than the fastest quarter, which
// waited for a move, for a connection or behind a large call and say nothing of the next. (At the
// start of a process, half of them may be such.) A call around which it is quiet, as its
// thread pauses before it or the callee works long, waits for processors to wake, and one that
// follows another at once does not. Of work that takes long by itself the round trips are a small
// part, and the engine wants to know about work that would not: calls that follow others count,
// unless those that do not are faster, or are all that came for a while and later than by waking.
// Large ones show the bandwidth: bytes / (network time - round trip), over all of the last calls
// together, so that each byte counts alike.
//   Worked: 64 KiB replies that wait 52.8 ms on a link with a 0.3 ms round trip:
//   65,536 / (0.0528 - 0.0003) = 1.248 MB/s, the 10 Mbit/s of the link.
// Its variance is that of a ratio of sums, b over t: with q = sum t / sum b, each call is off by
// e = t - q b, and var(bandwidth) = bandwidth^2 x sum e^2 / (sum t)^2, weights squared.
// Before a small call was seen, the fastest large ones bound the round trip from above; and one
// that is longer than the fast ones among the last large calls was measured at another time and is
// not believed: of these, half is taken to be the round trip, as nothing says more.
//   Worked: small calls at a start of 2.3 ms, then blocks of 8 KiB at 1.7 ms each. The bytes would
//   have taken no time; at half, 8,192 / 0.85 ms = 9.6 MB/s, where the link does 12.5.
//   Small calls of 41.8 ms and blocks of 8 KiB at 44.2 to 53, 45.3 in the mean, are no
//   contradiction: 8,212 / 3.5 ms = 2.35 MB/s of the 2.5 that cross in 40 ms.
//
// Thread-safety: thread-safe.
class LinkEstimator {
 public:
  struct Estimate {
    NodeInstance peer;
    std::optional<double> bandwidth_bytes_s;
    std::optional<double> round_trip_s;
    double round_trip_bytes = 0;  // what the calls carried over which that was measured
    double measured_bytes = 0;    // over which the bandwidth was measured
    // Of the bandwidth above, which is a mean over many calls: how far it may be off.
    double bandwidth_variance = 0;
  };

  // quiet_ns: as CallObserver::OnRemoteCall() has it.
  void Observe(NodeInstance peer, uint64_t request_bytes, uint64_t reply_bytes, uint64_t network_ns,
               uint64_t quiet_ns);
  std::vector<Estimate> Estimates() const;

  // Before a peer's first call: what was known of the way to its node when another process measured
  // it. It counts as kPriorBytes, less and less as calls are measured.
  void SetPriors(const std::vector<KnownLink>& links);
  // What is worth being a prior: links whose bandwidth was measured, and priors of peers that have
  // not come back.
  std::vector<KnownLink> Known() const;

  // The process there has ended: what was measured is a prior for the next one at its node.
  void Forget(NodeInstance peer);

 private:
  // Calls that move at least this much tell of the bandwidth, those that move less than the second
  // of the round trip.
  static constexpr uint64_t kLargeBytes = 8 * 1024;
  static constexpr uint64_t kSmallBytes = 1024;
  // So many of the last small calls count: few, as the round trip follows what the nodes do (a
  // thread that sleeps takes longer to answer), and that changes fast.
  static constexpr size_t kSmallCalls = 32;
  // Of so many of the last large calls the fast ones bound the round trip.
  static constexpr size_t kLargeCalls = 32;
  // Calls that followed others say nothing any more when so many others came since.
  static constexpr size_t kOthersMax = 1024;
  // As much as one large call or two, and twice what a bandwidth needs to count at all.
  static constexpr double kPriorBytes = 32 * 1024;
  // A link may be another one after a restart: deviation of a prior, as a part of it.
  static constexpr double kPriorDeviation = 0.2;
  // How much of the past counts: each observation takes this share of the weight.
  static constexpr double kDecay = 1.0 / 32;

  // The last small calls.
  struct SmallCalls {
    void Add(double seconds, double bytes);
    // The mean of those that were not late, as that is what many calls take. -1: none.
    double Mean() const;

    std::array<float, kSmallCalls> last_s{};  // the oldest is the next to go
    size_t count = 0;                         // how many there were
    double bytes = 0;                         // mean of what they carried
  };

  struct Link {
    double large_bytes = 0;  // decayed sums
    double large_s = 0;
    double large_calls = 0;
    double total_large_bytes = 0;
    // Products of transfer time t and bytes b of large calls, summed with the squares of the
    // weights that the sums above have.
    double tt = 0, tb = 0, bb = 0;
    SmallCalls following;  // calls around which it was not quiet
    SmallCalls others;
    size_t others_since = 0;     // since the last of `following`
    size_t following_since = 0;  // since the last of `others`: as many as count leave these out
    double small_s = -1;         // what they say, -1: nothing
    double small_bytes = 0;      // mean of what the calls carried that say it
    std::array<float, kLargeCalls> last_large_s{};  // the oldest is the next to go
    size_t large_count = 0;                         // how many there were
  };

  static void ObserveSmall(Link* link, double seconds, double bytes, uint64_t quiet_ns);
  static Link FromPrior(const KnownLink& known);
  // Of small calls, negative where it is not known.
  static double RoundTripOf(const Link& link);
  // What the fastest eighth of the last large calls takes at most: one alone may have been measured
  // wrong. Negative where there was none.
  static double FastLarge(const Link& link);

  mutable Mutex mutex_;
  std::map<NodeId, KnownLink> priors_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeInstance, Link> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_LINK_ESTIMATOR_H_
