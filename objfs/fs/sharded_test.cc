// Names in a volume of several shards, by the rules of one volume: what one directory has may be in
// another shard than the directory itself.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/sharded_fixture.h"
#include "objfs/store/memory_disk.h"
#include "objfs/volume/shard.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShardedWorld;
using ::testing::UnorderedElementsAre;

const Caller kStrangerThere{.uid = 7, .gid = 7, .groups = {}, .checked = false};

class ShardedTest : public testing::ShardedFixture {
 protected:
  FsError RenameError(ObjectId from, const std::string& name, ObjectId to, const std::string& as,
                      RenameRule rule = RenameRule::kReplace) {
    return ErrorOf(Rename(*b_, from, name, to, as, rule));
  }
};

// -- where what is made is ------------------------------------------------------------------------

TEST_F(ShardedTest, DirectoriesOfTheRootAreSpreadAndFoundAgain) {
  constexpr int kDirectories = 60;
  std::vector<ObjectId> ids;
  std::array<int, kShards> of_shard = {};
  for (int i = 0; i < kDirectories; ++i) {
    const std::string name = absl::StrCat("spread ", i);
    ids.push_back(MakeDirectory(*a_, Root(), name));
    ++of_shard[ShardOf(ids.back()) % kShards];
    EXPECT_EQ(ShardOf(ids.back()), ShardForName(Root(), name, kShards));
  }
  std::cout << "of " << kDirectories << " directories shards have";
  for (const int count : of_shard) {
    std::cout << " " << count;
    EXPECT_GT(count, kDirectories / 10);
  }
  std::cout << "\n";
  const auto all_are_there = [&] {
    for (FileSystem* const at : {a_.get(), b_.get()}) {
      for (int i = 0; i < kDirectories; ++i) {
        ASSERT_EQ(Named(*at, Root(), absl::StrCat("spread ", i)), ids[i]);
        ASSERT_EQ(Named(*at, ids[i], ".."), Root());
      }
      EXPECT_EQ(ListAll(*at, Root()).size(), size_t{kDirectories} + kShards);
      EXPECT_EQ(Links(*at, Root()), 2u + kDirectories + kShards);
    }
  };
  all_are_there();
  Restart();
  all_are_there();
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, Root(), "spread 7", S_IFDIR | 0755, 0, "").status()),
            FsError::kExists);
}

TEST_F(ShardedTest, WhatIsMadeInADirectoryIsInItsShard) {
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    const ObjectId directory = in_[shard];
    EXPECT_EQ(ShardOf(MakeFile(*a_, directory, "f", "bytes")), shard);
    EXPECT_EQ(ShardOf(MakeIn(*a_, directory, "s", S_IFIFO | 0644)), shard);
    const ObjectId below = MakeDirectory(*b_, directory, "d");
    EXPECT_EQ(ShardOf(below), shard);
    // Whatever its name says: nothing is spread here.
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(ShardOf(MakeDirectory(*a_, below, absl::StrCat(i))), shard);
    }
    const auto created = a_->Create(kRoot, directory, "c", S_IFREG | 0600, O_RDWR, "");
    ASSERT_TRUE(created.ok()) << created.status();
    EXPECT_EQ(ShardOf(created->node.id), shard);
    EXPECT_EQ(a_->Release(created->handle), absl::OkStatus());
    EXPECT_THAT(NamesIn(*b_, directory), UnorderedElementsAre("f", "s", "d", "c"));
    EXPECT_EQ(Links(*b_, directory), 3u);
  }
  EXPECT_EQ(ShardOf(MakeFile(*a_, Root(), "f")), 0u) << "files of the root are in its shard";
}

