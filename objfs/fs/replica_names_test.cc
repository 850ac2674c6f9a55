// A volume whose inodes have a copy at another server: the primary dies, the copy takes over, and
// names and bytes that were synced are there.

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/check/checker.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/names_work.h"
#include "objfs/replica/testing/replica_world.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using testing::FileSystemWorld;
using testing::NamesWork;
using testing::ReplicaWorld;
using testing::SoonHolds;

class ReplicatedVolume {
 public:
  ReplicatedVolume() {
    // Nobody lets the copy go, and no test waits long for what cannot be.
    replicas.options.flush_wait = absl::Milliseconds(5);
  }
  std::unique_ptr<FileSystemWorld> Serve() {
    return std::make_unique<FileSystemWorld>(
        2, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1), nullptr, 0, std::vector<Disk*>{},
        testing::WorldParts{.open_store = [this]() -> std::shared_ptr<ObjectStore> {
          return replicas.shared_primary();
        }});
  }

  const std::shared_ptr<PowerCutDisk> of_primary = std::make_shared<PowerCutDisk>();
  const std::shared_ptr<PowerCutDisk> of_copy = std::make_shared<PowerCutDisk>();
  ReplicaWorld replicas{of_primary, of_copy};
};

// The primary's power goes after so many calls to its disk. Returns whether all work was done.
void KillPrimaryAfter(uint64_t seed, uint64_t cut, bool copy_too, bool* is_whole,
                      uint64_t* synced) {
  ReplicatedVolume volume;
  ASSERT_NO_FATAL_FAILURE(volume.replicas.Start());
  std::optional<NamesWork> names;
  {
    const auto world = volume.Serve();
    const auto a = world->Client(1);
    ASSERT_TRUE(world->store().FlushAll().ok());
    volume.replicas.map.answers = false;
    names.emplace(*a, seed);
    volume.of_primary->CutPowerAfter(cut);
    *is_whole = names->Work(40);
  }
  volume.replicas.KillPrimary();
  if (copy_too) {
    volume.replicas.KillCopy();
    volume.of_copy->CutPower();
    volume.of_copy->PowerOn(seed + cut);
    ASSERT_TRUE(volume.replicas.StartCopy().ok());
  }
  const absl::Status promoted = volume.replicas.Promote();
  ASSERT_TRUE(promoted.ok()) << promoted;
  {
    const auto world = volume.Serve();
    const auto a = world->Client(1);
    ASSERT_NO_FATAL_FAILURE(names->Check(*a, world->store(), world->volume()));
    // It is a volume to work on.
    const auto made = a->Make(Caller(), a->root(), "after", S_IFREG | 0644, 0, "");
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_GT(made->id, ObjectId{1} << 40);
  }
  volume.replicas.KillPrimary();
  const auto checked = CheckVolumeOn(*volume.of_copy, {});
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->found, 0u) << checked->faults.front().Line();
  *synced += names->synced_writes();
}

TEST(ReplicaNamesTest, WhereverThePrimaryDiesTheCopyHasWhatWasSynced) {
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 10 : 1;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    bool is_whole = false;
    uint64_t cuts = 0, synced = 0;
    for (uint64_t cut = 0; !is_whole; ++cut) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", cut after ", cut, " calls"));
      KillPrimaryAfter(seed, cut, cut % 2 == 0, &is_whole, &synced);
      if (HasFailure()) return;
      ++cuts;
    }
    std::cout << "seed " << seed << ": " << cuts << " cuts, behind " << synced
              << " writes that were synced\n";
    EXPECT_GT(cuts, 50u);
    EXPECT_GT(synced, 0u);
  }
}

// The same work with a copy and without one leads to the same names.
TEST(ReplicaNamesTest, NamesBehaveAsWithoutACopy) {
  ReplicatedVolume volume;
  volume.replicas.options.flush_wait = absl::Seconds(20);
  ASSERT_NO_FATAL_FAILURE(volume.replicas.Start());
  const auto replicated = volume.Serve();
  FileSystemWorld plain(2);
  for (FileSystemWorld* world : {replicated.get(), &plain}) {
    const auto a = world->Client(1);
    NamesWork names(*a, 11);
    ASSERT_TRUE(names.Work(300));
    names.Check(*a, world->store(), world->volume());
    EXPECT_GT(names.synced_writes(), 0u);
  }
  // What has no name is removed now and then.
  EXPECT_TRUE(SoonHolds(
      [&] { return *replicated->store().List(0, 10'000) == *plain.store().List(0, 10'000); }));
  EXPECT_EQ(*replicated->store().List(0, 10'000), *plain.store().List(0, 10'000));
  EXPECT_TRUE(volume.replicas.map.counts()) << volume.replicas.primary().Report().why;
  EXPECT_EQ(volume.replicas.primary().Report().resyncs, 1u);
}

}  // namespace
}  // namespace abacus::objfs
