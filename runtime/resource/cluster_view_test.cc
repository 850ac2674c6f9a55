#include "runtime/resource/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "placement/engine.h"

namespace abacus::runtime {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr NodeId kClient = 1;
constexpr NodeId kServers[] = {10, 11, 12};
const Rid kConsole{{kClient, 1}, 1};
const Rid kSpread{{kClient, 1}, 2};

Digest DigestOf(NodeId node, bool server) {
  Digest digest{.from = {node, 1}, .window_s = 1};
  digest.node = {.node = node, .is_server = server, .rate = 1e9, .cores = 2, .load = 0.1};
  return digest;
}

placement::ObjectStatistics Object(const Rid& rid, NodeId node, bool mobile) {
  return {.id = ToObjectId(rid),
          .class_name = "c",
          .node = node,
          .mobile = mobile,
          .cpu_s = 0.001,
          .checkpoint_bytes = 4096};
}

// A client whose object turns each unit that it is given into four transfers, which it spreads over
// three servers: what RAID-5 makes of small writes. Servers have said nothing to each other.
class ClusterViewTest : public ::testing::Test {
 protected:
  ClusterViewTest() {
    Digest client = DigestOf(kClient, false);
    client.consoles = {kConsole};
    client.objects = {Object(kConsole, kClient, false), Object(kSpread, kClient, true)};
    client.edges = {{ToObjectId(kConsole), ToObjectId(kSpread), 10, 320'000, 1000}};
    for (const NodeId server : kServers) {
      const Rid store{{server, 1}, 1};
      Add(DigestOf(server, true)).objects = {Object(store, server, false)};
      client.edges.push_back({ToObjectId(kSpread), ToObjectId(store), 14, 213'000, 213'000});
    }
    Add(client);
  }

  Digest& Add(const Digest& digest) { return digests_[digest.from] = digest; }
  Digest& Of(NodeId node) { return digests_.at({node, 1}); }
  // What the client measured of its ways to the servers.
  void Measured(const std::vector<double>& bandwidths_bytes_s, double round_trip_s) {
    for (size_t i = 0; i < bandwidths_bytes_s.size(); ++i) {
      Of(kClient).links.push_back({.a = kClient,
                                   .b = kServers[i],
                                   .bandwidth_bytes_s = bandwidths_bytes_s[i],
                                   .round_trip_s = round_trip_s,
                                   .measured_bytes = 1e6});
    }
  }
  placement::Snapshot Snapshot() {
    return ClusterView(digests_).SnapshotOf(kConsole, Of(kClient)).snapshot;
  }
  std::optional<placement::LinkStatistics> Link(NodeId a, NodeId b) {
    for (const auto& link : Snapshot().links) {
      if (std::minmax(link.a, link.b) == std::minmax(a, b)) return link;
    }
    return std::nullopt;
  }

  std::map<NodeInstance, Digest> digests_;
};

TEST_F(ClusterViewTest, ServersThatNeverMetAreTakenToReachEachOtherAsBothReachOthers) {
  Measured({20e6, 8e6, 10e6}, 0.001);
  const auto link = Link(10, 12);
  ASSERT_TRUE(link.has_value());
  EXPECT_DOUBLE_EQ(*link->bandwidth_bytes_s, 10e6);
  EXPECT_DOUBLE_EQ(*link->round_trip_s, 0.001);
  EXPECT_GE(link->measured_bytes, placement::Config().min_link_evidence_bytes);
  EXPECT_GT(link->bandwidth_variance, 0);
  EXPECT_DOUBLE_EQ(*Link(kClient, 10)->bandwidth_bytes_s, 20e6) << "what was measured stands";
}

// A client behind a modem knows nothing of the network that the servers share.
TEST_F(ClusterViewTest, NoServersAreTakenToBeFurtherApartThanServersAre) {
  Measured({60e3, 60e3, 60e3}, 0.001);
  EXPECT_DOUBLE_EQ(*Link(10, 11)->bandwidth_bytes_s, 3e6);
}

TEST_F(ClusterViewTest, WhatServersMeasuredOfEachOtherCountsOnceItIsEnough) {
  Measured({8e6, 8e6, 8e6}, 0.001);
  auto& links = Of(10).links;
  links.push_back({.a = 10, .b = 11, .round_trip_s = 0.0002});
  EXPECT_DOUBLE_EQ(*Link(10, 11)->bandwidth_bytes_s, 8e6);
  EXPECT_DOUBLE_EQ(*Link(10, 11)->round_trip_s, 0.0002);
  links.back().bandwidth_bytes_s = 1e6;
  links.back().measured_bytes = 1000;
  EXPECT_DOUBLE_EQ(*Link(10, 11)->bandwidth_bytes_s, 8e6);
  links.back().measured_bytes = 1e6;
  EXPECT_DOUBLE_EQ(*Link(10, 11)->bandwidth_bytes_s, 1e6);
}

// It has said little to one of the servers so far; its way there begins like those to the others.
TEST_F(ClusterViewTest, WhatAClientHasNotMeasuredIsTakenToBeLikeItsBestOtherLink) {
  Measured({6e6, 8e6, 9e6}, 0.001);
  auto& of_third = Of(kClient).links.back();
  EXPECT_DOUBLE_EQ(*Link(kClient, 12)->bandwidth_bytes_s, 9e6);
  for (const double bytes : {0.0, 8'000.0}) {
    SCOPED_TRACE(bytes);
    of_third.measured_bytes = bytes;
    if (bytes == 0)
      of_third.bandwidth_bytes_s.reset();
    else
      of_third.bandwidth_bytes_s = 90e6;
    of_third.round_trip_s = 0.02;
    const auto link = Link(kClient, 12);
    ASSERT_TRUE(link.has_value());
    EXPECT_DOUBLE_EQ(*link->bandwidth_bytes_s, 8e6);
    EXPECT_DOUBLE_EQ(std::sqrt(link->bandwidth_variance), 4e6);
    EXPECT_DOUBLE_EQ(*link->round_trip_s, 0.02) << "that is known";
    EXPECT_GE(link->measured_bytes, placement::Config().min_link_evidence_bytes);
  }
  // Nobody has called there yet.
  of_third.round_trip_s.reset();
  of_third.bandwidth_bytes_s.reset();
  EXPECT_FALSE(Link(kClient, 12)->bandwidth_bytes_s.has_value());
}

// Where it has measured none, a guess would rest on what others have.
TEST_F(ClusterViewTest, NothingIsGuessedOfAClientThatHasMeasuredNothing) {
  for (const NodeId server : kServers) {
    Of(kClient).links.push_back({.a = kClient, .b = server, .round_trip_s = 0.001});
    Of(server).links.push_back({.a = server,
                                .b = 99,
                                .bandwidth_bytes_s = 8e6,
                                .round_trip_s = 0.001,
                                .measured_bytes = 1e6});
  }
  EXPECT_FALSE(Link(kClient, 10)->bandwidth_bytes_s.has_value());
}

TEST_F(ClusterViewTest, NothingIsGuessedOfClientsNorOfServersThatNobodyHasMeasured) {
  EXPECT_THAT(Snapshot().links, IsEmpty());
  Measured({8e6}, 0.001);  // the ways to the first server only
  EXPECT_THAT(Snapshot().links, SizeIs(1));
  Of(11).node.is_server = false;
  Measured({8e6, 8e6, 8e6}, 0.001);
  EXPECT_FALSE(Link(10, 11).has_value());
  EXPECT_TRUE(Link(10, 12).has_value());
}

// Figure 6: over a slow network one transfer instead of four pays, over the servers' own one the
// four cost as much wherever they begin.
TEST_F(ClusterViewTest, AnObjectOverServersThatNeverMetGoesToOneOfThemWhereTheClientIsFarAway) {
  Measured({0.6e6, 0.6e6, 0.6e6}, 0.001);
  const placement::Decision slow = placement::Decide(Snapshot(), placement::Config());
  EXPECT_EQ(slow.outcome, placement::Outcome::kMove) << slow.Explanation();
  EXPECT_EQ(slow.links_left_aside, 0u);
  // Nor does it wait until enough was said to each of them.
  Of(kClient).links.back().bandwidth_bytes_s.reset();
  Of(kClient).links.back().measured_bytes = 0;
  const placement::Decision early = placement::Decide(Snapshot(), placement::Config());
  EXPECT_EQ(early.outcome, placement::Outcome::kMove) << early.Explanation();
  for (auto& link : Of(kClient).links) link.bandwidth_bytes_s = 8e6;
  const placement::Decision fast = placement::Decide(Snapshot(), placement::Config());
  EXPECT_EQ(fast.outcome, placement::Outcome::kStay) << fast.Explanation();
}

}  // namespace
}  // namespace abacus::runtime
