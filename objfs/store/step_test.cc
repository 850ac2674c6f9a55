// Steps that cannot be made whole, or not at once: contents that may be lost, errors that pass and
// errors that do not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"

namespace abacus::objfs {
namespace {

using ::testing::HasSubstr;

class StepTest : public ::testing::Test {
 protected:
  StepTest()
      : faulty_(disk_, {.fault = [this](std::string_view call, const std::string& path) {
                  return call == fails_call_ && path == fails_path_ ? error_ : absl::OkStatus();
                }}) {
    Open();
  }

  // As after a crash: what was not flushed is gone. One data file is open at a time.
  void Open() {
    store_.reset();
    fails_call_ = "";
    auto store = LocalObjectStore::Open(
        faulty_, {.open_files_max = 1, .logged_blocks_max = logged_blocks_max_});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // From now on the call answers so.
  void Fail(std::string_view call, ObjectId id, const absl::Status& error) {
    fails_call_ = call;
    fails_path_ = DataPath(id);
    error_ = error;
  }
  ObjectId Make(std::string_view bytes = "") {
    const auto id = store_->Create("", 1);
    EXPECT_TRUE(id.ok()) << id.status();
    if (bytes.empty()) return *id;
    EXPECT_TRUE(store_->Write(*id, 0, bytes, 1).ok());
    return *id;
  }
  absl::Status Update(ObjectId id, std::string_view bytes, std::optional<std::string> blob,
                      bool may_lose_contents = false) {
    ObjectUpdate update{id, {}, std::move(blob), may_lose_contents};
    if (!bytes.empty()) update.writes = {{0, bytes}};
    return store_->Update(std::span(&update, 1), 2);
  }
  std::string Read(ObjectId id) {
    std::string bytes(100, '?');
    const auto read = store_->Read(id, 0, std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(read.ok()) << read.status();
    return bytes.substr(0, read.ok() ? *read : 0);
  }
  std::string Blob(ObjectId id) { return store_->GetAttributes(id)->blob; }

  // Contents are synced, so that this can fail.
  uint64_t logged_blocks_max_ = 0;
  MemoryDisk disk_;
  std::string fails_call_, fails_path_;
  absl::Status error_;
  ModelDisk faulty_;
  std::unique_ptr<LocalObjectStore> store_;
};

TEST_F(StepTest, ContentsThatMayBeLostGoAlongWithAnyFlush) {
  const ObjectId link = Make(), directory = Make(), other = Make();
  ASSERT_TRUE(Update(link, "target", std::nullopt, true).ok());
  ASSERT_TRUE(Update(directory, "name", std::nullopt).ok());
  ASSERT_TRUE(store_->Flush(other).ok());
  Open();
  EXPECT_EQ(Read(directory), "name");
  EXPECT_EQ(Read(link), "target");
}

TEST_F(StepTest, ContentsThatMayBeLostAreToldOnceAndKeepNoUpdateWaiting) {
  const ObjectId link = Make("old"), directory = Make(), other = Make();
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(link, "target", "linked", true).ok());
  ASSERT_TRUE(Update(directory, "name", std::nullopt).ok());
  Fail("sync", link, absl::InternalError("bad sector"));
  const absl::Status told = store_->Flush(other);
  EXPECT_TRUE(absl::IsUnavailable(told)) << told;
  EXPECT_THAT(std::string(told.message()), HasSubstr(absl::StrCat("object ", link, " ")));
  EXPECT_EQ(store_->Flush(other), absl::OkStatus());
  EXPECT_TRUE(Update(directory, "names", std::nullopt).ok()) << "updates are not lost";
  Open();
  EXPECT_EQ(Read(directory), "name");
  EXPECT_EQ(Blob(link), "linked");
  EXPECT_EQ(Read(link), "old");
}

TEST_F(StepTest, WhatAFlusherInTheBackgroundFoundLostIsToldToTheNextWhoAsks) {
  const ObjectId link = Make("old"), directory = Make();
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(link, "target", "linked", true).ok());
  ASSERT_TRUE(Update(directory, "name", std::nullopt).ok());
  Fail("sync", link, absl::InternalError("bad sector"));
  EXPECT_FALSE(store_->FlushAll().ok());
  EXPECT_EQ(store_->FlushTogether({}), absl::OkStatus()) << "nobody asks";
  const absl::Status told = store_->Flush(directory);
  EXPECT_TRUE(absl::IsUnavailable(told)) << told;
  EXPECT_THAT(std::string(told.message()), HasSubstr(absl::StrCat("object ", link, " ")));
  EXPECT_EQ(store_->Flush(directory), absl::OkStatus()) << "once";
}

// The updates before may rest on one that is lost, whatever became of its object.
TEST_F(StepTest, UpdatesThatAreLostStayLostWhereTheObjectIsRemoved) {
  const ObjectId directory = Make("old"), inode = Make(), other = Make();
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(directory, "new", std::nullopt).ok());
  ASSERT_TRUE(Update(inode, "", "linked").ok());
  Fail("sync", directory, absl::InternalError("bad sector"));
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(other)));
  ASSERT_TRUE(store_->Remove(directory).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  Open();
  EXPECT_EQ(Blob(inode), "");
}

