#ifndef ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_INL_H_
#define ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_INL_H_

// The bodies of MigrationCore, for migration_core.cc and for the tests that build it with broken
// policies.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/migration/migration_core.h"

namespace abacus::runtime {

// -- at the source ------------------------------------------------------------------------------

template <class Policy>
absl::StatusOr<MigrationId> MigrationCore<Policy>::StartMove(const std::vector<Rid>& rids,
                                                             NodeInstance target, Nanos now,
                                                             Actions& out) {
  if (rids.empty()) return absl::InvalidArgumentError("no object was named to be moved");
  if (target == calls_.self() || calls_.IsDead(target)) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", target.ToString(), " is no target: it is this node, or dead"));
  }
  auto move = std::make_unique<Outgoing>();
  for (const Rid& rid : rids) {
    ObjectState* object = calls_.Find(rid);
    if (object == nullptr || !object->hosted()) {
      return MakeError(
          ErrorKind::kObjectNotFound,
          absl::StrCat("object ", rid.ToString(), " is not on this node; ask its home"));
    }
    if (object->anchored) {
      return absl::FailedPreconditionError(
          absl::StrCat("object ", rid.ToString(), " is anchored: it never moves"));
    }
    if (object->phase != ObjectPhase::kActive || object->destroying) {
      return MakeError(ErrorKind::kMoveCancelled,
                       absl::StrCat("object ", rid.ToString(), " is being moved or destroyed"));
    }
    if (rid.home != rids.front().home) {
      return absl::FailedPreconditionError(
          "the objects of one step must have one home: its rows change together");
    }
    if (calls_.IsDead(rid.home)) {
      return MakeError(ErrorKind::kNodeUnreachable,
                       absl::StrCat("the home of object ", rid.ToString(),
                                    " is dead: the object stays where it is"));
    }
    if (std::find(move->rids.begin(), move->rids.end(), rid) != move->rids.end()) continue;
    move->rids.push_back(rid);
    move->epochs.push_back(object->epoch);
    move->set.members.push_back(object);
  }
  move->id = {calls_.self(), ++last_local_};
  move->target = target;
  move->home = rids.front().home;
  move->set.id = move->id;
  move->set.lowest = *std::min_element(move->rids.begin(), move->rids.end());
  Outgoing& placed = *(outgoing_[move->id] = std::move(move));
  for (ObjectState* object : placed.set.members) {
    object->phase = ObjectPhase::kQuiescing;
    object->moving = &placed.set;
    calls_.environment().SetGate(*object, Gate::kClosed);
  }
  ++counters_.begun;
  placed.deadline_ns = now + calls_.options().drain_deadline_ns;
  Enter(placed, Step::kDraining, now, out);
  const MigrationId id = placed.id;
  out.check_drained.push_back(id);
  CancelCrossing(now, out);  // may end this very move
  return id;
}

template <class Policy>
const MovingSet* MigrationCore<Policy>::Draining(const MigrationId& id) const {
  const auto it = outgoing_.find(id);
  if (it == outgoing_.end() || it->second->step != Step::kDraining) return nullptr;
  return it->second->set.drained ? nullptr : &it->second->set;
}

template <class Policy>
std::vector<ObjectState*> MigrationCore<Policy>::Members(const MigrationId& id) const {
  const auto it = outgoing_.find(id);
  if (it == outgoing_.end() || it->second->step != Step::kCheckpointing) return {};
  return it->second->set.members;
}

template <class Policy>
void MigrationCore<Policy>::OnDrained(const MigrationId& id, Nanos now, Actions& out) {
  Outgoing* move = FindOutgoing(id);
  if (move == nullptr || move->step != Step::kDraining) return;
  const bool admitted_inside =
      std::any_of(move->set.members.begin(), move->set.members.end(),
                  [](const ObjectState* object) { return !object->inside.empty(); });
  if (admitted_inside && Policy::kWaitForDrain) return;
  if (!move->set.drained) {
    move->set.drained = true;
    for (ObjectState* object : move->set.members) object->phase = ObjectPhase::kQuiesced;
  }
  // The intent must be with the home before a copy can be anywhere: rule 5.
  if (!move->begun) return;
  Enter(*move, Step::kCheckpointing, now, out);
  out.checkpoints.push_back({id});
}

