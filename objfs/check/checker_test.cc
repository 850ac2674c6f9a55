// What a check finds, and what a repair leaves: volumes that clients made, damaged in every way
// that the checker knows of.

#include "objfs/check/checker.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/check/directory_scan.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/testing/store_files.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs {
namespace {

using ::testing::AllOf;
using testing::FileSystemWorld;
using ::testing::HasSubstr;

const Caller kWhoever;
constexpr uint64_t kBlock = ObjectStore::kBlockBytes;

void CopyDisk(Disk& from, Disk& to) {
  std::vector<std::string> folders = {""};
  for (uint64_t i = 0; i < kFolders; ++i) folders.push_back(FolderName(i));
  for (const std::string& folder : folders) {
    if (!folder.empty()) {
      ASSERT_TRUE(to.MakeDirectory(folder).ok());
    }
    const auto names = from.List(folder);
    ASSERT_TRUE(names.ok()) << names.status();
    for (const std::string& name : *names) {
      const std::string path = folder.empty() ? name : folder + "/" + name;
      const auto file = from.Open(path);
      ASSERT_TRUE(file.ok()) << file.status();
      std::string bytes(*(*file)->Size(), '\0');
      ASSERT_TRUE((*file)->Read(0, std::span(bytes.data(), bytes.size())).ok());
      const auto copy = to.Create(path);
      ASSERT_TRUE(copy.ok()) << copy.status();
      ASSERT_TRUE((*copy)->Write(0, bytes).ok());
    }
  }
  ASSERT_TRUE(to.SyncAll().ok());
}

std::string Lines(const CheckReport& report) {
  std::string lines;
  for (const Fault& fault : report.faults) absl::StrAppend(&lines, fault.Line(), "\n");
  return lines;
}

using Kinds = std::multiset<std::pair<FaultKind, ObjectId>>;
Kinds KindsOf(const CheckReport& report) {
  Kinds kinds;
  for (const Fault& fault : report.faults) kinds.emplace(fault.kind, fault.object);
  return kinds;
}

// A volume that a client has filled, and what is in it.
class Volumes {
 public:
  explicit Volumes(uint64_t seed) : random_(seed) {
    FileSystemWorld world(2, &disk_);
    const auto at = world.Client(1);
    root_ = at->root();
    directories_ = {root_};
    parent_[root_] = root_;
    for (int i = 0; i < 60; ++i) MakeSomething(*at);
    // One with tables.
    const ObjectId large = MakeNode(*at, root_, "large", S_IFDIR | 0755, "");
    directories_.pop_back();  // nothing else is made in it
    for (int i = 0; i < 120; ++i) {
      MakeNode(*at, large, absl::StrCat(std::string(200, 'n'), i), S_IFREG | 0644, "");
    }
    large_ = large;
  }

  MemoryDisk& disk() { return disk_; }
  std::mt19937_64& random() { return random_; }
  ObjectId root() const { return root_; }
  ObjectId large() const { return large_; }
  const std::map<ObjectId, std::string>& bytes() const { return bytes_; }
  const std::map<ObjectId, std::multimap<ObjectId, std::string>>& names() const { return names_; }
  const std::map<ObjectId, ObjectId>& parent() const { return parent_; }
  std::vector<ObjectId> FilesWithBytes() const {
    std::vector<ObjectId> files;
    for (const auto& [id, bytes] : bytes_) {
      if (!bytes.empty()) files.push_back(id);
    }
    return files;
  }
  // But the root.
  std::vector<ObjectId> Directories() const {
    return {directories_.begin() + 1, directories_.end()};
  }
  // Names in a directory, by what they lead to.
  std::map<ObjectId, int> In(ObjectId directory) const {
    std::map<ObjectId, int> in;
    for (const auto& [id, names] : names_) {
      const auto count = names.count(directory);
      if (count > 0) in[id] = static_cast<int>(count);
    }
    return in;
  }
  template <typename T>
  T Any(const std::vector<T>& of) {
    return of[random_() % of.size()];
  }

