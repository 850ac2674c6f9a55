#include "runtime/node/status_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

// What went wrong longer ago is no longer news.
constexpr absl::Duration kLately = absl::Minutes(5);

// Counters of what should not happen, and what their growth means to people.
struct Alarm {
  const char* counter;
  const char* sentence;
};
constexpr std::array kAlarms = {
    Alarm{"calls.refused_for_back_pressure", "calls were refused because too many were under way"},
    Alarm{"calls.outcome_unknown", "calls ended with an unknown outcome"},
    Alarm{"objects.lost", "objects of this home were lost with their hosts"},
    Alarm{"frames.bad", "messages of the data plane did not decode"},
    Alarm{"transport.bad_streams", "connections were closed for garbage or damage"},
    Alarm{"transport.refused_versions", "nodes of another wire version called"},
    Alarm{"transport.oversized_frames",
          "messages larger than transport.frame_bytes_max were dropped"},
    Alarm{"transport.spill_failures", "checkpoints could not be written to migration.spill_dir"},
    Alarm{"monitor.threads_not_watched",
          "threads had no room in the monitor: their own clocks are used"},
    Alarm{"monitor.io_not_charged", "block I/O of objects was not counted: no room in the monitor"},
    Alarm{"monitor.io_not_timed", "block I/O of objects was not timed: its end was not seen"},
    Alarm{"monitor.edges_not_charged",
          "times an edge's figures were dropped: no room in the accounts"},
    Alarm{"digests.not_sent", "digests did not reach their server"},
    Alarm{"moves.untold", "moves could not be told to all nodes"},
};

std::string Ago(absl::Duration age) {
  return absl::StrCat(absl::FormatDuration(absl::Trunc(age, absl::Seconds(1))), " ago");
}

NodeReport::ObjectLine Line(const placement::ObjectStatistics& object,
                            const placement::NodeStatistics& node, double window_s) {
  NodeReport::ObjectLine line{.rid = ToRid(object.id),
                              .class_name = object.class_name,
                              .node = object.node,
                              .mobile = object.mobile};
  line.memory_bytes = object.memory_bytes;
  if (window_s > 0) {
    line.cpu_share = object.cpu_s / window_s;
    line.blocked_share = object.own_stall_s / window_s;
    line.disk_share = object.disk_s / window_s;
    line.ready_share = object.ready_s / window_s;
    line.background_share = object.background_cpu_s / window_s;
    line.stall_share = object.stall_s / window_s;
    line.bytes_s = object.bytes_processed / window_s;
    if (node.sees_switches) {
      line.voluntary_switches_s = object.voluntary_switches / window_s;
      line.involuntary_switches_s = object.involuntary_switches / window_s;
    }
    if (node.sees_io) {
      line.io_bytes_s = object.io_bytes / window_s;
      line.io_requests_s = object.io_requests / window_s;
      line.io_share = object.io_s / window_s;
    }
  }
  return line;
}

// Adds what flowed, and to the objects what came in and went out over it.
void AddEdges(const std::vector<Digest>& digests, NodeReport& report) {
  std::map<Rid, NodeReport::ObjectLine*> by_rid;
  for (NodeReport::ObjectLine& line : report.objects) by_rid[line.rid] = &line;
  for (const Digest& digest : digests) {
    if (digest.window_s <= 0) continue;
    for (const placement::EdgeStatistics& edge : digest.edges) {
      const NodeReport::EdgeLine line{.from = ToRid(edge.from),
                                      .to = ToRid(edge.to),
                                      .calls_s = edge.calls / digest.window_s,
                                      .request_bytes_s = edge.request_bytes / digest.window_s,
                                      .reply_bytes_s = edge.reply_bytes / digest.window_s};
      const auto from = by_rid.find(line.from);
      const auto to = by_rid.find(line.to);
      if (from == by_rid.end() && to == by_rid.end()) continue;
      if (from != by_rid.end()) {
        from->second->bytes_in_s += line.reply_bytes_s;
        from->second->bytes_out_s += line.request_bytes_s;
      }
      if (to != by_rid.end()) {
        to->second->bytes_in_s += line.request_bytes_s;
        to->second->bytes_out_s += line.reply_bytes_s;
      }
      report.edges.push_back(line);
    }
  }
}

std::vector<placement::NodeStatistics> NodesOf(const std::string& snapshot_json) {
  absl::StatusOr<placement::Snapshot> snapshot = SnapshotFromJson(snapshot_json);
  if (!snapshot.ok()) return {};
  return std::move(snapshot->nodes);
}

}  // namespace

