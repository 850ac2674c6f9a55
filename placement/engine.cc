#include "placement/engine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "placement/graph.h"
#include "placement/judge.h"
#include "placement/model.h"
#include "placement/search.h"

namespace abacus::placement {
namespace {

// Steps to a placement from which nothing pays any more; each at least pays its cost.
constexpr int kStepsMax = 64;

// The highest net benefit that is sure among those that pay; of equals the smaller move, then the
// earlier one.
std::optional<size_t> Best(const std::vector<Candidate>& candidates, double confidence_z) {
  const auto sure_s = [&](const Candidate& c) {
    return c.net_benefit_s - confidence_z * c.benefit_deviation_s;
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.verdict != Verdict::kPays) continue;
    if (!best || sure_s(candidate) > sure_s(candidates[*best]) ||
        (sure_s(candidate) == sure_s(candidates[*best]) &&
         candidate.objects_moved < candidates[*best].objects_moved)) {
      best = i;
    }
  }
  return best;
}

Reason ReasonToStay(const Decision& decision) {
  const auto any = [&](auto predicate) {
    return std::any_of(decision.candidates.begin(), decision.candidates.end(), predicate);
  };
  const auto with = [](Verdict verdict) {
    return [verdict](const Candidate& c) { return c.verdict == verdict; };
  };
  const auto would_pay = [](Verdict verdict) {
    return [verdict](const Candidate& c) { return c.verdict == verdict && c.above_threshold; };
  };
  if (decision.chosen) return Reason::kSuspended;
  if (!decision.present->converged) return Reason::kNotConverged;
  if (any(would_pay(Verdict::kPinned))) return Reason::kPinned;
  if (any(would_pay(Verdict::kNoMemory))) return Reason::kNoMemory;
  if (any(would_pay(Verdict::kMemoryUnknown))) return Reason::kMemoryUnknown;
  if (any(would_pay(Verdict::kNoCpu))) return Reason::kNoCpu;
  if (any(with(Verdict::kNotConverged))) return Reason::kNotConverged;
  if (any(with(Verdict::kUncertain))) return Reason::kUncertain;
  if (any(with(Verdict::kBelowThreshold))) return Reason::kBelowThreshold;
  const bool fixed = !any([](const Candidate& c) {
    return c.verdict != Verdict::kPresent && c.verdict != Verdict::kAnchored;
  });
  return fixed ? Reason::kNothingMobile : Reason::kPresentIsBest;
}

// The node of the anchored object lowest in the stack that is not on the console's.
uint32_t ServerOf(const Graph& graph) {
  const uint32_t client = graph.present.front();
  for (size_t j = graph.objects.size(); j-- > 0;) {
    if (graph.objects[j].fixed && graph.present[j] != client) return graph.present[j];
  }
  return client == 0 ? 1 : 0;
}

// Of all consoles, each for as long as it takes.
double CallsAtOnce(const Graph& graph, const Evaluation& at) {
  double calls_s = 0;
  for (size_t c = 0; c < graph.at_once.size(); ++c) calls_s += graph.at_once[c] * at.response_s[c];
  return at.response_sum_s > 0 ? calls_s / at.response_sum_s : 1;
}

void DescribeStack(const Graph& graph, Decision* decision) {
  const uint32_t client = graph.present.front();
  for (size_t j = 0; j < graph.objects.size(); ++j) {
    const GraphObject& read = graph.objects[j];
    const ObjectStatistics& object = *read.statistics;
    const bool pinned = object.mobile && object.pinned;
    decision->stack.push_back(
        {.id = object.id,
         .class_name = object.class_name,
         .node = object.node,
         .side = graph.present[j] == client ? Side::kClient : Side::kServer,
         .fixed = read.fixed,
         .pinned = pinned,
         .pinned_reason = pinned ? object.pinned_reason : "",
         .layer = {.work = read.work, .own_stall_s = read.own_stall_s},
         .below = graph.path && j < graph.edges.size() ? graph.edges[j].flow : Flow{}});
  }
  for (const GraphEdge& edge : graph.edges) {
    decision->edges.push_back({edge.above, edge.below, edge.flow});
  }
  for (const GraphNode& node : graph.nodes) {
    decision->nodes.push_back(*node.statistics);
    decision->nodes_others.push_back(node.others);
  }
  const auto nodes = static_cast<uint32_t>(graph.nodes.size());
  for (uint32_t a = 0; a < nodes; ++a) {
    for (uint32_t b = a + 1; b < nodes; ++b) {
      if (graph.LinkOf(a, b).usable) decision->links.push_back(*graph.LinkOf(a, b).statistics);
    }
  }
  const uint32_t server = ServerOf(graph);
  decision->chain = graph.chain;
  decision->links_left_aside = graph.links_left_aside;
  decision->nodes_left_aside = graph.nodes_left_aside;
  decision->client = *graph.nodes[client].statistics;
  decision->server = *graph.nodes[server].statistics;
  if (const GraphLink& link = graph.LinkOf(client, server); link.usable) {
    decision->link = *link.statistics;
  }
  decision->others = {graph.nodes[client].others, graph.nodes[server].others};
}

Decision Refuse(Decision decision, Reason reason, const std::string& detail) {
  decision.outcome = Outcome::kStay;
  decision.reason = reason;
  decision.explained = absl::StrCat("Staying: ", detail, ".");
  return decision;
}

// Everything on the client from the console to object `split`, the rest on the server.
Placement SplitOf(const Placement& at, int split) {
  Placement to(at.size(), at.back());
  std::fill_n(to.begin(), split + 1, at.front());
  return to;
}

// The placements that a decision about `from` looks at.
class Candidates {
 public:
  Candidates(const Situation& from, const Snapshot& snapshot, const Config& config, uint32_t server)
      : from_(from),
        graph_(*from.graph),
        config_(config),
        judge_(from, snapshot.history, config, server) {}

