#include "objfs/map/volume_row.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

VolumeRow SampleRow() {
  return {.key = 0xabc,
          .epoch = 7,
          .primary = 1,
          .servers = {"127.0.0.1:7070", "s2:7070", "s3:7070"},
          .copies = {{0, false}, {1, true}},
          .former = {}};
}

// What is in maps must be read by every later build.
TEST(VolumeRowTest, TheTextIsThatOfVersionOne) {
  EXPECT_EQ(SampleRow().Encode(),
            "abacus volume map 1\nkey 0000000000000abc\nepoch 7\nprimary 1\ncopy 0 behind\n"
            "copy 1 current\nserver 127.0.0.1:7070\nserver s2:7070\nserver s3:7070\nend\n");
  EXPECT_EQ(*VolumeRow::Decode(SampleRow().Encode()), SampleRow());
}

TEST(VolumeRowTest, APlaceThatKeptMetadataOnceKeepsItNeverAgain) {
  VolumeRow row = SampleRow();
  EXPECT_THAT(row.FreshPlaces(), ::testing::ElementsAre(2));
  row.MoveCopy(0, 2);
  EXPECT_FALSE(row.IsCopy(0));
  EXPECT_TRUE(row.IsCopy(2) && !row.IsCurrent(2));
  EXPECT_THAT(row.FreshPlaces(), ::testing::IsEmpty());
  EXPECT_THAT(row.Encode(), ::testing::HasSubstr("\nformer 0\n"));
  EXPECT_EQ(*VolumeRow::Decode(row.Encode()), row);
  row.servers.push_back("s4:7070");
  EXPECT_THAT(row.FreshPlaces(), ::testing::ElementsAre(3));
  row.former.push_back(2);  // a copy
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status()));
}

TEST(VolumeRowTest, WhatIsCutOffOrOfALaterVersionIsRefused) {
  const std::string text = SampleRow().Encode();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(VolumeRow::Decode(text.substr(0, size)).ok()) << size;
  }
  std::string later = text;
  later.replace(later.find(" 1\n"), 3, " 2\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(VolumeRow::Decode(later).status()));
}

TEST(VolumeRowTest, APrimaryThatIsNotCurrentAndCopiesThatAreNowhereAreRefused) {
  VolumeRow row = SampleRow();
  row.primary = 0;
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status()));
  row = SampleRow();
  row.copies.push_back({3, false});
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status()));
  row = SampleRow();
  row.copies.push_back({1, false});
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status()));
  row = SampleRow();
  row.epoch = 0;
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status()));
}

}  // namespace
}  // namespace abacus::objfs
