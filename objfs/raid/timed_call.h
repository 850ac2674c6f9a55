#ifndef ABACUS_OBJFS_RAID_TIMED_CALL_H_
#define ABACUS_OBJFS_RAID_TIMED_CALL_H_

#include <atomic>
#include <optional>

#include "absl/time/time.h"
#include "objfs/raid/alarm.h"
#include "runtime/object/ref.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {

// Calls a method of an object, and returns what it answers; nullopt where no answer came for
// `patience`. Nobody hears then what comes of the call: it may be done later, or never. One to an
// object on this node is waited for to its end.
// REQUIRES: `object` refers to one. Blocking: for that time.
template <auto kMethod, typename... Args>
std::optional<typename runtime::TimedBranch<kMethod>::Result> CallWithin(
    Alarm& alarm, absl::Duration patience, const runtime::RefBase& object, const Args&... args) {
  runtime::TimedBranch<kMethod> branch(object, args...);
  std::atomic<bool> is_late{false};
  {
    const Alarm::Set set(alarm, patience, [&] {
      is_late = true;
      branch.Interrupt();
    });
    while (!branch.Answered() && !is_late) branch.Wait();
  }
  if (!branch.Answered()) return std::nullopt;
  return branch.Join();
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_TIMED_CALL_H_
