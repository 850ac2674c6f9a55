// LocalObjectStore: what the disk has of the store itself, looked at while the store is in use.

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/names.h"
#include "objfs/store/store_scan.h"
#include "objfs/store/table_pages.h"
#include "objfs/store/wrong_bit.h"

namespace abacus::objfs {

using runtime::MutexLock;

absl::StatusOr<std::vector<StoreFault>> LocalObjectStore::Examine(bool repair) {
  std::vector<StoreFault> faults;
  MutexLock lock(checkpoint_mutex_);
  if (auto status = ExamineSuperblock(repair, &faults); !status.ok()) return status;
  std::vector<ObjectPtr> objects;
  {
    MutexLock objects_lock(mutex_);
    for (const auto& [id, object] : objects_) objects.push_back(object);
  }
  for (const ObjectPtr& object : objects) {
    if (auto status = ExamineTable(*object, repair, &faults); !status.ok()) return status;
  }
  // Last, as its repair writes tables.
  if (auto status = ExamineJournal(repair, &faults); !status.ok()) return status;
  return faults;
}

absl::Status LocalObjectStore::ExamineSuperblock(bool repair, std::vector<StoreFault>* faults) {
  const auto bytes = ReadWhole(disk_, kSuperblockName);
  if (!bytes.ok() && !absl::IsNotFound(bytes.status())) return bytes.status();
  if (bytes.ok()) {
    const auto superblock = DecodeSuperblock(*bytes);
    if (superblock.ok() && *superblock == superblock_) return absl::OkStatus();
  }
  StoreFault fault{.file = kSuperblockName, .bytes = kSuperblockBytes};
  fault.text = absl::StrCat(bytes.ok() ? "it is damaged" : "it is missing",
                            ": the store could not be opened again");
  if (repair) {
    if (auto status = WriteSuperblock(disk_, superblock_); !status.ok()) return status;
    fault.fix = StoreFix{.done = "written anew from memory"};
  }
  faults->push_back(std::move(fault));
  return absl::OkStatus();
}

absl::Status LocalObjectStore::ExamineJournal(bool repair, std::vector<StoreFault>* faults) {
  const auto damaged = journal_->FindDamage(disk_);
  if (!damaged.ok()) return damaged.status();
  if (!damaged->has_value()) return absl::OkStatus();
  StoreFault fault{.part = StorePart::kJournal, .file = JournalName(journal_->header().number)};
  const std::string which = **damaged == 0 ? "its header" : absl::StrCat("record ", **damaged);
  fault.text = absl::StrCat(which, " is damaged: the store could not be opened again");
  if (repair) {
    // All of it is in memory.
    const absl::Status status = CheckpointLocked();
    if (status.ok()) {
      fault.fix = StoreFix{.done = "a checkpoint was made of what is in memory, and a new journal"};
    } else {
      absl::StrAppend(&fault.text, " (no checkpoint can be made: ", status.message(), ")");
    }
  }
  faults->push_back(std::move(fault));
  return absl::OkStatus();
}

absl::Status LocalObjectStore::ExamineTable(StoredObject& object, bool repair,
                                            std::vector<StoreFault>* faults) {
  MutexLock lock(object.mutex);
  if (object.removed || !object.has_table || !object.damage.ok()) return absl::OkStatus();
  if (object.table_anew) return absl::OkStatus();  // nobody will read it
  // Those that are not in memory are read when they are used, which tells.
  if (!object.loaded && !repair) return absl::OkStatus();
  const auto table = disk_.Open(TablePath(object.id));
  if (absl::IsNotFound(table.status())) return absl::OkStatus();
  if (!table.ok()) return table.status();
  for (TablePages pages(**table);;) {
    const auto more = pages.Next();
    if (!more.ok()) return more.status();
    if (!*more) break;
    for (const int place : {0, 1}) {
      const auto bytes =
          pages.both().substr(static_cast<size_t>(place) * kTablePageBytes, kTablePageBytes);
      const auto looked = ExaminePlace(object, pages.page(), place, bytes, repair, **table, faults);
      if (!looked.ok()) return looked;
    }
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::ExaminePlace(StoredObject& object, uint64_t page, int place,
                                            std::string_view bytes, bool repair, DiskFile& table,
                                            std::vector<StoreFault>* faults) {
  if (!absl::IsDataLoss(DecodeTablePage(object.id, page, bytes).status())) return absl::OkStatus();
  StoreFault fault{.part = StorePart::kTable,
                   .object = object.id,
                   .file = TablePath(object.id),
                   .offset = OffsetOfPage(page, place),
                   .bytes = kTablePageBytes};
  fault.text = absl::StrCat("page ", page, " of its table is damaged: it is used from memory, and ",
                            "could not be read again");
  std::optional<std::string> right;
  if (repair && object.loaded) {
    // What is durable by the journal, which stays, counts in whichever place it is.
    TablePage now = object.state.MakePage(object.id, page);
    now.sequence = journal_->header().number;
    right = EncodeTablePage(now);
  } else if (repair) {
    right = WrongBit::SetRight(bytes);
    // Else whoever uses the object tells.
    if (!right.has_value() || !DecodeTablePage(object.id, page, *right).ok()) {
      return absl::OkStatus();
    }
  }
  if (right.has_value()) {
    if (auto status = table.Write(fault.offset, *right); !status.ok()) return status;
    if (auto status = table.Sync(); !status.ok()) return status;
    fault.fix = StoreFix{.done = object.loaded ? "written anew from memory"
                                               : "its one wrong bit was set right"};
    if (object.loaded) object.places[page] = place;
  }
  faults->push_back(std::move(fault));
  return absl::OkStatus();
}

}  // namespace abacus::objfs
