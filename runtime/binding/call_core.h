#ifndef ABACUS_RUNTIME_BINDING_CALL_CORE_H_
#define ABACUS_RUNTIME_BINDING_CALL_CORE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "runtime/binding/core_types.h"

namespace abacus::runtime {

// What CallCore::Start() says.
enum class CallStarted {
  kRunLocal,       // the object is here and its gate is open
  kRunInside,      // the object is here, is being moved, and the activity is inside: admitted; the
                   // caller must call LeaveInside()
  kNeedArguments,  // it has to travel: encode the arguments and start again
  kWaiting,        // wait until it is woken, then look at call.state
  kFailed,         // call.reply has the error
};

// The invocation half of the protocol core: which objects are here, where the others are, which
// calls are out, which have been run.
//
// Invariants (tested by runtime/migration/core_simulation_test.cc under message loss, duplication,
// reordering, delay, partitions and crashes):
// 1. A call is run at most once by the surviving copy of its object, and in the order of its
//    activity.
// 2. Every call ends: with its answer, or with a typed error once a process that had it is dead.
//    kOutcomeUnknown: it ran once or not at all. kObjectLost, kObjectNotFound, kNodeUnreachable,
//    kNestingTooDeep and kDuplicateEvicted: it did not run, and will not. (A transport that
//    duplicates frames can break the second promise: a copy may come where its object has come
//    to since.)
// 3. A stale hint costs a redirection and nothing else.
//
// Thread-compatible: one lock of the owner protects it.
template <class Policy>
class CallCore {
 public:
  CallCore(NodeInstance self, const CoreOptions& options, CoreEnvironment* environment)
      : self_(self),
        options_(options),
        environment_(environment),
        locations_(self, options.hints_max) {}

  // -- objects of this node ------------------------------------------------------------------

  // Names a new object whose home is this node. It is active at once.
  ObjectState& Create(void* host, bool anchored);
  // Enters an object under a name that was given elsewhere (a restored one).
  ObjectState& Enter(const Rid& rid, void* host, uint64_t epoch, ObjectPhase phase);
  ObjectState* Find(const Rid& rid);
  // Ends an object that is here: closes its gate; when it is idle, MaybeDestroy() removes it.
  // Errors: kObjectNotFound where it is not here; kUnavailable while it is being moved.
  absl::Status Destroy(const Rid& rid, Actions& out);
  // Removes it if it is to be destroyed, no admitted call is inside and `idle` says the same of
  // co-located ones.
  bool MaybeDestroy(const Rid& rid, bool idle, Actions& out);
  // Takes an object out of the table. What waited for it is answered: with its new place where it
  // has one, else by its home.
  void Remove(ObjectState& object, std::optional<LocationHint> now_at, Nanos now, Actions& out);
  // Admits everybody again, those who waited first.
  void Open(ObjectState& object, Nanos now, Actions& out);

  // -- calls of this node's threads ----------------------------------------------------------

  using Started = CallStarted;
  Started Start(PendingCall& call, bool has_arguments, Nanos now, Actions& out);
  void LeaveInside(const Rid& rid, const ActivityId& root, Actions& out);
  // The thread does not want the answer any more. Returns false where it has been woken already.
  // The activity must make no further call: what this one calls has counted on, and nobody will
  // say how far. (A branch of a fork, which is an activity of its own, ends with it.)
  bool Abandon(PendingCall& call);

  // -- calls of other nodes ------------------------------------------------------------------

  // A frame of a type below kFirstOfMigration.
  void OnFrame(NodeInstance from, Frame frame, Nanos now, Actions& out);
  // The method of an Execute action has returned. `reply` has status, sequence and residence.
  void FinishExecution(NodeInstance from, const CallMessage& message, ReplyMessage reply,
                       const Payload& result, Actions& out);

  // -- the others ----------------------------------------------------------------------------

  void OnReconnected(NodeInstance peer, Nanos now, Actions& out);
  // The process is dead for sure. Rows that it hosted are the migration core's to decide.
  void OnPeerDead(NodeInstance peer, Nanos now, Actions& out);
  bool IsDead(NodeInstance instance) const { return dead_.contains(instance); }
  // The node ends: every call of its threads fails with `status`.
  void FailAll(const absl::Status& status, Actions& out);
  // The home of an object that is here is dead: the object goes when its grace time is over.
  void NoteOrphan(ObjectState& object, Nanos now);
  // The only copy is gone (called at the home).
  void MarkLost(const Rid& rid, Nanos now, Actions& out);
  void Tick(Nanos now, Actions& out);

