// Plays the standard scenarios of the placement simulator, prints the table, and writes what plots
// are made of as JSON.
//
//   abacus_placement_experiment [--json FILE] [--servers-max N]

#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "placement/sim/scenarios.h"

namespace {

using abacus::placement::sim::Meters;
using abacus::placement::sim::MoveRecord;
using abacus::placement::sim::RunScenario;
using abacus::placement::sim::Scenario;
using abacus::placement::sim::ScenarioRow;
using abacus::placement::sim::StandardScenarios;

struct Arguments {
  std::string json;
  size_t servers_max = 1000;
};

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 >= argc) return false;
    if (option == "--json") {
      arguments->json = argv[i + 1];
    } else if (option == "--servers-max") {
      arguments->servers_max = std::strtoul(argv[i + 1], nullptr, 10);
    } else {
      return false;
    }
  }
  return true;
}

void PrintHeader() {
  std::cout << "Times over those of an oracle that knows the phases and moves for nothing (= 1).\n"
            << absl::StrFormat("%-40s %8s %8s %8s %8s %7s %6s %6s %5s %9s %7s %7s %9s %8s\n",
                               "scenario", "adaptive", "client", "server", "static", "regret",
                               "moves", "phases", "rev.", "react ms", "err p50", "err p95",
                               "us/decis.", "memory");
}

void Print(const ScenarioRow& row, double wall_s) {
  const auto& r = row.report;
  const double median_s = r.reaction_s.empty() ? 0 : r.reaction_s[r.reaction_s.size() / 2];
  const double us = r.decisions == 0 ? 0 : 1e6 * r.engine_cpu_s / static_cast<double>(r.decisions);
  std::cout
      << absl::StrFormat(
             "%-40s %8.3f %8.3f %8.3f %7.3f%s %6.1f%% %6d %6d %5d %9.0f %6.1f%% %6.1f%% %9.1f "
             "%5.1f MB  (%.1f s)\n",
             row.name, row.adaptive, row.all_client, row.all_server, row.best_static,
             row.best_is_exact ? " " : "+", 100 * row.regret, r.moves.size(), r.phase_changes,
             r.reversals, 1000 * median_s, 100 * r.errors.Quantile(0.5),
             100 * r.errors.Quantile(0.95), us, r.engine_memory_bytes / 1e6, wall_s)
      << std::flush;
}

nlohmann::json ToJson(const ScenarioRow& row, double wall_s) {
  nlohmann::json moves = nlohmann::json::array();
  constexpr size_t kMovesMax = 200;  // enough to draw, of the small scenarios all
  for (const MoveRecord& move : row.report.moves) {
    if (moves.size() >= kMovesMax) break;
    moves.push_back({{"at_s", move.at_s},
                     {"console", move.console},
                     {"from", move.from},
                     {"to", move.to},
                     {"blackout_s", move.blackout_s}});
  }
  return {{"name", row.name},
          {"servers", row.servers},
          {"consoles", row.consoles},
          {"simulated_s", row.simulated_s},
          {"adaptive", row.adaptive},
          {"all_client", row.all_client},
          {"all_server", row.all_server},
          {"best_static", row.best_static},
          {"best_static_is_exact", row.best_is_exact},
          {"oracle", 1},
          {"regret", row.regret},
          {"moves", row.report.moves.size()},
          {"phase_changes", row.report.phase_changes},
          {"reversals", row.report.reversals},
          {"undone", row.report.counters.undone},
          {"reaction_s", row.report.reaction_s},
          {"error_median", row.report.errors.Quantile(0.5)},
          {"error_p95", row.report.errors.Quantile(0.95)},
          {"move_error_median", row.report.move_errors.Quantile(0.5)},
          {"move_error_p95", row.report.move_errors.Quantile(0.95)},
          {"decisions", row.report.decisions},
          {"engine_cpu_s", row.report.engine_cpu_s},
          {"engine_memory_bytes", row.report.engine_memory_bytes},
          {"wall_s", wall_s},
          {"trace", moves}};
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::cerr << "usage: abacus_placement_experiment [--json FILE] [--servers-max N]\n";
    return 2;
  }
  const Meters meters{.cpu_s = ProcessCpuSeconds, .memory_bytes = HeapBytes};
  nlohmann::json rows = nlohmann::json::array();
  PrintHeader();
  for (const Scenario& scenario : StandardScenarios(arguments.servers_max)) {
    const auto began = std::chrono::steady_clock::now();
    const ScenarioRow row = RunScenario(scenario, meters);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
    Print(row, wall.count());
    rows.push_back(ToJson(row, wall.count()));
  }
  std::cout << "static: the best placement that stays as it is; +: the best of three, a bound from "
               "above.\nreact: median time from a change to the decision.\n";
  if (arguments.json.empty()) return 0;
  std::ofstream file(arguments.json);
  file << rows.dump(1) << "\n";
  file.close();
  if (!file) {
    std::cerr << "cannot write " << arguments.json << "\n";
    return 1;
  }
  return 0;
}
