#ifndef ABACUS_OBJFS_FS_TESTING_SHARDED_FIXTURE_H_
#define ABACUS_OBJFS_FS_TESTING_SHARDED_FIXTURE_H_

// What tests of a volume with several shards begin with: two clients, a directory in each shard,
// and calls by a superuser.

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "objfs/fs/error.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/sharded_world.h"
#include "objfs/store/object_id.h"
#include "runtime/base/block.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

class ShardedFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kShards = ShardedWorld::kShards;

  // `spares`: nodes where servers can begin again.
  explicit ShardedFixture(size_t spares = 0,
                          const std::optional<runtime::FaultKnobs>& faults = std::nullopt)
      : world_(spares, &disks_, faults) {}
  void SetUp() override {
    a_ = world_.Client(ShardedWorld::kOne);
    b_ = world_.Client(ShardedWorld::kTwo);
    ASSERT_TRUE(a_ != nullptr && b_ != nullptr);
    in_ = ShardedWorld::MakeOneInEach(*a_, "in");
  }
  // The volume is closed and opened again, and so are its clients; `between` is done meanwhile.
  void Restart(const std::function<void()>& between = nullptr) {
    a_.reset();
    b_.reset();
    world_.Restart(between);
    a_ = world_.Client(ShardedWorld::kOne);
    b_ = world_.Client(ShardedWorld::kTwo);
    ASSERT_TRUE(a_ != nullptr && b_ != nullptr);
  }
  ObjectId Root() const { return a_->root(); }

  static FsError ErrorOf(const absl::Status& status) { return FsErrorOf(status); }
  static ObjectId MakeIn(FileSystem& at, ObjectId directory, const std::string& name,
                         uint32_t mode) {
    const auto made = at.Make(kRoot, directory, name, mode, 0, "");
    EXPECT_TRUE(made.ok()) << name << ": " << made.status();
    return made.ok() ? made->id : 0;
  }
  static ObjectId MakeFile(FileSystem& at, ObjectId directory, const std::string& name,
                           const std::string& bytes = "") {
    const ObjectId id = MakeIn(at, directory, name, S_IFREG | 0644);
    if (id != 0 && !bytes.empty()) Write(at, id, bytes);
    return id;
  }
  static ObjectId MakeDirectory(FileSystem& at, ObjectId directory, const std::string& name) {
    return MakeIn(at, directory, name, S_IFDIR | 0755);
  }
  static FileHandle Open(FileSystem& at, ObjectId file, int flags = O_RDWR) {
    const auto handle = at.Open(kRoot, file, flags);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : 0;
  }
  static void Write(FileSystem& at, ObjectId file, const std::string& bytes, uint64_t offset = 0) {
    const FileHandle handle = Open(at, file, O_WRONLY);
    EXPECT_EQ(at.Write(handle, offset, runtime::Block::CopyOf(bytes)), absl::OkStatus());
    EXPECT_EQ(at.Release(handle), absl::OkStatus());
  }
  static std::string ReadOpen(FileSystem& at, FileHandle handle) {
    const auto read = at.Read(handle, 0, 1 << 20);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  static std::string Read(FileSystem& at, ObjectId file) {
    const FileHandle handle = Open(at, file, O_RDONLY);
    std::string bytes = ReadOpen(at, handle);
    EXPECT_EQ(at.Release(handle), absl::OkStatus());
    return bytes;
  }
  static absl::Status Rename(FileSystem& at, ObjectId from, const std::string& name, ObjectId to,
                             const std::string& as, RenameRule rule = RenameRule::kReplace) {
    return at.Rename(kRoot, from, name, to, as, rule);
  }
  // A file of that shard under a name of any directory: it is made in its own, and moved.
  ObjectId MakeForeign(uint32_t shard, ObjectId directory, const std::string& name) {
    const ObjectId id = MakeFile(*a_, in_[shard], "on the way");
    EXPECT_EQ(ShardOf(id), shard);
    EXPECT_EQ(Rename(*a_, in_[shard], "on the way", directory, name), absl::OkStatus());
    return id;
  }
  ObjectId MakeForeignDirectory(uint32_t shard, ObjectId directory, const std::string& name) {
    const ObjectId id = MakeDirectory(*a_, in_[shard], "on the way");
    EXPECT_EQ(ShardOf(id), shard);
    EXPECT_EQ(Rename(*a_, in_[shard], "on the way", directory, name), absl::OkStatus());
    return id;
  }
  // 0: there is no such name.
  static ObjectId Named(FileSystem& at, ObjectId directory, const std::string& name) {
    const auto node = at.Lookup(kRoot, directory, name);
    if (node.ok()) return node->id;
    EXPECT_EQ(FsErrorOf(node.status()), FsError::kNoEntry) << node.status();
    return 0;
  }
  static uint32_t Links(FileSystem& at, ObjectId id) {
    const auto node = at.Stat(id);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->inode.links : UINT32_MAX;
  }
  static uint64_t Entries(FileSystem& at, ObjectId directory) {
    const auto node = at.Stat(directory);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->inode.entries : UINT64_MAX;
  }
  // Of a directory: what its inode says and what a listing has, but for "." and "..".
  static std::vector<FileSystem::Listed> ListAll(FileSystem& at, ObjectId directory,
                                                 uint32_t at_once = 7) {
    std::vector<FileSystem::Listed> all;
    for (uint64_t cookie = 0;;) {
      const auto listed = at.List(kRoot, directory, cookie, at_once, true);
      EXPECT_TRUE(listed.ok()) << listed.status();
      if (!listed.ok() || listed->empty()) break;
      for (const FileSystem::Listed& one : *listed) {
        if (one.name != "." && one.name != "..") all.push_back(one);
      }
      cookie = listed->back().cookie;
    }
    EXPECT_EQ(Entries(at, directory), all.size());
    return all;
  }
  static std::vector<std::string> NamesIn(FileSystem& at, ObjectId directory) {
    std::vector<std::string> names;
    for (const FileSystem::Listed& one : ListAll(at, directory)) names.push_back(one.name);
    return names;
  }
  // A file is removed some time after its last name, and its last handle, are gone. What clients
  // have closed they tell now and then.
  bool IsGoneSoon(ObjectId file) {
    return runtime::testing::Eventually([&] {
      for (FileSystem* const at : {a_.get(), b_.get()}) {
        EXPECT_EQ(at->Renew(), absl::OkStatus());
      }
      return FsErrorOf(a_->Stat(file).status()) == FsError::kStale;
    });
  }

  static inline const Caller kRoot{};  // the superuser
  ShardDisks disks_{kShards};
  ShardedWorld world_;
  std::unique_ptr<FileSystem> a_, b_;
  // By shard, a directory of the root.
  std::array<ObjectId, kShards> in_ = {};
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_SHARDED_FIXTURE_H_
