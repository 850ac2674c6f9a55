#ifndef ABACUS_MONITOR_EBPF_MONITOR_H_
#define ABACUS_MONITOR_EBPF_MONITOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "monitor-ebpf/thread_clock.h"

namespace abacus::monitor {

// How busy a node was over the observation window. A node is the cgroup of this process; where that
// is the root, it is the machine, or the processors of the machine that this process is bound to.
// Units: task time over wall time, that is, a mean number of tasks.
struct NodeLoad {
  // L: running + ready tasks, the running one included; at least 1. Tasks that a CPU quota stopped
  // are not in it: they show in rate_share.
  double load = 1;
  double running = 0;
  double ready = 0;
  double throttled = 0;  // stopped by a CPU quota
  double stolen = 0;     // part of `running` that the hypervisor gave to somebody else
  // What a CPU quota, and busy neighbours outside the cgroup, leave of one core's speed, in (0, 1].
  // Rate() has it in already.
  double rate_share = 1;
  // The wall time that the figures are of; zero where it was too short to say anything, and then
  // load is 1.
  absl::Duration window = absl::ZeroDuration();
  // Where the figures come from, for example "proc-stat+task-schedstat", and, unless all is well,
  // what is missing and what that does to them.
  std::string source;
  std::string degraded;
};

// Units: bytes.
struct MemoryInfo {
  uint64_t total_bytes = 0;             // of the machine, or the cgroup's limit where that is less
  uint64_t available_bytes = 0;         // what could still be allocated without swapping
  uint64_t process_resident_bytes = 0;  // of this process
};

// What the kernel knows of the way to one peer. Links that it knows nothing of are measured by the
// runtime from the bytes and residence times of its own calls.
struct LinkInfo {
  std::string peer;  // address:port, as the socket has it
  double bytes_per_s = 0;
  absl::Duration round_trip = absl::ZeroDuration();
};

// Watches one node and the threads of this process from outside: no object reports on itself.
//
// Thread-safety: thread-safe, but Load() is meant to be asked by one thread, every 250 ms or so:
// each call begins a new sample, and the window is made of the samples of all callers.
// Source: ABACUS paper 5.3.
class Monitor {
 public:
  virtual ~Monitor() = default;

  // The source of the figures, as every table and snapshot shows it: "thread-clock",
  // "schedstat+thread-clock".
  virtual std::string Source() const = 0;

  // The load over the last window. A window that is still too short is not an error (see NodeLoad).
  // Errors: kUnavailable - the system's figures cannot be read at all; the message names the file.
  // Blocking: no; at most 1 ms of CPU.
  virtual absl::StatusOr<NodeLoad> Load() = 0;

  // R: work units per second of one core of this node: that of an uncontended one, times the
  // rate_share that Load() last found. Only ratios between nodes of the same build mean anything.
  virtual double Rate() const = 0;

  // c: the processors that this node's tasks may run on.
  // The rate that one more task sees is Rate() x min(1, Cores() / load).
  virtual double Cores() const = 0;

  // Errors: kUnavailable - as Load().
  virtual absl::StatusOr<MemoryInfo> Memory() = 0;

  // Links as the kernel measures them; none where the source cannot see them.
  virtual std::vector<LinkInfo> Links() { return {}; }

  // Gives the calling thread's clock a better source of off-CPU time, where there is one.
  // REQUIRES: the calling thread owns `clock` and detaches it before the thread or the clock ends.
  virtual void AttachThread(ThreadClock& clock) { static_cast<void>(clock); }
  virtual void DetachThread(ThreadClock& clock) { static_cast<void>(clock); }
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_MONITOR_H_