template <class Policy>
void MigrationCore<Policy>::OnCheckpointed(const MigrationId& id,
                                           absl::StatusOr<std::vector<SavedObject>> objects,
                                           Nanos now, Actions& out) {
  Outgoing* move = FindOutgoing(id);
  if (move == nullptr || move->step != Step::kCheckpointing) return;
  if (!objects.ok() && move->why.ok()) {
    move->why = objects.status();
    move->no_room = absl::IsResourceExhausted(move->why);  // no message is large enough
  }
  if (!move->why.ok()) {
    ++counters_.cancelled;
    Resume(*move, 0, now, out);
    return End(*move, absl::Status(move->why), out);
  }
  move->saved = *std::move(objects);
  for (size_t i = 0; i < move->saved.size(); ++i) {
    SavedObject& saved = move->saved[i];
    saved.rid = move->rids[i];
    saved.epoch = move->epochs[i];
    const ObjectState* object = move->set.members[i];
    Writer dedup;
    if (object->dedup != nullptr && Policy::kMoveDedupTable) {
      object->dedup->Save(dedup);
    } else {
      DedupTable().Save(dedup);
    }
    Payload payload = std::move(dedup).Finish();
    saved.dedup_inline = std::move(payload.inline_bytes);
    saved.dedup_blocks = std::move(payload.blocks);
  }
  move->transferred = true;
  move->deadline_ns = now + calls_.options().transfer_deadline_ns;
  Enter(*move, Step::kTransferring, now, out);
}

template <class Policy>
void MigrationCore<Policy>::Cancel(const MigrationId& id, const absl::Status& why, Nanos now,
                                   Actions& out) {
  Outgoing* move = FindOutgoing(id);
  if (move == nullptr) return;
  switch (move->step) {
    case Step::kDraining:
      // No copy can exist: nobody has to be asked.
      ++counters_.cancelled;
      Resume(*move, 0, now, out);
      return End(*move, why, out);
    case Step::kCheckpointing:
      // The objects are being read: they are let go when that has ended (OnCheckpointed).
      if (move->why.ok()) move->why = why;
      return;
    case Step::kTransferring:
      move->why = why;
      if (!Policy::kAbortThroughHome) {
        ++counters_.cancelled;
        Resume(*move, 0, now, out);
        return Enter(*move, Step::kDiscarding, now, out);
      }
      return Enter(*move, Step::kAborting, now, out);
    case Step::kCommitting:
      // The home's answer decides; it may have been given already.
      if (!Policy::kNoRollbackAfterCommit) {
        ++counters_.cancelled;
        Resume(*move, 0, now, out);
        End(*move, why, out);
      }
      return;
    default:
      return;
  }
}

// Enters a step: sends its message now and again until it is answered.
template <class Policy>
void MigrationCore<Policy>::Enter(Outgoing& move, Step step, Nanos now, Actions& out) {
  move.step = step;
  move.interval_ns = calls_.options().probe_interval_ns;
  move.due_ns = now + move.interval_ns;
  Repeat(move, out);
}

template <class Policy>
void MigrationCore<Policy>::Repeat(const Outgoing& move, Actions& out) {
  using Type = MigrationMessageType;
  switch (move.step) {
    case Step::kDraining:
      if (move.begun) return;
      return Send(move.home, Lane::kRequest, Type::kBegin,
                  BeginMessage{move.id, move.target, move.rids, move.epochs}, out);
    case Step::kCheckpointing:
      return;
    case Step::kTransferring:
      return Send(move.target, Lane::kBulk, Type::kTransfer,
                  TransferMessage{move.id, outgoing_.begin()->first.local, move.home, move.saved},
                  out, /*long_send=*/move.id.local);
    case Step::kCommitting:
      return AskHome(move, CommitMessage::Verb::kToTarget, out);
    case Step::kAborting:
      return AskHome(move, CommitMessage::Verb::kToSource, out);
    case Step::kAskingTarget:
      return Send(move.target, Lane::kRequest, Type::kQuery, MigrationIdMessage{move.id}, out);
    case Step::kActivating:
      return Send(move.target, Lane::kRequest, Type::kActivate, MigrationIdMessage{move.id}, out);
    case Step::kDiscarding:
      return Send(move.target, Lane::kRequest, Type::kDiscard, MigrationIdMessage{move.id}, out);
  }
}