TEST_F(ShardedTest, ADirectorySaysWhetherItSpreads) {
  const auto set = [&](ObjectId directory, const std::string& value) {
    return ErrorOf(b_->SetXattr(kRoot, directory, kSpreadXattr, value, XattrRule::kAny));
  };
  const ObjectId top = in_[1];
  ASSERT_EQ(set(top, "yes"), FsError::kNone);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const ObjectId made = MakeDirectory(*a_, top, ShardedWorld::NameIn(shard, top, "yes"));
    EXPECT_EQ(ShardOf(made), shard);
    EXPECT_EQ(Named(*b_, made, ".."), top);
    // It holds for that directory, and not for those in it.
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(ShardOf(MakeDirectory(*a_, made, absl::StrCat(i))), shard);
    }
  }
  EXPECT_EQ(ShardOf(MakeFile(*a_, top, "f")), 1u) << "of files it says nothing";
  EXPECT_EQ(Links(*b_, top), 2u + kShards);
  ASSERT_EQ(set(top, "no"), FsError::kNone);
  ASSERT_EQ(set(Root(), "no"), FsError::kNone);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const std::string name = ShardedWorld::NameIn(shard, top, "no"),
                      of_root = ShardedWorld::NameIn(shard, Root(), "no");
    EXPECT_EQ(ShardOf(MakeDirectory(*a_, top, name)), 1u);
    EXPECT_EQ(ShardOf(MakeDirectory(*a_, Root(), of_root)), 0u);
  }
  ASSERT_TRUE(b_->RemoveXattr(kRoot, Root(), kSpreadXattr).ok());
  EXPECT_EQ(ShardOf(MakeDirectory(*a_, Root(), ShardedWorld::NameIn(2, Root(), "again"))), 2u);
  EXPECT_EQ(set(top, "perhaps"), FsError::kInvalid);
}

TEST_F(ShardedTest, NobodySeesOrSetsHowManyShardsThereAre) {
  EXPECT_THAT(*a_->ListXattrs(kRoot, Root()), IsEmpty());
  EXPECT_NE(ErrorOf(a_->SetXattr(kRoot, Root(), kShardsXattr, "1 1", XattrRule::kAny)),
            FsError::kNone);
  EXPECT_NE(ErrorOf(a_->RemoveXattr(kRoot, Root(), kShardsXattr)), FsError::kNone);
  EXPECT_FALSE(a_->GetXattr(kRoot, Root(), kShardsXattr).ok());
  Restart();
  EXPECT_EQ(Named(*b_, in_[2], ".."), Root());
}

// A server may have what another volume of that name has left.
TEST(ShardsOfTwoVolumesTest, AreNotJoinedAsOne) {
  std::array<MemoryDisk, 2> these, others;
  const auto with = [](MemoryDisk& zero, MemoryDisk& one, uint64_t volume) {
    return testing::ShardsOptions{.count = 2, .disks = {&zero, &one}, .volume = volume};
  };
  for (uint64_t volume : {1, 2}) {
    std::array<MemoryDisk, 2>& disks = volume == 1 ? these : others;
    testing::FileSystemWorld world(3, with(disks[0], disks[1], volume));
    EXPECT_NE(world.Client(2), nullptr);
  }
  testing::FileSystemWorld world(3, with(these[0], others[1], 1));
  const auto joined = world.TryClient(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(joined.status())) << joined.status();
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("'test~1' is not shard 1"));
}

TEST_F(ShardedTest, NamesWithTheMarkOfShardsAreNamesAsOthers) {
  const ObjectId file = MakeFile(*a_, Root(), "test~1"),
                 directory = MakeDirectory(*a_, in_[2], "~");
  EXPECT_EQ(Named(*b_, Root(), "test~1"), file);
  EXPECT_EQ(RenameError(Root(), "test~1", directory, "test~2"), FsError::kNone);
  EXPECT_THAT(NamesIn(*a_, directory), ElementsAre("test~2"));
}

// -- renames --------------------------------------------------------------------------------------

