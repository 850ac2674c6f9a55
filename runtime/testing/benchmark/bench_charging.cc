#include "runtime/testing/benchmark/bench_charging.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/block_for.h"
#include "runtime/testing/benchmark/bench_node.h"

namespace abacus::runtime {
namespace {

using monitor::MachineTime;
using monitor::MonitorSource;

constexpr uint64_t kUs = 1'000;
constexpr size_t kObjects = 6;
constexpr int kThreads = 3;  // on two processors, so that they wait for one as well

// What the objects themselves know.
struct Known {
  double cpu_ns = 0;
  double wall_ns = 0;
};
using KnownOfAll = std::array<Known, kObjects>;
uint64_t step_ns = 0;

// Whose time a thread's is, by its CPU clock, read whenever the thread passes from one object to
// another. The runtime takes its own reading just before a method begins and just after it has
// ended, and reading this clock takes longer than what is between: so the reading is dated back to
// where it began, or forward to where it ended, and what it takes is its object's as well.
class Ledger {
 public:
  void Enter(size_t object) {
    const Reading at = Read();
    Credit(at.cpu_ns - at.half_ns, at.wall_ns - at.half_ns);
    inside_.push_back(object);
  }
  void Leave() {
    const Reading at = Read();
    Credit(at.cpu_ns + at.half_ns, at.wall_ns + at.half_ns);
    inside_.pop_back();
  }
  const KnownOfAll& known() const { return known_; }

 private:
  struct Reading {
    double cpu_ns;
    double wall_ns;
    double half_ns;  // of the time that the reading took
  };
  Reading Read() {
    // One in which the thread was set aside says nothing of what the others take.
    constexpr double kUndisturbedNs = 5'000;
    const uint64_t begin = MachineTime::Ticks();
    const auto wall_ns = static_cast<double>(MachineTime::MonotonicNs());
    const auto cpu_ns = static_cast<double>(MachineTime::ThreadCpuNs());
    const double took_ns = static_cast<double>(MachineTime::Ticks() - begin) * ns_per_tick_;
    if (took_ns < kUndisturbedNs) half_ns_ = took_ns / 2;
    return {cpu_ns, wall_ns, half_ns_};
  }
  void Credit(double cpu_ns, double wall_ns) {
    if (!inside_.empty()) {
      known_[inside_.back()].cpu_ns += cpu_ns - cpu_ns_;
      known_[inside_.back()].wall_ns += wall_ns - wall_ns_;
    }
    cpu_ns_ = cpu_ns;
    wall_ns_ = wall_ns;
  }

