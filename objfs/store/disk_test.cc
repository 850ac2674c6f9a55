// The disks: what disk.h promises, of each of them, and what only some do.

#include "objfs/store/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "objfs/store/local_disk.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadAll(DiskFile& file) {
  std::string bytes(*file.Size(), '?');
  EXPECT_EQ(*file.Read(0, std::span(bytes.data(), bytes.size())), bytes.size());
  return bytes;
}

class DiskTest : public ::testing::TestWithParam<std::string> {
 protected:
  DiskTest() {
    std::string pattern = ::testing::TempDir() + "abacus-disk-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    if (GetParam() == "Local") disk_ = *LocalDisk::At(directory_ + "/a/b");
    if (GetParam() == "Memory") disk_ = std::make_unique<MemoryDisk>();
    if (GetParam() == "PowerCut") disk_ = std::make_unique<PowerCutDisk>();
    if (GetParam() == "Model") disk_ = std::make_unique<ModelDisk>(below_, DiskModel());
  }
  ~DiskTest() override {
    disk_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string directory_;
  MemoryDisk below_;
  std::unique_ptr<Disk> disk_;
};

TEST_P(DiskTest, AFileHasWhatWasWritten) {
  const auto file = *disk_->Create("f");
  ASSERT_TRUE(file->Write(3, "abc").ok());
  EXPECT_EQ(ReadAll(*file), std::string("\0\0\0abc", 6));
  ASSERT_TRUE(file->Truncate(4).ok());
  ASSERT_TRUE(file->Truncate(6).ok());
  EXPECT_EQ(ReadAll(**disk_->Open("f")), std::string("\0\0\0a\0\0", 6));
  char byte = '?';
  EXPECT_EQ(*file->Read(6, std::span(&byte, 1)), 0u);
  EXPECT_TRUE(file->Sync().ok());
}

TEST_P(DiskTest, AHoleReadsAsZerosAndIsFound) {
  const auto file = *disk_->Create("f");
  ASSERT_TRUE(file->Write(0, std::string(200'000, 'x')).ok());
  ASSERT_TRUE(file->Punch(0, 131'072).ok());
  EXPECT_EQ(ReadAll(*file), std::string(131'072, '\0') + std::string(68'928, 'x'));
  const auto data = file->NextData(0);
  ASSERT_TRUE(data.ok());
  EXPECT_LE(*data, 131'072u);
  EXPECT_TRUE(absl::IsNotFound(file->NextData(200'000).status()));
}

TEST_P(DiskTest, NamesComeAndGo) {
  ASSERT_TRUE(disk_->MakeDirectory("d").ok());
  ASSERT_TRUE(disk_->MakeDirectory("d").ok());
  ASSERT_TRUE(disk_->Create("d/b").ok());
  ASSERT_TRUE(disk_->Create("d/a").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(disk_->Create("d/a").status()));
  EXPECT_THAT(*disk_->List("d"), ElementsAre("a", "b"));
  ASSERT_TRUE((*disk_->Open("d/b"))->Write(0, "b").ok());
  ASSERT_TRUE(disk_->Rename("d/b", "d/a").ok());
  EXPECT_EQ(ReadAll(**disk_->Open("d/a")), "b");
  EXPECT_TRUE(absl::IsNotFound(disk_->Open("d/b").status()));
  EXPECT_TRUE(disk_->SyncDirectory("d").ok());
  EXPECT_TRUE(disk_->SyncDirectory("").ok());
  ASSERT_TRUE(disk_->Remove("d/a").ok());
  EXPECT_TRUE(absl::IsNotFound(disk_->Remove("d/a")));
  EXPECT_TRUE(disk_->SyncAll().ok());
  EXPECT_GT(disk_->Space()->capacity_bytes, 0u);
}

TEST_P(DiskTest, ARemovedFileLivesWhileItIsOpen) {
  const auto file = *disk_->Create("f");
  ASSERT_TRUE(file->Write(0, "abc").ok());
  ASSERT_TRUE(disk_->Remove("f").ok());
  EXPECT_EQ(ReadAll(*file), "abc");
}

INSTANTIATE_TEST_SUITE_P(Disks, DiskTest, ::testing::Values("Local", "Memory", "PowerCut", "Model"),
                         [](const auto& info) { return info.param; });

TEST(LocalDiskTest, ADirectoryHasOneOwner) {
  std::string pattern = ::testing::TempDir() + "abacus-disk-XXXXXX";
  const std::string directory = mkdtemp(pattern.data());
  {
    const auto disk = LocalDisk::At(directory);
    ASSERT_TRUE(disk.ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(LocalDisk::At(directory).status()));
  }
  EXPECT_TRUE(LocalDisk::At(directory).ok());
  std::filesystem::remove_all(directory);
}

TEST(LocalDiskTest, DescriptorsThatAreUsedUpAreNoFullDisk) {
  std::string pattern = ::testing::TempDir() + "abacus-disk-XXXXXX";
  const std::string directory = mkdtemp(pattern.data());
  {
    const auto disk = LocalDisk::At(directory);
    ASSERT_TRUE(disk.ok());
    rlimit was;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    const int next = dup(0);
    ASSERT_GE(next, 0);
    close(next);
    const rlimit few{static_cast<rlim_t>(next), was.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status status = (*disk)->Create("file").status();
    setrlimit(RLIMIT_NOFILE, &was);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_NE(std::string(status.message()).find("ulimit -n"), std::string::npos) << status;
    EXPECT_TRUE((*disk)->Create("file").ok());
  }
  std::filesystem::remove_all(directory);
}

TEST(MemoryDiskTest, AFullDiskSaysSoAndGetsSpaceBack) {
  MemoryDisk disk(4 * MemoryFile::kPageBytes);
  const auto file = *disk.Create("f");
  EXPECT_TRUE(absl::IsResourceExhausted(file->Write(0, std::string(20'000, 'x'))));
  EXPECT_EQ(disk.Space()->available_bytes, 0u);
  ASSERT_TRUE(file->Punch(0, 8'192).ok());
  EXPECT_TRUE(file->Write(0, std::string(8'192, 'y')).ok());
}

TEST(ModelDiskTest, ARequestTakesItsTime) {
  absl::Duration spent;
  MemoryDisk below;
  ModelDisk disk(below, {.bytes_per_second = 1e6,
                         .seek = absl::Milliseconds(5),
                         .flush = absl::Milliseconds(20),
                         .wait = [&spent](absl::Duration time) { spent += time; }});
  const auto file = *disk.Create("f");
  ASSERT_TRUE(file->Write(0, std::string(1'000, 'x')).ok());  // 5 ms to get there, 1 ms
  ASSERT_TRUE(file->Write(1'000, std::string(2'000, 'x')).ok());
  EXPECT_EQ(spent, absl::Milliseconds(8));
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_EQ(spent, absl::Milliseconds(28));
  ReadAll(*file);  // back to the beginning
  EXPECT_EQ(spent, absl::Milliseconds(36));
}

// What the layers above do without, and what they read from elsewhere, depends on these.
TEST(DiskErrorTest, ADiskThatFailsIsToldFromACallThatIsRefused) {
  for (const int error : {EIO, EROFS, ENODEV, ENXIO, ESTALE, EUCLEAN, EBADMSG}) {
    const absl::Status failed = DiskError(error, "cannot write f");
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("cannot write f"), HasSubstr("the disk fails"),
                      HasSubstr(strerror(error))));
  }
  for (const int error : {EIO, EUCLEAN, EBADMSG}) {
    const absl::Status unread = ReadError(error, "cannot read f");
    EXPECT_TRUE(absl::IsDataLoss(unread) && IsUnread(unread)) << error;
    EXPECT_TRUE(absl::IsUnavailable(UnlessUnread(unread))) << error;
  }
  EXPECT_TRUE(absl::IsUnavailable(ReadError(ENODEV, "f"))) << "no bytes of it can be read";
  const absl::Status wrong = absl::DataLossError("wrong bytes");
  EXPECT_FALSE(IsUnread(wrong));
  EXPECT_EQ(UnlessUnread(wrong), wrong);
  EXPECT_TRUE(absl::IsResourceExhausted(DiskError(ENOSPC, "f")));
  EXPECT_TRUE(absl::IsResourceExhausted(DiskError(EDQUOT, "f")));
  EXPECT_TRUE(absl::IsNotFound(DiskError(ENOENT, "f")));
  EXPECT_TRUE(absl::IsPermissionDenied(DiskError(EACCES, "f")));
  EXPECT_TRUE(absl::IsInternal(DiskError(EMFILE, "f")));
}

// Nothing is mapped at address 0: the kernel answers with EIO.
TEST(DiskErrorTest, ALocalFileTellsSo) {
  const auto process = LocalDisk::At("/proc/self");
  ASSERT_TRUE(process.ok()) << process.status();
  const auto memory = (*process)->Open("mem");
  ASSERT_TRUE(memory.ok()) << memory.status();
  char byte = 0;
  const absl::Status unread = (*memory)->Read(0, std::span(&byte, 1)).status();
  EXPECT_TRUE(IsUnread(unread)) << unread;
  EXPECT_THAT(std::string(unread.message()), HasSubstr("/proc/self/mem"));
  const absl::Status unwritten = (*memory)->Write(0, "x");
  EXPECT_TRUE(absl::IsUnavailable(unwritten)) << unwritten;
}

TEST(ModelDiskTest, AFaultIsTheAnswer) {
  MemoryDisk below;
  ModelDisk disk(below, {.fault = [](std::string_view call, const std::string& path) {
                   return call == "read" && path == "f" ? absl::DataLossError("bad sector")
                                                        : absl::OkStatus();
                 }});
  const auto file = *disk.Create("f");
  EXPECT_TRUE(file->Write(0, "abc").ok());
  char byte = 0;
  EXPECT_TRUE(absl::IsDataLoss(file->Read(0, std::span(&byte, 1)).status()));
}

TEST(PowerCutDiskTest, WhatWasSyncedSurvivesAndTheRestMayNot) {
  bool lost = false, kept = false, torn = false, nameless = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    PowerCutDisk disk;
    const auto file = *disk.Create("f");
    ASSERT_TRUE(file->Write(0, std::string(2'048, 'a')).ok());
    ASSERT_TRUE(file->Sync().ok());
    if (seed % 2 == 0) {
      ASSERT_TRUE(disk.SyncDirectory("").ok());
    }
    ASSERT_TRUE(file->Write(0, std::string(2'048, 'b')).ok());
    disk.PowerOn(seed);
    EXPECT_TRUE(absl::IsUnavailable(file->Sync())) << "a handle from before";
    const auto found = disk.Open("f");
    ASSERT_TRUE(found.ok() || seed % 2 == 1) << "seed " << seed;
    nameless = nameless || !found.ok();
    if (!found.ok()) continue;
    const std::string bytes = ReadAll(**found);
    ASSERT_EQ(bytes.find_first_not_of("ab"), std::string::npos);
    lost = lost || bytes == std::string(2'048, 'a');
    kept = kept || bytes == std::string(2'048, 'b');
    torn = torn || bytes.find_first_not_of(bytes[0]) != std::string::npos;
  }
  EXPECT_TRUE(lost && kept && torn && nameless) << lost << kept << torn << nameless;
}

TEST(PowerCutDiskTest, ADiskThatLiesKeepsNothingOfWhatItSaysIsSynced) {
  PowerCutDisk disk;
  const auto file = *disk.Create("f");
  ASSERT_TRUE(file->Write(0, "a").ok());
  ASSERT_TRUE(disk.SyncAll().ok());
  disk.LieAboutSyncs(true);
  ASSERT_TRUE(file->Write(0, "b").ok());
  EXPECT_TRUE(file->Sync().ok());
  ASSERT_TRUE(disk.Create("g").ok());
  EXPECT_TRUE(disk.SyncDirectory("").ok());
  EXPECT_TRUE(disk.SyncAll().ok());
  EXPECT_EQ(ReadAll(*file), "b") << "until the power goes";
  disk.PowerOnAsOf(0);
  EXPECT_THAT(*disk.List(""), ElementsAre("f"));
  EXPECT_EQ(ReadAll(**disk.Open("f")), "a");
}

TEST(PowerCutDiskTest, WhatACacheHadByThenIsThereAndNothingThatCameLater) {
  PowerCutDisk disk;
  const auto file = *disk.Create("f");
  ASSERT_TRUE(file->Write(0, "a").ok());
  const auto other = *disk.Create("g");
  const uint64_t then = disk.Calls();
  ASSERT_TRUE(file->Write(1, "b").ok());
  ASSERT_TRUE(disk.Create("h").ok());
  ASSERT_TRUE(other->Write(0, "c").ok());
  ASSERT_TRUE(other->Sync().ok());
  disk.PowerOnAsOf(then);
  EXPECT_THAT(*disk.List(""), ElementsAre("f", "g"));
  EXPECT_EQ(ReadAll(**disk.Open("f")), "a");
  EXPECT_EQ(ReadAll(**disk.Open("g")), "c") << "which was synced";
}

TEST(PowerCutDiskTest, ThePowerGoesAtTheCallAskedFor) {
  PowerCutDisk disk;
  disk.CutPowerAfter(2);
  const auto file = *disk.Create("f");
  EXPECT_TRUE(file->Write(0, "a").ok());
  EXPECT_TRUE(absl::IsUnavailable(file->Write(0, "b")));
  EXPECT_TRUE(absl::IsUnavailable(disk.Open("f").status()));
}

}  // namespace
}  // namespace abacus::objfs
