#ifndef ABACUS_OBJFS_FUSE_TESTING_REAL_MOUNT_H_
#define ABACUS_OBJFS_FUSE_TESTING_REAL_MOUNT_H_

// A mount of the file system itself, on each of the stacks, and short words for system calls on it.
// The parameter is a stack; before it may stand "exclusive ", an option of the mount.

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fuse/testing/mounted.h"

namespace abacus::objfs::testing {

// What a failed system call has left; 0 after one that did not fail.
template <typename Result>
int Errno(Result result) {
  return result < 0 ? errno : 0;
}

// An open file; closed with it.
class Fd {
 public:
  Fd(const std::string& path, int flags, mode_t mode = 0644)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, mode)), error_(Errno(fd_)) {}
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  operator int() const { return fd_; }
  int error() const { return error_; }  // of open(2)
  int Close() {
    const int closed = fd_ >= 0 ? close(fd_) : 0;
    fd_ = -1;
    return Errno(closed);
  }

 private:
  int fd_;
  const int error_;
};

inline constexpr const char* kMounts[] = {"isolation/storage", "cache/isolation/storage",
                                          "exclusive isolation/storage"};
inline std::string MountName(const ::testing::TestParamInfo<const char*>& info) {
  return std::array{"Plain", "Cached", "Exclusive"}.at(info.index);
}

class RealMountTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoMount(); !why.empty()) GTEST_SKIP() << why;
    files_ = world_.Client(1, Stack());
    ASSERT_NE(files_, nullptr);
    mounted_.emplace(*files_, Mount::Options{.exclusive = exclusive()});
    // What others may do is of some tests the point.
    ASSERT_EQ(chmod(mounted_->path().c_str(), 0777), 0);
    umask(0);
  }

  std::string Stack() const {
    const std::string text = GetParam();
    return exclusive() ? text.substr(kExclusive.size()) : text;
  }
  // No other client may change anything.
  bool exclusive() const { return std::string(GetParam()).rfind(kExclusive, 0) == 0; }

  std::string At(const std::string& name) const { return *mounted_ / name; }

  int Put(const std::string& name, const std::string& bytes, mode_t mode = 0644) const {
    const Fd fd(At(name), O_WRONLY | O_CREAT | O_TRUNC, mode);
    if (fd.error() != 0) return fd.error();
    return write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) ? 0 : -1;
  }
  std::string Get(const std::string& name) const {
    const Fd fd(At(name), O_RDONLY);
    if (fd.error() != 0) return "error " + std::to_string(fd.error());
    std::string bytes(1 << 20, '\0');
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  struct stat StatOf(const std::string& name) const {
    struct stat seen = {};
    EXPECT_EQ(lstat(At(name).c_str(), &seen), 0) << name;
    return seen;
  }
  bool Exists(const std::string& name) const {
    struct stat seen = {};
    return lstat(At(name).c_str(), &seen) == 0;
  }

  // What `body` returns (0 to 255) in a process of another user's.
  template <typename Body>
  static int As(uid_t uid, gid_t gid, Body body) {
    const pid_t child = fork();
    if (child == 0) {
      if (setgroups(0, nullptr) != 0 || setresgid(gid, gid, gid) != 0 ||
          setresuid(uid, uid, uid) != 0) {
        _exit(255);
      }
      _exit(body());
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  static inline const std::string kExclusive = "exclusive ";

  FileSystemWorld world_{2};
  std::unique_ptr<FileSystem> files_;
  std::optional<Mounted> mounted_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FUSE_TESTING_REAL_MOUNT_H_
