#include "objfs/store/local_object_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/names.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kBlockBytes = ObjectStore::kBlockBytes;
// What is read is checked while the processor's cache has it.
constexpr uint64_t kReadBlocksMax = 16;
constexpr uint64_t kVersionsMax = 65'536;
// A flush that collects what it takes along waits for updates under way, and they no longer than
// this for a call that is in one of their objects.
constexpr auto kLockAllMax = std::chrono::milliseconds(10);

absl::Status NoSuch(ObjectId id) {
  return absl::NotFoundError(absl::StrCat("there is no object ", id));
}

absl::Status CheckRange(uint64_t offset, uint64_t bytes) {
  if (bytes <= ObjectStore::kObjectBytesMax && offset <= ObjectStore::kObjectBytesMax - bytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      absl::StrCat("an object has at most ", ObjectStore::kObjectBytesMax, " bytes"));
}

absl::Status CheckWrite(uint64_t offset, std::string_view bytes) {
  if (auto status = CheckRange(offset, bytes.size()); !status.ok()) return status;
  if (bytes.size() <= LocalObjectStore::kWriteBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a write has at most ", LocalObjectStore::kWriteBytesMax, " bytes"));
}

// A second write to a block would be planned over what it was before the first one.
absl::Status CheckWrites(const std::vector<ObjectWrite>& writes) {
  std::vector<std::pair<uint64_t, uint64_t>> blocks;  // first and last
  for (const ObjectWrite& write : writes) {
    if (write.bytes.empty()) return absl::InvalidArgumentError("an update writes no bytes");
    if (auto status = CheckWrite(write.offset, write.bytes); !status.ok()) return status;
    blocks.emplace_back(write.offset / kBlockBytes,
                        (write.offset + write.bytes.size() - 1) / kBlockBytes);
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].first <= blocks[i - 1].second) {
      return absl::InvalidArgumentError("two writes of an update touch one block");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBlob(std::string_view blob) {
  if (blob.size() <= ObjectStore::kBlobBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "attributes of ", blob.size(), " bytes; there may be ", ObjectStore::kBlobBytesMax));
}

absl::Status CheckVersion(VersionNumber version) {
  if (version != 0) return absl::OkStatus();
  return absl::InvalidArgumentError("version 0 means a hole");
}

absl::Status CheckContents(ObjectId id, uint64_t block, const BlockEntry& entry,
                           const char* bytes) {
  if (Crc32c(std::string_view(bytes, kBlockBytes)) == entry.crc) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("object ", id, " block ", block, ": its bytes do not match their checksum"));
}

absl::Status NotItsContents(ObjectId id, uint64_t block) {
  return absl::FailedPreconditionError(
      absl::StrCat("object ", id, " block ", block, ": these are not its contents"));
}

uint64_t BlocksUpTo(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

}  // namespace

LocalObjectStore::~LocalObjectStore() {
  if (journal_ != nullptr) journal_->End();
}

absl::Status LocalObjectStore::Counted(absl::Status status) {
  if (absl::IsDataLoss(status)) {
    ++checksum_errors_;
    TellDamage(status);
  }
  if (absl::IsResourceExhausted(status)) ++refused_for_space_;
  return status;
}

void LocalObjectStore::TellDamage(const absl::Status& damage) const {
  if (options_.on_damage) options_.on_damage(damage);
}

absl::StatusOr<LocalObjectStore::ObjectPtr> LocalObjectStore::Find(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) return NoSuch(id);
  return found->second;
}

absl::Status LocalObjectStore::Prepare(StoredObject& object) {
  if (object.removed) return NoSuch(object.id);
  if (!object.damage.ok()) return object.damage;
  return object.loaded ? absl::OkStatus() : Load(object);
}

absl::Status LocalObjectStore::PrepareChange(StoredObject& object, VersionNumber version) {
  if (auto status = CheckVersion(version); !status.ok()) return status;
  if (auto status = Prepare(object); !status.ok()) return status;
  return object.unsynced;
}

void LocalObjectStore::LetFlushesGoFirst(StoredObject& object) {
  while (object.awaited != 0) object.passed.Wait(object.mutex);
}

