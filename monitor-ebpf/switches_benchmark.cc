// What the kernel's side takes at context switches: of one monitor, and of twelve on one host.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "baselines.skel.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/bench_parts.h"
#include "monitor-ebpf/testing/block_for.h"

namespace abacus::monitor {
namespace {

using runtime::BenchReport;

constexpr uint64_t kNsPerMs = 1'000'000;

// -- a context switch -----------------------------------------------------------------------------

struct ProgramCost {
  uint64_t runs = 0;
  uint64_t ns = 0;
};

// What the kernel says of each program of that name, by its id: other processes have some too.
using ProgramCosts = std::map<uint32_t, ProgramCost>;

ProgramCosts CostsOf(const std::string& name) {
  ProgramCosts costs;
  for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    const int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0) continue;
    bpf_prog_info info = {};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && name == info.name) {
      costs[id] = {info.run_cnt, info.run_time_ns};
    }
    close(fd);
  }
  return costs;
}

// Since `before`, of the programs that were there then and are there now.
ProgramCost Since(const ProgramCosts& before, const std::string& name) {
  ProgramCost sum;
  for (const auto& [id, cost] : CostsOf(name)) {
    const auto then = before.find(id);
    if (then == before.end()) continue;
    sum.runs += cost.runs - then->second.runs;
    sum.ns += cost.ns - then->second.ns;
  }
  return sum;
}

// A program at context switches that does nothing: what is timed then is the kernel's own timing.
class EmptyProgram {
 public:
  EmptyProgram()
      : skeleton_(baselines_bpf__open_and_load(), baselines_bpf__destroy),
        link_(skeleton_ == nullptr ? nullptr : bpf_program__attach(skeleton_->progs.do_nothing),
              bpf_link__destroy) {}
  bool runs() const { return link_ != nullptr; }

 private:
  const std::unique_ptr<baselines_bpf, void (*)(baselines_bpf*)> skeleton_;
  const std::unique_ptr<bpf_link, int (*)(bpf_link*)> link_;
};

double NsPerRun(const ProgramCost& cost) {
  return static_cast<double>(cost.ns) / static_cast<double>(std::max<uint64_t>(1, cost.runs));
}

// Two threads that wake each other `rounds` times on one processor, so that all switches there are
// theirs; `monitor`: watched.
void PingPong(Monitor* monitor, int rounds) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return;
  const auto play = [&](int fd, bool begins) {
    BindTo(0);
    ThreadClock clock;
    if (monitor != nullptr) monitor->AttachThread(clock);
    char byte = 0;
    for (int i = 0; i < rounds; ++i) {
      if (begins && write(fd, &byte, 1) != 1) break;
      if (read(fd, &byte, 1) != 1) break;
      if (!begins && write(fd, &byte, 1) != 1) break;
    }
  };
  std::thread other([&] { play(sockets[1], false); });
  play(sockets[0], true);
  other.join();
  close(sockets[0]);
  close(sockets[1]);
}

// -- many nodes -----------------------------------------------------------------------------------

constexpr uint64_t kSeconds = 5;

// A node asks for its load ten times a second and tells what CPU time that took; true where it
// could.
bool BeANode(int tell) {
  auto monitor = NewMonitor({.source = MonitorSource::kEbpf, .plain = {.rate = 1}});
  const char ok = monitor.ok() ? 1 : 0;
  if (write(tell, &ok, 1) != 1 || ok == 0) return false;
  // The time of setting up is not the question.
  rusage before, after;
  BlockFor(1000 * kNsPerMs);
  getrusage(RUSAGE_SELF, &before);
  const uint64_t end = MachineTime::MonotonicNs() + kSeconds * 1000 * kNsPerMs;
  while (MachineTime::MonotonicNs() < end) {
    (*monitor)->Load().IgnoreError();
    BlockFor(100 * kNsPerMs);
  }
  getrusage(RUSAGE_SELF, &after);
  const auto us = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const long used_us = us(after) - us(before);
  return write(tell, &used_us, sizeof(used_us)) == sizeof(used_us);
}

