// What the checks of several shards say together.

#include "objfs/check/shards_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {
namespace {

constexpr uint32_t kLooks = 3;
constexpr uint8_t kFileType = S_IFREG >> 12, kFolderType = S_IFDIR >> 12;

constexpr ObjectId IdAt(uint32_t shard, uint64_t number) {
  return (uint64_t{shard} << kIdShardShift) | number;
}

using ToldFaults = std::multiset<std::pair<FaultKind, ObjectId>>;

// The looks of three shards, each with a root (1) and records (2).
class Looks {
 public:
  Looks() : looks_(kLooks) {
    for (uint32_t shard = 0; shard < kLooks; ++shard) {
      looks_[shard].shard = shard;
      looks_[shard].count = kLooks;
      looks_[shard].root = IdAt(shard, 1);
      looks_[shard].records = IdAt(shard, 2);
    }
  }

  // So many names in a directory lead to an object of another shard.
  Looks& Names(ObjectId directory, ObjectId id, uint8_t type, uint32_t names = 1) {
    std::vector<ForeignNames>& all = looks_[ShardOf(directory)].foreign;
    all.push_back({.id = id, .directory = directory, .names = names, .types = uint32_t{1} << type});
    std::sort(all.begin(), all.end(),
              [](const ForeignNames& a, const ForeignNames& b) { return a.id < b.id; });
    return *this;
  }
  Looks& File(ObjectId id, uint32_t links, uint32_t names) {
    return Add({.id = id, .version = kVersion, .links = links, .names = names, .type = kFileType});
  }
  // `named_in` 0: no name of its shard leads to it.
  Looks& Folder(ObjectId id, ObjectId parent, ObjectId named_in = 0, uint32_t links = 2) {
    return Add({.id = id,
                .parent = parent,
                .named_in = named_in,
                .version = kVersion,
                .links = links,
                .names = named_in == 0 ? 0u : 1u,
                .type = kFolderType});
  }
  Looks& Unknown(ObjectId id) { return Add({.id = id}); }
  ShardLook& of(uint32_t shard) { return looks_[shard]; }
  std::vector<ShardLook>& all() { return looks_; }

  static constexpr VersionNumber kVersion = 77;

 private:
  Looks& Add(const UnexplainedInode& inode) {
    std::vector<UnexplainedInode>& all = looks_[ShardOf(inode.id)].unexplained;
    all.push_back(inode);
    std::sort(all.begin(), all.end(),
              [](const UnexplainedInode& a, const UnexplainedInode& b) { return a.id < b.id; });
    return *this;
  }

