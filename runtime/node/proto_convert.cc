#include "runtime/node/proto_convert.h"

#include <algorithm>
#include <optional>
#include <string>

#include "abacus/v1/control.pb.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

std::string ToString(absl::string_view text) { return {text.data(), text.size()}; }

// Empty optionals travel as a value that a measured figure cannot have.
double OrMinus(const std::optional<double>& value) { return value.value_or(-1); }
std::optional<double> UnlessNegative(double value) {
  // Written so that a NaN stays one and is refused where digests are checked.
  if (value < 0) return std::nullopt;
  return value;
}

}  // namespace

// Parts of other messages. Not in the unnamed namespace: names there would hide those of the header
// from the templates below.

static void ToProto(const NamedRoot& from, v1::NamedObject* to) {
  to->set_name(from.name);
  ToProto(from.rid, to->mutable_rid());
}
static NamedRoot FromProto(const v1::NamedObject& from) {
  return {from.name(), FromProto(from.rid())};
}

static void ToProto(const Heard& from, v1::Heard* to) {
  ToProto(from.instance, to->mutable_instance());
  to->set_age_ms(absl::ToInt64Milliseconds(from.age));
}
static Heard FromProto(const v1::Heard& from) {
  return {FromProto(from.instance()), absl::Milliseconds(from.age_ms())};
}

static void ToProto(const placement::ObjectStatistics& from, v1::ObjectStatistics* to) {
  ToProto(ToRid(from.id), to->mutable_rid());
  to->set_class_name(from.class_name);
  to->set_mobile(from.mobile);
  to->set_pinned(from.pinned);
  to->set_pinned_reason(from.pinned_reason);
  to->set_cpu_s(from.cpu_s);
  to->set_cpu_s_variance(from.cpu_s_variance);
  to->set_samples(from.samples);
  to->set_background_cpu_s(from.background_cpu_s);
  to->set_own_stall_s(from.own_stall_s);
  to->set_disk_s(from.disk_s);
  to->set_ready_s(from.ready_s);
  to->set_stall_s(from.stall_s);
  to->set_bytes_processed(from.bytes_processed);
  to->set_calls(from.calls);
  to->set_threads_s(from.threads_s);
  to->set_busy_s(from.busy_s);
  to->set_voluntary_switches(from.voluntary_switches);
  to->set_involuntary_switches(from.involuntary_switches);
  to->set_io_bytes(from.io_bytes);
  to->set_io_requests(from.io_requests);
  to->set_io_s(from.io_s);
  to->set_checkpoint_bytes(from.checkpoint_bytes);
  to->set_memory_bytes(from.memory_bytes);
}
static placement::ObjectStatistics FromProto(const v1::ObjectStatistics& from) {
  placement::ObjectStatistics to;
  to.id = ToObjectId(FromProto(from.rid()));
  to.class_name = from.class_name();
  to.mobile = from.mobile();
  to.pinned = from.pinned();
  to.pinned_reason = from.pinned_reason();
  to.cpu_s = from.cpu_s();
  to.cpu_s_variance = from.cpu_s_variance();
  to.samples = from.samples();
  to.background_cpu_s = from.background_cpu_s();
  to.own_stall_s = from.own_stall_s();
  to.disk_s = from.disk_s();
  to.ready_s = from.ready_s();
  to.stall_s = from.stall_s();
  to.bytes_processed = from.bytes_processed();
  to.calls = from.calls();
  to.threads_s = from.threads_s();
  to.busy_s = from.busy_s();
  to.voluntary_switches = from.voluntary_switches();
  to.involuntary_switches = from.involuntary_switches();
  to.io_bytes = from.io_bytes();
  to.io_requests = from.io_requests();
  to.io_s = from.io_s();
  to.checkpoint_bytes = from.checkpoint_bytes();
  to.memory_bytes = from.memory_bytes();
  return to;
}

static void ToProto(const placement::EdgeStatistics& from, v1::EdgeStatistics* to) {
  ToProto(ToRid(from.from), to->mutable_from());
  ToProto(ToRid(from.to), to->mutable_to());
  to->set_calls(from.calls);
  to->set_request_bytes(from.request_bytes);
  to->set_reply_bytes(from.reply_bytes);
  to->set_bytes_variance(from.bytes_variance);
  to->set_samples(from.samples);
}
static placement::EdgeStatistics FromProto(const v1::EdgeStatistics& from) {
  return {.from = ToObjectId(FromProto(from.from())),
          .to = ToObjectId(FromProto(from.to())),
          .calls = from.calls(),
          .request_bytes = from.request_bytes(),
          .reply_bytes = from.reply_bytes(),
          .bytes_variance = from.bytes_variance(),
          .samples = from.samples()};
}

