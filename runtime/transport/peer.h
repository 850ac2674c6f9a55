#ifndef ABACUS_RUNTIME_TRANSPORT_PEER_H_
#define ABACUS_RUNTIME_TRANSPORT_PEER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/connection.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

// What a Peer asks of the transport that owns it. Called with no lock held.
class PeerOwner {
 public:
  virtual ~PeerOwner() = default;
  // Connects and greets; the caller gets the token. Blocks.
  virtual absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::shared_ptr<PeerMeter>& meter,
                                                           const std::string& address,
                                                           Lane lane) = 0;
  virtual void OnReconnected(NodeInstance peer) = 0;
  // Peer::Tick() shall be called at `when`.
  virtual void TickAt(std::chrono::steady_clock::time_point when) = 0;
};

// One process of another node: where it is, and the connections with it.
//
// Requests and bulk frames have a connection each. It is dialled by the thread that sends the first
// frame, or the first after a cut. Where that fails, the frame is lost, and so are those after it
// without a wait; then, or where a thread waits for answers, the connection is made again in the
// background, after 10 ms, 20 ms, ... up to 1 s.
// Thread-safety: thread-safe.
class Peer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBackoffMin{10};
  static constexpr std::chrono::milliseconds kBackoffMax{1000};
  // A connection that has lived that long was a good one: the next attempt need not wait.
  static constexpr std::chrono::milliseconds kGoodLife{1000};

  // REQUIRES: `owner` outlives it.
  Peer(std::shared_ptr<PeerMeter> meter, PeerOwner* owner);

  NodeInstance instance() const { return meter_->peer; }
  const std::shared_ptr<PeerMeter>& meter() const { return meter_; }

  // With `replace` false only where none is known yet. Ends a Fence().
  void SetAddress(const std::string& address, bool replace);
  // No connection is made or taken any more; those there are, the caller cuts.
  void Fence(const absl::Status& why);
  bool fenced() const;
  // OK, or why the peer could not be reached the last time, or why it is fenced.
  absl::Status status() const;

  // The connection for frames on that lane, kRequest or kBulk. Dials where there is none and no
  // attempt has failed yet, and blocks meanwhile. Null: the frame is lost.
  std::shared_ptr<Connection> Outgoing(Lane lane);
  // The same without dialling; null where there is none now.
  std::shared_ptr<Connection> Current(Lane lane) const;
  // The peer's latest request connection to us; null where there is none.
  std::shared_ptr<Connection> Incoming() const;
  // False where the peer is fenced.
  bool SetIncoming(std::shared_ptr<Connection> connection);
  void OnCut(const Connection& connection);
  // A frame was lost on a connection of Outgoing().
  void OnLost(const Connection& connection);

  // Threads that wait for answers of the peer: a cut connection is made again for them.
  void BeginWait() { waiting_.fetch_add(1, std::memory_order_relaxed); }
  void EndWait() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

  // True where connections want to be made now, by DialWanted(), which blocks.
  bool Tick(Clock::time_point now);
  void DialWanted();
  // For housekeeping and fault injection: the connections that we have dialled.
  std::vector<std::shared_ptr<Connection>> Dialled() const;

 private:
  struct Link {
    enum class State : uint8_t { kDown, kDialling, kUp };
    State state = State::kDown;
    std::shared_ptr<Connection> connection;
    bool was_cut = false;  // frames may have been lost since it was up
    bool lost = false;     // one was
    int failures = 0;      // attempts in a row that came to nothing
    int quick_cuts = 0;    // connections in a row that did not live for kGoodLife
    Clock::time_point next_dial{};
  };

  Link& LinkOf(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return links_[lane == Lane::kBulk];
  }
  bool Wanted(const Link& link, Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Releases the lock meanwhile.
  void Dial(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<PeerMeter> meter_;
  PeerOwner* const owner_;
  std::atomic<int> waiting_{0};

  mutable Mutex mutex_;  // before the locks of connections and the pool
  CondVar changed_;      // a Link has left kDialling
  std::string address_ ABSL_GUARDED_BY(mutex_);
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::array<Link, 2> links_ ABSL_GUARDED_BY(mutex_);  // requests, bulk
  std::shared_ptr<Connection> incoming_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_PEER_H_