 private:
  ObjectId MakeNode(FileSystem& at, ObjectId directory, const std::string& name, uint32_t mode,
                    const std::string& target) {
    const auto made = at.Make(kWhoever, directory, name, mode, 0, target);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return 0;
    names_[made->id].emplace(directory, name);
    if (S_ISDIR(mode)) {
      directories_.push_back(made->id);
      parent_[made->id] = directory;
    }
    if (S_ISREG(mode)) bytes_[made->id];
    return made->id;
  }
  void MakeSomething(FileSystem& at) {
    const ObjectId directory = Any(directories_);
    const std::string name = absl::StrCat("n", random_() % 1000, "-", names_.size());
    const uint64_t draw = random_() % 10;
    if (draw < 2) {
      MakeNode(at, directory, name, S_IFDIR | 0755, "");
    } else if (draw < 3) {
      MakeNode(at, directory, name, S_IFLNK | 0777, "where");
    } else if (draw < 5 && !bytes_.empty()) {
      const ObjectId file = std::next(bytes_.begin(), random_() % bytes_.size())->first;
      EXPECT_TRUE(at.Link(kWhoever, file, directory, name).ok());
      names_[file].emplace(directory, name);
    } else {
      const ObjectId file = MakeNode(at, directory, name, S_IFREG | 0644, "");
      std::string bytes(random_() % (3 * kBlock), '\0');
      for (char& c : bytes) c = static_cast<char>('a' + random_() % 26);
      const auto handle = at.Open(kWhoever, file, O_RDWR);
      ASSERT_TRUE(handle.ok());
      if (!bytes.empty()) {
        EXPECT_TRUE(at.Write(*handle, 0, runtime::Block::CopyOf(bytes)).ok());
      }
      EXPECT_TRUE(at.Release(*handle).ok());
      bytes_[file] = bytes;
    }
  }

  MemoryDisk disk_;
  std::mt19937_64 random_;
  ObjectId root_ = 0, large_ = 0;
  std::vector<ObjectId> directories_;
  std::map<ObjectId, ObjectId> parent_;  // of directories
  std::map<ObjectId, std::string> bytes_;
  std::map<ObjectId, std::multimap<ObjectId, std::string>> names_;  // object: directory, name
};

// The store of a disk, while nobody else has it.
class Opened {
 public:
  explicit Opened(Disk& disk) {
    auto opened = LocalObjectStore::Open(disk, {});
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    table_ = std::make_unique<ObjectTable>(store_, [] { return absl::GetCurrentTimeNanos(); });
  }
  ~Opened() {
    EXPECT_TRUE(store_->FlushAll().ok());
    EXPECT_TRUE(store_->Checkpoint().ok());
  }
  LocalObjectStore& store() { return *store_; }
  ObjectTable& table() { return *table_; }
  VersionNumber Next() { return table_->NextVersion().value; }

  Inode InodeOf(ObjectId id) {
    const auto attributes = store_->GetAttributes(id);
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    return Inode::Decode(attributes->blob).value();
  }
  template <typename F>
  void ChangeInode(ObjectId id, F change) {
    Inode inode = InodeOf(id);
    change(&inode);
    // Loads the version, so that the next is newer.
    EXPECT_TRUE(table_->Stat(id).ok());
    EXPECT_TRUE(store_->SetAttributes(id, inode.Encode(), Next()).ok());
  }
  std::string Read(ObjectId id, uint64_t offset, uint64_t bytes) {
    std::string read(bytes, '\0');
    const auto count = store_->Read(id, offset, std::span(read.data(), read.size()));
    EXPECT_TRUE(count.ok()) << count.status();
    read.resize(count.value_or(0));
    return read;
  }
  void Write(ObjectId id, uint64_t offset, const std::string& bytes) {
    EXPECT_TRUE(table_->Stat(id).ok());
    EXPECT_TRUE(store_->Write(id, offset, bytes, Next()).ok());
  }

 private:
  std::shared_ptr<LocalObjectStore> store_;
  std::unique_ptr<ObjectTable> table_;
};

CheckReport CheckIt(Disk& disk, bool repair, bool data = true) {
  CheckOptions options;
  options.repair = repair;
  options.data = data;
  auto report = CheckVolumeOn(disk, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : CheckReport();
}

// What is there now, as clients see it: the bytes of each file that a name leads to.
void ReadAll(FileSystem& at, ObjectId directory, std::map<ObjectId, std::string>* bytes) {
  const auto listed = at.List(kWhoever, directory, 0, 1000, false);
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const auto& entry : *listed) {
    if (entry.name == "." || entry.name == "..") continue;
    const auto node = at.Lookup(kWhoever, directory, entry.name);
    ASSERT_TRUE(node.ok()) << entry.name << ": " << node.status();
    if (node->inode.IsDirectory()) {
      ASSERT_NO_FATAL_FAILURE(ReadAll(at, node->id, bytes));
    } else if (node->inode.IsRegular()) {
      const auto handle = at.Open(kWhoever, node->id, O_RDONLY);
      ASSERT_TRUE(handle.ok()) << handle.status();
      const auto read = at.Read(*handle, 0, 1 << 20);
      EXPECT_TRUE(at.Release(*handle).ok());
      ASSERT_TRUE(read.ok()) << read.status();
      (*bytes)[node->id] = std::string(read->view());
    }
  }
}

void ExpectFiles(Disk& disk, const std::map<ObjectId, std::string>& expected) {
  FileSystemWorld world(2, &disk);
  const auto at = world.Client(1);
  std::map<ObjectId, std::string> bytes;
  ASSERT_NO_FATAL_FAILURE(ReadAll(*at, at->root(), &bytes));
  for (const auto& [id, wanted] : expected) {
    ASSERT_TRUE(bytes.contains(id)) << "file " << id << " has no name any more";
    EXPECT_EQ(bytes[id], wanted) << "file " << id;
  }
}

// Repairs, and looks whether that leaves a volume without faults and with the files.
void RepairAndExpect(Volumes& volume, std::set<ObjectId> without = {}) {
  const CheckReport repaired = CheckIt(volume.disk(), true);
  EXPECT_GT(repaired.found, 0u);
  EXPECT_EQ(repaired.left(), 0u) << Lines(repaired);
  const CheckReport again = CheckIt(volume.disk(), false);
  EXPECT_EQ(again.found, 0u) << "after\n" << Lines(repaired) << "there is\n" << Lines(again);
  std::map<ObjectId, std::string> files = volume.bytes();
  for (const ObjectId id : without) files.erase(id);
  ExpectFiles(volume.disk(), files);
}

constexpr uint64_t kSeeds = 4;

TEST(CheckerTest, WhatClientsMadeIsClean) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Volumes volume(seed);
    const auto before = testing::FilesOn(volume.disk());
    const CheckReport report = CheckIt(volume.disk(), false);
    EXPECT_EQ(report.found, 0u) << Lines(report);
    EXPECT_EQ(report.files, volume.bytes().size());
    EXPECT_EQ(report.directories, volume.parent().size());
    EXPECT_EQ(report.unnamed, 0u);
    uint64_t names = 0, bytes = 0;
    for (const auto& [id, of] : volume.names()) names += of.size();
    for (const auto& [id, of] : volume.bytes()) bytes += of.size();
    EXPECT_EQ(report.names, names);
    EXPECT_GE(report.bytes_read, bytes);
    EXPECT_EQ(testing::FilesOn(volume.disk()), before) << "a check without repairs wrote something";
    EXPECT_EQ(CheckIt(volume.disk(), true).found, 0u);
  }
}

