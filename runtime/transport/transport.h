#ifndef ABACUS_RUNTIME_TRANSPORT_TRANSPORT_H_
#define ABACUS_RUNTIME_TRANSPORT_TRANSPORT_H_

// The data plane as the rest of the runtime sees it: frames from one process of a node to another.
//
// A transport may lose, delay, duplicate and reorder frames (a cut connection loses what was on the
// way, and a fault-injecting transport does the rest on purpose); the protocol above is made for
// that. It never delivers a frame that is damaged, that was meant for another incarnation of this
// node, or that comes from a process that speaks another wire version.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/codec.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// What a frame is to the transport: where it travels. Requests leave on this node's own connection
// to the peer. Replies go back on the connection on which the peer's requests come, so that the
// thread that waits for a reply can read it from the socket itself. Bulk frames (checkpoints) have
// a connection of their own: they may take long, and no call waits behind them.
enum class Lane : uint8_t { kRequest, kReply, kBulk };

struct Frame {
  uint16_t type = 0;  // meaning is up to the layers above
  Payload payload;
};

// One thread's wait for one answer. The waiting thread makes it, and keeps it alive until done().
// Thread-safety: Complete() may come from any thread, once; the rest belongs to the waiting thread
// and to the transport that parks it.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  // Marks the wait as over and wakes the thread where it sleeps. Everything written before is
  // visible to the waiting thread. The Waiter may be gone when this returns: do not touch it again.
  void Complete();

  // For transports: sleeps until done() or Nudge(); false where `timeout` passed first.
  bool Sleep(absl::Duration timeout);
  // For transports: makes a sleeping thread look around again (for example to take over reading).
  void Nudge();
  // For transports: around a wait in the kernel for something else, that Complete() shall end by
  // making `event_fd` (an eventfd) readable. BeginPoll() is false where the wait is over already;
  // after true, EndPoll() must follow. It leaves `event_fd` unreadable.
  bool BeginPoll(int event_fd);
  void EndPoll(int event_fd);

 private:
  // kPolling carries the event_fd in the bits above it: the waker reads both in one exchange, after
  // which the Waiter may be gone.
  enum State : uint32_t { kIdle, kSleeping, kNudged, kDone, kPolling };
  static constexpr uint32_t kStateBits = 3;
  std::atomic<uint32_t> state_{kIdle};
};

// What a frame may have at the most. Sender and receiver check it.
struct FrameLimits {
  uint64_t frame_bytes_max = uint64_t{1} << 30;  // header and all
  uint32_t block_count_max = 1 << 16;
};

// Who gets the frames. Called from the transport's threads, and from threads inside Wait().
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;

  // A frame came from `from`. May run long (it executes invocations) only after it has called
  // Transport::HandOffReading() on this thread.
  virtual void OnFrame(NodeInstance from, Frame frame) = 0;
  // The way to `peer` was cut and works again: frames of either direction may have been lost.
  virtual void OnReconnected(NodeInstance peer) = 0;
  // Another incarnation of that node answered or called: `peer` is dead for sure.
  virtual void OnPeerReplaced(NodeInstance peer) = 0;
};

// Traffic with one peer since the transport started, in bytes on the wire (frame headers included).
struct PeerTraffic {
  NodeInstance peer;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t sent_frames = 0;
  uint64_t received_frames = 0;
};

// Thread-safety: all methods are thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Frames are delivered to `handler` from now on. Called once, before everything else.
  virtual absl::Status Start(FrameHandler* handler) = 0;
  // Stops delivering and joins the transport's threads; threads inside Wait() return when their
  // Waiter is completed by the caller. Idempotent.
  virtual void Stop() = 0;

  // Where to reach a peer ("127.0.0.1:7071", "unix:/run/abacus/data.sock"). A new address of a
  // known instance replaces the old one.
  virtual void AddPeer(NodeInstance peer, const std::string& address) = 0;
  // Closes all connections with it and drops what is under way; its frames are refused from now on.
  virtual void RemovePeer(NodeInstance peer) = 0;

  // Sends a frame. Blocks while the peer takes no data (back-pressure). There is no error: a frame
  // that cannot be sent is lost, and OnReconnected says so when the way works again.
  virtual void Send(NodeInstance to, Lane lane, Frame frame) = 0;

  // Parks the calling thread until `waiter` is done. While it waits for an answer from `peer` it
  // may read that connection itself, which saves a hand-off between threads, and it spins a little
  // before it blocks where that has paid lately.
  virtual void Wait(NodeInstance peer, Waiter& waiter) = 0;

  // Called inside OnFrame, before anything that may block: another thread takes over reading, so
  // that the frames behind this one are read. Costs nothing when called again in the same OnFrame
  // or from a thread that is not one of the transport's.
  virtual void HandOffReading() = 0;

  // What a frame may have: a larger one is never sent.
  virtual FrameLimits limits() const { return {}; }

  // The address at which peers reach this transport (with the port that the system chose).
  virtual std::string address() const = 0;
  virtual std::vector<PeerTraffic> Traffic() const = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_TRANSPORT_H_
