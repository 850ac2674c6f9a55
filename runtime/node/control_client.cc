#include "runtime/node/control_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>
#include <utility>

#include "abacus/v1/control.grpc.pb.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/node/proto_convert.h"

namespace abacus::runtime {
namespace {

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // gRPC's own pauses after a failure grow to two minutes: a restarted server would stay unseen.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // A proxy for web pages (http_proxy) knows nothing of nodes.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Nodes of one process, in tests, are as far from each other as others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  arguments.SetMaxSendMessageSize(kControlMessageBytesMax);
  return arguments;
}

}  // namespace

class ControlClient::Impl {
 public:
  explicit Impl(std::string address) : address_(std::move(address)) { Reconnect(); }

  // Later calls go over a new connection. One that a cut network has left behind may be silent for
  // minutes after the network is whole again, as TCP waits longer before each attempt.
  void Reconnect() {
    std::shared_ptr<v1::Control::Stub> stub = v1::Control::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), Arguments()));
    MutexLock lock(mutex_);
    stub_ = std::move(stub);
  }

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Reply*),
                    const Request& request, Reply* reply, absl::Duration deadline) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(deadline));
    std::shared_ptr<v1::Control::Stub> stub;
    {
      MutexLock lock(mutex_);
      if (cancelled_) return Unreachable("this node is being stopped");
      under_way_.insert(&context);
      stub = stub_;
    }
    const grpc::Status status = ((*stub).*method)(&context, request, reply);
    {
      MutexLock lock(mutex_);
      under_way_.erase(&context);
    }
    return Judge(status, deadline);
  }

  void Cancel() {
    MutexLock lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : under_way_) context->TryCancel();
  }

 private:
  absl::Status Unreachable(const std::string& why) const {
    return MakeError(ErrorKind::kNodeUnreachable,
                     absl::StrCat("the node at ", address_, " does not answer: ", why));
  }

  absl::Status Judge(const grpc::Status& status, absl::Duration deadline) const {
    if (status.ok()) return absl::OkStatus();
    // What the node said itself comes whole in the details, its kind included.
    v1::Status said;
    if (!status.error_details().empty() && said.ParseFromString(status.error_details()) &&
        said.code() != 0) {
      return FromProto(said);
    }
    switch (status.error_code()) {
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return Unreachable(absl::StrCat("nothing came within ", absl::FormatDuration(deadline)));
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return MakeError(ErrorKind::kBackPressure,
                         absl::StrCat("the node at ", address_, " takes no more control messages ",
                                      "now: ", status.error_message()));
      case grpc::StatusCode::UNIMPLEMENTED:
        return MakeError(ErrorKind::kVersionMismatch,
                         absl::StrCat("what answers at ", address_,
                                      " is no node of this kind: ", status.error_message()));
      default:
        return Unreachable(status.error_message());
    }
  }

  const std::string address_;
  Mutex mutex_;
  std::shared_ptr<v1::Control::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> under_way_ ABSL_GUARDED_BY(mutex_);
};

ControlClient::ControlClient(const std::string& address)
    : address_(address), impl_(std::make_unique<Impl>(address)) {}

ControlClient::~ControlClient() = default;

void ControlClient::Cancel() { impl_->Cancel(); }

absl::StatusOr<JoinAnswer> ControlClient::Join(const MemberInfo& self, absl::Duration deadline,
                                               uint32_t version) {
  v1::JoinRequest request;
  ToProto(self, request.mutable_member());
  request.set_control_version(version);
  v1::JoinReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::Join, request, &reply, deadline));
  return FromProto(reply);
}

absl::StatusOr<HeartbeatAnswer> ControlClient::Heartbeat(const HeartbeatAsk& ask,
                                                         absl::Duration deadline) {
  v1::HeartbeatRequest request;
  ToProto(ask, &request);
  v1::HeartbeatReply reply;
  const absl::Status status = impl_->Call(&v1::Control::Stub::Heartbeat, request, &reply, deadline);
  if (KindOf(status) == ErrorKind::kNodeUnreachable) impl_->Reconnect();
  ABACUS_RETURN_IF_ERROR(status);
  return FromProto(reply);
}

absl::Status ControlClient::Leave(NodeInstance self, absl::Duration deadline) {
  v1::LeaveRequest request;
  ToProto(self, request.mutable_instance());
  v1::LeaveReply reply;
  return impl_->Call(&v1::Control::Stub::Leave, request, &reply, deadline);
}

