#ifndef ABACUS_OBJFS_ATOMICITY_TESTING_SIM_LOOP_H_
#define ABACUS_OBJFS_ATOMICITY_TESTING_SIM_LOOP_H_

// Virtual time for the simulators of commit and timestamp ordering: one seed, one run.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "objfs/atomicity/commit_core.h"
#include "runtime/testing/sim_random.h"

namespace abacus::objfs::testing {

inline constexpr Nanos kUs = 1000;
inline constexpr Nanos kMs = 1000 * kUs;

// Chances are per mille.
struct SimNetwork {
  uint32_t lost = 20;
  uint32_t copied = 20;
  uint32_t late = 20;  // by up to late_max_ns: overtaken by much
  Nanos delay_max_ns = 400 * kUs;
  Nanos late_max_ns = 200 * kMs;
};

class SimLoop {
 public:
  using Task = std::function<void()>;

  explicit SimLoop(uint64_t seed) : random(seed) {}

  void After(Nanos delay, Task task) {
    queue_.push_back({now_ + delay, ++numbers_, std::move(task)});
    std::push_heap(queue_.begin(), queue_.end());
  }
  // Delivers a message by chance: never, once or twice, soon or late.
  void Send(const Task& deliver) {
    const bool faulty = network.lost + network.copied + network.late > 0;
    if (faulty && random.Chance(network.lost)) return;
    const int copies = faulty && random.Chance(network.copied) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const bool late = faulty && random.Chance(network.late);
      After(random.Between(20 * kUs, late ? network.late_max_ns : network.delay_max_ns), deliver);
    }
  }
  void RunUntil(Nanos end) {
    while (!queue_.empty() && queue_.front().at <= end) {
      std::pop_heap(queue_.begin(), queue_.end());
      Event event = std::move(queue_.back());
      queue_.pop_back();
      now_ = event.at;
      ++steps_;
      event.task();
    }
    now_ = std::max(now_, end);
  }
  Nanos now() const { return now_; }
  uint64_t steps() const { return steps_; }

  SimNetwork network;
  runtime::sim::SimRandom random;

 private:
  struct Event {
    Nanos at;
    uint64_t number;
    Task task;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  Nanos now_ = 0;
  uint64_t numbers_ = 0;
  uint64_t steps_ = 0;
  std::vector<Event> queue_;  // a heap
};

inline bool LongRun() {
  const char* value = std::getenv("ABACUS_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

struct SimResult {
  std::string broken;  // which promise, and how; empty where all held
  uint64_t steps = 0;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_ATOMICITY_TESTING_SIM_LOOP_H_
