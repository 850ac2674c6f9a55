#ifndef ABACUS_OBJFS_STORAGE_FILE_H_
#define ABACUS_OBJFS_STORAGE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/block.h"

namespace abacus::objfs {

// Which file it is, whatever its name.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// An open regular file of the local file system: the seam between storage objects and a disk.
//
// Errors: those of the system, by absl::ErrnoToStatus, with what was done and the file's path:
//         kNotFound, kAlreadyExists, kPermissionDenied, kResourceExhausted (the disk, a quota or
//         the descriptors are used up), kInternal/kDataLoss for what a disk reports. A path that
//         names something other than a regular file, a symbolic link included, is
//         kFailedPrecondition.
// Thread-safety: thread-safe; reads and writes carry their offset. Blocking: disk I/O.
class File {
 public:
  // Opens a file that is there, for reading and, where its permissions allow, writing.
  static absl::StatusOr<File> Open(const std::string& path);
  // Makes a file that is not there.
  static absl::StatusOr<File> Create(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Reads up to `bytes` bytes from `offset` into a block of their own; fewer where the file ends,
  // none from its end on. Allocates no more than the file has.
  absl::StatusOr<runtime::Block> ReadAt(uint64_t offset, uint64_t bytes) const;
  // Writes all of `bytes`; a hole before `offset` reads as zeros. On an error any part of the range
  // may have been written.
  absl::Status WriteAt(uint64_t offset, std::string_view bytes);
  // Returns once what was written is on the disk.
  absl::Status Sync();
  absl::StatusOr<uint64_t> Size() const;
  absl::StatusOr<FileIdentity> Identity() const;

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static absl::StatusOr<File> Check(int fd, const std::string& path);

  int fd_ = -1;
  std::string path_;
};

// The rest of what a directory of files needs. Errors and blocking as above.
struct FileFacts {
  uint64_t bytes = 0;
  absl::Time modified;
};
absl::StatusOr<FileFacts> StatFile(const std::string& path);
// Makes the directory and those above it where they are missing.
absl::Status MakeDirectory(const std::string& path);
// Names of the regular files in `directory`, sorted.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& directory);
// Replaces `to` in one step.
absl::Status RenameFile(const std::string& from, const std::string& to);
absl::Status RemoveFile(const std::string& path);
// Returns once names made, changed and removed in `directory` are on the disk.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_FILE_H_