absl::Status LocalObjectStore::BeginChange(StoredObject& object, VersionNumber version) {
  LetFlushesGoFirst(object);
  return PrepareChange(object, version);
}

void LocalObjectStore::NoteChanged(StoredObject& object) {
  if (std::exchange(object.listed_changed, true)) return;
  MutexLock lock(mutex_);
  changed_.insert(object.id);
}

absl::StatusOr<std::shared_ptr<DiskFile>> LocalObjectStore::DataFile(StoredObject& object,
                                                                     bool make) {
  if (object.data != nullptr) return object.data;
  const std::string path = DataPath(object.id);
  auto file = object.has_data ? disk_.Open(path)
              : make          ? disk_.Create(path)
                              : absl::NotFoundError("");
  if (!file.ok() && absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat("object ", object.id, ": its data file is missing"));
  }
  if (!file.ok()) return file.status();
  object.has_data = true;
  object.data = *std::move(file);
  CloseOthers(object);
  return object.data;
}

void LocalObjectStore::CloseOthers(const StoredObject& object) {
  ObjectPtr victim;
  {
    MutexLock lock(mutex_);
    const auto found = objects_.find(object.id);
    if (found != objects_.end()) open_.push_back(found->second);
    if (open_.size() <= options_.open_files_max) return;
    victim = open_.front().lock();
    open_.pop_front();
  }
  if (victim == nullptr || victim->id == object.id) return;
  // Two objects' locks are held here, hence only a try; one in use stays open.
  if (!victim->mutex.TryLock()) {
    MutexLock lock(mutex_);
    open_.push_back(victim);
    return;
  }
  victim->data.reset();
  Unload(*victim);
  victim->mutex.Unlock();
}

absl::StatusOr<ObjectId> LocalObjectStore::Create(std::string_view blob, VersionNumber version) {
  if (auto status = CheckBlob(blob); !status.ok()) return status;
  if (auto status = CheckVersion(version); !status.ok()) return status;
  const absl::StatusOr<ObjectId> id = Reserve();
  if (!id.ok()) return id.status();
  if (auto status = CreateAs(*id, blob, version); !status.ok()) return status;
  return id;
}

absl::StatusOr<ObjectId> LocalObjectStore::Reserve() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (next_id_ < ids_end_) return next_id_++;
    }
    if (auto status = ReserveIds(); !status.ok()) return Counted(status);
  }
}

absl::Status LocalObjectStore::CreateAs(ObjectId id, std::string_view blob, VersionNumber version) {
  if (id == 0) return absl::InvalidArgumentError("0 names no object");
  if (auto status = CheckBlob(blob); !status.ok()) return status;
  if (auto status = CheckVersion(version); !status.ok()) return status;
  const ObjectHead head{.version = version, .blob = std::string(blob)};
  const std::string payload = EncodePayload(UpdateRecord{.id = id, .head = head});
  for (;;) {
    if (auto status = AwaitUnlinked(id); !status.ok()) return status;
    // In the journal before whatever refers to it, and in no hurry to be durable.
    const SharedGate::Pass pass(commits_);
    if (auto status = journal_->broken(); !status.ok()) return status;
    if (auto status = journal_->Ready(std::span(&payload, 1)); !status.ok()) {
      return Counted(status);
    }
    MutexLock lock(mutex_);
    if (objects_.contains(id)) {
      return absl::AlreadyExistsError(absl::StrCat("there is an object ", id));
    }
    if (FilesLeftOf(id) != nullptr) continue;  // it was removed meanwhile
    journal_->Append(payload);
    objects_.emplace(id, std::make_shared<StoredObject>(id, head));
    changed_.insert(id);
    changed_tables_.insert(id);
    return absl::OkStatus();
  }
}

absl::StatusOr<LocalObjectStore::ReadPlan> LocalObjectStore::PlanBlocks(StoredObject& object,
                                                                        uint64_t offset,
                                                                        uint64_t bytes) {
  if (auto status = Prepare(object); !status.ok()) return status;
  ReadPlan plan;
  const uint64_t size = object.state.head().size_bytes;
  if (offset >= size || bytes == 0) return plan;
  plan.offset = offset;
  plan.bytes = std::min(bytes, size - offset);
  plan.frees = object.state.frees();
  const uint64_t first = offset / kBlockBytes;
  const uint64_t end = BlocksUpTo(offset + plan.bytes);
  plan.entries = object.state.FindRange(first, end);
  return plan;
}

