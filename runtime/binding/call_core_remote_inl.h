#ifndef ABACUS_RUNTIME_BINDING_CALL_CORE_REMOTE_INL_H_
#define ABACUS_RUNTIME_BINDING_CALL_CORE_REMOTE_INL_H_

// The part of CallCore that answers other nodes. Included by call_core_inl.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/binding/call_core_inl.h"

namespace abacus::runtime {

// -- calls of other nodes -----------------------------------------------------------------------

template <class Policy>
void CallCore<Policy>::OnFrame(NodeInstance from, Frame frame, Nanos now, Actions& out) {
  if (Policy::kFenceTheDead && IsDead(from)) {
    ++counters_.from_the_dead;
    return;
  }
  const auto parsed = [&]<typename Message>(std::type_identity<Message>, auto handle) {
    absl::StatusOr<Message> message = ParseFrame<Message>(frame);
    if (message.ok()) {
      handle(*message);
    } else {
      ++counters_.bad_frames;
    }
  };
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kCall:
      return OnCall(from, std::move(frame), now, out);
    case MessageType::kReply:
      return OnReply(from, std::move(frame), now, out);
    case MessageType::kRedirect:
      return parsed(std::type_identity<RedirectMessage>(),
                    [&](const auto& message) { OnRedirect(from, message, now, out); });
    case MessageType::kProbe:
      return parsed(std::type_identity<CallStateMessage>(),
                    [&](const auto& message) { OnProbe(from, message, out); });
    case MessageType::kNotSeen:
      return parsed(std::type_identity<CallStateMessage>(), [&](const auto& message) {
        PendingCall* call = FindPending(message.id);
        if (call != nullptr && call->state == PendingCall::State::kSent &&
            call->destination == from) {
          Transmit(*call, now, out);
        }
      });
    case MessageType::kUnderWay:
      return parsed(std::type_identity<CallStateMessage>(), [&](const auto& message) {
        PendingCall* call = FindPending(message.id);
        if (call != nullptr && call->destination == from) call->due_ns = now + call->interval_ns;
      });
    case MessageType::kAck:
      return parsed(std::type_identity<AckMessage>(),
                    [&](const auto& message) { TakeAcks(message.acked); });
    case MessageType::kParked:
      return parsed(std::type_identity<ParkedMessage>(),
                    [&](const auto& message) { OnParked(message, out); });
    case MessageType::kDestroyed:
      return parsed(std::type_identity<DestroyedMessage>(), [&](const auto& message) {
        const LocationRow* row = locations_.FindRow(message.rid);
        if (row != nullptr && row->epoch == message.epoch) locations_.EraseRow(message.rid);
        Send(from, Lane::kReply, MessageType::kDestroyedAck, message, out);
      });
    case MessageType::kDestroyedAck:
      return parsed(std::type_identity<DestroyedMessage>(),
                    [&](const auto& message) { destroyed_.erase(message.rid); });
    default:
      ++counters_.bad_frames;
  }
}

template <class Policy>
void CallCore<Policy>::OnCall(NodeInstance from, Frame frame, Nanos now, Actions& out) {
  size_t tail = 0;
  absl::StatusOr<CallMessage> message = ParseFrame<CallMessage>(frame, &tail);
  if (!message.ok()) {
    ++counters_.bad_frames;
    return;
  }
  TakeAcks(message->acked);
  ObjectState* object = Find(message->rid);
  const bool coming =
      object != nullptr && !object->hosted() && message->hint_epoch >= object->epoch;
  if (object == nullptr || (!object->hosted() && !coming)) {
    return AnswerElsewhere(from, message->rid, message->id, out);
  }
  ParkedCall call{from, *std::move(message), std::move(frame), tail};
  // Committed as far as the caller knows; the activation is still on its way here.
  if (coming) return Park(*object, std::move(call), out);
  Consider(*object, std::move(call), now, out);
}

