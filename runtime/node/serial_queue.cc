#include "runtime/node/serial_queue.h"

#include <utility>

namespace abacus::runtime {

SerialQueue::SerialQueue(size_t tasks_max) : tasks_max_(tasks_max), thread_([this] { Work(); }) {}

void SerialQueue::Run(std::function<void()> task) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  if (tasks_.size() >= tasks_max_) {
    ++dropped_;
    return;
  }
  tasks_.push_back(std::move(task));
  changed_.Signal();
}

void SerialQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    tasks_.clear();
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

uint64_t SerialQueue::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

void SerialQueue::Work() {
  mutex_.Lock();
  for (;;) {
    while (tasks_.empty() && !stopping_) changed_.Wait(mutex_);
    if (stopping_) break;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    mutex_.Unlock();
    task();
    task = nullptr;  // what it holds ends outside of the lock
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace abacus::runtime
