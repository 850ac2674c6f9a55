// abacus status: a cluster on one screen, as one of its servers sees it.

#include "runtime/base/status.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/control.h"
#include "apps/abacus/figures.h"
#include "apps/abacus/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "runtime/node/control_client.h"

namespace abacus::apps {
namespace {

using runtime::MoveRecord;
using runtime::NodeReport;
using Json = nlohmann::json;

std::string More(uint64_t hidden, const char* option) {
  return hidden == 0 ? "" : absl::StrCat("and ", hidden, " more (", option, " N)\n");
}

std::string Nodes(const NodeReport& report, size_t max) {
  Table table({"node", "id", "role", "heard", "load", "cores", "rate M/s", "address", "lost",
               "figures from"});
  const size_t shown = std::min(report.members.size(), max);
  for (size_t i = 0; i < shown; ++i) {
    const NodeReport::MemberLine& member = report.members[i];
    const bool is_self = member.info.instance == report.self.instance;
    std::vector<std::string> row = {
        member.info.name, absl::StrCat(member.info.instance.node),
        member.info.server ? "server" : "client",
        is_self ? "self" : HumanSeconds(absl::ToDoubleSeconds(member.heard_age)) + " ago"};
    const placement::NodeStatistics& node = member.statistics;
    const auto figure = [&](int decimals, double value) {
      return member.measured ? absl::StrFormat("%.*f", decimals, value) : "-";
    };
    row.insert(row.end(),
               {figure(2, node.load), figure(0, node.cores), figure(1, node.rate / 1e6),
                member.info.control_address, member.measured ? absl::StrCat(node.lost.all()) : "-",
                member.measured ? node.source : "nothing yet"});
    table.AddRow(std::move(row));
  }
  return table.ToString() + More(report.members.size() - shown, "--nodes") +
         MissingFigures(MeasuredNodes(report));
}

// Of both kinds; top tells them apart.
std::string SwitchesOf(const NodeReport::ObjectLine& object) {
  if (!object.voluntary_switches_s || !object.involuntary_switches_s) return "-";
  return absl::StrFormat("%.1f", *object.voluntary_switches_s + *object.involuntary_switches_s);
}

std::string Objects(const NodeReport& report) {
  if (report.objects.empty()) return "no objects\n";
  Table table({"object", "class", "at", "CPU %", "blocked %", "ready %", "stall %", "switches/s",
               "I/O B/s", "bytes/s", "memory", "held"});
  const auto percent = [](double share) { return absl::StrFormat("%.1f", 100 * share); };
  for (const NodeReport::ObjectLine& object : report.objects) {
    std::string held = object.mobile ? "" : "anchored";
    if (object.pinned) held = object.pinned_reason.empty() ? "pinned" : object.pinned_reason;
    table.AddRow(
        {object.rid.ToString(), object.class_name, NodeName(report, object.node),
         percent(object.cpu_share), percent(object.blocked_share), percent(object.ready_share),
         percent(object.stall_share), SwitchesOf(object),
         object.io_bytes_s ? HumanBytes(*object.io_bytes_s) : "-", HumanBytes(object.bytes_s),
         object.memory_bytes == 0 ? "-" : HumanBytes(static_cast<double>(object.memory_bytes)),
         std::move(held)});
  }
  const uint64_t shown = report.objects.size();
  return table.ToString() + More(std::max(report.objects_total, shown) - shown, "--objects");
}

std::string Moves(const NodeReport& report, uint32_t max) {
  if (report.moves.empty()) return "no moves\n";
  std::string text = "last moves ('abacus explain RID' tells the whole reason)\n";
  for (const MoveRecord& move : report.moves) {
    if (max-- == 0) break;
    absl::StrAppend(&text, "  ", absl::FormatTime("%H:%M:%S", move.ended, absl::LocalTimeZone()),
                    "  ", MoveLine(move.event), "\n");
    if (move.event.reason.empty()) continue;
    absl::StrAppend(&text, "            ", FirstSentence(move.event.reason), "\n");
  }
  return text;
}

Json JsonOf(const NodeReport::MemberLine& member) {
  Json json{{"name", member.info.name},
            {"id", member.info.instance.node},
            {"incarnation", member.info.instance.incarnation},
            {"server", member.info.server},
            {"control_address", member.info.control_address},
            {"data_address", member.info.data_address},
            {"heard_s", absl::ToDoubleSeconds(member.heard_age)}};
  if (member.measured) {
    json["load"] = member.statistics.load;
    json["cores"] = member.statistics.cores;
    json["rate"] = member.statistics.rate;
    json["source"] = member.statistics.source;
    json["source_missing"] = member.statistics.source_missing;
    for (const LostCount& one : LostCounts(member.statistics.lost)) {
      json["lost"][one.name] = one.count;
    }
  }
  return json;
}

Json JsonOf(const NodeReport::ObjectLine& object, const NodeReport& report) {
  Json json{{"rid", object.rid.ToString()},
            {"class", object.class_name},
            {"node", object.node},
            {"node_name", NodeName(report, object.node)},
            {"mobile", object.mobile},
            {"pinned", object.pinned},
            {"pinned_reason", object.pinned_reason},
            {"memory_bytes", object.memory_bytes}};
  for (const NamedFigure& figure : FiguresOf(object)) {
    json[figure.name] = figure.value ? Json(*figure.value) : Json();
  }
  return json;
}

Json JsonOf(const MoveRecord& move) {
  Json objects = Json::array();
  for (size_t i = 0; i < move.event.rids.size(); ++i) {
    objects.push_back(
        {{"rid", move.event.rids[i].ToString()},
         {"class", i < move.event.class_names.size() ? move.event.class_names[i] : ""}});
  }
  return {{"objects", objects},
          {"from", move.event.from},
          {"from_name", move.event.from_name},
          {"to", move.event.to},
          {"to_name", move.event.to_name},
          {"by_engine", move.event.by_engine},
          {"reason", move.event.reason},
          {"predicted_gain_s", absl::ToDoubleSeconds(move.event.predicted_gain)},
          {"predicted_cost_s", absl::ToDoubleSeconds(move.event.predicted_cost)},
          {"quiesce_s", absl::ToDoubleSeconds(move.quiesce)},
          {"blackout_s", absl::ToDoubleSeconds(move.event.blackout)},
          {"state_bytes", move.event.state_bytes},
          {"committed", move.event.status.ok()},
          {"error", std::string(move.event.status.message())},
          {"ended", absl::FormatTime(move.ended, absl::UTCTimeZone())}};
}

std::string JsonOf(const NodeReport& report) {
  Json json{{"health", report.health},
            {"server", report.self.name},
            {"nodes", Json::array()},
            {"objects", Json::array()},
            {"objects_total", report.objects_total},
            {"moves", Json::array()},
            {"counters", Json::object()}};
  for (const auto& member : report.members) json["nodes"].push_back(JsonOf(member));
  for (const auto& object : report.objects) json["objects"].push_back(JsonOf(object, report));
  for (const auto& move : report.moves) json["moves"].push_back(JsonOf(move));
  for (const auto& counter : report.counters) json["counters"][counter.name] = counter.value;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string StatusText(const NodeReport& report, const StatusOptions& options) {
  return absl::StrCat("HEALTH  ", report.health, "\nseen by ", report.self.name, " (",
                      report.self.control_address, "), ", report.members.size(), " nodes, ",
                      report.objects_total, " objects\n\n", Nodes(report, options.nodes_max), "\n",
                      Objects(report), "\n", Moves(report, options.moves_max));
}

int Status(const StatusOptions& options) {
  runtime::ControlClient server(options.control.server);
  const auto report = server.GetStatus(options.objects_max, kAskDeadline);
  if (!report.ok()) return Fail(report.status());
  const std::string text = StatusText(*report, options);
  if (auto status = WriteAll(STDOUT_FILENO, text); !status.ok()) return Fail(status);
  if (!options.control.json.empty()) {
    const absl::Status written = WriteFile(options.control.json, JsonOf(*report));
    if (!written.ok()) return Fail(written);
  }
  return report->health == "OK" ? kExitOk : kExitNo;
}

}  // namespace abacus::apps
