// ./dev bench runtime: what the runtime costs, each row beside its baseline in the same run.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/object/testing/count_allocations.h"
#include "runtime/testing/bench_report.h"
#include "runtime/testing/benchmark/bench_charging.h"
#include "runtime/testing/benchmark/bench_node.h"

namespace abacus::runtime {
namespace {

constexpr int kProcessor = 1;       // where this process runs
constexpr int kOtherProcessor = 0;  // where a server runs that is to be awake beside it

// Keeps what a call returned, so that the call is made.
template <typename T>
void Keep(T&& value) {
  benchmark::DoNotOptimize(value);
}

// -- co-located calls, with Google Benchmark ------------------------------------------------------

// Medians of repeated runs by benchmark name, in nanoseconds per iteration.
class MedianReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        // The library divides the time by the calls of all threads together; a call's own time is
        // that of one thread.
        times_[run.run_name.function_name].push_back(run.GetAdjustedRealTime() *
                                                     static_cast<double>(run.threads));
      }
    }
  }
  double Median(const std::string& name) const {
    std::vector<double> times = times_.at(name);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

template <typename Body>
void Register(const char* name, int threads, Body body) {
  benchmark::RegisterBenchmark(name,
                               [body](benchmark::State& state) {
                                 for (auto _ : state) body();
                               })
      ->Threads(threads)
      ->MinTime(0.1)
      ->Repetitions(7)
      ->UseRealTime();
}

void CoLocated(BenchReport& report) {
  // Two threads are to run at once.
  cpu_set_t all;
  CPU_ZERO(&all);
  CPU_SET(kProcessor, &all);
  CPU_SET(kOtherProcessor, &all);
  sched_setaffinity(0, sizeof all, &all);
  BenchNode node({1, 1}, "127.0.0.1:0");
  const Ref<Subject> ref = *node.binding->Create<Subject>();
  Subject direct;
  Subject* plain = &direct;
  const auto call_plain = [&plain] {
    benchmark::DoNotOptimize(plain);
    Keep(plain->Null());
  };
  const auto call_ref = [&ref] { Keep(ref->Null()); };
  MedianReporter medians;
  const auto run = [&](bool accounting) {
    node.binding->set_accounting(accounting);
    Register("direct/1", 1, call_plain);
    Register("direct/2", 2, call_plain);
    Register(accounting ? "on/1" : "off/1", 1, call_ref);
    Register(accounting ? "on/2" : "off/2", 2, call_ref);
    benchmark::RunSpecifiedBenchmarks(&medians);
    benchmark::ClearRegisteredBenchmarks();
  };
  run(false);
  run(true);
  for (const bool accounting : {false, true}) {
    for (const char* threads : {"1", "2"}) {
      const double base = medians.Median(std::string("direct/") + threads);
      const double value =
          medians.Median(std::string(accounting ? "on/" : "off/") + threads) - base;
      const double goal = accounting ? 50 : 15;
      report.Add({.name = absl::StrCat("co-located call over direct, accounting ",
                                       accounting ? "on" : "off", ", ", threads, " thread(s)"),
                  .value = value,
                  .unit = "ns",
                  .baseline_name = "direct call",
                  .baseline = base,
                  .ratio = (value + base) / base,
                  .goal = absl::StrCat("<= ", goal, " ns"),
                  .met = value <= goal});
    }
  }
  for (const bool accounting : {false, true}) {
    node.binding->set_accounting(accounting);
    constexpr int kCalls = 100'000;
    call_ref();
    const uint64_t before = testing::ThreadAllocations();
    for (int i = 0; i < kCalls; ++i) call_ref();
    const auto allocated = static_cast<double>(testing::ThreadAllocations() - before) / kCalls;
    report.Add({.name = absl::StrCat("allocations of a co-located call, accounting ",
                                     accounting ? "on" : "off"),
                .value = allocated,
                .unit = "/call",
                .goal = "0",
                .met = allocated < 0.001});
  }
}

// -- calls to another process ---------------------------------------------------------------------

// Mean microseconds of a call, the best of several rounds: a round in which the machine did
// something else says nothing of the call.
template <typename Call>
double CallMicroseconds(int calls, Call call) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < calls / 10; ++i) call();
    const absl::Time begin = absl::Now();
    for (int i = 0; i < calls; ++i) call();
    best = std::min(best, absl::ToDoubleMicroseconds(absl::Now() - begin) / calls);
  }
  return best;
}

