#ifndef ABACUS_OBJFS_FS_FRONT_END_H_
#define ABACUS_OBJFS_FS_FRONT_END_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// One open file or directory as the runtime sees it: the root of a graph of its own, whose calls
// are what the objects below it are placed for. How that is done the host knows.
// Thread-safety: thread-safe. Blocking: no.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;
  // What the calling thread calls until End() is this one's work. End() takes what Begin() gave.
  virtual uint32_t Begin() = 0;
  virtual void End(uint32_t outer) = 0;
};

// A front end that is there while it is worth it: most files are opened, read and closed, most
// directories looked into now and then, and each one costs its server a decision at each digest.
// It is made where between two looks it is worked for more than kWorksBefore times, or for longer
// than kWorkedBefore: few works may be slow ones. It is ended at the look that finds neither.
// Thread-safety: thread-safe.
class LazyFrontEnd {
 public:
  static constexpr uint32_t kWorksBefore = 8;
  static constexpr std::chrono::milliseconds kWorkedBefore{100};
  using Clock = std::chrono::steady_clock;

  // `make` may be empty: there is none then.
  explicit LazyFrontEnd(std::function<std::unique_ptr<FrontEnd>()> make,
                        Clock::time_point (*now)() = Clock::now)
      : make_(std::move(make)), now_(now) {}

  // Work begins; what is returned stays until Leave(). Null: not yet, or none.
  FrontEnd* Enter() {
    if (make_ == nullptr) return nullptr;
    runtime::MutexLock lock(mutex_);
    CountTime();
    ++works_;
    ++inside_;
    if (made_ == nullptr && IsWorthIt()) made_ = make_();
    return made_.get();
  }
  void Leave() {
    if (make_ == nullptr) return;
    runtime::MutexLock lock(mutex_);
    CountTime();
    --inside_;
  }
  void Look() {
    std::unique_ptr<FrontEnd> ended;  // when the lock is free
    runtime::MutexLock lock(mutex_);
    CountTime();
    if (!IsWorthIt() && inside_ == 0) ended = std::move(made_);
    works_ = 0;
    worked_ = {};
  }

 private:
  bool IsWorthIt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return works_ > kWorksBefore || worked_ > kWorkedBefore;
  }
  void CountTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Clock::time_point now = now_();
    if (inside_ > 0) worked_ += now - counted_;
    counted_ = now;
  }

  const std::function<std::unique_ptr<FrontEnd>()> make_;
  Clock::time_point (*const now_)();
  runtime::Mutex mutex_;
  // Since the last look; time with anybody inside counts once.
  uint32_t works_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::duration worked_ ABSL_GUARDED_BY(mutex_) = {};
  Clock::time_point counted_ ABSL_GUARDED_BY(mutex_);  // up to when
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<FrontEnd> made_ ABSL_GUARDED_BY(mutex_);
};

// What its thread calls while it lives is a front end's work. Owner-thread.
class FrontEndWork {
 public:
  explicit FrontEndWork(std::shared_ptr<LazyFrontEnd> of) : of_(std::move(of)) {
    if (of_ != nullptr) front_end_ = of_->Enter();
    if (front_end_ != nullptr) outer_ = front_end_->Begin();
  }
  ~FrontEndWork() {
    if (front_end_ != nullptr) front_end_->End(outer_);
    if (of_ != nullptr) of_->Leave();
  }
  FrontEndWork(const FrontEndWork&) = delete;
  FrontEndWork& operator=(const FrontEndWork&) = delete;

 private:
  const std::shared_ptr<LazyFrontEnd> of_;  // stays while it is worked for
  FrontEnd* front_end_ = nullptr;
  uint32_t outer_ = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_FRONT_END_H_
