#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "objfs/fuse/errno.h"
#include "objfs/fuse/testing/mock_mount.h"

namespace abacus::objfs {
namespace {

using testing::_;
using testing::AllOf;
using testing::AtLeast;
using testing::Field;
using testing::Return;
using testing::Throw;

class NameOperationsTest : public MockMountTest {};

TEST_F(NameOperationsTest, StatTellsWhatTheFileSystemKnows) {
  Node node = MakeNode(kFile, S_IFREG | S_ISUID | 0751, 1'000'001);
  node.allocated = 4'097;
  node.inode.uid = 12;
  node.inode.gid = 13;
  node.inode.links = 3;
  node.inode.accessed_ns = 1'500'000'000'123'456'789;
  node.inode.modified_ns = -1;
  node.inode.changed_ns = 2'000'000'000;
  Add(kRoot, "file", node);
  Begin();

  struct stat seen = {};
  ASSERT_EQ(stat(Path("file").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_ino, kFile);
  EXPECT_EQ(seen.st_mode, node.inode.mode);
  EXPECT_EQ(seen.st_size, 1'000'001);
  EXPECT_EQ(seen.st_blocks, 9);  // of 512 bytes, rounded up
  EXPECT_EQ(seen.st_uid, 12u);
  EXPECT_EQ(seen.st_gid, 13u);
  EXPECT_EQ(seen.st_nlink, 3u);
  EXPECT_EQ(seen.st_atim.tv_sec, 1'500'000'000);
  EXPECT_EQ(seen.st_atim.tv_nsec, 123'456'789);
  EXPECT_EQ(seen.st_mtim.tv_sec, -1);
  EXPECT_EQ(seen.st_mtim.tv_nsec, 999'999'999);
  EXPECT_EQ(seen.st_ctim.tv_sec, 2);
}

TEST_F(NameOperationsTest, TheRootAndTheObjectThatHasTheKernelsRootNumberChangePlaces) {
  Add(kRoot, "one", MakeNode(1, S_IFREG | 0644, 11));
  Begin();
  struct stat seen = {};
  ASSERT_EQ(stat(mounted_->path().c_str(), &seen), 0);
  EXPECT_EQ(seen.st_ino, 1u);
  EXPECT_TRUE(S_ISDIR(seen.st_mode));
  ASSERT_EQ(stat(Path("one").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_ino, kRoot);
  EXPECT_EQ(seen.st_size, 11);
}

TEST_F(NameOperationsTest, WithoutATimeoutEachLookAsksAgain) {
  EXPECT_CALL(files_, Lookup(_, kRoot, "file")).Times(3);
  EXPECT_CALL(files_, Lookup(_, kRoot, "absent")).Times(2);
  Begin();
  struct stat seen = {};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(stat(Path("file").c_str(), &seen), 0);
  for (int i = 0; i < 2; ++i) ASSERT_NE(stat(Path("absent").c_str(), &seen), 0);
}

TEST_F(NameOperationsTest, AnExclusiveMountAsksOnce) {
  EXPECT_CALL(files_, Lookup(_, kRoot, "file")).Times(1);
  EXPECT_CALL(files_, Lookup(_, kRoot, "absent")).Times(1);
  Begin({.exclusive = true});
  struct stat seen = {};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(stat(Path("file").c_str(), &seen), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ErrnoOfCall(stat(Path("absent").c_str(), &seen)), ENOENT);
  }
}

TEST_F(NameOperationsTest, EachErrorReachesTheCallerAsItsNumber) {
  for (int i = 1; i <= static_cast<int>(FsError::kInputOutput); ++i) {
    const auto error = static_cast<FsError>(i);
    ON_CALL(files_, Unlink(_, kRoot, std::string(FsErrorName(error))))
        .WillByDefault(Return(FsStatus(error, "as the test wants it")));
    Add(kRoot, std::string(FsErrorName(error)), MakeNode(1000 + i, S_IFREG | 0644));
  }
  Begin({.log = [](std::string_view) {}});
  for (int i = 1; i <= static_cast<int>(FsError::kInputOutput); ++i) {
    const auto error = static_cast<FsError>(i);
    EXPECT_EQ(ErrnoOfCall(unlink(Path(std::string(FsErrorName(error))).c_str())),
              fuse::ErrnoOf(error))
        << FsErrorName(error);
  }
}

TEST_F(NameOperationsTest, AnExceptionIsAnInputOutputErrorAndTheMountGoesOn) {
  EXPECT_CALL(files_, Unlink(_, kRoot, "file"))
      .WillOnce(Throw(std::runtime_error("thrown")))
      .WillOnce(Throw(7))
      .WillOnce(Return(absl::OkStatus()));
  std::vector<std::string> logged;
  Begin({.log = [&](std::string_view line) { logged.emplace_back(line); }});
  EXPECT_EQ(ErrnoOfCall(unlink(Path("file").c_str())), EIO);
  EXPECT_EQ(ErrnoOfCall(unlink(Path("file").c_str())), EIO);
  EXPECT_EQ(unlink(Path("file").c_str()), 0);
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_THAT(logged[0], testing::HasSubstr("unlink"));
  EXPECT_THAT(logged[0], testing::HasSubstr("thrown"));
}

TEST_F(NameOperationsTest, ManyFailuresAreLoggedWithinTheLimitAndCounted) {
  ON_CALL(files_, Unlink(_, kRoot, "file")).WillByDefault(Return(absl::DataLossError("block 3")));
  std::vector<std::string> logged;
  Begin(
      {.logs_per_second_max = 2, .log = [&](std::string_view line) { logged.emplace_back(line); }});
  constexpr int kFailures = 200;
  for (int i = 0; i < kFailures; ++i) EXPECT_EQ(ErrnoOfCall(unlink(Path("file").c_str())), EIO);
  EXPECT_GE(logged.size(), 2u);
  EXPECT_LT(logged.size(), static_cast<size_t>(kFailures) / 2) << "they took minutes?";
  EXPECT_THAT(logged[0], testing::HasSubstr("block 3"));
}

TEST_F(NameOperationsTest, WhatIsNotAnInputOutputErrorIsNotLogged) {
  ON_CALL(files_, Unlink(_, kRoot, "file"))
      .WillByDefault(Return(FsStatus(FsError::kNotPermitted, "sticky")));
  std::vector<std::string> logged;
  Begin({.log = [&](std::string_view line) { logged.emplace_back(line); }});
  EXPECT_EQ(ErrnoOfCall(unlink(Path("file").c_str())), EPERM);
  EXPECT_TRUE(logged.empty()) << logged[0];
}

TEST_F(NameOperationsTest, MakesTellTypeModeDeviceAndTarget) {
  const auto made = MakeNode(9, S_IFREG | 0600);
  EXPECT_CALL(files_, Make(_, kRoot, "plain", S_IFREG | 0640, _, "")).WillOnce(Return(made));
  EXPECT_CALL(files_, Make(_, kRoot, "pipe", S_IFIFO | 0600, _, ""))
      .WillOnce(Return(MakeNode(10, S_IFIFO | 0600)));
  EXPECT_CALL(files_, Make(_, kRoot, "sub", S_IFDIR | 0750, _, ""))
      .WillOnce(Return(MakeNode(11, S_IFDIR | 0750)));
  EXPECT_CALL(files_, Make(_, kDirectory, "link", S_IFLNK | 0777, _, "to/some where"))
      .WillOnce(Return(MakeNode(12, S_IFLNK | 0777)));
  EXPECT_CALL(files_, Link(_, kFile, kDirectory, "second"))
      .WillOnce(Return(MakeNode(kFile, S_IFREG | 0644)));
  Begin();
  const mode_t before = umask(027);
  EXPECT_EQ(mknod(Path("plain").c_str(), S_IFREG | 0666, 0), 0);
  EXPECT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(mkdir(Path("sub").c_str(), 0777), 0);
  umask(before);
  EXPECT_EQ(symlink("to/some where", Path("directory/link").c_str()), 0);
  EXPECT_EQ(link(Path("file").c_str(), Path("directory/second").c_str()), 0);
}

TEST_F(NameOperationsTest, ADeviceKeepsItsNumber) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes devices";
  Node device = MakeNode(9, S_IFCHR | 0600);
  device.inode.device = makedev(240, 17);
  EXPECT_CALL(files_, Make(_, kRoot, "device", S_IFCHR | 0600, makedev(240, 17), ""))
      .WillOnce(Return(device));
  Begin();
  EXPECT_EQ(mknod(Path("device").c_str(), S_IFCHR | 0600, makedev(240, 17)), 0);
  Add(kRoot, "device", device);
  struct stat seen = {};
  ASSERT_EQ(stat(Path("device").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_rdev, makedev(240, 17));
}

TEST_F(NameOperationsTest, TheCallerIsWhoCallsAndIsChecked) {
  const auto me = AllOf(Field(&Caller::uid, geteuid()), Field(&Caller::gid, getegid()),
                        Field(&Caller::checked, true));
  EXPECT_CALL(files_, RemoveDirectory(me, kRoot, "directory")).WillOnce(Return(absl::OkStatus()));
  Begin();
  EXPECT_EQ(rmdir(Path("directory").c_str()), 0);
}

TEST_F(NameOperationsTest, RenameTellsItsRule) {
  EXPECT_CALL(files_, Rename(_, kRoot, "file", kDirectory, "new", RenameRule::kReplace))
      .WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, Rename(_, kRoot, "file", kDirectory, "new", RenameRule::kNoReplace))
      .WillOnce(Return(FsStatus(FsError::kExists, "another client's")));
  EXPECT_CALL(files_, Rename(_, kRoot, "file", kRoot, "directory", RenameRule::kExchange))
      .WillOnce(Return(absl::OkStatus()));
  Begin();
  const std::string from = Path("file"), to = Path("directory/new"), other = Path("directory");
  EXPECT_EQ(rename(from.c_str(), to.c_str()), 0);
  EXPECT_EQ(ErrnoOfCall(renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE)),
            EEXIST);
  EXPECT_EQ(renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  EXPECT_EQ(ErrnoOfCall(renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_WHITEOUT)),
            EINVAL);
}

TEST_F(NameOperationsTest, ReadLinkTellsTheTarget) {
  Add(kRoot, "link", MakeNode(8, S_IFLNK | 0777, 6));
  EXPECT_CALL(files_, ReadLink(_, 8)).WillOnce(Return("target"));
  Begin();
  std::array<char, 64> target = {};
  ASSERT_EQ(readlink(Path("link").c_str(), target.data(), target.size()), 6);
  EXPECT_STREQ(target.data(), "target");
}

TEST_F(NameOperationsTest, StatvfsTellsTheVolumesSpace) {
  VolumeSpace space;
  space.block_bytes = 8192;
  space.capacity_bytes = 8192 * 1000;
  space.available_bytes = 8192 * 300 + 1;
  space.objects = 7;
  EXPECT_CALL(files_, Space()).Times(AtLeast(1)).WillRepeatedly(Return(space));
  Begin();
  struct statvfs seen = {};
  ASSERT_EQ(statvfs(mounted_->path().c_str(), &seen), 0);
  EXPECT_EQ(seen.f_frsize, 8192u);
  EXPECT_EQ(seen.f_blocks, 1000u);
  EXPECT_EQ(seen.f_bfree, 300u);
  EXPECT_EQ(seen.f_bavail, 300u);
  EXPECT_EQ(seen.f_files, 307u);
  EXPECT_EQ(seen.f_namemax, 255u);
}

// -- attributes that are set
// -----------------------------------------------------------------------

SetAttributes Only(void (*fill)(SetAttributes*)) {
  SetAttributes set;
  fill(&set);
  return set;
}

MATCHER_P(Sets, expected, "") {
  return arg.permissions == expected.permissions && arg.uid == expected.uid &&
         arg.gid == expected.gid && arg.size == expected.size &&
         arg.accessed_ns == expected.accessed_ns && arg.modified_ns == expected.modified_ns &&
         arg.accessed_now == expected.accessed_now && arg.modified_now == expected.modified_now;
}

TEST_F(NameOperationsTest, SetsWhatWasAskedForAndNothingElse) {
  const auto expect = [&](const SetAttributes& set) {
    EXPECT_CALL(files_, Set(_, kFile, Sets(set))).WillOnce(Return(MakeNode(kFile, S_IFREG | 0644)));
  };
  testing::InSequence in_order;
  expect(Only([](SetAttributes* set) { set->permissions = 04711; }));
  expect(Only([](SetAttributes* set) { set->uid = 5; }));
  expect(Only([](SetAttributes* set) { set->gid = 6; }));
  expect(Only([](SetAttributes* set) { set->size = uint64_t{1} << 33; }));
  expect(Only([](SetAttributes* set) { set->accessed_now = set->modified_now = true; }));
  expect(Only([](SetAttributes* set) { set->modified_ns = 1'000'000'002; }));
  Begin();
  const std::string file = Path("file");
  EXPECT_EQ(chmod(file.c_str(), 04711), 0);
  EXPECT_EQ(chown(file.c_str(), 5, -1), 0);
  EXPECT_EQ(chown(file.c_str(), -1, 6), 0);
  EXPECT_EQ(truncate(file.c_str(), off_t{1} << 33), 0);
  EXPECT_EQ(utimensat(AT_FDCWD, file.c_str(), nullptr, 0), 0);
  const timespec times[2] = {{0, UTIME_OMIT}, {1, 2}};
  EXPECT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

// -- extended attributes
// ---------------------------------------------------------------------------

TEST_F(NameOperationsTest, XattrsGoThereAndBack) {
  const std::string value("a\0b", 3);
  EXPECT_CALL(files_, SetXattr(_, kFile, "user.any", value, XattrRule::kAny))
      .WillOnce(Return(absl::OkStatus()));
  EXPECT_CALL(files_, SetXattr(_, kFile, "user.new", value, XattrRule::kMustBeNew))
      .WillOnce(Return(FsStatus(FsError::kExists, "")));
  EXPECT_CALL(files_, SetXattr(_, kFile, "user.old", value, XattrRule::kMustExist))
      .WillOnce(Return(FsStatus(FsError::kNoAttribute, "")));
  EXPECT_CALL(files_, RemoveXattr(_, kFile, "user.any")).WillOnce(Return(absl::OkStatus()));
  ON_CALL(files_, GetXattr(_, kFile, "user.any")).WillByDefault(Return(value));
  ON_CALL(files_, GetXattr(_, kFile, "user.none"))
      .WillByDefault(Return(FsStatus(FsError::kNoAttribute, "")));
  ON_CALL(files_, ListXattrs(_, kFile))
      .WillByDefault(Return(std::vector<std::string>{"user.any", "user.b"}));
  Begin();
  const std::string file = Path("file");
  EXPECT_EQ(setxattr(file.c_str(), "user.any", value.data(), 3, 0), 0);
  EXPECT_EQ(ErrnoOfCall(setxattr(file.c_str(), "user.new", value.data(), 3, XATTR_CREATE)), EEXIST);
  EXPECT_EQ(ErrnoOfCall(setxattr(file.c_str(), "user.old", value.data(), 3, XATTR_REPLACE)),
            ENODATA);
  std::array<char, 64> seen = {};
  EXPECT_EQ(getxattr(file.c_str(), "user.any", nullptr, 0), 3);
  ASSERT_EQ(getxattr(file.c_str(), "user.any", seen.data(), seen.size()), 3);
  EXPECT_EQ(std::string(seen.data(), 3), value);
  EXPECT_EQ(ErrnoOfCall(getxattr(file.c_str(), "user.any", seen.data(), 2)), ERANGE);
  EXPECT_EQ(ErrnoOfCall(getxattr(file.c_str(), "user.none", nullptr, 0)), ENODATA);
  ASSERT_EQ(listxattr(file.c_str(), seen.data(), seen.size()), 16);
  EXPECT_EQ(std::string(seen.data(), 16), std::string("user.any\0user.b\0", 16));
  EXPECT_EQ(ErrnoOfCall(listxattr(file.c_str(), seen.data(), 15)), ERANGE);
  EXPECT_EQ(removexattr(file.c_str(), "user.any"), 0);
}

TEST_F(NameOperationsTest, AclsAreRefusedAndNotKept) {
  EXPECT_CALL(files_, SetXattr(_, _, _, _, _)).Times(0);
  Begin();
  // One that is well-formed: the kernel refuses others by itself.
  const std::array<unsigned char, 28> acl = {2,    0, 0, 0,                       // version
                                             1,    0, 6, 0, 255, 255, 255, 255,   // owner rw
                                             4,    0, 4, 0, 255, 255, 255, 255,   // group r
                                             0x20, 0, 4, 0, 255, 255, 255, 255};  // others r
  EXPECT_EQ(ErrnoOfCall(setxattr(Path("file").c_str(), "system.posix_acl_access", acl.data(),
                                 acl.size(), 0)),
            EOPNOTSUPP);
}

TEST_F(NameOperationsTest, XattrsOfNoNamespaceAreRefused) {
  EXPECT_CALL(files_, SetXattr(_, _, _, _, _)).Times(0);
  Begin();
  for (const char* name : {"any", "none.such", "user."}) {
    EXPECT_NE(setxattr(Path("file").c_str(), name, "x", 1, 0), 0) << name;
  }
  EXPECT_EQ(ErrnoOfCall(setxattr(Path("file").c_str(), "none.such", "x", 1, 0)), EOPNOTSUPP);
}

TEST_F(NameOperationsTest, CapabilitiesOfProgramsAreRefusedSoThatAWriteNeedNotAsk) {
  EXPECT_CALL(files_, GetXattr(_, _, _)).Times(0);
  EXPECT_CALL(files_, SetXattr(_, _, _, _, _)).Times(0);
  ON_CALL(files_, Write(_, _, _)).WillByDefault(Return(absl::OkStatus()));
  Begin();
  const int fd = open(Path("file").c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(write(fd, "x", 1), 1);
  close(fd);
  // Version 3, no capability, of user 0.
  const std::array<unsigned char, 24> none = {0, 0, 0, 3};
  EXPECT_EQ(ErrnoOfCall(
                setxattr(Path("file").c_str(), "security.capability", none.data(), none.size(), 0)),
            EOPNOTSUPP);
  EXPECT_EQ(ErrnoOfCall(getxattr(Path("file").c_str(), "security.capability", nullptr, 0)),
            ENODATA);
}

}  // namespace
}  // namespace abacus::objfs
