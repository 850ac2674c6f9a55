#include "objfs/raid/alarm.h"

#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;
using Clock = std::chrono::steady_clock;

Alarm::~Alarm() {
  std::thread worker;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
    worker = std::move(worker_);
  }
  if (worker.joinable()) worker.join();
}

Alarm::Set::Set(Alarm& alarm, absl::Duration delay, std::function<void()> ring) : alarm_(alarm) {
  MutexLock lock(alarm_.mutex_);
  key_ = {Clock::now() + absl::ToChronoNanoseconds(delay), ++alarm_.last_};
  alarm_.set_.emplace(key_, std::move(ring));
  if (!alarm_.worker_.joinable()) {
    alarm_.looks_ = Clock::time_point::max();
    alarm_.worker_ = std::thread([&alarm] { alarm.Work(); });
  }
  if (key_.first < alarm_.looks_) alarm_.changed_.SignalAll();
}

Alarm::Set::~Set() {
  MutexLock lock(alarm_.mutex_);
  alarm_.set_.erase(key_);
}

void Alarm::Work() {
  mutex_.Lock();
  while (!stopping_) {
    while (!set_.empty() && set_.begin()->first.first <= Clock::now()) {
      const std::function<void()> ring = std::move(set_.begin()->second);
      set_.erase(set_.begin());
      ring();  // under the lock: who clears it waits
    }
    if (set_.empty()) {
      looks_ = Clock::time_point::max();
      changed_.Wait(mutex_);
    } else {
      looks_ = set_.begin()->first.first;
      changed_.WaitUntil(mutex_, looks_);
    }
  }
  mutex_.Unlock();
}

}  // namespace abacus::objfs
