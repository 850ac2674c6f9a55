#include "objfs/volume/shard_records.h"

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace sharding {
namespace {

using runtime::Block;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ShardRecord::Kind;

ShardRecord Prepared(ShardGroup group = 0x102) {
  Part part{.id = 9};
  part.reads = {{{0, ObjectStore::kBlockBytes}, Version{5}}};
  part.writes = {{ObjectStore::kBlockBytes, Block::CopyOf("ab")}};
  part.change.permissions = 0600;
  part.change.touch_changed = true;
  part.change.links = 1;
  part.change.entries = -1;
  part.change.parent = 3;
  part.change.xattrs = {{.name = "user.a", .value = "b", .rule = XattrRule::kMustBeNew}};
  part.must_be_linked = part.closes = true;
  Part made{.id = 10};
  made.change.links = 1;
  made.creation.emplace();
  made.creation->inode.mode = S_IFLNK | 0777;
  made.creation->inode.uid = 1;
  made.creation->contents = "t";
  return {.kind = Kind::kPrepared,
          .group = group,
          .coordinator = 2,
          .writer = 7,
          .transaction = {{part, made}, 5},
          .shards = {}};
}
ShardRecord Decided(ShardGroup group = 0x102) {
  return {.kind = Kind::kDecided,
          .group = group,
          .coordinator = 0,
          .writer = 0,
          .transaction = {},
          .shards = {1, 3}};
}
// With `bytes` more to be written.
ShardRecord Large(uint64_t bytes) {
  ShardRecord record = Prepared();
  record.transaction.parts[0].writes[0].bytes = Block::CopyOf(std::string(bytes, 'x'));
  return record;
}

std::string HexOf(const std::string& bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

// What is on disks must be read by every later build.
TEST(ShardRecordTest, TheBytesAreThoseOfVersionOne) {
  EXPECT_EQ(HexOf(Prepared().Encode()),
            "0114dbb8950102010000000000000200000007000200000000000000090000000000000001000000"
            "00000000000000000000000000200000000000000500000000000000010000000000000000200000"
            "00000000020000000000000061620180010000000000000000010001000000ffffffffffffffff01"
            "030000000000000001000000000000000600000000000000757365722e6101010000000000000062"
            "01050a00000000000000000000000000000000000000000000000000000000000000000100000000"
            "0000000000000000000000000000000008590000000000000001ffa1000001000000000000000000"
            "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
            "00000000000000000000000000000000000000000000000000000000000000000000010000000000"
            "00007400010500000000000000");
  EXPECT_EQ(HexOf(Decided().Encode()),
            "017cb2928f02020100000000000002000000000000000100000003000000");
}

TEST(ShardRecordTest, ComesBackAsItWas) {
  const auto prepared = ShardRecord::Decode(Prepared().Encode());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->kind, Kind::kPrepared);
  EXPECT_EQ(prepared->group, 0x102u);
  EXPECT_EQ(prepared->coordinator, 2u);
  EXPECT_EQ(prepared->writer, 7);
  EXPECT_EQ(prepared->transaction.tree, 5u);
  ASSERT_EQ(prepared->transaction.parts.size(), 2u);
  const Part& part = prepared->transaction.parts[0];
  EXPECT_EQ(part.id, 9u);
  EXPECT_EQ(part.reads.front().version, Version{5});
  EXPECT_EQ(part.writes.front().bytes.view(), "ab");
  EXPECT_EQ(part.change.entries, -1);
  EXPECT_TRUE(part.must_be_linked && part.closes && !part.must_be_empty);
  EXPECT_FALSE(part.creation.has_value());
  ASSERT_TRUE(prepared->transaction.parts[1].creation.has_value());
  EXPECT_EQ(prepared->transaction.parts[1].creation->inode.uid, 1u);
  EXPECT_EQ(prepared->Encode(), Prepared().Encode());
  const auto decided = ShardRecord::Decode(Decided().Encode());
  ASSERT_TRUE(decided.ok()) << decided.status();
  EXPECT_EQ(decided->kind, Kind::kDecided);
  EXPECT_EQ(decided->shards, (std::vector<uint32_t>{1, 3}));
}

TEST(ShardRecordTest, WhatIsCutOffLongerOrDamagedInAnyByteIsRefused) {
  for (const std::string& bytes : {Prepared().Encode(), Decided().Encode()}) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bytes.substr(0, size)).status())) << size;
    }
    EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bytes + "x").status()));
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string other = bytes;
        other[i] = static_cast<char>(other[i] ^ (1 << bit));
        EXPECT_FALSE(ShardRecord::Decode(other).ok()) << i << " " << bit;
      }
    }
  }
  const absl::Status later = ShardRecord::Decode("\2" + Decided().Encode().substr(1)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(later)) << later;
}

