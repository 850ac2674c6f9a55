#ifndef ABACUS_OBJFS_RAID_ALARM_H_
#define ABACUS_OBJFS_RAID_ALARM_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Calls back when a time has come: for waits that are to end then. One thread, which sleeps until
// the next alarm; it is woken where one is set that comes before.
// Thread-safety: thread-safe. Blocking: no. A call back may not block, nor set or clear alarms.
class Alarm {
 public:
  Alarm() = default;
  ~Alarm();

  // From the call to the destruction: `ring` is called once after `delay`.
  class [[nodiscard]] Set {
   public:
    Set(Alarm& alarm, absl::Duration delay, std::function<void()> ring);
    // When it returns `ring` is not being called and never will be.
    ~Set();
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;

   private:
    Alarm& alarm_;
    std::pair<std::chrono::steady_clock::time_point, uint64_t> key_;
  };

 private:
  using Key = std::pair<std::chrono::steady_clock::time_point, uint64_t>;
  void Work();

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Key, std::function<void()>> set_ ABSL_GUARDED_BY(mutex_);
  // When the thread looks next.
  std::chrono::steady_clock::time_point looks_ ABSL_GUARDED_BY(mutex_);
  std::thread worker_ ABSL_GUARDED_BY(mutex_);  // begun by the first alarm
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_ALARM_H_
