// LocalObjectStore: how changes become durable, and how removals do.

#include <algorithm>
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
}  // namespace

absl::Status LocalObjectStore::Flush(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  {
    MutexLock lock((*found)->flush_mutex);
    if (auto status = FlushObject(**found); !status.ok()) return Counted(status);
  }
  const absl::Status removals = SyncRemovals();
  CheckpointIfLong();
  return removals;
}

absl::Status LocalObjectStore::FlushAll() {
  std::vector<ObjectId> ids;
  {
    MutexLock lock(mutex_);
    ids.assign(changed_.begin(), changed_.end());
  }
  absl::Status first = SyncRemovals();
  for (const ObjectId id : ids) {
    const absl::Status flushed = Flush(id);
    // Removed meanwhile: nothing is left to make durable.
    if (!flushed.ok() && !absl::IsNotFound(flushed)) first.Update(flushed);
  }
  return first;
}

absl::Status LocalObjectStore::FlushObject(StoredObject& object) {
  FlushBatch batch;
  {
    MutexLock lock(object.mutex);
    if (object.removed) {
      return absl::NotFoundError(absl::StrCat("there is no object ", object.id));
    }
    if (!object.unsynced.ok()) return object.unsynced;
    if (!object.listed_changed) return object.damage;
    batch = object.state.BeginFlush();
  }
  const bool has_contents =
      std::any_of(batch.blocks.begin(), batch.blocks.end(),
                  [](const auto& block) { return block.second.version != 0; });
  absl::Status status = has_contents ? SyncData(object) : absl::OkStatus();
  if (status.ok()) status = CommitBatch(object, batch);
  if (!status.ok()) {
    MutexLock lock(object.mutex);
    object.state.Abort();
  }
  return status;
}

absl::Status LocalObjectStore::SyncData(StoredObject& object) {
  std::shared_ptr<DiskFile> data;
  bool named;
  {
    MutexLock lock(object.mutex);
    auto opened = DataFile(object, false);
    if (!opened.ok()) return opened.status();
    data = *std::move(opened);
    named = object.data_named;
  }
  absl::Status synced = data->Sync();
  if (synced.ok() && !named) synced = disk_.SyncDirectory(FolderName(object.id));
  MutexLock lock(object.mutex);
  if (synced.ok()) {
    object.data_named = true;
    return synced;
  }
  // The kernel reports a page that it could not write once and then takes it for clean: a second
  // try would succeed without the bytes.
  object.unsynced = absl::UnavailableError(absl::StrCat(
      "object ", object.id, " could not be synced and takes no more changes until the ",
      "store is reopened: ", synced.message()));
  return object.unsynced;
}

absl::Status LocalObjectStore::CommitBatch(StoredObject& object, const FlushBatch& batch) {
  const std::string payload = EncodePayload(batch.ToRecord(object.id));
  uint64_t journal, sequence;
  {
    const SharedGate::Pass pass(commits_);
    journal = journal_->header().number;
    sequence = journal_->Append(payload);
    if (auto status = journal_->Sync(sequence); !status.ok()) return status;
    MutexLock lock(object.mutex);
    durable_blocks_ += object.state.Commit(batch);
    object.durable = true;
    GiveBackSlots(object);
    MutexLock store_lock(mutex_);
    changed_tables_.insert(object.id);
    if (!object.state.changed()) {
      object.listed_changed = false;
      changed_.erase(object.id);
    }
  }
  return UnlinkRemoved(journal, sequence);
}

void LocalObjectStore::GiveBackSlots(StoredObject& object) {
  Slots& slots = object.state.slots();
  if (object.data == nullptr) return;
  // Errors are of no account: the space stays with the object, which uses it again.
  if (slots.TrimEnd()) object.data->Truncate(slots.end() * kBlockBytes).IgnoreError();
  if (slots.unpunched() <= std::max(kUnpunchedMin, slots.end() / kUnpunchedShare)) return;
  for (const SlotRange& range : slots.FreeRanges()) {
    object.data->Punch(range.first * kBlockBytes, range.count * kBlockBytes).IgnoreError();
  }
  slots.Punched();
}

absl::Status LocalObjectStore::Remove(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  Removed removed{.id = id};
  bool files_wait, data = false, table = false, too_many;
  {
    MutexLock flush_lock(object.flush_mutex);
    const SharedGate::Pass pass(commits_);
    MutexLock lock(object.mutex);
    const absl::Status prepared = Prepare(object);
    // One that is damaged can be removed; how many blocks it had is not known then.
    if (absl::IsNotFound(prepared)) return prepared;
    // The files stay until the removal is durable: a crash before finds the object whole. Of one
    // that no flush wrote contents of there is nothing to find, and no sync to wait for.
    files_wait = object.durable && (object.data_named || object.has_table);
    data = object.has_data;
    table = object.has_table;
    if (files_wait) std::tie(removed.data, removed.table) = std::pair(data, table);
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
  return files_wait ? absl::OkStatus() : RemoveFiles(id, data, table);
}

absl::Status LocalObjectStore::SyncRemovals() {
  uint64_t journal, sequence;
  {
    const SharedGate::Pass pass(commits_);
    {
      MutexLock lock(mutex_);
      if (removed_.empty()) return absl::OkStatus();
    }
    journal = journal_->header().number;
    sequence = journal_->appended();
    if (auto status = journal_->Sync(sequence); !status.ok()) return status;
  }
  return UnlinkRemoved(journal, sequence);
}

absl::Status LocalObjectStore::UnlinkRemoved(uint64_t journal, uint64_t durable) {
  std::vector<Removed> due;
  {
    MutexLock lock(mutex_);
    const auto rest = std::stable_partition(
        removed_.begin(), removed_.end(), [journal, durable](const Removed& removed) {
          return removed.journal < journal ||
                 (removed.journal == journal && removed.sequence <= durable);
        });
    due.assign(removed_.begin(), rest);
    removed_.erase(removed_.begin(), rest);
  }
  absl::Status first;
  for (const Removed& removed : due) {
    const absl::Status unlinked = RemoveFiles(removed.id, removed.data, removed.table);
    if (unlinked.ok()) continue;
    first.Update(unlinked);
    MutexLock lock(mutex_);
    removed_.push_back(removed);
  }
  return first;
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
  const uint64_t sequence = journal_->Append(EncodePayload(IdsRecord{.ids_end = ids_end}));
  if (auto status = journal_->Sync(sequence); !status.ok()) return status;
  MutexLock lock(mutex_);
  ids_end_ = ids_end;
  return absl::OkStatus();
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