TEST(ShardRecordTest, WhatNoShardWritesIsRefused) {
  ShardRecord bad = Prepared();
  bad.coordinator = 16;
  EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bad.Encode()).status()));
  bad = Prepared(0);
  EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bad.Encode()).status()));
  bad = Decided();
  bad.shards.push_back(16);
  EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bad.Encode()).status()));
  bad = Decided();
  bad.kind = static_cast<Kind>(3);
  EXPECT_TRUE(absl::IsDataLoss(ShardRecord::Decode(bad.Encode()).status()));
}

// Draws records of all forms.
class Drawn {
 public:
  explicit Drawn(uint64_t seed) : random_(seed) {}

  ShardRecord Next() {
    ShardRecord record{.kind = Below(2) == 0 ? Kind::kDecided : Kind::kPrepared,
                       .group = 1 + Below(1'000'000),
                       .coordinator = 0,
                       .writer = 0,
                       .transaction = {},
                       .shards = {}};
    if (record.kind == Kind::kDecided) {
      for (uint64_t i = Below(4); i > 0; --i) record.shards.push_back(SmallNumber());
      return record;
    }
    record.coordinator = SmallNumber();
    record.writer = static_cast<uint16_t>(random_());
    for (uint64_t i = Below(4); i > 0; --i) record.transaction.parts.push_back(NextPart());
    if (Below(2) == 0) record.transaction.tree = random_();
    return record;
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  uint32_t SmallNumber() { return static_cast<uint32_t>(Below(16)); }
  std::string Bytes(uint64_t most) {
    return std::string(Below(most), static_cast<char>(random_()));
  }

  Part NextPart() {
    Part part{.id = random_()};
    for (uint64_t i = Below(3); i > 0; --i) {
      part.reads.push_back({{random_(), random_()}, Version{random_()}});
    }
    for (uint64_t i = Below(3); i > 0; --i) {
      part.writes.push_back({random_(), Block::CopyOf(Bytes(3000))});
    }
    part.change.links = static_cast<int32_t>(random_());
    part.change.entries = static_cast<int64_t>(random_());
    if (Below(2) == 0) part.change.parent = random_();
    if (Below(2) == 0) part.change.modified_ns = static_cast<int64_t>(random_());
    if (Below(2) == 0) {
      part.change.xattrs.push_back(
          {.name = Bytes(20), .value = Bytes(20), .rule = XattrRule::kAny});
    }
    part.must_be_linked = Below(2) == 0;
    part.must_be_empty = Below(2) == 0;
    part.closes = Below(2) == 0;
    if (Below(2) == 0) {
      part.creation.emplace();
      part.creation->inode.mode = static_cast<uint32_t>(random_());
      part.creation->inode.stack = Bytes(20);
      part.creation->inode.columns.resize(Below(3), 1);
      part.creation->contents = Bytes(100);
      part.creation->opens = Below(2) == 0;
    }
    return part;
  }

  std::mt19937_64 random_;
};

TEST(ShardRecordPropertyTest, WhateverIsKeptComesBackTheSame) {
  const uint64_t seed = runtime::testing::Seed(1);
  Drawn drawn(seed);
  const int records = runtime::testing::LongRun() ? 100'000 : 2000;
  for (int i = 0; i < records; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", record ", i));
    const std::string bytes = drawn.Next().Encode();
    const auto record = ShardRecord::Decode(bytes);
    ASSERT_TRUE(record.ok()) << record.status();
    ASSERT_EQ(record->Encode(), bytes);
  }
}