double BestGrpcMicroseconds(const std::string& address, int calls) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    best = std::min(best, GrpcNullMicroseconds(address, calls));
  }
  return best;
}

struct Way {
  const char* name;
  bool tcp;
  const char* listen;
  const char* grpc;
};

std::vector<Way> Ways() {
  static const std::string unix_data = absl::StrCat("unix:/tmp/abacus-bench-", getpid(), ".sock");
  static const std::string unix_grpc = absl::StrCat("unix:/tmp/abacus-bench-", getpid(), ".grpc");
  return {{"TCP", true, "127.0.0.1:0", "127.0.0.1:0"},
          {"unix socket", false, unix_data.c_str(), unix_grpc.c_str()}};
}

// A local node and its reference to the object of a server process.
struct Pair {
  Pair(const Way& way, int server_processor)
      : server(server_processor, way.listen, way.grpc),
        node({1, 1}, way.tcp ? "127.0.0.1:0" : absl::StrCat(way.listen, ".client")) {
    node.transport->AddPeer(ServerProcess::kInstance, server.address);
    remote = node.binding->RefTo<Subject>(server.subject);
    sender = node.binding->RefTo<Sender>(server.sender);
  }
  ~Pair() {
    remote = {};
    sender = {};
  }
  ServerProcess server;
  BenchNode node;
  Ref<Subject> remote;
  Ref<Sender> sender;
};

void Remote(BenchReport& report) {
  PinTo(kProcessor);
  for (const Way& way : Ways()) {
    for (const int processor : {kProcessor, kOtherProcessor}) {
      Pair pair(way, processor);
      const double grpc_us = BestGrpcMicroseconds(pair.server.grpc_address, 3000);
      const double us = CallMicroseconds(10000, [&] { Keep(pair.remote->Null()); });
      const bool one = processor == kProcessor;
      report.Add({.name = absl::StrCat("null remote call, ", way.name, ", ",
                                       one ? "one core" : "two cores"),
                  .value = us,
                  .unit = "us",
                  .baseline_name = "gRPC unary call",
                  .baseline = grpc_us,
                  .ratio = grpc_us / us,
                  .goal = ">= 2.5 x faster",
                  .met = grpc_us / us >= 2.5});
    }
    for (const int processor : {kProcessor, kOtherProcessor}) {
      constexpr size_t kBytes = 1 << 20;
      Pair pair(way, processor);
      Keep(pair.remote->Fill(kBytes));
      double best = 0;
      double raw = 0;
      for (int round = 0; round < 5; ++round) {
        const double us = CallMicroseconds(60, [&] { Keep(pair.remote->Get()); });
        best = std::max(best, kBytes / us);
        raw = std::max(raw, RawCopyMegabytesPerSecond(way.tcp, kBytes, 300, processor));
      }
      report.Add({.name = absl::StrCat("1 MiB results, ", way.name, ", ",
                                       processor == kProcessor ? "one core" : "two cores"),
                  .value = best,
                  .unit = "MB/s",
                  .baseline_name = "raw socket copy loop",
                  .baseline = raw,
                  .ratio = best / raw,
                  .goal = ">= 0.8 x",
                  .met = best / raw >= 0.8});
    }
  }
}

// Calls per second of `callers` threads through one object, for `how_long`; where `meanwhile` is
// given it runs beside them.
template <typename Meanwhile>
double CallsPerSecond(const Ref<Subject>& ref, int callers, absl::Duration how_long,
                      Meanwhile meanwhile) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      uint64_t mine = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        if (ref->Null().ok()) ++mine;
      }
      calls.fetch_add(mine);
    });
  }
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < how_long) meanwhile();
  stop = true;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(calls.load()) / seconds;
}

