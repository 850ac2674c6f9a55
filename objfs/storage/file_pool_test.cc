#include "objfs/storage/file_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace abacus::objfs {
namespace {

class FilePoolTest : public ::testing::Test {
 protected:
  FilePoolTest() {
    std::string pattern = ::testing::TempDir() + "abacus-pool-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~FilePoolTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  FilePool::FileId Add(FilePool& pool, const std::string& name) const {
    std::ofstream(Path(name)) << name;
    return pool.Add(Path(name), &File::Open).value();
  }
  static std::string Read(FilePool& pool, FilePool::FileId id) {
    const auto file = pool.Use(id, false);
    return file.ok() ? std::string((*file)->ReadAt(0, 100)->view()) : file.status().ToString();
  }
  // Descriptors of this process.
  static size_t Descriptors() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      (void)entry;
      ++count;
    }
    return count;
  }

  std::string directory_;
};

TEST_F(FilePoolTest, TheFileUnusedForLongestIsClosedAndOpenedAgain) {
  FilePool pool(2);
  const size_t before = Descriptors();
  const auto a = Add(pool, "a");
  const auto b = Add(pool, "b");
  EXPECT_EQ(Read(pool, a), "a");
  const auto c = Add(pool, "c");
  EXPECT_EQ(pool.open(), 2u);
  EXPECT_EQ(Descriptors(), before + 2);
  // a and c are open still: they are read though their names are gone.
  std::filesystem::remove(Path("a"));
  std::filesystem::remove(Path("c"));
  EXPECT_EQ(Read(pool, a), "a");
  EXPECT_EQ(Read(pool, c), "c");
  EXPECT_EQ(Read(pool, b), "b");
  EXPECT_EQ(Descriptors(), before + 2);
}

TEST_F(FilePoolTest, AFileInUseIsNotClosed) {
  FilePool pool(1);
  const auto a = Add(pool, "a");
  const auto in_use = pool.Use(a, false).value();
  const auto b = Add(pool, "b");
  EXPECT_EQ(Read(pool, b), "b");
  std::filesystem::remove(Path("a"));
  EXPECT_EQ(in_use->ReadAt(0, 9)->view(), "a");
}

TEST_F(FilePoolTest, AnotherFileOfTheNameIsNotTakenForTheOneThatWasClosed) {
  FilePool pool(1);
  const auto a = Add(pool, "a");
  Add(pool, "b");
  std::ofstream(Path("other")) << "another";
  std::filesystem::rename(Path("other"), Path("a"));
  EXPECT_TRUE(absl::IsNotFound(pool.Use(a, false).status()));
}

TEST_F(FilePoolTest, AFileThatWasRenamedIsOpenedUnderItsNewName) {
  FilePool pool(1);
  const auto a = Add(pool, "a");
  Add(pool, "b");
  ASSERT_TRUE(pool.Rename(a, Path("new")).ok());
  EXPECT_EQ(Read(pool, a), "a");
  EXPECT_TRUE(std::filesystem::exists(Path("new")));
}

TEST_F(FilePoolTest, ADroppedFileIsNotFound) {
  FilePool pool(2);
  const auto a = Add(pool, "a");
  const auto in_use = pool.Use(a, false).value();
  pool.Drop(a);
  pool.Drop(a);
  EXPECT_TRUE(absl::IsNotFound(pool.Use(a, false).status()));
  EXPECT_TRUE(absl::IsNotFound(pool.Sync(a)));
  EXPECT_EQ(in_use->ReadAt(0, 9)->view(), "a");
  EXPECT_EQ(pool.open(), 0u);
}

TEST_F(FilePoolTest, AWrittenFileIsClosedAfterThoseThatWereNot) {
  FilePool pool(2);
  const auto a = Add(pool, "a");
  ASSERT_TRUE(pool.Use(a, true).value()->WriteAt(0, "A").ok());
  const auto b = Add(pool, "b");
  const auto c = Add(pool, "c");
  std::filesystem::remove(Path("a"));
  EXPECT_EQ(Read(pool, a), "A");
  // Where all were written, one is synced and closed.
  ASSERT_TRUE(pool.Use(c, true).value()->WriteAt(0, "C").ok());
  EXPECT_EQ(Read(pool, b), "b");
  EXPECT_EQ(Read(pool, c), "C");
  EXPECT_TRUE(pool.Sync(c).ok());
}

TEST_F(FilePoolTest, WhereTheProcessHasNoMoreDescriptorsOneOfThePoolIsGivenUp) {
  rlimit was;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
  FilePool pool(100000);
  const auto a = Add(pool, "a");
  std::ofstream(Path("b")) << "b";
  // The lowest free descriptor, and none above it.
  const int next = dup(STDIN_FILENO);
  close(next);
  rlimit few = was;
  few.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto b = pool.Add(Path("b"), &File::Open);
  setrlimit(RLIMIT_NOFILE, &was);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(pool.open(), 1u);
  EXPECT_EQ(Read(pool, a), "a");
}

TEST_F(FilePoolTest, ManyThreadsReadTheirFilesThroughFewDescriptors) {
  constexpr int kThreads = 4;
  constexpr int kFiles = 8;
  FilePool pool(2);
  std::vector<FilePool::FileId> ids;
  for (int i = 0; i < kFiles; ++i) ids.push_back(Add(pool, std::to_string(i)));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int file = (i * (t + 1) + t) % kFiles;
        if (Read(pool, ids[file]) != std::to_string(file)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(pool.open(), 2u);
}

}  // namespace
}  // namespace abacus::objfs