TEST(CheckerTest, WrongCountsAreSetRight) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Volumes volume(seed);
    const ObjectId file = volume.Any(volume.FilesWithBytes());
    const ObjectId directory = volume.Any(volume.Directories());
    const ObjectId moved = volume.Any(volume.Directories());
    {
      Opened opened(volume.disk());
      // With no names by its count it would be removed at the next start.
      opened.ChangeInode(file, [&](Inode* inode) { inode->links = seed % 2 == 0 ? 0 : 7; });
      opened.ChangeInode(directory, [](Inode* inode) {
        inode->entries += 3;
        inode->links += 2;
      });
      opened.ChangeInode(moved, [](Inode* inode) { inode->parent = 12345; });
    }
    const Kinds expected = {{FaultKind::kLinks, file},
                            {FaultKind::kEntries, directory},
                            {FaultKind::kLinks, directory},
                            {FaultKind::kParent, moved}};
    const CheckReport found = CheckIt(volume.disk(), false);
    EXPECT_EQ(KindsOf(found), expected) << Lines(found);
    ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
    Opened opened(volume.disk());
    EXPECT_EQ(opened.InodeOf(file).links, volume.names().at(file).size());
    EXPECT_EQ(opened.InodeOf(moved).parent, volume.parent().at(moved));
  }
}

TEST(CheckerTest, NamesOfWhatIsNotThereAreRemoved) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Volumes volume(seed);
    const ObjectId file = volume.Any(volume.FilesWithBytes());
    {
      Opened opened(volume.disk());
      EXPECT_TRUE(opened.store().Remove(file).ok());
    }
    Kinds expected;
    for (const auto& [directory, name] : volume.names().at(file)) {
      expected.emplace(FaultKind::kName, directory);
    }
    const CheckReport found = CheckIt(volume.disk(), false);
    EXPECT_EQ(KindsOf(found), expected) << Lines(found);
    ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume, {file}));
  }
}

TEST(CheckerTest, ADirectoryThatIsGoneLeavesWhatWasInItInLostAndFound) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Volumes volume(seed);
    const ObjectId gone = volume.Any(volume.Directories());
    {
      Opened opened(volume.disk());
      EXPECT_TRUE(opened.store().Remove(gone).ok());
    }
    Kinds expected = {{FaultKind::kName, volume.parent().at(gone)}};
    for (const auto& [id, count] : volume.In(gone)) {
      const auto all = static_cast<int>(volume.names().at(id).size());
      expected.emplace(all == count ? FaultKind::kUnreachable : FaultKind::kLinks, id);
    }
    const CheckReport found = CheckIt(volume.disk(), false);
    EXPECT_EQ(KindsOf(found), expected) << Lines(found);
    ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
  }
}

