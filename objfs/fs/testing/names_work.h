#ifndef ABACUS_OBJFS_FS_TESTING_NAMES_WORK_H_
#define ABACUS_OBJFS_FS_TESTING_NAMES_WORK_H_

// Work on names and bytes, and what may be left of it after a crash.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/volume.h"
#include "runtime/object/ref.h"

namespace abacus::objfs::testing {

// Random changes of names by one client, which writes to files, and syncs now and then. Each change
// of names is a transaction, so what a power cut leaves is what the names were after one of them:
// after the last sync that was acknowledged, or later. The bytes of a file are those of its own
// last sync, or what was written later, each block by itself.
class NamesWork {
 public:
  // Of each directory, by name.
  using State = std::map<std::pair<ObjectId, std::string>, ObjectId>;

  NamesWork(FileSystem& at, uint64_t seed) : at_(at), random_(seed), history_{State()} {}

  // Called before each step.
  std::function<void()> between;

  // False where the power is gone.
  bool Work(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (between) between();
      const uint64_t draw = random_() % 10;
      sure_ = history_.size();
      if (draw < 6) {
        if (!Change()) return false;
      } else if (draw < 8) {
        if (!Write()) return false;
      } else {
        if (!at_.SyncDirectory(AnyDirectory()).ok()) return false;
        history_ = {history_.back()};
      }
    }
    sure_ = history_.size();
    return true;
  }
  // It ended because its client died, and not what it asked, or it did not end: all is there but
  // the change that failed, if one did.
  void AllButWhatFailed() {
    history_.erase(history_.begin(), history_.begin() + (std::min(sure_, history_.size()) - 1));
    sure_ = history_.size();
  }
  uint64_t exchanges() const { return exchanges_; }
  uint64_t synced_writes() const { return synced_writes_; }

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
  // Drawn one after the other: arguments of a call are drawn in the compiler's order.
  std::pair<ObjectId, std::string> AnyName() {
    std::string name = absl::StrCat("n", random_() % 4);
    const ObjectId directory = AnyDirectory();
    return {directory, std::move(name)};
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
    const std::pair<ObjectId, std::string> name = AnyName();
    const auto there = next.find(name);
    if (there == next.end() && random_() % 4 == 0) return Link(next, name);
    if (there == next.end()) return Make(next, name);
    const uint64_t draw = random_() % 4;
    if (draw == 0) return Exchange(next, name);
    if (draw == 1) return Rename(next, name);
    const bool is_directory = S_ISDIR(modes_[there->second]);
    if (is_directory && !IsEmpty(next, there->second)) return true;
    next.erase(name);
    history_.push_back(next);
    return (is_directory ? at_.RemoveDirectory(whoever_, name.first, name.second)
                         : at_.Unlink(whoever_, name.first, name.second))
        .ok();
  }
  bool Make(State& next, const std::pair<ObjectId, std::string>& name) {
    const uint32_t kinds[] = {S_IFREG | 0644, S_IFREG | 0644, S_IFDIR | 0755, S_IFLNK | 0777};
    const uint32_t mode = kinds[random_() % 4];
    const auto made =
        at_.Make(whoever_, name.first, name.second, mode, 0, S_ISLNK(mode) ? "target" : "");
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
    return at_.Link(whoever_, file, name.first, name.second).ok();
  }
  bool Rename(State& next, const std::pair<ObjectId, std::string>& from) {
    const std::pair<ObjectId, std::string> to = AnyName();
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
    return at_.Rename(whoever_, from.first, from.second, to.first, to.second, RenameRule::kReplace)
        .ok();
  }
  bool Exchange(State& next, const std::pair<ObjectId, std::string>& one) {
    const auto other = std::next(next.begin(), random_() % next.size())->first;
    const ObjectId moved = next[one], back = next[other];
    if (moved == back || IsBelow(next, other.first, moved) || IsBelow(next, one.first, back)) {
      return true;
    }
    std::swap(next[one], next[other]);
    history_.push_back(next);
    if (!at_.Rename(whoever_, one.first, one.second, other.first, other.second,
                    RenameRule::kExchange)
             .ok()) {
      return false;
    }
    ++exchanges_;
    return true;
  }

