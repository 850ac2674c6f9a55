// LocalObjectStore: an object whose table is damaged is made whole from what was kept elsewhere.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

absl::Status IsNotWhatItHad(ObjectId id, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("object ", id, ": what was kept of it is not what it had: ", what));
}

}  // namespace

absl::Status LocalObjectStore::MakeWhole(ObjectId id, const KeptObject& kept) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  {
    MutexLock lock(object.mutex);
    for (;;) {
      const absl::Status damage = Prepare(object);
      if (!absl::IsDataLoss(damage)) return damage;
      if (!object.unsynced.ok()) return object.unsynced;
      if (!object.unloaded.has_value()) return damage;
      if (!object.mending) break;
      // Two would write to the same slots, and the slower one to those of a whole object.
      object.passed.Wait(object.mutex);
    }
    object.mending = true;
  }
  const absl::Status status = MakeWholeAlone(object, kept);
  {
    MutexLock lock(object.mutex);
    object.mending = false;
    object.passed.SignalAll();
  }
  if (!status.ok()) return status;
  // So that the journal is not for long the only one that has it. Counted where it fails.
  Checkpoint().IgnoreError();
  return absl::OkStatus();
}

std::optional<TableDigest> LocalObjectStore::DigestOfDamaged(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return std::nullopt;
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (!absl::IsDataLoss(Prepare(object))) return std::nullopt;
  return object.unloaded;
}

absl::Status LocalObjectStore::MakeWholeAlone(StoredObject& object, const KeptObject& kept) {
  {
    // Else all would be fetched and written in vain.
    const SharedGate::Pass pass(commits_);
    if (auto status = journal_->Ready({}); !status.ok()) return status;
  }
  const absl::StatusOr<KeptTable> table = kept.table();
  if (!table.ok()) return table.status();
  absl::StatusOr<Remade> remade = PlanRemade(object, *table);
  if (!remade.ok()) return remade.status();
  absl::Status status = WriteRemade(object, *remade, kept);
  if (status.ok()) status = LogRemade(object, *remade);
  // Nothing names what was written; once it is logged the journal may.
  if (!remade->is_logged && remade->data != nullptr) {
    remade->data->Truncate(remade->first_slot * kBlockBytes).IgnoreError();
  }
  return status;
}

absl::StatusOr<LocalObjectStore::Remade> LocalObjectStore::PlanRemade(StoredObject& object,
                                                                      const KeptTable& table) {
  MutexLock lock(object.mutex);
  // The files under its name may be another one's.
  if (object.removed) return Prepare(object);
  FlushBatch batch{.head = table.head, .blocks_after = table.blocks.size()};
  for (uint64_t i = 0; i < table.blocks.size(); ++i) {
    const auto& [number, version, crc] = table.blocks[i];
    batch.blocks.emplace_back(number, BlockEntry{.slot = i, .version = version, .crc = crc});
  }
  Remade remade;
  remade.table = batch.ToRecord(object.id);
  ObjectState state;
  state.Replay(remade.table);
  // All of them, as a hole among them is none of the table.
  const bool is_it = state.durable_block_count() == table.blocks.size() &&
                     object.unloaded == state.DurableDigest();
  if (!is_it) return IsNotWhatItHad(object.id, "its attributes or its blocks' checksums");
  if (table.blocks.empty()) return remade;
  const auto data = DataFile(object, /*make=*/true);
  if (!data.ok()) return data.status();
  const auto size = (*data)->Size();
  if (!size.ok()) return size.status();
  remade.data = *data;
  // Which slots it had in use nobody knows, but that they are no others.
  remade.first_slot = (*size + kBlockBytes - 1) / kBlockBytes;
  for (BlockRun& run : remade.table.runs) *run.slot += remade.first_slot;
  return remade;
}

absl::Status LocalObjectStore::WriteRemade(StoredObject& object, const Remade& remade,
                                           const KeptObject& kept) {
  for (const BlockRun& run : remade.table.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const absl::StatusOr<std::string> bytes = kept.block(run.first + i);
      if (!bytes.ok()) return bytes.status();
      if (bytes->size() != kBlockBytes || Crc32c(*bytes) != run.crcs[i]) {
        return IsNotWhatItHad(object.id, absl::StrCat("block ", run.first + i));
      }
      const absl::Status written = remade.data->Write((*run.slot + i) * kBlockBytes, *bytes);
      if (!written.ok()) return Counted(written);
    }
  }
  if (remade.data == nullptr) return absl::OkStatus();
  MutexLock sync_lock(object.sync_mutex);
  bool named;
  uint64_t written;
  {
    MutexLock lock(object.mutex);
    named = object.data_named;
    written = object.data_written;
  }
  return SyncFile(object, *remade.data, named, written);
}

absl::Status LocalObjectStore::LogRemade(StoredObject& object, Remade& remade) {
  // Against a removal of it, as no step has it.
  const Turns::Turn turn(flush_turns_, object.id);
  const SharedGate::Pass pass(commits_);
  {
    MutexLock lock(object.mutex);
    if (object.removed) return Prepare(object);
  }
  // A removal and what comes after it under the same name, of which a crash leaves both or neither:
  // what a replay of both leaves has nothing of the table that is damaged.
  const std::vector<std::string> payloads = {
      EncodePayload(RemoveRecord{.id = object.id, .blocks_before = remade.table.blocks_after},
                    /*more=*/true),
      EncodePayload(remade.table)};
  if (auto status = journal_->Ready(payloads); !status.ok()) return status;
  remade.is_logged = true;
  if (auto status = journal_->Sync(journal_->Append(payloads)); !status.ok()) return status;
  InstallRemade(object, remade);
  return absl::OkStatus();
}

void LocalObjectStore::InstallRemade(StoredObject& object, const Remade& remade) {
  const LockFirst lock(object);
  object.state.Unload();
  object.state.Replay(remade.table);
  object.state.Recovered();
  object.damage = absl::OkStatus();
  object.loaded = true;
  object.places.clear();
  // Not now: where it could not be removed, only the next checkpoint may not be made.
  object.table_anew = object.has_table;
  if (remade.data != nullptr) {
    for (const SlotRange& range : object.state.slots().FreeRanges()) {
      remade.data->Punch(range.first * kBlockBytes, range.count * kBlockBytes).IgnoreError();
    }
  }
  ++repaired_objects_;
  MutexLock store_lock(mutex_);
  changed_tables_.insert(object.id);
}

}  // namespace abacus::objfs