TEST(CheckerTest, ObjectsThatNoNameLeadsToGoToLostAndFound) {
  Volumes volume(1);
  ObjectId orphan = 0, unnamed = 0;
  {
    Opened opened(volume.disk());
    Inode inode;
    inode.mode = S_IFREG | 0600;
    inode.links = 1;
    orphan = *opened.store().Create(inode.Encode(), opened.Next());
    opened.Write(orphan, 0, "somebody's bytes");
    inode.links = 0;
    unnamed = *opened.store().Create(inode.Encode(), opened.Next());
  }
  const CheckReport found = CheckIt(volume.disk(), false);
  EXPECT_EQ(KindsOf(found), (Kinds{{FaultKind::kUnreachable, orphan}})) << Lines(found);
  EXPECT_EQ(found.unnamed, 1u);
  ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
  FileSystemWorld world(2, &volume.disk());
  const auto at = world.Client(1);
  const auto lost = at->Lookup(kWhoever, at->root(), "lost+found");
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->inode.mode, S_IFDIR | 0700u);
  const auto named = at->Lookup(kWhoever, lost->id, absl::StrCat("#", orphan));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->id, orphan);
  EXPECT_NE(unnamed, 0u);
}

// What a directory's block, or all of it, was when names of it are lost.
Kinds LostNames(const Volumes& volume, ObjectId directory, const std::set<std::string>& kept) {
  Kinds expected = {{FaultKind::kBlocks, directory}};
  for (const auto& [id, names] : volume.names()) {
    size_t lost = 0;
    for (auto [at, end] = names.equal_range(directory); at != end; ++at) {
      lost += kept.contains(at->second) ? 0 : 1;
    }
    if (lost == 0) continue;
    expected.emplace(lost == names.size() ? FaultKind::kUnreachable : FaultKind::kLinks, id);
  }
  return expected;
}

TEST(CheckerTest, ADamagedBlockOfADirectoryCostsItsNamesOnly) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool is_large : {false, true}) {
      Volumes volume(seed);
      ObjectId directory = volume.large();
      for (const ObjectId id : volume.Directories()) {
        if (!is_large && !volume.In(id).empty()) directory = id;
      }
      std::set<std::string> kept;
      {
        Opened opened(volume.disk());
        const uint64_t blocks = opened.store().GetAttributes(directory)->size_bytes / kBlock;
        const uint64_t block = volume.random()() % blocks;
        std::string bytes = opened.Read(directory, block * kBlock, kBlock);
        bytes[volume.random()() % 44] ^= 0x40;  // of the head
        opened.Write(directory, block * kBlock, bytes);
        const auto scanned = ScanDirectory(opened.store(), directory);
        ASSERT_TRUE(scanned.ok());
        EXPECT_FALSE(scanned->faults.empty());
        for (const ScannedName& name : scanned->names) kept.insert(name.name);
      }
      const CheckReport found = CheckIt(volume.disk(), false);
      EXPECT_EQ(KindsOf(found), LostNames(volume, directory, kept)) << Lines(found);
      ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
    }
  }
}

// It may be read later: a repair that took it for damaged would take its names away.
TEST(CheckerTest, WhatTheDiskCannotReadIsNotTakenForDamaged) {
  Volumes volume(1);
  { Opened opened(volume.disk()); }  // what the journal alone has is read from there
  ModelDisk failing(volume.disk(), {.fault = [path = DataPath(volume.large())](
                                                 std::string_view call, const std::string& of) {
                      return call == "read" && of == path ? ReadError(EIO, of) : absl::OkStatus();
                    }});
  for (const bool repair : {false, true}) {
    CheckOptions options;
    options.repair = repair;
    const absl::Status checked = CheckVolumeOn(failing, options).status();
    EXPECT_TRUE(absl::IsUnavailable(checked)) << checked;
    EXPECT_THAT(std::string(checked.message()),
                AllOf(HasSubstr("the disk fails"), HasSubstr("copy what can be read to another")));
  }
  EXPECT_EQ(CheckIt(volume.disk(), false).found, 0u);
  ExpectFiles(volume.disk(), volume.bytes());
}

TEST(CheckerTest, AnInodeThatIsNoneIsMadeAnew) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Volumes volume(seed);
    const ObjectId file = volume.Any(volume.FilesWithBytes());
    const ObjectId directory = volume.Any(volume.Directories());
    {
      Opened opened(volume.disk());
      for (const ObjectId id : {file, directory, volume.root()}) {
        EXPECT_TRUE(opened.table().Stat(id).ok());
        std::string blob = opened.store().GetAttributes(id)->blob;
        blob.resize(blob.size() - 1);
        EXPECT_TRUE(opened.store().SetAttributes(id, blob, opened.Next()).ok());
      }
    }
    const CheckReport repaired = CheckIt(volume.disk(), true);
    Kinds expected = {{FaultKind::kInode, file},
                      {FaultKind::kInode, directory},
                      {FaultKind::kInode, volume.root()}};
    // What names say of them is known once all is looked at again.
    Kinds seen = KindsOf(repaired);
    seen.erase({FaultKind::kLinks, file});
    seen.erase({FaultKind::kParent, directory});
    EXPECT_EQ(seen, expected) << Lines(repaired);
    EXPECT_EQ(repaired.left(), 0u);
    EXPECT_EQ(CheckIt(volume.disk(), false).found, 0u);
    ExpectFiles(volume.disk(), volume.bytes());
  }
}

