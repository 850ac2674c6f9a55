#include "objfs/storage/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirectoryMode = 0755;
constexpr uint64_t kOffsetMax = static_cast<uint64_t>(std::numeric_limits<off_t>::max());

absl::Status Error(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

absl::Status NotRegular(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
}

absl::Status CheckRange(uint64_t offset, uint64_t bytes, const std::string& path) {
  if (bytes <= kOffsetMax && offset <= kOffsetMax - bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no file reaches to byte ", offset, " + ", bytes, ": ", path));
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  // O_NONBLOCK: a pipe that somebody put here must not hold the thread that opens it.
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = open(path.c_str(), O_RDWR | kFlags);
  if (fd < 0 && (errno == EACCES || errno == EROFS)) fd = open(path.c_str(), O_RDONLY | kFlags);
  if (fd < 0 && (errno == ELOOP || errno == EISDIR || errno == ENXIO)) return NotRegular(path);
  if (fd < 0) return Error("cannot open", path);
  return Check(fd, path);
}

absl::StatusOr<File> File::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  if (fd < 0) return Error("cannot create", path);
  return File(fd, path);
}

absl::StatusOr<File> File::Check(int fd, const std::string& path) {
  File file(fd, path);
  struct stat facts;
  if (fstat(fd, &facts) != 0) return Error("cannot look at", path);
  if (!S_ISREG(facts.st_mode)) return NotRegular(path);
  return file;
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<runtime::Block> File::ReadAt(uint64_t offset, uint64_t bytes) const {
  if (auto status = CheckRange(offset, bytes, path_); !status.ok()) return status;
  const auto size = Size();
  if (!size.ok()) return size.status();
  const uint64_t wanted = offset < *size ? std::min(bytes, *size - offset) : 0;
  if (wanted == 0) return runtime::Block();
  runtime::Block block = runtime::Block::Allocate(wanted);
  uint64_t done = 0;
  while (done < wanted) {
    const ssize_t n =
        pread(fd_, block.mutable_data() + done, wanted - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("cannot read", path_);
    if (n == 0) break;  // it became shorter meanwhile
    done += static_cast<uint64_t>(n);
  }
  return done == wanted ? block : block.Slice(0, done);
}

absl::Status File::WriteAt(uint64_t offset, std::string_view bytes) {
  if (auto status = CheckRange(offset, bytes.size(), path_); !status.ok()) return status;
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EBADF) {
      return absl::PermissionDeniedError(absl::StrCat("cannot write ", path_, ": read-only"));
    }
    if (n < 0) return Error("cannot write", path_);
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status File::Sync() {
  return fdatasync(fd_) == 0 ? absl::OkStatus() : Error("cannot sync", path_);
}

absl::StatusOr<uint64_t> File::Size() const {
  struct stat facts;
  if (fstat(fd_, &facts) != 0) return Error("cannot look at", path_);
  return static_cast<uint64_t>(facts.st_size);
}

absl::StatusOr<FileIdentity> File::Identity() const {
  struct stat facts;
  if (fstat(fd_, &facts) != 0) return Error("cannot look at", path_);
  return FileIdentity{.device = facts.st_dev, .inode = facts.st_ino};
}

absl::StatusOr<FileFacts> StatFile(const std::string& path) {
  struct stat facts;
  if (lstat(path.c_str(), &facts) != 0) return Error("cannot look at", path);
  if (!S_ISREG(facts.st_mode)) return NotRegular(path);
  return FileFacts{.bytes = static_cast<uint64_t>(facts.st_size),
                   .modified = absl::TimeFromTimespec(facts.st_mtim)};
}

absl::Status MakeDirectory(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string above = path.substr(0, at);
    if (mkdir(above.c_str(), kDirectoryMode) != 0 && errno != EEXIST && errno != EROFS) {
      return Error("cannot make directory", above);
    }
  }
  if (mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    return Error("cannot make directory", path);
  }
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) return Error("cannot look at", path);
  if (!S_ISDIR(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a directory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
  if (stream == nullptr) return Error("cannot list", directory);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    if (entry->d_type == DT_REG || (entry->d_type == DT_UNKNOWN &&
                                    StatFile(absl::StrCat(directory, "/", entry->d_name)).ok())) {
      names.emplace_back(entry->d_name);
    }
  }
  if (errno != 0) return Error("cannot list", directory);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RenameFile(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : Error("cannot rename", from);
}

absl::Status RemoveFile(const std::string& path) {
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : Error("cannot remove", path);
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Error("cannot open", directory);
  const absl::Status status = fsync(fd) == 0 ? absl::OkStatus() : Error("cannot sync", directory);
  close(fd);
  return status;
}

}  // namespace abacus::objfs
