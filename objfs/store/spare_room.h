#ifndef ABACUS_OBJFS_STORE_SPARE_ROOM_H_
#define ABACUS_OBJFS_STORE_SPARE_ROOM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "objfs/store/disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Room that a store holds of its disk, in the file `spare`, in which nothing is, for when the disk
// is full. Before something can be removed other things have to be written, as the block of a
// directory, and each goes to another place than it is in: a disk without any room would keep for
// ever what is on it.
//
// Invariant: once some of it was given, or could not be had, Refill() fails until all of it is
// there again; who adds to the disk asks first. Where a disk takes no room beforehand there is
// none, and nobody is kept from anything. Thread-safety: thread-safe. Blocking: disk I/O, but for
// is_whole().
class SpareRoom {
 public:
  static constexpr uint64_t kBytes = uint64_t{512} << 10;
  // One large write is not to have it all, and fail nevertheless.
  static constexpr uint64_t kGivenMax = kBytes / 8;

  // REQUIRES: the disk outlives it.
  explicit SpareRoom(Disk& disk) : disk_(disk) {}
  bool is_whole() const { return whole_; }
  // Takes what is lacking; no call of the disk where nothing is. Errors: kResourceExhausted - the
  // disk has not so much.
  absl::Status Refill();
  // Does `write`; while the disk is full for it, gives the disk so many bytes back, at most
  // kGivenMax, and does it again, until nothing is left to give. Errors: those of `write`.
  absl::Status Write(uint64_t bytes, const std::function<absl::Status()>& write);

 private:
  bool Give(uint64_t bytes);
  absl::Status OpenFile(bool make) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Disk& disk_;
  std::atomic<bool> whole_{false};
  runtime::Mutex mutex_;
  std::shared_ptr<DiskFile> file_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // the file's length, for which there is room
  bool is_checked_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_SPARE_ROOM_H_
