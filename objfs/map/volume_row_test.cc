#include "objfs/map/volume_row.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/codec.h"

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

TEST(VolumeRowTest, TravelsAsItsTextAndComesAsNoRowThatMakesNoSense) {
  runtime::Writer writer;
  runtime::Encode(writer, SampleRow());
  runtime::Encode(writer, VolumeRow());
  writer.PutString("abacus volume map 1\nkey 0000000000000abc\nepoch 7\nprimary 9\nend\n");
  const runtime::Payload payload = std::move(writer).Finish();
  runtime::Reader reader(payload);
  EXPECT_EQ(runtime::Decoded<VolumeRow>(reader), SampleRow());
  EXPECT_EQ(runtime::Decoded<VolumeRow>(reader), VolumeRow());
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(runtime::Decoded<VolumeRow>(reader), VolumeRow());
  EXPECT_FALSE(reader.ok());
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

TEST(VolumeRowTest, AVacantPlaceIsOfVersionTwoAndKeepsNothing) {
  VolumeRow row = SampleRow();
  row.servers.push_back("s4:7070");
  row.servers[2] = kVacant;
  EXPECT_EQ(row.Encode(),
            "abacus volume map 2\nkey 0000000000000abc\nepoch 7\nprimary 1\ncopy 0 behind\n"
            "copy 1 current\nserver 127.0.0.1:7070\nserver s2:7070\nserver -\nserver s4:7070\n"
            "end\n");
  EXPECT_EQ(*VolumeRow::Decode(row.Encode()), row);
  EXPECT_THAT(row.FreshPlaces(), ::testing::ElementsAre(3));
  std::string first = row.Encode();
  first.replace(first.find(" 2\n"), 3, " 1\n");
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(first).status()));
  row.servers[0] = kVacant;
  EXPECT_TRUE(absl::IsDataLoss(VolumeRow::Decode(row.Encode()).status())) << "it keeps a copy";
}

TEST(VolumeRowTest, ACopyThatIsCurrentIsMovedToOneThatIsNot) {
  VolumeRow row = SampleRow();
  row.SetCurrent(0, true);
  row.MoveCopy(0, 2);
  EXPECT_TRUE(row.IsCopy(2) && !row.IsCurrent(2) && !row.IsCopy(0));
  EXPECT_EQ(*VolumeRow::Decode(row.Encode()), row);
}

TEST(VolumeRowTest, AChangeIsOfARowThatIsPlacedAsItWasWhenPlanned) {
  const VolumeRow planned = SampleRow();
  VolumeRow row = planned;
  row.SetCurrent(0, true);
  EXPECT_TRUE(row.IsPlacedAs(planned)) << "a copy has caught up, which is nobody's change";
  VolumeRow moved = planned, later = planned, more = planned, fewer = planned;
  moved.MoveCopy(0, 2);
  ++later.epoch;
  more.servers.push_back("s4:7070");
  fewer.copies.pop_back();
  for (const VolumeRow& other : {moved, later, more, fewer}) {
    EXPECT_FALSE(other.IsPlacedAs(planned)) << other.Encode();
  }
}

TEST(VolumeRowTest, WhatIsCutOffOrOfALaterVersionIsRefused) {
  const std::string text = SampleRow().Encode();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(VolumeRow::Decode(text.substr(0, size)).ok()) << size;
  }
  std::string later = text;
  later.replace(later.find(" 1\n"), 3, " 3\n");
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
