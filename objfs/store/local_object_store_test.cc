#include "objfs/store/local_object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/testing/model_object.h"

namespace abacus::objfs {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kBlock;

class LocalObjectStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }

  void Open(LocalObjectStoreOptions options = {}) { OpenOn(disk_, options); }
  void OpenOn(Disk& disk, LocalObjectStoreOptions options = {}) {
    store_.reset();
    options.on_damage = [this](const absl::Status& damage) {
      told_.emplace_back(damage.message());
    };
    auto store = LocalObjectStore::Open(disk, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  ObjectId Make(const std::string& bytes = "") {
    const auto id = store_->Create("", 1);
    EXPECT_TRUE(id.ok()) << id.status();
    if (bytes.empty()) return *id;
    EXPECT_TRUE(store_->Write(*id, 0, bytes, 1).ok());
    return *id;
  }

  absl::StatusOr<std::string> Read(ObjectId id, uint64_t offset, uint64_t count) {
    std::string bytes(count, '?');
    const auto read = store_->Read(id, offset, std::span(bytes.data(), bytes.size()));
    if (!read.ok()) return read.status();
    bytes.resize(*read);
    return bytes;
  }

  void Flip(const std::string& path, uint64_t at) {
    const auto file = disk_.Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    char byte = 0;
    ASSERT_TRUE((*file)->Read(at, std::span(&byte, 1)).ok());
    byte = static_cast<char>(byte ^ 1);
    ASSERT_TRUE((*file)->Write(at, std::string_view(&byte, 1)).ok());
  }

  MemoryDisk disk_;
  std::vector<std::string> told_;  // of damage
  std::unique_ptr<LocalObjectStore> store_;
};

TEST_F(LocalObjectStoreTest, WhatWasFlushedIsThereAfterReopening) {
  const ObjectId id = Make("hello");
  ASSERT_TRUE(store_->SetAttributes(id, "blob", 7).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  Open();
  EXPECT_EQ(*Read(id, 0, 100), "hello");
  EXPECT_EQ(store_->GetAttributes(id)->blob, "blob");
  EXPECT_EQ(store_->GetAttributes(id)->version, 7u);
  EXPECT_EQ(store_->GetAttributes(id)->size_bytes, 5u);
  EXPECT_EQ(store_->Space()->used_bytes, kBlock);
}

// What cannot be read now may be read later: nothing is taken for damaged, nor a journal removed.
TEST_F(LocalObjectStoreTest, ATableOrJournalThatCannotBeReadFailsTheOpeningAndCostsNothing) {
  const ObjectId id = Make("hello");
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Checkpoint().ok());
  ASSERT_TRUE(store_->SetAttributes(id, "in the journal", 7).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  store_.reset();
  for (const std::string kind : {".t", "journal"}) {
    SCOPED_TRACE(kind);
    int unread = 0;
    ModelDisk failing(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                        if (call != "read" || path.find(kind) == std::string::npos) {
                          return absl::OkStatus();
                        }
                        ++unread;
                        return ReadError(EIO, path);
                      }});
    const absl::Status opened = LocalObjectStore::Open(failing, {}).status();
    EXPECT_TRUE(absl::IsUnavailable(opened)) << opened;
    EXPECT_GT(unread, 0);
  }
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_EQ(store_->GetAttributes(id)->blob, "in the journal");
  EXPECT_EQ(*Read(id, 0, 100), "hello");
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LocalObjectStoreTest, WhatWasNotFlushedLeavesNothingBehind) {
  const ObjectId id = Make("hello");
  Open();
  EXPECT_TRUE(absl::IsNotFound(Read(id, 0, 1).status()));
  EXPECT_THAT(*disk_.List(FolderName(id)), IsEmpty());
  EXPECT_NE(Make(), id);
}

TEST_F(LocalObjectStoreTest, IdentifiersThatWereReservedAreUsedInAnyOrderAndGivenToNobodyElse) {
  const ObjectId first = *store_->Reserve(), second = *store_->Reserve();
  const ObjectId between = Make("between");
  EXPECT_LT(first, second);
  EXPECT_LT(second, between);
  EXPECT_TRUE(absl::IsNotFound(store_->GetAttributes(first).status()));
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(between));
  ASSERT_TRUE(store_->CreateAs(second, "second", 1).ok());
  ASSERT_TRUE(store_->CreateAs(first, "first", 2).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateAs(first, "", 3)));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateAs(0, "", 3)));
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(first, second, between));
  const ObjectId unused = *store_->Reserve();
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(first, second, between));
  EXPECT_EQ(store_->GetAttributes(first)->blob, "first");
  EXPECT_EQ(store_->GetAttributes(second)->blob, "second");
  EXPECT_EQ(*Read(between, 0, 100), "between");
  EXPECT_GT(*store_->Reserve(), unused);
}

