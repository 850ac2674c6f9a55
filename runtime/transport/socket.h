#ifndef ABACUS_RUNTIME_TRANSPORT_SOCKET_H_
#define ABACUS_RUNTIME_TRANSPORT_SOCKET_H_

// Stream sockets over Asio, TCP and unix alike, with Asio kept out of every header.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace abacus::runtime {

// What one attempt to read or write came to.
struct IoResult {
  enum class Kind : uint8_t { kDone, kWouldBlock, kEnd };
  Kind kind = Kind::kDone;
  size_t bytes = 0;      // of kDone, more than 0
  const char* why = "";  // of kEnd: "end of file", or the system's words
};

// A connected, non-blocking stream. No Nagle.
// Thread-safety: one reader, one writer and any number of callers of Shutdown() at a time.
class Socket {
 public:
  // Entries of a gathering write or scattering read; more are left to the next call.
  static constexpr size_t kPartsMax = 64;

  struct Impl;
  explicit Socket(std::unique_ptr<Impl> impl);
  ~Socket();  // closes it
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  IoResult Read(std::span<const std::span<char>> into);
  IoResult Write(std::span<const std::string_view> from);
  // Ends both directions: waiting and later calls of either side see the end.
  void Shutdown();
  int fd() const;
  // The kernel's name of the socket, which none gets again; 0 where it tells none.
  uint64_t cookie() const;
  // This side's IP address without a port; empty for a unix socket.
  std::string local_host() const;

 private:
  const std::unique_ptr<Impl> impl_;
};

// A socket that takes connections. Closing one of a unix socket removes its file.
class ListeningSocket {
 public:
  struct Impl;
  explicit ListeningSocket(std::unique_ptr<Impl> impl);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  // The next connection; null where none waits.
  // Errors: the system's, for example kResourceExhausted where descriptors are used up. None means
  // that the socket is broken: try again later.
  absl::StatusOr<std::unique_ptr<Socket>> Accept();
  int fd() const;
  // "host:port" with the port that the system chose, or "unix:/path".
  const std::string& address() const;
  // True where it takes connections on every address of this machine.
  bool any_host() const;
  uint16_t port() const;  // 0 for a unix socket

 private:
  const std::unique_ptr<Impl> impl_;
};

// Makes sockets. Addresses: "host:port", "[ipv6]:port", "unix:/path".
// Thread-safety: thread-safe. Sockets may outlive it.
class SocketFactory {
 public:
  SocketFactory();
  ~SocketFactory();
  SocketFactory(const SocketFactory&) = delete;
  SocketFactory& operator=(const SocketFactory&) = delete;

  // Errors: kInvalidArgument - the address does not parse or resolve
  //         kAlreadyExists   - somebody else listens there; the message says what to do
  //         others           - the system's, with the address
  absl::StatusOr<std::unique_ptr<ListeningSocket>> Listen(const std::string& address);
  // Blocks up to `timeout`, and no longer once `interrupt_fd` is readable.
  // Errors: kInvalidArgument as above; kUnavailable otherwise.
  absl::StatusOr<std::unique_ptr<Socket>> Connect(const std::string& address,
                                                  absl::Duration timeout, int interrupt_fd);

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT), `other_fd` is readable (-1: none) or
// `timeout` has passed. True where `fd` is ready, which an error or its end makes it too.
bool PollFor(int fd, int events, int other_fd, absl::Duration timeout);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_SOCKET_H_
