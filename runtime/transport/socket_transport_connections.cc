#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/transport/socket_transport_impl.h"

namespace abacus::runtime {
namespace {

// Connections that have not said hello yet; more are closed at once.
constexpr size_t kStrangersMax = 1024;

}  // namespace

// ---- Connections that others make ----

void SocketTransport::Impl::OnAccepted(std::unique_ptr<Socket> socket) {
  size_t strangers = 0;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, connection] : connections_) strangers += !connection->greeted();
  }
  if (strangers >= kStrangersMax) {
    spdlog::warn("transport: {} connections have not said hello, another is closed", strangers);
    return;
  }
  auto connection = std::make_shared<Connection>(Connection::Side::kAccepted, std::move(socket),
                                                 &pool_, this, connection_options_);
  if (const absl::Status added = connection->Register(); !added.ok()) {
    spdlog::error("transport: a connection is closed: {}", added.ToString());
    return;
  }
  Track(connection);
  connection->PassOn();
}

void SocketTransport::Impl::Track(const std::shared_ptr<Connection>& connection) {
  {
    MutexLock lock(mutex_);
    connections_.emplace(connection.get(), connection);
  }
  if (stopping()) connection->Cut(absl::CancelledError("stopped"));
}

Hello SocketTransport::Impl::MakeHello(HelloVerdict verdict, Lane lane, NodeInstance meant,
                                       const Connection& connection) const {
  std::string address = listener_->address();
  // Nobody else can use "0.0.0.0": say the address by which this peer is reached.
  if (listener_->any_host()) {
    if (const std::string host = connection.local_host(); !host.empty()) {
      address = absl::StrCat(host, ":", listener_->port());
    }
  }
  return {.verdict = verdict,
          .lane = lane,
          .sender = options_.self,
          .meant = meant,
          .address = std::move(address)};
}

Hello SocketTransport::Impl::OnGreeting(Connection& connection,
                                        const absl::StatusOr<Hello>& greeting) {
  const auto answer = [&](HelloVerdict verdict, NodeInstance to = {}) {
    return MakeHello(verdict, Lane::kRequest, to, connection);
  };
  if (!greeting.ok()) {
    if (KindOf(greeting.status()) == ErrorKind::kVersionMismatch) {
      return answer(HelloVerdict::kOtherVersion);  // OnCut() counts and logs it
    }
    return answer(HelloVerdict::kGreeting);
  }
  const NodeInstance caller = greeting->sender;
  if (greeting->verdict != HelloVerdict::kGreeting || greeting->lane == Lane::kReply) {
    return answer(HelloVerdict::kGreeting);
  }
  if (greeting->meant != options_.self) {
    counters_.refused_instances.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("transport: {} called {}, but this is {}: refused", caller.ToString(),
                 greeting->meant.ToString(), options_.self.ToString());
    return answer(HelloVerdict::kOtherInstance, caller);
  }
  const std::shared_ptr<Peer> peer = Admit(caller);
  if (peer == nullptr) {
    counters_.refused_instances.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("transport: {} called, which is fenced here: refused", caller.ToString());
    return answer(HelloVerdict::kFenced, caller);
  }
  peer->SetAddress(greeting->address, /*replace=*/false);
  connection.Bind(peer->meter(), greeting->lane);
  return answer(HelloVerdict::kWelcome, caller);
}

void SocketTransport::Impl::OnWelcomed(Connection& connection) {
  const std::shared_ptr<Peer> peer = FindPeer(connection.peer());
  const bool welcome = connection.lane() == Lane::kBulk
                           ? !peer->fenced()
                           : peer->SetIncoming(connection.shared_from_this());
  if (!welcome) connection.Cut(absl::CancelledError("the peer was removed"));
  if (connection.closed()) peer->OnCut(connection);  // before the peer knew of it
}

void SocketTransport::Impl::OnFrame(Connection& connection, Frame frame) {
  handler_->OnFrame(connection.peer(), std::move(frame));
}

void SocketTransport::Impl::OnCut(Connection& connection, const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    connections_.erase(&connection);
  }
  const bool greeted = connection.greeted();
  const std::shared_ptr<Peer> peer = greeted ? FindPeer(connection.peer()) : nullptr;
  if (peer != nullptr) peer->OnCut(connection);
  if (stopping()) return;
  counters_.cut_connections.fetch_add(1, std::memory_order_relaxed);
  const std::string with = greeted ? connection.peer().ToString() : "a stranger";
  const ErrorKind kind = KindOf(reason);
  if (kind == ErrorKind::kBadFrame || kind == ErrorKind::kVersionMismatch) {
    (kind == ErrorKind::kBadFrame ? counters_.bad_streams : counters_.refused_versions)
        .fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("transport: connection with {} closed: {}", with, std::string(reason.message()));
  } else {
    spdlog::debug("transport: connection with {} ended: {}", with, std::string(reason.message()));
  }
}

