#include "runtime/resource/placement_loop.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

// A digest that is older than this many windows says nothing of now.
constexpr double kFreshWindows = 3;

bool Sane(double value) { return std::isfinite(value) && value >= 0; }

// What is wrong with a digest.
struct DigestRefusal {
  const char* counter;
  const char* what;
};

std::optional<DigestRefusal> CheckDigest(const Digest& digest) {
  if (!digest.from.valid()) return DigestRefusal{"digest_bad_sender", "the sender"};
  if (!Sane(digest.window_s)) return DigestRefusal{"digest_bad_window", "window_s"};
  // A console stays where it began, and ends when that node says so.
  for (const Rid& console : digest.consoles) {
    if (console.home != digest.from) {
      return DigestRefusal{"digest_console_of_another", "a console of another node"};
    }
  }
  if (!Sane(digest.node.rate) || !Sane(digest.node.cores) || !Sane(digest.node.load)) {
    return DigestRefusal{"digest_bad_node", "the node's rate, cores or load"};
  }
  for (const auto& object : digest.objects) {
    if (object.node != digest.from.node) {
      return DigestRefusal{"digest_object_of_another", "an object that another node hosts"};
    }
    bool sane = Sane(object.cpu_s_variance) && Sane(object.samples);
    for (const auto figure : placement::kObjectSums) sane = sane && Sane(object.*figure);
    if (!sane) {
      return DigestRefusal{"digest_bad_object", "an object's time, bytes or calls"};
    }
  }
  for (const auto& edge : digest.edges) {
    bool sane = Sane(edge.bytes_variance) && Sane(edge.samples);
    for (const auto figure : placement::kEdgeSums) sane = sane && Sane(edge.*figure);
    if (!sane) {
      return DigestRefusal{"digest_bad_edge", "an edge's calls or bytes"};
    }
  }
  return std::nullopt;
}

// Of several servers, the one with the lowest anchored object of the graph decides for it, and so
// for all consoles that share what may move.
placement::NodeId DecidingNode(const placement::Snapshot& snapshot) {
  absl::flat_hash_set<placement::ObjectId> consoles(snapshot.consoles.begin(),
                                                    snapshot.consoles.end());
  consoles.insert(snapshot.console);
  const placement::ObjectStatistics* lowest = nullptr;
  for (const auto& object : snapshot.objects) {
    if (object.mobile || consoles.contains(object.id)) continue;
    if (lowest == nullptr || object.id < lowest->id) lowest = &object;
  }
  return lowest == nullptr ? 0 : lowest->node;
}

// The time of day is adjusted by less than this between two rounds; what is more is a step.
constexpr absl::Duration kStep = absl::Milliseconds(100);

// The planner's time.
double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

// One for each way between two nodes: a decision about a graph may have several. The gain and cost
// of the whole are said of the first.
std::vector<PlannedMove> PlannedMovesOf(const Rid& console, const placement::Decision& decision,
                                        uint64_t step) {
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
                                     .reason = decision.Explanation(),
                                     .step = step,
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

LoggedDecision LoggedOf(const DecisionRecord& record) {
  const placement::Decision& decision = record.decision;
  LoggedDecision logged{.at = record.at,
                        .rids = {ToRid(decision.console)},
                        .outcome = std::string(placement::OutcomeName(decision.outcome)),
                        .reason = std::string(placement::ReasonName(decision.reason)),
                        .explanation = decision.Explanation(),
                        .details = placement::Format(decision),
                        .snapshot = ToJson(record.snapshot)};
  for (const placement::StackObject& object : decision.stack) {
    if (object.id != decision.console) logged.rids.push_back(ToRid(object.id));
  }
  return logged;
}

}  // namespace

std::vector<MoveStep> StepsOf(std::vector<PlannedMove> moves) {
  std::vector<MoveStep> steps;
  std::map<uint64_t, size_t> index;
  for (PlannedMove& move : moves) {
    const auto [it, first] = index.try_emplace(move.step, steps.size());
    if (first || move.step == 0) {
      it->second = steps.size();
      steps.emplace_back();
    }
    MoveStep& step = steps[it->second];
    (move.makes_room ? step.first : step.then).push_back(std::move(move));
  }
  return steps;
}

absl::Status PlacementLoop::Accept(Digest digest, absl::Time now) {
  const std::optional<DigestRefusal> refusal = CheckDigest(digest);
  MutexLock lock(inbox_mutex_);
  if (refusal) {
    ++digests_refused_[refusal->counter];
    if (digest.from.node == self_) ++digests_refused_["own_digest_refused"];
    return absl::InvalidArgumentError(
        absl::StrCat("digest refused: ", refusal->what, " is no such figure"));
  }
  if (forgotten_.contains(digest.from)) {
    ++strangers_;
    return absl::FailedPreconditionError(absl::StrCat("node ", digest.from.ToString(), " is dead"));
  }
  Reported& reported = reported_[digest.from];
  reported.window.Add(digest, now, window_);
  reported.at = now;
  Append(reported.pending, digest);
  return absl::OkStatus();
}

