// LocalObjectStore: how changes become durable, and how removals do.

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/names.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {
// Space is given back to the disk when this much became free: often enough that an object does not
// take twice its size for long, seldom enough that small overwrites do not punch each block.
constexpr uint64_t kUnpunchedMin = 256;
constexpr uint64_t kUnpunchedShare = 4;
// While updates are stopped nobody waits longer for an object that a call is in: enough for a write
// to memory, and not for one that waits for its disk.
constexpr auto kCollectMax = std::chrono::milliseconds(10);
// Blocks of which a step logs the contents; 16 MiB. It is in memory until it is written.
constexpr uint64_t kStepLoggedMax = 2048;
// So much of a file may be left for a step to sync.
constexpr uint64_t kLeftBytes = uint64_t{4} << 20;

absl::Status Unsynced(ObjectId id, const absl::Status& why) {
  return absl::UnavailableError(
      absl::StrCat("object ", id, " could not be synced and takes no more changes until the ",
                   "store is reopened: ", why.message()));
}
}  // namespace

// -- flushes --------------------------------------------------------------------------------------

absl::Status LocalObjectStore::Flush(ObjectId id) {
  if (const auto found = Find(id); !found.ok()) return found.status();
  return FlushTogether(std::span(&id, 1));
}

absl::Status LocalObjectStore::FlushAll() {
  std::vector<ObjectId> ids;
  {
    MutexLock lock(mutex_);
    ids.assign(changed_.begin(), changed_.end());
  }
  return FlushSome(ids, /*heard=*/false);
}

absl::Status LocalObjectStore::FlushTogether(std::span<const ObjectId> ids) {
  return FlushSome(ids, /*heard=*/!ids.empty());
}

absl::Status LocalObjectStore::FlushSome(std::span<const ObjectId> ids, bool heard) {
  absl::Status first;
  std::vector<ObjectId> synced;
  uint64_t logged = 0;
  for (const ObjectId id : ids) {
    const auto found = Find(id);
    if (!found.ok()) continue;  // removed: nothing is left to make durable
    const std::optional<uint64_t> to_log = BlocksToLog(**found);
    if (to_log.has_value() && logged + *to_log <= kStepLoggedMax) {
      logged += *to_log;
      synced.push_back(id);
      continue;
    }
    const absl::Status status = SyncBeforeStep(**found);
    if (status.ok()) synced.push_back(id);
    if (!absl::IsNotFound(status)) first.Update(status);
  }
  absl::Status lost;
  first.Update(JoinStep(synced, &lost));
  {
    MutexLock lock(mutex_);
    if (heard) {
      first.Update(std::exchange(lost_unheard_, absl::OkStatus()));
    } else {
      lost_unheard_.Update(lost);
    }
  }
  first.Update(SyncRemovals());
  CheckpointIfLong();
  return Counted(first);
}

std::optional<uint64_t> LocalObjectStore::BlocksToLog(StoredObject& object) {
  const LockFirst lock(object);
  const uint64_t blocks = object.state.changed_blocks();
  if (object.removed || !object.unsynced.ok() || blocks > options_.logged_blocks_max) {
    return std::nullopt;
  }
  return blocks;
}

absl::Status LocalObjectStore::SyncBeforeStep(StoredObject& object) {
  for (uint64_t left = UINT64_MAX, before = left;; before = left) {
    if (auto status = SyncData(object); !status.ok()) return status;
    {
      const LockFirst lock(object);
      left = object.data_written - object.data_synced;
    }
    // Where as much comes as a sync takes away, another one would be in vain.
    if (left <= kLeftBytes || left > before / 2) return absl::OkStatus();
  }
}

absl::Status LocalObjectStore::SyncData(StoredObject& object) {
  MutexLock sync_lock(object.sync_mutex);
  std::shared_ptr<DiskFile> data;
  bool named;
  uint64_t written;
  {
    const LockFirst lock(object);
    if (object.removed) {
      return absl::NotFoundError(absl::StrCat("there is no object ", object.id));
    }
    if (!object.unsynced.ok()) return object.unsynced;
    // It has taken no changes since it was read last.
    if (!object.damage.ok()) return absl::OkStatus();
    written = object.data_written;
    if (object.data_synced == written) return absl::OkStatus();
    auto opened = DataFile(object, false);
    // Without the file the bytes are lost as well; other errors pass.
    if (absl::IsDataLoss(opened.status())) object.unsynced = Unsynced(object.id, opened.status());
    if (!object.unsynced.ok()) return object.unsynced;
    if (!opened.ok()) return opened.status();
    data = *std::move(opened);
    named = object.data_named;
  }
  return SyncFile(object, *data, named, written);
}

