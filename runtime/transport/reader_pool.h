#ifndef ABACUS_RUNTIME_TRANSPORT_READER_POOL_H_
#define ABACUS_RUNTIME_TRANSPORT_READER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {

// Something with a descriptor that the pool's threads watch.
class Readable {
 public:
  virtual ~Readable() = default;
  // There is something to read. Called on a pool thread, once per Arm().
  virtual void OnReadable() = 0;
};

// Threads that wait in epoll for descriptors, each armed for one event at a time: whoever gets the
// event has the descriptor to itself until it arms it again.
//
// As many threads as it takes: one that is about to block calls EnsureReader() first, which starts
// another where none is waiting. The kernel wakes the thread that began to wait last, so one thread
// does the work as long as one suffices, and stays warm; those that nothing wakes for kIdleTime
// end, but for the last few.
//
// Why not an asio::io_context run by several threads: a thread that blocks in a handler would hold
// up what the reactor has given it, and each turn costs a lock and a wake-up more.
// Thread-safety: thread-safe.
class ReaderPool {
 public:
  // A limit that should never be met: calls are bounded by the worker limit and the nesting depth.
  static constexpr size_t kThreadsMax = 8192;

  ReaderPool();
  ~ReaderPool();
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;

  // Starts `idle_threads` threads, and keeps as many when nothing happens. REQUIRES: > 0.
  // Errors: kResourceExhausted - no descriptors or threads are left.
  absl::Status Start(size_t idle_threads);
  // Wakes and joins all threads. Tasks that have not begun are dropped. Not from a pool thread.
  void Stop();
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  // Readable from the beginning of Stop() on: for waits that it shall end.
  int stop_fd() const { return stop_fd_; }

  // Watches `fd`, disarmed. Returns a name for it that is never reused.
  // Errors: kResourceExhausted - the system's limit of watches.
  absl::Status Add(int fd, std::shared_ptr<Readable> readable, uint64_t* id);
  // Ownership: lets go of the Readable. An event that is under way may still reach it.
  void Remove(int fd, uint64_t id);
  void Arm(int fd, uint64_t id);
  void Disarm(int fd, uint64_t id);

  // Runs `task` soon on a pool thread. Another reads meanwhile.
  void Submit(std::function<void()> task);
  // At least one thread waits for events when this returns, or will.
  void EnsureReader();

  size_t threads() const { return thread_count_.load(std::memory_order_relaxed); }

 private:
  void Run();
  // Waits for one event and handles it; false where this thread shall end.
  bool RunOne();
  void RunTask();
  bool MayEnd();
  bool StartThread();
  void Reap();

  const int epoll_fd_;
  const int stop_fd_;
  const int task_fd_;  // an eventfd that counts tasks_
  size_t idle_min_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> idle_{0};  // threads that wait in epoll, or are about to
  std::atomic<size_t> thread_count_{0};

  Mutex mutex_;  // a leaf: nothing else is locked under it
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<Readable>> watched_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::thread::id, std::thread> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_READER_POOL_H_
