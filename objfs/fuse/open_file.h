#ifndef ABACUS_OBJFS_FUSE_OPEN_FILE_H_
#define ABACUS_OBJFS_FUSE_OPEN_FILE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::fuse {

// What the kernel's handle of an open file stands for.
//
// Why more than a FileHandle: a file that is open to append has two. What a program writes goes to
// the end, wherever another client has put it; what it stores into a mapping of the file comes as
// writes too, and these belong where they say.
//
// Thread-safety: thread-safe. Blocking: as the file system.
class OpenFile {
 public:
  // Errors: as FileSystem::Open.
  static absl::StatusOr<std::unique_ptr<OpenFile>> Make(FileSystem& files, const Caller& caller,
                                                        ObjectId id, int flags);
  // Takes `handle` over.
  OpenFile(FileSystem& files, ObjectId id, int flags, FileHandle handle);

  // Who has asked for locks through this open of the file; they go with it.
  void KeepOwner(LockKind kind, uint64_t owner);
  // A process has closed a descriptor: it loses its locks of the file.
  absl::Status UnlockProcess(uint64_t owner);

  // The handles are the file system's to close, and the locks that are left go.
  // REQUIRES: no other call is going on.
  absl::Status Release();

  bool writes() const;  // whether it was opened to write
  // Whether all that can be done with it is to write at the end.
  bool only_appends() const;
  FileHandle handle() const { return handle_; }
  // For pages: where they are, whatever the file is opened for.
  absl::StatusOr<FileHandle> PageHandle();
  // Makes what was written through it visible (FileSystem::Push) or durable (Sync, or, with
  // `data_only`, SyncData).
  absl::Status Push();
  absl::Status Sync(bool data_only);

 private:
  FileHandle pages();

  FileSystem& files_;
  const ObjectId id_;
  const int flags_;
  const FileHandle handle_;
  runtime::Mutex mutex_;                          // not held over calls
  FileHandle pages_ ABSL_GUARDED_BY(mutex_) = 0;  // the second handle; 0: none yet
  std::set<std::pair<LockKind, uint64_t>> owners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_OPEN_FILE_H_
