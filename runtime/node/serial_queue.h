#ifndef ABACUS_RUNTIME_NODE_SERIAL_QUEUE_H_
#define ABACUS_RUNTIME_NODE_SERIAL_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "runtime/base/mutex.h"

namespace abacus::runtime {

// One thread that runs tasks in the order in which they came, so that who gives them need not wait
// for them. Beyond `tasks_max` that wait, tasks are dropped and counted.
// Thread-safety: thread-safe. Blocking: Run() never; Stop() for the task that runs.
class SerialQueue {
 public:
  explicit SerialQueue(size_t tasks_max);
  ~SerialQueue() { Stop(); }

  void Run(std::function<void()> task);
  // Tasks that wait are dropped, not counted. Idempotent.
  void Stop();
  uint64_t dropped() const;

 private:
  void Work();

  const size_t tasks_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_SERIAL_QUEUE_H_
