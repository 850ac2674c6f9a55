#ifndef ABACUS_RUNTIME_BINDING_CALL_CORE_INL_H_
#define ABACUS_RUNTIME_BINDING_CALL_CORE_INL_H_

// The bodies of CallCore, for call_core.cc and for the tests that build it with broken policies.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/binding/call_core.h"

namespace abacus::runtime {

// Acks wait for a frame to ride on; this many are sent without one.
inline constexpr size_t kAcksPerFrame = 16;
// A call that is sent on this often in a row goes by the clock from then on: two nodes that point
// at each other must not keep the network busy.
inline constexpr uint32_t kRedirectsAtOnce = 4;
// More than an activity can have counted on a node that died with its call: the counter jumps over
// it.
inline constexpr uint64_t kSequenceJump = uint64_t{1} << 40;

// What is collected from a hash map is put in order before anything is done with it: a run of the
// simulator must not depend on addresses.
inline void SortById(std::vector<PendingCall*>& calls) {
  std::sort(calls.begin(), calls.end(),
            [](const PendingCall* a, const PendingCall* b) { return a->id < b->id; });
}
template <typename Key, typename Value>
void SortById(std::vector<std::pair<Key, Value>>& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
}

inline absl::Status DoesNotExist(const Rid& rid) {
  return MakeError(ErrorKind::kObjectNotFound,
                   absl::StrCat("object ", rid.ToString(), " does not exist (any more)"));
}

// kDoneNoResult; or kOlder, where somebody still waits although its activity has gone on: a call of
// a method whose own caller has lost it.
inline absl::Status NoResult(DedupTable::Verdict verdict) {
  return MakeError(ErrorKind::kOutcomeUnknown,
                   verdict == DedupTable::Verdict::kOlder
                       ? "a later call of the same activity has come first"
                       : "the call ran once; its result is not kept any more");
}

// -- objects of this node -----------------------------------------------------------------------

template <class Policy>
ObjectState& CallCore<Policy>::Create(void* host, bool anchored) {
  const Rid rid{self_, ++last_local_};
  locations_.AddRow(rid);
  ObjectState& object = Enter(rid, host, 1, ObjectPhase::kActive);
  object.anchored = anchored;
  return object;
}

template <class Policy>
ObjectState& CallCore<Policy>::Enter(const Rid& rid, void* host, uint64_t epoch,
                                     ObjectPhase phase) {
  auto& slot = objects_[rid];
  slot = std::make_unique<ObjectState>();
  slot->rid = rid;
  slot->host = host;
  slot->epoch = epoch;
  slot->phase = phase;
  return *slot;
}

template <class Policy>
ObjectState* CallCore<Policy>::Find(const Rid& rid) {
  const auto it = objects_.find(rid);
  return it == objects_.end() ? nullptr : it->second.get();
}

template <class Policy>
absl::Status CallCore<Policy>::Destroy(const Rid& rid, Actions& out) {
  ObjectState* object = Find(rid);
  if (object == nullptr || !object->hosted()) {
    return MakeError(ErrorKind::kObjectNotFound,
                     absl::StrCat("object ", rid.ToString(), " is not on this node"));
  }
  if (object->phase != ObjectPhase::kActive) {
    return MakeError(ErrorKind::kNodeUnreachable,
                     absl::StrCat("object ", rid.ToString(), " is being moved; try again"));
  }
  object->destroying = true;
  environment_->SetGate(*object, Gate::kClosed);
  out.check_idle.push_back(rid);
  return absl::OkStatus();
}

template <class Policy>
bool CallCore<Policy>::MaybeDestroy(const Rid& rid, bool idle, Actions& out) {
  ObjectState* object = Find(rid);
  if (object == nullptr || !object->destroying || !idle || !object->inside.empty()) return false;
  if (rid.home == self_) {
    locations_.EraseRow(rid);
  } else if (!IsDead(rid.home)) {
    // Repeated until the home has it: a row of an object that is no more would send its callers
    // here for ever.
    destroyed_[rid] = {object->epoch, 0};
    Send(rid.home, Lane::kRequest, MessageType::kDestroyed, DestroyedMessage{rid, object->epoch},
         out);
  }
  out.destroys.push_back({rid, object->host});
  Remove(*object, std::nullopt, 0, out);
  return true;
}

template <class Policy>
void CallCore<Policy>::Remove(ObjectState& object, std::optional<LocationHint> now_at, Nanos now,
                              Actions& out) {
  environment_->SetGate(object, Gate::kAbsent);
  const Rid rid = object.rid;
  const std::unique_ptr<ObjectState> removed = std::move(objects_.at(rid));
  objects_.erase(rid);
  if (now_at.has_value()) locations_.Learn(rid, now_at->host, now_at->epoch);
  if (removed->waiting == nullptr) return;
  for (const ParkedCall& call : removed->waiting->remote) {
    AnswerElsewhere(call.from, rid, call.message.id, out);
  }
  for (PendingCall* call : removed->waiting->local) Wake(*call, PendingCall::State::kRetry, out);
  (void)now;
}

template <class Policy>
void CallCore<Policy>::Open(ObjectState& object, Nanos now, Actions& out) {
  const bool told = object.moving != nullptr;  // the callers of those who wait
  object.phase = ObjectPhase::kActive;
  object.moving = nullptr;
  environment_->SetGate(object, Gate::kOpen);
  if (object.waiting == nullptr) return;
  const auto waiting = std::move(object.waiting);
  for (ParkedCall& call : waiting->remote) {
    const CallMessage& m = call.message;
    if (told) {
      Send(call.from, Lane::kReply, MessageType::kParked, ParkedMessage{m.rid, m.id, m.root, Rid()},
           out);
    }
    Consider(object, std::move(call), now, out);
  }
  for (PendingCall* call : waiting->local) Wake(*call, PendingCall::State::kRetry, out);
}

template <class Policy>
DedupTable& CallCore<Policy>::DedupOf(ObjectState& object) {
  if (object.dedup == nullptr) object.dedup = std::make_unique<DedupTable>();
  return *object.dedup;
}

template <class Policy>
ObjectState::Waiting& CallCore<Policy>::WaitingOf(ObjectState& object) {
  if (object.waiting == nullptr) object.waiting = std::make_unique<ObjectState::Waiting>();
  return *object.waiting;
}

template <class Policy>
bool CallCore<Policy>::Inside(const std::vector<ObjectState*>& objects,
                              const ActivityId& root) const {
  for (const ObjectState* object : objects) {
    if (std::find(object->inside.begin(), object->inside.end(), root) != object->inside.end()) {
      return true;
    }
  }
  return environment_->LocalInside(objects, root);
}

// -- calls of this node's threads ---------------------------------------------------------------

template <class Policy>
typename CallCore<Policy>::Started CallCore<Policy>::Start(PendingCall& call, bool has_arguments,
                                                           Nanos now, Actions& out) {
  ObjectState* object = Find(call.rid);
  if (object != nullptr && object->destroying) {
    call.reply.SetStatus(DoesNotExist(call.rid));
    call.reply.next_sequence = call.id.sequence;
    return Started::kFailed;
  }
  if (object != nullptr && object->hosted()) {
    if (object->phase == ObjectPhase::kActive) return Started::kRunLocal;
    const bool insider = Policy::kAdmitInsiders && object->phase == ObjectPhase::kQuiescing &&
                         Inside(object->moving->members, call.root);
    if (insider || !Policy::kParkWhileQuiescing) {
      object->inside.push_back(call.root);
      return Started::kRunInside;
    }
    ++counters_.parked;
    pending_[call.id] = &call;
    call.state = PendingCall::State::kParkedHere;
    WaitingOf(*object).local.push_back(&call);
    NoteParked(call, object->moving->lowest, out);
    return Started::kWaiting;
  }
  absl::Status error;
  if (!Destination(call, error).valid()) {
    call.reply.SetStatus(error);
    call.reply.next_sequence = call.id.sequence;
    return Started::kFailed;
  }
  if (!has_arguments) return Started::kNeedArguments;
  pending_[call.id] = &call;
  Route(call, now, out);
  return Started::kWaiting;
}

template <class Policy>
void CallCore<Policy>::LeaveInside(const Rid& rid, const ActivityId& root, Actions& out) {
  ObjectState* object = Find(rid);
  if (object == nullptr) return;
  const auto it = std::find(object->inside.begin(), object->inside.end(), root);
  if (it != object->inside.end()) object->inside.erase(it);
  if (object->moving != nullptr) out.check_drained.push_back(object->moving->id);
  if (object->destroying) out.check_idle.push_back(rid);
}

template <class Policy>
bool CallCore<Policy>::Abandon(PendingCall& call) {
  if (pending_.erase(call.id) == 0) return false;
  if (ObjectState* object = Find(call.rid); object != nullptr && object->waiting != nullptr) {
    std::erase(object->waiting->local, &call);
  }
  return true;
}

template <class Policy>
NodeInstance CallCore<Policy>::Destination(PendingCall& call, absl::Status& error) {
  const Rid& rid = call.rid;
  if (rid.home == self_) {
    const LocationRow* row = locations_.FindRow(rid);
    if (row == nullptr) {
      error = DoesNotExist(rid);
      return {};
    }
    if (row->lost) {
      error = MakeError(ErrorKind::kObjectLost,
                        absl::StrCat("object ", rid.ToString(), " was lost with its host ",
                                     row->host.ToString()));
      return {};
    }
    call.hint_epoch = row->epoch;
    return row->host;
  }
  if (destroyed_.contains(rid)) {
    error = DoesNotExist(rid);
    return {};
  }
  if (const auto hint = locations_.Find(rid); hint.has_value()) {
    if (!IsDead(hint->host)) {
      call.hint_epoch = hint->epoch;
      return hint->host;
    }
    locations_.Forget(rid);
  }
  if (IsDead(rid.home)) {
    error = MakeError(ErrorKind::kNodeUnreachable,
                      absl::StrCat("the home node ", rid.home.ToString(), " of object ",
                                   rid.ToString(), " is dead and its place is not known here"));
    return {};
  }
  call.hint_epoch = 0;
  return rid.home;
}

template <class Policy>
void CallCore<Policy>::Route(PendingCall& call, Nanos now, Actions& out) {
  if (ObjectState* object = Find(call.rid); object != nullptr && object->hosted()) {
    // The object came here. A call that was never sent runs straight; for one that was, the
    // object's record decides whether it runs, and must know of it when it does.
    if (call.transmissions == 0) return Wake(call, PendingCall::State::kRetry, out);
    call.destination = self_;
    return Transmit(call, now, out);
  }
  absl::Status error;
  const NodeInstance destination = Destination(call, error);
  if (!destination.valid()) return Fail(call, error, out);
  // The row says "here", or a process that is dead: what becomes of the object is being decided.
  if (destination == self_ || IsDead(destination)) return BackOff(call, now);
  call.destination = destination;
  Transmit(call, now, out);
}

template <class Policy>
void CallCore<Policy>::Transmit(PendingCall& call, Nanos now, Actions& out) {
  if (call.issue == 0) call.issue = ++last_issue_;
  CallMessage message{.rid = call.rid,
                      .id = call.id,
                      .root = call.root,
                      .method = call.method,
                      .issue = call.issue,
                      .hint_epoch = call.hint_epoch,
                      .dead_host = call.dead_host,
                      .lineage = call.lineage};
  if (const auto acks = acks_.find(call.destination); acks != acks_.end()) {
    message.acked = std::move(acks->second);
    acks_.erase(acks);
  }
  call.state = PendingCall::State::kSent;
  call.interval_ns = options_.probe_interval_ns;
  call.due_ns = now + call.interval_ns;
  NoteParked(call, Rid(), out);
  ++(call.transmissions == 0 ? counters_.calls_sent : counters_.resent);
  if (++call.transmissions > 1) out.rerouted.push_back(&call);
  out.sends.push_back(
      {call.destination, Lane::kRequest, MakeFrame(MessageType::kCall, message, call.arguments)});
}

template <class Policy>
void CallCore<Policy>::BackOff(PendingCall& call, Nanos now) {
  call.state = PendingCall::State::kBackingOff;
  call.backoff_ns = std::clamp(call.backoff_ns * 2, options_.retry_min_ns, options_.retry_max_ns);
  call.due_ns = now + call.backoff_ns;
}

template <class Policy>
void CallCore<Policy>::Fail(PendingCall& call, const absl::Status& status, Actions& out) {
  const bool may_have_run = call.dead_host.valid() || call.may_have_run;
  if (may_have_run && Policy::kReportUnknownOutcome) {
    ++counters_.outcome_unknown;
    const std::string why =
        call.dead_host.valid()
            ? absl::StrCat("node ", call.dead_host.ToString(), " died with the call to object ",
                           call.rid.ToString(), " inside: it ran once or not at all")
            : absl::StrCat("the call was sent and not answered, so that it may have run; then: ",
                           status.message());
    call.reply.SetStatus(MakeError(ErrorKind::kOutcomeUnknown, why));
  } else {
    call.reply.SetStatus(status);
  }
  call.reply.next_sequence = call.transmissions == 0 ? call.id.sequence : Jump(call.id.sequence);
  Wake(call, PendingCall::State::kAnswered, out);
}

// A sequence beyond those of calls that an activity may still be making where it was lost. Two lost
// parts of one activity must not meet beyond the jump either, so it is of no fixed width.
template <class Policy>
uint64_t CallCore<Policy>::Jump(uint64_t sequence) {
  uint64_t width = (uint64_t{self_.node} << 32 | self_.incarnation) + ++jumps_;
  width *= 0x9e3779b97f4a7c15;
  width = (width ^ (width >> 29)) * 0xbf58476d1ce4e5b9;
  return sequence + kSequenceJump + (width ^ (width >> 32)) % kSequenceJump;
}

template <class Policy>
void CallCore<Policy>::Wake(PendingCall& call, PendingCall::State state, Actions& out) {
  pending_.erase(call.id);
  call.state = state;
  NoteParked(call, Rid(), out);
  out.wakes.push_back(&call);
}

template <class Policy>
PendingCall* CallCore<Policy>::FindPending(const CallId& id) {
  const auto it = pending_.find(id);
  return it == pending_.end() ? nullptr : it->second;
}

// -- the others ---------------------------------------------------------------------------------

template <class Policy>
void CallCore<Policy>::OnReconnected(NodeInstance peer, Nanos now, Actions& out) {
  (void)out;
  for (auto& [id, call] : pending_) {
    if (call->state == PendingCall::State::kSent && call->destination == peer) call->due_ns = now;
  }
}

template <class Policy>
void CallCore<Policy>::OnPeerDead(NodeInstance peer, Nanos now, Actions& out) {
  if (peer == self_ || !dead_.insert(peer).second) return;
  locations_.ForgetHost(peer);
  acks_.erase(peer);
  std::erase_if(destroyed_, [peer](const auto& gone) { return gone.first.home == peer; });
  for (auto& [rid, object] : objects_) {
    if (rid.home == peer && object->hosted()) NoteOrphan(*object, now);
    if (object->waiting == nullptr) continue;
    std::erase_if(object->waiting->remote,
                  [peer](const ParkedCall& call) { return call.from == peer; });
  }
  std::vector<PendingCall*> had;
  for (auto& [id, call] : pending_) {
    if (call->state == PendingCall::State::kSent && call->destination == peer) had.push_back(call);
  }
  SortById(had);
  for (PendingCall* call : had) {
    call->dead_host = peer;
    // The object may have left before its host died, or have been restored elsewhere: the home
    // knows. A resent call finds the object's record of what it has run.
    Route(*call, now, out);
  }
}

template <class Policy>
void CallCore<Policy>::FailAll(const absl::Status& status, Actions& out) {
  while (!pending_.empty()) {
    PendingCall& call = *pending_.begin()->second;
    Abandon(call);
    Fail(call, status, out);
  }
}

template <class Policy>
void CallCore<Policy>::MarkLost(const Rid& rid, Nanos now, Actions& out) {
  LocationRow* row = locations_.FindRow(rid);
  if (row == nullptr || row->lost) return;
  row->lost = true;
  row->intent = MigrationId();
  ++counters_.objects_lost;
  std::vector<PendingCall*> waiting;
  for (auto& [id, call] : pending_) {
    if (call->rid == rid && call->state == PendingCall::State::kBackingOff) waiting.push_back(call);
  }
  SortById(waiting);
  for (PendingCall* call : waiting) Route(*call, now, out);
}

template <class Policy>
void CallCore<Policy>::Tick(Nanos now, Actions& out) {
  std::vector<PendingCall*> due;
  for (auto& [id, call] : pending_) {
    if (call->state != PendingCall::State::kParkedHere && call->due_ns <= now) due.push_back(call);
  }
  SortById(due);
  for (PendingCall* call : due) {
    if (call->state == PendingCall::State::kBackingOff) {
      Route(*call, now, out);
    } else if (call->state == PendingCall::State::kSent) {
      ++counters_.probes;
      call->interval_ns = std::min(call->interval_ns * 2, 8 * options_.probe_interval_ns);
      call->due_ns = now + call->interval_ns;
      call->may_have_run = true;  // from now on "not here" may be the answer to the probe
      Send(call->destination, Lane::kRequest, MessageType::kProbe,
           CallStateMessage{call->rid, call->id}, out);
    }
  }
  std::vector<std::pair<NodeInstance, std::vector<AckedCall>>> acks(
      std::make_move_iterator(acks_.begin()), std::make_move_iterator(acks_.end()));
  acks_.clear();
  SortById(acks);
  for (auto& [peer, acked] : acks) {
    Send(peer, Lane::kRequest, MessageType::kAck, AckMessage{std::move(acked)}, out);
  }
  for (auto& [rid, gone] : destroyed_) {
    if (gone.due_ns > now) continue;
    if (gone.due_ns != 0) {
      Send(rid.home, Lane::kRequest, MessageType::kDestroyed, DestroyedMessage{rid, gone.epoch},
           out);
    }
    gone.due_ns = now + options_.probe_interval_ns;
  }
  DestroyOrphans(now, out);
}

// Objects whose home died live on for a grace time; those that are being moved, until that is over.
template <class Policy>
void CallCore<Policy>::DestroyOrphans(Nanos now, Actions& out) {
  while (!orphans_.empty() && orphans_.begin()->first <= now) {
    const Rid rid = orphans_.begin()->second;
    orphans_.erase(orphans_.begin());
    const ObjectState* object = Find(rid);
    if (object == nullptr || !object->hosted() || object->destroying) continue;
    if (Destroy(rid, out).ok()) {
      ++counters_.orphans_destroyed;
    } else {
      orphans_.emplace(now + options_.probe_interval_ns, rid);
    }
  }
}

template <class Policy>
void CallCore<Policy>::NoteOrphan(ObjectState& object, Nanos now) {
  orphans_.emplace(now + options_.orphan_grace_ns, object.rid);
}

}  // namespace abacus::runtime

#include "runtime/binding/call_core_remote_inl.h"

#endif  // ABACUS_RUNTIME_BINDING_CALL_CORE_INL_H_