// Runs, parks or answers a call to an object that this node hosts.
template <class Policy>
void CallCore<Policy>::Consider(ObjectState& object, ParkedCall call, Nanos now, Actions& out) {
  (void)now;
  const CallId& id = call.message.id;
  DedupTable& dedup = DedupOf(object);
  DedupTable::Verdict verdict = dedup.Check(id, {call.from, call.message.issue});
  if (!Policy::kCheckDuplicates && verdict != DedupTable::Verdict::kUnderWay) {
    verdict = DedupTable::Verdict::kNew;
  }
  if (!Policy::kDropOlderCalls && verdict == DedupTable::Verdict::kOlder) {
    verdict = DedupTable::Verdict::kNew;
  }
  switch (verdict) {
    case DedupTable::Verdict::kNew:
      break;
    case DedupTable::Verdict::kUnderWay:
      ++counters_.dedup.duplicates;
      return;
    case DedupTable::Verdict::kDone:
      ++counters_.dedup.duplicates;
      return SendKept(call.from, object, id, out);
    case DedupTable::Verdict::kDoneNoResult:
    case DedupTable::Verdict::kOlder:
      ++counters_.dedup.duplicates;
      return ReplyWith(call.from, object.rid, id, NoResult(verdict), out);
    case DedupTable::Verdict::kEvicted:
      ++counters_.dedup.refused;
      return ReplyWith(
          call.from, object.rid, id,
          MakeError(ErrorKind::kDuplicateEvicted, "the object has forgotten whether this call ran"),
          out);
  }
  // Also to an activity that is inside: the object goes when it has left, so it must not wait.
  if (object.destroying) return ReplyWith(call.from, object.rid, id, DoesNotExist(object.rid), out);
  if (id.level >= options_.nesting_max) {
    return ReplyWith(call.from, object.rid, id,
                     MakeError(ErrorKind::kNestingTooDeep,
                               absl::StrCat("calls are nested ", options_.nesting_max, " deep")),
                     out);
  }
  if (object.phase == ObjectPhase::kActive || !Policy::kParkWhileQuiescing) {
    return Run(object, std::move(call), out);
  }
  const bool insider = Policy::kAdmitInsiders && object.phase == ObjectPhase::kQuiescing &&
                       Inside(object.moving->members, call.message.root);
  if (insider) return Run(object, std::move(call), out);
  Park(object, std::move(call), out);
}

template <class Policy>
void CallCore<Policy>::Park(ObjectState& object, ParkedCall call, Actions& out) {
  auto& parked = WaitingOf(object).remote;
  for (const ParkedCall& other : parked) {
    if (other.message.id == call.message.id) return;
  }
  ++counters_.parked;
  if (object.moving != nullptr) {
    const CallMessage& m = call.message;
    Send(call.from, Lane::kReply, MessageType::kParked,
         ParkedMessage{m.rid, m.id, m.root, object.moving->lowest}, out);
  }
  parked.push_back(std::move(call));
}

template <class Policy>
void CallCore<Policy>::Run(ObjectState& object, ParkedCall call, Actions& out) {
  ++counters_.calls_executed;
  DedupOf(object).Begin(call.message.id, {call.from, call.message.issue}, options_.dedup,
                        counters_.dedup);
  object.inside.push_back(call.message.root);
  running_[call.message.id] = {call.from, object.rid, call.message.root};
  out.executes.push_back(
      {object.host, call.from, std::move(call.message), std::move(call.frame), call.tail});
}

template <class Policy>
void CallCore<Policy>::FinishExecution(NodeInstance from, const CallMessage& message,
                                       ReplyMessage reply, const Payload& result, Actions& out) {
  running_.erase(message.id);
  ObjectState* object = Find(message.rid);
  reply.rid = message.rid;
  reply.id = message.id;
  reply.epoch = object == nullptr ? 0 : object->epoch;
  if (!Policy::kCarrySequence) reply.next_sequence = message.id.sequence;
  if (object != nullptr) {
    DedupOf(*object).Finish(message.id, reply, result, options_.dedup, counters_.dedup);
    LeaveInside(message.rid, message.root, out);
  }
  if (!IsDead(from)) {
    out.sends.push_back({from, Lane::kReply, MakeFrame(MessageType::kReply, reply, result)});
  }
}

