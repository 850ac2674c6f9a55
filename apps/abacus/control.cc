// abacus move, pin, unpin and explain.

#include "apps/abacus/control.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/figures.h"
#include "apps/abacus/output.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"

namespace abacus::apps {

using runtime::ControlClient;
using runtime::NodeReport;

absl::StatusOr<runtime::Rid> ParseRid(const std::string& text) {
  if (const auto rid = runtime::Rid::Parse(text)) return *rid;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no object: an object is three numbers, such as 7.41.3, as ",
                   "'abacus status' shows them"));
}

absl::StatusOr<runtime::NodeId> FindNode(const NodeReport& report, const std::string& node) {
  std::vector<runtime::NodeId> named;
  std::vector<std::string> all;
  for (const NodeReport::MemberLine& member : report.members) {
    const runtime::NodeId id = member.info.instance.node;
    if (absl::StrCat(id) == node) return id;
    if (member.info.name == node) named.push_back(id);
    all.push_back(absl::StrCat(member.info.name, " (", id, ")"));
  }
  if (named.size() == 1) return named.front();
  if (named.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no node '", node, "'; there are ", absl::StrJoin(all, ", ")));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "several nodes are called '", node, "': say which by id, ", absl::StrJoin(named, " or ")));
}

std::string NodeName(const NodeReport& report, runtime::NodeId node) {
  for (const NodeReport::MemberLine& member : report.members) {
    if (member.info.instance.node == node && !member.info.name.empty()) return member.info.name;
  }
  return absl::StrCat(node);
}

namespace {

// A move that was cancelled is an answer: the object serves where it was.
int FailMove(const runtime::Rid& rid, const absl::Status& status) {
  if (runtime::KindOf(status) != runtime::ErrorKind::kMoveCancelled) return Fail(status);
  printf("not moved: %s: %s\n", rid.ToString().c_str(), std::string(status.message()).c_str());
  return kExitNo;
}

}  // namespace

int Move(const MoveOptions& options) {
  const auto rid = ParseRid(options.rid);
  if (!rid.ok()) return Fail(rid.status());
  ControlClient server(options.control.server);
  const auto report = server.GetStatus(0, kAskDeadline);
  if (!report.ok()) return Fail(report.status());
  const auto target = FindNode(*report, options.node);
  if (!target.ok()) return Fail(target.status());
  const auto record = server.Move({.rids = {*rid}, .target = *target}, kMoveDeadline);
  if (!record.ok()) return FailMove(*rid, record.status());
  printf("%s\n", MoveLine(record->event).c_str());
  return kExitOk;
}

int Pin(const PinOptions& options) {
  const auto rid = ParseRid(options.rid);
  if (!rid.ok()) return Fail(rid.status());
  ControlClient server(options.control.server);
  runtime::PinCommand command{.rid = *rid, .pinned = !options.unpin};
  if (!options.node.empty()) {
    const auto report = server.GetStatus(0, kAskDeadline);
    if (!report.ok()) return Fail(report.status());
    const auto node = FindNode(*report, options.node);
    if (!node.ok()) return Fail(node.status());
    command.node = *node;
  }
  const absl::Status status = server.Pin(command, kMoveDeadline);
  if (!status.ok()) return FailMove(*rid, status);
  if (options.unpin) {
    printf("unpinned: %s; the engine may move it again\n", rid->ToString().c_str());
  } else {
    printf("pinned: %s%s%s\n", rid->ToString().c_str(), options.node.empty() ? "" : " at ",
           options.node.c_str());
  }
  return kExitOk;
}

int Allow(const AllowOptions& options) {
  const auto rid = ParseRid(options.rid);
  if (!rid.ok()) return Fail(rid.status());
  ControlClient server(options.control.server);
  const auto report = server.GetStatus(0, kAskDeadline);
  if (!report.ok()) return Fail(report.status());
  std::vector<runtime::NodeId> nodes;
  for (const std::string& name : options.nodes) {
    const auto node = FindNode(*report, name);
    if (!node.ok()) return Fail(node.status());
    nodes.push_back(*node);
  }
  const absl::Status status = server.Pin({.rid = *rid, .allowed = nodes}, kAskDeadline);
  if (!status.ok()) return Fail(status);
  printf("%s: the engine may move it to %s\n", rid->ToString().c_str(),
         nodes.empty() ? "any node of its graph" : absl::StrJoin(options.nodes, ", ").c_str());
  return kExitOk;
}

int Attach(const AttachOptions& options) {
  std::vector<runtime::Rid> rids;
  for (const std::string& text : options.rids) {
    const auto rid = ParseRid(text);
    if (!rid.ok()) return Fail(rid.status());
    rids.push_back(*rid);
  }
  if (!options.detach && rids.size() < 2) {
    return Fail(absl::InvalidArgumentError("attach needs two objects or more"));
  }
  ControlClient server(options.control.server);
  const uint32_t group = options.detach ? 0 : runtime::AttachGroupOf(rids);
  for (const runtime::Rid& rid : rids) {
    const absl::Status status = server.Pin({.rid = rid, .attach_group = group}, kAskDeadline);
    if (!status.ok()) return Fail(status);
  }
  printf("%s: %s\n", options.detach ? "detached" : "attached",
         absl::StrJoin(options.rids, ", ").c_str());
  return kExitOk;
}

int Engine(const EngineOptions& options) {
  ControlClient server(options.control.server);
  const auto state =
      server.SetEngine({.suspended = options.suspended, .dry_run = options.dry_run}, kAskDeadline);
  if (!state.ok()) return Fail(state.status());
  printf("the engine of %s: %s\n", options.control.server.c_str(),
         !state->enabled    ? "off (placement.enabled is false)"
         : state->suspended ? "suspended: it decides and explains, and moves nothing"
         : state->dry_run   ? "dry run: what it would move is recorded, and nothing is moved"
                            : "on");
  const auto tell = [](const char* of_what, const runtime::PlacementLoop::ModelError& error) {
    if (error.count == 0) return;
    printf(
        "%s: predictions were off by %.1f %% in the median and %.1f %% at the 95th percentile, "
        "of the last %llu\n",
        of_what, 100 * error.median, 100 * error.p95, static_cast<unsigned long long>(error.count));
  };
  tell("response times", state->present_error);
  tell("response times after moves", state->move_error);
  return kExitOk;
}

namespace {

std::string JsonOf(const std::string& rid, const std::vector<runtime::DecisionText>& decisions) {
  nlohmann::json rows = nlohmann::json::array();
  for (const runtime::DecisionText& decision : decisions) {
    // The snapshot is JSON itself; what does not parse stays text.
    nlohmann::json snapshot = nlohmann::json::parse(decision.snapshot, nullptr, false);
    if (snapshot.is_discarded()) snapshot = decision.snapshot;
    nlohmann::json nodes = nlohmann::json::array();
    for (const placement::NodeStatistics& node : decision.nodes) {
      nodes.push_back({{"id", node.node},
                       {"name", node.name},
                       {"source", node.source},
                       {"source_missing", node.source_missing}});
      for (const LostCount& one : LostCounts(node.lost)) nodes.back()["lost"][one.name] = one.count;
    }
    rows.push_back({{"at", absl::FormatTime(decision.at, absl::UTCTimeZone())},
                    {"outcome", decision.outcome},
                    {"reason", decision.reason},
                    {"explanation", decision.explanation},
                    {"details", decision.details},
                    {"nodes", nodes},
                    {"snapshot", snapshot}});
  }
  return nlohmann::json{{"object", rid}, {"decisions", rows}}.dump(
             2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

int Explain(const ExplainOptions& options) {
  const auto rid = ParseRid(options.rid);
  if (!rid.ok()) return Fail(rid.status());
  ControlClient server(options.control.server);
  const auto decisions = server.Explain(*rid, options.decisions_max, kAskDeadline);
  if (!decisions.ok()) {
    Fail(decisions.status());
    return absl::IsNotFound(decisions.status()) ? kExitNo : kExitError;
  }
  for (const runtime::DecisionText& decision : *decisions) {
    printf("%s  %s (%s)\n%s\n",
           absl::FormatTime("%Y-%m-%d %H:%M:%E3S", decision.at, absl::LocalTimeZone()).c_str(),
           decision.outcome.c_str(), decision.reason.c_str(), decision.explanation.c_str());
    printf("%s", SourcesOfFigures(decision.nodes).c_str());
    if (options.details) printf("\n%s", decision.details.c_str());
    if (&decision != &decisions->back()) printf("\n");
  }
  if (options.control.json.empty()) return kExitOk;
  const absl::Status written = WriteFile(options.control.json, JsonOf(rid->ToString(), *decisions));
  return written.ok() ? kExitOk : Fail(written);
}

}  // namespace abacus::apps