absl::Status LocalObjectStore::SyncFile(StoredObject& object, DiskFile& data, bool named,
                                        uint64_t written) {
  absl::Status synced = data.Sync();
  if (synced.ok() && !named) synced = disk_.SyncDirectory(FolderName(object.id));
  const LockFirst lock(object);
  if (synced.ok()) {
    object.data_named = true;
    object.data_synced = written;
    return synced;
  }
  // The kernel reports a page that it could not write once and then takes it for clean: a second
  // try would succeed without the bytes.
  object.unsynced = Unsynced(object.id, synced);
  if (object.logged) KeepJournals(synced);
  return object.unsynced;
}

void LocalObjectStore::TakeRoom() {
  {
    const SharedGate::Pass pass(commits_);
    journal_->TakeRoom();
  }
  spare_.Refill().IgnoreError();  // who adds something is told
}

// -- steps ----------------------------------------------------------------------------------------

absl::Status LocalObjectStore::JoinStep(std::span<const ObjectId> ids, absl::Status* lost) {
  steps_mutex_.Lock();
  const std::shared_ptr<Step> step = next_step_;
  step->ids.insert(step->ids.end(), ids.begin(), ids.end());
  while (!step->done) {
    if (stepping_) {
      stepped_.Wait(steps_mutex_);
      continue;
    }
    // This thread makes it for all that wait: who comes from now on goes along with the next one.
    stepping_ = true;
    next_step_ = std::make_shared<Step>();
    steps_mutex_.Unlock();
    MakeStep(*step);
    steps_mutex_.Lock();
    stepping_ = false;
    step->done = true;
    stepped_.SignalAll();
  }
  steps_mutex_.Unlock();
  *lost = step->lost;
  absl::Status first = step->status;
  first.Update(step->lost);
  for (const ObjectId id : ids) {
    const auto failed = step->failed.find(id);
    if (failed != step->failed.end()) first.Update(failed->second);
  }
  return first;
}

void LocalObjectStore::MakeStep(Step& step) {
  std::sort(step.ids.begin(), step.ids.end());
  step.ids.erase(std::unique(step.ids.begin(), step.ids.end()), step.ids.end());
  std::vector<ObjectPtr> awaited;
  for (;;) {
    absl::btree_set<ObjectId> taken(step.ids.begin(), step.ids.end());
    {
      MutexLock lock(mutex_);
      for (const auto& [id, tie] : tied_) taken.insert(id);
    }
    // Waited for before updates are stopped, which then last as long as memory is looked through.
    Turns::Turn turn(flush_turns_, std::vector<ObjectId>(taken.begin(), taken.end()));
    updates_.Close();
    std::vector<ObjectId> came;
    {
      MutexLock lock(mutex_);
      for (const auto& [id, tie] : tied_) {
        if (!taken.contains(id)) came.push_back(id);
      }
    }
    const bool has_all = turn.TryAdd(came);
    std::vector<Member> members;
    ObjectPtr busy;
    if (has_all) busy = CollectMembers(step, &members);
    updates_.Open();
    if (busy != nullptr) {
      for (Member& member : members) AbortMember(member);  // this may wait for writes too
      // Else who writes without pause would be in it at the next try too, and hold up all flushes.
      // Not locked meanwhile: reads go on.
      ++busy->awaited;
      awaited.push_back(busy);
      const LockFirst until_it_is_free(*busy);
    }
    if (!has_all || busy != nullptr) continue;
    LetGoOn(awaited);
    SyncMembers(step, members);
    if (const bool tied = std::any_of(members.begin(), members.end(),
                                      [](const Member& one) { return one.tie != Tie::kNone; });
        tied) {
      // Once they are lost, also when what lost them was removed since.
      MutexLock lock(mutex_);
      step.status.Update(updates_lost_);
    }
    if (!step.status.ok()) LeaveOutUpdates(members);
    const absl::Status logged = LogMembers(step, members);
    if (!step.status.ok() || !logged.ok()) {
      MutexLock lock(mutex_);
      gives_back_ = gives_back_ || step.gives_back;  // of those that are tied again
    }
    if (logged.ok()) return;
    for (Member& member : members) AbortMember(member);
    step.status = logged;
    return;
  }
}