TEST_F(ShardedTest, AFileIsMovedFromShardToShardAndStaysWhatItIs) {
  const ObjectId file = MakeFile(*a_, in_[0], "f0", "bytes");
  // From each to each, the root too.
  const std::vector<ObjectId> way = {in_[0], in_[1], in_[2], in_[0],
                                     in_[2], in_[1], Root(), in_[1]};
  for (size_t i = 1; i < way.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string from = absl::StrCat("f", i - 1), to = absl::StrCat("f", i);
    ASSERT_EQ(RenameError(way[i - 1], from, way[i], to), FsError::kNone);
    for (FileSystem* const at : {a_.get(), b_.get()}) {
      EXPECT_EQ(Named(*at, way[i - 1], from), 0u);
      EXPECT_EQ(Named(*at, way[i], to), file);
      EXPECT_EQ(Links(*at, file), 1u);
      EXPECT_EQ(ListAll(*at, way[i - 1]).size(), way[i - 1] == Root() ? kShards : 0u);
      EXPECT_EQ(Read(*at, file), "bytes");
    }
  }
  EXPECT_EQ(ShardOf(file), 0u);
  Restart();
  EXPECT_EQ(Named(*a_, in_[1], "f7"), file);
  EXPECT_EQ(Read(*a_, file), "bytes");
}

TEST_F(ShardedTest, ADirectoryIsMovedWithAllThatIsInIt) {
  const ObjectId moved = MakeDirectory(*a_, in_[1], "d");
  const ObjectId below = MakeDirectory(*a_, moved, "below");
  const ObjectId file = MakeFile(*a_, below, "f", "deep");
  ASSERT_EQ(RenameError(in_[1], "d", in_[2], "e"), FsError::kNone);
  const auto is_below = [&](ObjectId parent, const std::string& name) {
    for (FileSystem* const at : {a_.get(), b_.get()}) {
      EXPECT_EQ(Named(*at, parent, name), moved);
      EXPECT_EQ(Named(*at, moved, ".."), parent);
      EXPECT_EQ(at->Stat(moved)->inode.parent, parent);
      EXPECT_EQ(Named(*at, below, "f"), file);
      EXPECT_EQ(Links(*at, moved), 3u);
      EXPECT_EQ(Links(*at, parent), 3u);
    }
  };
  is_below(in_[2], "e");
  EXPECT_EQ(Links(*b_, in_[1]), 2u);
  EXPECT_EQ(Entries(*b_, in_[1]), 0u);
  // Within one shard that is not the root's.
  const ObjectId other = MakeDirectory(*b_, in_[2], "other");
  ASSERT_EQ(RenameError(in_[2], "e", other, "e"), FsError::kNone);
  is_below(other, "e");
  EXPECT_EQ(Links(*b_, in_[2]), 3u);
  // What is new in it is in its shard, wherever its name is.
  EXPECT_EQ(ShardOf(MakeDirectory(*b_, moved, "new")), 1u);
  ASSERT_TRUE(b_->RemoveDirectory(kRoot, moved, "new").ok());
  // One that the root had, and back.
  const std::string top = ShardedWorld::NameIn(1, Root(), "in");
  ASSERT_EQ(RenameError(Root(), top, in_[0], "top"), FsError::kNone);
  EXPECT_EQ(Links(*a_, Root()), 2u + kShards - 1);
  EXPECT_EQ(Named(*a_, in_[1], ".."), in_[0]);
  ASSERT_EQ(RenameError(in_[0], "top", Root(), "under another name"), FsError::kNone);
  EXPECT_EQ(Links(*a_, Root()), 2u + kShards);
  EXPECT_EQ(Named(*b_, in_[1], ".."), Root());
  Restart();
  is_below(other, "e");
  EXPECT_EQ(Named(*a_, Root(), "under another name"), in_[1]);
}

// The moved one, the one that is replaced and the directory are of three shards.
TEST_F(ShardedTest, ARenameReplacesWhatAnotherShardHas) {
  for (const uint32_t of_replaced : {0u, 1u, 2u}) {
    for (const uint32_t of_moved : {0u, 1u, 2u}) {
      SCOPED_TRACE(absl::StrCat("shard ", of_moved, " over shard ", of_replaced));
      const ObjectId moved = MakeFile(*a_, in_[of_moved], "f", "new");
      const ObjectId replaced = MakeForeign(of_replaced, in_[2], "g");
      Write(*a_, replaced, "old");
      ASSERT_EQ(RenameError(in_[of_moved], "f", in_[2], "g"), FsError::kNone);
      EXPECT_EQ(Named(*a_, in_[2], "g"), moved);
      EXPECT_EQ(Named(*b_, in_[of_moved], "f"), 0u);
      EXPECT_EQ(Entries(*a_, in_[2]), 1u);
      EXPECT_TRUE(IsGoneSoon(replaced));
      EXPECT_EQ(Read(*b_, moved), "new");
      ASSERT_TRUE(a_->Unlink(kRoot, in_[2], "g").ok());
    }
  }
}

