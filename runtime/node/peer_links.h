#ifndef ABACUS_RUNTIME_NODE_PEER_LINKS_H_
#define ABACUS_RUNTIME_NODE_PEER_LINKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/ids.h"
#include "runtime/node/membership.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime {

// What the kernel knows of the TCP connections with one node.
struct PeerLink {
  NodeId node = 0;           // 0: no node that is known is at this address
  std::string address;       // the other end of the connection that was used last
  uint64_t connections = 0;  // that there are now
  // Of the connection that was used last.
  double delivered_bytes_s = 0;
  bool app_limited = false;  // that is a lower bound
  absl::Duration round_trip = absl::ZeroDuration();
  // Of all connections since the node was first met, those that have ended included.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// Sums up connections by the node at their other end, and not by its address: a connection that is
// made again comes from another port, and a node has an address for each plane, so that by address
// a node's history would begin anew with each connection, and stand there twice.
//
// Whose a connection is is known from the transport, by the kernel's name of the socket, and of the
// control plane's from the addresses of members. Connections that neither tells of (those that
// others' control planes and commands make) have a line for each address as long as they last.
// What flows after the last look at a connection that ends is in no sum. A node's sums last until
// it is no member any more.
//
// Thread-safety: thread-compatible. Blocking: none. Source: ours.
class PeerLinks {
 public:
  // A look at all connections that there are now. Returns the links with nodes by their ids, then
  // those with addresses.
  std::vector<PeerLink> Update(const std::vector<monitor::LinkInfo>& connections,
                               const std::vector<PeerSocket>& sockets,
                               const std::vector<MemberInfo>& members);

 private:
  struct Connection {
    NodeId node = 0;
    // As far as they stand in the node's sums.
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t missed = 0;  // looks since it was last there
  };

  void Charge(const monitor::LinkInfo& info, Connection& connection);

  std::map<uint64_t, Connection> connections_;  // by the socket
  std::map<NodeId, PeerLink> nodes_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_PEER_LINKS_H_
