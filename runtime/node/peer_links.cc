#include "runtime/node/peer_links.h"

#include <algorithm>
#include <set>

namespace abacus::runtime {
namespace {

// The list of a process's descriptors may come short once: a connection that is back after that is
// not counted from the beginning. One that is gone for so many looks is gone.
constexpr uint64_t kMissedMax = 16;

// The times of the connection that something was sent on last.
void TakeTimes(const monitor::LinkInfo& info, PeerLink& link) {
  link.address = info.peer;
  link.delivered_bytes_s = info.delivered_bytes_s;
  link.app_limited = info.app_limited;
  link.round_trip = info.round_trip;
}

}  // namespace

void PeerLinks::Charge(const monitor::LinkInfo& info, Connection& connection) {
  PeerLink& link = nodes_[connection.node];
  link.node = connection.node;
  link.bytes_sent += info.bytes_sent - std::min(info.bytes_sent, connection.bytes_sent);
  link.bytes_received +=
      info.bytes_received - std::min(info.bytes_received, connection.bytes_received);
  connection.bytes_sent = std::max(info.bytes_sent, connection.bytes_sent);
  connection.bytes_received = std::max(info.bytes_received, connection.bytes_received);
}

std::vector<PeerLink> PeerLinks::Update(const std::vector<monitor::LinkInfo>& connections,
                                        const std::vector<PeerSocket>& sockets,
                                        const std::vector<MemberInfo>& members) {
  std::map<uint64_t, NodeId> by_socket;
  for (const PeerSocket& socket : sockets) by_socket[socket.socket] = socket.peer.node;
  std::map<std::string, NodeId> by_address;
  std::set<NodeId> kept;
  for (const MemberInfo& member : members) {
    by_address[member.control_address] = member.instance.node;
    by_address[member.data_address] = member.instance.node;
    kept.insert(member.instance.node);
  }
  for (auto& [socket, connection] : connections_) ++connection.missed;
  for (auto& [node, link] : nodes_) link.connections = 0;

  std::map<std::string, PeerLink> strangers;
  std::map<std::string, absl::Duration> idle_strangers;
  std::map<NodeId, absl::Duration> idle;
  for (const monitor::LinkInfo& info : connections) {
    Connection& connection = connections_[info.socket];
    connection.missed = 0;
    if (const auto it = by_socket.find(info.socket); it != by_socket.end()) {
      connection.node = it->second;
    } else if (const auto at = by_address.find(info.peer);
               connection.node == 0 && at != by_address.end()) {
      connection.node = at->second;
    }
    if (connection.node == 0) {
      PeerLink& link = strangers[info.peer];
      ++link.connections;
      link.bytes_sent += info.bytes_sent;
      link.bytes_received += info.bytes_received;
      const auto [it, first] = idle_strangers.try_emplace(info.peer, info.idle);
      if (first || info.idle < it->second) TakeTimes(info, link);
      it->second = std::min(it->second, info.idle);
      continue;
    }
    kept.insert(connection.node);
    Charge(info, connection);
    PeerLink& link = nodes_[connection.node];
    ++link.connections;
    const auto [it, first] = idle.try_emplace(connection.node, info.idle);
    if (first || info.idle < it->second) TakeTimes(info, link);
    it->second = std::min(it->second, info.idle);
  }

  std::erase_if(nodes_, [&](const auto& one) { return !kept.contains(one.first); });
  std::erase_if(connections_, [&](const auto& one) {
    const Connection& connection = one.second;
    return connection.missed > kMissedMax ||
           (connection.missed > 0 && !kept.contains(connection.node));
  });
  std::vector<PeerLink> links;
  for (const auto& [node, link] : nodes_) links.push_back(link);
  for (const auto& [address, link] : strangers) links.push_back(link);
  return links;
}

}  // namespace abacus::runtime
