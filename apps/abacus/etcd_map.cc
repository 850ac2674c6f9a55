#include "apps/abacus/etcd_map.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "etcd/v3/etcd.grpc.pb.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

namespace v3 = etcdserverpb;
using objfs::MapAnswer;
using objfs::MapCall;
using objfs::VolumeRow;

constexpr char kEtcdScheme[] = "etcd://";
// Of one call to one member. Less than half of a lease: a member that hangs costs no lease where
// another one answers.
constexpr std::chrono::milliseconds kEtcdPatience{1000};

grpc::ChannelArguments EtcdArguments() {
  grpc::ChannelArguments arguments;
  // As of the control plane: a member that was restarted is seen at once, and no proxy is asked.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

void CompareRevision(const std::string& key, int64_t revision, v3::TxnRequest* request) {
  v3::Compare* compare = request->add_compare();
  compare->set_result(v3::Compare::EQUAL);
  compare->set_target(v3::Compare::MOD);
  compare->set_key(key);
  compare->set_mod_revision(revision);
}

void PutKey(const std::string& key, const std::string& value, int64_t lease,
            v3::TxnRequest* request) {
  v3::PutRequest* put = request->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
  put->set_lease(lease);
}

class EtcdMap final : public objfs::MapStore {
 public:
  EtcdMap(std::vector<std::string> members, std::string volume, const std::string& prefix,
          int64_t lease_s)
      : members_(std::move(members)),
        volume_(std::move(volume)),
        row_key_(prefix + "/row"),
        primary_key_(prefix + "/primary"),
        lease_s_(lease_s) {
    for (const std::string& member : members_) {
      channels_.push_back(
          grpc::CreateCustomChannel(member, grpc::InsecureChannelCredentials(), EtcdArguments()));
    }
  }

  absl::StatusOr<MapAnswer> Call(const MapCall& call) override {
    switch (call.kind) {
      case MapCall::Kind::kRead:
        return Read();
      case MapCall::Kind::kGrant:
        return Grant(call);
      case MapCall::Kind::kRenew:
        return Renew(call);
      case MapCall::Kind::kTake:
      case MapCall::Kind::kSet:
        return Swap(call);
    }
    return absl::InternalError("a call of no kind");
  }

  absl::Status Create(const VolumeRow& row) override {
    v3::TxnRequest request;
    CompareRevision(row_key_, 0, &request);
    PutKey(row_key_, row.Encode(), 0, &request);
    absl::StatusOr<v3::TxnResponse> response = TxnAnywhere(request);
    if (!response.ok()) return response.status();
    return response->succeeded() ? absl::OkStatus()
                                 : absl::AlreadyExistsError("the map has a row of that volume");
  }

  absl::Status Remove() override {
    v3::TxnRequest request;
    for (const std::string& key : {row_key_, primary_key_}) {
      request.add_success()->mutable_request_delete_range()->set_key(key);
    }
    return TxnAnywhere(request).status();
  }

 private:
  template <typename Stub>
  std::unique_ptr<typename Stub::Stub> Member() {
    return Stub::NewStub(channels_[member_ % channels_.size()]);
  }
  static void SetPatience(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + kEtcdPatience);
    // Connections are made while a call waits, and by nobody else.
    context->set_wait_for_ready(true);
  }
  // The next call goes to another member.
  absl::Status Failed(const grpc::Status& status) {
    const std::string member = members_[member_ % members_.size()];
    ++member_;
    return absl::UnavailableError(
        absl::StrCat("etcd at ", member, " does not answer: ", status.error_message()));
  }

  // Once: a transaction that was not answered may have been made.
  absl::StatusOr<v3::TxnResponse> Txn(const v3::TxnRequest& request) {
    grpc::ClientContext context;
    SetPatience(&context);
    v3::TxnResponse response;
    const grpc::Status status = Member<v3::KV>()->Txn(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      return absl::NotFoundError(status.error_message());  // its lease, and nothing was done
    }
    if (!status.ok()) return Failed(status);
    return response;
  }
  // One that may be made twice.
  absl::StatusOr<v3::TxnResponse> TxnAnywhere(const v3::TxnRequest& request) {
    absl::StatusOr<v3::TxnResponse> response = Txn(request);
    for (size_t i = 1; i < members_.size() && !response.ok(); ++i) response = Txn(request);
    return response;
  }

  absl::StatusOr<MapAnswer> Read() {
    v3::TxnRequest request;
    for (const std::string& key : {row_key_, primary_key_}) {
      request.add_success()->mutable_request_range()->set_key(key);
    }
    ABACUS_ASSIGN_OR_RETURN(const v3::TxnResponse response, Txn(request));
    if (response.responses_size() != 2) return absl::DataLossError("etcd's answer is none");
    const auto& rows = response.responses(0).response_range().kvs();
    const auto& holders = response.responses(1).response_range().kvs();
    if (rows.empty()) {
      return absl::NotFoundError(absl::StrCat(
          "etcd at ", absl::StrJoin(members_, ","), " has no row of the volume: ", row_key_,
          ". If it has lost it, and the volume was not deleted: abacus volume restore-map ",
          objfs::PlaceOfShard(volume_).volume));
    }
    MapAnswer answer{.state = MapAnswer::State::kDone, .reading = {}};
    ABACUS_ASSIGN_OR_RETURN(answer.reading.row, VolumeRow::Decode(rows[0].value()));
    answer.reading.revision = rows[0].mod_revision();
    if (holders.empty()) return answer;
    answer.reading.holder = holders[0].value();
    answer.reading.holder_revision = holders[0].mod_revision();
    return answer;
  }

  absl::StatusOr<MapAnswer> Grant(const MapCall& call) {
    grpc::ClientContext context;
    SetPatience(&context);
    v3::LeaseGrantRequest request;
    request.set_ttl(lease_s_);
    request.set_id(static_cast<int64_t>(call.lease));
    v3::LeaseGrantResponse response;
    const grpc::Status status = Member<v3::Lease>()->LeaseGrant(&context, request, &response);
    if (!status.ok()) return Failed(status);
    return Told(response.error().empty() && response.ttl() >= lease_s_);
  }

  absl::StatusOr<MapAnswer> Renew(const MapCall& call) {
    grpc::ClientContext context;
    SetPatience(&context);
    const auto stream = Member<v3::Lease>()->LeaseKeepAlive(&context);
    v3::LeaseKeepAliveRequest request;
    request.set_id(static_cast<int64_t>(call.lease));
    v3::LeaseKeepAliveResponse response;
    const bool answered = stream->Write(request) && stream->Read(&response);
    stream->WritesDone();
    if (!answered) return Failed(stream->Finish());
    context.TryCancel();
    stream->Finish();
    return Told(response.ttl() >= lease_s_);
  }

  absl::StatusOr<MapAnswer> Swap(const MapCall& call) {
    v3::TxnRequest request;
    CompareRevision(row_key_, call.revision, &request);
    PutKey(row_key_, call.row.Encode(), 0, &request);
    if (call.kind == MapCall::Kind::kTake) {
      CompareRevision(primary_key_, call.holder_revision, &request);
      PutKey(primary_key_, call.holder, static_cast<int64_t>(call.lease), &request);
    }
    const absl::StatusOr<v3::TxnResponse> response = Txn(request);
    if (absl::IsNotFound(response.status())) return Told(false);
    if (!response.ok()) return response.status();
    MapAnswer answer = Told(response->succeeded());
    // What a transaction has put has its revision.
    answer.reading.revision = answer.reading.holder_revision = response->header().revision();
    return answer;
  }

  static MapAnswer Told(bool done) {
    return {.state = done ? MapAnswer::State::kDone : MapAnswer::State::kRefused, .reading = {}};
  }

  const std::vector<std::string> members_;
  const std::string volume_;
  const std::string row_key_, primary_key_;
  const int64_t lease_s_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<size_t> member_{0};  // that is asked
};

}  // namespace

absl::StatusOr<std::vector<std::string>> EtcdMembers(const std::string& url) {
  const size_t scheme = sizeof(kEtcdScheme) - 1;
  if (url.rfind(kEtcdScheme, 0) == 0) {
    std::vector<std::string> members = absl::StrSplit(url.substr(scheme), ',');
    if (std::all_of(members.begin(), members.end(), objfs::IsServerAddress)) return members;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", url, "' is no map of volumes: etcd://HOST:PORT[,HOST:PORT...]"));
}

absl::StatusOr<std::unique_ptr<objfs::MapStore>> OpenEtcdMap(const std::string& url,
                                                             const std::string& volume,
                                                             uint64_t key, absl::Duration lease) {
  ABACUS_ASSIGN_OR_RETURN(std::vector<std::string> members, EtcdMembers(url));
  const std::string prefix =
      absl::StrCat("/abacus/volumes/", volume, "-", absl::Hex(key, absl::kZeroPad16));
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(lease, absl::Seconds(1)));
  return std::make_unique<EtcdMap>(std::move(members), volume, prefix, seconds);
}

}  // namespace abacus::apps
