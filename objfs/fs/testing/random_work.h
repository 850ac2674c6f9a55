#ifndef ABACUS_OBJFS_FS_TESTING_RANDOM_WORK_H_
#define ABACUS_OBJFS_FS_TESTING_RANDOM_WORK_H_

// Random work of clients against a plain model.

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/error.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/testing/model.h"
#include "objfs/fs/testing/movables.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::objfs::testing {

// Random calls of several clients, one after the other; each answers what the model answers.
class RandomWork {
 public:
  // What was done, beside what all tests do: a test that has not done it shows nothing.
  struct Done {
    uint64_t links = 0, exchanges = 0, xattrs = 0, chmods = 0;
    uint64_t without_name = 0;  // reads and writes of files that have none any more
  };

  // `made_with`: attributes that each directory is given when it was made.
  RandomWork(std::vector<FileSystem*> clients, uint64_t seed,
             std::map<std::string, std::string> made_with = {})
      : clients_(std::move(clients)), random_(seed), made_with_(std::move(made_with)) {
    known_.push_back({model_.root(), clients_[0]->root()});
  }
  ~RandomWork() {
    while (!held_.empty()) Release(0);
  }

  // Between two steps, every now and then. Errors: those of the move.
  absl::Status TryMove(Movables& movables) {
    return random_() % 3 != 0 ? absl::OkStatus() : movables.MoveOne(random_());
  }
  void Move(Movables& movables) { ASSERT_EQ(TryMove(movables), absl::OkStatus()); }

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
  // The files that are held: of these a server that dies then takes nothing along.
  void SyncHeld() {
    for (const Held& held : held_) ASSERT_EQ(held.at->Sync(held.handle), absl::OkStatus());
  }
  // Of what has a name, and of what has none and is held.
  std::set<ObjectId> Ids() const {
    std::set<ObjectId> ids;
    for (const Known& known : known_) ids.insert(known.id);
    for (const Held& held : held_) ids.insert(held.file.id);
    return ids;
  }

 private:
  static inline const Caller kWorker{};
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
    if (!node.ok()) return;
    known_.push_back({made, node->id});
    if (S_ISLNK(mode)) ++done_.links;
    if (!S_ISDIR(mode)) return;
    for (const auto& [attribute, value] : made_with_) {
      ASSERT_EQ(at.SetXattr(kWorker, node->id, attribute, value, XattrRule::kMustBeNew),
                absl::OkStatus());
      made->xattrs[attribute] = value;
    }
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
    ASSERT_EQ(at.Write(handle, offset, runtime::Block::CopyOf(bytes)), absl::OkStatus());
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
  static void CheckNode(const Node& node, const ModelNode& model) {
    ASSERT_EQ(node.inode.mode, model.type | model.permissions);
    ASSERT_EQ(node.inode.xattrs, model.xattrs);
    if (model.IsDirectory()) return;
    ASSERT_EQ(node.size, model.bytes.size());
    ASSERT_EQ(node.inode.links, static_cast<uint32_t>(model.links));
  }

  const std::vector<FileSystem*> clients_;
  std::mt19937_64 random_;
  const std::map<std::string, std::string> made_with_;
  Model model_;
  std::vector<Known> known_;
  std::vector<Held> held_;
  Done done_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_RANDOM_WORK_H_
