#include "runtime/binding/location_table.h"

#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/testing/sanitized.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kSelf{1, 10};
constexpr NodeInstance kHost{2, 20};
constexpr NodeInstance kOtherHost{3, 30};

Rid Own(uint64_t local) { return {kSelf, local}; }
Rid Foreign(uint64_t local) { return {{9, 90}, local}; }

TEST(LocationTableTest, NewRowSaysThatTheObjectIsHereInItsFirstEpoch) {
  LocationTable table(kSelf, 10);
  EXPECT_EQ(table.FindRow(Own(5)), nullptr);
  EXPECT_FALSE(table.Find(Own(5)).has_value());
  LocationRow& row = table.AddRow(Own(5));
  EXPECT_EQ(row.host, kSelf);
  EXPECT_EQ(row.epoch, 1u);
  EXPECT_FALSE(row.last.valid());
  EXPECT_FALSE(row.intent.valid());
  EXPECT_FALSE(row.lost);
  EXPECT_EQ(table.FindRow(Own(5)), &row);
  EXPECT_EQ(table.rows(), 1u);
}

TEST(LocationTableTest, FindReadsTheRowAndNotWhatIsSaidOfIt) {
  LocationTable table(kSelf, 10);
  LocationRow& row = table.AddRow(Own(5));
  row.host = kHost;
  row.epoch = 3;
  table.Learn(Own(5), kOtherHost, 99);
  const std::optional<LocationHint> hint = table.Find(Own(5));
  ASSERT_TRUE(hint.has_value());
  EXPECT_EQ(hint->host, kHost);
  EXPECT_EQ(hint->epoch, 3u);
  EXPECT_EQ(table.hints(), 0u);
}

TEST(LocationTableTest, RidsOfOthersAndOfEarlierLivesHaveNoRowHere) {
  LocationTable table(kSelf, 10);
  table.AddRow(Own(5));
  const Rid earlier_life{{kSelf.node, kSelf.incarnation - 1}, 5};
  EXPECT_EQ(table.FindRow(Foreign(5)), nullptr);
  EXPECT_EQ(table.FindRow(earlier_life), nullptr);
  EXPECT_FALSE(table.Find(earlier_life).has_value());
  table.EraseRow(Foreign(5));
  table.EraseRow(earlier_life);
  EXPECT_NE(table.FindRow(Own(5)), nullptr) << "a foreign rid of the same number took the row";
  table.EraseRow(Own(5));
  EXPECT_EQ(table.FindRow(Own(5)), nullptr);
}

TEST(LocationTableTest, VisitSeesEveryRowOnceAndMayChangeIt) {
  LocationTable table(kSelf, 10);
  for (uint64_t local = 1; local <= 100; ++local) table.AddRow(Own(local));
  std::set<Rid> seen;
  table.ForEachRow([&](const Rid& rid, LocationRow& row) {
    EXPECT_TRUE(seen.insert(rid).second);
    row.epoch = rid.local;
  });
  EXPECT_EQ(seen.size(), 100u);
  for (uint64_t local = 1; local <= 100; ++local) {
    EXPECT_EQ(table.FindRow(Own(local))->epoch, local);
  }
}

TEST(LocationTableTest, OlderOrEqualEpochNeverOverwritesANewerOne) {
  LocationTable table(kSelf, 10);
  table.Learn(Foreign(1), kHost, 5);
  table.Learn(Foreign(1), kOtherHost, 4);
  EXPECT_EQ(table.Find(Foreign(1))->host, kHost);
  table.Learn(Foreign(1), kOtherHost, 5);
  EXPECT_EQ(table.Find(Foreign(1))->host, kHost);
  table.Learn(Foreign(1), kOtherHost, 6);
  EXPECT_EQ(table.Find(Foreign(1))->host, kOtherHost);
  EXPECT_EQ(table.Find(Foreign(1))->epoch, 6u);
  EXPECT_EQ(table.hints(), 1u);
}

TEST(LocationTableTest, ThisNodeIsNeverAHint) {
  LocationTable table(kSelf, 10);
  table.Learn(Foreign(1), kSelf, 5);
  EXPECT_FALSE(table.Find(Foreign(1)).has_value());
}

TEST(LocationTableTest, WhatIsForgottenMayBeLearntAnew) {
  LocationTable table(kSelf, 10);
  table.Learn(Foreign(1), kHost, 5);
  table.Forget(Foreign(1));
  table.Forget(Foreign(2));
  EXPECT_FALSE(table.Find(Foreign(1)).has_value());
  // A forgotten hint bars nothing: it was only believed.
  table.Learn(Foreign(1), kOtherHost, 2);
  EXPECT_EQ(table.Find(Foreign(1))->host, kOtherHost);
}

