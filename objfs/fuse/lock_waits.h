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
// thread that answers them, and does what may wait for requests that others serve.
//
// A mount ends in this order: Pause(), the end of its session, Resume(), CancelAll(). An answer may
// wait for requests to be served (Adapter::ForgetPages()), so none may be under way when that ends:
// the kernel would wait for the server, and the server for the kernel. And none may be written
// while the session's file descriptor is closed, whose number another file may get.
// Thread-safety: thread-safe.
class LockWaits {
 public:
  explicit LockWaits(FileSystem& files)
      : files_(files), answerer_([this] { AnswerNowAndThen(); }) {}
  ~LockWaits() {
    {
      runtime::MutexLock lock(mutex_);
      stopping_ = true;
      paused_ = false;
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

  // Returns when no answer is under way; none is begun until Resume(). Again: allowed.
  // Blocking: until requests that are under way are answered.
  void Pause() {
    runtime::MutexLock lock(mutex_);
    paused_ = true;
    while (answering_) changed_.Wait(mutex_);
  }
  void Resume() {
    runtime::MutexLock lock(mutex_);
    paused_ = false;
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
  // Blocking: calls of the volume. REQUIRES: no more are added; it is not paused.
  void CancelAll() {
    std::vector<uint64_t> tickets;
    {
      runtime::MutexLock lock(mutex_);
      tickets.assign(tickets_.begin(), tickets_.end());
    }
    for (const uint64_t ticket : tickets) files_.CancelLock(ticket);
    runtime::MutexLock lock(mutex_);
    while (!tickets_.empty() || !answers_.empty() || answering_) changed_.Wait(mutex_);
  }

 private:
  void AnswerNowAndThen() {
    mutex_.Lock();
    while (!stopping_ || !answers_.empty()) {
      if (answers_.empty() || paused_) {
        changed_.Wait(mutex_);
        continue;
      }
      const std::function<void()> answer = std::move(answers_.front());
      answers_.pop_front();
      answering_ = true;
      mutex_.Unlock();
      answer();
      mutex_.Lock();
      answering_ = false;
      changed_.SignalAll();
    }
    mutex_.Unlock();
  }

  FileSystem& files_;
  runtime::Mutex mutex_;  // not held over calls
  runtime::CondVar changed_;
  absl::flat_hash_set<uint64_t> tickets_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> answers_ ABSL_GUARDED_BY(mutex_);
  bool answering_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread answerer_;  // last: it uses the others
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_LOCK_WAITS_H_