static void ToProto(const placement::LinkStatistics& from, v1::LinkStatistics* to) {
  to->set_a(from.a);
  to->set_b(from.b);
  to->set_bandwidth_bytes_s(from.bandwidth_bytes_s.value_or(0));
  to->set_round_trip_s(OrMinus(from.round_trip_s));
  to->set_measured_bytes(from.measured_bytes);
  to->set_bandwidth_variance(from.bandwidth_variance);
  to->set_round_trip_bytes(from.round_trip_bytes);
}
static placement::LinkStatistics FromProto(const v1::LinkStatistics& from) {
  placement::LinkStatistics to{.a = from.a(), .b = from.b()};
  if (from.bandwidth_bytes_s() != 0) to.bandwidth_bytes_s = from.bandwidth_bytes_s();
  to.round_trip_s = UnlessNegative(from.round_trip_s());
  to.measured_bytes = from.measured_bytes();
  to.bandwidth_variance = from.bandwidth_variance();
  to.round_trip_bytes = from.round_trip_bytes();
  return to;
}

static void ToProto(const placement::LostFigures& from, v1::LostFigures* to) {
  to->set_threads(from.threads);
  to->set_io_requests(from.io_requests);
  to->set_io_times(from.io_times);
  to->set_edges(from.edges);
}
static placement::LostFigures FromProto(const v1::LostFigures& from) {
  return {.threads = from.threads(),
          .io_requests = from.io_requests(),
          .io_times = from.io_times(),
          .edges = from.edges()};
}

static void ToProto(const NodeReport::MemberLine& from, v1::MemberStatus* to) {
  ToProto(from.info, to->mutable_member());
  to->set_heard_age_s(absl::ToDoubleSeconds(from.heard_age));
  if (from.measured) ToProto(from.statistics, to->mutable_statistics());
}
static NodeReport::MemberLine FromProto(const v1::MemberStatus& from) {
  return {.info = FromProto(from.member()),
          .heard_age = absl::Seconds(from.heard_age_s()),
          .measured = from.has_statistics(),
          .statistics = FromProto(from.statistics())};
}

static void ToProto(const NodeReport::ObjectLine& from, v1::ObjectStatus* to) {
  ToProto(from.rid, to->mutable_rid());
  to->set_class_name(from.class_name);
  to->set_node(from.node);
  to->set_mobile(from.mobile);
  to->set_pinned(from.pinned);
  to->set_pinned_reason(from.pinned_reason);
  to->set_cpu_share(from.cpu_share);
  to->set_bytes_s(from.bytes_s);
  to->set_blocked_share(from.blocked_share);
  to->set_disk_share(from.disk_share);
  to->set_ready_share(from.ready_share);
  to->set_background_share(from.background_share);
  to->set_stall_share(from.stall_share);
  to->set_bytes_in_s(from.bytes_in_s);
  to->set_bytes_out_s(from.bytes_out_s);
  to->set_memory_bytes(from.memory_bytes);
  if (from.voluntary_switches_s) to->set_voluntary_switches_s(*from.voluntary_switches_s);
  if (from.involuntary_switches_s) to->set_involuntary_switches_s(*from.involuntary_switches_s);
  if (from.io_bytes_s) to->set_io_bytes_s(*from.io_bytes_s);
  if (from.io_requests_s) to->set_io_requests_s(*from.io_requests_s);
  if (from.io_share) to->set_io_share(*from.io_share);
}
static NodeReport::ObjectLine FromProto(const v1::ObjectStatus& from) {
  const auto maybe = [](bool is_set, double value) {
    return is_set ? std::optional<double>(value) : std::nullopt;
  };
  return {
      .rid = FromProto(from.rid()),
      .class_name = from.class_name(),
      .node = from.node(),
      .mobile = from.mobile(),
      .pinned = from.pinned(),
      .pinned_reason = from.pinned_reason(),
      .cpu_share = from.cpu_share(),
      .blocked_share = from.blocked_share(),
      .disk_share = from.disk_share(),
      .ready_share = from.ready_share(),
      .background_share = from.background_share(),
      .stall_share = from.stall_share(),
      .bytes_s = from.bytes_s(),
      .bytes_in_s = from.bytes_in_s(),
      .bytes_out_s = from.bytes_out_s(),
      .memory_bytes = from.memory_bytes(),
      .voluntary_switches_s = maybe(from.has_voluntary_switches_s(), from.voluntary_switches_s()),
      .involuntary_switches_s =
          maybe(from.has_involuntary_switches_s(), from.involuntary_switches_s()),
      .io_bytes_s = maybe(from.has_io_bytes_s(), from.io_bytes_s()),
      .io_requests_s = maybe(from.has_io_requests_s(), from.io_requests_s()),
      .io_share = maybe(from.has_io_share(), from.io_share())};
}