void Throughput(BenchReport& report) {
  PinTo(kProcessor);
  Pair pair(Ways()[0], kOtherProcessor);
  double one = 0;
  for (const int callers : {1, 8, 64}) {
    const double rate = CallsPerSecond(pair.remote, callers, absl::Seconds(1),
                                       [] { absl::SleepFor(absl::Milliseconds(50)); });
    if (callers == 1) one = rate;
    report.Add({.name = absl::StrCat("calls through one remote object, ", callers, " caller(s)"),
                .value = rate,
                .unit = "/s",
                .baseline_name = "one caller",
                .baseline = one,
                .ratio = rate / one});
  }
  // The object goes to and fro ten times a second under eight callers.
  const Ref<Subject> mobile = *pair.node.binding->Create<Subject>();
  Keep(mobile->Fill(4096));
  int moves = 0;
  const auto there_and_back = [&] {
    if (pair.node.migrator->Move({mobile.rid()}, ServerProcess::kInstance).ok()) ++moves;
    absl::SleepFor(absl::Milliseconds(100));
    if (pair.sender->Send(mobile.rid(), pair.node.self).ok()) ++moves;
    absl::SleepFor(absl::Milliseconds(100));
  };
  const auto pause = [] { absl::SleepFor(absl::Milliseconds(50)); };
  // Half the time here, half there: the mean of the two rates is what no moves would give.
  const double here = CallsPerSecond(mobile, 8, absl::Milliseconds(700), pause);
  if (!pair.node.migrator->Move({mobile.rid()}, ServerProcess::kInstance).ok()) return;
  const double there = CallsPerSecond(mobile, 8, absl::Milliseconds(700), pause);
  Keep(pair.sender->Send(mobile.rid(), pair.node.self));
  const double still = (here + there) / 2;
  const double moving = CallsPerSecond(mobile, 8, absl::Seconds(3), there_and_back);
  report.Add({.name = absl::StrCat("calls of 8 callers while moved ", moves, " times in 3 s"),
              .value = moving,
              .unit = "/s",
              .baseline_name = "mean of both places, unmoved",
              .baseline = still,
              .ratio = moving / still});
}

// -- migration ------------------------------------------------------------------------------------

void Migration(BenchReport& report) {
  PinTo(kProcessor);
  const Way way = Ways()[0];
  Pair pair(way, kProcessor);
  const double null_us = CallMicroseconds(10000, [&] { Keep(pair.remote->Null()); });
  for (const size_t bytes :
       {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t{64} << 20}) {
    const bool large = bytes > (size_t{1} << 20);
    const double raw_us = static_cast<double>(bytes) /
                          RawCopyMegabytesPerSecond(way.tcp, bytes, large ? 5 : 300, kProcessor);
    std::vector<double> blackouts;
    std::vector<double> totals;
    for (int round = 0; round < (large ? 5 : 101); ++round) {
      const Ref<Subject> mobile = *pair.node.binding->Create<Subject>();
      Keep(mobile->Fill(bytes));
      const absl::Time begin = absl::Now();
      const auto moved = pair.node.migrator->Move({mobile.rid()}, ServerProcess::kInstance);
      if (!moved.ok()) {
        std::cerr << moved.status() << "\n";
        return;
      }
      totals.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
      blackouts.push_back(absl::ToDoubleMicroseconds(moved->blackout));
    }
    std::sort(blackouts.begin(), blackouts.end());
    std::sort(totals.begin(), totals.end());
    const double blackout_us = blackouts[blackouts.size() / 2];
    const double budget_us = 4 * null_us + 1.5 * raw_us;
    const std::string size = bytes >= (size_t{1} << 20) ? absl::StrCat(bytes >> 20, " MiB")
                                                        : absl::StrCat(bytes >> 10, " KiB");
    report.Add({.name = "blackout of a move, " + size,
                .value = blackout_us,
                .unit = "us",
                .baseline_name = "4 null calls + 1.5 x raw transfer",
                .baseline = budget_us,
                .ratio = blackout_us / budget_us,
                .goal = "<= 1 x",
                .met = blackout_us <= budget_us});
    report.Add({.name = "total time of a move, " + size,
                .value = totals[totals.size() / 2],
                .unit = "us",
                .baseline_name = "raw transfer",
                .baseline = raw_us,
                .ratio = totals[totals.size() / 2] / raw_us});
  }
}

