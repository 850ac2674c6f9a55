// Locks by two mounts of one volume, between processes, threads and open files.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "objfs/fuse/testing/real_mount.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::Errno;
using testing::Fd;

struct flock LockOf(short type, off_t start, off_t bytes) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = bytes;
  return lock;
}
int Fcntl(int fd, int command, short type, off_t start, off_t bytes) {
  struct flock lock = LockOf(type, start, bytes);
  return Errno(fcntl(fd, command, &lock));
}

// A process of its own that may be killed. `body` gets the end of a pipe to write to when it is
// ready; what it returns (0 to 255) is the exit code.
class Child {
 public:
  explicit Child(const std::function<int(int ready)>& body) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) _exit(body(ends[1]));
    close(ends[1]);
    ready_ = ends[0];
  }
  ~Child() {
    close(ready_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }
  // Waits for a byte of the child's.
  bool AwaitReady() const {
    char byte = 0;
    return read(ready_, &byte, 1) == 1;
  }
  static bool TellReady(int ready) { return write(ready, "x", 1) == 1; }
  void Kill(int signal) const { kill(pid_, signal); }
  // The exit code, or the signal's negative.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int ready_ = -1;
};

class PosixLocksTest : public testing::RealMountTest {
 protected:
  void SetUp() override {
    RealMountTest::SetUp();
    if (IsSkipped()) return;
    other_ = world_.Client(0, GetParam());
    ASSERT_NE(other_, nullptr);
    second_.emplace(*other_);
    EXPECT_EQ(Put("file", "some bytes"), 0);
  }
  // The file, as the other mount has it.
  std::string There() const { return *second_ / "file"; }
  uint64_t Waiting() { return world_.volume()->Locks().value_or(LockCounts{0, 999}).waiting; }
  uint64_t Held() { return world_.volume()->Locks().value_or(LockCounts{999, 0}).held; }
  bool AwaitWaiting(uint64_t requests) {
    return Eventually([&] { return Waiting() == requests; });
  }

  std::unique_ptr<FileSystem> other_;
  std::optional<Mounted> second_;
};

INSTANTIATE_TEST_SUITE_P(Stacks, PosixLocksTest, ::testing::Values("isolation/storage"),
                         [](const auto&) { return "Plain"; });

TEST_P(PosixLocksTest, RecordLocksExcludeAcrossMounts) {
  const Fd here(At("file"), O_RDWR), there(There(), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 100), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_RDLCK, 50, 100), EAGAIN);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 100, 0), 0);
  struct flock asked = LockOf(F_WRLCK, 20, 0);
  EXPECT_EQ(fcntl(there, F_GETLK, &asked), 0);
  EXPECT_EQ(asked.l_type, F_WRLCK);
  EXPECT_EQ(asked.l_start, 0);
  EXPECT_EQ(asked.l_len, 100);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_RDLCK, 0, 60), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_RDLCK, 0, 60), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 0, 60), EAGAIN);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_UNLCK, 0, 0), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 0, 60), 0);
  asked = LockOf(F_RDLCK, 60, 40);
  EXPECT_EQ(fcntl(here, F_GETLK, &asked), 0);
  EXPECT_EQ(asked.l_type, F_UNLCK);
}

TEST_P(PosixLocksTest, TellsTheProcessThatHolds) {
  const Child holder([&](int ready) {
    const Fd fd(At("file"), O_RDWR);
    if (Fcntl(fd, F_SETLK, F_WRLCK, 7, 3) != 0) return 1;
    Child::TellReady(ready);
    pause();
    return 2;
  });
  ASSERT_TRUE(holder.AwaitReady());
  const Fd here(At("file"), O_RDONLY), there(There(), O_RDONLY);
  struct flock asked = LockOf(F_RDLCK, 0, 0);
  EXPECT_EQ(fcntl(here, F_GETLK, &asked), 0);
  EXPECT_EQ(asked.l_pid, holder.pid());
  asked = LockOf(F_RDLCK, 0, 0);
  EXPECT_EQ(fcntl(there, F_GETLK, &asked), 0);
  EXPECT_EQ(asked.l_type, F_WRLCK);
  EXPECT_EQ(asked.l_pid, 0) << "another machine's number would name a stranger";
}

TEST_P(PosixLocksTest, WhoWaitsGetsTheLockWhenTheOtherMountLetsGo) {
  const Fd here(At("file"), O_RDWR), there(There(), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 10), 0);
  std::thread waiter([&] { EXPECT_EQ(Fcntl(there, F_SETLKW, F_WRLCK, 5, 10), 0); });
  EXPECT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(Fcntl(here, F_SETLK, F_UNLCK, 0, 0), 0);
  waiter.join();
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 14, 1), EAGAIN);
}