class ShardRecordsTest : public ::testing::Test {
 protected:
  ShardRecordsTest() {
    Restart();
    if (store_ == nullptr) return;
    const auto id = store_->Create("", 1);
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) id_ = *id;
    EXPECT_TRUE(store_->Flush(id_).ok());
    Open();
  }
  // As after a crash: what was not flushed is gone.
  void Restart() {
    records_.reset();
    store_.reset();
    auto store = LocalObjectStore::Open(disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Open() {
    auto records = ShardRecords::Open(store_, id_);
    ASSERT_TRUE(records.ok()) << records.status();
    records_ = *std::move(records);
  }
  absl::Status Refusal() { return ShardRecords::Open(store_, id_).status(); }
  absl::Status Apply(const ShardRecords::Change& change) {
    const ObjectUpdate update = change.update();
    return store_->Update(std::span(&update, 1), ++version_);
  }
  ShardRecords::Slot Put(const ShardRecord& record) {
    ShardRecords::Change change;
    const auto slot = records_->Take(record, &change);
    EXPECT_TRUE(slot.ok()) << slot.status();
    const absl::Status applied = Apply(change);
    EXPECT_TRUE(applied.ok()) << applied;
    return slot.ok() ? *slot : 0;
  }

  MemoryDisk disk_;
  std::shared_ptr<ObjectStore> store_;
  std::unique_ptr<ShardRecords> records_;
  ObjectId id_ = 0;
  VersionNumber version_ = 10;
};

TEST_F(ShardRecordsTest, WhatWasKeptIsThereWhenTheStoreIsOpenedAgain) {
  EXPECT_THAT(records_->TakeFound(), IsEmpty());
  const ShardRecords::Slot prepared = Put(Prepared(5));
  const ShardRecords::Slot gone = Put(Decided(6));
  const ShardRecords::Slot decided = Put(Decided(7));
  ASSERT_TRUE(Apply(records_->Emptied(gone)).ok());
  records_->GiveBack(gone);
  EXPECT_EQ(records_->used(), 2u);
  ASSERT_TRUE(store_->Flush(id_).ok());
  Restart();
  Open();
  EXPECT_EQ(records_->used(), 2u);
  const auto found = records_->TakeFound();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, prepared);
  EXPECT_EQ(found[0].second.Encode(), Prepared(5).Encode());
  EXPECT_EQ(found[1].first, decided);
  EXPECT_EQ(found[1].second.Encode(), Decided(7).Encode());
  EXPECT_THAT(records_->TakeFound(), IsEmpty()) << "they are taken once";
  EXPECT_EQ(Put(Decided(8)), gone) << "the place is free";
}

TEST_F(ShardRecordsTest, WhatWasNotFlushedIsNotThere) {
  Put(Prepared());
  Restart();
  Open();
  EXPECT_THAT(records_->TakeFound(), IsEmpty());
  EXPECT_EQ(records_->used(), 0u);
}

TEST_F(ShardRecordsTest, ARecordThatTakesTheWholeSlotIsKeptAndALargerOneIsNot) {
  const uint64_t most = ShardRecords::kRecordBytesMax - Large(0).Encode().size();
  ShardRecords::Change change;
  EXPECT_TRUE(absl::IsResourceExhausted(records_->Take(Large(most + 1), &change).status()));
  EXPECT_EQ(records_->used(), 0u);
  Put(Large(most));
  Put(Decided(8));
  ASSERT_TRUE(store_->Flush(id_).ok());
  Restart();
  Open();
  const auto found = records_->TakeFound();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].second.Encode(), Large(most).Encode());
  EXPECT_EQ(found[1].second.Encode(), Decided(8).Encode());
}

TEST_F(ShardRecordsTest, AShorterRecordInThePlaceOfALongerOneStandsAlone) {
  const ShardRecords::Slot slot = Put(Large(50'000));
  ASSERT_TRUE(Apply(records_->Emptied(slot)).ok());
  records_->GiveBack(slot);
  ASSERT_EQ(Put(Decided()), slot);
  Open();
  const auto found = records_->TakeFound();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].second.Encode(), Decided().Encode());
}

TEST_F(ShardRecordsTest, SlotsRunOutAndComeBack) {
  std::set<ShardRecords::Slot> slots;
  for (uint32_t i = 0; i < ShardRecords::kSlots; ++i) slots.insert(Put(Decided(i + 1)));
  EXPECT_EQ(slots.size(), ShardRecords::kSlots) << "each its own";
  ShardRecords::Change change;
  EXPECT_TRUE(absl::IsResourceExhausted(records_->Take(Decided(), &change).status()));
  Open();
  EXPECT_TRUE(absl::IsResourceExhausted(records_->Take(Decided(), &change).status()))
      << "those that were found take theirs";
  EXPECT_EQ(records_->TakeFound().size(), ShardRecords::kSlots);
  ASSERT_TRUE(Apply(records_->Emptied(9)).ok());
  records_->GiveBack(9);
  EXPECT_EQ(Put(Decided(900)), 9u);
}