TEST_F(LocalObjectStoreTest, AnObjectUnderAChosenNumberIsLikeAnyOther) {
  ASSERT_TRUE(store_->CreateAs(1'000'000, "first", 7).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateAs(1'000'000, "", 8)));
  ASSERT_TRUE(store_->CreateAs(17, "second", 8).ok());
  EXPECT_FALSE(store_->CreateAs(0, "", 8).ok());
  ASSERT_TRUE(store_->Write(17, 0, "hello", 9).ok());
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(17, 1'000'000));
  ASSERT_TRUE(store_->Flush(17).ok());
  ASSERT_TRUE(store_->CreateAs(18, "lost", 10).ok());
  Open();
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(17, 1'000'000));
  EXPECT_EQ(*Read(17, 0, 100), "hello");
  EXPECT_EQ(store_->GetAttributes(1'000'000)->blob, "first");
  ASSERT_TRUE(store_->Remove(17).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(1'000'000));
  EXPECT_TRUE(store_->CreateAs(18, "again", 11).ok());
}

TEST_F(LocalObjectStoreTest, EveryCallOnAMissingObjectIsNotFound) {
  const ObjectId id = Make("x");
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Remove(id).ok());
  for (const ObjectId missing : {id, ObjectId{0}, ObjectId{999'999}}) {
    EXPECT_TRUE(absl::IsNotFound(Read(missing, 0, 1).status()));
    EXPECT_TRUE(absl::IsNotFound(store_->Write(missing, 0, "a", 1)));
    EXPECT_TRUE(absl::IsNotFound(store_->Truncate(missing, 0, 1)));
    EXPECT_TRUE(absl::IsNotFound(store_->Punch(missing, 0, 1, 1)));
    EXPECT_TRUE(absl::IsNotFound(store_->Remove(missing)));
    EXPECT_TRUE(absl::IsNotFound(store_->GetAttributes(missing).status()));
    EXPECT_TRUE(absl::IsNotFound(store_->SetAttributes(missing, "", 1)));
    EXPECT_TRUE(absl::IsNotFound(store_->ReadVersions(missing, 0, 1).status()));
    EXPECT_TRUE(absl::IsNotFound(store_->NextData(missing, 0).status()));
    EXPECT_TRUE(absl::IsNotFound(store_->NextHole(missing, 0).status()));
    EXPECT_TRUE(absl::IsNotFound(store_->Flush(missing)));
  }
}

TEST_F(LocalObjectStoreTest, ARemovalIsDurableWithTheNextFlushOfAnother) {
  const ObjectId first = Make("a"), second = Make("b"), third = Make("c");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(store_->Remove(first).ok());
  ASSERT_TRUE(store_->Flush(second).ok());  // which has not changed
  ASSERT_TRUE(store_->Remove(second).ok());
  Open();
  EXPECT_THAT(*store_->List(0, 10), ElementsAre(second, third));
  EXPECT_TRUE(absl::IsNotFound(disk_.Open(DataPath(first)).status()));
}

TEST_F(LocalObjectStoreTest, ListGoesOnBehindTheCursor) {
  const ObjectId a = Make(), b = Make(), c = Make();
  EXPECT_THAT(*store_->List(0, 2), ElementsAre(a, b));
  EXPECT_THAT(*store_->List(b, 2), ElementsAre(c));
  EXPECT_THAT(*store_->List(c, 2), IsEmpty());
}

TEST_F(LocalObjectStoreTest, BlocksCarryTheVersionOfTheirLastWrite) {
  const ObjectId id = Make(std::string(3 * kBlock, 'a'));
  ASSERT_TRUE(store_->Write(id, kBlock + 5, "b", 42).ok());
  EXPECT_THAT(*store_->ReadVersions(id, 0, 5), ElementsAre(1, 42, 1, 0, 0));
  ASSERT_TRUE(store_->Punch(id, 0, kBlock, 50).ok());
  EXPECT_THAT(*store_->ReadVersions(id, 0, 2), ElementsAre(0, 42));
  ASSERT_TRUE(store_->Flush(id).ok());
  Open();
  EXPECT_THAT(*store_->ReadVersions(id, 0, 3), ElementsAre(0, 42, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->ReadVersions(id, 0, 100'000).status()));
}

TEST_F(LocalObjectStoreTest, LimitsAreTypedErrors) {
  const ObjectId id = Make();
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Write(id, 0, "a", 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->SetAttributes(id, std::string(4097, 'x'), 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(std::string(4097, 'x'), 1).status()));
  EXPECT_TRUE(store_->SetAttributes(id, std::string(4096, 'x'), 1).ok());
  EXPECT_TRUE(absl::IsOutOfRange(store_->Write(id, ObjectStore::kObjectBytesMax, "a", 1)));
  EXPECT_TRUE(absl::IsOutOfRange(store_->Write(id, UINT64_MAX, "a", 1)));
  EXPECT_TRUE(absl::IsOutOfRange(store_->Truncate(id, ObjectStore::kObjectBytesMax + 1, 1)));
  EXPECT_EQ(store_->GetAttributes(id)->size_bytes, 0u);
}

TEST_F(LocalObjectStoreTest, ASparseObjectReachesToTheLimit) {
  const ObjectId id = Make();
  const uint64_t last = ObjectStore::kObjectBytesMax - 1;
  ASSERT_TRUE(store_->Write(id, last, "z", 3).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Checkpoint().ok());
  Open();
  EXPECT_EQ(*Read(id, last - 1, 10), std::string("\0z", 2));
  EXPECT_EQ(*store_->NextData(id, 0), last / kBlock * kBlock);
  EXPECT_EQ(store_->GetAttributes(id)->allocated_bytes, kBlock);
}

TEST_F(LocalObjectStoreTest, AFlippedBitIsDataLossOfItsBlockOnly) {
  Open({.logged_blocks_max = 0});
  const ObjectId id = Make(std::string(3 * kBlock, 'a'));
  ASSERT_TRUE(store_->Flush(id).ok());
  Flip(DataPath(id), kBlock + 17);
  for (int reopened = 0; reopened < 2; ++reopened) {
    EXPECT_TRUE(Read(id, 0, kBlock).ok());
    EXPECT_TRUE(Read(id, 2 * kBlock, kBlock).ok());
    const absl::Status status = Read(id, 0, 3 * kBlock).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("object ", id, " block 1")));
    // A write into the block must not give the damage a checksum; one over all of it mends it.
    EXPECT_TRUE(absl::IsDataLoss(store_->Write(id, kBlock + 1, "b", 2)));
    EXPECT_EQ(store_->Statistics().checksum_errors, 2u);
    ASSERT_EQ(told_.size(), 2u);
    EXPECT_THAT(std::exchange(told_, {}), Each(HasSubstr(absl::StrCat("object ", id, " block 1"))));
    Open();
  }
  ASSERT_TRUE(store_->Write(id, kBlock, std::string(kBlock, 'b'), 2).ok());
  EXPECT_TRUE(Read(id, 0, 3 * kBlock).ok());
}

TEST_F(LocalObjectStoreTest, ADamagedTableIsDataLossOfItsObjectOnly) {
  const ObjectId id = Make("a"), other = Make("b");
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();  // which brings the journal into the tables
  Open();
  Flip(TablePath(id), 100);
  Open();
  const absl::Status status = Read(id, 0, 1).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("object ", id)));
  EXPECT_EQ(store_->Statistics().damaged_tables, 1u);
  EXPECT_FALSE(told_.empty());
  EXPECT_THAT(told_, Each(HasSubstr(absl::StrCat("object ", id))));
  EXPECT_EQ(*Read(other, 0, 1), "b");
  EXPECT_TRUE(store_->Remove(id).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();
  EXPECT_THAT(*store_->List(0, 9), ElementsAre(other));
}

TEST_F(LocalObjectStoreTest, AMissingDataFileIsDataLoss) {
  const ObjectId id = Make("a");
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Checkpoint().ok());
  ASSERT_TRUE(disk_.Remove(DataPath(id)).ok());
  Open();
  EXPECT_TRUE(absl::IsDataLoss(Read(id, 0, 1).status()));
}

