// Checks of stores that are shards: made by hand, so that there is what clients leave, what they
// cannot leave, and what a crash does.

#include <sys/stat.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "objfs/check/checker.h"
#include "objfs/check/directory_scan.h"
#include "objfs/check/shards_scan.h"
#include "objfs/directory/block_format.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_records.h"

namespace abacus::objfs {
namespace {

constexpr uint32_t kShardCount = 3;
const Caller kAnybody;
constexpr char kDamagedInode[] = "\1cut off";

// An object of another shard.
constexpr ObjectId Elsewhere(uint32_t shard, uint64_t number) {
  return FirstIdOf(shard, 1) + 1000 + number;
}

std::string FaultLines(const CheckReport& report) {
  std::string lines;
  for (const Fault& fault : report.faults) absl::StrAppend(&lines, fault.Line(), "\n");
  return lines;
}

using FoundFaults = std::multiset<std::pair<FaultKind, ObjectId>>;
FoundFaults FoundIn(const CheckReport& report) {
  FoundFaults found;
  for (const Fault& fault : report.faults) found.emplace(fault.kind, fault.object);
  return found;
}

CheckReport CheckShardOn(Disk& disk, bool repair) {
  CheckOptions options;
  options.repair = repair;
  options.data = true;
  auto report = CheckVolumeOn(disk, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : CheckReport();
}

// All that calls tell of the objects on a disk.
std::map<ObjectId, std::string> ObjectsOn(Disk& disk) {
  std::map<ObjectId, std::string> objects;
  auto store = LocalObjectStore::Open(disk, {});
  EXPECT_TRUE(store.ok()) << store.status();
  if (!store.ok()) return objects;
  const std::vector<ObjectId> ids = (*store)->List(0, 10'000).value();
  for (const ObjectId id : ids) {
    const ObjectAttributes attributes = (*store)->GetAttributes(id).value();
    std::string& object = objects[id];
    object = absl::StrCat(attributes.version, " ", attributes.size_bytes, " ", attributes.blob);
    for (uint64_t at = 0;;) {
      const auto data = (*store)->NextData(id, at);
      if (!data.ok()) break;
      std::string block(ObjectStore::kBlockBytes, '\0');
      const auto read = (*store)->Read(id, *data, std::span(block.data(), block.size()));
      absl::StrAppend(&object, " ", *data, " ", read.ok() ? block.substr(0, *read) : "damaged");
      at = *data + ObjectStore::kBlockBytes;
    }
  }
  return objects;
}

// A shard. Its root and its records are there; what else is in it stands in `inodes` and `names`,
// and comes to its disk with Write().
class HandMadeShard {
 public:
  explicit HandMadeShard(uint32_t shard) : shard_(shard) {
    Open();
    Inode directory;
    directory.mode = S_IFDIR | 0755;
    root_ = Create(directory);
    inodes[root_] = directory;
    inodes[root_].parent = root_;
    Inode none;
    none.mode = ShardRecords::kMode;
    none.links = 1;
    records_ = Create(none);
    inodes[records_] = none;
    inodes[root_].xattrs[kShardsXattr] =
        ShardState{.count = kShardCount, .records = records_, .volume = 4711}.Format();
  }

  MemoryDisk& disk() { return disk_; }
  uint32_t shard() const { return shard_; }
  ObjectId root() const { return root_; }
  ObjectId records() const { return records_; }
  LocalObjectStore& store() { return *store_; }

  ObjectId AddFile(uint32_t links) {
    Inode file;
    file.mode = S_IFREG | 0644;
    file.links = links;
    const ObjectId id = Create(file);
    inodes[id] = file;
    return id;
  }
  // In a directory of this shard under that name, or, without a name, in one that another has.
  ObjectId AddDirectory(ObjectId parent, const std::string& name) {
    Inode directory;
    directory.mode = S_IFDIR | 0755;
    directory.parent = parent;
    const ObjectId id = Create(directory);
    inodes[id] = directory;
    if (!name.empty()) Name(parent, name, id, S_IFDIR);
    return id;
  }
  void Name(ObjectId directory, const std::string& name, ObjectId id, uint32_t type = S_IFREG) {
    names[directory].push_back({name, Entry{id, type}});
  }

  // Takes a slot for a record. `ids`: of what a prepared one changes; none: it is a decided one.
  ShardRecords::Slot AddRecord(const std::vector<ObjectId>& ids, uint32_t other) {
    ShardRecord record;
    record.group = Elsewhere(other, 99);
    record.coordinator = other;
    for (const ObjectId id : ids) record.transaction.parts.push_back({.id = id});
    if (ids.empty()) {
      record.kind = ShardRecord::Kind::kDecided;
      record.shards = {other};
    }
    const auto records = ShardRecords::Open(store_, records_);
    EXPECT_TRUE(records.ok()) << records.status();
    ShardRecords::Change change;
    const auto slot = (*records)->Take(record, &change);
    EXPECT_TRUE(slot.ok()) << slot.status();
    const ObjectUpdate update = change.update();
    EXPECT_TRUE(store_->Update(std::span(&update, 1), ++version_).ok());
    return slot.value_or(0);
  }

  // What directories count is as it should be, but for what `damage` does to the inodes after that.
  void Write(const std::function<void()>& damage = nullptr) {
    for (auto& [id, inode] : inodes) {
      if (!inode.IsDirectory()) continue;
      inode.links = 2;
      inode.entries = names[id].size();
      for (const ScannedName& name : names[id]) inode.links += name.entry.type == S_IFDIR ? 1 : 0;
      const auto blocks = BuildDirectory(names[id], HashSeed{id, 1});
      EXPECT_TRUE(blocks.ok()) << blocks.status();
      for (size_t i = 0; blocks.ok() && i < blocks->size(); ++i) {
        const uint64_t at = i * kDirectoryBlockBytes;
        EXPECT_TRUE(store_->Write(id, at, (*blocks)[i], ++version_).ok());
      }
    }
    if (damage) damage();
    for (const auto& [id, inode] : inodes) {
      EXPECT_TRUE(store_->SetAttributes(id, inode.Encode(), ++version_).ok());
    }
    Close();
  }
  void Open() {
    auto opened = LocalObjectStore::Open(disk_, {.ids_begin = FirstIdOf(shard_, 1)});
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  void Close() {
    EXPECT_TRUE(store_->FlushAll().ok());
    EXPECT_TRUE(store_->Checkpoint().ok());
    store_.reset();
  }
  Inode InodeNow(ObjectId id) {
    Open();
    const auto attributes = store_->GetAttributes(id);
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    const Inode inode = Inode::Decode(attributes->blob).value();
    Close();
    return inode;
  }

  std::map<ObjectId, Inode> inodes;
  std::map<ObjectId, std::vector<ScannedName>> names;

 private:
  ObjectId Create(const Inode& inode) {
    const auto id = store_->Create(inode.Encode(), ++version_);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }

  const uint32_t shard_;
  MemoryDisk disk_;
  std::shared_ptr<LocalObjectStore> store_;
  VersionNumber version_ = 0;
  ObjectId root_ = 0, records_ = 0;
};

// What clients leave in a shard: names that lead out of it, and objects that are named elsewhere.
struct Peopled {
  explicit Peopled(HandMadeShard& made) {
    const uint32_t other = (made.shard() + 1) % kShardCount;
    foreign_directory = Elsewhere(other, 1);
    // Of the first shard the root has names, of the others none.
    home = made.shard() == 0 ? made.AddDirectory(made.root(), "home")
                             : made.AddDirectory(foreign_directory, "");
    below = made.AddDirectory(home, "below");
    named_elsewhere = made.AddDirectory(foreign_directory, "");
    file = made.AddFile(1);
    made.Name(below, "file", file);
    shared = made.AddFile(3);  // a name of three is here
    made.Name(home, "shared", shared);
    gone_away = made.AddFile(1);  // its only name is elsewhere
    foreign_file = Elsewhere(other, 2);
    made.Name(home, "foreign", foreign_file);
    made.Name(home, "foreign folder", Elsewhere(other, 3), S_IFDIR);
    made.Name(named_elsewhere, "again", foreign_file);
  }
  ObjectId foreign_directory = 0, foreign_file = 0;
  ObjectId home = 0, below = 0, named_elsewhere = 0, file = 0, shared = 0, gone_away = 0;
};

TEST(ShardCheckTest, WhatLeadsToOtherShardsIsNoFaultAndARepairChangesNothing) {
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    SCOPED_TRACE(absl::StrCat("shard ", shard));
    HandMadeShard made(shard);
    const Peopled in(made);
    made.Write();
    for (const bool repair : {false, true}) {
      const auto before = ObjectsOn(made.disk());
      const CheckReport report = CheckShardOn(made.disk(), repair);
      EXPECT_EQ(report.found, 0u) << FaultLines(report);
      EXPECT_EQ(report.elsewhere, 3u);
      EXPECT_EQ(report.in_doubt, 0u);
      EXPECT_EQ(report.unnamed, 0u);
      EXPECT_EQ(report.directories, 4u);
      EXPECT_EQ(report.files, 3u);
      EXPECT_EQ(report.others, 0u);
      EXPECT_EQ(ObjectsOn(made.disk()), before);
    }
  }
}

TEST(ShardCheckTest, WhatIsInDoubtIsNotedAndItsObjectsAreLeftAsTheyAre) {
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    SCOPED_TRACE(absl::StrCat("shard ", shard));
    HandMadeShard made(shard);
    const Peopled in(made);
    const uint32_t other = (shard + 1) % kShardCount;
    made.AddRecord({in.below, in.file}, other);
    made.AddRecord({}, other);  // what it has decided itself is no doubt
    made.Write([&] {
      // As if half of it had come; nobody can say here what is right.
      made.inodes[in.below].entries += 3;
      made.inodes[in.below].links += 2;
      made.inodes[in.below].parent = made.root() + 500;
      made.inodes[in.file].links = 0;
    });
    for (const bool repair : {false, true}) {
      const auto before = ObjectsOn(made.disk());
      const CheckReport report = CheckShardOn(made.disk(), repair);
      EXPECT_EQ(report.found, 0u) << FaultLines(report);
      EXPECT_EQ(report.in_doubt, 1u);
      EXPECT_EQ(ObjectsOn(made.disk()), before);
    }
  }
}

// A directory in doubt whose blocks are damaged: the transaction rests on these, and what is right
// of the rest on which names there are.
TEST(ShardCheckTest, NothingIsRepairedBesideDamageOfWhatIsInDoubt) {
  HandMadeShard made(0);
  const Peopled in(made);
  made.AddRecord({in.below}, 1);
  made.Write([&] {
    made.inodes[in.home].entries += 3;
    EXPECT_TRUE(made.store().Write(in.below, 10, "###", 1'000'000).ok());
  });
  const auto before = ObjectsOn(made.disk());
  const CheckReport report = CheckShardOn(made.disk(), true);
  const FoundFaults expected = {{FaultKind::kBlocks, in.below}, {FaultKind::kEntries, in.home}};
  EXPECT_EQ(FoundIn(report), expected) << FaultLines(report);
  EXPECT_EQ(report.repaired, 0u);
  EXPECT_TRUE(absl::StrContains(FaultLines(report), "in doubt")) << FaultLines(report);
  EXPECT_EQ(ObjectsOn(made.disk()), before);
}

struct ShardDamage {
  const char* name;
  std::function<void(HandMadeShard&, const Peopled&)> before;  // changes names
  std::function<void(HandMadeShard&, const Peopled&)> after;   // and inodes
  std::function<FoundFaults(const HandMadeShard&, const Peopled&)> expected;
  uint64_t left = 0;  // after a repair; in shards that are not the first, where that is other:
  uint64_t left_in_others = UINT64_MAX;
};

std::vector<ShardDamage> NameDamages() {
  using Made = HandMadeShard;
  std::vector<ShardDamage> damages;
  damages.push_back({"a name of a shard that there is not",
                     [](Made& made, const Peopled& in) {
                       made.Name(in.home, "nowhere", Elsewhere(kShardCount, 1));
                     },
                     nullptr,
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kName, in.home}};
                     }});
  damages.push_back(
      {"a name of what is not in this shard",
       [](Made& made, const Peopled& in) { made.Name(in.home, "nowhere", made.root() + 900); },
       nullptr,
       [](const Made&, const Peopled& in) {
         return FoundFaults{{FaultKind::kName, in.home}};
       }});
  damages.push_back(
      {"a name of the records",
       [](Made& made, const Peopled& in) { made.Name(in.home, "records", made.records()); },
       nullptr,
       [](const Made&, const Peopled& in) {
         return FoundFaults{{FaultKind::kName, in.home}};
       }});
  damages.push_back(
      {"a directory with two names",
       [](Made& made, const Peopled& in) { made.Name(in.home, "second", in.below, S_IFDIR); },
       nullptr,
       [](const Made&, const Peopled& in) {
         return FoundFaults{{FaultKind::kName, in.home}};
       }});
  return damages;
}

