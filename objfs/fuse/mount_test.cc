#include "objfs/fuse/mount.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "objfs/fuse/testing/mock_mount.h"
#include "runtime/base/block.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::_;
using testing::Return;

bool IsMounted(const std::string& directory) {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" " + directory + " fuse.abacus ") != std::string::npos) return true;
  }
  return false;
}

class MountTest : public MockMountTest {};

TEST_F(MountTest, IsThereUntilItIsStopped) {
  Begin();
  const std::string directory = mounted_->path();
  EXPECT_TRUE(IsMounted(directory));
  EXPECT_EQ(access(Path("file").c_str(), F_OK), 0);
  EXPECT_TRUE(mounted_->Stop().ok());
  EXPECT_FALSE(IsMounted(directory));
  EXPECT_NE(access(Path("file").c_str(), F_OK), 0);
}

// What reads in order is fast over a network only if enough is asked for at once.
TEST_F(MountTest, TheKernelReadsAheadAsFarAsTheMountSays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may say it";
  Begin();
  ASSERT_EQ(access(Path("file").c_str(), F_OK), 0);  // it is served
  struct stat attributes = {};
  ASSERT_EQ(stat(mounted_->path().c_str(), &attributes), 0);
  const std::string name = absl::StrCat("/sys/class/bdi/", major(attributes.st_dev), ":",
                                        minor(attributes.st_dev), "/read_ahead_kb");
  if (access(name.c_str(), W_OK) != 0) GTEST_SKIP() << name << " cannot be written to here";
  std::ifstream file(name);
  unsigned kib = 0;
  ASSERT_TRUE(file >> kib);
  EXPECT_EQ(kib, Mount::Options().read_ahead_bytes / 1024);
}