  std::vector<ShardLook> looks_;
};

ToldFaults FaultsOf(const ShardsComparison& compared) {
  ToldFaults told;
  for (const ShardFault& found : compared.faults) {
    told.emplace(found.fault.kind, found.fault.object);
  }
  return told;
}

constexpr ObjectId kHome = IdAt(0, 10);  // directories that have names
constexpr ObjectId kAway = IdAt(1, 10);
constexpr ObjectId kThing = IdAt(2, 20);  // what they lead to

struct ShardsCase {
  const char* name;
  Looks looks;
  ToldFaults expected;
};

std::vector<ShardsCase> Cases() {
  std::vector<ShardsCase> cases;
  cases.push_back({"nothing leads anywhere", Looks(), {}});
  cases.push_back({"a file with a name elsewhere",
                   Looks().Names(kHome, kThing, kFileType).File(kThing, 1, 0),
                   {}});
  cases.push_back({"a file with names in all shards",
                   Looks()
                       .Names(kHome, kThing, kFileType, 2)
                       .Names(kAway, kThing, kFileType)
                       .File(kThing, 4, 1),
                   {}});
  cases.push_back({"a directory with its name elsewhere",
                   Looks().Names(kHome, kThing, kFolderType).Folder(kThing, kHome),
                   {}});
  cases.push_back({"a name of what is not there",
                   Looks().Names(kHome, kThing, kFileType),
                   {{FaultKind::kName, kHome}}});
  cases.push_back({"a name of another shard's root",
                   Looks().Names(kHome, IdAt(2, 1), kFolderType),
                   {{FaultKind::kName, kHome}}});
  cases.push_back({"a name of another shard's records",
                   Looks().Names(kHome, IdAt(2, 2), kFileType),
                   {{FaultKind::kName, kHome}}});
  cases.push_back({"a name that says another type",
                   Looks().Names(kHome, kThing, kFolderType).File(kThing, 1, 0),
                   {{FaultKind::kName, kHome}}});
  cases.push_back({"fewer names than the file counts",
                   Looks().Names(kHome, kThing, kFileType).File(kThing, 3, 1),
                   {{FaultKind::kLinks, kThing}}});
  cases.push_back({"more names than the file counts",
                   Looks().Names(kHome, kThing, kFileType, 3).File(kThing, 2, 1),
                   {{FaultKind::kLinks, kThing}}});
  cases.push_back({"a file that counts a name that nobody has",
                   Looks().File(kThing, 2, 1),
                   {{FaultKind::kLinks, kThing}}});
  cases.push_back(
      {"a file without a name", Looks().File(kThing, 1, 0), {{FaultKind::kUnreachable, kThing}}});
  cases.push_back({"a directory without a name",
                   Looks().Folder(kThing, kHome),
                   {{FaultKind::kUnreachable, kThing}}});
  cases.push_back({"a directory with two names",
                   Looks()
                       .Names(kHome, kThing, kFolderType)
                       .Names(kAway, kThing, kFolderType)
                       .Folder(kThing, kHome),
                   {{FaultKind::kName, kThing}}});
  cases.push_back(
      {"a directory with a name here and one elsewhere",
       Looks().Names(kHome, kThing, kFolderType).Folder(kThing, kHome, /*named_in=*/IdAt(2, 10)),
       {{FaultKind::kName, kThing}}});
  cases.push_back({"a directory with another parent than that of its name",
                   Looks().Names(kHome, kThing, kFolderType).Folder(kThing, kAway),
                   {{FaultKind::kParent, kThing}}});
  cases.push_back({"a directory that has its name here, and its parent elsewhere",
                   Looks().Folder(kThing, kHome, /*named_in=*/IdAt(2, 10)),
                   {{FaultKind::kParent, kThing}}});
  cases.push_back({"a directory that is about to be removed",
                   Looks().Names(kHome, kThing, kFolderType).Folder(kThing, kHome, 0, /*links=*/0),
                   {{FaultKind::kLinks, kThing}}});
  cases.push_back({"what a transaction in doubt is about",
                   Looks().Names(kHome, kThing, kFolderType, 2).Unknown(kThing),
                   {}});
  return cases;
}

TEST(ShardsScanTest, WhatNamesOfAllShardsDoNotExplainIsTold) {
  for (ShardsCase& one : Cases()) {
    const ShardsComparison compared = CompareShards(one.looks.all());
    EXPECT_EQ(FaultsOf(compared), one.expected) << one.name;
    uint64_t followed = 0;
    for (const uint64_t names : compared.followed) followed += names;
    uint64_t names = 0;
    for (const ShardLook& look : one.looks.all()) {
      for (const ForeignNames& foreign : look.foreign) names += foreign.names;
    }
    EXPECT_EQ(followed, names) << one.name;
  }
}

TEST(ShardsScanTest, CountsAndParentsAreRepairedByWhatIsWrongWithThem) {
  Looks looks;
  looks.Names(kHome, kThing, kFileType).File(kThing, 5, 1);
  looks.Names(kHome, kThing + 1, kFileType, 2).File(kThing + 1, 1, 0);
  looks.Names(kHome, kThing + 2, kFolderType).Folder(kThing + 2, kAway);
  const ShardsComparison compared = CompareShards(looks.all());
  ASSERT_EQ(compared.faults.size(), 3u);
  for (const ShardFault& found : compared.faults) {
    ASSERT_TRUE(found.repair.has_value()) << found.fault.Line();
    EXPECT_EQ(found.version, Looks::kVersion);
    EXPECT_NE(found.fault.text.find("--repair"), std::string::npos) << found.fault.text;
    if (found.fault.object == kThing) {
      EXPECT_EQ(found.repair->links, -3);
    } else if (found.fault.object == kThing + 1) {
      EXPECT_EQ(found.repair->links, 1);
    } else {
      EXPECT_EQ(found.repair->parent, kHome);
      EXPECT_EQ(found.repair->links, 0);
    }
  }
}

// Where names could not be read there may be more of them; that there are too many is sure.
TEST(ShardsScanTest, WhereNamesCouldNotBeReadNoneIsMissed) {
  Looks looks;
  looks.of(1).incomplete = true;
  looks.File(kThing, 2, 0).File(kThing + 1, 3, 1).Folder(kThing + 2, kHome);
  looks.Names(kHome, kThing + 3, kFileType, 4).File(kThing + 3, 2, 0);
  EXPECT_EQ(FaultsOf(CompareShards(looks.all())), (ToldFaults{{FaultKind::kLinks, kThing + 3}}));
}

TEST(ShardsScanTest, WhatDoesNotFitIntoALookIsNotCompared) {
  Looks looks;
  looks.Names(kHome, kThing, kFileType).Names(kHome, kThing + 5, kFileType);
  looks.File(kThing + 6, 1, 0).File(kAway + 1, 1, 0);
  looks.of(0).foreign_end = kThing + 5;
  ShardsComparison compared = CompareShards(looks.all());
  const ToldFaults expected = {{FaultKind::kName, kHome}, {FaultKind::kUnreachable, kAway + 1}};
  EXPECT_EQ(FaultsOf(compared), expected);
  EXPECT_EQ(compared.followed, (std::vector<uint64_t>{1, 0, 0}));
  looks.of(1).unexplained_end = kAway + 1;
  looks.of(2).unexplained_end = kThing;
  compared = CompareShards(looks.all());
  EXPECT_EQ(FaultsOf(compared), ToldFaults());
  EXPECT_EQ(compared.followed, (std::vector<uint64_t>{0, 0, 0}));
}

Node NodeOf(ObjectId id, uint32_t mode, uint32_t links, ObjectId parent = 0) {
  Node node;
  node.id = id;
  node.inode.mode = mode;
  node.inode.links = links;
  node.inode.parent = parent;
  node.version.value = Looks::kVersion;
  return node;
}

TEST(ShardsScanTest, WhatNoLookTellsOfIsAsked) {
  Looks looks;
  for (uint64_t i = 0; i < 5; ++i) looks.Names(kHome, kThing + i, kFileType);
  looks.Names(kAway, kThing, kFileType).Names(kHome, IdAt(2, 1), kFolderType);
  looks.File(kThing + 4, 1, 0);
  const std::vector<ObjectId> ids = ToAsk(looks.all());
  EXPECT_EQ(ids, (std::vector<ObjectId>{kThing, kThing + 1, kThing + 2, kThing + 3}));
  // One is not there; one has all of its names where it is, one is new, with this one.
  const std::vector<Node> nodes = {Node(), NodeOf(kThing + 1, S_IFREG | 0644, 1),
                                   NodeOf(kThing + 2, S_IFREG | 0644, 2),
                                   NodeOf(kThing + 3, S_IFDIR | 0755, 2, kHome)};
  ASSERT_TRUE(TakeAsked(ids, nodes, &looks.of(2)).ok());
  EXPECT_EQ(ToAsk(looks.all()), std::vector<ObjectId>{kThing});
  const ShardsComparison compared = CompareShards(looks.all());
  const ToldFaults expected = {
      {FaultKind::kName, kHome},        // of the root,
      {FaultKind::kName, kHome},        // of what is not there,
      {FaultKind::kLinks, kThing + 1},  // and names that are not counted
      {FaultKind::kLinks, kThing + 2},
      {FaultKind::kName, kHome},  // calls a directory a file, which has a name beside
      {FaultKind::kName, kThing + 3}};
  EXPECT_EQ(FaultsOf(compared), expected);
  EXPECT_EQ(compared.gone, (std::vector<ObjectId>{IdAt(2, 1), kThing}));
}

TEST(ShardsScanTest, OfWhatAShardCannotReadNothingIsSaid) {
  Looks looks;
  looks.Names(kHome, kThing, kFileType).Names(kHome, kThing + 1, kFolderType);
  const std::vector<ObjectId> ids = ToAsk(looks.all());
  ASSERT_EQ(ids.size(), 2u);
  ASSERT_TRUE(TakeAsked(ids, absl::DataLossError("damaged"), &looks.of(2)).ok());
  EXPECT_EQ(FaultsOf(CompareShards(looks.all())), ToldFaults());
  EXPECT_TRUE(absl::IsUnavailable(TakeAsked(ids, absl::UnavailableError("away"), &looks.of(2))));
}

TEST(ShardsScanTest, OnlyWhatLooksWrongTwiceCounts) {
  Looks first, second;
  // Stays as it is.
  first.File(kThing, 2, 1);
  second.File(kThing, 2, 1);
  // Is changed between the two.
  first.Names(kHome, kThing + 1, kFileType).File(kThing + 1, 1, 1);
  second.Names(kHome, kThing + 1, kFileType).File(kThing + 1, 1, 1);
  second.of(2).unexplained.back().version = Looks::kVersion + 1;
  // Is right afterwards.
  first.File(kThing + 2, 1, 0);
  // Was right before.
  second.File(kThing + 3, 1, 0);
  const ShardsComparison still = StillSo(CompareShards(first.all()), CompareShards(second.all()));
  EXPECT_EQ(FaultsOf(still), (ToldFaults{{FaultKind::kLinks, kThing}}));
  EXPECT_EQ(still.unsettled, (std::vector<uint64_t>{0, 0, 2}));
}

// The coordinator has done its part, and another shard has not heard of it yet.
TEST(ShardsScanTest, WhatATransactionInDoubtLeavesIsNoFault) {
  Looks looks;
  looks.File(kThing, 2, 1);
  looks.File(kAway + 1, 2, 1);
  looks.of(0).in_doubt = {GroupInDoubt{.group = 5, .coordinator = 2}};
  const ShardsComparison seen = CompareShards(looks.all());
  EXPECT_EQ(seen.faults.size(), 2u);
  const ShardsComparison still = StillSo(seen, seen);
  EXPECT_EQ(FaultsOf(still), (ToldFaults{{FaultKind::kLinks, kAway + 1}}));
  EXPECT_EQ(still.unsettled, (std::vector<uint64_t>{0, 0, 1}));
  // Another one by then: that one is not what made this look wrong before.
  looks.of(0).in_doubt = {GroupInDoubt{.group = 6, .coordinator = 2}};
  EXPECT_EQ(StillSo(seen, CompareShards(looks.all())).faults.size(), 2u);
}

}  // namespace
}  // namespace abacus::objfs