TEST_F(ShardedTest, ARenameReplacesAnEmptyDirectoryOfAnotherShard) {
  const ObjectId moved = MakeDirectory(*a_, in_[1], "d");
  MakeFile(*a_, moved, "in it");
  const ObjectId replaced = MakeForeignDirectory(0, in_[2], "e");
  const ObjectId entry = MakeFile(*a_, replaced, "not empty");
  MakeFile(*a_, in_[1], "f");
  EXPECT_EQ(RenameError(in_[1], "d", in_[2], "e"), FsError::kNotEmpty);
  EXPECT_EQ(RenameError(in_[1], "f", in_[2], "e"), FsError::kIsDirectory);
  EXPECT_EQ(RenameError(in_[1], "d", replaced, "not empty"), FsError::kNotDirectory);
  EXPECT_EQ(RenameError(in_[1], "none", in_[2], "e"), FsError::kNoEntry);
  EXPECT_EQ(Named(*a_, in_[1], "d"), moved) << "what is refused changes nothing";
  EXPECT_EQ(Named(*a_, replaced, "not empty"), entry);
  ASSERT_TRUE(b_->Unlink(kRoot, replaced, "not empty").ok());
  ASSERT_EQ(RenameError(in_[1], "d", in_[2], "e"), FsError::kNone);
  EXPECT_EQ(Named(*a_, in_[2], "e"), moved);
  EXPECT_EQ(Named(*a_, moved, ".."), in_[2]);
  EXPECT_EQ(Links(*a_, in_[2]), 3u);
  EXPECT_EQ(Links(*a_, in_[1]), 2u);
  EXPECT_EQ(Links(*a_, in_[0]), 2u);
  // Who still knows the other one makes nothing in it any more.
  EXPECT_THAT(ErrorOf(a_->Make(kRoot, replaced, "late", S_IFREG | 0644, 0, "").status()),
              AnyOf(FsError::kNoEntry, FsError::kStale));
}

TEST_F(ShardedTest, NamesOfTwoShardsAreExchanged) {
  const ObjectId f = MakeFile(*a_, in_[1], "f"), g = MakeFile(*a_, in_[2], "g");
  const ObjectId d = MakeDirectory(*a_, in_[1], "d"), e = MakeForeignDirectory(0, in_[2], "e");
  const auto exchange = [&](const std::string& one, const std::string& other) {
    return RenameError(in_[1], one, in_[2], other, RenameRule::kExchange);
  };
  EXPECT_EQ(exchange("f", "none"), FsError::kNoEntry);
  EXPECT_EQ(exchange("none", "g"), FsError::kNoEntry);
  ASSERT_EQ(exchange("f", "g"), FsError::kNone);
  EXPECT_EQ(Named(*a_, in_[1], "f"), g);
  EXPECT_EQ(Named(*a_, in_[2], "g"), f);
  ASSERT_EQ(exchange("d", "e"), FsError::kNone);
  EXPECT_EQ(Named(*a_, in_[1], "d"), e);
  EXPECT_EQ(Named(*a_, in_[2], "e"), d);
  EXPECT_EQ(Named(*a_, e, ".."), in_[1]);
  EXPECT_EQ(Named(*a_, d, ".."), in_[2]);
  for (const ObjectId directory : {in_[1], in_[2]}) {
    EXPECT_EQ(Links(*a_, directory), 3u);
    EXPECT_EQ(Entries(*a_, directory), 2u);
  }
  // A directory for a file: it has another parent.
  ASSERT_EQ(exchange("d", "g"), FsError::kNone);
  EXPECT_EQ(Named(*a_, in_[1], "d"), f);
  EXPECT_EQ(Named(*a_, in_[2], "g"), e);
  EXPECT_EQ(Named(*a_, e, ".."), in_[2]);
  EXPECT_EQ(Links(*a_, in_[1]), 2u);
  EXPECT_EQ(Links(*a_, in_[2]), 4u);
  for (const ObjectId file : {f, g}) EXPECT_EQ(Links(*a_, file), 1u);
}

