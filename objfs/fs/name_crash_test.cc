// What a power cut leaves of names that go from one directory to another.

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

// Random changes of names by one client, which syncs now and then. Each is a transaction, so what a
// power cut leaves is what the names were after one of them: after the last sync that was
// acknowledged, or later.
class Names {
 public:
  // Of each directory, by name.
  using State = std::map<std::pair<ObjectId, std::string>, ObjectId>;

  Names(FileSystem& at, uint64_t seed) : at_(at), random_(seed), history_{State()} {}

  // False where the power is gone.
  bool Work(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (random_() % 5 != 0) {
        if (!Change()) return false;
        continue;
      }
      if (!at_.SyncDirectory(AnyDirectory()).ok()) return false;
      history_ = {history_.back()};
    }
    return true;
  }

  // What is there now, as another client sees it.
  void Check(FileSystem& at, ObjectStore& store, const runtime::Ref<Volume>& volume) {
    State found;
    std::map<ObjectId, uint32_t> names;
    ASSERT_NO_FATAL_FAILURE(Walk(at, at.root(), &found, &names));
    const auto is = std::find(history_.begin(), history_.end(), found);
    ASSERT_TRUE(is != history_.end()) << "names as they never were: " << Text(found) << "\nfrom "
                                      << Text(history_.front()) << "\nto " << Text(history_.back());
    // What had a name before, and has none now, is gone or waits to be removed.
    std::set<ObjectId> had;
    for (auto state = history_.begin(); state <= is; ++state) {
      for (const auto& [name, id] : *state) had.insert(id);
    }
    const auto ids = store.List(0, 10'000);
    ASSERT_TRUE(ids.ok());
    for (const ObjectId id : *ids) {
      if (id == at.root() || names.contains(id) || !had.contains(id)) continue;
      const auto nodes = volume->Stat(std::vector<ObjectId>{id});
      ASSERT_TRUE(nodes.ok()) << nodes.status();
      EXPECT_EQ(nodes->front().inode.links, 0u) << id;
    }
  }

 private:
  static std::string Text(const State& state) {
    std::string text;
    for (const auto& [name, id] : state) {
      absl::StrAppend(&text, " ", name.first, "/", name.second, "=", id);
    }
    return text;
  }
  ObjectId AnyDirectory() {
    std::vector<ObjectId> directories = {at_.root()};
    for (const auto& [name, id] : history_.back()) {
      if (S_ISDIR(modes_[id])) directories.push_back(id);
    }
    return directories[random_() % directories.size()];
  }
  bool IsEmpty(const State& state, ObjectId directory) const {
    const auto first = state.lower_bound({directory, ""});
    return first == state.end() || first->first.first != directory;
  }
  // Whether `directory` is `id` or below it.
  bool IsBelow(const State& state, ObjectId directory, ObjectId id) const {
    if (directory == id) return true;
    for (const auto& [name, child] : state) {
      if (child == directory) return IsBelow(state, name.first, id);
    }
    return false;
  }

  // A change that is possible, or none. False where it failed: only the power can be the cause.
  bool Change() {
    State next = history_.back();
    const std::pair<ObjectId, std::string> name(AnyDirectory(), absl::StrCat("n", random_() % 4));
    const auto there = next.find(name);
    if (there == next.end() && random_() % 4 == 0) return Link(next, name);
    if (there == next.end()) return Make(next, name);
    if (random_() % 2 == 0) return Rename(next, name);
    const bool is_directory = S_ISDIR(modes_[there->second]);
    if (is_directory && !IsEmpty(next, there->second)) return true;
    next.erase(name);
    history_.push_back(next);
    return (is_directory ? at_.RemoveDirectory(kWhoever, name.first, name.second)
                         : at_.Unlink(kWhoever, name.first, name.second))
        .ok();
  }
  bool Make(State& next, const std::pair<ObjectId, std::string>& name) {
    const uint32_t kinds[] = {S_IFREG | 0644, S_IFREG | 0644, S_IFDIR | 0755, S_IFLNK | 0777};
    const uint32_t mode = kinds[random_() % 4];
    const auto made =
        at_.Make(kWhoever, name.first, name.second, mode, 0, S_ISLNK(mode) ? "target" : "");
    // Of one that failed nobody knows what its number would have been.
    if (!made.ok()) return false;
    modes_[made->id] = mode;
    next[name] = made->id;
    history_.push_back(next);
    return true;
  }
  bool Link(State& next, const std::pair<ObjectId, std::string>& name) {
    if (next.empty()) return true;
    const ObjectId file = std::next(next.begin(), random_() % next.size())->second;
    if (S_ISDIR(modes_[file])) return true;
    next[name] = file;
    history_.push_back(next);
    return at_.Link(kWhoever, file, name.first, name.second).ok();
  }
  bool Rename(State& next, const std::pair<ObjectId, std::string>& from) {
    const std::pair<ObjectId, std::string> to(AnyDirectory(), absl::StrCat("n", random_() % 4));
    const ObjectId moved = next[from];
    const bool is_directory = S_ISDIR(modes_[moved]);
    if (is_directory && IsBelow(next, to.first, moved)) return true;
    if (const auto over = next.find(to); over != next.end()) {
      if (over->second == moved || S_ISDIR(modes_[over->second]) != is_directory) return true;
      if (is_directory && !IsEmpty(next, over->second)) return true;
    }
    next.erase(from);
    next[to] = moved;
    history_.push_back(next);
    return at_.Rename(kWhoever, from.first, from.second, to.first, to.second, RenameRule::kReplace)
        .ok();
  }

  void Walk(FileSystem& at, ObjectId directory, State* found, std::map<ObjectId, uint32_t>* names) {
    const auto listed = at.List(kWhoever, directory, 0, 100, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    uint32_t directories = 0;
    uint64_t entries = 0;
    for (const auto& entry : *listed) {
      if (entry.name == "." || entry.name == "..") continue;
      ++entries;
      const auto node = at.Lookup(kWhoever, directory, entry.name);
      ASSERT_TRUE(node.ok()) << entry.name << " leads to nothing: " << node.status();
      // One whose making was cut off may be there under its name.
      if (modes_.contains(node->id)) (*found)[{directory, entry.name}] = node->id;
      ++(*names)[node->id];
      if (node->inode.IsDirectory()) {
        ++directories;
        EXPECT_EQ(node->inode.parent, directory);
        ASSERT_NO_FATAL_FAILURE(Walk(at, node->id, found, names));
      } else if (S_ISLNK(node->inode.mode)) {
        EXPECT_EQ(*at.ReadLink(kWhoever, node->id), "target");
      }
    }
    const auto node = at.Stat(directory);
    ASSERT_TRUE(node.ok());
    EXPECT_EQ(node->inode.entries, entries);
    EXPECT_EQ(node->inode.links, 2 + directories);
    if (directory != at.root()) return;
    for (const auto& [id, count] : *names) {
      const auto named = at.Stat(id);
      ASSERT_TRUE(named.ok());
      if (!named->inode.IsDirectory()) {
        EXPECT_EQ(named->inode.links, count) << id;
      }
    }
  }

  FileSystem& at_;
  std::mt19937_64 random_;
  std::vector<State> history_;  // since the last sync that was acknowledged
  std::map<ObjectId, uint32_t> modes_;
};

TEST(NameCrashTest, EachTransactionIsThereWhollyOrNotAtAll) {
  const char* text = std::getenv("ABACUS_LONG");
  const uint64_t seeds = text != nullptr ? 20 : 3;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    bool whole = false;
    for (uint64_t calls = 0; !whole && !::testing::Test::HasFailure(); ++calls) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", cut after ", calls, " calls"));
      PowerCutDisk disk;
      std::optional<Names> names;
      {
        FileSystemWorld world(2, &disk);
        const auto a = world.Client(1);
        ASSERT_TRUE(world.store().FlushAll().ok());
        names.emplace(*a, seed);
        disk.CutPowerAfter(calls);
        whole = names->Work(40);
      }
      disk.PowerOn(seed + calls);
      FileSystemWorld world(2, &disk);
      const auto a = world.Client(1);
      ASSERT_NO_FATAL_FAILURE(names->Check(*a, world.store(), world.volume()));
    }
  }
}

}  // namespace
}  // namespace abacus::objfs
