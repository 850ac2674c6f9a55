#include "runtime/base/large_memory.h"

#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

TEST(LargeMemoryTest, HasRoomForAllAndLessThanAQuarterMore) {
  size_t before = 0;
  for (size_t bytes = LargeMemory::kMin; bytes <= LargeMemory::kMax; bytes += 509) {
    const size_t room = LargeMemory::RoomFor(bytes);
    ASSERT_GE(room, bytes);
    ASSERT_LT(room, bytes + bytes / 4 + 1);
    ASSERT_GE(room, before);
    ASSERT_EQ(LargeMemory::RoomFor(room), room) << "what is given back is of the same size";
    before = room;
  }
  // Worked: 100 KiB; from 64 KiB on a step is 16 KiB.
  EXPECT_EQ(LargeMemory::RoomFor(100 << 10), size_t{112} << 10);
  EXPECT_EQ(LargeMemory::RoomFor(LargeMemory::kMin), LargeMemory::kMin);
  EXPECT_EQ(LargeMemory::RoomFor(LargeMemory::kMin + 1), size_t{80} << 10);
  EXPECT_EQ(LargeMemory::RoomFor(LargeMemory::kMax), LargeMemory::kMax);
}

TEST(LargeMemoryTest, WhatIsGivenBackIsTakenAgain) {
  const size_t room = LargeMemory::RoomFor(200'000);
  void* const memory = LargeMemory::Take(200'000);
  std::memset(memory, 'x', room);
  const size_t before = LargeMemory::kept_bytes();
  LargeMemory::Give(memory, room);
  if (!kKeeps) {
    EXPECT_EQ(LargeMemory::kept_bytes(), 0u);
    return;
  }
  EXPECT_EQ(LargeMemory::kept_bytes(), before + room);
  void* const again = LargeMemory::Take(room);
  EXPECT_EQ(again, memory);
  EXPECT_EQ(LargeMemory::kept_bytes(), before);
  LargeMemory::Give(again, room);
}

TEST(LargeMemoryTest, NoMoreIsKeptThanTheBound) {
  std::vector<void*> all;
  constexpr size_t kMore = LargeMemory::kKeptMax / LargeMemory::kMax + 4;
  for (size_t i = 0; i < kMore; ++i) all.push_back(LargeMemory::Take(LargeMemory::kMax));
  for (void* memory : all) LargeMemory::Give(memory, LargeMemory::kMax);
  EXPECT_LE(LargeMemory::kept_bytes(), LargeMemory::kKeptMax);
}

TEST(LargeMemoryTest, NoTwoHaveTheSame) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (size_t i = 0; i < 2000; ++i) {
        const size_t bytes = LargeMemory::kMin + (i * 7919) % 200'000;
        const size_t room = LargeMemory::RoomFor(bytes);
        auto* const memory = static_cast<char*>(LargeMemory::Take(bytes));
        memory[0] = memory[room - 1] = static_cast<char>(t);
        std::this_thread::yield();
        ASSERT_EQ(memory[0], static_cast<char>(t));
        ASSERT_EQ(memory[room - 1], static_cast<char>(t));
        LargeMemory::Give(memory, room);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace abacus::runtime
