// A store on a disk that is full, and not by a quota.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/spare_room.h"
#include "runtime/testing/small_disk.h"

namespace abacus::objfs {
namespace {

class FullDiskTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kDiskBytes = 6 << 20;
  static constexpr uint64_t kPiece = ObjectStore::kBlockBytes;

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
  // What `spare` takes of the disk.
  uint64_t SpareBytes() const {
    struct stat facts = {};
    EXPECT_EQ(stat((directory_ + "/store/spare").c_str(), &facts), 0) << "errno " << errno;
    return static_cast<uint64_t>(facts.st_blocks) * 512;
  }
  absl::Status RemoveName(ObjectId directory, VersionNumber version) {
    const std::string block(ObjectStore::kBlockBytes, static_cast<char>(version));
    const ObjectUpdate names{
        .id = directory, .writes = {{0, block}}, .blob = std::nullopt, .gives_room_back = true};
    return store_->Update(std::span(&names, 1), version);
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

// As names are removed: a block of a directory is written, and then the file goes.
TEST_F(FullDiskTest, BlocksThatAreThereAreWrittenAnewOnADiskThatIsFull) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  constexpr size_t kDirectories = 5;
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  std::vector<ObjectId> directories;
  for (size_t i = 0; i < kDirectories; ++i) {
    directories.push_back(*store_->Create("directory", 1));
    ASSERT_TRUE(store_->Write(directories[i], 0, std::string(2 * kBlock, 'n'), 2).ok());
  }
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Fill(disk));
  VersionNumber version = 10;
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    Close();
    disk.FillBrim();
    ASSERT_NO_FATAL_FAILURE(Open());
    disk.FillBrim();
    for (const ObjectId directory : directories) {
      const std::string block(kBlock, static_cast<char>('a' + life));
      const ObjectUpdate renamed{.id = directory, .writes = {{kBlock, block}}, .blob = "renamed"};
      const absl::Status updated = store_->Update(std::span(&renamed, 1), ++version);
      ASSERT_TRUE(updated.ok()) << updated;
      const absl::Status flushed = store_->FlushTogether({});
      ASSERT_TRUE(flushed.ok()) << flushed;
      disk.FillBrim();
    }
    const ObjectUpdate longer{
        .id = directories[0], .writes = {{2 * kBlock, "more"}}, .blob = std::nullopt};
    EXPECT_TRUE(absl::IsResourceExhausted(store_->Update(std::span(&longer, 1), ++version)))
        << "it adds something";
  }
  for (const ObjectId directory : directories) {
    EXPECT_TRUE(store_->Truncate(directory, kBlock + 1, ++version).ok());
  }
  RemoveAll();
  disk.EmptyBrim();
  ASSERT_NO_FATAL_FAILURE(ExpectRoom());
  Close();
}

// Directories of which names go again and again, as those of links do: nothing else gives room.
TEST_F(FullDiskTest, WhatTheSpareRoomGaveComesBackWithTheNextFlush) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  constexpr size_t kDirectories = 2 * SpareRoom::kBytes / ObjectStore::kBlockBytes;
  std::vector<ObjectId> directories;
  for (size_t i = 0; i < kDirectories; ++i) {
    directories.push_back(*store_->Create("directory", 1));
    ASSERT_TRUE(store_->Write(directories[i], 0, "names", 2).ok());
  }
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Fill(disk));
  VersionNumber version = 10;
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    for (const ObjectId directory : directories) {
      const absl::Status updated = RemoveName(directory, ++version);
      ASSERT_TRUE(updated.ok()) << updated;
    }
    const absl::Status flushed = store_->FlushTogether({});
    ASSERT_TRUE(flushed.ok()) << flushed;
    EXPECT_EQ(SpareBytes(), SpareRoom::kBytes);
    disk.FillBrim();
  }
  // What is refused has taken nothing; what is not flushed is, for those that come later.
  for (size_t i = 1; i < kDirectories; ++i) {
    const std::string block(kPiece, 'r');
    const std::vector<ObjectUpdate> moved = {
        {.id = directories[i], .writes = {{0, block}}, .blob = std::nullopt},
        {.id = directories[i - 1], .writes = {{kPiece, block}}, .blob = std::nullopt}};
    ASSERT_TRUE(absl::IsResourceExhausted(store_->Update(moved, ++version)));
    EXPECT_EQ(SpareBytes(), SpareRoom::kBytes);
  }
  for (const ObjectId directory : directories) {
    const absl::Status cut = store_->Truncate(directory, 5, ++version);
    if (!cut.ok()) break;
  }
  EXPECT_LT(SpareBytes(), SpareRoom::kGivenMax) << "used up";
  const absl::Status updated = RemoveName(directories[0], ++version);
  EXPECT_TRUE(updated.ok()) << updated;
  Close();
}

