#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_INL_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_INL_H_

// The bodies of commit_core.h's templates: the library instantiates them with the faithful policy,
// tests with others.

#include <algorithm>
#include <utility>

#include "objfs/atomicity/commit_core.h"

namespace abacus::objfs {

// -- CommitDriver -------------------------------------------------------------------------------

template <typename Policy>
CommitDriver<Policy>::CommitDriver(const CommitOptions& options, Version id,
                                   std::vector<CommitPart> group, std::vector<std::string> payloads,
                                   Start start, Nanos now)
    : options_(options),
      id_(id),
      group_(std::move(group)),
      payloads_(std::move(payloads)),
      answered_(group_.size()),
      phase_(start == Start::kPrepare   ? Phase::kPreparing
             : start == Start::kInquire ? Phase::kInquiring
                                        : Phase::kCommitting),
      next_at_(now),
      decide_at_(now + options.decide_ns),
      doubt_at_(now + options.lease_ns),
      committed_(start == Start::kCommit) {}

template <typename Policy>
CommitKind CommitDriver<Policy>::Question() const {
  switch (phase_) {
    case Phase::kPreparing:
      return CommitKind::kPrepare;
    case Phase::kCommitting:
      return CommitKind::kCommit;
    case Phase::kAborting:
      return CommitKind::kAbort;
    case Phase::kInquiring:
    case Phase::kEnded:
      break;
  }
  return CommitKind::kInquire;
}

template <typename Policy>
void CommitDriver<Policy>::SendAll(std::vector<CommitSend>* out) {
  for (size_t i = 0; i < group_.size(); ++i) {
    if (answered_[i]) continue;
    CommitMessage message{.kind = Question(), .id = id_, .part = group_[i]};
    if (phase_ == Phase::kPreparing) {
      message.group = group_;
      message.payload = payloads_[i];
    }
    out->push_back({.to = group_[i].server, .message = std::move(message), .after = 0});
  }
}

template <typename Policy>
void CommitDriver<Policy>::Enter(Phase phase, Nanos now, std::vector<CommitSend>* out) {
  phase_ = phase;
  sends_ = 0;
  next_at_ = now;
  std::fill(answered_.begin(), answered_.end(), false);
  if (phase != Phase::kEnded) return Tick(now, out);
  if (!committed_) return;
  for (const CommitPart& part : group_) {
    out->push_back({.to = part.server,
                    .message = {.kind = CommitKind::kForget, .id = id_, .part = part},
                    .after = 0});
  }
}

template <typename Policy>
void CommitDriver<Policy>::Tick(Nanos now, std::vector<CommitSend>* out) {
  if (phase_ == Phase::kEnded || now < next_at_) return;
  if (phase_ == Phase::kPreparing && now >= decide_at_) {
    // Somebody may have found all prepared by now, so that this is not the one to call it off.
    if (Policy::kNoAbortInDoubt) return Enter(Phase::kInquiring, now, out);
    aborted_ = true;
    return Enter(Phase::kAborting, now, out);
  }
  if (phase_ == Phase::kAborting && sends_ >= options_.abort_sends_max) {
    return Enter(Phase::kEnded, now, out);
  }
  SendAll(out);
  ++sends_;
  next_at_ = Policy::kSendAgain ? now + options_.resend_ns : INT64_MAX;
}

template <typename Policy>
void CommitDriver<Policy>::OnAnswer(const CommitMessage& answer, Nanos now,
                                    std::vector<CommitSend>* out) {
  const auto found = std::find(group_.begin(), group_.end(), answer.part);
  if (found == group_.end() || answer.id != id_ || phase_ == Phase::kEnded) return;
  const bool asking = phase_ == Phase::kPreparing || phase_ == Phase::kInquiring;
  bool counts = false;
  switch (answer.kind) {
    case CommitKind::kPrepared:
      counts = asking;
      break;
    case CommitKind::kCommitted:
      counts = phase_ != Phase::kAborting;
      break;
    case CommitKind::kAborted:
      counts = phase_ == Phase::kAborting;
      break;
    case CommitKind::kRefused:
      newest_ = std::max(newest_, answer.newest);
      if (!asking) return;
      if (phase_ == Phase::kPreparing || Policy::kForwardOnlyIfAll) {
        in_doubt_ = Policy::kDoubtAfterLease && now >= doubt_at_;
        aborted_ = !in_doubt_;
        return Enter(Phase::kAborting, now, out);
      }
      counts = true;
      break;
    default:
      return;  // a question
  }
  if (!counts) return;
  answered_[static_cast<size_t>(found - group_.begin())] = true;
  const bool all = std::find(answered_.begin(), answered_.end(), false) == answered_.end();
  if (asking && (all || !Policy::kWaitForAllPrepared)) {
    committed_ = true;
    return Enter(Phase::kCommitting, now, out);
  }
  if (!asking && (all || (committed_ && !Policy::kForgetAfterAll))) {
    Enter(Phase::kEnded, now, out);
  }
}

// -- CommitParticipant --------------------------------------------------------------------------

template <typename Policy>
CommitParticipant<Policy>::CommitParticipant(const CommitOptions& options, uint64_t server,
                                             CommitEntries durable, Nanos now)
    : options_(options), server_(server), ceiling_(durable.ceiling) {
  if (Policy::kFloorAfterRestart) floor_ = durable.ceiling;
  for (auto& [key, entry] : durable.entries) {
    Entry& mine = entries_[key];
    mine.group = std::move(entry.group);
    mine.payload = std::move(entry.payload);
    mine.committed = entry.committed;
    mine.applied = entry.committed && !Policy::kRedoAfterRestart;
    mine.expires = now + options.lease_ns;
  }
}

template <typename Policy>
void CommitParticipant<Policy>::Start(CommitActions* out) {
  for (const auto& [key, entry] : entries_) {
    if (entry.committed && !entry.applied) out->apply.push_back(key);
  }
}

template <typename Policy>
uint64_t CommitParticipant<Policy>::Persist(CommitRecord record, CommitActions* out) {
  out->persist.push_back(std::move(record));
  return ++records_;
}

template <typename Policy>
uint64_t CommitParticipant<Policy>::RaiseCeiling(Version seen, CommitActions* out) {
  if (!Policy::kRaiseCeiling || seen <= ceiling_) return ceiling_record_;
  ceiling_ = Version::Of(seen.ticks() + options_.ceiling_step_ticks, 0);
  ceiling_record_ = Persist({.kind = CommitRecord::Kind::kCeiling, .key = {ceiling_, 0}}, out);
  return ceiling_record_;
}

template <typename Policy>
bool CommitParticipant<Policy>::Admits(const CommitKey& key) const {
  return key.id > floor_ && !refused_.contains(key);
}

template <typename Policy>
auto CommitParticipant<Policy>::Find(const CommitKey& key) const -> const Entry* {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

template <typename Policy>
void CommitParticipant<Policy>::Answer(uint64_t to, CommitKind kind, const CommitKey& key,
                                       uint64_t after, CommitActions* out) {
  out->sends.push_back({.to = to,
                        .message = {.kind = kind,
                                    .id = key.id,
                                    .part = {server_, key.part},
                                    .newest = kind == CommitKind::kRefused ? floor_ : Version()},
                        .after = Policy::kAnswerAfterDurable ? after : 0});
}

template <typename Policy>
void CommitParticipant<Policy>::Remember(const CommitKey& key) {
  refused_.insert(key);
  if (refused_.size() <= options_.refused_max) return;
  floor_ = std::max(floor_, refused_.begin()->id);
  refused_.erase(refused_.begin());
}

template <typename Policy>
void CommitParticipant<Policy>::Refuse(uint64_t from, const CommitKey& key, CommitActions* out) {
  Remember(key);
  Answer(from, CommitKind::kRefused, key, RaiseCeiling(key.id, out), out);
}

template <typename Policy>
void CommitParticipant<Policy>::Handle(uint64_t from, const CommitMessage& message, bool vote,
                                       Nanos now, CommitActions* out) {
  const CommitKey key{message.id, message.part.part};
  switch (message.kind) {
    case CommitKind::kPrepare:
      return OnPrepare(from, message, vote, now, out);
    case CommitKind::kCommit:
      return OnCommit(from, key, out);
    case CommitKind::kAbort:
      return OnAbort(from, key, out);
    case CommitKind::kInquire:
      return OnInquire(from, key, out);
    case CommitKind::kForget:
      if (const Entry* entry = Find(key); entry != nullptr && entry->committed) {
        entries_.erase(key);
        Remember(key);
        Persist({.kind = CommitRecord::Kind::kForget, .key = key}, out);
      }
      return;
    default: {
      const auto driver = resolutions_.find(message.id);
      if (driver != resolutions_.end()) driver->second.OnAnswer(message, now, &out->sends);
    }
  }
}

template <typename Policy>
void CommitParticipant<Policy>::OnPrepare(uint64_t from, const CommitMessage& message, bool vote,
                                          Nanos now, CommitActions* out) {
  const CommitKey key{message.id, message.part.part};
  if (const Entry* entry = Find(key); entry != nullptr) {
    return Answer(from, CommitKind::kPrepared, key, entry->record, out);
  }
  if (!vote || !Admits(key)) return Refuse(from, key, out);
  RaiseCeiling(key.id, out);
  Entry& entry = entries_[key];
  entry.group = message.group;
  entry.payload = message.payload;
  entry.expires = now + options_.lease_ns;
  if (Policy::kPersistPrepare) {
    entry.record = Persist({.kind = CommitRecord::Kind::kPrepare,
                            .key = key,
                            .group = message.group,
                            .payload = message.payload},
                           out);
  }
  Answer(from, CommitKind::kPrepared, key, entry.record, out);
}

template <typename Policy>
void CommitParticipant<Policy>::OnCommit(uint64_t from, const CommitKey& key, CommitActions* out) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    // Committed is sent of what was prepared here: it was applied, and is forgotten.
    return Answer(from, CommitKind::kCommitted, key, 0, out);
  }
  Entry& entry = found->second;
  if (!entry.committed) {
    entry.committed = true;
    entry.record = Persist({.kind = CommitRecord::Kind::kCommit, .key = key}, out);
    out->apply.push_back(key);
  }
  if (entry.applied || !Policy::kAcknowledgeApplied) {
    return Answer(from, CommitKind::kCommitted, key, entry.record, out);
  }
  entry.waiting.insert(from);
}