absl::StatusOr<LocalObjectStore::ReadPlan> LocalObjectStore::PlanRead(StoredObject& object,
                                                                      uint64_t offset,
                                                                      uint64_t bytes) {
  auto planned = PlanBlocks(object, offset, bytes);
  if (!planned.ok()) return planned;
  ReadPlan& plan = *planned;
  const bool only_holes = std::all_of(plan.entries.begin(), plan.entries.end(),
                                      [](const BlockEntry& entry) { return entry.version == 0; });
  if (only_holes) return plan;
  auto data = DataFile(object, false);
  if (!data.ok()) return data.status();
  plan.data = *std::move(data);
  return plan;
}

absl::Status LocalObjectStore::ReadOne(ObjectId id, DiskFile* data, uint64_t block,
                                       const BlockEntry& entry, char* to) {
  if (entry.version == 0) {
    std::memset(to, 0, kBlockBytes);
    return absl::OkStatus();
  }
  const auto read = data->Read(entry.slot * kBlockBytes, std::span(to, kBlockBytes));
  if (!read.ok()) return read.status();
  std::memset(to + *read, 0, kBlockBytes - *read);
  return CheckContents(id, block, entry, to);
}

absl::Status LocalObjectStore::ReadRun(ObjectId id, const ReadPlan& plan, uint64_t index,
                                       uint64_t count, char* to) {
  const uint64_t bytes = count * kBlockBytes;
  const auto read = plan.data->Read(plan.entries[index].slot * kBlockBytes, std::span(to, bytes));
  if (!read.ok()) return read.status();
  std::memset(to + *read, 0, bytes - *read);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t block = plan.offset / kBlockBytes + index + i;
    const absl::Status checked =
        CheckContents(id, block, plan.entries[index + i], to + i * kBlockBytes);
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

absl::Status LocalObjectStore::ReadBlocks(ObjectId id, const ReadPlan& plan, char* to) {
  const uint64_t end = plan.offset + plan.bytes;
  for (uint64_t at = plan.offset; at < end;) {
    const uint64_t index = at / kBlockBytes - plan.offset / kBlockBytes;
    const uint64_t within = at % kBlockBytes;
    const uint64_t step = std::min(kBlockBytes - within, end - at);
    char* const place = to + (at - plan.offset);
    if (plan.entries[index].version == 0) {
      std::memset(place, 0, step);
      at += step;
      continue;
    }
    if (step < kBlockBytes) {
      char whole[kBlockBytes];
      const absl::Status read =
          ReadOne(id, plan.data.get(), at / kBlockBytes, plan.entries[index], whole);
      if (!read.ok()) return read;
      std::memcpy(place, whole + within, step);
      at += step;
      continue;
    }
    uint64_t count = 1;
    const uint64_t count_max = std::min(kReadBlocksMax, (end - at) / kBlockBytes);
    while (count < count_max && plan.entries[index + count].version != 0 &&
           plan.entries[index + count].slot == plan.entries[index].slot + count) {
      ++count;
    }
    if (auto status = ReadRun(id, plan, index, count, place); !status.ok()) return status;
    at += count * kBlockBytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LocalObjectStore::Read(ObjectId id, uint64_t offset,
                                                std::span<char> bytes) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  ReadPlan plan;
  {
    MutexLock lock(object.mutex);
    auto planned = PlanRead(object, offset, bytes.size());
    if (!planned.ok()) return Counted(planned.status());
    plan = *std::move(planned);
  }
  absl::Status read = ReadBlocks(id, plan, bytes.data());
  MutexLock lock(object.mutex);
  if (plan.bytes == 0) return 0;
  if (object.state.frees() != plan.frees || object.removed || !object.loaded) {
    // Slots that were read may have been given to other contents meanwhile. Once more, alone.
    auto planned = PlanRead(object, offset, bytes.size());
    if (!planned.ok()) return Counted(planned.status());
    plan = *std::move(planned);
    read = ReadBlocks(id, plan, bytes.data());
  }
  if (!read.ok()) return Counted(read);
  return plan.bytes;
}

absl::StatusOr<uint64_t> LocalObjectStore::ReadKept(
    ObjectId id, uint64_t offset, std::span<char> bytes,
    const std::function<absl::StatusOr<runtime::Block>(uint64_t block)>& fetch) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  ReadPlan plan;
  {
    MutexLock lock((*found)->mutex);
    auto planned = PlanBlocks(**found, offset, bytes.size());
    if (!planned.ok()) return planned.status();
    plan = *std::move(planned);
  }
  const uint64_t end = plan.offset + plan.bytes;
  for (uint64_t at = plan.offset; at < end;) {
    const uint64_t block = at / kBlockBytes, within = at % kBlockBytes;
    const uint64_t step = std::min(kBlockBytes - within, end - at);
    const BlockEntry& entry = plan.entries[block - plan.offset / kBlockBytes];
    char* const place = bytes.data() + (at - plan.offset);
    if (entry.version == 0) {
      std::memset(place, 0, step);
    } else {
      const auto kept = fetch(block);
      if (!kept.ok()) return kept.status();
      if (kept->size() != kBlockBytes || Crc32c(kept->view()) != entry.crc) {
        return NotItsContents(id, block);
      }
      std::memcpy(place, kept->view().data() + within, step);
    }
    at += step;
  }
  return plan.bytes;
}

absl::StatusOr<std::string> LocalObjectStore::BlockWith(StoredObject& object, uint64_t block,
                                                        uint64_t within, std::string_view bytes) {
  const BlockEntry entry = object.state.Find(block);
  std::string whole(kBlockBytes, '\0');
  if (entry.version != 0) {
    const auto data = DataFile(object, false);
    if (!data.ok()) return data.status();
    // Checked, so that a damaged block does not get a checksum that fits its damage.
    const absl::Status read = ReadOne(object.id, data->get(), block, entry, whole.data());
    if (!read.ok()) return read;
  }
  whole.replace(within, bytes.size(), bytes);
  return whole;
}

absl::StatusOr<LocalObjectStore::WritePlan> LocalObjectStore::PlanWrite(StoredObject& object,
                                                                        uint64_t offset,
                                                                        std::string_view bytes) {
  WritePlan plan;
  const uint64_t end = offset + bytes.size();
  plan.first = offset / kBlockBytes;
  plan.count = BlocksUpTo(end) - plan.first;
  plan.middle = bytes;
  const uint64_t within = offset % kBlockBytes;
  if (within != 0 || bytes.size() < kBlockBytes) {
    const std::string_view part = bytes.substr(0, kBlockBytes - within);
    auto block = BlockWith(object, plan.first, within, part);
    if (!block.ok()) return block.status();
    plan.head = *std::move(block);
    plan.middle.remove_prefix(part.size());
  }
  if (const uint64_t rest = plan.middle.size() % kBlockBytes; rest != 0) {
    auto block =
        BlockWith(object, end / kBlockBytes, 0, plan.middle.substr(plan.middle.size() - rest));
    if (!block.ok()) return block.status();
    plan.tail = *std::move(block);
    plan.middle.remove_suffix(rest);
  }
  plan.added_blocks = object.state.CountHoles(plan.first, plan.first + plan.count);
  for (const std::string_view part :
       {std::string_view(plan.head), plan.middle, std::string_view(plan.tail)}) {
    for (uint64_t at = 0; at < part.size(); at += kBlockBytes) {
      plan.crcs.push_back(Crc32c(part.substr(at, kBlockBytes)));
    }
  }
  return plan;
}

absl::StatusOr<uint64_t> LocalObjectStore::WriteOut(StoredObject& object, const WritePlan& plan,
                                                    bool takes_spare) {
  auto data = DataFile(object, true);
  if (!data.ok()) return data.status();
  // Never over contents that are in use: on an error, and after a crash, those are what there is.
  const uint64_t slot = object.state.AllocateSlots(plan.count);
  object.data_written += plan.count * kBlockBytes;
  const auto write = [&] {
    uint64_t at = slot * kBlockBytes;
    for (const std::string_view part :
         {std::string_view(plan.head), plan.middle, std::string_view(plan.tail)}) {
      if (part.empty()) continue;
      if (auto status = (*data)->Write(at, part); !status.ok()) return status;
      at += part.size();
    }
    return absl::OkStatus();
  };
  const absl::Status written =
      takes_spare ? spare_.Write(plan.count * kBlockBytes, write) : write();
  if (written.ok()) return slot;
  // What it got of them.
  (*data)->Punch(slot * kBlockBytes, plan.count * kBlockBytes).IgnoreError();
  object.state.FreeSlots({slot, plan.count});
  return written;
}

absl::Status LocalObjectStore::Reserve(uint64_t blocks) {
  const auto added = static_cast<int64_t>(blocks);
  const int64_t used = used_blocks_.fetch_add(added) + added;
  const uint64_t quota_blocks = options_.quota_bytes / kBlockBytes;
  if (blocks == 0 || used <= 0 || static_cast<uint64_t>(used) <= quota_blocks) {
    return absl::OkStatus();
  }
  used_blocks_ -= added;
  return absl::ResourceExhaustedError(
      absl::StrCat("the store's quota of ", options_.quota_bytes, " bytes is used up"));
}

absl::StatusOr<LocalObjectStore::WrittenOut> LocalObjectStore::WriteOutAll(
    StoredObject& object, std::span<const ObjectWrite> writes, Spare spare) {
  WrittenOut written;
  for (const ObjectWrite& write : writes) {
    auto plan = PlanWrite(object, write.offset, write.bytes);
    if (!plan.ok()) return plan.status();
    written.added_blocks += plan->added_blocks;
    written.end = std::max<uint64_t>(written.end, write.offset + write.bytes.size());
    written.writes.push_back({*std::move(plan)});
  }
  const bool takes_spare = spare == Spare::kUnlessItAdds && written.added_blocks == 0;
  if (written.added_blocks > 0) {
    if (auto status = spare_.Refill(); !status.ok()) return status;
  }
  if (auto status = Reserve(written.added_blocks); !status.ok()) return status;
  for (auto it = written.writes.begin(); it != written.writes.end(); ++it) {
    const auto slot = WriteOut(object, it->plan, takes_spare);
    if (!slot.ok()) {
      written.writes.erase(it, written.writes.end());
      Drop(object, written);
      return slot.status();
    }
    it->slot = *slot;
  }
  return written;
}

void LocalObjectStore::Drop(StoredObject& object, const WrittenOut& written) {
  const bool is_due = !spare_.is_whole();  // what it gave comes back
  for (const auto& [plan, slot] : written.writes) {
    object.state.FreeSlots({slot, plan.count});
    if (!is_due || object.data == nullptr) continue;
    object.data->Punch(slot * kBlockBytes, plan.count * kBlockBytes).IgnoreError();
  }
  if (is_due) spare_.Refill().IgnoreError();
  used_blocks_ -= static_cast<int64_t>(written.added_blocks);
}

void LocalObjectStore::Install(StoredObject& object, const WrittenOut& written,
                               VersionNumber version) {
  for (const auto& [plan, slot] : written.writes) {
    for (uint64_t i = 0; i < plan.count; ++i) {
      object.state.Put(plan.first + i, {.slot = slot + i, .version = version, .crc = plan.crcs[i]});
    }
  }
  ObjectHead& head = object.state.ChangeHead();
  head.size_bytes = std::max(head.size_bytes, written.end);
  head.version = version;
  NoteChanged(object);
}

absl::Status LocalObjectStore::WriteLocked(StoredObject& object, const ObjectWrite& write,
                                           VersionNumber version) {
  if (auto status = BeginChange(object, version); !status.ok()) return status;
  const auto written = WriteOutAll(object, std::span(&write, 1), Spare::kNo);
  if (!written.ok()) return written.status();
  Install(object, *written, version);
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Write(ObjectId id, uint64_t offset, std::string_view bytes,
                                     VersionNumber version) {
  if (auto status = CheckWrite(offset, bytes); !status.ok()) return status;
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  bool too_many;
  {
    MutexLock lock(object.mutex);
    if (bytes.empty()) return PrepareChange(object, version);
    LetFlushesGoFirst(object);  // others write while this one waits
    too_many =
        object.state.changed_blocks() + BlocksUpTo(bytes.size()) > options_.changed_blocks_max;
    if (!too_many) return Counted(WriteLocked(object, {offset, bytes}, version));
  }
  if (auto status = Flush(id); !status.ok()) return status;
  MutexLock lock(object.mutex);
  return Counted(WriteLocked(object, {offset, bytes}, version));
}

// The locks are as many as there are objects: more than the analysis can follow.
absl::Status LocalObjectStore::Update(std::span<const ObjectUpdate> updates,
                                      VersionNumber version) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::vector<ObjectPtr> objects;
  for (const ObjectUpdate& update : updates) {
    if (auto status = CheckWrites(update.writes); !status.ok()) return status;
    if (update.blob.has_value()) {
      if (auto status = CheckBlob(*update.blob); !status.ok()) return status;
    }
    auto found = Find(update.id);
    if (!found.ok()) return found.status();
    objects.push_back(*std::move(found));
  }
  std::vector<ObjectPtr> locked = objects;
  std::sort(locked.begin(), locked.end(),
            [](const ObjectPtr& a, const ObjectPtr& b) { return a->id < b->id; });
  if (std::adjacent_find(locked.begin(), locked.end()) != locked.end()) {
    return absl::InvalidArgumentError("an update names an object twice");
  }
  for (bool flushed = false;;) {
    ObjectPtr busy;
    absl::Status status;
    bool may_pass = false;
    {
      const SharedGate::Pass pass(updates_);
      {
        MutexLock lock(mutex_);
        if (!updates_lost_.ok()) return updates_lost_;
      }
      busy = LockAll(locked);
      if (busy == nullptr) {
        status = UpdateLocked(objects, updates, version);
        may_pass =
            absl::IsResourceExhausted(status) && !spare_.is_whole() && !AddBlocks(objects, updates);
        for (const ObjectPtr& object : locked) object->mutex.Unlock();
      }
    }
    if (busy == nullptr) {
      // What changes before it were given of the spare room comes back with their flush.
      if (!may_pass || std::exchange(flushed, true)) return Counted(status);
      FlushAll().IgnoreError();  // some of it may have come back nevertheless
      continue;
    }
    // For its disk, while flushes and updates of others go on.
    MutexLock until_it_is_free(busy->mutex);
    LetFlushesGoFirst(*busy);
  }
}

bool LocalObjectStore::AddBlocks(std::span<const ObjectPtr> objects,
                                 std::span<const ObjectUpdate> updates)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (size_t i = 0; i < updates.size(); ++i) {
    for (const ObjectWrite& write : updates[i].writes) {
      const uint64_t end = BlocksUpTo(write.offset + write.bytes.size());
      if (!objects[i]->loaded ||
          objects[i]->state.CountHoles(write.offset / kBlockBytes, end) > 0) {
        return true;
      }
    }
  }
  return false;
}

