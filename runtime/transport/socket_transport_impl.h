#ifndef ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_IMPL_H_
#define ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_IMPL_H_

// Private to SocketTransport: socket_transport.cc has its life and its frames,
// socket_transport_connections.cc how connections come to be and end.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/connection.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/listener.h"
#include "runtime/transport/peer.h"
#include "runtime/transport/reader_pool.h"
#include "runtime/transport/socket.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime {

class SocketTransport::Impl : public ConnectionOwner, public PeerOwner, public ListenerOwner {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Impl(const SocketTransportOptions& options);
  ~Impl() override { Stop(); }

  absl::Status Start(FrameHandler* handler);
  void Stop();
  void AddPeer(NodeInstance peer, const std::string& address);
  void RemovePeer(NodeInstance peer);
  void Send(NodeInstance to, Lane lane, Frame frame);
  void Wait(NodeInstance peer, Waiter& waiter);
  void HandOffReading() { Connection::HandOff(&pool_); }
  FrameLimits limits() const { return connection_options_.limits; }
  std::string address() const { return listener_ == nullptr ? "" : listener_->address(); }
  std::vector<PeerTraffic> Traffic() const;
  absl::Status PeerStatus(NodeInstance peer) const;
  SocketTransportCounters Counters() const;
  std::vector<PeerSocket> Sockets() const;
  size_t Threads() const { return pool_.threads() + 1; }
  void CutConnections(NodeInstance peer);

  // ListenerOwner
  void OnAccepted(std::unique_ptr<Socket> socket) override;
  // ConnectionOwner
  Hello OnGreeting(Connection& connection, const absl::StatusOr<Hello>& greeting) override;
  void OnWelcomed(Connection& connection) override;
  void OnFrame(Connection& connection, Frame frame) override;
  void OnCut(Connection& connection, const absl::Status& reason) override;
  // PeerOwner
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::shared_ptr<PeerMeter>& meter,
                                                   const std::string& address, Lane lane) override;
  void OnReconnected(NodeInstance peer) override;
  void TickAt(Clock::time_point when) override;

 private:
  // SocketTransportCounters
  struct AtomicCounters {
    std::atomic<uint64_t> bad_streams{0};
    std::atomic<uint64_t> refused_versions{0};
    std::atomic<uint64_t> refused_instances{0};
    std::atomic<uint64_t> cut_connections{0};
    std::atomic<uint64_t> reconnects{0};
    std::atomic<uint64_t> lost_frames{0};
    std::atomic<uint64_t> oversized_frames{0};
    std::atomic<uint64_t> spill_failures{0};
  };

  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  std::shared_ptr<Peer> FindPeer(NodeInstance peer) const;
  std::shared_ptr<Peer> FindOrMakePeer(NodeInstance peer);
  std::vector<std::shared_ptr<Peer>> AllPeers() const;
  std::vector<std::shared_ptr<Connection>> ConnectionsWith(NodeInstance peer) const;
  // The peer that calls; null where it is fenced or a later incarnation of it is known. Earlier
  // ones are declared replaced.
  std::shared_ptr<Peer> Admit(NodeInstance caller);
  void Replace(const std::shared_ptr<Peer>& peer, NodeInstance by);
  void Track(const std::shared_ptr<Connection>& connection);
  Hello MakeHello(HelloVerdict verdict, Lane lane, NodeInstance meant,
                  const Connection& connection) const;
  absl::Status JudgeAnswer(const Hello& answer, NodeInstance meant, const std::string& address);
  void SendReply(Peer& peer, const Frame& frame);
  void SendOwn(Peer& peer, Lane lane, const Frame& frame);
  void KeepHouse();
  void Tick();
  Block MakeBulkBlock(size_t bytes, uint64_t frame_block_bytes);

  const SocketTransportOptions options_;
  ConnectionOptions connection_options_;
  FrameHandler* handler_ = nullptr;
  SocketFactory sockets_;
  ReaderPool pool_;
  std::shared_ptr<Listener> listener_;
  AtomicCounters counters_;
  std::atomic<bool> stopping_{false};

  mutable Mutex mutex_;  // before no other: peers and connections are called without it
  absl::flat_hash_map<NodeInstance, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  // Those that have not been cut.
  absl::flat_hash_map<const Connection*, std::shared_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mutex_);

  Mutex stop_mutex_;  // held while stopping; before all others
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread house_keeper_;
  Mutex house_mutex_;  // a leaf
  CondVar house_changed_;
  Clock::time_point next_tick_ ABSL_GUARDED_BY(house_mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_SOCKET_TRANSPORT_IMPL_H_
