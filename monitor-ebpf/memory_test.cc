#include "monitor-ebpf/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
void* __libc_malloc(size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);   // NOLINT(bugprone-reserved-identifier)
}

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

// Objects this far apart share an entry of a thread's cache.
constexpr uint32_t kEntries = 256;
constexpr size_t kTooMuch = std::numeric_limits<size_t>::max();

// Keeps the compiler from leaving out an allocation that nobody reads.
template <typename T>
T Keep(T value) {
  asm volatile("" : "+r"(value) : : "memory");
  return value;
}

// Runs `body` in `object`, and nothing else of the test.
template <typename Body>
auto In(uint32_t object, const Body& body) {
  const MemoryScope scope(object);
  return body();
}

void* MallocIn(uint32_t object, size_t size) {
  return In(object, [&] { return Keep(std::malloc(Keep(size))); });
}

void FreeIn(uint32_t object, void* pointer) {
  In(object, [&] { std::free(Keep(pointer)); });
}

// The two objects of each test are used by no other.
class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MemoryIsCounted()) GTEST_SKIP() << "the sanitizer's malloc is not ours";
  }

  static uint32_t NewObject() { return ++objects_; }

  const uint32_t object_ = NewObject();
  const uint32_t other_ = NewObject();

 private:
  static inline uint32_t objects_ = 100;
};

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

// -- what malloc promises -------------------------------------------------------------------------