TEST(CheckerTest, AnInodeOfALaterVersionIsLeftAsItIs) {
  Volumes volume(1);
  const ObjectId file = volume.Any(volume.FilesWithBytes());
  std::string blob;
  {
    Opened opened(volume.disk());
    EXPECT_TRUE(opened.table().Stat(file).ok());
    blob = opened.store().GetAttributes(file)->blob;
    blob[0] = Inode::kNewestVersion + 1;
    EXPECT_TRUE(opened.store().SetAttributes(file, blob, opened.Next()).ok());
  }
  const CheckReport repaired = CheckIt(volume.disk(), true);
  EXPECT_EQ(KindsOf(repaired), (Kinds{{FaultKind::kInode, file}})) << Lines(repaired);
  EXPECT_EQ(repaired.left(), 1u);
  Opened opened(volume.disk());
  EXPECT_EQ(opened.store().GetAttributes(file)->blob, blob);
}

// A name of the directory becomes another one of the same length, or leads elsewhere.
void ChangeEntry(Opened& opened, ObjectId directory, const EntryChange& change) {
  auto scanned = *ScanDirectory(opened.store(), directory);
  if (change.before.has_value()) {
    std::erase_if(scanned.names, [&](const auto& name) { return name.name == change.name; });
  }
  if (change.after.has_value()) scanned.names.push_back({change.name, *change.after});
  const auto blocks = *BuildDirectory(scanned.names, scanned.seed);
  for (size_t i = 0; i < blocks.size(); ++i) opened.Write(directory, i * kBlock, blocks[i]);
}

TEST(CheckerTest, ANameWithAWrongTypeIsMadeRight) {
  Volumes volume(2);
  const ObjectId directory = volume.Any(volume.Directories());
  const auto& [parent, name] = *volume.names().at(directory).begin();
  {
    Opened opened(volume.disk());
    ChangeEntry(opened, parent, {name, Entry{directory, S_IFDIR}, Entry{directory, S_IFREG}});
  }
  const CheckReport found = CheckIt(volume.disk(), false);
  EXPECT_EQ(KindsOf(found), (Kinds{{FaultKind::kName, parent}})) << Lines(found);
  ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
}

TEST(CheckerTest, ADirectoryKeepsOneName) {
  Volumes volume(3);
  const ObjectId directory = volume.Any(volume.Directories());
  {
    Opened opened(volume.disk());
    ChangeEntry(opened, volume.large(), {"again", std::nullopt, Entry{directory, S_IFDIR}});
    ChangeEntry(opened, volume.large(), {"root", std::nullopt, Entry{volume.root(), S_IFDIR}});
    opened.ChangeInode(volume.large(), [](Inode* inode) {
      inode->entries += 2;
      inode->links += 2;
    });
  }
  const CheckReport found = CheckIt(volume.disk(), false);
  Kinds names = KindsOf(found);
  names.erase({FaultKind::kLinks, volume.large()});  // of what is to be removed
  EXPECT_EQ(names, (Kinds{{FaultKind::kName, volume.large()}, {FaultKind::kName, volume.large()}}))
      << Lines(found);
  ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
}

TEST(CheckerTest, DirectoriesBelowThemselvesAreCutOut) {
  Volumes volume(5);
  ObjectId above = 0, below = 0;
  for (const auto& [id, parent] : volume.parent()) {
    if (id != volume.root() && parent != volume.root() && parent != 0) {
      below = id;
      above = parent;
    }
  }
  ASSERT_NE(above, 0u);
  const auto& [parent, name] = *volume.names().at(above).begin();
  {
    Opened opened(volume.disk());
    ChangeEntry(opened, parent, {name, Entry{above, S_IFDIR}, std::nullopt});
    ChangeEntry(opened, below, {"round", std::nullopt, Entry{above, S_IFDIR}});
    opened.ChangeInode(above, [&](Inode* inode) { inode->parent = below; });
    const auto count = [](int by) {
      return [by](Inode* inode) {
        inode->entries += static_cast<uint64_t>(by);
        inode->links += static_cast<uint32_t>(by);
      };
    };
    opened.ChangeInode(parent, count(-1));
    opened.ChangeInode(below, count(1));
  }
  const CheckReport found = CheckIt(volume.disk(), false);
  ASSERT_EQ(found.found, 1u) << Lines(found);
  EXPECT_EQ(found.faults[0].kind, FaultKind::kName);
  ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
}

TEST(CheckerTest, ARootThatIsGoneIsMadeAnew) {
  Volumes volume(1);
  {
    Opened opened(volume.disk());
    EXPECT_TRUE(opened.store().Remove(volume.root()).ok());
  }
  EXPECT_GT(CheckIt(volume.disk(), false).found, 1u);
  ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
}

