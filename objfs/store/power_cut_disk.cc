#include <algorithm>

#include "absl/strings/str_cat.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {
absl::Status PowerIsOff() { return absl::UnavailableError("the disk has no power"); }
}  // namespace

class PowerCutFile : public DiskFile {
 public:
  PowerCutFile(PowerCutDisk* disk, std::shared_ptr<PowerCutDisk::Inode> inode, uint64_t epoch)
      : disk_(*disk), inode_(std::move(inode)), epoch_(epoch) {}

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override {
    MutexLock lock(disk_.mutex_);
    if (auto status = disk_.CheckPower(epoch_); !status.ok()) return status;
    return inode_->cached->Read(offset, bytes);
  }
  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    return Change(
        {.kind = PowerCutDisk::Change::kWrite, .offset = offset, .bytes = std::string(bytes)});
  }
  absl::Status Truncate(uint64_t bytes) override {
    return Change({.kind = PowerCutDisk::Change::kTruncate, .offset = bytes});
  }
  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    return Change({.kind = PowerCutDisk::Change::kPunch, .offset = offset, .length = bytes});
  }
  absl::StatusOr<uint64_t> Size() override {
    MutexLock lock(disk_.mutex_);
    if (auto status = disk_.CheckPower(epoch_); !status.ok()) return status;
    return inode_->cached->Size();
  }
  absl::StatusOr<uint64_t> NextData(uint64_t offset) override {
    MutexLock lock(disk_.mutex_);
    if (auto status = disk_.CheckPower(epoch_); !status.ok()) return status;
    return inode_->cached->NextData(offset);
  }
  absl::Status Sync() override {
    MutexLock lock(disk_.mutex_);
    if (auto status = disk_.CheckPower(epoch_); !status.ok()) return status;
    if (auto status = disk_.Begin(); !status.ok()) return status;
    if (!disk_.lies_) PowerCutDisk::SyncInode(*inode_);
    return absl::OkStatus();
  }

 private:
  absl::Status Change(PowerCutDisk::Change change) {
    MutexLock lock(disk_.mutex_);
    if (auto status = disk_.CheckPower(epoch_); !status.ok()) return status;
    const absl::Status power = disk_.Begin();
    change.call = disk_.calls_;
    // What was under way when the power went may have reached the disk as well.
    PowerCutDisk::Apply(change, *inode_->cached);
    inode_->unsynced.push_back(std::move(change));
    return power;
  }

  PowerCutDisk& disk_;
  const std::shared_ptr<PowerCutDisk::Inode> inode_;
  const uint64_t epoch_;
};

PowerCutDisk::PowerCutDisk(uint64_t sector_bytes)
    : sector_bytes_(sector_bytes), space_(std::make_shared<MemorySpace>(uint64_t{1} << 40)) {}

void PowerCutDisk::CutPowerAfter(uint64_t calls) {
  MutexLock lock(mutex_);
  cut_at_ = calls_ + calls;
}

void PowerCutDisk::CutPower() {
  MutexLock lock(mutex_);
  on_ = false;
}

void PowerCutDisk::LieAboutSyncs(bool lies) {
  MutexLock lock(mutex_);
  lies_ = lies;
}

uint64_t PowerCutDisk::Calls() {
  MutexLock lock(mutex_);
  return calls_;
}

absl::Status PowerCutDisk::Begin() {
  if (!on_) return PowerIsOff();
  ++calls_;
  if (cut_at_.has_value() && calls_ > *cut_at_) on_ = false;
  return on_ ? absl::OkStatus() : PowerIsOff();
}

absl::Status PowerCutDisk::CheckPower(uint64_t epoch) {
  return on_ && epoch == epoch_ ? absl::OkStatus() : PowerIsOff();
}

void PowerCutDisk::Apply(const Change& change, MemoryFile& file) {
  // The space is without end, and the offsets were checked by the caller's own file: no errors.
  switch (change.kind) {
    case Change::kWrite:
      file.Write(change.offset, change.bytes).IgnoreError();
      break;
    case Change::kTruncate:
      file.Truncate(change.offset).IgnoreError();
      break;
    case Change::kPunch:
      file.Punch(change.offset, change.length).IgnoreError();
      break;
  }
}

void PowerCutDisk::ApplyPart(const Change& change, MemoryFile& file,
                             std::mt19937_64& random) const {
  if (change.kind != Change::kWrite) {
    if (random() % 2 == 0) Apply(change, file);
    return;
  }
  const uint64_t end = change.offset + change.bytes.size();
  for (uint64_t at = change.offset; at < end;) {
    const uint64_t stop = std::min(end, (at / sector_bytes_ + 1) * sector_bytes_);
    if (random() % 2 == 0) {
      Apply({.kind = Change::kWrite,
             .offset = at,
             .bytes = change.bytes.substr(at - change.offset, stop - at)},
            file);
    }
    at = stop;
  }
  const absl::StatusOr<uint64_t> size = file.Size();
  if (random() % 2 == 0 && size.ok() && *size < end) file.Truncate(end).IgnoreError();
}

void PowerCutDisk::SyncInode(Inode& inode) {
  for (const Change& change : inode.unsynced) Apply(change, *inode.durable);
  inode.unsynced.clear();
}

void PowerCutDisk::SyncNames(const std::string& directory, size_t count) {
  std::vector<NameChange>& changes = unsynced_[directory];
  for (size_t i = 0; i < std::min(count, changes.size()); ++i) {
    if (!changes[i].removed.empty()) durable_.erase(changes[i].removed);
    if (!changes[i].added.empty()) durable_[changes[i].added] = changes[i].inode;
  }
  changes.clear();
}

