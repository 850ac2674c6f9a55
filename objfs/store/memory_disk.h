#ifndef ABACUS_OBJFS_STORE_MEMORY_DISK_H_
#define ABACUS_OBJFS_STORE_MEMORY_DISK_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/store/disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Bytes that memory disks have given out, and how many there are.
struct MemorySpace {
  explicit MemorySpace(uint64_t capacity) : capacity_bytes(capacity) {}
  const uint64_t capacity_bytes;
  std::atomic<uint64_t> used_bytes{0};
};

// The bytes of a file in memory, by pages; holes cost nothing.
// Thread-safety: thread-safe. Blocking: no.
class MemoryFile : public DiskFile {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kBytesMax = uint64_t{1} << 44;  // as ext4's

  explicit MemoryFile(std::shared_ptr<MemorySpace> space) : space_(std::move(space)) {}
  ~MemoryFile() override;

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override;
  // kResourceExhausted where the space is used up; the pages before that are written.
  absl::Status Write(uint64_t offset, std::string_view bytes) override;
  absl::Status Truncate(uint64_t bytes) override;
  absl::Status Punch(uint64_t offset, uint64_t bytes) override;
  absl::StatusOr<uint64_t> Size() override;
  absl::StatusOr<uint64_t> NextData(uint64_t offset) override;
  absl::Status Sync() override { return absl::OkStatus(); }

  // A file of the same bytes that goes its own way.
  std::shared_ptr<MemoryFile> Copy();

 private:
  using Page = std::unique_ptr<char[]>;

  absl::Status PunchLocked(uint64_t offset, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(std::map<uint64_t, Page>::iterator page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<MemorySpace> space_;
  runtime::Mutex mutex_;
  uint64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Page> pages_ ABSL_GUARDED_BY(mutex_);  // by index
};

// A Disk in memory, for tests and for stores whose bytes need not outlive the process. Syncing does
// nothing: there is no less volatile place.
class MemoryDisk : public Disk {
 public:
  explicit MemoryDisk(uint64_t capacity_bytes = uint64_t{1} << 40);

  absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& directory) override;
  absl::Status SyncAll() override { return absl::OkStatus(); }
  absl::StatusOr<DiskSpace> Space() override;

 private:
  const std::shared_ptr<MemorySpace> space_;
  runtime::Mutex mutex_;
  std::map<std::string, std::shared_ptr<MemoryFile>> files_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> directories_ ABSL_GUARDED_BY(mutex_);
};

// "folder/name" -> "folder"; "name" -> "".
std::string FolderOf(const std::string& path);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_MEMORY_DISK_H_
