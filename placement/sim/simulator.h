#ifndef ABACUS_PLACEMENT_SIM_SIMULATOR_H_
#define ABACUS_PLACEMENT_SIM_SIMULATOR_H_

// Plays a cluster in virtual time, with the Planner or with a placement that stays as it is, and
// says how long things took.
//
// Deterministic: the same cluster, options and seed give the same report, but for the CPU time and
// memory that the caller's own functions measure. Nothing is read or written; the report is the
// trace. Units: virtual seconds. Thread-safety: thread-compatible.
// Source: ours; what it is compared with is asked for by the issue: client, server, best static,
// oracle.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "placement/audit.h"
#include "placement/planner.h"
#include "placement/sim/cluster.h"
#include "placement/sim/world.h"

namespace abacus::placement::sim {

struct Options {
  uint64_t seed = 1;
  double duration_s = 60;  // ends earlier when all consoles have
  // Speeds are constant within a tick. A sample of every console's graph each `sample_ticks`, a
  // decision after each `decision_samples` of them. The monitor's period is 50 ms.
  double tick_s = 0.05;
  size_t sample_ticks = 1;
  size_t decision_samples = 1;

  // Every figure of every digest, but the number of cores, is multiplied by a factor of its own
  // from 1 - noise to 1 + noise, which is drawn anew every noise_holds_s.
  double noise = 0;
  double noise_holds_s = 0.05;
  // Digests come so much later, or, this part of them, never.
  double digest_delay_s = 0;
  double lost = 0;
  // This part of the digests has a figure that is not true: impossible, absurd or merely wrong.
  double lying = 0;

  double quiesce_s = 0.002;  // of every move, beside transfer and protocol
  Config config;
  PlannerConfig planner;

  // CPU seconds of the calling process so far; called around all calls to the Planner. May be
  // empty.
  std::function<double()> cpu_s;
  // Bytes in use by the calling process; called at the end with and without the planners.
  std::function<double()> memory_bytes;
};

struct MoveRecord {
  double at_s = 0;
  size_t console = 0;
  size_t object = 0;
  size_t from = 0;
  size_t to = 0;
  Reason reason = Reason::kNetBenefit;
  std::string explanation;
  double since_change_s = 0;  // since the console's phase began, or its start
  double blackout_s = 0;
};

struct Report {
  // Time that consoles took over the time that their work would have taken with each phase where it
  // runs best, alone in the cluster, with moves that cost nothing and come at once. Never below 1
  // but for rounding: the oracle's own figure is 1.
  double slowdown = 0;
  double mean_elapsed_s = 0;
  double worst_slowdown = 0;      // of one console
  size_t ended = 0;               // consoles that did all of their passes
  std::vector<double> elapsed_s;  // by console
  std::vector<size_t> placement;  // at the end: the node of each object

  std::vector<MoveRecord> moves;
  uint64_t phase_changes = 0;  // true ones, of all consoles
  double retries = 0;          // of consoles that contend (Console::contention_group), in vain
  // Moves that sent an object back to where it last came from although no phase had changed.
  uint64_t reversals = 0;
  // From each change of phase (or start) to the first decision to move after it, sorted.
  std::vector<double> reaction_s;

  uint64_t decisions = 0;
  double engine_cpu_s = 0;         // by Options::cpu_s
  double engine_memory_bytes = 0;  // by Options::memory_bytes: what went with the planners
  RunningError errors{1};          // of all servers' planners: of placements as they were
  RunningError move_errors{1};     // the same for what was predicted of moves
  uint64_t audits = 0;
  Planner::Counters counters;       // of all servers' planners
  std::vector<uint64_t> by_reason;  // decisions, by Reason
  double simulated_s = 0;
};

// With one Planner on each server, which decides for the consoles whose first anchored object is
// there. REQUIRES: as World; every console has an anchored object beside itself.
Report RunAdaptive(const Cluster& cluster, const Options& options);

// With every object where `placement` says (by object), all the time.
Report RunStatic(const Cluster& cluster, const Options& options,
                 const std::vector<size_t>& placement);

// All mobile objects of each console with the console, or with its last anchored object.
std::vector<size_t> AllAtClient(const Cluster& cluster);
std::vector<size_t> AllAtServer(const Cluster& cluster);

// The best of all placements that stay as they are: exhaustive where the consoles' chains can be
// cut in at most `exhaustive_max` ways in all. Beyond, the best of the same cut for all consoles
// and of each console's best cut if it were alone: a bound from above, which is said in `exact`.
struct BestStatic {
  Report report;
  bool exact = false;
};
BestStatic RunBestStatic(const Cluster& cluster, const Options& options,
                         size_t exhaustive_max = 64);

// The lowest time for one unit of a console's phase, alone, over all ways to put its mobile objects
// on the console's node and on those of its anchored objects. Exhaustive: (nodes)^(mobile objects),
// at most 4096 of them are tried. Loads of others are those at the start.
double BestUnitTime(const World& world, const Cluster& cluster, size_t console, size_t phase);

}  // namespace abacus::placement::sim

#endif  // ABACUS_PLACEMENT_SIM_SIMULATOR_H_
