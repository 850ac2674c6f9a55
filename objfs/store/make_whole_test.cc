// Objects whose tables are damaged, made whole from what was kept of them: what is taken, and what
// a crash at any call to the disk leaves.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/store_scan.h"
#include "objfs/store/testing/model_object.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

constexpr ObjectId kWholeId = 7;
constexpr uint64_t kWholeBlock = ObjectStore::kBlockBytes;

std::string KeptBlockOf(const testing::ModelObject& object, uint64_t number) {
  std::string block = object.bytes.substr(number * kWholeBlock, kWholeBlock);
  block.resize(kWholeBlock, '\0');
  return block;
}

KeptTable KeptTableOf(const testing::ModelObject& object) {
  KeptTable table;
  table.head = {.size_bytes = object.bytes.size(), .version = object.version, .blob = object.blob};
  for (uint64_t i = 0; i < object.versions.size(); ++i) {
    if (object.versions[i] == 0) continue;
    table.blocks.push_back({i, object.versions[i], Crc32c(KeptBlockOf(object, i))});
  }
  return table;
}

KeptObject KeptOf(const testing::ModelObject& object) {
  return {.table = [object] { return KeptTableOf(object); },
          .block = [object](uint64_t number) { return KeptBlockOf(object, number); }};
}

// As somebody who has nothing, and must not be asked.
KeptObject KeptNowhere() {
  return {.table = []() -> absl::StatusOr<KeptTable> {
            ADD_FAILURE() << "it was asked for a table";
            return absl::InternalError("there is none");
          },
          .block = [](uint64_t) -> absl::StatusOr<std::string> {
            ADD_FAILURE() << "it was asked for a block";
            return absl::InternalError("there is none");
          }};
}

// The object, in a store that has its table on the disk only.
absl::StatusOr<testing::ModelObject> MakeRested(LocalObjectStore& store, uint64_t bytes,
                                                int checkpoints) {
  if (auto status = store.CreateAs(kWholeId, "blob", 1); !status.ok()) return status;
  for (int i = 0; i < checkpoints; ++i) {
    const VersionNumber version = 2 + static_cast<VersionNumber>(i);
    std::string contents;
    for (uint64_t at = 0; at < bytes; at += kWholeBlock) {
      contents.append(std::min(kWholeBlock, bytes - at),
                      static_cast<char>('a' + (at / kWholeBlock + version) % 26));
    }
    const absl::Status changed = bytes > 0 ? store.Write(kWholeId, 0, contents, version)
                                           : store.SetAttributes(kWholeId, "blob", version);
    if (!changed.ok()) return changed;
    if (auto status = store.Flush(kWholeId); !status.ok()) return status;
    if (auto status = store.Checkpoint(); !status.ok()) return status;
  }
  const auto object = testing::ReadObject(store, kWholeId);
  store.Rest(kWholeId);
  return object;
}

void RotTable(Disk& disk, uint64_t page, const std::vector<int>& places) {
  const auto table = disk.Open(TablePath(kWholeId));
  ASSERT_TRUE(table.ok()) << table.status();
  for (const int place : places) {
    ASSERT_TRUE((*table)->Write(OffsetOfPage(page, place) + 20, "rot").ok());
  }
  ASSERT_TRUE((*table)->Sync().ok());
}

uint64_t DataBytes(Disk& disk) {
  const auto data = disk.Open(DataPath(kWholeId));
  return data.ok() ? (*data)->Size().value_or(UINT64_MAX) : UINT64_MAX;
}

// -- a crash --------------------------------------------------------------------------------------

struct MakeWholeCase {
  const char* name;
  uint64_t bytes;
  int checkpoints;             // before; with two both places of a page are written, and rot
  uint64_t logged_blocks_max;  // what is written to more goes to the data file at once
};