NodeReport StatusReporter::Make(size_t objects_max) {
  std::vector<Digest> digests;
  if (from_.engine != nullptr) digests = from_.engine->Digests();
  // What this node has seen itself is newer than what it gave its engine.
  const Digest own = from_.digests->Last();
  std::erase_if(digests, [&](const Digest& digest) { return digest.from == own.from; });
  if (own.from.valid()) digests.push_back(own);

  NodeReport report;
  report.self = from_.membership->self();
  report.counters = Counters();
  report.health = Health(report.counters);
  report.members = Members(digests);
  report.moves = from_.desk->Recent();
  AddObjects(digests, objects_max, report);
  for (const PeerLink& link : Links()) {
    report.links.push_back({.node = link.node,
                            .connections = link.connections,
                            .peer = link.address,
                            .delivered_bytes_s = link.delivered_bytes_s,
                            .app_limited = link.app_limited,
                            .round_trip = link.round_trip,
                            .bytes_sent = link.bytes_sent,
                            .bytes_received = link.bytes_received});
  }
  return report;
}

std::vector<PeerLink> StatusReporter::Links() {
  // Held over the look: an older one that came after a newer one would bring back what has ended.
  MutexLock lock(links_mutex_);
  links_seen_ = std::chrono::steady_clock::now();
  return links_.Update(from_.monitor->Links(), from_.transport->Sockets(),
                       from_.membership->Members());
}

void StatusReporter::WatchLinks() {
  constexpr std::chrono::seconds kApart{1};
  {
    MutexLock lock(links_mutex_);
    if (std::chrono::steady_clock::now() - links_seen_ < kApart) return;
  }
  Links();
}