  const Judge& judge() const { return judge_; }

  std::vector<Candidate> All() {
    if (graph_.path) AddSplits();
    if (graph_.chain) return std::move(all_);
    Add(from_.at);
    const Found found = Search(from_, 1 + config_.b_thresh);
    Add(found.best);
    if (found.unlimited) Add(*found.unlimited);
    Add(Improve(from_, 1, found.best));
    AddSingles();
    return std::move(all_);
  }

 private:
  void AddSplits() {
    const int splits = static_cast<int>(graph_.objects.size()) - 1;
    for (int split = 0; split < splits; ++split) {
      const Placement to = SplitOf(from_.at, split);
      if (graph_.chain) {
        all_.push_back(judge_.Of(to, split));
      } else if (Allowed(graph_, from_.at, to)) {
        Add(to);
      }
    }
  }

  void Add(const Placement& to) {
    if (std::find(placements_.begin(), placements_.end(), to) != placements_.end()) return;
    placements_.push_back(to);
    all_.push_back(judge_.Of(to, -1));
  }

  // The best move of each single unit, pinned ones too, to show what a pin costs; and the best to
  // where only its unknown memory keeps it from.
  void AddSingles() {
    struct Single {
      double total_s;
      uint32_t unit;
      uint32_t node;
    };
    std::vector<Single> singles;
    Trial trial(graph_, from_.options, from_.at, from_.beside);
    for (uint32_t u = 0; u < graph_.units.size(); ++u) {
      const Unit& unit = graph_.units[u];
      const uint32_t home = from_.at[unit.objects.front()];
      for (const absl::Span<const uint32_t> targets :
           {absl::MakeConstSpan(unit.targets), absl::MakeConstSpan(unit.unknown_targets)}) {
        std::optional<Single> best;
        for (const uint32_t n : targets) {
          if (n == home) continue;
          trial.PutUnit(u, n);
          const Evaluation at = trial.Evaluate();
          trial.PutUnit(u, home);
          if (at.possible && (!best || at.Total() < best->total_s)) best = {at.Total(), u, n};
        }
        if (best) singles.push_back(*best);
      }
    }
    std::stable_sort(singles.begin(), singles.end(),
                     [](const Single& a, const Single& b) { return a.total_s < b.total_s; });
    if (singles.size() > config_.candidates_max) singles.resize(config_.candidates_max);
    for (const Single& single : singles) {
      Placement to = from_.at;
      for (const uint32_t j : graph_.units[single.unit].objects) to[j] = single.node;
      Add(to);
    }
  }

  const Situation& from_;
  const Graph& graph_;
  const Config& config_;
  Judge judge_;
  std::vector<Placement> placements_;
  std::vector<Candidate> all_;
};

// The present first, then what pays, then by net benefit, cut to the limit; a chain's splits as
// they are.
void Order(const Graph& graph, size_t candidates_max, std::vector<Candidate>* candidates) {
  if (graph.chain) return;
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.verdict != Verdict::kPresent, c.verdict != Verdict::kPays,
                      -c.net_benefit_s);
  };
  std::stable_sort(candidates->begin(), candidates->end(),
                   [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  if (candidates->size() > candidates_max) candidates->resize(candidates_max);
}

Placement After(const Graph& graph, const Placement& at, const std::vector<Move>& moves) {
  Placement to = at;
  size_t j = 0;
  for (const Move& move : moves) {  // in the order of the graph's objects
    while (graph.objects[j].statistics->id != move.object) ++j;
    for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n].statistics->node == move.to) to[j] = n;
    }
  }
  return to;
}

