// Stacks down to a store: cache over storage over an object store on a disk in memory.

#include "objfs/storage/storage_layer.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;

class StorageLayerTest : public ::testing::Test {
 protected:
  StorageLayerTest() { Restart(); }
  // Of the server and its clients: the store has what was durable. REQUIRES: no Ref is held.
  void Restart() {
    cluster_.reset();
    store_.reset();
    auto store = LocalObjectStore::Open(disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    runtime::testing::ClusterOptions options;
    options.nodes = 2;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<StorageLayer>().Add<CacheLayer>(
          [] { return std::make_unique<CacheManager>(256 << 10); });
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  }
  Ref<Layer> Storage(ObjectId id) {
    return Ref<Layer>(
        (*cluster_)[1].binding().Adopt(std::make_unique<StorageLayer>(store_, id)).base());
  }
  // The storage is on node 1, the cache begins on node 0.
  Ref<Layer> Cache(ObjectId id) {
    const Ref<Layer> storage = (*cluster_)[0].RefTo<Layer>(Storage(id).rid());
    const std::vector<std::pair<std::string, std::string>> options = {{"block", "4 KiB"}};
    return Ref<Layer>(
        cluster_->Create<CacheLayer>(0, std::vector<Ref<Layer>>{storage}, options).base());
  }
  Version Now() { return Version::Of(++ticks_, 1); }

  MemoryDisk disk_;
  std::shared_ptr<ObjectStore> store_;
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  uint64_t ticks_ = 0;
};

TEST_F(StorageLayerTest, AStackIsItsModelAndHasWhatWasFlushedAfterARestart) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(21));
  std::mt19937 random(seed);
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  const ObjectId id = *store_->Create("", Now().value);
  Ref<Layer> top = Cache(id);
  std::string model;
  const int steps = runtime::testing::kSanitized ? 300 : 2000;
  for (int i = 0; i < steps; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    const uint64_t offset = draw(100000), bytes = draw(20000);
    switch (i % 100 == 0 ? 5 : random() % 8) {
      case 0:
      case 1: {
        std::string text(bytes + 1, '\0');
        for (char& c : text) c = static_cast<char>('a' + random() % 26);
        ASSERT_TRUE(top->Write(offset, Block::CopyOf(text), Now()).ok());
        model.resize(std::max(model.size(), offset + text.size()));
        model.replace(offset, text.size(), text);
        break;
      }
      case 2:
        ASSERT_TRUE(top->Truncate(offset, Now()).ok());
        model.resize(offset);
        break;
      case 3:
        ASSERT_TRUE(top->Punch(Range{offset, bytes}, Now()).ok());
        for (uint64_t at = offset; at < model.size() && (bytes == 0 || at < offset + bytes); ++at) {
          model[at] = '\0';
        }
        break;
      case 4: {
        const auto host = cluster_->HostOf(top.rid());
        ASSERT_TRUE(host.has_value());
        const auto moved = cluster_->Move(top.rid(), *host, 1 - *host);
        ASSERT_TRUE(moved.ok() && moved->status.ok());
        break;
      }
      case 5:
        ASSERT_TRUE(top->Flush(Now()).ok());
        if (i % 100 != 0) break;
        top = Ref<Layer>();
        Restart();
        top = Cache(id);
        break;
      default: {
        const auto read = top->Read(offset, bytes, Now());
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(read->bytes.view(),
                  offset < model.size() ? model.substr(offset, bytes) : std::string());
      }
    }
  }
}

TEST_F(StorageLayerTest, VersionsAndInodesComeBack) {
  const Ref<Layer> storage = Storage(*store_->Create("", Now().value));
  ASSERT_TRUE(storage->Write(8192, Block::CopyOf("new"), Version::Of(50, 3)).ok());
  ASSERT_TRUE(storage->SetInode("mode 644", Version::Of(51, 3)).ok());
  EXPECT_EQ(storage->Read(8192, 3, Now())->version, Version::Of(50, 3));
  EXPECT_EQ(storage->Read(0, 10, Now())->version, Version()) << "a hole";
  const auto attributes = storage->GetAttributes(Now());
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  EXPECT_EQ(attributes->inode, "mode 644");
  EXPECT_EQ(attributes->size, 8195u);
  EXPECT_EQ(attributes->allocated, 8192u);
  EXPECT_EQ(attributes->version, Version::Of(51, 3));
  EXPECT_EQ(*storage->Seek(0, true, Now()), 8192u);
  EXPECT_EQ(*storage->Seek(0, false, Now()), 0u);
}

TEST_F(StorageLayerTest, ErrorsSayWhatIsWrong) {
  const Ref<Layer> storage = Storage(*store_->Create("", Now().value));
  EXPECT_EQ(storage->Write(0, Block::CopyOf("x"), Version()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(storage->Read(0, StorageLayer::kReadBytesMax + 1, Now()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(storage->Commit(std::vector<RangeVersion>(), std::vector<RangeWrite>(), Now())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Storage(999)->Read(0, 1, Now()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace abacus::objfs
