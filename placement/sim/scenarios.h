#ifndef ABACUS_PLACEMENT_SIM_SCENARIOS_H_
#define ABACUS_PLACEMENT_SIM_SCENARIOS_H_

// The table by which the planner is judged: standard clusters, each played adaptively and with
// placements that stay as they are.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "placement/sim/simulator.h"

namespace abacus::placement::sim {

// How the caller measures what the engine itself costs; each may be empty, its figures are then 0.
struct Meters {
  std::function<double()> cpu_s;         // CPU seconds of the process so far
  std::function<double()> memory_bytes;  // in use by the process
};

// Slowdowns are times over the oracle's (Report::slowdown): the oracle's own column is 1.
struct ScenarioRow {
  std::string name;
  size_t servers = 0;
  size_t consoles = 0;
  double simulated_s = 0;
  double adaptive = 0;
  double all_client = 0;
  double all_server = 0;
  double best_static = 0;
  bool best_is_exact = false;  // else a bound from above (RunBestStatic)
  double regret = 0;           // adaptive / best_static - 1; negative: better than every static one
  Report report;               // of the adaptive run, engine CPU time and memory in it
};

struct Scenario {
  std::string name;
  Cluster cluster;
  Options options;
};

// From one stack on one link to `servers_max` servers with ten times as many consoles (in steps of
// ten; below 4, only the small ones). The same list every time. Units: none.
std::vector<Scenario> StandardScenarios(size_t servers_max);

ScenarioRow RunScenario(const Scenario& scenario, const Meters& meters);

// All of them. Takes about a minute for 1,000 servers and 10,000 consoles.
std::vector<ScenarioRow> RunStandardScenarios(const Meters& meters, size_t servers_max = 1000);

}  // namespace abacus::placement::sim

#endif  // ABACUS_PLACEMENT_SIM_SCENARIOS_H_
