#include "objfs/raid/column_record.h"

#include <functional>
#include <random>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

ColumnRecord Sample() {
  ColumnRecord record;
  record.columns = 5;
  record.column = 2;
  record.unit_bytes = 32 << 10;
  record.sequence = 9;
  record.durable = {8, 6, 9, 8, 7};
  record.size = 1 << 20;
  record.changed = {66};
  record.missing = 4;
  record.written.Add({1, 3});
  record.missed.Add({0, 2});
  record.missed.Add({5, 6});
  record.doubtful.Add({3, 4});
  record.inode = "in";
  return record;
}

ColumnRecord StagedSample() {
  ColumnRecord record = Sample();
  record.staged = {
      {.stripe = 6, .at = (3 * 32 + 4) << 10, .bytes = 8192, .slot = 31, .crcs = {0x11, 0x22}},
      {.stripe = 2, .at = 0, .bytes = 1, .slot = 0, .crcs = {0x33, 0x44}}};
  return record;
}

// And one that lies in three units.
ColumnRecord WideSample() {
  ColumnRecord record = Sample();
  record.ragged = true;
  record.staged = {{.stripe = 6,
                    .at = (32 << 10) - 1,
                    .bytes = (32 << 10) + 2,
                    .slot = 5,
                    .crcs = {0x11, 0x22, 0x33, 0x44}}};
  return record;
}

// What is on disks must be read by every later build.
TEST(ColumnRecordTest, TheBytesAreThoseOfVersionFour) {
  const std::string bytes = WideSample().Encode();
  EXPECT_EQ(absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())),
            "5235"
            "04"
            "050204"
            "00800000"
            "0900000000000000"
            "0800000000000000"
            "0600000000000000"
            "0900000000000000"
            "0800000000000000"
            "0700000000000000"
            "0000100000000000"
            "4200000000000000"
            "01"
            "01000100000003000000"
            "020000000000020000000500000006000000"
            "01000300000004000000"
            "01"
            "06000000"
            "ff7f0000"
            "02800000"
            "0504"
            "11000000"
            "22000000"
            "33000000"
            "44000000"
            "0200696e");
  EXPECT_EQ(*ColumnRecord::Decode(bytes), WideSample());
  EXPECT_EQ(*ColumnRecord::Decode(StagedSample().Encode()), StagedSample());
}

TEST(ColumnRecordTest, OneOfVersionThreeIsRead) {
  const std::string bytes = absl::HexStringToBytes(
      "5235"
      "03"
      "050204"
      "00800000"
      "0900000000000000"
      "0800000000000000"
      "0600000000000000"
      "0900000000000000"
      "0800000000000000"
      "0700000000000000"
      "0000100000000000"
      "4200000000000000"
      "01000100000003000000"
      "020000000000020000000500000006000000"
      "01000300000004000000"
      "02"
      "06000000"
      "00100000"
      "00200000"
      "11000000"
      "22000000"
      "031f"
      "02000000"
      "00000000"
      "01000000"
      "33000000"
      "44000000"
      "0000"
      "0200696e");
  const auto record = ColumnRecord::Decode(bytes);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(*record, StagedSample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
}

TEST(ColumnRecordTest, OneOfVersionTwoIsRead) {
  const std::string bytes = absl::HexStringToBytes(
      "5235"
      "02"
      "050204"
      "00800000"
      "0900000000000000"
      "0800000000000000"
      "0600000000000000"
      "0900000000000000"
      "0800000000000000"
      "0700000000000000"
      "0000100000000000"
      "4200000000000000"
      "01000100000003000000"
      "020000000000020000000500000006000000"
      "01000300000004000000"
      "0200696e");
  const auto record = ColumnRecord::Decode(bytes);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(*record, Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
}

TEST(ColumnRecordTest, StagedWritesThatCannotBeAreDataLoss) {
  for (const std::string& bytes : {StagedSample().Encode(), WideSample().Encode()}) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
    }
  }
  const auto with = [](const std::function<void(ColumnRecord::Staged&)>& change) {
    ColumnRecord record = StagedSample();
    change(record.staged[1]);
    return ColumnRecord::Decode(record.Encode()).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.bytes = 0; })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.at = 4 * 32 << 10; }))) << "behind it";
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.slot = 31; }))) << "one slot twice";
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.slot = ColumnRecord::kSlots; })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.stripe = UINT32_MAX; })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.crcs.pop_back(); }))) << "no parity";
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.crcs.push_back(1); })));
  EXPECT_TRUE(absl::IsDataLoss(with([](auto& one) { one.bytes = (32 << 10) + 1; })))
      << "two units, and one's sum";
  ColumnRecord large = StagedSample();
  large.unit_bytes = 64 << 10;
  large.staged[1].bytes = (32 << 10) + 1;
  EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(large.Encode()).status())) << "over a slot";
  ColumnRecord many = Sample();
  for (size_t slot = 0; slot <= ColumnRecord::kSlots; ++slot) {
    many.staged.push_back({.stripe = 1, .at = 0, .bytes = 1, .slot = slot, .crcs = {1, 2}});
  }
  EXPECT_FALSE(many.Fits());
  EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(many.Encode()).status()));
}

