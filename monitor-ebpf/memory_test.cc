// What is charged, and to whom.

#include "monitor-ebpf/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/testing/memory_fixture.h"

namespace abacus::monitor {
namespace {

#if defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||
                            __has_feature(memory_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(MemoryIsCountedTest, WhereItIsLinkedUnlessASanitizerBringsItsOwnMalloc) {
  EXPECT_EQ(MemoryIsCounted(), !kSanitized);
}

// -- what is charged ------------------------------------------------------------------------------

TEST_F(MemoryTest, MallocIsChargedAsAskedForUntilItIsFreed) {
  void* pointer = MallocIn(object_, 1'001);
  EXPECT_EQ(MemoryOf(object_), 1'001);
  EXPECT_EQ(MemoryOf(other_), 0);
  FreeIn(object_, pointer);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, NewAndContainersAreCharged) {
  {
    auto array = In(object_, [] { return std::make_unique<std::array<char, 64>>(); });
    Keep(array.get());
    EXPECT_EQ(MemoryOf(object_), 64);
    auto vector = In(object_, [] { return std::vector<uint64_t>(1'000); });
    Keep(vector.data());
    EXPECT_EQ(MemoryOf(object_), 8'064);
    auto text = In(object_, [] { return std::string(99, 'x'); });
    EXPECT_EQ(MemoryOf(object_), 8'164);
    auto map = In(object_, [] { return std::map<int, int>{{1, 2}, {3, 4}}; });
    EXPECT_GE(MemoryOf(object_), 8'164 + 4 * sizeof(int));
  }
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, OverAlignedNewIsCharged) {
  struct alignas(128) Wide {
    char bytes[256];
  };
  auto wide = In(object_, [] { return std::make_unique<Wide>(); });
  Keep(wide.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.get()) % 128, 0);
  EXPECT_EQ(MemoryOf(object_), 256);
  wide.reset();
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, WhatTheLibraryAllocatesIsCharged) {
  char* copy = In(object_, [] { return Keep(strdup(Keep("seven b"))); });
  EXPECT_EQ(MemoryOf(object_), 8);
  std::free(copy);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, CallocIsZeroAndCharged) {
  std::free(std::memset(Keep(std::malloc(300)), 0xff, 300));
  auto* bytes = static_cast<char*>(In(object_, [] { return Keep(std::calloc(30, 10)); }));
  EXPECT_EQ(std::accumulate(bytes, bytes + 300, 0), 0);
  EXPECT_EQ(MemoryOf(object_), 300);
  std::free(bytes);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, ReallocGrowsAndShrinksWhatIsCharged) {
  auto* bytes = static_cast<char*>(MallocIn(object_, 100));
  std::memset(bytes, 'a', 100);
  for (const size_t size : {size_t{200}, size_t{150}, size_t{100'000}, size_t{10'000'000},
                            size_t{40'000}, size_t{50}}) {
    bytes = static_cast<char*>(std::realloc(Keep(bytes), size));
    ASSERT_EQ(MemoryOf(object_), size);
    EXPECT_EQ(bytes[0], 'a');
    EXPECT_EQ(bytes[49], 'a');
  }
  bytes = static_cast<char*>(reallocarray(Keep(bytes), 7, 11));
  EXPECT_EQ(MemoryOf(object_), 77);
  EXPECT_EQ(std::realloc(Keep(bytes), 0), nullptr);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, ReallocOfNullIsMalloc) {
  void* pointer = In(object_, [] { return Keep(std::realloc(Keep<void*>(nullptr), 123)); });
  EXPECT_EQ(MemoryOf(object_), 123);
  std::free(pointer);
}

TEST_F(MemoryTest, LargeBlocksAreCharged) {
  constexpr size_t kMiB = 1 << 20;
  void* pointer = MallocIn(object_, 64 * kMiB);
  EXPECT_EQ(MemoryOf(object_), 64 * kMiB);
  static_cast<char*>(pointer)[64 * kMiB - 1] = 'z';
  pointer = std::realloc(Keep(pointer), 256 * kMiB);  // moved by mremap()
  EXPECT_EQ(MemoryOf(object_), 256 * kMiB);
  EXPECT_EQ(static_cast<char*>(pointer)[64 * kMiB - 1], 'z');
  std::free(pointer);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, MoreThanFourGigabytesInOneBlockOrInManyAreCharged) {
  constexpr size_t kGiB = 1 << 30;
  void* small = MallocIn(object_, 1);  // now the thread has an entry for the object
  void* large = MallocIn(object_, 5 * kGiB);
  if (large == nullptr) GTEST_SKIP() << "no address space for 5 GiB";
  EXPECT_EQ(MemoryOf(object_), 5 * kGiB + 1);
  std::free(large);
  EXPECT_EQ(MemoryOf(object_), 1);
  std::vector<void*> blocks(50'000);  // never written, so never there
  for (void*& block : blocks) block = MallocIn(object_, 100'000);
  EXPECT_EQ(MemoryOf(object_), 100'000 * blocks.size() + 1);
  for (void* block : blocks) std::free(block);
  std::free(small);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, AlignedBlocksAreAlignedAndCharged) {
  for (size_t alignment = 1; alignment <= 1 << 22; alignment *= 2) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{24}, size_t{1'000}, size_t{70'000}}) {
      SCOPED_TRACE(std::to_string(alignment) + " " + std::to_string(size));
      std::array<void*, 3> blocks = {};
      In(object_, [&] {
        blocks[0] = Keep(memalign(alignment, size));
        blocks[1] = Keep(aligned_alloc(alignment, size));
        if (posix_memalign(&blocks[2], std::max(alignment, sizeof(void*)), size) != 0) abort();
      });
      ASSERT_EQ(MemoryOf(object_), 3 * size);
      for (void* block : blocks) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0);
        EXPECT_GE(malloc_usable_size(block), size);
        std::memset(block, 0x5a, size);
      }
      for (void* block : blocks) std::free(block);
      ASSERT_EQ(MemoryOf(object_), 0);
    }
  }
}

TEST_F(MemoryTest, PagesAreAlignedAndCharged) {
  const auto page = static_cast<size_t>(getpagesize());
  void* of_any_size = In(object_, [] { return Keep(valloc(10)); });
  EXPECT_EQ(MemoryOf(object_), 10);
  void* whole = In(object_, [&] { return Keep(pvalloc(page + 1)); });
  EXPECT_EQ(MemoryOf(object_), 10 + 2 * page);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(of_any_size) % page, 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(whole) % page, 0);
  std::free(of_any_size);
  std::free(whole);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, ReallocOfAnAlignedBlockKeepsBytesAndCharge) {
  for (const size_t size : {size_t{10}, size_t{5'000}, size_t{1'000'000}}) {
    // Neighbours, so that some blocks happen to start at their header and others do not.
    std::array<char*, 8> blocks = {};
    for (char*& block : blocks) {
      block = static_cast<char*>(In(object_, [] { return Keep(memalign(256, 400)); }));
      std::memset(block, 'q', 400);
    }
    for (char*& block : blocks) {
      block = static_cast<char*>(In(other_, [&] { return std::realloc(Keep(block), size); }));
      EXPECT_EQ(std::string(block, std::min(size, size_t{400})),
                std::string(std::min(size, size_t{400}), 'q'));
    }
    EXPECT_EQ(MemoryOf(object_), blocks.size() * size);
    EXPECT_EQ(MemoryOf(other_), 0);
    for (char* block : blocks) std::free(block);
    EXPECT_EQ(MemoryOf(object_), 0);
  }
}

TEST_F(MemoryTest, NullAndEmptyBlocksAreChargedNothing) {
  In(object_, [] { std::free(Keep<void*>(nullptr)); });
  void* empty = MallocIn(object_, 0);
  void* other_empty = MallocIn(object_, 0);
  EXPECT_NE(empty, nullptr);
  EXPECT_NE(empty, other_empty);
  EXPECT_EQ(MemoryOf(object_), 0);
  std::free(empty);
  std::free(other_empty);
  EXPECT_EQ(MemoryOf(object_), 0);
  EXPECT_EQ(malloc_usable_size(nullptr), 0);
}

// -- to whom --------------------------------------------------------------------------------------

TEST_F(MemoryTest, ScopesNestAndGiveBackTheOuterObject) {
  EXPECT_EQ(memory_object, 0);
  {
    const MemoryScope outer(object_);
    EXPECT_EQ(memory_object, object_);
    {
      const MemoryScope inner(other_);
      EXPECT_EQ(memory_object, other_);
    }
    EXPECT_EQ(memory_object, object_);
  }
  EXPECT_EQ(memory_object, 0);
}

TEST_F(MemoryTest, ScopeIsKeptAroundAnAllocationThatTheCompilerSees) {
  void* pointer = nullptr;
  {
    const MemoryScope scope(object_);
    pointer = std::malloc(100);
  }
  Keep(pointer);
  EXPECT_EQ(MemoryOf(object_), 100);
  std::free(pointer);
}

TEST_F(MemoryTest, BlockFreedInsideAnotherObjectIsTakenOffItsOwner) {
  void* pointer = MallocIn(object_, 500);
  void* others = MallocIn(other_, 70);
  FreeIn(other_, pointer);
  EXPECT_EQ(MemoryOf(object_), 0);
  EXPECT_EQ(MemoryOf(other_), 70);
  FreeIn(0, others);
  EXPECT_EQ(MemoryOf(other_), 0);
}

TEST_F(MemoryTest, BlockFreedByAnotherThreadIsTakenOffItsOwner) {
  void* small = MallocIn(object_, 500);
  void* large = MallocIn(object_, 500'000);
  std::thread([&] {
    FreeIn(other_, small);
    FreeIn(0, large);
  }).join();
  EXPECT_EQ(MemoryOf(object_), 0);
  EXPECT_EQ(MemoryOf(other_), 0);
}

TEST_F(MemoryTest, BlockReallocatedInsideAnotherObjectStaysWithItsOwner) {
  void* pointer = MallocIn(object_, 500);
  pointer = In(other_, [&] { return std::realloc(Keep(pointer), 90'000); });
  EXPECT_EQ(MemoryOf(object_), 90'000);
  EXPECT_EQ(MemoryOf(other_), 0);
  FreeIn(other_, pointer);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, ObjectsThatShareAnEntryOfTheCacheDoNotMix) {
  std::vector<void*> blocks;
  blocks.reserve(1'000);
  for (uint32_t i = 0; i < 1'000; ++i) {
    blocks.push_back(MallocIn(1'000'000 + i % 10 * kEntries, i % 10 + 1));
  }
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(MemoryOf(1'000'000 + i * kEntries), 100 * (i + 1));
  for (void* block : blocks) std::free(block);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(MemoryOf(1'000'000 + i * kEntries), 0);
}

TEST_F(MemoryTest, HundredThousandObjectsAreCountedApart) {
  constexpr uint32_t kFirst = 2'000'000;
  constexpr uint32_t kObjects = 100'000;
  std::vector<void*> blocks(kObjects);
  for (uint32_t i = 0; i < kObjects; ++i) blocks[i] = MallocIn(kFirst + i, i % 1'000);
  std::vector<uint64_t> bytes(kFirst + kObjects);
  MemoryOfAll(bytes);
  for (uint32_t i = 0; i < kObjects; ++i) {
    ASSERT_EQ(MemoryOf(kFirst + i), i % 1'000);
    ASSERT_EQ(bytes[kFirst + i], i % 1'000);
  }
  for (void* block : blocks) std::free(block);
  for (uint32_t i = 0; i < kObjects; ++i) ASSERT_EQ(MemoryOf(kFirst + i), 0);
}

TEST_F(MemoryTest, ObjectNumbersMayBeAsLargeAsTheWord) {
  const uint32_t last = kNoObject - 1;
  void* pointer = MallocIn(last, 300);
  EXPECT_EQ(MemoryOf(last), 300);
  std::free(pointer);
  EXPECT_EQ(MemoryOf(last), 0);
}

TEST_F(MemoryTest, NoObjectIsChargedNothing) {
  const uint64_t outside = MemoryOf(0);
  void* small = MallocIn(kNoObject, 300);
  void* large = MallocIn(kNoObject, 300'000);
  EXPECT_EQ(MemoryOf(kNoObject), 0);
  large = std::realloc(Keep(large), 400'000);
  std::free(small);
  std::free(large);
  EXPECT_EQ(MemoryOf(kNoObject), 0);
  EXPECT_EQ(MemoryOf(0), outside);
}

TEST_F(MemoryTest, SlotZeroIsWhatWasAllocatedOutsideOfAllObjects) {
  const uint64_t before = MemoryOf(0);
  void* pointer = MallocIn(0, 12'345);
  EXPECT_EQ(MemoryOf(0), before + 12'345);
  std::free(pointer);
  EXPECT_EQ(MemoryOf(0), before);
}

}  // namespace
}  // namespace abacus::monitor
