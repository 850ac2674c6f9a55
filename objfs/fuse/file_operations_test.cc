#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>

#include "objfs/fuse/testing/mock_mount.h"
#include "runtime/base/block.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::_;
using testing::AllOf;
using testing::AtLeast;
using testing::Field;
using testing::InSequence;
using testing::Return;

constexpr int kAccess = O_ACCMODE | O_TRUNC | O_APPEND;  // what the file system looks at

MATCHER_P(HasFlags, expected, "") { return (arg & kAccess) == expected; }
MATCHER_P(Holds, expected, "") { return arg.view() == std::string_view(expected); }

class FileOperationsTest : public MockMountTest {
 protected:
  int OpenFile(int flags) const { return open(Path("file").c_str(), flags | O_CLOEXEC); }
};

TEST_F(FileOperationsTest, OpenTellsItsFlagsAndReleaseFollowsTheLastClose) {
  std::promise<void> released;
  EXPECT_CALL(files_, Open(Field(&Caller::checked, true), kFile, HasFlags(O_RDWR | O_TRUNC)))
      .WillOnce(Return(kHandle));
  EXPECT_CALL(files_, Release(kHandle)).WillOnce([&](FileHandle) {
    released.set_value();
    return absl::OkStatus();
  });
  Begin();
  const int fd = OpenFile(O_RDWR | O_TRUNC);
  ASSERT_GE(fd, 0);
  const int second = dup(fd);
  close(fd);
  close(second);
  released.get_future().wait();
}

TEST_F(FileOperationsTest, AnOpenThatFailsTellsWhy) {
  EXPECT_CALL(files_, Open(_, kFile, _))
      .WillOnce(Return(FsStatus(FsError::kTooManyOpen, "65,536 handles")));
  EXPECT_CALL(files_, Release(_)).Times(0);
  Begin();
  EXPECT_EQ(ErrnoOfCall(OpenFile(O_RDONLY)), ENFILE);
}

TEST_F(FileOperationsTest, BytesGoThereAndBack) {
  EXPECT_CALL(files_, Write(kHandle, 1'000'000'007, Holds("some bytes")))
      .WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, Read(kHandle, 40, 16)).WillOnce(Return(Block::CopyOf("short")));
  Begin({.direct_io = true});
  const int fd = OpenFile(O_RDWR);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(pwrite(fd, "some bytes", 10, 1'000'000'007), 10);
  std::array<char, 16> bytes = {};
  ASSERT_EQ(pread(fd, bytes.data(), bytes.size(), 40), 5);
  EXPECT_STREQ(bytes.data(), "short");
  close(fd);
}

TEST_F(FileOperationsTest, ALargeWriteComesWholeAndARequestIsAMebibyteAtMost) {
  constexpr size_t kMebibyte = 1 << 20;
  // On a page boundary: what begins within a page takes one page more than a request has.
  const std::unique_ptr<void, decltype(&std::free)> bytes(std::aligned_alloc(4096, 2 * kMebibyte),
                                                          std::free);
  std::memset(bytes.get(), 'x', 2 * kMebibyte);
  EXPECT_CALL(files_, Write(kHandle, 0, testing::Property(&Block::size, kMebibyte)))
      .WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, Write(kHandle, kMebibyte, testing::Property(&Block::size, kMebibyte)))
      .WillOnce(Return(absl::OkStatus()));
  Begin({.direct_io = true});
  const int fd = OpenFile(O_WRONLY);
  EXPECT_EQ(write(fd, bytes.get(), 2 * kMebibyte), static_cast<ssize_t>(2 * kMebibyte));
  close(fd);
}

TEST_F(FileOperationsTest, MoreBytesThanWereAskedForAreNotPassedOn) {
  ON_CALL(files_, Read(kHandle, _, _)).WillByDefault(Return(Block::CopyOf(std::string(64, 'x'))));
  Begin({.direct_io = true});
  const int fd = OpenFile(O_RDONLY);
  std::array<char, 16> bytes = {};
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), 16);
  close(fd);
}

TEST_F(FileOperationsTest, AFullVolumeIsToldToTheWriter) {
  ON_CALL(files_, Write(_, _, _)).WillByDefault(Return(absl::ResourceExhaustedError("disk")));
  Begin();
  const int fd = OpenFile(O_WRONLY);
  EXPECT_EQ(ErrnoOfCall(write(fd, "x", 1)), ENOSPC);
  close(fd);
}

