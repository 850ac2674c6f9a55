#include "runtime/testing/sim_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/migration/messages.h"

namespace abacus::runtime::sim {
namespace {

constexpr std::array kStatNames = {"steps",
                                   "seeds",
                                   "calls begun",
                                   "calls OK",
                                   "calls with unknown outcome",
                                   "calls not run",
                                   "calls run locally",
                                   "insiders admitted, local",
                                   "insiders admitted, remote",
                                   "call-backs",
                                   "branches of forks",
                                   "branches given up",
                                   "calls run for other nodes",
                                   "calls parked",
                                   "redirections",
                                   "probes",
                                   "calls sent again",
                                   "duplicates suppressed",
                                   "records evicted",
                                   "duplicates refused",
                                   "hints evicted",
                                   "moves begun",
                                   "moves committed",
                                   "moves cancelled",
                                   "moves begun with calls inside",
                                   "moves of sets",
                                   "drains that were too slow",
                                   "crossing moves that gave way",
                                   "takeovers by the target",
                                   "resumed without a home",
                                   "crashes",
                                   "restarts",
                                   "partitions",
                                   "objects destroyed",
                                   "orphans destroyed",
                                   "objects lost",
                                   "messages",
                                   "messages lost",
                                   "messages duplicated",
                                   "messages late",
                                   "messages of the dead",
                                   "restores refused"};
static_assert(kStatNames.size() == static_cast<size_t>(Stat::kCount));

}  // namespace

const char* StatName(Stat stat) { return kStatNames[static_cast<size_t>(stat)]; }

void SimStats::Add(const SimStats& other) {
  for (size_t i = 0; i < values_.size(); ++i) values_[i] += other.values_[i];
}

std::string SimStats::ToString() const {
  std::string text;
  for (size_t i = 0; i < values_.size(); ++i) {
    absl::StrAppend(&text, kStatNames[i], ": ", values_[i], "\n");
  }
  return text;
}

CoreOptions SimCoreOptions() {
  CoreOptions options;
  options.probe_interval_ns = 20 * kMs;
  options.retry_min_ns = 200 * kUs;
  options.retry_max_ns = 20 * kMs;
  options.drain_deadline_ns = 40 * kMs;
  options.transfer_deadline_ns = 150 * kMs;
  options.orphan_grace_ns = 1000'000 * kMs;
  return options;
}

const char* MessageName(uint16_t type) {
  constexpr std::array kCalls = {"?",      "Call",      "Reply",       "Redirect",
                                 "Probe",  "NotSeen",   "UnderWay",    "Ack",
                                 "Parked", "Destroyed", "DestroyedAck"};
  constexpr std::array kMoves = {"Begin",       "BeginReply", "Transfer",  "Restored", "Commit",
                                 "CommitReply", "Activate",   "Activated", "Discard",  "Discarded",
                                 "Query",       "QueryReply", "Claim",     "NotHeld"};
  const auto first = static_cast<uint16_t>(MessageType::kFirstOfMigration);
  if (type < kCalls.size()) return kCalls[type];
  if (type >= first && type < first + kMoves.size()) return kMoves[type - first];
  return "?";
}

SimWorld::SimWorld(const WorldOptions& options, SimCoresFactory factory)
    : options_(options), factory_(std::move(factory)), random_(options.seed), oracle_(this) {}

SimWorld::~SimWorld() = default;

// -- processes ----------------------------------------------------------------------------------

SimNode& SimWorld::Start(NodeId id) {
  if (nodes_.size() < id) nodes_.resize(id);
  if (incarnations_.size() < id) incarnations_.resize(id);
  const NodeInstance self{id, ++incarnations_[id - 1]};
  nodes_[id - 1] = std::make_unique<SimNode>(this, self, factory_);
  if (tracing()) Trace(absl::StrCat(self.ToString(), " starts"));
  ScheduleTick(self, random_.Between(0, options_.tick_ns));
  return *nodes_[id - 1];
}

// A process ticks for as long as it lives, from a phase of its own.
void SimWorld::ScheduleTick(NodeInstance self, Nanos delay) {
  Schedule(delay, [this, self] {
    if (!Alive(self)) return;
    SimNode& node = *nodes_[self.node - 1];
    node.Tick();
    oracle_.AfterEvent(node);
    ScheduleTick(self, options_.tick_ns);
  });
}

void SimWorld::Crash(NodeId id) {
  const NodeInstance dead = nodes_[id - 1]->self();
  if (tracing()) Trace(absl::StrCat(dead.ToString(), " dies"));
  ++stats_[Stat::kCrashes];
  CollectCounters(*nodes_[id - 1]);
  nodes_[id - 1].reset();
  dead_.push_back(dead);
  oracle_.OnCrash(dead);
}

void SimWorld::TellDead(NodeId observer, NodeInstance dead) {
  SimNode* node = this->node(observer);
  if (node == nullptr) return;
  if (tracing())
    Trace(absl::StrCat(node->self().ToString(), " learns that ", dead.ToString(), " is dead"));
  node->OnPeerDead(dead);
  oracle_.AfterEvent(*node);
}

bool SimWorld::Alive(NodeInstance instance) const {
  return instance.valid() && instance.node <= nodes_.size() &&
         nodes_[instance.node - 1] != nullptr && nodes_[instance.node - 1]->self() == instance;
}

void SimWorld::ForEachNode(absl::FunctionRef<void(SimNode&)> visit) {
  for (const auto& node : nodes_) {
    if (node != nullptr) visit(*node);
  }
}

SimNode* SimWorld::HostOf(size_t object) {
  for (const auto& node : nodes_) {
    if (node != nullptr && object < node->hosts.size() && node->hosts[object]) return node.get();
  }
  return nullptr;
}

// -- time ---------------------------------------------------------------------------------------

void SimWorld::After(Nanos delay, Task task) {
  ++waiting_;
  Schedule(delay, [this, task = std::move(task)]() mutable {
    --waiting_;
    task();
  });
}

void SimWorld::Schedule(Nanos delay, Task task) {
  queue_.push_back({now_ + delay, ++events_, std::move(task)});
  std::push_heap(queue_.begin(), queue_.end());
}

void SimWorld::AfterAt(NodeInstance where, Nanos delay, NodeTask task) {
  After(delay, [this, where, task = std::move(task)]() mutable {
    if (!Alive(where)) return;
    ++stats_[Stat::kSteps];
    SimNode& node = *nodes_[where.node - 1];
    task(node);
    oracle_.AfterEvent(node);
  });
}

bool SimWorld::Step() {
  if (oracle_.failed() || queue_.empty()) return false;
  std::pop_heap(queue_.begin(), queue_.end());
  Event event = std::move(queue_.back());
  queue_.pop_back();
  now_ = event.at;
  event.task();
  return !oracle_.failed();
}

void SimWorld::RunFor(Nanos duration) {
  const Nanos end = now_ + duration;
  while (!queue_.empty() && queue_.front().at <= end && Step()) {
  }
  if (!oracle_.failed()) now_ = end;
}

bool SimWorld::RunUntil(absl::FunctionRef<bool()> done, Nanos limit) {
  const Nanos end = now_ + limit;
  while (!done()) {
    if (queue_.empty() || queue_.front().at > end || !Step()) return false;
  }
  return true;
}

bool SimWorld::Quiet() {
  bool quiet = waiting_ == 0;
  ForEachNode([&](SimNode& node) {
    quiet = quiet && node.busy_threads() == 0 && node.cores().load().zero();
  });
  return quiet;
}

// -- network ------------------------------------------------------------------------------------

void SimWorld::Send(Message message) {
  if (message.to == message.from) return Deliver(std::move(message), 0);
  ++stats_[Stat::kMessages];
  if (intercept && intercept(message)) return;
  const auto delay = [this] {
    const NetworkOptions& network = options_.network;
    if (!random_.Chance(network.late)) {
      return random_.Between(network.delay_min_ns, network.delay_max_ns);
    }
    ++stats_[Stat::kMessagesLate];
    return random_.Between(network.delay_max_ns, network.late_max_ns);
  };
  if (random_.Chance(options_.network.copied)) {
    ++stats_[Stat::kMessagesCopied];
    MarkCopied(message.frame);
    Deliver(message, delay());
  }
  if (IsCut(message.from.node, message.to.node) || random_.Chance(options_.network.lost)) {
    ++stats_[Stat::kMessagesLost];
    return;
  }
  Deliver(std::move(message), delay());
}

void SimWorld::Deliver(Message message, Nanos delay) {
  After(delay, [this, message = std::move(message)]() mutable {
    ++stats_[Stat::kSteps];
    if (!Alive(message.to) || IsCut(message.from.node, message.to.node)) return;
    if (tracing()) {
      Trace(absl::StrCat(message.from.ToString(), " -> ", message.to.ToString(), " ",
                         MessageName(message.frame.type)));
    }
    SimNode& node = *nodes_[message.to.node - 1];
    node.Receive(message.from, std::move(message.frame));
    oracle_.AfterEvent(node);
  });
}

// A copy of a call may come to a node to which its object has moved since: the promise "did not
// run" holds for calls that the network does not copy.
void SimWorld::MarkCopied(const Frame& frame) {
  if (frame.type != static_cast<uint16_t>(MessageType::kCall)) return;
  size_t tail = 0;
  if (!ParseFrame<CallMessage>(frame, &tail).ok()) return;
  Reader reader(frame.payload, nullptr, tail);
  oracle_.call(reader.TakeNumber<uint64_t>()).copied = true;
}

void SimWorld::Cut(NodeId from, NodeId to, bool cut) {
  if (tracing() && cut_[from][to] != cut) {
    Trace(absl::StrCat("node ", from, cut ? " is cut off from node " : " reaches node ", to));
  }
  cut_[from][to] = cut;
}

void SimWorld::Trace(const std::string& line) {
  trace_.push_back(absl::StrCat(now_ / kUs, " us  ", line));
  if (trace_.size() > options_.trace_lines_max) trace_.pop_front();
}

void SimWorld::CollectCounters() {
  ForEachNode([this](SimNode& node) { CollectCounters(node); });
}

void SimWorld::CollectCounters(SimNode& node) {
  const CoreCounters& calls = node.cores().counters();
  const MigrationCounters& moves = node.cores().moves();
  stats_[Stat::kParked] += calls.parked;
  stats_[Stat::kRedirects] += calls.redirects;
  stats_[Stat::kProbes] += calls.probes;
  stats_[Stat::kResent] += calls.resent;
  stats_[Stat::kDuplicates] += calls.dedup.duplicates;
  stats_[Stat::kEvicted] += calls.dedup.entries_evicted;
  stats_[Stat::kHintsEvicted] += node.cores().locations().hints_evicted();
  stats_[Stat::kOrphansDestroyed] += calls.orphans_destroyed;
  stats_[Stat::kFromTheDead] += calls.from_the_dead;
  stats_[Stat::kMovesBegun] += moves.begun;
  stats_[Stat::kMovesCommitted] += moves.committed;
  stats_[Stat::kMovesCancelled] += moves.cancelled;
  stats_[Stat::kSlowDrains] += moves.cancelled_slow_drain;
  stats_[Stat::kCrossings] += moves.cancelled_crossing;
  stats_[Stat::kTakeOvers] += moves.taken_over;
}

}  // namespace abacus::runtime::sim