std::vector<ShardDamage> CountDamages() {
  using Made = HandMadeShard;
  std::vector<ShardDamage> damages;
  damages.push_back({"fewer links than names of this shard", nullptr,
                     [](Made& made, const Peopled& in) { made.inodes[in.shared].links = 0; },
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kLinks, in.shared}};
                     }});
  damages.push_back({"a directory of another shard that is not counted", nullptr,
                     [](Made& made, const Peopled& in) { --made.inodes[in.home].links; },
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kLinks, in.home}};
                     }});
  damages.push_back({"counts of a directory that others name", nullptr,
                     [](Made& made, const Peopled& in) {
                       made.inodes[in.named_elsewhere].links += 2;
                       made.inodes[in.named_elsewhere].entries = 7;
                     },
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kLinks, in.named_elsewhere},
                                          {FaultKind::kEntries, in.named_elsewhere}};
                     }});
  damages.push_back({"a directory without a name, of a parent of this shard",
                     [](Made& made, const Peopled& in) {
                       std::erase_if(made.names[in.home],
                                     [](const ScannedName& name) { return name.name == "below"; });
                     },
                     nullptr,
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kUnreachable, in.below}};
                     },
                     0, 1});
  return damages;
}

std::vector<ShardDamage> ParentDamages() {
  using Made = HandMadeShard;
  std::vector<ShardDamage> damages;
  damages.push_back(
      {"another parent of this shard", nullptr,
       [](Made& made, const Peopled& in) { made.inodes[in.below].parent = in.named_elsewhere; },
       [](const Made&, const Peopled& in) {
         return FoundFaults{{FaultKind::kParent, in.below}};
       }});
  damages.push_back(
      {"a name here and a parent elsewhere", nullptr,
       [](Made& made, const Peopled& in) { made.inodes[in.below].parent = in.foreign_directory; },
       [](const Made&, const Peopled& in) {
         return FoundFaults{{FaultKind::kParent, in.below}};
       },
       1});
  damages.push_back({"a parent of a shard that there is not", nullptr,
                     [](Made& made, const Peopled& in) {
                       made.inodes[in.named_elsewhere].parent = Elsewhere(kShardCount, 1);
                     },
                     [](const Made&, const Peopled& in) {
                       return FoundFaults{{FaultKind::kParent, in.named_elsewhere}};
                     },
                     1});
  return damages;
}

