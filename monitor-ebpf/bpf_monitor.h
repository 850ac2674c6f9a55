#ifndef ABACUS_MONITOR_EBPF_BPF_MONITOR_H_
#define ABACUS_MONITOR_EBPF_BPF_MONITOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "monitor-ebpf/monitor.h"
#include "monitor-ebpf/plain_monitor.h"

namespace abacus::monitor {

struct BpfMonitorOptions {
  // Threads that can be registered at one time; those beyond keep the thread clock, and are
  // counted.
  uint32_t threads_max = 4096;
  // Objects whose block I/O is kept; I/O of those beyond is counted as lost.
  uint32_t io_objects_max = 16384;
  // Block I/O under way whose beginning is kept; where there is more, the time of the oldest is not
  // charged, and that is counted.
  uint32_t io_requests_max = 4096;
  // Types of the running kernel's structures, for a kernel that does not bring them in
  // /sys/kernel/btf; empty: the kernel's own.
  std::string btf_path;
  // For tests: the programs hold what the kernel's verifier refuses.
  bool unacceptable = false;
};

// A monitor whose kernel side watches the scheduler (bpf/thread_time.bpf.c): blocked time (disk
// told apart), ready time and run time of each registered thread, exact to the context switch, and
// the block I/O that a thread begins, charged to the object that it is in. The figures of the node
// (load, rate, memory, links) are those of the plain monitor.
//
// A thread registers itself with AttachThread(); the kernel's side lets it go when it exits, so an
// id that is used again is never taken for it. Where an exit is not seen (some kernels keep a few
// switches from the tracepoint), the slot is found free a second later, at a call of Load(), or
// when slots run out; and a thread with the same id is known by its start time. In a process that
// was forked from one with a monitor the counters stand still, and Source() says so.
//
// Errors: kPermissionDenied  - no right to load programs; the message tells how to grant it.
//         kFailedPrecondition - the kernel cannot do it (no BTF, a program refused); the message
//         has the kernel's reason. A kernel that only refuses to show block I/O is not an error:
//         Io() is then empty, and Missing() says so.
// Thread-safety: thread-safe. Limits: those of the options. The kernel frees everything when the
// monitor, or its process, ends, however that ends.
// Source: ours; it takes the place of the paper's kernel patches (5.3).
absl::StatusOr<std::unique_ptr<Monitor>> NewBpfMonitor(PlainMonitorOptions plain = {},
                                                       const BpfMonitorOptions& options = {});

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_BPF_MONITOR_H_
