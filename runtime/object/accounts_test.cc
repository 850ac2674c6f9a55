#include "runtime/object/accounts.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

using SumsMember = uint64_t EdgeSums::*;
constexpr SumsMember kMembers[] = {
    &EdgeSums::calls,          &EdgeSums::request_bytes,
    &EdgeSums::reply_bytes,    &EdgeSums::busy_ticks,
    &EdgeSums::blocked_ticks,  &EdgeSums::ready_ticks,
    &EdgeSums::disk_ticks,     &EdgeSums::remote_calls,
    &EdgeSums::remote_wait_ns, &EdgeSums::remote_network_ns,
};
using CellMember = AccountCell::Field AccountCell::*;
constexpr CellMember kFields[] = {
    &AccountCell::calls,          &AccountCell::request_bytes,
    &AccountCell::reply_bytes,    &AccountCell::busy_ticks,
    &AccountCell::blocked_ticks,  &AccountCell::ready_ticks,
    &AccountCell::disk_ticks,     &AccountCell::remote_calls,
    &AccountCell::remote_wait_ns, &AccountCell::remote_network_ns,
};
constexpr size_t kFieldCount = std::size(kFields);
static_assert(sizeof(EdgeSums) == std::size(kMembers) * sizeof(uint64_t), "a sum is not tested");
static_assert(kFieldCount == std::size(kMembers));

EdgeKey KeyOf(uint32_t caller, uint32_t callee) {
  return static_cast<EdgeKey>(caller) << 32 | callee;
}

EdgeSumsByKey Collected(const ThreadAccounts& accounts) {
  EdgeSumsByKey sums;
  accounts.Collect(sums);
  return sums;
}

TEST(EdgeSumsTest, AddAndSinceTouchEveryField) {
  EdgeSums a;
  EdgeSums b;
  for (size_t i = 0; i < kFieldCount; ++i) {
    a.*kMembers[i] = 100 + i;
    b.*kMembers[i] = 10 * i;
  }
  EdgeSums sum = a;
  sum.Add(b);
  const EdgeSums since = sum.Since(a);
  for (size_t i = 0; i < kFieldCount; ++i) {
    EXPECT_EQ(sum.*kMembers[i], 100 + i + 10 * i) << i;
    EXPECT_EQ(since.*kMembers[i], 10 * i) << i;
  }
}

TEST(AccountsTest, EveryFieldOfACellIsCollectedUnderItsEdge) {
  const auto accounts = std::make_unique<ThreadAccounts>();
  for (uint32_t edge = 1; edge <= 2; ++edge) {
    AccountCell& cell = accounts->Cell(edge, edge + 1);
    for (size_t i = 0; i < kFieldCount; ++i) AccountCell::Bump(cell.*kFields[i], edge * (1 + i));
  }
  const EdgeSumsByKey sums = Collected(*accounts);
  ASSERT_EQ(sums.size(), 2u);
  for (uint32_t edge = 1; edge <= 2; ++edge) {
    for (size_t i = 0; i < kFieldCount; ++i) {
      EXPECT_EQ(sums.at(KeyOf(edge, edge + 1)).*kMembers[i], edge * (1 + i)) << i;
    }
  }
}

TEST(AccountsTest, CallerAndCalleeAreToldApart) {
  const auto accounts = std::make_unique<ThreadAccounts>();
  AccountCell::Bump(accounts->Cell(3, 5).calls, 1);
  AccountCell::Bump(accounts->Cell(5, 3).calls, 10);
  AccountCell::Bump(accounts->Cell(kOutsideSlot, 3).calls, 100);
  AccountCell::Bump(accounts->Cell(3, kOutsideSlot).calls, 1000);
  const EdgeSumsByKey sums = Collected(*accounts);
  EXPECT_EQ(sums.at(KeyOf(3, 5)).calls, 1u);
  EXPECT_EQ(sums.at(KeyOf(5, 3)).calls, 10u);
  EXPECT_EQ(sums.at(KeyOf(0, 3)).calls, 100u);
  EXPECT_EQ(sums.at(KeyOf(3, 0)).calls, 1000u);
}

