#ifndef ABACUS_RUNTIME_OBJECT_INVOKER_H_
#define ABACUS_RUNTIME_OBJECT_INVOKER_H_

#include <atomic>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/base/codec.h"
#include "runtime/object/class_info.h"
#include "runtime/object/entry.h"
#include "runtime/object/thread_context.h"

namespace abacus::runtime {

// An invocation that has left this node and is not answered yet. Given up (the answer, when it
// comes, is dropped) when it is deleted unfinished.
class OutgoingCall {
 public:
  virtual ~OutgoingCall() = default;
};

// The way out of a Ref when the straight call does not go: what the binding manager implements, and
// all that object/ knows of it.
//
// Thread-safety: thread-safe. Blocking: as said at each method.
class Invoker {
 public:
  virtual ~Invoker() = default;

  enum class Route {
    kRemote,     // started: Finish() has the answer
    kRunLocal,   // the object is here and open: try the straight call again
    kRunInside,  // the object is here, is being quiesced, and this activity is inside already: run
                 // it now, straight, with the frame pushed; then call LeftInside()
    kFailed,     // see the status
  };

  // Decides where a call goes and starts it where it goes to another node. Blocks while the object
  // is being moved. `encode` is asked for the arguments at most once, where they have to travel.
  // On kRunInside the frame of `entry` is pushed already.
  virtual Route Start(ThreadContext& thread, Entry& entry, MethodId method,
                      absl::FunctionRef<Payload()> encode, std::unique_ptr<OutgoingCall>* call,
                      absl::Status* status) = 0;
  // Blocks until the call is answered: kRemote with `status` and, where it is OK, `result`, whose
  // decoding Decoded() has to follow; or, when the object has come here meanwhile and the call has
  // not run, a route as from Start().
  virtual Route Finish(ThreadContext& thread, OutgoingCall& call, Payload* result,
                       absl::Status* status) = 0;
  // The result of a call that ended kRemote was decoded: what the thread did from Start() to now
  // was for the call to cross the link, and is charged to that edge and no object. Not of failed
  // calls.
  virtual void Decoded(ThreadContext& thread, std::unique_ptr<OutgoingCall> call) = 0;
  virtual void LeftInside(ThreadContext& thread, Entry& entry) = 0;

  // A thread left `entry` while its gate was not open. Never blocks.
  virtual void Left(Entry& entry) = 0;

  // The entry for a rid, with one reference for the caller.
  virtual Entry* Intern(const Rid& rid) = 0;
  // Gives back a reference that may be the last one: counts it down, and ends the entry where it
  // was, with no Intern() in between.
  virtual void Unreferenced(Entry* entry) = 0;

  // A new activity: a console's or front end's own, or a branch of a fork.
  virtual ActivityId NewActivity() = 0;

  ThreadRegistry& threads() { return threads_; }
  // Whether calls are timed and counted. May be switched at any time.
  bool accounting() const { return accounting_.load(std::memory_order_relaxed); }
  void set_accounting(bool on) { accounting_.store(on, std::memory_order_relaxed); }

 private:
  ThreadRegistry threads_;
  std::atomic<bool> accounting_{true};
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_INVOKER_H_
