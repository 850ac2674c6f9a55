#include "runtime/resource/placement_loop.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

// A digest that is older than this many windows says nothing of now.
constexpr double kFreshWindows = 3;

bool Sane(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckDigest(const Digest& digest) {
  const auto bad = [](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "digest refused: ", absl::string_view(what.data(), what.size()), " is no such figure"));
  };
  if (!digest.from.valid()) return bad("the sender");
  if (!Sane(digest.window_s)) return bad("window_s");
  if (!Sane(digest.node.rate) || !Sane(digest.node.cores) || !Sane(digest.node.load)) {
    return bad("the node's rate, cores or load");
  }
  for (const auto& object : digest.objects) {
    if (!Sane(object.cpu_s) || !Sane(object.background_cpu_s) || !Sane(object.own_stall_s) ||
        !Sane(object.disk_s) || !Sane(object.ready_s) || !Sane(object.cpu_s_variance) ||
        !Sane(object.samples) || !Sane(object.stall_s) || !Sane(object.bytes_processed) ||
        !Sane(object.calls) || !Sane(object.voluntary_switches) ||
        !Sane(object.involuntary_switches) || !Sane(object.io_bytes) || !Sane(object.io_requests) ||
        !Sane(object.io_s)) {
      return bad("an object's time, bytes or calls");
    }
  }
  for (const auto& edge : digest.edges) {
    if (!Sane(edge.calls) || !Sane(edge.request_bytes) || !Sane(edge.reply_bytes) ||
        !Sane(edge.bytes_variance) || !Sane(edge.samples)) {
      return bad("an edge's calls or bytes");
    }
  }
  return absl::OkStatus();
}

// Objects that calls of the consoles can reach.
std::set<placement::ObjectId> Reachable(const placement::Snapshot& snapshot,
                                        const std::vector<placement::ObjectId>& consoles) {
  std::map<placement::ObjectId, std::vector<placement::ObjectId>> callees;
  for (const auto& edge : snapshot.edges) callees[edge.from].push_back(edge.to);
  std::set<placement::ObjectId> reached(consoles.begin(), consoles.end());
  std::vector<placement::ObjectId> next(consoles);
  while (!next.empty()) {
    const placement::ObjectId from = next.back();
    next.pop_back();
    for (const placement::ObjectId& to : callees[from]) {
      if (reached.insert(to).second) next.push_back(to);
    }
  }
  return reached;
}

// Of several servers, the one with the lowest anchored object of the graph decides for it, and so
// for all consoles that share what may move.
placement::NodeId DecidingNode(const placement::Snapshot& snapshot) {
  std::vector<placement::ObjectId> consoles = snapshot.consoles;
  if (consoles.empty()) consoles = {snapshot.console};
  const std::set<placement::ObjectId> reached = Reachable(snapshot, consoles);
  const placement::ObjectStatistics* lowest = nullptr;
  for (const auto& object : snapshot.objects) {
    const bool console = std::find(consoles.begin(), consoles.end(), object.id) != consoles.end();
    if (object.mobile || console || !reached.contains(object.id)) continue;
    if (lowest == nullptr || object.id < lowest->id) lowest = &object;
  }
  return lowest == nullptr ? 0 : lowest->node;
}

// The planner's time; a wall clock that steps is its business.
double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

// One for each way between two nodes: a decision about a graph may have several. The gain and cost
// of the whole are said of the first.
std::vector<PlannedMove> PlannedMovesOf(const Rid& console, const placement::Decision& decision) {
  std::vector<PlannedMove> moves;
  for (const placement::Move& one : decision.moves) {
    const auto same_way = [&](const PlannedMove& move) {
      return move.from == one.from && move.to == one.to;
    };
    auto it = std::find_if(moves.begin(), moves.end(), same_way);
    if (it == moves.end()) {
      it =
          moves.insert(moves.end(), {.console = console,
                                     .from = one.from,
                                     .to = one.to,
                                     .reason = decision.explanation,
                                     .makes_room = decision.reason == placement::Reason::kEjected});
    }
    it->rids.push_back(ToRid(one.object));
  }
  if (!moves.empty() && decision.chosen) {
    const placement::Candidate& chosen = decision.candidates[*decision.chosen];
    moves.front().predicted_gain_s = chosen.benefit_s;
    moves.front().predicted_cost_s = chosen.cost.Total();
  }
  return moves;
}

}  // namespace

