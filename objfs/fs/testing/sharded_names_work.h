#ifndef ABACUS_OBJFS_FS_TESTING_SHARDED_NAMES_WORK_H_
#define ABACUS_OBJFS_FS_TESTING_SHARDED_NAMES_WORK_H_

// Work on the names of a volume with several shards, and what may be left of it after a crash.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/error.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/sharded_world.h"
#include "objfs/store/object_id.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/shard_records.h"

namespace abacus::objfs::testing {

// Random changes of names by one client, and syncs now and then. What is changed within a shard
// becomes durable in its order, with a later sync at the latest. A change over several shards is
// durable when it returns, and with it all that was changed before in its shards. So what each
// shard has after a crash is what it had after one of its changes, the last durable one or a later;
// and of the change that did not return, all its shards have their part or none has.
class ShardedNamesWork {
 public:
  static constexpr uint32_t kShards = ShardedWorld::kShards;
  // How often each was done over several shards.
  struct Done {
    uint64_t made = 0, linked = 0, renamed = 0, exchanged = 0, removed = 0;
  };

  ShardedNamesWork(FileSystem& at, uint64_t seed) : at_(at), root_(at.root()), random_(seed) {
    for (auto& history : histories_) history = {Entries()};
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      names_.push_back(ShardedWorld::NameIn(shard, root_, "n"));
    }
    names_.emplace_back("other");
  }

  // Changes within one shard are synced at once: a server that dies takes none along that returned.
  bool syncs_each = false;
  // Whether to stop. What a sync says from then on is not believed: a client that has joined again
  // may be told that all is durable which its server has, and not of what that one had lost.
  std::function<bool()> is_over = [] { return false; };

