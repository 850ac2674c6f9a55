#include "objfs/storage/file_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

absl::StatusOr<FilePool::FileId> FilePool::Add(const std::string& path,
                                               absl::StatusOr<File> (*open)(const std::string&)) {
  MutexLock lock(mutex_);
  const FileId id = last_id_ + 1;
  Slot slot{.path = path};
  ABACUS_RETURN_IF_ERROR(OpenInto(id, slot, open));
  last_id_ = id;
  slots_.emplace(id, std::move(slot));
  return id;
}

absl::StatusOr<std::shared_ptr<File>> FilePool::Use(FileId id, bool writes) {
  MutexLock lock(mutex_);
  ABACUS_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
  if (slot->file == nullptr) {
    ABACUS_RETURN_IF_ERROR(OpenInto(id, *slot, &File::Open));
  } else {
    uses_.splice(uses_.end(), uses_, slot->use);
  }
  slot->written = slot->written || writes;
  return slot->file;
}

absl::Status FilePool::Sync(FileId id) {
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Use(id, false));
  absl::Status earlier;
  {
    MutexLock lock(mutex_);
    ABACUS_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
    // Before the sync: what is written beside it is to be synced again.
    slot->written = false;
    earlier = std::exchange(slot->sync_error, absl::OkStatus());
  }
  const absl::Status status = file->Sync();
  return earlier.ok() ? status : earlier;
}

absl::Status FilePool::Rename(FileId id, const std::string& to) {
  // Under the lock: whoever opens the file again finds it under the name that it has.
  MutexLock lock(mutex_);
  ABACUS_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
  ABACUS_RETURN_IF_ERROR(RenameFile(slot->path, to));
  slot->path = to;
  return absl::OkStatus();
}

void FilePool::Drop(FileId id) {
  MutexLock lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end()) return;
  if (it->second.file != nullptr) uses_.erase(it->second.use);
  slots_.erase(it);
}

size_t FilePool::open() const {
  MutexLock lock(mutex_);
  return uses_.size();
}

absl::StatusOr<FilePool::Slot*> FilePool::Find(FileId id) {
  const auto it = slots_.find(id);
  if (it == slots_.end()) return absl::NotFoundError("the file was removed or replaced");
  return &it->second;
}

absl::Status FilePool::OpenInto(FileId id, Slot& slot,
                                absl::StatusOr<File> (*open)(const std::string&)) {
  if (uses_.size() >= open_max_) CloseOne();
  absl::StatusOr<File> file = open(slot.path);
  // The process or the system may have fewer descriptors than this pool was given.
  if (absl::IsResourceExhausted(file.status()) && CloseOne()) file = open(slot.path);
  if (!file.ok()) return file.status();
  ABACUS_ASSIGN_OR_RETURN(const FileIdentity identity, file->Identity());
  if (slot.identity != FileIdentity() && slot.identity != identity) {
    return absl::NotFoundError(absl::StrCat(slot.path, " is another file now"));
  }
  slot.identity = identity;
  slot.file = std::make_shared<File>(*std::move(file));
  slot.use = uses_.insert(uses_.end(), id);
  return absl::OkStatus();
}

bool FilePool::CloseOne() {
  if (uses_.empty()) return false;
  for (const FileId id : uses_) {
    Slot& slot = slots_.at(id);
    if (slot.written) continue;
    Close(slot);
    return true;
  }
  Close(slots_.at(uses_.front()));
  return true;
}

void FilePool::Close(Slot& slot) {
  // An error of the disk is told to a descriptor that was open when it happened: none would be.
  if (slot.written) {
    if (absl::Status status = slot.file->Sync(); !status.ok()) slot.sync_error = status;
    slot.written = false;
  }
  slot.file.reset();
  uses_.erase(slot.use);
}

}  // namespace abacus::objfs
