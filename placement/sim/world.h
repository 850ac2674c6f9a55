#ifndef ABACUS_PLACEMENT_SIM_WORLD_H_
#define ABACUS_PLACEMENT_SIM_WORLD_H_

// The true course of things in a simulated cluster, in virtual time: who is where, how fast each
// console gets on, and what was used since it was last asked.
//
// The law of the world is not the engine's model. A console works through units one after the other
// (a closed loop, no thinking time). On a node of c cores with n other tasks running or ready on
// average, a task takes max(1, (n + 1) / c) times its CPU time: fair sharing as an arriving task
// finds it, where the engine's equations say max(1, L / c) with the task's own average in L. Flows
// share a node's NIC in the same way. An object that moves stops its consoles for the blackout.
// What messages cost the processors at both ends (Node::frame_work, byte_work) is done like other
// tasks.
//
// Consoles that contend (Console::contention_group) repeat what was overtaken: an attempt that
// takes a seconds succeeds with probability exp(-a x rate), the rate being that at which the others
// of the group get through theirs, so exp(a x rate) attempts are needed on average.
//   3 others at 60 a second each, attempts of 5 ms: exp(0.9) = 2.5.
//
// Between ticks speeds are constant, and taken from the shares of the tick before; ends of phases
// and of blackouts are met exactly within a tick. So a tick is an error of time in the answer of
// one console to another, and none where a console is alone.
// Thread-safety: thread-compatible. Limits: one World is O(objects + edges) per tick.
// Source: ours; closed loop and phases as in the paper's section 6 benchmarks.

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "placement/sim/cluster.h"

namespace abacus::placement::sim {

// What a console's graph used since the last TakeUsage().
struct Usage {
  double wall_s = 0;    // since then
  double active_s = 0;  // of it, inside invocations (not before its start, in a blackout or ended)
  double units = 0;
  std::vector<double> cpu_s;    // as Console::objects
  std::vector<double> stall_s;  // own stall, the same
  std::vector<EdgeNeed> edges;  // sums, as Console::edges
};

class World {
 public:
  // REQUIRES: indices of `cluster` are in range, figures finite, rates and bandwidths positive,
  // every pair of nodes that a graph can be spread over has a link. `cluster` outlives the World.
  explicit World(const Cluster& cluster);

  // Units: seconds. REQUIRES: dt_s > 0.
  void Step(double dt_s);

  double now_s() const { return now_s_; }
  size_t NodeOf(size_t object) const { return placement_[object]; }
  // Puts an object elsewhere without a blackout: for static placements, before the first Step().
  void Place(size_t object, size_t node);
  // Starts a move of objects as one step: their consoles are stopped until it is over. Returns how
  // long that takes: `quiesce_s` + 2.5 round trips + all checkpoints over the bandwidth.
  double Move(const std::vector<size_t>& objects, size_t to, double quiesce_s);
  // As much memory as mobile objects may still take there; a large number without a limit.
  double FreeMemory(size_t node) const;

  // L: running and ready tasks of the node, averaged over the last tick.
  double Load(size_t node) const { return load_[node]; }
  // What one more flow would get between the two nodes now, and how long one more call without
  // bytes would take, with what messages cost the processors. REQUIRES: they have a link.
  double Bandwidth(size_t a, size_t b) const;
  double RoundTrip(size_t a, size_t b) const;
  const Link& LinkBetween(size_t a, size_t b) const;

  bool Running(size_t console) const;
  bool Ended(size_t console) const { return states_[console].ended; }
  double EndedAt(size_t console) const { return states_[console].ended_s; }
  size_t PhaseOf(size_t console) const { return states_[console].phase; }
  size_t PhaseChanges(size_t console) const { return states_[console].phase_changes; }
  double PhaseSince(size_t console) const { return states_[console].phase_since_s; }
  // Units done in each phase so far, for judging progress.
  const std::vector<double>& UnitsByPhase(size_t console) const {
    return states_[console].units_by_phase;
  }
  // Attempts that were in vain so far.
  double RetriesOf(size_t console) const { return states_[console].retries; }
  // Time since the console's start in which it had not ended.
  double ElapsedOf(size_t console) const;

  // What one unit of the console's phase takes at the present loads with its objects where they
  // are.
  double UnitTime(size_t console, size_t phase) const;
  // The same if nobody else were there, for any placement (one node per object of the console).
  double UnitTimeAlone(size_t console, size_t phase, const std::vector<size_t>& placement) const;

  // Hands over what was used since the last call, and starts anew.
  Usage TakeUsage(size_t console);

 private:
  // A console's own part of the load of a node, and of the traffic of its NIC.
  struct Share {
    size_t node = 0;
    double cpu = 0;  // of its time, running or ready there
    double nic = 0;  // of its time, sending or receiving there
  };
  struct ConsoleState {
    size_t phase = 0;
    size_t pass = 0;
    double units_left = 0;
    double phase_since_s = 0;
    size_t phase_changes = 0;
    double blackout_until_s = 0;
    double ended_s = 0;
    bool ended = false;
    std::vector<double> units_by_phase;
    std::vector<Share> shares;
    Usage usage;
    double rate = 0;      // units a second, as of the last ticks
    double attempts = 1;  // of a contended edge that crosses a link, at the others' rates
    double retries = 0;
  };

  double Slowdown(size_t node, double own) const;
  // How much longer everybody's tasks take there as it is, each one's own among them.
  double Crowd(size_t node) const;
  // CPU seconds of one end of messages, alone.
  double MessageTime(size_t node, double calls, double bytes) const;
  double UnitTimeWith(const Console& console, const Phase& phase, const ConsoleState* own,
                      std::vector<Share>* shares) const;
  void CountAttempts(size_t console);
  // Of the console's contended edge, where it is by now.
  double AttemptsOf(const Console& console, const ConsoleState* state) const;
  void StepConsole(size_t console, double dt_s);
  void Progress(size_t console, double units);
  void AddUsage(size_t console, double units, double active_s);
  void ApplyEvents();
  void ReleaseMemory(size_t console);
  const Share* ShareOn(const ConsoleState& state, size_t node) const;

  const Cluster& cluster_;
  double now_s_ = 0;
  size_t next_event_ = 0;
  std::vector<size_t> placement_;            // by object
  std::vector<double> others_, load_, nic_;  // by node; nic_: flows there, averaged
  std::vector<double> memory_used_;          // by mobile objects, by node
  std::vector<ConsoleState> states_;
  std::vector<std::vector<size_t>> consoles_of_;  // by object
  absl::flat_hash_map<uint64_t, size_t> links_;
};

}  // namespace abacus::placement::sim

#endif  // ABACUS_PLACEMENT_SIM_WORLD_H_