static void ToProto(const NodeReport::EdgeLine& from, v1::EdgeStatus* to) {
  ToProto(from.from, to->mutable_from());
  ToProto(from.to, to->mutable_to());
  to->set_calls_s(from.calls_s);
  to->set_request_bytes_s(from.request_bytes_s);
  to->set_reply_bytes_s(from.reply_bytes_s);
}
static NodeReport::EdgeLine FromProto(const v1::EdgeStatus& from) {
  return {.from = FromProto(from.from()),
          .to = FromProto(from.to()),
          .calls_s = from.calls_s(),
          .request_bytes_s = from.request_bytes_s(),
          .reply_bytes_s = from.reply_bytes_s()};
}

static void ToProto(const NodeReport::LinkLine& from, v1::LinkStatus* to) {
  to->set_peer(from.peer);
  to->set_delivered_bytes_s(from.delivered_bytes_s);
  to->set_app_limited(from.app_limited);
  to->set_round_trip_s(absl::ToDoubleSeconds(from.round_trip));
  to->set_bytes_sent(from.bytes_sent);
  to->set_bytes_received(from.bytes_received);
  to->set_node(from.node);
  to->set_connections(from.connections);
}
static NodeReport::LinkLine FromProto(const v1::LinkStatus& from) {
  return {.node = from.node(),
          .connections = from.connections(),
          .peer = from.peer(),
          .delivered_bytes_s = from.delivered_bytes_s(),
          .app_limited = from.app_limited(),
          .round_trip = absl::Seconds(from.round_trip_s()),
          .bytes_sent = from.bytes_sent(),
          .bytes_received = from.bytes_received()};
}

static void ToProto(const NodeReport::Counter& from, v1::Counter* to) {
  to->set_name(from.name);
  to->set_value(from.value);
}
static NodeReport::Counter FromProto(const v1::Counter& from) {
  return {from.name(), from.value()};
}

template <typename From, typename To>
static void AllToProto(const std::vector<From>& from, To* to) {
  to->Reserve(static_cast<int>(from.size()));
  for (const From& one : from) ToProto(one, to->Add());
}

template <typename To, typename From>
static std::vector<To> AllFromProto(const From& from) {
  std::vector<To> all;
  all.reserve(static_cast<size_t>(from.size()));
  for (const auto& one : from) all.push_back(FromProto(one));
  return all;
}

// -- names and statuses -------------------------------------------------------------------------

void ToProto(const NodeInstance& from, v1::NodeInstance* to) {
  to->set_node(from.node);
  to->set_incarnation(from.incarnation);
}
NodeInstance FromProto(const v1::NodeInstance& from) { return {from.node(), from.incarnation()}; }

void ToProto(const Rid& from, v1::Rid* to) {
  ToProto(from.home, to->mutable_home());
  to->set_local(from.local);
}
Rid FromProto(const v1::Rid& from) { return {FromProto(from.home()), from.local()}; }

void ToProto(const absl::Status& from, v1::Status* to) {
  to->set_code(static_cast<uint32_t>(from.code()));
  to->set_kind(static_cast<uint32_t>(KindOf(from)));
  to->set_message(ToString(from.message()));
}
absl::Status FromProto(const v1::Status& from) {
  if (from.code() == 0) return absl::OkStatus();
  if (from.kind() != 0) return MakeError(static_cast<ErrorKind>(from.kind()), from.message());
  const bool known = from.code() <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return {known ? static_cast<absl::StatusCode>(from.code()) : absl::StatusCode::kUnknown,
          from.message()};
}

