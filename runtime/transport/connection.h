#ifndef ABACUS_RUNTIME_TRANSPORT_CONNECTION_H_
#define ABACUS_RUNTIME_TRANSPORT_CONNECTION_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/adaptive_spin.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/rate_limiter.h"
#include "runtime/transport/reader_pool.h"
#include "runtime/transport/socket.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

class Connection;

// What all connections with one peer share. Outlives them.
struct PeerMeter {
  NodeInstance peer;
  std::unique_ptr<RateLimiter> limiter;  // of what is sent; null: no limit
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<uint64_t> sent_frames{0};
  std::atomic<uint64_t> received_frames{0};
};

// Who owns connections. Called from any thread, with no lock held.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // The hello of an accepted connection, or what was wrong with it: what to answer. Where that is a
  // welcome, the owner has called Connection::Bind(); where it is a kGreeting, nothing is said.
  virtual Hello OnGreeting(Connection& connection, const absl::StatusOr<Hello>& hello) = 0;
  // The welcome is on its way: frames may be sent.
  virtual void OnWelcomed(Connection& connection) = 0;
  virtual void OnFrame(Connection& connection, Frame frame) = 0;
  // The connection has ended, for that reason. Once per connection.
  virtual void OnCut(Connection& connection, const absl::Status& reason) = 0;
};

struct ConnectionOptions {
  FrameLimits limits;
  FrameDecoder::BlockSource bulk_source;  // memory of blocks on Lane::kBulk; empty: like all others
  int64_t spin_ns_max = 0;
};

// One connection with a peer: sends frames, and has at most one thread at a time that reads them.
//
// The right to read is a token. It is with a thread that reads (of the pool, or one that waits for
// an answer), with the pool's epoll (kArmed), or with nobody (kFree): a thread that has its answer
// just leaves, because arming costs a system call and, worse, wakes a pool thread for the next
// answer, which the next waiting thread would rather read itself.
//
// Thread-safety: thread-safe, except where a method asks for the token.
class Connection : public Readable, public std::enable_shared_from_this<Connection> {
 public:
  enum class Side : uint8_t { kDialled, kAccepted };

  // REQUIRES: `pool` and `owner` outlive it. The maker holds the token.
  Connection(Side side, std::unique_ptr<Socket> socket, ReaderPool* pool, ConnectionOwner* owner,
             const ConnectionOptions& options);
  ~Connection() override;

  // Has the pool watch the socket. Errors: kResourceExhausted.
  absl::Status Register();
  // Says whose connection it is.
  void Bind(std::shared_ptr<PeerMeter> meter, Lane lane);

  Side side() const { return side_; }
  // REQUIRES: bound.
  NodeInstance peer() const { return meter_->peer; }
  Lane lane() const { return lane_; }
  std::chrono::steady_clock::time_point made_at() const { return made_at_; }
  bool greeted() const { return greeted_.load(std::memory_order_acquire); }
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  std::string local_host() const { return socket_->local_host(); }
  uint64_t cookie() const { return socket_->cookie(); }

  // Says hello and waits for the answer. REQUIRES: dialled, the token is held.
  // Errors: as ParseHello(); kUnavailable where the peer hangs up or is silent for `timeout`.
  absl::Status Greet(const Hello& hello, absl::Duration timeout, Hello* answer);
  // Lets go of the token, to whoever wants it next, or to the pool. REQUIRES: the token is held.
  void PassOn();
  // Has the pool read where no thread has done so since the last call, lest frames lie there.
  void ReadIfLeftAlone();

  // Writes a frame. Blocks while the peer takes none or its rate is used up; hands reading off
  // first where this thread reads. False where the connection has ended and the frame is lost.
  bool Send(const Frame& frame);

  // Reads frames until `waiter` is done or the connection has ended, or leaves that to a thread
  // that already does and sleeps.
  void WaitFor(Waiter& waiter);

  // Ends the connection, now. Idempotent.
  void Cut(const absl::Status& reason);
  // No frame is being delivered any more, nor will be, when this returns, but for handlers that
  // have handed off. REQUIRES: closed(); not called from a handler.
  void AwaitQuiet();

  void OnReadable() override;

  // For the innermost handlers on this thread that read for `pool`: lets other threads read.
  static void HandOff(ReaderPool* pool);

 private:
  enum Token : uint8_t { kFree, kArmed, kHeld, kGone };
  enum class Reading : uint8_t { kStarved, kHandedOff, kCut };
  struct Scope;

  // Returns what the token was; the caller has it now where that is kFree or kArmed.
  Token TakeToken();
  // Puts the token down. Nobody reads then, but for a parked thread that is nudged to.
  void LeaveToken();
  bool Reclaim();
  // Makes one parked thread try for the token. False where none is parked.
  bool NudgeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(park_mutex_);
  void Park(Waiter& waiter);

  // These ask for the token.
  Reading ReadUntil(Waiter* waiter);
  Reading Dispatch(Scope& scope);
  bool TakeGreeting();
  IoResult ReadSome();
  IoResult SpinRead(Waiter* waiter);
  void PollForData(Waiter& waiter);
  std::string_view staged() const {
    return {stage_.get() + stage_begin_, stage_end_ - stage_begin_};
  }

  bool WriteAll(std::string_view bytes, absl::Duration timeout);
  bool SendParts(const Frame& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mutex_);
  void AwaitRoom();
  bool AwaitRate(RateLimiter& limiter, std::chrono::steady_clock::time_point when);
  absl::Status EndReason(const IoResult& io) const;

  const Side side_;
  const std::unique_ptr<Socket> socket_;
  ReaderPool* const pool_;
  ConnectionOwner* const owner_;
  const std::chrono::steady_clock::time_point made_at_ = std::chrono::steady_clock::now();
  const int wake_fd_;  // of dialled ones: ends the poll of a thread whose waiter is done
  uint64_t watch_id_ = 0;

  // Constant once greeted_.
  std::shared_ptr<PeerMeter> meter_;
  Lane lane_ = Lane::kRequest;
  std::atomic<bool> greeted_{false};

  std::atomic<bool> closed_{false};
  std::atomic<bool> active_{false};
  std::atomic<uint8_t> token_{kHeld};

  // Belong to the holder of the token.
  FrameDecoder decoder_;
  AdaptiveSpin spin_;
  const std::unique_ptr<char[]> stage_;  // what has been read and not been decoded
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  bool maybe_more_ = false;  // the last read filled all it was given

  Mutex park_mutex_;  // a leaf
  // Threads in WaitFor() that do not read.
  std::vector<Waiter*> parked_ ABSL_GUARDED_BY(park_mutex_);

  Mutex send_mutex_;  // before park_mutex_ and those of the pool and the limiter
  // Of one write; here because making so many each time costs more than a small frame's copy.
  std::array<std::string_view, Socket::kPartsMax> send_parts_ ABSL_GUARDED_BY(send_mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_CONNECTION_H_
