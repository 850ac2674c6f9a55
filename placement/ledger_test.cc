#include "placement/ledger.h"

#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/snapshots.h"

namespace abacus::placement {
namespace {

using namespace placement::testing;  // NOLINT: the sample world

double LoadAfter(const Ledger& ledger, double now_s, double window_s) {
  Snapshot s = GrepSnapshot();
  NodeOf(s, kServer).load = 1;
  ledger.Apply(now_s, window_s, &s);
  return NodeOf(s, kServer).load;
}

TEST(LedgerTest, WhatTheWindowHasNotMeasuredYetIsAdded) {
  Ledger ledger;
  ledger.Add(kServer, kConsole, 0.4, 0, 10);
  EXPECT_NEAR(LoadAfter(ledger, 10, 1), 1.4, 1e-12);
  EXPECT_NEAR(LoadAfter(ledger, 10.25, 1), 1.3, 1e-12) << "a quarter of it is measured";
  EXPECT_NEAR(LoadAfter(ledger, 11, 1), 1, 1e-12);
  EXPECT_NEAR(LoadAfter(ledger, 10.25, 0.25), 1, 1e-12) << "a window that began after the move";
}

TEST(LedgerTest, LoadsAndFreeMemoryNeverFallBelowZero) {
  Ledger ledger;
  ledger.Add(kServer, kConsole, -3, 1e9, 10);
  Snapshot s = GrepSnapshot();
  NodeOf(s, kServer).memory_free_bytes = 1e6;
  ledger.Apply(10, 1, &s);
  EXPECT_EQ(NodeOf(s, kServer).load, 0);
  EXPECT_EQ(*NodeOf(s, kServer).memory_free_bytes, 0);
}

TEST(LedgerTest, ChangesForOthersInTheLastWindowAreSummedWithoutTheirSign) {
  const ObjectId other{8, 1, 1};
  Ledger ledger;
  ledger.Add(kServer, kConsole, 0.4, 0, 10);
  ledger.Add(kServer, kConsole, -0.3, 0, 10.5);
  EXPECT_NEAR(ledger.ChangedByOthers(kServer, other, 10.6, 1), 0.7, 1e-12);
  EXPECT_NEAR(ledger.ChangedByOthers(kServer, other, 11.2, 1), 0.3, 1e-12);
  EXPECT_EQ(ledger.ChangedByOthers(kServer, kConsole, 10.6, 1), 0) << "its own";
  EXPECT_EQ(ledger.ChangedByOthers(kClient, other, 10.6, 1), 0);
}

TEST(LedgerTest, WhoBroughtLoadToANodeIsNamedOnce) {
  const ObjectId one{8, 1, 1}, two{9, 1, 1};
  Ledger ledger;
  ledger.Add(kServer, one, 0.4, 0, 10);
  ledger.Add(kServer, one, 0.1, 0, 10);
  ledger.Add(kServer, two, -0.3, 0, 10.5);
  ledger.Add(kServer, kConsole, 0.3, 0, 10.5);
  EXPECT_EQ(ledger.CameFor(kServer, kConsole, 10.6, 1), std::vector<ObjectId>{one});
  EXPECT_TRUE(ledger.CameFor(kServer, kConsole, 11, 1).empty());
  EXPECT_TRUE(ledger.CameFor(kClient, kConsole, 10.6, 1).empty());
}

TEST(LedgerTest, AClaimKeepsOthersOffUntilItIsReleasedOrLapses) {
  Ledger ledger;
  const ObjectId other{8, 1, 1};
  ledger.Claim(kGrep, kConsole, 10, 5);
  EXPECT_TRUE(ledger.Claimed(kGrep, other, 14.9));
  EXPECT_FALSE(ledger.Claimed(kGrep, kConsole, 11)) << "its own";
  EXPECT_FALSE(ledger.Claimed(kGrep, other, 15));
  ledger.Release(kConsole);
  EXPECT_FALSE(ledger.Claimed(kGrep, other, 11));
}

TEST(LedgerTest, KeepsNoMoreChangesThanItsLimitAndNothingOlderThanAWindow) {
  Ledger ledger;
  for (size_t i = 0; i < 2 * Ledger::kChangesMax; ++i) ledger.Add(kServer, kConsole, 1, 0, 10);
  EXPECT_NEAR(ledger.ChangedByOthers(kServer, {8, 1, 1}, 10, 1), Ledger::kChangesMax, 1e-9);
  ledger.Claim(kGrep, kConsole, 10, 0.5);
  ledger.Trim(11, 1);
  EXPECT_EQ(ledger.size(), 0u);
}

}  // namespace
}  // namespace abacus::placement