// -- membership ---------------------------------------------------------------------------------

void ToProto(const MemberInfo& from, v1::Member* to) {
  ToProto(from.instance, to->mutable_instance());
  to->set_name(from.name);
  to->set_data_address(from.data_address);
  to->set_control_address(from.control_address);
  to->set_server(from.server);
}
MemberInfo FromProto(const v1::Member& from) {
  return {.instance = FromProto(from.instance()),
          .name = from.name(),
          .data_address = from.data_address(),
          .control_address = from.control_address(),
          .server = from.server()};
}

void ToProto(const View& from, v1::View* to) {
  to->set_version(from.version);
  AllToProto(from.members, to->mutable_members());
  AllToProto(from.dead, to->mutable_dead());
  AllToProto(from.roots, to->mutable_roots());
}
View FromProto(const v1::View& from) {
  return {.version = from.version(),
          .members = AllFromProto<MemberInfo>(from.members()),
          .dead = AllFromProto<NodeInstance>(from.dead()),
          .roots = AllFromProto<NamedRoot>(from.roots())};
}

void ToProto(const JoinAnswer& from, v1::JoinReply* to) {
  ToProto(from.server, to->mutable_server());
  ToProto(from.view, to->mutable_view());
}
JoinAnswer FromProto(const v1::JoinReply& from) {
  return {FromProto(from.server()), FromProto(from.view())};
}

void ToProto(const HeartbeatAsk& from, v1::HeartbeatRequest* to) {
  ToProto(from.instance, to->mutable_instance());
  to->set_view_version(from.view_version);
  AllToProto(from.heard, to->mutable_heard());
}
HeartbeatAsk FromProto(const v1::HeartbeatRequest& from) {
  return {.instance = FromProto(from.instance()),
          .view_version = from.view_version(),
          .heard = AllFromProto<Heard>(from.heard())};
}

void ToProto(const HeartbeatAnswer& from, v1::HeartbeatReply* to) {
  to->set_verdict(static_cast<v1::HeartbeatReply::Verdict>(from.verdict));
  ToProto(from.server, to->mutable_server());
  if (from.view.has_value()) ToProto(*from.view, to->mutable_view());
  AllToProto(from.heard, to->mutable_heard());
}
HeartbeatAnswer FromProto(const v1::HeartbeatReply& from) {
  HeartbeatAnswer to;
  switch (from.verdict()) {
    case v1::HeartbeatReply::KNOWN:
      to.verdict = HeartbeatAnswer::Verdict::kKnown;
      break;
    case v1::HeartbeatReply::FENCED:
      to.verdict = HeartbeatAnswer::Verdict::kFenced;
      break;
    default:
      to.verdict = HeartbeatAnswer::Verdict::kUnknown;
  }
  to.server = FromProto(from.server());
  if (from.has_view()) to.view = FromProto(from.view());
  to.heard = AllFromProto<Heard>(from.heard());
  return to;
}

// -- statistics ---------------------------------------------------------------------------------

void ToProto(const placement::NodeStatistics& from, v1::NodeStatistics* to) {
  to->set_node(from.node);
  to->set_name(from.name);
  to->set_server(from.is_server);
  to->set_rate(from.rate);
  to->set_cores(from.cores);
  to->set_load(from.load);
  to->set_source(from.source);
  to->set_sees_switches(from.sees_switches);
  to->set_sees_io(from.sees_io);
  to->set_less_contention(1 - from.contention);
  to->set_blind_to_memory(!from.sees_memory);
  to->set_source_missing(from.source_missing);
  if (from.lost.all() > 0) ToProto(from.lost, to->mutable_lost());
  to->set_memory_bytes(from.memory_bytes.value_or(0));
  to->set_memory_limit_bytes(from.memory_limit_bytes.value_or(0));
  to->set_memory_free_bytes(OrMinus(from.memory_free_bytes));
}
placement::NodeStatistics FromProto(const v1::NodeStatistics& from) {
  placement::NodeStatistics to{.node = from.node(),
                               .name = from.name(),
                               .is_server = from.server(),
                               .rate = from.rate(),
                               .cores = from.cores(),
                               .load = from.load()};
  if (from.memory_bytes() != 0) to.memory_bytes = from.memory_bytes();
  if (from.memory_limit_bytes() != 0) to.memory_limit_bytes = from.memory_limit_bytes();
  to.memory_free_bytes = UnlessNegative(from.memory_free_bytes());
  to.source = from.source();
  to.sees_switches = from.sees_switches();
  to.sees_io = from.sees_io();
  to.contention = 1 - from.less_contention();
  to.sees_memory = !from.blind_to_memory();
  to.source_missing = from.source_missing();
  to.lost = FromProto(from.lost());
  return to;
}