TEST(AccountsTest, TimeOutsideOfAllObjectsIsNobodys) {
  const auto accounts = std::make_unique<ThreadAccounts>();
  AccountCell::Bump(accounts->Cell(kOutsideSlot, kOutsideSlot).busy_ticks, 5);
  EXPECT_TRUE(Collected(*accounts).empty());
}

TEST(AccountsTest, EvictionOfCollidingEdgesLosesNothing) {
  // Ten times the edges that there are cells, in an order that makes them push each other out.
  constexpr uint32_t kEdges = 10 * ThreadAccounts::kCells;
  const auto accounts = std::make_unique<ThreadAccounts>();
  std::vector<std::array<uint64_t, kFieldCount>> expected(kEdges);
  std::mt19937 random(1);
  for (int round = 0; round < 200000; ++round) {
    const uint32_t edge = random() % kEdges;
    const size_t field = random() % kFieldCount;
    const uint64_t by = random() % 1000;
    AccountCell::Bump(accounts->Cell(edge / 50 + 1, edge % 50 + 1).*kFields[field], by);
    expected[edge][field] += by;
  }
  const EdgeSumsByKey sums = Collected(*accounts);
  for (uint32_t edge = 0; edge < kEdges; ++edge) {
    for (size_t i = 0; i < kFieldCount; ++i) {
      ASSERT_EQ(sums.at(KeyOf(edge / 50 + 1, edge % 50 + 1)).*kMembers[i], expected[edge][i])
          << edge << ' ' << i;
    }
  }
  EXPECT_EQ(sums.size(), kEdges);
}

TEST(AccountsTest, SumsOfEdgesThatAreGoneAreDropped) {
  constexpr uint32_t kEdges = 10 * ThreadAccounts::kCells;
  const auto accounts = std::make_unique<ThreadAccounts>();
  for (uint32_t edge = 1; edge <= kEdges; ++edge)
    AccountCell::Bump(accounts->Cell(edge, 1).calls, 1);
  accounts->Prune([](EdgeKey key) { return (key >> 32) % 2 == 0; });
  const EdgeSumsByKey sums = Collected(*accounts);
  // Beside those that are known, only what still stands in a cell.
  EXPECT_LE(sums.size(), kEdges / 2 + ThreadAccounts::kCells);
  for (uint32_t edge = 2; edge <= kEdges; edge += 2) {
    EXPECT_EQ(sums.at(KeyOf(edge, 1)).calls, 1u) << edge;
  }
}

TEST(AccountsTest, CollectWhileWritingSeesNoEdgeTwiceOrNotAtAll) {
  constexpr uint32_t kEdges = 4 * ThreadAccounts::kCells;
  constexpr uint64_t kRounds = 400;
  // Two writers, each with accounts of its own, as the threads of a node have.
  std::array<ThreadAccounts, 2> accounts;
  std::atomic<int> writing{2};
  std::vector<std::thread> writers;
  for (ThreadAccounts& mine : accounts) {
    writers.emplace_back([&mine, &writing] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        for (uint32_t edge = 1; edge <= kEdges; ++edge) {
          AccountCell::Bump(mine.Cell(edge, 1).calls, 1);
        }
      }
      writing.fetch_sub(1);
    });
  }
  // Sums only grow. An edge that is counted twice shows as a later fall, a missed one as a fall
  // now.
  EdgeSumsByKey before;
  uint64_t collections = 0;
  bool last = false;
  while (!last) {
    last = writing.load() == 0;
    EdgeSumsByKey now;
    for (const ThreadAccounts& one : accounts) one.Collect(now);
    for (const auto& [key, sums] : before) {
      ASSERT_TRUE(now.contains(key)) << key;
      ASSERT_GE(now[key].calls, sums.calls) << key;
      ASSERT_LE(now[key].calls, 2 * kRounds) << key;
    }
    before = std::move(now);
    ++collections;
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_EQ(before.size(), kEdges);
  for (const auto& [key, sums] : before) ASSERT_EQ(sums.calls, 2 * kRounds) << key;
  EXPECT_GE(collections, 2u);
}

}  // namespace
}  // namespace abacus::runtime
