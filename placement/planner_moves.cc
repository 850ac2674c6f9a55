// What the Planner does from the moment a move is let go: tell others, wait, look what came of it.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/engine.h"
#include "placement/planner.h"
#include "placement/planner_terms.h"

namespace abacus::placement {
namespace {

// The graph's own history of quiesces forgets: means are over at most so many.
constexpr uint64_t kQuiescesMax = 32;
// Others' load on a node that changed by this many cores since a move makes before and after
// incomparable: it alone can slow a task down by half on two cores.
constexpr double kOthersChangedCores = 0.5;

double CpuOf(const Snapshot& snapshot, const ObjectId& id) {
  for (const auto& object : snapshot.objects) {
    if (object.id == id) return object.cpu_s;
  }
  return 0;
}

}  // namespace

void Planner::LetGo(Graph& graph, const Snapshot& window, const Decision& decision, double now_s) {
  const Candidate& c = decision.candidates[*decision.chosen];
  const double scale = decision.window_s / window.window_s;
  LastMove last{.moves = decision.moves,
                .phase_changes = graph.phases.changes(),
                .undo = decision.reason == Reason::kUndo,
                .ejected = decision.reason == Reason::kEjected,
                .prices = graph.prices,
                .others = decision.others};
  const double amount = graph.history.empty() ? 0 : AmountOf(last.prices, window) * scale;
  if (amount > 0 && window.measured_t_app_s && *window.measured_t_app_s > 0 && !last.undo &&
      !last.ejected) {
    last.audited = false;
    last.before_s = *window.measured_t_app_s * scale / amount;
    last.predicted_s = c.prediction.response_s / amount;
    for (const Move& move : decision.moves) {
      const StackObject* object = StackObjectOf(decision, move.object);
      const double factor = corrections_.Factor(object->class_name, move.to, now_s) /
                            corrections_.Factor(object->class_name, move.from, now_s);
      last.expected_cpu_s.push_back(object->layer.work / NodeOf(decision, move.to)->rate * factor /
                                    amount);
      last.seen_cpu_s.push_back(CpuOf(window, move.object));
    }
  }
  // A gain that is large in either place is one that the move itself makes: the work costs other
  // than predicted wherever it is. Such moves are as good as undone, if they follow each other.
  // What goes again after an undo was counted by it.
  if (!last.undo && now_s < graph.forgiven_s && TakesBack(graph, decision.moves) &&
      !graph.last_move->undo) {
    ++graph.undone;
  }
  for (const LoadChange& change : LoadChanges(decision)) {
    ledger_.Add(change.node, decision.console, change.load, 0, now_s);
  }
  for (const Move& move : decision.moves) {
    ledger_.Claim(move.object, decision.console, now_s,
                  planner_.claim_windows_max * config_.window_s);
    for (const auto& object : window.objects) {
      if (object.id != move.object) continue;
      const auto bytes = static_cast<double>(object.memory_bytes);
      ledger_.Add(move.from, decision.console, 0, -bytes, now_s);
      ledger_.Add(move.to, decision.console, 0, bytes, now_s);
    }
  }
  graph.last_move = std::move(last);
  graph.moving = true;
}

void Planner::OnMoveEnded(const ObjectId& console, bool ok, double quiesce_s, double now_s) {
  const std::optional<double> now = Now(now_s);
  const auto it = graphs_.find(console);
  if (it == graphs_.end()) return;
  Graph& graph = *it->second;
  graph.moving = false;
  ledger_.Release(console);
  const double at_s = now.value_or(last_now_s_);
  graph.history.Clear();
  graph.window_from_s = at_s;
  if (!graph.last_move) return;
  if (!ok) {
    // Nothing moved, so there is nothing to audit; but it would fail again if tried at once.
    ++counters_.moves_failed;
    graph.last_move->audited = true;
  } else if (std::isfinite(quiesce_s) && quiesce_s >= 0) {
    MigrationHistory& quiesces = graph.quiesces;
    quiesces.count = std::min(quiesces.count + 1, kQuiescesMax);
    quiesces.quiesce_s += (quiesce_s - quiesces.quiesce_s) / static_cast<double>(quiesces.count);
  }
  if (graph.undone > 0 && at_s >= graph.forgiven_s && !graph.last_move->undo) --graph.undone;
  const double windows =
      std::min(planner_.cool_down_max, planner_.cool_down * std::exp2(graph.undone));
  graph.cool_down_s = windows * config_.window_s;
  graph.cool_until_s = at_s + graph.cool_down_s;
  graph.forgiven_s = at_s + planner_.forgive * graph.cool_down_s;
  if (ok) {
    const Swings::Times times{.cool_down_s = planner_.cool_down * config_.window_s,
                              .cool_down_max_s = planner_.cool_down_max * config_.window_s,
                              .forgive = planner_.forgive};
    for (const Move& move : graph.last_move->moves) {
      swings_.Moved(move.object, console, times, at_s);
    }
  }
  graph.phases.Rebase();
  graph.settled = {};
}

void Planner::Forget(const ObjectId& console) {
  graphs_.erase(console);
  ledger_.Release(console);
}

// What each object's CPU time says of its class on the node it moved to.
void Planner::LearnCorrections(const LastMove& last, const Snapshot& window, double amount,
                               double now_s) {
  // Less CPU time than this in a window is as good as none, and its ratio would be noise.
  constexpr double kCpuMinPart = 0.01;
  // What was seen before a move counts against so much that says that the rate is right: a decision
  // on one sample has seen half a computation.
  constexpr double kCpuPriorPart = 0.05;
  for (size_t i = 0; i < last.moves.size(); ++i) {
    const double measured_s = CpuOf(window, last.moves[i].object);
    const double expected_s = last.expected_cpu_s[i] * amount;
    if (measured_s < kCpuMinPart * window.window_s && expected_s < kCpuMinPart * window.window_s) {
      continue;
    }
    if (measured_s <= 0 || expected_s <= 0) continue;
    const double evidence =
        last.seen_cpu_s[i] / (last.seen_cpu_s[i] + kCpuPriorPart * config_.window_s);
    const double credible_s = expected_s * std::pow(measured_s / expected_s, evidence);
    for (const auto& object : window.objects) {
      if (object.id != last.moves[i].object) continue;
      corrections_.Learn(object.class_name, last.moves[i].to, expected_s, credible_s, now_s);
    }
  }
}

bool Planner::AuditLastMove(Graph& graph, const Snapshot& window, const Decision& decision,
                            double now_s) {
  if (decision.model_error && now_s - graph.error_at_s >= config_.window_s) {
    graph.error_at_s = now_s;
    present_error_.Add(decision.present->response_s, *decision.measured_t_app_s);
  }
  if (!graph.last_move || graph.last_move->audited) return false;
  LastMove& last = *graph.last_move;
  last.audited = true;
  const double amount = graph.history.empty() ? 0 : AmountOf(last.prices, window);
  const auto changed = [](double before, double now) {
    return std::abs(now - before) > kOthersChangedCores;
  };
  if (amount <= 0 || !window.measured_t_app_s || *window.measured_t_app_s <= 0 ||
      last.phase_changes != graph.phases.changes() ||
      changed(last.others.client, decision.others.client) ||
      changed(last.others.server, decision.others.server)) {
    ++counters_.audits_dropped;
    return false;
  }
  ++counters_.audits;
  const double measured_s = *window.measured_t_app_s / amount;
  move_error_.Add(last.predicted_s, measured_s);
  LearnCorrections(last, window, amount, now_s);
  return measured_s > last.before_s * (1 + planner_.undo_threshold);
}

// Of a move back: what keeps objects from where they were before. Empty: nothing.
std::string Planner::WhyNotBack(const std::vector<Move>& back,
                                const std::optional<Candidate>& there, const Decision& decision,
                                double now_s) const {
  for (const Move& move : back) {
    const StackObject* object = StackObjectOf(decision, move.object);
    // Gone, or elsewhere by now: then there is nothing to be taken back.
    if (object == nullptr || object->node != move.from) return "it is not where it was moved to";
    if (object->fixed) return "it may not be moved any more";
    if (ledger_.Claimed(move.object, decision.console, now_s)) return WhyHeldBack(Reason::kClaimed);
    if (swings_.Rests(move.object, decision.console, now_s)) {
      return "it was moved for another console since";
    }
  }
  if (!there) return "it is not allowed any more where it was";
  switch (there->verdict) {
    case Verdict::kPinned:
    case Verdict::kAnchored:
      return "it may not be moved any more";
    case Verdict::kNoMemory:
      return "the memory that it had there is used by others";
    case Verdict::kMemoryUnknown:
      return "what it holds is unknown, and memory is limited there";
    case Verdict::kNoCpu:
      return "it would use more CPU there than the server lends";
    default:
      return "";
  }
}

// Takes the last move back. Returns why not, where that cannot be; the decision is then as it was.
std::string Planner::Undo(Graph& graph, const Snapshot& window, Decision* decision, double now_s) {
  const LastMove& last = *graph.last_move;
  std::vector<Move> back;
  for (const Move& move : last.moves) {
    back.push_back({.object = move.object, .from = move.to, .to = move.from});
  }
  Config config = config_;
  config.window_s = decision->window_s;
  std::optional<Candidate> there = JudgeMoves(window, back, config);
  if (std::string why = WhyNotBack(back, there, *decision, now_s); !why.empty()) {
    ++counters_.undos_held_back;
    return why;
  }
  // What the place before takes was measured before the move.
  const size_t listed = decision->candidates.size();
  const size_t chosen = CandidateFor(back, last.before_s * AmountOf(last.prices, window), decision);
  if (chosen == listed) decision->candidates[chosen].cost = there->cost;
  decision->chosen = chosen;
  decision->outcome = Outcome::kMove;
  decision->reason = Reason::kUndo;
  decision->moves = back;
  decision->explained =
      absl::StrCat("Moving back: since the last move the same work takes longer than before it. ",
                   decision->Explanation());
  ++graph.undone;
  ++counters_.undone;
  if (dry_run_) {
    decision->outcome = Outcome::kStay;
    decision->reason = Reason::kDryRun;
    decision->moves.clear();
  } else {
    LetGo(graph, window, *decision, now_s);
  }
  return "";
}

std::optional<Planner::GraphStatus> Planner::StatusOf(const ObjectId& console, double now_s) const {
  const auto it = graphs_.find(console);
  if (it == graphs_.end()) return std::nullopt;
  const Graph& graph = *it->second;
  const double now = now_s + clock_offset_s_;
  return GraphStatus{.moving = graph.moving,
                     .phase_since_s = graph.phases.since_s(),
                     .phase_changes = graph.phases.changes(),
                     .phase_length_ref_s = graph.phases.LengthRefS(),
                     .phase_remaining_ref_s = graph.phases.RemainingRefS(),
                     .cool_down_left_s = std::max(0.0, graph.cool_until_s - now),
                     .undone = graph.undone,
                     .costs_known = graph.places.size()};
}

}  // namespace abacus::placement
