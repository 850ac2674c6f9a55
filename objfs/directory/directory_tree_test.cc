#include "objfs/directory/directory_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/directory/testing/hashes.h"
#include "objfs/directory/testing/memory_blocks.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::CrowdedHash;
using testing::DeepHash;
using ::testing::ElementsAre;
using testing::Hash;
using ::testing::HasSubstr;
using testing::MemoryBlocks;
using testing::WithHash;
using Names = std::map<std::string, Entry>;

constexpr uint64_t kBytes = kDirectoryBlockBytes;

Entry File(ObjectId id) { return {id, S_IFREG}; }
EntryChange Insertion(const std::string& name, ObjectId id) {
  return {name, std::nullopt, File(id)};
}

class DirectoryTreeTest : public ::testing::Test {
 protected:
  void Apply(const std::vector<EntryChange>& changes) {
    const auto part = tree_.Plan(changes);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_TRUE(blocks_.Commit(*part));
  }
  // "name-0" to "name-(count - 1)", each as long as `bytes` says.
  std::string Name(uint64_t i, size_t bytes) {
    std::string name = absl::StrCat("name-", i);
    name.resize(std::max(bytes, name.size()), '.');
    return name;
  }
  void Fill(uint64_t count, size_t bytes) {
    for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) {
      Apply({Insertion(Name(i, bytes), i + 1)});
    }
  }
  std::optional<Entry> Lookup(DirectoryTree& tree, const std::string& name) {
    const auto found = tree.Lookup(name);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : std::nullopt;
  }
  Names ListAll(DirectoryTree& tree, uint32_t max = 1000) {
    Names names;
    uint64_t cookie = 0;
    for (;;) {
      const auto some = tree.List(cookie, max);
      EXPECT_TRUE(some.ok()) << some.status();
      if (!some.ok() || some->empty()) return names;
      for (const ListedEntry& listed : *some) {
        EXPECT_GT(listed.cookie, cookie);
        cookie = listed.cookie;
        EXPECT_TRUE(names.emplace(listed.name, listed.entry).second) << listed.name;
      }
    }
  }

  MemoryBlocks blocks_;
  DirectoryTree tree_{blocks_, WithHash(&SipHash)};
};

// A listing that goes on while names come and go.
struct Listing {
  uint64_t cookie = 0;
  std::map<std::string, Entry> always;  // there since it began
  std::set<std::string> seen;
};

// Draws changes of a directory, applies them to it and to a model, and lists it all the while.
class ModelRun {
 public:
  ModelRun(uint32_t seed, Hash hash, MemoryBlocks& blocks)
      : random_(seed), blocks_(blocks), tree_(blocks, WithHash(hash)) {
    for (int i = 0; i < 700; ++i) {
      std::string name = absl::StrCat("n", i);
      if (i % 3 != 0) name.append(random_() % (kNameBytesMax - name.size()), 'x');
      pool_.push_back(name);
    }
  }

  void Step(int step) {
    // Now growing, now shrinking.
    growing_ = step / 1500 % 2 == 0;
    switch (random_() % 8) {
      case 0:
        return Look();
      case 1:
        return List();
      case 2:
        return RefuseAWrongChange();
      default:
        return Change();
    }
  }
  void Finish() {
    for (auto& listing : listings_) {
      while (!Advance(listing)) {
      }
    }
    for (const std::string& name : pool_) LookAt(name);
  }
  size_t blocks() const { return blocks_.size(); }

 private:
  const std::string& Draw() { return pool_[random_() % pool_.size()]; }
  std::optional<Entry> Now(const std::string& name) {
    const auto found = model_.find(name);
    return found == model_.end() ? std::nullopt : std::optional<Entry>(found->second);
  }

  void Change() {
    std::map<std::string, EntryChange> changes;
    const size_t count = 1 + random_() % 4;
    for (size_t i = 0; i < count; ++i) {
      const std::string& name = Draw();
      EntryChange change{name, Now(name), std::nullopt};
      if (random_() % 4 < (growing_ ? 3u : 1u)) change.after = File(++ids_);
      changes[name] = change;
    }
    std::vector<EntryChange> all;
    for (const auto& [name, change] : changes) all.push_back(change);
    const auto part = tree_.Plan(all);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_TRUE(blocks_.Commit(*part));
    for (const EntryChange& change : all) Note(change);
  }
  void Note(const EntryChange& change) {
    if (change.after.has_value()) {
      model_[change.name] = *change.after;
    } else {
      model_.erase(change.name);
    }
    for (auto& listing : listings_) {
      const auto always = listing.always.find(change.name);
      if (always == listing.always.end()) continue;
      if (change.after.has_value()) {
        always->second = *change.after;
      } else {
        listing.always.erase(always);
        listing.seen.erase(change.name);  // it may come again, at another place
      }
    }
  }

