// CommitLog: recovery, writing what is committed, and resolving what the dead left.

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/atomicity/commit_log.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kEmptySnapshotBytes = 64;  // generously
// A group goes through at most two phases in one look at the leases, and who is told to forget.
constexpr int kRoundsMax = 4;
constexpr int kRemovedMeanwhileMax = 8;

bool IsAnswer(CommitKind kind) { return kind > CommitKind::kForget; }

}  // namespace

CommitLog::CommitLog(std::shared_ptr<ObjectStore> store, const Options& options, Host host)
    : store_(std::move(store)),
      options_(options),
      host_(std::move(host)),
      clock_(0, host_.now_us) {}

CommitLog::~CommitLog() { Stop(); }

void CommitLog::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (broken_.ok()) broken_ = absl::UnavailableError("the log of groups was closed");
    stopped_.SignalAll();
    changed_.SignalAll();
  }
  if (worker_.joinable()) worker_.join();
  MutexLock lock(mutex_);
  while (writing_) changed_.Wait(mutex_);
}

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::Open(std::shared_ptr<Disk> disk,
                                                           std::shared_ptr<ObjectStore> store,
                                                           const Options& options, Host host) {
  auto log = std::unique_ptr<CommitLog>(new CommitLog(std::move(store), options, std::move(host)));
  ABACUS_RETURN_IF_ERROR(log->Recover(*disk));
  if (options.resolve_every > absl::ZeroDuration()) {
    log->worker_ = std::thread([log = log.get()] { log->Work(); });
  }
  return log;
}

absl::Status CommitLog::Recover(Disk& disk) {
  std::vector<CommitKey> committed;
  {
    MutexLock lock(mutex_);
    // Nothing that was begun before there was a log is taken: where the log was lost, this server
    // does not know what it has refused.
    state_.epoch = options_.epoch;
    state_.commits.ceiling = clock_.Next();
    ABACUS_ASSIGN_OR_RETURN(
        file_, LogFile::Open(disk, options_.server, options_.half_bytes, state_.Encode()));
    const RecoveredLog found = file_->TakeRecovered();
    ABACUS_ASSIGN_OR_RETURN(state_, CommitLogState::Decode(found.snapshot));
    for (const std::string& record : found.records) {
      ABACUS_RETURN_IF_ERROR(state_.Apply(record));
    }
    state_.epoch = std::max(state_.epoch, options_.epoch);
    clock_.Follow(state_.commits.ceiling);
    log_.emplace(
        file_->options(), [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state_.Encode(); },
        &found);
    // Where the disk is full it is tried again, and before that RaiseEpoch() lets no call in.
    epoch_sequence_ = log_->appended();
    const absl::Status begun = AwaitDurable(epoch_sequence_);
    if (!absl::IsResourceExhausted(begun)) ABACUS_RETURN_IF_ERROR(begun);
    state_bytes_ = kEmptySnapshotBytes;
    groups_.emplace(options_.commit, options_.server, state_.commits, host_.steady_ns());
    for (const auto& [key, entry] : groups_->participant().entries()) {
      Account({CommitRecord::Kind::kPrepare, key, entry.group, entry.payload});
    }
    ABACUS_RETURN_IF_ERROR(groups_->TakeClaims());
    counts_ = CommitLogCounts();
    CommitActions actions;
    groups_->Start(&actions);
    committed = actions.apply;
    Do(std::move(actions));
  }
  // One after the other, by age: no call is let in before the store has all of them, or the stuck
  // ones keep others off their blocks.
  for (const CommitKey& key : committed) Apply(key);
  return absl::OkStatus();
}

// -- writing what is committed --------------------------------------------------------------------

void CommitLog::Apply(const CommitKey& key) {
  absl::StatusOr<GroupPart> part = GroupPart();
  {
    MutexLock lock(mutex_);
    const Groups::Participant::Entry* entry = groups_->participant().Find(key);
    if (entry == nullptr || entry->applied) return;
    stuck_.erase(key);
    part = GroupPart::Decode(entry->payload);
    if (part.ok()) groups_->TakeBlocks(key.id, *part);
  }
  const absl::Status written = part.ok() ? WriteToStore(key.id, *part) : part.status();
  MutexLock lock(mutex_);
  if (!written.ok()) {
    stuck_[key] = written;
    changed_.SignalAll();
    return;
  }
  CommitActions actions;
  groups_->Applied(key, &actions);
  ++counts_.applied;
  Do(std::move(actions));
}

absl::Status CommitLog::WriteToStore(Version id, const GroupPart& part) {
  std::set<ObjectId> ids;
  for (const GroupWrite& write : part.writes) ids.insert(write.id);
  ABACUS_ASSIGN_OR_RETURN(const std::set<ObjectId> over, ObjectsOver(part));
  uint64_t dropped = 0;
  absl::Status written = absl::NotFoundError("");
  for (int i = 0; i < kRemovedMeanwhileMax && absl::IsNotFound(written); ++i) {
    dropped = 0;
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectUpdate> updates,
                            PlanUpdates(id, part, over, &dropped));
    written = updates.empty() ? absl::OkStatus() : store_->Update(updates, id.value);
    if (written.ok()) TellWritten(updates);
  }
  ABACUS_RETURN_IF_ERROR(written);
  // Also where all of it is there already: it need not be durable.
  const std::vector<ObjectId> objects(ids.begin(), ids.end());
  ABACUS_RETURN_IF_ERROR(store_->FlushTogether(objects));
  MutexLock lock(mutex_);
  counts_.dropped += dropped;
  return absl::OkStatus();
}