// Processes that end with the object.
class TwelveNodes {
 public:
  static constexpr int kNodes = 12;
  TwelveNodes() {
    if (pipe(told_) != 0) return;
    for (int i = 0; i < kNodes; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(BeANode(told_[1]) ? 0 : 1);
      children_.push_back(child);
    }
    all_ = true;
    for (int i = 0; i < kNodes; ++i) {
      char ok = 0;
      all_ = all_ && read(told_[0], &ok, 1) == 1 && ok == 1;
    }
  }
  ~TwelveNodes() {
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
    close(told_[0]);
    close(told_[1]);
  }
  bool all() const { return all_; }
  // Of all together; waits until they have finished.
  double UsedNs() {
    long sum_us = 0;
    for (int i = 0; all_ && i < kNodes; ++i) {
      long one = 0;
      all_ = read(told_[0], &one, sizeof(one)) == sizeof(one);
      sum_us += one;
    }
    return 1e3 * static_cast<double>(sum_us);
  }

 private:
  int told_[2] = {-1, -1};
  std::vector<pid_t> children_;
  bool all_ = false;
};

}  // namespace

void BenchSwitches(Monitor& ebpf, BenchReport& report) {
  const int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (stats < 0) {
    report.Note("the kernel does not count the time of programs: their rows are missing");
    return;
  }
  const EmptyProgram empty;
  if (!empty.runs()) report.Note("no empty program to compare with");
  constexpr int kSwitches = 200'000;
  for (const bool ours : {true, false}) {
    const ProgramCosts before = CostsOf("on_switch"), empty_before = CostsOf("do_nothing");
    std::thread([&] { PingPong(ours ? &ebpf : nullptr, kSwitches); }).join();
    const double timing = NsPerRun(Since(empty_before, "do_nothing"));
    const double ns = NsPerRun(Since(before, "on_switch")) - timing;
    const double goal = ours ? 300 : 50;
    report.Add({.name = ours ? "the program at a switch between two threads of ours"
                             : "the program at a switch between two other threads",
                .value = ns,
                .unit = "ns",
                .baseline_name = "the kernel's timing of an empty one, taken off",
                .baseline = timing,
                .goal = absl::StrFormat("<= %.0f ns", goal),
                .met = ns <= goal});
  }
  close(stats);
}

// Twelve processes, each with a monitor and asking for its load as a node does, beside threads of
// none of them that switch 10,000 times a second: what all of it takes.
void BenchTwelveNodes(BenchReport& report) {
  const int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (stats < 0) {
    report.Note("the kernel does not count the time of programs: twelve nodes are missing");
    return;
  }
  TwelveNodes nodes;
  const EmptyProgram empty;
  if (!nodes.all() || !empty.runs()) {
    close(stats);
    return report.Note("twelve monitors could not be made: their rows are missing");
  }
  BlockFor(1000 * kNsPerMs);
  const ProgramCosts switch_before = CostsOf("on_switch"), wakeup_before = CostsOf("on_wakeup");
  const ProgramCosts empty_before = CostsOf("do_nothing");
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> switches{0};
  std::thread others([&] {
    while (!stop) {
      BlockFor(200'000);  // away and back, with the idle task in between: two switches
      switches += 2;
    }
  });
  const uint64_t begin = MachineTime::MonotonicNs();
  while (MachineTime::MonotonicNs() < begin + kSeconds * 1000 * kNsPerMs) BlockFor(10 * kNsPerMs);
  stop = true;
  others.join();
  const auto wall = static_cast<double>(MachineTime::MonotonicNs() - begin);
  const ProgramCost on_switch = Since(switch_before, "on_switch");
  const ProgramCost on_wakeup = Since(wakeup_before, "on_wakeup");
  const double timing = NsPerRun(Since(empty_before, "do_nothing"));
  const double used_ns = nodes.UsedNs();
  close(stats);
  if (!nodes.all()) return report.Note("a node of twelve ended: their rows are missing");
  const double timed = 100 * static_cast<double>(on_switch.ns + on_wakeup.ns) / wall;
  const auto runs = static_cast<double>(on_switch.runs + on_wakeup.runs);
  const double percent = timed - 100 * timing * runs / wall;
  report.Add(
      {.name = absl::StrFormat("twelve nodes on one host: their programs at %.0f switches/s",
                               static_cast<double>(switches) * 1e9 / wall),
       .value = percent,
       .unit = "% of a core",
       .baseline_name = absl::StrFormat("with the kernel's timing, %.0f ns a run, in it", timing),
       .baseline = timed,
       .goal = "<= 1 % of a core",
       .met = percent <= 1});
  const double loads = 100 * used_ns / (kSeconds * 1e9);
  report.Add({.name = "twelve nodes on one host: asking for their loads 10 times a second",
              .value = loads,
              .unit = "% of a core"});
}

}  // namespace abacus::monitor
