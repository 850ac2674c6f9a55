#include "runtime/node/control_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "abacus/v1/control.grpc.pb.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/node/addresses.h"
#include "runtime/node/proto_convert.h"

namespace abacus::runtime {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kAddressBytesMax = 256;
constexpr uint32_t kObjectsMax = 100'000;
constexpr uint32_t kDecisionsMax = 1'000;

// The codes are the same numbers; the details carry the kind.
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::Status details;
  ToProto(status, &details);
  const absl::string_view message = status.message();
  return {static_cast<grpc::StatusCode>(status.code()), std::string(message.data(), message.size()),
          details.SerializeAsString()};
}

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError("the message is refused: " + what);
}

absl::Status CheckJoiner(const v1::JoinRequest& request) {
  if (request.control_version() != kControlVersion) {
    return MakeError(
        ErrorKind::kVersionMismatch,
        absl::StrCat("this server speaks version ", kControlVersion, " of the control plane, ",
                     request.member().name(), " speaks version ", request.control_version(),
                     ": they were built from different sources"));
  }
  const v1::Member& member = request.member();
  if (member.instance().node() == 0) return Invalid("the joining node has no id");
  if (member.name().size() > kNameBytesMax) return Invalid("the node's name is too long");
  for (const std::string& address : {member.data_address(), member.control_address()}) {
    if (address.empty() || address.size() > kAddressBytesMax) {
      return Invalid("the joining node's addresses are missing or too long");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRids(const google::protobuf::RepeatedPtrField<v1::Rid>& rids) {
  if (rids.empty()) return Invalid("no object is named");
  if (rids.size() > ControlServer::kCommandRidsMax) {
    return MakeError(ErrorKind::kBackPressure,
                     absl::StrCat("a command names at most ", ControlServer::kCommandRidsMax,
                                  " objects, not ", rids.size()));
  }
  for (const v1::Rid& rid : rids) {
    if (!FromProto(rid).valid()) return Invalid("a rid is not valid");
  }
  return absl::OkStatus();
}

}  // namespace

class ControlServer::Impl final : public v1::Control::Service {
 public:
  explicit Impl(ControlHandler* handler) : handler_(*handler) {}

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    if (const absl::Status status = CheckJoiner(*request); !status.ok()) return ToGrpc(status);
    const auto answer = handler_.OnJoin(FromProto(request->member()));
    if (answer.ok()) ToProto(*answer, reply);
    return ToGrpc(answer.status());
  }

  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    if (request->heard_size() > kListMax) return ToGrpc(Invalid("it names too many nodes"));
    const auto answer = handler_.OnHeartbeat(FromProto(*request));
    if (answer.ok()) ToProto(*answer, reply);
    return ToGrpc(answer.status());
  }

  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request,
                     v1::LeaveReply*) override {
    return ToGrpc(handler_.OnLeave(FromProto(request->instance())));
  }

  grpc::Status SendDigest(grpc::ServerContext*, const v1::Digest* request,
                          v1::DigestReply* reply) override {
    if (std::max({request->objects_size(), request->edges_size(), request->links_size(),
                  request->consoles_size(), request->pins_size()}) > kListMax) {
      return ToGrpc(Invalid(absl::StrCat("a digest's lists have at most ", kListMax, " entries")));
    }
    const absl::Status status = handler_.OnDigest(FromProto(*request));
    reply->set_accepted(status.ok());
    const absl::string_view why = status.message();
    reply->set_refused_because(std::string(why.data(), why.size()));
    return grpc::Status::OK;
  }

  grpc::Status Move(grpc::ServerContext*, const v1::MoveRequest* request,
                    v1::MoveReply* reply) override {
    if (const absl::Status status = CheckRids(request->rids()); !status.ok()) {
      return ToGrpc(status);
    }
    const auto record = handler_.OnMove(FromProto(*request));
    ToProto(record.status(), reply->mutable_status());
    if (record.ok()) ToProto(*record, reply->mutable_record());
    return grpc::Status::OK;
  }

  grpc::Status Moved(grpc::ServerContext*, const v1::MoveRecord* request,
                     v1::MovedReply*) override {
    if (const absl::Status status = CheckRids(request->rids()); !status.ok()) {
      return ToGrpc(status);
    }
    handler_.OnMoved(FromProto(*request));
    return grpc::Status::OK;
  }

  grpc::Status Pin(grpc::ServerContext*, const v1::PinRequest* request,
                   v1::PinReply* reply) override {
    const PinCommand command = FromProto(*request);
    if (!command.rid.valid()) return ToGrpc(Invalid("the rid is not valid"));
    if (command.allowed && command.allowed->size() > kListMax) {
      return ToGrpc(Invalid("too many nodes are named"));
    }
    ToProto(handler_.OnPin(command), reply->mutable_status());
    return grpc::Status::OK;
  }

  grpc::Status GetPins(grpc::ServerContext*, const v1::PinsRequest* request,
                       v1::PinsReply* reply) override {
    if (const absl::Status status = CheckRids(request->rids()); !status.ok()) {
      return ToGrpc(status);
    }
    std::vector<Rid> rids;
    for (const v1::Rid& rid : request->rids()) rids.push_back(FromProto(rid));
    for (const PinRecord& pin : handler_.OnGetPins(rids)) ToProto(pin, reply->add_pins());
    return grpc::Status::OK;
  }

  grpc::Status SetEngine(grpc::ServerContext*, const v1::EngineRequest* request,
                         v1::EngineReply* reply) override {
    EngineCommand command;
    if (request->has_suspended()) command.suspended = request->suspended();
    if (request->has_dry_run()) command.dry_run = request->dry_run();
    const auto state = handler_.OnSetEngine(command);
    ToProto(state.status(), reply->mutable_status());
    if (state.ok()) {
      reply->set_enabled(state->enabled);
      reply->set_suspended(state->suspended);
      reply->set_dry_run(state->dry_run);
      const auto set = [](const PlacementLoop::ModelError& from, v1::ModelError* to) {
        to->set_count(from.count);
        to->set_median(from.median);
        to->set_p95(from.p95);
      };
      set(state->present_error, reply->mutable_present_error());
      set(state->move_error, reply->mutable_move_error());
    }
    return grpc::Status::OK;
  }

  grpc::Status Explain(grpc::ServerContext*, const v1::ExplainRequest* request,
                       v1::ExplainReply* reply) override {
    const Rid rid = FromProto(request->rid());
    if (!rid.valid()) return ToGrpc(Invalid("the rid is not valid"));
    const size_t max = std::min(request->decisions_max(), kDecisionsMax);
    const auto decisions = handler_.OnExplain(rid, max, request->hops());
    ToProto(decisions.status(), reply->mutable_status());
    if (decisions.ok()) {
      for (const DecisionText& decision : *decisions) ToProto(decision, reply->add_decisions());
    }
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::StatusRequest* request,
                         v1::StatusReply* reply) override {
    ToProto(handler_.OnGetStatus(std::min(request->objects_max(), kObjectsMax)), reply);
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server;

 private:
  ControlHandler& handler_;
};

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ControlServer::~ControlServer() { Stop(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Listen(const std::string& address,
                                                                     ControlHandler* handler) {
  ABACUS_ASSIGN_OR_RETURN(const HostAndPort listen, SplitAddress(address));
  std::unique_ptr<ControlServer> server(new ControlServer(std::make_unique<Impl>(handler)));
  grpc::ServerBuilder builder;
  int port = 0;
  // Else two servers at one port would each get a part of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kControlMessageBytesMax);
  builder.SetMaxSendMessageSize(kControlMessageBytesMax);
  grpc::ResourceQuota quota("abacus-control");
  builder.SetResourceQuota(quota.SetMaxThreads(kThreadsMax));
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(server->impl_.get());
  // gRPC says only that it failed: the reason comes from trying by hand first.
  const absl::Status reason = CheckListen(listen);
  if (reason.ok()) server->impl_->server = builder.BuildAndStart();
  if (server->impl_->server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen for control messages at ", address, ": ",
                     reason.ok() ? "gRPC refuses it" : reason.message(),
                     "; end what uses it, or give node.control_address another port (0: any)"));
  }
  server->address_ = absl::StrCat(listen.host, ":", port);
  return server;
}

void ControlServer::Stop(absl::Duration patience) {
  if (impl_->server == nullptr) return;
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(patience));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace abacus::runtime
