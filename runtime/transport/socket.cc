#include "runtime/transport/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

namespace asio = boost::asio;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol>;
using boost::system::error_code;

constexpr std::string_view kUnixPrefix = "unix:";
constexpr int kBacklog = 512;
// The kernel doubles it. Measured with 1 MiB frames and both ends on one core: half as much costs a
// tenth of the rate, and more does not fit into the core's cache with the data.
constexpr int kUnixSendBufferBytes = 160 * 1024;

// The caller's spans as a buffer sequence of Asio, without copying them first.
template <typename Buffer, typename Span>
struct Sequence {
  using value_type = Buffer;
  class const_iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = Buffer;
    using difference_type = std::ptrdiff_t;
    using pointer = const Buffer*;
    using reference = Buffer;

    const_iterator() = default;
    explicit const_iterator(const Span* at) : at_(at) {}
    Buffer operator*() const { return Buffer(at_->data(), at_->size()); }
    const_iterator& operator++() { return *this = const_iterator(at_ + 1); }
    const_iterator& operator--() { return *this = const_iterator(at_ - 1); }
    const_iterator operator++(int) { return const_iterator(at_++); }
    const_iterator operator--(int) { return const_iterator(at_--); }
    bool operator==(const const_iterator&) const = default;

   private:
    const Span* at_ = nullptr;
  };
  const_iterator begin() const { return const_iterator(spans.data()); }
  const_iterator end() const { return const_iterator(spans.data() + spans.size()); }

  std::span<const Span> spans;
};

IoResult ResultOf(size_t bytes, const error_code& error) {
  if (!error) return {.bytes = bytes};
  if (error == asio::error::would_block || error == asio::error::try_again) {
    return {.kind = IoResult::Kind::kWouldBlock};
  }
  // Not error.message(): its std::string would have to be kept for the few who read it.
  const char* why = error == asio::error::eof ? "end of file" : strerrordesc_np(error.value());
  return {.kind = IoResult::Kind::kEnd, .why = why == nullptr ? "unknown error" : why};
}

absl::Status SystemError(const error_code& error, const std::string& what) {
  return absl::ErrnoToStatus(error.value(), what);
}

bool IsUnix(const std::string& address) { return address.starts_with(kUnixPrefix); }
std::string UnixPath(const std::string& address) { return address.substr(kUnixPrefix.size()); }

absl::StatusOr<Protocol::endpoint> UnixEndpoint(const std::string& address) {
  const std::string path = UnixPath(address);
  constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.size() > kPathBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of '", address, "' must have 1 to ", kPathBytesMax, " bytes"));
  }
  return Protocol::endpoint(asio::local::stream_protocol::endpoint(path));
}

absl::StatusOr<Protocol::endpoint> TcpEndpoint(asio::io_context& io, const std::string& address) {
  const auto wrong = [&address](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no address: ", why,
                                                   "; write host:port, [ipv6]:port or unix:/path"));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return wrong("it has no port");
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.empty() || host.find(':') != std::string::npos) {
    return wrong("its host is empty or an IPv6 address without brackets");
  }
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  const auto parsed = std::from_chars(address.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return wrong("its port is not 0 to 65535");

  error_code error;
  const auto ip = asio::ip::make_address(host, error);
  if (!error) return Protocol::endpoint(asio::ip::tcp::endpoint(ip, port));
  const auto found = asio::ip::tcp::resolver(io).resolve(host, std::to_string(port), error);
  if (error || found.empty()) return wrong(absl::StrCat("host '", host, "' is not known"));
  return Protocol::endpoint(found.begin()->endpoint());
}

absl::StatusOr<Protocol::endpoint> ParseAddress(asio::io_context& io, const std::string& address) {
  return IsUnix(address) ? UnixEndpoint(address) : TcpEndpoint(io, address);
}

// Only for endpoints of TCP.
asio::ip::tcp::endpoint TcpOf(const Protocol::endpoint& endpoint) {
  asio::ip::tcp::endpoint tcp;
  tcp.resize(endpoint.size());
  std::copy_n(reinterpret_cast<const char*>(endpoint.data()), endpoint.size(),
              reinterpret_cast<char*>(tcp.data()));
  return tcp;
}