class MakeWholeCrashTest : public ::testing::TestWithParam<MakeWholeCase> {
 protected:
  void Open() {
    LocalObjectStoreOptions options;
    options.logged_blocks_max = GetParam().logged_blocks_max;
    auto store = LocalObjectStore::Open(*disk_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void MakeDamaged() {
    disk_.emplace();
    ASSERT_NO_FATAL_FAILURE(Open());
    auto object = MakeRested(*store_, GetParam().bytes, GetParam().checkpoints);
    ASSERT_TRUE(object.ok()) << object.status();
    object_ = *std::move(object);
    if (GetParam().checkpoints == 1) {
      ASSERT_NO_FATAL_FAILURE(RotTable(*disk_, 0, {0}));
    } else {
      ASSERT_NO_FATAL_FAILURE(RotTable(*disk_, 0, {0, 1}));
    }
    ASSERT_TRUE(absl::IsDataLoss(store_->GetAttributes(kWholeId).status()));
  }
  // Whether it is whole; else it is damaged, and nothing between the two.
  void Look(bool* is_whole) {
    ASSERT_EQ(*store_->List(0, 10), std::vector<ObjectId>{kWholeId});
    ASSERT_EQ(store_->Space()->used_bytes, object_.AllocatedBytes());
    *is_whole = !absl::IsDataLoss(store_->GetAttributes(kWholeId).status());
    if (!*is_whole) return;
    const auto found = testing::ReadObject(*store_, kWholeId);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(*found == object_);
  }
  // Under the same identifier.
  void MakeAnother() {
    ASSERT_TRUE(store_->Remove(kWholeId).ok());
    ASSERT_TRUE(store_->CreateAs(kWholeId, "another", 20).ok());
    ASSERT_TRUE(store_->Write(kWholeId, 0, "contents", 21).ok());
    ASSERT_TRUE(store_->FlushAll().ok());
    store_.reset();
    ASSERT_NO_FATAL_FAILURE(Open());
    EXPECT_EQ(testing::ReadObject(*store_, kWholeId)->bytes, "contents");
  }

  std::optional<PowerCutDisk> disk_;
  std::unique_ptr<LocalObjectStore> store_;
  testing::ModelObject object_;
};

TEST_P(MakeWholeCrashTest, ACrashAtAnyCallToTheDiskLeavesItDamagedOrWhole) {
  size_t points = 0, damaged = 0, wholes = 0;
  for (bool is_over = false; !is_over; ++points) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("call ", points, ", seed ", seed));
      store_.reset();
      ASSERT_NO_FATAL_FAILURE(MakeDamaged());
      const uint64_t before = disk_->Calls();
      disk_->CutPowerAfter(points);
      const absl::Status made = store_->MakeWhole(kWholeId, KeptOf(object_));
      is_over = disk_->Calls() - before <= points;
      ASSERT_TRUE(made.ok() || !is_over) << made;
      disk_->CutPower();
      store_.reset();
      disk_->PowerOn(seed);
      // Twice: the first opening writes, too.
      bool was_whole = made.ok();
      for (int life = 0; life < 2; ++life) {
        ASSERT_NO_FATAL_FAILURE(Open());
        bool is_whole = false;
        ASSERT_NO_FATAL_FAILURE(Look(&is_whole));
        ASSERT_TRUE(is_whole || !was_whole);
        was_whole = is_whole;
        store_.reset();
      }
      ++(was_whole ? wholes : damaged);
      ASSERT_NO_FATAL_FAILURE(Open());
      ASSERT_NO_FATAL_FAILURE(MakeAnother());
    }
  }
  std::cout << GetParam().name << ": " << points << " calls; damaged " << damaged
            << " times, whole " << wholes << "\n";
  EXPECT_GT(points, 4u);
  EXPECT_GT(damaged, 0u);
  EXPECT_GT(wholes, 4u) << "also where it is cut off behind the step";
}
INSTANTIATE_TEST_SUITE_P(Contents, MakeWholeCrashTest,
                         ::testing::Values(MakeWholeCase{"attributes", 0, 1, 4},
                                           MakeWholeCase{"attributes_twice", 0, 2, 4},
                                           MakeWholeCase{"logged", 20'000, 2, 64},
                                           MakeWholeCase{"data", 100'000, 1, 0}),
                         [](const auto& tried) { return std::string(tried.param.name); });

// -- what is taken --------------------------------------------------------------------------------

class MakeWholeTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 3 * kWholeBlock + 100;

  void Open() {
    store_.reset();
    auto store = LocalObjectStore::Open(disk_, options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void MakeDamaged(uint64_t bytes = kBytes) {
    ASSERT_NO_FATAL_FAILURE(Open());
    auto object = MakeRested(*store_, bytes, 1);
    ASSERT_TRUE(object.ok()) << object.status();
    object_ = *std::move(object);
    ASSERT_NO_FATAL_FAILURE(RotTable(below_, 0, {0}));
    ASSERT_TRUE(IsDamaged());
  }
  bool IsDamaged() { return absl::IsDataLoss(store_->GetAttributes(kWholeId).status()); }
  void ExpectWhole() {
    const auto found = testing::ReadObject(*store_, kWholeId);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(*found == object_);
    EXPECT_EQ(store_->Space()->used_bytes, object_.AllocatedBytes());
  }
  // Calls to the disk that fail, by call and path.
  void Fail(std::string call, std::string path) {
    fails_ = [call = std::move(call), path = std::move(path)](
                 std::string_view a, const std::string& b) { return a == call && b == path; };
  }

  void FailWritesToTheJournal() {
    fails_ = [](std::string_view call, const std::string& path) {
      return call == "write" && path.starts_with(kJournalPrefix);
    };
  }
  // Calls in a thread of its own, and returns when that waits: it would have asked for the table
  // long before so much other work was done.
  std::thread CallMeanwhile(KeptObject kept) {
    std::atomic<bool> has_begun{false};
    std::thread other([this, &has_begun, kept = std::move(kept)] {
      has_begun = true;
      const absl::Status made = store_->MakeWhole(kWholeId, kept);
      EXPECT_TRUE(made.ok()) << made;
    });
    while (!has_begun) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(store_->Checkpoint().ok());
    return other;
  }

  std::function<bool(std::string_view call, const std::string& path)> fails_;
  LocalObjectStoreOptions options_;
  MemoryDisk below_;
  ModelDisk disk_{below_, Model()};
  std::unique_ptr<LocalObjectStore> store_;
  testing::ModelObject object_;

 private:
  DiskModel Model() {
    DiskModel model;
    model.wait = [](absl::Duration) {};
    model.fault = [this](std::string_view call, const std::string& path) {
      return fails_ && fails_(call, path) ? absl::InternalError("the disk fails")
                                          : absl::OkStatus();
    };
    return model;
  }
};

TEST_F(MakeWholeTest, OnlyWhatTheObjectHadIsTaken) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  const uint64_t bytes_before = DataBytes(below_);
  const std::vector<std::function<void(KeptTable&)>> changes = {
      [](KeptTable& table) { table.head.blob = "blab"; },
      [](KeptTable& table) { ++table.head.version; },
      [](KeptTable& table) { --table.head.size_bytes; },
      [](KeptTable& table) { ++table.blocks[1].version; },
      [](KeptTable& table) { ++table.blocks[1].crc; },
      [](KeptTable& table) { ++table.blocks[3].number; },
      [](KeptTable& table) { table.blocks.pop_back(); },
      [](KeptTable& table) { table.blocks.push_back(table.blocks.back()); },
      [](KeptTable& table) {
        table.blocks.push_back({9, 0, 0});
      }};
  for (size_t i = 0; i < changes.size(); ++i) {
    KeptObject other = KeptOf(object_);
    other.table = [&] {
      KeptTable table = KeptTableOf(object_);
      changes[i](table);
      return table;
    };
    const absl::Status made = store_->MakeWhole(kWholeId, other);
    EXPECT_TRUE(absl::IsFailedPrecondition(made)) << i << ": " << made;
  }
  KeptObject other = KeptOf(object_);
  other.block = [&](uint64_t number) {
    std::string block = KeptBlockOf(object_, number);
    if (number == 2) block[17] = '?';
    return block;
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->MakeWhole(kWholeId, other)));
  other.block = [&](uint64_t number) { return KeptBlockOf(object_, number).substr(1); };
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->MakeWhole(kWholeId, other)));
  other.block = [](uint64_t) { return absl::AbortedError("the copy is away"); };
  EXPECT_TRUE(absl::IsAborted(store_->MakeWhole(kWholeId, other)));
  EXPECT_TRUE(absl::IsNotFound(store_->MakeWhole(kWholeId + 1, KeptNowhere())));
  EXPECT_TRUE(IsDamaged());
  EXPECT_EQ(DataBytes(below_), bytes_before) << "nothing of it is left";
  EXPECT_EQ(store_->Statistics().repaired_objects, 0u);

  const absl::Status made = store_->MakeWhole(kWholeId, KeptOf(object_));
  ASSERT_TRUE(made.ok()) << made;
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_EQ(store_->Statistics().repaired_objects, 1u);
  EXPECT_TRUE(store_->MakeWhole(kWholeId, KeptNowhere()).ok()) << "it is whole";
  EXPECT_EQ(store_->Statistics().repaired_objects, 1u);
  // And is one like any other.
  object_.Write(kWholeBlock + 10, "more", 9);
  ASSERT_TRUE(store_->Write(kWholeId, kWholeBlock + 10, "more", 9).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhicheverPageAndPlaceRotted) {
  constexpr uint64_t kTwoPages = (kHeadPageEntries + 10) * kWholeBlock;
  struct Rot {
    uint64_t page;
    std::vector<int> places;
  };
  const std::vector<Rot> rots = {{0, {0}}, {0, {1}}, {0, {0, 1}}, {1, {0}}, {1, {1}}, {1, {0, 1}}};
  for (const Rot& rot : rots) {
    SCOPED_TRACE(absl::StrCat("page ", rot.page, ", places ", absl::StrJoin(rot.places, " and ")));
    MemoryDisk disk;
    auto store = *LocalObjectStore::Open(disk, {});
    const auto object = MakeRested(*store, kTwoPages, 2);
    ASSERT_TRUE(object.ok()) << object.status();
    ASSERT_NO_FATAL_FAILURE(RotTable(disk, rot.page, rot.places));
    ASSERT_TRUE(absl::IsDataLoss(store->GetAttributes(kWholeId).status()));
    ASSERT_TRUE(store->MakeWhole(kWholeId, KeptOf(*object)).ok());
    for (int life = 0; life < 2; ++life) {
      const auto found = testing::ReadObject(*store, kWholeId);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_TRUE(*found == *object);
      store.reset();
      store = *LocalObjectStore::Open(disk, {});
    }
  }
}

TEST_F(MakeWholeTest, OfATableThatWasNotInMemorySinceTheStoreWasOpenedNothingIsKnown) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_TRUE(IsDamaged());
  EXPECT_TRUE(absl::IsDataLoss(store_->MakeWhole(kWholeId, KeptNowhere())));
}