void PlacementLoop::RefuseStranger() {
  MutexLock lock(inbox_mutex_);
  ++strangers_;
}

void PlacementLoop::Forget(NodeInstance node) {
  MutexLock lock(mutex_);
  {
    MutexLock inbox(inbox_mutex_);
    reported_.erase(node);
    if (forgotten_.insert(node).second) forgotten_in_order_.push_back(node);
    if (forgotten_in_order_.size() > kForgottenMax) {
      forgotten_.erase(forgotten_in_order_.front());
      forgotten_in_order_.pop_front();
    }
  }
  samples_.erase(node);
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
    memory_.Finish(console);
    planner_.Forget(ToObjectId(console));
    it = graphs_.erase(it);
  }
}

// What came since the last decision becomes the newest sample of its node. Returns these nodes.
std::vector<NodeInstance> PlacementLoop::TakeSamples(absl::Time now) {
  const double fresh_s = kFreshWindows * options_.engine.window_s;
  std::vector<NodeInstance> fresh;
  MutexLock lock(inbox_mutex_);
  const size_t stale = std::erase_if(reported_, [&](const auto& reported) {
    return absl::ToDoubleSeconds(now - reported.second.at) > fresh_s;
  });
  if (stale > 0) counters_["digest_stale"] += stale;
  for (auto& [from, reported] : reported_) {
    if (!reported.pending.from.valid()) continue;
    samples_[from] = std::exchange(reported.pending, {});
    fresh.push_back(from);
  }
  for (auto it = samples_.begin(); it != samples_.end();) {
    it = reported_.contains(it->first) ? std::next(it) : samples_.erase(it);
  }
  return fresh;
}

std::vector<PlannedMove> PlacementLoop::Decide(absl::Time now, absl::Time wall) {
  ToLog to_log;
  std::vector<PlannedMove> moves = DecideAll({now, wall}, &to_log);
  std::vector<LoggedDecision> logged;
  for (const DecisionRecord& record : to_log.records) logged.push_back(LoggedOf(record));
  uint64_t lost = 0;
  if (!log_.Append(logged, &lost).ok()) {
    MutexLock lock(mutex_);
    counters_["decisions_not_logged"] += lost;
  }
  return moves;
}

void PlacementLoop::CompareClocks(const Moment& at) {
  const absl::Duration offset = at.wall - at.now;
  const absl::Duration step = offset - wall_offset_.value_or(offset);
  wall_offset_ = offset;
  if (step > kStep) ++counters_["wall_clock_stepped_forward"];
  if (step < -kStep) ++counters_["wall_clock_stepped_back"];
}

std::vector<PlannedMove> PlacementLoop::DecideAll(const Moment& at, ToLog* to_log) {
  std::vector<PlannedMove> moves;
  MutexLock lock(mutex_);
  CompareClocks(at);
  const absl::Time now = InOrder(at.now);
  const std::vector<NodeInstance> fresh = TakeSamples(now);
  if (!options_.enabled) return moves;
  absl::flat_hash_set<Rid> consoles;
  absl::flat_hash_set<NodeInstance> reporting;
  for (const auto& [from, sample] : samples_) {
    reporting.insert(from);
    consoles.insert(sample.consoles.begin(), sample.consoles.end());
  }
  // A node that is silent is not dead: Forget() says when it is.
  FinishGraphs([&](const Rid& console, const GraphState& graph) {
    return graph.moving == 0 && reporting.contains(console.home) && !consoles.contains(console);
  });
  const ClusterView cluster(samples_);
  std::vector<placement::ObjectId> observed;
  for (const NodeInstance& from : fresh) {
    const Digest& client = samples_[from];
    for (const Rid& console : client.consoles) {
      if (Observe(cluster, console, client, now)) observed.push_back(ToObjectId(console));
    }
  }
  if (observed.empty()) return moves;
  const auto take = [&](placement::Planner::Decided one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Take(std::move(one), {now, at.wall}, moves, to_log);
  };
  planner_.DecideRound(observed, Seconds(now), take);
  // What makes room goes first.
  std::stable_partition(moves.begin(), moves.end(),
                        [](const PlannedMove& move) { return move.makes_room; });
  return moves;
}

// Whether there is a sample of the console's graph to be decided on here.
bool PlacementLoop::Observe(const ClusterView& cluster, const Rid& console, const Digest& client,
                            absl::Time now) {
  graphs_[console];
  ClusterView::Joined joined = cluster.SnapshotOf(console, client);
  if (DecidingNode(joined.snapshot) != self_) return false;
  if (client.window_s <= 0 || joined.begins_anew) {
    ++counters_["sample_begins_anew"];
    return false;
  }
  if (joined.on_two_nodes) {
    ++counters_["sample_object_on_two_nodes"];
    return false;
  }
  const double now_s = Seconds(now);
  // What is wrong with it is counted there.
  planner_.Observe(std::move(joined.snapshot), now_s, now_s).IgnoreError();
  return true;
}