  // Whether an activity is inside one of the objects.
  bool Inside(const std::vector<ObjectState*>& objects, const ActivityId& root) const;
  // Calls of this node's activities that wait for sets being moved, here or elsewhere.
  template <typename Visit>
  void ForEachParked(Visit visit) const {
    for (const auto& [id, call] : pending_) {
      if (call->parked_behind.valid()) visit(*call);
    }
  }

  NodeInstance self() const { return self_; }
  const CoreOptions& options() const { return options_; }
  CoreEnvironment& environment() { return *environment_; }
  LocationTable& locations() { return locations_; }
  CoreCounters& counters() { return counters_; }
  size_t objects() const { return objects_.size(); }
  size_t pending() const { return pending_.size(); }
  size_t running() const { return running_.size(); }
  size_t destroyed() const { return destroyed_.size(); }
  template <typename Visit>
  void ForEachObject(Visit visit) {
    for (auto& [rid, object] : objects_) visit(*object);
  }

 private:
  struct Running {
    NodeInstance from;
    Rid rid;
    ActivityId root;
  };

  // An object that was destroyed here and whose home has not said that it knows.
  struct Gone {
    uint64_t epoch = 0;
    Nanos due_ns = 0;
  };

  DedupTable& DedupOf(ObjectState& object);
  ObjectState::Waiting& WaitingOf(ObjectState& object);

  // Where to send a call first: the host that is known, else the home; not valid where neither is
  // to be had, and `error` says why.
  NodeInstance Destination(PendingCall& call, absl::Status& error);
  // Sends a call to where its object should be, or wakes its thread where that is here.
  void Route(PendingCall& call, Nanos now, Actions& out);
  void Transmit(PendingCall& call, Nanos now, Actions& out);
  void BackOff(PendingCall& call, Nanos now);
  void Fail(PendingCall& call, const absl::Status& status, Actions& out);
  uint64_t Jump(uint64_t sequence);
  void Wake(PendingCall& call, PendingCall::State state, Actions& out);
  PendingCall* FindPending(const CallId& id);

  void OnCall(NodeInstance from, Frame frame, Nanos now, Actions& out);
  void Consider(ObjectState& object, ParkedCall call, Nanos now, Actions& out);
  void Park(ObjectState& object, ParkedCall call, Actions& out);
  void Run(ObjectState& object, ParkedCall call, Actions& out);
  void AnswerElsewhere(NodeInstance from, const Rid& rid, const CallId& id, Actions& out);
  void OnReply(NodeInstance from, Frame frame, Nanos now, Actions& out);
  void OnRedirect(NodeInstance from, const RedirectMessage& message, Nanos now, Actions& out);
  void OnProbe(NodeInstance from, const CallStateMessage& message, Actions& out);
  void DestroyOrphans(Nanos now, Actions& out);
  void OnParked(const ParkedMessage& message, Actions& out);
  void NoteParked(PendingCall& call, const Rid& lowest, Actions& out);
  void ReplyWith(NodeInstance from, const Rid& rid, const CallId& id, const absl::Status& status,
                 Actions& out);
  void SendKept(NodeInstance from, const ObjectState& object, const CallId& id, Actions& out);
  void TakeAcks(const std::vector<AckedCall>& acked);
  template <typename Message>
  void Send(NodeInstance to, Lane lane, MessageType type, const Message& message, Actions& out) {
    out.sends.push_back({to, lane, MakeFrame(type, message)});
  }

  const NodeInstance self_;
  const CoreOptions options_;
  CoreEnvironment* const environment_;
  LocationTable locations_;
  absl::flat_hash_map<Rid, std::unique_ptr<ObjectState>> objects_;
  absl::flat_hash_map<CallId, PendingCall*> pending_;
  absl::flat_hash_map<CallId, Running> running_;
  absl::flat_hash_map<NodeInstance, std::vector<AckedCall>> acks_;
  std::map<Rid, Gone> destroyed_;
  std::set<std::pair<Nanos, Rid>> orphans_;  // and when each is to go
  absl::flat_hash_set<NodeInstance> dead_;
  CoreCounters counters_;
  uint64_t last_local_ = 0;
  uint64_t last_issue_ = 0;
  uint64_t jumps_ = 0;
};

extern template class CallCore<FaithfulPolicy>;

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_CALL_CORE_H_