template <class Policy>
void MigrationCore<Policy>::AskHome(const Outgoing& move, CommitMessage::Verb verb, Actions& out) {
  Send(move.home, Lane::kRequest, MigrationMessageType::kCommit,
       CommitMessage{move.id, verb, move.target, move.rids, move.epochs}, out);
}

// The objects serve here again, `epochs_further` later.
template <class Policy>
void MigrationCore<Policy>::Resume(Outgoing& move, uint64_t epochs_further, Nanos now,
                                   Actions& out) {
  for (ObjectState* object : move.set.members) {
    object->epoch += epochs_further;
    calls_.Open(*object, now, out);
  }
  move.set.members.clear();
  move.saved.clear();
}

// The objects are somebody else's (or nobody's) now.
template <class Policy>
void MigrationCore<Policy>::Depart(Outgoing& move, bool to_target, Nanos now, Actions& out) {
  if (!Policy::kDepartAfterCommit) return Resume(move, 0, now, out);
  for (ObjectState* object : move.set.members) {
    out.destroys.push_back({object->rid, object->host});
    std::optional<LocationHint> now_at;
    if (to_target) now_at = LocationHint{move.target, object->epoch + 1};
    calls_.Remove(*object, now_at, now, out);
  }
  move.set.members.clear();
  move.saved.clear();
}

template <class Policy>
void MigrationCore<Policy>::End(Outgoing& move, const absl::Status& status, Actions& out) {
  out.ended.push_back({move.id, status, move.no_room});
  outgoing_.erase(MigrationId(move.id));
}

// Two sets that are being quiesced may wait for each other: an activity inside the one waits to
// enter the other. The set with the higher lowest rid gives way, at once; were both to wait, only
// their deadlines would end it. Giving way without a proof of the circle costs a cancelled move.
template <class Policy>
void MigrationCore<Policy>::CancelCrossing(Nanos now, Actions& out) {
  std::vector<MigrationId> give_way;
  for (const auto& [id, move] : outgoing_) {
    if (move->step != Step::kDraining || move->set.drained) continue;
    bool crossing = false;
    calls_.ForEachParked([&, &move = *move](const PendingCall& call) {
      crossing = crossing || (call.parked_behind < move.set.lowest &&
                              calls_.Inside(move.set.members, call.root));
    });
    if (crossing) give_way.push_back(id);
  }
  for (const MigrationId& id : give_way) {
    ++counters_.cancelled_crossing;
    Cancel(id,
           MakeError(ErrorKind::kMoveCancelled,
                     "another set that is being moved waits for this one, and this one for it"),
           now, out);
  }
}

template <class Policy>
typename MigrationCore<Policy>::Outgoing* MigrationCore<Policy>::FindOutgoing(
    const MigrationId& id) {
  const auto it = outgoing_.find(id);
  return it == outgoing_.end() ? nullptr : it->second.get();
}

template <class Policy>
typename MigrationCore<Policy>::Incoming* MigrationCore<Policy>::FindIncoming(
    const MigrationId& id) {
  const auto it = incoming_.find(id);
  return it == incoming_.end() ? nullptr : it->second.get();
}

template <class Policy>
void MigrationCore<Policy>::OnBeginReply(const AnswerMessage& message, Nanos now, Actions& out) {
  Outgoing* move = FindOutgoing(message.id);
  if (move == nullptr || move->step != Step::kDraining || move->begun) return;
  if (!message.yes) {
    return Cancel(message.id,
                  MakeError(ErrorKind::kMoveCancelled, "the home refused: " + message.why_not), now,
                  out);
  }
  move->begun = true;
  if (move->set.drained) OnDrained(message.id, now, out);
}