TEST_F(ShardedTest, ARenameThatMayReplaceNothingReplacesNothing) {
  const ObjectId f = MakeFile(*a_, in_[1], "f");
  const ObjectId g = MakeForeign(0, in_[2], "g");
  EXPECT_EQ(RenameError(in_[1], "f", in_[2], "g", RenameRule::kNoReplace), FsError::kExists);
  EXPECT_EQ(Named(*a_, in_[1], "f"), f);
  EXPECT_EQ(Named(*a_, in_[2], "g"), g);
  EXPECT_EQ(RenameError(in_[1], "f", in_[2], "h", RenameRule::kNoReplace), FsError::kNone);
  EXPECT_EQ(Named(*a_, in_[2], "h"), f);
}

TEST_F(ShardedTest, NoDirectoryComesBelowItself) {
  const std::string name = ShardedWorld::NameIn(1, Root(), "in");
  // in_[1] / middle (of shard 2) / low (of shard 0)
  const ObjectId middle = MakeForeignDirectory(2, in_[1], "middle");
  const ObjectId low = MakeForeignDirectory(0, middle, "low");
  EXPECT_EQ(RenameError(Root(), name, low, "cycle"), FsError::kInvalid);
  EXPECT_EQ(RenameError(Root(), name, in_[1], "cycle"), FsError::kInvalid);
  EXPECT_EQ(RenameError(in_[1], "middle", low, "cycle"), FsError::kInvalid);
  EXPECT_EQ(RenameError(middle, "low", Root(), name, RenameRule::kExchange), FsError::kInvalid);
  EXPECT_EQ(RenameError(middle, "low", Root(), name), FsError::kNotEmpty);
  EXPECT_EQ(Named(*a_, low, ".."), middle);
  EXPECT_EQ(Named(*a_, middle, ".."), in_[1]);
  EXPECT_EQ(Named(*a_, in_[1], ".."), Root());
}

// -- links ----------------------------------------------------------------------------------------

TEST_F(ShardedTest, AFileHasNamesInSeveralShards) {
  const ObjectId file = MakeFile(*a_, in_[1], "f", "one file");
  const auto linked = b_->Link(kRoot, file, in_[2], "g");
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(linked->id, file);
  EXPECT_EQ(linked->inode.links, 2u);
  ASSERT_TRUE(b_->Link(kRoot, file, Root(), "h").ok());
  EXPECT_EQ(ErrorOf(b_->Link(kRoot, file, in_[2], "g").status()), FsError::kExists);
  EXPECT_EQ(ErrorOf(b_->Link(kRoot, in_[2], in_[0], "d").status()), FsError::kNotPermitted);
  for (FileSystem* const at : {a_.get(), b_.get()}) {
    EXPECT_EQ(Links(*at, file), 3u);
    EXPECT_EQ(Named(*at, in_[2], "g"), file);
    EXPECT_EQ(Named(*at, Root(), "h"), file);
  }
  // Two names of one file: both stay.
  EXPECT_EQ(RenameError(in_[1], "f", in_[2], "g"), FsError::kNone);
  EXPECT_EQ(Links(*a_, file), 3u);
  EXPECT_EQ(Named(*a_, in_[1], "f"), file);
  const FileHandle handle = Open(*a_, file);
  uint32_t left = 3;
  for (const auto& [directory, name] :
       {std::pair(in_[1], "f"), std::pair(in_[2], "g"), std::pair(Root(), "h")}) {
    ASSERT_TRUE(b_->Unlink(kRoot, directory, name).ok()) << name;
    EXPECT_EQ(Named(*a_, directory, name), 0u);
    EXPECT_EQ(Links(*a_, file), --left);
    EXPECT_EQ(ReadOpen(*a_, handle), "one file");
  }
  EXPECT_EQ(ErrorOf(b_->Link(kRoot, file, in_[2], "again").status()), FsError::kNoEntry);
  EXPECT_EQ(a_->Write(handle, 8, runtime::Block::CopyOf("!")), absl::OkStatus());
  EXPECT_EQ(ReadOpen(*a_, handle), "one file!");
  EXPECT_EQ(a_->Release(handle), absl::OkStatus());
  EXPECT_TRUE(IsGoneSoon(file));
}

