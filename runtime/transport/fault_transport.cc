#include "runtime/transport/fault_transport.h"

#include <algorithm>
#include <atomic>

#include "runtime/transport/frame.h"

namespace abacus::runtime {
namespace {

// Timers of the system come that late: the rest is spun.
constexpr std::chrono::microseconds kTimerSlack{60};

// splitmix64's finalizer: each bit of the input changes each bit of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Numbers from 0 to 1, the same for the same key everywhere.
class Dice {
 public:
  explicit Dice(uint64_t key) : state_(key) {}
  double Roll() {
    state_ += 0x9e3779b97f4a7c15u;
    return static_cast<double>(Mix(state_) >> 11) * 0x1p-53;
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + Roll() * (high - low);
  }

 private:
  uint64_t state_;
};

Frame DeepCopy(const Frame& frame) {
  Frame copy{.type = frame.type, .payload = {.inline_bytes = frame.payload.inline_bytes}};
  // Who gets a frame may write into its blocks.
  for (const Block& block : frame.payload.blocks) {
    copy.payload.blocks.push_back(Block::CopyOf(block.view()));
  }
  return copy;
}

std::chrono::nanoseconds Nanos(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

}  // namespace

FaultDecision DecideFault(const FaultKnobs& knobs, uint64_t seed, NodeInstance peer,
                          FaultDirection direction, uint64_t index) {
  uint64_t key = Mix(seed + 1);
  key = Mix(key ^ (uint64_t{peer.node} << 32 | peer.incarnation));
  key = Mix(key ^ (index << 1 | static_cast<uint64_t>(direction)));
  Dice dice(key);
  FaultDecision decision;
  // Always all rolls, so that turning one knob leaves the fate by the others as it is.
  decision.lose = dice.Roll() < knobs.lose;
  decision.cut = dice.Roll() < knobs.cut;
  decision.duplicate = dice.Roll() < knobs.duplicate;
  decision.reorder = dice.Roll() < knobs.reorder;
  const bool delay = dice.Roll() < knobs.delay;
  const absl::Duration delay_time = dice.Between(knobs.delay_min, knobs.delay_max);
  const absl::Duration duplicate_time = dice.Between(knobs.delay_min, knobs.delay_max);
  if (delay) decision.delay = delay_time;
  if (decision.duplicate) decision.duplicate_delay = duplicate_time;
  return decision;
}

struct FaultTransport::Worker {
  std::thread thread;
  const FaultTransport* owner = nullptr;
  bool handed_off = false;  // owner-thread
  std::atomic<bool> ended{false};

  static thread_local Worker* self;
};
thread_local FaultTransport::Worker* FaultTransport::Worker::self = nullptr;

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, FaultOptions options)
    : inner_(std::move(inner)),
      options_(std::move(options)),
      send_(options_.send),
      receive_(options_.receive) {}

FaultTransport::~FaultTransport() { Stop(); }

absl::Status FaultTransport::Start(FrameHandler* handler) {
  handler_ = handler;
  StartWorker();
  return inner_->Start(this);
}

void FaultTransport::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    queue_.clear();
    channels_.clear();
    changed_.SignalAll();
  }
  inner_->Stop();  // first: a worker may be blocked inside Send()
  std::vector<std::unique_ptr<Worker>> workers;
  {
    MutexLock lock(mutex_);
    workers.swap(workers_);
  }
  for (const auto& worker : workers) worker->thread.join();
}

void FaultTransport::AddPeer(NodeInstance peer, const std::string& address) {
  inner_->AddPeer(peer, address);
}

void FaultTransport::RemovePeer(NodeInstance peer) {
  {
    MutexLock lock(mutex_);
    std::erase_if(channels_, [peer](const auto& entry) { return entry.first.first == peer; });
    std::erase_if(queue_, [peer](const auto& entry) { return entry.second.peer == peer; });
    announcing_.erase(peer);
  }
  inner_->RemovePeer(peer);
}