void ExpectToldAndRepaired(const ShardDamage& damage, uint32_t shard) {
  SCOPED_TRACE(absl::StrCat(damage.name, ", shard ", shard));
  HandMadeShard made(shard);
  const Peopled in(made);
  if (damage.before) damage.before(made, in);
  made.Write([&] {
    if (damage.after) damage.after(made, in);
  });
  const auto before = ObjectsOn(made.disk());
  const CheckReport found = CheckShardOn(made.disk(), false);
  EXPECT_EQ(FoundIn(found), damage.expected(made, in)) << FaultLines(found);
  EXPECT_EQ(ObjectsOn(made.disk()), before);
  const bool is_other = shard > 0 && damage.left_in_others != UINT64_MAX;
  const uint64_t left = is_other ? damage.left_in_others : damage.left;
  const CheckReport repaired = CheckShardOn(made.disk(), true);
  EXPECT_EQ(repaired.left(), left) << FaultLines(repaired);
  const CheckReport again = CheckShardOn(made.disk(), false);
  EXPECT_EQ(again.found, left) << FaultLines(repaired) << "then\n" << FaultLines(again);
  // What leads to other shards, or is named there, is as it was.
  EXPECT_EQ(again.elsewhere, 3u);
  EXPECT_EQ(made.InodeNow(in.gone_away).links, 1u);
  EXPECT_GE(made.InodeNow(in.shared).links, 1u);
}

