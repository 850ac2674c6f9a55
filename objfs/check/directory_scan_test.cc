// A directory's blocks, whole and damaged.

#include "objfs/check/directory_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/directory/block_format.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"

namespace abacus::objfs {
namespace {

std::vector<ScannedName> SomeNames(size_t count, size_t length) {
  std::vector<ScannedName> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back({absl::StrCat(i, std::string(length, 'x')), Entry{i + 1, S_IFREG}});
  }
  return names;
}

using ByName = std::map<std::string, ObjectId>;
ByName Sorted(const std::vector<ScannedName>& names) {
  ByName sorted;
  for (const ScannedName& name : names) sorted[name.name] = name.entry.id;
  return sorted;
}

class DirectoryScanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = LocalObjectStore::Open(disk_, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    id_ = *store_->Create("", ++version_);
  }
  void Put(const std::vector<std::string>& blocks) {
    ASSERT_TRUE(store_->Truncate(id_, 0, ++version_).ok());
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(store_->Write(id_, i * kDirectoryBlockBytes, blocks[i], ++version_).ok());
    }
  }
  ScannedDirectory Scan() {
    auto scanned = ScanDirectory(*store_, id_);
    EXPECT_TRUE(scanned.ok()) << scanned.status();
    return scanned.ok() ? *std::move(scanned) : ScannedDirectory();
  }

  MemoryDisk disk_;
  std::unique_ptr<LocalObjectStore> store_;
  ObjectId id_ = 0;
  VersionNumber version_ = 0;
};

TEST_F(DirectoryScanTest, WhatIsBuiltIsWholeWhateverItsSize) {
  EXPECT_TRUE(Scan().faults.empty());
  EXPECT_FALSE(Scan().seed.has_value());
  const HashSeed seed{1, 2};
  for (const size_t count : {0, 1, 30, 2000, 60'000}) {
    const auto names = SomeNames(count, 180);
    const auto blocks = BuildDirectory(names, seed);
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    ASSERT_NO_FATAL_FAILURE(Put(*blocks));
    const ScannedDirectory scanned = Scan();
    EXPECT_TRUE(scanned.faults.empty()) << scanned.faults.front();
    EXPECT_EQ(scanned.seed, seed);
    EXPECT_EQ(scanned.names.size(), count);
    EXPECT_EQ(Sorted(scanned.names), Sorted(names));
  }
}

TEST_F(DirectoryScanTest, EveryByteThatChangesIsToldOrIsWhatANameLeadsTo) {
  const auto names = SomeNames(300, 180);
  const auto blocks = *BuildDirectory(names, HashSeed{3, 4});
  ASSERT_GT(blocks.size(), 5u);
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    auto damaged = blocks;
    const size_t block = random() % blocks.size();
    // As often in the head as behind it.
    const size_t at = random() % (i % 2 == 0 ? kBlockHeadBytes : kDirectoryBlockBytes);
    damaged[block][at] = static_cast<char>(damaged[block][at] ^ (1 + random() % 255));
    ASSERT_NO_FATAL_FAILURE(Put(damaged));
    const ScannedDirectory scanned = Scan();
    if (!scanned.faults.empty()) continue;
    // An entry's object or type, for who knows the objects, or its number among names of one key.
    size_t others = 0;
    const ByName expected = Sorted(names);
    ASSERT_EQ(scanned.names.size(), names.size()) << "block " << block << ", byte " << at;
    for (const ScannedName& name : scanned.names) {
      const auto was = expected.find(name.name);
      ASSERT_TRUE(was != expected.end()) << "block " << block << ", byte " << at;
      others += was->second != name.entry.id || name.entry.type != S_IFREG ? 1 : 0;
    }
    const auto head = DecodeHead(damaged[block], static_cast<uint32_t>(block));
    ASSERT_TRUE(head.ok());
    const auto before = DecodeLeaf(*head, blocks[block]), after = DecodeLeaf(*head, damaged[block]);
    ASSERT_TRUE(before.ok() && after.ok());
    for (size_t k = 0; k < before->size(); ++k) {
      others += (*before)[k].position != (*after)[k].position ? 1 : 0;
    }
    EXPECT_EQ(others, 1u) << "block " << block << ", byte " << at;
  }
}

TEST_F(DirectoryScanTest, BlocksThatAreLostCostTheirOwnNamesOnly) {
  const auto names = SomeNames(2000, 100);
  const auto blocks = *BuildDirectory(names, HashSeed{5, 6});
  for (size_t lost = 0; lost < blocks.size(); lost += 7) {
    auto rest = blocks;
    rest[lost].assign(kDirectoryBlockBytes, '\7');
    const auto head = DecodeHead(blocks[lost], static_cast<uint32_t>(lost));
    ASSERT_TRUE(head.ok());
    ASSERT_NO_FATAL_FAILURE(Put(rest));
    const ScannedDirectory scanned = Scan();
    EXPECT_FALSE(scanned.faults.empty());
    EXPECT_EQ(scanned.names.size(), names.size() - head->entries);
    // And what is left can be built again.
    const auto again = BuildDirectory(scanned.names, scanned.seed);
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_NO_FATAL_FAILURE(Put(*again));
    EXPECT_TRUE(Scan().faults.empty());
    EXPECT_EQ(Sorted(Scan().names), Sorted(scanned.names));
  }
}

TEST_F(DirectoryScanTest, BytesOfAnythingAreFaultsAndNothingWorse) {
  std::mt19937_64 random(9);
  const auto blocks = *BuildDirectory(SomeNames(200, 180), HashSeed{7, 8});
  for (int i = 0; i < 500; ++i) {
    auto other = blocks;
    for (std::string& block : other) {
      const size_t changes = random() % 20;
      for (size_t k = 0; k < changes; ++k) {
        block[random() % (k % 2 == 0 ? 60 : block.size())] = static_cast<char>(random());
      }
      if (random() % 10 == 0) block = other[random() % other.size()];
    }
    ASSERT_NO_FATAL_FAILURE(Put(other));
    const ScannedDirectory scanned = Scan();
    const auto again = BuildDirectory(scanned.names, scanned.seed);
    ASSERT_TRUE(again.ok()) << again.status();
  }
}

}  // namespace
}  // namespace abacus::objfs
