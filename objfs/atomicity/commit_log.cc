#include "objfs/atomicity/commit_log.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

// By how much an entry of a snapshot may be larger than the record of its preparation.
// With its key among those that are held.
constexpr uint64_t kEntrySlackBytes = 32;
constexpr size_t kGroupMax = 64;

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("a question about a group: ", what));
}

bool IsQuestion(CommitKind kind) { return kind <= CommitKind::kForget; }

absl::Status CheckMembers(const std::vector<CommitPart>& group, const CommitPart& part,
                          uint64_t servers_end) {
  if (group.empty() || group.size() > kGroupMax) {
    return Invalid(absl::StrCat("it is of ", group.size(), " servers"));
  }
  std::set<uint64_t> servers;
  for (const CommitPart& member : group) {
    if (member.part != 0 || member.server >= servers_end || !servers.insert(member.server).second) {
      return Invalid("a member is none, or there twice");
    }
  }
  return servers.contains(part.server) ? absl::OkStatus() : Invalid("this server is not in it");
}

uint64_t RecordBytes(const CommitMessage& prepare) {
  return CommitLogState::CommitBytes({.kind = CommitRecord::Kind::kPrepare,
                                      .key = {prepare.id, prepare.part.part},
                                      .group = prepare.group,
                                      .payload = prepare.payload})
      .size();
}

}  // namespace

absl::StatusOr<CommitReply> CommitLog::Ask(uint64_t epoch, const CommitMessage& question) {
  ABACUS_RETURN_IF_ERROR(Check(question));
  ABACUS_RETURN_IF_ERROR(RaiseEpoch(epoch));
  if (question.kind == CommitKind::kPrepare) return Prepare(epoch, question);
  CommitReply reply;
  if (question.kind == CommitKind::kForget && StaysHeld({question.id, question.part.part})) {
    reply.message = {.kind = CommitKind::kForget, .id = question.id, .part = question.part};
    return reply;
  }
  ABACUS_ASSIGN_OR_RETURN(reply.message, Handle(epoch, question, &reply.refusal));
  return reply;
}

absl::StatusOr<CommitLogCounts> CommitLog::Counts() {
  MutexLock lock(mutex_);
  CommitLogCounts counts = counts_;
  counts.pending = groups_->participant().entries().size();
  counts.stuck = stuck_.size();
  counts.checkpoints = log_->checkpoints();
  return counts;
}

absl::Status CommitLog::Check(const CommitMessage& question) {
  if (!IsQuestion(question.kind)) return Invalid("it is none");
  if (question.id == Version()) return Invalid("it has no identifier");
  if (question.part != CommitPart{options_.server, 0}) return Invalid("it is for another server");
  if (question.kind == CommitKind::kPrepare) {
    ABACUS_RETURN_IF_ERROR(CheckMembers(question.group, question.part, kFirstCall));
  }
  // What is far ahead would raise the ceiling so far that all others were refused.
  return clock_.Observe(question.id);
}

absl::Status CommitLog::CheckEpoch(uint64_t epoch) const {
  ABACUS_RETURN_IF_ERROR(broken_);
  if (epoch >= state_.epoch) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("this server has seen epoch ", state_.epoch,
                                                  " of its volume, and the call is of ", epoch));
}

absl::Status CommitLog::RaiseEpoch(uint64_t epoch) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(broken_);
  if (epoch > state_.epoch) {
    state_.epoch = epoch;
    epoch_sequence_ = Append(CommitLogState::EpochBytes(epoch));
  }
  return AwaitDurable(epoch_sequence_);  // whoever raised it
}

// -- preparing ------------------------------------------------------------------------------------

