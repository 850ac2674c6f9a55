// Random work of one client and of several against a plain model, while their layers and directory
// objects are moved by force.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/model.h"
#include "objfs/fs/testing/movables.h"
#include "runtime/base/status.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::FileSystemWorld;
using testing::Model;
using testing::ModelPtr;
using testing::Movables;

const Caller kWorker;
constexpr char kCachedStack[] = "cache(block=4 KiB)/isolation/storage";

// What was done, beside what all tests do: a test that has not done it shows nothing.
struct Done {
  uint64_t links = 0, exchanges = 0, xattrs = 0, chmods = 0;
  uint64_t without_name = 0;  // reads and writes of files that have none any more
};

class RandomWork {
 public:
  RandomWork(std::vector<FileSystem*> clients, uint64_t seed)
      : clients_(std::move(clients)), random_(seed) {
    known_.push_back({model_.root(), clients_[0]->root()});
  }
  ~RandomWork() {
    while (!held_.empty()) Release(0);
  }

  // Between two steps, every now and then.
  void Move(Movables& movables) {
    if (random_() % 3 != 0) return;
    ASSERT_EQ(movables.MoveOne(random_()), absl::OkStatus());
  }

  void Step() {
    FileSystem& at = *clients_[random_() % clients_.size()];
    const Known directory = Draw(true), other = Draw(true), any = Draw(false);
    const std::string name = Name(), as = Name();
    switch (random_() % 15) {
      case 0:
      case 1:
      case 2:
        Make(at, directory, name);
        break;
      case 3:
        ASSERT_EQ(FsErrorOf(at.Unlink(kWorker, directory.id, name)),
                  Model::Remove(directory.model, name, false));
        break;
      case 4:
        ASSERT_EQ(FsErrorOf(at.RemoveDirectory(kWorker, directory.id, name)),
                  Model::Remove(directory.model, name, true));
        break;
      case 5:
        if (any.model->IsDirectory()) break;
        ASSERT_EQ(FsErrorOf(at.Link(kWorker, any.id, directory.id, name).status()),
                  Model::Link(any.model, directory.model, name));
        break;
      case 6:
      case 7: {
        const auto rule = static_cast<RenameRule>(random_() % 3);
        const FsError expected = Model::Rename(directory.model, name, other.model, as, rule);
        ASSERT_EQ(FsErrorOf(at.Rename(kWorker, directory.id, name, other.id, as, rule)), expected);
        if (rule == RenameRule::kExchange && expected == FsError::kNone) ++done_.exchanges;
        break;
      }
      case 8:
        ChangeXattr(at, any);
        break;
      case 9:
        if (any.model->type == S_IFLNK) break;
        any.model->permissions = random_() % 01000;
        ASSERT_TRUE(at.Set(kWorker, any.id, {.permissions = any.model->permissions}).ok());
        ++done_.chmods;
        break;
      case 10:
        if (random_() % 2 == 0) {
          Hold(any);
        } else {
          HoldAndUnlink(directory, name);
        }
        break;
      case 11:
      case 12:
        UseHeld();
        break;
      default:
        Look(at, any);
    }
    std::erase_if(known_, [](const Known& known) { return known.model->links == 0; });
  }

  // All that can be reached is as the model has it, for every client.
  void Check() {
    for (FileSystem* at : clients_) CheckBelow(*at, model_.root(), at->root());
  }
  const Done& done() const { return done_; }

 private:
  static constexpr size_t kHeldMax = 6;
  struct Known {
    ModelPtr model;
    ObjectId id = 0;
  };
  // A file that a client has open, whatever its names become.
  struct Held {
    Known file;
    FileSystem* at = nullptr;
    FileHandle handle = 0;
  };

  std::string Name() { return std::string(1, static_cast<char>('a' + random_() % 5)); }
  std::string Bytes() {
    return std::string(1 + random_() % 9000, static_cast<char>('A' + random_() % 26));
  }
  Known Draw(bool is_directory) {
    for (;;) {
      const Known& known = known_[random_() % known_.size()];
      if (!is_directory || known.model->IsDirectory()) return known;
    }
  }