bool IsTcp(const Protocol::endpoint& endpoint) {
  const int family = endpoint.protocol().family();
  return family == AF_INET || family == AF_INET6;
}

std::string HostText(const asio::ip::address& ip) {
  return ip.is_v6() ? absl::StrCat("[", ip.to_string(), "]") : ip.to_string();
}

void SetUp(Protocol::socket& socket, bool tcp) {
  error_code ignored;  // without these it is slower, not wrong
  socket.non_blocking(true, ignored);
  if (tcp) {
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  } else {
    // The size of TCP's buffers adapts itself; a unix socket's does not, and each time it is full
    // costs two switches between threads. The system cuts this down to what it allows.
    socket.set_option(Protocol::socket::send_buffer_size(kUnixSendBufferBytes), ignored);
  }
}

// Starts to connect without waiting. Asio's own connect() waits whatever the socket's mode is.
error_code BeginConnect(Protocol::socket& socket, const Protocol::endpoint& endpoint) {
  if (::connect(socket.native_handle(), endpoint.data(), endpoint.size()) == 0) return {};
  return {errno, boost::system::system_category()};
}

// True where a process answers at that unix socket. The file of one that was killed stays behind.
bool SomebodyListens(asio::io_context& io, const Protocol::endpoint& endpoint) {
  Protocol::socket probe(io);
  error_code error;
  probe.open(endpoint.protocol(), error);
  probe.non_blocking(true, error);
  return BeginConnect(probe, endpoint) != asio::error::connection_refused;
}

}  // namespace

struct Socket::Impl {
  Impl(std::shared_ptr<asio::io_context> context, Protocol::socket stream)
      : io(std::move(context)), socket(std::move(stream)) {}
  const std::shared_ptr<asio::io_context> io;  // outlives the socket
  Protocol::socket socket;
};

Socket::Socket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Socket::~Socket() = default;

// Of a single buffer Asio makes recv() and send(), which are cheaper than recvmsg() and sendmsg().

IoResult Socket::Read(std::span<const std::span<char>> into) {
  error_code error;
  const size_t bytes =
      into.size() == 1
          ? impl_->socket.read_some(asio::buffer(into[0].data(), into[0].size()), error)
          : impl_->socket.read_some(Sequence<asio::mutable_buffer, std::span<char>>{into}, error);
  return ResultOf(bytes, error);
}

IoResult Socket::Write(std::span<const std::string_view> from) {
  error_code error;
  const size_t bytes =
      from.size() == 1
          ? impl_->socket.write_some(asio::buffer(from[0].data(), from[0].size()), error)
          : impl_->socket.write_some(Sequence<asio::const_buffer, std::string_view>{from}, error);
  return ResultOf(bytes, error);
}

void Socket::Shutdown() {
  error_code ignored;  // not connected any more: as well
  impl_->socket.shutdown(Protocol::socket::shutdown_both, ignored);
}

int Socket::fd() const { return impl_->socket.native_handle(); }

