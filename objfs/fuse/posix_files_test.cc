// Open files through the mount, by the rules of POSIX.

#include <linux/falloc.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "objfs/fuse/testing/real_mount.h"

namespace abacus::objfs {
namespace {

using testing::Errno;
using testing::Fd;

class PosixFilesTest : public testing::RealMountTest {};

INSTANTIATE_TEST_SUITE_P(Stacks, PosixFilesTest, ::testing::ValuesIn(testing::kMounts),
                         testing::MountName);

TEST_P(PosixFilesTest, WhatIsWrittenIsRead) {
  EXPECT_EQ(Put("file", "some bytes"), 0);
  EXPECT_EQ(Get("file"), "some bytes");
  EXPECT_EQ(StatOf("file").st_size, 10);
  EXPECT_EQ(Put("file", "less"), 0);
  EXPECT_EQ(Get("file"), "less");
}

TEST_P(PosixFilesTest, AppendsGoToTheEnd) {
  EXPECT_EQ(Put("file", "begin"), 0);
  const Fd fd(At("file"), O_WRONLY | O_APPEND);
  EXPECT_EQ(write(fd, " and", 4), 4);
  EXPECT_EQ(lseek(fd, 0, SEEK_SET), 0);
  EXPECT_EQ(write(fd, " end", 4), 4);
  EXPECT_EQ(Get("file"), "begin and end");
}

// Where who appends reads as well, what comes from pages may come in several pieces.
TEST_P(PosixFilesTest, AppendsOfTwoMountsAreWholeAndNoneIsLost) {
  const int records = runtime::testing::kSanitized ? 20 : 100;
  constexpr size_t kRecordBytes = 100;
  if (exclusive()) GTEST_SKIP() << "nobody else may change what this mount shows";
  const auto other = world_.Client(0, Stack());
  ASSERT_NE(other, nullptr);
  const Mounted second(*other);
  for (const int access : {O_WRONLY, O_RDWR}) {
    EXPECT_EQ(Put("file", ""), 0);
    std::vector<std::thread> threads;
    for (const std::string& path : {At("file"), second / "file"}) {
      for (const char* who : {"x", "y"}) {
        threads.emplace_back([=, this] {
          const std::string record(kRecordBytes, path == At("file") ? who[0] : who[0] - 32);
          const Fd fd(path, access | O_APPEND);
          ASSERT_EQ(fd.error(), 0);
          for (int i = 0; i < records; ++i) {
            EXPECT_EQ(write(fd, record.data(), record.size()), static_cast<ssize_t>(kRecordBytes));
          }
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    const std::string bytes = Get("file");
    ASSERT_EQ(bytes.size(), 4 * kRecordBytes * static_cast<size_t>(records));
    std::map<char, size_t> seen;
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (access == O_WRONLY) {
        ASSERT_EQ(bytes[at], bytes[at / kRecordBytes * kRecordBytes]) << at;
      }
      ++seen[bytes[at]];
    }
    for (const auto& [who, count] : seen) EXPECT_EQ(count, kRecordBytes * records) << who;
  }
}

TEST_P(PosixFilesTest, AHoleReadsAsZerosAndTakesNoSpace) {
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  ASSERT_EQ(fd.error(), 0);
  constexpr off_t kFar = off_t{1} << 32;
  EXPECT_EQ(pwrite(fd, "end", 3, kFar), 3);
  std::array<char, 16> bytes;
  bytes.fill('x');
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), kFar / 2), 16);
  for (const char byte : bytes) EXPECT_EQ(byte, 0);
  EXPECT_EQ(fsync(fd), 0);
  EXPECT_EQ(StatOf("file").st_size, kFar + 3);
  EXPECT_LT(StatOf("file").st_blocks, 1'000);
}

TEST_P(PosixFilesTest, SeekFindsHolesAndData) {
  constexpr off_t kData = 1 << 20;
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  EXPECT_EQ(pwrite(fd, "data", 4, kData), 4);
  EXPECT_EQ(fsync(fd), 0);
  EXPECT_EQ(lseek(fd, 0, SEEK_HOLE), 0);
  const off_t data = lseek(fd, 0, SEEK_DATA);
  EXPECT_GT(data, kData - 65'536);
  EXPECT_LE(data, kData);
  EXPECT_EQ(lseek(fd, data, SEEK_HOLE), kData + 4);
  EXPECT_EQ(Errno(lseek(fd, kData + 4, SEEK_DATA)), ENXIO);
}

TEST_P(PosixFilesTest, WhatIsCutOffAndGrownAgainIsZeros) {
  EXPECT_EQ(Put("file", "0123456789"), 0);
  EXPECT_EQ(truncate(At("file").c_str(), 4), 0);
  EXPECT_EQ(Get("file"), "0123");
  const Fd fd(At("file"), O_RDWR);
  EXPECT_EQ(ftruncate(fd, 8), 0);
  EXPECT_EQ(Get("file"), std::string("0123\0\0\0\0", 8));
  EXPECT_EQ(Errno(ftruncate(fd, -1)), EINVAL);
}

TEST_P(PosixFilesTest, AnUnlinkedFileLivesWhileItIsOpen) {
  EXPECT_EQ(Put("file", "still here"), 0);
  Fd fd(At("file"), O_RDWR);
  EXPECT_EQ(unlink(At("file").c_str()), 0);
  EXPECT_FALSE(Exists("file"));
  std::array<char, 32> bytes = {};
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), 10);
  EXPECT_STREQ(bytes.data(), "still here");
  EXPECT_EQ(pwrite(fd, "STILL", 5, 0), 5);
  struct stat seen = {};
  ASSERT_EQ(fstat(fd, &seen), 0);
  EXPECT_EQ(seen.st_nlink, 0u);
  EXPECT_EQ(seen.st_size, 10);
  EXPECT_EQ(fd.Close(), 0);
}

TEST_P(PosixFilesTest, AReplacedFileLivesWhileItIsOpen) {
  EXPECT_EQ(Put("old", "of old"), 0);
  EXPECT_EQ(Put("new", "of new"), 0);
  const Fd fd(At("old"), O_RDONLY);
  EXPECT_EQ(rename(At("new").c_str(), At("old").c_str()), 0);
  std::array<char, 32> bytes = {};
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), 6);
  EXPECT_STREQ(bytes.data(), "of old");
  EXPECT_EQ(Get("old"), "of new");
}

