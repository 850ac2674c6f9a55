#include "runtime/node/node_impl.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"
#include "runtime/node/addresses.h"
#include "runtime/node/engine_config.h"

namespace abacus::runtime {
namespace {

// A crash loses at most so much of what was measured of links.
constexpr absl::Duration kLinksWrittenEvery = absl::Seconds(10);

constexpr int kIdsDrawnMax = 8;
constexpr absl::Duration kExplainDeadline = absl::Seconds(5);
constexpr absl::Duration kStopPatience = absl::Seconds(2);
// What a move takes beyond draining and transfer, on the way to its host and back.
constexpr absl::Duration kCommandSlack = absl::Seconds(10);

BindingOptions ToBindingOptions(const Config& config) {
  BindingOptions to;
  to.core.hints_max = static_cast<size_t>(config.migration.hints_max);
  to.core.dedup.entries_max = static_cast<size_t>(config.dedup.entries_per_object_max);
  to.core.dedup.result_bytes_max = config.dedup.result_bytes_per_object_max;
  to.core.nesting_max = static_cast<uint32_t>(config.transport.nesting_depth_max);
  to.core.probe_interval_ns = absl::ToInt64Nanoseconds(config.transport.probe_interval);
  to.core.drain_deadline_ns = absl::ToInt64Nanoseconds(config.migration.drain_deadline);
  to.core.transfer_deadline_ns = absl::ToInt64Nanoseconds(config.migration.transfer_deadline);
  to.core.orphan_grace_ns = absl::ToInt64Nanoseconds(config.lifetime.grace);
  to.workers_max = static_cast<size_t>(config.transport.workers_max);
  to.admission_queue_max = static_cast<size_t>(config.transport.admission_queue_max);
  return to;
}

std::string SpillDirectory(const Config& config) {
  if (!config.migration.spill_dir.empty()) return config.migration.spill_dir;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

CheckpointOptions ToCheckpointOptions(const Config& config) {
  return {.memory_bytes_max = config.migration.checkpoint_memory_bytes_max,
          .spill_directory = SpillDirectory(config)};
}

SocketTransportOptions ToTransportOptions(const Config& config, const NodeImpl::Place& place) {
  SocketTransportOptions to;
  to.self = place.instance;
  to.listen_address = place.data_address;
  to.spin_us_max = static_cast<uint32_t>(absl::ToInt64Microseconds(config.transport.spin_max));
  to.frame_bytes_max = config.transport.frame_bytes_max;
  to.rate_limit_mbit = config.transport.rate_limit_mbit;
  to.bulk_memory_bytes_max = config.migration.checkpoint_memory_bytes_max;
  to.spill_directory = SpillDirectory(config);
  return to;
}

MembershipAgentOptions ToMembershipOptions(const Config& config) {
  MembershipAgentOptions to;
  to.membership.lease = config.membership.lease;
  to.membership.dead_after = config.membership.dead_after;
  to.heartbeat_interval = config.membership.heartbeat_interval;
  return to;
}

MoveDeskOptions ToDeskOptions(const Config& config) {
  return {.hand_move_hold = config.migration.hand_move_hold,
          .command_deadline =
              config.migration.drain_deadline + config.migration.transfer_deadline + kCommandSlack};
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "node";
  return name.data();
}

// Finds out how this process stands in the network; its instance excepted, which a client draws.
absl::StatusOr<NodeImpl::Place> FindPlace(const NodeOptions& options) {
  const Config::Node& node = options.config.node;
  NodeImpl::Place place;
  place.name = node.name.empty() ? HostName() : node.name;
  place.control_address = node.control_address;
  place.data_address = node.data_address;
  if (options.server) {
    if (node.data_dir.empty()) {
      return absl::InvalidArgumentError("node.data_dir is empty: a server needs a directory");
    }
    ABACUS_ASSIGN_OR_RETURN(place.directory, DataDirectory::Open(node.data_dir, place.name));
    place.instance = place.directory->instance();
    return place;
  }
  if (options.servers.empty()) {
    return absl::InvalidArgumentError("a client needs at least one server to join: host:port");
  }
  ABACUS_ASSIGN_OR_RETURN(place.host_of_any, LocalHostTowards(options.servers.front()));
  // Fixed ports are for those who are called first.
  const Config::Node defaults;
  if (node.control_address == defaults.control_address) {
    place.control_address = place.host_of_any + ":0";
  }
  if (node.data_address == defaults.data_address) place.data_address = place.host_of_any + ":0";
  return place;
}

absl::Status Check(const NodeOptions& options, const monitor::Monitor* monitor) {
  if (monitor == nullptr) return absl::InvalidArgumentError("a node needs a monitor");
  if (options.config.membership.dead_after <= options.config.membership.lease) {
    return absl::InvalidArgumentError("membership.dead_after must be longer than membership.lease");
  }
  ABACUS_RETURN_IF_ERROR(placement::Validate(ToEngineConfig(options.config)));
  return placement::Validate(ToPlannerConfig(options.config));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Start(const NodeOptions& options,
                                                  const ObjectTypes& types,
                                                  std::unique_ptr<monitor::Monitor> monitor) {
  ABACUS_RETURN_IF_ERROR(Check(options, monitor.get()));
  for (int drawn = 1;; ++drawn) {
    ABACUS_ASSIGN_OR_RETURN(NodeImpl::Place place, FindPlace(options));
    if (!options.server) place.instance = RandomClientInstance();
    auto node = std::make_unique<NodeImpl>(options, std::move(place), types, monitor.get());
    const absl::Status status = node->Open();
    if (status.ok()) {
      node->TakeMonitor(std::move(monitor));
      return node;
    }
    const bool draw_again =
        !options.server && absl::IsAlreadyExists(status) && drawn < kIdsDrawnMax;
    if (!draw_again) return status;
  }
}

// -- life ---------------------------------------------------------------------------------------

NodeImpl::NodeImpl(const NodeOptions& options, Place place, const ObjectTypes& types,
                   monitor::Monitor* monitor)
    : options_(options),
      place_(std::move(place)),
      monitor_(*monitor),
      transport_(MakeTransport()),
      binding_(std::make_unique<BindingManager>(place_.instance, ToBindingOptions(options.config),
                                                types, transport_.get(), options.points)),
      migrator_(std::make_unique<Migrator>(binding_.get(), ToCheckpointOptions(options.config))),
      resources_(std::make_unique<ResourceManager>(
          binding_.get(), monitor,
          ResourceOptions{.window = options.config.placement.window,
                          .memory_limit_bytes = options.config.placement.memory_limit,
                          .node_name = place_.name,
                          .server = options.server})),
      engine_(options.server
                  ? std::make_unique<PlacementLoop>(
                        place_.instance.node,
                        PlacementLoop::Options{
                            .engine = ToEngineConfig(options.config),
                            .planner = ToPlannerConfig(options.config),
                            .enabled = options.config.placement.enabled,
                            .dry_run = options.config.placement.dry_run,
                            .decision_memory_max = options.config.placement.decision_memory_max,
                            .log_path = options.config.node.data_dir + "/decisions.jsonl",
                            .log_bytes_max = options.config.placement.decision_log_bytes_max})
                  : nullptr),
      // None may be dropped; there are as many as processes come and go.
      core_tasks_(/*tasks_max=*/SIZE_MAX) {
  configured_dry_run_ = options_.config.placement.dry_run;
  binding_->threads().UseMonitor(monitor);
}

absl::Status NodeImpl::Open() {
  ABACUS_RETURN_IF_ERROR(StartTransport());
  binding_->set_call_observer(resources_.get());
  migrator_->set_observer(resources_.get());
  ABACUS_ASSIGN_OR_RETURN(control_, ControlServer::Listen(place_.control_address, this));
  self_.instance = place_.instance;
  self_.name = place_.name;
  self_.server = options_.server;
  const Config::Node& node = options_.config.node;
  ABACUS_RETURN_IF_ERROR(Advertise(control_->address(), node.advertised_control_address,
                                   "node.advertised_control_address", &self_.control_address));
  ABACUS_RETURN_IF_ERROR(Advertise(transport_->address(), node.advertised_data_address,
                                   "node.advertised_data_address", &self_.data_address));
  if (const std::string missing = monitor_.Missing(); !missing.empty()) {
    spdlog::info("figures of threads come from {}: {}", monitor_.Source(), missing);
  }
  MakeParts();
  ReadLinks();
  binding_->Start();
  ready_.store(true, std::memory_order_release);
  ABACUS_RETURN_IF_ERROR(membership_->Start(options_.servers));
  digests_->Start();
  return absl::OkStatus();
}

std::unique_ptr<Transport> NodeImpl::MakeTransport() {
  auto sockets = std::make_unique<SocketTransport>(ToTransportOptions(options_.config, place_));
  sockets_ = sockets.get();
  if (!options_.wrap_transport) return sockets;
  return options_.wrap_transport(std::move(sockets));
}

absl::Status NodeImpl::StartTransport() {
  const absl::Status status = transport_->Start(this);
  if (status.ok() || absl::IsInvalidArgument(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("cannot listen for invocations at ", place_.data_address, ": ", status.message(),
                   "; end what uses it, or give node.data_address another port (0: any)"));
}

absl::Status NodeImpl::Advertise(const std::string& listening, const std::string& advertised,
                                 const char* key, std::string* address) const {
  *address = advertised.empty() ? listening : advertised;
  const absl::StatusOr<HostAndPort> split = SplitAddress(*address);
  if (!split.ok() || !IsAnyHost(split->host)) return absl::OkStatus();  // or a unix socket
  if (place_.host_of_any.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nobody can call ", *address, ": set ", key,
                     " to the address by which other nodes reach this one"));
  }
  *address = absl::StrCat(place_.host_of_any, ":", split->port);
  return absl::OkStatus();
}

void NodeImpl::MakeParts() {
  const Config& config = options_.config;
  membership_ = std::make_unique<MembershipAgent>(self_, ToMembershipOptions(config), &clients_,
                                                  static_cast<MembershipListener*>(this));
  desk_ = std::make_unique<MoveDesk>(ToDeskOptions(config), binding_.get(), migrator_.get(),
                                     resources_.get(), membership_.get(), &clients_);
  resources_->set_next_observer(desk_.get());
  digests_ = std::make_unique<DigestLoop>(config.placement.digest_interval, config.placement.window,
                                          resources_.get(), engine_.get(), desk_.get(),
                                          membership_.get(), &clients_);
  reporter_ = std::make_unique<StatusReporter>(StatusSources{.membership = membership_.get(),
                                                             .binding = binding_.get(),
                                                             .migrator = migrator_.get(),
                                                             .desk = desk_.get(),
                                                             .digests = digests_.get(),
                                                             .engine = engine_.get(),
                                                             .transport = sockets_,
                                                             .monitor = &monitor_});
  digests_->SetBeforeReport([this] { reporter_->WatchLinks(); });
}

void NodeImpl::ReadLinks() {
  if (place_.directory == nullptr) return;
  const absl::StatusOr<std::vector<KnownLink>> links = LinkBook(LinksPath()).Read();
  if (links.ok()) {
    resources_->SetPriors(*links);
  } else {
    spdlog::warn("{}", std::string(ToStd(links.status().message())));
  }
}

void NodeImpl::WriteLinks() {
  if (place_.directory == nullptr) return;
  const absl::Status status = LinkBook(LinksPath()).Write(resources_->Links());
  if (!status.ok()) spdlog::warn("{}", std::string(ToStd(status.message())));
}

void NodeImpl::Stop() {
  {
    MutexLock lock(life_mutex_);
    if (life_ != Life::kOpen) {
      while (life_ != Life::kStopped) life_changed_.Wait(life_mutex_);
      return;
    }
    life_ = Life::kStopping;
  }
  StopParts();
  MutexLock lock(life_mutex_);
  life_ = Life::kStopped;
  life_changed_.SignalAll();
}

// Whoever waits is let go before whoever waits for it is joined. Calls and moves end first; then
// the data plane, whose threads run methods that may wait for calls, and which may hold up anybody
// who sends to a peer that takes nothing; then the control plane, whose threads wait for moves;
// then the threads that use the control plane; last the pool, whose tasks run methods too.
void NodeImpl::StopParts() {
  if (ready_.load(std::memory_order_acquire) && !membership_->fenced()) membership_->Leave();
  if (desk_ != nullptr) desk_->Stop();
  binding_->Fence(MakeError(ErrorKind::kNodeUnreachable, "this node is being stopped"),
                  /*for_good=*/true);
  binding_->WithCore([this](auto&, Nanos, Actions&) { migrator_->OnStop(); });
  clients_.CancelAll();
  transport_->Stop();
  if (control_ != nullptr) control_->Stop(kStopPatience);
  if (digests_ != nullptr) digests_->Stop();
  if (membership_ != nullptr) membership_->Stop();
  if (desk_ != nullptr) desk_->Join();
  link_writes_.Stop();
  if (ready_.load(std::memory_order_acquire)) WriteLinks();
  core_tasks_.Stop();
  binding_->Stop();
}

// -- commands of this program -------------------------------------------------------------------

absl::StatusOr<MoveEvent> NodeImpl::Move(const std::vector<Rid>& rids, NodeId target) {
  MoveCommand command;
  command.rids = rids;
  command.target = target;
  command.reason = "by hand";
  ABACUS_ASSIGN_OR_RETURN(MoveRecord record, desk_->Move(command));
  return std::move(record.event);
}

absl::Status NodeImpl::Pin(const Rid& rid, NodeId node) {
  return desk_->Pin({.rid = rid, .pinned = true, .node = node});
}

absl::Status NodeImpl::Unpin(const Rid& rid) { return desk_->Pin({.rid = rid, .pinned = false}); }

absl::Status NodeImpl::Allow(const Rid& rid, const std::vector<NodeId>& nodes) {
  return desk_->Pin({.rid = rid, .allowed = nodes});
}

absl::Status NodeImpl::Attach(const std::vector<Rid>& rids) {
  const uint32_t group = rids.size() < 2 ? 0 : AttachGroupOf(rids);
  for (const Rid& rid : rids) {
    ABACUS_RETURN_IF_ERROR(desk_->Pin({.rid = rid, .attach_group = group}));
  }
  return absl::OkStatus();
}

std::vector<Node::Member> NodeImpl::Members() const {
  std::vector<Member> members;
  for (const MemberInfo& member : membership_->Members()) {
    members.push_back({member.instance, member.name, member.server});
  }
  return members;
}

// -- what membership finds ----------------------------------------------------------------------

void NodeImpl::OnPeerReplaced(NodeInstance peer) {
  if (ready_.load(std::memory_order_acquire)) membership_->Replaced(peer);
}

void NodeImpl::OnAlive(const MemberInfo& member) {
  spdlog::info("node {} ({}) has joined: {}", member.name, member.instance.ToString(),
               member.data_address);
  transport_->AddPeer(member.instance, member.data_address);
  // Calls may have been sent there on another node's word, and been lost for want of the address.
  core_tasks_.Run([this, instance = member.instance] { binding_->OnReconnected(instance); });
}

void NodeImpl::OnDead(const MemberInfo& member, const std::string& why) {
  const NodeInstance instance = member.instance;
  spdlog::info("node {} ({}) is gone: {}", member.name, instance.ToString(), why);
  transport_->RemovePeer(instance);
  if (engine_ != nullptr) engine_->Forget(instance);
  resources_->Forget(instance);
  core_tasks_.Run([this, instance] { binding_->OnPeerDead(instance); });
}

void NodeImpl::OnFenced(const std::string& why, bool for_good) {
  spdlog::error("this node serves nothing {}: {}", for_good ? "any more" : "now", why);
  binding_->Fence(MakeError(ErrorKind::kNodeFenced,
                            for_good ? absl::StrCat("this process has been given up: ", why,
                                                    "; end it and start another")
                                     : absl::StrCat("this process may be given up: ", why)),
                  for_good);
}

void NodeImpl::OnUnfenced() {
  spdlog::info("this node serves again: a server has answered");
  binding_->Unfence();
}

// -- the control plane --------------------------------------------------------------------------

absl::Status NodeImpl::Ready() const {
  if (ready_.load(std::memory_order_acquire)) return absl::OkStatus();
  return MakeError(ErrorKind::kNodeUnreachable, "this node is being started");
}

absl::StatusOr<JoinAnswer> NodeImpl::OnJoin(const MemberInfo& joiner) {
  ABACUS_RETURN_IF_ERROR(Ready());
  return membership_->Admit(joiner);
}

absl::StatusOr<HeartbeatAnswer> NodeImpl::OnHeartbeat(const HeartbeatAsk& ask) {
  ABACUS_RETURN_IF_ERROR(Ready());
  return membership_->Answer(ask);
}

absl::Status NodeImpl::OnLeave(NodeInstance instance) {
  ABACUS_RETURN_IF_ERROR(Ready());
  membership_->OnLeave(instance);
  return absl::OkStatus();
}

absl::Status NodeImpl::OnDigest(Digest digest) {
  ABACUS_RETURN_IF_ERROR(Ready());
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  int64_t written_ns = links_written_ns_.load();
  if (now_ns - written_ns >= absl::ToInt64Nanoseconds(kLinksWrittenEvery) &&
      links_written_ns_.compare_exchange_strong(written_ns, now_ns)) {
    link_writes_.Run([this] { WriteLinks(); });
  }
  return digests_->Accept(std::move(digest));
}

absl::StatusOr<MoveRecord> NodeImpl::OnMove(const MoveCommand& command) {
  ABACUS_RETURN_IF_ERROR(Ready());
  return desk_->Move(command);
}

void NodeImpl::OnMoved(const MoveRecord& record) {
  if (Ready().ok()) desk_->Told(record);
}

absl::Status NodeImpl::OnPin(const PinCommand& command) {
  ABACUS_RETURN_IF_ERROR(Ready());
  return desk_->Pin(command);
}

absl::StatusOr<EngineState> NodeImpl::OnSetEngine(const EngineCommand& command) {
  ABACUS_RETURN_IF_ERROR(Ready());
  if (engine_ == nullptr) {
    return absl::FailedPreconditionError("this node is a client: it decides nothing");
  }
  if (command.suspended) engine_->Suspend(*command.suspended);
  if (command.dry_run) engine_->DryRun(*command.dry_run);
  const PlacementLoop::Mode mode = engine_->mode();
  return EngineState{.enabled = mode.enabled,
                     .suspended = mode.suspended,
                     .dry_run = mode.dry_run,
                     .present_error = engine_->PresentError(),
                     .move_error = engine_->MoveError()};
}

absl::Status NodeImpl::Reconfigure(const Config& config) {
  ABACUS_RETURN_IF_ERROR(placement::Validate(ToEngineConfig(config)));
  ABACUS_RETURN_IF_ERROR(placement::Validate(ToPlannerConfig(config)));
  resources_->SetWindow(config.placement.window);
  resources_->SetMemoryLimit(config.placement.memory_limit);
  if (Ready().ok()) digests_->SetTimes(config.placement.digest_interval, config.placement.window);
  if (engine_ == nullptr) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(engine_->SetConfig(ToEngineConfig(config), ToPlannerConfig(config)));
  engine_->Enable(config.placement.enabled);
  engine_->SetDecisionMemory(config.placement.decision_memory_max);
  // What a command said holds until the configuration says something else than before.
  if (configured_dry_run_.exchange(config.placement.dry_run) != config.placement.dry_run) {
    engine_->DryRun(config.placement.dry_run);
  }
  return absl::OkStatus();
}

std::vector<PinRecord> NodeImpl::OnGetPins(const std::vector<Rid>& rids) {
  if (!Ready().ok()) return {};
  return desk_->PinsHere(rids);
}

absl::StatusOr<std::vector<DecisionText>> NodeImpl::OnExplain(const Rid& rid, size_t max,
                                                              uint32_t hops) {
  ABACUS_RETURN_IF_ERROR(Ready());
  std::vector<DecisionText> texts;
  if (engine_ != nullptr) {
    for (const DecisionRecord& record : engine_->Explain(rid, max)) texts.push_back(ToText(record));
    // Those of before a restart, or of long ago.
    const absl::Time oldest = texts.empty() ? absl::InfiniteFuture() : texts.back().at;
    if (texts.size() < max) {
      for (const LoggedDecision& logged : engine_->ExplainFromLog(rid, max)) {
        if (logged.at < oldest && texts.size() < max) texts.push_back(ToText(logged));
      }
    }
  }
  if (!texts.empty()) return texts;
  if (hops == 0) {
    // Of several servers one decides for a console's graph; it alone knows why.
    for (const MemberInfo& server : membership_->ReachableServers()) {
      auto theirs = clients_.To(server.control_address)
                        ->Explain(rid, static_cast<uint32_t>(max), kExplainDeadline, hops + 1);
      if (theirs.ok()) return theirs;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no decision about object ", rid.ToString(), " is known: no console's calls have reached it ",
      "for a whole observation window, or placement.enabled is false"));
}

NodeReport NodeImpl::OnGetStatus(size_t objects_max) {
  if (Ready().ok()) return reporter_->Make(objects_max);
  NodeReport report;
  report.health = "this node is being started";
  return report;
}

}  // namespace abacus::runtime