LocalObjectStore::ObjectPtr LocalObjectStore::LockAll(std::span<const ObjectPtr> objects)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const Deadline deadline = std::chrono::steady_clock::now() + kLockAllMax;
  for (size_t i = 0; i < objects.size(); ++i) {
    const bool locked = LockSoon(objects[i]->mutex, deadline);
    if (locked && objects[i]->awaited == 0) continue;
    for (size_t k = 0; k < (locked ? i + 1 : i); ++k) objects[k]->mutex.Unlock();
    return objects[i];
  }
  return nullptr;
}

bool LocalObjectStore::LockSoon(runtime::Mutex& mutex,
                                Deadline deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  while (!mutex.TryLock()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

absl::Status LocalObjectStore::UpdateLocked(std::span<const ObjectPtr> objects,
                                            std::span<const ObjectUpdate> updates,
                                            VersionNumber version) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::vector<WrittenOut> written;
  absl::Status status;
  for (size_t i = 0; i < updates.size() && status.ok(); ++i) {
    status = PrepareChange(*objects[i], version);
    if (!status.ok()) break;
    auto one = WriteOutAll(*objects[i], updates[i].writes, Spare::kUnlessItAdds);
    status = one.status();
    if (one.ok()) written.push_back(*std::move(one));
  }
  for (size_t i = 0; i < written.size(); ++i) {
    if (!status.ok()) {
      Drop(*objects[i], written[i]);
      continue;
    }
    if (updates[i].blob.has_value()) objects[i]->state.ChangeHead().blob = *updates[i].blob;
    Install(*objects[i], written[i], version);
    MutexLock lock(mutex_);
    gives_back_ = gives_back_ || updates[i].gives_room_back;
    Tie& tie = tied_[objects[i]->id];
    tie = std::max(tie, updates[i].writes.empty()      ? Tie::kAttributes
                        : updates[i].may_lose_contents ? Tie::kMade
                                                       : Tie::kContents);
  }
  return status;
}

absl::Status LocalObjectStore::PutBack(ObjectId id, uint64_t block, std::string_view bytes) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  LetFlushesGoFirst(object);
  if (auto status = Prepare(object); !status.ok()) return status;
  if (!object.unsynced.ok()) return object.unsynced;
  BlockEntry entry = object.state.Find(block);
  if (entry.version == 0 || bytes.size() != kBlockBytes || Crc32c(bytes) != entry.crc) {
    return NotItsContents(id, block);
  }
  const auto slot = WriteOut(
      object,
      {.first = block, .count = 1, .head = {}, .tail = {}, .middle = bytes, .crcs = {entry.crc}},
      /*takes_spare=*/true);
  if (!slot.ok()) return Counted(slot.status());
  entry.slot = *slot;
  object.state.Put(block, entry);
  NoteChanged(object);
  return absl::OkStatus();
}

