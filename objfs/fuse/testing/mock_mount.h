#ifndef ABACUS_OBJFS_FUSE_TESTING_MOCK_MOUNT_H_
#define ABACUS_OBJFS_FUSE_TESTING_MOCK_MOUNT_H_

// What the tests of the mount's operations begin with: a mocked file system with a root, a file and
// a directory in it, and the mount of it.

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fuse/testing/mock_file_system.h"
#include "objfs/fuse/testing/mounted.h"

namespace abacus::objfs {

inline Node MakeNode(ObjectId id, uint32_t mode, uint64_t size = 0) {
  Node node;
  node.id = id;
  node.inode.mode = mode;
  node.inode.links = S_ISDIR(mode) ? 2 : 1;
  node.size = size;
  return node;
}

// The value of a system call that failed; 0 where it did not.
template <typename Result>
int ErrnoOfCall(Result result) {
  return result < 0 ? errno : 0;
}

class MockMountTest : public testing::Test {
 protected:
  static constexpr ObjectId kRoot = 77, kFile = 5, kDirectory = 6;
  static constexpr FileHandle kHandle = 31;

  void SetUp() override {
    if (const std::string why = WhyNoMount(); !why.empty()) GTEST_SKIP() << why;
    using testing::_;
    using testing::Return;
    const auto gone = FsStatus(FsError::kNoEntry, "nothing of that name");
    ON_CALL(files_, IsTold(_)).WillByDefault(Return(true));
    ON_CALL(files_, root()).WillByDefault(Return(kRoot));
    ON_CALL(files_, Lookup(_, _, _)).WillByDefault(Return(gone));
    ON_CALL(files_, Stat(_)).WillByDefault(Return(FsStatus(FsError::kStale, "no such object")));
    Add(kRoot, "file", MakeNode(kFile, S_IFREG | 0644, 100));
    Add(kRoot, "directory", MakeNode(kDirectory, S_IFDIR | 0755));
    ON_CALL(files_, Stat(kRoot)).WillByDefault(Return(MakeNode(kRoot, S_IFDIR | 0755)));
    ON_CALL(files_, Open(_, _, _)).WillByDefault(Return(kHandle));
    ON_CALL(files_, Set(_, _, _)).WillByDefault(Return(MakeNode(kFile, S_IFREG | 0644)));
  }

  void Add(ObjectId directory, const std::string& name, const Node& node) {
    using testing::_;
    ON_CALL(files_, Lookup(_, directory, name)).WillByDefault(testing::Return(node));
    ON_CALL(files_, Stat(node.id)).WillByDefault(testing::Return(node));
  }

  // After the expectations: the kernel calls when it likes.
  void Begin(Mount::Options options = {}) { mounted_.emplace(files_, std::move(options)); }
  std::string Path(const std::string& name) const { return *mounted_ / name; }

  testing::NiceMock<MockFileSystem> files_;
  std::optional<Mounted> mounted_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_TESTING_MOCK_MOUNT_H_
