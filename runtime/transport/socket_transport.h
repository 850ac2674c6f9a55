#ifndef ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_H_
#define ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

struct SocketTransportOptions {
  // This process. Incarnations of a node grow: of two, the greater is the one that lives.
  NodeInstance self;
  // "host:port" (0: the system chooses), "[ipv6]:port" or "unix:/path".
  std::string listen_address = "127.0.0.1:0";
  // Longest time that a thread spins for bytes before it blocks; 0: it never does. Adapts itself
  // below that, down to nothing where spinning does not pay.
  uint32_t spin_us_max = 50;
  // The largest frame that is sent or taken, header and all.
  uint64_t frame_bytes_max = uint64_t{1} << 30;
  uint32_t block_count_max = 1 << 16;
  // Rate at which frames go to each peer, in 10^6 bits per second; 0: as fast as they can.
  double rate_limit_mbit = 0;
  // The blocks of a received frame of Lane::kBulk live in files in `spill_directory` where they
  // have more bytes than this together. Where the directory takes them not, they stay in memory,
  // and an error is logged. Empty directory: always in memory.
  uint64_t bulk_memory_bytes_max = uint64_t{64} << 20;
  std::string spill_directory;
  // Threads that wait for frames when nothing happens; more are started as handlers block.
  size_t readers = 2;
  // Time a peer has to take a connection and answer the hello, each. The first Send() to a peer
  // that is not there may block that long; those after it do not.
  absl::Duration dial_timeout = absl::Seconds(2);
};

// What has gone wrong since the transport started.
struct SocketTransportCounters {
  uint64_t bad_streams = 0;        // connections closed for garbage, damage or a cut in mid-frame
  uint64_t refused_versions = 0;   // hellos of another wire version, or answers of one
  uint64_t refused_instances = 0;  // hellos meant for another process, or from a fenced one
  uint64_t cut_connections = 0;    // all that have ended, for whatever reason
  uint64_t reconnects = 0;         // connections made again after a cut
  uint64_t lost_frames = 0;        // frames that Send() could not send
  uint64_t oversized_frames = 0;   // of those, larger than frame_bytes_max
  uint64_t spill_failures = 0;     // blocks that had to stay in memory
};

// A socket that leads to a peer.
struct PeerSocket {
  NodeInstance peer;
  uint64_t socket = 0;  // the kernel's name of it (SO_COOKIE)
};

// Frames over TCP or unix sockets.
//
// Connections: one for requests and one for bulk frames to each peer, made when the first frame is
// sent; replies go back on the connection on which the peer's requests come, and on our own request
// connection where there is none. Each begins with a hello that says who calls whom (hello.h).
// Threads: a few that read (reader_pool.h), one that keeps house, and whoever waits for an answer.
// Why blocking threads and not coroutines: the thread that reads a request runs it, and the thread
// that waits for a reply reads it, with no hand-off in between; each costs 25 to 50 us.
//
// Thread-safety: thread-safe. The destructor stops it; no thread may be inside a method then.
class SocketTransport : public Transport {
 public:
  explicit SocketTransport(const SocketTransportOptions& options);
  ~SocketTransport() override;

  // Errors: kInvalidArgument   - the address or another option makes no sense
  //         kAlreadyExists     - another process listens at the address
  //         kResourceExhausted - no descriptors or threads are left
  absl::Status Start(FrameHandler* handler) override;
  void Stop() override;
  // A peer that had been removed may come back this way.
  void AddPeer(NodeInstance peer, const std::string& address) override;
  void RemovePeer(NodeInstance peer) override;
  // REQUIRES: the calling thread holds no locks (it may block for long). Hands reading off before
  // it blocks, where it is called inside OnFrame.
  void Send(NodeInstance to, Lane lane, Frame frame) override;
  // Hands reading off likewise.
  void Wait(NodeInstance peer, Waiter& waiter) override;
  void HandOffReading() override;
  std::string address() const override;
  FrameLimits limits() const override;
  std::vector<PeerTraffic> Traffic() const override;

  // OK where nothing is known against reaching `peer`, else the last failure:
  //   kNodeUnreachable - no connection, or another process answers at its address
  //   kVersionMismatch - it speaks another wire version
  //   kNodeFenced      - it has removed this process, or RemovePeer() was called for it here
  //   kNotFound        - the peer is not known
  absl::Status PeerStatus(NodeInstance peer) const;
  SocketTransportCounters Counters() const;
  // Those of the connections that there are now, whoever made them. A system call for each.
  std::vector<PeerSocket> Sockets() const;
  // Threads of the transport now, the one that keeps house included.
  size_t Threads() const;
  // Cuts all connections with `peer` as a broken network would. For tests and fault injection.
  void CutConnections(NodeInstance peer);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_H_