  // A directory in each shard, and a file in each of these; all of it durable.
  void Begin(FileSystemWorld& world) {
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      ASSERT_TRUE(Make({root_, names_[shard]}, S_IFDIR | 0755));
      const ObjectId directory = now_.at({root_, names_[shard]});
      ASSERT_EQ(ShardOf(directory), shard);
      ASSERT_TRUE(Make({directory, names_[shard]}, S_IFREG | 0644));
      directories_[shard] = directory;
    }
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      ASSERT_EQ(world.store(shard).FlushAll(), absl::OkStatus());
      histories_[shard] = {Of(now_, shard)};
    }
    done_ = Done();
  }
  // Each kind of change over several shards, and then so many steps of whatever is drawn; until a
  // call fails, or it is to stop. False: before all was done.
  bool Work(int steps) {
    if (!DoEachOnce()) return false;
    for (int step = 0; step < steps; ++step) {
      if (is_over()) return false;
      const ObjectId synced = AnyDirectory();
      const bool went = random_() % 8 == 0 ? Sync(synced) : Change();
      if (!went) return false;
    }
    return true;
  }
  const Done& done() const { return done_; }

  // Nothing is held for ever: each object can be changed, once what was under way has ended.
  // Returns how long the longest change took.
  std::chrono::milliseconds ChangeAll(FileSystem& at) {
    std::chrono::steady_clock::duration longest{};
    std::map<ObjectId, uint32_t> all = modes_;
    all[root_] = S_IFDIR | 0755;
    for (const auto& [id, mode] : all) {
      const auto begun = std::chrono::steady_clock::now();
      const auto set = at.Set(whoever_, id, {.permissions = mode & 07777});
      longest = std::max(longest, std::chrono::steady_clock::now() - begun);
      // It may be gone.
      if (!set.ok()) {
        EXPECT_EQ(FsErrorOf(set.status()), FsError::kStale) << id << ": " << set.status() << log_;
      }
    }
    return std::chrono::duration_cast<std::chrono::milliseconds>(longest);
  }
  // What is there now, as another client sees it. `lost`: the shards whose servers have lost what
  // was not durable.
  void Check(FileSystem& at, FileSystemWorld& world, const std::set<size_t>& lost) {
    SCOPED_TRACE(log_);
    Entries found;
    std::map<ObjectId, uint32_t> names;
    ASSERT_NO_FATAL_FAILURE(Walk(at, root_, &found, &names));
    ASSERT_NO_FATAL_FAILURE(CheckEntries(found, lost));
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      ASSERT_NO_FATAL_FAILURE(CheckInodes(world, shard, names));
    }
    // Another transaction over shards of the same names.
    for (const auto& [name, id] : found) {
      const ObjectId other = root_;
      if (S_ISDIR(modes_.at(id)) || name.first == other) continue;
      ASSERT_EQ(
          at.Rename(whoever_, name.first, name.second, other, "and back", RenameRule::kNoReplace),
          absl::OkStatus());
      ASSERT_EQ(
          at.Rename(whoever_, other, "and back", name.first, name.second, RenameRule::kNoReplace),
          absl::OkStatus());
    }
  }

 private:
  using Name = std::pair<ObjectId, std::string>;  // in a directory
  using Entries = std::map<Name, ObjectId>;
  struct Pending {
    std::set<uint32_t> shards;
    Entries after;
  };

  static Entries Of(const Entries& all, uint32_t shard) {
    Entries entries;
    for (const auto& [name, id] : all) {
      if (ShardOf(name.first) == shard) entries[name] = id;
    }
    return entries;
  }
  static std::string Text(const Entries& entries) {
    std::string text;
    for (const auto& [name, id] : entries) {
      absl::StrAppend(&text, " ", name.first, "/", name.second, "=", id);
    }
    return text.empty() ? " nothing" : text;
  }
  ObjectId AnyDirectory() {
    std::vector<ObjectId> directories = {root_};
    for (const auto& [name, id] : now_) {
      if (S_ISDIR(modes_[id])) directories.push_back(id);
    }
    return directories[random_() % directories.size()];
  }
  // Drawn one after the other: arguments of a call are drawn in the compiler's order.
  Name AnyName() {
    std::string name = names_[random_() % names_.size()];
    const ObjectId directory = AnyDirectory();
    return {directory, std::move(name)};
  }
  bool IsEmpty(ObjectId directory) const {
    const auto first = now_.lower_bound({directory, ""});
    return first == now_.end() || first->first.first != directory;
  }
  // Whether `directory` is `id` or below it.
  bool IsBelow(ObjectId directory, ObjectId id) const {
    if (directory == id) return true;
    for (const auto& [name, child] : now_) {
      if (child == directory) return IsBelow(name.first, id);
    }
    return false;
  }

  // It has returned: what the names are now.
  bool Acknowledge(Entries next, const std::set<uint32_t>& shards, uint64_t* count) {
    now_ = std::move(next);
    if (shards.size() > 1 && count != nullptr) ++*count;
    for (const uint32_t shard : shards) {
      Entries of_shard = Of(now_, shard);
      if (shards.size() > 1) histories_[shard].clear();
      histories_[shard].push_back(std::move(of_shard));
    }
    const bool syncs = syncs_each && shards.size() == 1 && !is_over();
    return !syncs || SyncShard(*shards.begin());
  }
  // False where it failed.
  bool Try(const std::string& what, Entries next, const std::set<ObjectId>& objects,
           uint64_t* count, const std::function<absl::Status()>& call) {
    std::set<uint32_t> shards;
    for (const ObjectId id : objects) shards.insert(ShardOf(id));
    absl::StrAppend(&log_, "\n  ", what);
    pending_ = Pending{shards, next};
    const absl::Status status = call();
    if (!status.ok()) {
      absl::StrAppend(&log_, " -> ", status.ToString());
      return false;
    }
    pending_.reset();
    return Acknowledge(std::move(next), shards, count);
  }
  bool Sync(ObjectId directory) {
    absl::StrAppend(&log_, "\n  sync ", directory);
    const absl::Status status = at_.SyncDirectory(directory);
    if (!status.ok()) {
      absl::StrAppend(&log_, " -> ", status.ToString());
      return false;
    }
    const uint32_t shard = ShardOf(directory);
    if (!is_over()) histories_[shard] = {Of(now_, shard)};
    return true;
  }
  bool SyncShard(uint32_t shard) {
    ObjectId directory = shard == 0 ? root_ : 0;
    for (const auto& [name, id] : now_) {
      if (S_ISDIR(modes_[id]) && ShardOf(id) == shard) directory = id;
    }
    return directory == 0 || Sync(directory);
  }

  bool DoEachOnce() {
    const ObjectId in_1 = directories_[1], in_2 = directories_[2];
    const Name away = {directories_[0], names_[0]};
    const Name made = {root_, ShardedWorld::NameIn(1, root_, "made")};
    const Name gone = {root_, ShardedWorld::NameIn(2, root_, "gone")};
    const Name linked = {in_2, "linked"}, moved = {in_1, "moved"}, moved_too = {in_2, "moved"};
    const ObjectId file = now_.at({in_1, names_[1]});
    const std::vector<std::function<bool()>> all = {
        [&] { return Make(made, S_IFDIR | 0755); },
        [&] { return Link(file, linked); },
        [&] { return Rename(away, moved); },
        [&] { return Rename(made, moved_too); },  // its inode is a third shard's
        [&] { return Exchange(moved, moved_too); },
        [&] { return Make(gone, S_IFDIR | 0755); },
        [&] { return Remove(gone); },
        [&] { return Remove(linked); },
        [&] { return Remove(moved_too); },  // the last name of a file
    };
    return std::all_of(all.begin(), all.end(),
                       [this](const auto& change) { return !is_over() && change(); });
  }
  // A change that is possible, or none. False where it failed: only a crash can be the cause.
  bool Change() {
    const Name name = AnyName();
    const auto there = now_.find(name);
    const uint64_t draw = random_() % 6;
    if (there != now_.end()) {
      if (draw < 2) return Exchange(name, Name(AnyThere()->first));
      return draw < 4 ? Rename(name, AnyName()) : Remove(name);
    }
    if (draw >= 2) return Make(name, draw % 2 == 0 ? S_IFREG | 0644 : S_IFDIR | 0755);
    return now_.empty() || Link(AnyThere()->second, name);
  }
  // REQUIRES: there is something.
  Entries::const_iterator AnyThere() {
    return std::next(now_.cbegin(), static_cast<ptrdiff_t>(random_() % now_.size()));
  }
  bool Make(const Name& name, uint32_t mode) {
    absl::StrAppend(&log_, "\n  make ", S_ISDIR(mode) ? "directory " : "file ", name.first, "/",
                    name.second);
    const auto made = at_.Make(whoever_, name.first, name.second, mode, 0, "");
    if (!made.ok()) {
      // Of one that failed nobody knows what its number would have been.
      absl::StrAppend(&log_, " -> ", made.status().ToString());
      return false;
    }
    absl::StrAppend(&log_, " = ", made->id);
    modes_[made->id] = mode;
    Entries next = now_;
    next[name] = made->id;
    return Acknowledge(std::move(next), {ShardOf(name.first), ShardOf(made->id)}, &done_.made);
  }
  bool Link(ObjectId file, const Name& name) {
    if (S_ISDIR(modes_[file])) return true;
    Entries next = now_;
    next[name] = file;
    return Try(absl::StrCat("link ", file, " ", name.first, "/", name.second), std::move(next),
               {name.first, file}, &done_.linked,
               [&] { return at_.Link(whoever_, file, name.first, name.second).status(); });
  }
  bool Remove(const Name& name) {
    const ObjectId removed = now_.at(name);
    const bool is_directory = S_ISDIR(modes_[removed]);
    if (is_directory && !IsEmpty(removed)) return true;
    Entries next = now_;
    next.erase(name);
    return Try(absl::StrCat("remove ", name.first, "/", name.second), std::move(next),
               {name.first, removed}, &done_.removed, [&] {
                 return is_directory ? at_.RemoveDirectory(whoever_, name.first, name.second)
                                     : at_.Unlink(whoever_, name.first, name.second);
               });
  }
  bool Rename(const Name& from, const Name& to) {
    const ObjectId moved = now_.at(from);
    const bool is_directory = S_ISDIR(modes_[moved]);
    if (is_directory && IsBelow(to.first, moved)) return true;
    std::set<ObjectId> objects = {from.first, to.first, moved};
    if (const auto over = now_.find(to); over != now_.end()) {
      if (over->second == moved || S_ISDIR(modes_[over->second]) != is_directory) return true;
      if (is_directory && !IsEmpty(over->second)) return true;
      objects.insert(over->second);
    }
    Entries next = now_;
    next.erase(from);
    next[to] = moved;
    return Try(
        absl::StrCat("rename ", from.first, "/", from.second, " to ", to.first, "/", to.second),
        std::move(next), objects, &done_.renamed, [&] {
          return at_.Rename(whoever_, from.first, from.second, to.first, to.second,
                            RenameRule::kReplace);
        });
  }
  // Of two names that are there.
  bool Exchange(const Name& one, const Name& other) {
    const ObjectId moved = now_.at(one), back = now_.at(other);
    if (moved == back || IsBelow(other.first, moved) || IsBelow(one.first, back)) return true;
    Entries next = now_;
    std::swap(next[one], next[other]);
    return Try(absl::StrCat("exchange ", one.first, "/", one.second, " and ", other.first, "/",
                            other.second),
               std::move(next), {one.first, other.first, moved, back}, &done_.exchanged, [&] {
                 return at_.Rename(whoever_, one.first, one.second, other.first, other.second,
                                   RenameRule::kExchange);
               });
  }

  void CheckEntries(const Entries& found, const std::set<size_t>& lost) {
    // Whether what a shard has may be from before the change that did not return, or from after it.
    bool may_be_before = true, may_be_after = pending_.has_value();
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const Entries has = Of(found, shard);
      const std::vector<Entries>& history = histories_[shard];
      const bool is_in_history =
          lost.contains(shard) ? std::find(history.begin(), history.end(), has) != history.end()
                               : history.back() == has;
      const bool takes_part = pending_.has_value() && pending_->shards.contains(shard);
      const bool is_after = takes_part ? Of(pending_->after, shard) == has : is_in_history;
      ASSERT_TRUE(is_in_history || is_after)
          << "shard " << shard << " has names as they never were:" << Text(has) << "\nfrom"
          << Text(history.front()) << "\nto" << Text(history.back())
          << (takes_part ? "\nor" + Text(Of(pending_->after, shard)) : "");
      may_be_before = may_be_before && is_in_history;
      may_be_after = may_be_after && is_after;
    }
    ASSERT_TRUE(may_be_before || may_be_after)
        << "of the last change some shards have their part, and others have not:" << Text(found);
  }

  void CheckInodes(FileSystemWorld& world, uint32_t shard,
                   const std::map<ObjectId, uint32_t>& names) {
    const auto ids = world.store(shard).List(0, 10'000);
    ASSERT_TRUE(ids.ok()) << ids.status();
    for (const ObjectId id : *ids) {
      EXPECT_EQ(ShardOf(id), shard);
      const auto nodes = world.volume(shard)->Stat(std::vector<ObjectId>{id});
      ASSERT_TRUE(nodes.ok()) << nodes.status();
      const Node& node = nodes->front();
      const bool is_internal = node.inode.mode == ShardRecords::kMode;
      if (node.id == 0 || id == root_ || is_internal) continue;
      if (const auto named = names.find(id); named != names.end()) {
        if (node.inode.IsDirectory()) {
          EXPECT_EQ(named->second, 1u) << "directory " << id << " is in several places";
        } else {
          EXPECT_EQ(node.inode.links, named->second) << id;
        }
        continue;
      }
      // What had a name before, and has none now, waits to be removed. A shard has a root that no
      // name leads to.
      const bool is_root = node.inode.IsDirectory() && node.inode.parent == id;
      EXPECT_EQ(node.inode.links, is_root ? 2u : 0u) << id << " has no name";
    }
  }

  void Walk(FileSystem& at, ObjectId directory, Entries* found,
            std::map<ObjectId, uint32_t>* names) {
    const auto listed = at.List(whoever_, directory, 0, 100, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    uint32_t directories = 0;
    uint64_t entries = 0;
    for (const auto& entry : *listed) {
      if (entry.name == "." || entry.name == "..") continue;
      ++entries;
      const auto node = at.Lookup(whoever_, directory, entry.name);
      ASSERT_TRUE(node.ok()) << directory << "/" << entry.name
                             << " leads to nothing: " << node.status();
      EXPECT_EQ(node->id, entry.node.id);
      // One whose making was cut off may be there under its name.
      if (modes_.contains(node->id)) (*found)[{directory, entry.name}] = node->id;
      ASSERT_LE(++(*names)[node->id], 100u) << "there is a cycle";
      if (!node->inode.IsDirectory()) continue;
      ++directories;
      EXPECT_EQ(node->inode.parent, directory);
      ASSERT_NO_FATAL_FAILURE(Walk(at, node->id, found, names));
    }
    const auto node = at.Stat(directory);
    ASSERT_TRUE(node.ok()) << node.status();
    EXPECT_EQ(node->inode.entries, entries) << directory;
    EXPECT_EQ(node->inode.links, 2 + directories) << directory;
  }

  const Caller whoever_{};
  FileSystem& at_;  // which may be gone when it is checked
  const ObjectId root_;
  std::mt19937_64 random_;
  std::vector<std::string> names_;
  std::array<ObjectId, kShards> directories_ = {};  // by shard, of the beginning
  Entries now_;
  // By shard, of its directories: since what is durable for certain.
  std::array<std::vector<Entries>, kShards> histories_;
  std::optional<Pending> pending_;  // the change that failed
  std::map<ObjectId, uint32_t> modes_;
  Done done_;
  std::string log_;  // what was done, for people
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_SHARDED_NAMES_WORK_H_