TEST_F(FileOperationsTest, ClosePushesWhatMayHaveBeenWrittenAndTellsItsError) {
  EXPECT_CALL(files_, Push(kHandle))
      .WillOnce(Return(absl::OkStatus()))
      .WillOnce(Return(FsStatus(FsError::kNoSpace, "written back")));
  Begin();
  EXPECT_EQ(close(OpenFile(O_WRONLY)), 0);
  EXPECT_EQ(ErrnoOfCall(close(OpenFile(O_RDWR))), ENOSPC);
  EXPECT_EQ(close(OpenFile(O_RDONLY)), 0);
}

TEST_F(FileOperationsTest, SyncTellsFilesFromDirectories) {
  EXPECT_CALL(files_, Sync(kHandle))
      .WillOnce(Return(absl::OkStatus()))
      .WillOnce(Return(absl::DataLossError("a dirty block is lost")));
  EXPECT_CALL(files_, SyncDirectory(kDirectory)).WillOnce(Return(absl::OkStatus()));
  Begin({.log = [](std::string_view) {}});
  const int fd = OpenFile(O_RDWR);
  EXPECT_EQ(fsync(fd), 0);
  EXPECT_EQ(ErrnoOfCall(fdatasync(fd)), EIO);
  close(fd);
  const int directory = open(Path("directory").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_EQ(fsync(directory), 0);
  close(directory);
}

TEST_F(FileOperationsTest, AllocateSeekAndCopyTellTheirArguments) {
  InSequence in_order;
  EXPECT_CALL(files_, Allocate(kHandle, 0, 10, 20)).WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, Allocate(kHandle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30, 40))
      .WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, SeekData(kHandle, 7)).WillOnce(Return(8));
  EXPECT_CALL(files_, SeekHole(kHandle, 8)).WillOnce(Return(100));
  EXPECT_CALL(files_, SeekData(kHandle, 99)).WillOnce(Return(FsStatus(FsError::kOutOfRange, "")));
  EXPECT_CALL(files_, CopyRange(kHandle, 3, kHandle, 50, 9)).WillOnce(Return(6));
  Begin();
  const int fd = OpenFile(O_RDWR);
  EXPECT_EQ(fallocate(fd, 0, 10, 20), 0);
  EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30, 40), 0);
  EXPECT_EQ(ErrnoOfCall(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 1)), EOPNOTSUPP);
  EXPECT_EQ(lseek(fd, 7, SEEK_DATA), 8);
  EXPECT_EQ(lseek(fd, 8, SEEK_HOLE), 100);
  EXPECT_EQ(ErrnoOfCall(lseek(fd, 99, SEEK_DATA)), ENXIO);
  off_t from = 3, to = 50;
  EXPECT_EQ(copy_file_range(fd, &from, fd, &to, 9, 0), 6);
  close(fd);
}

// -- create
// ----------------------------------------------------------------------------------------

TEST_F(FileOperationsTest, CreateMakesAndOpens) {
  ON_CALL(files_, Stat(9)).WillByDefault(Return(MakeNode(9, S_IFREG | 0604)));
  EXPECT_CALL(files_, Create(_, kRoot, "new", S_IFREG | 0604, HasFlags(O_WRONLY), ""))
      .WillOnce(Return(FileSystem::Created{MakeNode(9, S_IFREG | 0604), kHandle}));
  EXPECT_CALL(files_, Open(_, _, _)).Times(0);
  EXPECT_CALL(files_, Release(kHandle)).WillOnce(Return(absl::OkStatus()));
  Begin();
  const mode_t before = umask(022);
  const int fd = open(Path("new").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0624);
  umask(before);
  EXPECT_GE(fd, 0);
  close(fd);
}

TEST_F(FileOperationsTest, CreateOpensWhatAnotherClientMadeMeanwhileAndLetsItBeChecked) {
  const auto found = MakeNode(9, S_IFREG | 0600, 10);
  EXPECT_CALL(files_, Lookup(_, kRoot, "new"))
      .WillOnce(Return(FsStatus(FsError::kNoEntry, "not yet")))
      .WillRepeatedly(Return(found));
  ON_CALL(files_, Stat(9)).WillByDefault(Return(found));
  EXPECT_CALL(files_, Create(_, kRoot, "new", _, _, _))
      .WillRepeatedly(Return(FsStatus(FsError::kExists, "another client's")));
  EXPECT_CALL(files_, Open(AllOf(Field(&Caller::uid, geteuid()), Field(&Caller::checked, false)), 9,
                           HasFlags(O_RDWR | O_TRUNC)))
      .WillOnce(Return(kHandle));
  Begin();
  const int fd = open(Path("new").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0);
  struct stat seen = {};
  EXPECT_EQ(fstat(fd, &seen), 0);
  EXPECT_EQ(seen.st_ino, 9u);
  close(fd);
}