void PlacementLoop::Take(placement::Planner::Decided decided, const Moment& at,
                         std::vector<PlannedMove>& moves, ToLog* to_log) {
  placement::Decision& decision = decided.decision;
  const Rid console = ToRid(decision.console);
  GraphState& graph = graphs_[console];
  ++counters_[std::string(placement::ReasonName(decision.reason))];
  if (decision.links_left_aside > 0) ++counters_["decided_without_a_link"];
  if (decision.nodes_left_aside > 0) ++counters_["decided_without_a_node"];
  if (decision.cut_off > 0) ++counters_["decided_with_a_cut_off"];
  if (decision.outcome == placement::Outcome::kMove) {
    for (PlannedMove& move : PlannedMovesOf(console, decision, decided.step)) {
      ++graph.moving;
      moves.push_back(std::move(move));
    }
  }
  Record(console, at, std::move(decided), to_log);
}

// Every move and every new reason is kept. A stay that says what the last one said takes its place,
// once a window: what is kept grows by what changed and not with time.
void PlacementLoop::Record(const Rid& console, const Moment& at,
                           placement::Planner::Decided decided, ToLog* to_log) {
  GraphState& graph = graphs_[console];
  const DecisionRecord* newest = memory_.Newest(console);
  const bool repeats = newest != nullptr && decided.decision.outcome == placement::Outcome::kStay &&
                       newest->decision.outcome == placement::Outcome::kStay &&
                       newest->decision.reason == decided.decision.reason;
  if (repeats && at.now - graph.recorded_at < absl::Seconds(options_.engine.window_s)) return;
  graph.recorded_at = at.now;
  DecisionRecord record{at.wall, std::move(decided.decision), std::move(decided.window)};
  Log(graph, record, at.now, to_log);
  if (repeats) {
    memory_.Replace(console, std::move(record));
  } else {
    memory_.Add(console, std::move(record));
  }
}

// // Moves, and what changed; what stays as it was, once a minute. Of stays so many a round, and as
// many that would pay and were held back: others are still new to the log when they are recorded
// next.
void PlacementLoop::Log(GraphState& graph, const DecisionRecord& record, absl::Time now,
                        ToLog* to_log) {
  constexpr absl::Duration kRepeated = absl::Minutes(1);
  constexpr size_t kStaysARound = 100;
  if (options_.log_path.empty()) return;
  const placement::Decision& decision = record.decision;
  const bool stays = decision.outcome == placement::Outcome::kStay;
  const std::pair what(decision.outcome, decision.reason);
  if (stays && what == graph.logged && now - graph.logged_at < kRepeated) return;
  size_t& alike = decision.chosen ? to_log->held_back : to_log->stays;
  if (stays && ++alike > kStaysARound) {
    ++counters_["decisions_left_out_of_the_log"];
    return;
  }
  graph.logged = what;
  graph.logged_at = now;
  to_log->records.push_back(record);
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
                       absl::ToDoubleSeconds(std::exchange(graph.quiesce, {})),
                       Seconds(InOrder(now)));
}

std::vector<DecisionRecord> PlacementLoop::Explain(const Rid& rid, size_t max) const {
  MutexLock lock(mutex_);
  return memory_.Find(rid, max);
}

std::vector<Digest> PlacementLoop::Digests() const {
  std::vector<Digest> digests;
  MutexLock lock(inbox_mutex_);
  for (const auto& [from, reported] : reported_) digests.push_back(reported.window.Sum());
  return digests;
}

std::map<std::string, uint64_t> PlacementLoop::Counters() const {
  MutexLock lock(mutex_);
  std::map<std::string, uint64_t> counters = counters_;
  MutexLock inbox(inbox_mutex_);
  const placement::Planner::Counters& planner = planner_.counters();
  const uint64_t dropped = memory_.dropped();
  for (const auto& [name, count] :
       {std::pair("digest_of_a_stranger", strangers_),
        std::pair("sample_bad_figure", planner.samples_bad_figure),
        std::pair("sample_without_console", planner.samples_without_console),
        std::pair("sample_at_clock_step", planner.samples_at_clock_step),
        std::pair("sample_late", planner.samples_late),
        std::pair("clock_step", planner.clock_steps), std::pair("audit", planner.audits),
        std::pair("audit_dropped", planner.audits_dropped),
        std::pair("move_undone", planner.undone),
        std::pair("undo_held_back", planner.undos_held_back),
        std::pair("move_failed", planner.moves_failed),
        std::pair("graph_evicted", planner.graphs_evicted),
        std::pair("decision_dropped", dropped)}) {
    if (count > 0) counters[name] = count;
  }
  counters.insert(digests_refused_.begin(), digests_refused_.end());
  return counters;
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

void PlacementLoop::SetDecisionMemory(uint64_t bytes_max) {
  MutexLock lock(mutex_);
  memory_.SetBytesMax(bytes_max);
}

absl::Status PlacementLoop::SetConfig(const placement::Config& config,
                                      const placement::PlannerConfig& planner_config) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(planner_.SetConfig(config, planner_config));
  options_.engine = config;
  options_.planner = planner_config;
  MutexLock inbox(inbox_mutex_);
  window_ = absl::Seconds(config.window_s);
  return absl::OkStatus();
}

}  // namespace abacus::runtime
