#ifndef ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_ANSWERS_INL_H_
#define ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_ANSWERS_INL_H_

// The parts of MigrationCore that answer a source: home and target. Included by
// migration_core_inl.h.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/migration/migration_core_inl.h"

namespace abacus::runtime {

// -- at the home --------------------------------------------------------------------------------

template <class Policy>
void MigrationCore<Policy>::OnBegin(NodeInstance from, const BeginMessage& message, Actions& out) {
  AnswerMessage answer{message.id, true, ""};
  for (size_t i = 0; i < message.rids.size() && answer.yes; ++i) {
    const LocationRow* row = calls_.locations().FindRow(message.rids[i]);
    const bool fits = row != nullptr && !row->lost && row->host == message.id.source &&
                      i < message.epochs.size() && row->epoch == message.epochs[i];
    // The host moves an object once at a time: a later intent of it takes the place of an earlier.
    if (!fits ||
        (row->intent.source == message.id.source && row->intent.local > message.id.local)) {
      answer = {message.id, false,
                absl::StrCat("object ", message.rids[i].ToString(), " is elsewhere or gone")};
    }
  }
  for (size_t i = 0; i < message.rids.size() && answer.yes; ++i) {
    LocationRow* row = calls_.locations().FindRow(message.rids[i]);
    row->intent = message.id;
    row->intent_target = message.target;
  }
  Send(from, Lane::kRequest, MigrationMessageType::kBeginReply, answer, out);
}

template <class Policy>
CommitReplyMessage::Outcome MigrationCore<Policy>::Decide(const CommitMessage& message) {
  using Outcome = CommitReplyMessage::Outcome;
  bool to_target = message.verb == CommitMessage::Verb::kToTarget;
  if (message.rids.empty() || message.rids.size() != message.epochs.size()) {
    return Outcome::kRefused;
  }
  bool decided = true;
  bool fits = true;
  for (size_t i = 0; i < message.rids.size(); ++i) {
    const LocationRow* row = calls_.locations().FindRow(message.rids[i]);
    if (row == nullptr) return Outcome::kRefused;
    decided = decided && row->last == message.id;
    fits = fits && !row->lost && row->host == message.id.source && row->epoch == message.epochs[i];
  }
  if (decided) {
    const LocationRow* row = calls_.locations().FindRow(message.rids.front());
    return row->host == message.target ? Outcome::kAtTarget : Outcome::kAtSource;
  }
  if (!fits && Policy::kCheckEpochAtHome) return Outcome::kRefused;
  // A target that is dead would take the only copy with it: the source keeps the object.
  to_target = to_target && !calls_.IsDead(message.target);
  if (!Policy::kRecordCommit) return to_target ? Outcome::kAtTarget : Outcome::kAtSource;
  for (size_t i = 0; i < message.rids.size(); ++i) {
    LocationRow* row = calls_.locations().FindRow(message.rids[i]);
    row->epoch = message.epochs[i] + 1;
    row->last = message.id;
    row->intent = MigrationId();
    if (to_target) row->host = message.target;
  }
  return to_target ? Outcome::kAtTarget : Outcome::kAtSource;
}

template <class Policy>
void MigrationCore<Policy>::OnCommit(NodeInstance from, const CommitMessage& message,
                                     Actions& out) {
  const CommitReplyMessage reply{message.id, Decide(message)};
  Send(from, Lane::kRequest, MigrationMessageType::kCommitReply, reply, out);
}

template <class Policy>
void MigrationCore<Policy>::OnNotHeld(const MigrationId& id, Nanos now, Actions& out) {
  for (auto it = claims_.begin(); it != claims_.end();) {
    if (it->second.id != id) {
      ++it;
      continue;
    }
    LocationRow* row = calls_.locations().FindRow(it->first);
    if (row != nullptr && calls_.IsDead(row->host)) calls_.MarkLost(it->first, now, out);
    it = claims_.erase(it);
  }
}

// -- at the target ------------------------------------------------------------------------------

template <class Policy>
void MigrationCore<Policy>::OnTransfer(NodeInstance from, TransferMessage message, Nanos now,
                                       Actions& out) {
  ForgetOver(message.id.source, message.oldest);
  const auto answer = [&](bool yes, std::string why_not) {
    Send(from, Lane::kRequest, MigrationMessageType::kRestored,
         AnswerMessage{message.id, yes, std::move(why_not)}, out);
  };
  if (const Incoming* known = FindIncoming(message.id); known != nullptr) {
    if (known->restored) answer(true, "");
    return;
  }
  // A source that is still waiting for the answer must not wait for its deadline.
  if (IsOver(message.id)) return answer(false, "the target has given this migration up");
  auto move = std::make_unique<Incoming>();
  move->id = message.id;
  move->home = message.home;
  move->interval_ns = calls_.options().probe_interval_ns;
  move->due_ns = now + move->interval_ns;
  Actions::Restore restore{message.id, {}};
  for (SavedObject& saved : message.objects) {
    if (calls_.Find(saved.rid) != nullptr ||
        std::find(move->rids.begin(), move->rids.end(), saved.rid) != move->rids.end()) {
      // A late duplicate, the object being here by a later migration; or a copy of an earlier one
      // that was aborted has not been let go yet.
      SwearOff(message.id);
      return answer(false, absl::StrCat("object ", saved.rid.ToString(), " is at the target"));
    }
    move->rids.push_back(saved.rid);
    move->epochs.push_back(saved.epoch);
    restore.objects.push_back(
        {saved.rid, saved.class_name,
         Payload{std::move(saved.checkpoint_inline), std::move(saved.checkpoint_blocks)}});
  }
  for (size_t i = 0; i < move->rids.size(); ++i) {
    calls_.Enter(move->rids[i], nullptr, move->epochs[i] + 1, ObjectPhase::kRestoring);
  }
  move->saved = std::move(message.objects);
  incoming_[message.id] = std::move(move);
  out.restores.push_back(std::move(restore));
}

template <class Policy>
void MigrationCore<Policy>::OnRestored(const MigrationId& id,
                                       const absl::StatusOr<std::vector<void*>>& hosts, Nanos now,
                                       Actions& out) {
  Incoming* move = FindIncoming(id);
  if (move == nullptr) return;
  absl::Status status = hosts.status();
  for (size_t i = 0; i < move->rids.size() && hosts.ok(); ++i) {
    ObjectState* object = calls_.Find(move->rids[i]);
    object->host = (*hosts)[i];
    object->phase = ObjectPhase::kRestored;
    const SavedObject& saved = move->saved[i];
    const Payload payload{saved.dedup_inline, saved.dedup_blocks};
    Reader reader(payload);
    object->dedup = std::make_unique<DedupTable>();
    object->dedup->Load(reader);
    if (!reader.ok()) status = reader.status();
  }
  move->saved.clear();
  if (status.ok() && !move->discarded) {
    move->restored = true;
    Send(id.source, Lane::kRequest, MigrationMessageType::kRestored, AnswerMessage{id, true, ""},
         out);
    if (!Policy::kActivateAfterCommit) return Activate(*move, now, out);
    if (calls_.IsDead(id.source)) TakeOver(*move, now, out);
    return;
  }
  Send(id.source, Lane::kRequest, MigrationMessageType::kRestored,
       AnswerMessage{id, false, std::string(ToStd(status.message())),
                     absl::IsResourceExhausted(status)},
       out);
  Drop(*move, 0, now, out);
}

// The source is dead: the home decides whether this copy is the object.
template <class Policy>
void MigrationCore<Policy>::TakeOver(Incoming& move, Nanos now, Actions& out) {
  if (!Policy::kTakeOverThroughHome) return Activate(move, now, out);
  if (calls_.IsDead(move.home)) {
    // Nobody can say whether the source had taken the object back before it died. A stale copy
    // must not come to life, so this one goes, and the object with its host.
    return Drop(move, 0, now, out);
  }
  move.due_ns = now + move.interval_ns;
  Send(
      move.home, Lane::kRequest, MigrationMessageType::kCommit,
      CommitMessage{move.id, CommitMessage::Verb::kToTarget, calls_.self(), move.rids, move.epochs},
      out);
}

template <class Policy>
void MigrationCore<Policy>::Activate(Incoming& move, Nanos now, Actions& out) {
  for (const Rid& rid : move.rids) {
    if (ObjectState* object = calls_.Find(rid); object != nullptr) {
      if (calls_.IsDead(rid.home)) calls_.NoteOrphan(*object, now);
      calls_.Open(*object, now, out);
    }
  }
  Finish(move);
}

// Lets the copies go. `epochs_further`: by how much the source has taken the objects back; 0 where
// that is not known.
template <class Policy>
void MigrationCore<Policy>::Drop(Incoming& move, uint64_t epochs_further, Nanos now, Actions& out) {
  for (size_t i = 0; i < move.rids.size(); ++i) {
    ObjectState* object = calls_.Find(move.rids[i]);
    if (object == nullptr || object->hosted()) continue;
    if (object->host != nullptr) out.destroys.push_back({object->rid, object->host});
    std::optional<LocationHint> now_at;
    if (epochs_further > 0) {
      now_at = LocationHint{move.id.source, move.epochs[i] + epochs_further};
    }
    calls_.Remove(*object, now_at, now, out);
  }
  Finish(move);
}

template <class Policy>
void MigrationCore<Policy>::Finish(Incoming& move) {
  SwearOff(move.id);
  incoming_.erase(MigrationId(move.id));
}

template <class Policy>
void MigrationCore<Policy>::SwearOff(const MigrationId& id) {
  if (Policy::kSwearOff && !calls_.IsDead(id.source) && !IsOver(id)) over_.insert(id);
}

template <class Policy>
bool MigrationCore<Policy>::IsOver(const MigrationId& id) const {
  const auto floor = over_below_.find(id.source);
  return (floor != over_below_.end() && id.local < floor->second) || over_.contains(id);
}

// The source has ended all its moves below `oldest`: one number says so of all of them.
template <class Policy>
void MigrationCore<Policy>::ForgetOver(NodeInstance source, uint64_t oldest) {
  uint64_t& floor = over_below_[source];
  if (oldest <= floor) return;
  over_.erase(over_.lower_bound({source, floor}), over_.lower_bound({source, oldest}));
  floor = oldest;
}

template <class Policy>
void MigrationCore<Policy>::OnActivate(NodeInstance from, const MigrationId& id, Nanos now,
                                       Actions& out) {
  if (Incoming* move = FindIncoming(id); move != nullptr) {
    if (!move->restored) return;
    Activate(*move, now, out);
  }
  // Not known: it is active since an earlier copy of this message.
  Send(from, Lane::kRequest, MigrationMessageType::kActivated, MigrationIdMessage{id}, out);
}

template <class Policy>
void MigrationCore<Policy>::OnDiscard(NodeInstance from, const MigrationId& id,
                                      uint64_t epochs_further, Nanos now, Actions& out) {
  SwearOff(id);
  if (Incoming* move = FindIncoming(id); move != nullptr) {
    move->discarded = true;
    if (!move->restored) return;  // answered when the restore, which is under way, has ended
    Drop(*move, epochs_further, now, out);
  }
  Send(from, Lane::kRequest, MigrationMessageType::kDiscarded, MigrationIdMessage{id}, out);
}

template <class Policy>
void MigrationCore<Policy>::OnQuery(NodeInstance from, const MigrationId& id, Nanos now,
                                    Actions& out) {
  // The source asks only while it has not told this node to activate, so nothing of this migration
  // is active here; what is restored goes, and what is still on its way will be refused.
  OnDiscard(from, id, 2, now, out);
  if (FindIncoming(id) != nullptr) return;
  Send(from, Lane::kRequest, MigrationMessageType::kQueryReply, AnswerMessage{id, false, ""}, out);
}

template <class Policy>
void MigrationCore<Policy>::OnClaim(NodeInstance from, const MigrationId& id, Nanos now,
                                    Actions& out) {
  if (Incoming* move = FindIncoming(id); move != nullptr) {
    if (move->restored) TakeOver(*move, now, out);
    return;
  }
  SwearOff(id);
  Send(from, Lane::kRequest, MigrationMessageType::kNotHeld, MigrationIdMessage{id}, out);
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_ANSWERS_INL_H_
