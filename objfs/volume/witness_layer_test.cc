#include "objfs/volume/witness_layer.h"

#include <sys/stat.h>

#include <memory>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

constexpr Version kNow{1};

class WitnessLayerTest : public ::testing::Test {
 protected:
  WitnessLayerTest() {
    Start();
    Inode inode;
    inode.mode = S_IFREG | 0644;
    inode.links = 1;
    inode.columns = {2, 1, 3};
    const auto node = table_->Make(7, inode, "");
    EXPECT_TRUE(node.ok()) << node.status();
    id_ = node->id;
    EXPECT_TRUE(table_->Flush(id_).ok());
  }
  void Start() {
    auto store = LocalObjectStore::Open(disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    table_ = std::make_shared<ObjectTable>(*std::move(store), [] { return int64_t{100}; });
  }
  std::unique_ptr<WitnessLayer> Open(uint64_t epoch) {
    EXPECT_TRUE(fence_->Raise(Version{epoch}).ok());
    return std::make_unique<WitnessLayer>(table_, id_, fence_, Version{epoch});
  }

  PowerCutDisk disk_;
  std::shared_ptr<ObjectTable> table_;
  ObjectId id_ = 0;
  const std::shared_ptr<ColumnFence> fence_ = std::make_shared<ColumnFence>();
};

TEST_F(WitnessLayerTest, WhatItIsToldIsDurableWhenItAnswers) {
  auto witness = Open(10);
  ASSERT_TRUE(witness->SetInode(LackingText({1}), kNow).ok());
  EXPECT_EQ(witness->GetAttributes(kNow)->inode, LackingText({1}));
  EXPECT_EQ(table_->Stat(id_)->inode.lacking, std::vector<uint32_t>{1});
  witness.reset();
  disk_.CutPower();
  table_.reset();
  disk_.CutPower();
  disk_.PowerOn(3);
  Start();
  EXPECT_EQ(table_->Stat(id_)->inode.lacking, std::vector<uint32_t>{1});
  ASSERT_TRUE(Open(20)->SetInode("", kNow).ok());
  EXPECT_TRUE(table_->Stat(id_)->inode.lacking.empty());
}

TEST_F(WitnessLayerTest, AnOpeningThatIsOverIsRefused) {
  const auto first = Open(10), second = Open(20);
  EXPECT_TRUE(absl::IsUnauthenticated(first->SetInode(LackingText({0}), kNow)));
  EXPECT_TRUE(absl::IsUnauthenticated(first->GetAttributes(kNow).status()));
  EXPECT_TRUE(table_->Stat(id_)->inode.lacking.empty());
  EXPECT_TRUE(second->SetInode(LackingText({0}), kNow).ok());
}

TEST_F(WitnessLayerTest, NeverDoAllColumnsLackSomething) {
  const auto witness = Open(10);
  for (const std::string& bad :
       {LackingText({0, 1, 2}), LackingText({3}), std::string("\2\1"), std::string("\1\1")}) {
    EXPECT_TRUE(absl::IsDataLoss(witness->SetInode(bad, kNow)));
  }
  EXPECT_TRUE(table_->Stat(id_)->inode.lacking.empty());
  EXPECT_TRUE(absl::IsFailedPrecondition(witness->Read(0, 1, kNow).status()));
}

TEST_F(WitnessLayerTest, TimesAndChangesOfTheInodeStay) {
  const auto witness = Open(10);
  InodeChange change;
  change.uid = 77;
  ASSERT_TRUE(table_->Change(7, id_, change).ok());
  ASSERT_TRUE(witness->SetInode(LackingText({2}), kNow).ok());
  change = InodeChange();
  change.gid = 78;
  ASSERT_TRUE(table_->Change(7, id_, change).ok());
  const Inode inode = table_->Stat(id_)->inode;
  EXPECT_EQ(inode.uid, 77u);
  EXPECT_EQ(inode.gid, 78u);
  EXPECT_EQ(inode.lacking, std::vector<uint32_t>{2});
}

}  // namespace
}  // namespace abacus::objfs
