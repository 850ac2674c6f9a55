// ./dev bench monitor: what watching costs, and how exact it is, each row beside its baseline in
// the same run.

#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "baselines.skel.h"
#include "monitor-ebpf/memory.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/bench_parts.h"
#include "runtime/object/accounts.h"
#include "runtime/testing/bench_report.h"

extern "C" {
void* __libc_malloc(size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);   // NOLINT(bugprone-reserved-identifier)
}

namespace abacus::monitor {
namespace {

using runtime::AccountCell;
using runtime::BenchReport;
using runtime::ThreadAccounts;

constexpr int kRounds = 9;  // of which the median counts

// -- timing ---------------------------------------------------------------------------------------

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

// -- one invocation -------------------------------------------------------------------------------

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

// What the runtime's invocation path does with each call, with the accounts that it has
// (ThreadContext::AccountEnter() and AccountLeave()): the caller's time until now, the callee's
// until its return, and who is in charge in between. A thread's own.
class Accounts {
 public:
  void Charge(const Interval& lap, AccountCell& cell) {
    AccountCell::Bump(cell.busy_ticks, lap.busy_ticks);
    busy_ticks_ += lap.busy_ticks;
    if ((lap.blocked_ticks | lap.ready_ticks | lap.voluntary_switches | lap.involuntary_switches) !=
        0) [[unlikely]] {
      AccountCell::Bump(cell.blocked_ticks, lap.blocked_ticks);
      AccountCell::Bump(cell.ready_ticks, lap.ready_ticks);
    }
  }
  void Enter(ThreadClock& clock) {
    Charge(clock.Lap(), cells_.Cell(0, kCaller));
    clock.SetObject(kCallee);
  }
  void Leave(ThreadClock& clock) {
    AccountCell& cell = cells_.Cell(kCaller, kCallee);
    Charge(clock.Lap(), cell);
    clock.SetObject(kCaller);
    AccountCell::Bump(cell.calls, 1);
    AccountCell::Bump(cell.request_bytes, 8);
    AccountCell::Bump(cell.reply_bytes, 8);
  }

 private:
  static constexpr uint32_t kCaller = 1, kCallee = 2;
  ThreadAccounts cells_;
  uint64_t busy_ticks_ = 0;
};

void Watched(ThreadClock& clock, Accounts& accounts, uint64_t calls) {
  for (uint64_t i = 0; i < calls; ++i) {
    accounts.Enter(clock);
    sink += Method(i);
    accounts.Leave(clock);
  }
}

struct CostOfCall {
  double bare = 0, plain = 0, ebpf = 0, thread_clock = 0;
};

CostOfCall MeasureCalls(Monitor* ebpf, uint64_t calls) {
  std::vector<double> bare, plain, watched, thread_clock;
  ThreadClock plain_clock, bpf_clock;
  if (ebpf != nullptr) ebpf->AttachThread(bpf_clock);
  Accounts accounts;
  for (int round = 0; round < kRounds; ++round) {
    bare.push_back(NsPerCall(calls, [&] {
      for (uint64_t i = 0; i < calls; ++i) sink += Method(i);
    }));
    plain.push_back(NsPerCall(calls, [&] { Watched(plain_clock, accounts, calls); }));
    if (ebpf != nullptr) {
      watched.push_back(NsPerCall(calls, [&] { Watched(bpf_clock, accounts, calls); }));
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
[[gnu::noinline]] void ComputeFor(uint64_t steps) {
  for (uint64_t i = 0; i < steps; ++i) sink += Method(sink);
}

// Of the thread's own time: what others on this processor do is not the question here.
template <typename Body>
double CpuNsPerCall(uint64_t calls, Body body) {
  const uint64_t begin = MachineTime::ThreadCpuNs();
  for (uint64_t i = 0; i < calls; ++i) body();
  return static_cast<double>(MachineTime::ThreadCpuNs() - begin) / static_cast<double>(calls);
}

// Steps of ComputeFor() that take `ns` on this machine today.
uint64_t StepsOf(double ns) {
  constexpr uint64_t kSteps = 3'000;
  double best = 1e12;
  for (int i = 0; i < kRounds; ++i) {
    best = std::min(best, CpuNsPerCall(1'000, [] { ComputeFor(kSteps); }));
  }
  return static_cast<uint64_t>(ns / best * kSteps);
}

// A core that does 200,000 invocations a second is busy with them: 5 us each.
void Throughput(Monitor& ebpf, BenchReport& report) {
  constexpr uint64_t kCalls = 100'000;
  ThreadClock clock;
  ebpf.AttachThread(clock);
  Accounts accounts;
  const uint64_t steps = StepsOf(5'000);
  std::vector<double> without, with;
  for (int round = 0; round < 2 * kRounds; ++round) {
    without.push_back(CpuNsPerCall(kCalls, [&] { ComputeFor(steps); }));
    with.push_back(CpuNsPerCall(kCalls, [&] {
      accounts.Enter(clock);
      ComputeFor(steps);
      accounts.Leave(clock);
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

// Empty: all parts. Otherwise the one of this name.
void MeasureAll(const std::string& only, BenchReport& report) {
  const bool bound = BindTo(1);
  report.Note(bound ? "calls are measured on processor 1, switches on processor 0"
                    : "threads are not bound to processors here");
  auto ebpf = NewMonitor({.source = MonitorSource::kEbpf, .plain = {.rate = 1}});
  if (!ebpf.ok()) {
    report.Note(absl::StrCat("no eBPF: ", ebpf.status().message(), "; its rows are missing"));
  }
  Monitor* monitor = ebpf.ok() ? ebpf->get() : nullptr;
  const auto wants = [&only](const char* part) { return only.empty() || only == part; };
  if (wants("calls")) Calls(monitor, report);
  if (wants("memory")) Memory(report);
  if (monitor == nullptr) return;
  if (wants("throughput")) Throughput(*monitor, report);
  if (wants("threads")) ManyThreads(*monitor, report);
  if (wants("switches")) BenchSwitches(*monitor, report);
  if (wants("exactness")) BenchExactness(*monitor, report);
  if (wants("nodes")) BenchTwelveNodes(report);
  report.Note(absl::StrCat("lost: ", monitor->Losses().all()));
}

}  // namespace
}  // namespace abacus::monitor

// [--only calls|memory|throughput|threads|switches|exactness|nodes] before what BenchMain() takes.
int main(int argc, char** argv) {
  std::string only;
  if (argc > 2 && std::string(argv[1]) == "--only") {
    only = argv[2];
    argv[2] = argv[0];
    argv += 2;
    argc -= 2;
  }
  return abacus::runtime::BenchMain(
      argc, argv, "monitor", [&only](auto& report) { abacus::monitor::MeasureAll(only, report); });
}
