#ifndef ABACUS_OBJFS_CHECK_SCRATCH_DISK_H_
#define ABACUS_OBJFS_CHECK_SCRATCH_DISK_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/store/disk.h"
#include "objfs/store/memory_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Another disk as it is, with all changes in memory: a store can be opened on it, which brings its
// journal into its tables, and nothing of it is written. What was changed is forgotten at the end.
// A file is copied whole when it is first written to: tables are, and contents in tests only.
// Thread-safety: thread-safe. Blocking: as the disk below.
// REQUIRES: the disk below outlives it, and nobody changes it.
class ScratchDisk final : public Disk {
 public:
  explicit ScratchDisk(Disk& below) : below_(below) {}

  absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string&) override { return absl::OkStatus(); }
  // Errors: kUnimplemented - of a file of the disk below.
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string&) override { return absl::OkStatus(); }
  absl::Status SyncAll() override { return absl::OkStatus(); }
  absl::StatusOr<DiskSpace> Space() override { return below_.Space(); }

 private:
  friend class ScratchFile;
  // The file in memory; null: it is as it is below.
  std::shared_ptr<MemoryFile> Changed(const std::string& path);
  absl::StatusOr<std::shared_ptr<MemoryFile>> Change(const std::string& path, DiskFile& below);

  Disk& below_;
  const std::shared_ptr<MemorySpace> space_ = std::make_shared<MemorySpace>(UINT64_MAX);
  runtime::Mutex mutex_;
  std::map<std::string, std::shared_ptr<MemoryFile>> files_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);  // of those below
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_SCRATCH_DISK_H_
