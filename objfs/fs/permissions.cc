#include "objfs/fs/permissions.h"

#include <unistd.h>

#include <algorithm>

namespace abacus::objfs {
namespace {

bool IsSuperuser(const Caller& caller) { return caller.checked || caller.uid == 0; }

bool Owns(const Caller& caller, const Inode& inode) {
  return IsSuperuser(caller) || caller.uid == inode.uid;
}

}  // namespace

bool IsInGroup(const Caller& caller, uint32_t gid) {
  return caller.gid == gid ||
         std::find(caller.groups.begin(), caller.groups.end(), gid) != caller.groups.end();
}

absl::Status MayAccess(const Caller& caller, const Inode& inode, int want) {
  if (caller.checked) return absl::OkStatus();
  const auto bits = static_cast<uint32_t>(want);
  if (caller.uid == 0) {
    // The superuser executes what somebody may execute.
    const bool may = (bits & X_OK) == 0 || inode.IsDirectory() || (inode.mode & 0111) != 0;
    return may ? absl::OkStatus() : FsStatus(FsError::kAccess, "nobody may execute it");
  }
  const uint32_t shift = caller.uid == inode.uid ? 6 : IsInGroup(caller, inode.gid) ? 3 : 0;
  if (((inode.mode >> shift) & bits & 7) == bits) return absl::OkStatus();
  return FsStatus(FsError::kAccess, "its permissions do not allow that");
}

absl::Status MayRemove(const Caller& caller, const Inode& directory, const Inode& inode) {
  if (auto status = MayAccess(caller, directory, W_OK | X_OK); !status.ok()) return status;
  const bool sticky = (directory.mode & S_ISVTX) != 0;
  if (!sticky || Owns(caller, directory) || Owns(caller, inode)) return absl::OkStatus();
  return FsStatus(FsError::kNotPermitted, "the directory is sticky and the file another's");
}

absl::Status MaySet(const Caller& caller, const Inode& inode, const SetAttributes& set) {
  if (set.permissions && !Owns(caller, inode)) {
    return FsStatus(FsError::kNotPermitted, "only the owner changes permissions");
  }
  const bool gives_away = set.uid && *set.uid != inode.uid;
  const bool other_group = set.gid && *set.gid != inode.gid && !IsInGroup(caller, *set.gid);
  if ((set.uid || set.gid) && !IsSuperuser(caller) &&
      (caller.uid != inode.uid || gives_away || other_group)) {
    return FsStatus(FsError::kNotPermitted, "only the superuser gives a file away");
  }
  if (set.size) {
    if (auto status = MayAccess(caller, inode, W_OK); !status.ok()) return status;
  }
  if ((set.accessed_ns || set.modified_ns) && !Owns(caller, inode)) {
    return FsStatus(FsError::kNotPermitted, "only the owner sets times");
  }
  if ((set.accessed_now || set.modified_now) && !Owns(caller, inode)) {
    return MayAccess(caller, inode, W_OK);
  }
  return absl::OkStatus();
}

Inode NewInode(const Caller& caller, const Inode& directory, uint32_t mode, uint64_t device) {
  Inode inode;
  inode.mode = mode;
  inode.uid = caller.uid;
  inode.gid = caller.gid;
  inode.device = S_ISCHR(mode) || S_ISBLK(mode) ? device : 0;
  inode.links = S_ISDIR(mode) ? 2 : 1;
  if ((directory.mode & S_ISGID) == 0) return inode;
  inode.gid = directory.gid;
  if (S_ISDIR(mode)) {
    inode.mode |= S_ISGID;
  } else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !IsSuperuser(caller) &&
             !IsInGroup(caller, inode.gid)) {
    inode.mode &= ~uint32_t{S_ISGID};
  }
  return inode;
}

InodeChange ChangeOf(const Caller& caller, const Inode& inode, const SetAttributes& set) {
  InodeChange change;
  change.permissions = set.permissions;
  change.uid = set.uid;
  change.gid = set.gid;
  change.accessed_ns = set.accessed_ns;
  change.modified_ns = set.modified_ns;
  change.touch_accessed = set.accessed_now;
  change.touch_modified = set.modified_now;
  change.touch_changed = true;
  if (IsSuperuser(caller)) {
    // Also the superuser's chown takes the rights of a program away; the kernel says so itself.
    change.drop_setid = set.drop_setid || (!caller.checked && (set.uid || set.gid));
    return change;
  }
  if (set.permissions && !IsInGroup(caller, inode.gid)) *change.permissions &= ~uint32_t{S_ISGID};
  change.drop_setid = set.drop_setid || set.uid || set.gid || set.size;
  return change;
}

}  // namespace abacus::objfs