TEST(CheckerTest, DataThatRotIsTold) {
  Volumes volume(1);
  const ObjectId file = volume.Any(volume.FilesWithBytes());
  { Opened opened(volume.disk()); }
  const auto data = volume.disk().Open(DataPath(file));
  ASSERT_TRUE(data.ok());
  char byte = 0;
  ASSERT_TRUE((*data)->Read(0, std::span(&byte, 1)).ok());
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE((*data)->Write(0, std::string_view(&byte, 1)).ok());
  EXPECT_EQ(CheckIt(volume.disk(), false, /*data=*/false).found, 0u);
  for (const bool repair : {false, true}) {
    const CheckReport found = CheckIt(volume.disk(), repair);
    EXPECT_EQ(KindsOf(found), (Kinds{{FaultKind::kData, file}})) << Lines(found);
    EXPECT_EQ(found.left(), 1u);
    EXPECT_FALSE(found.faults[0].path.empty());
  }
}

// Of a page of a table with two places the one that is left is used; where none is, the object's
// bytes are kept nevertheless.
TEST(CheckerTest, ATableThatRotIsSalvaged) {
  for (const bool loses_all : {false, true}) {
    Volumes volume(2);
    const ObjectId file = volume.Any(volume.FilesWithBytes());
    const std::string bytes = volume.bytes().at(file);
    { Opened opened(volume.disk()); }
    {
      // So that both places are written.
      Opened opened(volume.disk());
      opened.ChangeInode(file, [](Inode* inode) { inode->accessed_ns += 1; });
    }
    const auto table = volume.disk().Open(TablePath(file));
    ASSERT_TRUE(table.ok());
    // The second one is the newer.
    for (const int place : {1, 0}) {
      if (place == 0 && !loses_all) continue;
      // More than a bit, which its checksum would tell.
      ASSERT_TRUE((*table)->Write(OffsetOfPage(0, place) + 100, "rotten").ok());
    }
    const CheckReport found = CheckIt(volume.disk(), false);
    EXPECT_EQ(KindsOf(found), (Kinds{{FaultKind::kTable, file}})) << Lines(found);
    if (!loses_all) {
      ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume));
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(RepairAndExpect(volume, {file}));
    FileSystemWorld world(2, &volume.disk());
    const auto at = world.Client(1);
    std::map<ObjectId, std::string> all;
    ASSERT_NO_FATAL_FAILURE(ReadAll(*at, at->root(), &all));
    const bool is_kept = std::any_of(all.begin(), all.end(), [&](const auto& one) {
      return one.second.substr(0, bytes.size()) == bytes;
    });
    EXPECT_TRUE(is_kept);
  }
}

// Several damages of a volume, whatever they are.
std::set<ObjectId> DamageAtRandom(Volumes& volume, int count) {
  std::set<ObjectId> touched;
  Opened opened(volume.disk());
  for (int i = 0; i < count; ++i) {
    const ObjectId file = volume.Any(volume.FilesWithBytes());
    const ObjectId directory = volume.Any(volume.Directories());
    switch (volume.random()() % 6) {
      case 0:
        if (opened.store().Remove(file).ok()) touched.insert(file);
        break;
      case 1:
        opened.store().Remove(directory).IgnoreError();
        break;
      case 2: {
        const auto attributes = opened.store().GetAttributes(directory);
        if (!attributes.ok() || attributes->size_bytes == 0) break;
        std::string bytes = opened.Read(directory, 0, kBlock);
        bytes[volume.random()() % 400] ^= static_cast<char>(1 + volume.random()() % 255);
        opened.Write(directory, 0, bytes);
        break;
      }
      case 3:
        if (!opened.store().GetAttributes(file).ok()) break;
        opened.ChangeInode(file, [&](Inode* inode) { inode->links = volume.random()() % 9; });
        break;
      case 4:
        if (!opened.store().GetAttributes(directory).ok()) break;
        opened.ChangeInode(directory, [&](Inode* inode) {
          inode->links = volume.random()() % 9;
          inode->entries = volume.random()() % 9;
          inode->parent = volume.random()() % 100;
        });
        break;
      case 5: {
        const auto blocks = opened.store().GetAttributes(volume.large())->size_bytes / kBlock;
        const uint64_t at = volume.random()() % blocks * kBlock;
        std::string bytes = opened.Read(volume.large(), at, kBlock);
        bytes[volume.random()() % kBlock] ^= static_cast<char>(1 + volume.random()() % 255);
        opened.Write(volume.large(), at, bytes);
        break;
      }
    }
  }
  return touched;
}

