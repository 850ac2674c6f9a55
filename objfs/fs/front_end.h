#ifndef ABACUS_OBJFS_FS_FRONT_END_H_
#define ABACUS_OBJFS_FS_FRONT_END_H_

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
// It is made where it is worked for more than kWorksBefore times between two looks, and ended at
// the look that finds no more than that. Thread-safety: thread-safe.
class LazyFrontEnd {
 public:
  static constexpr uint32_t kWorksBefore = 8;

  // `make` may be empty: there is none then.
  explicit LazyFrontEnd(std::function<std::unique_ptr<FrontEnd>()> make) : make_(std::move(make)) {}

  // Work begins; what is returned stays until Leave(). Null: not yet, or none.
  FrontEnd* Enter() {
    if (make_ == nullptr) return nullptr;
    runtime::MutexLock lock(mutex_);
    ++inside_;
    if (++works_ > kWorksBefore && made_ == nullptr) made_ = make_();
    return made_.get();
  }
  void Leave() {
    if (make_ == nullptr) return;
    runtime::MutexLock lock(mutex_);
    --inside_;
  }
  void Look() {
    std::unique_ptr<FrontEnd> ended;  // when the lock is free
    runtime::MutexLock lock(mutex_);
    if (std::exchange(works_, 0) <= kWorksBefore && inside_ == 0) ended = std::move(made_);
  }

 private:
  const std::function<std::unique_ptr<FrontEnd>()> make_;
  runtime::Mutex mutex_;
  uint32_t works_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last look
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
