#ifndef ABACUS_RUNTIME_TESTING_SIM_WORLD_H_
#define ABACUS_RUNTIME_TESTING_SIM_WORLD_H_

// Virtual time, a network and the processes on it. One seed, one run: there is no other source of
// chance, and nothing depends on addresses.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "runtime/testing/sim_cores.h"
#include "runtime/testing/sim_node.h"
#include "runtime/testing/sim_oracle.h"
#include "runtime/testing/sim_random.h"

namespace abacus::runtime::sim {

inline constexpr Nanos kUs = 1000;
inline constexpr Nanos kMs = 1000 * kUs;

// Chances are per mille.
struct NetworkOptions {
  Nanos delay_min_ns = 50 * kUs;
  Nanos delay_max_ns = 500 * kUs;
  uint32_t lost = 0;
  uint32_t copied = 0;
  uint32_t late = 0;  // delayed by up to late_max_ns: overtaken by much
  Nanos late_max_ns = 100 * kMs;
};

struct WorldOptions {
  uint64_t seed = 1;
  CoreOptions core;
  NetworkOptions network;
  Nanos tick_ns = 2 * kMs;
  Nanos pool_max_ns = 0;  // a wake-up or a look at the threads takes up to so long
  Nanos checkpoint_max_ns = 0;
  Nanos restore_max_ns = 0;
  uint32_t restore_fails = 0;  // per mille
  bool trace = false;
  size_t trace_lines_max = 400;
};

// Deadlines in proportion to the simulated network's delays.
CoreOptions SimCoreOptions();

// What is counted, so that a test can demand that it happened.
enum class Stat {
  kSteps,
  kSeeds,
  kCallsBegun,
  kCallsOk,
  kCallsUnknown,
  kCallsNotRun,
  kCallsLocal,
  kCallsInsideLocal,
  kCallsInsideRemote,
  kCallbacks,
  kForks,
  kGivenUp,
  kExecutions,
  kParked,
  kRedirects,
  kProbes,
  kResent,
  kDuplicates,
  kEvicted,
  kRefusedDuplicates,
  kHintsEvicted,
  kMovesBegun,
  kMovesCommitted,
  kMovesCancelled,
  kMovesWithCalls,
  kSetMoves,
  kSlowDrains,
  kCrossings,
  kTakeOvers,
  kResumedWithoutHome,
  kCrashes,
  kRestarts,
  kPartitions,
  kDestroyed,
  kOrphansDestroyed,
  kObjectsLost,
  kMessages,
  kMessagesLost,
  kMessagesCopied,
  kMessagesLate,
  kFromTheDead,
  kRestoresFailed,
  kCount
};
const char* StatName(Stat stat);

class SimStats {
 public:
  uint64_t& operator[](Stat stat) { return values_[static_cast<size_t>(stat)]; }
  uint64_t operator[](Stat stat) const { return values_[static_cast<size_t>(stat)]; }
  void Add(const SimStats& other);
  std::string ToString() const;

 private:
  std::array<uint64_t, static_cast<size_t>(Stat::kCount)> values_{};
};

class SimWorld {
 public:
  using Task = absl::AnyInvocable<void()>;
  using NodeTask = absl::AnyInvocable<void(SimNode&)>;

  SimWorld(const WorldOptions& options, SimCoresFactory factory);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;

  // -- processes -----------------------------------------------------------------------------

  // Starts a process of that node; the next incarnation where one was there before.
  SimNode& Start(NodeId id);
  // It dies, with all its state. What it has sent is still under way; nobody is told.
  void Crash(NodeId id);
  // `observer` is told that `dead` is.
  void TellDead(NodeId observer, NodeInstance dead);
  SimNode* node(NodeId id) { return id <= nodes_.size() ? nodes_[id - 1].get() : nullptr; }
  bool Alive(NodeInstance instance) const;
  const std::vector<NodeInstance>& dead() const { return dead_; }
  void ForEachNode(absl::FunctionRef<void(SimNode&)> visit);
  // The node that hosts the object; null where none does.
  SimNode* HostOf(size_t object);

  // -- time ----------------------------------------------------------------------------------

  Nanos now() const { return now_; }
  void After(Nanos delay, Task task);
  // Dropped where the process has died by then. The promises are checked after it.
  void AfterAt(NodeInstance where, Nanos delay, NodeTask task);
  // Runs the next event. False where a promise was broken.
  bool Step();
  void RunFor(Nanos duration);
  // Runs until `done`, at most for `limit`; returns whether it was.
  bool RunUntil(absl::FunctionRef<bool()> done, Nanos limit);
  // Nothing is under way, in no process and not between them.
  bool Quiet();

  // -- network -------------------------------------------------------------------------------

  struct Message {
    NodeInstance from;
    NodeInstance to;
    Frame frame;
  };
  void Send(Message message);
  void Deliver(Message message, Nanos delay);
  // Nothing travels from `from` to `to` while it is cut.
  void Cut(NodeId from, NodeId to, bool cut);
  bool IsCut(NodeId from, NodeId to) const { return cut_[from][to]; }
  // Decides instead of chance, where it is set: true says that it has taken the message.
  std::function<bool(Message&)> intercept;

  Oracle& oracle() { return oracle_; }
  SimRandom& random() { return random_; }
  SimStats& stats() { return stats_; }
  const WorldOptions& options() const { return options_; }
  NetworkOptions& network() { return options_.network; }
  // Called when a root thread has no call under way; it may begin the next one.
  std::function<void(SimNode&, uint64_t thread)> on_root_idle;

  // Says what happens, for a run that is looked at.
  bool tracing() const { return options_.trace; }
  void Trace(const std::string& line);
  const std::deque<std::string>& trace() const { return trace_; }
  // Folds the counters of all living processes into the statistics.
  void CollectCounters();

 private:
  struct Event {
    Nanos at;
    uint64_t number;
    Task task;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  void Schedule(Nanos delay, Task task);
  void ScheduleTick(NodeInstance self, Nanos delay);
  void CollectCounters(SimNode& node);
  void MarkCopied(const Frame& frame);

  WorldOptions options_;
  const SimCoresFactory factory_;
  SimRandom random_;
  Oracle oracle_;
  SimStats stats_;
  Nanos now_ = kMs;
  uint64_t events_ = 0;
  uint64_t waiting_ = 0;      // of them, all but ticks
  std::vector<Event> queue_;  // a heap
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<uint32_t> incarnations_;
  std::vector<NodeInstance> dead_;
  std::array<std::array<bool, 8>, 8> cut_{};
  std::deque<std::string> trace_;
};

const char* MessageName(uint16_t type);

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_WORLD_H_
