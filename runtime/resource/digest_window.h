#ifndef ABACUS_RUNTIME_RESOURCE_DIGEST_WINDOW_H_
#define ABACUS_RUNTIME_RESOURCE_DIGEST_WINDOW_H_

#include <deque>

#include "absl/time/time.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// Makes of `into` the digest of its own time and that of `later`, which came after it from the same
// node: times, calls and bytes add up; what is a state (loads, links, pins, memory, consoles) is
// the later one's. A digest of no time begins anew: what was before it counts no more; so do
// objects that it says begin anew, which the sum says as well.
void Append(Digest& into, const Digest& later);

// The digests of one node over the observation window H and up to half of one more, as one: what
// people are shown. Thread-compatible. Limits: three digests are kept, each of up to half a window.
class DigestWindow {
 public:
  void Add(const Digest& digest, absl::Time now, absl::Duration window);
  // Of no node where there is none yet.
  Digest Sum() const;

 private:
  struct Part {
    absl::Time from;  // when its first digest came
    absl::Time at;    // and its last
    Digest digest;
  };
  std::deque<Part> parts_;  // the oldest first
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_DIGEST_WINDOW_H_