TEST_P(PosixLocksTest, FlocksExcludeAcrossMounts) {
  Fd here(At("file"), O_RDONLY);
  const Fd there(There(), O_RDONLY), again(There(), O_RDONLY);
  EXPECT_EQ(Errno(flock(here, LOCK_SH)), 0);
  EXPECT_EQ(Errno(flock(there, LOCK_SH | LOCK_NB)), 0);
  EXPECT_EQ(Errno(flock(here, LOCK_EX | LOCK_NB)), EWOULDBLOCK);
  EXPECT_EQ(Errno(flock(there, LOCK_UN)), 0);
  EXPECT_EQ(Errno(flock(here, LOCK_EX | LOCK_NB)), 0);
  EXPECT_EQ(Errno(flock(again, LOCK_SH | LOCK_NB)), EWOULDBLOCK);
  // Locks of records are others.
  EXPECT_EQ(Fcntl(there, F_SETLK, F_RDLCK, 0, 0), 0);
  std::thread waiter([&] { EXPECT_EQ(Errno(flock(again, LOCK_EX)), 0); });
  EXPECT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(here.Close(), 0);
  waiter.join();
  EXPECT_EQ(Errno(flock(there, LOCK_SH | LOCK_NB)), EWOULDBLOCK) << "another open of one process";
}

TEST_P(PosixLocksTest, LocksOfAnOpenFileGoWithItsLastDescriptor) {
  Fd here(At("file"), O_RDWR);
  const Fd beside(At("file"), O_RDWR), there(There(), O_RDWR);
  const int second = dup(here);
  EXPECT_EQ(Fcntl(here, F_OFD_SETLK, F_WRLCK, 0, 10), 0);
  EXPECT_EQ(Fcntl(beside, F_OFD_SETLK, F_WRLCK, 0, 10), EAGAIN);
  EXPECT_EQ(Fcntl(beside, F_SETLK, F_WRLCK, 0, 10), EAGAIN);
  EXPECT_EQ(Fcntl(there, F_OFD_SETLK, F_RDLCK, 0, 10), EAGAIN);
  EXPECT_EQ(here.Close(), 0);
  EXPECT_EQ(Fcntl(there, F_OFD_SETLK, F_RDLCK, 0, 10), EAGAIN);
  close(second);
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));  // it is released behind close(2)
  EXPECT_EQ(Fcntl(there, F_OFD_SETLK, F_RDLCK, 0, 10), 0);
}

// By POSIX: of whatever open of the file, also one that only reads.
TEST_P(PosixLocksTest, AProcessLosesItsLocksWithAnyClose) {
  const Fd here(At("file"), O_RDONLY), there(There(), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_RDLCK, 0, 10), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 0, 10), EAGAIN);
  EXPECT_EQ(Fd(At("file"), O_RDONLY).Close(), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 0, 10), 0);
  // And a process that was given the file has no part in the lock.
  const Child heir([&](int ready) { return Child::TellReady(ready) ? pause(), 0 : 1; });
  EXPECT_TRUE(heir.AwaitReady());
  EXPECT_EQ(Fd(There(), O_RDONLY).Close(), 0);
  EXPECT_EQ(Held(), 0u);
}

TEST_P(PosixLocksTest, ADeadlockAcrossMountsIsRefused) {
  const Fd here(At("file"), O_RDWR), there(There(), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 1), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 1, 1), 0);
  std::thread waiter([&] { EXPECT_EQ(Fcntl(here, F_SETLKW, F_WRLCK, 1, 1), 0); });
  EXPECT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(Fcntl(there, F_SETLKW, F_WRLCK, 0, 1), EDEADLK);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_UNLCK, 0, 0), 0);
  waiter.join();
}

TEST_P(PosixLocksTest, AKilledHolderLetsGo) {
  Child holder([&](int ready) {
    const Fd fd(There(), O_RDWR), other(There(), O_RDWR);
    if (Fcntl(fd, F_SETLK, F_WRLCK, 0, 0) != 0 || flock(other, LOCK_EX) != 0) return 1;
    Child::TellReady(ready);
    pause();
    return 2;
  });
  ASSERT_TRUE(holder.AwaitReady());
  const Fd here(At("file"), O_RDWR);
  std::thread record([&] { EXPECT_EQ(Fcntl(here, F_SETLKW, F_WRLCK, 0, 0), 0); });
  std::thread whole([&] { EXPECT_EQ(Errno(flock(here, LOCK_EX)), 0); });
  EXPECT_TRUE(AwaitWaiting(2));
  holder.Kill(SIGKILL);
  record.join();
  whole.join();
  EXPECT_EQ(holder.Wait(), -SIGKILL);
}