  void Make(FileSystem& at, const Known& directory, const std::string& name) {
    constexpr uint32_t kModes[] = {S_IFREG | 0644, S_IFREG | 0600, S_IFREG | 0644,
                                   S_IFDIR | 0755, S_IFDIR | 0700, S_IFLNK | 0777};
    const uint32_t mode = kModes[random_() % std::size(kModes)];
    const std::string target = S_ISLNK(mode) ? absl::StrCat("to/", random_() % 1000) : "";
    const bool opens = S_ISREG(mode) && random_() % 2 == 0;
    ModelPtr made;
    const FsError expected = Model::Make(directory.model, name, mode, target, &made);
    const auto node = opens ? CreateAndClose(at, directory.id, name, mode)
                            : at.Make(kWorker, directory.id, name, mode, 0, target);
    ASSERT_EQ(FsErrorOf(node.status()), expected) << node.status();
    if (node.ok()) known_.push_back({made, node->id});
    if (node.ok() && S_ISLNK(mode)) ++done_.links;
  }
  static absl::StatusOr<Node> CreateAndClose(FileSystem& at, ObjectId directory,
                                             const std::string& name, uint32_t mode) {
    ABACUS_ASSIGN_OR_RETURN(const FileSystem::Created made,
                            at.Create(kWorker, directory, name, mode, O_RDWR, ""));
    ABACUS_RETURN_IF_ERROR(at.Release(made.handle));
    return made.node;
  }

  void ChangeXattr(FileSystem& at, const Known& node) {
    const std::string name = absl::StrCat("user.", Name());
    if (random_() % 3 == 0) {
      const FsError expected =
          Model::SetXattr(node.model, name, std::nullopt, XattrRule::kMustExist);
      ASSERT_EQ(FsErrorOf(at.RemoveXattr(kWorker, node.id, name)), expected);
    } else {
      const auto rule = static_cast<XattrRule>(random_() % 3);
      const std::string value(random_() % 40, 'v');
      const FsError expected = Model::SetXattr(node.model, name, value, rule);
      ASSERT_EQ(FsErrorOf(at.SetXattr(kWorker, node.id, name, value, rule)), expected);
      if (expected == FsError::kNone) ++done_.xattrs;
    }
    FileSystem& reader = *clients_[random_() % clients_.size()];
    const auto found = node.model->xattrs.find(name);
    const auto read = reader.GetXattr(kWorker, node.id, name);
    if (found == node.model->xattrs.end()) {
      ASSERT_EQ(FsErrorOf(read.status()), FsError::kNoAttribute);
    } else {
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(*read, found->second);
    }
  }

