#include "runtime/object/background.h"

#include <cassert>

#include "runtime/object/invoker.h"

namespace abacus::runtime {

BackgroundScope::BackgroundScope(const RefBase& object)
    : object_(object),
      thread_(ThreadContext::Of(*object.entry()->invoker)),
      outer_slot_(thread_.base_slot()),
      outer_activity_(thread_.activity),
      outer_root_(thread_.root),
      outer_sequence_(thread_.sequence) {
  assert(thread_.depth() == 0 && "background work begins outside of all objects");
  // One activity a thread, whatever it works for: objects remember the last call of each activity.
  if (!thread_.background_activity.valid()) {
    thread_.background_activity = thread_.invoker().NewActivity();
    thread_.background_activity.local |= ActivityId::kBackgroundMark;
  }
  // Before the activity changes: what the thread did until now is charged as what it was.
  thread_.SetBase(object.entry()->slot);
  thread_.SetActivity(thread_.background_activity, thread_.background_activity, 0,
                      thread_.background_sequence);
}

BackgroundScope::~BackgroundScope() {
  thread_.SetBase(outer_slot_);
  thread_.background_activity = thread_.activity;
  thread_.background_sequence = thread_.sequence;
  thread_.SetActivity(outer_activity_, outer_root_, 0, outer_sequence_);
}

}  // namespace abacus::runtime
