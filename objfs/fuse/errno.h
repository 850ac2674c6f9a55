#ifndef ABACUS_OBJFS_FUSE_ERRNO_H_
#define ABACUS_OBJFS_FUSE_ERRNO_H_

// The numbers by which the kernel knows errors. They appear here and in errno.cc, and nowhere else:
// all other code speaks of FsError.

#include "absl/status/status.h"
#include "objfs/fs/error.h"

namespace abacus::objfs::fuse {

// Positive, as <errno.h> has them; 0 for kNone.
int ErrnoOf(FsError error);
// By FsErrorOf(): 0 for OK.
int ErrnoOf(const absl::Status& status);

// What only a system call can run into: its caller's buffer does not hold the extended attribute.
int ErrnoOfSmallBuffer();

// Whether this thread's last system call failed because there is no file of that name.
bool LastCallFoundNothing();

// Whether libfuse's loop ended with `result` because the connection did: a read that meets the
// unmounting on its way is told that the connection was aborted, and not that the device is gone.
bool IsEndOfConnection(int result);

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_ERRNO_H_
