#ifndef ABACUS_OBJFS_STORAGE_FILE_POOL_H_
#define ABACUS_OBJFS_STORAGE_FILE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/storage/file.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Files of which only so many are open at once: one that is asked for while it is closed is opened
// again, and the one whose last use is longest ago is closed for it.
//
// Why not end the storage objects of those files instead: nobody counts the references that other
// nodes hold, so none can be known to be out of use. A descriptor is what is scarce.
// Invariants:
// 1. A file is not closed while somebody uses it: who does, shares in it. At most as many files as
//    calls are under way are open beyond the limit.
// 2. What is opened again is the same file, not another one that was given its name meanwhile.
// 3. What a disk reports of bytes written before the file was closed is told by the next Sync().
// Errors: those of the file (objfs/storage/file.h).
// Thread-safety: thread-safe. Blocking: disk I/O. The lock is held while a file is opened, closed
// or renamed, never over a read or write of data; only where all open files have been written since
// they were last synced, one of them is synced under it.
class FilePool {
 public:
  using FileId = uint64_t;

  explicit FilePool(size_t open_max) : open_max_(open_max) {}

  // Takes in the file that `open` (File::Open or File::Create) opens.
  absl::StatusOr<FileId> Add(const std::string& path,
                             absl::StatusOr<File> (*open)(const std::string&));
  // The file, open until the last share in it is given up. `writes`: it will be written.
  // Errors: kNotFound - it was dropped, or is no more where it was.
  absl::StatusOr<std::shared_ptr<File>> Use(FileId id, bool writes);
  // Returns once what was written is on the disk.
  absl::Status Sync(FileId id);
  // Gives the file another name on the disk, replacing the file of that name.
  absl::Status Rename(FileId id, const std::string& to);
  // The file is in the pool no more; those who use it keep it until they are done.
  void Drop(FileId id);

  // How many the pool holds open.
  size_t open() const;

 private:
  struct Slot {
    std::string path;
    FileIdentity identity;
    std::shared_ptr<File> file;       // null: closed
    bool written = false;             // since it was last synced
    absl::Status sync_error;          // met when it was closed, and not told yet
    std::list<FileId>::iterator use;  // in `uses_`, where it is open
  };

  absl::StatusOr<Slot*> Find(FileId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes room for one more, opens it and makes it the slot's.
  absl::Status OpenInto(FileId id, Slot& slot, absl::StatusOr<File> (*open)(const std::string&))
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False where none is open.
  bool CloseOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t open_max_;

  mutable runtime::Mutex mutex_;
  FileId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<FileId, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::list<FileId> uses_ ABSL_GUARDED_BY(mutex_);  // the open ones, the longest unused first
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_FILE_POOL_H_