TEST(ShardCheckTest, EachDamageThatAShardCanTellIsTold) {
  for (const auto& damages : {NameDamages(), CountDamages(), ParentDamages()}) {
    for (const ShardDamage& damage : damages) {
      for (uint32_t shard = 0; shard < kShardCount; ++shard) ExpectToldAndRepaired(damage, shard);
    }
  }
}

TEST(ShardCheckTest, TheRootOfAShardThatIsNotTheFirstHasNoNames) {
  HandMadeShard made(1);
  const Peopled in(made);
  const ObjectId hidden = made.AddFile(1);
  made.Name(made.root(), "hidden", hidden);
  made.Write();
  const auto before = ObjectsOn(made.disk());
  const CheckReport report = CheckShardOn(made.disk(), true);
  EXPECT_EQ(FoundIn(report), (FoundFaults{{FaultKind::kName, made.root()}})) << FaultLines(report);
  EXPECT_EQ(report.left(), 1u);
  EXPECT_EQ(ObjectsOn(made.disk()), before);
}

TEST(ShardCheckTest, AnInodeThatIsNoneIsMadeAnewWhereItsNamesTellWhatItWas) {
  HandMadeShard made(0);
  const Peopled in(made);
  made.Write();
  made.Open();
  for (const ObjectId id : {in.file, in.gone_away, in.named_elsewhere}) {
    EXPECT_TRUE(made.store().SetAttributes(id, kDamagedInode, 1'000'000).ok());
  }
  made.Close();
  const CheckReport report = CheckShardOn(made.disk(), true);
  const FoundFaults expected = {{FaultKind::kInode, in.file},
                                {FaultKind::kInode, in.gone_away},
                                {FaultKind::kInode, in.named_elsewhere}};
  EXPECT_EQ(FoundIn(report), expected) << FaultLines(report);
  EXPECT_EQ(report.left(), 1u) << FaultLines(
      report);  // a link or a pipe, with one name or with three
  EXPECT_EQ(made.InodeNow(in.file).mode, S_IFREG | 0600u);
  EXPECT_EQ(made.InodeNow(in.file).links, 2u);  // others may have a name
  EXPECT_EQ(made.InodeNow(in.named_elsewhere).entries, 1u);
  EXPECT_EQ(made.InodeNow(in.named_elsewhere).parent, 0u);  // which the check of all shards tells
}

