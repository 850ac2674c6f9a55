// Random operations on a store and on a plain model of it.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <set>

#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/testing/model_object.h"

namespace abacus::objfs {
namespace {

using testing::ChangeBoth;
using testing::ModelObject;
using testing::ReadObject;

constexpr uint64_t kLargestSize = 40 * ObjectStore::kBlockBytes;

class RandomTest : public ::testing::Test {
 protected:
  void Open() {
    store_.reset();
    constexpr std::array<uint64_t, 3> kLogged = {0, 1, 4};
    options_.logged_blocks_max = kLogged[random_() % kLogged.size()];
    auto store = LocalObjectStore::Open(disk_, options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  ObjectId Any() { return std::next(model_.begin(), random_() % model_.size())->first; }

  void Step() {
    const uint64_t choice = random_() % 100;
    if (model_.empty() || (choice < 6 && model_.size() < 20)) return Create();
    const ObjectId id = Any();
    if (choice < 9) {
      ASSERT_TRUE(store_->Remove(id).ok());
      model_.erase(id);
    } else if (choice < 25) {
      const auto read = ReadObject(*store_, id);
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(*read == model_[id], true) << "object " << id;
    } else if (choice < 35) {
      ReadPart(id);
    } else if (choice < 38) {
      CheckHoles(id);
    } else if (choice < 48) {
      ASSERT_TRUE(store_->Flush(id).ok());
    } else if (choice < 49) {
      ASSERT_TRUE(store_->Checkpoint().ok());
    } else {
      const absl::Status changed =
          ChangeBoth(random_, *store_, id, model_[id], ++version_, kLargestSize);
      ASSERT_TRUE(changed.ok()) << changed;
    }
  }

  void Create() {
    const auto id = store_->Create("new", ++version_);
    ASSERT_TRUE(id.ok()) << id.status();
    ASSERT_TRUE(ids_.insert(*id).second) << "given twice: " << *id;
    model_[*id] = {.blob = "new", .version = version_};
  }

  void ReadPart(ObjectId id) {
    const std::string& bytes = model_[id].bytes;
    const uint64_t offset = random_() % (bytes.size() + 100);
    std::string read(random_() % 30'000, '?');
    const auto count = store_->Read(id, offset, std::span(read.data(), read.size()));
    ASSERT_TRUE(count.ok()) << count.status();
    read.resize(*count);
    ASSERT_EQ(read == (offset < bytes.size() ? bytes.substr(offset, read.size()) : ""), true);
    ASSERT_EQ(read.size() == *count, true);
  }

  void CheckHoles(ObjectId id) {
    const ModelObject& model = model_[id];
    for (uint64_t block = 0; block < model.versions.size(); ++block) {
      const auto hole = store_->NextHole(id, block * testing::kBlock);
      ASSERT_TRUE(hole.ok()) << hole.status();
      EXPECT_EQ(*hole == block * testing::kBlock, model.versions[block] == 0);
      const auto data = store_->NextData(id, block * testing::kBlock);
      EXPECT_EQ(data.ok() && *data == block * testing::kBlock, model.versions[block] != 0);
    }
  }

  void CheckAll() {
    uint64_t used_bytes = 0;
    std::vector<ObjectId> ids;
    for (const auto& [id, model] : model_) {
      ids.push_back(id);
      used_bytes += model.AllocatedBytes();
      const auto read = ReadObject(*store_, id);
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(*read == model, true) << "object " << id;
    }
    EXPECT_EQ(*store_->List(0, 1000), ids);
    EXPECT_EQ(store_->Space()->used_bytes, used_bytes);
    EXPECT_EQ(store_->Space()->objects, model_.size());
  }

  MemoryDisk disk_;
  LocalObjectStoreOptions options_{.journal_bytes_max = 30'000,
                                   .open_files_max = 3,
                                   .changed_blocks_max = 100,
                                   .removed_max = 4,
                                   .ids_batch = 7};
  std::unique_ptr<LocalObjectStore> store_;
  std::mt19937_64 random_;
  std::map<ObjectId, ModelObject> model_;
  std::set<ObjectId> ids_;
  VersionNumber version_ = 0;
};

TEST_F(RandomTest, AStoreDoesWhatAPlainModelDoes) {
  const uint64_t seed = testing::SeedFromEnvironment(1);
  SCOPED_TRACE(::testing::Message() << "ABACUS_SEED=" << seed);
  random_.seed(seed);
  const int rounds = std::getenv("ABACUS_LONG") != nullptr ? 1'000 : 40;
  for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
    Open();
    ASSERT_NO_FATAL_FAILURE(CheckAll());
    for (int step = 0; step < 300; ++step) ASSERT_NO_FATAL_FAILURE(Step()) << "round " << round;
    ASSERT_TRUE(store_->FlushAll().ok());
    ASSERT_NO_FATAL_FAILURE(CheckAll());
  }
  EXPECT_GT(store_->Statistics().checkpoints, 0u);
}

}  // namespace
}  // namespace abacus::objfs
