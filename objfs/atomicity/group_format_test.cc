// The bytes of a log's file, of what it holds, and the claims of groups.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/block_claims.h"
#include "objfs/atomicity/commit_log_state.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/store/format.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kBlock = ObjectStore::kBlockBytes;

GroupPart SmallPart() {
  GroupPart part;
  part.fences.push_back({7, Version{3}});
  part.reads.push_back({7, 1, Version{5}});
  part.writes.push_back({7, 2, std::string(2 * kBlock, 'x')});
  return part;
}

TEST(GroupPart, ComesBackAsItWas) {
  const auto part = GroupPart::Decode(SmallPart().Encode());
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->Encode(), SmallPart().Encode());
  EXPECT_EQ(part->bytes(), 2 * kBlock);
}

TEST(GroupPart, WhatIsNoneIsRefused) {
  std::vector<GroupPart> bad(12, SmallPart());
  bad[0].writes[0].bytes.pop_back();
  bad[1].writes[0].bytes.clear();
  bad[2].writes[0].id = 0;
  bad[3].writes[0].block = UINT64_MAX;
  bad[4].writes.push_back({7, 3, std::string(kBlock, 'y')});  // the second of two before
  bad[5].reads.push_back(bad[5].reads[0]);
  bad[6].writes[0].bytes.resize(GroupPart::kBytesMax + kBlock);
  bad[7].writes[0].block = ObjectStore::kObjectBytesMax / kBlock - 1;
  bad[8].fences[0].id = 0;
  bad[9].fences[0].opening = Version();
  bad[10].fences.push_back({7, Version{4}});
  for (ObjectId id = 8; bad[11].fences.size() <= GroupPart::kFencesMax; ++id) {
    bad[11].fences.push_back({id, Version{3}});
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(bad[i].Check())) << i;
    EXPECT_FALSE(GroupPart::Decode(bad[i].Encode()).ok()) << i;
  }
  const std::string bytes = SmallPart().Encode();
  EXPECT_TRUE(absl::IsDataLoss(GroupPart::Decode(bytes + "x").status()));
  EXPECT_TRUE(absl::IsDataLoss(GroupPart::Decode(bytes.substr(0, bytes.size() - 1)).status()));
}

TEST(CommitLogState, IsWhatItsRecordsComeTo) {
  CommitLogState state;
  const CommitRecord prepare{.kind = CommitRecord::Kind::kPrepare,
                             .key = {Version{9}, 0},
                             .group = {{1, 0}},
                             .payload = SmallPart().Encode()};
  ASSERT_TRUE(state.Apply(CommitLogState::EpochBytes(4)).ok());
  ASSERT_TRUE(state.Apply(CommitLogState::EpochBytes(3)).ok());
  ASSERT_TRUE(state.Apply(CommitLogState::CommitBytes(prepare)).ok());
  const auto again = CommitLogState::Decode(state.Encode());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->epoch, 4u);
  EXPECT_EQ(again->commits.entries.size(), 1u);
  EXPECT_EQ(again->Encode(), state.Encode());
  // One that is held is committed, for as long as it is there.
  EXPECT_TRUE(state.Apply(CommitLogState::HeldBytes({Version{8}, 0})).ok()) << "it is gone by now";
  EXPECT_TRUE(state.held.empty());
  ASSERT_TRUE(state.Apply(CommitLogState::HeldBytes(prepare.key)).ok());
  const auto held = CommitLogState::Decode(state.Encode());
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->held, std::set<CommitKey>{prepare.key});
  EXPECT_TRUE(held->commits.entries.at(prepare.key).committed);
  EXPECT_EQ(held->Encode(), state.Encode());
  CommitLogState after = *held;
  const CommitRecord forget{
      .kind = CommitRecord::Kind::kForget, .key = prepare.key, .group = {}, .payload = {}};
  ASSERT_TRUE(after.Apply(CommitLogState::CommitBytes(forget)).ok());
  EXPECT_TRUE(after.held.empty());
  EXPECT_TRUE(CommitLogState::Decode(after.Encode()).ok());
  CommitLogState nothing = *held;
  nothing.commits.entries.clear();
  EXPECT_TRUE(absl::IsDataLoss(CommitLogState::Decode(nothing.Encode()).status()));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("h123456789")));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("h12345678123456789")));
  CommitRecord damaged = prepare;
  damaged.payload.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(state.Apply(CommitLogState::CommitBytes(damaged))));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("")));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("x")));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("e1234567")));
  EXPECT_TRUE(absl::IsDataLoss(state.Apply("e123456789")));
}