absl::StatusOr<std::set<ObjectId>> CommitLog::ObjectsOver(const GroupPart& part) {
  std::set<ObjectId> over;
  if (!host_.is_over) return over;
  for (const GroupFence& fence : part.fences) {
    ABACUS_ASSIGN_OR_RETURN(const bool is_over, host_.is_over(fence));
    if (is_over) over.insert(fence.id);
  }
  return over;
}

void CommitLog::TellWritten(const std::vector<ObjectUpdate>& updates) {
  if (!host_.written) return;
  for (const ObjectUpdate& update : updates) {
    for (const ObjectWrite& write : update.writes) {
      host_.written(update.id, write.offset, write.bytes.size());
    }
  }
}

absl::StatusOr<std::vector<ObjectUpdate>> CommitLog::PlanUpdates(Version id, const GroupPart& part,
                                                                 const std::set<ObjectId>& over,
                                                                 uint64_t* dropped) {
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  std::map<ObjectId, ObjectUpdate> by_object;
  for (const GroupWrite& write : part.writes) {
    if (over.contains(write.id)) {
      ++*dropped;
      continue;
    }
    const absl::StatusOr<std::vector<VersionNumber>> versions =
        store_->ReadVersions(write.id, write.block, write.blocks());
    if (absl::IsNotFound(versions.status())) {
      ++*dropped;
      continue;
    }
    ABACUS_RETURN_IF_ERROR(versions.status());
    for (uint64_t i = 0; i < write.blocks(); ++i) {
      if ((*versions)[i] >= id.value) continue;
      ObjectUpdate& update = by_object[write.id];
      update.id = write.id;
      const std::string_view bytes = std::string_view(write.bytes).substr(i * kBlock, kBlock);
      update.writes.push_back({(write.block + i) * kBlock, bytes});
    }
  }
  std::vector<ObjectUpdate> updates;
  for (auto& [object, update] : by_object) updates.push_back(std::move(update));
  return updates;
}

// -- what the dead left ---------------------------------------------------------------------------

void CommitLog::Work() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const auto deadline =
          std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(options_.resolve_every);
      while (!stopping_ && stopped_.WaitUntil(mutex_, deadline)) {
      }
      if (stopping_) return;
    }
    Resolve();
  }
}

void CommitLog::Resolve() {
  if (host_.epoch && !RaiseEpoch(host_.epoch()).ok()) return;
  std::vector<CommitKey> stuck;
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    std::set<Version> before;
    for (const auto& [id, driver] : groups_->participant().resolutions()) before.insert(id);
    CommitActions actions;
    groups_->Tick(host_.steady_ns(), &actions);
    for (const auto& [id, driver] : groups_->participant().resolutions()) {
      counts_.resolved += before.insert(id).second;
    }
    Do(std::move(actions));
    for (const auto& [key, why] : stuck_) stuck.push_back(key);
  }
  for (const CommitKey& key : stuck) Apply(key);
  for (int round = 0; round < kRoundsMax && AskOnce(); ++round) {
  }
  // What nobody waits for: what is forgotten is not written again after a crash.
  MutexLock lock(mutex_);
  AwaitDurable(log_->appended()).IgnoreError();
}

bool CommitLog::AskOnce() {
  std::vector<CommitSend> here, elsewhere;
  uint64_t epoch;
  {
    MutexLock lock(mutex_);
    if (stopping_ || !broken_.ok()) return false;
    epoch = state_.epoch;
    for (CommitSend& send : std::exchange(outgoing_, {})) {
      (send.to == options_.server ? here : elsewhere).push_back(std::move(send));
    }
  }
  for (const CommitSend& send : here) {
    const absl::StatusOr<CommitReply> reply = Ask(epoch, send.message);
    if (reply.ok()) TakeReply(options_.server, *reply);
  }
  // What is held is told to nobody else but by who opens the object: one that has only prepared it
  // would write and forget it, and look like one that has nothing of it.
  std::erase_if(elsewhere, [this](const CommitSend& send) {
    return send.message.kind == CommitKind::kCommit && StaysHeld({send.message.id, 0});
  });
  if (!elsewhere.empty() && host_.peers != nullptr) {
    host_.peers->Ask(epoch, elsewhere, options_.answer_wait,
                     [&](size_t i, const absl::StatusOr<CommitReply>& reply) {
                       if (reply.ok()) TakeReply(elsewhere[i].to, *reply);
                     });
  }
  return !here.empty() || !elsewhere.empty();
}

void CommitLog::TakeReply(uint64_t from, const CommitReply& reply) {
  if (!IsAnswer(reply.message.kind)) return;
  MutexLock lock(mutex_);
  CommitActions actions;
  groups_->Handle(from, reply.message, false, host_.steady_ns(), &actions);
  Do(std::move(actions));
}

}  // namespace abacus::objfs