template <class Policy>
void CallCore<Policy>::AnswerElsewhere(NodeInstance from, const Rid& rid, const CallId& id,
                                       Actions& out) {
  RedirectMessage redirect;
  redirect.rid = rid;
  redirect.id = id;
  if (const LocationRow* row = locations_.FindRow(rid); row != nullptr) {
    if (row->lost) {
      return ReplyWith(from, rid, id,
                       MakeError(ErrorKind::kObjectLost,
                                 absl::StrCat("object ", rid.ToString(), " was lost with its host ",
                                              row->host.ToString())),
                       out);
    }
    redirect.moved_to = row->host;
    redirect.epoch = row->epoch;
  } else if (rid.home == self_ || destroyed_.contains(rid)) {
    return ReplyWith(from, rid, id, DoesNotExist(rid), out);
  } else if (const auto hint = locations_.Find(rid);
             hint.has_value() && hint->host != self_ && !IsDead(hint->host)) {
    redirect.moved_to = hint->host;
    redirect.epoch = hint->epoch;
  }
  Send(from, Lane::kReply, MessageType::kRedirect, redirect, out);
}

template <class Policy>
void CallCore<Policy>::ReplyWith(NodeInstance from, const Rid& rid, const CallId& id,
                                 const absl::Status& status, Actions& out) {
  ReplyMessage reply;
  reply.rid = rid;
  reply.id = id;
  reply.SetStatus(status);
  // Where it may have run, what it called has counted on.
  const bool may_have_run =
      reply.kind == ErrorKind::kOutcomeUnknown || reply.kind == ErrorKind::kDuplicateEvicted;
  reply.next_sequence = may_have_run ? Jump(id.sequence) : id.sequence;
  Send(from, Lane::kReply, MessageType::kReply, reply, out);
}

template <class Policy>
void CallCore<Policy>::SendKept(NodeInstance from, const ObjectState& object, const CallId& id,
                                Actions& out) {
  const DedupTable::Kept& kept = object.dedup->Get(id);
  ReplyMessage reply = kept.reply;
  reply.epoch = object.epoch;  // it may have run elsewhere
  out.sends.push_back({from, Lane::kReply, MakeFrame(MessageType::kReply, reply, kept.result)});
}

template <class Policy>
void CallCore<Policy>::OnReply(NodeInstance from, Frame frame, Nanos now, Actions& out) {
  (void)now;
  size_t tail = 0;
  absl::StatusOr<ReplyMessage> reply = ParseFrame<ReplyMessage>(frame, &tail);
  if (!reply.ok()) {
    ++counters_.bad_frames;
    return;
  }
  PendingCall* call = FindPending(reply->id);
  if (call == nullptr) return;  // a second answer, or nobody waits any more
  const bool answered_for_object = reply->epoch == 0;
  if (answered_for_object &&
      (reply->kind == ErrorKind::kObjectLost || reply->kind == ErrorKind::kObjectNotFound)) {
    // The home's word on an object that a dead process may have run the call on.
    return Fail(*call, reply->status(), out);
  }
  if (answered_for_object && reply->kind == ErrorKind::kDuplicateEvicted) {
    return Fail(*call, reply->status(), out);
  }
  if (reply->epoch != 0) {
    locations_.Learn(reply->rid, from, reply->epoch);
    acks_[from].push_back({reply->rid, reply->id});
    if (acks_[from].size() >= kAcksPerFrame) {
      Send(from, Lane::kRequest, MessageType::kAck, AckMessage{std::move(acks_[from])}, out);
      acks_.erase(from);
    }
  }
  call->reply = *std::move(reply);
  call->result = std::move(frame.payload);
  call->result.inline_bytes.erase(0, tail);
  Wake(*call, PendingCall::State::kAnswered, out);
}

