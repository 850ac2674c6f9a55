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

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_ERRNO_H_