// Against the plain rule: a block that a group writes is nobody else's.
TEST(BlockClaims, AreWhatTheRuleSays) {
  std::mt19937_64 random(5);
  BlockClaims claims;
  std::map<uint64_t, GroupPart> have;
  const auto clash = [](const GroupPart& a, const GroupPart& b) {
    std::set<uint64_t> writes, all;
    for (const auto& write : a.writes) writes.insert(write.block);
    for (const auto& read : a.reads) all.insert(read.block);
    all.insert(writes.begin(), writes.end());
    for (const auto& write : b.writes) {
      if (all.contains(write.block)) return true;
    }
    for (const auto& read : b.reads) {
      if (writes.contains(read.block)) return true;
    }
    return false;
  };
  for (uint64_t step = 1; step < 20'000; ++step) {
    if (!have.empty() && random() % 2 == 0) {
      const auto goes = std::next(have.begin(), static_cast<int64_t>(random() % have.size()));
      claims.Release(Version{goes->first});
      have.erase(goes);
    } else {
      GroupPart part;
      std::set<uint64_t> read, written;
      while (random() % 3 != 0) read.insert(random() % 8);
      while (random() % 3 == 0) written.insert(random() % 8);
      for (const uint64_t block : read) part.reads.push_back({1, block, Version()});
      for (const uint64_t block : written)
        part.writes.push_back({1, block, std::string(kBlock, 0)});
      bool free = true;
      for (const auto& [id, other] : have) free = free && !clash(other, part);
      ASSERT_EQ(claims.Take(Version{step}, part), free);
      if (free) have[step] = part;
      ASSERT_EQ(claims.Take(Version{step}, part), free) << "a second time it does nothing";
    }
    ASSERT_EQ(claims.groups(), have.size());
  }
  for (const auto& [id, part] : have) claims.Release(Version{id});
  EXPECT_TRUE(claims.empty());
}

TEST(LogFile, TheBytesOfTheHeaderAreThoseOfVersionOne) {
  const std::string bytes =
      LogFile::EncodeHeader({{.log = 0x1122334455667788, .half_bytes = uint64_t{1} << 20}, 9});
  ASSERT_EQ(bytes.size(), LogFile::kHeaderBytes);
  const char expected[] =
      "ABACUSAL\1\0\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\0\0\x10\0\0\0\0\0\x09\0\0\0\0\0\0"
      "\0";
  EXPECT_EQ(bytes.substr(0, 40), std::string(expected, 40));
  const auto header = LogFile::DecodeHeader(bytes);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->log.log, 0x1122334455667788u);
  EXPECT_EQ(header->log.half_bytes, uint64_t{1} << 20);
  EXPECT_EQ(header->server, 9u);
  for (size_t at = 0; at < 44; ++at) {
    std::string damaged = bytes;
    damaged[at] ^= 4;
    EXPECT_TRUE(absl::IsDataLoss(LogFile::DecodeHeader(damaged).status())) << at;
  }
}

TEST(LogFile, AnotherVersionIsRefusedAndLeftAlone) {
  std::string header = LogFile::EncodeHeader({{.log = 1, .half_bytes = LogFile::kHalfBytesMin}, 3});
  header[8] = 2;
  const uint32_t crc = Crc32c(header.substr(0, 40));
  for (size_t i = 0; i < sizeof crc; ++i) header[40 + i] = static_cast<char>(crc >> (8 * i));
  MemoryDisk disk;
  ASSERT_TRUE((*disk.Create(LogFile::Name()))->Write(0, header).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(LogFile::Open(disk, 3, LogFile::kHalfBytesMin, "").status()));
  std::string after(header.size(), ' ');
  ASSERT_TRUE((*disk.Open(LogFile::Name()))->Read(0, std::span(after.data(), after.size())).ok());
  EXPECT_EQ(after, header);
}

TEST(LogFile, IsThereWholeOrNotAtAllWhereverThePowerGoes) {
  for (uint64_t calls = 0;; ++calls) {
    PowerCutDisk disk;
    disk.CutPowerAfter(calls);
    const bool made = LogFile::Open(disk, 3, LogFile::kHalfBytesMin, "state").ok();
    for (uint64_t seed = 0; seed < 8; ++seed) {
      disk.CutPower();
      disk.PowerOn(seed);
      const auto log = LogFile::Open(disk, 3, LogFile::kHalfBytesMin, made ? "other" : "state");
      ASSERT_TRUE(log.ok()) << calls << ": " << log.status();
      EXPECT_EQ((*log)->TakeRecovered().snapshot, "state");
    }
    if (made) break;
    ASSERT_LT(calls, 20u);
  }
}

TEST(LogFile, ThatOfAnotherServerIsRefused) {
  MemoryDisk disk;
  EXPECT_EQ(*LogFile::ServerOf(disk), std::nullopt);
  ASSERT_TRUE(LogFile::Open(disk, 3, LogFile::kHalfBytesMin, "").ok());
  EXPECT_EQ(*LogFile::ServerOf(disk), 3u);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(LogFile::Open(disk, 4, LogFile::kHalfBytesMin, "").status()));
}

TEST(LogFile, HalvesHaveLimits) {
  MemoryDisk disk;
  for (const uint64_t bytes :
       {uint64_t{0}, LogFile::kHalfBytesMin - 1, LogFile::kHalfBytesMax + 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(LogFile::Open(disk, 3, bytes, "").status())) << bytes;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      LogFile::Open(disk, 3, LogFile::kHalfBytesMin, std::string(LogFile::kHalfBytesMin, 'x'))
          .status()));
  EXPECT_TRUE(disk.List("")->empty());
}

}  // namespace
}  // namespace abacus::objfs