template <class Policy>
void MigrationCore<Policy>::OnRestoredReply(NodeInstance from, const AnswerMessage& message,
                                            Nanos now, Actions& out) {
  Outgoing* move = FindOutgoing(message.id);
  if (move == nullptr) {
    if (!message.yes || !Policy::kDiscardOnAbort) return;
    // A late duplicate of a transfer made a copy of a migration that is over: it must go.
    return Send(from, Lane::kRequest, MigrationMessageType::kDiscard,
                MigrationIdMessage{message.id}, out);
  }
  if (move->step != Step::kTransferring) return;
  if (!message.yes) {
    move->no_room = message.no_room;
    return Cancel(message.id,
                  MakeError(ErrorKind::kMoveCancelled, "the target refused: " + message.why_not),
                  now, out);
  }
  Enter(*move, Step::kCommitting, now, out);
}

template <class Policy>
void MigrationCore<Policy>::OnCommitReply(const CommitReplyMessage& message, Nanos now,
                                          Actions& out) {
  if (Outgoing* move = FindOutgoing(message.id); move != nullptr) {
    if (move->step == Step::kCommitting || move->step == Step::kAborting) {
      OnHomeSaid(*move, message.outcome, now, out);
    }
    return;
  }
  Incoming* move = FindIncoming(message.id);
  if (move == nullptr || !move->restored) return;
  const bool mine =
      message.outcome == CommitReplyMessage::Outcome::kAtTarget ||
      (!Policy::kHonourRefusal && message.outcome == CommitReplyMessage::Outcome::kRefused);
  if (mine) {
    ++counters_.taken_over;
    Activate(*move, now, out);
  } else {
    Drop(*move, 0, now, out);
  }
}

template <class Policy>
void MigrationCore<Policy>::OnHomeSaid(Outgoing& move, CommitReplyMessage::Outcome outcome,
                                       Nanos now, Actions& out) {
  switch (outcome) {
    case CommitReplyMessage::Outcome::kAtTarget:
      ++counters_.committed;
      Depart(move, true, now, out);
      if (calls_.IsDead(move.target)) return End(move, absl::OkStatus(), out);
      return Enter(move, Step::kActivating, now, out);
    case CommitReplyMessage::Outcome::kAtSource:
      ++counters_.cancelled;
      if (move.why.ok()) move.why = MakeError(ErrorKind::kMoveCancelled, "the target died");
      Resume(move, 1, now, out);
      if (calls_.IsDead(move.target) || !Policy::kDiscardOnAbort) return End(move, move.why, out);
      return Enter(move, Step::kDiscarding, now, out);
    case CommitReplyMessage::Outcome::kRefused:
      // The rows have gone on without this host: what is here is history.
      ++counters_.refused;
      Depart(move, false, now, out);
      return End(move,
                 MakeError(ErrorKind::kObjectLost,
                           "the home has given the objects up: this node was taken for dead"),
                 out);
  }
}

template <class Policy>
void MigrationCore<Policy>::OnQueryReply(const AnswerMessage& message, Nanos now, Actions& out) {
  Outgoing* move = FindOutgoing(message.id);
  if (move == nullptr || move->step != Step::kAskingTarget) return;
  if (message.yes) {
    ++counters_.committed;
    Depart(*move, true, now, out);
    return End(*move, absl::OkStatus(), out);
  }
  ++counters_.cancelled;
  Resume(*move, 2, now, out);
  End(*move, MakeError(ErrorKind::kMoveCancelled, "the home died during the move"), out);
}

// -- all ----------------------------------------------------------------------------------------