TEST(CheckerTest, WhateverWasDamagedOneRepairMakesAllRight) {
  const uint64_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 200 : 12;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Volumes volume(seed);
    const std::set<ObjectId> removed = DamageAtRandom(volume, 1 + static_cast<int>(seed % 7));
    const CheckReport repaired = CheckIt(volume.disk(), true);
    EXPECT_EQ(repaired.left(), 0u) << Lines(repaired);
    const CheckReport again = CheckIt(volume.disk(), false);
    EXPECT_EQ(again.found, 0u) << "after\n" << Lines(repaired) << "there is\n" << Lines(again);
    std::map<ObjectId, std::string> files = volume.bytes();
    for (const ObjectId id : removed) files.erase(id);
    ExpectFiles(volume.disk(), files);
  }
}

// All names outside lost+found, by their paths.
void NamesBelow(FileSystem& at, ObjectId directory, const std::string& path,
                std::map<std::string, ObjectId>* names) {
  const auto listed = at.List(kWhoever, directory, 0, 1000, false);
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const auto& entry : *listed) {
    const bool is_lost = path.empty() && entry.name == "lost+found";
    if (entry.name == "." || entry.name == ".." || is_lost) continue;
    const auto node = at.Lookup(kWhoever, directory, entry.name);
    ASSERT_TRUE(node.ok()) << node.status();
    const std::string name = absl::StrCat(path, "/", entry.name);
    (*names)[name] = node->id;
    if (node->inode.IsDirectory()) {
      ASSERT_NO_FATAL_FAILURE(NamesBelow(at, node->id, name, names));
    }
  }
}
std::map<std::string, ObjectId> NamesOn(Disk& disk) {
  FileSystemWorld world(2, &disk);
  const auto at = world.Client(1);
  std::map<std::string, ObjectId> names;
  NamesBelow(*at, at->root(), "", &names);
  return names;
}

// The power goes at one call to the disk after another: the next repair finishes what was begun.
TEST(CheckerTest, ARepairThatIsCutOffIsGoneOnWith) {
  Volumes volume(7);
  const std::set<ObjectId> removed = DamageAtRandom(volume, 6);
  std::map<ObjectId, std::string> files = volume.bytes();
  for (const ObjectId id : removed) files.erase(id);
  ASSERT_GT(CheckIt(volume.disk(), false).found, 0u);
  CheckOptions options;
  options.repair = true;
  std::map<std::string, ObjectId> names;
  {
    MemoryDisk disk;
    ASSERT_NO_FATAL_FAILURE(CopyDisk(volume.disk(), disk));
    EXPECT_EQ(CheckIt(disk, true).left(), 0u);
    names = NamesOn(disk);
  }
  bool whole = false;
  uint64_t cuts = 0;
  constexpr uint64_t kStride = runtime::testing::kSanitized ? 3 : 1;
  for (uint64_t calls = 0; !whole && !HasFailure(); calls += kStride, ++cuts) {
    SCOPED_TRACE(absl::StrCat("cut after ", calls, " calls"));
    PowerCutDisk disk;
    ASSERT_NO_FATAL_FAILURE(CopyDisk(volume.disk(), disk));
    disk.CutPowerAfter(calls);
    whole = CheckVolumeOn(disk, options).ok();
    disk.PowerOn(calls);
    const CheckReport repaired = CheckIt(disk, true);
    EXPECT_EQ(repaired.left(), 0u) << Lines(repaired);
    const CheckReport again = CheckIt(disk, false);
    EXPECT_EQ(again.found, 0u) << Lines(repaired) << "then\n" << Lines(again);
    ExpectFiles(disk, files);
    EXPECT_EQ(NamesOn(disk), names) << Lines(repaired);
  }
  std::cout << cuts << " cuts\n";
  EXPECT_GT(cuts, 10u);
}

TEST(CheckerTest, AStoreThatCannotBeOpenedIsAFault) {
  Volumes volume(1);
  const std::string rot(600, '#');
  const std::vector<std::string> names = volume.disk().List("").value();
  for (const std::string& name : names) {
    const auto file = volume.disk().Open(name);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(0, rot).ok());
  }
  const CheckReport found = CheckIt(volume.disk(), true);
  EXPECT_EQ(KindsOf(found), (Kinds{{FaultKind::kSuperblock, 0}})) << Lines(found);
  EXPECT_EQ(found.left(), 1u);
}

TEST(CheckerTest, WhoBreaksItOffIsObeyed) {
  Volumes volume(1);
  CheckOptions options;
  options.goes_on = [] { return false; };
  EXPECT_EQ(CheckVolumeOn(volume.disk(), options).status().code(), absl::StatusCode::kCancelled);
}

// -- while clients work ---------------------------------------------------------------------------

// As a server does.
void ServeChecks(FileSystemWorld& world) {
  world.check = [](ObjectTable& table, const CheckRequest& request) {
    CheckOptions options;
    options.repair = request.repair;
    options.data = request.data;
    return CheckOnline(table, options);
  };
  world.Restart();
}

