#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "objfs/fuse/testing/plain_servers.h"
#include "objfs/fuse/testing/plain_session.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {
namespace {

constexpr double kKnownSeconds = 600;  // as Mount::Options::exclusive_for

// A file that the kernel knows, by a descriptor that only names it.
struct Known {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t lookups = 0;
};

class Tree {
 public:
  explicit Tree(int root_fd) { root_.fd = root_fd; }

  Known& Of(fuse_ino_t id) {
    return id == FUSE_ROOT_ID ? root_ : *reinterpret_cast<Known*>(id);  // NOLINT
  }
  int Fd(fuse_ino_t id) { return Of(id).fd; }
  std::string Path(fuse_ino_t id) { return "/proc/self/fd/" + std::to_string(Fd(id)); }

  // 0 or an errno.
  int Find(fuse_ino_t directory, const char* name, fuse_entry_param* entry) {
    const int fd = openat(Fd(directory), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    *entry = {};
    entry->attr_timeout = entry->entry_timeout = kKnownSeconds;
    if (fstatat(fd, "", &entry->attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
      const int error = errno;
      close(fd);
      return error;
    }
    runtime::MutexLock lock(mutex_);
    Known*& known = known_[{entry->attr.st_dev, entry->attr.st_ino}];
    if (known == nullptr) {
      known = new Known{.fd = fd, .device = entry->attr.st_dev, .inode = entry->attr.st_ino};
    } else {
      close(fd);
    }
    ++known->lookups;
    entry->ino = reinterpret_cast<fuse_ino_t>(known);  // NOLINT
    return 0;
  }
  void Forget(fuse_ino_t id, uint64_t lookups) {
    if (id == FUSE_ROOT_ID) return;
    Known* const known = &Of(id);
    {
      runtime::MutexLock lock(mutex_);
      known->lookups -= lookups;
      if (known->lookups > 0) return;
      known_.erase({known->device, known->inode});
    }
    close(known->fd);
    delete known;
  }

 private:
  Known root_;
  runtime::Mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, Known*> known_ ABSL_GUARDED_BY(mutex_);
};

Tree& TreeOf(fuse_req_t request) { return *static_cast<Tree*>(fuse_req_userdata(request)); }
int ErrorOf(int result) { return result < 0 ? errno : 0; }

void AnswerFound(fuse_req_t request, fuse_ino_t directory, const char* name) {
  fuse_entry_param entry;
  if (const int error = TreeOf(request).Find(directory, name, &entry); error != 0) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

void AnswerAttributes(fuse_req_t request, fuse_ino_t id) {
  struct stat attributes;
  const int fd = TreeOf(request).Fd(id);
  if (fstatat(fd, "", &attributes, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_attr(request, &attributes, kKnownSeconds);
  }
}
void GetAttributesOf(fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
  AnswerAttributes(request, id);
}

void SetAttributesOf(fuse_req_t request, fuse_ino_t id, struct stat* to, int what,
                     fuse_file_info* info) {
  const std::string path = TreeOf(request).Path(id);
  int error = 0;
  if ((what & FUSE_SET_ATTR_MODE) != 0) error = ErrorOf(chmod(path.c_str(), to->st_mode));
  if (error == 0 && (what & FUSE_SET_ATTR_SIZE) != 0) {
    error = ErrorOf(info != nullptr ? ftruncate(static_cast<int>(info->fh), to->st_size)
                                    : truncate(path.c_str(), to->st_size));
  }
  if (error != 0) {
    fuse_reply_err(request, error);
  } else {
    AnswerAttributes(request, id);
  }
}

void MakeDirectoryIn(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode) {
  if (mkdirat(TreeOf(request).Fd(directory), name, mode) != 0) {
    fuse_reply_err(request, errno);
  } else {
    AnswerFound(request, directory, name);
  }
}

void UnlinkIn(fuse_req_t request, fuse_ino_t directory, const char* name) {
  fuse_reply_err(request, ErrorOf(unlinkat(TreeOf(request).Fd(directory), name, 0)));
}
void RemoveDirectoryIn(fuse_req_t request, fuse_ino_t directory, const char* name) {
  fuse_reply_err(request, ErrorOf(unlinkat(TreeOf(request).Fd(directory), name, AT_REMOVEDIR)));
}
void RenameIn(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
              const char* new_name, unsigned flags) {
  Tree& tree = TreeOf(request);
  fuse_reply_err(request, ErrorOf(renameat2(tree.Fd(from), name, tree.Fd(to), new_name, flags)));
}

void CreateIn(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
              fuse_file_info* info) {
  Tree& tree = TreeOf(request);
  const int fd =
      openat(tree.Fd(directory), name, (info->flags | O_CREAT | O_CLOEXEC) & ~O_NOFOLLOW, mode);
  if (fd < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = static_cast<uint64_t>(fd);
  fuse_entry_param entry;
  if (const int error = tree.Find(directory, name, &entry); error != 0) {
    close(fd);
    fuse_reply_err(request, error);
  } else {
    fuse_reply_create(request, &entry, info);
  }
}

void OpenFile(fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
  const int fd = open(TreeOf(request).Path(id).c_str(), (info->flags | O_CLOEXEC) & ~O_NOFOLLOW);
  if (fd < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = static_cast<uint64_t>(fd);
  fuse_reply_open(request, info);
}
void CloseFile(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  fuse_reply_err(request, ErrorOf(close(static_cast<int>(info->fh))));
}
void FlushFile(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  fuse_reply_err(request, ErrorOf(close(dup(static_cast<int>(info->fh)))));
}
void SyncFile(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) {
  fuse_reply_err(request, ErrorOf(fsync(static_cast<int>(info->fh))));
}

void ReadFile(fuse_req_t request, fuse_ino_t, size_t bytes, off_t offset, fuse_file_info* info) {
  fuse_bufvec data = FUSE_BUFVEC_INIT(bytes);
  data.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  data.buf[0].fd = static_cast<int>(info->fh);
  data.buf[0].pos = offset;
  fuse_reply_data(request, &data, FUSE_BUF_SPLICE_MOVE);
}
void WriteFile(fuse_req_t request, fuse_ino_t, fuse_bufvec* from, off_t offset,
               fuse_file_info* info) {
  fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(from));
  to.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  to.buf[0].fd = static_cast<int>(info->fh);
  to.buf[0].pos = offset;
  const ssize_t written = fuse_buf_copy(&to, from, static_cast<fuse_buf_copy_flags>(0));
  if (written < 0) {
    fuse_reply_err(request, static_cast<int>(-written));
  } else {
    fuse_reply_write(request, static_cast<size_t>(written));
  }
}

void OpenDirectory(fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
  const int fd = openat(TreeOf(request).Fd(id), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = fd < 0 ? nullptr : fdopendir(fd);
  if (stream == nullptr) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = reinterpret_cast<uint64_t>(stream);  // NOLINT
  fuse_reply_open(request, info);
}
void CloseDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  fuse_reply_err(request, ErrorOf(closedir(reinterpret_cast<DIR*>(info->fh))));  // NOLINT
}

void ListDirectory(fuse_req_t request, fuse_ino_t id, size_t bytes, off_t offset,
                   fuse_file_info* info) {
  DIR* const stream = reinterpret_cast<DIR*>(info->fh);  // NOLINT
  std::vector<char> buffer(bytes);
  size_t used = 0;
  seekdir(stream, offset);
  while (const dirent* const found = readdir(stream)) {
    const std::string name = found->d_name;
    fuse_entry_param entry = {};
    const bool counted = name != "." && name != "..";
    if (!counted) {
      entry.attr.st_ino = found->d_ino;
      entry.attr.st_mode = S_IFDIR;
    } else if (TreeOf(request).Find(id, name.c_str(), &entry) != 0) {
      continue;  // removed meanwhile
    }
    const size_t needs = fuse_add_direntry_plus(request, buffer.data() + used, bytes - used,
                                                name.c_str(), &entry, telldir(stream));
    if (needs > bytes - used) {
      if (counted) TreeOf(request).Forget(entry.ino, 1);
      break;
    }
    used += needs;
  }
  fuse_reply_buf(request, buffer.data(), used);
}

void ForgetFile(fuse_req_t request, fuse_ino_t id, uint64_t lookups) {
  TreeOf(request).Forget(id, lookups);
  fuse_reply_none(request);
}
void ForgetFiles(fuse_req_t request, size_t count, fuse_forget_data* forgotten) {
  for (size_t i = 0; i < count; ++i) {
    TreeOf(request).Forget(forgotten[i].ino, forgotten[i].nlookup);
  }
  fuse_reply_none(request);
}

void BeginSplicing(void*, fuse_conn_info* connection) {
  connection->want |=
      connection->capable & (FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

}  // namespace

int ServePassThrough(const std::string& source, const std::string& directory) {
  const int root = open(source.c_str(), O_PATH | O_CLOEXEC);
  if (root < 0) {
    std::perror(source.c_str());
    return 1;
  }
  umask(0);
  Tree tree(root);
  fuse_lowlevel_ops operations = {};
  operations.init = BeginSplicing;
  operations.lookup = AnswerFound;
  operations.forget = ForgetFile;
  operations.forget_multi = ForgetFiles;
  operations.getattr = GetAttributesOf;
  operations.setattr = SetAttributesOf;
  operations.mkdir = MakeDirectoryIn;
  operations.unlink = UnlinkIn;
  operations.rmdir = RemoveDirectoryIn;
  operations.rename = RenameIn;
  operations.create = CreateIn;
  operations.open = OpenFile;
  operations.release = CloseFile;
  operations.flush = FlushFile;
  operations.fsync = SyncFile;
  operations.read = ReadFile;
  operations.write_buf = WriteFile;
  operations.opendir = OpenDirectory;
  operations.releasedir = CloseDirectory;
  operations.readdirplus = ListDirectory;
  const int result = ServeSession(operations, &tree, directory);
  close(root);
  return result;
}

}  // namespace abacus::objfs::testing
