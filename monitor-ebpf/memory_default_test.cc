// What a program sees that does not link abacus_memory.

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "monitor-ebpf/memory.h"

namespace abacus::monitor {
namespace {

TEST(MemoryWithoutHooksTest, NothingIsCountedAndTheScopeStillNests) {
  const MemoryScope scope(3);
  const auto bytes = std::make_unique<std::array<char, 1000>>();
  EXPECT_FALSE(MemoryIsCounted());
  EXPECT_EQ(MemoryOf(3), 0);
  std::array<uint64_t, 4> all = {9, 9, 9, 9};
  MemoryOfAll(all);
  EXPECT_EQ(all, (std::array<uint64_t, 4>{}));
  EXPECT_EQ(memory_object, 3);
}

}  // namespace
}  // namespace abacus::monitor