TEST_P(PosixFilesTest, AllocateGrowsAndPunchesHoles) {
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  const std::string bytes(65'536, 'x');
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), 65'536);
  EXPECT_EQ(fallocate(fd, 0, 60'000, 40'000), 0);
  EXPECT_EQ(StatOf("file").st_size, 100'000);
  EXPECT_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 200'000), 0);
  EXPECT_EQ(StatOf("file").st_size, 100'000);
  EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10'000, 30'000), 0);
  std::string expected = bytes;
  expected.replace(10'000, 30'000, std::string(30'000, '\0'));
  expected.resize(100'000, '\0');
  EXPECT_TRUE(Get("file") == expected);
  EXPECT_EQ(Errno(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), EOPNOTSUPP);
}

TEST_P(PosixFilesTest, CopyFileRangeCopies) {
  std::string bytes(300'000, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  EXPECT_EQ(Put("from", bytes), 0);
  const Fd from(At("from"), O_RDONLY), to(At("to"), O_RDWR | O_CREAT);
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t copied = copy_file_range(from, nullptr, to, nullptr, left, 0);
    ASSERT_GT(copied, 0);
    left -= static_cast<size_t>(copied);
  }
  EXPECT_EQ(copy_file_range(from, nullptr, to, nullptr, 1, 0), 0);  // the end
  EXPECT_TRUE(Get("to") == bytes);
}

TEST_P(PosixFilesTest, AMappingWritesTheFile) {
  EXPECT_EQ(Put("file", std::string(8192, '.')), 0);
  // In a process of its own: a fault must not wait for the process that serves it.
  EXPECT_EQ(As(geteuid(), getegid(),
               [&] {
                 const Fd fd(At("file"), O_RDWR);
                 void* const at = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                 if (at == MAP_FAILED) return 1;
                 char* const bytes = static_cast<char*>(at);
                 if (bytes[4096] != '.') return 2;
                 std::memcpy(bytes + 4000, "mapped", 6);
                 return msync(at, 8192, MS_SYNC) == 0 ? 0 : 3;
               }),
            0);
  EXPECT_EQ(Get("file").substr(3999, 8), ".mapped.");
}

TEST_P(PosixFilesTest, ManyBytesAreReadAsTheyWereWritten) {
  constexpr size_t kBytes = 5'000'001;
  std::string bytes(kBytes, '\0');
  std::mt19937 random(11);
  for (char& byte : bytes) byte = static_cast<char>(random());
  {
    Fd fd(At("file"), O_WRONLY | O_CREAT);
    ASSERT_EQ(write(fd, bytes.data(), kBytes), static_cast<ssize_t>(kBytes));
    EXPECT_EQ(fd.Close(), 0);
  }
  const Fd fd(At("file"), O_RDONLY);
  std::string seen(kBytes, '\0');
  size_t at = 0;
  while (at < kBytes) {
    const ssize_t got = read(fd, seen.data() + at, kBytes - at);
    ASSERT_GT(got, 0);
    at += static_cast<size_t>(got);
  }
  EXPECT_TRUE(seen == bytes);
}

TEST_P(PosixFilesTest, OffsetsBeyondTheLargestFileAreRefused) {
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  constexpr off_t kMax = std::numeric_limits<off_t>::max();
  EXPECT_EQ(Errno(pwrite(fd, "x", 1, kMax - 1)), EFBIG);
  EXPECT_EQ(Errno(ftruncate(fd, kMax)), EFBIG);
  EXPECT_EQ(StatOf("file").st_size, 0);
}

TEST_P(PosixFilesTest, AFileReachesToTheLimitAndNotBeyond) {
  constexpr auto kMax = static_cast<off_t>(Layer::kFileBytesMax);
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  ASSERT_EQ(pwrite(fd, "x", 1, kMax - 1), 1) << strerror(errno);
  EXPECT_EQ(Errno(pwrite(fd, "y", 1, kMax)), EFBIG);
  EXPECT_EQ(Errno(ftruncate(fd, kMax + 1)), EFBIG);
  // What was refused is not kept anywhere, to fail later.
  EXPECT_EQ(fsync(fd), 0) << strerror(errno);
  EXPECT_EQ(StatOf("file").st_size, kMax);
  char last = 0;
  EXPECT_EQ(pread(fd, &last, 1, kMax - 1), 1);
  EXPECT_EQ(last, 'x');
  EXPECT_EQ(ftruncate(fd, 1), 0) << strerror(errno);
  EXPECT_EQ(ftruncate(fd, kMax), 0) << strerror(errno);
  EXPECT_EQ(fsync(fd), 0) << strerror(errno);
  EXPECT_EQ(StatOf("file").st_size, kMax);
}

TEST_P(PosixFilesTest, ThreadsThatWriteOwnPartsLoseNothing) {
  constexpr int kThreads = 4, kRounds = 100;
  const Fd fd(At("file"), O_RDWR | O_CREAT);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string part(100, static_cast<char>('a' + t));
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_EQ(pwrite(fd, part.data(), part.size(), (i * kThreads + t) * 100), 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string bytes = Get("file");
  ASSERT_EQ(bytes.size(), size_t{100} * kThreads * kRounds);
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], static_cast<char>('a' + i / 100 % kThreads)) << i;
  }
}

TEST_P(PosixFilesTest, ASecondMountSeesWhatTheFirstHasWrittenWhenItIsClosed) {
  if (exclusive()) GTEST_SKIP() << "nobody else may change what this mount shows";
  const auto other = world_.Client(0, Stack());
  ASSERT_NE(other, nullptr);
  const Mounted second(*other);
  EXPECT_EQ(Put("file", "one"), 0);
  const auto read_there = [&] {
    const Fd fd(second / "file", O_RDONLY);
    std::array<char, 16> bytes = {};
    EXPECT_GE(read(fd, bytes.data(), bytes.size()), 0);
    return std::string(bytes.data());
  };
  EXPECT_EQ(read_there(), "one");
  EXPECT_EQ(Put("file", "two"), 0);
  EXPECT_EQ(read_there(), "two");
  EXPECT_EQ(unlink((second / "file").c_str()), 0);
  EXPECT_FALSE(Exists("file"));
}

}  // namespace
}  // namespace abacus::objfs