TEST_F(MakeWholeTest, OfATableOfTooManyBlocksNothingIsKnown) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged((LocalObjectStore::kMadeWholeBlocksMax + 1) * kWholeBlock));
  EXPECT_TRUE(absl::IsDataLoss(store_->MakeWhole(kWholeId, KeptNowhere())));
}

TEST_F(MakeWholeTest, UntilTheStepEachCallIsToldOfTheDamage) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  KeptObject kept = KeptOf(object_);
  kept.block = [&](uint64_t number) {
    EXPECT_EQ(runtime::HeldLocks(), 0);
    EXPECT_TRUE(IsDamaged());
    char byte;
    EXPECT_TRUE(absl::IsDataLoss(store_->Read(kWholeId, 0, std::span(&byte, 1)).status()));
    EXPECT_TRUE(absl::IsDataLoss(store_->Write(kWholeId, 0, "x", 9)));
    EXPECT_EQ(store_->List(0, 10)->size(), 1u);
    EXPECT_TRUE(store_->FlushAll().ok());
    EXPECT_TRUE(store_->Checkpoint().ok());
    return KeptBlockOf(object_, number);
  };
  ASSERT_TRUE(store_->MakeWhole(kWholeId, kept).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhatIsRemovedMeanwhileStaysSo) {
  for (const bool first : {true, false}) {
    SCOPED_TRACE(first ? "before the table is known" : "while blocks are written");
    ASSERT_NO_FATAL_FAILURE(MakeDamaged());
    const auto make_another = [&] {
      EXPECT_TRUE(store_->Remove(kWholeId).ok());
      EXPECT_TRUE(store_->CreateAs(kWholeId, "another", 20).ok());
      EXPECT_TRUE(store_->Write(kWholeId, 0, "contents", 21).ok());
      EXPECT_TRUE(store_->FlushAll().ok());
    };
    KeptObject kept = KeptOf(object_);
    kept.table = [&] {
      if (first) make_another();
      return KeptTableOf(object_);
    };
    kept.block = [&](uint64_t number) {
      if (number == 1) make_another();
      return KeptBlockOf(object_, number);
    };
    EXPECT_TRUE(absl::IsNotFound(store_->MakeWhole(kWholeId, kept)));
    EXPECT_EQ(DataBytes(below_), kWholeBlock) << "it wrote to the other one's file";
    for (int life = 0; life < 2; ++life) {
      EXPECT_EQ(testing::ReadObject(*store_, kWholeId)->bytes, "contents");
      ASSERT_NO_FATAL_FAILURE(Open());
    }
    ASSERT_TRUE(store_->Remove(kWholeId).ok());
    ASSERT_TRUE(store_->FlushAll().ok());
  }
}