// Others have used the journal's room up to what is kept.
TEST_F(FullDiskTest, ThatNamesAreGoneBecomesDurable) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Open();
  const ObjectId directory = *store_->Create("directory", 1);
  ASSERT_TRUE(store_->Write(directory, 0, "names", 2).ok());
  ids_.push_back(*store_->Create("", 1));
  ASSERT_TRUE(store_->Write(ids_[0], 0, std::string(100'000, 'z'), 2).ok());
  ASSERT_TRUE(store_->FlushAll().ok());
  ASSERT_NO_FATAL_FAILURE(Fill(disk));
  VersionNumber version = 10;
  absl::Status changed;
  for (; changed.ok() && version < 100'000; ++version) {
    changed = store_->SetAttributes(ids_[0], std::string(500, 'b'), version);
    if (changed.ok()) changed = store_->Flush(ids_[0]);
  }
  ASSERT_TRUE(absl::IsResourceExhausted(changed)) << changed;
  for (const bool restarts : {false, true}) {
    SCOPED_TRACE(restarts);
    if (restarts) {
      Close();
      disk.FillBrim();
      ASSERT_NO_FATAL_FAILURE(Open());
    }
    disk.FillBrim();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(RemoveName(directory, ++version).ok());
      const absl::Status flushed = store_->FlushTogether({});
      ASSERT_TRUE(flushed.ok()) << i << ": " << flushed;
      disk.FillBrim();
    }
  }
  EXPECT_TRUE(store_->Truncate(ids_[0], 0, ++version).ok());
  const absl::Status flushed = store_->Flush(ids_[0]);
  EXPECT_TRUE(flushed.ok()) << flushed;
  RemoveAll();
  disk.EmptyBrim();
  ASSERT_NO_FATAL_FAILURE(ExpectRoom());
  Close();
}

TEST_F(FullDiskTest, WhatIsGivenOfTheSpareRoomIsThereAgainBeforeAnythingIsAdded) {
  const runtime::testing::SmallDisk disk(directory_, kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  auto below = LocalDisk::At(directory_ + "/store");
  ASSERT_TRUE(below.ok()) << below.status();
  const auto available = [&] { return (*below)->Space()->available_bytes; };
  const auto file = *(*below)->Create("bytes");
  SpareRoom spare(**below);
  ASSERT_TRUE(spare.Refill().ok());
  uint64_t at = 0;
  const auto write = [&] { return file->Write(at, std::string(kPiece, 'x')); };
  disk.FillBrim();
  ASSERT_TRUE(absl::IsResourceExhausted(write()));
  EXPECT_TRUE(absl::IsResourceExhausted(spare.Write(SpareRoom::kGivenMax + 1, write)));
  EXPECT_TRUE(spare.is_whole()) << "it is too much for one";
  for (; at < SpareRoom::kBytes; at += kPiece) {
    const absl::Status written = spare.Write(kPiece, write);
    ASSERT_TRUE(written.ok()) << at << ": " << written;
    EXPECT_TRUE(absl::IsResourceExhausted(spare.Refill()));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(spare.Write(kPiece, write))) << "it is used up";
  // Less than is lacking: it is kept, and nobody may add yet.
  at = SpareRoom::kBytes - 5 * kPiece;
  ASSERT_TRUE(file->Truncate(at).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(spare.Refill()));
  EXPECT_EQ(available(), 0u);
  EXPECT_TRUE(spare.Write(kPiece, write).ok());
  ASSERT_TRUE(file->Truncate(0).ok());
  EXPECT_TRUE(spare.Refill().ok());
  EXPECT_EQ(available(), 0u) << "all that was written is spare room again";
}

// Also where the disk is no file system in memory: what lies beyond a file's length is given back
// by some only when the length changes.
TEST_F(FullDiskTest, WhatTheSpareRoomGivesTheDiskHas) {
  auto disk = LocalDisk::At(directory_ + "/store");
  ASSERT_TRUE(disk.ok()) << disk.status();
  SpareRoom spare(**disk);
  ASSERT_TRUE(spare.Refill().ok());
  const uint64_t held = SpareBytes();
  if (held < SpareRoom::kBytes) GTEST_SKIP() << "this disk takes no room beforehand";
  bool is_full = true;
  const absl::Status written = spare.Write(kPiece, [&] {
    return std::exchange(is_full, false) ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_LE(SpareBytes(), held - kPiece);
  SpareRoom next_life(**disk);
  ASSERT_TRUE(next_life.Refill().ok());
  EXPECT_GE(SpareBytes(), SpareRoom::kBytes);
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
