#include "runtime/binding/worker_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace abacus::runtime {

void WorkerPool::Run(std::function<void()> task) {
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size()) {
      changed_.Signal();
      return;
    }
    ended.swap(ended_);
    try {
      running_.emplace_back([this] { Work(); });
      ++threads_;
    } catch (const std::system_error&) {
      // The system gives no more threads: the task waits for one that is busy now, or for the next
      // Run() where there is none.
    }
  }
  for (std::thread& thread : ended) thread.join();
}

void WorkerPool::Work() {
  mutex_.Lock();
  for (;;) {
    if (!tasks_.empty()) {
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      mutex_.Unlock();
      task();
      task = nullptr;  // what it holds may end outside of the lock
      mutex_.Lock();
      continue;
    }
    if (stopping_ || idle_ >= kIdleMax) break;
    ++idle_;
    changed_.Wait(mutex_);
    --idle_;
  }
  const auto self = std::find_if(running_.begin(), running_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  ended_.push_back(std::move(*self));
  running_.erase(self);
  --threads_;
  changed_.SignalAll();
  mutex_.Unlock();
}

void WorkerPool::Stop() {
  std::vector<std::thread> ended;
  mutex_.Lock();
  stopping_ = true;
  changed_.SignalAll();
  while (threads_ > 0) changed_.Wait(mutex_);
  ended.swap(ended_);
  mutex_.Unlock();
  for (std::thread& thread : ended) thread.join();
}

}  // namespace abacus::runtime