template <class Policy>
void MigrationCore<Policy>::OnFrame(NodeInstance from, const Frame& frame, Nanos now,
                                    Actions& out) {
  if (Policy::kFenceTheDead && calls_.IsDead(from)) {
    ++calls_.counters().from_the_dead;
    return;
  }
  using Type = MigrationMessageType;
  const auto parsed = [&]<typename Message>(std::type_identity<Message>, auto handle) {
    absl::StatusOr<Message> message = ParseFrame<Message>(frame);
    if (message.ok()) {
      handle(*std::move(message));
    } else {
      ++calls_.counters().bad_frames;
    }
  };
  const auto by_id = [&](auto handle) {
    parsed(std::type_identity<MigrationIdMessage>(),
           [&](const MigrationIdMessage& message) { handle(message.id); });
  };
  switch (static_cast<Type>(frame.type)) {
    case Type::kBegin:
      return parsed(std::type_identity<BeginMessage>(),
                    [&](const BeginMessage& m) { OnBegin(from, m, out); });
    case Type::kBeginReply:
      return parsed(std::type_identity<AnswerMessage>(),
                    [&](const AnswerMessage& m) { OnBeginReply(m, now, out); });
    case Type::kTransfer:
      return parsed(std::type_identity<TransferMessage>(),
                    [&](TransferMessage m) { OnTransfer(from, std::move(m), now, out); });
    case Type::kRestored:
      return parsed(std::type_identity<AnswerMessage>(),
                    [&](const AnswerMessage& m) { OnRestoredReply(from, m, now, out); });
    case Type::kCommit:
      return parsed(std::type_identity<CommitMessage>(),
                    [&](const CommitMessage& m) { OnCommit(from, m, out); });
    case Type::kCommitReply:
      return parsed(std::type_identity<CommitReplyMessage>(),
                    [&](const CommitReplyMessage& m) { OnCommitReply(m, now, out); });
    case Type::kActivate:
      return by_id([&](const MigrationId& id) { OnActivate(from, id, now, out); });
    case Type::kActivated:
    case Type::kDiscarded:
      return by_id([&](const MigrationId& id) {
        Outgoing* move = FindOutgoing(id);
        const Step waits_in = static_cast<Type>(frame.type) == Type::kActivated ? Step::kActivating
                                                                                : Step::kDiscarding;
        if (move != nullptr && move->step == waits_in) End(*move, move->why, out);
      });
    case Type::kDiscard:
      return by_id([&](const MigrationId& id) { OnDiscard(from, id, 1, now, out); });
    case Type::kQuery:
      return by_id([&](const MigrationId& id) { OnQuery(from, id, now, out); });
    case Type::kQueryReply:
      return parsed(std::type_identity<AnswerMessage>(),
                    [&](const AnswerMessage& m) { OnQueryReply(m, now, out); });
    case Type::kClaim:
      return by_id([&](const MigrationId& id) { OnClaim(from, id, now, out); });
    case Type::kNotHeld:
      return by_id([&](const MigrationId& id) { OnNotHeld(id, now, out); });
  }
  ++calls_.counters().bad_frames;
}

template <class Policy>
void MigrationCore<Policy>::OnPeerDead(NodeInstance peer, Nanos now, Actions& out) {
  std::vector<MigrationId> ids;
  for (const auto& [id, move] : outgoing_) ids.push_back(id);
  for (const MigrationId& id : ids) {
    Outgoing* move = FindOutgoing(id);
    if (move == nullptr) continue;
    const bool undecided = move->step == Step::kTransferring || move->step == Step::kCommitting ||
                           move->step == Step::kAborting;
    // The home first: where it is the target too, nobody is left to be asked.
    if (move->home == peer && undecided) {
      Enter(*move, Step::kAskingTarget, now, out);
    } else if (move->home == peer &&
               (move->step == Step::kDraining || move->step == Step::kCheckpointing)) {
      Cancel(id, MakeError(ErrorKind::kMoveCancelled, "the home died"), now, out);
    } else if (move->target == peer) {
      if (move->step == Step::kActivating || move->step == Step::kDiscarding) {
        End(*move, move->why, out);
      } else {
        Cancel(id, MakeError(ErrorKind::kMoveCancelled, "the target died"), now, out);
      }
    }
    // The target was never told to activate, so it never was active: the copy here is the object.
    if (Outgoing* left = FindOutgoing(id);
        left != nullptr && left->step == Step::kAskingTarget && calls_.IsDead(left->target)) {
      ++counters_.cancelled;
      Resume(*left, 2, now, out);
      End(*left, MakeError(ErrorKind::kMoveCancelled, "home and target died"), out);
    }
  }
  ids.clear();
  for (const auto& [id, move] : incoming_) {
    if (id.source == peer || (move->home == peer && calls_.IsDead(id.source))) ids.push_back(id);
  }
  for (const MigrationId& id : ids) {
    Incoming* move = FindIncoming(id);
    if (move->restored) TakeOver(*move, now, out);
  }
  std::erase_if(over_, [peer](const MigrationId& id) { return id.source == peer; });
  over_below_.erase(peer);
  std::vector<std::pair<Rid, LocationRow>> hosted;
  calls_.locations().ForEachRow([&](const Rid& rid, const LocationRow& row) {
    if (row.host == peer && !row.lost) hosted.emplace_back(rid, row);
  });
  std::sort(hosted.begin(), hosted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rid, row] : hosted) {
    const bool target_may_hold = row.intent.source == peer && !calls_.IsDead(row.intent_target);
    if (!target_may_hold) {
      calls_.MarkLost(rid, now, out);
      continue;
    }
    claims_[rid] = {row.intent, row.intent_target, now + calls_.options().probe_interval_ns};
    Send(row.intent_target, Lane::kRequest, MigrationMessageType::kClaim,
         MigrationIdMessage{row.intent}, out);
  }
  for (auto it = claims_.begin(); it != claims_.end();) {
    if (it->second.target != peer) {
      ++it;
      continue;
    }
    // A claim may have been answered by a commit since, and the object have gone on.
    const LocationRow* row = calls_.locations().FindRow(it->first);
    if (row != nullptr && calls_.IsDead(row->host)) calls_.MarkLost(it->first, now, out);
    it = claims_.erase(it);
  }
}