  // All bytes of a file become another letter; half of the time that is synced, and its names.
  bool Write() {
    std::vector<ObjectId> files;
    for (const auto& [name, id] : history_.back()) {
      if (S_ISREG(modes_[id])) files.push_back(id);
    }
    if (files.empty()) return true;
    const ObjectId file = files[random_() % files.size()];
    const char letter = static_cast<char>('a' + random_() % 26);
    const auto handle = at_.Open(whoever_, file, O_RDWR);
    if (!handle.ok()) return false;
    letters_[file] += letter;
    absl::Status status =
        at_.Write(*handle, 0, runtime::Block::CopyOf(std::string(kFileBytes, letter)));
    if (status.ok() && random_() % 2 == 0) {
      status = at_.Sync(*handle);
      if (status.ok()) {
        letters_[file] = letter;
        synced_.insert(file);
        history_ = {history_.back()};
        ++synced_writes_;
      }
    }
    status.Update(at_.Release(*handle));
    return status.ok();
  }
  void CheckBytes(FileSystem& at, ObjectId file) {
    const auto written = letters_.find(file);
    const std::string letters = written == letters_.end() ? "" : written->second;
    const auto handle = at.Open(whoever_, file, O_RDONLY);
    ASSERT_TRUE(handle.ok()) << handle.status();
    const auto read = at.Read(*handle, 0, 1 << 20);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(at.Release(*handle).ok());
    const std::string bytes(read->view());
    ASSERT_LE(bytes.size(), kFileBytes);
    if (synced_.contains(file)) {
      ASSERT_EQ(bytes.size(), kFileBytes) << file;
    }
    for (size_t begin = 0; begin < bytes.size(); begin += ObjectStore::kBlockBytes) {
      const std::string block = bytes.substr(begin, ObjectStore::kBlockBytes);
      ASSERT_EQ(block, std::string(block.size(), block[0])) << file << ", byte " << begin;
      const bool is_written = letters.find(block[0]) != std::string::npos;
      const bool is_hole = block[0] == 0 && !synced_.contains(file);
      ASSERT_TRUE(is_written || is_hole)
          << file << ", byte " << begin << ": '" << block[0] << "' and not of '" << letters << "'";
    }
  }

  void Walk(FileSystem& at, ObjectId directory, State* found, std::map<ObjectId, uint32_t>* names) {
    const auto listed = at.List(whoever_, directory, 0, 100, false);
    ASSERT_TRUE(listed.ok()) << listed.status();
    uint32_t directories = 0;
    uint64_t entries = 0;
    for (const auto& entry : *listed) {
      if (entry.name == "." || entry.name == "..") continue;
      ++entries;
      const auto node = at.Lookup(whoever_, directory, entry.name);
      ASSERT_TRUE(node.ok()) << entry.name << " leads to nothing: " << node.status();
      // One whose making was cut off may be there under its name.
      if (modes_.contains(node->id)) (*found)[{directory, entry.name}] = node->id;
      ++(*names)[node->id];
      if (node->inode.IsDirectory()) {
        ++directories;
        EXPECT_EQ(node->inode.parent, directory);
        ASSERT_NO_FATAL_FAILURE(Walk(at, node->id, found, names));
      } else if (S_ISLNK(node->inode.mode)) {
        EXPECT_EQ(*at.ReadLink(whoever_, node->id), "target");
      } else if (modes_.contains(node->id)) {
        ASSERT_NO_FATAL_FAILURE(CheckBytes(at, node->id));
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

  const Caller whoever_{};
  FileSystem& at_;
  std::mt19937_64 random_;
  std::vector<State> history_;  // since the last sync that was acknowledged
  size_t sure_ = 1;             // so many of them are no matter of the last step
  std::map<ObjectId, uint32_t> modes_;
  // Of each file what was written: since its last sync, with what that one made durable.
  static constexpr size_t kFileBytes = 2 * ObjectStore::kBlockBytes + 100;
  std::map<ObjectId, std::string> letters_;
  std::set<ObjectId> synced_;  // files
  uint64_t exchanges_ = 0, synced_writes_ = 0;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_NAMES_WORK_H_
