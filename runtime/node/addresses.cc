#include "runtime/node/addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostAndPort& address, int socket_type, int flags) {
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("the host of ", address.host, ":", port,
                                               " is not known: ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

// A socket that is closed at the end of a scope.
struct Socket {
  explicit Socket(const addrinfo& to)
      : fd(socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC, to.ai_protocol)) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int fd;
};

}  // namespace

absl::StatusOr<HostAndPort> SplitAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  HostAndPort both;
  if (colon != std::string_view::npos && colon > 0) {
    both.host = std::string(address.substr(0, colon));
    if (absl::SimpleAtoi(ToAbsl(address.substr(colon + 1)), &both.port) && both.port >= 0 &&
        both.port <= 65535) {
      return both;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(address), "' is no address: expected host:port"));
}

bool IsAnyHost(std::string_view host) {
  return host == "0.0.0.0" || host == "[::]" || host == "::" || host == "*";
}

absl::StatusOr<std::string> LocalHostTowards(std::string_view server) {
  ABACUS_ASSIGN_OR_RETURN(const HostAndPort to, SplitAddress(server));
  ABACUS_ASSIGN_OR_RETURN(const AddressList list, Resolve(to, SOCK_DGRAM, 0));
  int error = ENETUNREACH;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const Socket socket(*one);
    sockaddr_storage local{};
    socklen_t bytes = sizeof(local);
    // Connecting a datagram socket only chooses the route.
    if (socket.fd < 0 || connect(socket.fd, one->ai_addr, one->ai_addrlen) != 0 ||
        getsockname(socket.fd, reinterpret_cast<sockaddr*>(&local), &bytes) != 0) {
      error = errno;
      continue;
    }
    std::array<char, NI_MAXHOST> host{};
    if (getnameinfo(reinterpret_cast<sockaddr*>(&local), bytes, host.data(), host.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
      continue;
    }
    const std::string text(host.data());
    return local.ss_family == AF_INET6 ? absl::StrCat("[", text, "]") : text;
  }
  return absl::ErrnoToStatus(error, absl::StrCat("there is no way to ", ToAbsl(server)));
}

absl::Status CheckListen(const HostAndPort& address) {
  ABACUS_ASSIGN_OR_RETURN(const AddressList list, Resolve(address, SOCK_STREAM, AI_PASSIVE));
  const Socket socket(*list);
  const int yes = 1;
  setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (socket.fd < 0 || bind(socket.fd, list->ai_addr, list->ai_addrlen) != 0 ||
      listen(socket.fd, 1) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(address.host, ":", address.port));
  }
  return absl::OkStatus();
}

}  // namespace abacus::runtime