TEST_F(ShardedTest, AnOpenFileOfAnotherShardOutlivesItsName) {
  const ObjectId file = MakeForeign(1, in_[2], "f");
  Write(*a_, file, "still here");
  const FileHandle handle = Open(*a_, file);
  ASSERT_TRUE(b_->Unlink(kRoot, in_[2], "f").ok());
  EXPECT_EQ(Named(*a_, in_[2], "f"), 0u);
  EXPECT_EQ(Links(*b_, file), 0u);
  ASSERT_TRUE(world_.volume(1)->Flush(std::vector<ObjectId>{file}).ok());
  EXPECT_EQ(ReadOpen(*a_, handle), "still here");
  EXPECT_EQ(a_->Sync(handle), absl::OkStatus());
  EXPECT_EQ(a_->Release(handle), absl::OkStatus());
  EXPECT_TRUE(IsGoneSoon(file));
  const auto objects = world_.store(1).List(0, 1000);
  ASSERT_TRUE(objects.ok()) << objects.status();
  EXPECT_EQ(std::count(objects->begin(), objects->end(), file), 0);
}

// By the client that has just closed it, whose closing goes along with the removal.
TEST_F(ShardedTest, AFileThatIsClosedAndUnlinkedAcrossShardsIsGone) {
  for (int i = 0; i < 3; ++i) {
    const ObjectId file = MakeForeign(1, in_[2], "f");
    const FileHandle handle = Open(*a_, file);
    EXPECT_EQ(a_->Write(handle, 0, runtime::Block::CopyOf("x")), absl::OkStatus());
    EXPECT_EQ(a_->Release(handle), absl::OkStatus());
    ASSERT_TRUE(a_->Unlink(kRoot, in_[2], "f").ok());
    // Nobody has it open at the volume: what was to be closed with the next renewal is closed now.
    for (uint16_t writer = 1; writer < 16; ++writer) {
      EXPECT_FALSE(world_.volume(1)->Close(writer, file).ok()) << writer;
    }
    EXPECT_TRUE(IsGoneSoon(file));
  }
}

TEST_F(ShardedTest, DirectoriesOfOtherShardsGoWhenTheyAreEmptyOnly) {
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    SCOPED_TRACE(shard);
    const std::string name = ShardedWorld::NameIn(shard, Root(), "gone");
    const ObjectId d = MakeDirectory(*a_, Root(), name);
    ASSERT_EQ(ShardOf(d), shard);
    MakeFile(*b_, d, "f");
    EXPECT_EQ(ErrorOf(a_->RemoveDirectory(kRoot, Root(), name)), FsError::kNotEmpty);
    EXPECT_EQ(ErrorOf(a_->Unlink(kRoot, Root(), name)), FsError::kIsDirectory);
    ASSERT_EQ(RenameError(d, "f", Root(), "f"), FsError::kNone);
    EXPECT_EQ(ErrorOf(a_->RemoveDirectory(kRoot, Root(), "f")), FsError::kNotDirectory);
    ASSERT_TRUE(a_->RemoveDirectory(kRoot, Root(), name).ok());
    ASSERT_TRUE(a_->Unlink(kRoot, Root(), "f").ok());
    EXPECT_EQ(Named(*b_, Root(), name), 0u);
    // Who still knows the directory makes nothing in it any more.
    EXPECT_THAT(ErrorOf(b_->Make(kRoot, d, "g", S_IFREG | 0644, 0, "").status()),
                AnyOf(FsError::kNoEntry, FsError::kStale));
    EXPECT_EQ(Links(*a_, Root()), 2u + kShards);
    EXPECT_EQ(Entries(*a_, Root()), kShards);
  }
}

