#include "placement/sim/scenarios.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/sim/workloads.h"

namespace abacus::placement::sim {
namespace {

Scenario Make(const std::string& name, Cluster cluster, double duration_s) {
  Scenario scenario{.name = name, .cluster = std::move(cluster)};
  scenario.options.duration_s = duration_s;
  return scenario;
}

Scenario Noisy(Scenario scenario, double noise, double holds_s) {
  scenario.options.noise = noise;
  scenario.options.noise_holds_s = holds_s;
  return scenario;
}

void AddSmall(std::vector<Scenario>* all) {
  all->push_back(Make("selective filter, slow link", Filter(0.1, 1, 1.25e6), 120));
  all->push_back(Make("unselective filter, slow link", Filter(1.2, 1, 1.25e6), 120));
  all->push_back(Make("filter, slow server", Filter(0.1, 0.2, 1.25e7), 120));
  all->push_back(Make("a tenth to gain", Filter(0.9, 1, 1.25e6), 120));
  all->push_back(
      Noisy(Make("filter, +-20 % noise, 10 min", Filter(0.8, 1, 1.25e6), 600), 0.2, 0.05));
  all->push_back(
      Noisy(Make("filter, noise held 1 s, 10 min", Filter(0.8, 1, 1.25e6), 600), 0.2, 1));
  all->push_back(Make("paper: insert 7.8 H, scan 0.4 H, twice", InsertScan(7.8, 0.4, 2), 1000));
  all->push_back(Make("insert 7.8 H, scan 0.4 H, 10 times", InsertScan(7.8, 0.4, 10), 1000));
  all->push_back(Noisy(Make("the same, +-20 % noise", InsertScan(7.8, 0.4, 10), 1000), 0.2, 0.05));
  all->push_back(Make("insert 20 H, scan 10 H, 4 times", InsertScan(20, 10, 4), 5000));
  all->push_back(Make("insert 0.3 H, scan 0.02 H, 60 times", InsertScan(0.3, 0.02, 60), 1000));
  for (const double cores : {1.0, 2.0, 4.0}) {
    all->push_back(Make(absl::StrCat("10 clients, server of ", cores, " cores"),
                        SharedServer(10, cores, 0), 120));
  }
  for (const bool lan : {true, false}) {
    all->push_back(Make(absl::StrCat("4 insert into one directory, ", lan ? "LAN" : "SAN"),
                        DirectoryInserts(4, lan), 60));
  }
  Scenario liars = Make("digests that lie, get lost, come late", Filter(0.3, 1, 1.25e6), 120);
  liars.options.noise = 0.1;
  liars.options.lying = 0.05;
  liars.options.lost = 0.2;
  liars.options.digest_delay_s = 0.2;
  all->push_back(std::move(liars));
  Scenario factor = Make("a class that servers do badly", Filter(0.1, 1, 1.25e7), 120);
  factor.cluster.objects[1].server_factor = 8;
  all->push_back(std::move(factor));
}

}  // namespace

std::vector<Scenario> StandardScenarios(size_t servers_max) {
  std::vector<Scenario> all;
  AddSmall(&all);
  for (size_t servers = 4; servers <= servers_max; servers = servers == 4 ? 10 : servers * 10) {
    Scenario scenario = Make(
        absl::StrCat("churn and hot spots, ", servers, " servers"),
        RandomCluster({.servers = servers, .consoles = 10 * servers, .duration_s = 30}, 7), 30);
    // Where there are many, digests come five times less often.
    if (servers > 10) scenario.options.sample_ticks = 5;
    all.push_back(std::move(scenario));
  }
  return all;
}

ScenarioRow RunScenario(const Scenario& scenario, const Meters& meters) {
  Options options = scenario.options;
  options.cpu_s = meters.cpu_s;
  options.memory_bytes = meters.memory_bytes;
  ScenarioRow row;
  row.name = scenario.name;
  row.consoles = scenario.cluster.consoles.size();
  for (const Node& node : scenario.cluster.nodes) row.servers += node.is_server ? 1 : 0;
  row.report = RunAdaptive(scenario.cluster, options);
  row.simulated_s = row.report.simulated_s;
  row.adaptive = row.report.slowdown;
  row.all_client = RunStatic(scenario.cluster, options, AllAtClient(scenario.cluster)).slowdown;
  row.all_server = RunStatic(scenario.cluster, options, AllAtServer(scenario.cluster)).slowdown;
  // Ten chains of two cuts each: 1,024 placements are quickly played, and no more.
  const BestStatic best = RunBestStatic(scenario.cluster, options, row.consoles > 1 ? 1024 : 64);
  row.best_static = best.report.slowdown;
  row.best_is_exact = best.exact;
  row.regret = row.best_static > 0 ? row.adaptive / row.best_static - 1 : 0;
  return row;
}

std::vector<ScenarioRow> RunStandardScenarios(const Meters& meters, size_t servers_max) {
  std::vector<ScenarioRow> rows;
  for (const Scenario& scenario : StandardScenarios(servers_max)) {
    rows.push_back(RunScenario(scenario, meters));
  }
  return rows;
}

}  // namespace abacus::placement::sim
