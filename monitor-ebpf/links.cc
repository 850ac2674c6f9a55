#include "monitor-ebpf/links.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::monitor {
namespace {

std::optional<std::string> PeerOf(int fd) {
  sockaddr_storage address;
  socklen_t bytes = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return std::nullopt;
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    if (inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)) == nullptr) return std::nullopt;
    return absl::StrCat(text, ":", ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    if (inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)) == nullptr) return std::nullopt;
    return absl::StrCat("[", text, "]:", ntohs(v6->sin6_port));
  }
  return std::nullopt;
}

std::optional<tcp_info> InfoOf(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  // A kernel that is older than the last field read here gives less.
  if (bytes < offsetof(tcp_info, tcpi_delivery_rate) + sizeof(info.tcpi_delivery_rate)) {
    return std::nullopt;
  }
  return info;
}

// Linux has it since 4.12.
std::optional<uint64_t> CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

std::vector<LinkInfo> ScanLinks() {
  std::map<std::pair<std::string, uint64_t>, LinkInfo> by_socket;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    // Another thread may close the descriptor or open another one under its number meanwhile; then
    // this answers for that one, or for none.
    const auto info = InfoOf(fd);
    if (!info || info->tcpi_state != 1 /* established */) continue;
    auto peer = PeerOf(fd);
    const auto socket = CookieOf(fd);
    if (!peer || !socket) continue;
    LinkInfo& link = by_socket[{*peer, *socket}];
    link.peer = *std::move(peer);
    link.socket = *socket;
    link.idle = absl::Milliseconds(info->tcpi_last_data_sent);
    link.bytes_sent = info->tcpi_bytes_acked;
    link.bytes_received = info->tcpi_bytes_received;
    link.delivered_bytes_s = static_cast<double>(info->tcpi_delivery_rate);
    link.app_limited = info->tcpi_delivery_rate_app_limited != 0;
    link.round_trip = absl::Microseconds(info->tcpi_rtt);
    link.round_trip_min = absl::Microseconds(info->tcpi_min_rtt);
  }
  std::vector<LinkInfo> links;
  for (auto& [key, link] : by_socket) links.push_back(std::move(link));
  return links;
}

}  // namespace abacus::monitor
