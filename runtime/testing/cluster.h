#ifndef ABACUS_RUNTIME_TESTING_CLUSTER_H_
#define ABACUS_RUNTIME_TESTING_CLUSTER_H_

// Several nodes in one process, for tests: each a BindingManager, a Migrator and a SocketTransport,
// joined over loopback. Threads, sockets and locks are the real ones; only who is dead is decided
// by the test, which knows.

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/sync_point.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/testing/sanitized.h"
#include "runtime/transport/fault_transport.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime::testing {

// How long a test waits for what must happen. Long, so that only a hang reaches it.
inline constexpr std::chrono::seconds kPatience{60};

// Waits until `condition` holds; false where it did not within `patience`. For facts that nothing
// announces; where a sync point does, wait for that.
[[nodiscard]] bool Eventually(const std::function<bool()>& condition,
                              std::chrono::seconds patience = kPatience);

// The seed of a test that draws: ABACUS_SEED, else `otherwise`. Prints it.
uint64_t Seed(uint64_t otherwise);
// True where ABACUS_LONG asks for the larger counts.
bool LongRun();

// Sync points that stop the threads that reach them until the test lets them go.
// Thread-safety: thread-safe. Blocking: Reach() until released; the Await methods up to kPatience.
class TestPoints final : public SyncPoints {
 public:
  void Reach(std::string_view point) override;

  // The next `threads` threads that reach `point` stop there.
  void Hold(const std::string& point, size_t threads = SIZE_MAX);
  // Lets go all that stand at `point`, and stops no more there.
  void Release(const std::string& point);
  void ReleaseAll();
  // Waits until that many threads stand at `point`.
  [[nodiscard]] bool AwaitHeld(const std::string& point, size_t threads = 1);
  // Waits until `point` has been reached that often since the beginning.
  [[nodiscard]] bool AwaitReached(const std::string& point, uint64_t times);
  uint64_t Reached(const std::string& point) const;

 private:
  struct Point {
    uint64_t reached = 0;
    size_t to_hold = 0;       // threads that still stop
    size_t held = 0;          // threads that stand here
    uint64_t generation = 0;  // grows with each release
  };
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Point, std::less<>> points_ ABSL_GUARDED_BY(mutex_);
};

// Limits that make a test quick: deadlines and intervals of the core are a few 10 ms to seconds.
BindingOptions QuickOptions();

struct ClusterOptions {
  size_t nodes = 3;
  BindingOptions binding = QuickOptions();
  CheckpointOptions checkpoints;  // files go to the cluster's directory unless another is given
  bool unix_sockets = false;
  // Transfers with more block bytes than this are received into files.
  uint64_t bulk_memory_bytes_max = uint64_t{64} << 20;
  uint64_t frame_bytes_max = FrameLimits().frame_bytes_max;
  double rate_limit_mbit = 0;  // of each node's transport; 0: none
  // Puts a FaultTransport around each node's transport, with these knobs in both directions.
  std::optional<FaultKnobs> faults;
  // What a node's transport is to be, around that one and its faults; empty: as it is.
  std::function<std::unique_ptr<Transport>(size_t node, std::unique_ptr<Transport> below)> around;
  uint64_t seed = 1;
  // Fills a node's classes.
  std::function<void(size_t node, TestPoints& points, ObjectTypes& types)> types;
};

class ClusterNode {
 public:
  ClusterNode(size_t index, const ClusterOptions& options, const std::string& directory);
  ~ClusterNode() { Stop(); }

  NodeInstance self() const { return self_; }
  BindingManager& binding() { return *binding_; }
  Migrator& migrator() { return *migrator_; }
  TestPoints& points() { return points_; }
  SocketTransport& sockets() { return *sockets_; }
  FaultTransport* faults() { return faults_; }
  Transport& transport() { return *transport_; }
  bool dead() const { return dead_; }

  // Whether the object runs here or will again.
  bool Hosts(const Rid& rid);
  template <typename T>
  Ref<T> RefTo(const Rid& rid) {
    return binding_->RefTo<T>(rid);
  }

 private:
  friend class Cluster;
  void Stop();

  const NodeInstance self_;
  TestPoints points_;
  ObjectTypes types_;
  SocketTransport* sockets_ = nullptr;
  FaultTransport* faults_ = nullptr;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<BindingManager> binding_;
  std::unique_ptr<Migrator> migrator_;
  std::atomic<bool> dead_{false};  // one may die while others work
  bool stopped_ = false;
};

// Nodes 1 to N, of incarnation 1 each; the test counts them from 0.
// Refs of a node must be gone before its Cluster is.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  ClusterNode& operator[](size_t node) { return *nodes_[node]; }
  size_t size() const { return nodes_.size(); }

  // Makes an object of class T on a node. Aborts the test program where that fails.
  template <typename T, typename... Args>
  Ref<T> Create(size_t node, const Args&... args) {
    absl::StatusOr<Ref<T>> made = nodes_[node]->binding().Create<T>(args...);
    return CheckOk(std::move(made));
  }

  // Moves objects that are on `from`.
  absl::StatusOr<MigrationReport> Move(const std::vector<Rid>& rids, size_t from, size_t to);
  absl::StatusOr<MigrationReport> Move(const Rid& rid, size_t from, size_t to) {
    return Move(std::vector<Rid>{rid}, from, to);
  }
  // Starts a move on a thread of its own.
  std::function<absl::StatusOr<MigrationReport>()> MoveBeside(const std::vector<Rid>& rids,
                                                              size_t from, size_t to);

  // Where this cluster's sockets are and its files go.
  const std::string& directory() const { return directory_; }

  // The one living node that hosts the object; nothing where none or several do.
  std::optional<size_t> HostOf(const Rid& rid);

  // The node dies: not a frame leaves or reaches it from now on, and all others are told so.
  void Kill(size_t node);
  // Lets go all threads at all points of all nodes.
  void ReleaseAll();

 private:
  template <typename T>
  static T CheckOk(absl::StatusOr<T> value) {
    if (!value.ok()) Die(value.status());
    return *std::move(value);
  }
  [[noreturn]] static void Die(const absl::Status& status);

  std::string directory_;
  std::vector<std::unique_ptr<ClusterNode>> nodes_;
};

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_TESTING_CLUSTER_H_
