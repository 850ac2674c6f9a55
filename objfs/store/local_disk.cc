#include "objfs/store/local_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
constexpr char kUnread[] = "abacus/unread";  // of a Status; its payload is empty

constexpr uint64_t kOffsetMax = static_cast<uint64_t>(std::numeric_limits<off_t>::max());

absl::Status MakeDirectories(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string above = path.substr(0, at);
    if (mkdir(above.c_str(), kDirectoryMode) != 0 && errno != EEXIST && errno != EROFS) {
      return DiskError(errno, absl::StrCat("cannot make directory ", above));
    }
    if (at == std::string::npos) return absl::OkStatus();
  }
}

// So many bytes that were written one after the other are begun to be put on the disk, so that a
// Sync() has less left to wait for. Fewer, and small ones here and there, are left to it: they are
// often written again before.
constexpr uint64_t kBehindBytes = uint64_t{1} << 20;

// Whether bytes may have been dropped by it, and not merely left for later.
bool MayHaveLost(int error) {
  switch (error) {
    case EINVAL:  // it is not there for this kind of file
    case ENOSYS:
    case EOPNOTSUPP:
    case ESPIPE:
    case EPERM:
    case EINTR:
    case EAGAIN:
    case ENOMEM:
      return false;
    default:
      return true;
  }
}

class LocalFile : public DiskFile {
 public:
  LocalFile(int fd, std::string path, std::shared_ptr<LocalDisk::Lost> lost)
      : fd_(fd), path_(std::move(path)), lost_(std::move(lost)) {}
  ~LocalFile() override { close(fd_); }
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override {
    if (auto status = CheckRange(offset, bytes.size()); !status.ok()) return status;
    uint64_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n =
          pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ReadError(errno, absl::StrCat("cannot read ", path_));
      if (n == 0) break;
      done += static_cast<uint64_t>(n);
    }
    return done;
  }

  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    if (auto status = CheckRange(offset, bytes.size()); !status.ok()) return status;
    const uint64_t begin = offset;
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error("cannot write");
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    WriteBehind(begin, offset);
    return absl::OkStatus();
  }

  absl::Status Truncate(uint64_t bytes) override {
    if (auto status = CheckRange(bytes, 0); !status.ok()) return status;
    return Check(ftruncate(fd_, static_cast<off_t>(bytes)), "cannot truncate");
  }

  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    if (auto status = CheckRange(offset, bytes); !status.ok()) return status;
    if (bytes == 0) return absl::OkStatus();
    return Check(fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(offset), static_cast<off_t>(bytes)),
                 "cannot punch a hole into");
  }

  absl::Status Allocate(uint64_t offset, uint64_t bytes) override {
    if (auto status = CheckRange(offset, bytes); !status.ok()) return status;
    return Check(
        fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)),
        "cannot take room for");
  }

  absl::StatusOr<uint64_t> Size() override {
    struct stat facts;
    if (fstat(fd_, &facts) != 0) return Error("cannot look at");
    return static_cast<uint64_t>(facts.st_size);
  }

  absl::StatusOr<uint64_t> NextData(uint64_t offset) override {
    if (auto status = CheckRange(offset, 0); !status.ok()) return status;
    const off_t at = lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
    if (at >= 0) return static_cast<uint64_t>(at);
    if (errno == ENXIO) return absl::NotFoundError("no data follows");
    return Error("cannot seek in");
  }

  absl::Status Sync() override {
    {
      runtime::MutexLock lock(mutex_);
      row_begin_ = row_end_;
    }
    absl::Status synced = Check(fdatasync(fd_), "cannot sync");
    synced.Update(lost_->Why());
    return synced;
  }

 private:
  absl::Status Error(const char* what) const {
    return DiskError(errno, absl::StrCat(what, " ", path_));
  }
  absl::Status Check(int result, const char* what) const {
    return result == 0 ? absl::OkStatus() : Error(what);
  }
  absl::Status CheckRange(uint64_t offset, uint64_t bytes) const {
    if (bytes <= kOffsetMax && offset <= kOffsetMax - bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("no file reaches to byte ", offset, " + ", bytes, ": ", path_));
  }

  // Blocking: where the disk has more to do than it takes at once.
  void WriteBehind(uint64_t begin, uint64_t end) {
    uint64_t first = 0;
    {
      runtime::MutexLock lock(mutex_);
      if (begin != row_end_) row_begin_ = begin;
      row_end_ = end;
      if (row_end_ - row_begin_ < kBehindBytes) return;
      first = std::exchange(row_begin_, row_end_);
    }
    const int result = sync_file_range(fd_, static_cast<off_t>(first),
                                       static_cast<off_t>(end - first), SYNC_FILE_RANGE_WRITE);
    // What the disk reports later is kept for fdatasync(); what the file system does now, of bytes
    // that it drops, need not be.
    if (result == 0 || !MayHaveLost(errno)) return;
    lost_->Note(Error("cannot write back"));
  }

  const int fd_;
  const std::string path_;
  const std::shared_ptr<LocalDisk::Lost> lost_;
  runtime::Mutex mutex_;
  // What was written in a row, and is neither begun to be put on the disk nor synced.
  uint64_t row_begin_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t row_end_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

bool IsUnread(const absl::Status& status) {
  return absl::IsDataLoss(status) && status.GetPayload(kUnread).has_value();
}