std::atomic<int> signals_seen{0};
int to_tell = -1;
void OnSignal(int) {
  ++signals_seen;
  if (to_tell >= 0) Child::TellReady(to_tell);
}
bool Handle(int signal, int flags) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = flags;
  return sigaction(signal, &action, nullptr) == 0;
}

TEST_P(PosixLocksTest, ASignalEndsTheWait) {
  const Fd here(At("file"), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 10), 0);
  EXPECT_EQ(Errno(flock(here, LOCK_EX)), 0);
  for (const bool whole : {false, true}) {
    Child waiter([&](int) {
      const Fd fd(There(), O_RDWR);
      if (!Handle(SIGUSR1, 0)) return 1;
      const int error = whole ? Errno(flock(fd, LOCK_SH)) : Fcntl(fd, F_SETLKW, F_RDLCK, 0, 1);
      return error == EINTR && signals_seen == 1 ? 0 : 2;
    });
    EXPECT_TRUE(AwaitWaiting(1));
    waiter.Kill(SIGUSR1);
    EXPECT_EQ(waiter.Wait(), 0);
    EXPECT_EQ(Waiting(), 0u);
  }
}

TEST_P(PosixLocksTest, ASignalWhoseCallsAreRestartedLeavesTheWaitAsItIs) {
  const Fd here(At("file"), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 10), 0);
  Child waiter([&](int ready) {
    const Fd fd(There(), O_RDWR);
    to_tell = ready;
    if (!Handle(SIGUSR1, SA_RESTART)) return 1;
    return Fcntl(fd, F_SETLKW, F_RDLCK, 0, 1) == 0 && signals_seen == 1 ? 0 : 2;
  });
  EXPECT_TRUE(AwaitWaiting(1));
  waiter.Kill(SIGUSR1);
  EXPECT_TRUE(waiter.AwaitReady());
  EXPECT_TRUE(AwaitWaiting(1));
  EXPECT_EQ(Fcntl(here, F_SETLK, F_UNLCK, 0, 0), 0);
  EXPECT_EQ(waiter.Wait(), 0);
}

TEST_P(PosixLocksTest, AWaiterThatIsKilledWaitsNoMore) {
  const Fd here(At("file"), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 10), 0);
  Child waiter([&](int) { return Fcntl(Fd(There(), O_RDWR), F_SETLKW, F_WRLCK, 0, 1); });
  EXPECT_TRUE(AwaitWaiting(1));
  waiter.Kill(SIGKILL);
  EXPECT_EQ(waiter.Wait(), -SIGKILL);
  EXPECT_TRUE(AwaitWaiting(0));
  EXPECT_EQ(Held(), 1u);
}

TEST_P(PosixLocksTest, ManyWhoWaitKeepNoThreadOfTheMountBusy) {
  constexpr int kWaiters = 8;
  const Mounted narrow(*files_, {.threads = 2});
  const Fd there(There(), O_RDWR);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_WRLCK, 0, 0), 0);
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] {
      const Fd fd(narrow / "file", O_RDWR);
      EXPECT_EQ(Fcntl(fd, F_OFD_SETLKW, F_RDLCK, 0, 1), 0);
    });
  }
  EXPECT_TRUE(AwaitWaiting(kWaiters));
  EXPECT_EQ(access((narrow / "file").c_str(), R_OK), 0);
  EXPECT_EQ(Fcntl(there, F_SETLK, F_UNLCK, 0, 0), 0);
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(PosixLocksTest, AMountThatEndsEndsItsWaits) {
  const Fd here(At("file"), O_RDWR);
  EXPECT_EQ(Fcntl(here, F_SETLK, F_WRLCK, 0, 0), 0);
  std::thread waiter([&] {
    const Fd there(There(), O_RDWR);
    EXPECT_NE(Fcntl(there, F_SETLKW, F_WRLCK, 0, 0), 0);
  });
  EXPECT_TRUE(AwaitWaiting(1));
  EXPECT_TRUE(second_->Stop().ok());
  waiter.join();
  EXPECT_EQ(Waiting(), 0u);
}