// It had what all live columns had durable, and what the missing one had.
TEST(ColumnRecordTest, OneOfVersionOneIsRead) {
  const std::string bytes = absl::HexStringToBytes(
      "5235"
      "01"
      "050204"
      "00800000"
      "0900000000000000"
      "0800000000000000"
      "0700000000000000"
      "0000100000000000"
      "4200000000000000"
      "01000100000003000000"
      "020000000000020000000500000006000000"
      "01000300000004000000"
      "0200696e");
  ColumnRecord expected = Sample();
  expected.durable = {8, 8, 8, 8, 7};
  const auto record = ColumnRecord::Decode(bytes);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(*record, expected);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
}

ColumnRecord MirrorSample() {
  ColumnRecord record = Sample();
  record.kind = ColumnRecord::Kind::kMirror;
  record.columns = 3;
  record.durable = {7, 9, 8};
  record.missing.reset();
  record.doubtful.clear();
  record.lacking = {0, 1};
  return record;
}

TEST(ColumnRecordTest, TheBytesOfAMirroredFilesAreThoseOfVersionTwo) {
  const std::string bytes = MirrorSample().Encode();
  EXPECT_EQ(absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())),
            "4d52"
            "02"
            "0302"
            "00800000"
            "0900000000000000"
            "0700000000000000"
            "0900000000000000"
            "0800000000000000"
            "0000100000000000"
            "4200000000000000"
            "020001"
            "01000100000003000000"
            "020000000000020000000500000006000000"
            "0200696e");
  EXPECT_EQ(*ColumnRecord::Decode(bytes), MirrorSample());
  EXPECT_EQ(MirrorSample().Stripes(), 32u);
  EXPECT_EQ(Sample().Stripes(), 8u);
}

TEST(ColumnRecordTest, AMirroredFilesOfVersionOneIsRead) {
  const std::string bytes = absl::HexStringToBytes(
      "4d52"
      "01"
      "0302"
      "00800000"
      "0900000000000000"
      "0800000000000000"
      "0000100000000000"
      "4200000000000000"
      "02"
      "000700000000000000"
      "010900000000000000"
      "01000100000003000000"
      "020000000000020000000500000006000000"
      "0200696e");
  const auto record = ColumnRecord::Decode(bytes);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(*record, MirrorSample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
}

TEST(ColumnRecordTest, AMirroredFilesThatIsCutOffOrDamagedIsDataLoss) {
  const std::string bytes = MirrorSample().Encode();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
  const auto damaged = [&](size_t at, char c) {
    std::string other = bytes;
    other[at] = c;
    return ColumnRecord::Decode(other).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(damaged(3, 1))) << "one copy";
  EXPECT_TRUE(absl::IsDataLoss(damaged(4, 3))) << "the fourth of three";
  EXPECT_TRUE(absl::IsDataLoss(damaged(6, 1))) << "units that are no power of two";
  EXPECT_TRUE(absl::IsDataLoss(damaged(17, 10))) << "more durable than there is";
  EXPECT_TRUE(absl::IsDataLoss(damaged(57, 9))) << "more copies lack something than there are";
  EXPECT_TRUE(absl::IsDataLoss(damaged(58, 1))) << "twice the same";
  EXPECT_TRUE(absl::IsDataLoss(damaged(59, 3))) << "the fourth of three";
}

TEST(ColumnRecordTest, WhatIsCutOffOrDamagedIsDataLoss) {
  const std::string bytes = Sample().Encode();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(ColumnRecord::Decode(bytes + "x").status()));
  const auto damaged = [&](size_t at, char c) {
    std::string other = bytes;
    other[at] = c;
    return ColumnRecord::Decode(other).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(damaged(0, 'x')));
  EXPECT_TRUE(absl::IsDataLoss(damaged(4, 5))) << "the sixth column of five";
  EXPECT_TRUE(absl::IsDataLoss(damaged(5, 5))) << "the sixth is missing";
  EXPECT_TRUE(absl::IsDataLoss(damaged(6, 1))) << "units that are no power of two";
  EXPECT_TRUE(absl::IsDataLoss(damaged(18, 10))) << "more durable than there is";
  EXPECT_TRUE(absl::IsDataLoss(damaged(76, 3))) << "an empty run";
  EXPECT_TRUE(absl::IsDataLoss(damaged(94, 1))) << "runs that do not rise";
}

