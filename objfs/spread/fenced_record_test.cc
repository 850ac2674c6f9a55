#include "objfs/spread/fenced_record.h"

#include <string>

#include "gtest/gtest.h"
#include "objfs/raid/column_record.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {
namespace {

using namespace std::string_literals;

TEST(FencedRecordTest, TheBytesAreThoseOfVersionOne) {
  const FencedRecord fenced{.opening = {0x0102030405060708}, .record = "R5 and so on"};
  EXPECT_EQ(fenced.Encode(), "CF\x01\x08\x07\x06\x05\x04\x03\x02\x01R5 and so on"s);
  EXPECT_EQ(*FencedRecord::Decode(fenced.Encode()), fenced);
  EXPECT_EQ(fenced.Encode().size(), fenced.record.size() + FencedRecord::kBytesMore);
  const FencedRecord empty{.opening = {3}, .record = ""};
  EXPECT_EQ(*FencedRecord::Decode(empty.Encode()), empty);
}

TEST(FencedRecordTest, RecordsOfEarlierBuildsAreOfNoOpening) {
  for (const std::string record : {"", "R5 and so on", "MR", "C", "cf\x01\x01\x01"}) {
    const auto fenced = FencedRecord::Decode(record);
    ASSERT_TRUE(fenced.ok()) << fenced.status();
    EXPECT_EQ(fenced->opening, Version());
    EXPECT_EQ(fenced->record, record);
  }
}

TEST(FencedRecordTest, WhatIsCutOffIsDataLossAndALaterVersionIsRefused) {
  const std::string bytes = FencedRecord{.opening = {~uint64_t{0}}, .record = ""}.Encode();
  for (size_t length = 2; length < bytes.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(FencedRecord::Decode(bytes.substr(0, length)).status())) << length;
  }
  std::string other = bytes;
  other[2] = 2;
  EXPECT_TRUE(absl::IsFailedPrecondition(FencedRecord::Decode(other).status()));
  other[2] = 0;
  EXPECT_TRUE(absl::IsDataLoss(FencedRecord::Decode(other).status()));
}

TEST(FencedRecordTest, TheLargestRecordFitsTheAttributesOfAStore) {
  EXPECT_LE(ColumnRecord::kBytesMax + FencedRecord::kBytesMore, ObjectStore::kBlobBytesMax);
}

}  // namespace
}  // namespace abacus::objfs
