// Contents that are put back, and numbers that begin above what others gave.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/testing/model_object.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kPutBackBlock = ObjectStore::kBlockBytes;

TEST(PutBackTest, OnlyWhatTheBlockWasWrittenWithIsTaken) {
  MemoryDisk disk;
  auto store = *LocalObjectStore::Open(disk, {});
  const ObjectId id = *store->Create("blob", 1);
  const std::string tail(100, 'b');
  const std::string bytes = std::string(kPutBackBlock, 'a') + tail;
  ASSERT_TRUE(store->Write(id, 0, bytes, 2).ok());
  ASSERT_TRUE(store->FlushAll().ok());
  const auto file = disk.Open("1/0000000000000001.d");
  ASSERT_TRUE((*file)->Write(kPutBackBlock + 7, "rot").ok());
  ASSERT_TRUE(absl::IsDataLoss(testing::ReadObject(*store, id).status()));
  std::string whole = tail;
  whole.resize(kPutBackBlock, '\0');
  std::string wrong = whole;
  wrong[3] = 'x';
  EXPECT_TRUE(absl::IsFailedPrecondition(store->PutBack(id, 1, wrong)));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->PutBack(id, 1, tail)));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->PutBack(id, 2, whole))) << "a hole";
  EXPECT_TRUE(absl::IsNotFound(store->PutBack(id + 1, 1, whole)));
  ASSERT_TRUE(store->PutBack(id, 1, whole).ok());
  for (int life = 0; life < 2; ++life) {
    const auto object = testing::ReadObject(*store, id);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->bytes, bytes);
    EXPECT_EQ(object->blob, "blob");
    EXPECT_EQ(object->version, 2u);
    EXPECT_EQ(object->versions, (std::vector<VersionNumber>{2, 2}));
    EXPECT_EQ(store->Space()->used_bytes, 2 * kPutBackBlock);
    ASSERT_TRUE(store->FlushTogether(std::span(&id, 1)).ok());
    store.reset();
    store = *LocalObjectStore::Open(disk, {});
  }
}

TEST(PutBackTest, NumbersBeginWhereTheyAreToAndNeverAgainBelow) {
  MemoryDisk disk;
  ObjectId last;
  {
    const auto store = *LocalObjectStore::Open(disk, {.ids_begin = 1000});
    last = *store->Create("", 1);
    EXPECT_EQ(last, 1000u);
    ASSERT_TRUE(store->FlushAll().ok());
  }
  const auto store = *LocalObjectStore::Open(disk, {.ids_begin = 500});
  EXPECT_GT(*store->Reserve(), last);
}

}  // namespace
}  // namespace abacus::objfs
