#include "runtime/transport/reader_pool.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

constexpr int kIdleTime_ms = 2000;
// Names of the pool's own descriptors in events; those of others are greater.
constexpr uint64_t kStopId = 0;
constexpr uint64_t kTaskId = 1;

void Control(int epoll_fd, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_fd, operation, fd, &event);
}

}  // namespace

ReaderPool::ReaderPool()
    : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      task_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)),
      last_id_(kTaskId) {
  Control(epoll_fd_, EPOLL_CTL_ADD, stop_fd_, EPOLLIN, kStopId);
  Control(epoll_fd_, EPOLL_CTL_ADD, task_fd_, EPOLLIN, kTaskId);
}

ReaderPool::~ReaderPool() {
  Stop();
  for (const int fd : {epoll_fd_, stop_fd_, task_fd_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status ReaderPool::Start(size_t idle_threads) {
  if (epoll_fd_ < 0 || stop_fd_ < 0 || task_fd_ < 0) {
    return absl::ResourceExhaustedError("no descriptors are left for the transport (ulimit -n)");
  }
  idle_min_ = idle_threads;
  for (size_t i = 0; i < idle_threads; ++i) {
    if (!StartThread()) return absl::ResourceExhaustedError("no thread can be started");
  }
  return absl::OkStatus();
}

void ReaderPool::Stop() {
  absl::flat_hash_map<std::thread::id, std::thread> running;
  std::deque<std::function<void()>> tasks;
  {
    MutexLock lock(mutex_);
    stopping_.store(true, std::memory_order_release);
    tasks.swap(tasks_);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof one);
  while (true) {
    {
      MutexLock lock(mutex_);
      running.swap(running_);
    }
    if (running.empty()) break;
    for (auto& [id, thread] : running) thread.join();
    running.clear();
  }
  Reap();
  MutexLock lock(mutex_);
  watched_.clear();
}

absl::Status ReaderPool::Add(int fd, std::shared_ptr<Readable> readable, uint64_t* id) {
  {
    MutexLock lock(mutex_);
    *id = ++last_id_;
    watched_.emplace(*id, std::move(readable));
  }
  epoll_event event{};
  event.events = EPOLLONESHOT;  // and nothing to wait for: disarmed
  event.data.u64 = *id;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  const int error = errno;
  MutexLock lock(mutex_);
  watched_.erase(*id);
  return absl::ErrnoToStatus(error, "cannot watch a socket");
}

void ReaderPool::Remove(int fd, uint64_t id) {
  Control(epoll_fd_, EPOLL_CTL_DEL, fd, 0, id);
  std::shared_ptr<Readable> last;  // destroyed after the lock is dropped
  MutexLock lock(mutex_);
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  last = std::move(found->second);
  watched_.erase(found);
}

void ReaderPool::Arm(int fd, uint64_t id) {
  Control(epoll_fd_, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, id);
}

void ReaderPool::Disarm(int fd, uint64_t id) {
  Control(epoll_fd_, EPOLL_CTL_MOD, fd, EPOLLONESHOT, id);
}

void ReaderPool::Submit(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping()) return;
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(task_fd_, &one, sizeof one);
  EnsureReader();
}

void ReaderPool::EnsureReader() {
  // A thread that has been woken but not run yet still counts as idle. That is no gap: before it
  // blocks it comes here itself, and then it does not count any more.
  if (idle_.load(std::memory_order_seq_cst) == 0 && !stopping()) StartThread();
}

bool ReaderPool::StartThread() {
  Reap();
  MutexLock lock(mutex_);
  if (stopping()) return false;
  if (thread_count_.load(std::memory_order_relaxed) >= kThreadsMax) {
    spdlog::error("transport: {} threads are all busy, no more are started", kThreadsMax);
    return false;
  }
  idle_.fetch_add(1, std::memory_order_seq_cst);
  thread_count_.fetch_add(1, std::memory_order_relaxed);
  try {
    std::thread thread([this] { Run(); });
    const std::thread::id id = thread.get_id();
    running_.emplace(id, std::move(thread));
    return true;
  } catch (const std::system_error& error) {
    idle_.fetch_sub(1, std::memory_order_seq_cst);
    thread_count_.fetch_sub(1, std::memory_order_relaxed);
    spdlog::error("transport: cannot start a thread: {}", error.what());
    return false;
  }
}

void ReaderPool::Reap() {
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

void ReaderPool::Run() {
  while (RunOne()) {
  }
  thread_count_.fetch_sub(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  // Stop() may have taken this thread's handle already, to join it.
  const auto self = running_.find(std::this_thread::get_id());
  if (self == running_.end()) return;
  ended_.push_back(std::move(self->second));
  running_.erase(self);
}

// REQUIRES: this thread counts in idle_; it does not after a false.
bool ReaderPool::RunOne() {
  epoll_event event;
  const int ready = epoll_wait(epoll_fd_, &event, 1, kIdleTime_ms);
  if (stopping()) {
    idle_.fetch_sub(1, std::memory_order_seq_cst);
    return false;
  }
  if (ready == 0) return !MayEnd();
  if (ready < 0) return true;  // EINTR
  idle_.fetch_sub(1, std::memory_order_seq_cst);
  if (event.data.u64 == kTaskId) {
    RunTask();
  } else {
    std::shared_ptr<Readable> readable;
    {
      MutexLock lock(mutex_);
      const auto found = watched_.find(event.data.u64);
      if (found != watched_.end()) readable = found->second;
    }
    if (readable != nullptr) readable->OnReadable();
  }
  idle_.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

void ReaderPool::RunTask() {
  uint64_t one;
  if (read(task_fd_, &one, sizeof one) < 0) return;  // another thread was faster
  std::function<void()> task;
  {
    MutexLock lock(mutex_);
    if (tasks_.empty()) return;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  EnsureReader();  // a task may block
  task();
}

// Leaves the count of idle threads, unless too few would be left.
bool ReaderPool::MayEnd() {
  size_t idle = idle_.load(std::memory_order_seq_cst);
  while (idle > idle_min_) {
    if (idle_.compare_exchange_weak(idle, idle - 1, std::memory_order_seq_cst)) return true;
  }
  return false;
}

}  // namespace abacus::runtime