TEST_F(LocalObjectStoreTest, ADamagedRecordThatWasDurableIsNotTakenForTheEnd) {
  const ObjectId id = Make("a");
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Write(id, 0, "b", 2).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  store_.reset();
  std::string name;
  const auto files = disk_.List("");
  ASSERT_TRUE(files.ok());
  for (const std::string& file : *files) {
    if (NumberIn(file, kJournalPrefix, "").has_value()) name = file;
  }
  Flip(name, kJournalHeaderBytes + 30);
  const absl::Status status = LocalObjectStore::Open(disk_, {}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

TEST_F(LocalObjectStoreTest, AnUnknownFormatVersionIsRefused) {
  store_.reset();
  const auto file = disk_.Open(kSuperblockName);
  ASSERT_TRUE((*file)->Write(8, std::string_view("\x09", 1)).ok());
  const absl::Status status = LocalObjectStore::Open(disk_, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9"));
}

TEST_F(LocalObjectStoreTest, AFolderOfOtherFilesIsLeftAlone) {
  MemoryDisk disk;
  ASSERT_TRUE(disk.Create("letter.txt").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(LocalObjectStore::Open(disk, {}).status()));
  EXPECT_THAT(*disk.List(""), ElementsAre("letter.txt"));
}

TEST_F(LocalObjectStoreTest, AStoreWithoutItsSuperblockIsNotMadeAnew) {
  const ObjectId id = Make("a");
  ASSERT_TRUE(store_->Flush(id).ok());
  store_.reset();
  ASSERT_TRUE(disk_.Remove(kSuperblockName).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(LocalObjectStore::Open(disk_, {}).status()));
  EXPECT_TRUE(disk_.Open(DataPath(id)).ok());
}

TEST_F(LocalObjectStoreTest, TheQuotaRefusesAndLetsGoOn) {
  Open({.quota_bytes = 2 * kBlock});
  const ObjectId id = Make(std::string(2 * kBlock, 'a'));
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Write(id, 2 * kBlock, "b", 2)));
  EXPECT_TRUE(store_->Write(id, 0, "b", 2).ok());
  EXPECT_EQ(store_->GetAttributes(id)->size_bytes, 2 * kBlock);
  EXPECT_EQ(store_->Space()->available_bytes, 0u);
  EXPECT_EQ(store_->Statistics().refused_for_space, 1u);
  ASSERT_TRUE(store_->Punch(id, 0, kBlock, 3).ok());
  EXPECT_TRUE(store_->Write(id, 2 * kBlock, "b", 4).ok());
}

TEST_F(LocalObjectStoreTest, AFullDiskRefusesAndTearsNothing) {
  MemoryDisk small(100 * kBlock);
  OpenOn(small);
  const ObjectId id = Make(std::string(40 * kBlock, 'a'));
  ASSERT_TRUE(store_->Flush(id).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Write(id, 0, std::string(90 * kBlock, 'b'), 2)));
  EXPECT_EQ(*Read(id, 0, 100 * kBlock), std::string(40 * kBlock, 'a'));
  // What the failed write took is free again.
  EXPECT_TRUE(store_->Write(id, 0, std::string(30 * kBlock, 'c'), 3).ok());
  EXPECT_TRUE(store_->Flush(id).ok());
  OpenOn(small);
  EXPECT_EQ(*Read(id, 0, 100 * kBlock),
            std::string(30 * kBlock, 'c') + std::string(10 * kBlock, 'a'));
}

