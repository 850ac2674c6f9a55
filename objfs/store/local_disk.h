#ifndef ABACUS_OBJFS_STORE_LOCAL_DISK_H_
#define ABACUS_OBJFS_STORE_LOCAL_DISK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What a Disk says where the system answered `error` (errno) to `what`; ReadError() of reading
// bytes.
absl::Status DiskError(int error, const std::string& what);
absl::Status ReadError(int error, const std::string& what);

// A directory of the local file system as a Disk. SyncAll() is syncfs(): it also writes what others
// keep on that file system.
class LocalDisk : public Disk {
 public:
  // Makes the directory where it is missing and locks it until the disk ends, so that two stores
  // never share one. Errors: kFailedPrecondition - another process, or another LocalDisk of this
  // one, has it; else as Disk.
  static absl::StatusOr<std::unique_ptr<LocalDisk>> At(const std::string& directory);
  ~LocalDisk() override;
  LocalDisk(const LocalDisk&) = delete;
  LocalDisk& operator=(const LocalDisk&) = delete;

  absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& directory) override;
  absl::Status SyncAll() override;
  absl::StatusOr<DiskSpace> Space() override;

  // Bytes that the file system dropped before anybody waited for them. Of whichever file they were,
  // as it may be closed since: nothing is synced any more. Thread-safety: thread-safe.
  class Lost {
   public:
    void Note(const absl::Status& why) {
      runtime::MutexLock lock(mutex_);
      why_.Update(why);
    }
    absl::Status Why() {
      runtime::MutexLock lock(mutex_);
      return why_;
    }

   private:
    runtime::Mutex mutex_;
    absl::Status why_ ABSL_GUARDED_BY(mutex_);
  };

 private:
  LocalDisk(int fd, std::string root) : fd_(fd), root_(std::move(root)) {}
  absl::Status Error(const char* what, const std::string& path) const;

  const int fd_;  // of the directory; holds the lock
  const std::string root_;
  const std::shared_ptr<Lost> lost_ = std::make_shared<Lost>();
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_LOCAL_DISK_H_
