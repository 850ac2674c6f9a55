#include "runtime/transport/socket_transport.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/transport/socket_transport_impl.h"

namespace abacus::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{50};
// A connection that has not said hello after that is closed.
constexpr std::chrono::seconds kGreetingTime{10};
// A thread that waits while there is no connection looks for one that often, to read it itself.
constexpr absl::Duration kRecheck = absl::Milliseconds(20);
// Smaller blocks stay in memory: a mapping each would cost more than it saves.
constexpr size_t kSpilledBlockBytesMin = 64 * 1024;

absl::Status CheckOptions(const SocketTransportOptions& options) {
  const auto wrong = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("transport: ", what));
  };
  if (!options.self.valid()) return wrong("the node has no id (0)");
  if (options.readers == 0) return wrong("readers must be at least 1");
  if (options.frame_bytes_max < kFrameHeaderBytes) {
    return wrong(absl::StrCat("frame_bytes_max must be at least ", kFrameHeaderBytes));
  }
  if (!(options.rate_limit_mbit >= 0)) return wrong("rate_limit_mbit must not be negative");
  if (options.listen_address.size() > kHelloAddressBytesMax) {
    return wrong(
        absl::StrCat("the listen address is longer than ", kHelloAddressBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

SocketTransport::Impl::Impl(const SocketTransportOptions& options) : options_(options) {
  connection_options_.limits = {options.frame_bytes_max, options.block_count_max};
  connection_options_.spin_ns_max = int64_t{options.spin_us_max} * 1000;
  if (!options.spill_directory.empty()) {
    connection_options_.bulk_source = [this](size_t bytes, uint64_t frame_block_bytes) {
      return MakeBulkBlock(bytes, frame_block_bytes);
    };
  }
}

// ---- Life ----

absl::Status SocketTransport::Impl::Start(FrameHandler* handler) {
  ABACUS_RETURN_IF_ERROR(CheckOptions(options_));
  handler_ = handler;
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<ListeningSocket> socket,
                          sockets_.Listen(options_.listen_address));
  listener_ = std::make_shared<Listener>(std::move(socket), &pool_, this);
  ABACUS_RETURN_IF_ERROR(pool_.Start(options_.readers));
  house_keeper_ = std::thread([this] { KeepHouse(); });
  return listener_->Open();
}

void SocketTransport::Impl::Stop() {
  MutexLock lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  stopping_.store(true, std::memory_order_release);
  TickAt(Clock::time_point::min());
  if (house_keeper_.joinable()) house_keeper_.join();
  if (listener_ != nullptr) listener_->Close();

  // A connection that is made meanwhile is cut by its maker: it looks at stopping() after it has
  // put it into the table.
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock table(mutex_);
    for (const auto& [key, connection] : connections_) connections.push_back(connection);
  }
  for (const auto& connection : connections) connection->Cut(absl::CancelledError("stopped"));
  pool_.Stop();
  if (listener_ != nullptr) listener_->Release();
  for (const auto& connection : connections) connection->AwaitQuiet();
}

void SocketTransport::Impl::KeepHouse() {
  while (!stopping()) {
    {
      MutexLock lock(house_mutex_);
      while (Clock::now() < next_tick_) house_changed_.WaitUntil(house_mutex_, next_tick_);
      next_tick_ = Clock::now() + kTick;
    }
    if (!stopping()) Tick();
  }
}

void SocketTransport::Impl::TickAt(Clock::time_point when) {
  MutexLock lock(house_mutex_);
  if (when >= next_tick_) return;
  next_tick_ = when;
  house_changed_.Signal();
}

void SocketTransport::Impl::Tick() {
  const auto now = Clock::now();
  for (const auto& peer : AllPeers()) {
    for (const auto& connection : peer->Dialled()) connection->ReadIfLeftAlone();
    if (peer->Tick(now)) pool_.Submit([peer] { peer->DialWanted(); });
  }
  std::vector<std::shared_ptr<Connection>> silent;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, connection] : connections_) {
      if (!connection->greeted() && connection->side() == Connection::Side::kAccepted &&
          now - connection->made_at() > kGreetingTime) {
        silent.push_back(connection);
      }
    }
  }
  for (const auto& connection : silent) {
    connection->Cut(MakeError(ErrorKind::kBadFrame, "no hello came in time"));
  }
  listener_->Tick();
  pool_.EnsureReader();  // again, where no thread could be started when one was needed
}