  // A file is written to, a symbolic link read.
  void Look(FileSystem& at, const Known& node) {
    if (node.model->type == S_IFLNK) {
      const auto target = at.ReadLink(kWorker, node.id);
      ASSERT_TRUE(target.ok()) << target.status();
      ASSERT_EQ(*target, node.model->bytes);
    }
    if (!node.model->IsRegular()) return;
    const auto handle = at.Open(kWorker, node.id, O_RDWR);
    ASSERT_TRUE(handle.ok()) << handle.status();
    WriteAndRead(at, *handle, node);
    ASSERT_EQ(at.Release(*handle), absl::OkStatus());
  }
  void WriteAndRead(FileSystem& at, FileHandle handle, const Known& file) {
    const uint64_t offset = random_() % 20000;
    if (random_() % 4 == 0) {
      ASSERT_TRUE(at.Set(kWorker, file.id, {.size = offset}).ok());
      file.model->bytes.resize(offset);
    }
    const std::string bytes = Bytes();
    ASSERT_EQ(at.Write(handle, offset, Block::CopyOf(bytes)), absl::OkStatus());
    Model::Write(file.model, offset, bytes);
    CheckBytes(at, handle, file);
  }
  static void CheckBytes(FileSystem& at, FileHandle handle, const Known& file) {
    const auto read = at.Read(handle, 0, 1 << 20);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->view(), file.model->bytes);
  }

  void Hold(const Known& file) {
    if (!file.model->IsRegular()) return;
    if (held_.size() == kHeldMax) Release(random_() % kHeldMax);
    FileSystem* const at = clients_[random_() % clients_.size()];
    const auto handle = at->Open(kWorker, file.id, O_RDWR);
    ASSERT_TRUE(handle.ok()) << handle.status();
    held_.push_back({file, at, *handle});
  }
  // Whoever has it open then, any client takes the name.
  void HoldAndUnlink(const Known& directory, const std::string& name) {
    const auto found = directory.model->entries.find(name);
    if (found == directory.model->entries.end()) return;
    FileSystem& at = *clients_[random_() % clients_.size()];
    const auto node = at.Lookup(kWorker, directory.id, name);
    ASSERT_TRUE(node.ok()) << node.status();
    ASSERT_NO_FATAL_FAILURE(Hold({found->second, node->id}));
    const FsError expected = Model::Remove(directory.model, name, false);
    ASSERT_EQ(FsErrorOf(at.Unlink(kWorker, directory.id, name)), expected);
  }
  void Release(size_t place) {
    const Held held = held_[place];
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(place));
    EXPECT_EQ(held.at->Release(held.handle), absl::OkStatus());
  }
  void UseHeld() {
    if (held_.empty()) return;
    const size_t place = random_() % held_.size();
    const Held held = held_[place];
    if (held.file.model->links == 0) ++done_.without_name;
    const auto node = held.at->Stat(held.file.id);
    ASSERT_TRUE(node.ok()) << node.status();
    ASSERT_EQ(node->inode.links, static_cast<uint32_t>(held.file.model->links));
    ASSERT_EQ(node->size, held.file.model->bytes.size());
    switch (random_() % 4) {
      case 0:
        ASSERT_NO_FATAL_FAILURE(CheckBytes(*held.at, held.handle, held.file));
        Release(place);
        break;
      case 1:
        ASSERT_EQ(held.at->Sync(held.handle), absl::OkStatus());
        ASSERT_NO_FATAL_FAILURE(CheckBytes(*held.at, held.handle, held.file));
        break;
      default:
        ASSERT_NO_FATAL_FAILURE(WriteAndRead(*held.at, held.handle, held.file));
    }
  }

  static void CheckBelow(FileSystem& at, const ModelPtr& directory, ObjectId id) {
    std::set<std::string> names;
    uint64_t directories = 0;
    for (uint64_t cookie = 0;;) {
      const auto listed = at.List(kWorker, id, cookie, 3, true);
      ASSERT_TRUE(listed.ok()) << listed.status();
      if (listed->empty()) break;
      for (const auto& one : *listed) {
        if (one.name == "." || one.name == "..") continue;
        ASSERT_TRUE(names.insert(one.name).second) << "listed twice: " << one.name;
        ASSERT_TRUE(directory->entries.contains(one.name)) << one.name;
        const ModelPtr& model = directory->entries[one.name];
        // Of what a client holds back a listing says only that it does.
        const auto node =
            one.node.kept_by == 0 ? absl::StatusOr<Node>(one.node) : at.Stat(one.node.id);
        ASSERT_TRUE(node.ok()) << node.status();
        ASSERT_NO_FATAL_FAILURE(CheckNode(*node, *model)) << one.name;
        if (!model->IsDirectory()) continue;
        ++directories;
        ASSERT_NO_FATAL_FAILURE(CheckBelow(at, model, one.node.id));
      }
      cookie = listed->back().cookie;
    }
    ASSERT_EQ(names.size(), directory->entries.size());
    const auto node = at.Stat(id);
    ASSERT_TRUE(node.ok());
    ASSERT_EQ(node->inode.entries, names.size());
    ASSERT_EQ(node->inode.links, 2 + directories);
  }
  static void CheckNode(const Node& node, const testing::ModelNode& model) {
    ASSERT_EQ(node.inode.mode, model.type | model.permissions);
    ASSERT_EQ(node.inode.xattrs, model.xattrs);
    if (model.IsDirectory()) return;
    ASSERT_EQ(node.size, model.bytes.size());
    ASSERT_EQ(node.inode.links, static_cast<uint32_t>(model.links));
  }

  const std::vector<FileSystem*> clients_;
  std::mt19937_64 random_;
  Model model_;
  std::vector<Known> known_;
  std::vector<Held> held_;
  Done done_;
};

