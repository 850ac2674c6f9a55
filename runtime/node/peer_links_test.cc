// Links belong to nodes: over reconnects, several addresses and the ends of connections.

#include "runtime/node/peer_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "monitor-ebpf/links.h"
#include "runtime/testing/cluster.h"
#include "runtime/transport/testing/test_node.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kHere{1, 10};
constexpr NodeInstance kThere{2, 20};

monitor::LinkInfo Connection(uint64_t socket, const std::string& peer, uint64_t sent,
                             uint64_t received, int idle_ms = 0) {
  monitor::LinkInfo info;
  info.socket = socket;
  info.peer = peer;
  info.bytes_sent = sent;
  info.bytes_received = received;
  info.idle = absl::Milliseconds(idle_ms);
  info.round_trip = absl::Microseconds(static_cast<int64_t>(socket));
  return info;
}

MemberInfo Member(NodeInstance instance, const std::string& data, const std::string& control) {
  return {.instance = instance, .data_address = data, .control_address = control};
}

TEST(PeerLinksTest, ConnectionsOfANodeAreOneLinkWhateverTheirAddresses) {
  PeerLinks links;
  const std::vector<MemberInfo> members = {Member(kThere, "10.0.0.2:7071", "10.0.0.2:7070")};
  const std::vector<PeerLink> seen =
      links.Update({Connection(1, "10.0.0.2:7071", 100, 10, 50),     // requests
                    Connection(2, "10.0.0.2:7071", 1000, 20, 5),     // bulk
                    Connection(3, "10.0.0.2:7070", 10000, 30, 500),  // the control plane
                    Connection(4, "10.0.9.9:40001", 7, 7)},          // what it calls us with
                   {{kThere, 1}, {kThere, 2}, {kThere, 4}}, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].node, kThere.node);
  EXPECT_EQ(seen[0].connections, 4u);
  EXPECT_EQ(seen[0].bytes_sent, 11107u);
  EXPECT_EQ(seen[0].bytes_received, 67u);
  EXPECT_EQ(seen[0].round_trip, absl::Microseconds(4)) << "of the one that was used last";
  EXPECT_EQ(seen[0].address, "10.0.9.9:40001");
}

TEST(PeerLinksTest, ConnectionThatIsMadeAgainGoesOnWithTheSums) {
  PeerLinks links;
  const std::vector<MemberInfo> members = {Member(kThere, "", "")};
  links.Update({Connection(1, "10.0.0.2:40001", 100, 10)}, {{kThere, 1}}, members);
  links.Update({Connection(1, "10.0.0.2:40001", 150, 15)}, {{kThere, 1}}, members);
  std::vector<PeerLink> seen = links.Update({}, {}, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].connections, 0u);
  EXPECT_EQ(seen[0].bytes_sent, 150u);
  seen = links.Update({Connection(2, "10.0.0.2:40002", 1000, 0)}, {{kThere, 2}}, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].address, "10.0.0.2:40002");
  EXPECT_EQ(seen[0].bytes_sent, 1150u);
  EXPECT_EQ(seen[0].bytes_received, 15u);
}

TEST(PeerLinksTest, WhoseAConnectionIsMayBecomeKnownLater) {
  PeerLinks links;
  const std::vector<MemberInfo> members = {Member(kThere, "", "")};
  std::vector<PeerLink> seen = links.Update({Connection(1, "10.0.0.2:40001", 100, 10)}, {}, {});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].node, 0u);
  EXPECT_EQ(seen[0].address, "10.0.0.2:40001");
  EXPECT_EQ(seen[0].bytes_sent, 100u);
  seen = links.Update({Connection(1, "10.0.0.2:40001", 120, 10)}, {{kThere, 1}}, members);
  ASSERT_EQ(seen.size(), 1u) << "it is no stranger any more";
  EXPECT_EQ(seen[0].node, kThere.node);
  EXPECT_EQ(seen[0].bytes_sent, 120u);
  // And stays known: the transport has let go of it before the kernel has.
  seen = links.Update({Connection(1, "10.0.0.2:40001", 125, 10)}, {}, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].bytes_sent, 125u);
}