absl::Status UnlessUnread(const absl::Status& status) {
  return IsUnread(status) ? absl::UnavailableError(status.message()) : status;
}

absl::Status ReadError(int error, const std::string& what) {
  switch (error) {
    case EIO:
    case EREMOTEIO:
    case EUCLEAN:
    case EBADMSG: {
      absl::Status unread = absl::DataLossError(
          absl::StrCat(what, ": the disk fails: ", std::generic_category().message(error)));
      unread.SetPayload(kUnread, absl::Cord());
      return unread;
    }
    default:
      return DiskError(error, what);
  }
}

absl::Status DiskError(int error, const std::string& what) {
  switch (error) {
    // Descriptors that are used up are no full disk, and neither is ENFILE.
    case EMFILE:
    case ENFILE:
      return absl::InternalError(absl::StrCat(
          what, ": too many open files; raise the limit of ",
          error == EMFILE ? "the process" : "the system",
          error == EMFILE ? " (ulimit -n, or LimitNOFILE= of a service)" : " (fs.file-max)"));
    // The device's answer, or that of a file system which met it and takes no more.
    case EIO:
    case EREMOTEIO:
    case EROFS:
    case EUCLEAN:  // found damaged (EFSCORRUPTED)
    case EBADMSG:  // a wrong checksum of its own (EFSBADCRC)
    case ENODEV:
    case ENXIO:
    case ENOMEDIUM:
    case ESHUTDOWN:
    case ESTALE:  // of NFS
    case ETIMEDOUT:
      return absl::UnavailableError(
          absl::StrCat(what, ": the disk fails: ", std::generic_category().message(error)));
    default:
      return absl::ErrnoToStatus(error, what);
  }
}

absl::StatusOr<std::unique_ptr<LocalDisk>> LocalDisk::At(const std::string& directory) {
  if (auto status = MakeDirectories(directory); !status.ok()) return status;
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, absl::StrCat("cannot open ", directory));
  auto disk = std::unique_ptr<LocalDisk>(new LocalDisk(fd, directory));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? absl::FailedPreconditionError(absl::StrCat(
                                      directory, " is in use by another store; end that one first"))
                                : disk->Error("cannot lock", "");
  }
  return disk;
}

LocalDisk::~LocalDisk() { close(fd_); }

absl::Status LocalDisk::Error(const char* what, const std::string& path) const {
  return DiskError(errno, absl::StrCat(what, " ", root_, "/", path));
}

absl::StatusOr<std::shared_ptr<DiskFile>> LocalDisk::Open(const std::string& path) {
  const int fd = openat(fd_, path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return Error("cannot open", path);
  return std::make_shared<LocalFile>(fd, absl::StrCat(root_, "/", path), lost_);
}

absl::StatusOr<std::shared_ptr<DiskFile>> LocalDisk::Create(const std::string& path) {
  const int fd = openat(fd_, path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  if (fd < 0) return Error("cannot create", path);
  return std::make_shared<LocalFile>(fd, absl::StrCat(root_, "/", path), lost_);
}

absl::Status LocalDisk::MakeDirectory(const std::string& path) {
  if (mkdirat(fd_, path.c_str(), kDirectoryMode) == 0 || errno == EEXIST) return absl::OkStatus();
  return Error("cannot make directory", path);
}

absl::Status LocalDisk::Rename(const std::string& from, const std::string& to) {
  if (renameat(fd_, from.c_str(), fd_, to.c_str()) == 0) return absl::OkStatus();
  return Error("cannot rename", from);
}

absl::Status LocalDisk::Remove(const std::string& path) {
  if (unlinkat(fd_, path.c_str(), 0) == 0) return absl::OkStatus();
  return Error("cannot remove", path);
}

absl::StatusOr<std::vector<std::string>> LocalDisk::List(const std::string& directory) {
  const std::string path = absl::StrCat(root_, "/", directory);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(path.c_str()), closedir);
  if (stream == nullptr) return Error("cannot list", directory);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    struct stat facts;
    const bool regular = entry->d_type == DT_REG || (entry->d_type == DT_UNKNOWN &&
                                                     fstatat(dirfd(stream.get()), entry->d_name,
                                                             &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
                                                     S_ISREG(facts.st_mode));
    if (regular) names.emplace_back(entry->d_name);
  }
  if (errno != 0) return Error("cannot list", directory);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status LocalDisk::SyncDirectory(const std::string& directory) {
  const int fd =
      openat(fd_, directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Error("cannot open", directory);
  absl::Status status = fsync(fd) == 0 ? absl::OkStatus() : Error("cannot sync", directory);
  close(fd);
  status.Update(lost_->Why());
  return status;
}

absl::Status LocalDisk::SyncAll() {
  absl::Status status =
      syncfs(fd_) == 0 ? absl::OkStatus() : Error("cannot sync the file system of", "");
  status.Update(lost_->Why());
  return status;
}

absl::StatusOr<DiskSpace> LocalDisk::Space() {
  struct statvfs facts;
  if (fstatvfs(fd_, &facts) != 0) return Error("cannot look at the file system of", "");
  return DiskSpace{.capacity_bytes = facts.f_blocks * facts.f_frsize,
                   .available_bytes = facts.f_bavail * facts.f_frsize};
}

}  // namespace abacus::objfs