  void RefuseAWrongChange() {
    const std::string& name = Draw();
    const std::optional<Entry> now = Now(name);
    const EntryChange change{name, now.has_value() ? std::nullopt : std::optional(File(1)),
                             File(2)};
    const auto part = tree_.Plan({change});
    EXPECT_TRUE(IsChanged(part.status())) << part.status();
  }
  void LookAt(const std::string& name) {
    const auto found = tree_.Lookup(name);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(*found, Now(name)) << name;
  }
  void Look() { LookAt(Draw()); }

  void List() {
    if (listings_.size() < 4) listings_.push_back({.always = model_});
    const size_t which = random_() % listings_.size();
    if (Advance(listings_[which])) listings_.erase(listings_.begin() + static_cast<int>(which));
  }
  // True where it came to its end.
  bool Advance(Listing& listing) {
    const auto some = tree_.List(listing.cookie, 1 + random_() % 60);
    EXPECT_TRUE(some.ok()) << some.status();
    if (!some.ok() || some->empty()) {
      for (const auto& [name, entry] : listing.always) {
        EXPECT_TRUE(listing.seen.contains(name)) << name << " was there and is not listed";
      }
      return true;
    }
    for (const ListedEntry& listed : *some) {
      EXPECT_GT(listed.cookie, listing.cookie);
      listing.cookie = listed.cookie;
      EXPECT_EQ(Now(listed.name), listed.entry);
      if (listing.always.contains(listed.name)) {
        EXPECT_TRUE(listing.seen.insert(listed.name).second) << listed.name << " is listed twice";
      }
    }
    return false;
  }

  std::mt19937 random_;
  MemoryBlocks& blocks_;
  DirectoryTree tree_;
  std::vector<std::string> pool_;
  Names model_;
  std::vector<Listing> listings_;
  bool growing_ = true;
  ObjectId ids_ = 0;
};

TEST_F(DirectoryTreeTest, IsItsModelWhateverTheHash) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(1));
  for (const Hash hash : {Hash{&SipHash}, Hash{&CrowdedHash}, Hash{&DeepHash}}) {
    MemoryBlocks blocks;
    ModelRun run(seed, hash, blocks);
    for (int step = 0; step < 6000; ++step) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", step));
      run.Step(step);
      if (HasFatalFailure()) return;
    }
    run.Finish();
    EXPECT_GT(blocks.size(), 8u) << "nothing was split";
  }
}

TEST_F(DirectoryTreeTest, AnObjectWithoutBytesIsAnEmptyDirectory) {
  EXPECT_EQ(Lookup(tree_, "a"), std::nullopt);
  EXPECT_THAT(ListAll(tree_), ElementsAre());
  const auto absent = tree_.Plan({{"a", std::nullopt, std::nullopt}});
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_TRUE(absent->writes.empty());
  EXPECT_FALSE(absent->must_be_linked);
  // Both rest on block 0, which was never written: only one of them can be the first.
  const auto a = tree_.Plan({Insertion("a", 1)});
  const auto b = tree_.Plan({Insertion("b", 2)});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->must_be_linked);
  EXPECT_TRUE(blocks_.Commit(*absent));
  EXPECT_TRUE(blocks_.Commit(*a));
  EXPECT_FALSE(blocks_.Commit(*b));
  EXPECT_FALSE(blocks_.Commit(*absent));
  EXPECT_EQ(Lookup(tree_, "a"), File(1));
  EXPECT_EQ(blocks_.size(), 1u) << "a few names take one block";
}

TEST_F(DirectoryTreeTest, AChangeRestsOnItsLeafAndWritesNothingElse) {
  Fill(2000, 100);
  const std::string name = Name(3, 100);
  for (const EntryChange& change :
       {EntryChange{"new", std::nullopt, File(7)}, EntryChange{"new", File(7), File(8)},
        EntryChange{"new", File(8), std::nullopt}, EntryChange{name, File(4), File(4)}}) {
    const auto part = tree_.Plan({change});
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ(part->reads.size(), 1u);
    EXPECT_EQ(part->reads[0].range.bytes, kBytes);
    EXPECT_EQ(part->writes.size(), change.before == change.after ? 0u : 1u);
    for (const RangeWrite& write : part->writes) {
      EXPECT_EQ(write.offset, part->reads[0].range.offset);
      EXPECT_EQ(write.bytes.size(), kBytes);
    }
    ASSERT_TRUE(blocks_.Commit(*part));
  }
}