void LocalObjectStore::SetHoles(StoredObject& object, uint64_t first, uint64_t end) {
  if (first < end) used_blocks_ -= static_cast<int64_t>(object.state.PutHoles(first, end));
}

absl::Status LocalObjectStore::ZeroParts(StoredObject& object,
                                         const std::vector<std::pair<uint64_t, uint64_t>>& ranges,
                                         VersionNumber version) {
  static constexpr char kZeros[kBlockBytes] = {};
  absl::InlinedVector<ObjectWrite, 2> writes;
  for (const auto& [begin, end] : ranges) {
    if (begin >= end || object.state.Find(begin / kBlockBytes).version == 0) continue;
    writes.push_back({begin, std::string_view(kZeros, end - begin)});
  }
  if (writes.empty()) return absl::OkStatus();
  // No block is added, and the size is the caller's.
  const uint64_t size = object.state.head().size_bytes;
  const auto written = WriteOutAll(object, writes, Spare::kUnlessItAdds);
  if (!written.ok()) return written.status();
  Install(object, *written, version);
  object.state.ChangeHead().size_bytes = size;
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Truncate(ObjectId id, uint64_t size_bytes, VersionNumber version) {
  if (auto status = CheckRange(size_bytes, 0); !status.ok()) return status;
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = BeginChange(object, version); !status.ok()) return status;
  if (size_bytes < object.state.head().size_bytes) {
    const uint64_t end = BlocksUpTo(size_bytes) * kBlockBytes;
    if (auto status = ZeroParts(object, {{size_bytes, end}}, version); !status.ok()) {
      return Counted(status);
    }
    SetHoles(object, BlocksUpTo(size_bytes), kObjectBlocksMax);
  }
  object.state.ChangeHead().size_bytes = size_bytes;
  object.state.ChangeHead().version = version;
  NoteChanged(object);
  return absl::OkStatus();
}