absl::Status PlacementLoop::Accept(Digest digest, absl::Time now) {
  absl::Status status = CheckDigest(digest);
  MutexLock lock(mutex_);
  if (!status.ok()) {
    ++counters_["digest_refused"];
    return status;
  }
  Reported& reported = reported_[digest.from];
  reported.window.Add(digest, now, absl::Seconds(options_.engine.window_s));
  reported.at = now;
  Append(reported.pending, digest);
  return absl::OkStatus();
}

void PlacementLoop::Forget(NodeInstance node) {
  MutexLock lock(mutex_);
  reported_.erase(node);
  FinishGraphs([node](const Rid& console, const GraphState&) { return console.home == node; });
}

// What was decided for a graph that has ended is kept for a while: somebody may ask why.
void PlacementLoop::FinishGraphs(
    absl::FunctionRef<bool(const Rid& console, const GraphState& graph)> ended) {
  for (auto it = graphs_.begin(); it != graphs_.end();) {
    auto& [console, graph] = *it;
    if (!ended(console, graph)) {
      ++it;
      continue;
    }
    if (graph.decisions.size() > kDecisionsOfFinishedMax) {
      graph.decisions.resize(kDecisionsOfFinishedMax);
    }
    if (!graph.decisions.empty()) finished_.emplace_back(console, std::move(graph.decisions));
    if (finished_.size() > kFinishedMax) finished_.pop_front();
    planner_.Forget(ToObjectId(console));
    it = graphs_.erase(it);
  }
}

// The snapshot's console and all whose graphs reach a mobile object that its graph reaches, or that
// of one of these: they cannot be decided apart. Storage that many use is no such object.
std::vector<placement::ObjectId> PlacementLoop::ConsolesBeside(
    const placement::Snapshot& snapshot, const std::set<placement::ObjectId>& own) const {
  std::vector<placement::ObjectId> joined = {snapshot.console};
  std::set<placement::ObjectId> mobile;
  for (const auto& object : snapshot.objects) {
    if (object.mobile) mobile.insert(object.id);
  }
  std::map<placement::ObjectId, std::vector<placement::ObjectId>> mobile_of;
  std::set<placement::ObjectId> shared;
  const auto mobile_among = [&](const std::set<placement::ObjectId>& reached) {
    std::vector<placement::ObjectId> found;
    std::set_intersection(reached.begin(), reached.end(), mobile.begin(), mobile.end(),
                          std::back_inserter(found));
    return found;
  };
  for (const placement::ObjectId& id : mobile_among(own)) shared.insert(id);
  // The common case, in which nobody else calls what is ours, is not worth a walk of all graphs.
  const bool called_from_outside = std::any_of(
      snapshot.edges.begin(), snapshot.edges.end(),
      [&](const auto& edge) { return shared.contains(edge.to) && !own.contains(edge.from); });
  if (!called_from_outside) return joined;
  for (const auto& [from, reported] : reported_) {
    for (const Rid& other : reported.sample.consoles) {
      const placement::ObjectId id = ToObjectId(other);
      if (id != snapshot.console) mobile_of[id] = mobile_among(Reachable(snapshot, {id}));
    }
  }
  for (bool grew = true; grew;) {
    grew = false;
    for (auto it = mobile_of.begin(); it != mobile_of.end();) {
      const std::vector<placement::ObjectId>& objects = it->second;
      const bool joins =
          std::any_of(objects.begin(), objects.end(),
                      [&](const placement::ObjectId& object) { return shared.contains(object); });
      if (!joins) {
        ++it;
        continue;
      }
      shared.insert(objects.begin(), objects.end());
      joined.push_back(it->first);
      it = mobile_of.erase(it);
      grew = true;
    }
  }
  return joined;
}

// Leaves out nodes that hold nothing of the graph and that it may not go to, and links to them: who
// else is in the cluster is not to make another graph of it.
static void KeepNodesOf(placement::Snapshot& snapshot, const std::map<Rid, PinRecord>& told) {
  std::set<placement::NodeId> nodes;
  for (const auto& object : snapshot.objects) {
    nodes.insert(object.node);
    const auto record = told.find(ToRid(object.id));
    if (record == told.end()) continue;
    nodes.insert(record->second.allowed.begin(), record->second.allowed.end());
  }
  std::erase_if(snapshot.nodes, [&](const auto& node) { return !nodes.contains(node.node); });
  std::erase_if(snapshot.links, [&](const auto& link) {
    return !nodes.contains(link.a) || !nodes.contains(link.b);
  });
}