  const double ns_per_tick_ = MachineTime::NsPerTick();
  std::vector<size_t> inside_;
  double cpu_ns_ = 0, wall_ns_ = 0, half_ns_ = 0;
  KnownOfAll known_;
};
thread_local Ledger* ledger = nullptr;

class Inside {
 public:
  explicit Inside(size_t object) { ledger->Enter(object); }
  ~Inside() { ledger->Leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

void SpinFor(uint64_t cpu_ns) {
  const uint64_t end = MachineTime::ThreadCpuNs() + cpu_ns;
  while (MachineTime::ThreadCpuNs() < end) {
  }
}

// Computes for a step or more, blocks where its number is odd, calls the next one where it is not,
// computes for another step.
class Player : public MobileObject {
 public:
  using Cast = std::vector<Ref<Player>>;

  absl::Status Play(uint64_t self, const Cast& cast) {
    const Inside mine(self);
    SpinFor(step_ns + self * step_ns / 2);
    if (self % 2 == 1) monitor::BlockFor(3 * step_ns);
    if (self % 2 == 0) ABACUS_RETURN_IF_ERROR(cast[self + 1]->Play(self + 1, cast));
    SpinFor(step_ns);
    return absl::OkStatus();
  }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Player, "bench.Player", 1, Play)
};

// Of the worst object: how far the CPU time that it was charged with is off, as a part of its time.
double WorstError(monitor::Monitor& monitor, uint64_t window_ns) {
  BenchNode node({1, 1}, "127.0.0.1:0");
  node.types.Add<Player>();
  node.binding->threads().UseMonitor(&monitor);
  Player::Cast cast;
  for (size_t i = 0; i < kObjects; ++i) cast.push_back(*node.binding->Create<Player>());
  const uint64_t end_ns = MachineTime::MonotonicNs() + window_ns;
  std::vector<std::thread> threads;
  std::array<KnownOfAll, kThreads> known;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Ledger own;
      ledger = &own;
      for (size_t at = i; MachineTime::MonotonicNs() < end_ns; ++at) {
        if (!cast[at % kObjects]->Play(at % kObjects, cast).ok()) std::abort();
      }
      known[i] = own.known();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::array<double, kObjects> charged_ns{};
  for (const auto& [key, sums] : node.binding->threads().CollectAccounts()) {
    for (size_t i = 0; i < kObjects; ++i) {
      if (cast[i].base().entry()->slot != CalleeOf(key)) continue;
      charged_ns[i] += static_cast<double>(sums.busy_ticks) * MachineTime::NsPerTick();
    }
  }
  double worst = 0;
  for (size_t i = 0; i < kObjects; ++i) {
    double cpu_ns = 0, wall_ns = 0;
    for (const KnownOfAll& of_thread : known) {
      cpu_ns += of_thread[i].cpu_ns;
      wall_ns += of_thread[i].wall_ns;
    }
    worst = std::max(worst, std::abs(charged_ns[i] - cpu_ns) / wall_ns);
  }
  return worst;
}

// Nanoseconds to find and bump a cell, of `edges` in random order.
double CellNs(ThreadAccounts& accounts, uint32_t edges) {
  constexpr int kCalls = 1'000'000;
  std::minstd_rand random(1);
  std::vector<uint32_t> order(1 << 16);
  for (uint32_t& edge : order) edge = static_cast<uint32_t>(random()) % edges + 1;
  for (uint32_t edge = 1; edge <= edges; ++edge) accounts.Cell(1, edge);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const uint64_t begin = MachineTime::MonotonicNs();
    for (int i = 0; i < kCalls; ++i) {
      AccountCell::Bump(accounts.Cell(1, order[static_cast<size_t>(i) % order.size()]).calls, 1);
    }
    best = std::min(best, static_cast<double>(MachineTime::MonotonicNs() - begin) / kCalls);
  }
  return best;
}

}  // namespace

void ChargingExactness(BenchReport& report) {
  for (const MonitorSource source : {MonitorSource::kEbpf, MonitorSource::kSchedstat}) {
    auto monitor = monitor::NewMonitor({.source = source, .plain = {.rate = 1}});
    if (!monitor.ok()) {
      report.Note(absl::StrCat("a source is missing: ", monitor.status().message()));
      continue;
    }
    for (const auto& [seconds, step] : {std::pair{1, 500}, {10, 500}, {10, 100}}) {
      step_ns = static_cast<uint64_t>(step) * kUs;
      const double percent =
          100 * WorstError(**monitor, static_cast<uint64_t>(seconds) * 1'000'000 * kUs);
      const double goal = seconds == 1 ? 2 : 0.5;
      report.Add(
          {.name = absl::StrCat("error of CPU time of the worst of ", kObjects, " objects over ",
                                seconds, " s, steps of ", step, " us, ", (*monitor)->Source()),
           .value = percent,
           .unit = "%",
           .goal = absl::StrFormat("<= %.1f %% of its time", goal),
           .met = percent <= goal});
    }
  }
}

void CellCosts(BenchReport& report) {
  double few = 0;
  for (const uint32_t edges : {100u, 10'000u, 100'000u}) {
    ThreadAccounts accounts;
    const double ns = CellNs(accounts, edges);
    if (few == 0) few = ns;
    report.Add({.name = absl::StrCat("finding the cell of an edge, a random one of ", edges),
                .value = ns,
                .unit = "ns",
                .baseline_name = "of 100",
                .baseline = few,
                .ratio = ns / few});
  }
  // Beside those of 999 others that hold edges of their own.
  const auto pool = std::make_shared<AccountPool>();
  std::vector<std::unique_ptr<ThreadAccounts>> others;
  for (uint32_t i = 0; i < 999; ++i) {
    others.push_back(std::make_unique<ThreadAccounts>(pool));
    for (uint32_t edge = 1; edge <= 100; ++edge) others.back()->Cell(i + 1, edge);
  }
  ThreadAccounts accounts(pool);
  const double ns = CellNs(accounts, 100'000);
  report.Add({.name = "finding the cell of an edge, a random one of 100000, beside 999 threads",
              .value = ns,
              .unit = "ns",
              .baseline_name = "of 100",
              .baseline = few,
              .ratio = ns / few});
}

}  // namespace abacus::runtime