TEST_F(LocalObjectStoreTest, AFailedSyncOfAnObjectIsNotTriedAgain) {
  bool fails = false;
  ModelDisk faulty(disk_, {.fault = [&fails](std::string_view call, const std::string& path) {
                     const bool hit = fails && call == "sync" && path.ends_with(".d");
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty, {.logged_blocks_max = 0});
  const ObjectId id = Make("old"), other = Make("x");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(store_->Write(id, 0, "new", 2).ok());
  fails = true;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(id)));
  fails = false;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(id)));
  EXPECT_TRUE(absl::IsUnavailable(store_->Write(id, 0, "newer", 3)));
  ASSERT_TRUE(store_->Write(other, 0, "y", 2).ok());
  EXPECT_TRUE(store_->Flush(other).ok());
  Open();
  EXPECT_EQ(*Read(id, 0, 9), "old");
  EXPECT_EQ(*Read(other, 0, 9), "y");
}

// A record whose write failed may be written later, beside those of flushes after it.
TEST_F(LocalObjectStoreTest, AFlushThatFoundTheJournalFullIsTriedAgain) {
  bool full = false;
  ModelDisk faulty(disk_, {.fault = [&full](std::string_view call, const std::string& path) {
                     const bool hit = full && call == "write" && path.starts_with(kJournalPrefix);
                     return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId id = Make("old"), other = Make("x");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(store_->Write(id, 0, std::string(2 * kBlock, 'n'), 2).ok());
  full = true;
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Flush(id)));
  full = false;
  // Over what the first flush had named, and then without a flush of it.
  ASSERT_TRUE(store_->Truncate(id, 0, 3).ok());
  for (VersionNumber version = 4; version < 10; ++version) {
    ASSERT_TRUE(store_->Write(id, 0, std::string(3 * kBlock, 'm'), version).ok());
  }
  ASSERT_TRUE(store_->Write(other, 0, "y", 4).ok());
  ASSERT_TRUE(store_->Flush(other).ok());
  Open();
  const std::string found = *Read(id, 0, 9 * kBlock);
  EXPECT_TRUE(found == "old" || found == std::string(2 * kBlock, 'n')) << found.size();
  EXPECT_EQ(store_->Space()->used_bytes, kBlock * (found == "old" ? 2 : 3));
}

TEST_F(LocalObjectStoreTest, AFailedCheckpointIsCountedAndTriedAgain) {
  bool fails = false;
  ModelDisk faulty(disk_, {.fault = [&fails](std::string_view call, const std::string& path) {
                     const bool hit = fails && call == "write" && path.ends_with(".t");
                     return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId id = Make("old");
  fails = true;
  ASSERT_TRUE(store_->Flush(id).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Checkpoint()));
  EXPECT_EQ(store_->Statistics().checkpoints_failed, 1u);
  fails = false;
  EXPECT_TRUE(store_->Checkpoint().ok());
  Open();
  EXPECT_EQ(*Read(id, 0, 9), "old");
}

TEST_F(LocalObjectStoreTest, OverwritingAgainAndAgainTakesNoMoreSpaceThanTwice) {
  const ObjectId id = Make();
  for (VersionNumber version = 1; version < 20; ++version) {
    ASSERT_TRUE(store_->Write(id, 0, std::string(300 * kBlock, 'a'), version).ok());
    ASSERT_TRUE(store_->Flush(id).ok());
  }
  EXPECT_LE(*(*disk_.Open(DataPath(id)))->Size(), 2 * 300 * kBlock);
}

TEST_F(LocalObjectStoreTest, AnUpdateOfTwoObjectsIsWholeOrNotAtAll) {
  const ObjectId a = *store_->Create("a", 1), b = *store_->Create("b", 1);
  const std::string text(100, 'x');
  const std::vector<ObjectUpdate> both = {{b, {{8192, text}}, "B"}, {a, {{0, text}}, "A"}};
  ASSERT_TRUE(store_->Update(both, 2).ok());
  EXPECT_EQ(store_->GetAttributes(a)->blob, "A");
  EXPECT_EQ(store_->GetAttributes(b)->size_bytes, 8292u);

  // The second one cannot be: the first is as it was, and its space is given back.
  const uint64_t used = store_->Space()->used_bytes;
  const std::vector<ObjectUpdate> wrong = {{a, {{80000, text}}, "?"}, {b, {{8192, text}}, "?"}};
  ASSERT_TRUE(store_->Remove(b).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->Update(wrong, 3)));
  EXPECT_EQ(store_->GetAttributes(a)->blob, "A");
  EXPECT_EQ(store_->GetAttributes(a)->size_bytes, 100u);
  EXPECT_LT(store_->Space()->used_bytes, used);
}

// -- what becomes durable together ----------------------------------------------------------------

TEST_F(LocalObjectStoreTest, WhateverIsFlushedTakesAllUpdatesAlong) {
  const ObjectId a = Make("old"), b = Make("old"), c = Make("old"), d = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(store_->Write(b, 0, "new", 2).ok());
  ASSERT_TRUE(store_->Write(d, 0, "new", 2).ok());
  const std::string text = "new";
  const std::vector<ObjectUpdate> both = {{a, {{0, text}}, "A"}, {b, {}, "B"}};
  ASSERT_TRUE(store_->Update(both, 3).ok());
  ASSERT_TRUE(store_->Flush(c).ok());
  Open();
  EXPECT_EQ(*Read(a, 0, 9), "new");
  EXPECT_EQ(store_->GetAttributes(a)->blob, "A");
  EXPECT_EQ(store_->GetAttributes(b)->blob, "B");
  EXPECT_EQ(*Read(b, 0, 9), "old") << "contents that no update wrote wait for their own flush";
  EXPECT_EQ(*Read(d, 0, 9), "old");
}

TEST_F(LocalObjectStoreTest, ManyObjectsBecomeDurableByOneSyncOrTwo) {
  int syncs = 0;
  ModelDisk counting(disk_, {.fault = [&syncs](std::string_view call, const std::string&) {
                       if (call == "sync") ++syncs;
                       return absl::OkStatus();
                     }});
  for (const uint64_t logged : {0, 4}) {
    OpenOn(counting, {.logged_blocks_max = logged});
    const ObjectId directory = Make("names");
    ASSERT_TRUE(store_->FlushAll().ok());
    for (VersionNumber version = 2; version < 1002; ++version) {
      ASSERT_TRUE(store_->Create("inode", version).ok());
      const std::string name = std::to_string(version);
      const ObjectUpdate update{directory, {{0, name}}, "entries"};
      ASSERT_TRUE(store_->Update(std::span(&update, 1), version).ok());
    }
    syncs = 0;
    ASSERT_TRUE(store_->FlushAll().ok());
    EXPECT_EQ(syncs, logged == 0 ? 2 : 1) << "the journal, and the directory's data file";
    ASSERT_TRUE(store_->FlushAll().ok());
    EXPECT_EQ(syncs, logged == 0 ? 2 : 1) << "nothing has changed";
  }
}

// -- contents that only the journal has -----------------------------------------------------------

TEST_F(LocalObjectStoreTest, AFewBlocksAreFlushedByTheJournalAloneAndOutliveTheirDataFile) {
  std::vector<std::string> syncs;
  ModelDisk counting(disk_, {.fault = [&syncs](std::string_view call, const std::string& path) {
                       if (call == "sync") syncs.push_back(path);
                       return absl::OkStatus();
                     }});
  OpenOn(counting);
  const ObjectId few = Make(std::string(4 * kBlock, 'f')),
                 many = Make(std::string(5 * kBlock, 'm'));
  syncs.clear();
  ASSERT_TRUE(store_->Flush(few).ok());
  EXPECT_THAT(syncs, ElementsAre(JournalName(3)));
  syncs.clear();
  ASSERT_TRUE(store_->Flush(many).ok());
  EXPECT_THAT(syncs, ElementsAre(DataPath(many), FolderName(many), JournalName(3)));
  // As a power cut can leave it.
  store_.reset();
  ASSERT_TRUE(disk_.Remove(DataPath(few)).ok());
  Open();
  EXPECT_EQ(*Read(few, 0, 9 * kBlock), std::string(4 * kBlock, 'f'));
}

TEST_F(LocalObjectStoreTest, WhatWasLoggedOfASlotThatIsAnotherBlocksSinceDoesNoHarm) {
  Open({.logged_blocks_max = 1});
  const ObjectId id = Make();
  ASSERT_TRUE(store_->Write(id, 5 * kBlock, std::string(kBlock, 'a'), 1).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  // Synced, and not logged; the first slot is free then.
  ASSERT_TRUE(store_->Write(id, 5 * kBlock, std::string(2 * kBlock, 'b'), 2).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Write(id, 0, std::string(kBlock, 'c'), 3).ok());
  ASSERT_TRUE(store_->Flush(id).ok());
  Open();
  EXPECT_EQ(*Read(id, 0, kBlock), std::string(kBlock, 'c'));
  EXPECT_EQ(*Read(id, 5 * kBlock, 9 * kBlock), std::string(2 * kBlock, 'b'));
}

// The kernel tells once of a page that it could not write.
TEST_F(LocalObjectStoreTest, JournalsWithContentsStayOnceTheDiskCouldNotBeSynced) {
  int syncs = 0;  // of names, as the new journal's, and then of everything
  ModelDisk faulty(disk_, {.fault = [&syncs](std::string_view call, const std::string& path) {
                     const bool hit = call == "sync" && path.empty() && --syncs == 0;
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId id = Make("logged"), other = Make("not yet");
  ASSERT_TRUE(store_->Flush(id).ok());
  syncs = 2;
  EXPECT_TRUE(absl::IsInternal(store_->Checkpoint()));
  const absl::Status again = store_->Checkpoint();
  EXPECT_TRUE(absl::IsUnavailable(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("when the store is reopened"));
  EXPECT_EQ(store_->Statistics().checkpoints_failed, 2u);
  EXPECT_TRUE(store_->Write(id, 0, "Logged", 2).ok());
  EXPECT_TRUE(store_->FlushAll().ok()) << "flushes go on";
  store_.reset();
  for (const ObjectId one : {id, other}) ASSERT_TRUE(disk_.Remove(DataPath(one)).ok());
  Open();
  EXPECT_EQ(*Read(id, 0, 9), "Logged");
  EXPECT_EQ(*Read(other, 0, 9), "not yet") << "written before the sync that failed, logged after";
  EXPECT_TRUE(store_->Checkpoint().ok());
}

// Before the sync failed nothing was logged; what is logged later may be what could not be written.
TEST_F(LocalObjectStoreTest, WhatIsLoggedAfterASyncThatFailedStays) {
  int syncs = 0;
  ModelDisk faulty(disk_, {.fault = [&syncs](std::string_view call, const std::string& path) {
                     const bool hit = call == "sync" && path.empty() && --syncs == 0;
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId id = Make("bytes");
  syncs = 2;
  EXPECT_TRUE(absl::IsInternal(store_->Checkpoint()));
  ASSERT_TRUE(store_->Flush(id).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Checkpoint()));
}

TEST_F(LocalObjectStoreTest, JournalsStayWhereADataFileThatWasLoggedCannotBeSynced) {
  bool fails = false;
  ModelDisk faulty(disk_, {.fault = [&fails](std::string_view call, const std::string& path) {
                     const bool hit = fails && call == "sync" && path.ends_with(".d");
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId id = Make("logged"), other = Make();
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Write(other, 0, std::string(9 * kBlock, 'o'), 2).ok());
  fails = true;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(other)));
  EXPECT_TRUE(store_->Checkpoint().ok()) << "of that one nothing was logged";
  ASSERT_TRUE(store_->Write(id, kBlock, std::string(9 * kBlock, 'x'), 2).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(id)));
  fails = false;
  EXPECT_TRUE(absl::IsUnavailable(store_->Checkpoint()));
  Open();
  EXPECT_EQ(*Read(id, 0, 9 * kBlock), "logged");
}

TEST_F(LocalObjectStoreTest, ATornTailOfUsersBytesIsLookedThroughInNoTime) {
  const ObjectId id = Make();
  ASSERT_TRUE(store_->Flush(id).ok());
  const std::string journal = JournalName(2);
  store_.reset();
  // Each of these could be the length of a record that is all there.
  std::string bytes;
  for (uint32_t i = 0; i < (uint32_t{4} << 20) / 4; ++i) {
    bytes += std::string("\0\0\x0f\0", 4);
  }
  const auto file = *disk_.Open(journal);
  ASSERT_TRUE(file->Write(*file->Size(), bytes).ok());
  const auto begin = std::chrono::steady_clock::now();
  Open();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << took.count() << " s; with a checksum at each byte it would be minutes\n";
  EXPECT_LT(took.count(), 20);
  EXPECT_TRUE(store_->GetAttributes(id).ok());
}

TEST_F(LocalObjectStoreTest, AStoreOfVersionTwoBecomesOneOfVersionThree) {
  Open({.logged_blocks_max = 0});
  const ObjectId id = Make("a");
  ASSERT_TRUE(store_->Flush(id).ok());
  store_.reset();
  const auto file = *disk_.Open(kSuperblockName);
  std::string bytes(kSuperblockBytes, '\0');
  ASSERT_TRUE(file->Read(0, std::span(bytes.data(), bytes.size())).ok());
  Superblock superblock = *DecodeSuperblock(bytes);
  superblock.version = 2;
  ASSERT_TRUE(file->Write(0, EncodeSuperblock(superblock)).ok());
  Open();
  EXPECT_EQ(*Read(id, 0, 9), "a");
  store_.reset();
  const auto now = *disk_.Open(kSuperblockName);
  ASSERT_TRUE(now->Read(0, std::span(bytes.data(), bytes.size())).ok());
  EXPECT_EQ(DecodeSuperblock(bytes)->version, 3u);
}

// A step that is in the journal and was aborted is there whole after a crash, whatever was flushed
// after it.
TEST_F(LocalObjectStoreTest, AStepThatFoundTheJournalFullIsNeverFlushedInPart) {
  bool full = false;
  ModelDisk faulty(disk_, {.fault = [&full](std::string_view call, const std::string& path) {
                     const bool hit = full && call == "write" && path.starts_with(kJournalPrefix);
                     return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
                   }});
  OpenOn(faulty);
  const ObjectId a = Make("old"), b = Make("old"), other = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  const std::string text = "new";
  const std::vector<ObjectUpdate> both = {{a, {{0, text}}, "A"}, {b, {}, "B"}};
  ASSERT_TRUE(store_->Update(both, 2).ok());
  full = true;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(absl::IsResourceExhausted(store_->Flush(a)));
  full = false;
  ASSERT_TRUE(store_->Write(b, 0, "newer", 3).ok());
  ASSERT_TRUE(store_->Flush(b).ok());
  Open();
  EXPECT_EQ(*Read(a, 0, 9), "new");
  EXPECT_EQ(store_->GetAttributes(a)->blob, "A");
  EXPECT_EQ(store_->GetAttributes(b)->blob, "B");
  EXPECT_EQ(*Read(b, 0, 9), "newer");
  EXPECT_EQ(store_->Space()->used_bytes, 3 * kBlock);
  ASSERT_TRUE(store_->Flush(other).ok());
}

TEST_F(LocalObjectStoreTest, ContentsThatCannotBeSyncedKeepNoUpdateWaiting) {
  ObjectId bad = 0;
  bool fails = false;
  ModelDisk faulty(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                     const bool hit = fails && call == "sync" && path == DataPath(bad);
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty, {.logged_blocks_max = 0});
  bad = Make("old");
  const ObjectId directory = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(store_->Write(bad, 0, "new", 2).ok());
  const std::string text = "new";
  const std::vector<ObjectUpdate> both = {{directory, {{0, text}}, "D"}, {bad, {}, "linked"}};
  ASSERT_TRUE(store_->Update(both, 3).ok());
  fails = true;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(bad))) << "the rest of the step is there";
  EXPECT_TRUE(store_->Flush(directory).ok());
  Open();
  EXPECT_EQ(*Read(directory, 0, 9), "new");
  EXPECT_EQ(store_->GetAttributes(bad)->blob, "linked");
  EXPECT_EQ(*Read(bad, 0, 9), "old");
}

TEST_F(LocalObjectStoreTest, NoUpdateIsFlushedInPartWhereTheContentsOfOneAreLost) {
  ObjectId bad = 0;
  bool fails = false;
  ModelDisk faulty(disk_, {.fault = [&](std::string_view call, const std::string& path) {
                     const bool hit = fails && call == "sync" && path == DataPath(bad);
                     return hit ? absl::InternalError("bad sector") : absl::OkStatus();
                   }});
  OpenOn(faulty, {.logged_blocks_max = 0});
  bad = Make("old");
  const ObjectId inode = Make("old"), file = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  const std::string text = "new";
  const std::vector<ObjectUpdate> both = {{bad, {{0, text}}, "D"}, {inode, {}, "linked"}};
  ASSERT_TRUE(store_->Update(both, 2).ok());
  ASSERT_TRUE(store_->Write(file, 0, "new", 2).ok());
  fails = true;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  fails = false;
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(file))) << "the updates are not durable";
  Open();
  EXPECT_EQ(store_->GetAttributes(bad)->blob, store_->GetAttributes(inode)->blob);
  EXPECT_EQ(*Read(bad, 0, 9), "old");
  EXPECT_EQ(*Read(file, 0, 9), "new") << "its own changes are";
}

TEST_F(LocalObjectStoreTest, AnUpdateThatContradictsItselfIsRefused) {
  const ObjectId a = *store_->Create("", 1);
  const std::vector<ObjectUpdate> twice = {{a, {}, "1"}, {a, {}, "2"}};
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Update(twice, 2)));
  const ObjectUpdate one_block{a, {{0, "x"}, {100, "y"}}, std::nullopt};
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Update(std::span(&one_block, 1), 2)));
  EXPECT_EQ(store_->GetAttributes(a)->size_bytes, 0u);
}

