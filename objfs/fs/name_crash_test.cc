// What a power cut leaves of names that go from one directory to another.

#include <sys/stat.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using testing::FileSystemWorld;

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

}  // namespace
}  // namespace abacus::objfs