std::shared_ptr<Peer> SocketTransport::Impl::Admit(NodeInstance caller) {
  std::vector<std::shared_ptr<Peer>> earlier;
  for (const auto& known : AllPeers()) {
    if (known->instance().node != caller.node) continue;
    if (known->instance().incarnation > caller.incarnation) return nullptr;
    if (known->instance().incarnation < caller.incarnation) earlier.push_back(known);
  }
  for (const auto& peer : earlier) Replace(peer, caller);
  std::shared_ptr<Peer> peer = FindOrMakePeer(caller);
  return peer->fenced() ? nullptr : peer;
}

void SocketTransport::Impl::Replace(const std::shared_ptr<Peer>& peer, NodeInstance by) {
  const NodeInstance dead = peer->instance();
  if (peer->fenced()) return;
  spdlog::warn("transport: {} is dead, its node runs as {} now", dead.ToString(), by.ToString());
  peer->Fence(MakeError(
      ErrorKind::kNodeUnreachable,
      absl::StrCat(dead.ToString(), " is dead: its node runs as ", by.ToString(), " now")));
  for (const auto& connection : ConnectionsWith(dead)) {
    connection->Cut(absl::UnavailableError("the peer was replaced"));
  }
  pool_.Submit([this, dead] { handler_->OnPeerReplaced(dead); });
}

// ---- Connections of our own ----

absl::StatusOr<std::shared_ptr<Connection>> SocketTransport::Impl::Dial(
    const std::shared_ptr<PeerMeter>& meter, const std::string& address, Lane lane) {
  const auto unreachable = [&](const absl::Status& why) {
    return MakeError(ErrorKind::kNodeUnreachable,
                     absl::StrCat(meter->peer.ToString(), " at ", address, ": ", why.message()));
  };
  if (stopping()) return unreachable(absl::CancelledError("this transport is stopped"));
  absl::StatusOr<std::unique_ptr<Socket>> socket =
      sockets_.Connect(address, options_.dial_timeout, pool_.stop_fd());
  if (!socket.ok()) return unreachable(socket.status());
  auto connection = std::make_shared<Connection>(Connection::Side::kDialled, *std::move(socket),
                                                 &pool_, this, connection_options_);
  Hello answer;
  absl::Status greeted =
      connection->Greet(MakeHello(HelloVerdict::kGreeting, lane, meter->peer, *connection),
                        options_.dial_timeout, &answer);
  if (greeted.ok()) greeted = JudgeAnswer(answer, meter->peer, address);
  if (greeted.ok()) greeted = connection->Register();
  if (!greeted.ok()) {
    connection->Cut(greeted);
    return KindOf(greeted) == ErrorKind::kNone ? unreachable(greeted) : greeted;
  }
  connection->Bind(meter, lane);
  Track(connection);
  return connection;
}

absl::Status SocketTransport::Impl::JudgeAnswer(const Hello& answer, NodeInstance meant,
                                                const std::string& address) {
  if (answer.verdict == HelloVerdict::kFenced) {
    return MakeError(ErrorKind::kNodeFenced,
                     absl::StrCat(meant.ToString(), " at ", address, " has declared this process, ",
                                  options_.self.ToString(), ", dead"));
  }
  if (answer.verdict == HelloVerdict::kWelcome && answer.sender == meant) return absl::OkStatus();
  if (answer.sender.node == meant.node && answer.sender.incarnation > meant.incarnation) {
    if (const auto peer = FindPeer(meant); peer != nullptr) Replace(peer, answer.sender);
  }
  return MakeError(ErrorKind::kNodeUnreachable,
                   absl::StrCat("at ", address, " is ", answer.sender.ToString(), " now, and not ",
                                meant.ToString()));
}

void SocketTransport::Impl::OnReconnected(NodeInstance peer) {
  counters_.reconnects.fetch_add(1, std::memory_order_relaxed);
  pool_.Submit([this, peer] { handler_->OnReconnected(peer); });
}

}  // namespace abacus::runtime