void PowerCutDisk::PowerOn(uint64_t seed) {
  MutexLock lock(mutex_);
  std::mt19937_64 random(seed);
  const auto choose = [&random] { return static_cast<Keep>(random() % 3); };
  for (auto& [directory, changes] : unsynced_) {
    const Keep keep = choose();
    const size_t some = random() % (changes.size() + 1);
    SyncNames(directory, keep == Keep::kNothing ? 0 : keep == Keep::kAll ? changes.size() : some);
  }
  for (const auto& [name, inode] : durable_) {
    const Keep keep = choose();
    for (const Change& change : inode->unsynced) {
      if (keep == Keep::kAll) Apply(change, *inode->durable);
      if (keep == Keep::kSome) ApplyPart(change, *inode->durable, random);
    }
  }
  SwitchOn();
}

void PowerCutDisk::PowerOnAsOf(uint64_t calls) {
  MutexLock lock(mutex_);
  const auto is_later = [calls](const auto& change) { return change.call > calls; };
  for (auto& [directory, changes] : unsynced_) {
    const auto later = std::find_if(changes.begin(), changes.end(), is_later);
    SyncNames(directory, static_cast<size_t>(later - changes.begin()));
  }
  for (const auto& [name, inode] : durable_) {
    for (const Change& change : inode->unsynced) {
      if (!is_later(change)) Apply(change, *inode->durable);
    }
  }
  SwitchOn();
}

void PowerCutDisk::SwitchOn() {
  for (const auto& [name, inode] : durable_) {
    inode->unsynced.clear();
    inode->cached = inode->durable->Copy();
  }
  cached_ = durable_;
  cut_at_.reset();
  on_ = true;
  ++epoch_;
}

absl::Status PowerCutDisk::ChangeName(const std::string& removed, const std::string& added,
                                      std::shared_ptr<Inode> inode) {
  const absl::Status power = Begin();
  if (!removed.empty()) cached_.erase(removed);
  if (!added.empty()) cached_[added] = inode;
  unsynced_[FolderOf(removed.empty() ? added : removed)].push_back(
      {.removed = removed, .added = added, .inode = std::move(inode), .call = calls_});
  return power;
}

absl::StatusOr<std::shared_ptr<DiskFile>> PowerCutDisk::Open(const std::string& path) {
  MutexLock lock(mutex_);
  if (!on_) return PowerIsOff();
  const auto found = cached_.find(path);
  if (found == cached_.end()) return absl::NotFoundError(absl::StrCat("no file ", path));
  return std::make_shared<PowerCutFile>(this, found->second, epoch_);
}

absl::StatusOr<std::shared_ptr<DiskFile>> PowerCutDisk::Create(const std::string& path) {
  MutexLock lock(mutex_);
  if (!on_) return PowerIsOff();
  if (cached_.contains(path)) {
    return absl::AlreadyExistsError(absl::StrCat("there is a file ", path));
  }
  auto inode = std::make_shared<Inode>();
  inode->cached = std::make_shared<MemoryFile>(space_);
  inode->durable = std::make_shared<MemoryFile>(space_);
  if (auto status = ChangeName("", path, inode); !status.ok()) return status;
  return std::make_shared<PowerCutFile>(this, inode, epoch_);
}

// Folders are made once, when a store is: they are durable at once.
absl::Status PowerCutDisk::MakeDirectory(const std::string&) {
  MutexLock lock(mutex_);
  return Begin();
}

absl::Status PowerCutDisk::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  if (!on_) return PowerIsOff();
  const auto found = cached_.find(from);
  if (found == cached_.end()) return absl::NotFoundError(absl::StrCat("no file ", from));
  return ChangeName(from, to, found->second);
}

absl::Status PowerCutDisk::Remove(const std::string& path) {
  MutexLock lock(mutex_);
  if (!on_) return PowerIsOff();
  if (!cached_.contains(path)) return absl::NotFoundError(absl::StrCat("no file ", path));
  return ChangeName(path, "", nullptr);
}

absl::StatusOr<std::vector<std::string>> PowerCutDisk::List(const std::string& directory) {
  MutexLock lock(mutex_);
  if (!on_) return PowerIsOff();
  std::vector<std::string> names;
  for (const auto& [path, inode] : cached_) {
    if (FolderOf(path) != directory) continue;
    names.push_back(directory.empty() ? path : path.substr(directory.size() + 1));
  }
  return names;
}

absl::Status PowerCutDisk::SyncDirectory(const std::string& directory) {
  MutexLock lock(mutex_);
  if (auto status = Begin(); !status.ok()) return status;
  if (!lies_) SyncNames(directory, unsynced_[directory].size());
  return absl::OkStatus();
}

absl::Status PowerCutDisk::SyncAll() {
  MutexLock lock(mutex_);
  if (auto status = Begin(); !status.ok()) return status;
  if (lies_) return absl::OkStatus();
  for (const auto& [directory, changes] : unsynced_) SyncNames(directory, changes.size());
  for (const auto& [name, inode] : cached_) SyncInode(*inode);
  return absl::OkStatus();
}

absl::StatusOr<DiskSpace> PowerCutDisk::Space() {
  return DiskSpace{.capacity_bytes = space_->capacity_bytes,
                   .available_bytes = space_->capacity_bytes};
}

}  // namespace abacus::objfs