TEST_F(MakeWholeTest, WhoComesMeanwhileWaitsAndAsksNobody) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  std::thread other;
  KeptObject kept = KeptOf(object_);
  kept.table = [&] {
    other = CallMeanwhile(KeptNowhere());
    return KeptTableOf(object_);
  };
  EXPECT_TRUE(store_->MakeWhole(kWholeId, kept).ok());
  other.join();
  EXPECT_EQ(store_->Statistics().repaired_objects, 1u);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhereTheFirstOneFailsWhoWaitedMakesItWhole) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  std::thread other;
  KeptObject kept = KeptOf(object_);
  kept.table = [&] {
    other = CallMeanwhile(KeptOf(object_));
    return absl::AbortedError("the copy is away");
  };
  EXPECT_TRUE(absl::IsAborted(store_->MakeWhole(kWholeId, kept)));
  other.join();
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhatIsNotTakenMakesNoFile) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged(/*bytes=*/0));
  KeptObject other = KeptOf(object_);
  other.table = [&] {
    KeptTable table = KeptTableOf(object_);
    table.blocks.push_back({0, table.head.version, 0});
    return table;
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->MakeWhole(kWholeId, other)));
  EXPECT_TRUE(absl::IsNotFound(below_.Open(DataPath(kWholeId)).status()));
}

