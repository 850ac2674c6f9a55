// What the adaptive run is compared with: placements that never change, and the oracle's time.

#include <algorithm>
#include <limits>
#include <utility>

#include "placement/sim/simulator.h"
#include "placement/sim/world.h"

namespace abacus::placement::sim {
namespace {

constexpr size_t kOracleMax = 4096;

std::vector<size_t> StartOf(const Cluster& cluster) {
  std::vector<size_t> placement;
  for (const Object& object : cluster.objects) placement.push_back(object.node);
  return placement;
}

// Mobile objects before position `cut` at the console's node, the others at the last object's.
void Cut(const Cluster& cluster, const Console& console, size_t cut,
         std::vector<size_t>* placement) {
  for (size_t j = 0; j < console.objects.size(); ++j) {
    const size_t object = console.objects[j];
    if (!cluster.objects[object].mobile) continue;
    const size_t end = j < cut ? console.objects.front() : console.objects.back();
    (*placement)[object] = cluster.objects[end].node;
  }
}

size_t CutsOf(const Console& console) { return console.objects.size() - 1; }

std::vector<size_t> OwnPlacement(const Console& console, const std::vector<size_t>& placement) {
  std::vector<size_t> own;
  for (const size_t object : console.objects) own.push_back(placement[object]);
  return own;
}

// Each console's cut with the lowest time for one pass through its phases, alone.
std::vector<size_t> BestAlone(const Cluster& cluster) {
  const World world(cluster);
  std::vector<size_t> placement = StartOf(cluster);
  for (size_t c = 0; c < cluster.consoles.size(); ++c) {
    const Console& console = cluster.consoles[c];
    double best_s = std::numeric_limits<double>::infinity();
    size_t best = 1;
    for (size_t cut = 1; cut <= CutsOf(console); ++cut) {
      std::vector<size_t> trial = placement;
      Cut(cluster, console, cut, &trial);
      double pass_s = 0;
      for (size_t p = 0; p < console.phases.size(); ++p) {
        pass_s += console.phases[p].units * world.UnitTimeAlone(c, p, OwnPlacement(console, trial));
      }
      if (pass_s < best_s) best_s = pass_s, best = cut;
    }
    Cut(cluster, console, best, &placement);
  }
  return placement;
}

// All ways to cut the consoles' chains; empty if there are more than `most`.
std::vector<std::vector<size_t>> AllCuts(const Cluster& cluster, size_t most) {
  size_t ways = 1;
  for (const Console& console : cluster.consoles) {
    ways *= CutsOf(console);
    if (ways > most) return {};
  }
  std::vector<std::vector<size_t>> all;
  for (size_t way = 0; way < ways; ++way) {
    std::vector<size_t> placement = StartOf(cluster);
    size_t rest = way;
    size_t last = 0;
    bool sorted = true;
    for (const Console& console : cluster.consoles) {
      const size_t cut = 1 + rest % CutsOf(console);
      Cut(cluster, console, cut, &placement);
      rest /= CutsOf(console);
      sorted = sorted && cut >= last;
      last = cut;
    }
    // Of the orders in which alike consoles can have the same cuts, one is enough.
    if (sorted || !cluster.consoles_alike) all.push_back(std::move(placement));
  }
  return all;
}

}  // namespace

std::vector<size_t> AllAtClient(const Cluster& cluster) {
  std::vector<size_t> placement = StartOf(cluster);
  for (const Console& console : cluster.consoles) {
    Cut(cluster, console, console.objects.size(), &placement);
  }
  return placement;
}

std::vector<size_t> AllAtServer(const Cluster& cluster) {
  std::vector<size_t> placement = StartOf(cluster);
  for (const Console& console : cluster.consoles) Cut(cluster, console, 1, &placement);
  return placement;
}

BestStatic RunBestStatic(const Cluster& cluster, const Options& options, size_t exhaustive_max) {
  std::vector<std::vector<size_t>> trials = AllCuts(cluster, exhaustive_max);
  BestStatic best;
  best.exact = !trials.empty();
  if (trials.empty()) trials = {AllAtClient(cluster), AllAtServer(cluster), BestAlone(cluster)};
  best.report.slowdown = std::numeric_limits<double>::infinity();
  for (const auto& placement : trials) {
    Report report = RunStatic(cluster, options, placement);
    if (report.slowdown < best.report.slowdown) best.report = std::move(report);
  }
  return best;
}

double BestUnitTime(const World& world, const Cluster& cluster, size_t console, size_t phase) {
  const Console& c = cluster.consoles[console];
  std::vector<size_t> nodes;
  std::vector<size_t> mobile;
  std::vector<size_t> placement;
  for (size_t j = 0; j < c.objects.size(); ++j) {
    const Object& object = cluster.objects[c.objects[j]];
    placement.push_back(object.node);
    if (object.mobile) {
      mobile.push_back(j);
    } else if (std::find(nodes.begin(), nodes.end(), object.node) == nodes.end()) {
      nodes.push_back(object.node);
    }
  }
  size_t ways = 1;
  for (size_t i = 0; i < mobile.size() && ways <= kOracleMax; ++i) ways *= nodes.size();
  double best_s = std::numeric_limits<double>::infinity();
  for (size_t way = 0; way < std::min(ways, kOracleMax); ++way) {
    size_t rest = way;
    for (const size_t j : mobile) {
      placement[j] = nodes[rest % nodes.size()];
      rest /= nodes.size();
    }
    best_s = std::min(best_s, world.UnitTimeAlone(console, phase, placement));
  }
  return best_s;
}

}  // namespace abacus::placement::sim
