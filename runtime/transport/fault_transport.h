#ifndef ABACUS_RUNTIME_TRANSPORT_FAULT_TRANSPORT_H_
#define ABACUS_RUNTIME_TRANSPORT_FAULT_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

// What happens to the frames of one direction. Probabilities are per frame, 0 to 1.
struct FaultKnobs {
  double lose = 0;
  double duplicate = 0;  // the second one comes after a time between delay_min and delay_max
  double reorder = 0;    // the frame waits until the next one has passed it, or delay_max
  double delay = 0;      // the frame waits for a time between delay_min and delay_max
  double cut = 0;        // the frame is lost, and all connections with that peer
  absl::Duration delay_min = absl::Milliseconds(1);
  absl::Duration delay_max = absl::Milliseconds(10);
  // A link's own properties, for every frame, in order.
  absl::Duration latency;
  double rate_mbit = 0;  // 10^6 bits per second and peer; 0: no limit
};

struct FaultOptions {
  NodeInstance self;
  uint64_t seed = 0;
  FaultKnobs send;
  FaultKnobs receive;
  // Cuts the connections with a peer, for example SocketTransport::CutConnections(). Without it
  // a cut only loses the frame.
  std::function<void(NodeInstance)> cut;
  // A peer of which a frame was lost is reported by OnReconnected() after that time, and not
  // before a partition from it has healed; InfiniteDuration(): never, so that loss is silent.
  // Only this side is told: who waits for a lost reply is told where losing it happens on receipt.
  absl::Duration announce_after = absl::Milliseconds(20);
};

// What became of one frame.
struct FaultDecision {
  bool lose = false;
  bool cut = false;
  bool duplicate = false;
  bool reorder = false;
  absl::Duration delay;            // zero: none
  absl::Duration duplicate_delay;  // of the second one

  bool operator==(const FaultDecision&) const = default;
};

enum class FaultDirection : uint8_t { kSend, kReceive };

// The decision for the `index`-th frame, from 0, with `peer` in that direction. Depends on nothing
// else: threads may race, the n-th frame still meets the same fate under the same seed.
FaultDecision DecideFault(const FaultKnobs& knobs, uint64_t seed, NodeInstance peer,
                          FaultDirection direction, uint64_t index);

struct FaultCounts {
  uint64_t frames = 0;       // that came by, in both directions
  uint64_t lost = 0;         // of them, by `lose`
  uint64_t partitioned = 0;  // lost at a partition
  uint64_t cuts = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t delayed = 0;  // by `delay`
  uint64_t announced = 0;
};

// A transport around another that makes faults, by a seed, and emulates slow links. Frames that
// meet no fault and no link property pass on the thread they came on; the others come from a thread
// of its own.
// Thread-safety: thread-safe. The destructor stops it.
class FaultTransport : public Transport, private FrameHandler {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, FaultOptions options);
  ~FaultTransport() override;

  absl::Status Start(FrameHandler* handler) override;
  // Frames that still wait are lost.
  void Stop() override;
  void AddPeer(NodeInstance peer, const std::string& address) override;
  void RemovePeer(NodeInstance peer) override;
  void Send(NodeInstance to, Lane lane, Frame frame) override;
  void Wait(NodeInstance peer, Waiter& waiter) override;
  void HandOffReading() override;
  std::string address() const override;
  FrameLimits limits() const override { return inner_->limits(); }
  std::vector<PeerTraffic> Traffic() const override;

  void SetKnobs(FaultDirection direction, const FaultKnobs& knobs);
  // Loses all frames from the one node to the other, one of which is this one.
  void PartitionOneWay(NodeId from, NodeId to);
  void Partition(NodeId a, NodeId b);
  void Heal(NodeId a, NodeId b);  // both ways
  void HealAll();
  FaultCounts Counts() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Item {
    enum class Kind : uint8_t { kFrame, kAnnouncement };
    Kind kind = Kind::kFrame;
    FaultDirection direction = FaultDirection::kSend;
    NodeInstance peer;
    Lane lane = Lane::kRequest;
    Frame frame;
  };
  using Queue = std::multimap<Clock::time_point, Item>;

  // Frames with one peer in one direction.
  struct Channel {
    uint64_t frames = 0;
    Clock::time_point link_free_at{};
    Queue::iterator held;  // a frame to be passed by the next one
    bool holding = false;
  };
  struct Worker;

  void OnFrame(NodeInstance from, Frame frame) override;
  void OnReconnected(NodeInstance peer) override;
  void OnPeerReplaced(NodeInstance peer) override;

  void Pass(FaultDirection direction, NodeInstance peer, Lane lane, Frame frame);
  // Puts `item` and its second copy where the decision wants them. What may go on at once, it
  // appends to `at_once`.
  void Place(const FaultDecision& decision, const FaultKnobs& knobs, Channel& channel, Item item,
             std::vector<Item>& at_once) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(NodeInstance peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Clock::time_point due, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Partitioned(NodeId from, NodeId to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return partitions_.contains({from, to});
  }
  void Deliver(Item item);
  void StartWorker();
  void Work(Worker* worker);
  bool TakeDue(Item* item);

  const std::unique_ptr<Transport> inner_;
  const FaultOptions options_;
  FrameHandler* handler_ = nullptr;

  mutable Mutex mutex_;  // a leaf
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  FaultKnobs send_ ABSL_GUARDED_BY(mutex_);
  FaultKnobs receive_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<NodeId, NodeId>> partitions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<NodeInstance, FaultDirection>, Channel> channels_ ABSL_GUARDED_BY(mutex_);
  std::set<NodeInstance> announcing_ ABSL_GUARDED_BY(mutex_);
  Queue queue_ ABSL_GUARDED_BY(mutex_);
  FaultCounts counts_ ABSL_GUARDED_BY(mutex_);
  // The last one waits for due items; those before it are busy in a handler, or have ended.
  std::vector<std::unique_ptr<Worker>> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_FAULT_TRANSPORT_H_
