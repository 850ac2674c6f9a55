#ifndef ABACUS_RUNTIME_NODE_NODE_IMPL_H_
#define ABACUS_RUNTIME_NODE_NODE_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/mutex.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/node/control_client.h"
#include "runtime/node/control_service.h"
#include "runtime/node/digest_loop.h"
#include "runtime/node/incarnation.h"
#include "runtime/node/membership_agent.h"
#include "runtime/node/move_desk.h"
#include "runtime/node/node.h"
#include "runtime/node/serial_queue.h"
#include "runtime/node/status_report.h"
#include "runtime/resource/placement_loop.h"
#include "runtime/resource/resource_manager.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime {

// Class Node's one implementation: owns the parts, and stands between the transport, membership and
// the control plane on the one side and the parts on the other. Internal to node/.
class NodeImpl final : public Node,
                       private FrameHandler,
                       private MembershipListener,
                       private ControlHandler {
 public:
  // How this process stands in the network.
  struct Place {
    std::string name;
    NodeInstance instance;
    std::string control_address;               // to listen at
    std::string data_address;                  // likewise
    std::string host_of_any;                   // what others are told for 0.0.0.0; empty: not known
    std::unique_ptr<DataDirectory> directory;  // of a server
  };

  NodeImpl(const NodeOptions& options, Place place, const ObjectTypes& types,
           monitor::Monitor* monitor);
  ~NodeImpl() override {
    Stop();
    binding_->EndObjects();  // their threads may be in calls, which the parts below take part in
  }

  // Keeps the monitor for as long as the node.
  void TakeMonitor(std::unique_ptr<monitor::Monitor> monitor) {
    owned_monitor_ = std::move(monitor);
  }
  // Opens the ports and joins the servers. Once. Errors: as Node::Start; kAlreadyExists - the
  // instance's id is taken.
  absl::Status Open();

  NodeInstance instance() const override { return place_.instance; }
  std::string name() const override { return place_.name; }
  std::string control_address() const override { return self_.control_address; }
  BindingManager& binding() override { return *binding_; }
  Migrator& migrator() override { return *migrator_; }
  void Publish(std::string_view name, const Rid& rid) override { membership_->Publish(name, rid); }
  absl::StatusOr<Rid> Lookup(std::string_view name) const override {
    return membership_->Lookup(name);
  }
  absl::StatusOr<std::vector<Rid>> LookupAll(std::string_view name) const override {
    return membership_->LookupAll(name);
  }
  void Reach(const std::string& address) override { membership_->Reach(address); }
  absl::StatusOr<Rid> LookupAt(const std::string& address, std::string_view name) const override {
    return membership_->LookupAt(address, name);
  }
  absl::StatusOr<MoveEvent> Move(const std::vector<Rid>& rids, NodeId target) override;
  absl::Status Pin(const Rid& rid, NodeId node) override;
  absl::Status Allow(const Rid& rid, const std::vector<NodeId>& nodes) override;
  absl::Status Attach(const std::vector<Rid>& rids) override;
  absl::Status Reconfigure(const Config& config) override;
  absl::Status Unpin(const Rid& rid) override;
  std::vector<Member> Members() const override;
  void SetMoveObserver(std::function<void(const MoveEvent&)> observer) override {
    desk_->SetObserver(std::move(observer));
  }
  std::vector<PeerTraffic> Traffic() const override { return transport_->Traffic(); }
  void Stop() override;
  bool fenced() const override { return membership_->fenced(); }

 private:
  enum class Life { kOpen, kStopping, kStopped };

  std::unique_ptr<Transport> MakeTransport();
  absl::Status StartTransport();
  absl::Status Advertise(const std::string& listening, const std::string& advertised,
                         const char* key, std::string* address) const;
  void MakeParts();
  // What is known of links, from before this process and for the next one.
  std::string LinksPath() const { return options_.config.node.data_dir + "/links"; }
  void ReadLinks();
  void WriteLinks();
  void StopParts();

  void ConsoleBegan(const Rid& rid, std::shared_ptr<const ActivityMeter> meter) override {
    resources_->AddConsole(rid, place_.name, std::move(meter));
  }
  void ConsoleEnded(const Rid& rid) override { resources_->RemoveConsole(rid); }

  // FrameHandler
  void OnFrame(NodeInstance from, Frame frame) override {
    binding_->OnFrame(from, std::move(frame));
  }
  void OnReconnected(NodeInstance peer) override { binding_->OnReconnected(peer); }
  void OnPeerReplaced(NodeInstance peer) override;

  // MembershipListener
  void OnAlive(const MemberInfo& member) override;
  void OnDead(const MemberInfo& member, const std::string& why) override;
  void OnFenced(const std::string& why, bool for_good) override;
  void OnUnfenced() override;

  // ControlHandler
  absl::StatusOr<JoinAnswer> OnJoin(const MemberInfo& joiner) override;
  absl::StatusOr<HeartbeatAnswer> OnHeartbeat(const HeartbeatAsk& ask) override;
  absl::Status OnLeave(NodeInstance instance) override;
  absl::Status OnDigest(Digest digest) override;
  absl::StatusOr<MoveRecord> OnMove(const MoveCommand& command) override;
  void OnMoved(const MoveRecord& record) override;
  absl::Status OnPin(const PinCommand& command) override;
  absl::StatusOr<EngineState> OnSetEngine(const EngineCommand& command) override;
  std::vector<PinRecord> OnGetPins(const std::vector<Rid>& rids) override;
  absl::StatusOr<std::vector<DecisionText>> OnExplain(const Rid& rid, size_t max,
                                                      uint32_t hops) override;
  NodeReport OnGetStatus(size_t objects_max) override;
  // Errors: kNodeUnreachable - the node is not ready yet.
  absl::Status Ready() const;

  const NodeOptions options_;
  const Place place_;
  std::unique_ptr<monitor::Monitor> owned_monitor_;
  monitor::Monitor& monitor_;
  MemberInfo self_;  // constant once the node is ready
  std::atomic<bool> ready_{false};

  ControlClients clients_;
  SocketTransport* sockets_ = nullptr;  // the innermost of transport_
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<BindingManager> binding_;
  const std::unique_ptr<Migrator> migrator_;
  const std::unique_ptr<ResourceManager> resources_;
  std::atomic<bool> configured_dry_run_{false};  // what the configuration said last
  const std::unique_ptr<PlacementLoop> engine_;  // null at a client
  std::unique_ptr<MembershipAgent> membership_;
  std::unique_ptr<MoveDesk> desk_;
  std::unique_ptr<DigestLoop> digests_;
  std::unique_ptr<StatusReporter> reporter_;
  std::atomic<int64_t> links_written_ns_{0};  // when last
  SerialQueue link_writes_{/*tasks_max=*/1};
  SerialQueue core_tasks_;  // what the core does about a death may block on a slow peer
  std::unique_ptr<ControlServer> control_;

  Mutex life_mutex_;
  CondVar life_changed_;
  Life life_ ABSL_GUARDED_BY(life_mutex_) = Life::kOpen;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_NODE_IMPL_H_
