#include "runtime/node/addresses.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

TEST(AddressesTest, SplitTakesNamesNumbersAndBracketedIpv6) {
  EXPECT_EQ(SplitAddress("host:7070")->host, "host");
  EXPECT_EQ(SplitAddress("host:7070")->port, 7070);
  EXPECT_EQ(SplitAddress("[::1]:0")->host, "[::1]");
  EXPECT_EQ(SplitAddress("[::1]:0")->port, 0);
}

TEST(AddressesTest, SplitRefusesWhatIsNoHostAndPort) {
  for (const char* bad : {"", "host", ":1", "host:", "host:x", "host:70000", "host:-1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SplitAddress(bad).status())) << bad;
  }
}

TEST(AddressesTest, AnyHostIsKnownInBothFamilies) {
  EXPECT_TRUE(IsAnyHost("0.0.0.0"));
  EXPECT_TRUE(IsAnyHost("[::]"));
  EXPECT_FALSE(IsAnyHost("127.0.0.1"));
}

TEST(AddressesTest, LocalHostTowardsLoopbackIsLoopback) {
  const auto host = LocalHostTowards("127.0.0.1:7070");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(*host, "127.0.0.1");
}

TEST(AddressesTest, LocalHostTowardsAnUnknownNameNamesIt) {
  const auto host = LocalHostTowards("no-such-host.invalid:7070");
  ASSERT_TRUE(absl::IsUnavailable(host.status())) << host.status();
  EXPECT_NE(host.status().message().find("no-such-host.invalid"), absl::string_view::npos);
}

TEST(AddressesTest, CheckListenSaysThatAPortIsTaken) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  EXPECT_FALSE(CheckListen({"127.0.0.1", ntohs(address.sin_port)}).ok());
  close(fd);
  EXPECT_TRUE(CheckListen({"127.0.0.1", 0}).ok());
}

}  // namespace
}  // namespace abacus::runtime
