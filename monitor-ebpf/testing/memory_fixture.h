#ifndef ABACUS_MONITOR_EBPF_TESTING_MEMORY_FIXTURE_H_
#define ABACUS_MONITOR_EBPF_TESTING_MEMORY_FIXTURE_H_

// What tests of the memory hooks share: allocations inside an object, and objects of their own.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "monitor-ebpf/memory.h"

namespace abacus::monitor {

// Objects this far apart share an entry of a thread's cache.
inline constexpr uint32_t kEntries = 256;

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

inline void* MallocIn(uint32_t object, size_t size) {
  return In(object, [&] { return Keep(std::malloc(Keep(size))); });
}

inline void FreeIn(uint32_t object, void* pointer) {
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

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_MEMORY_FIXTURE_H_
