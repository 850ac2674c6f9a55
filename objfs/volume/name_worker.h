#ifndef ABACUS_OBJFS_VOLUME_NAME_WORKER_H_
#define ABACUS_OBJFS_VOLUME_NAME_WORKER_H_

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Does something for names, one after the other, on a thread of its own. A name that waits already
// is not taken twice.
// Thread-safety: thread-safe. Blocking: no, but for Stop().
class NameWorker {
 public:
  explicit NameWorker(std::function<void(const std::string& name)> work)
      : work_(std::move(work)), thread_([this] { Run(); }) {}
  ~NameWorker() { Stop(); }
  NameWorker(const NameWorker&) = delete;
  NameWorker& operator=(const NameWorker&) = delete;

  void Take(const std::string& name) {
    runtime::MutexLock lock(mutex_);
    waiting_.insert(name);
    changed_.SignalAll();
  }
  // Nothing more is begun. Blocking: for what is under way, which may look at is_stopping().
  // REQUIRES: not called from `work`.
  void Stop() {
    {
      runtime::MutexLock lock(mutex_);
      is_stopping_ = true;
      changed_.SignalAll();
    }
    runtime::MutexLock lock(joining_);
    if (thread_.joinable()) thread_.join();
  }
  bool is_stopping() {
    runtime::MutexLock lock(mutex_);
    return is_stopping_;
  }

 private:
  void Run() {
    for (;;) {
      std::string name;
      {
        runtime::MutexLock lock(mutex_);
        while (waiting_.empty() && !is_stopping_) changed_.Wait(mutex_);
        if (is_stopping_) return;
        name = waiting_.extract(waiting_.begin()).value();
      }
      work_(name);
    }
  }

  const std::function<void(const std::string&)> work_;
  runtime::Mutex mutex_, joining_;
  runtime::CondVar changed_;
  std::set<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_NAME_WORKER_H_
