// ./dev bench memory: what counting adds to malloc and free, beside glibc's own in the same run
// (.../glibc). It has no goals.
//
// A pair is one malloc and one free. "InEachOf" moves to a random object for each pair and frees
// what it allocated 4,096 pairs before, so that hardly an entry of the thread's cache is ever met
// again: the worst that many objects can do. Threads are more than cores, so look at the CPU time.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "monitor-ebpf/memory.h"
#include "runtime/testing/bench_report.h"

extern "C" {
void* __libc_malloc(size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);   // NOLINT(bugprone-reserved-identifier)
}

namespace abacus::monitor {
namespace {

constexpr uint32_t kObject = 17;

struct Glibc {
  static void* Malloc(size_t size) { return __libc_malloc(size); }
  static void Free(void* pointer) { __libc_free(pointer); }
};

struct Counted {
  static void* Malloc(size_t size) { return std::malloc(size); }
  static void Free(void* pointer) { std::free(pointer); }
};

template <typename Allocator>
void Pair(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  const MemoryScope scope(kObject);
  for (auto _ : state) {
    void* pointer = Allocator::Malloc(size);
    benchmark::DoNotOptimize(pointer);
    Allocator::Free(pointer);
  }
}

// xorshift: a few cycles, no memory.
uint64_t Next(uint64_t& random) {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

template <typename Allocator>
void PairInEachOf(benchmark::State& state) {
  constexpr size_t kHeld = 4'096;
  const auto objects = static_cast<uint32_t>(state.range(0));
  uint64_t random = 88'172'645'463'325'252 + static_cast<uint64_t>(state.thread_index());
  std::vector<void*> blocks(kHeld);
  size_t i = 0;
  for (auto _ : state) {
    const MemoryScope scope(static_cast<uint32_t>(Next(random) % objects) + 1);
    void*& block = blocks[++i % kHeld];
    Allocator::Free(block);
    block = Allocator::Malloc(64);
    benchmark::DoNotOptimize(block);
  }
  for (void* block : blocks) Allocator::Free(block);
}

void ReadOne(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(MemoryOf(kObject));
}

void ReadAll(benchmark::State& state) {
  std::vector<uint64_t> bytes(static_cast<size_t>(state.range(0)));
  for (auto _ : state) MemoryOfAll(bytes);
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t size : {16, 64, 256, 4'096, 65'536}) benchmark->Arg(size);
}

BENCHMARK(Pair<Glibc>)->Name("Pair/glibc")->Apply(Sizes);
BENCHMARK(Pair<Counted>)->Name("Pair/counted")->Apply(Sizes);
BENCHMARK(Pair<Glibc>)->Name("Pair/glibc")->Arg(64)->Threads(1'000);
BENCHMARK(Pair<Counted>)->Name("Pair/counted")->Arg(64)->Threads(1'000);
BENCHMARK(PairInEachOf<Glibc>)->Name("PairInEachOf/glibc")->Arg(1)->Arg(100)->Arg(100'000);
BENCHMARK(PairInEachOf<Counted>)->Name("PairInEachOf/counted")->Arg(1)->Arg(100)->Arg(100'000);
// After the thousand threads, whose caches are still there to be read.
BENCHMARK(ReadOne);
BENCHMARK(ReadAll)->Arg(100'000);

// The CPU time of each, in ns, by its name.
class CpuTimes : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) times_[run.benchmark_name()] = run.GetAdjustedCPUTime();
  }
  const std::map<std::string, double>& times() const { return times_; }

 private:
  std::map<std::string, double> times_;
};

void MeasureMemory(runtime::BenchReport& report) {
  CpuTimes cpu;
  benchmark::RunSpecifiedBenchmarks(&cpu);
  report.Note("CPU time of one pair of malloc and free, or of one reading");
  const std::string counted = "/counted", glibc = "/glibc";
  for (const auto& [name, ns] : cpu.times()) {
    if (name.find(glibc) != std::string::npos) continue;
    runtime::BenchRow row;
    row.name = name;
    row.value = ns;
    row.unit = "ns";
    if (const size_t at = name.find(counted); at != std::string::npos) {
      std::string beside = name;
      row.baseline_name = beside.replace(at, counted.size(), glibc);
      row.baseline = cpu.times().at(row.baseline_name);
      row.ratio = ns / row.baseline;
    }
    report.Add(std::move(row));
  }
}

}  // namespace
}  // namespace abacus::monitor

int main(int argc, char** argv) {
  // The library wants to be told something; everything else is fixed, so that runs compare.
  char name[] = "abacus_memory_benchmark";
  char* arguments[] = {name, nullptr};
  int count = 1;
  benchmark::Initialize(&count, arguments);
  return abacus::runtime::BenchMain(argc, argv, "memory", abacus::monitor::MeasureMemory);
}