TEST_F(DirectoryTreeTest, ASplitWritesFourBlocksHoweverLargeTheDirectory) {
  size_t splits = 0, most = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const auto part = tree_.Plan({Insertion(Name(i, 200), i + 1)});
    ASSERT_TRUE(part.ok()) << part.status();
    if (part->writes.size() > 1) ++splits;
    most = std::max(most, part->writes.size());
    EXPECT_LE(part->reads.size(), 3u);
    ASSERT_TRUE(blocks_.Commit(*part));
  }
  EXPECT_GT(splits, 400u);
  // Block 0, the leaf's table, the leaf, its other half; where a table begins, that one too. A leaf
  // that is split twice at once has one more.
  EXPECT_LE(most, 6u);
}

TEST_F(DirectoryTreeTest, ASearchReadsThreeBlocksAndOneWhereItRemembersTables) {
  Fill(50'000, 200);  // as many leaves as 500,000 short names have: tables below tables
  ASSERT_GT(blocks_.size(), 2000u);
  DirectoryTree other(blocks_, WithHash(&SipHash));
  uint64_t most = 0;
  for (const uint64_t i : {0, 1, 77, 1234, 49'999}) {
    DirectoryTree fresh(blocks_, WithHash(&SipHash));
    blocks_.reads = 0;
    EXPECT_EQ(Lookup(fresh, Name(i, 200)), File(i + 1));
    most = std::max(most, blocks_.reads);
    EXPECT_EQ(Lookup(other, Name(i, 200)), File(i + 1));
  }
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(ListAll(other, DirectoryTree::kListMax).size(), 50'000u);
  blocks_.reads = 0;
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(Lookup(other, Name(i, 200)), File(i + 1));
  EXPECT_EQ(blocks_.reads, 1000u);
}

TEST_F(DirectoryTreeTest, TablesThatAreOutOfDateDoNoHarm) {
  Fill(2000, 100);
  DirectoryTree old(blocks_, WithHash(&SipHash));
  EXPECT_EQ(ListAll(old).size(), 2000u);
  for (uint64_t i = 2000; i < 8000; ++i) Apply({Insertion(Name(i, 100), i + 1)});
  for (uint64_t i = 0; i < 8000; i += 3) {
    ASSERT_EQ(Lookup(old, Name(i, 100)), File(i + 1));
    const auto part = old.Plan({{Name(i, 100), File(i + 1), std::nullopt}});
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_TRUE(blocks_.Commit(*part)) << "nobody else changes anything now";
  }
  EXPECT_EQ(ListAll(old).size(), 8000u - 2667u);
}

TEST_F(DirectoryTreeTest, SplitsBetweenTwoReadsDoNoHarm) {
  Fill(500, 100);
  DirectoryTree slow(blocks_, WithHash(&SipHash));
  MemoryBlocks& blocks = blocks_;
  uint64_t next = 500;
  for (uint64_t i = 0; i < 500; ++i) {
    blocks_.before_read = [&] {
      blocks.before_read = nullptr;
      for (int n = 0; n < 20; ++n, ++next) Apply({Insertion(Name(next, 100), next + 1)});
    };
    ASSERT_EQ(Lookup(slow, Name(i, 100)), File(i + 1));
  }
  EXPECT_GT(next, 9000u);
}

TEST_F(DirectoryTreeTest, ADirectoryThatBeganAgainIsRead) {
  Fill(1000, 100);
  blocks_.Clear();
  EXPECT_EQ(Lookup(tree_, Name(0, 100)), std::nullopt);
  DirectoryTree::Options options;
  options.make_seed = [] { return HashSeed{3, 4}; };
  DirectoryTree other(blocks_, options);
  for (uint64_t i = 0; i < 3000; ++i) {
    const auto part = other.Plan({Insertion(Name(i, 100), i + 5)});
    ASSERT_TRUE(part.ok() && blocks_.Commit(*part));
  }
  for (uint64_t i = 0; i < 3000; ++i) ASSERT_EQ(Lookup(tree_, Name(i, 100)), File(i + 5));
}

TEST_F(DirectoryTreeTest, ChangesOfOneLeafAreOneWrite) {
  Apply({Insertion("a", 1), Insertion("b", 2), Insertion("c", 3)});
  const auto rename = tree_.Plan({{"a", File(1), std::nullopt}, Insertion("d", 1)});
  ASSERT_TRUE(rename.ok()) << rename.status();
  EXPECT_EQ(rename->writes.size(), 1u);
  ASSERT_TRUE(blocks_.Commit(*rename));
  Apply({{"b", File(2), File(3)}, {"c", File(3), File(2)}});
  EXPECT_EQ(ListAll(tree_), (Names{{"b", File(3)}, {"c", File(2)}, {"d", File(1)}}));
}

TEST_F(DirectoryTreeTest, ManyInsertionsOfOnePlanSplitAsOftenAsTheyMust) {
  std::vector<EntryChange> changes;
  Names model;
  for (uint64_t i = 0; i < 3000; ++i) {
    changes.push_back(Insertion(Name(i, 90), i + 1));
    model.emplace(Name(i, 90), File(i + 1));
  }
  Apply(changes);
  EXPECT_EQ(ListAll(tree_), model);
  std::vector<EntryChange> back;
  for (const EntryChange& change : changes) back.push_back({change.name, change.after, {}});
  Apply(back);
  EXPECT_TRUE(ListAll(tree_).empty());
}

TEST_F(DirectoryTreeTest, WhatMayNotBeIsRefused) {
  const auto invalid = [&](const std::vector<EntryChange>& changes) {
    return absl::IsInvalidArgument(tree_.Plan(changes).status());
  };
  EXPECT_TRUE(absl::IsInvalidArgument(tree_.Lookup("..").status()));
  EXPECT_TRUE(invalid({Insertion("a/b", 1)}));
  EXPECT_TRUE(invalid({Insertion(std::string(256, 'n'), 1)}));
  EXPECT_TRUE(invalid({Insertion("a", 0)}));
  EXPECT_TRUE(invalid({{"a", {}, Entry{1, 0100644}}})) << "a type has no permissions";
  EXPECT_TRUE(invalid({Insertion("a", 1), Insertion("a", 2)}));
}

TEST_F(DirectoryTreeTest, MoreNamesOfOneHashThanNumbersAreRefused) {
  const auto one = [](const HashSeed&, std::string_view) { return uint64_t{99} << 32; };
  DirectoryTree tree(blocks_, WithHash(one));
  std::set<uint64_t> cookies;
  const auto insert = [&](uint64_t i) {
    const auto part = tree.Plan({Insertion(Name(i, 255), i + 1)});
    EXPECT_TRUE(!part.ok() || blocks_.Commit(*part));
    return part.status();
  };
  for (uint64_t i = 0; i < kCollisionsMax; ++i) ASSERT_TRUE(insert(i).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(insert(16)));
  const auto listed = *tree.List(0, 100);
  ASSERT_EQ(listed.size(), kCollisionsMax);
  // The numbers of those that go are given again, and the others keep theirs.
  const auto part = tree.Plan({{listed[5].name, listed[5].entry, std::nullopt}});
  ASSERT_TRUE(part.ok() && blocks_.Commit(*part));
  EXPECT_TRUE(insert(17).ok());
  const auto again = *tree.List(0, 100);
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].cookie, listed[i].cookie);
    EXPECT_EQ(again[i].name, i == 5 ? Name(17, 255) : listed[i].name);
  }
}