void ToProto(const PinRecord& from, v1::PinRecord* to) {
  ToProto(from.rid, to->mutable_rid());
  to->set_reason(from.reason);
  for (const NodeId node : from.allowed) to->add_allowed(node);
  to->set_attach_group(from.attach_group);
}
PinRecord FromProto(const v1::PinRecord& from) {
  return {.rid = FromProto(from.rid()),
          .reason = from.reason(),
          .allowed = {from.allowed().begin(), from.allowed().end()},
          .attach_group = from.attach_group()};
}

void ToProto(const Digest& from, v1::Digest* to) {
  ToProto(from.from, to->mutable_from());
  to->set_window_s(from.window_s);
  ToProto(from.node, to->mutable_node());
  AllToProto(from.objects, to->mutable_objects());
  AllToProto(from.edges, to->mutable_edges());
  AllToProto(from.links, to->mutable_links());
  AllToProto(from.consoles, to->mutable_consoles());
  AllToProto(from.pins, to->mutable_pins());
  AllToProto(from.begin_anew, to->mutable_begin_anew());
}
Digest FromProto(const v1::Digest& from) {
  Digest to;
  to.from = FromProto(from.from());
  to.window_s = from.window_s();
  to.node = FromProto(from.node());
  to.objects = AllFromProto<placement::ObjectStatistics>(from.objects());
  // A node reports what it hosts itself, and nothing else.
  for (placement::ObjectStatistics& object : to.objects) object.node = to.from.node;
  to.edges = AllFromProto<placement::EdgeStatistics>(from.edges());
  to.links = AllFromProto<placement::LinkStatistics>(from.links());
  to.consoles = AllFromProto<Rid>(from.consoles());
  to.pins = AllFromProto<PinRecord>(from.pins());
  to.begin_anew = AllFromProto<Rid>(from.begin_anew());
  return to;
}

// -- commands -----------------------------------------------------------------------------------

void ToProto(const MoveCommand& from, v1::MoveRequest* to) {
  AllToProto(from.rids, to->mutable_rids());
  to->set_target(from.target);
  to->set_by_engine(from.by_engine);
  to->set_reason(from.reason);
  to->set_predicted_gain_s(absl::ToDoubleSeconds(from.predicted_gain));
  to->set_predicted_cost_s(absl::ToDoubleSeconds(from.predicted_cost));
  to->set_hops(from.hops);
}
MoveCommand FromProto(const v1::MoveRequest& from) {
  return {.rids = AllFromProto<Rid>(from.rids()),
          .target = from.target(),
          .by_engine = from.by_engine(),
          .reason = from.reason(),
          .predicted_gain = absl::Seconds(from.predicted_gain_s()),
          .predicted_cost = absl::Seconds(from.predicted_cost_s()),
          .hops = from.hops()};
}