// Lost by a flush of the object alone, which is told; a name may have been given before.
TEST_F(StepTest, ContentsThatWereLostBeforeTheStepKeepItsAttributes) {
  const ObjectId link = Make("old"), other = Make();
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(link, "target", "linked", true).ok());
  Fail("sync", link, absl::InternalError("bad sector"));
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(link)));
  EXPECT_EQ(store_->Flush(other), absl::OkStatus());
  Open();
  EXPECT_EQ(Blob(link), "linked");
}

TEST_F(StepTest, WhatIsDamagedKeepsNoFlushFromSayingThatAllIsWell) {
  const ObjectId damaged = Make("a"), other = Make("b");
  ASSERT_TRUE(store_->FlushAll().ok());
  Open();  // which brings the journal into the tables
  Open();
  const auto table = disk_.Open(TablePath(damaged));
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_TRUE((*table)->Write(100, "damage").ok());
  Open();
  ASSERT_TRUE(absl::IsDataLoss(store_->GetAttributes(damaged).status()));
  ASSERT_TRUE(store_->Write(other, 0, "c", 2).ok());
  EXPECT_EQ(store_->FlushTogether(std::vector<ObjectId>{damaged, other}), absl::OkStatus());
  Open();
  EXPECT_EQ(Read(other), "c");
}

TEST_F(StepTest, OnceUpdatesAreLostNoneIsTaken) {
  const ObjectId directory = Make("old"), inode = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(directory, "new", std::nullopt).ok());
  Fail("sync", directory, absl::InternalError("bad sector"));
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  const absl::Status refused = Update(inode, "", "linked");
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a restart of its server"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("bad sector"));
  EXPECT_EQ(Blob(inode), "");
  EXPECT_EQ(store_->Flush(inode), refused) << "flushes say the same";
  // What rests on no update goes on.
  EXPECT_TRUE(store_->Write(inode, 0, "new", 3).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  Open();
  EXPECT_EQ(Read(inode), "new");
  EXPECT_EQ(Read(directory), "old");
  EXPECT_TRUE(Update(inode, "", "linked").ok());
  EXPECT_EQ(store_->Flush(inode), absl::OkStatus());
}

TEST_F(StepTest, AfterAnErrorThatPassesTheNextFlushHasAllUpdates) {
  for (const bool may_lose_contents : {false, true}) {
    SCOPED_TRACE(may_lose_contents);
    const ObjectId directory = Make(), inode = Make("old"), other = Make("old");
    ASSERT_TRUE(store_->FlushAll().ok());
    ASSERT_TRUE(Update(directory, "name", "D", may_lose_contents).ok());
    ASSERT_TRUE(Update(inode, "", "linked").ok());
    ASSERT_TRUE(store_->Write(other, 0, "new", 2).ok());  // now the directory's file is closed
    Fail("open", directory, absl::InternalError("too many open files"));
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = store_->Flush(inode);
      EXPECT_TRUE(absl::IsInternal(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("too many open files"));
    }
    EXPECT_TRUE(Update(inode, "", "linked again").ok()) << "nothing is lost";
    fails_call_ = "";
    EXPECT_EQ(store_->Flush(inode), absl::OkStatus());
    Open();
    EXPECT_EQ(Read(directory), "name");
    EXPECT_EQ(Blob(directory), "D");
    EXPECT_EQ(Blob(inode), "linked again");
  }
}

// In the meantime a crash finds none of the updates.
TEST_F(StepTest, AnErrorThatPassesLetsNoUpdateBecomeDurableInPart) {
  const ObjectId directory = Make("old"), inode = Make(), other = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(directory, "new", std::nullopt).ok());
  ASSERT_TRUE(Update(inode, "", "linked").ok());
  ASSERT_TRUE(store_->Write(other, 0, "new", 2).ok());
  Fail("open", directory, absl::InternalError("too many open files"));
  EXPECT_TRUE(absl::IsInternal(store_->Flush(other)));
  Open();
  EXPECT_EQ(Read(directory), "old");
  EXPECT_EQ(Blob(inode), "");
  EXPECT_EQ(Read(other), "new") << "its own changes are there";
}

TEST_F(StepTest, AFileThatIsMissingIsNoErrorThatPasses) {
  const ObjectId directory = Make(), inode = Make(), other = Make("old");
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_TRUE(Update(directory, "name", std::nullopt).ok());
  ASSERT_TRUE(store_->Write(other, 0, "new", 2).ok());
  ASSERT_TRUE(disk_.Remove(DataPath(directory)).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Flush(inode)));
  const absl::Status refused = Update(inode, "", "linked");
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its data file is missing"));
}

}  // namespace
}  // namespace abacus::objfs
