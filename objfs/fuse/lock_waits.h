#ifndef ABACUS_OBJFS_FUSE_LOCK_WAITS_H_
#define ABACUS_OBJFS_FUSE_LOCK_WAITS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::fuse {

// The kernel's requests that wait for a lock, and keep no thread of the mount meanwhile; and the
// thread that answers them.
// Thread-safety: thread-safe.
class LockWaits {
 public:
  explicit LockWaits(FileSystem& files)
      : files_(files), answerer_([this] { AnswerNowAndThen(); }) {}
  ~LockWaits() {
    {
      runtime::MutexLock lock(mutex_);
      stopping_ = true;
      changed_.SignalAll();
    }
    answerer_.join();
  }
  LockWaits(const LockWaits&) = delete;
  LockWaits& operator=(const LockWaits&) = delete;

  // Has `answer` called soon, by a thread that serves no request: what it does may wait until
  // requests are served.
  void Answer(std::function<void()> answer) {
    runtime::MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
    changed_.SignalAll();
  }

  // `ticket` is the file system's. REQUIRES: Remove() follows when the request was answered.
  void Add(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    tickets_.insert(ticket);
  }
  void Remove(uint64_t ticket) {
    runtime::MutexLock lock(mutex_);
    tickets_.erase(ticket);
    changed_.SignalAll();
  }
  // Ends all waits, and returns when each was answered, and all that Answer() was given.
  // Blocking: calls of the volume. REQUIRES: no more are added.
  void CancelAll() {
    std::vector<uint64_t> tickets;
    {
      runtime::MutexLock lock(mutex_);
      tickets.assign(tickets_.begin(), tickets_.end());
    }
    for (const uint64_t ticket : tickets) files_.CancelLock(ticket);
    runtime::MutexLock lock(mutex_);
    while (!tickets_.empty() || !answers_.empty()) changed_.Wait(mutex_);
  }

 private:
  void AnswerNowAndThen() {
    mutex_.Lock();
    while (!stopping_ || !answers_.empty()) {
      if (answers_.empty()) {
        changed_.Wait(mutex_);
        continue;
      }
      const std::function<void()> answer = answers_.front();
      mutex_.Unlock();
      answer();
      mutex_.Lock();
      answers_.pop_front();
      changed_.SignalAll();
    }
    mutex_.Unlock();
  }

  FileSystem& files_;
  runtime::Mutex mutex_;  // not held over calls
  runtime::CondVar changed_;
  absl::flat_hash_set<uint64_t> tickets_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> answers_ ABSL_GUARDED_BY(mutex_);  // the first is under way
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread answerer_;  // last: it uses the others
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_LOCK_WAITS_H_