absl::StatusOr<CommitReply> CommitLog::Prepare(uint64_t epoch, const CommitMessage& question) {
  const absl::StatusOr<GroupPart> part = GroupPart::Decode(question.payload);
  if (!part.ok()) return Invalid(std::string(part.status().message()));
  const CommitKey key{question.id, question.part.part};
  CommitReply reply;
  // Lives until the answer may be given: who shuts others out waits for that.
  absl::StatusOr<std::shared_ptr<const void>> inside = std::shared_ptr<const void>();
  if (host_.enter) inside = host_.enter(*part);
  Groups::Begun begun;
  uint64_t pending_bytes;
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckEpoch(epoch));
    begun = groups_->Begin(key, *part, inside.ok());
    pending_bytes = state_bytes_;
  }
  reply.refusal = begun.refusal;
  if (reply.refusal == Refusal::kShutOut) {
    reply.why = std::string(inside.status().message());
  } else if (reply.refusal == Refusal::kClaimed) {
    reply.why = "another group has to do with the same blocks and is not decided yet";
  } else if (begun.is_new) {
    reply = Validate(key.id, *part, pending_bytes);
  }
  const Version seen = reply.message.newest;
  absl::StatusOr<CommitMessage> answer = Handle(epoch, question, &reply.refusal);
  if (!answer.ok()) {
    MutexLock lock(mutex_);
    groups_->GiveUp(key);
    return answer.status();
  }
  reply.message = *std::move(answer);
  if (reply.message.kind != CommitKind::kRefused) {
    reply.refusal = Refusal::kNone;  // it was prepared by an earlier copy of the question
    return reply;
  }
  if (reply.refusal == Refusal::kNone) reply.refusal = Refusal::kOld;
  if (reply.refusal == Refusal::kFull && reply.why.empty())
    reply.why = "there is no room for the log";
  reply.message.newest = std::max(reply.message.newest, seen);
  return reply;
}

CommitReply CommitLog::Validate(Version id, const GroupPart& part, uint64_t pending_bytes) {
  CommitReply reply;
  absl::Status checked = ValidateReads(part, &reply);
  if (checked.ok() && reply.refusal == Refusal::kNone) checked = ValidateWrites(id, part, &reply);
  if (checked.ok() && reply.refusal == Refusal::kNone && !part.writes.empty()) {
    const absl::StatusOr<StoreSpace> space = store_->Space();
    checked = space.status();
    if (space.ok() && space->available_bytes < pending_bytes + part.bytes()) {
      reply.refusal = Refusal::kFull;
      reply.why = "the server's disk is full";
    }
  }
  if (checked.ok()) return reply;
  reply.refusal = absl::IsNotFound(checked) ? Refusal::kNoObject : Refusal::kUnusable;
  reply.why = std::string(checked.message());
  return reply;
}

absl::Status CommitLog::ValidateReads(const GroupPart& part, CommitReply* reply) {
  for (const GroupRead& read : part.reads) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<VersionNumber> versions,
                            store_->ReadVersions(read.id, read.block, 1));
    if (Groups::IsUnchanged(read, Version{versions[0]})) continue;
    reply->refusal = Refusal::kChanged;
    reply->why = absl::StrCat("block ", read.block, " of object ", read.id, " has changed since");
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CommitLog::ValidateWrites(Version id, const GroupPart& part, CommitReply* reply) {
  for (const GroupWrite& write : part.writes) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<VersionNumber> versions,
                            store_->ReadVersions(write.id, write.block, write.blocks()));
    const Version newest{*std::max_element(versions.begin(), versions.end())};
    if (Groups::IsNewer(id, newest)) continue;
    // It would be written under what is there, and never seen.
    reply->refusal = Refusal::kOld;
    reply->message.newest = std::max(reply->message.newest, newest);
  }
  return absl::OkStatus();
}

// -- questions and their answers ------------------------------------------------------------------

absl::StatusOr<CommitMessage> CommitLog::Handle(uint64_t epoch, const CommitMessage& question,
                                                Refusal* refusal, bool holds) {
  const CommitKey key{question.id, question.part.part};
  const bool prepares = question.kind == CommitKind::kPrepare;
  uint64_t call;
  std::vector<CommitKey> apply;
  {
    MutexLock lock(mutex_);
    // What is new is refused while there is no room, so that its writer knows that it is not there.
    if (prepares && lacks_room_) AwaitDurable(log_->appended()).IgnoreError();
    // Again: an epoch may have begun since.
    ABACUS_RETURN_IF_ERROR(CheckEpoch(epoch));
    const Groups::Participant::Entry* const there = groups_->participant().Find(key);
    if (groups_->IsKept(question)) {
      return absl::UnavailableError("who has opened an object of the group is settling it");
    }
    // Two writers have one number. What is there is the other one's, who was told that it is.
    if (prepares && there != nullptr &&
        (there->group != question.group || there->payload != question.payload)) {
      return Invalid("another group has its identifier");
    }
    if (prepares && *refusal == Refusal::kNone && there == nullptr) {
      const uint64_t bytes = RecordBytes(question);
      const bool is_full = log_->IsFull(state_bytes_ + bytes + kEntrySlackBytes, bytes);
      if (is_full || lacks_room_) *refusal = Refusal::kFull;
    }
    if (holds) {
      ABACUS_RETURN_IF_ERROR(HoldNow(key));
      ABACUS_RETURN_IF_ERROR(CheckEpoch(epoch));  // it lets others in while it waits
    }
    call = next_call_++;
    calls_.emplace(call, Call());
    CommitActions actions;
    groups_->Handle(call, question, *refusal == Refusal::kNone, host_.steady_ns(), &actions);
    apply = actions.apply;
    Do(std::move(actions));
    if (prepares && groups_->participant().Find(key) == nullptr) ++counts_.refused;
  }
  for (const CommitKey& committed : apply) Apply(committed);
  MutexLock lock(mutex_);
  if (question.kind != CommitKind::kForget) return AwaitAnswer(call, key);
  calls_.erase(call);
  return CommitMessage{.kind = CommitKind::kForget, .id = question.id, .part = question.part};
}

