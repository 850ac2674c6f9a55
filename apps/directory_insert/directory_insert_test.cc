#include "apps/directory_insert/directory_insert.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/fs/error.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::apps {
namespace {

using objfs::FileSystem;
using objfs::testing::FileSystemWorld;

const objfs::Caller kSuperuser;
constexpr uint64_t kFiles = 30;

TEST(DirectoryInsertTest, ClientsThatInsertIntoOneDirectoryLoseNone) {
  FileSystemWorld world(4);
  std::vector<std::unique_ptr<FileSystem>> clients;
  for (size_t node = 1; node <= 3; ++node) clients.push_back(world.Client(node));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&clients, i] {
      uint64_t done = 0;
      FileSystem& files = *clients[i];
      const absl::Status status = InsertFiles(files, kSuperuser, files.root(),
                                              absl::StrCat("of-", i), kFiles, [&] { ++done; });
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(done, kFiles);
    });
  }
  for (std::thread& thread : threads) thread.join();
  FileSystem& files = *clients.front();
  for (size_t i = 0; i < clients.size(); ++i) {
    for (uint64_t n = 0; n < kFiles; ++n) {
      const auto found = files.Lookup(kSuperuser, files.root(), absl::StrCat("of-", i, "-", n));
      EXPECT_TRUE(found.ok()) << i << " " << n << " " << found.status();
    }
  }
}

TEST(DirectoryInsertTest, ANameThatIsThereAlreadyEndsIt) {
  FileSystemWorld world(2);
  const auto files = world.Client(1);
  ASSERT_TRUE(InsertFiles(*files, kSuperuser, files->root(), "of", 2, [] {}).ok());
  uint64_t done = 0;
  const absl::Status again =
      InsertFiles(*files, kSuperuser, files->root(), "of", 3, [&] { ++done; });
  EXPECT_EQ(objfs::FsErrorOf(again), objfs::FsError::kExists) << again;
  EXPECT_EQ(done, 0u);
}

}  // namespace
}  // namespace abacus::apps