uint64_t Socket::cookie() const {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  return getsockopt(fd(), SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

std::string Socket::local_host() const {
  error_code error;
  const auto endpoint = impl_->socket.local_endpoint(error);
  if (error || !IsTcp(endpoint)) return "";
  return HostText(TcpOf(endpoint).address());
}

struct ListeningSocket::Impl {
  Impl(std::shared_ptr<asio::io_context> context) : io(std::move(context)), acceptor(*io) {}
  const std::shared_ptr<asio::io_context> io;
  Acceptor acceptor;
  std::string address;
  std::string unix_path;
  bool any_host = false;
  uint16_t port = 0;
};

ListeningSocket::ListeningSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ListeningSocket::~ListeningSocket() {
  if (!impl_->unix_path.empty()) unlink(impl_->unix_path.c_str());
}

absl::StatusOr<std::unique_ptr<Socket>> ListeningSocket::Accept() {
  error_code error;
  Protocol::socket socket(*impl_->io);
  impl_->acceptor.accept(socket, error);
  if (error == asio::error::would_block || error == asio::error::try_again ||
      error == asio::error::connection_aborted) {
    return std::unique_ptr<Socket>();
  }
  if (error) return SystemError(error, "cannot take a connection at " + impl_->address);
  SetUp(socket, impl_->unix_path.empty());
  return std::make_unique<Socket>(std::make_unique<Socket::Impl>(impl_->io, std::move(socket)));
}

int ListeningSocket::fd() const { return impl_->acceptor.native_handle(); }
const std::string& ListeningSocket::address() const { return impl_->address; }
bool ListeningSocket::any_host() const { return impl_->any_host; }
uint16_t ListeningSocket::port() const { return impl_->port; }

struct SocketFactory::Impl {
  const std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>();
};

SocketFactory::SocketFactory() : impl_(std::make_shared<Impl>()) {}
SocketFactory::~SocketFactory() = default;

absl::StatusOr<std::unique_ptr<ListeningSocket>> SocketFactory::Listen(const std::string& address) {
  ABACUS_ASSIGN_OR_RETURN(const Protocol::endpoint endpoint, ParseAddress(*impl_->io, address));
  auto impl = std::make_unique<ListeningSocket::Impl>(impl_->io);
  Acceptor& acceptor = impl->acceptor;
  const std::string what = "cannot listen at " + address;
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return SystemError(error, what);
  if (IsTcp(endpoint)) acceptor.set_option(Acceptor::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  if (error == asio::error::address_in_use && IsUnix(address) &&
      !SomebodyListens(*impl_->io, endpoint)) {
    unlink(UnixPath(address).c_str());
    acceptor.bind(endpoint, error);
  }
  if (!error) acceptor.listen(kBacklog, error);
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(absl::StrCat(
        what, ": another process does already. Stop it (", IsUnix(address) ? "ss -xlp" : "ss -tlnp",
        " names it) or configure another address",
        IsUnix(address) ? "" : "; port 0 lets the system choose a free one"));
  }
  if (error) return SystemError(error, what);
  acceptor.non_blocking(true, error);
  if (error) return SystemError(error, what);

  impl->address = address;
  if (IsUnix(address)) {
    impl->unix_path = UnixPath(address);
  } else {
    const auto bound = TcpOf(acceptor.local_endpoint(error));
    if (error) return SystemError(error, what);
    impl->any_host = bound.address().is_unspecified();
    impl->port = bound.port();
    impl->address = absl::StrCat(address.substr(0, address.rfind(':')), ":", bound.port());
  }
  return std::make_unique<ListeningSocket>(std::move(impl));
}

absl::StatusOr<std::unique_ptr<Socket>> SocketFactory::Connect(const std::string& address,
                                                               absl::Duration timeout,
                                                               int interrupt_fd) {
  ABACUS_ASSIGN_OR_RETURN(const Protocol::endpoint endpoint, ParseAddress(*impl_->io, address));
  const auto failed = [&address](const std::string& why) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address, ": ", why));
  };
  Protocol::socket socket(*impl_->io);
  error_code error;
  socket.open(endpoint.protocol(), error);
  if (error) return failed(error.message());
  SetUp(socket, IsTcp(endpoint));
  error = BeginConnect(socket, endpoint);
  if (error) {
    if (error != asio::error::in_progress) return failed(error.message());
    if (!PollFor(socket.native_handle(), POLLOUT, interrupt_fd, timeout)) {
      return failed("no answer in time");
    }
    int result = 0;
    socklen_t size = sizeof result;
    getsockopt(socket.native_handle(), SOL_SOCKET, SO_ERROR, &result, &size);
    if (result != 0) {
      return failed(error_code(result, boost::system::system_category()).message());
    }
  }
  return std::make_unique<Socket>(std::make_unique<Socket::Impl>(impl_->io, std::move(socket)));
}

bool PollFor(int fd, int events, int other_fd, absl::Duration timeout) {
  pollfd fds[2] = {{fd, static_cast<int16_t>(events), 0}, {other_fd, POLLIN, 0}};
  using Clock = std::chrono::steady_clock;
  const bool forever = timeout == absl::InfiniteDuration();
  Clock::time_point deadline;
  if (!forever) deadline = Clock::now() + absl::ToChronoNanoseconds(timeout);
  while (true) {
    int timeout_ms = -1;
    if (!forever) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      timeout_ms = std::max(0, static_cast<int>(left.count()));
    }
    const int ready = poll(fds, other_fd < 0 ? 1 : 2, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && fds[0].revents != 0;
  }
}

}  // namespace abacus::runtime
