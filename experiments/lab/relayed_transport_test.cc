#include "experiments/lab/relayed_transport.h"

#include <gtest/gtest.h>

#include <string>

namespace abacus::lab {
namespace {

TEST(RelayedTransportTest, NodesOfTheNetworkAreDialledByWayOfThisNodesLinks) {
  EXPECT_EQ(AddressOnTheWay("127.231.3.", "127.231.5.5:7071"), "127.231.3.5:7071");
  EXPECT_EQ(AddressOnTheWay("127.231.12.", "127.231.10.10:1"), "127.231.12.10:1");
  EXPECT_EQ(AddressOnTheWay("127.231.3.", "127.231.3.3:7071"), "127.231.3.3:7071");
}

TEST(RelayedTransportTest, AllOtherAddressesAreAsTheyAre) {
  for (const std::string address :
       {"127.230.5.5:7071", "10.231.5.5:7071", "unix:/run/a.b.c", "host:7071", "", "127.231", ".",
        "127.231.", "127.231.5:7071"}) {
    EXPECT_EQ(AddressOnTheWay("127.231.3.", address), address);
  }
  EXPECT_EQ(AddressOnTheWay("", "127.231.5.5:7071"), "127.231.5.5:7071");
}

}  // namespace
}  // namespace abacus::lab
