#include "experiments/lab/cached_disk.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "objfs/store/memory_disk.h"

namespace abacus::lab {
namespace {

constexpr uint64_t kPage = PageCache::kPageBytes;

// 1 page a millisecond, 10 ms a seek; the clock is the test's.
class CachedDiskTest : public ::testing::Test {
 protected:
  std::shared_ptr<PageCache> Cache(uint64_t pages, uint64_t ahead_pages) {
    CacheModel model;
    model.disk = {.bytes_per_second = 1000.0 * kPage, .seek = absl::Milliseconds(10)};
    model.memory_bytes = pages * kPage;
    model.ahead_bytes = ahead_pages * kPage;
    model.now = [this] { return now_; };
    model.wait_until = [this](absl::Duration time) { now_ = time; };
    return std::make_shared<PageCache>(std::move(model));
  }
  template <typename Call>
  double Milliseconds(Call call) {
    const absl::Duration begin = now_;
    call();
    return absl::ToDoubleMilliseconds(now_ - begin);
  }

  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(CachedDiskTest, AReadCostsOnceAndASequentialOneSeeksOnce) {
  const auto cache = Cache(100, 0);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 0, 2 * kPage, 50 * kPage); }), 12);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 0, 2 * kPage, 50 * kPage); }), 0);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 2 * kPage, kPage, 50 * kPage); }), 1);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 40 * kPage, kPage, 50 * kPage); }), 11);
  EXPECT_EQ(Milliseconds([&] { cache->Read(2, 0, kPage, kPage); }), 11);
  EXPECT_EQ(Milliseconds([&] { cache->Read(2, kPage, kPage, kPage); }), 0);  // beyond the end
}

TEST_F(CachedDiskTest, ReadAheadGoesOnWhileTheReaderDoesSomethingElse) {
  const auto cache = Cache(100, 8);
  cache->Read(1, 0, kPage, 50 * kPage);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, kPage, kPage, 50 * kPage); }), 1);
  now_ += absl::Milliseconds(8);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 2 * kPage, 8 * kPage, 50 * kPage); }), 0);
  // The next eight are on their way since then.
  now_ += absl::Milliseconds(5);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 10 * kPage, 8 * kPage, 50 * kPage); }), 3);
}

TEST_F(CachedDiskTest, WritesCostNothingUntilTheyAreSynced) {
  const auto cache = Cache(100, 0);
  EXPECT_EQ(Milliseconds([&] { cache->Write(1, 0, 3 * kPage); }), 0);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 0, 3 * kPage, 3 * kPage); }), 0);
  EXPECT_EQ(Milliseconds([&] { cache->Sync(1); }), 13);
  EXPECT_EQ(Milliseconds([&] { cache->Sync(1); }), 0);
}

TEST_F(CachedDiskTest, WhatWasUsedLongestAgoGoesFirst) {
  const auto cache = Cache(2, 0);
  cache->Read(1, 0, kPage, 50 * kPage);
  cache->Read(1, 10 * kPage, kPage, 50 * kPage);
  cache->Read(1, 0, kPage, 50 * kPage);
  cache->Read(1, 20 * kPage, kPage, 50 * kPage);
  EXPECT_EQ(Milliseconds([&] { cache->Read(1, 0, kPage, 50 * kPage); }), 0);
  EXPECT_GT(Milliseconds([&] { cache->Read(1, 10 * kPage, kPage, 50 * kPage); }), 0);
}

TEST_F(CachedDiskTest, AfterADropNothingIsThereAndTheBytesAreStillTheDisks) {
  const auto cache = Cache(100, 0);
  CachedDisk disk(std::make_unique<objfs::MemoryDisk>(), cache);
  const auto file = disk.Create("name").value();
  ASSERT_TRUE(file->Write(0, std::string(kPage, 'x')).ok());
  std::string bytes(kPage, '\0');
  EXPECT_EQ(Milliseconds([&] { EXPECT_EQ(file->Read(0, bytes).value(), kPage); }), 0);
  EXPECT_EQ(bytes, std::string(kPage, 'x'));
  cache->Drop();
  bytes.assign(kPage, '\0');
  EXPECT_EQ(Milliseconds([&] { EXPECT_EQ(file->Read(0, bytes).value(), kPage); }), 11);
  EXPECT_EQ(bytes, std::string(kPage, 'x'));
}

}  // namespace
}  // namespace abacus::lab