void LocalObjectStore::LetGoOn(const std::vector<ObjectPtr>& awaited) {
  for (const ObjectPtr& object : awaited) {
    const LockFirst lock(*object);
    --object->awaited;
  }
}

LocalObjectStore::ObjectPtr LocalObjectStore::CollectMembers(Step& step,
                                                             std::vector<Member>* members) {
  absl::btree_map<ObjectId, Tie> ids;
  absl::flat_hash_map<ObjectId, ObjectPtr> objects;
  {
    MutexLock lock(mutex_);
    ids = std::exchange(tied_, {});
    step.gives_back = std::exchange(gives_back_, false) || step.gives_back;  // or of another try
    for (const ObjectId id : step.ids) ids.try_emplace(id, Tie::kNone);
    for (const auto& [id, tie] : ids) {
      const auto found = objects_.find(id);
      if (found != objects_.end()) objects.emplace(id, found->second);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kCollectMax;
  for (const auto& [id, tie] : ids) {
    const auto found = objects.find(id);
    if (found == objects.end()) continue;
    const ObjectPtr& object = found->second;
    if (!LockSoon(object->mutex, deadline)) {
      MutexLock lock(mutex_);
      for (const auto& [other, other_tie] : ids) {
        if (other_tie == Tie::kNone || !objects.contains(other)) continue;
        Tie& kept = tied_[other];
        kept = std::max(kept, other_tie);
      }
      return object;
    }
    const bool asked = std::binary_search(step.ids.begin(), step.ids.end(), id);
    std::optional<Member> member = MemberOf(step, object, tie, asked);
    object->mutex.Unlock();
    if (member.has_value()) members->push_back(*std::move(member));
  }
  return nullptr;
}

std::optional<LocalObjectStore::Member> LocalObjectStore::MemberOf(Step& step,
                                                                   const ObjectPtr& object, Tie tie,
                                                                   bool asked) {
  Member member{.object = object, .tie = tie};
  if (object->removed || !object->listed_changed) return std::nullopt;
  if (object->unsynced.ok() && (asked || tie >= Tie::kMade)) {
    member.batch = object->state.BeginFlush();
    return member;
  }
  if (asked) step.failed[object->id] = object->unsynced;
  if (tie == Tie::kMade) step.lost.Update(object->unsynced);
  if (tie == Tie::kContents) {
    step.status.Update(LoseUpdates(object->unsynced));
  } else if (tie != Tie::kNone) {
    member.attributes = object->state.Attributes(object->id);
  }
  return member;
}

void LocalObjectStore::SyncMembers(Step& step, std::vector<Member>& members) {
  const bool has_plenty = JournalHasPlenty();
  uint64_t logged = 0;
  for (Member& member : members) {
    if (!member.batch.has_value()) continue;
    const auto blocks = static_cast<uint64_t>(
        std::count_if(member.batch->blocks.begin(), member.batch->blocks.end(),
                      [](const auto& block) { return block.second.version != 0; }));
    if (blocks == 0) continue;
    if (has_plenty && blocks <= options_.logged_blocks_max && logged + blocks <= kStepLoggedMax) {
      // What does not read as it should is synced: whoever reads it is told.
      if (auto contents = ReadContents(member); contents.has_value()) {
        member.contents = *std::move(contents);
        logged += blocks;
        continue;
      }
    }
    const absl::Status synced = SyncData(*member.object);
    if (!synced.ok()) LeaveOut(step, member, synced);
  }
}

std::optional<std::vector<ContentsRecord>> LocalObjectStore::ReadContents(const Member& member) {
  StoredObject& object = *member.object;
  std::shared_ptr<DiskFile> data;
  {
    const LockFirst lock(object);
    if (!object.unsynced.ok()) return std::nullopt;
    if (object.data_synced == object.data_written) return std::vector<ContentsRecord>();
    object.logged = true;
    auto opened = DataFile(object, false);
    if (!opened.ok()) return std::nullopt;
    data = *std::move(opened);
  }
  std::vector<ContentsRecord> contents;
  for (const auto& [block, entry] : member.batch->blocks) {
    if (entry.version == 0) continue;
    // A slot that a batch names is written by nobody.
    ContentsRecord record{
        .id = object.id, .block = block, .slot = entry.slot, .bytes = std::string(kBlockBytes, 0)};
    if (!ReadOne(object.id, data.get(), block, entry, record.bytes.data()).ok()) {
      return std::nullopt;
    }
    contents.push_back(std::move(record));
  }
  return contents;
}

void LocalObjectStore::LeaveOut(Step& step, Member& member, const absl::Status& synced) {
  StoredObject& object = *member.object;
  const LockFirst lock(object);
  step.failed[object.id] = synced;
  const bool is_lost = !object.unsynced.ok();  // else the next step may have them
  if (member.tie == Tie::kMade && is_lost) {
    step.lost.Update(synced);
  } else if (member.tie >= Tie::kMade) {
    step.status.Update(is_lost ? LoseUpdates(synced) : synced);
  }
  if (member.tie != Tie::kNone) {
    // They do not rest on the contents.
    member.attributes = AttributesRecord{.id = object.id,
                                         .version = member.batch->head.version,
                                         .blob = member.batch->head.blob,
                                         .blocks = member.batch->blocks_before};
  }
  object.state.Abort();
  member.batch.reset();
}

void LocalObjectStore::LeaveOutUpdates(std::vector<Member>& members) {
  for (Member& member : members) {
    if (member.tie != Tie::kNone) AbortMember(member);
  }
}

absl::Status LocalObjectStore::LoseUpdates(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (updates_lost_.ok()) {
    updates_lost_ = absl::UnavailableError(absl::StrCat(
        "the store's updates cannot be made durable any more, and it takes none until it is ",
        "reopened, which a restart of its server does; it then has what was durable: ",
        why.message()));
  }
  return updates_lost_;
}

void LocalObjectStore::AbortMember(Member& member) {
  if (member.batch.has_value()) {
    const LockFirst lock(*member.object);
    member.object->state.Abort();
  }
  member.batch.reset();
  member.attributes.reset();
  member.contents.clear();
  if (member.tie == Tie::kNone) return;
  // What may be in the journal is there whole, and is flushed only whole again.
  MutexLock lock(mutex_);
  Tie& tie = tied_[member.object->id];
  tie = std::max(tie, member.tie);
}

bool LocalObjectStore::JournalHasPlenty() {
  const SharedGate::Pass pass(commits_);
  return !journal_->lacks_room();
}

absl::Status LocalObjectStore::LogMembers(const Step& step, const std::vector<Member>& members) {
  std::vector<const Member*> logged;
  for (const Member& member : members) {
    if (member.batch.has_value() || member.attributes.has_value()) logged.push_back(&member);
  }
  if (logged.empty()) return absl::OkStatus();
  std::vector<std::string> payloads;
  for (const Member* member : logged) {
    const bool more = member != logged.back();
    for (const ContentsRecord& contents : member->contents) {
      payloads.push_back(EncodePayload(contents, /*more=*/true));
    }
    payloads.push_back(member->batch.has_value()
                           ? EncodePayload(member->batch->ToRecord(member->object->id), more)
                           : EncodePayload(*member->attributes, more));
  }
  const bool shrinks = std::any_of(logged.begin(), logged.end(), [](const Member* member) {
    return member->batch.has_value() && member->batch->blocks_after < member->batch->blocks_before;
  });
  const auto what =
      step.gives_back || shrinks ? Journal::For::kGivingBack : Journal::For::kAnything;
  uint64_t journal, sequence;
  {
    const SharedGate::Pass pass(commits_);
    journal = journal_->header().number;
    if (auto status = journal_->Ready(payloads, what); !status.ok()) return status;
    sequence = journal_->Append(payloads);
    if (auto status = journal_->Sync(sequence); !status.ok()) return status;
    for (const Member* member : logged) CommitMember(*member);
  }
  // Errors are those of files that nobody needs any more; they are removed later.
  UnlinkRemoved(journal, sequence).IgnoreError();
  return absl::OkStatus();
}

void LocalObjectStore::CommitMember(const Member& member) {
  StoredObject& object = *member.object;
  const LockFirst lock(object);
  if (member.batch.has_value()) {
    durable_blocks_ += object.state.Commit(*member.batch);
    GiveBackSlots(object);
  } else {
    object.state.Commit(*member.attributes);
  }
  object.durable = true;
  MutexLock store_lock(mutex_);
  changed_tables_.insert(object.id);
  if (!object.state.changed()) {
    object.listed_changed = false;
    changed_.erase(object.id);
  }
}

void LocalObjectStore::GiveBackSlots(StoredObject& object) {
  Slots& slots = object.state.slots();
  // What the spare room gave for new slots comes back with the old ones, and goes there.
  const bool is_due = !spare_.is_whole();
  if (object.data == nullptr && (!is_due || !object.has_data || !DataFile(object, false).ok())) {
    return;
  }
  // Errors are of no account: the space stays with the object, which uses it again.
  if (slots.TrimEnd()) object.data->Truncate(slots.end() * kBlockBytes).IgnoreError();
  const bool are_many = slots.unpunched() > std::max(kUnpunchedMin, slots.end() / kUnpunchedShare);
  if (!are_many && !is_due) return;
  for (const SlotRange& range : slots.FreeRanges()) {
    object.data->Punch(range.first * kBlockBytes, range.count * kBlockBytes).IgnoreError();
  }
  slots.Punched();
  if (is_due) spare_.Refill().IgnoreError();
}

absl::Status LocalObjectStore::Remove(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  Removed removed{.id = id};
  bool files_wait, data = false, table = false, too_many;
  {
    const Turns::Turn turn(flush_turns_, id);
    const SharedGate::Pass pass(commits_);
    if (auto status = journal_->broken(); !status.ok()) return status;
    const LockFirst lock(object);
    const absl::Status prepared = Prepare(object);
    // One that is damaged can be removed; how many blocks it had is not known then.
    if (absl::IsNotFound(prepared)) return prepared;
    // The files stay until the removal is durable: a crash before finds the object whole. Of one
    // that no flush wrote contents of there is nothing to find, and no sync to wait for.
    files_wait = object.durable && (object.data_named || object.has_table);
    data = object.has_data;
    table = object.has_table;
    if (files_wait) {
      std::tie(removed.data, removed.table) = std::pair(data, table);
    } else if (auto status = RemoveFiles(id, data, table); !status.ok()) {
      return status;  // while it is there: who makes it again finds no file of it
    }
    if (object.durable) {
      removed.journal = journal_->header().number;
      removed.sequence = journal_->Append(EncodePayload(
          RemoveRecord{.id = id, .blocks_before = object.state.durable_block_count()}));
    }
    object.removed = true;
    object.data.reset();
    used_blocks_ -= static_cast<int64_t>(object.state.block_count());
    durable_blocks_ -= static_cast<int64_t>(object.state.durable_block_count());
    object.state.Unload();
    MutexLock store_lock(mutex_);
    objects_.erase(id);
    changed_.erase(id);
    tied_.erase(id);
    if (tied_.empty()) gives_back_ = false;
    changed_tables_.erase(id);
    // What has no files is there for the next Flush to sync its record, and of several the last.
    const auto has_files = [](const Removed& one) { return one.data || one.table; };
    if (object.durable) {
      if (!removed_.empty() && !has_files(removed_.back()) && !has_files(removed)) {
        removed_.pop_back();
      }
      removed_.push_back(removed);
    }
    too_many = removed_.size() > options_.removed_max;
  }
  if (too_many) {
    if (auto status = SyncRemovals(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::SyncRemovals() {
  uint64_t journal, sequence;
  {
    const SharedGate::Pass pass(commits_);
    {
      MutexLock lock(mutex_);
      const bool any_wait =
          std::any_of(removed_.begin(), removed_.end(),
                      [](const Removed& removed) { return removed.unlinker == 0; });
      if (!any_wait) return absl::OkStatus();  // those of which somebody removes files are durable
    }
    journal = journal_->header().number;
    sequence = journal_->appended();
    if (auto status = journal_->Sync(sequence); !status.ok()) return status;
  }
  return UnlinkRemoved(journal, sequence);
}

absl::Status LocalObjectStore::UnlinkRemoved(uint64_t journal, uint64_t durable) {
  std::vector<Removed> due;
  uint64_t unlinker = 0;
  {
    MutexLock lock(mutex_);
    unlinker = ++unlinkers_;
    for (Removed& removed : removed_) {
      const bool is_durable =
          removed.journal < journal || (removed.journal == journal && removed.sequence <= durable);
      if (!is_durable || removed.unlinker != 0) continue;
      removed.unlinker = unlinker;
      due.push_back(removed);
    }
  }
  if (due.empty()) return absl::OkStatus();
  absl::Status first;
  absl::btree_set<ObjectId> left;
  for (const Removed& removed : due) {
    const absl::Status unlinked = RemoveFiles(removed.id, removed.data, removed.table);
    if (unlinked.ok()) continue;
    first.Update(unlinked);
    left.insert(removed.id);
  }
  TakeRoom();  // before others have what they gave back
  MutexLock lock(mutex_);
  std::erase_if(removed_, [&](const Removed& removed) {
    return removed.unlinker == unlinker && !left.contains(removed.id);
  });
  for (Removed& removed : removed_) {
    if (removed.unlinker == unlinker) removed.unlinker = 0;
  }
  unlinked_.SignalAll();
  return first;
}

absl::Status LocalObjectStore::UnlinkAllUpTo(uint64_t journal) {
  for (;;) {
    if (auto status = UnlinkRemoved(journal + 1, 0); !status.ok()) return status;
    MutexLock lock(mutex_);
    const auto is_left = [journal](const Removed& removed) { return removed.journal <= journal; };
    const auto is_busy = [&](const Removed& removed) {
      return is_left(removed) && removed.unlinker != 0;
    };
    if (std::none_of(removed_.begin(), removed_.end(), is_left)) return absl::OkStatus();
    // Others are at it. Where they have failed meanwhile it is tried here.
    if (std::any_of(removed_.begin(), removed_.end(), is_busy)) unlinked_.Wait(mutex_);
  }
}

const LocalObjectStore::Removed* LocalObjectStore::FilesLeftOf(ObjectId id) const {
  const auto found = std::find_if(removed_.begin(), removed_.end(), [id](const Removed& removed) {
    return removed.id == id && (removed.data || removed.table);
  });
  return found == removed_.end() ? nullptr : &*found;
}

absl::Status LocalObjectStore::AwaitUnlinked(ObjectId id) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const Removed* left = FilesLeftOf(id);
      while (left != nullptr && left->unlinker != 0) {
        unlinked_.Wait(mutex_);
        left = FilesLeftOf(id);
      }
      if (left == nullptr) return absl::OkStatus();
    }
    if (auto status = SyncRemovals(); !status.ok()) return status;
  }
}

absl::Status LocalObjectStore::RemoveFiles(ObjectId id, bool data, bool table) {
  absl::Status first;
  for (const auto& [there, path] :
       {std::pair(data, DataPath(id)), std::pair(table, TablePath(id))}) {
    if (!there) continue;
    const absl::Status status = disk_.Remove(path);
    if (!absl::IsNotFound(status)) first.Update(status);
  }
  return first;
}

absl::Status LocalObjectStore::ReserveIds() {
  MutexLock ids_lock(ids_mutex_);
  ObjectId ids_end;
  {
    MutexLock lock(mutex_);
    if (next_id_ < ids_end_) return absl::OkStatus();  // another thread did it
    ids_end = ids_end_ + options_.ids_batch;
  }
  const SharedGate::Pass pass(commits_);
  const std::string payload = EncodePayload(IdsRecord{.ids_end = ids_end});
  if (auto status = journal_->Ready(std::span(&payload, 1)); !status.ok()) return status;
  const uint64_t sequence = journal_->Append(payload);
  if (auto status = journal_->Sync(sequence); !status.ok()) return status;
  MutexLock lock(mutex_);
  ids_end_ = ids_end;
  return absl::OkStatus();
}

void LocalObjectStore::KeepJournals(const absl::Status& why) {
  MutexLock lock(mutex_);
  journals_stay_.Update(absl::UnavailableError(absl::StrCat(
      "the store's disk could not be synced, and what only its journals may have of objects' ",
      "contents is brought into these when the store is reopened, which a restart of its server ",
      "does; until then the journals grow: ", why.message())));
}

void LocalObjectStore::CheckpointIfLong() {
  {
    const SharedGate::Pass pass(commits_);
    if (journal_->bytes() < options_.journal_bytes_max) return;
  }
  // One at a time; who comes meanwhile need not wait for it.
  if (!checkpoint_mutex_.TryLock()) return;
  // Counted where it fails: what was flushed is durable nevertheless.
  CheckpointLocked().IgnoreError();
  checkpoint_mutex_.Unlock();
}

}  // namespace abacus::objfs