TEST(ColumnRecordTest, OneOfALaterVersionIsNotTakenForDamage) {
  std::string bytes = Sample().Encode();
  bytes[2] = 9;
  const absl::Status status = ColumnRecord::Decode(bytes).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("version 9"));
}

TEST(ColumnRecordTest, TheLargestFitsTheAttributesOfAStore) {
  ColumnRecord record = Sample();
  record.columns = 13;
  record.durable.resize(13);
  record.written.clear(), record.missed.clear(), record.doubtful.clear();
  for (size_t i = 0; i < ColumnRecord::kWrittenRunsMax; ++i) record.written.Add({2 * i, 2 * i + 1});
  for (size_t i = 0; i < ColumnRecord::kMissedRunsMax; ++i) record.missed.Add({2 * i, 2 * i + 1});
  for (size_t i = 0; i < ColumnRecord::kDoubtfulRunsMax; ++i) {
    record.doubtful.Add({2 * i, 2 * i + 1});
  }
  record.inode = std::string(ColumnRecord::kInodeBytesMax, 'i');
  ASSERT_TRUE(record.Fits());
  EXPECT_LE(record.Encode().size(), ColumnRecord::kBytesMax);
  EXPECT_EQ(*ColumnRecord::Decode(record.Encode()), record);
  record.missed.Add({1000, 1001});
  EXPECT_FALSE(record.Fits());
}

TEST(ColumnRecordTest, WhatOfManyColumnsIsTooLargeTogetherDoesNotFit) {
  ColumnRecord record = Sample();
  record.written.clear(), record.missed.clear(), record.doubtful.clear();
  record.columns = 17;
  record.durable.resize(17);
  for (size_t i = 0; i < ColumnRecord::kWrittenRunsMax; ++i) record.written.Add({2 * i, 2 * i + 1});
  for (size_t i = 0; i < ColumnRecord::kMissedRunsMax; ++i) record.missed.Add({2 * i, 2 * i + 1});
  for (size_t i = 0; i < ColumnRecord::kDoubtfulRunsMax; ++i) {
    record.doubtful.Add({2 * i, 2 * i + 1});
  }
  record.inode = std::string(ColumnRecord::kInodeBytesMax, 'i');
  EXPECT_FALSE(record.Fits());
  record.written.clear();  // as a flush leaves it
  EXPECT_TRUE(record.Fits());
}

TEST(StripeSetTest, IsAPlainSet) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    StripeSet set;
    std::set<uint64_t> plain;
    for (int i = 0; i < 100; ++i) {
      const uint64_t begin = random() % 60, end = begin + random() % 8;
      if (random() % 2 == 0) {
        set.Add({begin, end});
        for (uint64_t s = begin; s < end; ++s) plain.insert(s);
      } else {
        set.Remove({begin, end});
        for (uint64_t s = begin; s < end; ++s) plain.erase(s);
      }
      ASSERT_EQ(set.count(), plain.size());
      bool all = true;
      for (uint64_t s = begin; s < end; ++s) {
        ASSERT_EQ(set.Contains(s), plain.contains(s)) << s;
        all = all && plain.contains(s);
      }
      ASSERT_EQ(set.ContainsAll({begin, end}), all);
      ASSERT_EQ(
          set.Within({begin, end}).count(),
          static_cast<uint64_t>(std::distance(plain.lower_bound(begin), plain.lower_bound(end))));
      uint64_t last = 0;
      for (const auto& [from, to] : set.runs()) {
        ASSERT_TRUE(from < to && (last == 0 || from > last)) << "runs that touch";
        last = to;
      }
    }
    StripeSet merged = set;
    merged.MergeTo(3);
    EXPECT_LE(merged.runs().size(), 3u);
    for (const uint64_t s : plain) EXPECT_TRUE(merged.Contains(s));
  }
}

TEST(StripeSetTest, MergesWhatIsNearest) {
  StripeSet set;
  set.Add({0, 1}), set.Add({10, 11}), set.Add({13, 14}), set.Add({30, 31});
  set.MergeTo(3);
  EXPECT_TRUE(set.ContainsAll({10, 14}));
  EXPECT_FALSE(set.Contains(5) || set.Contains(20));
}

}  // namespace
}  // namespace abacus::objfs
