#include "objfs/fuse/errno.h"

#include <cerrno>

namespace abacus::objfs::fuse {

// A switch, so that the compiler tells of an error that has no number.
int ErrnoOf(FsError error) {
  switch (error) {
    case FsError::kNone:
      return 0;
    case FsError::kNoEntry:
      return ENOENT;
    case FsError::kExists:
      return EEXIST;
    case FsError::kNotDirectory:
      return ENOTDIR;
    case FsError::kIsDirectory:
      return EISDIR;
    case FsError::kNotEmpty:
      return ENOTEMPTY;
    case FsError::kAccess:
      return EACCES;
    case FsError::kNotPermitted:
      return EPERM;
    case FsError::kInvalid:
      return EINVAL;
    case FsError::kNameTooLong:
      return ENAMETOOLONG;
    case FsError::kTooManyLinks:
      return EMLINK;
    case FsError::kCrossVolume:
      return EXDEV;
    case FsError::kNoSpace:
      return ENOSPC;
    case FsError::kTooBig:
      return EFBIG;
    case FsError::kNoAttribute:
      return ENODATA;
    case FsError::kNotSupported:
      return EOPNOTSUPP;
    case FsError::kStale:
      return ESTALE;
    case FsError::kWouldBlock:
      return EAGAIN;
    case FsError::kDeadlock:
      return EDEADLK;
    case FsError::kOutOfRange:
      return ENXIO;
    case FsError::kNoDevice:
      return ENODEV;
    case FsError::kTextBusy:
      return ETXTBSY;
    case FsError::kTooManyOpen:
      return ENFILE;
    case FsError::kInterrupted:
      return EINTR;
    case FsError::kBadHandle:
      return EBADF;
    case FsError::kInputOutput:
      return EIO;
    case FsError::kNoLocks:
      return ENOLCK;
  }
  return EIO;
}

int ErrnoOf(const absl::Status& status) { return ErrnoOf(FsErrorOf(status)); }

int ErrnoOfSmallBuffer() { return ERANGE; }

bool LastCallFoundNothing() { return errno == ENOENT; }

bool IsEndOfConnection(int result) {
  return result == 0 || result == -ENODEV || result == -ECONNABORTED;
}

}  // namespace abacus::objfs::fuse