TEST(PeerLinksTest, AListThatCameShortDoesNotCountConnectionsTwice) {
  PeerLinks links;
  const std::vector<MemberInfo> members = {Member(kThere, "", "")};
  const std::vector<PeerSocket> sockets = {{kThere, 1}};
  links.Update({Connection(1, "10.0.0.2:40001", 100, 10)}, sockets, members);
  for (int i = 0; i < 5; ++i) links.Update({}, sockets, members);
  const auto seen = links.Update({Connection(1, "10.0.0.2:40001", 130, 10)}, sockets, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].bytes_sent, 130u);
  EXPECT_EQ(seen[0].bytes_received, 10u);
}

TEST(PeerLinksTest, SumsEndWithTheMembershipAndStrangersWithTheirConnection) {
  PeerLinks links;
  const std::vector<MemberInfo> members = {Member(kThere, "", "")};
  EXPECT_EQ(links
                .Update({Connection(1, "10.0.0.2:40001", 100, 10),
                         Connection(2, "10.0.0.3:40001", 100, 10)},
                        {{kThere, 1}}, members)
                .size(),
            2u);
  EXPECT_EQ(links.Update({}, {}, members).size(), 1u);
  EXPECT_TRUE(links.Update({}, {}, {}).empty());
  // The node is back, with another connection.
  const auto seen = links.Update({Connection(3, "10.0.0.2:40001", 5, 0)}, {{kThere, 3}}, members);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].bytes_sent, 5u);
}

// Both ends over real sockets, and each with its own sums.
class RealPeerLinksTest : public ::testing::Test {
 protected:
  struct End {
    explicit End(NodeInstance self) {
      SocketTransportOptions options;
      options.self = self;
      node = TestNode::Make(options);
    }
    // The link with that node; what it was last where there are several, or none.
    PeerLink Look(NodeInstance peer) {
      size_t count = 0;
      for (const PeerLink& one :
           links.Update(monitor::ScanLinks(), node->sockets().Sockets(), {Member(peer, "", "")})) {
        if (one.node != peer.node) continue;
        ++count;
        link = one;
      }
      EXPECT_LE(count, 1u);
      return link;
    }
    std::unique_ptr<TestNode> node;
    PeerLinks links;
    PeerLink link;
  };

  static uint64_t Sent(TestNode& node) {
    uint64_t bytes = 0;
    for (const PeerTraffic& traffic : node.transport().Traffic()) bytes += traffic.sent_bytes;
    return bytes;
  }
  // Both ends' links have all that so many calls took to the other end, and nothing twice. A call
  // that was open when a way came back is sent again, so there may be more than one of each.
  void ExpectAllIsCountedOnce(uint64_t calls) {
    constexpr uint64_t kHellosMax = 16'384;
    const uint64_t least = calls * text_.size();
    uint64_t most = 0;
    EXPECT_TRUE(testing::Eventually([&] {
      const uint64_t sent = caller_.Look(kThere).bytes_sent;
      const uint64_t received = called_.Look(kHere).bytes_received;
      most = Sent(*caller_.node) + kHellosMax;
      return std::min(sent, received) >= least && std::max(sent, received) <= most;
    })) << caller_.link.bytes_sent
        << " sent and " << called_.link.bytes_received << " received, of " << least << " to "
        << most;
    EXPECT_GT(caller_.link.round_trip, absl::ZeroDuration());
  }

  const std::string text_ = std::string(300'000, 'x');
  End caller_{kHere};
  End called_{kThere};
};

TEST_F(RealPeerLinksTest, HistoryOutlastsReconnectsFromOtherPortsAtBothEnds) {
  TestNode::Introduce(*caller_.node, *called_.node);
  std::set<std::string> ports;
  for (uint64_t call = 1; call <= 4; ++call) {
    EXPECT_EQ(caller_.node->Call(kThere, text_), text_);
    ExpectAllIsCountedOnce(call);
    ports.insert(called_.link.address);
    if (call < 4) caller_.node->sockets().CutConnections(kThere);
  }
  EXPECT_GE(ports.size(), 2u) << "it calls from another port each time";
}

}  // namespace
}  // namespace abacus::runtime
