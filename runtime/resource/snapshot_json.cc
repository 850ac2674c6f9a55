#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/ids.h"
#include "runtime/resource/placement_loop.h"

namespace abacus::runtime {
namespace {

using Json = nlohmann::json;

std::string Text(const placement::ObjectId& id) { return placement::ToString(id); }

placement::ObjectId Id(const Json& json) {
  const auto rid = Rid::Parse(json.get<std::string>());
  return rid ? ToObjectId(*rid) : placement::ObjectId();
}

Json Maybe(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::optional<double> Maybe(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  return it->get<double>();
}

Json Of(const placement::NodeStatistics& node) {
  return {{"node", node.node},
          {"name", node.name},
          {"server", node.is_server},
          {"rate", node.rate},
          {"cores", node.cores},
          {"load", node.load},
          {"memory_bytes", Maybe(node.memory_bytes)},
          {"memory_free_bytes", Maybe(node.memory_free_bytes)},
          {"memory_limit_bytes", Maybe(node.memory_limit_bytes)},
          {"source", node.source},
          {"sees_switches", node.sees_switches},
          {"sees_io", node.sees_io},
          {"contention", node.contention},
          {"sees_memory", node.sees_memory},
          {"source_missing", node.source_missing},
          {"lost",
           {{"threads", node.lost.threads},
            {"io_requests", node.lost.io_requests},
            {"io_times", node.lost.io_times},
            {"edges", node.lost.edges}}}};
}

Json Of(const placement::ObjectStatistics& object) {
  return {{"id", Text(object.id)},
          {"class", object.class_name},
          {"node", object.node},
          {"mobile", object.mobile},
          {"pinned", object.pinned},
          {"pinned_reason", object.pinned_reason},
          {"allowed", object.allowed},
          {"attach_group", object.attach_group},
          {"cpu_s", object.cpu_s},
          {"cpu_s_variance", object.cpu_s_variance},
          {"samples", object.samples},
          {"background_cpu_s", object.background_cpu_s},
          {"bytes_processed", object.bytes_processed},
          {"own_stall_s", object.own_stall_s},
          {"disk_s", object.disk_s},
          {"ready_s", object.ready_s},
          {"stall_s", object.stall_s},
          {"calls", object.calls},
          {"threads_s", object.threads_s},
          {"busy_s", object.busy_s},
          {"voluntary_switches", object.voluntary_switches},
          {"involuntary_switches", object.involuntary_switches},
          {"io_bytes", object.io_bytes},
          {"io_requests", object.io_requests},
          {"io_s", object.io_s},
          {"checkpoint_bytes", object.checkpoint_bytes},
          {"memory_bytes", object.memory_bytes}};
}

// Records of before have none.
placement::LostFigures LostOf(const Json& node) {
  const auto it = node.find("lost");
  if (it == node.end()) return {};
  return {.threads = it->value("threads", uint64_t{0}),
          .io_requests = it->value("io_requests", uint64_t{0}),
          .io_times = it->value("io_times", uint64_t{0}),
          .edges = it->value("edges", uint64_t{0})};
}

placement::NodeStatistics NodeOf(const Json& json) {
  return {.node = json.at("node"),
          .name = json.at("name"),
          .is_server = json.at("server"),
          .rate = json.at("rate"),
          .cores = json.at("cores"),
          .load = json.at("load"),
          .contention = json.value("contention", 1.0),
          .memory_bytes = Maybe(json, "memory_bytes"),
          .memory_free_bytes = Maybe(json, "memory_free_bytes"),
          .memory_limit_bytes = Maybe(json, "memory_limit_bytes"),
          .source = json.at("source"),
          .sees_switches = json.value("sees_switches", false),
          .sees_io = json.value("sees_io", false),
          .sees_memory = json.value("sees_memory", true),
          .source_missing = json.value("source_missing", std::string()),
          .lost = LostOf(json)};
}

placement::ObjectStatistics ObjectOf(const Json& json) {
  return {.id = Id(json.at("id")),
          .class_name = json.at("class"),
          .node = json.at("node"),
          .mobile = json.at("mobile"),
          .pinned = json.at("pinned"),
          .pinned_reason = json.at("pinned_reason"),
          .allowed = json.value("allowed", std::vector<placement::NodeId>()),
          .attach_group = json.value("attach_group", 0u),
          .cpu_s = json.at("cpu_s"),
          .cpu_s_variance = json.at("cpu_s_variance"),
          .samples = json.at("samples"),
          .background_cpu_s = json.value("background_cpu_s", 0.0),
          .bytes_processed = json.at("bytes_processed"),
          .own_stall_s = json.at("own_stall_s"),
          .disk_s = json.at("disk_s"),
          .ready_s = json.at("ready_s"),
          .stall_s = json.at("stall_s"),
          .calls = json.at("calls"),
          .threads_s = json.value("threads_s", 0.0),
          .busy_s = json.value("busy_s", 0.0),
          .voluntary_switches = json.value("voluntary_switches", 0.0),
          .involuntary_switches = json.value("involuntary_switches", 0.0),
          .io_bytes = json.value("io_bytes", 0.0),
          .io_requests = json.value("io_requests", 0.0),
          .io_s = json.value("io_s", 0.0),
          .checkpoint_bytes = json.at("checkpoint_bytes"),
          .memory_bytes = json.at("memory_bytes")};
}

placement::Snapshot SnapshotOf(const Json& json) {
  placement::Snapshot snapshot;
  snapshot.window_s = json.at("window_s");
  snapshot.console = Id(json.at("console"));
  for (const Json& console : json.value("consoles", Json::array())) {
    snapshot.consoles.push_back(Id(console));
  }
  snapshot.measured_t_app_s = Maybe(json, "measured_t_app_s");
  for (const Json& node : json.at("nodes")) snapshot.nodes.push_back(NodeOf(node));
  for (const Json& object : json.at("objects")) snapshot.objects.push_back(ObjectOf(object));
  for (const Json& edge : json.at("edges")) {
    snapshot.edges.push_back({.from = Id(edge.at("from")),
                              .to = Id(edge.at("to")),
                              .calls = edge.at("calls"),
                              .request_bytes = edge.at("request_bytes"),
                              .reply_bytes = edge.at("reply_bytes"),
                              .bytes_variance = edge.value("bytes_variance", 0.0),
                              .samples = edge.value("samples", 0.0)});
  }
  for (const Json& link : json.at("links")) {
    snapshot.links.push_back({.a = link.at("a"),
                              .b = link.at("b"),
                              .bandwidth_bytes_s = Maybe(link, "bandwidth_bytes_s"),
                              .round_trip_s = Maybe(link, "round_trip_s"),
                              .measured_bytes = link.at("measured_bytes"),
                              .bandwidth_variance = link.value("bandwidth_variance", 0.0),
                              .round_trip_bytes = link.value("round_trip_bytes", 0.0)});
  }
  snapshot.history = {json.at("history").at("quiesce_s"), json.at("history").at("count")};
  snapshot.options.suspended = json.at("suspended");
  return snapshot;
}

}  // namespace

std::string ToJson(const placement::Snapshot& snapshot) {
  Json json = {
      {"window_s", snapshot.window_s},
      {"console", Text(snapshot.console)},
      {"measured_t_app_s", Maybe(snapshot.measured_t_app_s)},
      {"nodes", Json::array()},
      {"objects", Json::array()},
      {"edges", Json::array()},
      {"links", Json::array()},
      {"history", {{"quiesce_s", snapshot.history.quiesce_s}, {"count", snapshot.history.count}}},
      {"suspended", snapshot.options.suspended}};
  for (const auto& console : snapshot.consoles) json["consoles"].push_back(Text(console));
  for (const auto& node : snapshot.nodes) json["nodes"].push_back(Of(node));
  for (const auto& object : snapshot.objects) json["objects"].push_back(Of(object));
  for (const auto& edge : snapshot.edges) {
    json["edges"].push_back({{"from", Text(edge.from)},
                             {"to", Text(edge.to)},
                             {"calls", edge.calls},
                             {"request_bytes", edge.request_bytes},
                             {"reply_bytes", edge.reply_bytes},
                             {"bytes_variance", edge.bytes_variance},
                             {"samples", edge.samples}});
  }
  for (const auto& link : snapshot.links) {
    json["links"].push_back({{"a", link.a},
                             {"b", link.b},
                             {"bandwidth_bytes_s", Maybe(link.bandwidth_bytes_s)},
                             {"round_trip_s", Maybe(link.round_trip_s)},
                             {"measured_bytes", link.measured_bytes},
                             {"bandwidth_variance", link.bandwidth_variance},
                             {"round_trip_bytes", link.round_trip_bytes}});
  }
  // Names may hold any bytes; they are shown, not compared.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<placement::Snapshot> SnapshotFromJson(const std::string& text) {
  // The library reports by exceptions, which end here.
  try {
    return SnapshotOf(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not a snapshot: ", error.what()));
  }
}

}  // namespace abacus::runtime