absl::Status LocalObjectStore::Punch(ObjectId id, uint64_t offset, uint64_t bytes,
                                     VersionNumber version) {
  if (auto status = CheckRange(offset, bytes); !status.ok()) return status;
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = BeginChange(object, version); !status.ok()) return status;
  const uint64_t size = object.state.head().size_bytes;
  if (bytes == 0 || offset >= size) return absl::OkStatus();
  // The rest of the last block is zeros already: up to there, or beyond, is all of it.
  const uint64_t end = offset + bytes >= size ? BlocksUpTo(size) * kBlockBytes : offset + bytes;
  const uint64_t first_whole = BlocksUpTo(offset) * kBlockBytes;
  const uint64_t last_whole = end / kBlockBytes * kBlockBytes;
  const absl::Status zeroed =
      first_whole > last_whole
          ? ZeroParts(object, {{offset, end}}, version)
          : ZeroParts(object, {{offset, first_whole}, {last_whole, end}}, version);
  if (!zeroed.ok()) return Counted(zeroed);
  SetHoles(object, first_whole / kBlockBytes, last_whole / kBlockBytes);
  object.state.ChangeHead().version = version;
  NoteChanged(object);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LocalObjectStore::NextData(ObjectId id, uint64_t offset) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = Prepare(object); !status.ok()) return status;
  const uint64_t size = object.state.head().size_bytes;
  if (offset >= size) return absl::OutOfRangeError("the object ends before");
  const uint64_t at = object.state.NextBlock(offset / kBlockBytes) * kBlockBytes;
  if (at >= size) return absl::OutOfRangeError("no data follows");
  return std::max(at, offset);
}

