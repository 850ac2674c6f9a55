#ifndef ABACUS_RUNTIME_NODE_NODE_H_
#define ABACUS_RUNTIME_NODE_NODE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/config.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

class ActivityMeter;

// A server keeps node.data_dir, is found at fixed addresses and decides about placement. A client
// that leaves node.control_address and node.data_address at their defaults listens where its first
// server can call back, at ports that the system chooses.
struct NodeOptions {
  Config config;
  bool server = false;
  // Control addresses of servers to join ("127.0.0.1:7070"). A client needs at least one.
  std::vector<std::string> servers;
  // Puts another transport around the one over sockets, for whoever emulates slow nodes or faults;
  // empty: none.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap_transport;
  SyncPoints* points = nullptr;
};

// A move as it is told to people.
struct MoveEvent {
  std::vector<Rid> rids;
  std::vector<std::string> class_names;
  NodeId from = 0;
  NodeId to = 0;
  std::string from_name;
  std::string to_name;
  bool by_engine = false;
  std::string reason;             // the engine's explanation
  absl::Duration predicted_gain;  // for the work of one window
  absl::Duration predicted_cost;
  absl::Duration blackout;
  uint64_t state_bytes = 0;
  absl::Status status;  // OK: committed
};

// One node of a cluster: binding manager, migrator, resource manager, membership and the control
// plane, tied together (paper, figure 1). A program makes one in main(), with the classes that it
// was built with.
//
// Nodes that join one server of a cluster join all servers that it knows. Which process is alive is
// decided as membership.h says.
//
// Lifetime: references must be gone before the node is deleted. Thread-safety: thread-safe.
class Node {
 public:
  // Opens the ports, calibrates the monitor and, where servers are named, joins them.
  // Errors: kUnavailable - a server does not answer, a port is in use: the message names it and the
  //                        way out.
  //         kFailedPrecondition - a server speaks another version; the data directory is another's.
  //         kInvalidArgument - the configuration.
  // Blocking: up to a few seconds.
  static absl::StatusOr<std::unique_ptr<Node>> Start(const NodeOptions& options,
                                                     const ObjectTypes& types,
                                                     std::unique_ptr<monitor::Monitor> monitor);
  virtual ~Node() = default;

  virtual NodeInstance instance() const = 0;
  virtual std::string name() const = 0;
  virtual std::string control_address() const = 0;  // with the port that the system chose
  virtual BindingManager& binding() = 0;
  virtual Migrator& migrator() = 0;

  // Makes an object here; see BindingManager::Create.
  template <typename T, typename... Args>
  absl::StatusOr<Ref<T>> Create(const Args&... args) {
    return binding().Create<T>(args...);
  }

  // Makes an object known by name to whoever joins this server.
  virtual void Publish(std::string_view name, const Rid& rid) = 0;
  // What this server or the joined ones publish under a name; the first joined server's where
  // several do.
  // Errors: kNotFound - the message lists the names there are.
  // Blocking: where the name is not known yet, asks the servers for it.
  virtual absl::StatusOr<Rid> Lookup(std::string_view name) const = 0;
  // What each of them publishes, in that order; at least one.
  virtual absl::StatusOr<std::vector<Rid>> LookupAll(std::string_view name) const = 0;
  // Joins the server at a control address as soon as it answers, and again whenever it was
  // restarted; does not wait for it.
  virtual void Reach(const std::string& address) = 0;
  // What the server at that address, which was named to Reach() or at the start, publishes.
  // Errors: kNotFound - it publishes no such thing; kNodeUnreachable - it does not answer now.
  virtual absl::StatusOr<Rid> LookupAt(const std::string& address, std::string_view name) const = 0;

  // Moves objects to a node by hand, wherever they are now. The engine leaves them alone for
  // migration.hand_move_hold, or until they are unpinned.
  // Objects that are there already stay, and count as moved by hand.
  // Errors: as Migrator::Move; kNotFound where no such node is alive; kNodeUnreachable where the
  //         objects' host, or a node on the way to it, is.
  // Blocking: until the move has ended.
  virtual absl::StatusOr<MoveEvent> Move(const std::vector<Rid>& rids, NodeId target) = 0;
  // Holds an object where it is (or moves it to `node` first, where that is not 0) until Unpin().
  // Errors: kNotFound - no such object; kNodeUnreachable - its home; as Move().
  // Blocking: until the home has answered.
  virtual absl::Status Pin(const Rid& rid, NodeId node = 0) = 0;
  virtual absl::Status Unpin(const Rid& rid) = 0;

  // Limits where the engine may move an object; no nodes: the limit is lifted.
  // Objects that are attached to each other move together; attaching one alone detaches it.
  // Errors, Blocking: as Pin().
  virtual absl::Status Allow(const Rid& rid, const std::vector<NodeId>& nodes) = 0;
  virtual absl::Status Attach(const std::vector<Rid>& rids) = 0;

  // Takes over what [placement] and [planner] of a changed configuration say of the engine: all of
  // it but decision_log_bytes_max, which holds until a restart. A client takes over the interval.
  // Errors: kInvalidArgument - nothing was changed.
  virtual absl::Status Reconfigure(const Config& config) = 0;

  // Nodes that are alive, this one included.
  struct Member {
    NodeInstance instance;
    std::string name;
    bool server = false;
  };
  virtual std::vector<Member> Members() const = 0;

  // Called for every move of an object that has its home or its host here, on a thread of the
  // node's; must not block. Order: as the news arrives; moves that different nodes carried out can
  // be told in another order than they ended in. Limits: where it blocks, the moves after the next
  // 256 are not told.
  virtual void SetMoveObserver(std::function<void(const MoveEvent&)> observer) = 0;

  // Bytes sent and received on the data plane, to and from all peers.
  virtual std::vector<PeerTraffic> Traffic() const = 0;

  // Stops everything: leaves the cluster, fails calls under way. Idempotent.
  virtual void Stop() = 0;
  // True while this process may be dead to the others: it has reached none of its servers for
  // membership.lease, or has been declared dead, after which its objects are lost for good. Calls
  // that begin here fail with kNodeFenced then, and no call of others is run.
  virtual bool fenced() const = 0;

 private:
  friend class Console;
  virtual void ConsoleBegan(const Rid& rid, std::shared_ptr<const ActivityMeter> meter) = 0;
  virtual void ConsoleEnded(const Rid& rid) = 0;
};

// The part of an application that stays where it was started (paper, section 3): while it lives,
// what its thread calls is the activity whose response time the engine predicts.
// Owner-thread: the one that makes it.
class Console {
 public:
  explicit Console(Node& node) : Console(node, nullptr) {}
  // `meter`: of a console that several threads may work for (front_end_console.h).
  Console(Node& node, std::shared_ptr<const ActivityMeter> meter);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  Rid rid() const { return self_.rid(); }

 private:
  Node& node_;
  RefBase self_;
  uint32_t outer_slot_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_NODE_H_