TEST(LocationTableTest, DeadHostTakesItsHintsAndNoOthers) {
  LocationTable table(kSelf, 10);
  const NodeInstance restarted{kHost.node, kHost.incarnation + 1};
  table.AddRow(Own(7)).host = kHost;
  table.Learn(Foreign(1), kHost, 1);
  table.Learn(Foreign(2), kOtherHost, 1);
  table.Learn(Foreign(3), restarted, 1);
  table.ForgetHost(kHost);
  EXPECT_FALSE(table.Find(Foreign(1)).has_value());
  EXPECT_TRUE(table.Find(Foreign(2)).has_value());
  EXPECT_TRUE(table.Find(Foreign(3)).has_value());
  EXPECT_EQ(table.Find(Own(7))->host, kHost) << "a row is the truth until its home changes it";
}

TEST(LocationTableTest, OldestHintsGoFirstBeyondTheLimitAndAreCounted) {
  constexpr size_t kHints = 100;
  LocationTable table(kSelf, kHints);
  for (uint64_t local = 1; local <= 250; ++local) {
    table.Learn(Foreign(local), kHost, 1);
    EXPECT_LE(table.hints(), kHints);
  }
  EXPECT_EQ(table.hints(), kHints);
  EXPECT_EQ(table.hints_evicted(), 150u);
  for (uint64_t local = 1; local <= 250; ++local) {
    EXPECT_EQ(table.Find(Foreign(local)).has_value(), local > 150) << local;
  }
}

TEST(LocationTableTest, HintThatIsLearntAnewAfterItWasForgottenIsYoung) {
  LocationTable table(kSelf, 3);
  table.Learn(Foreign(1), kHost, 1);
  table.Learn(Foreign(2), kHost, 1);
  table.Forget(Foreign(1));
  table.Learn(Foreign(1), kHost, 1);
  table.Learn(Foreign(3), kHost, 1);
  table.Learn(Foreign(4), kHost, 1);
  EXPECT_FALSE(table.Find(Foreign(2)).has_value());
  EXPECT_TRUE(table.Find(Foreign(1)).has_value());
}

TEST(LocationTableTest, EvictionLeavesRowsAlone) {
  LocationTable table(kSelf, 5);
  for (uint64_t local = 1; local <= 100; ++local) {
    table.AddRow(Own(local));
    table.Learn(Foreign(local), kHost, 1);
  }
  EXPECT_EQ(table.rows(), 100u);
  EXPECT_EQ(table.hints(), 5u);
}

TEST(LocationTablePropertyTest, RandomHintsAgreeWithAModel) {
  constexpr uint64_t kRids = 40;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    // Below the number of rids at times, so that hints are evicted.
    const size_t limit = 1 + random() % 60;
    LocationTable table(kSelf, limit);
    std::map<Rid, LocationHint> model;  // all that was learnt and not forgotten since
    for (int step = 0; step < 2000; ++step) {
      const Rid rid = Foreign(random() % kRids);
      const NodeInstance host{static_cast<NodeId>(2 + random() % 4), 1};
      const uint64_t action = random() % 20;
      if (action == 0) {
        table.ForgetHost(host);
        std::erase_if(model, [&](const auto& hint) { return hint.second.host == host; });
      } else if (action == 1) {
        table.Forget(rid);
        model.erase(rid);
      } else {
        if (!table.Find(rid).has_value()) model.erase(rid);  // evicted
        const LocationHint learnt{host, 1 + random() % 50};
        table.Learn(rid, learnt.host, learnt.epoch);
        const auto [it, added] = model.emplace(rid, learnt);
        if (!added && learnt.epoch > it->second.epoch) it->second = learnt;
        ASSERT_TRUE(table.Find(rid).has_value()) << "the newest hint was evicted";
      }
      ASSERT_LE(table.hints(), limit);
      const std::optional<LocationHint> found = table.Find(rid);
      const auto expected = model.find(rid);
      if (!found.has_value()) {
        ASSERT_TRUE(expected == model.end() || table.hints_evicted() > 0) << rid.ToString();
        continue;
      }
      ASSERT_TRUE(expected != model.end()) << rid.ToString();
      ASSERT_EQ(found->host, expected->second.host) << rid.ToString();
      ASSERT_EQ(found->epoch, expected->second.epoch) << rid.ToString();
    }
    EXPECT_TRUE(limit < kRids || table.hints_evicted() == 0);
  }
}

