// LocalObjectStore: table files, read when an object is used and written by checkpoints.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/names.h"
#include "objfs/store/table_pages.h"

namespace abacus::objfs {

using runtime::MutexLock;

absl::Status LocalObjectStore::Load(StoredObject& object) {
  absl::Status loaded = LoadPages(object, nullptr);
  if (loaded.ok()) loaded = FinishTable(object);
  object.loaded = loaded.ok();
  // Other errors may pass.
  if (absl::IsDataLoss(loaded)) {
    object.damage = loaded;
    ++damaged_tables_;
    TellDamage(loaded);
  }
  return loaded;
}

absl::Status LocalObjectStore::LoadPages(StoredObject& object, std::vector<uint64_t>* torn) {
  object.state.Unload();
  object.places.clear();
  auto table = disk_.Open(TablePath(object.id));
  if (!table.ok()) {
    return absl::IsNotFound(table.status())
               ? absl::DataLossError(absl::StrCat("object ", object.id, ": its table is missing"))
               : table.status();
  }
  for (TablePages pages(**table);;) {
    const auto more = pages.Next();
    if (!more.ok()) return more.status();
    if (!*more) break;
    const auto loaded = LoadPage(object, pages.both(), pages.page(), torn);
    if (!loaded.ok()) return loaded;
  }
  if (torn != nullptr || object.places.contains(0)) return absl::OkStatus();
  const absl::Status empty =
      absl::DataLossError(absl::StrCat("object ", object.id, ": its table is empty"));
  if (!options_.salvages) return empty;
  MutexLock lock(mutex_);
  NoteSalvaged(object.id, empty).lost_head = true;
  return absl::OkStatus();
}

SalvagedTable& LocalObjectStore::NoteSalvaged(ObjectId id, const absl::Status& damage) {
  changed_tables_.insert(id);
  SalvagedTable& salvaged = salvaged_[id];
  salvaged.damage.Update(damage);
  return salvaged;
}

absl::Status LocalObjectStore::SalvagePage(StoredObject& object, uint64_t page, bool lost) {
  const absl::Status damage = absl::DataLossError(
      absl::StrCat("object ", object.id, ": page ", page, " of its table is damaged"));
  if (!options_.salvages) return damage;
  TellDamage(damage);
  {
    MutexLock lock(mutex_);
    SalvagedTable& salvaged = NoteSalvaged(object.id, damage);
    if (lost) ++salvaged.lost_pages;
    if (lost && page == 0) salvaged.lost_head = true;
  }
  if (!lost) return absl::OkStatus();
  // The next checkpoint writes place 0, and until then that shows that the page was lost.
  auto table = disk_.Open(TablePath(object.id));
  if (!table.ok()) return table.status();
  return (*table)->Write(OffsetOfPage(page, 1), std::string(kTablePageBytes, '\0'));
}

absl::Status LocalObjectStore::FinishTable(StoredObject& object) {
  const bool has_head = object.state.has_head();
  if ((has_head || !options_.salvages) && object.state.Recovered()) return absl::OkStatus();
  const absl::Status damage = absl::DataLossError(
      absl::StrCat("object ", object.id, ": its table gives one slot to two blocks"));
  if (!options_.salvages) return damage;
  const uint64_t lost = object.state.Mend();
  if (lost > 0) {
    MutexLock lock(mutex_);
    NoteSalvaged(object.id, damage).lost_blocks += lost;
  }
  return object.state.Recovered() ? absl::OkStatus() : damage;
}

std::optional<SalvagedTable> LocalObjectStore::Salvaged(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = salvaged_.find(id);
  if (found == salvaged_.end()) return std::nullopt;
  SalvagedTable salvaged = std::move(found->second);
  salvaged_.erase(found);
  return salvaged;
}

absl::Status LocalObjectStore::ReadUnnamed(
    ObjectId id, const std::function<absl::Status(std::string_view block)>& take) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  absl::btree_set<uint64_t> named;
  std::shared_ptr<DiskFile> data;
  {
    MutexLock lock(object.mutex);
    if (auto status = Prepare(object); !status.ok()) return status;
    for (uint64_t block = object.state.NextBlock(0); block < kObjectBlocksMax;
         block = object.state.NextBlock(block + 1)) {
      named.insert(object.state.Find(block).slot);
    }
    if (!object.has_data) return absl::OkStatus();
    auto opened = DataFile(object, false);
    if (!opened.ok()) return opened.status();
    data = *std::move(opened);
  }
  const auto size = data->Size();
  if (!size.ok()) return size.status();
  std::string block(kBlockBytes, '\0');
  for (uint64_t slot = 0; slot * kBlockBytes < *size; ++slot) {
    if (named.contains(slot)) continue;
    const auto read = data->Read(slot * kBlockBytes, std::span(block.data(), block.size()));
    if (!read.ok()) return UnlessUnread(read.status());
    std::fill(block.begin() + static_cast<int64_t>(*read), block.end(), '\0');
    if (block.find_first_not_of('\0') == std::string::npos) continue;
    if (auto status = take(block); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void LocalObjectStore::Unload(StoredObject& object) {
  const bool is_on_disk = object.loaded && object.has_table && !object.listed_changed &&
                          !object.table_unsynced && !object.state.has_changed_pages();
  if (!is_on_disk) return;
  object.unloaded.reset();
  if (object.state.durable_block_count() <= kMadeWholeBlocksMax) {
    object.unloaded = object.state.DurableDigest();
  }
  object.loaded = false;
  object.state.Unload();
  object.places.clear();
}

void LocalObjectStore::Rest(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return;
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  Unload(object);
}

absl::Status LocalObjectStore::LoadPage(StoredObject& object, std::string_view both, uint64_t page,
                                        std::vector<uint64_t>* torn) {
  std::optional<TablePage> newest;
  int damaged = 0;
  for (const int place : {0, 1}) {
    auto read = DecodeTablePage(
        object.id, page,
        both.substr(static_cast<uint64_t>(place) * kTablePageBytes, kTablePageBytes));
    if (absl::IsNotFound(read.status())) continue;
    if (!read.ok()) {
      ++damaged;
      continue;
    }
    if (newest.has_value() && newest->sequence >= read->sequence) continue;
    newest = *std::move(read);
    object.places[page] = place;
  }
  // Only a checkpoint that a crash cut off leaves one place damaged, and then the journal has what
  // the other one lacks. The page is written anew, so that later this means damage.
  if (torn != nullptr && damaged == 1) {
    torn->push_back(page);
  } else if (damaged > 0) {
    object.state.ChangedPages({page});
    const absl::Status salvaged = SalvagePage(object, page, !newest.has_value());
    if (!salvaged.ok()) return salvaged;
  }
  if (newest.has_value()) object.state.Load(*std::move(newest));
  return absl::OkStatus();
}

absl::Status LocalObjectStore::CheckTorn(StoredObject& object, const std::vector<uint64_t>& torn) {
  for (const uint64_t page : torn) {
    if (!object.state.IsChanged(page)) {
      if (auto status = SalvagePage(object, page, false); !status.ok()) return status;
    }
    object.state.ChangedPages({page});
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Checkpoint() {
  MutexLock lock(checkpoint_mutex_);
  return CheckpointLocked();
}

absl::Status LocalObjectStore::CheckpointLocked() {
  {
    MutexLock lock(mutex_);
    if (!journals_stay_.ok()) {
      ++checkpoints_failed_;
      return journals_stay_;
    }
  }
  commits_.Close();
  const uint64_t old = journal_->header().number;
  absl::Status status = journal_->Sync(journal_->appended());
  if (status.ok()) status = NewJournal(old + 1);
  absl::btree_set<ObjectId> ids;
  if (status.ok()) {
    MutexLock lock(mutex_);
    ids = std::exchange(changed_tables_, {});
  }
  commits_.Open();
  // Before the old journal goes: it has the removals.
  if (status.ok()) status = UnlinkAllUpTo(old);
  if (status.ok()) {
    status = CheckpointTables(ids);
  } else if (!ids.empty()) {
    MutexLock lock(mutex_);
    changed_tables_.insert(ids.begin(), ids.end());
  }
  ++(status.ok() ? checkpoints_ : checkpoints_failed_);
  return status;
}

absl::Status LocalObjectStore::NewJournal(uint64_t number) {
  JournalHeader header{.store = superblock_.store, .number = number};
  {
    MutexLock lock(mutex_);
    header.ids_end = ids_end_;
  }
  header.used_blocks = static_cast<uint64_t>(std::max<int64_t>(durable_blocks_.load(), 0));
  auto journal = Journal::Create(disk_, header);
  if (!journal.ok()) return journal.status();
  if (journal_ != nullptr) {
    old_journals_.push_back(journal_->header().number);
    journal_->GiveBackRoom();
  }
  journal_ = *std::move(journal);
  journal_->TakeRoom();
  return absl::OkStatus();
}

absl::Status LocalObjectStore::CheckpointTables(const absl::btree_set<ObjectId>& ids) {
  absl::Status status = WriteTables(ids, journal_->header().number);
  if (status.ok()) {
    status = disk_.SyncAll();
    // Tables are written anew by the next checkpoint. What was logged is not, nor what will be: its
    // pages may be taken for written already.
    if (!status.ok() && options_.logged_blocks_max > 0) KeepJournals(status);
  }
  TablesWritten(status.ok());
  if (!status.ok()) {
    MutexLock lock(mutex_);
    // Those that were removed meanwhile are skipped when it is their turn.
    changed_tables_.insert(ids.begin(), ids.end());
    return status;
  }
  // A sync of an object's file may have failed meanwhile, and taken the error that this one tells.
  {
    MutexLock lock(mutex_);
    if (!journals_stay_.ok()) return journals_stay_;
  }
  // What was removed meanwhile has no table, and what the old journals have of it goes.
  status = journal_->Sync(journal_->appended());
  if (!status.ok()) return status;
  for (const uint64_t number : old_journals_) {
    const absl::Status removed = disk_.Remove(JournalName(number));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  old_journals_.clear();
  return disk_.SyncDirectory("");
}

absl::Status LocalObjectStore::WriteTables(const absl::btree_set<ObjectId>& ids,
                                           uint64_t sequence) {
  for (const ObjectId id : ids) {
    const auto object = Find(id);
    if (!object.ok()) continue;  // removed
    if (auto status = WriteTable(*object, sequence); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::WriteTable(const ObjectPtr& pointer, uint64_t sequence) {
  StoredObject& object = *pointer;
  const LockFirst lock(object);
  if (object.removed || !object.damage.ok() || !object.state.has_changed_pages()) {
    return absl::OkStatus();
  }
  const std::string path = TablePath(object.id);
  if (object.table_anew) {
    // Where that fails the journals stay, which have the object as it is.
    const absl::Status removed = disk_.Remove(path);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    object.table_anew = false;
  }
  auto table = disk_.Open(path);
  if (absl::IsNotFound(table.status())) table = disk_.Create(path);
  if (!table.ok()) return table.status();
  object.has_table = true;
  object.table_unsynced = true;
  absl::Status first;
  for (const uint64_t page : object.state.TakeChangedPages()) {
    // To the place that does not count now: it does until the other one is durable.
    const auto now = object.places.find(page);
    const int place = now == object.places.end() ? 0 : 1 - now->second;
    new_places_.push_back({pointer, page, place});  // of all, written or not: see TablesWritten
    if (!first.ok()) continue;
    TablePage contents = object.state.MakePage(object.id, page);
    contents.sequence = sequence;
    first = (*table)->Write(OffsetOfPage(page, place), EncodeTablePage(contents));
  }
  return first;
}

void LocalObjectStore::TablesWritten(bool durable) {
  for (const NewPlace& place : new_places_) {
    const LockFirst lock(*place.object);
    place.object->table_unsynced = false;
    if (durable) {
      place.object->places[place.page] = place.place;
    } else {
      place.object->state.ChangedPages({place.page});
    }
  }
  new_places_.clear();
}

}  // namespace abacus::objfs
