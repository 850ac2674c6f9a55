// What malloc promises holds with the hooks; and what is before main() and around it.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "monitor-ebpf/memory.h"
#include "monitor-ebpf/testing/memory_fixture.h"

extern "C" {
void* __libc_malloc(size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);   // NOLINT(bugprone-reserved-identifier)
}

namespace abacus::monitor {
namespace {

constexpr size_t kTooMuch = std::numeric_limits<size_t>::max();

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

}  // namespace
}  // namespace abacus::monitor