// What refers to an object is never found without it, also where nobody asked for its creation to
// be durable.
TEST_F(LocalObjectStoreTest, ACreationIsDurableBeforeWhatFollowsIt) {
  const ObjectId directory = *store_->Create("", 1);
  const ObjectId file = *store_->Create("file", 2);
  ASSERT_TRUE(store_->Write(directory, 0, std::to_string(file), 3).ok());
  ASSERT_TRUE(store_->Flush(directory).ok());
  Open();
  const auto found = store_->GetAttributes(file);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->blob, "file");
}

// No sync has to be waited for where a crash has nothing to find.
TEST_F(LocalObjectStoreTest, FilesOfWhatWasNeverFlushedGoAtOnceOthersWithTheNextFlush) {
  Open({.logged_blocks_max = 0});
  const ObjectId young = Make("bytes"), old = Make("bytes");
  ASSERT_TRUE(store_->Flush(old).ok());
  ASSERT_TRUE(store_->Remove(young).ok());
  ASSERT_TRUE(store_->Remove(old).ok());
  EXPECT_TRUE(absl::IsNotFound(disk_.Open(DataPath(young)).status()));
  EXPECT_TRUE(disk_.Open(DataPath(old)).ok()) << "a crash now finds it whole";
  ASSERT_TRUE(store_->FlushAll().ok());
  EXPECT_TRUE(absl::IsNotFound(disk_.Open(DataPath(old)).status()));
}

TEST_F(LocalObjectStoreTest, WhatOnlyTheJournalHasIsThereWhereItsRemovalIsNot) {
  const ObjectId id = Make("bytes");
  ASSERT_TRUE(store_->Flush(id).ok());
  ASSERT_TRUE(store_->Remove(id).ok());
  EXPECT_TRUE(absl::IsNotFound(disk_.Open(DataPath(id)).status()));
  Open();
  EXPECT_EQ(*Read(id, 0, 9), "bytes");
  ASSERT_TRUE(store_->Remove(id).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();
  EXPECT_TRUE(absl::IsNotFound(Read(id, 0, 9).status()));
}

}  // namespace
}  // namespace abacus::objfs