absl::StatusOr<CommitMessage> CommitLog::AwaitAnswer(uint64_t call, const CommitKey& key) {
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(options_.answer_wait);
  // Only what is committed, and not yet in the store, has no answer yet.
  absl::Status status;
  while (status.ok() && !calls_[call].answer.has_value()) {
    const auto stuck = stuck_.find(key);
    if (stuck != stuck_.end()) {
      status = absl::UnavailableError(absl::StrCat("a committed group cannot be written yet: ",
                                                   std::string(stuck->second.message())));
    } else if (!broken_.ok()) {
      status = broken_;
    } else if (stopping_ || !changed_.WaitUntil(mutex_, deadline)) {
      status = absl::UnavailableError("a committed group is not written yet");
    }
  }
  const Call answered = std::move(calls_[call]);
  calls_.erase(call);
  ABACUS_RETURN_IF_ERROR(status);
  ABACUS_RETURN_IF_ERROR(AwaitDurable(answered.after));
  return *answered.answer;
}

void CommitLog::Do(CommitActions actions) {
  for (const CommitRecord& record : actions.persist) {
    state_.ApplyCommit(record);
    Account(record);
    sequences_[++records_] = Append(CommitLogState::CommitBytes(record));
  }
  for (CommitSend& send : actions.sends) {
    if (send.to < kFirstCall) {
      outgoing_.push_back(std::move(send));
      continue;
    }
    const auto call = calls_.find(send.to);
    if (call == calls_.end()) continue;  // it was given up
    // What is not among these is durable, and so is record 0.
    const auto record = sequences_.find(send.after);
    call->second.after = record == sequences_.end() ? 0 : record->second;
    call->second.answer = std::move(send.message);
  }
  counts_.undone += actions.undone.size();
  changed_.SignalAll();
}

void CommitLog::Account(const CommitRecord& record) {
  switch (record.kind) {
    case CommitRecord::Kind::kPrepare: {
      const uint64_t bytes = CommitLogState::CommitBytes(record).size() + kEntrySlackBytes;
      if (entry_bytes_.emplace(record.key, bytes).second) state_bytes_ += bytes;
      ++counts_.prepared;
      return;
    }
    case CommitRecord::Kind::kAbort:
    case CommitRecord::Kind::kForget: {
      const auto entry = entry_bytes_.find(record.key);
      if (entry == entry_bytes_.end()) return;
      state_bytes_ -= entry->second;
      entry_bytes_.erase(entry);
      return;
    }
    case CommitRecord::Kind::kCeiling:
    case CommitRecord::Kind::kCommit:
      return;
  }
}

// -- settling -------------------------------------------------------------------------------------

absl::StatusOr<std::vector<PendingGroup>> CommitLog::PendingOf(ObjectId id) {
  MutexLock lock(mutex_);
  // What is here need not be durable then.
  ABACUS_RETURN_IF_ERROR(broken_);
  return groups_->PendingOf(id, state_.held);
}

absl::StatusOr<Version> CommitLog::NewestOpening() {
  MutexLock lock(mutex_);
  Version newest;
  for (const auto& [key, entry] : groups_->participant().entries()) {
    ABACUS_ASSIGN_OR_RETURN(const GroupPart part, GroupPart::Decode(entry.payload));
    for (const GroupFence& fence : part.fences) newest = std::max(newest, fence.opening);
  }
  return newest;
}