void FaultTransport::Send(NodeInstance to, Lane lane, Frame frame) {
  Pass(FaultDirection::kSend, to, lane, std::move(frame));
}

void FaultTransport::Wait(NodeInstance peer, Waiter& waiter) {
  if (waiter.done()) return;
  HandOffReading();
  inner_->Wait(peer, waiter);
}

void FaultTransport::HandOffReading() {
  Worker* const self = Worker::self;
  if (self != nullptr && self->owner == this && !self->handed_off) {
    self->handed_off = true;
    StartWorker();
  }
  inner_->HandOffReading();
}

std::string FaultTransport::address() const { return inner_->address(); }
std::vector<PeerTraffic> FaultTransport::Traffic() const { return inner_->Traffic(); }

void FaultTransport::SetKnobs(FaultDirection direction, const FaultKnobs& knobs) {
  MutexLock lock(mutex_);
  (direction == FaultDirection::kSend ? send_ : receive_) = knobs;
}

void FaultTransport::PartitionOneWay(NodeId from, NodeId to) {
  MutexLock lock(mutex_);
  partitions_.insert({from, to});
}

void FaultTransport::Partition(NodeId a, NodeId b) {
  PartitionOneWay(a, b);
  PartitionOneWay(b, a);
}

void FaultTransport::Heal(NodeId a, NodeId b) {
  MutexLock lock(mutex_);
  partitions_.erase({a, b});
  partitions_.erase({b, a});
}

void FaultTransport::HealAll() {
  MutexLock lock(mutex_);
  partitions_.clear();
}

FaultCounts FaultTransport::Counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void FaultTransport::OnFrame(NodeInstance from, Frame frame) {
  Pass(FaultDirection::kReceive, from, Lane::kRequest, std::move(frame));
}
void FaultTransport::OnReconnected(NodeInstance peer) { handler_->OnReconnected(peer); }
void FaultTransport::OnPeerReplaced(NodeInstance peer) { handler_->OnPeerReplaced(peer); }

// ---- Faults ----

void FaultTransport::Pass(FaultDirection direction, NodeInstance peer, Lane lane, Frame frame) {
  std::vector<Item> at_once;
  bool cut = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    const bool sending = direction == FaultDirection::kSend;
    const FaultKnobs& knobs = sending ? send_ : receive_;
    Channel& channel = channels_[{peer, direction}];
    const FaultDecision decision =
        DecideFault(knobs, options_.seed, peer, direction, channel.frames++);
    const NodeId self = options_.self.node;
    const bool partitioned = sending ? Partitioned(self, peer.node) : Partitioned(peer.node, self);
    ++counts_.frames;
    if (partitioned) {
      ++counts_.partitioned;
    } else if (decision.cut) {
      ++counts_.cuts;
      cut = true;
    } else if (decision.lose) {
      ++counts_.lost;
    } else {
      Place(decision, knobs, channel,
            {.direction = direction, .peer = peer, .lane = lane, .frame = std::move(frame)},
            at_once);
    }
    if (partitioned || cut || decision.lose) Announce(peer);
  }
  if (cut && options_.cut) options_.cut(peer);
  for (Item& item : at_once) Deliver(std::move(item));
}

