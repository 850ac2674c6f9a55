#ifndef ABACUS_OBJFS_RAID_RANGE_TURNS_H_
#define ABACUS_OBJFS_RAID_RANGE_TURNS_H_

#include <cstdint>
#include <list>

#include "objfs/raid/stripe_set.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Turns over runs of stripes: a call takes its whole run in one step, waits for those before it
// that it does not get on with, and goes in the order of arrival, readers together. So calls cannot
// wait for each other in a circle, and nobody waits for ever.
// Thread-safety: thread-safe. No Mutex is held while a turn is had, so that calls may be made.
class RangeTurns {
  struct Entry {
    StripeRun run;
    bool exclusive;
  };

 public:
  enum class Kind : uint8_t { kShared, kExclusive };

  // A turn ends with the object. REQUIRES: the turns outlive it.
  class [[nodiscard]] Turn {
   public:
    Turn(RangeTurns& turns, StripeRun run, Kind kind);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    RangeTurns& turns_;
    std::list<Entry>::iterator entry_;
  };

 private:
  bool First(std::list<Entry>::const_iterator entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_RANGE_TURNS_H_
