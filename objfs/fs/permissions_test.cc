#include "objfs/fs/permissions.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

const Caller kRootCaller;
const Caller kOwner{.uid = 10, .gid = 20, .groups = {21}, .checked = false};
const Caller kOther{.uid = 11, .gid = 30, .groups = {20}, .checked = false};
const Caller kStranger{.uid = 12, .gid = 31, .groups = {}, .checked = false};

Inode InodeOf(uint32_t mode) {
  Inode inode;
  inode.mode = mode;
  inode.uid = 10;
  inode.gid = 20;
  return inode;
}

FsError Asked(const absl::Status& status) { return FsErrorOf(status); }

TEST(PermissionsTest, EachCallerIsOfOneClassOnly) {
  const Inode inode = InodeOf(S_IFREG | 0074);
  EXPECT_EQ(Asked(MayAccess(kOwner, inode, R_OK)), FsError::kAccess);  // though the group may
  EXPECT_EQ(Asked(MayAccess(kOther, inode, R_OK | W_OK | X_OK)), FsError::kNone);
  EXPECT_EQ(Asked(MayAccess(kStranger, inode, R_OK)), FsError::kNone);
  EXPECT_EQ(Asked(MayAccess(kStranger, inode, W_OK)), FsError::kAccess);
}

TEST(PermissionsTest, TheSuperuserExecutesWhatSomebodyMay) {
  EXPECT_EQ(Asked(MayAccess(kRootCaller, InodeOf(S_IFREG | 0666), X_OK)), FsError::kAccess);
  EXPECT_EQ(Asked(MayAccess(kRootCaller, InodeOf(S_IFREG | 0001), X_OK)), FsError::kNone);
  EXPECT_EQ(Asked(MayAccess(kRootCaller, InodeOf(S_IFDIR), R_OK | W_OK | X_OK)), FsError::kNone);
}

TEST(PermissionsTest, AStickyDirectoryKeepsOthersFiles) {
  Inode directory = InodeOf(S_IFDIR | 01777);
  directory.uid = 99;
  const Inode file = InodeOf(S_IFREG | 0666);
  EXPECT_EQ(Asked(MayRemove(kOwner, directory, file)), FsError::kNone);
  EXPECT_EQ(Asked(MayRemove(kOther, directory, file)), FsError::kNotPermitted);
  EXPECT_EQ(Asked(MayRemove(kRootCaller, directory, file)), FsError::kNone);
  directory.mode = S_IFDIR | 0777;
  EXPECT_EQ(Asked(MayRemove(kOther, directory, file)), FsError::kNone);
}

TEST(PermissionsTest, OnlyTheSuperuserGivesAFileAway) {
  const Inode file = InodeOf(S_IFREG | 0666);
  EXPECT_EQ(Asked(MaySet(kOwner, file, {.uid = 11})), FsError::kNotPermitted);
  EXPECT_EQ(Asked(MaySet(kOwner, file, {.gid = 21})), FsError::kNone);
  EXPECT_EQ(Asked(MaySet(kOwner, file, {.gid = 99})), FsError::kNotPermitted);
  EXPECT_EQ(Asked(MaySet(kOther, file, {.gid = 30})), FsError::kNotPermitted);
  EXPECT_EQ(Asked(MaySet(kRootCaller, file, {.uid = 11, .gid = 99})), FsError::kNone);
}

TEST(PermissionsTest, TimesAreTheOwnersAndNowIsWhoeverMayWrites) {
  const Inode file = InodeOf(S_IFREG | 0666);
  EXPECT_EQ(Asked(MaySet(kStranger, file, {.modified_ns = 1})), FsError::kNotPermitted);
  EXPECT_EQ(Asked(MaySet(kStranger, file, {.modified_now = true})), FsError::kNone);
  EXPECT_EQ(Asked(MaySet(kStranger, InodeOf(S_IFREG | 0644), {.modified_now = true})),
            FsError::kAccess);
}

TEST(PermissionsTest, WhatIsMadeInASetGroupIdDirectoryIsOfItsGroup) {
  Inode directory = InodeOf(S_IFDIR | 02777);
  directory.gid = 77;
  EXPECT_EQ(NewInode(kOwner, directory, S_IFREG | 0644, 0).gid, 77u);
  EXPECT_EQ(NewInode(kOwner, directory, S_IFDIR | 0755, 0).mode, S_IFDIR | 02755u);
  // A program that would run with a group's rights that its maker does not have.
  EXPECT_EQ(NewInode(kOwner, directory, S_IFREG | 02755, 0).mode, S_IFREG | 0755u);
  EXPECT_EQ(NewInode(kRootCaller, directory, S_IFREG | 02755, 0).mode, S_IFREG | 02755u);
}

TEST(PermissionsTest, WhoIsNotInTheGroupGivesNoGroupsRights) {
  const Inode file = InodeOf(S_IFREG | 0755);
  const Caller outside{.uid = 10, .gid = 5, .groups = {}, .checked = false};
  EXPECT_EQ(ChangeOf(outside, file, {.permissions = 02755}).permissions, 0755u);
  EXPECT_EQ(ChangeOf(kOwner, file, {.permissions = 02755}).permissions, 02755u);
  EXPECT_TRUE(ChangeOf(kOwner, file, {.gid = 21}).drop_setid);
}

}  // namespace
}  // namespace abacus::objfs