void ToProto(const MoveRecord& from, v1::MoveRecord* to) {
  const MoveEvent& event = from.event;
  AllToProto(event.rids, to->mutable_rids());
  for (const std::string& name : event.class_names) to->add_class_names(name);
  to->set_from(event.from);
  to->set_to(event.to);
  to->set_from_name(event.from_name);
  to->set_to_name(event.to_name);
  to->set_by_engine(event.by_engine);
  to->set_reason(event.reason);
  to->set_predicted_gain_s(absl::ToDoubleSeconds(event.predicted_gain));
  to->set_predicted_cost_s(absl::ToDoubleSeconds(event.predicted_cost));
  ToProto(event.status, to->mutable_status());
  to->set_quiesce_s(absl::ToDoubleSeconds(from.quiesce));
  to->set_blackout_s(absl::ToDoubleSeconds(event.blackout));
  to->set_state_bytes(event.state_bytes);
  to->set_ended_unix_ms(absl::ToUnixMillis(from.ended));
  ToProto(from.source, to->mutable_source());
  to->set_serial(from.serial);
}
MoveRecord FromProto(const v1::MoveRecord& from) {
  MoveRecord to;
  MoveEvent& event = to.event;
  event.rids = AllFromProto<Rid>(from.rids());
  event.class_names = {from.class_names().begin(), from.class_names().end()};
  event.from = from.from();
  event.to = from.to();
  event.from_name = from.from_name();
  event.to_name = from.to_name();
  event.by_engine = from.by_engine();
  event.reason = from.reason();
  event.predicted_gain = absl::Seconds(from.predicted_gain_s());
  event.predicted_cost = absl::Seconds(from.predicted_cost_s());
  event.status = FromProto(from.status());
  to.quiesce = absl::Seconds(from.quiesce_s());
  event.blackout = absl::Seconds(from.blackout_s());
  event.state_bytes = from.state_bytes();
  to.ended = absl::FromUnixMillis(from.ended_unix_ms());
  to.source = FromProto(from.source());
  to.serial = from.serial();
  return to;
}

void ToProto(const PinCommand& from, v1::PinRequest* to) {
  ToProto(from.rid, to->mutable_rid());
  to->set_pinned(from.pinned);
  to->set_node(from.node);
  to->set_hold_ms(absl::ToInt64Milliseconds(from.hold));
  to->set_hops(from.hops);
  if (from.allowed) {
    v1::NodeList* list = to->mutable_allowed();
    for (const NodeId node : *from.allowed) list->add_nodes(node);
  }
  if (from.attach_group) to->set_attach_group(*from.attach_group);
}
PinCommand FromProto(const v1::PinRequest& from) {
  PinCommand to{.rid = FromProto(from.rid()),
                .pinned = from.pinned(),
                .node = from.node(),
                .hold = absl::Milliseconds(from.hold_ms()),
                .hops = from.hops()};
  if (from.has_allowed()) {
    to.allowed.emplace(from.allowed().nodes().begin(), from.allowed().nodes().end());
  }
  if (from.has_attach_group()) to.attach_group = from.attach_group();
  return to;
}

// -- introspection ------------------------------------------------------------------------------

void ToProto(const DecisionText& from, v1::DecisionRecord* to) {
  to->set_unix_ms(absl::ToUnixMillis(from.at));
  to->set_outcome(from.outcome);
  to->set_reason(from.reason);
  to->set_explanation(from.explanation);
  to->set_details(from.details);
  to->set_snapshot(from.snapshot);
  AllToProto(from.nodes, to->mutable_nodes());
}
DecisionText FromProto(const v1::DecisionRecord& from) {
  return {.at = absl::FromUnixMillis(from.unix_ms()),
          .outcome = from.outcome(),
          .reason = from.reason(),
          .explanation = from.explanation(),
          .details = from.details(),
          .snapshot = from.snapshot(),
          .nodes = AllFromProto<placement::NodeStatistics>(from.nodes())};
}

void ToProto(const NodeReport& from, v1::StatusReply* to) {
  ToProto(from.self, to->mutable_self());
  to->set_health(from.health);
  AllToProto(from.members, to->mutable_members());
  AllToProto(from.objects, to->mutable_objects());
  to->set_objects_total(from.objects_total);
  AllToProto(from.edges, to->mutable_edges());
  AllToProto(from.links, to->mutable_links());
  AllToProto(from.moves, to->mutable_moves());
  AllToProto(from.counters, to->mutable_counters());
}
NodeReport FromProto(const v1::StatusReply& from) {
  return {.self = FromProto(from.self()),
          .health = from.health(),
          .members = AllFromProto<NodeReport::MemberLine>(from.members()),
          .objects = AllFromProto<NodeReport::ObjectLine>(from.objects()),
          .objects_total = from.objects_total(),
          .edges = AllFromProto<NodeReport::EdgeLine>(from.edges()),
          .links = AllFromProto<NodeReport::LinkLine>(from.links()),
          .moves = AllFromProto<MoveRecord>(from.moves()),
          .counters = AllFromProto<NodeReport::Counter>(from.counters())};
}

}  // namespace abacus::runtime
