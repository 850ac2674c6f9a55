#ifndef ABACUS_RUNTIME_OBJECT_ENTRY_H_
#define ABACUS_RUNTIME_OBJECT_ENTRY_H_

// What a node keeps for an object that it hosts or holds a reference to. An object's state lives
// here and not in the object, so that it can be asked while the object is absent.

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {

class Invoker;
class MobileObject;
struct ClassInfo;

// Whether a co-located call may go straight in. Everything but kOpen means "ask the invoker".
enum class Gate : uint32_t {
  kAbsent,  // the object is not here, or not admitting yet
  kOpen,    // the object is here and admits everybody
  kClosed,  // the object is here and is being quiesced
};

// The turn of a class whose objects take one activity at a time. What the call inside leads to may
// enter again (a call-back, by itself or by a branch that it forked); a branch that runs beside it
// may not. Thread-safety: thread-safe. Blocking: Enter() waits for the turn.
class Turn {
 public:
  // An activity, and how deep it is in calls with this one.
  struct Caller {
    ActivityId activity;
    uint32_t level = 0;
  };
  // `lineage`: of the caller's activity, where that is a branch.
  void Enter(const Caller& caller, const Lineage& lineage);
  void Leave();

 private:
  bool MayEnter(const Caller& caller, const Lineage& lineage) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar left_;
  std::vector<Caller> holders_ ABSL_GUARDED_BY(mutex_);  // each within the one before
};

// Invariants:
// 1. `object` may be used by a thread that has published its frame and then read kOpen from `gate`,
//    until it takes the frame back; or by one that the invoker admitted (kRunInside).
// 2. `gate` changes only under the lock of the protocol core that decides it.
// Ownership: counted by `references` (each Ref holds one) and by the object's presence.
struct Entry {
  std::atomic<Gate> gate{Gate::kAbsent};
  uint32_t slot = 0;  // dense name of the object on this node, for accounts; never reused
  MobileObject* object = nullptr;
  Invoker* invoker = nullptr;
  Turn* turn = nullptr;  // only where the class takes one activity at a time
  const ClassInfo* info = nullptr;
  std::atomic<uint32_t> references{0};
  Rid rid;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_ENTRY_H_