absl::StatusOr<uint64_t> LocalObjectStore::NextHole(ObjectId id, uint64_t offset) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = Prepare(object); !status.ok()) return status;
  const uint64_t size = object.state.head().size_bytes;
  if (offset >= size) return absl::OutOfRangeError("the object ends before");
  uint64_t block = offset / kBlockBytes;
  while (block * kBlockBytes < size && object.state.Find(block).version != 0) ++block;
  return std::min(size, std::max(offset, block * kBlockBytes));
}

absl::StatusOr<std::vector<VersionNumber>> LocalObjectStore::ReadVersions(ObjectId id,
                                                                          uint64_t first,
                                                                          uint64_t count) {
  if (count > kVersionsMax || first > kObjectBlocksMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("versions of at most ", kVersionsMax, " blocks are read at once"));
  }
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = Prepare(object); !status.ok()) return status;
  std::vector<VersionNumber> versions(count);
  for (uint64_t i = 0; i < count; ++i) versions[i] = object.state.Find(first + i).version;
  return versions;
}

absl::StatusOr<ObjectAttributes> LocalObjectStore::GetAttributes(ObjectId id) {
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = Prepare(object); !status.ok()) return status;
  const ObjectHead& head = object.state.head();
  return ObjectAttributes{.size_bytes = head.size_bytes,
                          .allocated_bytes = object.state.block_count() * kBlockBytes,
                          .version = head.version,
                          .blob = head.blob};
}