// ---- Peers ----

std::shared_ptr<Peer> SocketTransport::Impl::FindPeer(NodeInstance peer) const {
  MutexLock lock(mutex_);
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second;
}

std::shared_ptr<Peer> SocketTransport::Impl::FindOrMakePeer(NodeInstance instance) {
  MutexLock lock(mutex_);
  std::shared_ptr<Peer>& peer = peers_[instance];
  if (peer == nullptr) {
    auto meter = std::make_shared<PeerMeter>();
    meter->peer = instance;
    if (options_.rate_limit_mbit > 0) {
      meter->limiter = std::make_unique<RateLimiter>(options_.rate_limit_mbit);
    }
    peer = std::make_shared<Peer>(std::move(meter), this);
  }
  return peer;
}

std::vector<std::shared_ptr<Peer>> SocketTransport::Impl::AllPeers() const {
  std::vector<std::shared_ptr<Peer>> peers;
  MutexLock lock(mutex_);
  peers.reserve(peers_.size());
  for (const auto& [instance, peer] : peers_) peers.push_back(peer);
  return peers;
}

void SocketTransport::Impl::AddPeer(NodeInstance peer, const std::string& address) {
  FindOrMakePeer(peer)->SetAddress(address, /*replace=*/true);
}

void SocketTransport::Impl::RemovePeer(NodeInstance instance) {
  FindOrMakePeer(instance)->Fence(
      MakeError(ErrorKind::kNodeFenced, instance.ToString() + " was removed"));
  for (const auto& connection : ConnectionsWith(instance)) {
    connection->Cut(absl::CancelledError("the peer was removed"));
  }
}

void SocketTransport::Impl::CutConnections(NodeInstance peer) {
  for (const auto& connection : ConnectionsWith(peer)) {
    connection->Cut(absl::UnavailableError("cut on purpose"));
  }
}

std::vector<std::shared_ptr<Connection>> SocketTransport::Impl::ConnectionsWith(
    NodeInstance peer) const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mutex_);
  for (const auto& [key, connection] : connections_) {
    if (connection->greeted() && connection->peer() == peer) connections.push_back(connection);
  }
  return connections;
}

absl::Status SocketTransport::Impl::PeerStatus(NodeInstance instance) const {
  const std::shared_ptr<Peer> peer = FindPeer(instance);
  if (peer == nullptr) return absl::NotFoundError("no peer " + instance.ToString());
  return peer->status();
}

std::vector<PeerTraffic> SocketTransport::Impl::Traffic() const {
  std::vector<PeerTraffic> traffic;
  for (const auto& peer : AllPeers()) {
    const PeerMeter& meter = *peer->meter();
    traffic.push_back({.peer = meter.peer,
                       .sent_bytes = meter.sent_bytes.load(std::memory_order_relaxed),
                       .received_bytes = meter.received_bytes.load(std::memory_order_relaxed),
                       .sent_frames = meter.sent_frames.load(std::memory_order_relaxed),
                       .received_frames = meter.received_frames.load(std::memory_order_relaxed)});
  }
  std::sort(traffic.begin(), traffic.end(),
            [](const PeerTraffic& a, const PeerTraffic& b) { return a.peer < b.peer; });
  return traffic;
}

std::vector<PeerSocket> SocketTransport::Impl::Sockets() const {
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, connection] : connections_) connections.push_back(connection);
  }
  std::vector<PeerSocket> sockets;
  for (const auto& connection : connections) {
    if (!connection->greeted() || connection->closed()) continue;
    sockets.push_back({connection->peer(), connection->cookie()});
  }
  return sockets;
}

SocketTransportCounters SocketTransport::Impl::Counters() const {
  return {.bad_streams = counters_.bad_streams,
          .refused_versions = counters_.refused_versions,
          .refused_instances = counters_.refused_instances,
          .cut_connections = counters_.cut_connections,
          .reconnects = counters_.reconnects,
          .lost_frames = counters_.lost_frames,
          .oversized_frames = counters_.oversized_frames,
          .spill_failures = counters_.spill_failures};
}

// ---- Frames ----

