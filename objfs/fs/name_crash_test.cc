// What a power cut leaves of names that go from one directory to another, and of what fsync
// acknowledged.

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/check/checker.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/names_work.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using testing::FileSystemWorld;
using testing::NamesWork;

const Caller kWhoever;

ObjectId MakeNamed(FileSystem& at, ObjectId directory, const std::string& name, uint32_t mode) {
  const auto made = at.Make(kWhoever, directory, name, mode, 0, "");
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? made->id : 0;
}

ObjectId Named(FileSystem& at, ObjectId directory, const std::string& name) {
  const auto node = at.Lookup(kWhoever, directory, name);
  return node.ok() ? node->id : 0;
}

// The power goes at each call to the disk in turn, from the rename on until what synced one of the
// directories has returned.
TEST(NameCrashTest, ANameThatGoesToAnotherDirectoryIsInOneOfThem) {
  uint64_t calls = 0;
  bool whole = false;
  for (; !whole && !::testing::Test::HasFailure(); ++calls) {
    for (const bool syncs_old : {true, false}) {
      SCOPED_TRACE(absl::StrCat("cut after ", calls, " calls, syncs the ",
                                syncs_old ? "old" : "new", " directory"));
      PowerCutDisk disk;
      ObjectId from = 0, to = 0, file = 0;
      {
        FileSystemWorld world(2, &disk);
        const auto a = world.Client(1);
        from = MakeNamed(*a, a->root(), "from", S_IFDIR | 0755);
        to = MakeNamed(*a, a->root(), "to", S_IFDIR | 0755);
        file = MakeNamed(*a, from, "f", S_IFREG | 0644);
        ASSERT_TRUE(world.store().FlushAll().ok());
        disk.CutPowerAfter(calls);
        whole = a->Rename(kWhoever, from, "f", to, "g", RenameRule::kReplace).ok() &&
                a->SyncDirectory(syncs_old ? from : to).ok();
      }
      disk.PowerOn(calls);
      FileSystemWorld world(2, &disk);
      const auto a = world.Client(1);
      EXPECT_TRUE(Named(*a, from, "f") == file || Named(*a, to, "g") == file);
    }
  }
  std::cout << calls << " calls to the disk\n";
  EXPECT_GT(calls, 3u);
}

// Each cut after one call more, until the work is done before the power goes.
void CutEverywhere(uint64_t seed, const std::string& stack) {
  bool whole = false;
  uint64_t exchanges = 0, synced_writes = 0, unnamed = 0, cuts = 0;
  for (; !whole && !::testing::Test::HasFailure(); ++cuts) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", stack '", stack, "', cut after ", cuts, " calls"));
    PowerCutDisk disk;
    std::optional<NamesWork> names;
    {
      FileSystemWorld world(2, &disk);
      const auto a = world.Client(1, stack);
      ASSERT_TRUE(world.store().FlushAll().ok());
      names.emplace(*a, seed);
      disk.CutPowerAfter(cuts);
      whole = names->Work(40);
    }
    disk.PowerOn(seed + cuts);
    const auto checked = CheckVolumeOn(disk, {});
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(checked->found, 0u) << checked->faults.front().Line();
    unnamed += checked->unnamed;
    FileSystemWorld world(2, &disk);
    const auto a = world.Client(1);
    ASSERT_NO_FATAL_FAILURE(names->Check(*a, world.store(), world.volume()));
    exchanges += names->exchanges();
    synced_writes += names->synced_writes();
  }
  std::cout << "seed " << seed << ": " << cuts << " cuts, behind " << exchanges << " exchanges and "
            << synced_writes << " writes that were synced; " << unnamed
            << " objects were left without a name\n";
  EXPECT_GT(exchanges, 0u);
  EXPECT_GT(synced_writes, 0u);
}

TEST(NameCrashTest, EachTransactionIsThereWhollyOrNotAtAll) {
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 20 : 2;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    CutEverywhere(seed, "");
  }
}

TEST(NameCrashTest, WhatWasSyncedThroughACacheIsThereAfterAPowerCut) {
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 20 : 2;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    CutEverywhere(seed, "cache/isolation/storage");
  }
}

}  // namespace
}  // namespace abacus::objfs