std::vector<NodeReport::MemberLine> StatusReporter::Members(
    const std::vector<Digest>& digests) const {
  std::vector<NodeReport::MemberLine> lines;
  for (const MemberInfo& member : from_.membership->Members()) {
    NodeReport::MemberLine line{.info = member,
                                .heard_age = from_.membership->HeardAge(member.instance)};
    for (const Digest& digest : digests) {
      if (digest.from != member.instance) continue;
      line.measured = true;
      line.statistics = digest.node;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void StatusReporter::AddObjects(const std::vector<Digest>& digests, size_t max,
                                NodeReport& report) const {
  const NodeId self = report.self.instance.node;
  std::map<Rid, std::string> pins;
  std::set<Rid> listed;
  for (const Digest& digest : digests) {
    for (const PinRecord& pin : digest.pins) pins[pin.rid] = pin.reason;
    for (const placement::ObjectStatistics& object : digest.objects) {
      // One that has just moved may stand in two digests.
      if (listed.insert(ToRid(object.id)).second) {
        report.objects.push_back(Line(object, digest.node, digest.window_s));
      }
    }
  }
  std::sort(report.objects.begin(), report.objects.end(), [](const auto& a, const auto& b) {
    return a.bytes_s != b.bytes_s ? a.bytes_s > b.bytes_s : a.rid < b.rid;
  });
  const uint64_t elsewhere =
      std::count_if(report.objects.begin(), report.objects.end(),
                    [self](const NodeReport::ObjectLine& line) { return line.node != self; });
  report.objects_total =
      elsewhere + from_.binding->WithCore(
                      [](auto& core, Nanos, Actions&) -> uint64_t { return core.objects(); });
  // Those that nobody has called in the window come last. All that were called may be among the
  // first that the table yields.
  for (const BindingManager::ObjectStatus& object : from_.binding->Objects(max + listed.size())) {
    if (!object.hosted || listed.contains(object.rid)) continue;
    report.objects.push_back({.rid = object.rid,
                              .class_name = object.class_name,
                              .node = self,
                              .mobile = !object.anchored});
  }
  if (report.objects.size() > max) report.objects.resize(max);
  AddEdges(digests, report);
  for (NodeReport::ObjectLine& line : report.objects) {
    if (const auto pin = pins.find(line.rid); pin != pins.end()) {
      line.pinned = true;
      line.pinned_reason = pin->second;
    }
  }
}

std::vector<NodeReport::Counter> StatusReporter::Counters() const {
  const CoreCounters core = from_.binding->Counters();
  const MigrationCounters moves = from_.migrator->Counters();
  const SocketTransportCounters transport = from_.transport->Counters();
  const monitor::MonitorLosses losses = from_.monitor->Losses();
  std::vector<NodeReport::Counter> counters = {
      {"calls.sent", core.calls_sent},
      {"calls.executed", core.calls_executed},
      {"calls.resent", core.resent},
      {"calls.redirected", core.redirects},
      {"calls.parked", core.parked},
      {"calls.duplicates", core.dedup.duplicates},
      {"calls.refused_as_forgotten", core.dedup.refused},
      {"calls.refused_for_back_pressure", from_.binding->refused_for_back_pressure()},
      {"calls.outcome_unknown", core.outcome_unknown},
      {"objects.lost", core.objects_lost},
      {"objects.orphans_destroyed", core.orphans_destroyed},
      {"frames.bad", core.bad_frames},
      {"frames.from_the_dead", core.from_the_dead},
      {"moves.begun", moves.begun},
      {"moves.committed", moves.committed},
      {"moves.cancelled", moves.cancelled},
      {"moves.cancelled_slow_drain", moves.cancelled_slow_drain},
      {"moves.cancelled_crossing", moves.cancelled_crossing},
      {"moves.taken_over", moves.taken_over},
      {"moves.refused", moves.refused},
      {"moves.untold", from_.desk->untold()},
      {"monitor.threads_not_watched", losses.threads_without_slot},
      {"monitor.io_not_charged", losses.requests_without_slot},
      {"monitor.io_not_timed", losses.requests_without_end},
      {"monitor.edges_not_charged", from_.binding->threads().lost_sums()},
      {"digests.sent", from_.digests->sent()},
      {"digests.not_sent", from_.digests->not_sent()},
      {"members.died", from_.membership->deaths()},
      {"transport.bad_streams", transport.bad_streams},
      {"transport.refused_versions", transport.refused_versions},
      {"transport.refused_instances", transport.refused_instances},
      {"transport.cut_connections", transport.cut_connections},
      {"transport.reconnects", transport.reconnects},
      {"transport.lost_frames", transport.lost_frames},
      {"transport.oversized_frames", transport.oversized_frames},
      {"transport.spill_failures", transport.spill_failures},
  };
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  for (const PeerTraffic& traffic : from_.transport->Traffic()) {
    sent_bytes += traffic.sent_bytes;
    received_bytes += traffic.received_bytes;
  }
  counters.push_back({"transport.sent_bytes", sent_bytes});
  counters.push_back({"transport.received_bytes", received_bytes});
  if (from_.engine != nullptr) {
    for (const auto& [reason, count] : from_.engine->Counters()) {
      counters.push_back({absl::StrCat("engine.", reason), count});
    }
  }
  return counters;
}

std::string StatusReporter::Health(const std::vector<NodeReport::Counter>& counters) {
  std::vector<std::string> sentences;
  const MembershipAgent& membership = *from_.membership;
  if (membership.fenced()) {
    sentences.push_back(
        absl::StrCat("this node is fenced and serves nothing: ", membership.fenced_because()));
  }
  const absl::Time now = absl::Now();
  for (const MembershipAgent::Death& death : membership.RecentDeaths()) {
    if (now - death.at > kLately || death.left) continue;
    const std::string& name = death.member.name;
    sentences.push_back(absl::StrCat("node ", name.empty() ? "" : absl::StrCat(name, " "), "(",
                                     death.member.instance.ToString(), ") died ",
                                     Ago(now - death.at), ": ", death.why));
  }
  for (const MemberInfo& server : membership.UnreachableServers()) {
    sentences.push_back(absl::StrCat("server ", server.name, " at ", server.control_address,
                                     " is not reached; last heard ",
                                     Ago(membership.HeardAge(server.instance))));
  }
  if (const auto load = from_.monitor->Load(); !load.ok()) {
    sentences.push_back(
        absl::StrCat("the monitor does not work: ", std::string(ToStd(load.status().message()))));
  } else if (!load->degraded.empty()) {
    sentences.push_back(absl::StrCat("the monitor is degraded: ", load->degraded));
  }
  AddGrowth(counters, sentences);
  return sentences.empty() ? "OK" : absl::StrJoin(sentences, "; ");
}

void StatusReporter::AddGrowth(const std::vector<NodeReport::Counter>& counters,
                               std::vector<std::string>& sentences) {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  for (const Alarm& alarm : kAlarms) {
    const auto counter =
        std::find_if(counters.begin(), counters.end(),
                     [&](const NodeReport::Counter& one) { return one.name == alarm.counter; });
    if (counter == counters.end() || counter->value == 0) continue;
    Growth& growth = growths_[alarm.counter];
    if (counter->value != growth.value) growth = {counter->value, now};
    if (now - growth.at > kLately) continue;
    sentences.push_back(absl::StrCat(alarm.sentence, " (", counter->value, " since the start)"));
  }
}

DecisionText ToText(const LoggedDecision& logged) {
  return {.at = logged.at,
          .outcome = logged.outcome,
          .reason = logged.reason,
          .explanation = logged.explanation,
          .details = logged.details,
          .snapshot = logged.snapshot,
          .nodes = NodesOf(logged.snapshot)};
}

DecisionText ToText(const DecisionRecord& record) {
  const placement::Decision& decision = record.decision;
  return {.at = record.at,
          .outcome = std::string(placement::OutcomeName(decision.outcome)),
          .reason = std::string(placement::ReasonName(decision.reason)),
          .explanation = decision.Explanation(),
          .details = placement::Format(decision),
          .snapshot = ToJson(record.snapshot),
          .nodes = record.snapshot.nodes};
}

}  // namespace abacus::runtime