// -- a million rids -------------------------------------------------------------------------------

constexpr uint64_t kMany = testing::kSanitized ? 200'000 : 1'000'000;

// Bytes that the allocator has handed out; nothing where a sanitizer has put its own in place.
std::optional<size_t> HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  if (info.uordblks == 0) return std::nullopt;
  return info.uordblks + info.hblkhd;
}

// Runs `insert` and `find` over a million numbers, prints what each costs, and holds it against
// bounds that leave much room: they are to catch a wrong data structure, not a busy machine.
template <typename Insert, typename Find>
void ExpectScales(const char* what, size_t row_bytes_max, Insert insert, Find find) {
  using Clock = std::chrono::steady_clock;
  const auto ns_per_row = [](Clock::duration elapsed) {
    return std::chrono::duration<double, std::nano>(elapsed).count() / kMany;
  };
  // A fixed mixing of the numbers: rids are not asked for in the order in which they were made.
  const auto mixed = [](uint64_t i) { return i * 7'368'787 % kMany; };

  const std::optional<size_t> before = HeapBytes();
  const Clock::time_point start = Clock::now();
  for (uint64_t i = 0; i < kMany; ++i) insert(i);
  const Clock::time_point inserted = Clock::now();
  uint64_t found = 0;
  for (uint64_t i = 0; i < kMany; ++i) found += find(mixed(i)) ? 1 : 0;
  const Clock::time_point done = Clock::now();
  EXPECT_EQ(found, kMany);
  EXPECT_FALSE(find(kMany + 1));

  std::printf("%s: insert %.0f ns, find %.0f ns", what, ns_per_row(inserted - start),
              ns_per_row(done - inserted));
  if (const std::optional<size_t> after = HeapBytes(); before.has_value() && after.has_value()) {
    const size_t row_bytes = (*after - *before) / kMany;
    std::printf(", %zu bytes a row\n", row_bytes);
    EXPECT_LE(row_bytes, row_bytes_max);
  } else {
    std::printf(", memory not measured: the allocator is a sanitizer's\n");
  }
  EXPECT_LT(ns_per_row(done - start), 20'000);
}

TEST(LocationTableScaleTest, MillionRows) {
  LocationTable table(kSelf, 10);
  ExpectScales(
      "rows", 256, [&](uint64_t i) { table.AddRow(Own(i)); },
      [&](uint64_t i) { return table.Find(Own(i)).has_value(); });
  EXPECT_EQ(table.rows(), kMany);
}

TEST(LocationTableScaleTest, MillionHints) {
  LocationTable table(kSelf, kMany);
  ExpectScales(
      "hints", 256, [&](uint64_t i) { table.Learn(Foreign(i), kHost, 1); },
      [&](uint64_t i) { return table.Find(Foreign(i)).has_value(); });
  EXPECT_EQ(table.hints(), kMany);
}

TEST(LocationTableScaleTest, MillionHintsThroughATableThatKeepsFew) {
  LocationTable table(kSelf, 65536);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < kMany; ++i) table.Learn(Foreign(i), kHost, 1);
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("hints beyond the limit: learn %.0f ns\n", elapsed.count() / kMany);
  EXPECT_EQ(table.hints_evicted(), kMany - 65536);
  // Looking through all hints for the oldest takes 100 us and more, and more with a sanitizer.
  EXPECT_LT(elapsed.count() / kMany, testing::kSanitized ? 200'000 : 20'000);
}

TEST(LocationTableScaleTest, ForgettingAndLearningAgainDoesNotGrow) {
  // Hints that are forgotten stay in the line of evictions for a while, and must leave it.
  LocationTable table(kSelf, 1000);
  std::optional<size_t> after_some;
  for (uint64_t round = 0; round < 300; ++round) {
    for (uint64_t i = 0; i < 1000; ++i) table.Learn(Foreign(round * 1000 + i), kHost, 1);
    table.ForgetHost(kHost);
    if (round == 20) after_some = HeapBytes();
  }
  const std::optional<size_t> after_all = HeapBytes();
  if (!after_some.has_value() || !after_all.has_value()) {
    GTEST_SKIP() << "the allocator is a sanitizer's";
  }
  EXPECT_LE(*after_all, *after_some + 100'000);
}

}  // namespace
}  // namespace abacus::runtime
