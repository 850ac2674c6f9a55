#include "runtime/object/accounts.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

using SumsMember = uint64_t EdgeSums::*;
constexpr SumsMember kMembers[] = {
    &EdgeSums::calls,        &EdgeSums::request_bytes,      &EdgeSums::reply_bytes,
    &EdgeSums::busy_ticks,   &EdgeSums::blocked_ticks,      &EdgeSums::ready_ticks,
    &EdgeSums::disk_ticks,   &EdgeSums::voluntary_switches, &EdgeSums::involuntary_switches,
    &EdgeSums::remote_calls, &EdgeSums::remote_wait_ns,     &EdgeSums::remote_network_ns,
};
using Field = AccountCell::Field;
using FieldOf = Field& (*)(AccountCell&);
constexpr FieldOf kFields[] = {
    [](AccountCell& cell) -> Field& { return cell.calls; },
    [](AccountCell& cell) -> Field& { return cell.request_bytes; },
    [](AccountCell& cell) -> Field& { return cell.reply_bytes; },
    [](AccountCell& cell) -> Field& { return cell.busy_ticks; },
    [](AccountCell& cell) -> Field& { return cell.blocked_ticks; },
    [](AccountCell& cell) -> Field& { return cell.ready_ticks; },
    [](AccountCell& cell) -> Field& { return cell.rest().disk_ticks; },
    [](AccountCell& cell) -> Field& { return cell.rest().voluntary_switches; },
    [](AccountCell& cell) -> Field& { return cell.rest().involuntary_switches; },
    [](AccountCell& cell) -> Field& { return cell.rest().remote_calls; },
    [](AccountCell& cell) -> Field& { return cell.rest().remote_wait_ns; },
    [](AccountCell& cell) -> Field& { return cell.rest().remote_network_ns; },
};
constexpr size_t kFieldCount = std::size(kFields);
static_assert(sizeof(EdgeSums) == std::size(kMembers) * sizeof(uint64_t), "a sum is not tested");
static_assert(kFieldCount == std::size(kMembers));

EdgeKey KeyOf(uint32_t caller, uint32_t callee) {
  return static_cast<EdgeKey>(caller) << 32 | callee;
}

// Those of one thread, and the pool that they are in.
struct OneThread {
  explicit OneThread(const AccountLimits& limits = {})
      : pool(std::make_shared<AccountPool>(limits)), accounts(pool) {}
  AccountCell& Cell(uint32_t caller, uint32_t callee) { return accounts.Cell(caller, callee); }

  std::shared_ptr<AccountPool> pool;
  ThreadAccounts accounts;
};

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
  OneThread thread;
  for (uint32_t edge = 1; edge <= 2; ++edge) {
    AccountCell& cell = thread.Cell(edge, edge + 1);
    for (size_t i = 0; i < kFieldCount; ++i) AccountCell::Bump(kFields[i](cell), edge * (1 + i));
  }
  const EdgeSumsByKey sums = thread.pool->Collect();
  ASSERT_EQ(sums.size(), 2u);
  for (uint32_t edge = 1; edge <= 2; ++edge) {
    for (size_t i = 0; i < kFieldCount; ++i) {
      EXPECT_EQ(sums.at(KeyOf(edge, edge + 1)).*kMembers[i], edge * (1 + i)) << i;
    }
  }
}

TEST(AccountsTest, CallerAndCalleeAreToldApart) {
  OneThread thread;
  AccountCell::Bump(thread.Cell(3, 5).calls, 1);
  AccountCell::Bump(thread.Cell(5, 3).calls, 10);
  AccountCell::Bump(thread.Cell(kOutsideSlot, 3).calls, 100);
  AccountCell::Bump(thread.Cell(3, kOutsideSlot).calls, 1000);
  const EdgeSumsByKey sums = thread.pool->Collect();
  EXPECT_EQ(sums.at(KeyOf(3, 5)).calls, 1u);
  EXPECT_EQ(sums.at(KeyOf(5, 3)).calls, 10u);
  EXPECT_EQ(sums.at(KeyOf(0, 3)).calls, 100u);
  EXPECT_EQ(sums.at(KeyOf(3, 0)).calls, 1000u);
}