absl::Status ControlClient::SendDigest(const Digest& digest, absl::Duration deadline) {
  v1::Digest request;
  ToProto(digest, &request);
  v1::DigestReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::SendDigest, request, &reply, deadline));
  if (!reply.accepted()) return absl::InvalidArgumentError(reply.refused_because());
  return absl::OkStatus();
}

absl::StatusOr<MoveRecord> ControlClient::Move(const MoveCommand& command,
                                               absl::Duration deadline) {
  v1::MoveRequest request;
  ToProto(command, &request);
  v1::MoveReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::Move, request, &reply, deadline));
  ABACUS_RETURN_IF_ERROR(FromProto(reply.status()));
  return FromProto(reply.record());
}

absl::Status ControlClient::Moved(const MoveRecord& record, absl::Duration deadline) {
  v1::MoveRecord request;
  ToProto(record, &request);
  v1::MovedReply reply;
  return impl_->Call(&v1::Control::Stub::Moved, request, &reply, deadline);
}

absl::Status ControlClient::Pin(const PinCommand& command, absl::Duration deadline) {
  v1::PinRequest request;
  ToProto(command, &request);
  v1::PinReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::Pin, request, &reply, deadline));
  return FromProto(reply.status());
}

absl::StatusOr<EngineState> ControlClient::SetEngine(const EngineCommand& command,
                                                     absl::Duration deadline) {
  v1::EngineRequest request;
  if (command.suspended) request.set_suspended(*command.suspended);
  if (command.dry_run) request.set_dry_run(*command.dry_run);
  v1::EngineReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::SetEngine, request, &reply, deadline));
  ABACUS_RETURN_IF_ERROR(FromProto(reply.status()));
  const auto error = [](const v1::ModelError& from) {
    return PlacementLoop::ModelError{
        .count = from.count(), .median = from.median(), .p95 = from.p95()};
  };
  return EngineState{.enabled = reply.enabled(),
                     .suspended = reply.suspended(),
                     .dry_run = reply.dry_run(),
                     .present_error = error(reply.present_error()),
                     .move_error = error(reply.move_error())};
}

absl::StatusOr<std::vector<PinRecord>> ControlClient::GetPins(const std::vector<Rid>& rids,
                                                              absl::Duration deadline) {
  v1::PinsRequest request;
  for (const Rid& rid : rids) ToProto(rid, request.add_rids());
  v1::PinsReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::GetPins, request, &reply, deadline));
  std::vector<PinRecord> pins;
  for (const v1::PinRecord& pin : reply.pins()) pins.push_back(FromProto(pin));
  return pins;
}

absl::StatusOr<std::vector<DecisionText>> ControlClient::Explain(const Rid& rid,
                                                                 uint32_t decisions_max,
                                                                 absl::Duration deadline,
                                                                 uint32_t hops) {
  v1::ExplainRequest request;
  ToProto(rid, request.mutable_rid());
  request.set_decisions_max(decisions_max);
  request.set_hops(hops);
  v1::ExplainReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::Explain, request, &reply, deadline));
  ABACUS_RETURN_IF_ERROR(FromProto(reply.status()));
  std::vector<DecisionText> decisions;
  for (const v1::DecisionRecord& decision : reply.decisions()) {
    decisions.push_back(FromProto(decision));
  }
  return decisions;
}

absl::StatusOr<NodeReport> ControlClient::GetStatus(uint32_t objects_max, absl::Duration deadline) {
  v1::StatusRequest request;
  request.set_objects_max(objects_max);
  v1::StatusReply reply;
  ABACUS_RETURN_IF_ERROR(impl_->Call(&v1::Control::Stub::GetStatus, request, &reply, deadline));
  return FromProto(reply);
}

std::shared_ptr<ControlClient> ControlClients::To(const std::string& address) {
  MutexLock lock(mutex_);
  auto& client = clients_[address];
  if (client == nullptr) {
    client = std::make_shared<ControlClient>(address);
    if (cancelled_) client->Cancel();
  }
  return client;
}

void ControlClients::Forget(const std::string& address) {
  MutexLock lock(mutex_);
  const auto it = clients_.find(address);
  if (it == clients_.end()) return;
  it->second->Cancel();
  clients_.erase(it);
}

void ControlClients::CancelAll() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (const auto& [address, client] : clients_) client->Cancel();
}

}  // namespace abacus::runtime
