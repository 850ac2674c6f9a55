#ifndef ABACUS_RUNTIME_TESTING_SIMULATOR_H_
#define ABACUS_RUNTIME_TESTING_SIMULATOR_H_

// The seeded simulation of the protocol core: processes that call each other's objects and move
// them about, on a network that loses, delays, duplicates, reorders and cuts, while processes die
// and come back. The oracle (sim_oracle.h) checks after every event, and at the end, that the
// promises of the protocol hold:
//
//   one-live-copy      at most one living process hosts an object, and only that one runs calls
//   latest-state       the copy that runs has seen all that ran before
//   ran-twice, order   each call runs at most once, in the order of its activity
//   wrong-result, ok-but-not-run, not-run, typed-error
//                      what the caller is told is what happened
//   moved-under-call, deleted-under-call
//                      an object does not leave with a call inside
//   insider            who is inside a moving set never waits for it
//   fence              nothing is run for a process that is known to be dead
//   epoch              an older epoch never follows a newer one
//   lost               objects are lost only with the process that held the live copy
//   home-row, zombie, leak, every-call-ends, every-move-ends
//                      when all is quiet, rows agree with hosts and nothing is left over

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/testing/sim_world.h"

namespace abacus::runtime::sim {

struct SimulationOptions {
  WorldOptions world;
  NodeId nodes = 4;
  size_t objects_per_node = 2;
  size_t roots_per_node = 2;
  uint32_t depth_max = 4;
  Nanos duration_ns = 300 * kMs;  // of the work; then the network heals and all comes to rest
  Nanos think_max_ns = 4 * kMs;
  Nanos call_work_max_ns = 600 * kUs;
  // Mean times between; 0: never.
  Nanos move_every_ns = 4 * kMs;
  uint32_t moves_cancelled = 50;  // per mille: by hand, at a random moment
  Nanos destroy_every_ns = 0;
  Nanos crash_every_ns = 0;
  Nanos cut_every_ns = 0;
  Nanos told_dead_max_ns = 60 * kMs;  // until a process learns that another is dead
};

// Draws a scenario: which faults there are, and how many.
SimulationOptions OptionsForSeed(uint64_t seed);

// The same with few calls, and with moves, aborts, cuts and crashes as close together as they get.
SimulationOptions MovingOptionsForSeed(uint64_t seed);

struct SimulationResult {
  bool ok = true;
  std::string check;  // the broken promise
  std::string what;
  SimStats stats;
  std::vector<std::string> trace;  // the last events, where it was asked for
};

SimulationResult RunSimulation(const SimulationOptions& options, const SimCoresFactory& factory);

// Runs seed after seed and adds up. A seed that fails is run again with a trace.
class SimulationSeries {
 public:
  explicit SimulationSeries(SimCoresFactory factory) : factory_(std::move(factory)) {}

  // False where a promise was broken; report() says which, with the seed and the last events.
  bool Run(uint64_t seed);
  bool Run(const SimulationOptions& options);

  const SimStats& stats() const { return stats_; }
  const std::string& check() const { return check_; }
  const std::string& report() const { return report_; }

 private:
  const SimCoresFactory factory_;
  SimStats stats_;
  std::string check_;
  std::string report_;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIMULATOR_H_