TEST(AccountsTest, TimeOutsideOfAllObjectsIsNobodys) {
  OneThread thread;
  // Also where its place in the index is taken.
  for (uint32_t edge = 1; edge < 5000; ++edge) thread.Cell(edge, 1);
  const size_t edges = thread.pool->Collect().size();
  AccountCell::Bump(thread.Cell(kOutsideSlot, kOutsideSlot).busy_ticks, 5);
  EXPECT_EQ(thread.pool->Collect().size(), edges);
  EXPECT_FALSE(thread.pool->Collect().contains(0));
}

// What accounts do, by the simplest means: against it, random runs under limits that are met often.
class Model {
 public:
  void Bump(EdgeKey key, size_t field, uint64_t by) {
    if (key != 0) edges_[key][field] += by;
  }
  void Prune(const std::set<uint32_t>& gone) {
    std::erase_if(edges_, [&](const auto& edge) { return gone.contains(CalleeOf(edge.first)); });
  }
  void Compare(const EdgeSumsByKey& sums) const {
    for (const auto& [key, fields] : edges_) {
      const auto it = sums.find(key);
      ASSERT_NE(it, sums.end()) << key;
      for (size_t i = 0; i < kFieldCount; ++i) {
        ASSERT_EQ(it->second.*kMembers[i], fields[i]) << key << ' ' << i;
      }
    }
    ASSERT_EQ(sums.size(), edges_.size());
  }

 private:
  std::map<EdgeKey, std::array<uint64_t, kFieldCount>> edges_;
};

// Several threads' accounts, that come and go, written one after the other.
void PlayAgainstModel(uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  // Enough cells for one thread to grow, for few, or for none.
  const AccountLimits limits{.of_thread = size_t{64} << below(6), .of_threads = 64u * below(20)};
  const auto pool = std::make_shared<AccountPool>(limits);
  std::array<std::optional<ThreadAccounts>, 3> threads;
  Model model;
  const uint32_t edges = 1 + below(3000);
  for (int step = 0; step < 20000; ++step) {
    std::optional<ThreadAccounts>& thread = threads[below(threads.size())];
    if (!thread) thread.emplace(pool);
    const EdgeKey key = KeyOf(below(edges) / 50 | (below(8) == 0 ? kBackgroundBit : 0), below(50));
    const size_t field = below(kFieldCount);
    AccountCell& cell = thread->Cell(static_cast<uint32_t>(key >> 32), CalleeOf(key));
    AccountCell::Bump(kFields[field](cell), static_cast<uint64_t>(step));
    model.Bump(key, field, static_cast<uint64_t>(step));
    if (below(2000) == 0) thread.reset();
    if (below(2000) == 0) {
      // Some of them are called again later: as if new.
      const std::set<uint32_t> gone = {below(50), below(50), below(50), below(50), below(50)};
      pool->Prune([&gone](EdgeKey one) { return !gone.contains(CalleeOf(one)); });
      model.Prune(gone);
    }
    if (below(1000) == 0) {
      ASSERT_NO_FATAL_FAILURE(model.Compare(pool->Collect()));
    }
  }
  ASSERT_NO_FATAL_FAILURE(model.Compare(pool->Collect()));
  EXPECT_EQ(pool->lost(), 0u);
}

// What a local call changes is in the cell itself, a line of the caches; the rest is elsewhere.
TEST(AccountsTest, ALocalCallChangesOneCacheLine) {
  OneThread thread;
  for (uint32_t edge = 1; edge < 5000; ++edge) {
    AccountCell& cell = thread.Cell(edge, 1);
    const auto begin = reinterpret_cast<uintptr_t>(&cell);
    ASSERT_EQ(begin % 64, 0u);
    for (Field* field : {&cell.calls, &cell.request_bytes, &cell.reply_bytes, &cell.busy_ticks}) {
      ASSERT_EQ(reinterpret_cast<uintptr_t>(field) / 64, begin / 64);
    }
    const auto rest = reinterpret_cast<uintptr_t>(&cell.rest());
    ASSERT_EQ(rest % 64, 0u);
    ASSERT_NE(rest, begin);
  }
}

TEST(AccountsTest, RandomCallsUnderRandomLimitsAreCountedAsByAMap) {
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    ASSERT_NO_FATAL_FAILURE(PlayAgainstModel(seed));
  }
}

