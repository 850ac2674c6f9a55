#ifndef ABACUS_RUNTIME_OBJECT_BACKGROUND_H_
#define ABACUS_RUNTIME_OBJECT_BACKGROUND_H_

#include "runtime/object/ref.h"

namespace abacus::runtime {

// Lets the calling thread work for an object in the background while the scope lives: read-ahead,
// write-back, a scrub. What the thread uses is charged to the object, and what it calls to those
// objects, but kept apart from the console's activity: it makes load and is in no response time
// (see placement/statistics.h). The calls are an activity of their own on every node that they
// reach.
//
// The scope is no call: the object may be moved away meanwhile. What touches its state goes through
// a call of one of its methods, which finds it wherever it is.
//
//   // On a thread of the cache's object manager:
//   BackgroundScope scope(cache.base());
//   absl::Status status = cache->FillAhead(offset);
//
// REQUIRES: the calling thread is inside no object; `object` refers to one.
// Thread-safety: owner-thread, the one that constructed it. Blocking: no.
// Source: ours; the paper (5.3) knows consoles' activities only.
class BackgroundScope {
 public:
  explicit BackgroundScope(const RefBase& object);
  ~BackgroundScope();
  BackgroundScope(const BackgroundScope&) = delete;
  BackgroundScope& operator=(const BackgroundScope&) = delete;

 private:
  const RefBase object_;
  ThreadContext& thread_;
  const uint32_t outer_slot_;
  const ActivityId outer_activity_;
  const ActivityId outer_root_;
  const uint64_t outer_sequence_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_BACKGROUND_H_
