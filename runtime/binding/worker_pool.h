#ifndef ABACUS_RUNTIME_BINDING_WORKER_POOL_H_
#define ABACUS_RUNTIME_BINDING_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/base/mutex.h"

namespace abacus::runtime {

// Threads for work that may block on other work of the same pool: a task never waits for a thread.
// An idle thread takes it, else a new one is made; threads beyond kIdleMax end when they find
// nothing to do. How much may run at once is bounded by whoever gives the tasks.
// Thread-safety: thread-safe. Blocking: Run() never; Stop() until every task has returned.
class WorkerPool {
 public:
  WorkerPool() = default;
  ~WorkerPool() { Stop(); }

  // Tasks given after Stop() are dropped.
  void Run(std::function<void()> task);
  void Stop();

 private:
  static constexpr size_t kIdleMax = 8;
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> running_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_WORKER_POOL_H_