TEST_F(FileOperationsTest, AnExclusiveCreateFailsWhereAnotherClientMadeIt) {
  EXPECT_CALL(files_, Create(_, kRoot, "new", _, _, _))
      .WillOnce(Return(FsStatus(FsError::kExists, "another client's")));
  EXPECT_CALL(files_, Open(_, _, _)).Times(0);
  Begin();
  EXPECT_EQ(ErrnoOfCall(open(Path("new").c_str(), O_RDWR | O_CREAT | O_EXCL, 0600)), EEXIST);
}

TEST_F(FileOperationsTest, CreateTriesAgainWhereTheFileCameAndWent) {
  const auto made = MakeNode(9, S_IFREG | 0600);
  ON_CALL(files_, Stat(9)).WillByDefault(Return(made));
  EXPECT_CALL(files_, Create(_, kRoot, "new", _, _, _))
      .WillOnce(Return(FsStatus(FsError::kExists, "another client's")))
      .WillOnce(Return(FileSystem::Created{made, kHandle}));
  Begin();
  const int fd = open(Path("new").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0);
  close(fd);
}

// -- appending
// -------------------------------------------------------------------------------------

// In a process of its own: a page fault on a mapping must not wait for the process that serves it.
void StoreThroughMapping(int fd, size_t offset, const char* text) {
  const pid_t child = fork();
  if (child == 0) {
    void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) _exit(1);
    std::memcpy(static_cast<char*>(at) + offset, text, std::strlen(text));
    _exit(msync(at, 4096, MS_SYNC) == 0 ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(FileOperationsTest, AnAppendGoesToTheEndAndAMappedPageToItsPlace) {
  constexpr FileHandle kPages = 32;
  EXPECT_CALL(files_, Open(_, kFile, HasFlags(O_RDWR | O_APPEND))).WillOnce(Return(kHandle));
  EXPECT_CALL(files_, Open(_, kFile, HasFlags(O_RDWR))).WillOnce(Return(kPages));
  ON_CALL(files_, Read(_, 0, _)).WillByDefault(Return(Block::CopyOf(std::string(100, '.'))));
  EXPECT_CALL(files_, Append(kHandle, Holds("appended"))).WillOnce(Return(100));
  std::string page;
  EXPECT_CALL(files_, Write(kPages, 0, _))
      .Times(AtLeast(1))
      .WillRepeatedly([&](FileHandle, uint64_t, const Block& bytes) {
        page = bytes.view();
        return absl::OkStatus();
      });
  EXPECT_CALL(files_, Release(kHandle));
  EXPECT_CALL(files_, Release(kPages));
  Begin();
  const int fd = OpenFile(O_RDWR | O_APPEND);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(write(fd, "appended", 8), 8);
  StoreThroughMapping(fd, 10, "mapped");
  close(fd);
  ASSERT_TRUE(mounted_->Stop().ok());
  EXPECT_EQ(page.substr(8, 10), "..mapped..");
}

TEST_F(FileOperationsTest, WhetherAWriteAppendsIsAskedWhenItIsMade) {
  InSequence in_order;
  EXPECT_CALL(files_, Append(kHandle, Holds("one"))).WillOnce(Return(100));
  EXPECT_CALL(files_, Write(kHandle, 7, Holds("two"))).WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, Append(kHandle, Holds("three"))).WillOnce(Return(100));
  Begin();
  const int fd = OpenFile(O_WRONLY | O_APPEND);
  EXPECT_EQ(pwrite(fd, "one", 3, 7), 3);  // Linux: at the end as well
  EXPECT_EQ(fcntl(fd, F_SETFL, 0), 0);
  EXPECT_EQ(pwrite(fd, "two", 3, 7), 3);
  EXPECT_EQ(fcntl(fd, F_SETFL, O_APPEND), 0);
  EXPECT_EQ(write(fd, "three", 5), 5);
  close(fd);
}

}  // namespace
}  // namespace abacus::objfs
