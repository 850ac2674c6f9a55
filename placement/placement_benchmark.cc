// ./dev bench placement: how long deciding takes. Each row is a median of several runs.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "placement/cut.h"
#include "placement/testing/snapshots.h"
#include "runtime/testing/bench_report.h"

namespace abacus::placement {
namespace {

using placement::testing::Random;
using runtime::BenchReport;

constexpr int kRuns = 9;  // of which the median counts

double MedianMs(const std::function<void()>& work) {
  std::vector<double> runs_ms;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    runs_ms.push_back(took.count());
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

int Run(const std::string& json) {
  BenchReport report("placement");
  report.Note("one thread; medians of 9 runs");
  Cuts(report);
  std::cout << report.ToText();
  if (json.empty()) return 0;
  const absl::Status written = report.WriteJson(json);
  if (!written.ok()) std::cerr << written << "\n";
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace abacus::placement

int main(int argc, char** argv) {
  if (argc != 1 && !(argc == 3 && std::strcmp(argv[1], "--json") == 0)) {
    std::cerr << "usage: abacus_placement_benchmark [--json FILE]\n";
    return 2;
  }
  return abacus::placement::Run(argc == 3 ? argv[2] : "");
}
