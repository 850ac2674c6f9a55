#include "monitor-ebpf/links.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace abacus::monitor {
namespace {

// A TCP connection to this process over loopback.
class Connection {
 public:
  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(bind(listener, generic, bytes), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, generic, &bytes), 0);
    peer_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    caller_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(caller_, generic, bytes), 0);
    called_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  }
  ~Connection() {
    close(caller_);
    close(called_);
  }
  // From the caller to the one that was called.
  void Send(size_t bytes) const {
    std::thread reader([&] {
      std::vector<char> in(1 << 16);
      for (size_t left = bytes; left > 0;) {
        const ssize_t got = read(called_, in.data(), in.size());
        ASSERT_GT(got, 0);
        left -= static_cast<size_t>(got);
      }
    });
    const std::vector<char> out(bytes, 'x');
    for (size_t done = 0; done < bytes;) {
      const ssize_t put = write(caller_, out.data() + done, bytes - done);
      ASSERT_GT(put, 0);
      done += static_cast<size_t>(put);
    }
    reader.join();
  }
  const std::string& peer() const { return peer_; }
  int caller() const { return caller_; }

 private:
  std::string peer_;  // of the caller
  int caller_ = -1;
  int called_ = -1;
};

const LinkInfo* Find(const std::vector<LinkInfo>& links, const std::string& peer) {
  const auto it = std::find_if(links.begin(), links.end(),
                               [&](const LinkInfo& link) { return link.peer == peer; });
  return it == links.end() ? nullptr : &*it;
}

TEST(LinksTest, ConnectionIsToldWithItsBytesAndTimes) {
  constexpr uint64_t kBytes = 4 << 20;
  const Connection connection;
  connection.Send(kBytes);
  const std::vector<LinkInfo> links = ScanLinks();
  const LinkInfo* link = Find(links, connection.peer());
  ASSERT_NE(link, nullptr);
  EXPECT_GE(link->bytes_sent, kBytes / 2) << "acknowledged so far";
  EXPECT_LE(link->bytes_sent, kBytes + 1) << "the handshake counts as one";
  EXPECT_EQ(link->bytes_received, 0u);
  EXPECT_GT(link->round_trip, absl::ZeroDuration());
  EXPECT_LT(link->round_trip, absl::Seconds(1));
  EXPECT_GT(link->delivered_bytes_s, 0);
  EXPECT_TRUE(std::any_of(links.begin(), links.end(), [](const LinkInfo& other) {
    return other.bytes_received == kBytes;
  })) << "the other end is in this process too";
}

TEST(LinksTest, EachConnectionIsToldOnceByItsOwnName) {
  const Connection first;
  const Connection second;
  const int another = dup(first.caller());
  std::set<uint64_t> names;
  const std::vector<LinkInfo> links = ScanLinks();
  for (const LinkInfo& link : links) names.insert(link.socket);
  close(another);
  EXPECT_EQ(links.size(), 4u) << "both ends of two";
  EXPECT_EQ(names.size(), 4u);
  const LinkInfo* once = Find(links, first.peer());
  const std::vector<LinkInfo> later = ScanLinks();
  const LinkInfo* again = Find(later, first.peer());
  ASSERT_TRUE(once != nullptr && again != nullptr);
  EXPECT_EQ(once->socket, again->socket);
}

TEST(LinksTest, ConnectionThatIsClosedIsNotToldAnyMore) {
  std::string peer;
  {
    const Connection connection;
    peer = connection.peer();
    EXPECT_NE(Find(ScanLinks(), peer), nullptr);
  }
  EXPECT_EQ(Find(ScanLinks(), peer), nullptr);
}

TEST(LinksTest, SocketsOfOtherKindsAreNoLinks) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_TRUE(ScanLinks().empty());
  close(pair[0]);
  close(pair[1]);
}

}  // namespace
}  // namespace abacus::monitor
