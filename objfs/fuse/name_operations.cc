// Operations on names and inodes.

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "objfs/fuse/adapter.h"
#include "objfs/fuse/request.h"

namespace abacus::objfs::fuse {
namespace {

constexpr int64_t kNsOfSecond = 1'000'000'000;
constexpr std::string_view kAclPrefix = "system.posix_acl_";
constexpr std::string_view kCapabilities = "security.capability";

// A time that cannot be kept (before 1678, after 2262) is the nearest that can, as on local disks.
int64_t NsOf(const timespec& time) {
  constexpr auto kLast = std::numeric_limits<int64_t>::max(),
                 kFirst = std::numeric_limits<int64_t>::min();
  if (time.tv_sec >= kLast / kNsOfSecond) return kLast;
  if (time.tv_sec <= kFirst / kNsOfSecond) return kFirst;
  return time.tv_sec * kNsOfSecond + time.tv_nsec;
}

void Lookup(fuse_req_t raw, fuse_ino_t directory, const char* name) {
  Serve(raw, "lookup", [&](Request& request) {
    const auto node = request.files().Lookup(request.caller(), request.Id(directory), name);
    if (FsErrorOf(node.status()) == FsError::kNoEntry) return request.AnswerNoEntry();
    request.AnswerEntry(node);
  });
}

// The file system counts who has a file open, not who knows its number.
void Forget(fuse_req_t raw, fuse_ino_t, uint64_t) { fuse_reply_none(raw); }
void ForgetMany(fuse_req_t raw, size_t, fuse_forget_data*) { fuse_reply_none(raw); }

void GetAttributes(fuse_req_t raw, fuse_ino_t inode, fuse_file_info*) {
  Serve(raw, "stat", [&](Request& request) {
    Adapter& adapter = request.adapter();
    const absl::StatusOr<Node> node = request.files().Stat(request.Id(inode));
    if (!adapter.IsForgetting(inode)) return request.AnswerAttributes(node);
    adapter.lock_waits().Answer([waiting = request.Defer(), node] {
      Serve(waiting, "stat", [&node](Request& asked) { asked.AnswerAttributes(node); });
    });
  });
}

// Who may give a file the set-group-id bit depends on all groups, and for nothing else is it worth
// asking for them.
Caller CallerFor(const Request& request, uint32_t mode) {
  return mode & S_ISGID ? request.CallerWithGroups() : request.caller();
}

SetAttributes SetOf(const struct stat& attributes, int which) {
  SetAttributes set;
  if (which & FUSE_SET_ATTR_MODE) set.permissions = attributes.st_mode & 07777;
  if (which & FUSE_SET_ATTR_UID) set.uid = attributes.st_uid;
  if (which & FUSE_SET_ATTR_GID) set.gid = attributes.st_gid;
  if (which & FUSE_SET_ATTR_SIZE) set.size = static_cast<uint64_t>(attributes.st_size);
  if (which & FUSE_SET_ATTR_ATIME_NOW) {
    set.accessed_now = true;
  } else if (which & FUSE_SET_ATTR_ATIME) {
    set.accessed_ns = NsOf(attributes.st_atim);
  }
  if (which & FUSE_SET_ATTR_MTIME_NOW) {
    set.modified_now = true;
  } else if (which & FUSE_SET_ATTR_MTIME) {
    set.modified_ns = NsOf(attributes.st_mtim);
  }
  return set;
}

void SetInodeAttributes(fuse_req_t raw, fuse_ino_t inode, struct stat* attributes, int which,
                        fuse_file_info*) {
  Serve(raw, "setattr", [&](Request& request) {
    const ObjectId id = request.Id(inode);
    // The time of the last change is the volume's to tell, also where the kernel caches writes.
    if (which == FUSE_SET_ATTR_CTIME) return request.AnswerAttributes(request.files().Stat(id));
    const SetAttributes set = SetOf(*attributes, which);
    request.AnswerAttributes(
        request.files().Set(CallerFor(request, set.permissions.value_or(0)), id, set));
  });
}

void ReadLink(fuse_req_t raw, fuse_ino_t inode) {
  Serve(raw, "readlink", [&](Request& request) {
    const auto target = request.files().ReadLink(request.caller(), request.Id(inode));
    if (!target.ok()) return request.Fail(target.status());
    request.AnswerLink(*target);
  });
}

void MakeNode(fuse_req_t raw, fuse_ino_t directory, const char* name, mode_t mode, dev_t device) {
  Serve(raw, "mknod", [&](Request& request) {
    request.AnswerEntry(
        request.files().Make(request.caller(), request.Id(directory), name, mode, device, ""));
  });
}

void MakeDirectory(fuse_req_t raw, fuse_ino_t directory, const char* name, mode_t mode) {
  Serve(raw, "mkdir", [&](Request& request) {
    request.AnswerEntry(request.files().Make(request.caller(), request.Id(directory), name,
                                             (mode & 07777) | S_IFDIR, 0, ""));
  });
}

void MakeSymlink(fuse_req_t raw, const char* target, fuse_ino_t directory, const char* name) {
  Serve(raw, "symlink", [&](Request& request) {
    request.AnswerEntry(request.files().Make(request.caller(), request.Id(directory), name,
                                             S_IFLNK | 0777, 0, target));
  });
}

void Unlink(fuse_req_t raw, fuse_ino_t directory, const char* name) {
  Serve(raw, "unlink", [&](Request& request) {
    request.Answer(request.files().Unlink(request.caller(), request.Id(directory), name));
  });
}

void RemoveDirectory(fuse_req_t raw, fuse_ino_t directory, const char* name) {
  Serve(raw, "rmdir", [&](Request& request) {
    request.Answer(request.files().RemoveDirectory(request.caller(), request.Id(directory), name));
  });
}

std::optional<RenameRule> RuleOf(unsigned flags) {
  switch (flags) {
    case 0:
      return RenameRule::kReplace;
    case RENAME_NOREPLACE:
      return RenameRule::kNoReplace;
    case RENAME_EXCHANGE:
      return RenameRule::kExchange;
    default:
      return std::nullopt;
  }
}

void Rename(fuse_req_t raw, fuse_ino_t from_directory, const char* from, fuse_ino_t to_directory,
            const char* to, unsigned flags) {
  Serve(raw, "rename", [&](Request& request) {
    const auto rule = RuleOf(flags);
    if (!rule.has_value()) return request.Fail(FsError::kInvalid);
    request.Answer(request.files().Rename(request.caller(), request.Id(from_directory), from,
                                          request.Id(to_directory), to, *rule));
  });
}

void Link(fuse_req_t raw, fuse_ino_t inode, fuse_ino_t directory, const char* name) {
  Serve(raw, "link", [&](Request& request) {
    request.AnswerEntry(
        request.files().Link(request.caller(), request.Id(inode), request.Id(directory), name));
  });
}

void Access(fuse_req_t raw, fuse_ino_t inode, int want) {
  Serve(raw, "access", [&](Request& request) {
    Caller caller = request.CallerWithGroups();
    caller.checked = false;
    request.Answer(request.files().Access(caller, request.Id(inode), want));
  });
}

void Space(fuse_req_t raw, fuse_ino_t) {
  Serve(raw, "statfs", [&](Request& request) {
    const auto space = request.files().Space();
    if (!space.ok()) return request.Fail(space.status());
    request.AnswerSpace(*space);
  });
}

// -- extended attributes
// ---------------------------------------------------------------------------

// Access control lists: kept like any other attribute they would grant nothing, and who set them
// would think they did. Capabilities of programs: before each write(2) the kernel asks whether the
// file has some to lose, and the answer would come from the volume.
bool IsRefused(std::string_view name) {
  return name.starts_with(kAclPrefix) || name == kCapabilities;
}

// One of those of xattr(7). The kernel passes on whatever name it is given.
bool IsOfANamespace(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"user.", "trusted.", "security.",
                                                         "system."};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size();
  });
}