// -- many objects ---------------------------------------------------------------------------------

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void ManyObjects(BenchReport& report) {
  PinTo(kProcessor);
  constexpr int kObjects = 1'000'000;
  BenchNode node({1, 1}, "127.0.0.1:0");
  std::vector<std::unique_ptr<Subject>> plain;
  const uint64_t empty = ResidentBytes();
  for (int i = 0; i < kObjects / 10; ++i) plain.push_back(std::make_unique<Subject>());
  const double object_bytes = static_cast<double>(ResidentBytes() - empty) / (kObjects / 10);
  plain.clear();
  const uint64_t before = ResidentBytes();
  const absl::Time begin = absl::Now();
  std::vector<Ref<Subject>> refs;
  refs.reserve(kObjects);
  for (int i = 0; i < kObjects; ++i) refs.push_back(*node.binding->Create<Subject>());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const double each = static_cast<double>(ResidentBytes() - before) / kObjects - object_bytes -
                      static_cast<double>(sizeof(Ref<Subject>));
  report.Add({.name = "memory of an idle object, 1,000,000 on one node",
              .value = each,
              .unit = "bytes",
              .baseline_name = "the object itself",
              .baseline = object_bytes,
              .ratio = each / object_bytes,
              .goal = "<= 512 bytes above it",
              .met = each <= 512});
  report.Add({.name = "making an object, 1,000,000 on one node",
              .value = seconds / kObjects * 1e9,
              .unit = "ns"});
  // A call among the million, every time another one: the caches do not help.
  size_t at = 0;
  const absl::Time calls_begin = absl::Now();
  constexpr int kCalls = 1'000'000;
  for (int i = 0; i < kCalls; ++i) {
    at = (at + 7919) % refs.size();
    Keep(refs[at]->Null());
  }
  report.Add({.name = "co-located call, another of 1,000,000 objects each time",
              .value = absl::ToDoubleNanoseconds(absl::Now() - calls_begin) / kCalls,
              .unit = "ns"});
  // What accounting adds to a call where each is on another edge: of few, and of 100,000.
  for (const size_t objects : {size_t{100}, size_t{100'000}}) {
    double ns[2];
    for (const bool accounting : {false, true}) {
      node.binding->set_accounting(accounting);
      ns[accounting] = 1e9;
      for (int round = 0; round < 5; ++round) {
        const absl::Time begin = absl::Now();
        for (int i = 0; i < kCalls; ++i) {
          at = (at + 7919) % objects;
          Keep(refs[at]->Null());
        }
        ns[accounting] =
            std::min(ns[accounting], absl::ToDoubleNanoseconds(absl::Now() - begin) / kCalls);
      }
    }
    report.Add({.name = absl::StrCat("accounting of a call, another of ", objects,
                                     " objects each time: added"),
                .value = ns[1] - ns[0],
                .unit = "ns",
                .baseline_name = "the same calls without",
                .baseline = ns[0],
                .ratio = ns[1] / ns[0]});
  }
  refs.clear();
}

struct Part {
  const char* name;
  void (*run)(BenchReport&);
};
constexpr Part kParts[] = {{"remote", Remote},         {"migration", Migration},
                           {"throughput", Throughput}, {"objects", ManyObjects},
                           {"cells", CellCosts},       {"charging", ChargingExactness},
                           {"co-located", CoLocated}};

int Run(const std::string& json, const std::string& only, bool strict) {
  BenchReport report("runtime");
  report.Note(absl::StrCat("this process on processor ", kProcessor, "; a server process on ",
                           kProcessor, " (\"one core\") or ", kOtherProcessor, " (\"two cores\")"));
  bool any = false;
  for (const Part& part : kParts) {
    if (!only.empty() && only != part.name) continue;
    any = true;
    part.run(report);
  }
  if (!any) {
    std::cerr << "no part is named " << only << "; there are";
    for (const Part& part : kParts) std::cerr << " " << part.name;
    std::cerr << "\n";
    return 2;
  }
  return FinishBench(report, json, strict);
}

}  // namespace
}  // namespace abacus::runtime

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--serve") == 0) {
    return abacus::runtime::ServeBench({argv[2], argv[3], argv[4]});
  }
  std::string json;
  std::string only;
  bool strict = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--strict") {
      strict = true;
      --i;
      continue;
    }
    if (i + 1 == argc || (option != "--json" && option != "--only")) {
      std::cerr << "usage: abacus_runtime_benchmark [--strict] [--json FILE] [--only PART]\n";
      return 2;
    }
    (option == "--json" ? json : only) = argv[i + 1];
  }
  // The library wants to be told something; everything else is fixed, so that runs compare.
  char name[] = "abacus_runtime_benchmark";
  char interleave[] = "--benchmark_enable_random_interleaving=true";
  char* arguments[] = {name, interleave, nullptr};
  int count = 2;
  benchmark::Initialize(&count, arguments);
  return abacus::runtime::Run(json, only, strict);
}
