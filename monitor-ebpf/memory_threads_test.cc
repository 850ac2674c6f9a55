// Sums are exact at quiet points, whichever threads allocate and free, come and go.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <latch>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor-ebpf/memory.h"
#include "monitor-ebpf/testing/memory_fixture.h"

namespace abacus::monitor {
namespace {

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
