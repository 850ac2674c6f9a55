#include "objfs/directory/block_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace abacus::objfs {
namespace {

using ::testing::HasSubstr;

const HashSeed kSeed{0x1122334455667788, 0x99aabbccddeeff00};

BlockHead Root() { return {.seed = kSeed, .blocks = 1}; }
BlockHead Leaf() {
  return {.bits = 3, .first = Position{5} << (kPositionBits - 3), .seed = kSeed, .number = 7};
}
BlockHead Table() {
  return {.kind = BlockKind::kTable, .depth = 2, .seed = kSeed, .number = 0, .blocks = 4};
}
std::vector<LeafEntry> EntriesFrom(Position first) {
  return {{first + 16, {9, S_IFREG}, "a"}, {first + 17, {0x0102030405060708, S_IFDIR}, "etc"}};
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

absl::Status DecodeAll(const std::string& block, uint32_t number) {
  const auto head = DecodeHead(block, number);
  if (!head.ok()) return head.status();
  return head->kind == BlockKind::kLeaf ? DecodeLeaf(*head, block).status()
                                        : DecodeSlots(*head, block).status();
}

// The bytes of format version 1. A change here is a new format version: directories of the old one
// exist.
TEST(BlockFormatTest, TheBytesAreThoseOfVersionOne) {
  EXPECT_EQ(Hex(EncodeLeaf(Root(), {})),
            "414244520101(00 x 10)887766554433221100ffeeddccbbaa990000000001(00 x 8155)");
  EXPECT_EQ(
      Hex(EncodeLeaf(Leaf(), EntriesFrom(Leaf().first))),
      "41424452010103(00 x 8)50887766554433221100ffeeddccbbaa9907(00 x 7)020028(00 x 5)10(00 x 6)"
      "5009(00 x 7)08016111(00 x 6)5008070605040302010403657463(00 x 8104)");
  EXPECT_EQ(
      Hex(EncodeTable(Table(), {1, 1, 2, 3})),
      "4142445201020002(00 x 8)887766554433221100ffeeddccbbaa990000000004(00 x 11)0100000001000000"
      "0200000003(00 x 8131)");
}

// The first and later vectors of the reference implementation: key 00 01 .. 0f, message 00 01 ..
TEST(BlockFormatTest, TheHashIsSipHash24) {
  const HashSeed seed{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string message;
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 16; ++i) {
    hashes.push_back(SipHash(seed, message));
    message.push_back(static_cast<char>(i));
  }
  EXPECT_EQ(hashes[0], 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hashes[1], 0x74f839c593dc67fdu);
  EXPECT_EQ(hashes[7], 0xab0200f58b01d137u);
  EXPECT_EQ(hashes[8], 0x93f5f5799a932462u);
  EXPECT_EQ(hashes[15], 0xa129ca6149be45e5u);
}

TEST(BlockFormatTest, PositionsHave63BitsAndBeginAt16) {
  EXPECT_EQ(FirstPosition(0), kPositionMin);
  EXPECT_EQ(FirstPosition(31), kPositionMin);
  EXPECT_EQ(FirstPosition(64), 2 * kPositionMin);
  EXPECT_EQ(FirstPosition(~uint64_t{0}), kPositionEnd - kCollisionsMax);
}

TEST(BlockFormatTest, WhatIsEncodedDecodes) {
  const auto entries = EntriesFrom(Leaf().first);
  const std::string leaf = EncodeLeaf(Leaf(), entries);
  const auto head = DecodeHead(leaf, 7);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->entries, 2);
  EXPECT_EQ(head->first, Leaf().first);
  EXPECT_TRUE(head->Covers(head->first));
  EXPECT_FALSE(head->Covers(head->end()));
  EXPECT_EQ(*DecodeLeaf(*head, leaf), entries);

  const std::string table = EncodeTable(Table(), {1, 1, 2, 3});
  const auto table_head = DecodeHead(table, 0);
  ASSERT_TRUE(table_head.ok()) << table_head.status();
  EXPECT_EQ(*table_head, Table());
  EXPECT_EQ(*DecodeSlots(*table_head, table), (std::vector<uint32_t>{1, 1, 2, 3}));
  EXPECT_EQ(SlotOf(*table_head, kPositionEnd - 1), 3u);
}

TEST(BlockFormatTest, ALeafIsFullToTheLastByte) {
  const std::string name(kNameBytesMax, 'n');
  std::vector<LeafEntry> entries;
  for (Position at = kPositionMin; entries.size() < kLeafBytesMax / BytesOf(name); ++at) {
    entries.push_back({at, {1, S_IFREG}, name});
  }
  const std::string rest(kLeafBytesMax % BytesOf(name) - kEntryHeadBytes, 'r');
  entries.push_back({kPositionMin + 100, {1, S_IFREG}, rest});
  ASSERT_TRUE(LeafFits(entries));
  const std::string block = EncodeLeaf(Root(), entries);
  EXPECT_EQ(block.back(), 'r');
  EXPECT_EQ(*DecodeLeaf(*DecodeHead(block, 0), block), entries);
}

TEST(BlockFormatTest, AScanFindsANameAmongThoseOfItsKey) {
  const std::string block = EncodeLeaf(Root(), {{32, {1, S_IFREG}, "other"},
                                                {48, {2, S_IFREG}, "one"},
                                                {49, {3, S_IFREG}, "two"},
                                                {64, {4, S_IFREG}, "two"}});
  const auto head = DecodeHead(block, 0);
  LeafEntry found;
  EXPECT_TRUE(LeafScan(*head, block).Find(3, "two", &found));
  EXPECT_EQ(found.entry.id, 3u);
  EXPECT_EQ(found.position, 49u);
  EXPECT_TRUE(LeafScan(*head, block).Find(4, "two", &found));
  EXPECT_EQ(found.entry.id, 4u);
  EXPECT_FALSE(LeafScan(*head, block).Find(3, "other", &found));
  EXPECT_FALSE(LeafScan(*head, block).Find(5, "two", &found));
}

struct Wrong {
  size_t at;
  uint8_t byte;
  const char* cause;
};

TEST(BlockFormatTest, DamageIsNamedWithItsBlock) {
  const std::string leaf = EncodeLeaf(Leaf(), EntriesFrom(Leaf().first));
  const std::string table = EncodeTable(Table(), {1, 1, 2, 3});
  constexpr size_t kBody = kBlockHeadBytes;
  const std::vector<std::pair<const std::string&, std::vector<Wrong>>> all = {
      {leaf,
       {{0, 'X', "it is none"},
        {4, 2, "format version 2"},
        {5, 3, "an unknown kind"},
        {5, 2, "a wrong depth"},
        {6, 60, "more bits"},
        {6, 2, "does not fit its bits"},
        {7, 1, "a leaf with a depth"},
        {15, 0x80, "does not fit its bits"},
        {32, 8, "it belongs elsewhere"},
        {36, 1, "a wrong count of blocks"},
        {40, 3, "2 entries where the head says 3"},
        {42, 0, "entries where the head says 2"},
        {42, 20, "an entry is cut off"},
        {43, 0x20, "more entries than fit"},
        {kBody, 17, "an entry is out of order"},
        {kBody + 7, 0, "entry 0 belongs elsewhere"},
        {kBody + 8, 0, "a wrong entry"},
        {kBody + 16, 16, "a wrong entry"},
        {kBody + 17, 200, "a name is cut off"},
        {kBody + 18, '/', "that no entry may have"}}},
      {table,
       {{5, 1, "a leaf with a depth"},
        {6, 1, "begins with no bits"},
        {7, 0, "a wrong depth"},
        {7, 11, "a wrong depth"},
        {7, 3, "a slot leads to block 0"},
        {36, 0, "a wrong count of blocks"},
        {40, 1, "a table with entries"},
        {kBody, 0, "a slot leads to block 0"},
        {kBody + 3, 0xff, "a slot leads to block"}}}};
  for (const auto& [block, mistakes] : all) {
    const uint32_t number = &block == &leaf ? 7 : 0;
    ASSERT_TRUE(DecodeAll(block, number).ok());
    for (const Wrong& wrong : mistakes) {
      std::string damaged = block;
      damaged[wrong.at] = static_cast<char>(wrong.byte);
      const absl::Status status = DecodeAll(damaged, number);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      const std::string message(status.message());
      EXPECT_THAT(message, HasSubstr(wrong.cause)) << "byte " << wrong.at;
      EXPECT_THAT(message, HasSubstr("block " + std::to_string(number) + " of the directory"));
    }
  }
}

TEST(BlockFormatTest, NamesThatNoEntryMayHaveAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"),
        std::string("a\0b", 3), std::string(kNameBytesMax + 1, 'n')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckName(name))) << name;
  }
  for (const std::string& name : {std::string("..."), std::string(" "), std::string("\xff\x01\n"),
                                  std::string(kNameBytesMax, 'n')}) {
    EXPECT_TRUE(CheckName(name).ok()) << name;
  }
}

}  // namespace
}  // namespace abacus::objfs
