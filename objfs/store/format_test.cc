#include "objfs/store/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace abacus::objfs {
namespace {

using ::testing::HasSubstr;

const JournalHeader kJournal{
    .store = 0x1122334455667788, .number = 3, .ids_end = 65'537, .used_blocks = 2};

UpdateRecord Update() {
  return {.id = 5,
          .head = {.size_bytes = 20'000, .version = 9, .blob = "mode"},
          .blocks_before = 1,
          .blocks_after = 2,
          .runs = {{.first = 0, .count = 2, .slot = 7, .version = 9, .crcs = {0x01020304, 5}},
                   {.first = 2, .count = 1}}};
}

ContentsRecord Contents() {
  return {.id = 5, .block = 2, .slot = 9, .bytes = std::string(ObjectStore::kBlockBytes, 'c')};
}

AttributesRecord Attributes() { return {.id = 5, .version = 9, .blob = "mode", .blocks = 2}; }

TablePage Page() {
  return {.id = 5,
          .page = 0,
          .sequence = 3,
          .head = {.size_bytes = 20'000, .version = 9, .blob = "mode"},
          .blocks = {{0, {.slot = 7, .version = 9, .crc = 0x01020304}},
                     {199, {.slot = 8, .version = 8, .crc = 5}}}};
}

// In hexadecimal, with every run of more than four zero bytes as "(00 x COUNT)".
std::string Hex(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find_first_not_of('\0', at), bytes.size());
    if (end - at > 4) {
      text += "(00 x " + std::to_string(end - at) + ")";
      at = end;
    } else {
      text += absl::BytesToHexString(bytes.substr(at, 1));
      ++at;
    }
  }
  return text;
}

// The bytes of format version 3. A change here is a new format version: stores of the old one
// exist.
TEST(FormatTest, TheBytesAreThoseOfVersionThree) {
  EXPECT_EQ(Hex(EncodeSuperblock({.store = 0x1122334455667788})),
            "414241435553535403000000002000008877665544332211(00 x 4068)37f2e669");
  EXPECT_EQ(Hex(EncodeJournalHeader(kJournal)),
            "4142414355534a4c887766554433221103(00 x 7)010001(00 x 5)02(00 x 27)2330ad41");
  EXPECT_EQ(Hex(EncodeRecord(kJournal, 4, 3, EncodePayload(Update()))),
            "d9bdd40e6d00000004(00 x 7)03(00 x 7)0105(00 x 7)204e(00 x 6)09(00 x 7)04006d6f64"
            "6501(00 x 7)02(00 x 7)0200000001(00 x 8)02(00 x 7)07(00 x 7)09(00 x 7)0403020105"
            "0000000002(00 x 7)01(00 x 7)");
  EXPECT_EQ(Hex(EncodePayload(Attributes())), "0405(00 x 7)09(00 x 7)04006d6f646502(00 x 7)");
  EXPECT_EQ(Hex(EncodePayload(Attributes(), true)), "8405(00 x 7)09(00 x 7)04006d6f646502(00 x 7)");
  EXPECT_EQ(Hex(EncodePayload(RemoveRecord{.id = 5, .blocks_before = 2})),
            "0205(00 x 7)02(00 x 7)");
  EXPECT_EQ(Hex(EncodePayload(IdsRecord{.ids_end = 131'073})), "03010002(00 x 5)");
  const std::string contents = EncodePayload(Contents(), true);
  EXPECT_EQ(Hex(contents.substr(0, 25)), "8505(00 x 7)02(00 x 7)09(00 x 7)");
  EXPECT_EQ(contents.substr(25), std::string(8192, 'c'));
  EXPECT_EQ(Hex(EncodeTablePage(Page())),
            "414254500000000005(00 x 15)03(00 x 7)204e(00 x 6)09(00 x 7)04(00 x 7)6d6f6465(00"
            " x 4092)07(00 x 7)09(00 x 7)04030201(00 x 3960)08(00 x 7)08(00 x 7)05(00 x 39)c7"
            "376e5a");
}

// RFC 3720, appendix B.4.
TEST(FormatTest, TheChecksumIsCrc32c) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xe3069283u);
}

TEST(FormatTest, WhatIsEncodedDecodes) {
  EXPECT_EQ(DecodeSuperblock(EncodeSuperblock({.store = 7}))->store, 7u);
  EXPECT_EQ(*DecodeJournalHeader(EncodeJournalHeader(kJournal)), kJournal);
  for (const JournalRecord& record :
       {JournalRecord(Update()), JournalRecord(Attributes()),
        JournalRecord(RemoveRecord{.id = 5, .blocks_before = 2}),
        JournalRecord(IdsRecord{.ids_end = 9}), JournalRecord(Contents())}) {
    for (const bool more : {false, true}) {
      const auto payload = DecodePayload(EncodePayload(record, more));
      ASSERT_TRUE(payload.ok()) << payload.status();
      EXPECT_TRUE(payload->record == record);
      EXPECT_EQ(payload->more, more);
    }
  }
  const auto page = DecodeTablePage(5, 0, EncodeTablePage(Page()));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->head, Page().head);
  EXPECT_EQ(page->blocks, Page().blocks);
  EXPECT_EQ(page->sequence, 3u);
}

TEST(FormatTest, VersionTwoIsTaken) {
  const auto superblock = DecodeSuperblock(EncodeSuperblock({.store = 7, .version = 2}));
  ASSERT_TRUE(superblock.ok()) << superblock.status();
  EXPECT_EQ(superblock->version, 2u);
}

TEST(FormatTest, ContentsOfAnotherLengthAreDamage) {
  const std::string bytes = EncodePayload(Contents());
  EXPECT_TRUE(absl::IsDataLoss(DecodePayload(bytes.substr(0, bytes.size() - 1)).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodePayload(bytes + "c").status()));
}

TEST(FormatTest, AnUnknownVersionIsRefusedWithTheWayOut) {
  std::string bytes = EncodeSuperblock({.store = 7});
  bytes[8] = 1;
  const absl::Status status = DecodeSuperblock(bytes).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("copy its objects"));
}

// Flips each bit of `bytes` in turn.
template <typename Refused>
void ForEachFlip(const std::string& bytes, Refused refused) {
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(refused(flipped)) << "bit " << bit;
  }
}

TEST(FormatTest, NoFlippedBitIsTakenForTheOriginal) {
  ForEachFlip(EncodeJournalHeader(kJournal),
              [](const std::string& bytes) { return !DecodeJournalHeader(bytes).ok(); });
  ForEachFlip(EncodeRecord(kJournal, 4, 3, EncodePayload(Update())),
              [](const std::string& bytes) { return !DecodeRecord(kJournal, bytes).has_value(); });
  const std::string page = EncodeTablePage(Page());
  // The whole page would be 65,536 checksums of it.
  for (size_t bit = 0; bit < 8 * page.size(); bit += 61) {
    std::string flipped = page;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(absl::IsDataLoss(DecodeTablePage(5, 0, flipped).status())) << "bit " << bit;
  }
}

TEST(FormatTest, ARecordOfAnotherStoreOrJournalIsNone) {
  const std::string bytes = EncodeRecord(kJournal, 4, 3, EncodePayload(Update()));
  EXPECT_TRUE(DecodeRecord(kJournal, bytes).has_value());
  JournalHeader other = kJournal;
  other.number = 4;
  EXPECT_FALSE(DecodeRecord(other, bytes).has_value());
  other = kJournal;
  other.store = 1;
  EXPECT_FALSE(DecodeRecord(other, bytes).has_value());
}

TEST(FormatTest, APageOfAnotherObjectOrPlaceIsDamage) {
  const std::string bytes = EncodeTablePage(Page());
  EXPECT_TRUE(absl::IsDataLoss(DecodeTablePage(6, 0, bytes).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeTablePage(5, 1, bytes).status()));
  EXPECT_TRUE(absl::IsNotFound(DecodeTablePage(5, 0, std::string(kTablePageBytes, '\0')).status()));
}

TEST(FormatTest, BlocksAndPagesAgree) {
  for (const uint64_t block : {uint64_t{0}, uint64_t{199}, uint64_t{200}, uint64_t{599},
                               uint64_t{600}, kObjectBlocksMax - 1}) {
    const uint64_t page = PageOfBlock(block);
    EXPECT_LE(FirstBlockOfPage(page), block);
    EXPECT_GT(FirstBlockOfPage(page + 1), block);
  }
}

}  // namespace
}  // namespace abacus::objfs
