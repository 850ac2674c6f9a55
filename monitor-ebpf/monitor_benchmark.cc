// ./dev bench monitor: what watching costs, and how exact it is, each row beside its baseline in
// the same run.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "baselines.skel.h"
#include "monitor-ebpf/memory.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/block_for.h"
#include "runtime/testing/bench_report.h"

extern "C" {
void* __libc_malloc(size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);   // NOLINT(bugprone-reserved-identifier)
}

namespace abacus::monitor {
namespace {

using runtime::BenchReport;

constexpr uint64_t kMs = 1'000'000;
constexpr int kRounds = 9;  // of which the median counts

// -- timing ---------------------------------------------------------------------------------------

bool BindTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Nanoseconds of wall time per call of `body`, each of which makes `calls` of what is measured.
template <typename Body>
double NsPerCall(uint64_t calls, Body body) {
  const uint64_t begin = MachineTime::MonotonicNs();
  body();
  return static_cast<double>(MachineTime::MonotonicNs() - begin) / static_cast<double>(calls);
}

void SpinFor(uint64_t cpu_ns) {
  const uint64_t end = MachineTime::ThreadCpuNs() + cpu_ns;
  while (MachineTime::ThreadCpuNs() < end) {
  }
}

// -- one invocation -------------------------------------------------------------------------------

struct Account {
  std::atomic<uint64_t> calls{0}, busy{0}, blocked{0}, ready{0};
  void Add(const Interval& lap) {
    busy.store(busy.load(std::memory_order_relaxed) + lap.busy_ticks, std::memory_order_relaxed);
    if ((lap.blocked_ticks | lap.ready_ticks) != 0) [[unlikely]] {
      blocked.store(blocked + lap.blocked_ticks, std::memory_order_relaxed);
      ready.store(ready + lap.ready_ticks, std::memory_order_relaxed);
    }
  }
};

uint64_t sink = 0;

// A method: what is called is not what is measured.
[[gnu::noinline]] uint64_t Method(uint64_t n) {
  asm volatile("" : "+r"(n) : : "memory");
  return n + 1;
}
// The same with a name of its own, for the probes.
extern "C" [[gnu::noinline]] uint64_t AbacusProbedMethod(uint64_t n) {
  asm volatile("" : "+r"(n) : : "memory");
  return n + 1;
}

// As the runtime's invocation path does it: the caller's time until now, the callee's until its
// return, and who is in charge in between.
void Watched(ThreadClock& clock, Account& caller, Account& callee, uint64_t calls) {
  for (uint64_t i = 0; i < calls; ++i) {
    caller.Add(clock.Lap());
    clock.SetObject(2);
    sink += Method(i);
    callee.Add(clock.Lap());
    clock.SetObject(1);
  }
}

struct CostOfCall {
  double bare = 0, plain = 0, ebpf = 0, thread_clock = 0;
};

CostOfCall MeasureCalls(Monitor* ebpf, uint64_t calls) {
  std::vector<double> bare, plain, watched, thread_clock;
  ThreadClock plain_clock, bpf_clock;
  if (ebpf != nullptr) ebpf->AttachThread(bpf_clock);
  Account caller, callee;
  for (int round = 0; round < kRounds; ++round) {
    bare.push_back(NsPerCall(calls, [&] {
      for (uint64_t i = 0; i < calls; ++i) sink += Method(i);
    }));
    plain.push_back(NsPerCall(calls, [&] { Watched(plain_clock, caller, callee, calls); }));
    if (ebpf != nullptr) {
      watched.push_back(NsPerCall(calls, [&] { Watched(bpf_clock, caller, callee, calls); }));
    }
    thread_clock.push_back(NsPerCall(calls / 10, [&] {
      for (uint64_t i = 0; i < calls / 10; ++i) {
        const uint64_t begin = MachineTime::ThreadCpuNs();
        sink += Method(i);
        sink += MachineTime::ThreadCpuNs() - begin;
      }
    }));
  }
  if (ebpf != nullptr) ebpf->DetachThread(bpf_clock);
  return {Median(bare), Median(plain), watched.empty() ? 0 : Median(watched), Median(thread_clock)};
}

// A probe at the call and one at the return. Nothing where probes are not to be had.
std::optional<double> MeasureProbes() {
  const std::unique_ptr<baselines_bpf, void (*)(baselines_bpf*)> skeleton(
      baselines_bpf__open_and_load(), baselines_bpf__destroy);
  if (skeleton == nullptr) return std::nullopt;
  std::unique_ptr<bpf_link, int (*)(bpf_link*)> links[] = {{nullptr, bpf_link__destroy},
                                                           {nullptr, bpf_link__destroy}};
  for (const bool at_return : {false, true}) {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = at_return, .func_name = "AbacusProbedMethod");
    bpf_program* program = at_return ? skeleton->progs.on_return : skeleton->progs.on_call;
    links[at_return].reset(
        bpf_program__attach_uprobe_opts(program, getpid(), "/proc/self/exe", 0, &options));
    if (links[at_return] == nullptr) return std::nullopt;
  }
  constexpr uint64_t kCalls = 20'000;
  std::vector<double> costs;
  for (int round = 0; round < kRounds; ++round) {
    costs.push_back(NsPerCall(kCalls, [&] {
      for (uint64_t i = 0; i < kCalls; ++i) sink += AbacusProbedMethod(i);
    }));
  }
  if (skeleton->bss->inside_ns == 0) return std::nullopt;
  return Median(costs);
}

void Calls(Monitor* ebpf, BenchReport& report) {
  constexpr uint64_t kCalls = 2'000'000;
  const CostOfCall cost = MeasureCalls(ebpf, kCalls);
  const auto add = [&](const char* name, double ns, std::string goal) {
    const double added = ns - cost.bare;
    report.Add({.name = name,
                .value = added,
                .unit = "ns",
                .baseline_name = "call without monitoring",
                .baseline = cost.bare,
                .ratio = ns / cost.bare,
                .goal = goal,
                .met = goal.empty() ? std::nullopt : std::optional(added <= 30)});
  };
  if (ebpf != nullptr) add("an invocation, source ebpf: added", cost.ebpf, "<= 30 ns");
  add("an invocation, source schedstat+thread-clock: added", cost.plain, "<= 30 ns");
  add("two readings of the thread's CPU clock: added", cost.thread_clock, "");
  if (const auto probes = MeasureProbes()) {
    add("a uprobe and a uretprobe: added", *probes, "");
  } else {
    report.Note("no uprobes here: their row is missing");
  }
}

// One function for both loops: inlined, it would not be the same code in them.
[[gnu::noinline]] void FiveMicroseconds() {
  for (int i = 0; i < 3'000; ++i) sink += Method(sink);
}

// A core that does 200,000 invocations a second is busy with them: 5 us each.
void Throughput(Monitor& ebpf, BenchReport& report) {
  constexpr uint64_t kCalls = 100'000;
  ThreadClock clock;
  ebpf.AttachThread(clock);
  Account caller, callee;
  std::vector<double> without, with;
  // Of the thread's own time: what others on this processor do is not the question here.
  const auto cpu_ns_per_call = [](const auto& body) {
    const uint64_t begin = MachineTime::ThreadCpuNs();
    body();
    return static_cast<double>(MachineTime::ThreadCpuNs() - begin) / kCalls;
  };
  for (int round = 0; round < 2 * kRounds; ++round) {
    without.push_back(cpu_ns_per_call([&] {
      for (uint64_t i = 0; i < kCalls; ++i) FiveMicroseconds();
    }));
    with.push_back(cpu_ns_per_call([&] {
      for (uint64_t i = 0; i < kCalls; ++i) {
        caller.Add(clock.Lap());
        clock.SetObject(2);
        FiveMicroseconds();
        callee.Add(clock.Lap());
        clock.SetObject(1);
      }
    }));
  }
  ebpf.DetachThread(clock);
  // The least of many is what the machine's other work has disturbed least.
  const double bare = *std::min_element(without.begin(), without.end());
  const double watched = *std::min_element(with.begin(), with.end());
  const double percent = 100 * (watched - bare) / bare;
  report.Add(
      {.name = absl::StrFormat("throughput lost at %.0f invocations/s on a core", 1e9 / bare),
       .value = percent,
       .unit = "%",
       .baseline_name = "ns per invocation without",
       .baseline = bare,
       .ratio = watched / bare,
       .goal = "<= 1 %",
       .met = percent <= 1});
}

// -- a context switch -----------------------------------------------------------------------------

struct ProgramCost {
  uint64_t runs = 0;
  uint64_t ns = 0;
};

// What the kernel says of all programs of that name.
ProgramCost CostOf(const std::string& name) {
  ProgramCost cost;
  for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    const int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0) continue;
    bpf_prog_info info = {};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && name == info.name) {
      cost.runs += info.run_cnt;
      cost.ns += info.run_time_ns;
    }
    close(fd);
  }
  return cost;
}

