#ifndef ABACUS_OBJFS_REPLICA_SLOW_DISK_H_
#define ABACUS_OBJFS_REPLICA_SLOW_DISK_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Whether reads are to go round a disk, or a way to one, as it is slow or stands still.
//
// One that is late makes it slow, by when it ends or while it lasts. Then no other read begins
// there for `hold`, and after that one, which tells whether it is slow still. What is in memory is
// read from a slow disk in no time, too: so each time that it is found slow again `hold` is twice
// as long, up to `hold_max`, until it was not slow for as long as that. Time is an argument.
// Thread-safety: thread-safe. Blocking: no.
class SlowDisk {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    // A read of no bytes is late after this, and one of each 128 KiB more after so much more.
    absl::Duration late = absl::Milliseconds(50);
    absl::Duration hold = absl::Seconds(1);
    absl::Duration hold_max = absl::Seconds(8);
  };

  explicit SlowDisk(Options options) : options_(options) {}

  // A read that is under way.
  struct Reading {
    Time begun;
    absl::Duration late;  // it is after this
    bool tries = false;   // whether a slow disk is slow still
  };
  using Ticket = std::list<Reading>::iterator;

  // A read of `bytes` begins there: Ended() has to follow. nullopt: it is to be made elsewhere.
  std::optional<Ticket> Begin(uint64_t bytes, Time now);
  // The same, where it could not be made elsewhere.
  Ticket BeginAnyway(uint64_t bytes, Time now);

  enum class Outcome : uint8_t {
    kBytes,    // came
    kNothing,  // came: that it was in time tells nothing
    kNoWay,    // there: as if it had been late
  };
  void Ended(Ticket ticket, Outcome outcome, Time now);

  // Whether one that has not ended is late by now.
  static bool IsLate(const Reading& reading, Time now) {
    return absl::FromChrono(now - reading.begun) > reading.late;
  }

 private:
  void FindSlow(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ticket Add(uint64_t bytes, Time now, bool tries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  runtime::Mutex mutex_;
  std::list<Reading> readings_ ABSL_GUARDED_BY(mutex_);
  bool is_slow_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_tried_ ABSL_GUARDED_BY(mutex_) = false;  // a read is under way that tells
  std::chrono::nanoseconds hold_ ABSL_GUARDED_BY(mutex_){0};
  Time until_ ABSL_GUARDED_BY(mutex_);  // it is not tried before, while it is slow
  Time found_ ABSL_GUARDED_BY(mutex_);  // slow, the last time
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_SLOW_DISK_H_
