#ifndef ABACUS_MONITOR_EBPF_MONITOR_H_
#define ABACUS_MONITOR_EBPF_MONITOR_H_

#include <cstdint>
#include <optional>
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

// What the kernel knows of one TCP connection of this process. Connections of other kinds (unix
// sockets) are not in it; the runtime measures those, as it does all, from the bytes and residence
// times of its own calls.
struct LinkInfo {
  std::string peer;     // address:port, as the socket has it
  uint64_t socket = 0;  // the kernel's name of the socket (SO_COOKIE), which none gets again
  absl::Duration idle = absl::ZeroDuration();  // since something was sent last
  double delivered_bytes_s = 0;  // the rate of the last deliveries; 0: nothing was delivered yet
  bool app_limited = false;      // that rate is a lower bound: the sender had nothing more to send
  absl::Duration round_trip = absl::ZeroDuration();      // smoothed
  absl::Duration round_trip_min = absl::ZeroDuration();  // over the last minutes
  uint64_t bytes_sent = 0;                               // acknowledged by the peer
  uint64_t bytes_received = 0;
};

// Block I/O that threads of this process began while they were in one object. Units: bytes; time is
// from submission to completion, summed over the requests that have completed.
struct ObjectIo {
  uint32_t object = 0;  // the runtime's slot; 0: in none
  uint64_t bytes = 0;
  uint64_t requests = 0;
  absl::Duration time = absl::ZeroDuration();
};

// Which figures of objects a source has beside busy, blocked and ready time: where it has not, they
// are 0 and mean nothing.
struct MonitorSees {
  bool switches = false;  // context switches, and waits for a disk told apart
  bool block_io = false;
};

// What the monitor could not see. Counts since it began.
struct MonitorLosses {
  uint64_t threads_without_slot = 0;   // their figures come from the thread's own clock
  uint64_t requests_without_slot = 0;  // block I/O that was charged to nobody
  // Block I/O whose end was not seen: its bytes are charged, its time is not.
  uint64_t requests_without_end = 0;

  uint64_t all() const {
    return threads_without_slot + requests_without_slot + requests_without_end;
  }
};

// Watches one node and the threads of this process from outside: no object reports on itself.
//
// Thread-safety: thread-safe, but Load() is meant to be asked by one thread, every 250 ms or so:
// each call begins a new sample, and the window is made of the samples of all callers.
// Source: ABACUS paper 5.3.
class Monitor {
 public:
  virtual ~Monitor() = default;

  // The source of the figures, as every table and snapshot shows it: "ebpf",
  // "schedstat+thread-clock" or "thread-clock".
  virtual std::string Source() const = 0;

  // Why the source is not a better one, and how to get that: one line for people, empty where
  // nothing is missing.
  virtual std::string Missing() const { return {}; }

  virtual MonitorSees Sees() const { return {}; }

  // The load over the last window. A window that is still too short is not an error (see NodeLoad).
  // Errors: kUnavailable - the system's figures cannot be read at all; the message names the file.
  // Blocking: no; at most 1 ms of CPU.
  virtual absl::StatusOr<NodeLoad> Load() = 0;

  // Has the figures that Load() gives from now on be of the last `window` (H). Those of a window
  // that was shorter take that long to be whole.
  virtual void SetWindow(absl::Duration window) { static_cast<void>(window); }

  // R: work units per second of one core of this node: that of an uncontended one, times the
  // rate_share that Load() last found. Only ratios between nodes of the same build mean anything.
  virtual double Rate() const = 0;

  // c: the processors that this node's tasks may run on, or what a CPU quota leaves of them where
  // that is one or more; a quota of less than one lowers Rate().
  // The rate that one more task sees is Rate() x min(1, Cores() / load).
  virtual double Cores() const = 0;

  // Errors: kUnavailable - as Load().
  virtual absl::StatusOr<MemoryInfo> Memory() = 0;

  // Connections as the kernel measures them; none where the source cannot see them.
  virtual std::vector<LinkInfo> Links() { return {}; }

  // Bytes that the object (a slot of the runtime) holds; nothing where this program does not count
  // them (see memory.h).
  virtual std::optional<uint64_t> MemoryOf(uint32_t object) {
    static_cast<void>(object);
    return std::nullopt;
  }

  // Sums since the monitor began; none where the source cannot see block I/O.
  virtual std::vector<ObjectIo> Io() { return {}; }
  // The object is gone, and its slot is not given to another: its sums are dropped.
  virtual void ForgetObject(uint32_t object) { static_cast<void>(object); }

  virtual MonitorLosses Losses() const { return {}; }

  // Gives the calling thread's clock the best source of off-CPU time that there is. It holds until
  // the thread ends (nothing needs to be done then) or DetachThread() is called.
  // REQUIRES: the calling thread owns `clock`; where both live on, DetachThread() before the
  // monitor ends. Blocking: two system calls.
  virtual void AttachThread(ThreadClock& clock) { static_cast<void>(clock); }
  // REQUIRES: the calling thread owns `clock`.
  virtual void DetachThread(ThreadClock& clock) { static_cast<void>(clock); }
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_MONITOR_H_