// Goes on from the best candidate as long as something pays from there: what was found only from
// there is a candidate from here as well (README, "Invariants"). So nothing pays once it is done.
Placement Goal(const Graph& graph, const Situation& present, const Placement& first,
               const Snapshot& snapshot, const Config& config, uint32_t server) {
  Placement goal = first;
  Situation situation = present;
  for (int step = 0; step < kStepsMax; ++step) {
    situation = situation.MovedTo(goal);
    const std::vector<Candidate> next = Candidates(situation, snapshot, config, server).All();
    const std::optional<size_t> best = Best(next, config.confidence_z);
    if (!best) break;
    goal = After(graph, goal, next[*best].moves);
  }
  return goal;
}

}  // namespace

Decision Decide(const Snapshot& snapshot, const Config& config) {
  Decision decision;
  decision.console = snapshot.console;
  if (const absl::Status status = Validate(config); !status.ok()) {
    return Refuse(std::move(decision), Reason::kBadConfig,
                  absl::StrCat("the configuration is not valid: ", status.message()));
  }
  decision.window_s = config.window_s;
  decision.b_thresh = config.b_thresh;
  decision.confidence_z = config.confidence_z;
  decision.cpu_share_max = config.cpu_share_max;

  const SnapshotReader::Graphs read = SnapshotReader(snapshot, {}, config).ReadAll();
  const SnapshotReader::Console& console = read.consoles.front();
  if (console.refusal) {
    return Refuse(std::move(decision), console.refusal->reason, console.refusal->detail);
  }
  const Graph& graph = read.graphs[console.graph];
  DescribeStack(graph, &decision);

  const uint32_t server = ServerOf(graph);
  const Situation present = Situation::Of(graph, FixedPointOptionsOf(config));
  Candidates candidates(present, snapshot, config, server);
  decision.candidates = candidates.All();
  decision.present = candidates.judge().present();
  const Figures& loads = candidates.judge().at().loads;
  decision.present_loads.assign(loads.begin(), loads.end());
  decision.calls_at_once = CallsAtOnce(graph, candidates.judge().at());
  decision.chosen = Best(decision.candidates, config.confidence_z);
  if (decision.chosen && !graph.chain) {
    const Placement first = After(graph, present.at, decision.candidates[*decision.chosen].moves);
    const Placement goal = Goal(graph, present, first, snapshot, config, server);
    if (goal != first) decision.candidates.push_back(candidates.judge().Of(goal, -1));
  }
  Order(graph, config.candidates_max, &decision.candidates);
  decision.chosen = Best(decision.candidates, config.confidence_z);

  for (const Candidate& candidate : decision.candidates) {
    if (candidate.objects_moved > 0 && !candidate.prediction.converged) ++decision.cut_off;
  }
  if (!decision.present->converged) ++decision.cut_off;
  // Below a nanosecond the activity made no calls, and there is nothing to compare with.
  if (snapshot.measured_t_app_s && *snapshot.measured_t_app_s >= 1e-9) {
    decision.measured_t_app_s = *snapshot.measured_t_app_s * graph.scale;
    decision.model_error = decision.present->response_s / *decision.measured_t_app_s - 1;
  }

  if (decision.chosen && !snapshot.options.suspended) {
    decision.outcome = Outcome::kMove;
    decision.reason = Reason::kNetBenefit;
    decision.moves = decision.candidates[*decision.chosen].moves;
  } else {
    decision.reason = ReasonToStay(decision);
  }
  return decision;
}

std::optional<Candidate> JudgeMoves(const Snapshot& snapshot, absl::Span<const Move> moves,
                                    const Config& config) {
  if (!Validate(config).ok()) return std::nullopt;
  const SnapshotReader::Graphs read = SnapshotReader(snapshot, {}, config).ReadAll();
  const SnapshotReader::Console& console = read.consoles.front();
  if (console.refusal) return std::nullopt;
  const Graph& graph = read.graphs[console.graph];
  Placement to = graph.present;
  for (const Move& move : moves) {
    const auto object =
        std::find_if(graph.objects.begin(), graph.objects.end(),
                     [&](const GraphObject& o) { return o.statistics->id == move.object; });
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const GraphNode& n) {
      return n.statistics->node == move.to;
    });
    if (object == graph.objects.end() || node == graph.nodes.end()) return std::nullopt;
    if (object->statistics->node != move.from) return std::nullopt;
    to[static_cast<size_t>(object - graph.objects.begin())] =
        static_cast<uint32_t>(node - graph.nodes.begin());
  }
  const Situation present = Situation::Of(graph, FixedPointOptionsOf(config));
  Candidate candidate = Judge(present, snapshot.history, config, ServerOf(graph)).Of(to, -1);
  // These three are why it is no target; of others there is no verdict.
  const bool told = candidate.verdict == Verdict::kPinned ||
                    candidate.verdict == Verdict::kAnchored ||
                    candidate.verdict == Verdict::kMemoryUnknown;
  if (!told && !Allowed(graph, graph.present, to)) return std::nullopt;
  return candidate;
}

}  // namespace abacus::placement
