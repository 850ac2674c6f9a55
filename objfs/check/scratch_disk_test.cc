// A disk over another one, which stays as it is.

#include "objfs/check/scratch_disk.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

std::string ReadAllOf(Disk& disk, const std::string& path) {
  const auto file = disk.Open(path);
  if (!file.ok()) return "none";
  std::string bytes(*(*file)->Size(), '\0');
  EXPECT_TRUE((*file)->Read(0, std::span(bytes.data(), bytes.size())).ok());
  return bytes;
}

TEST(ScratchDiskTest, WhatIsChangedIsSeenHereAndNotBelow) {
  MemoryDisk below;
  ASSERT_TRUE(below.MakeDirectory("0").ok());
  ASSERT_TRUE((*below.Create("0/old"))->Write(0, "old bytes").ok());
  ASSERT_TRUE((*below.Create("gone"))->Write(0, "x").ok());
  ScratchDisk scratch(below);
  const auto old = scratch.Open("0/old");
  ASSERT_TRUE(old.ok());
  ASSERT_TRUE((*old)->Write(0, "new").ok());
  ASSERT_TRUE((*scratch.Create("0/made"))->Write(0, "made").ok());
  ASSERT_TRUE(scratch.Remove("gone").ok());
  EXPECT_EQ(ReadAllOf(scratch, "0/old"), "new bytes");
  EXPECT_EQ(ReadAllOf(below, "0/old"), "old bytes");
  EXPECT_EQ(*scratch.List("0"), (std::vector<std::string>{"made", "old"}));
  EXPECT_EQ(*below.List("0"), (std::vector<std::string>{"old"}));
  EXPECT_TRUE(scratch.List("")->empty());
  EXPECT_TRUE(absl::IsNotFound(scratch.Open("gone").status()));
  EXPECT_TRUE(absl::IsNotFound(scratch.Remove("gone")));
  EXPECT_EQ(ReadAllOf(below, "gone"), "x");
  // Under a name that went there may be another file.
  ASSERT_TRUE(scratch.Create("gone").ok());
  EXPECT_EQ(ReadAllOf(scratch, "gone"), "");
  EXPECT_TRUE(absl::IsAlreadyExists(scratch.Create("0/old").status()));
  ASSERT_TRUE(scratch.Rename("0/made", "0/renamed").ok());
  EXPECT_EQ(ReadAllOf(scratch, "0/renamed"), "made");
  ASSERT_TRUE((*old)->Truncate(2).ok());
  EXPECT_EQ(ReadAllOf(scratch, "0/old"), "ne");
}

}  // namespace
}  // namespace abacus::objfs