TEST(AccountsTest, CellsOfEdgesThatAreGoneAreUsedAgain) {
  // Room for 64 cells and nothing beside: what is not used again is dropped and counted.
  OneThread thread({.of_thread = 64, .of_threads = 0, .of_the_rest = 0});
  for (uint32_t edge = 1; edge <= 10000; ++edge) {
    AccountCell::Bump(thread.Cell(edge, 1).calls, edge);
    if (edge % 50 != 0) continue;
    thread.pool->Prune([edge](EdgeKey key) { return CallerOf(key) == edge; });
    const EdgeSumsByKey sums = thread.pool->Collect();
    ASSERT_EQ(sums.size(), 1u);
    ASSERT_EQ(sums.at(KeyOf(edge, 1)).calls, edge);
  }
  EXPECT_EQ(thread.pool->lost(), 0u);
}

TEST(AccountsTest, WhatThereIsNoRoomForIsCounted) {
  OneThread thread({.of_thread = 64, .of_threads = 0, .of_the_rest = 100});
  for (uint32_t edge = 1; edge <= 1000; ++edge) AccountCell::Bump(thread.Cell(edge, 1).calls, 1);
  const EdgeSumsByKey sums = thread.pool->Collect();
  EXPECT_EQ(sums.size() + thread.pool->lost(), 1000u);
  EXPECT_GE(sums.size(), 100u);
  EXPECT_LE(sums.size(), 164u);
}

TEST(AccountsTest, SumsOfAThreadThatEndsStayAndItsCellsAreGivenToOthers) {
  const auto pool = std::make_shared<AccountPool>(AccountLimits{.of_threads = 1024});
  for (int round = 0; round < 20; ++round) {
    ThreadAccounts thread(pool);
    for (uint32_t edge = 1; edge <= 1000; ++edge) AccountCell::Bump(thread.Cell(edge, 1).calls, 1);
  }
  const EdgeSumsByKey sums = pool->Collect();
  ASSERT_EQ(sums.size(), 1000u);
  for (const auto& [key, of_edge] : sums) ASSERT_EQ(of_edge.calls, 20u) << key;
}

// Writers that add edges, meet their limits, end and begin anew, while one collects and one prunes.
TEST(AccountsTest, CollectWhileWritingSeesNoEdgeTwiceOrNotAtAll) {
  constexpr uint32_t kEdges = 1000;
  constexpr uint64_t kRounds = 200;
  constexpr uint32_t kPruned = 1u << 20;  // callers from here on are taken for gone
  const auto pool =
      std::make_shared<AccountPool>(AccountLimits{.of_thread = 512, .of_threads = 600});
  std::atomic<int> writing{2};
  std::atomic<uint64_t> collections{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&pool, &writing, &collections] {
      std::optional<ThreadAccounts> mine;
      for (uint64_t round = 0; round < kRounds; ++round) {
        if (round % 16 == 0) mine.emplace(pool);
        for (uint32_t edge = 1; edge <= kEdges; ++edge) {
          AccountCell::Bump(mine->Cell(edge, 1).calls, 1);
          if (edge % 4 == 0) AccountCell::Bump(mine->Cell(kPruned + edge, 1).calls, 1);
        }
      }
      while (collections.load() == 0) std::this_thread::yield();
      mine.reset();
      writing.fetch_sub(1);
    });
  }
  std::thread pruner([&pool, &writing] {
    while (writing.load() != 0) {
      pool->Prune([](EdgeKey key) { return CallerOf(key) < kPruned; });
      std::this_thread::yield();
    }
  });
  // Sums only grow. An edge that is counted twice shows as a later fall, a missed one as a fall
  // now.
  EdgeSumsByKey before;
  bool last = false;
  while (!last) {
    last = writing.load() == 0;
    EdgeSumsByKey now = pool->Collect();
    absl::erase_if(now, [](const auto& edge) { return CallerOf(edge.first) >= kPruned; });
    for (const auto& [key, sums] : before) {
      ASSERT_TRUE(now.contains(key)) << key;
      ASSERT_GE(now[key].calls, sums.calls) << key;
      ASSERT_LE(now[key].calls, 2 * kRounds) << key;
    }
    before = std::move(now);
    ++collections;
  }
  for (std::thread& writer : writers) writer.join();
  pruner.join();
  ASSERT_EQ(before.size(), kEdges);
  for (const auto& [key, sums] : before) ASSERT_EQ(sums.calls, 2 * kRounds) << key;
  EXPECT_GE(collections.load(), 2u);
  EXPECT_EQ(pool->lost(), 0u);
}

}  // namespace
}  // namespace abacus::runtime