// Figures of all nodes, as if all had been seen for as long as the console's node. Of no time where
// a node's figures begin anew.
placement::Snapshot PlacementLoop::Assemble(const Rid& console, const Digest& client) const {
  placement::Snapshot snapshot;
  snapshot.window_s = client.window_s;
  snapshot.console = ToObjectId(console);
  std::set<NodeId> begins_anew;
  std::map<Rid, PinRecord> told;
  std::map<std::pair<placement::NodeId, placement::NodeId>, placement::LinkStatistics> links;
  for (const auto& [from, reported] : reported_) {
    const Digest& digest = reported.sample;
    if (!digest.from.valid()) continue;
    if (digest.window_s <= 0) begins_anew.insert(from.node);
    const double scale = digest.window_s > 0 ? client.window_s / digest.window_s : 0;
    snapshot.nodes.push_back(digest.node);
    for (placement::ObjectStatistics object : digest.objects) {
      for (double* figure :
           {&object.cpu_s, &object.background_cpu_s, &object.own_stall_s, &object.disk_s,
            &object.ready_s, &object.stall_s, &object.bytes_processed, &object.calls,
            &object.voluntary_switches, &object.involuntary_switches, &object.io_bytes,
            &object.io_requests, &object.io_s}) {
        *figure *= scale;
      }
      object.cpu_s_variance *= scale * scale;
      snapshot.objects.push_back(std::move(object));
    }
    for (placement::EdgeStatistics edge : digest.edges) {
      for (double* figure : {&edge.calls, &edge.request_bytes, &edge.reply_bytes}) {
        *figure *= scale;
      }
      edge.bytes_variance *= scale * scale;
      snapshot.edges.push_back(edge);
    }
    for (const placement::LinkStatistics& link : digest.links) {
      auto& known = links[std::minmax(link.a, link.b)];
      if (known.a == 0 || link.measured_bytes > known.measured_bytes) known = link;
    }
    for (const PinRecord& record : digest.pins) told[record.rid] = record;
  }
  for (const auto& [ends, link] : links) snapshot.links.push_back(link);
  // Edges of an object that moved within a window are reported by both hosts.
  std::sort(snapshot.edges.begin(), snapshot.edges.end(), [](const auto& a, const auto& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  std::vector<placement::EdgeStatistics> merged;
  for (const auto& edge : snapshot.edges) {
    if (!merged.empty() && merged.back().from == edge.from && merged.back().to == edge.to) {
      merged.back().calls += edge.calls;
      merged.back().request_bytes += edge.request_bytes;
      merged.back().reply_bytes += edge.reply_bytes;
      merged.back().bytes_variance += edge.bytes_variance;
      merged.back().samples = std::max(merged.back().samples, edge.samples);
    } else {
      merged.push_back(edge);
    }
  }
  snapshot.edges = std::move(merged);

  const std::set<placement::ObjectId> own = Reachable(snapshot, {snapshot.console});
  snapshot.consoles = ConsolesBeside(snapshot, own);
  const std::set<placement::ObjectId> reached = Reachable(snapshot, snapshot.consoles);
  std::erase_if(snapshot.objects, [&](const auto& object) { return !reached.contains(object.id); });
  std::erase_if(snapshot.edges, [&](const auto& edge) { return !reached.contains(edge.from); });
  if (snapshot.consoles.size() == 1) snapshot.consoles.clear();
  KeepNodesOf(snapshot, told);
  double t_app_s = 0;
  for (placement::ObjectStatistics& object : snapshot.objects) {
    if (begins_anew.contains(object.node)) snapshot.window_s = 0;
    if (const auto record = told.find(ToRid(object.id)); record != told.end()) {
      object.pinned = !record->second.reason.empty();
      object.pinned_reason = record->second.reason;
      object.allowed = record->second.allowed;
      object.attach_group = record->second.attach_group;
    }
    if (object.node != console.home.node || !own.contains(object.id)) continue;
    // The activity's time as its own node saw it: what is here, and what it waited for from there.
    t_app_s += object.cpu_s + object.ready_s + object.own_stall_s + object.stall_s;
  }
  // Of several consoles the sum is predicted, of which this node sees its own part only.
  if (t_app_s > 0 && snapshot.consoles.empty()) snapshot.measured_t_app_s = t_app_s;
  return snapshot;
}

std::vector<PlannedMove> PlacementLoop::Decide(absl::Time now) {
  std::vector<PlannedMove> moves;
  MutexLock lock(mutex_);
  if (!options_.enabled) return moves;
  const double fresh_s = kFreshWindows * options_.engine.window_s;
  std::erase_if(reported_, [&](const auto& reported) {
    return absl::ToDoubleSeconds(now - reported.second.at) > fresh_s;
  });
  std::set<Rid> consoles;
  std::set<NodeInstance> reporting;
  std::vector<NodeInstance> fresh;
  for (auto& [from, reported] : reported_) {
    if (reported.pending.from.valid()) {
      reported.sample = std::exchange(reported.pending, {});
      fresh.push_back(from);
    }
    reporting.insert(from);
    consoles.insert(reported.sample.consoles.begin(), reported.sample.consoles.end());
  }
  // A node that is silent is not dead: Forget() says when it is.
  FinishGraphs([&](const Rid& console, const GraphState& graph) {
    return graph.moving == 0 && reporting.contains(console.home) && !consoles.contains(console);
  });
  std::vector<placement::ObjectId> observed;
  for (const NodeInstance& from : fresh) {
    const Digest& client = reported_[from].sample;
    for (const Rid& console : client.consoles) {
      if (Observe(console, client, now)) observed.push_back(ToObjectId(console));
    }
  }
  if (observed.empty()) return moves;
  for (placement::Planner::Decided& one : planner_.DecideRound(observed, Seconds(now))) {
    Take(std::move(one), now, moves);
  }
  // What makes room goes first.
  std::stable_partition(moves.begin(), moves.end(),
                        [](const PlannedMove& move) { return move.makes_room; });
  return moves;
}

// Whether there is a sample of the console's graph to be decided on here.
bool PlacementLoop::Observe(const Rid& console, const Digest& client, absl::Time now) {
  graphs_[console];
  if (client.window_s <= 0) return false;
  const placement::Snapshot sample = Assemble(console, client);
  if (sample.window_s <= 0 || DecidingNode(sample) != self_) return false;
  const double now_s = Seconds(now);
  if (const absl::Status status = planner_.Observe(sample, now_s, now_s); !status.ok()) {
    ++counters_["sample_refused"];
  }
  return true;
}

void PlacementLoop::Take(placement::Planner::Decided decided, absl::Time now,
                         std::vector<PlannedMove>& moves) {
  placement::Decision& decision = decided.decision;
  const Rid console = ToRid(decision.console);
  GraphState& graph = graphs_[console];
  ++counters_[std::string(placement::ReasonName(decision.reason))];
  if (decision.outcome == placement::Outcome::kMove) {
    for (PlannedMove& move : PlannedMovesOf(console, decision)) {
      ++graph.moving;
      moves.push_back(std::move(move));
    }
  }
  Record(graph, now, std::move(decided));
}

// Every move and every new reason is kept. A stay that says what the last one said takes its place,
// once a window: what is kept grows by what changed and not with time.
void PlacementLoop::Record(GraphState& graph, absl::Time now, placement::Planner::Decided decided) {
  auto& kept = graph.decisions;
  const bool repeats = !kept.empty() && decided.decision.outcome == placement::Outcome::kStay &&
                       kept.front().decision.outcome == placement::Outcome::kStay &&
                       kept.front().decision.reason == decided.decision.reason;
  if (repeats && now - kept.front().at < absl::Seconds(options_.engine.window_s)) return;
  DecisionRecord record{now, std::move(decided.decision), ToJson(decided.window)};
  Log(graph, record);
  if (repeats) {
    kept.front() = std::move(record);
    return;
  }
  kept.push_front(std::move(record));
  if (kept.size() > options_.decisions_kept_max) kept.pop_back();
}

// Moves, and what changed; what stays as it was, once a minute.
void PlacementLoop::Log(GraphState& graph, const DecisionRecord& record) {
  constexpr absl::Duration kRepeated = absl::Minutes(1);
  const placement::Decision& decision = record.decision;
  LoggedDecision logged{.at = record.at,
                        .rids = {ToRid(decision.console)},
                        .outcome = std::string(placement::OutcomeName(decision.outcome)),
                        .reason = std::string(placement::ReasonName(decision.reason))};
  const std::string what = absl::StrCat(logged.outcome, " ", logged.reason);
  const bool repeats = decision.outcome == placement::Outcome::kStay && what == graph.logged &&
                       record.at - graph.logged_at < kRepeated;
  if (repeats) return;
  graph.logged = what;
  graph.logged_at = record.at;
  for (const placement::StackObject& object : decision.stack) {
    if (object.id != decision.console) logged.rids.push_back(ToRid(object.id));
  }
  logged.explanation = decision.explanation;
  logged.details = placement::Format(decision);
  logged.snapshot = record.snapshot_json;
  if (!log_.Append(logged).ok()) ++counters_["decisions_not_logged"];
}

void PlacementLoop::OnMoveEnded(const PlannedMove& move, const absl::Status& status,
                                absl::Duration quiesce, absl::Time now) {
  MutexLock lock(mutex_);
  ++counters_[status.ok() ? "moves_committed" : "moves_failed"];
  const auto it = graphs_.find(move.console);
  if (it == graphs_.end() || it->second.moving == 0) return;
  GraphState& graph = it->second;
  graph.all_moved = graph.all_moved && status.ok();
  graph.quiesce = std::max(graph.quiesce, quiesce);
  if (--graph.moving > 0) return;
  planner_.OnMoveEnded(ToObjectId(move.console), std::exchange(graph.all_moved, true),
                       absl::ToDoubleSeconds(std::exchange(graph.quiesce, {})), Seconds(now));
}

std::vector<DecisionRecord> PlacementLoop::Explain(const Rid& rid, size_t max) const {
  std::vector<DecisionRecord> found;
  const placement::ObjectId id = ToObjectId(rid);
  const auto add = [&](const Rid& console, const std::deque<DecisionRecord>& decisions) {
    for (const DecisionRecord& record : decisions) {
      const auto& stack = record.decision.stack;
      const bool on_it = console == rid || std::any_of(stack.begin(), stack.end(),
                                                       [&](const placement::StackObject& object) {
                                                         return object.id == id;
                                                       });
      if (on_it) found.push_back(record);
    }
  };
  MutexLock lock(mutex_);
  for (const auto& [console, graph] : graphs_) add(console, graph.decisions);
  for (const auto& [console, decisions] : finished_) add(console, decisions);
  std::sort(found.begin(), found.end(),
            [](const DecisionRecord& a, const DecisionRecord& b) { return a.at > b.at; });
  if (found.size() > max) found.resize(max);
  return found;
}

std::vector<Digest> PlacementLoop::Digests() const {
  std::vector<Digest> digests;
  MutexLock lock(mutex_);
  for (const auto& [from, reported] : reported_) digests.push_back(reported.window.Sum());
  return digests;
}

std::map<std::string, uint64_t> PlacementLoop::Counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

PlacementLoop::Mode PlacementLoop::mode() const {
  MutexLock lock(mutex_);
  return {.enabled = options_.enabled, .suspended = suspended_, .dry_run = options_.dry_run};
}

static PlacementLoop::ModelError ErrorOf(const placement::RunningError& error) {
  return {.count = error.count(), .median = error.Quantile(0.5), .p95 = error.Quantile(0.95)};
}

PlacementLoop::ModelError PlacementLoop::PresentError() const {
  MutexLock lock(mutex_);
  return ErrorOf(planner_.present_error());
}

PlacementLoop::ModelError PlacementLoop::MoveError() const {
  MutexLock lock(mutex_);
  return ErrorOf(planner_.move_error());
}

void PlacementLoop::Enable(bool enabled) {
  MutexLock lock(mutex_);
  options_.enabled = enabled;
}

void PlacementLoop::Suspend(bool suspended) {
  MutexLock lock(mutex_);
  suspended_ = suspended;
  planner_.Suspend(suspended);
}

void PlacementLoop::DryRun(bool dry_run) {
  MutexLock lock(mutex_);
  options_.dry_run = dry_run;
  planner_.DryRun(dry_run);
}

absl::Status PlacementLoop::SetConfig(const placement::Config& config,
                                      const placement::PlannerConfig& planner_config) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(planner_.SetConfig(config, planner_config));
  options_.engine = config;
  options_.planner = planner_config;
  return absl::OkStatus();
}

}  // namespace abacus::runtime
