#include "placement/planner_terms.h"

#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

constexpr NodeId kNear = 1, kFar = 2;
constexpr ObjectId kTop{1, 1, 1}, kFilter{1, 1, 2}, kCache{1, 1, 3}, kFile{2, 1, 1};
constexpr ObjectId kStranger{7, 7, 7}, kOther{7, 7, 8};

// console --(10 calls, 1 kB)--> filter --(4, 64 kB)--> cache --(2, 64 kB)--> file
Snapshot FourInAChain() {
  Snapshot s;
  for (const ObjectId& id : {kTop, kFilter, kCache}) {
    s.objects.push_back({.id = id, .node = kNear});
  }
  s.objects.push_back({.id = kFile, .node = kFar});
  s.edges = {{.from = kTop, .to = kFilter, .calls = 10, .reply_bytes = 1'000},
             {.from = kFilter, .to = kCache, .calls = 4, .reply_bytes = 64'000},
             {.from = kCache, .to = kFile, .calls = 2, .reply_bytes = 64'000}};
  return s;
}

Move ToServer(const ObjectId& id) { return {.object = id, .from = kNear, .to = kFar}; }

TEST(PlannerTermsTest, FiguresRestOnTheFewerCalls) {
  const Snapshot s = FourInAChain();
  // 10 enter; the edge to the file comes off the link (64 kB), that to the console on it (1 kB).
  EXPECT_EQ(CallsBehind(s, {ToServer(kFilter), ToServer(kCache)}), 2);
  // 4 enter; from the filter to the cache as much as from the cache to the file: the first counts.
  EXPECT_EQ(CallsBehind(s, {ToServer(kCache)}), 4);
}

TEST(PlannerTermsTest, CallsFromAndToWhatIsNotKnownDoNotCount) {
  Snapshot s = FourInAChain();
  s.edges.push_back({.from = kStranger, .to = kCache, .calls = 100, .reply_bytes = 1e9});
  s.edges.push_back({.from = kCache, .to = kOther, .calls = 1, .reply_bytes = 1e9});
  s.edges.push_back({.from = kStranger, .to = kOther, .calls = 1, .reply_bytes = 1e9});
  EXPECT_EQ(CallsBehind(s, {ToServer(kFilter), ToServer(kCache)}), 2);
  EXPECT_EQ(CallsBehind(s, {ToServer(kCache)}), 4);
}

}  // namespace
}  // namespace abacus::placement