template <class Policy>
void MigrationCore<Policy>::OnReconnected(NodeInstance peer, Nanos now) {
  for (auto& [id, move] : outgoing_) {
    if (move->target == peer || move->home == peer) move->due_ns = now;
  }
  for (auto& [id, move] : incoming_) {
    if (id.source == peer || move->home == peer) move->due_ns = now;
  }
}

template <class Policy>
void MigrationCore<Policy>::Tick(Nanos now, Actions& out) {
  CancelCrossing(now, out);
  std::vector<MigrationId> ids;
  for (const auto& [id, move] : outgoing_) ids.push_back(id);
  for (const MigrationId& id : ids) {
    Outgoing* move = FindOutgoing(id);
    const bool late = move->deadline_ns <= now;
    if (move->step == Step::kDraining && late) {
      ++counters_.cancelled_slow_drain;
      Cancel(id,
             MakeError(ErrorKind::kMoveCancelled,
                       move->begun ? "draining took too long: a call stays inside"
                                   : "the home did not answer in time"),
             now, out);
      continue;
    }
    if (late && (move->step == Step::kTransferring || !Policy::kNoRollbackAfterCommit)) {
      Cancel(id, MakeError(ErrorKind::kMoveCancelled, "the transfer took too long"), now, out);
      continue;
    }
    if (move->due_ns > now) continue;
    move->interval_ns = std::min(move->interval_ns * 2, 8 * calls_.options().probe_interval_ns);
    move->due_ns = now + move->interval_ns;
    Repeat(*move, out);
  }
  for (auto& [id, move] : incoming_) {
    if (!move->restored || move->due_ns > now) continue;
    move->due_ns = now + move->interval_ns;
    if (!calls_.IsDead(id.source)) {
      Send(id.source, Lane::kRequest, MigrationMessageType::kRestored, AnswerMessage{id, true, ""},
           out);
    } else if (!calls_.IsDead(move->home)) {
      TakeOver(*move, now, out);
    }
  }
  for (auto& [rid, claim] : claims_) {
    if (claim.due_ns > now) continue;
    claim.due_ns = now + calls_.options().probe_interval_ns;
    Send(claim.target, Lane::kRequest, MigrationMessageType::kClaim, MigrationIdMessage{claim.id},
         out);
  }
  std::erase_if(claims_, [this](const auto& entry) {
    const LocationRow* row = calls_.locations().FindRow(entry.first);
    return row == nullptr || row->lost || row->intent != entry.second.id;
  });
}

}  // namespace abacus::runtime

#include "runtime/migration/migration_core_answers_inl.h"

#endif  // ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_INL_H_