// -- what is seen ---------------------------------------------------------------------------------

TEST_F(ShardedTest, AListingHasTheAttributesOfWhatOtherShardsHave) {
  std::vector<ObjectId> files;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    files.push_back(MakeForeign(shard, Root(), absl::StrCat("f", shard)));
    Write(*a_, files.back(), std::string(10 + shard, 'x'));
    SetAttributes set;
    set.permissions = 0600 + shard;
    set.uid = 100 + shard;
    ASSERT_TRUE(a_->Set(kRoot, files.back(), set).ok());
  }
  for (const uint32_t at_once : {1u, 3u, 100u}) {
    SCOPED_TRACE(at_once);
    const auto listed = ListAll(*b_, Root(), at_once);
    EXPECT_EQ(listed.size(), size_t{2} * kShards);
    uint32_t found = 0;
    for (const FileSystem::Listed& one : listed) {
      const uint32_t shard = ShardOf(one.node.id);
      if (S_ISDIR(one.node.inode.mode)) {
        EXPECT_EQ(one.node.id, in_[shard]);
        EXPECT_EQ(one.node.inode.links, 2u);
        EXPECT_EQ(one.node.inode.parent, Root());
        continue;
      }
      ++found;
      EXPECT_EQ(one.name, absl::StrCat("f", shard));
      EXPECT_EQ(one.node.id, files[shard]);
      EXPECT_EQ(one.node.inode.mode, S_IFREG | (0600 + shard));
      EXPECT_EQ(one.node.inode.uid, 100 + shard);
      EXPECT_EQ(one.node.size, 10 + shard);
    }
    EXPECT_EQ(found, kShards);
  }
}

TEST_F(ShardedTest, PermissionsAreAskedOfWhateverShardHasThem) {
  const Caller& other = kStrangerThere;
  const ObjectId file = MakeForeign(2, in_[1], "f");
  MakeFile(*a_, in_[1], "own shard's");
  EXPECT_EQ(ErrorOf(b_->Unlink(other, in_[1], "f")), FsError::kAccess);
  EXPECT_EQ(ErrorOf(b_->Link(other, file, in_[1], "g").status()), FsError::kAccess);
  EXPECT_EQ(ErrorOf(b_->Access(other, file, W_OK)), FsError::kAccess);
  EXPECT_EQ(ErrorOf(b_->Make(other, Root(), "d", S_IFDIR | 0755, 0, "").status()),
            FsError::kAccess);
  EXPECT_EQ(ErrorOf(b_->RemoveDirectory(other, Root(), ShardedWorld::NameIn(2, Root(), "in"))),
            FsError::kAccess);
  for (const ObjectId directory : {in_[0], in_[1], in_[2]}) {
    ASSERT_TRUE(a_->Set(kRoot, directory, {.permissions = 01777}).ok());
  }
  // The directory is sticky, and the file another's.
  EXPECT_EQ(ErrorOf(b_->Unlink(other, in_[1], "f")), FsError::kNotPermitted);
  EXPECT_EQ(ErrorOf(b_->Rename(other, in_[1], "f", in_[2], "f", RenameRule::kReplace)),
            FsError::kNotPermitted);
  const auto made = b_->Make(other, in_[2], "mine", S_IFREG | 0600, 0, "");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(ErrorOf(b_->Rename(other, in_[2], "mine", in_[1], "f", RenameRule::kReplace)),
            FsError::kNotPermitted);
  EXPECT_EQ(ErrorOf(b_->Rename(other, in_[2], "mine", in_[1], "mine", RenameRule::kReplace)),
            FsError::kNone);
  EXPECT_EQ(ErrorOf(b_->Unlink(other, in_[1], "mine")), FsError::kNone);
  // A directory's ".." is written when it gets another parent.
  const ObjectId directory = MakeForeignDirectory(2, in_[1], "d");
  for (const ObjectId parent : {in_[0], in_[1]}) {
    ASSERT_TRUE(a_->Set(kRoot, parent, {.permissions = 0777}).ok());
  }
  EXPECT_EQ(ErrorOf(b_->Rename(other, in_[1], "d", in_[0], "d", RenameRule::kReplace)),
            FsError::kAccess);
  ASSERT_TRUE(a_->Set(kRoot, directory, {.permissions = 0700}).ok());
  EXPECT_EQ(ErrorOf(b_->Lookup(other, directory, "f").status()), FsError::kAccess);
  EXPECT_EQ(ErrorOf(b_->List(other, directory, 0, 10, true).status()), FsError::kAccess);
}