TEST(ShardCheckTest, LostAndFoundIsOneOfThisShard) {
  HandMadeShard made(0);
  const Peopled in(made);
  made.Name(made.root(), "lost+found", Elsewhere(1, 7), S_IFDIR);
  std::erase_if(made.names[in.home], [](const ScannedName& name) { return name.name == "below"; });
  made.Write();
  const CheckReport report = CheckShardOn(made.disk(), true);
  EXPECT_EQ(report.left(), 0u) << FaultLines(report);
  EXPECT_TRUE(absl::StrContains(FaultLines(report), "named /lost+found.1/#")) << FaultLines(report);
  EXPECT_EQ(CheckShardOn(made.disk(), false).found, 0u);
}

// -- records --------------------------------------------------------------------------------------

TEST(ShardCheckTest, ADamagedRecordIsToldAndItsSlotAloneIsEmptied) {
  HandMadeShard made(1);
  const Peopled in(made);
  const ShardRecords::Slot first = made.AddRecord({in.file}, 2);
  const ShardRecords::Slot second = made.AddRecord({in.below}, 2);
  ASSERT_NE(first, second);
  made.Write([&] {
    made.inodes[in.home].entries += 3;
    EXPECT_TRUE(made.store()
                    .Write(made.records(), first * ShardRecords::kSlotBytes + 9,
                           std::string(300, '#'), 1'000'000)
                    .ok());
  });
  const auto before = ObjectsOn(made.disk());
  const FoundFaults all = {{FaultKind::kRecords, made.records()}, {FaultKind::kEntries, in.home}};
  const CheckReport found = CheckShardOn(made.disk(), false);
  EXPECT_EQ(FoundIn(found), all) << FaultLines(found);
  EXPECT_EQ(found.in_doubt, 1u);
  EXPECT_TRUE(absl::StrContains(FaultLines(found), absl::StrCat("slot ", first)))
      << FaultLines(found);
  EXPECT_TRUE(absl::StrContains(FaultLines(found), "promised")) << FaultLines(found);
  EXPECT_EQ(ObjectsOn(made.disk()), before);

  const CheckReport repaired = CheckShardOn(made.disk(), true);
  EXPECT_EQ(FoundIn(repaired), all) << FaultLines(repaired);
  EXPECT_EQ(repaired.left(), 0u) << FaultLines(repaired);
  EXPECT_TRUE(absl::StrContains(FaultLines(repaired), "is lost")) << FaultLines(repaired);
  made.Open();
  const auto emptied = ShardRecords::ReadSlot(made.store(), made.records(), first);
  ASSERT_TRUE(emptied.ok()) << emptied.status();
  EXPECT_FALSE(emptied->has_value());
  const auto kept = ShardRecords::ReadSlot(made.store(), made.records(), second);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->has_value());
  EXPECT_EQ((*kept)->transaction.parts.front().id, in.below);
  made.Close();
  EXPECT_EQ(CheckShardOn(made.disk(), false).found, 0u);
}

TEST(ShardCheckTest, ARecordThatWaitsForNobodyIsOfAnotherVolume) {
  HandMadeShard made(1);
  const Peopled in(made);
  made.AddRecord({in.file}, 1);  // itself
  made.Write();
  const CheckReport repaired = CheckShardOn(made.disk(), true);
  EXPECT_EQ(FoundIn(repaired), (FoundFaults{{FaultKind::kRecords, made.records()}}))
      << FaultLines(repaired);
  EXPECT_EQ(repaired.left(), 0u);
  EXPECT_EQ(CheckShardOn(made.disk(), false).found, 0u);
}

TEST(ShardCheckTest, TheObjectOfTheRecordsIsMadeWhatItWas) {
  for (const std::string what : {"links", "inode", "missing"}) {
    SCOPED_TRACE(what);
    HandMadeShard made(0);
    const Peopled in(made);
    const ShardRecords::Slot slot = made.AddRecord({in.file}, 2);
    made.Write([&] {
      if (what == "links") made.inodes[made.records()].links = 0;
    });
    made.Open();
    if (what == "inode") {
      EXPECT_TRUE(made.store().SetAttributes(made.records(), kDamagedInode, 1'000'000).ok());
    }
    if (what == "missing") {
      EXPECT_TRUE(made.store().Remove(made.records()).ok());
    }
    made.Close();
    const CheckReport repaired = CheckShardOn(made.disk(), true);
    EXPECT_EQ(FoundIn(repaired), (FoundFaults{{FaultKind::kRecords, made.records()}}))
        << FaultLines(repaired);
    EXPECT_EQ(repaired.left(), 0u);
    EXPECT_EQ(CheckShardOn(made.disk(), false).found, 0u);
    const Inode inode = made.InodeNow(made.records());
    EXPECT_EQ(inode.mode, ShardRecords::kMode);
    EXPECT_EQ(inode.links, 1u);
    made.Open();
    const auto record = ShardRecords::ReadSlot(made.store(), made.records(), slot);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->has_value(), what != "missing");
    made.Close();
  }
}