void FaultTransport::Place(const FaultDecision& decision, const FaultKnobs& knobs, Channel& channel,
                           Item item, std::vector<Item>& at_once) {
  const auto now = Clock::now();
  auto due = now + Nanos(knobs.latency);
  if (knobs.rate_mbit > 0) {
    const double takes_ns = 8000.0 * FrameWireBytes(item.frame) / knobs.rate_mbit;
    channel.link_free_at = std::max(channel.link_free_at, now) +
                           std::chrono::nanoseconds(static_cast<int64_t>(takes_ns));
    due = channel.link_free_at + Nanos(knobs.latency);
  }
  if (decision.duplicate) {
    ++counts_.duplicated;
    Item second = item;
    second.frame = DeepCopy(item.frame);
    Enqueue(due + Nanos(decision.duplicate_delay), std::move(second));
  }
  if (decision.reorder && !channel.holding) {
    ++counts_.reordered;
    channel.held = queue_.emplace(due + Nanos(knobs.delay_max), std::move(item));
    channel.holding = true;
    changed_.Signal();
    return;
  }
  if (decision.delay > absl::ZeroDuration()) {
    ++counts_.delayed;
    due += Nanos(decision.delay);
  }
  const bool waits = due > now;
  if (waits) {
    Enqueue(due, std::move(item));
  } else {
    at_once.push_back(std::move(item));
  }
  if (!channel.holding) return;
  auto held = queue_.extract(channel.held);  // has been passed now
  channel.holding = false;
  if (waits) {
    Enqueue(due, std::move(held.mapped()));  // equal times keep the order of insertion
  } else {
    at_once.push_back(std::move(held.mapped()));
  }
}

void FaultTransport::Announce(NodeInstance peer) {
  if (options_.announce_after == absl::InfiniteDuration()) return;
  if (!announcing_.insert(peer).second) return;
  Enqueue(Clock::now() + Nanos(options_.announce_after),
          {.kind = Item::Kind::kAnnouncement, .peer = peer});
}

void FaultTransport::Enqueue(Clock::time_point due, Item item) {
  queue_.emplace(due, std::move(item));
  changed_.Signal();
}

void FaultTransport::Deliver(Item item) {
  if (item.kind == Item::Kind::kAnnouncement) {
    handler_->OnReconnected(item.peer);
  } else if (item.direction == FaultDirection::kSend) {
    inner_->Send(item.peer, item.lane, std::move(item.frame));
  } else {
    handler_->OnFrame(item.peer, std::move(item.frame));
  }
}

// ---- The thread that delivers what has waited ----

void FaultTransport::StartWorker() {
  std::vector<std::unique_ptr<Worker>> ended;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    for (auto& worker : workers_) {
      if (worker->ended.load(std::memory_order_acquire)) ended.push_back(std::move(worker));
    }
    std::erase(workers_, nullptr);
    auto worker = std::make_unique<Worker>();
    Worker* const raw = worker.get();
    raw->owner = this;
    raw->thread = std::thread([this, raw] { Work(raw); });
    workers_.push_back(std::move(worker));
  }
  for (const auto& worker : ended) worker->thread.join();
}

// One thread waits for the next due item; it ends after it has handed that on to another.
void FaultTransport::Work(Worker* worker) {
  Worker::self = worker;
  Item item;
  while (!worker->handed_off && TakeDue(&item)) Deliver(std::move(item));
  worker->ended.store(true, std::memory_order_release);
}

bool FaultTransport::TakeDue(Item* item) {
  while (true) {
    Clock::time_point due;
    {
      MutexLock lock(mutex_);
      while (true) {
        if (stopping_) return false;
        if (queue_.empty()) {
          changed_.Wait(mutex_);
          continue;
        }
        due = queue_.begin()->first;
        const auto now = Clock::now();
        if (now + kTimerSlack >= due) break;
        changed_.WaitUntil(mutex_, due - kTimerSlack);
      }
      if (Clock::now() >= due) {
        auto first = queue_.begin();
        *item = std::move(first->second);
        for (auto& [key, channel] : channels_) {
          if (channel.holding && channel.held == first) channel.holding = false;
        }
        queue_.erase(first);
        if (item->kind != Item::Kind::kAnnouncement) return true;
        const NodeId self = options_.self.node;
        if (!Partitioned(self, item->peer.node) && !Partitioned(item->peer.node, self)) {
          announcing_.erase(item->peer);
          ++counts_.announced;
          return true;
        }
        // Not healed yet.
        Enqueue(Clock::now() + Nanos(std::max(options_.announce_after, absl::Milliseconds(1))),
                std::move(*item));
        continue;
      }
    }
    std::this_thread::yield();
  }
}

}  // namespace abacus::runtime