TEST_F(MakeWholeTest, TheSpaceOfItsOldSlotsIsGivenBackThoughItsFileIsClosedMeanwhile) {
  options_.open_files_max = 1;
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  const uint64_t bytes_before = DataBytes(below_);
  KeptObject kept = KeptOf(object_);
  kept.block = [&](uint64_t number) {
    if (number == 0) {
      EXPECT_TRUE(store_->CreateAs(kWholeId + 1, "another", 1).ok());
      EXPECT_TRUE(store_->Write(kWholeId + 1, 0, "in a file", 2).ok());
    }
    return KeptBlockOf(object_, number);
  };
  ASSERT_TRUE(store_->MakeWhole(kWholeId, kept).ok());
  const auto data = below_.Open(DataPath(kWholeId));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->NextData(0).value_or(0), bytes_before);
  EXPECT_EQ(testing::ReadObject(*store_, kWholeId)->bytes, object_.bytes);
}

// -- a disk that fails ----------------------------------------------------------------------------

TEST_F(MakeWholeTest, WhereTheDamagedTableCannotBeRemovedTheJournalsHaveTheObject) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  Fail("remove", TablePath(kWholeId));
  ASSERT_TRUE(store_->MakeWhole(kWholeId, KeptOf(object_)).ok());
  EXPECT_EQ(store_->Statistics().checkpoints_failed, 1u);
  EXPECT_FALSE(store_->Checkpoint().ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  EXPECT_TRUE(store_->Examine(/*repair=*/true)->empty()) << "nobody will read the damaged one";
  store_.reset();
  fails_ = nullptr;
  for (int life = 0; life < 2; ++life) {
    ASSERT_NO_FATAL_FAILURE(Open());
    ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  }
}

