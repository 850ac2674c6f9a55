// LocalObjectStore: making a store, and opening one after whatever happened to it.

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/names.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kJournalBeginBytes = 8192;

absl::Status InUse(const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no superblock, but a file ", name,
      ": this is no object store, or one that lost its superblock. Nothing was changed; give an ",
      "empty directory for a new store"));
}

absl::Status RemoveIfThere(Disk& disk, const std::string& name) {
  const absl::Status removed = disk.Remove(name);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalObjectStore>> LocalObjectStore::Open(
    Disk& disk, LocalObjectStoreOptions options) {
  const auto names = disk.List("");
  if (!names.ok()) return names.status();
  if (!std::binary_search(names->begin(), names->end(), kSuperblockName)) {
    if (auto status = CheckUnused(disk); !status.ok()) return status;
    if (auto status = Format(disk); !status.ok()) return status;
  }
  auto store = std::unique_ptr<LocalObjectStore>(new LocalObjectStore(disk, std::move(options)));
  if (auto status = store->ReadSuperblock(); !status.ok()) return status;
  // What is read from here on may be in the page cache only, left there by a store that was killed;
  // what recovery does must not rest on that.
  if (auto status = disk.SyncAll(); !status.ok()) return status;
  if (auto status = store->FindObjects(); !status.ok()) return status;
  if (auto status = store->Recover(); !status.ok()) return status;
  if (store->superblock_.version != kFormatVersion) {
    // Before the first record that the older version does not know.
    store->superblock_.version = kFormatVersion;
    if (auto status = WriteSuperblock(disk, store->superblock_); !status.ok()) return status;
  }
  return store;
}

absl::Status LocalObjectStore::CheckUnused(Disk& disk) {
  const auto names = disk.List("");
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    // What a Format that was cut off leaves: a first journal without records.
    if (name == kNewSuperblockName) continue;
    if (name != JournalName(1)) return InUse(name);
    const auto file = disk.Open(name);
    if (!file.ok()) return file.status();
    const auto size = (*file)->Size();
    if (!size.ok()) return size.status();
    if (*size > kJournalHeaderBytes) return InUse(name);
  }
  for (uint64_t folder = 0; folder < kFolders; ++folder) {
    const auto objects = disk.List(FolderName(folder));
    if (objects.ok() && !objects->empty()) return InUse(objects->front());
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Format(Disk& disk) {
  for (uint64_t folder = 0; folder < kFolders; ++folder) {
    if (auto status = disk.MakeDirectory(FolderName(folder)); !status.ok()) return status;
  }
  std::random_device random;
  const Superblock superblock{.store = (uint64_t{random()} << 32) | random()};
  const auto journal =
      Journal::Create(disk, {.store = superblock.store, .number = 1, .ids_end = 1});
  if (!journal.ok()) return journal.status();
  return WriteSuperblock(disk, superblock);  // last: with it, everything is there
}

absl::Status LocalObjectStore::WriteSuperblock(Disk& disk, const Superblock& superblock) {
  if (auto status = RemoveIfThere(disk, kNewSuperblockName); !status.ok()) return status;
  const auto file = disk.Create(kNewSuperblockName);
  if (!file.ok()) return file.status();
  if (auto status = (*file)->Write(0, EncodeSuperblock(superblock)); !status.ok()) return status;
  if (auto status = (*file)->Sync(); !status.ok()) return status;
  if (auto status = disk.Rename(kNewSuperblockName, kSuperblockName); !status.ok()) return status;
  return disk.SyncDirectory("");
}

absl::Status LocalObjectStore::ReadSuperblock() {
  const auto file = disk_.Open(kSuperblockName);
  if (!file.ok()) return file.status();
  std::string bytes(kSuperblockBytes, '\0');
  const auto read = (*file)->Read(0, std::span(bytes.data(), bytes.size()));
  if (!read.ok()) return UnlessUnread(read.status());
  bytes.resize(*read);
  const auto superblock = DecodeSuperblock(bytes);
  if (!superblock.ok()) return superblock.status();
  superblock_ = *superblock;
  return absl::OkStatus();
}

absl::Status LocalObjectStore::FindObjects() {
  for (uint64_t folder = 0; folder < kFolders; ++folder) {
    const auto names = disk_.List(FolderName(folder));
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (const auto id = NumberIn(name, "", ".d"); id.has_value()) found_data_.insert(*id);
      const auto id = NumberIn(name, "", ".t");
      if (!id.has_value() || *id == 0) continue;
      auto object = std::make_shared<StoredObject>(*id);
      {
        MutexLock object_lock(object->mutex);
        object->durable = object->has_table = true;
      }
      MutexLock lock(mutex_);
      objects_.emplace(*id, std::move(object));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Recover() {
  const auto names = disk_.List("");
  if (!names.ok()) return names.status();
  Recovery recovery;
  for (const std::string& name : *names) {
    if (const auto number = NumberIn(name, kJournalPrefix, ""); number.has_value()) {
      recovery.journals.push_back(*number);
    }
  }
  if (recovery.journals.empty()) {
    return absl::DataLossError("the store's journal is missing: restore the store from a copy");
  }
  recovery.torn_tables = recovery.journals.size() > 1;
  if (auto status = ReplayJournals(recovery); !status.ok()) return status;
  return FinishRecovery(recovery);
}

absl::Status LocalObjectStore::ReplayJournals(Recovery& recovery) {
  bool cut_off = false;
  for (const uint64_t number : recovery.journals) {
    // A journal is begun when all of the one before is durable; one that was begun and never used
    // does not count.
    const auto take = [&](const JournalRecord& record) {
      return cut_off ? absl::DataLossError(absl::StrCat("journal ", number - 1, " is damaged"))
                     : Replay(recovery, record);
    };
    const auto read = ReadJournal(disk_, JournalName(number), take);
    if (!read.ok()) return read.status();
    const bool is_ours = read->header.has_value() && read->header->number == number &&
                         read->header->store == superblock_.store;
    if (!is_ours) {
      // Its header is durable before its first record is written.
      const bool unused = number == recovery.journals.back() && recovery.journals.size() > 1 &&
                          read->bytes <= kJournalHeaderBytes;
      if (unused && !read->header.has_value()) return RemoveUnused(recovery);
      return absl::DataLossError(absl::StrCat(JournalName(number), ": its header is damaged"));
    }
    cut_off = cut_off || read->cut_off;
    if (read->cut_off) recovery.cut_off.push_back({number, read->whole});
    recovery.ids_end = std::max(recovery.ids_end, read->header->ids_end);
    if (std::exchange(recovery.first, false)) {
      recovery.used_blocks += static_cast<int64_t>(read->header->used_blocks);
    }
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::RemoveUnused(Recovery& recovery) {
  // Before a newer one is made: one without a header is always the last.
  const std::string name = JournalName(recovery.journals.back());
  if (auto status = disk_.Remove(name); !status.ok()) return status;
  recovery.journals.pop_back();
  return disk_.SyncDirectory("");
}

absl::Status LocalObjectStore::Replay(Recovery& recovery, const JournalRecord& record) {
  if (const auto* ids = std::get_if<IdsRecord>(&record)) {
    recovery.ids_end = std::max(recovery.ids_end, ids->ids_end);
    return absl::OkStatus();
  }
  if (const auto* update = std::get_if<UpdateRecord>(&record)) {
    return ReplayUpdate(recovery, *update);
  }
  if (const auto* attributes = std::get_if<AttributesRecord>(&record)) {
    return ReplayAttributes(recovery, *attributes);
  }
  if (const auto* contents = std::get_if<ContentsRecord>(&record)) {
    recovery.contents[{contents->id, contents->block}] = *contents;
    return absl::OkStatus();
  }
  const auto& remove = std::get<RemoveRecord>(record);
  const auto known = recovery.blocks.find(remove.id);
  const bool is_known = known != recovery.blocks.end();
  recovery.used_blocks -= static_cast<int64_t>(is_known ? known->second : remove.blocks_before);
  if (is_known) recovery.blocks.erase(known);
  {
    MutexLock lock(mutex_);
    objects_.erase(remove.id);
    salvaged_.erase(remove.id);
  }
  recovery.torn.erase(remove.id);
  // Where it was made again the journals have all of its table, and the data file may be its own.
  recovery.removed.insert(remove.id);
  return RemoveFiles(remove.id, false, true);
}

absl::Status LocalObjectStore::ReplayUpdate(Recovery& recovery, const UpdateRecord& update) {
  const auto [blocks, is_new] = recovery.blocks.try_emplace(update.id, update.blocks_before);
  recovery.used_blocks += static_cast<int64_t>(update.blocks_after - blocks->second);
  blocks->second = update.blocks_after;
  const auto object = ReplayTo(recovery, update.id, is_new);
  if (!object.ok()) return object.status();
  MutexLock lock((*object)->mutex);
  (*object)->state.Replay(update);
  return absl::OkStatus();
}

absl::Status LocalObjectStore::ReplayAttributes(Recovery& recovery,
                                                const AttributesRecord& attributes) {
  const bool is_new = recovery.blocks.try_emplace(attributes.id, attributes.blocks).second;
  const auto object = ReplayTo(recovery, attributes.id, is_new);
  if (!object.ok()) return object.status();
  MutexLock lock((*object)->mutex);
  (*object)->state.Replay(attributes);
  return absl::OkStatus();
}

absl::StatusOr<LocalObjectStore::ObjectPtr> LocalObjectStore::ReplayTo(Recovery& recovery,
                                                                       ObjectId id, bool is_first) {
  ObjectPtr object;
  {
    MutexLock lock(mutex_);
    ObjectPtr& place = objects_[id];
    if (place == nullptr) place = std::make_shared<StoredObject>(id);
    object = place;
  }
  MutexLock lock(object->mutex);
  if (is_first && object->has_table) {
    std::vector<uint64_t> torn;
    const absl::Status loaded = LoadPages(*object, recovery.torn_tables ? &torn : nullptr);
    if (!loaded.ok() && !absl::IsDataLoss(loaded)) return loaded;
    object->damage = loaded;
    if (!torn.empty()) recovery.torn[id] = std::move(torn);
  }
  object->durable = true;
  object->loaded = true;
  return object;
}

absl::Status LocalObjectStore::FinishRecovery(const Recovery& recovery) {
  absl::btree_set<ObjectId> ids;
  for (const auto& [id, blocks] : recovery.blocks) {
    ids.insert(id);
    const auto object = Find(id);
    if (!object.ok()) continue;
    MutexLock lock((*object)->mutex);
    const auto torn = recovery.torn.find(id);
    if ((*object)->damage.ok() && torn != recovery.torn.end()) {
      (*object)->damage = CheckTorn(**object, torn->second);
    }
    if ((*object)->damage.ok()) (*object)->damage = FinishTable(**object);
    if ((*object)->damage.ok()) continue;
    ++damaged_tables_;
    TellDamage((*object)->damage);
  }
  // First what makes room.
  if (auto status = RemoveOrphans(recovery); !status.ok()) return status;
  GiveBackRoom(recovery);
  if (auto status = RestoreContents(recovery); !status.ok()) return status;
  {
    MutexLock lock(mutex_);
    const ObjectId last = objects_.empty() ? 0 : objects_.rbegin()->first;
    next_id_ = std::max({recovery.ids_end, last + 1, options_.ids_begin});
    ids_end_ = next_id_ + options_.ids_batch;
  }
  used_blocks_ = durable_blocks_ = recovery.used_blocks;
  MutexLock lock(checkpoint_mutex_);
  old_journals_ = recovery.journals;
  const absl::Status begun = spare_.Write(kJournalBeginBytes, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return NewJournal(recovery.journals.back() + 1);
  });
  if (!begun.ok()) return begun;
  spare_.Refill().IgnoreError();  // who adds something is told; tables can do without
  const absl::Status status = CheckpointTables(ids);
  if (!absl::IsResourceExhausted(status)) return status;
  {
    MutexLock store_lock(mutex_);
    if (!journals_stay_.ok()) return status;  // it was a sync
  }
  // The journals stay, which have what the tables lack, and whoever removes something makes room.
  ++checkpoints_failed_;
  return KeepOldJournals(recovery);
}

// A journal that others follow which were used must not be cut off: that would be damage.
absl::Status LocalObjectStore::KeepOldJournals(const Recovery& recovery) {
  for (const auto& [number, whole] : recovery.cut_off) {
    const auto file = disk_.Open(JournalName(number));
    if (!file.ok()) return file.status();
    if (auto status = (*file)->Truncate(whole); !status.ok()) return status;
    if (auto status = (*file)->Sync(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// What they took beyond their ends the new one takes. Where that fails it may have less.
void LocalObjectStore::GiveBackRoom(const Recovery& recovery) {
  for (const uint64_t number : recovery.journals) {
    const auto file = disk_.Open(JournalName(number));
    if (!file.ok()) continue;
    const auto size = (*file)->Size();
    if (size.ok()) (*file)->Truncate(*size).IgnoreError();
  }
}

absl::Status LocalObjectStore::RestoreContents(const Recovery& recovery) {
  for (const auto& [place, contents] : recovery.contents) {
    const auto found = Find(contents.id);
    if (!found.ok()) continue;  // removed since
    StoredObject& object = **found;
    MutexLock lock(object.mutex);
    const BlockEntry entry = object.state.Find(contents.block);
    // Else the block has others since, and the slot may be another one's.
    const bool is_that =
        entry.version != 0 && entry.slot == contents.slot && entry.crc == Crc32c(contents.bytes);
    if (!is_that) continue;
    const auto data = DataFile(object, /*make=*/true);
    if (!data.ok()) return data.status();
    const absl::Status written = spare_.Write(kBlockBytes, [&data, &contents = contents] {
      return (*data)->Write(contents.slot * kBlockBytes, contents.bytes);
    });
    if (!written.ok()) return written;
    object.logged = true;  // it is not synced yet
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::RemoveOrphans(const Recovery& recovery) {
  for (const ObjectId id : found_data_) {
    const auto object = Find(id);
    if (!object.ok()) {
      // It was created and never flushed, or removed.
      if (auto status = RemoveFiles(id, true, false); !status.ok()) return status;
      continue;
    }
    MutexLock lock((*object)->mutex);
    if (recovery.removed.contains(id) && (*object)->state.block_count() == 0) {
      // Of the one that was removed: the new one has nothing in it.
      if (auto status = RemoveFiles(id, true, false); !status.ok()) return status;
      continue;
    }
    (*object)->has_data = (*object)->data_named = true;
  }
  found_data_.clear();
  return absl::OkStatus();
}

}  // namespace abacus::objfs
