#ifndef ABACUS_OBJFS_STORE_DISK_H_
#define ABACUS_OBJFS_STORE_DISK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::objfs {

// The seam between an object store and what keeps its bytes: a tree of files, two levels deep.
// LocalDisk (a directory), MemoryDisk and ModelDisk (either of them with a speed, faults and a
// power switch) stand behind it.
//
// What a disk promises, and all that the store relies on:
//   1. What was written, created, renamed or removed is seen by every later call at once.
//   2. A file's bytes and its length survive a power cut once Sync() of it returned; its name once
//      SyncDirectory() of its folder did. SyncAll() is both for everything.
//   3. Before that, any part of it may survive: sectors of a write without each other, the length
//      without the bytes. Changes of one folder's names survive in the order they were made in.
//
// Errors: kNotFound, kAlreadyExists, kResourceExhausted (disk, quota or descriptors are used up),
//         kInvalidArgument (an offset that no file reaches), kUnavailable (the disk fails: a device
//         that answers with an error, a file system that became read-only), the system's others by
//         absl::ErrnoToStatus. A failed Sync may have lost what it was to keep: it is not repeated.
// Thread-safety: thread-safe, except that overlapping writes of one file come in either order.
// Blocking: disk I/O.

// Of bytes that a device could not read, as against bytes that are wrong: it may read them later.
bool IsUnread(const absl::Status& status);
// The same, as an error that may pass: of what tells where bytes are, or what is to become of them.
// Wrong, it is made from what is left; unread, it is asked for again.
absl::Status UnlessUnread(const absl::Status& status);

// An open file. It may be removed while it is open; its bytes go with the last handle.
class DiskFile {
 public:
  virtual ~DiskFile() = default;

  // Reads into `bytes`; returns how many, fewer only where the file ends. kDataLoss: the device
  // cannot read them (IsUnread), as of a bad sector; what is written there may be read again.
  virtual absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) = 0;
  // Writes all of `bytes`; a hole before `offset` reads as zeros. On an error any part of the range
  // may have been written, and nothing else.
  virtual absl::Status Write(uint64_t offset, std::string_view bytes) = 0;
  virtual absl::Status Truncate(uint64_t bytes) = 0;
  // Gives the range's space back; it reads as zeros. Where the disk cannot: kUnimplemented.
  virtual absl::Status Punch(uint64_t offset, uint64_t bytes) = 0;
  // Takes room for the range, so that a write there does not fail for want of it. The file's length
  // and what it reads as stay. Here: kUnimplemented, as where a disk cannot.
  virtual absl::Status Allocate(uint64_t offset, uint64_t bytes);
  virtual absl::StatusOr<uint64_t> Size() = 0;
  // The first byte from `offset` on that may be other than a hole; kNotFound where none follows.
  virtual absl::StatusOr<uint64_t> NextData(uint64_t offset) = 0;
  virtual absl::Status Sync() = 0;
};

inline absl::Status DiskFile::Allocate(uint64_t, uint64_t) {
  return absl::UnimplementedError("this disk takes no room for what is not written yet");
}

struct DiskSpace {
  uint64_t capacity_bytes = 0;
  uint64_t available_bytes = 0;
};

// Paths are relative to the disk's root: "name" or "folder/name"; the root is "".
class Disk {
 public:
  virtual ~Disk() = default;

  // Opens a file that is there, for reading and writing.
  virtual absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) = 0;
  // Makes a file that is not there.
  virtual absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) = 0;
  // That the folder is there already is not an error.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Replaces `to` in one step. Both are in one folder.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // Names of the files (not the folders) in a folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;
  virtual absl::Status SyncAll() = 0;
  virtual absl::StatusOr<DiskSpace> Space() = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_DISK_H_