absl::Status CommitLog::Settle(const GroupFence& by, const std::vector<GroupOrder>& orders) {
  // Lives until all is done.
  absl::StatusOr<std::shared_ptr<const void>> inside = std::shared_ptr<const void>();
  if (host_.enter) {
    GroupPart part;
    part.fences.push_back(by);
    inside = host_.enter(part);
    ABACUS_RETURN_IF_ERROR(inside.status());
  }
  for (const GroupOrder& order : orders) ABACUS_RETURN_IF_ERROR(SettleOne(order));
  if (orders.empty()) return absl::OkStatus();
  // Also what was aborted: else it is back after a crash, and a later opening, without those who
  // have nothing of it, may commit it.
  MutexLock lock(mutex_);
  return AwaitDurable(log_->appended());
}

absl::Status CommitLog::SettleOne(const GroupOrder& order) {
  CommitMessage question;
  uint64_t epoch = 0;
  {
    MutexLock lock(mutex_);
    epoch = state_.epoch;
    question = groups_->BeginOrder(order);
  }
  Refusal refusal = Refusal::kNone;
  const absl::Status done =
      Handle(epoch, question, &refusal, order.fate == GroupFate::kCommitHeld).status();
  bool is_committed = false;
  {
    MutexLock lock(mutex_);
    is_committed = groups_->EndOrder(order);
  }
  if (!done.ok() || !is_committed) return done;
  question.kind = CommitKind::kCommit;
  return Handle(epoch, question, &refusal).status();
}

absl::Status CommitLog::HoldNow(const CommitKey& key) {
  ABACUS_RETURN_IF_ERROR(CheckThere(key));
  uint64_t sequence = log_->appended();
  if (!state_.held.contains(key)) {
    state_.Hold(key);
    sequence = Append(CommitLogState::HeldBytes(key));
  }
  ABACUS_RETURN_IF_ERROR(AwaitDurable(sequence));
  return CheckThere(key);
}

absl::Status CommitLog::CheckThere(const CommitKey& key) const {
  if (groups_->participant().Find(key) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("group ", key.id.ToString(), " is not in this server's log any more"));
}

bool CommitLog::StaysHeld(const CommitKey& key) {
  absl::StatusOr<GroupPart> part = GroupPart();
  {
    MutexLock lock(mutex_);
    const Groups::Participant::Entry* entry = groups_->participant().Find(key);
    if (entry == nullptr || !state_.held.contains(key)) return false;
    part = GroupPart::Decode(entry->payload);
  }
  if (!part.ok()) return true;
  // Nobody opens here any more what was removed, or moved to another server.
  return !std::all_of(part->fences.begin(), part->fences.end(), [this](const GroupFence& fence) {
    return absl::IsNotFound(store_->GetAttributes(fence.id).status());
  });
}

// -- the log --------------------------------------------------------------------------------------

uint64_t CommitLog::Append(std::string_view payload) {
  ++counts_.records;
  const absl::StatusOr<uint64_t> sequence = log_->Append(payload);
  if (sequence.ok()) return *sequence;
  if (broken_.ok()) broken_ = sequence.status();
  return UINT64_MAX;
}

absl::Status CommitLog::AwaitDurable(uint64_t sequence) {
  while (broken_.ok() && log_->durable() < sequence) {
    if (writing_) {
      changed_.Wait(mutex_);
    } else {
      ABACUS_RETURN_IF_ERROR(WriteOnce());
    }
  }
  return broken_;
}

absl::Status CommitLog::WriteOnce() {
  if (!unwritten_.has_value()) unwritten_ = log_->NextWrite();
  if (!unwritten_.has_value()) {
    broken_ = absl::InternalError("the log of groups has no room for its own state");
    changed_.SignalAll();
    return broken_;
  }
  writing_ = true;
  const LogWrite& write = *unwritten_;
  mutex_.Unlock();
  // For all that were appended so far; who comes meanwhile rides on the next one.
  absl::Status written = file_->Write(write);
  const bool has_no_room = absl::IsResourceExhausted(written);
  if (written.ok()) written = file_->Flush();
  mutex_.Lock();
  writing_ = false;
  changed_.SignalAll();
  // Whoever needs it next tries again.
  lacks_room_ = has_no_room;
  if (has_no_room) return written;
  unwritten_.reset();
  log_->Written(written);
  ++counts_.flushes;
  if (!written.ok()) {
    broken_ = absl::UnavailableError(absl::StrCat(
        "the log of groups could not be written, and takes no more until the server is started "
        "again: ",
        std::string(written.message())));
  }
  std::erase_if(sequences_, [this](const auto& record) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return record.second <= log_->durable();
  });
  return broken_;
}

}  // namespace abacus::objfs