// Each test's clients are gone before what moves their objects is.
class RandomWorkTest : public ::testing::Test {
 protected:
  explicit RandomWorkTest(absl::Duration quiet = absl::Seconds(1))
      : world_(4, nullptr, nullptr, absl::Seconds(30), quiet) {}

  void Work(RandomWork& work, uint64_t seed, int steps, int between_checks) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
      ASSERT_NO_FATAL_FAILURE(work.Move(movables_));
      ASSERT_NO_FATAL_FAILURE(work.Step());
      if (i % between_checks != 0) continue;
      ASSERT_NO_FATAL_FAILURE(work.Check());
    }
    ASSERT_NO_FATAL_FAILURE(work.Check());
    ExpectAllWasDone(work.done());
  }
  void ExpectAllWasDone(const Done& done) {
    EXPECT_GT(movables_.moves(Movables::kDirectory), 0u);
    EXPECT_GT(done.links, 0u);
    EXPECT_GT(done.exchanges, 0u);
    EXPECT_GT(done.xattrs, 0u);
    EXPECT_GT(done.chmods, 0u);
    // The seldomest: the few steps beside a sanitizer may have none.
    if (!runtime::testing::kSanitized) {
      EXPECT_GT(done.without_name, 0u);
    }
  }

  FileSystemWorld world_;
  Movables movables_{world_};
};

TEST_F(RandomWorkTest, TwoClientsWorkIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(31);
  const auto a = world_.Client(1), b = world_.Client(2);
  RandomWork work({a.get(), b.get()}, seed);
  const int steps = runtime::testing::kSanitized ? 300 : runtime::testing::LongRun() ? 50000 : 3000;
  Work(work, seed, steps, 100);
}

// Each file's layers are of the client that opens it, by the stack of the one that made it.
TEST_F(RandomWorkTest, TwoClientsWorkThroughCachesIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(34);
  const auto a = world_.Client(1, kCachedStack), b = world_.Client(2, kCachedStack);
  RandomWork work({a.get(), b.get()}, seed);
  const int steps = runtime::testing::kSanitized ? 300 : runtime::testing::LongRun() ? 50000 : 2000;
  Work(work, seed, steps, 100);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

// The same through caches, one client.
TEST_F(RandomWorkTest, OneClientsWorkThroughCachesIsThatOfTheModel) {
  const uint64_t seed = runtime::testing::Seed(32);
  const auto cached = world_.Client(2, kCachedStack);
  RandomWork work({cached.get()}, seed);
  Work(work, seed, runtime::testing::kSanitized ? 300 : 2000, 500);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

// While somebody moves what there is beside the work, and not between its steps.
TEST_F(RandomWorkTest, WhatIsMovedBesideTheWorkChangesNothingOfIt) {
  const uint64_t seed = runtime::testing::Seed(35);
  const auto a = world_.Client(1, kCachedStack), b = world_.Client(2);
  RandomWork work({a.get(), b.get()}, seed);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    std::mt19937_64 random(seed);
    // A move that is refused is of an object that was about to be ended.
    while (!stop) movables_.MoveOne(random()).IgnoreError();
  });
  const int steps = runtime::testing::kSanitized ? 200 : runtime::testing::LongRun() ? 20000 : 1000;
  for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    work.Step();
    if (i % 100 == 0) work.Check();
  }
  stop = true;
  mover.join();
  work.Check();
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
  ExpectAllWasDone(work.done());
}

// Three, one with a cache, who have looked at all that others change.
class KnowingRandomWorkTest : public RandomWorkTest {
 protected:
  KnowingRandomWorkTest() : RandomWorkTest(absl::ZeroDuration()) {}
};

TEST_F(KnowingRandomWorkTest, ThreeClientsThatKnowWhatTheySawWorkAsTheModel) {
  const uint64_t seed = runtime::testing::Seed(33);
  const auto a = world_.Client(1), b = world_.Client(2), c = world_.Client(3, kCachedStack);
  RandomWork work({a.get(), b.get(), c.get()}, seed);
  Work(work, seed, runtime::testing::kSanitized ? 100 : 700, 5);
  EXPECT_GT(movables_.moves(Movables::kLayer), 0u);
}

}  // namespace
}  // namespace abacus::objfs