TEST_F(MemoryTest, UsableSizeMayBeWritten) {
  for (size_t size = 0; size < 5'000; size += 37) {
    void* pointer = MallocIn(object_, size);
    ASSERT_GE(malloc_usable_size(pointer), size);
    std::memset(pointer, 0xa5, malloc_usable_size(pointer));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(pointer) % alignof(std::max_align_t), 0);
    std::free(pointer);
  }
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, HeaderCostsAtMostSixteenBytesPerBlock) {
  constexpr size_t kBlocks = 10'000;
  std::array<void*, kBlocks> blocks;
  for (const size_t size : {size_t{24}, size_t{64}, size_t{200}, size_t{3'000}}) {
    auto held = [&](const auto& allocate, const auto& release) {
      const size_t before = mallinfo2().uordblks;
      for (void*& block : blocks) block = Keep(allocate(size));
      const size_t after = mallinfo2().uordblks;
      for (void* block : blocks) release(block);
      return (after - before + kBlocks / 2) /
             kBlocks;  // freed blocks cached by glibc count as held
    };
    const size_t raw = held([](size_t n) { return __libc_malloc(n); }, &__libc_free);
    const size_t ours = held([](size_t n) { return std::malloc(n); }, &std::free);
    EXPECT_LE(ours, raw + 16) << size;
  }
}

TEST_F(MemoryTest, FreeKeepsErrnoAndSoDoesAnAllocationThatSucceeds) {
  errno = EXDEV;
  for (const size_t size : {size_t{10}, size_t{100'000}, size_t{100'000'000}}) {
    void* pointer = MallocIn(NewObject() + 3'000'000, size);  // an object nobody has seen yet
    EXPECT_EQ(errno, EXDEV);
    std::free(pointer);
    EXPECT_EQ(errno, EXDEV);
  }
}

TEST_F(MemoryTest, WhatCannotBeHadFailsWithEnomemAndIsNotCharged) {
  const std::function<void*()> attempts[] = {
      [] { return std::malloc(Keep(kTooMuch)); },
      [] { return std::malloc(Keep(kTooMuch / 2)); },
      [] { return std::malloc(Keep(kTooMuch / 2 - 8)); },
      [] { return std::calloc(Keep(kTooMuch / 2), 3); },
      [] { return std::calloc(Keep(kTooMuch - 8), 1); },
      [] { return std::realloc(nullptr, Keep(kTooMuch)); },
      [] { return reallocarray(nullptr, Keep(kTooMuch / 2), 3); },
      [] { return memalign(64, Keep(kTooMuch - 32)); },
      [] { return aligned_alloc(Keep(size_t{1} << 63), 1); },
      [] { return valloc(Keep(kTooMuch)); },
      [] { return pvalloc(Keep(kTooMuch)); },
  };
  for (const auto& attempt : attempts) {
    errno = 0;
    EXPECT_EQ(In(object_, [&] { return Keep(attempt()); }), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(MemoryOf(object_), 0);
  }
  errno = 0;
  EXPECT_EQ(Keep(memalign(Keep(kTooMuch), 1)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(MemoryTest, ReallocThatFailsLeavesTheBlockAndItsCharge) {
  auto* bytes = static_cast<char*>(MallocIn(object_, 100));
  std::strcpy(bytes, "still here");
  char* const same = Keep(bytes);  // the compiler takes `bytes` for freed
  EXPECT_EQ(std::realloc(bytes, Keep(kTooMuch / 2 - 100)), nullptr);
  EXPECT_EQ(reallocarray(Keep(same), Keep(kTooMuch / 2), 4), nullptr);
  EXPECT_STREQ(same, "still here");
  EXPECT_EQ(MemoryOf(object_), 100);
  std::free(same);
}

TEST_F(MemoryTest, PosixMemalignReturnsItsErrorAndLeavesThePointer) {
  int marker = 0;
  void* pointer = &marker;
  for (const size_t alignment : {size_t{0}, size_t{1}, size_t{4}, size_t{24}, size_t{48}}) {
    EXPECT_EQ(posix_memalign(&pointer, alignment, 10), EINVAL) << alignment;
  }
  EXPECT_EQ(posix_memalign(&pointer, 64, Keep(kTooMuch - 100)), ENOMEM);
  EXPECT_EQ(pointer, &marker);
}

TEST_F(MemoryTest, MemalignRoundsAnOddAlignmentUpAsGlibcDoes) {
  void* pointer = In(object_, [] { return Keep(memalign(Keep(size_t{100}), 10)); });
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 128, 0);
  std::free(pointer);
}

TEST_F(MemoryTest, BlockOfGlibcItselfGoesBackToGlibcAndIsNotCharged) {
  // The last one's size reaches into the word where our check stands.
  for (const size_t size : {size_t{10}, size_t{100'000}, size_t{5} << 30}) {
    void* pointer = In(object_, [&] { return Keep(__libc_malloc(size)); });
    if (pointer == nullptr) continue;
    EXPECT_GE(malloc_usable_size(pointer), size);
    pointer = In(object_, [&] { return std::realloc(pointer, size + 1'000); });
    EXPECT_EQ(MemoryOf(object_), 0);
    FreeIn(object_, pointer);
    EXPECT_EQ(MemoryOf(object_), 0);
  }
}

TEST_F(MemoryTest, BlockFreedTwiceStillEndsTheProcess) {
  // Of a size that nobody else here asks for, and would be given this block again. What glibc says
  // depends on a random number that it writes into freed blocks.
  EXPECT_DEATH(
      {
        void* pointer = MallocIn(object_, 987);
        std::free(Keep(pointer));
        std::free(Keep(pointer));
      },
      "");
}

// -- before main, after it, around it -------------------------------------------------------------

// Holds a block from before main() until after gtest is done, and checks the counts at both ends.
class HoldsABlock {
 public:
  static constexpr uint32_t kObject = 7;
  static constexpr size_t kBytes = 4'321;

  HoldsABlock() : block_(MallocIn(kObject, kBytes)) {}
  ~HoldsABlock() {
    std::free(block_);
    if (MemoryOf(kObject) != 0) _exit(3);
  }

 private:
  void* const block_;
} holds_a_block;

TEST_F(MemoryTest, WhatWasAllocatedBeforeMainIsCounted) {
  EXPECT_EQ(MemoryOf(HoldsABlock::kObject), HoldsABlock::kBytes);
}

// Runs `body` in a child and returns its exit status; a child that hangs is ended by a signal.
template <typename Body>
int StatusOfChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(MemoryTest, ObjectWhoseCounterCannotBeMappedIsNotCountedAndAllocatesAllTheSame) {
  std::free(MallocIn(object_, 100));  // leaves glibc a block to give out
  const int status = StatusOfChild([] {
    const rlimit nothing_more = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &nothing_more) != 0) return 1;
    constexpr uint32_t kFarFromAllOthers = 7'000'000;
    errno = EXDEV;
    void* uncounted = MallocIn(kFarFromAllOthers, 100);
    if (uncounted == nullptr || errno != EXDEV) return 2;
    if (MemoryOf(kFarFromAllOthers) != 0) return 3;
    const rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &all) != 0) return 4;
    void* counted = MallocIn(kFarFromAllOthers, 200);
    std::free(uncounted);
    if (MemoryOf(kFarFromAllOthers) != 200) return 5;
    std::free(counted);
    return MemoryOf(kFarFromAllOthers) == 0 ? 0 : 6;
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WIFEXITED(status));
}

TEST_F(MemoryTest, ForkedChildCountsOnFromWhatItInherited) {
  void* inherited = MallocIn(object_, 1'000);
  void* of_ended_thread = nullptr;
  std::thread([&] { of_ended_thread = MallocIn(object_, 200); }).join();
  const int status = StatusOfChild([&] {
    if (MemoryOf(object_) != 1'200) return 1;
    FreeIn(other_, inherited);
    if (MemoryOf(object_) != 200) return 2;
    std::thread([&] { std::free(of_ended_thread); }).join();
    if (MemoryOf(object_) != 0) return 3;
    MallocIn(other_, 77);
    return MemoryOf(other_) == 77 ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(MemoryOf(object_), 1'200);
  EXPECT_EQ(MemoryOf(other_), 0);
  std::free(inherited);
  std::free(of_ended_thread);
}

TEST_F(MemoryTest, ChildForkedWhileOthersAllocateGoesOnWorking) {
  std::atomic<bool> done = false;
  std::array<std::thread, 3> others;
  for (std::thread& thread : others) {
    thread = std::thread([&] {
      while (!done) {
        for (uint32_t k = 0; k < 100; ++k) std::free(MallocIn(4'000'000 + k * kEntries, 10));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    const int status = StatusOfChild([&] {
      void* pointer = MallocIn(object_, 100);
      std::thread([&] { pointer = std::realloc(pointer, 1'000); }).join();
      if (MemoryOf(object_) != 1'000) return 1;
      std::free(pointer);
      return MemoryOf(object_) == 0 ? 0 : 2;
    });
    ASSERT_EQ(status, 0);
  }
  done = true;
  for (std::thread& thread : others) thread.join();
}

// -- threads --------------------------------------------------------------------------------------

TEST_F(MemoryTest, ThousandThreadsThatComeAndGoLeaveExactSums) {
  constexpr size_t kThreads = 1'000;
  constexpr uint32_t kObjects = 10;
  constexpr uint32_t kFirst = 5'000'000;
  std::vector<void*> blocks(kThreads);
  uint64_t expected[kObjects] = {};
  for (int wave = 0; wave < 3; ++wave) {
    std::latch all_alive(kThreads);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        void* kept = MallocIn(kFirst + i % kObjects, i + 1);
        std::free(std::exchange(blocks[i], kept));  // of the wave before
        all_alive.arrive_and_wait();
        std::free(MallocIn(kFirst + (i + 1) % kObjects, 50));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t k = 0; k < kObjects; ++k) {
      expected[k] = 0;
      for (size_t i = k; i < kThreads; i += kObjects) expected[k] += i + 1;
      EXPECT_EQ(MemoryOf(kFirst + k), expected[k]) << wave;
    }
  }
  for (void* block : blocks) std::free(block);
  for (uint32_t k = 0; k < kObjects; ++k) EXPECT_EQ(MemoryOf(kFirst + k), 0);
}

// Calls a function in each of the rounds that glibc grants to the destructors of an ending thread,
// those after the hooks have let go of the thread included.
class AtThreadEnd {
 public:
  explicit AtThreadEnd(std::function<void()> act) : act_(std::move(act)) {
    if (pthread_key_create(&key_, &Run) != 0) abort();
  }
  ~AtThreadEnd() { pthread_key_delete(key_); }

  void OfThisThread() { pthread_setspecific(key_, this); }

 private:
  static void Run(void* argument) {
    auto* that = static_cast<AtThreadEnd*>(argument);
    that->OfThisThread();  // once more
    that->act_();
  }

  const std::function<void()> act_;
  pthread_key_t key_;
};

TEST_F(MemoryTest, WhatAThreadsLastDestructorsAllocateIsCounted) {
  struct Holder {
    void* block = nullptr;
    ~Holder() { std::free(block); }
  };
  std::array<void*, 100> blocks = {};
  size_t allocated = 0;
  AtThreadEnd end([&] { blocks[allocated++] = MallocIn(object_, 10); });
  std::thread([&] {
    thread_local Holder holder;
    holder.block = MallocIn(other_, 1'000);
    end.OfThisThread();
  }).join();
  EXPECT_GT(allocated, 1);
  EXPECT_EQ(MemoryOf(object_), 10 * allocated);
  EXPECT_EQ(MemoryOf(other_), 0);
  for (void* block : blocks) std::free(block);
  EXPECT_EQ(MemoryOf(object_), 0);
}

TEST_F(MemoryTest, EndingThreadAndTheOneThatComesAfterItDoNotDisturbEachOther) {
  AtThreadEnd end([&] {
    std::latch both(2);
    const auto work = [&] {
      both.arrive_and_wait();
      for (int i = 0; i < 300'000; ++i) std::free(MallocIn(object_, 1'000));
    };
    std::thread next(work);  // is given what the ending thread let go of
    work();
    next.join();
  });
  std::thread([&] {
    std::free(MallocIn(object_, 1));
    end.OfThisThread();
  }).join();
  EXPECT_EQ(MemoryOf(object_), 0);
}

size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return pages * static_cast<size_t>(getpagesize());
}

TEST_F(MemoryTest, ThreadsThatComeAndGoDoNotAddUp) {
  const auto come_and_go = [&](int threads) {
    for (int i = 0; i < threads; ++i) {
      std::thread([&] { std::free(MallocIn(object_, 100)); }).join();
    }
  };
  come_and_go(10);
  const size_t before = ResidentBytes();
  come_and_go(4'000);
  EXPECT_LT(ResidentBytes(), before + (4 << 20));  // 8 MiB if each had left its cache behind
}

TEST_F(MemoryTest, ReadsWhileOthersAllocateStayNearTheTruth) {
  constexpr uint64_t kHeld = 100'000'000;
  constexpr uint64_t kThreads = 3;
  constexpr uint64_t kNear = kThreads * (256 * 1024 + 10 * 1'000);
  void* held = MallocIn(object_, kHeld);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::array<void*, 10> blocks = {};
      for (size_t k = 0; !done; ++k) {
        std::free(std::exchange(blocks[k % blocks.size()], MallocIn(object_, k % 1'000)));
        std::free(MallocIn(object_ + kEntries, 1));  // drives the other out of the cache
      }
      for (void* block : blocks) std::free(block);
    });
  }
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = MemoryOf(object_);
    ASSERT_GE(bytes, kHeld - kNear);
    ASSERT_LE(bytes, kHeld + kNear);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(MemoryOf(object_), kHeld);
  std::free(held);
}

// -- against a model ------------------------------------------------------------------------------

// Threads that allocate, reallocate and free in random objects, and take each other's blocks out of
// shared cells. Each writes down what it should have changed; the sums must agree when all is
// quiet.
class RandomWorkload {
 public:
  static constexpr uint32_t kObjects = 300;
  static constexpr uint32_t kFirst = 6'000'000;
  using Model = std::vector<int64_t>;

  explicit RandomWorkload(uint64_t seed) : seed_(seed), cells_(2'000) {}

  // One thread's part. Returns the bytes by object that it added, less those that it freed.
  Model Run(uint64_t thread, int steps) {
    Model model(kObjects);
    std::mt19937_64 random(seed_ * 1'000 + thread);
    for (int step = 0; step < steps; ++step) {
      std::atomic<Block*>& cell = cells_[random() % cells_.size()];
      Block* block = cell.exchange(nullptr);  // nobody else has it now
      if (block == nullptr) {
        block = Allocate(random, model);
      } else if (random() % 3 == 0) {
        block = Resize(block, random, model);
      } else {
        block = Free(block, random, model);
      }
      if (block != nullptr) Free(cell.exchange(block), random, model);
    }
    return model;
  }

  void FreeAll() {
    for (auto& cell : cells_) std::free(cell.exchange(nullptr));
  }

 private:
  struct Block {
    size_t size;
    uint32_t object;  // from 0
  };

  static size_t Size(std::mt19937_64& random) {
    const size_t most = random() % 50 == 0 ? 300'000 : 600;
    return sizeof(Block) + random() % most;
  }

  static Block* Allocate(std::mt19937_64& random, Model& model) {
    const auto object = static_cast<uint32_t>(random() % kObjects);
    const size_t size = Size(random);
    const size_t alignment = size_t{16} << random() % 8;
    void* block = In(kFirst + object, [&]() -> void* {
      switch (random() % 4) {
        case 0:
          return std::malloc(size);
        case 1:
          return std::calloc(1, size);
        case 2:
          return memalign(alignment, size);
        default:
          return ::operator new(size);
      }
    });
    model[object] += static_cast<int64_t>(size);
    return new (block) Block{size, object};
  }

  static Block* Resize(Block* block, std::mt19937_64& random, Model& model) {
    const size_t size = Size(random);
    model[block->object] += static_cast<int64_t>(size) - static_cast<int64_t>(block->size);
    const MemoryScope elsewhere(kFirst + static_cast<uint32_t>(random() % kObjects));
    block = static_cast<Block*>(std::realloc(static_cast<void*>(block), size));
    block->size = size;
    return block;
  }

  static Block* Free(Block* block, std::mt19937_64& random, Model& model) {
    if (block == nullptr) return nullptr;
    model[block->object] -= static_cast<int64_t>(block->size);
    FreeIn(kFirst + static_cast<uint32_t>(random() % kObjects), block);
    return nullptr;
  }

  const uint64_t seed_;
  std::vector<std::atomic<Block*>> cells_;
};

TEST_F(MemoryTest, RandomWorkOfManyThreadsAgreesWithTheModelWhenQuiet) {
  constexpr size_t kThreads = 8;
  const char* given = std::getenv("ABACUS_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  SCOPED_TRACE("ABACUS_SEED=" + std::to_string(seed));
  RandomWorkload workload(seed);
  RandomWorkload::Model expected(RandomWorkload::kObjects);
  for (uint64_t round = 0; round < 5; ++round) {
    std::vector<RandomWorkload::Model> changes(kThreads);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { changes[i] = workload.Run(round * kThreads + i, 20'000); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& change : changes) {
      for (size_t k = 0; k < expected.size(); ++k) expected[k] += change[k];
    }
    for (uint32_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(MemoryOf(RandomWorkload::kFirst + k), static_cast<uint64_t>(expected[k])) << k;
    }
  }
  workload.FreeAll();
  for (uint32_t k = 0; k < expected.size(); ++k) {
    ASSERT_EQ(MemoryOf(RandomWorkload::kFirst + k), 0) << k;
  }
}

}  // namespace
}  // namespace abacus::monitor