void SetXattr(fuse_req_t raw, fuse_ino_t inode, const char* name, const char* value, size_t bytes,
              int flags) {
  Serve(raw, "setxattr", [&](Request& request) {
    if (IsRefused(name) || !IsOfANamespace(name)) return request.Fail(FsError::kNotSupported);
    XattrRule rule = XattrRule::kAny;
    if (flags & XATTR_CREATE) rule = XattrRule::kMustBeNew;
    if (flags & XATTR_REPLACE) rule = XattrRule::kMustExist;
    request.Answer(request.files().SetXattr(request.caller(), request.Id(inode), name,
                                            std::string(value, bytes), rule));
  });
}

// A caller without a buffer asks how large one has to be.
void AnswerXattr(Request& request, std::string_view bytes, size_t buffer_bytes) {
  if (buffer_bytes == 0) return request.AnswerXattrBytes(bytes.size());
  if (bytes.size() > buffer_bytes) return request.FailSmallBuffer();
  request.AnswerBytes(bytes);
}

void GetXattr(fuse_req_t raw, fuse_ino_t inode, const char* name, size_t buffer_bytes) {
  Serve(raw, "getxattr", [&](Request& request) {
    if (name == kCapabilities) return request.Fail(FsError::kNoAttribute);
    if (IsRefused(name)) return request.Fail(FsError::kNotSupported);
    const auto value = request.files().GetXattr(request.caller(), request.Id(inode), name);
    if (!value.ok()) return request.Fail(value.status());
    AnswerXattr(request, *value, buffer_bytes);
  });
}

void ListXattrs(fuse_req_t raw, fuse_ino_t inode, size_t buffer_bytes) {
  Serve(raw, "listxattr", [&](Request& request) {
    const auto names = request.files().ListXattrs(request.caller(), request.Id(inode));
    if (!names.ok()) return request.Fail(names.status());
    std::string joined;
    for (const std::string& name : *names) joined.append(name).push_back('\0');
    AnswerXattr(request, joined, buffer_bytes);
  });
}

void RemoveXattr(fuse_req_t raw, fuse_ino_t inode, const char* name) {
  Serve(raw, "removexattr", [&](Request& request) {
    if (IsRefused(name)) return request.Fail(FsError::kNotSupported);
    request.Answer(request.files().RemoveXattr(request.caller(), request.Id(inode), name));
  });
}

}  // namespace

void AddNameOperations(fuse_lowlevel_ops* table) {
  table->lookup = Lookup;
  table->forget = Forget;
  table->forget_multi = ForgetMany;
  table->getattr = GetAttributes;
  table->setattr = SetInodeAttributes;
  table->readlink = ReadLink;
  table->mknod = MakeNode;
  table->mkdir = MakeDirectory;
  table->symlink = MakeSymlink;
  table->unlink = Unlink;
  table->rmdir = RemoveDirectory;
  table->rename = Rename;
  table->link = Link;
  table->access = Access;
  table->statfs = Space;
  table->setxattr = SetXattr;
  table->getxattr = GetXattr;
  table->listxattr = ListXattrs;
  table->removexattr = RemoveXattr;
}

}  // namespace abacus::objfs::fuse