TEST_F(DirectoryTreeTest, AListingIsAsLongAsAskedForAtMost) {
  Fill(300, 20);
  EXPECT_EQ(tree_.List(0, 10)->size(), 10u);
  EXPECT_EQ(ListAll(tree_, 1).size(), 300u);
  EXPECT_TRUE(tree_.List(kPositionEnd - 1, 10)->empty());
  EXPECT_TRUE(tree_.List(~uint64_t{0}, 10)->empty());
  EXPECT_GE(tree_.List(0, 1)->front().cookie, 16u);
}

TEST_F(DirectoryTreeTest, BlocksThatDoNotFitTogetherAreDataLossOfTheBlock) {
  Fill(1000, 100);
  const std::string root = blocks_.Get(0), leaf = blocks_.Get(1);
  const auto all_fail = [&](const std::string& message) {
    DirectoryTree tree(blocks_, WithHash(&SipHash));
    for (const absl::Status& status :
         {tree.List(0, 4096).status(), tree_.Plan({Insertion("zz", 1)}).status()}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    }
  };
  const auto slots_to = [&](uint32_t number) {
    auto head = *DecodeHead(root, 0);
    std::vector<uint32_t> slots(size_t{1} << head.depth, number);
    blocks_.Set(0, EncodeTable(head, slots));
  };
  slots_to(2000);
  all_fail("block 2000 of the directory: a table leads to it, and it was never written");
  for (uint32_t i = 1; i < blocks_.size(); ++i) {
    if (i < 1000) blocks_.Set(i, leaf.substr(0, 100));
  }
  blocks_.Set(0, root);
  all_fail("it is cut off");
}

TEST_F(DirectoryTreeTest, AFreeBlockThatIsInUseIsNotWrittenOver) {
  Fill(200, 200);
  auto head = *DecodeHead(blocks_.Get(0), 0);
  const auto slots = *DecodeSlots(head, blocks_.Get(0));
  --head.blocks;
  blocks_.Set(0, EncodeTable(head, slots));
  absl::Status status;
  for (uint64_t i = 200; i < 1000 && status.ok(); ++i) {
    const auto part = tree_.Plan({Insertion(Name(i, 200), i)});
    status = part.status();
    ASSERT_TRUE(!part.ok() || blocks_.Commit(*part));
  }
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("block 0 says it is free"));
}

}  // namespace
}  // namespace abacus::objfs
