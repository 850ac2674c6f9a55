// What programs are told where the disk of the server is full, or gives wrong bytes.

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::testing::Eventually;
using testing::FileSystemWorld;
using ::testing::HasSubstr;

const Caller kUser;
constexpr char kCaching[] = "cache/isolation/storage";
constexpr uint64_t kQuota = 256 << 10;

class BadDiskTest : public ::testing::Test {
 protected:
  BadDiskTest() : world_(3, &disk_) {
    world_.quota_bytes = kQuota;
    world_.Restart();
  }
  static FileHandle MakeOpen(FileSystem& at, const std::string& name) {
    const auto made = at.Make(kUser, at.root(), name, S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    const auto handle = at.Open(kUser, made->id, O_RDWR);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return *handle;
  }
  static std::string Read(FileSystem& at, FileHandle handle) {
    const auto read = at.Read(handle, 0, 1 << 20);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  static absl::Status Write(FileSystem& at, FileHandle handle, const std::string& bytes) {
    return at.Write(handle, 0, Block::CopyOf(bytes));
  }
  // Leaves less than `bytes` to write.
  static void Fill(FileSystem& at, uint64_t bytes) {
    const FileHandle handle = MakeOpen(at, "full");
    uint64_t offset = 0;
    for (absl::Status written; written.ok(); offset += bytes) {
      ASSERT_LE(offset, kQuota);
      written = at.Write(handle, offset, Block::CopyOf(std::string(bytes, 'f')));
      EXPECT_TRUE(written.ok() || FsErrorOf(written) == FsError::kNoSpace) << written;
    }
    EXPECT_EQ(Read(at, handle), std::string(offset - bytes, 'f')) << "nothing is torn";
    EXPECT_EQ(at.Release(handle), absl::OkStatus());
  }
  static bool IsEmptied(FileSystem& at) { return at.Unlink(kUser, at.root(), "full").ok(); }

  MemoryDisk disk_;
  FileSystemWorld world_;
};

// The volume removes it in its own time; whoever needs its space does not wait for that.
TEST_F(BadDiskTest, WhatWasRemovedMakesRoomAtOnce) {
  const auto a = world_.Client(1);
  const std::string text(200'000, 'x');
  const FileHandle first = MakeOpen(*a, "first");
  ASSERT_TRUE(Write(*a, first, text).ok());
  ASSERT_TRUE(a->Sync(first).ok());
  ASSERT_TRUE(a->Release(first).ok());
  ASSERT_TRUE(a->Unlink(kUser, a->root(), "first").ok());
  const FileHandle second = MakeOpen(*a, "second");
  EXPECT_EQ(Write(*a, second, text), absl::OkStatus());
  EXPECT_EQ(a->Sync(second), absl::OkStatus());
  EXPECT_EQ(Read(*a, second), text);
}

TEST_F(BadDiskTest, TheWriterIsToldOfAFullVolumeAndGoesOnWhenThereIsSpace) {
  const auto a = world_.Client(1);
  const FileHandle handle = MakeOpen(*a, "f");
  const std::string text(100'000, 'x'), more(100'000, 'y');
  ASSERT_TRUE(Write(*a, handle, text).ok());
  ASSERT_TRUE(a->Sync(handle).ok());
  Fill(*a, 16 << 10);
  EXPECT_EQ(a->Space()->capacity_bytes, kQuota) << "statfs(2) shows the quota";
  EXPECT_EQ(FsErrorOf(a->Write(handle, text.size(), Block::CopyOf(more))), FsError::kNoSpace);
  EXPECT_EQ(Read(*a, handle), text);
  EXPECT_GT(a->Space()->refused, 0u);
  ASSERT_TRUE(IsEmptied(*a));
  EXPECT_TRUE(Eventually([&] { return a->Write(handle, text.size(), Block::CopyOf(more)).ok(); }))
      << "removals free their space with the next flush";
  EXPECT_EQ(Read(*a, handle), text + more);
}

TEST_F(BadDiskTest, WhatACacheCannotWriteBackIsKeptAndTold) {
  const auto a = world_.Client(1, kCaching), b = world_.Client(2);
  const FileHandle handle = MakeOpen(*a, "f");
  Fill(*b, 16 << 10);
  const std::string text(100'000, 'x');
  ASSERT_TRUE(Write(*a, handle, text).ok()) << "it is kept";
  EXPECT_EQ(FsErrorOf(a->Sync(handle)), FsError::kNoSpace);
  EXPECT_EQ(Read(*a, handle), text);
  ASSERT_TRUE(IsEmptied(*b));
  EXPECT_TRUE(Eventually([&] { return a->Sync(handle).ok(); }));
  EXPECT_EQ(Read(*a, handle), text);
}

// By the next one, or by the close before it.
TEST_F(BadDiskTest, WhatCannotBeWrittenBackForAnotherMountIsToldOnce) {
  const auto a = world_.Client(1, kCaching), b = world_.Client(2);
  const FileHandle handle = MakeOpen(*a, "f");
  ASSERT_TRUE(Write(*a, handle, "synced").ok());
  ASSERT_TRUE(a->Sync(handle).ok());
  Fill(*b, 16 << 10);
  const auto found = b->Lookup(kUser, b->root(), "f");
  ASSERT_TRUE(found.ok()) << found.status();
  const auto at_b = b->Open(kUser, found->id, O_RDONLY);
  ASSERT_TRUE(at_b.ok()) << at_b.status();
  for (const bool by_sync : {true, false}) {
    SCOPED_TRACE(by_sync);
    ASSERT_TRUE(Write(*a, handle, std::string(100'000, 'x')).ok());
    EXPECT_EQ(Read(*b, *at_b), "synced") << "nobody waits for what cannot be";
    EXPECT_EQ(FsErrorOf(by_sync ? a->Sync(handle) : a->Push(handle)), FsError::kNoSpace);
    EXPECT_EQ(a->Push(handle), absl::OkStatus()) << "told once";
    EXPECT_EQ(a->Sync(handle), absl::OkStatus());
    EXPECT_EQ(Read(*a, handle), "synced");
  }
}

TEST_F(BadDiskTest, WrongBytesAreAnErrorThatNamesTheBlockAndIsCounted) {
  const auto a = world_.Client(1);
  const FileHandle handle = MakeOpen(*a, "f"), whole = MakeOpen(*a, "g");
  const ObjectId id = a->Lookup(kUser, a->root(), "f")->id;
  ASSERT_TRUE(Write(*a, handle, std::string(3 * ObjectStore::kBlockBytes, 'a')).ok());
  ASSERT_TRUE(Write(*a, whole, "whole").ok());
  ASSERT_TRUE(a->Sync(handle).ok());
  EXPECT_EQ(a->Space()->damaged, 0u);
  const auto data = disk_.Open(DataPath(id));
  ASSERT_TRUE(data.ok()) << data.status();
  char byte = 0;
  ASSERT_TRUE((*data)->Read(ObjectStore::kBlockBytes + 5, std::span(&byte, 1)).ok());
  byte = static_cast<char>(byte ^ 4);
  ASSERT_TRUE((*data)->Write(ObjectStore::kBlockBytes + 5, std::string_view(&byte, 1)).ok());
  const absl::Status status = a->Read(handle, 0, 1 << 20).status();
  EXPECT_EQ(FsErrorOf(status), FsError::kInputOutput);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("object ", id, " block 1")));
  EXPECT_EQ(a->Space()->damaged, 1u);
  EXPECT_TRUE(a->Read(handle, 0, ObjectStore::kBlockBytes).ok())
      << "the other blocks are as before";
  EXPECT_EQ(Read(*a, whole), "whole");
  EXPECT_EQ(a->Space()->damaged, 1u);
}

// A client that makes a file takes an identifier first, which a full disk may not be able to give.
TEST(FullDiskTest, ANameThatIsThereIsThereWhereNoOtherCanBeMade) {
  MemoryDisk memory;
  std::atomic<bool> is_full{false};
  DiskModel model;
  model.wait = [](absl::Duration) {};
  model.fault = [&](std::string_view call, const std::string&) {
    return is_full && call == "write" ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
  ModelDisk disk(memory, std::move(model));
  FileSystemWorld world(3, &disk);
  const auto a = world.Client(1), b = world.Client(2);
  ASSERT_TRUE(a->Make(kUser, a->root(), "there", S_IFREG | 0644, 0, "").ok());
  ASSERT_TRUE(world.store().FlushAll().ok());
  is_full = true;
  constexpr int kReservedMax = 1 << 20;
  absl::Status reserved;
  for (int i = 0; i < kReservedMax && reserved.ok(); ++i)
    reserved = world.store().Reserve().status();
  ASSERT_TRUE(absl::IsResourceExhausted(reserved)) << reserved;
  const auto make = [&](const char* name) {
    return FsErrorOf(b->Make(kUser, b->root(), name, S_IFREG | 0644, 0, "").status());
  };
  EXPECT_EQ(make("new"), FsError::kNoSpace);
  EXPECT_EQ(make("there"), FsError::kExists);
  is_full = false;
}

}  // namespace
}  // namespace abacus::objfs
