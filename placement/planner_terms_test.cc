#include "placement/planner_terms.h"

#include <vector>

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

// A directory at its client that computes 0.055 s in a window and takes 0.12 s at the server,
// of 1.03.
Decision ADirectory() {
  Decision d;
  d.b_thresh = 0.3;
  d.stack = {{.id = kTop, .node = kNear, .fixed = true},
             {.id = kCache, .node = kNear, .layer = {.work = 0.055}},
             {.id = kFile, .node = kFar, .fixed = true}};
  d.edges = {{.above = 0, .below = 1}, {.above = 1, .below = 2}};
  d.nodes = {{.node = kNear, .rate = 1, .cores = 1}, {.node = kFar, .rate = 1, .cores = 1}};
  d.nodes[1].load = 0.4;
  d.present = Prediction{.response_s = 1.03};
  Candidate& c = d.candidates.emplace_back();
  c.moves = {ToServer(kCache)};
  c.prediction.response_s = 0.12;
  c.node_loads = {0, 1};
  c.benefit_s = c.net_benefit_s = 0.91;
  d.chosen = 0;
  return d;
}

// 3 come: 0.91 - 0.187 - 0.187 is 0.536 s, above 0.3 x 0.307 s. 7 come: 0.096, below 0.3 x 0.527.
TEST(PlannerTermsTest, AtWorstAllThatCameComputeAllTheTimeAndWaitForIt) {
  Decision d = ADirectory();
  EXPECT_TRUE(PaysAtWorst(d, kFar, 3));
  EXPECT_TRUE(PaysAtWorst(d, kFar, 6));
  EXPECT_FALSE(PaysAtWorst(d, kFar, 7));
  d.confidence_z = 1.645;
  d.candidates[0].benefit_deviation_s = 0.3;
  EXPECT_FALSE(PaysAtWorst(d, kFar, 3)) << "not surely";
}

TEST(PlannerTermsTest, CalleesAreTheAnchoredObjectsThere) {
  Decision d = ADirectory();
  EXPECT_EQ(AnchoredCallees(d, kFar), std::vector<ObjectId>{kFile});
  EXPECT_TRUE(AnchoredCallees(d, kNear).empty());
  d.stack[2].fixed = false;
  EXPECT_TRUE(AnchoredCallees(d, kFar).empty());
}

}  // namespace
}  // namespace abacus::placement