void SocketTransport::Impl::Send(NodeInstance to, Lane lane, Frame frame) {
  const std::shared_ptr<Peer> peer = FindPeer(to);
  if (peer == nullptr || stopping()) {
    counters_.lost_frames.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (const absl::Status fits = CheckFrame(frame, connection_options_.limits); !fits.ok()) {
    counters_.lost_frames.fetch_add(1, std::memory_order_relaxed);
    counters_.oversized_frames.fetch_add(1, std::memory_order_relaxed);
    spdlog::error("transport: a frame of type {} to {} is not sent: {}", frame.type, to.ToString(),
                  std::string(fits.message()));
    return;
  }
  if (lane == Lane::kReply) {
    SendReply(*peer, frame);
  } else {
    SendOwn(*peer, lane, frame);
  }
}

void SocketTransport::Impl::SendReply(Peer& peer, const Frame& frame) {
  const std::shared_ptr<Connection> incoming = peer.Incoming();
  if (incoming == nullptr) return SendOwn(peer, Lane::kRequest, frame);
  // The peer notices the cut too, connects again and asks again: nothing to repair from here.
  if (!incoming->Send(frame)) counters_.lost_frames.fetch_add(1, std::memory_order_relaxed);
}

void SocketTransport::Impl::SendOwn(Peer& peer, Lane lane, const Frame& frame) {
  std::shared_ptr<Connection> connection = peer.Current(lane);
  if (connection == nullptr) {
    HandOffReading();
    connection = peer.Outgoing(lane);
  }
  if (connection != nullptr && connection->Send(frame)) return;
  counters_.lost_frames.fetch_add(1, std::memory_order_relaxed);
  if (connection != nullptr) peer.OnLost(*connection);
}

void SocketTransport::Impl::Wait(NodeInstance instance, Waiter& waiter) {
  if (waiter.done()) return;
  HandOffReading();
  const std::shared_ptr<Peer> peer = FindPeer(instance);
  if (peer != nullptr) peer->BeginWait();
  while (!waiter.done()) {
    const std::shared_ptr<Connection> connection =
        peer == nullptr || stopping() ? nullptr : peer->Current(Lane::kRequest);
    if (connection != nullptr && !connection->closed()) {
      connection->WaitFor(waiter);
    } else if (peer == nullptr || stopping()) {
      waiter.Sleep(absl::InfiniteDuration());
    } else {
      waiter.Sleep(kRecheck);
    }
  }
  if (peer != nullptr) peer->EndWait();
}

Block SocketTransport::Impl::MakeBulkBlock(size_t bytes, uint64_t frame_block_bytes) {
  if (frame_block_bytes <= options_.bulk_memory_bytes_max || bytes < kSpilledBlockBytesMin) {
    return Block::Allocate(bytes);
  }
  absl::StatusOr<Block> block = Block::AllocateInFile(bytes, options_.spill_directory);
  if (block.ok()) return *std::move(block);
  counters_.spill_failures.fetch_add(1, std::memory_order_relaxed);
  spdlog::error("transport: {} bytes of state stay in memory: {}", bytes,
                std::string(block.status().message()));
  return Block::Allocate(bytes);
}

// ---- The interface ----

SocketTransport::SocketTransport(const SocketTransportOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
SocketTransport::~SocketTransport() = default;
absl::Status SocketTransport::Start(FrameHandler* handler) { return impl_->Start(handler); }
void SocketTransport::Stop() { impl_->Stop(); }
void SocketTransport::AddPeer(NodeInstance peer, const std::string& address) {
  impl_->AddPeer(peer, address);
}
void SocketTransport::RemovePeer(NodeInstance peer) { impl_->RemovePeer(peer); }
void SocketTransport::Send(NodeInstance to, Lane lane, Frame frame) {
  impl_->Send(to, lane, std::move(frame));
}
void SocketTransport::Wait(NodeInstance peer, Waiter& waiter) { impl_->Wait(peer, waiter); }
void SocketTransport::HandOffReading() { impl_->HandOffReading(); }
std::string SocketTransport::address() const { return impl_->address(); }
FrameLimits SocketTransport::limits() const { return impl_->limits(); }
std::vector<PeerTraffic> SocketTransport::Traffic() const { return impl_->Traffic(); }
absl::Status SocketTransport::PeerStatus(NodeInstance peer) const {
  return impl_->PeerStatus(peer);
}
std::vector<PeerSocket> SocketTransport::Sockets() const { return impl_->Sockets(); }

SocketTransportCounters SocketTransport::Counters() const { return impl_->Counters(); }
size_t SocketTransport::Threads() const { return impl_->Threads(); }
void SocketTransport::CutConnections(NodeInstance peer) { impl_->CutConnections(peer); }

}  // namespace abacus::runtime
