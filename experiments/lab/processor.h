#ifndef ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_
#define ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace abacus::lab {

// The one processor of an emulated node, for the work of its messages.
//
// A cgroup's quota caps the time of a core and not its speed: 24 us of work at 12 % are over after
// 24 us, and not after 200, as long as the node rests otherwise; a call would take a tenth of what
// it should, and only a node that is always busy would be as slow as it should be. So work here
// takes both: the CPU time is spent, for the quota and whoever measures loads, and the work is not
// over before its time at the emulated speed is. One piece of work begins when the last one has
// ended, whoever's thread does it: there is one processor. Thread-safety: thread-safe. Blocking:
// for the work's time.
class Processor {
 public:
  // `share`: of a core; what the testbed gives the node.
  explicit Processor(double share) : share_(share) {}

  struct Work {
    absl::Duration at_paper;  // at the paper's node
    absl::Duration cpu;       // to be spent here
  };
  void Do(const Work& work);

  // How long work takes on a node of that share.
  static absl::Duration TimeOf(absl::Duration at_paper, double share);
  // Of all work that was done.
  absl::Duration cpu() const { return absl::Nanoseconds(cpu_ns_.load(std::memory_order_relaxed)); }

 private:
  const double share_;
  std::atomic<int64_t> free_at_ns_{0};
  std::atomic<int64_t> cpu_ns_{0};
};

// Spends that much of the calling thread's CPU time.
void SpendCpu(absl::Duration cpu);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_
