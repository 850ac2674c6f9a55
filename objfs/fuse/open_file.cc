#include "objfs/fuse/open_file.h"

#include <fcntl.h>

#include "runtime/base/status.h"

namespace abacus::objfs::fuse {

absl::StatusOr<std::unique_ptr<OpenFile>> OpenFile::Make(FileSystem& files, const Caller& caller,
                                                         ObjectId id, int flags) {
  ABACUS_ASSIGN_OR_RETURN(const FileHandle handle, files.Open(caller, id, flags));
  return std::make_unique<OpenFile>(files, id, flags, handle);
}

OpenFile::OpenFile(FileSystem& files, ObjectId id, int flags, FileHandle handle)
    : files_(files), id_(id), flags_(flags), handle_(handle) {}

bool OpenFile::writes() const { return (flags_ & O_ACCMODE) != O_RDONLY; }

bool OpenFile::only_appends() const {
  return (flags_ & O_ACCMODE) == O_WRONLY && (flags_ & O_APPEND) != 0;
}

FileHandle OpenFile::pages() {
  runtime::MutexLock lock(mutex_);
  return pages_;
}

absl::StatusOr<FileHandle> OpenFile::PageHandle() {
  if ((flags_ & O_APPEND) == 0) return handle_;
  if (const FileHandle pages = this->pages(); pages != 0) return pages;
  // Who wrote the page has opened the file: nobody has to be asked again.
  ABACUS_ASSIGN_OR_RETURN(const FileHandle made, files_.Open({.checked = true}, id_, O_RDWR));
  FileHandle kept = made;
  {
    runtime::MutexLock lock(mutex_);
    if (pages_ == 0) pages_ = made;
    kept = pages_;
  }
  if (kept != made) files_.Release(made).IgnoreError();  // nothing was written through it
  return kept;
}

absl::Status OpenFile::Push() {
  if (const FileHandle pages = this->pages(); pages != 0) {
    ABACUS_RETURN_IF_ERROR(files_.Push(pages));
  }
  return files_.Push(handle_);
}

absl::Status OpenFile::Sync(bool data_only) {
  const auto sync = [&](FileHandle handle) {
    return data_only ? files_.SyncData(handle) : files_.Sync(handle);
  };
  if (const FileHandle pages = this->pages(); pages != 0) ABACUS_RETURN_IF_ERROR(sync(pages));
  return sync(handle_);
}

void OpenFile::KeepOwner(LockKind kind, uint64_t owner) {
  runtime::MutexLock lock(mutex_);
  owners_.emplace(kind, owner);
}

absl::Status OpenFile::UnlockProcess(uint64_t owner) {
  const absl::Status status = files_.UnlockAll(id_, LockKind::kRecord, owner);
  if (status.ok()) {  // else Release() tries again
    // Another process may have that name later, and locks that this open is not to take away.
    runtime::MutexLock lock(mutex_);
    owners_.erase({LockKind::kRecord, owner});
  }
  return status;
}

absl::Status OpenFile::Release() {
  absl::Status status;
  if (const FileHandle pages = this->pages(); pages != 0) status = files_.Release(pages);
  status.Update(files_.Release(handle_));
  std::set<std::pair<LockKind, uint64_t>> owners;
  {
    runtime::MutexLock lock(mutex_);
    owners.swap(owners_);
  }
  // What was written under a lock is at the volume before the lock goes.
  for (const auto& [kind, owner] : owners) status.Update(files_.UnlockAll(id_, kind, owner));
  return status;
}

}  // namespace abacus::objfs::fuse
