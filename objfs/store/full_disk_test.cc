// A store on a disk that is full, and not by a quota.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "runtime/testing/small_disk.h"

namespace abacus::objfs {
namespace {

class FullDiskTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kDiskBytes = 6 << 20;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
    std::string pattern = ::testing::TempDir() + "abacus-full-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override {
    Close();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  void Close() {
    store_.reset();
    disk_.reset();
  }
  void Open() {
    auto disk = LocalDisk::At(directory_ + "/store");
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    auto store = LocalObjectStore::Open(*disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // An object that grows until there is no room for more of it; and then somebody else takes what
  // is left of the disk, to the last byte.
  void Fill(const runtime::testing::SmallDisk& disk) {
    const auto id = store_->Create("blob", 1);
    ASSERT_TRUE(id.ok()) << id.status();
    ids_.push_back(*id);
    absl::Status grown;
    uint64_t size = 0;
    for (; grown.ok(); size += 100'000) {
      grown = store_->Write(*id, size, std::string(100'000, 'x'), 2);
      if (grown.ok()) grown = store_->Flush(*id);
    }
    EXPECT_TRUE(absl::IsResourceExhausted(grown)) << grown;
    ASSERT_GT(size, 1'000'000u);
    disk.FillBrim();
  }
  void ExpectRoom() {
    const auto id = store_->Create("", 1);
    ASSERT_TRUE(id.ok()) << id.status();
    ids_.push_back(*id);
    const absl::Status written = store_->Write(*id, 0, std::string(1'000'000, 'y'), 2);
    EXPECT_TRUE(written.ok()) << written;
    const absl::Status flushed = store_->Flush(*id);
    EXPECT_TRUE(flushed.ok()) << flushed;
  }
  std::string LastJournal() const {
    std::string last;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/store")) {
      const std::string path = entry.path().string();
      if (path.find("/journal.") != std::string::npos) last = std::max(last, path);
    }
    return last;
  }
  void RemoveAll() {
    for (const ObjectId id : ids_) {
      const absl::Status removed = store_->Remove(id);
      EXPECT_TRUE(removed.ok()) << id << ": " << removed;
    }
    ids_.clear();
    const absl::Status flushed = store_->FlushTogether({});
    EXPECT_TRUE(flushed.ok()) << flushed;
  }

  std::string directory_;
  std::unique_ptr<LocalDisk> disk_;
  std::unique_ptr<LocalObjectStore> store_;
  std::vector<ObjectId> ids_;
};

TEST_F(FullDiskTest, WhatIsRemovedGivesItsRoomBack) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(Fill(disk));
    RemoveAll();
    ASSERT_NO_FATAL_FAILURE(ExpectRoom());
    RemoveAll();
    disk.EmptyBrim();
  }
  Close();
}

// However often others try to change something meanwhile.
TEST_F(FullDiskTest, ChangesDoNotTakeTheRoomThatARemovalNeeds) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  ids_.push_back(*store_->Create("", 1));
  ASSERT_TRUE(store_->Flush(ids_[0]).ok());
  ASSERT_NO_FATAL_FAILURE(Fill(disk));
  absl::Status changed;
  VersionNumber version = 10;
  for (; changed.ok() && version < 100'000; ++version) {
    changed = store_->SetAttributes(ids_[0], std::string(500, 'b'), version);
    if (changed.ok()) changed = store_->Flush(ids_[0]);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(changed)) << changed;
  EXPECT_GT(version, 100u) << "some go on: names are changed before something is removed";
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(store_->Create(std::string(2000, 'b'), 1).status()));
  }
  RemoveAll();
  ASSERT_NO_FATAL_FAILURE(ExpectRoom());
  Close();
}

TEST_F(FullDiskTest, AStoreOpensOnADiskThatIsFull) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  // So many that there is no room for their tables.
  for (int i = 0; i < 400; ++i) ids_.push_back(*store_->Create("small", 1));
  ASSERT_TRUE(store_->Write(ids_[0], 0, "bytes", 2).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Fill(disk));
  for (int life = 0; life < 8; ++life) {
    SCOPED_TRACE(life);
    Close();
    // A record that a crash cut off, and others take what room there is.
    std::ofstream journal(LastJournal(), std::ios::binary | std::ios::app);
    EXPECT_TRUE(journal.write("of a record", 11).flush());
    disk.FillBrim();
    ASSERT_NO_FATAL_FAILURE(Open());
    disk.FillBrim();
    ASSERT_TRUE(store_->SetAttributes(ids_[1], "in life", 10 + life).ok());
    ASSERT_TRUE(store_->Flush(ids_[1]).ok());
    EXPECT_EQ(store_->Statistics().checkpoints_failed, 1u);
    EXPECT_EQ(*store_->List(0, 1000), ids_);
    std::string bytes(5, '?');
    EXPECT_EQ(*store_->Read(ids_[0], 0, std::span(bytes.data(), bytes.size())), bytes.size());
    EXPECT_EQ(bytes, "bytes");
  }
  RemoveAll();
  ASSERT_NO_FATAL_FAILURE(ExpectRoom());
  Close();
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_EQ(*store_->List(0, 1000), ids_);
  Close();
}

}  // namespace
}  // namespace abacus::objfs