// Without what the root says nobody knows which names lead to other shards, and how many there are.
TEST(ShardCheckTest, NothingIsRepairedWhereTheRootCannotSayWhatItIs) {
  const std::vector<std::string> texts = {"",      "3",      "3 2",   "3 x 9",
                                          "3 2 x", "17 2 9", "3 1 9", "1000 5 9"};
  for (uint32_t shard = 0; shard < 2; ++shard) {
    for (size_t i = 0; i <= texts.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("shard ", shard, ", text ", i));
      HandMadeShard made(shard);
      const Peopled in(made);
      made.Write([&] {
        made.inodes[in.home].entries += 3;
        if (i < texts.size()) made.inodes[made.root()].xattrs[kShardsXattr] = texts[i];
      });
      made.Open();
      if (i == texts.size()) {
        EXPECT_TRUE(made.store().SetAttributes(made.root(), kDamagedInode, 1'000'000).ok());
      }
      made.Close();
      const auto before = ObjectsOn(made.disk());
      const CheckReport report = CheckShardOn(made.disk(), true);
      EXPECT_TRUE(FoundIn(report).contains({FaultKind::kInode, made.root()})) << FaultLines(report);
      EXPECT_EQ(report.repaired, 0u) << FaultLines(report);
      EXPECT_TRUE(absl::StrContains(FaultLines(report), "from a copy")) << FaultLines(report);
      EXPECT_FALSE(FoundIn(report).contains({FaultKind::kName, in.home})) << FaultLines(report);
      EXPECT_EQ(ObjectsOn(made.disk()), before);
    }
  }
}

TEST(ShardCheckTest, AShardsMakingThatACrashBrokeOffIsNoFault) {
  MemoryDisk disk;
  {
    auto store = LocalObjectStore::Open(disk, {}).value();
    Inode root;
    root.mode = S_IFDIR | 0755;
    root.links = 2;
    root.parent = 1;
    ASSERT_EQ(store->Create(root.Encode(), 1).value(), 1u);
    ASSERT_TRUE(store->Create(Inode().Encode(), 2).ok());
    ASSERT_TRUE(store->FlushAll().ok());
  }
  const CheckReport report = CheckShardOn(disk, true);
  EXPECT_EQ(report.found, 0u) << FaultLines(report);
  EXPECT_EQ(report.unnamed, 1u);
}

// -- while clients work ---------------------------------------------------------------------------

TEST(ShardCheckTest, ALookSaysWhatTheOthersAreToBeAsked) {
  HandMadeShard made(2);
  const Peopled in(made);
  const ObjectId held = made.AddFile(1);
  made.AddRecord({held}, 1);
  made.Write();
  made.Open();
  ObjectTable table(std::shared_ptr<ObjectStore>(&made.store(), [](ObjectStore*) {}),
                    [] { return absl::GetCurrentTimeNanos(); });
  const auto checked = CheckOnline(table, {});
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->report.found, 0u) << FaultLines(checked->report);
  const ShardLook& look = checked->look;
  EXPECT_EQ(look.shard, 2u);
  EXPECT_EQ(look.count, kShardCount);
  EXPECT_EQ(look.root, made.root());
  EXPECT_EQ(look.records, made.records());
  EXPECT_FALSE(look.incomplete);
  ASSERT_EQ(look.foreign.size(), 2u);
  EXPECT_EQ(look.foreign[0].id, in.foreign_file);
  EXPECT_EQ(look.foreign[0].names, 2u);
  EXPECT_EQ(look.foreign[0].types, 1u << (S_IFREG >> 12));
  EXPECT_EQ(look.foreign[1].directory, in.home);
  EXPECT_EQ(look.foreign[1].types, 1u << (S_IFDIR >> 12));
  std::map<ObjectId, UnexplainedInode> unexplained;
  for (const UnexplainedInode& inode : look.unexplained) unexplained[inode.id] = inode;
  ASSERT_EQ(unexplained.size(), 5u);
  EXPECT_EQ(unexplained[in.home].parent, in.foreign_directory);
  EXPECT_EQ(unexplained[in.named_elsewhere].names, 0u);
  EXPECT_EQ(unexplained[in.shared].links, 3u);
  EXPECT_EQ(unexplained[in.shared].names, 1u);
  EXPECT_EQ(unexplained[in.gone_away].names, 0u);
  EXPECT_EQ(unexplained[held].type, 0u);
  ASSERT_EQ(look.in_doubt.size(), 1u);
  EXPECT_EQ(look.in_doubt[0].coordinator, 1u);

  CheckOptions options;
  options.repair = true;
  options.gone = {in.foreign_file};
  const auto again = CheckOnline(table, options);
  ASSERT_TRUE(again.ok()) << again.status();
  const FoundFaults expected = {{FaultKind::kName, in.home},
                                {FaultKind::kName, in.named_elsewhere}};
  EXPECT_EQ(FoundIn(again->report), expected) << FaultLines(again->report);
  EXPECT_EQ(again->repairs.size(), 2u);
  EXPECT_EQ(again->look.foreign.size(), 1u);
}

