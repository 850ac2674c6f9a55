#ifndef ABACUS_OBJFS_FS_PERMISSIONS_H_
#define ABACUS_OBJFS_FS_PERMISSIONS_H_

// The POSIX rules of who may do what: pure functions of an inode and who asks. For a caller whom
// the kernel has checked already they all say yes.
// Errors of all: kAccess - the permission bits refuse. kNotPermitted - only the owner, or the
//                superuser, may.

#include <cstdint>

#include "absl/status/status.h"
#include "objfs/fs/file_system.h"
#include "objfs/volume/inode.h"

namespace abacus::objfs {

// `want`: R_OK, W_OK, X_OK.
absl::Status MayAccess(const Caller& caller, const Inode& inode, int want);
// Whether an entry of `directory` that leads to `inode` may be taken away: the directory may be
// written, and where it is sticky the caller owns one of the two.
absl::Status MayRemove(const Caller& caller, const Inode& directory, const Inode& inode);
absl::Status MaySet(const Caller& caller, const Inode& inode, const SetAttributes& set);
bool IsInGroup(const Caller& caller, uint32_t gid);

// What a new inode in `directory` begins with: owner, group and set-group-id by its rules.
Inode NewInode(const Caller& caller, const Inode& directory, uint32_t mode, uint64_t device);

// What `set` changes of an inode beside its size, set-id bits that it takes away included.
InodeChange ChangeOf(const Caller& caller, const Inode& inode, const SetAttributes& set);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_PERMISSIONS_H_
