// ./dev bench placement: what deciding takes of a processor. Each row is a median of several runs,
// in CPU time of the one thread that decides: on a machine that is shared a wall clock tells of the
// others.

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "placement/cut.h"
#include "placement/engine.h"
#include "placement/planner.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/bench_report.h"

namespace abacus::placement {
namespace {

using placement::testing::Random;
using runtime::BenchReport;

constexpr int kRuns = 9;  // of which the median counts

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double MedianMs(const std::function<void()>& work) {
  std::vector<double> runs_ms;
  for (int i = 0; i < kRuns; ++i) {
    const double begin_ms = ThreadCpuMs();
    work();
    runs_ms.push_back(ThreadCpuMs() - begin_ms);
  }
  std::sort(runs_ms.begin(), runs_ms.end());
  return runs_ms[kRuns / 2];
}

void AddTimeRow(BenchReport& report, const std::string& name, double took_ms, double goal_ms,
                const std::string& goal) {
  report.Add({.name = name,
              .value = took_ms,
              .unit = "ms",
              .baseline_name = "the goal",
              .baseline = goal_ms,
              .ratio = took_ms / goal_ms,
              .goal = goal,
              .met = took_ms <= goal_ms});
}

CutGraph RandomCutGraph(size_t objects, size_t edges) {
  Random random(1);
  CutGraph graph(objects + 2);
  for (size_t v = 0; v < objects; ++v) {
    graph.AddArc(objects, v, random.LogUniform(1e-4, 1));
    graph.AddArc(v, objects + 1, random.LogUniform(1e-4, 1));
  }
  for (size_t e = 0; e < edges; ++e) {
    const double crossing_s = random.LogUniform(1e-5, 0.1);
    graph.AddArc(random.Below(objects), random.Below(objects), crossing_s, crossing_s);
  }
  return graph;
}

void Cuts(BenchReport& report) {
  const CutGraph graph = RandomCutGraph(1'000, 10'000);
  double capacity = 0;
  const double took_ms = MedianMs([&] { capacity += graph.MinCut(1'000, 1'001).capacity; });
  AddTimeRow(report, "minimum cut: 1,000 objects, 10,000 edges", took_ms, 5, "<= 5 ms");
  if (capacity <= 0) report.Note("the cut of the benchmark's graph is empty");
}

// Console, filter, cache and storage of each client, all storage on one server of many cores. Most
// filters are worth a move, and the more move, the fewer of the others.
Snapshot ManyStacks(uint32_t stacks) {
  Random random(2);
  Snapshot s;
  s.window_s = 1;
  s.nodes.push_back({.node = 1, .is_server = true, .rate = 1, .cores = 64});
  for (uint32_t c = 0; c < stacks; ++c) {
    const NodeId client = 10 + c;
    s.consoles.push_back({client, 1, 0});
    NodeStatistics node{.node = client, .rate = 1, .cores = 2};
    for (uint64_t j = 0; j < 4; ++j) {
      ObjectStatistics o{.id = {client, 1, j}, .class_name = "object", .node = j == 3 ? 1 : client};
      o.mobile = j == 1 || j == 2;
      o.cpu_s = random.LogUniform(1e-4, 0.05);
      o.checkpoint_bytes = 65536;
      o.memory_bytes = 1 << 20;
      (j == 3 ? s.nodes[0] : node).load += o.cpu_s;
      s.objects.push_back(std::move(o));
      if (j == 0) continue;
      s.edges.push_back({.from = {client, 1, j - 1},
                         .to = {client, 1, j},
                         .calls = random.LogUniform(1, 100),
                         .reply_bytes = random.LogUniform(2e4, 2e6)});
    }
    s.nodes.push_back(node);
    s.links.push_back({.a = client,
                       .b = 1,
                       .bandwidth_bytes_s = 1e7,
                       .round_trip_s = 2e-4,
                       .measured_bytes = 1e6});
  }
  return s;
}

double PeakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void Rounds(BenchReport& report) {
  const double before_mb = PeakMegabytes();
  const Snapshot snapshot = ManyStacks(10'000);
  const auto moved = [](const Round& round) {
    size_t moves = 0;
    for (const RoundStep& step : round.steps) moves += step.moves.size();
    return moves;
  };
  Round round;
  const double took_ms = MedianMs([&] { round = DecideAll(snapshot, {}, {}); });
  const double peak_mb = PeakMegabytes() - before_mb;
  AddTimeRow(report, "round: 10,000 stacks of 4 on one server", took_ms, 100, "<= 100 ms");
  report.Add({.name = "round: memory at its peak, snapshot included",
              .value = peak_mb,
              .unit = "MB",
              .baseline_name = "the goal",
              .baseline = 200,
              .ratio = peak_mb / 200,
              .goal = "<= 200 MB",
              .met = peak_mb <= 200});
  report.Note(absl::StrCat("the round moves ", moved(round), " objects in ", round.steps.size(),
                           " steps and ", round.passes, " passes"));
  const Snapshot after = [&] {
    std::vector<Move> moves;
    for (const RoundStep& step : round.steps) {
      moves.insert(moves.end(), step.moves.begin(), step.moves.end());
    }
    Snapshot next = snapshot;
    absl::flat_hash_map<ObjectId, NodeId> to;
    for (const Move& move : moves) to[move.object] = move.to;
    for (ObjectStatistics& o : next.objects) {
      const auto it = to.find(o.id);
      if (it == to.end()) continue;
      o.node = it->second;  // all rates are alike: only the loads follow
      next.nodes[0].load += o.cpu_s;
      next.nodes[o.id.node - 9].load -= o.cpu_s;
    }
    return next;
  }();
  const double settled_ms = MedianMs([&] { round = DecideAll(after, {}, {}); });
  AddTimeRow(report, "round: the same once carried out", settled_ms, 100, "<= 100 ms");
  report.Note(absl::StrCat("and once carried out ", moved(round), " objects"));
}

// What a digest interval saw of one of ManyStacks(), as the server joins it.
Snapshot SampleOf(const Snapshot& all, size_t stack, double length_s) {
  Snapshot s;
  s.window_s = length_s;
  s.console = all.consoles[stack];
  s.nodes = {all.nodes[0], all.nodes[1 + stack]};
  s.links = {all.links[stack]};
  for (size_t j = 4 * stack; j < 4 * stack + 4; ++j) {
    s.objects.push_back(all.objects[j]);
    s.objects.back().cpu_s *= length_s;
  }
  for (size_t e = 3 * stack; e < 3 * stack + 3; ++e) {
    s.edges.push_back(all.edges[e]);
    s.edges.back().calls *= length_s;
    s.edges.back().reply_bytes *= length_s;
  }
  return s;
}

double HeapMegabytes() { return static_cast<double>(mallinfo2().uordblks) / (1 << 20); }

// The same stacks as a storage server decides on them: a planner that is told of each every 50 ms
// and keeps their histories. All of a window's samples, a round, its moves carried out, another
// window, and a round that has nothing to do.
void PlannerRounds(BenchReport& report) {
  constexpr int kTimes = 3;
  constexpr double kTick_s = 0.05;
  std::vector<double> observe_ms, first_ms, settled_ms;
  double heap_mb = 0;
  for (int time = 0; time < kTimes; ++time) {
    Snapshot all = ManyStacks(10'000);
    const double before_mb = HeapMegabytes();
    Planner planner{Config(), PlannerConfig()};
    double now_s = 1000;
    const auto watch = [&] {
      for (int tick = 0; tick < 21; ++tick) {
        now_s += kTick_s;
        std::vector<Snapshot> samples;
        for (size_t c = 0; c < all.consoles.size(); ++c) {
          samples.push_back(SampleOf(all, c, kTick_s));
        }
        const double begin_ms = ThreadCpuMs();
        for (Snapshot& sample : samples) {
          planner.Observe(std::move(sample), now_s, now_s).IgnoreError();
        }
        observe_ms.push_back(ThreadCpuMs() - begin_ms);
      }
    };
    const auto round = [&](std::vector<double>& took_ms) {
      const double begin_ms = ThreadCpuMs();
      std::vector<Planner::Decided> decided;
      planner.DecideRound(all.consoles, now_s, [&](Planner::Decided one) {
        if (!one.decision.moves.empty()) decided.push_back(std::move(one));
      });
      took_ms.push_back(ThreadCpuMs() - begin_ms);
      size_t moves = 0;
      for (const Planner::Decided& one : decided) {
        moves += one.decision.moves.size();
        for (const Move& move : one.decision.moves) {
          const size_t stack = move.object.node - 10;
          ObjectStatistics& o = all.objects[4 * stack + move.object.local];
          o.node = move.to;
          all.nodes[0].load += move.to == 1 ? o.cpu_s : -o.cpu_s;
          all.nodes[1 + stack].load += move.to == 1 ? -o.cpu_s : o.cpu_s;
        }
        planner.OnMoveEnded(one.decision.console, true, 0.002, now_s);
      }
      return moves;
    };
    watch();
    const size_t moves = round(first_ms);
    watch();
    heap_mb = HeapMegabytes() - before_mb;
    const size_t more = round(settled_ms);
    if (time > 0) continue;
    report.Note(absl::StrCat("the planner's first round moves ", moves, " objects, the one after ",
                             "a window ", more));
  }
  const auto median = [](std::vector<double>& runs) {
    std::sort(runs.begin(), runs.end());
    return runs[runs.size() / 2];
  };
  report.Add({.name = "planner: the samples of 10,000 stacks taken in",
              .value = median(observe_ms),
              .unit = "ms"});
  AddTimeRow(report, "planner: the first round over them", median(first_ms), 100, "<= 100 ms");
  AddTimeRow(report, "planner: a round a window later", median(settled_ms), 100, "<= 100 ms");
  report.Add({.name = "planner: memory, histories included",
              .value = heap_mb,
              .unit = "MB",
              .baseline_name = "the goal",
              .baseline = 200,
              .ratio = heap_mb / 200,
              .goal = "<= 200 MB",
              .met = heap_mb <= 200});
}

void Decisions(BenchReport& report) {
  const Snapshot chain = placement::testing::GrepSnapshot();
  size_t moves = 0;
  const double chain_ms = MedianMs([&] { moves += Decide(chain, {}).moves.size(); });
  report.Add({.name = "decision: the sample stack of 3", .value = chain_ms * 1e3, .unit = "us"});
  Random random(3);
  std::vector<Snapshot> graphs;
  for (int i = 0; i < 100; ++i) graphs.push_back(placement::testing::RandomGraph(random, {}));
  const double graph_ms = MedianMs([&] {
    for (const Snapshot& graph : graphs) moves += Decide(graph, {}).moves.size();
  });
  report.Add({.name = "decision: graphs of up to 6 mobile objects, 3 servers",
              .value = graph_ms * 10,
              .unit = "us"});
  const Snapshot large =
      placement::testing::RandomGraph(random, {.mobile_max = 200, .servers_max = 1});
  const double large_ms = MedianMs([&] { moves += Decide(large, {}).moves.size(); });
  report.Add({.name = absl::StrCat("decision: a graph of ", large.objects.size(), " objects"),
              .value = large_ms,
              .unit = "ms"});
}

void Measure(BenchReport& report) {
  report.Note("CPU time of one thread; medians of 9 runs");
  Rounds(report);  // first: the peak of memory is the process's
  PlannerRounds(report);
  Cuts(report);
  Decisions(report);
}

}  // namespace
}  // namespace abacus::placement

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "placement", abacus::placement::Measure);
}