// A volume of several shards, with names from each into each, as clients made them.
class ShardedVolume {
 public:
  ShardedVolume() {
    Begin();
    const auto at = world_->Client(kShardCount);
    for (uint32_t shard = 0; shard < kShardCount; ++shard) {
      std::string name = "in";
      while (ShardForName(at->root(), name, kShardCount) != shard) name += "n";
      folders_.push_back(MakeIn(*at, at->root(), name, S_IFDIR | 0755));
      EXPECT_EQ(ShardOf(folders_.back()), shard);
    }
    for (uint32_t shard = 0; shard < kShardCount; ++shard) {
      const ObjectId own = folders_[shard], next = folders_[(shard + 1) % kShardCount];
      files_.push_back(MakeIn(*at, own, "file", S_IFREG | 0644));
      EXPECT_TRUE(at->Link(kAnybody, files_.back(), next, absl::StrCat("of ", shard)).ok());
      moved_.push_back(MakeIn(*at, own, "moved", S_IFDIR | 0755));
      inside_.push_back(MakeIn(*at, moved_.back(), "inside", S_IFREG | 0644));
      const absl::Status moved = at->Rename(kAnybody, own, "moved", next,
                                            absl::StrCat("from ", shard), RenameRule::kReplace);
      EXPECT_TRUE(moved.ok()) << moved;
    }
  }

  ObjectId folder(uint32_t shard) const { return folders_[shard]; }
  ObjectId file(uint32_t shard) const { return files_[shard]; }   // has a name in the next one too
  ObjectId moved(uint32_t shard) const { return moved_[shard]; }  // has its name in the next one
  ObjectId inside(uint32_t shard) const { return inside_[shard]; }  // of that
  MemoryDisk& disk(uint32_t shard) { return disks_[shard]; }
  testing::FileSystemWorld& world() { return *world_; }

  void Begin() {
    testing::ShardsOptions options;
    options.count = kShardCount;
    for (MemoryDisk& disk : disks_) options.disks.push_back(&disk);
    world_ = std::make_unique<testing::FileSystemWorld>(kShardCount + 1, options);
    world_->check = [](ObjectTable& table, const CheckRequest& request) {
      CheckOptions check;
      check.repair = request.repair;
      check.gone = request.gone;
      return CheckOnline(table, check);
    };
    world_->Restart();
  }
  void End() { world_.reset(); }
  void ChangeInode(uint32_t shard, ObjectId id, const std::function<void(Inode*)>& change) {
    auto store = LocalObjectStore::Open(disks_[shard], {}).value();
    const ObjectAttributes attributes = store->GetAttributes(id).value();
    Inode inode = Inode::Decode(attributes.blob).value();
    change(&inode);
    EXPECT_TRUE(store->SetAttributes(id, inode.Encode(), attributes.version + 1).ok());
    EXPECT_TRUE(store->FlushAll().ok());
  }
  void Remove(uint32_t shard, ObjectId id) {
    auto store = LocalObjectStore::Open(disks_[shard], {}).value();
    EXPECT_TRUE(store->Remove(id).ok());
    EXPECT_TRUE(store->FlushAll().ok());
  }

 private:
  static ObjectId MakeIn(FileSystem& at, ObjectId directory, const std::string& name,
                         uint32_t mode) {
    const auto made = at.Make(kAnybody, directory, name, mode, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->id : 0;
  }

  std::array<MemoryDisk, kShardCount> disks_;
  std::unique_ptr<testing::FileSystemWorld> world_;
  std::vector<ObjectId> folders_, files_, moved_, inside_;  // by shard
};

// As the command does.
ShardsComparison LookAtShards(ShardedVolume& volume, const CheckRequest& request,
                              std::vector<OnlineCheck>* checks) {
  checks->clear();
  std::vector<ShardLook> looks;
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    auto check = volume.world().volume(shard)->Check(request);
    EXPECT_TRUE(check.ok()) << check.status();
    if (!check.ok()) return ShardsComparison();
    looks.push_back(check->look);
    checks->push_back(*std::move(check));
  }
  const std::vector<ObjectId> ids = ToAsk(looks);
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    std::vector<ObjectId> own;
    for (const ObjectId id : ids) {
      if (ShardOf(id) == shard) own.push_back(id);
    }
    if (own.empty()) continue;
    const auto nodes = volume.world().volume(shard)->Stat(own);
    EXPECT_TRUE(TakeAsked(own, nodes, &looks[shard]).ok());
  }
  return CompareShards(looks);
}

