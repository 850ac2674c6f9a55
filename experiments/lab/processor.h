#ifndef ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_
#define ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace abacus::lab {

// The one processor of an emulated node, for the work of its messages.
//
// A cgroup's quota caps the time of a core and not its speed: 24 us of work at 12 % are over after
// 24 us, and not after 200, as long as the node rests otherwise; a call would take a tenth of what
// it should, and only a node that is always busy would be as slow as it should be. So work here
// takes both: the CPU time is spent, for the quota and whoever measures loads, and the time that it
// takes at the emulated speed goes by. Going to sleep and waking costs CPU time itself, some 15 us
// of the 48 that a null call may take at a side, so what is less than kPiece is waited for together
// with the next: the two ends of frames that a call has at a side in one sleep, and calls take
// evenly long still. (In pieces of 1 ms, one call in three took a millisecond more than the
// others.) One piece begins when the last one has ended, whoever's thread waits for it: there is
// one processor. Thread-safety: thread-safe. Blocking: for up to a piece more than the work's time.
class Processor {
 public:
  static constexpr absl::Duration kPiece = absl::Microseconds(300);

  // `share`: of a core; what the testbed gives the node. `machine`: so many times the CPU time of
  // the model is what work takes on this machine (paper_node.h).
  explicit Processor(double share, double machine = 1)
      : share_(share / machine), machine_(machine) {}

  struct Work {
    absl::Duration at_paper;  // at the paper's node
    absl::Duration cpu;       // to be spent here
  };
  void Do(const Work& work);

  // How long work takes in the mean on a node of that share, of a machine as the model has it.
  static absl::Duration TimeOf(absl::Duration at_paper, double share);
  // Of all work that was done.
  absl::Duration cpu() const { return absl::Nanoseconds(cpu_ns_.load(std::memory_order_relaxed)); }

 private:
  // Until when somebody who has done work that takes so much longer than it took here is to wait.
  int64_t WaitsUntil(int64_t longer_ns);
  void WokeLate(int64_t late_ns);

  const double share_;  // as if this machine were as the model has it
  const double machine_;
  runtime::Mutex mutex_;
  int64_t owed_ns_ ABSL_GUARDED_BY(mutex_) = 0;     // of work done and not waited for, or less
  int64_t free_at_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // until then somebody waits
  std::atomic<int64_t> cpu_ns_{0};
};

// Spends that much of the calling thread's CPU time.
void SpendCpu(absl::Duration cpu);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_PROCESSOR_H_