TEST_F(MountTest, StopsWhereAFileIsOpenAndItsUserGetsErrors) {
  Begin();
  const int fd = open(Path("file").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(mounted_->Stop().ok());
  EXPECT_FALSE(IsMounted(mounted_->path()));
  EXPECT_EQ(ErrnoOfCall(write(fd, "x", 1)), ENOTCONN);
  close(fd);
}

TEST_F(MountTest, StopsWhereEveryThreadIsBusyWhenTheyAreDone) {
  std::promise<void> reading, go_on;
  EXPECT_CALL(files_, Read(_, _, _)).WillOnce([&](FileHandle, uint64_t, uint64_t) {
    reading.set_value();
    go_on.get_future().wait();
    return Block::CopyOf("bytes");
  });
  Begin({.direct_io = true, .threads = 1});
  std::thread reader([&] {
    const int fd = open(Path("file").c_str(), O_RDONLY | O_CLOEXEC);
    std::array<char, 8> bytes = {};
    EXPECT_EQ(read(fd, bytes.data(), bytes.size()), 5);
    close(fd);
  });
  reading.get_future().wait();
  std::thread stopper([&] { EXPECT_TRUE(mounted_->Stop().ok()); });
  go_on.set_value();
  stopper.join();
  reader.join();
  EXPECT_FALSE(IsMounted(mounted_->path()));
}

TEST_F(MountTest, EndsWhereSomebodyElseUnmountsIt) {
  Begin();
  EXPECT_EQ(access(Path("file").c_str(), F_OK), 0);
  EXPECT_TRUE(Unmount(mounted_->path(), false).ok());
  EXPECT_EQ(mounted_->Wait(), absl::OkStatus());
}

TEST_F(MountTest, UnmountRefusesWhatIsInUseAndLazilyTakesItAway) {
  Begin();
  const int fd = open(Path("file").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(Unmount(mounted_->path(), false).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Unmount(mounted_->path(), true).ok());
  EXPECT_FALSE(IsMounted(mounted_->path()));
  EXPECT_EQ(write(fd, "x", 1), 1);  // still served
  close(fd);
  EXPECT_EQ(mounted_->Wait(), absl::OkStatus());
}

TEST_F(MountTest, StopBeforeRunEndsItAtOnce) {
  const MountPoint point;
  const auto mount = Mount::Make(files_, point.path(), {});
  ASSERT_TRUE(mount.ok()) << mount.status();
  (*mount)->Stop();
  (*mount)->Stop();
  EXPECT_TRUE((*mount)->Run().ok());
  EXPECT_FALSE(IsMounted(point.path()));
}

TEST_F(MountTest, WithoutRunItIsUnmountedAsWell) {
  const MountPoint point;
  auto mount = Mount::Make(files_, point.path(), {.name = "a,b"});
  ASSERT_TRUE(mount.ok()) << mount.status();
  EXPECT_TRUE(IsMounted(point.path()));
  mount->reset();
  EXPECT_FALSE(IsMounted(point.path()));
}

TEST_F(MountTest, RefusesWhatItCannotMountOn) {
  const MountPoint point;
  const std::string file = point.path() + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(Mount::Make(files_, point.path() + "/absent", {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Mount::Make(files_, file, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Mount::Make(files_, point.path(), {.threads = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Mount::Make(files_, point.path(), {.more = {"no-such-option"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  unlink(file.c_str());
  if (geteuid() == 0) {
    EXPECT_EQ(Unmount(point.path() + "/absent", false).code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(MountTest, AReadOnlyMountRefusesWrites) {
  Begin({.more = {"ro"}});
  EXPECT_EQ(ErrnoOfCall(open(Path("file").c_str(), O_RDWR)), EROFS);
  EXPECT_EQ(ErrnoOfCall(unlink(Path("file").c_str())), EROFS);
}

// A process that is killed leaves a mount that answers, if only that nobody is there, and that the
// next Make() tells about.
TEST_F(MountTest, AKilledProcessLeavesAMountThatDoesNotHang) {
  const MountPoint point;
  std::array<int, 2> ready = {};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto mount = Mount::Make(files_, point.path(), {});
    if (!mount.ok()) _exit(1);
    std::thread server([&] { (*mount)->Run().IgnoreError(); });
    if (write(ready[1], "x", 1) != 1) _exit(2);
    pause();
    _exit(3);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  struct stat seen = {};
  EXPECT_EQ(stat((point.path() + "/file").c_str(), &seen), 0);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(ErrnoOfCall(stat((point.path() + "/file").c_str(), &seen)), ENOTCONN);
  EXPECT_EQ(Mount::Make(files_, point.path(), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Unmount(point.path(), false).ok());
  EXPECT_EQ(Unmount(point.path(), true).code(), absl::StatusCode::kFailedPrecondition);
}

// What ctest needs, where a test that waits for its own mount takes too long.
TEST_F(MountTest, AKilledProcessThatWaitsForAMountOfItsOwnEnds) {
  std::array<int, 2> waiting = {};
  ASSERT_EQ(pipe(waiting.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    ON_CALL(files_, Stat(kFile)).WillByDefault([&](ObjectId) -> absl::StatusOr<Node> {
      if (write(waiting[1], "x", 1) != 1) _exit(2);
      while (true) pause();
    });
    Begin();
    struct stat seen = {};
    stat(Path("file").c_str(), &seen);
    _exit(3);
  }
  close(waiting[1]);
  char byte = 0;
  ASSERT_EQ(read(waiting[0], &byte, 1), 1);
  close(waiting[0]);
  // Whose children ctest kills first.
  std::string children;
  const std::string process = std::to_string(child);
  std::getline(std::ifstream("/proc/" + process + "/task/" + process + "/children"), children);
  EXPECT_EQ(children, "");
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// Closing the file asks the mount, and what a process had open is closed when its last thread ends.
TEST_F(MountTest, AProcessThatEndsWithAFileOfItsOwnMountOpenEnds) {
  const pid_t child = fork();
  if (child == 0) {
    Begin();
    _exit(open(Path("file").c_str(), O_RDWR) >= 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(MountTest, ManyThreadsAreServedAtOnce) {
  constexpr int kThreads = 8;
  std::promise<void> all;
  auto all_are_in = all.get_future().share();
  std::atomic<int> inside = 0;
  ON_CALL(files_, Read(_, _, _)).WillByDefault([&](FileHandle, uint64_t, uint64_t) {
    if (++inside == kThreads) all.set_value();
    all_are_in.wait();
    return Block::CopyOf("bytes");
  });
  Begin({.direct_io = true});
  std::vector<std::thread> readers;
  for (int i = 0; i < kThreads; ++i) {
    readers.emplace_back([&] {
      const int fd = open(Path("file").c_str(), O_RDONLY | O_CLOEXEC);
      std::array<char, 8> bytes = {};
      EXPECT_EQ(read(fd, bytes.data(), bytes.size()), 5);
      close(fd);
    });
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace abacus::objfs
