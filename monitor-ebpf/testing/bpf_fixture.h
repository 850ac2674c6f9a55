#ifndef ABACUS_MONITOR_EBPF_TESTING_BPF_FIXTURE_H_
#define ABACUS_MONITOR_EBPF_TESTING_BPF_FIXTURE_H_

// What tests of the kernel's side share: they load the real programs, so they need the right to
// (root has it) and skip with the kernel's reason without it.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/bpf_monitor.h"
#include "monitor-ebpf/testing/block_for.h"

namespace abacus::monitor {

inline constexpr uint64_t kMs = 1'000'000;

// What a clock reported, in nanoseconds.
struct Times {
  uint64_t busy = 0, blocked = 0, ready = 0, disk = 0;
  uint64_t off() const { return blocked + ready; }
  Times& operator+=(const Interval& interval) {
    const auto ns = [](uint64_t ticks) {
      return static_cast<uint64_t>(static_cast<double>(ticks) * ThreadClock::NsPerTick());
    };
    busy += ns(interval.busy_ticks);
    blocked += ns(interval.blocked_ticks);
    ready += ns(interval.ready_ticks);
    disk += ns(interval.disk_ticks);
    return *this;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Times& times) {
  return out << "busy " << times.busy / 1000 << " us, blocked " << times.blocked / 1000
             << " us (disk " << times.disk / 1000 << " us), ready " << times.ready / 1000 << " us";
}

inline void SpinFor(uint64_t cpu_ns) {
  const uint64_t end = MachineTime::ThreadCpuNs() + cpu_ns;
  while (MachineTime::ThreadCpuNs() < end) {
  }
}

// Waits for what the kernel does in its own time.
inline bool Eventually(const std::function<bool()>& condition) {
  const uint64_t deadline_ns = MachineTime::MonotonicNs() + 20'000 * kMs;
  while (!condition()) {
    if (MachineTime::MonotonicNs() > deadline_ns) return false;
    BlockFor(kMs);
  }
  return true;
}

inline bool BindTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

// Runs `work` on a new thread whose clock is attached, and returns what the clock says of it.
inline Times Watched(Monitor& monitor, const std::function<void(ThreadClock&)>& work) {
  Times times;
  std::thread([&] {
    ThreadClock clock;
    monitor.AttachThread(clock);
    clock.Lap();
    work(clock);
    times += clock.Lap();
  }).join();
  return times;
}

// Ids of the kernel's programs and maps that carry the name.
std::vector<uint32_t> ProgramsNamed(const std::string& name);
std::vector<uint32_t> MapsNamed(const std::string& name);

// Programs and maps of monitors that are in the kernel: those of others on this machine too.
struct InKernel {
  std::vector<uint32_t> programs = ProgramsNamed("on_switch");
  std::vector<uint32_t> maps = MapsNamed("threads");
  std::vector<uint32_t> slots = MapsNamed("slots");
  std::vector<uint32_t> globals = MapsNamed("thread_t.bss");
};
// What is in `now` and not in `before`.
inline std::vector<uint32_t> New(const std::vector<uint32_t>& before,
                                 const std::vector<uint32_t>& now) {
  std::vector<uint32_t> added;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::back_inserter(added));
  return added;
}
// Whether none of `ids` is in `now`.
inline bool Gone(const std::vector<uint32_t>& ids, const std::vector<uint32_t>& now) {
  return New(now, ids).size() == ids.size();
}

// Runs `body` in a forked child and returns its exit status.
inline int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

class BpfMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override { Make({}); }
  void Make(const BpfMonitorOptions& options) {
    monitor_.reset();
    auto monitor = NewBpfMonitor({.rate = 1}, options);
    if (!monitor.ok()) GTEST_SKIP() << "no eBPF here: " << monitor.status();
    monitor_ = *std::move(monitor);
  }
  std::unique_ptr<Monitor> monitor_;
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_BPF_FIXTURE_H_
