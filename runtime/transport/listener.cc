#include "runtime/transport/listener.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/status/statusor.h"

namespace abacus::runtime {

Listener::Listener(std::unique_ptr<ListeningSocket> socket, ReaderPool* pool, ListenerOwner* owner)
    : socket_(std::move(socket)),
      pool_(pool),
      owner_(owner),
      address_(socket_->address()),
      any_host_(socket_->any_host()),
      port_(socket_->port()) {}

absl::Status Listener::Open() {
  const absl::Status added = pool_->Add(socket_->fd(), shared_from_this(), &watch_id_);
  if (added.ok()) pool_->Arm(socket_->fd(), watch_id_);
  return added;
}

void Listener::Close() {
  closed_.store(true);
  pool_->Remove(socket_->fd(), watch_id_);
}

void Listener::Tick() {
  if (starved_.exchange(false)) pool_->Arm(socket_->fd(), watch_id_);
}

void Listener::OnReadable() {
  while (!closed_.load()) {
    absl::StatusOr<std::unique_ptr<Socket>> socket = socket_->Accept();
    if (!socket.ok()) {
      // Armed again at once it would come here again at once.
      spdlog::error("transport: {}", std::string(socket.status().message()));
      starved_.store(true);
      return;
    }
    if (*socket == nullptr) break;
    owner_->OnAccepted(*std::move(socket));
  }
  pool_->Arm(socket_->fd(), watch_id_);
}

}  // namespace abacus::runtime
