#ifndef ABACUS_RUNTIME_TRANSPORT_TESTING_RAW_SOCKET_H_
#define ABACUS_RUNTIME_TRANSPORT_TESTING_RAW_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace abacus::runtime {

// A blocking TCP connection on the loopback, for peers that do not keep to the protocol.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawSocket() { Close(); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  // Connects to "127.0.0.1:port".
  static int ConnectTo(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return fd;
  }

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the other side has closed already
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // What comes until `bytes` are there or the other side closes.
  std::string Receive(size_t bytes) {
    std::string all(bytes, '\0');
    size_t have = 0;
    while (have < bytes) {
      const ssize_t got = recv(fd_, all.data() + have, bytes - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    all.resize(have);
    return all;
  }
  // True once the other side has closed; bytes before that are skipped.
  bool AwaitClosed() {
    char skipped[4096];
    while (true) {
      const ssize_t got = recv(fd_, skipped, sizeof skipped, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// Takes connections at a port that the system chooses.
class RawListener {
 public:
  RawListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~RawListener() { close(fd_); }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  const std::string& address() const { return address_; }
  int Accept() { return accept(fd_, nullptr, nullptr); }

 private:
  const int fd_;
  std::string address_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_TESTING_RAW_SOCKET_H_