FoundFaults FoundBy(const ShardsComparison& compared) {
  FoundFaults found;
  for (const ShardFault& one : compared.faults) found.emplace(one.fault.kind, one.fault.object);
  return found;
}
std::string LinesBy(const ShardsComparison& compared) {
  std::string lines;
  for (const ShardFault& one : compared.faults) absl::StrAppend(&lines, one.fault.Line(), "\n");
  return lines;
}

TEST(ShardCheckTest, WhatClientsMadeInSeveralShardsIsClean) {
  ShardedVolume volume;
  std::vector<OnlineCheck> checks;
  const ShardsComparison compared = LookAtShards(volume, CheckRequest(), &checks);
  EXPECT_TRUE(compared.faults.empty()) << LinesBy(compared);
  uint64_t elsewhere = 0, followed = 0;
  for (const OnlineCheck& check : checks) {
    EXPECT_EQ(check.report.found, 0u) << FaultLines(check.report);
    elsewhere += check.report.elsewhere;
  }
  for (const uint64_t names : compared.followed) followed += names;
  EXPECT_EQ(elsewhere, 2u + 2 * kShardCount);  // the root's, and what was linked and moved
  EXPECT_EQ(followed, elsewhere);
  volume.End();
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const auto before = ObjectsOn(volume.disk(shard));
    const CheckReport report = CheckShardOn(volume.disk(shard), true);
    EXPECT_EQ(report.found, 0u) << "shard " << shard << ": " << FaultLines(report);
    EXPECT_EQ(ObjectsOn(volume.disk(shard)), before);
  }
}

TEST(ShardCheckTest, WhatOnlyAllShardsTogetherTellIsToldAndRepaired) {
  ShardedVolume volume;
  volume.End();
  volume.Remove(1, volume.moved(1));  // and what is in it has no name any more
  volume.ChangeInode(1, volume.file(1), [](Inode* inode) { ++inode->links; });
  volume.ChangeInode(0, volume.moved(0), [&](Inode* inode) { inode->parent = volume.folder(2); });
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const CheckReport alone = CheckShardOn(volume.disk(shard), true);
    EXPECT_EQ(alone.found, 0u) << "shard " << shard << ": " << FaultLines(alone);
  }
  volume.Begin();
  std::vector<OnlineCheck> checks;
  const ShardsComparison first = LookAtShards(volume, CheckRequest(), &checks);
  const FoundFaults seen = {{FaultKind::kName, volume.folder(2)},
                            {FaultKind::kUnreachable, volume.inside(1)},
                            {FaultKind::kLinks, volume.file(1)},
                            {FaultKind::kParent, volume.moved(0)}};
  EXPECT_EQ(FoundBy(first), seen) << LinesBy(first);
  EXPECT_EQ(first.gone, std::vector<ObjectId>{volume.moved(1)});

  CheckRequest request;
  request.repair = true;
  request.gone = first.gone;
  const ShardsComparison still = StillSo(first, LookAtShards(volume, request, &checks));
  FoundFaults left = seen;
  left.erase({FaultKind::kName, volume.folder(2)});  // that shard tells it now, with its name
  EXPECT_EQ(FoundBy(still), left) << LinesBy(still);
  EXPECT_EQ(FoundIn(checks[2].report), (FoundFaults{{FaultKind::kName, volume.folder(2)}}))
      << FaultLines(checks[2].report);
  EXPECT_TRUE(absl::StrContains(FaultLines(checks[2].report), "'from 1'"));

  for (const ShardFault& found : still.faults) {
    if (!found.repair.has_value()) continue;
    OnlineCheck::Repair repair;
    repair.transaction.parts.push_back({.id = found.fault.object, .change = *found.repair});
    checks[ShardOf(found.fault.object)].repairs.push_back(std::move(repair));
  }
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const auto& at = volume.world().volume(shard);
    const auto info = at->Join(std::string("fsck"), runtime::Ref<ClientEnd>());
    ASSERT_TRUE(info.ok()) << info.status();
    for (const OnlineCheck::Repair& repair : checks[shard].repairs) {
      const auto outcome = at->Commit(info->writer, repair.transaction);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->state, CommitState::kCommitted);
    }
    EXPECT_TRUE(at->Leave(info->writer).ok());
  }
  const ShardsComparison after = LookAtShards(volume, CheckRequest(), &checks);
  EXPECT_EQ(FoundBy(after), (FoundFaults{{FaultKind::kUnreachable, volume.inside(1)}}))
      << LinesBy(after);
  for (const OnlineCheck& check : checks) {
    EXPECT_EQ(check.report.found, 0u) << FaultLines(check.report);
  }
}

}  // namespace
}  // namespace abacus::objfs