TEST(CheckerTest, NoChangeUnderWayIsTakenForAFault) {
  MemoryDisk disk;
  FileSystemWorld world(3, &disk);
  ServeChecks(world);
  const auto a = world.Client(1);
  const auto from = a->Make(kWhoever, a->root(), "from", S_IFDIR | 0755, 0, "");
  const auto to = a->Make(kWhoever, a->root(), "to", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(from.ok() && to.ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(a->Make(kWhoever, from->id, absl::StrCat("f", i), S_IFREG | 0644, 0, "").ok());
  }
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> changes{0};
  std::thread worker([&] {
    for (uint64_t i = 0; !stop; ++i) {
      const std::string name = absl::StrCat("f", i % 50);
      const auto one = i / 50 % 2 == 0 ? from->id : to->id;
      const auto other = i / 50 % 2 == 0 ? to->id : from->id;
      EXPECT_TRUE(a->Rename(kWhoever, one, name, other, name, RenameRule::kReplace).ok());
      const std::string made = absl::StrCat("d", i % 7);
      if (a->Make(kWhoever, other, made, S_IFDIR | 0755, 0, "").ok()) {
        a->Link(kWhoever, a->Lookup(kWhoever, other, name)->id, other, "l").IgnoreError();
        a->Unlink(kWhoever, other, "l").IgnoreError();
        EXPECT_TRUE(a->RemoveDirectory(kWhoever, other, made).ok());
      }
      ++changes;
    }
  });
  uint64_t checks = 0;
  while (changes < 300) {
    const auto checked = world.volume()->Check(CheckRequest{.repair = true});
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(checked->report.found, 0u) << Lines(checked->report);
    ++checks;
    if (HasFailure()) break;
  }
  stop = true;
  worker.join();
  std::cout << checks << " checks beside " << changes << " rounds of changes\n";
  EXPECT_GT(checks, 0u);
}

TEST(CheckerTest, WhileClientsWorkCountsAndNamesAreRepairedByTransactions) {
  Volumes volume(4);
  const ObjectId file = volume.Any(volume.FilesWithBytes());
  const std::vector<ObjectId> files = volume.FilesWithBytes();
  const ObjectId gone = files.front() == file ? files.back() : files.front();
  {
    Opened opened(volume.disk());
    opened.ChangeInode(file, [](Inode* inode) { inode->links += 5; });
    EXPECT_TRUE(opened.store().Remove(gone).ok());
  }
  {
    FileSystemWorld world(2, &volume.disk());
    ServeChecks(world);
    const auto checked = world.volume()->Check(CheckRequest{.repair = true});
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(checked->report.found, 1 + volume.names().at(gone).size()) << Lines(checked->report);
    ASSERT_EQ(checked->repairs.size(), checked->report.found);
    const auto info = world.volume()->Join(std::string("fsck"), runtime::Ref<ClientEnd>());
    ASSERT_TRUE(info.ok()) << info.status();
    for (const auto& repair : checked->repairs) {
      const auto outcome = world.volume()->Commit(info->writer, repair.transaction);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->state, CommitState::kCommitted);
    }
    EXPECT_TRUE(world.volume()->Leave(info->writer).ok());
  }
  const CheckReport again = CheckIt(volume.disk(), false);
  EXPECT_EQ(again.found, 0u) << Lines(again);
}

// What a server has in memory it need not lose at its next start.
TEST(CheckerTest, WhileClientsWorkTheStoreIsWrittenAnewFromMemory) {
  Volumes volume(5);
  {
    FileSystemWorld world(2, &volume.disk());
    ServeChecks(world);
    const auto at = world.Client(1);
    const auto made = at->Make(kWhoever, at->root(), "made", S_IFREG | 0644, 0, "");
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(world.store().FlushAll().ok());
    const std::string rot(600, '#');
    const std::vector<std::string> names = volume.disk().List("").value();
    for (const std::string& name : names) {
      ASSERT_TRUE((*volume.disk().Open(name))->Write(0, rot).ok());
    }
    // Of an object that is in memory.
    const auto table = volume.disk().Open(TablePath(volume.root()));
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_TRUE(world.store().GetAttributes(volume.root()).ok());
    ASSERT_TRUE((*table)->Write(OffsetOfPage(0, 0) + 10, rot).ok());
    const Kinds all = {
        {FaultKind::kSuperblock, 0}, {FaultKind::kTable, volume.root()}, {FaultKind::kJournal, 0}};
    for (const bool repair : {false, true}) {
      const auto checked = world.volume()->Check(CheckRequest{.repair = repair});
      ASSERT_TRUE(checked.ok()) << checked.status();
      EXPECT_EQ(KindsOf(checked->report), all) << Lines(checked->report);
      EXPECT_EQ(checked->report.left(), repair ? 0u : 3u) << Lines(checked->report);
    }
    const auto again = world.volume()->Check(CheckRequest());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->report.found, 0u) << Lines(again->report);
  }
  const CheckReport after = CheckIt(volume.disk(), false);
  EXPECT_EQ(after.found, 0u) << Lines(after);
  ExpectFiles(volume.disk(), volume.bytes());
}

}  // namespace
}  // namespace abacus::objfs