absl::Status LocalObjectStore::SetAttributes(ObjectId id, std::string_view blob,
                                             VersionNumber version) {
  if (auto status = CheckBlob(blob); !status.ok()) return status;
  const auto found = Find(id);
  if (!found.ok()) return found.status();
  StoredObject& object = **found;
  MutexLock lock(object.mutex);
  if (auto status = BeginChange(object, version); !status.ok()) return status;
  ObjectHead& head = object.state.ChangeHead();
  head.blob = std::string(blob);
  head.version = version;
  NoteChanged(object);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ObjectId>> LocalObjectStore::List(ObjectId after, uint64_t count_max) {
  std::vector<ObjectId> ids;
  MutexLock lock(mutex_);
  for (auto at = objects_.upper_bound(after); at != objects_.end() && ids.size() < count_max;
       ++at) {
    ids.push_back(at->first);
  }
  return ids;
}

absl::StatusOr<StoreSpace> LocalObjectStore::Space() {
  const absl::StatusOr<DiskSpace> disk = disk_.Space();
  if (!disk.ok()) return disk.status();
  const auto used = static_cast<uint64_t>(std::max<int64_t>(used_blocks_.load(), 0)) * kBlockBytes;
  const uint64_t quota_left = options_.quota_bytes - std::min(used, options_.quota_bytes);
  MutexLock lock(mutex_);
  return StoreSpace{.capacity_bytes = std::min(disk->capacity_bytes, options_.quota_bytes),
                    .used_bytes = used,
                    .available_bytes = std::min(disk->available_bytes, quota_left),
                    .objects = objects_.size()};
}

StoreStatistics LocalObjectStore::Statistics() {
  return {.checksum_errors = checksum_errors_.load(),
          .damaged_tables = damaged_tables_.load(),
          .checkpoints = checkpoints_.load(),
          .checkpoints_failed = checkpoints_failed_.load(),
          .refused_for_space = refused_for_space_.load(),
          .repaired_objects = repaired_objects_.load()};
}

}  // namespace abacus::objfs
