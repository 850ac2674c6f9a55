// What an object holds is charged to it where it is, and goes with it: in a program that counts
// memory, which this test is.

#include <gtest/gtest.h>

#include <cstdio>

#include "monitor-ebpf/memory.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

TEST(MemoryMoveTest, BytesGoWithTheObject) {
  if (!monitor::MemoryIsCounted()) GTEST_SKIP() << "under a sanitizer memory is not counted";
  TenantManager::Counts tenants;
  ClusterOptions options;
  options.nodes = 2;
  options.types = [&](size_t, TestPoints& points, ObjectTypes& types) {
    AddTestObjects(types, &points, 0, &tenants);
  };
  Cluster cluster(options);
  // Both nodes are one process here, so their objects need slots of different numbers.
  std::vector<Ref<Ledger>> others;
  for (int i = 0; i < 20; ++i) others.push_back(cluster.Create<Ledger>(0));
  constexpr uint64_t kBytes = 4 << 20;
  const Ref<Store> store = cluster.Create<Store>(0);
  ASSERT_TRUE(store->Fill(kBytes, 42, /*blocks=*/0).ok());
  const uint32_t before = store.base().entry()->slot;
  EXPECT_GE(monitor::MemoryOf(before), kBytes);

  ASSERT_TRUE(cluster.Move(store.rid(), 0, 1).ok());
  const Ref<Store> moved = cluster[1].RefTo<Store>(store.rid());
  ASSERT_TRUE(moved->Digest().ok());
  const uint32_t after = moved.base().entry()->slot;
  ASSERT_NE(after, before);
  std::printf("of %llu bytes of state: %llu at the source, %llu at the target\n",
              static_cast<unsigned long long>(kBytes),
              static_cast<unsigned long long>(monitor::MemoryOf(before)),
              static_cast<unsigned long long>(monitor::MemoryOf(after)));
  EXPECT_GE(monitor::MemoryOf(after), kBytes);
  EXPECT_TRUE(Eventually([&] { return monitor::MemoryOf(before) < kBytes / 16; }))
      << "the source still holds it";
}

}  // namespace
}  // namespace abacus::runtime::testing