template <typename Policy>
void CommitParticipant<Policy>::Applied(const CommitKey& key, CommitActions* out) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.applied = true;
  for (const uint64_t to : std::exchange(entry.waiting, {})) {
    Answer(to, CommitKind::kCommitted, key, entry.record, out);
  }
  if (Policy::kRememberCommitted) return;
  entries_.erase(found);
  Persist({.kind = CommitRecord::Kind::kForget, .key = key}, out);
}

template <typename Policy>
void CommitParticipant<Policy>::OnAbort(uint64_t from, const CommitKey& key, CommitActions* out) {
  const Entry* entry = Find(key);
  // Of one that is committed, only those speak who asked another that had forgotten it.
  if (entry != nullptr && !entry->committed) {
    entries_.erase(key);
    Persist({.kind = CommitRecord::Kind::kAbort, .key = key}, out);
    out->undone.push_back(key);
  }
  // Somebody has refused it for ever, so that it cannot be committed; a late copy of kPrepare would
  // only be in the way for a lease.
  Remember(key);
  Answer(from, CommitKind::kAborted, key, 0, out);
}

template <typename Policy>
void CommitParticipant<Policy>::OnInquire(uint64_t from, const CommitKey& key, CommitActions* out) {
  const Entry* entry = Find(key);
  if (entry == nullptr) {
    if (Policy::kSwearOff) return Refuse(from, key, out);
    return Answer(from, CommitKind::kRefused, key, 0, out);
  }
  Answer(from, CommitKind::kPrepared, key, entry->record, out);
}

template <typename Policy>
void CommitParticipant<Policy>::Tick(Nanos now, CommitActions* out) {
  for (auto& [key, entry] : entries_) {
    if (!Policy::kResolveAfterLease) break;
    if (entry.expires > now || resolutions_.contains(key.id)) continue;
    entry.expires = now + options_.lease_ns;
    const auto start = entry.committed ? Driver::Start::kCommit : Driver::Start::kInquire;
    resolutions_.emplace(
        key.id, Driver(options_, key.id, entry.group, std::vector<std::string>(), start, now));
  }
  for (auto it = resolutions_.begin(); it != resolutions_.end();) {
    it->second.Tick(now, &out->sends);
    it = it->second.phase() == Driver::Phase::kEnded ? resolutions_.erase(it) : std::next(it);
  }
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_INL_H_
