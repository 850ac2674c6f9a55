#include "objfs/volume/inode.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

Inode Sample() {
  Inode inode;
  inode.mode = S_IFREG | 04755;
  inode.uid = 1;
  inode.gid = 2;
  inode.links = 3;
  inode.device = 4;
  inode.accessed_ns = 5;
  inode.modified_ns = 6;
  inode.changed_ns = 7;
  inode.born_ns = 8;
  inode.entries = 9;
  inode.parent = 10;
  inode.stack = "s";
  inode.xattrs = {{"user.a", "b"}};
  return inode;
}

// What is on disks must be read by every later build.
TEST(InodeTest, TheBytesAreThoseOfVersionOne) {
  const std::string bytes = Sample().Encode();
  EXPECT_EQ(absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())),
            "01"
            "ed890000010000000200000003000000"
            "0400000000000000"
            "0500000000000000060000000000000007000000000000000800000000000000"
            "0900000000000000"
            "0a00000000000000"
            "010000000000000073"
            "0100000000000000"
            "0600000000000000757365722e61"
            "010000000000000062");
  EXPECT_EQ(*Inode::Decode(bytes), Sample());
}

TEST(InodeTest, TheBytesOfAFileInColumnsAreThoseOfVersionTwo) {
  Inode spread = Sample();
  spread.columns = {2, 0, 1};
  std::string bytes = spread.Encode();
  EXPECT_EQ(*Inode::Decode(bytes), spread);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(Inode::Decode(bytes.substr(0, size)).status())) << size;
  }
  const std::string plain = Sample().Encode();
  const std::string columns("\3\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0", 20);
  EXPECT_EQ(bytes, "\2" + plain.substr(1) + columns);
}

TEST(InodeTest, TheBytesOfAFileOfWhichAColumnLacksSomethingAreThoseOfVersionThree) {
  Inode spread = Sample();
  spread.columns = {2, 0, 1};
  const std::string whole = spread.Encode();
  spread.lacking = {1};
  const std::string bytes = spread.Encode();
  EXPECT_EQ(*Inode::Decode(bytes), spread);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(Inode::Decode(bytes.substr(0, size)).status())) << size;
  }
  EXPECT_EQ(bytes, "\3" + whole.substr(1) + std::string("\1\0\0\0\0\0\0\0\1\0\0\0", 12));
}

TEST(InodeTest, ThereIsRoomForColumnsThatComeToLackSomething) {
  Inode spread = Sample();
  spread.columns = {2, 0, 1};
  InodeChange change;
  change.xattrs = {{"user.b", "", XattrRule::kAny}};
  for (;;) {
    change.xattrs[0].value->push_back('x');
    if (!Apply(change, 100, &spread).ok()) break;
  }
  spread.lacking = {0, 2};
  EXPECT_LE(spread.Encode().size(), ObjectStore::kBlobBytesMax);
}

TEST(InodeTest, WhatIsCutOffOrOfAnotherVersionIsDataLoss) {
  const std::string bytes = Sample().Encode();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(Inode::Decode(bytes.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(Inode::Decode(bytes + "x").status()));
  std::string other = bytes;
  other[0] = 9;
  EXPECT_THAT(std::string(Inode::Decode(other).status().message()),
              ::testing::HasSubstr("version 9"));
}

TEST(InodeTest, CountsAreAddedAndNeverFallBelowNothing) {
  Inode inode = Sample();
  ASSERT_TRUE(Apply({.links = 2, .entries = -9}, 100, &inode).ok());
  EXPECT_EQ(inode.links, 5u);
  EXPECT_EQ(inode.entries, 0u);
  const Inode before = inode;
  EXPECT_TRUE(absl::IsDataLoss(Apply({.touch_changed = true, .entries = -1}, 100, &inode)));
  EXPECT_EQ(inode, before);
  inode.links = Inode::kLinksMax;
  EXPECT_TRUE(absl::IsOutOfRange(Apply({.links = 1}, 100, &inode)));
}

TEST(InodeTest, NowIsWhatTheVolumesClockSays) {
  Inode inode = Sample();
  ASSERT_TRUE(
      Apply({.accessed_ns = 42, .touch_modified = true, .touch_changed = true}, 100, &inode).ok());
  EXPECT_EQ(inode.accessed_ns, 42);
  EXPECT_EQ(inode.modified_ns, 100);
  EXPECT_EQ(inode.changed_ns, 100);
  EXPECT_EQ(inode.born_ns, 8);
}

TEST(InodeTest, AProgramLosesItsOwnersRightsAndADirectoryKeepsItsGroups) {
  Inode program = Sample();
  program.mode = S_IFREG | 06755;
  ASSERT_TRUE(Apply({.drop_setid = true}, 1, &program).ok());
  EXPECT_EQ(program.mode, S_IFREG | 0755u);
  program.mode = S_IFREG | 02644;  // mandatory locking, not a right
  ASSERT_TRUE(Apply({.drop_setid = true}, 1, &program).ok());
  EXPECT_EQ(program.mode, S_IFREG | 02644u);
  Inode directory = Sample();
  directory.mode = S_IFDIR | 02755;
  ASSERT_TRUE(Apply({.drop_setid = true}, 1, &directory).ok());
  EXPECT_EQ(directory.mode, S_IFDIR | 02755u);
}

TEST(InodeTest, AttributesThatDoNotFitChangeNothing) {
  Inode inode = Sample();
  const InodeChange change{.permissions = 0,
                           .xattrs = {{"user.big", std::string(ObjectStore::kBlobBytesMax, 'x')}}};
  EXPECT_TRUE(absl::IsResourceExhausted(Apply(change, 1, &inode)));
  EXPECT_EQ(inode, Sample());
}

}  // namespace
}  // namespace abacus::objfs
