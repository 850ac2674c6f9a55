#ifndef ABACUS_RUNTIME_TRANSPORT_LISTENER_H_
#define ABACUS_RUNTIME_TRANSPORT_LISTENER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/transport/reader_pool.h"
#include "runtime/transport/socket.h"

namespace abacus::runtime {

class ListenerOwner {
 public:
  virtual ~ListenerOwner() = default;
  virtual void OnAccepted(std::unique_ptr<Socket> socket) = 0;
};

// Takes connections on the pool's threads. Thread-safety: thread-safe.
class Listener : public Readable, public std::enable_shared_from_this<Listener> {
 public:
  // REQUIRES: `pool` and `owner` outlive it.
  Listener(std::unique_ptr<ListeningSocket> socket, ReaderPool* pool, ListenerOwner* owner);

  absl::Status Open();
  // No connection is given out any more, but for one that is under way.
  void Close();
  // Closes the socket. REQUIRES: closed, and no pool thread runs.
  void Release() { socket_.reset(); }
  // Tries again where the system refused to give connections out.
  void Tick();

  const std::string& address() const { return address_; }
  bool any_host() const { return any_host_; }
  uint16_t port() const { return port_; }

  void OnReadable() override;

 private:
  std::unique_ptr<ListeningSocket> socket_;
  ReaderPool* const pool_;
  ListenerOwner* const owner_;
  const std::string address_;
  const bool any_host_;
  const uint16_t port_;
  uint64_t watch_id_ = 0;
  std::atomic<bool> closed_{false};
  std::atomic<bool> starved_{false};  // of descriptors: not armed until the next Tick()
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_LISTENER_H_