double NsPerRun(const ProgramCost& before, const ProgramCost& after) {
  return static_cast<double>(after.ns - before.ns) /
         static_cast<double>(std::max<uint64_t>(1, after.runs - before.runs));
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

void Switches(Monitor& ebpf, BenchReport& report) {
  const int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  if (stats < 0) {
    report.Note("the kernel does not count the time of programs: their rows are missing");
    return;
  }
  const std::unique_ptr<baselines_bpf, void (*)(baselines_bpf*)> nothing(
      baselines_bpf__open_and_load(), baselines_bpf__destroy);
  const std::unique_ptr<bpf_link, int (*)(bpf_link*)> link(
      nothing == nullptr ? nullptr : bpf_program__attach(nothing->progs.do_nothing),
      bpf_link__destroy);
  if (link == nullptr) report.Note("no empty program to compare with");
  constexpr int kSwitches = 200'000;
  for (const bool ours : {true, false}) {
    const ProgramCost before = CostOf("on_switch"), empty_before = CostOf("do_nothing");
    std::thread([&] { PingPong(ours ? &ebpf : nullptr, kSwitches); }).join();
    const double timing = NsPerRun(empty_before, CostOf("do_nothing"));
    const double ns = NsPerRun(before, CostOf("on_switch")) - timing;
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

// -- exactness ------------------------------------------------------------------------------------

struct Mix {
  const char* name;
  std::function<void(uint64_t until_ns)> work;
};

// Parts of the window.
struct Error {
  double busy = 0;    // against the thread's CPU clock
  double rusage = 0;  // the same, against getrusage()
  double ready = 0;   // against schedstat
};

uint64_t RusageNs() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1000 * kMs +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::optional<uint64_t> RunDelayNs() {
  unsigned long long run = 0, delay = 0;
  FILE* file = fopen("/proc/thread-self/schedstat", "re");
  if (file == nullptr) return std::nullopt;
  const bool ok = fscanf(file, "%llu %llu", &run, &delay) == 2;
  fclose(file);
  return ok ? std::optional<uint64_t>(delay) : std::nullopt;
}

Error Measure(Monitor& ebpf, const Mix& mix, uint64_t window_ns) {
  Error error;
  std::thread([&] {
    ThreadClock clock;
    ebpf.AttachThread(clock);
    const double ns_per_tick = ThreadClock::NsPerTick();
    clock.Lap();
    const uint64_t cpu_before = MachineTime::ThreadCpuNs();
    const uint64_t rusage_before = RusageNs();
    const auto delay_before = RunDelayNs();
    const uint64_t begin = MachineTime::MonotonicNs();
    Interval sum;
    while (MachineTime::MonotonicNs() < begin + window_ns) {
      mix.work(begin + window_ns);
      const Interval lap = clock.Lap();
      sum.busy_ticks += lap.busy_ticks;
      sum.blocked_ticks += lap.blocked_ticks;
      sum.ready_ticks += lap.ready_ticks;
    }
    const auto wall = static_cast<double>(MachineTime::MonotonicNs() - begin);
    const auto cpu = static_cast<double>(MachineTime::ThreadCpuNs() - cpu_before);
    const double busy = static_cast<double>(sum.busy_ticks) * ns_per_tick;
    error.busy = std::abs(busy - cpu) / wall;
    error.rusage = std::abs(busy - static_cast<double>(RusageNs() - rusage_before)) / wall;
    if (const auto delay = RunDelayNs(); delay && delay_before) {
      error.ready = std::abs(static_cast<double>(sum.ready_ticks) * ns_per_tick -
                             static_cast<double>(*delay - *delay_before)) /
                    wall;
    }
  }).join();
  return error;
}

// Limits the calling thread to a fifth of a processor, as a container would be, while it lives.
class Quota {
 public:
  Quota() : path_(absl::StrCat("/sys/fs/cgroup/cpu/abacus_bench_", getpid())) {
    good_ = mkdir(path_.c_str(), 0755) == 0 && Write("cpu.cfs_period_us", "20000") &&
            Write("cpu.cfs_quota_us", "4000");
  }
  ~Quota() { rmdir(path_.c_str()); }
  bool Enter() const { return Write("tasks", std::to_string(syscall(SYS_gettid))); }
  static void Leave() {
    if (FILE* file = fopen("/sys/fs/cgroup/cpu/tasks", "we"); file != nullptr) {
      fprintf(file, "%ld", syscall(SYS_gettid));
      fclose(file);
    }
  }
  bool good() const { return good_; }

 private:
  bool Write(const char* name, const std::string& text) const {
    FILE* file = fopen((path_ + "/" + name).c_str(), "we");
    if (file == nullptr) return false;
    const bool written = fputs(text.c_str(), file) >= 0;
    return fclose(file) == 0 && written;
  }
  const std::string path_;
  bool good_ = false;
};

std::optional<uint64_t> ReadBytesOfProcess() {
  std::ifstream file("/proc/self/io");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("read_bytes: ")) return std::stoull(line.substr(12));
  }
  return std::nullopt;
}

// What the kernel says that this process had read from devices, and what was charged to the object
// that read.
void BytesRead(Monitor& ebpf, int file, void* memory, BenchReport& report) {
  constexpr uint32_t kObject = 5;
  const auto charged = [&] {
    for (const ObjectIo& io : ebpf.Io()) {
      if (io.object == kObject) return io.bytes;
    }
    return uint64_t{0};
  };
  const auto kernel_before = ReadBytesOfProcess();
  if (!kernel_before) return report.Note("no /proc/self/io: the row of bytes read is missing");
  std::thread([&] {
    ThreadClock clock;
    ebpf.AttachThread(clock);
    clock.SetObject(kObject);
    for (int i = 0; i < 200; ++i) sink += static_cast<uint64_t>(pread(file, memory, 1 << 20, 0));
    clock.SetObject(0);
  }).join();
  const auto kernel = static_cast<double>(*ReadBytesOfProcess() - *kernel_before);
  const double error = static_cast<double>(charged()) - kernel;
  report.Add({.name = "bytes read from a device: charged to the object, less /proc/self/io",
              .value = error,
              .unit = "B",
              .baseline_name = "/proc/self/io",
              .baseline = kernel,
              .goal = "0",
              .met = error == 0});
}

void Exactness(Monitor& ebpf, BenchReport& report) {
  char path[] = "/var/tmp/abacus_bench_XXXXXX";
  const int file = mkstemp(path);
  const std::vector<char> bytes(4 << 20, 'x');
  const bool has_file =
      file >= 0 && write(file, bytes.data(), bytes.size()) > 0 && fsync(file) == 0;
  const int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  unlink(path);
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, 1 << 20) != 0) return;
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    while (!stop) {
      {
        std::lock_guard<std::mutex> lock(mutex);
        BlockFor(3 * kMs);
      }
      BlockFor(kMs);
    }
  });
  std::atomic<bool> rival_runs{false};
  std::thread rival([&] {
    BindTo(0);
    while (!stop) {
      if (!rival_runs) BlockFor(5 * kMs);
    }
  });
  const Quota quota;
  std::vector<Mix> mixes = {{"compute", [](uint64_t) { SpinFor(10 * kMs); }},
                            {"sleep",
                             [](uint64_t) {
                               SpinFor(2 * kMs);
                               BlockFor(3 * kMs);
                             }},
                            {"a contended lock",
                             [&](uint64_t) {
                               SpinFor(kMs);
                               std::lock_guard<std::mutex> lock(mutex);
                             }},
                            {"an overloaded run queue", [&](uint64_t) {
                               BindTo(0);
                               rival_runs = true;
                               SpinFor(5 * kMs);
                             }}};
  if (has_file && direct >= 0) {
    mixes.push_back({"disk reads", [&](uint64_t) {
                       SpinFor(kMs);
                       sink += static_cast<uint64_t>(pread(direct, memory, 1 << 20, 0));
                     }});
  } else {
    report.Note("/var/tmp has no direct reads: the row of disk reads is missing");
  }
  if (quota.good()) {
    mixes.push_back({"a CPU quota", [&](uint64_t until_ns) {
                       static thread_local const bool inside = quota.Enter();
                       SpinFor(kMs);
                       if (inside && MachineTime::MonotonicNs() >= until_ns) Quota::Leave();
                     }});
  } else {
    report.Note("no cgroup of version 1 to make: the row of a CPU quota is missing");
  }
  for (const uint64_t seconds : {1, 10}) {
    const double goal = seconds == 1 ? 2 : 0.5;
    double worst_rusage = 0;
    for (const Mix& mix : mixes) {
      rival_runs = false;
      const Error error = Measure(ebpf, mix, seconds * 1000 * kMs);
      worst_rusage = std::max(worst_rusage, 100 * error.rusage);
      report.Add({.name = absl::StrCat("error of CPU time over ", seconds, " s: ", mix.name),
                  .value = 100 * error.busy,
                  .unit = "%",
                  .baseline_name = "error of ready time against schedstat, %",
                  .baseline = 100 * error.ready,
                  .goal = absl::StrFormat("<= %.1f %% of the window", goal),
                  .met = 100 * error.busy <= goal});
    }
    report.Add({.name = absl::StrCat("error of CPU time over ", seconds,
                                     " s against getrusage: the worst mix"),
                .value = worst_rusage,
                .unit = "%",
                .goal = absl::StrFormat("<= %.1f %% of the window", goal),
                .met = worst_rusage <= goal});
  }
  if (has_file && direct >= 0) BytesRead(ebpf, direct, memory, report);
  stop = true;
  holder.join();
  rival.join();
  free(memory);
  close(file);
  close(direct);
}