template <class Policy>
void CallCore<Policy>::OnRedirect(NodeInstance from, const RedirectMessage& message, Nanos now,
                                  Actions& out) {
  PendingCall* call = FindPending(message.id);
  if (call == nullptr || call->state != PendingCall::State::kSent || call->destination != from) {
    return;
  }
  ++counters_.redirects;
  // Whoever redirects does not have the object: a hint that says otherwise is stale.
  if (const auto hint = locations_.Find(message.rid);
      hint.has_value() && hint->host == from && message.rid.home != self_) {
    locations_.Forget(message.rid);
  }
  // It helps only where it is newer than what led here: two nodes with old hints point at each
  // other.
  const bool newer = from == message.rid.home || message.epoch > call->hint_epoch;
  const bool moved = newer && message.moved_to.valid() && !IsDead(message.moved_to) &&
                     message.moved_to != from && message.moved_to != self_;
  if (moved) {
    locations_.Learn(message.rid, message.moved_to, message.epoch);
  } else if (message.moved_to == self_ && Find(message.rid) == nullptr) {
    return BackOff(*call, now);  // on its way here
  } else if (from == message.rid.home || message.rid.home == self_) {
    return BackOff(*call, now);  // the home itself is still deciding
  }
  if (++call->redirects > kRedirectsAtOnce) {
    call->redirects = 0;
    return BackOff(*call, now);
  }
  Route(*call, now, out);
}

template <class Policy>
void CallCore<Policy>::OnProbe(NodeInstance from, const CallStateMessage& message, Actions& out) {
  ObjectState* object = Find(message.rid);
  if (object == nullptr) return AnswerElsewhere(from, message.rid, message.id, out);
  const auto is_it = [&](const ParkedCall& call) { return call.message.id == message.id; };
  const bool parked =
      object->waiting != nullptr &&
      std::any_of(object->waiting->remote.begin(), object->waiting->remote.end(), is_it);
  const auto verdict =
      object->dedup == nullptr ? DedupTable::Verdict::kNew : object->dedup->Recorded(message.id);
  if (parked || verdict == DedupTable::Verdict::kUnderWay) {
    return Send(from, Lane::kReply, MessageType::kUnderWay, message, out);
  }
  if (!object->hosted()) return AnswerElsewhere(from, message.rid, message.id, out);
  switch (verdict) {
    case DedupTable::Verdict::kDone:
      return SendKept(from, *object, message.id, out);
    case DedupTable::Verdict::kDoneNoResult:
    case DedupTable::Verdict::kOlder:
      return ReplyWith(from, message.rid, message.id, NoResult(verdict), out);
    default:
      return Send(from, Lane::kReply, MessageType::kNotSeen, message, out);
  }
}

template <class Policy>
void CallCore<Policy>::TakeAcks(const std::vector<AckedCall>& acked) {
  for (const AckedCall& ack : acked) {
    ObjectState* object = Find(ack.rid);
    if (object == nullptr || object->dedup == nullptr) continue;
    object->dedup->Ack(ack.id);
    if (!Policy::kKeepTombstones) *object->dedup = DedupTable();
  }
}

template <class Policy>
void CallCore<Policy>::OnParked(const ParkedMessage& message, Actions& out) {
  PendingCall* call = FindPending(message.id);
  if (call == nullptr || call->state != PendingCall::State::kSent) return;
  NoteParked(*call, message.lowest, out);
}

// An activity waits for a set (or does not any more, where `lowest` is not valid): whoever called
// it into this node may have a set that waits for it. Told outwards only, level by level: two nodes
// that the activity has crossed more than once must not tell each other for ever.
template <class Policy>
void CallCore<Policy>::NoteParked(PendingCall& call, const Rid& lowest, Actions& out) {
  if (call.parked_behind == lowest) return;
  call.parked_behind = lowest;
  std::vector<std::pair<CallId, Running>> outer;
  for (const auto& [id, running] : running_) {
    if (running.root != call.root || id.level >= call.id.level || IsDead(running.from)) continue;
    outer.emplace_back(id, running);
  }
  SortById(outer);
  for (const auto& [id, running] : outer) {
    Send(running.from, Lane::kReply, MessageType::kParked,
         ParkedMessage{running.rid, id, running.root, lowest}, out);
  }
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_CALL_CORE_REMOTE_INL_H_