// Knowledge of what the other client changes is broken in each shard that the change is about,
// before the change returns; and as long as nobody changes anything, nobody is asked.
TEST_F(ShardedTest, AChangeIsSeenByWhoKnewTheNamesOfTheShards) {
  const ObjectId file = MakeForeign(0, in_[1], "f");
  const ObjectId directory = MakeForeignDirectory(0, in_[1], "d");
  const auto look = [&](ObjectId parent, ObjectId other) {
    ASSERT_EQ(Named(*b_, parent, "f"), file);
    ASSERT_EQ(Named(*b_, parent, "d"), directory);
    ASSERT_EQ(Named(*b_, other, "f"), 0u);
    ASSERT_EQ(Named(*b_, other, "d"), 0u);
    ASSERT_EQ(Named(*b_, directory, ".."), parent);
    ASSERT_EQ(Links(*b_, file), 1u);
    ASSERT_EQ(Links(*b_, parent), 3u);
    ASSERT_EQ(Links(*b_, other), 2u);
    ASSERT_EQ(ListAll(*b_, parent).size(), 2u);
  };
  const auto frames_sent = [&] {
    uint64_t frames = 0;
    for (const auto& peer : world_.cluster()[ShardedWorld::kTwo].transport().Traffic()) {
      frames += peer.sent_frames;
    }
    return frames;
  };
  // What was just changed, while others knew it, is promised to nobody for a second.
  ASSERT_TRUE(runtime::testing::Eventually([&] {
    const uint64_t before_look = frames_sent();
    look(in_[1], in_[2]);
    return HasFatalFailure() || frames_sent() == before_look;
  }));
  ASSERT_FALSE(HasFatalFailure());
  constexpr uint64_t kRounds = 200;
  const uint64_t before = frames_sent();
  for (uint64_t i = 0; i < kRounds; ++i) ASSERT_NO_FATAL_FAILURE(look(in_[1], in_[2]));
  const uint64_t sent = frames_sent() - before;
  std::cout << sent << " frames in " << kRounds << " rounds of some 15 looks\n";
  EXPECT_LT(sent, kRounds) << "each look that asked would be a frame or more";
  const int rounds = runtime::testing::kSanitized ? 5 : 40;
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(i);
    const ObjectId from = in_[1 + i % 2], to = in_[2 - i % 2];
    for (const char* const name : {"f", "d"}) {
      ASSERT_EQ(Rename(*a_, from, name, to, name), absl::OkStatus());
    }
    ASSERT_NO_FATAL_FAILURE(look(to, from));
    ASSERT_EQ(ListAll(*b_, from).size(), 0u);  // which is asked for, as long as it is empty
  }
  // And of the inode alone, whose name is another shard's.
  ASSERT_TRUE(a_->Set(kRoot, file, {.permissions = 0640}).ok());
  EXPECT_EQ(b_->Stat(file)->inode.mode, S_IFREG | 0640u);
  ASSERT_TRUE(a_->Link(kRoot, file, in_[0], "second").ok());
  EXPECT_EQ(Links(*b_, file), 2u);
  ASSERT_TRUE(a_->Unlink(kRoot, in_[0], "second").ok());
  EXPECT_EQ(Links(*b_, file), 1u);
}

}  // namespace
}  // namespace abacus::objfs
