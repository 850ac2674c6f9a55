#ifndef ABACUS_OBJFS_FS_ERROR_H_
#define ABACUS_OBJFS_FS_ERROR_H_

// What went wrong in the words of a file system. A code of absl::Status is too coarse for POSIX
// (kFailedPrecondition is five errno values), so the file system's own errors carry one of these.
// Numbers of the operating system appear where the mount answers the kernel, and nowhere else.

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace abacus::objfs {

enum class FsError : uint8_t {
  kNone = 0,
  kNoEntry,
  kExists,
  kNotDirectory,
  kIsDirectory,
  kNotEmpty,
  kAccess,        // permission bits refuse
  kNotPermitted,  // only the owner or root may
  kInvalid,
  kNameTooLong,
  kTooManyLinks,
  kCrossVolume,
  kNoSpace,
  kTooBig,
  kNoAttribute,  // no such extended attribute
  kNotSupported,
  kStale,       // the file is gone
  kWouldBlock,  // a lock is held
  kDeadlock,
  kOutOfRange,  // SEEK_DATA and SEEK_HOLE behind the end
  kNoDevice,
  kTextBusy,
  kTooManyOpen,
  kInterrupted,
  kBadHandle,    // not open, or not for that
  kInputOutput,  // stored bytes are wrong, or the server does not answer
  kNoLocks,      // more locks than a client can have
};

// An error of that kind; `what` for the log.
absl::Status FsStatus(FsError error, std::string_view what);

// The kind of any status: an FsStatus()'s own, else what its code means to a file system. kNone for
// OK only.
FsError FsErrorOf(const absl::Status& status);

// As it stands in logs: "no-entry".
std::string_view FsErrorName(FsError error);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_ERROR_H_
