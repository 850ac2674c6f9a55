#include "runtime/testing/cluster.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::runtime::testing {

bool Eventually(const std::function<bool()>& condition, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Mutex mutex;
  CondVar never;
  while (!condition()) {  // without the lock: it may call objects
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    MutexLock lock(mutex);
    never.WaitUntil(mutex, now + std::chrono::milliseconds(1));
  }
  return true;
}

uint64_t Seed(uint64_t otherwise) {
  const char* text = getenv("ABACUS_SEED");
  const uint64_t seed = text == nullptr ? otherwise : strtoull(text, nullptr, 10);
  std::printf("ABACUS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

bool LongRun() {
  const char* text = getenv("ABACUS_LONG");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

// -- sync points --------------------------------------------------------------------------------

void TestPoints::Reach(std::string_view name) {
  MutexLock lock(mutex_);
  auto it = points_.find(name);
  if (it == points_.end()) it = points_.emplace(std::string(name), Point()).first;
  Point& point = it->second;
  ++point.reached;
  changed_.SignalAll();
  if (point.to_hold == 0) return;
  --point.to_hold;
  ++point.held;
  const uint64_t generation = point.generation;
  while (point.generation == generation) changed_.Wait(mutex_);
}

void TestPoints::Hold(const std::string& name, size_t threads) {
  MutexLock lock(mutex_);
  points_[name].to_hold = threads;
}

void TestPoints::Release(const std::string& name) {
  MutexLock lock(mutex_);
  Point& point = points_[name];
  point.to_hold = 0;
  point.held = 0;
  ++point.generation;
  changed_.SignalAll();
}

void TestPoints::ReleaseAll() {
  MutexLock lock(mutex_);
  for (auto& [name, point] : points_) {
    point.to_hold = 0;
    point.held = 0;
    ++point.generation;
  }
  changed_.SignalAll();
}

bool TestPoints::AwaitHeld(const std::string& name, size_t threads) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  while (points_[name].held < threads) {
    if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
  }
  return true;
}

bool TestPoints::AwaitReached(const std::string& name, uint64_t times) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  while (points_[name].reached < times) {
    if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
  }
  return true;
}

uint64_t TestPoints::Reached(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto it = points_.find(name);
  return it == points_.end() ? 0 : it->second.reached;
}

// -- nodes --------------------------------------------------------------------------------------

BindingOptions QuickOptions() {
  BindingOptions options;
  options.core.probe_interval_ns = 100'000'000;
  options.core.retry_max_ns = 20'000'000;
  // Long enough that a slow machine does not cancel what should commit.
  options.core.drain_deadline_ns = 20'000'000'000;
  return options;
}

ClusterNode::ClusterNode(size_t index, const ClusterOptions& options, const std::string& directory)
    : self_{static_cast<NodeId>(index + 1), 1} {
  if (options.types) options.types(index, points_, types_);
  SocketTransportOptions transport;
  transport.self = self_;
  if (options.unix_sockets) {
    transport.listen_address = absl::StrCat("unix:", directory, "/", index, ".sock");
  }
  transport.frame_bytes_max = options.frame_bytes_max;
  transport.rate_limit_mbit = options.rate_limit_mbit;
  transport.bulk_memory_bytes_max = options.bulk_memory_bytes_max;
  transport.spill_directory = directory;
  auto sockets = std::make_unique<SocketTransport>(transport);
  sockets_ = sockets.get();
  transport_ = std::move(sockets);
  if (options.faults.has_value()) {
    FaultOptions faults;
    faults.self = self_;
    faults.seed = options.seed;
    faults.send = *options.faults;
    faults.receive = *options.faults;
    faults.cut = [sockets = sockets_](NodeInstance peer) { sockets->CutConnections(peer); };
    auto faulty = std::make_unique<FaultTransport>(std::move(transport_), std::move(faults));
    faults_ = faulty.get();
    transport_ = std::move(faulty);
  }
  if (options.around) transport_ = options.around(index, std::move(transport_));
  binding_ =
      std::make_unique<BindingManager>(self_, options.binding, types_, transport_.get(), &points_);
  migrator_ = std::make_unique<Migrator>(binding_.get(), options.checkpoints);
}

bool ClusterNode::Hosts(const Rid& rid) {
  return binding_->WithCore([&](auto& core, Nanos, Actions&) {
    const ObjectState* object = core.Find(rid);
    return object != nullptr && object->hosted();
  });
}

void ClusterNode::Stop() {
  if (stopped_) return;
  stopped_ = true;
  points_.ReleaseAll();
  binding_->Stop();
  transport_->Stop();
}

Cluster::Cluster(const ClusterOptions& options) {
  std::string pattern =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/abacus_cluster_XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) Die(absl::InternalError("no temporary directory"));
  directory_ = pattern;
  ClusterOptions placed = options;
  if (placed.checkpoints.spill_directory == CheckpointOptions().spill_directory) {
    placed.checkpoints.spill_directory = directory_;
  }
  for (size_t i = 0; i < options.nodes; ++i) {
    nodes_.push_back(std::make_unique<ClusterNode>(i, placed, directory_));
    const absl::Status started = nodes_[i]->transport().Start(&nodes_[i]->binding());
    if (!started.ok()) Die(started);
  }
  for (auto& node : nodes_) {
    for (auto& peer : nodes_) {
      if (node != peer) node->transport().AddPeer(peer->self(), peer->transport().address());
    }
    node->binding().Start();
  }
}

Cluster::~Cluster() {
  for (auto& node : nodes_) node->Stop();
  nodes_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::StatusOr<MigrationReport> Cluster::Move(const std::vector<Rid>& rids, size_t from,
                                              size_t to) {
  return nodes_[from]->migrator().Move(rids, nodes_[to]->self());
}

std::function<absl::StatusOr<MigrationReport>()> Cluster::MoveBeside(const std::vector<Rid>& rids,
                                                                     size_t from, size_t to) {
  auto moved = std::make_shared<std::future<absl::StatusOr<MigrationReport>>>(
      std::async(std::launch::async, [this, rids, from, to] { return Move(rids, from, to); }));
  return [moved]() -> absl::StatusOr<MigrationReport> {
    if (moved->wait_for(kPatience) != std::future_status::ready) {
      return absl::DeadlineExceededError("the move did not end");
    }
    return moved->get();
  };
}

std::optional<size_t> Cluster::HostOf(const Rid& rid) {
  std::optional<size_t> host;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->dead() || !nodes_[i]->Hosts(rid)) continue;
    if (host.has_value()) return std::nullopt;
    host = i;
  }
  return host;
}

void Cluster::Kill(size_t node) {
  ClusterNode& victim = *nodes_[node];
  victim.dead_ = true;
  for (auto& peer : nodes_) {
    if (peer->self() != victim.self()) victim.transport().RemovePeer(peer->self());
  }
  for (auto& peer : nodes_) {
    if (peer->dead()) continue;
    peer->transport().RemovePeer(victim.self());
    peer->binding().OnPeerDead(victim.self());
  }
  victim.Stop();
}

void Cluster::ReleaseAll() {
  for (auto& node : nodes_) node->points().ReleaseAll();
}

void Cluster::Die(const absl::Status& status) {
  std::fprintf(stderr, "cluster: %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace abacus::runtime::testing