TEST_F(MakeWholeTest, TheNextCheckpointRemovesADamagedTableThatCouldNotBeRemoved) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  Fail("remove", TablePath(kWholeId));
  ASSERT_TRUE(store_->MakeWhole(kWholeId, KeptOf(object_)).ok());
  fails_ = nullptr;
  ASSERT_TRUE(store_->Checkpoint().ok());
  store_->Rest(kWholeId);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhereTheJournalTakesNothingMoreNothingThatWasWrittenIsLeft) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  const uint64_t bytes_before = DataBytes(below_);
  KeptObject kept = KeptOf(object_);
  kept.block = [&](uint64_t number) {
    if (number == 3) {
      FailWritesToTheJournal();
      EXPECT_TRUE(store_->CreateAs(kWholeId + 1, "another", 1).ok());
      EXPECT_FALSE(store_->FlushAll().ok());
    }
    return KeptBlockOf(object_, number);
  };
  EXPECT_TRUE(absl::IsInternal(store_->MakeWhole(kWholeId, kept)));
  EXPECT_EQ(DataBytes(below_), bytes_before);
  EXPECT_TRUE(absl::IsInternal(store_->MakeWhole(kWholeId, KeptNowhere()))) << "it is in vain";
  EXPECT_TRUE(IsDamaged());
  fails_ = nullptr;
  ASSERT_TRUE(store_->MakeWhole(kWholeId, KeptOf(object_)).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhatTheJournalTakesLaterHasItsContents) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  FailWritesToTheJournal();
  EXPECT_TRUE(absl::IsInternal(store_->MakeWhole(kWholeId, KeptOf(object_))));
  EXPECT_TRUE(IsDamaged());
  fails_ = nullptr;
  ASSERT_TRUE(store_->CreateAs(kWholeId + 1, "another", 1).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole());
}

TEST_F(MakeWholeTest, WhereItsContentsCannotBeSyncedItStaysDamaged) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  const uint64_t bytes_before = DataBytes(below_);
  Fail("sync", DataPath(kWholeId));
  EXPECT_TRUE(absl::IsUnavailable(store_->MakeWhole(kWholeId, KeptOf(object_))));
  EXPECT_TRUE(IsDamaged());
  EXPECT_EQ(DataBytes(below_), bytes_before);
  fails_ = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(store_->MakeWhole(kWholeId, KeptNowhere())))
      << "a second sync would succeed without them";
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_TRUE(IsDamaged());
}

}  // namespace
}  // namespace abacus::objfs