TEST_F(ShardRecordsTest, ASlotWithSomethingElseIsToldWithTheWayOut) {
  ASSERT_TRUE(Apply({id_, 2 * ShardRecords::kSlotBytes, "something else"}).ok());
  const absl::Status garbage = Refusal();
  EXPECT_TRUE(absl::IsDataLoss(garbage)) << garbage;
  EXPECT_THAT(garbage.ToString(), HasSubstr("record 2"));
  EXPECT_THAT(garbage.ToString(), HasSubstr("abacus fsck"));
  ASSERT_TRUE(Apply(records_->Emptied(2)).ok());
  EXPECT_TRUE(Refusal().ok());
}

TEST_F(ShardRecordsTest, ARecordOfWhichAPartIsNotThereIsDamaged) {
  ShardRecords::Change change;
  ASSERT_TRUE(records_->Take(Large(20'000), &change).ok());
  change.bytes.resize(10'000);
  ASSERT_TRUE(Apply(change).ok());
  EXPECT_TRUE(absl::IsDataLoss(Refusal()));
}

TEST_F(ShardRecordsTest, OneSlotIsReadWhateverIsInTheOthers) {
  const ShardRecords::Slot slot = Put(Decided(5));
  ASSERT_TRUE(Apply({id_, (slot + 1) * ShardRecords::kSlotBytes, "something else"}).ok());
  const auto record = ShardRecords::ReadSlot(*store_, id_, slot);
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_TRUE(record->has_value());
  EXPECT_EQ((*record)->Encode(), Decided(5).Encode());
  EXPECT_TRUE(absl::IsDataLoss(ShardRecords::ReadSlot(*store_, id_, slot + 1).status()));
  const auto empty = ShardRecords::ReadSlot(*store_, id_, slot + 2);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_FALSE(empty->has_value());
}

TEST_F(ShardRecordsTest, AnObjectThatIsGoneIsToldWithTheWayOut) {
  ASSERT_TRUE(store_->Remove(id_).ok());
  const absl::Status gone = Refusal();
  EXPECT_TRUE(absl::IsDataLoss(gone)) << gone;
  EXPECT_THAT(gone.ToString(), HasSubstr("abacus fsck"));
}

TEST_F(ShardRecordsTest, ARecordOfALaterVersionIsLeftAlone) {
  ShardRecords::Change change;
  ASSERT_TRUE(records_->Take(Decided(), &change).ok());
  change.bytes[8] = 2;
  ASSERT_TRUE(Apply(change).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Refusal()));
}

// The power goes at each call to the disk in turn.
TEST(ShardRecordsCrashTest, ARecordIsThereWithWhatItIsAboutOrNotAtAll) {
  bool whole = false;
  uint64_t cuts = 0;
  for (; !whole && !::testing::Test::HasFailure(); ++cuts) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("cut after ", cuts, " calls, seed ", seed));
      PowerCutDisk disk;
      ObjectId id = 0, other = 0;
      {
        std::shared_ptr<ObjectStore> store = *LocalObjectStore::Open(disk, {});
        id = *store->Create("", 1);
        other = *store->Create("", 1);
        ASSERT_TRUE(store->FlushAll().ok());
        const auto records = ShardRecords::Open(store, id);
        ASSERT_TRUE(records.ok()) << records.status();
        ShardRecords::Change change;
        ASSERT_TRUE((*records)->Take(Large(20'000), &change).ok());
        const std::vector<ObjectUpdate> both = {
            change.update(), {.id = other, .writes = {{0, "told"}}, .blob = std::nullopt}};
        disk.CutPowerAfter(cuts);
        whole = store->Update(both, 2).ok() && store->Flush(other).ok();
      }
      disk.CutPower();
      disk.PowerOn(seed);
      std::shared_ptr<ObjectStore> store = *LocalObjectStore::Open(disk, {});
      const auto records = ShardRecords::Open(store, id);
      ASSERT_TRUE(records.ok()) << records.status();
      const size_t found = (*records)->TakeFound().size();
      EXPECT_EQ(found == 1, store->GetAttributes(other)->size_bytes == 4);
      EXPECT_TRUE(found == 1 || !whole);
    }
    ASSERT_LT(cuts, 100u);
  }
  EXPECT_GT(cuts, 1u);
}

}  // namespace
}  // namespace sharding
}  // namespace abacus::objfs