// Has the kernel fail all requests of a mount, so that a test of one that hangs ends.
void AbortConnection(dev_t device) {
  const std::string path = "/sys/fs/fuse/connections/" + std::to_string(minor(device)) + "/abort";
  std::ofstream(path) << "1";
}

// Before the kernel is told of a lock it forgets pages, and waits for those that are being read.
TEST_P(PosixLocksTest, AMountEndsWhileLocksAreAnsweredAndPagesAreRead) {
  constexpr int kReaders = 6, kLockers = 3, kCallsOfARound = 40;
  constexpr off_t kBytes = 128 << 10;
  const int rounds = runtime::testing::kSanitized ? 10 : 40;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    // Of its own: a lock that was given and not told of goes with the client.
    const std::string name = "file" + std::to_string(round);
    ASSERT_EQ(Put(name, std::string(kBytes, 'x')), 0);
    Mounted ending(*other_, {.threads = 2});
    std::atomic<int> reads{0}, locks{0};
    std::vector<std::thread> users;
    for (int i = 0; i < kReaders; ++i) {
      users.emplace_back([&, i] {
        const Fd fd(ending / name, O_RDONLY);
        std::array<char, 100> bytes = {};
        for (off_t at = 4096 * i; pread(fd, bytes.data(), bytes.size(), at) > 0; ++reads) {
          at = (at + 4096 * 5) % kBytes;
        }
      });
    }
    for (int i = 0; i < kLockers; ++i) {
      users.emplace_back([&] {
        const Fd fd(ending / name, O_RDWR);
        while (Fcntl(fd, F_OFD_SETLKW, F_WRLCK, 0, 1) == 0 &&
               Fcntl(fd, F_OFD_SETLK, F_UNLCK, 0, 1) == 0) {
          ++locks;
        }
      });
    }
    struct stat seen = {};
    EXPECT_EQ(stat((ending / name).c_str(), &seen), 0);
    EXPECT_TRUE(Eventually([&] { return reads >= kCallsOfARound && locks >= 4; }));
    auto stopped = std::async(std::launch::async, [&] { return ending.Stop(); });
    if (stopped.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "round " << round << ": the mount does not end";
      AbortConnection(seen.st_dev);
    }
    EXPECT_EQ(stopped.get(), absl::OkStatus());
    for (std::thread& user : users) user.join();
  }
}

TEST_P(PosixLocksTest, WhoCountsUnderALockCountsRight) {
  constexpr int kRounds = 25;
  EXPECT_EQ(Put("count", "0"), 0);
  const auto count = [&](const std::string& path, bool whole) {
    for (int i = 0; i < kRounds; ++i) {
      const Fd fd(path, O_RDWR);
      const int locked = whole ? Errno(flock(fd, LOCK_EX)) : Fcntl(fd, F_SETLKW, F_WRLCK, 0, 0);
      if (locked != 0) return 1;
      std::array<char, 16> text = {};
      if (pread(fd, text.data(), text.size() - 1, 0) < 1) return 2;
      const std::string next = std::to_string(std::atoi(text.data()) + 1);
      if (pwrite(fd, next.data(), next.size(), 0) < 1) return 3;
    }
    return 0;
  };
  for (const bool whole : {false, true}) {
    Child a([&](int) { return count(At("count"), whole); });
    Child b([&](int) { return count(*second_ / "count", whole); });
    Child c([&](int) { return count(*second_ / "count", whole); });
    EXPECT_EQ(a.Wait(), 0);
    EXPECT_EQ(b.Wait(), 0);
    EXPECT_EQ(c.Wait(), 0);
  }
  EXPECT_EQ(Get("count"), std::to_string(2 * 3 * kRounds));
}

// No other client can have a lock there: the kernel keeps them.
TEST_P(PosixLocksTest, AnExclusiveMountKeepsItsLocks) {
  const Mounted exclusive(*files_, {.exclusive = true});
  const Fd fd(exclusive / "file", O_RDWR), beside(exclusive / "file", O_RDWR);
  EXPECT_EQ(Errno(flock(fd, LOCK_EX)), 0);
  EXPECT_EQ(Fcntl(fd, F_OFD_SETLK, F_WRLCK, 0, 0), 0);
  EXPECT_EQ(Errno(flock(beside, LOCK_SH | LOCK_NB)), EWOULDBLOCK);
  EXPECT_EQ(Fcntl(beside, F_OFD_SETLK, F_RDLCK, 0, 0), EAGAIN);
  EXPECT_EQ(Held(), 0u);
}

}  // namespace
}  // namespace abacus::objfs