// -- many nodes
// ------------------------------------------------------------------------------------

// Twelve processes, each with a monitor and asking for its load as a node does, beside threads of
// none of them that switch 10,000 times a second: what all of it takes.
void TwelveNodes(BenchReport& report) {
  constexpr int kNodes = 12;
  constexpr uint64_t kSeconds = 5;
  const int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
  int begun[2];
  if (stats < 0 || pipe(begun) != 0) {
    report.Note("the kernel does not count the time of programs: twelve nodes are missing");
    return;
  }
  std::vector<pid_t> children;
  for (int i = 0; i < kNodes; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      auto monitor = NewMonitor({.source = MonitorSource::kEbpf, .plain = {.rate = 1}});
      const char ok = monitor.ok() ? 1 : 0;
      if (write(begun[1], &ok, 1) != 1 || ok == 0) _exit(1);
      // The time of setting up is not the question.
      rusage before, after;
      BlockFor(1000 * kMs);
      getrusage(RUSAGE_SELF, &before);
      const uint64_t end = MachineTime::MonotonicNs() + kSeconds * 1000 * kMs;
      while (MachineTime::MonotonicNs() < end) {
        (*monitor)->Load().IgnoreError();
        BlockFor(100 * kMs);
      }
      getrusage(RUSAGE_SELF, &after);
      const auto us = [](const rusage& usage) {
        return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 +
               usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
      };
      const long used_us = us(after) - us(before);
      _exit(write(begun[1], &used_us, sizeof(used_us)) == sizeof(used_us) ? 0 : 1);
    }
    children.push_back(child);
  }
  bool all = true;
  for (int i = 0; i < kNodes; ++i) {
    char ok = 0;
    all = all && read(begun[0], &ok, 1) == 1 && ok == 1;
  }
  BlockFor(1000 * kMs);
  const auto programs = [] { return CostOf("on_switch").ns + CostOf("on_wakeup").ns; };
  const uint64_t before = programs();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> switches{0};
  std::thread others([&] {
    while (!stop) {
      BlockFor(200'000);  // away and back, with the idle task in between: two switches
      switches += 2;
    }
  });
  const uint64_t begin = MachineTime::MonotonicNs();
  while (MachineTime::MonotonicNs() < begin + kSeconds * 1000 * kMs) BlockFor(10 * kMs);
  stop = true;
  others.join();
  const auto wall = static_cast<double>(MachineTime::MonotonicNs() - begin);
  const auto in_programs = static_cast<double>(programs() - before);
  long used_us = 0;
  for (int i = 0; i < kNodes; ++i) {
    long one = 0;
    all = all && read(begun[0], &one, sizeof(one)) == sizeof(one);
    used_us += one;
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  close(begun[0]);
  close(begun[1]);
  close(stats);
  if (!all) return report.Note("twelve monitors could not be made: their rows are missing");
  const double percent = 100 * in_programs / wall;
  report.Add({.name = absl::StrFormat("twelve nodes on one host: their programs at %.0f switches/s",
                                      static_cast<double>(switches) * 1e9 / wall),
              .value = percent,
              .unit = "% of a core",
              .baseline_name = "asking for their loads, % of a core",
              .baseline = 100 * static_cast<double>(used_us) * 1e3 / (kSeconds * 1e9),
              .goal = "<= 1 % of a core",
              .met = percent <= 1});
}

// -- many threads, memory -------------------------------------------------------------------------

void ManyThreads(Monitor& ebpf, BenchReport& report) {
  constexpr uint64_t kCalls = 500'000;
  const double alone = MeasureCalls(&ebpf, kCalls).ebpf;
  std::latch attached(1000), done(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 1000; ++i) {
    threads.emplace_back([&] {
      ThreadClock clock;
      ebpf.AttachThread(clock);
      attached.count_down();
      done.wait();
    });
  }
  attached.wait();
  const double among = MeasureCalls(&ebpf, kCalls).ebpf;
  done.count_down();
  for (std::thread& thread : threads) thread.join();
  report.Add({.name = "a watched call beside 1,000 watched threads",
              .value = among,
              .unit = "ns",
              .baseline_name = "alone",
              .baseline = alone,
              .ratio = among / alone,
              .goal = "<= 1.2 x",
              .met = among <= 1.2 * alone});
}

void Memory(BenchReport& report) {
  constexpr uint64_t kPairs = 1'000'000;
  for (const size_t size : {size_t{64}, size_t{4096}}) {
    std::vector<double> glibc, counted;
    const MemoryScope scope(17);
    for (int round = 0; round < kRounds; ++round) {
      glibc.push_back(NsPerCall(kPairs, [&] {
        for (uint64_t i = 0; i < kPairs; ++i) {
          void* block = __libc_malloc(size);
          asm volatile("" : "+r"(block) : : "memory");
          __libc_free(block);
        }
      }));
      counted.push_back(NsPerCall(kPairs, [&] {
        for (uint64_t i = 0; i < kPairs; ++i) {
          void* block = malloc(size);
          asm volatile("" : "+r"(block) : : "memory");
          free(block);
        }
      }));
    }
    const double added = Median(counted) - Median(glibc);
    report.Add({.name = absl::StrCat("memory: a malloc/free pair of ", size, " B, added"),
                .value = added,
                .unit = "ns",
                .baseline_name = "glibc's",
                .baseline = Median(glibc),
                .ratio = Median(counted) / Median(glibc),
                .goal = "<= 20 ns",
                .met = added <= 20});
  }
}

void MeasureAll(BenchReport& report) {
  const bool bound = BindTo(1);
  report.Note(bound ? "calls are measured on processor 1, switches on processor 0"
                    : "threads are not bound to processors here");
  auto ebpf = NewMonitor({.source = MonitorSource::kEbpf, .plain = {.rate = 1}});
  if (!ebpf.ok()) {
    report.Note(absl::StrCat("no eBPF: ", ebpf.status().message(), "; its rows are missing"));
  }
  Monitor* monitor = ebpf.ok() ? ebpf->get() : nullptr;
  Calls(monitor, report);
  Memory(report);
  if (monitor != nullptr) {
    Throughput(*monitor, report);
    ManyThreads(*monitor, report);
    Switches(*monitor, report);
    Exactness(*monitor, report);
    TwelveNodes(report);
    const MonitorLosses losses = monitor->Losses();
    report.Note(absl::StrCat("lost: ", losses.all()));
  }
}

}  // namespace
}  // namespace abacus::monitor

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "monitor", abacus::monitor::MeasureAll);
}
