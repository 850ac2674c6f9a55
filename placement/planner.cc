#include "placement/planner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/engine.h"
#include "placement/planner_terms.h"
#include "placement/plausibility.h"

namespace abacus::placement {
namespace {

// Times further than this from each other are a clock that stepped and not a pause.
constexpr double kTimeMax = 1e12;
// Part of the graphs that go when there are too many, so that looking for them is rare.
constexpr size_t kEvictedPart = 8;
// Windows from which on their differences tell how much windows differ.
constexpr double kDeviationWindows = 3;
// A price is wrong for the mix if the figure has changed by more than this: the link is another
// one.
constexpr double kPriceDrift = 4;
// Places of objects and edges that are gone, beyond as many as there are, before they are cleared.
constexpr size_t kPlacesSpare = 64;

bool Sane(double x) { return std::isfinite(x) && x >= 0; }

bool AllSane(const Snapshot& s) {
  if (!Sane(s.window_s) || s.window_s <= 0 || !Sane(s.measured_t_app_s.value_or(0))) return false;
  for (const auto& node : s.nodes) {
    if (!Sane(node.load) || !Sane(node.rate) || !Sane(node.cores) || !Sane(node.contention)) {
      return false;
    }
  }
  for (const auto& o : s.objects) {
    for (const auto figure : kObjectSums) {
      if (!Sane(o.*figure)) return false;
    }
  }
  for (const auto& e : s.edges) {
    for (const auto figure : kEdgeSums) {
      if (!Sane(e.*figure)) return false;
    }
  }
  for (const auto& link : s.links) {
    if (!Sane(link.bandwidth_bytes_s.value_or(0)) || !Sane(link.round_trip_s.value_or(0))) {
      return false;
    }
  }
  return true;
}

}  // namespace

Planner::Planner(const Config& config, const PlannerConfig& planner_config)
    : config_(config),
      planner_(planner_config),
      valid_(Validate(planner_config)),
      corrections_(planner_config.corrections_max, planner_config.correction_max,
                   planner_config.correction_half_life * config.window_s),
      present_error_(planner_config.errors_max),
      move_error_(planner_config.errors_max) {}

absl::Status Planner::SetConfig(const Config& config, const PlannerConfig& planner_config) {
  if (absl::Status status = Validate(config); !status.ok()) return status;
  if (absl::Status status = Validate(planner_config); !status.ok()) return status;
  config_ = config;
  planner_ = planner_config;
  valid_ = absl::OkStatus();
  corrections_.SetLimits(planner_.corrections_max, planner_.correction_max,
                         planner_.correction_half_life * config_.window_s);
  present_error_.SetLimit(planner_.errors_max);
  move_error_.SetLimit(planner_.errors_max);
  for (auto& [console, graph] : graphs_) {
    graph->history.SetSamplesMax(planner_.samples_max);
    graph->phases.SetConfig(planner_.phases, config_.window_s);
  }
  return absl::OkStatus();
}

std::optional<double> Planner::Now(double now_s) {
  if (!std::isfinite(now_s) || std::abs(now_s) > kTimeMax) {
    ++counters_.clock_steps;
    return std::nullopt;
  }
  double now = now_s + clock_offset_s_;
  if (started_ && now < last_now_s_) {
    // All times that are kept go on from where they were; how long the step was is not known.
    ++counters_.clock_steps;
    clock_offset_s_ += last_now_s_ - now;
    return std::nullopt;
  }
  started_ = true;
  last_now_s_ = now;
  return now;
}

Planner::Graph& Planner::GraphOf(const ObjectId& console) {
  std::unique_ptr<Graph>& graph = graphs_[console];
  if (graph == nullptr) {
    graph = std::make_unique<Graph>(planner_.samples_max, planner_.phases, config_.window_s);
  }
  graph->used = ++uses_;
  Graph& found = *graph;
  if (graphs_.size() > planner_.graphs_max) EvictGraphs();
  return found;
}

void Planner::EvictGraphs() {
  std::vector<uint64_t> used;
  for (const auto& [console, graph] : graphs_) used.push_back(graph->used);
  const size_t evicted = std::max<size_t>(1, used.size() / kEvictedPart);
  std::nth_element(used.begin(), used.begin() + static_cast<ptrdiff_t>(evicted), used.end());
  const uint64_t kept_from = used[evicted];
  absl::erase_if(graphs_, [&](const auto& entry) {
    // Not one under way: its end has to be known, or an object would be moved twice at once.
    const bool goes = entry.second->used < kept_from && !entry.second->moving;
    counters_.graphs_evicted += goes ? 1 : 0;
    return goes;
  });
}

// Returns whether there are prices at all; new ones where they were wrong.
bool Planner::SetPrices(const Snapshot& sample, Prices* prices) {
  double rate = 0;
  for (const auto& node : sample.nodes)
    rate += node.rate / static_cast<double>(sample.nodes.size());
  double bandwidth = 0;
  double round_trip = 0;
  for (const auto& link : sample.links) {
    const double known = link.bandwidth_bytes_s.value_or(0);
    if (known <= 0 || (bandwidth > 0 && known >= bandwidth)) continue;
    bandwidth = known;
    round_trip = link.round_trip_s.value_or(0);
  }
  const auto off = [](double price, double now) {
    return price <= 0 || now > kPriceDrift * price || price > kPriceDrift * now;
  };
  if (rate > 0 && bandwidth > 0 &&
      (off(prices->rate, rate) || off(prices->bandwidth_bytes_s, bandwidth))) {
    *prices = {rate, bandwidth, round_trip};
  }
  return prices->rate > 0;
}

// What each object and then each edge did, in reference seconds.
std::vector<double> Planner::CostsOf(const Prices& prices, const Snapshot& snapshot) {
  std::vector<double> mix;
  for (const auto& object : snapshot.objects) {
    double rate = 0;
    for (const auto& node : snapshot.nodes) {
      if (node.node == object.node) rate = node.rate;
    }
    mix.push_back(WorkOf(object.cpu_s, rate) / prices.rate);
  }
  for (const auto& edge : snapshot.edges) {
    mix.push_back(edge.calls * prices.round_trip_s +
                  (edge.request_bytes + edge.reply_bytes) / prices.bandwidth_bytes_s);
  }
  return mix;
}

// The same, each at the place that it has had in all samples of the graph.
std::vector<double> Planner::MixOf(Graph& graph, const Snapshot& snapshot) {
  std::vector<std::pair<ObjectId, ObjectId>> names;
  for (const auto& object : snapshot.objects) names.emplace_back(object.id, ObjectId());
  for (const auto& edge : snapshot.edges) names.emplace_back(edge.from, edge.to);
  if (graph.places.size() > 2 * names.size() + kPlacesSpare) {
    std::vector<size_t> kept;
    decltype(graph.places) places;
    for (const auto& name : names) {
      const auto known = graph.places.find(name);
      if (known == graph.places.end() || !places.try_emplace(name, kept.size()).second) continue;
      kept.push_back(known->second);
    }
    graph.phases.Keep(kept);
    graph.places = std::move(places);
  }
  for (const auto& name : names) graph.places.try_emplace(name, graph.places.size());
  const std::vector<double> costs = CostsOf(graph.prices, snapshot);
  std::vector<double> mix(graph.places.size(), 0);
  for (size_t i = 0; i < costs.size(); ++i) mix[graph.places.at(names[i])] += costs[i];
  return mix;
}

// The amount of work, by calls and bytes alone: CPU times are what corrections are about.
double Planner::AmountOf(const Prices& prices, const Snapshot& snapshot) {
  if (prices.rate <= 0) return 0;
  const std::vector<double> mix = CostsOf(prices, snapshot);
  return std::accumulate(mix.begin() + static_cast<ptrdiff_t>(snapshot.objects.size()), mix.end(),
                         0.0);
}

absl::Status Planner::Observe(Snapshot sample, double end_s, double now_s) {
  const std::optional<double> now = Now(now_s);
  end_s += clock_offset_s_;
  if (!now || !AllSane(sample) || !std::isfinite(end_s)) {
    ++counters_.samples_refused;
    ++(now ? counters_.samples_bad_figure : counters_.samples_at_clock_step);
    return absl::InvalidArgumentError("a figure of the sample is negative or not a number");
  }
  if (std::none_of(sample.objects.begin(), sample.objects.end(),
                   [&](const auto& object) { return object.id == sample.console; })) {
    ++counters_.samples_refused;
    ++counters_.samples_without_console;
    return absl::InvalidArgumentError("the sample does not hold its console");
  }
  Graph& graph = GraphOf(sample.console);
  const double begin_s = end_s - sample.window_s;
  const double slack_s = 0.5 * sample.window_s;
  if (end_s > *now + slack_s || begin_s < *now - 3 * config_.window_s ||
      (!graph.history.empty() && begin_s < graph.history.end_s() - slack_s)) {
    ++counters_.samples_late;
    return absl::OutOfRangeError("the sample is too old, of the future, or overlaps the last one");
  }
  // What was seen before the end of a move, or during it, is of no placement.
  if (begin_s < graph.window_from_s - slack_s) return absl::OkStatus();
  graph.history.Add(std::move(sample), end_s);
  if (SetPrices(graph.history.latest(), &graph.prices)) {
    graph.phases.Add(MixOf(graph, graph.history.latest()), begin_s, end_s);
  }
  return absl::OkStatus();
}

double Planner::SinceOf(const Graph& graph, double now_s) const {
  const double phase_s = graph.phases.changes() > 0 ? graph.phases.since_s() : -1e300;
  return std::max({graph.window_from_s, phase_s, now_s - config_.window_s});
}

Decision Planner::Count(Decision decision) {
  ++by_reason_[static_cast<size_t>(decision.reason)];
  return decision;
}

Planner::Proposal Planner::ProposeFor(const ObjectId& console, std::optional<double> now) {
  Proposal proposal;
  Decision& decision = proposal.decision;
  decision.console = console;
  if (!now) {
    Refuse(Reason::kClockStepped, "the time is before that of the last decision", &decision);
    return proposal;
  }
  const auto it = graphs_.find(console);
  if (it == graphs_.end() || it->second->history.empty() ||
      it->second->history.end_s() < *now - config_.window_s) {
    Refuse(Reason::kTooLittleEvidence, "nothing was seen of the graph in the last window",
           &decision);
    return proposal;
  }
  Graph& graph = *it->second;
  // The window ends with the last sample, which may be some delay old.
  return Propose(graph, graph.history.Window(SinceOf(graph, graph.history.end_s())), *now);
}

Decision Planner::Decide(const ObjectId& console, double now_s) {
  const std::optional<double> now = Now(now_s);
  Proposal proposal = ProposeFor(console, now);
  Conclude(now.value_or(0), &proposal);
  return Count(std::move(proposal.decision));
}

Decision Planner::Decide(const Snapshot& window, double now_s) {
  const std::optional<double> now = Now(now_s);
  if (!now) {
    Decision decision;
    decision.console = window.console;
    Refuse(Reason::kClockStepped, "the time is before that of the last decision", &decision);
    return Count(std::move(decision));
  }
  Graph& graph = GraphOf(window.console);
  const bool changed = !graph.history.empty() && graph.phases.changes() > 0 &&
                       graph.phases.since_s() > *now - window.window_s;
  Snapshot seen = changed ? graph.history.Window(SinceOf(graph, *now)) : window;
  Proposal proposal = Propose(graph, std::move(seen), *now);
  Conclude(*now, &proposal);
  return Count(std::move(proposal.decision));
}

// Windows of work that are left of the phase, at the present speed; H where nobody knows. A move
// into a phase that ends is paid there and back, which is to halve the work that has to pay it.
//   Insert phases took 8 reference seconds, 2 are done; the graph does 1.5 a second: 6 / 1.5 = 4 s,
//   so with H = 1 s a move has to pay within 2 windows of work.
double Planner::Horizon(const Graph& graph, const Snapshot& window) const {
  const double h = config_.window_s;
  const std::optional<double> remaining = graph.phases.RemainingRefS();
  if (!remaining || graph.history.empty()) return h;
  const std::vector<double> mix = CostsOf(graph.prices, window);
  const double speed = std::accumulate(mix.begin(), mix.end(), 0.0) / window.window_s;
  if (!(speed > 0)) return h;
  const double windows = *remaining / (speed * h) / planner_.moves_per_phase;
  // Beyond both ends the rule does not change any more: all cost, or none.
  return std::clamp(windows, 0.01, planner_.horizon_windows_max) * h;
}

// Candidates with the corrections of what moves; the present placement needs none, as its CPU times
// were measured where they are.
void Planner::Correct(double now_s, Decision* decision) const {
  if (corrections_.empty() || !decision->present) return;
  for (Candidate& c : decision->candidates) {
    double extra_s = 0;
    for (const Move& move : c.moves) {
      const StackObject* object = StackObjectOf(*decision, move.object);
      const NodeStatistics* to = NodeOf(*decision, move.to);
      if (object == nullptr || to == nullptr) continue;
      const double factor = corrections_.Factor(object->class_name, move.to, now_s) /
                            corrections_.Factor(object->class_name, move.from, now_s);
      const double cpu_s = object->layer.work / to->rate *
                           SlowDown(LoadOf(*decision, c, move.to), to->cores, to->contention);
      extra_s += (factor - 1) * cpu_s;
      const bool at_client = move.to == decision->client.node;
      (at_client ? c.prediction.terms.client_cpu_s : c.prediction.terms.server_cpu_s) +=
          (factor - 1) * cpu_s;
    }
    if (extra_s == 0) continue;
    // Its reason was given on the figures as they are yet.
    if (decision->outcome == Outcome::kStay && decision->explained.empty()) {
      decision->explained = decision->Explanation();
    }
    c.prediction.response_s += extra_s;
    c.benefit_s -= extra_s;
    c.net_benefit_s -= extra_s;
    c.threshold_s = decision->b_thresh * c.prediction.response_s;
    const bool both = decision->present->converged && c.prediction.converged;
    c.above_threshold = both && c.net_benefit_s > c.threshold_s;
    if (!Comparable(c)) continue;
    c.verdict = c.benefit_s <= 0                                ? Verdict::kSlower
                : !c.above_threshold                            ? Verdict::kBelowThreshold
                : SureNetBenefit(*decision, c) <= c.threshold_s ? Verdict::kUncertain
                                                                : Verdict::kPays;
  }
}

void Planner::Settle(Graph& graph, const Snapshot& window, double now_s, Decision* decision) const {
  const auto gain = [](const Candidate& c) { return c.net_benefit_s / c.prediction.response_s; };
  Settled& settled = graph.settled;
  settled.sure = false;
  Candidate* best = nullptr;
  Candidate* followed = nullptr;
  for (Candidate& c : decision->candidates) {
    if (!Comparable(c)) continue;
    if (best == nullptr || c.net_benefit_s > best->net_benefit_s) best = &c;
    if (c.moves == settled.moves) followed = &c;
  }
  if (best == nullptr || window.window_s < planner_.whole_window * config_.window_s) return;
  // Followed through good windows and bad: a mean of the good ones alone is always a gain.
  if (followed == nullptr || settled.phase_changes != graph.phases.changes() ||
      gain(*best) > gain(*followed) + planner_.settled_thresh) {
    settled = {.moves = best->moves, .phase_changes = graph.phases.changes()};
    followed = best;
  }
  best = followed;
  if (now_s - settled.at_s >= planner_.whole_window * config_.window_s) {
    // Welford's recurrence, of one value a window, as values of overlapping windows are one.
    if (settled.windows >= kDeviationWindows) {
      settled.deviation = std::sqrt(settled.squares / (settled.windows - 1));
    }
    settled.at_s = now_s;
    ++settled.windows;
    const double off = gain(*best) - settled.mean;
    settled.mean += off / settled.windows;
    settled.squares += off * (gain(*best) - settled.mean);
  }
  if (settled.windows < planner_.settled_windows || planner_.settled_thresh >= decision->b_thresh ||
      std::any_of(decision->nodes.begin(), decision->nodes.end(), [&](const NodeStatistics& node) {
        return LoadOf(*decision, *best, node.node) > node.cores;
      })) {
    return;
  }
  const double deviation = std::sqrt(settled.squares / (settled.windows - 1) / settled.windows);
  const double sure = settled.mean - config_.confidence_z * deviation;
  const double back = TakesBack(graph, best->moves) ? planner_.hysteresis : 1;
  if (sure <= back * planner_.settled_thresh) return;
  best->threshold_s = planner_.settled_thresh * best->prediction.response_s;
  best->above_threshold = best->net_benefit_s > best->threshold_s;
  if (!best->above_threshold) return;
  best->verdict = Verdict::kPays;
  settled.sure = true;
}

bool Planner::TakesBack(const Graph& graph, const std::vector<Move>& moves) const {
  // What was ejected may return: it did not leave for its own sake.
  if (!graph.last_move || graph.last_move->ejected) return false;
  if (graph.last_move->phase_changes != graph.phases.changes()) return false;
  return std::any_of(moves.begin(), moves.end(), [&](const Move& move) {
    return std::any_of(
        graph.last_move->moves.begin(), graph.last_move->moves.end(),
        [&](const Move& last) { return last.object == move.object && last.from == move.to; });
  });
}

std::optional<Reason> Planner::WhyNot(const Graph& graph, const Snapshot& window,
                                      const Decision& decision, size_t candidate) const {
  const Candidate& c = decision.candidates[candidate];
  double deviation_s = c.benefit_deviation_s;
  if (graph.settled.moves == c.moves && graph.settled.phase_changes == graph.phases.changes()) {
    // Confidence and hysteresis were asked of the mean of many windows, which one window is part
    // of.
    if (graph.settled.sure) return std::nullopt;
    deviation_s = std::max(deviation_s, graph.settled.deviation * c.prediction.response_s);
  }
  const double margin_s = decision.confidence_z * deviation_s;
  if (window.window_s < planner_.whole_window * config_.window_s) {
    const double sure_s = decision.present->response_s - margin_s;
    const bool seen = window.window_s >= 0.99 * planner_.fast_window * config_.window_s;
    if (!seen || sure_s <= planner_.fast_gain * c.prediction.response_s ||
        CallsBehind(window, c.moves) <= planner_.fast_calls) {
      return Reason::kWaitsForWindow;
    }
  }
  if (c.net_benefit_s - margin_s <= c.threshold_s) return Reason::kUncertain;
  if (TakesBack(graph, c.moves) &&
      c.net_benefit_s - margin_s <= planner_.hysteresis * c.threshold_s) {
    return Reason::kHysteresis;
  }
  return std::nullopt;
}

// Chooses the best of those that pay and pass; where none passes, the best, and why it does not.
std::optional<Reason> Planner::Choose(const Graph& graph, const Snapshot& window,
                                      Decision* decision) const {
  std::vector<size_t> paying;
  for (size_t i = 0; i < decision->candidates.size(); ++i) {
    if (decision->candidates[i].verdict == Verdict::kPays) paying.push_back(i);
  }
  std::stable_sort(paying.begin(), paying.end(), [&](size_t a, size_t b) {
    return decision->candidates[a].net_benefit_s > decision->candidates[b].net_benefit_s;
  });
  decision->chosen.reset();
  if (paying.empty()) return std::nullopt;
  decision->chosen = paying.front();
  std::optional<Reason> first;
  for (const size_t i : paying) {
    const std::optional<Reason> reason = WhyNot(graph, window, *decision, i);
    if (!reason) {
      decision->chosen = i;
      return std::nullopt;
    }
    if (!first) first = reason;
  }
  return first;
}

std::optional<Reason> Planner::HoldBack(const Graph& graph, const Decision& decision, double now_s,
                                        bool in_round) const {
  for (const Move& move : decision.moves) {
    if (ledger_.Claimed(move.object, decision.console, now_s)) return Reason::kClaimed;
    if (swings_.Rests(move.object, decision.console, now_s)) return Reason::kCoolDown;
  }
  if (now_s < graph.cool_until_s && graph.last_move) {
    const bool changed = graph.last_move->phase_changes != graph.phases.changes();
    if (!changed || graph.last_move->undo) return Reason::kCoolDown;
  }
  if (!MayTakeTurn(decision, now_s, in_round)) return Reason::kWaitsForTurn;
  return dry_run_ ? std::optional(Reason::kDryRun) : std::nullopt;
}

// Whether it is only the end of the phase that keeps the graph where it is.
bool Planner::ShortensPhase(const Graph& graph, const Snapshot& window,
                            const Decision& decision) const {
  if (decision.reason != Reason::kBelowThreshold && decision.reason != Reason::kPresentIsBest) {
    return false;
  }
  if (Horizon(graph, window) >= config_.window_s) return false;
  return placement::Decide(window, config_).outcome == Outcome::kMove;
}

Planner::Proposal Planner::Propose(Graph& graph, Snapshot window, double now_s) {
  Proposal proposal{.graph = &graph};
  Decision& decision = proposal.decision;
  decision.console = window.console;
  asked_ = window;
  if (!valid_.ok()) {
    Refuse(Reason::kBadConfig, absl::StrCat("the configuration is not valid: ", valid_.message()),
           &decision);
    return proposal;
  }
  if (graph.moving) {
    Refuse(Reason::kMoveUnderWay, WhyHeldBack(Reason::kMoveUnderWay), &decision);
    return proposal;
  }
  if (const auto what = FindContradiction(window)) {
    Refuse(Reason::kImplausible, *what, &decision);
    return proposal;
  }
  ledger_.Trim(now_s, config_.window_s);
  ledger_.Apply(now_s, window.window_s, &window);
  if (window.history.count == 0) window.history = graph.quiesces;
  window.options.suspended = window.options.suspended || suspended_;
  asked_ = window;
  Config config = config_;
  config.window_s = Horizon(graph, window);
  decision = placement::Decide(window, config);
  proposal.window = std::move(window);
  if (decision.present) Weigh(now_s, &proposal);
  return proposal;
}

// What the graph's own past says of the engine's decision.
void Planner::Weigh(double now_s, Proposal* proposal) {
  Graph& graph = *proposal->graph;
  const Snapshot& window = proposal->window;
  Decision& decision = proposal->decision;
  Correct(now_s, &decision);

  const bool whole = window.window_s >= planner_.whole_window * config_.window_s;
  std::string not_back;
  if (whole && AuditLastMove(graph, window, decision, now_s) && !window.options.suspended) {
    not_back = Undo(graph, window, &decision, now_s);
    if (not_back.empty()) return;
  }
  WeighMove(now_s, proposal);
  if (not_back.empty()) return;
  decision.explained =
      absl::StrCat(decision.Explanation(), " Since the last move the same work takes longer than ",
                   "before it, but it is not taken back: ", not_back, ".");
}

// Of a decision that is not to take the last move back.
void Planner::WeighMove(double now_s, Proposal* proposal) {
  Graph& graph = *proposal->graph;
  const Snapshot& window = proposal->window;
  Decision& decision = proposal->decision;
  if (decision.reason == Reason::kSuspended) return;
  const bool engine_moves = decision.outcome == Outcome::kMove;
  Settle(graph, window, now_s, &decision);
  const std::optional<Reason> why_not = Choose(graph, window, &decision);
  if (!decision.chosen) {
    if (engine_moves) {
      Refuse(Reason::kBelowThreshold, "a correction of a rate leaves no split that pays",
             &decision);
    }
    if (ShortensPhase(graph, window, decision)) Hold(Reason::kPhaseTooShort, &decision);
    return;
  }
  decision.outcome = Outcome::kMove;
  decision.reason = Reason::kNetBenefit;
  decision.moves = decision.candidates[*decision.chosen].moves;
  decision.explained.clear();
  if (why_not) {
    Hold(*why_not, &decision);
    return;
  }
  proposal->goes = true;
  // A limit on CPU is one on all together: without a round nobody would see it.
  proposal->harmless =
      config_.cpu_share_max >= 1 && graph.settled.sure && graph.settled.moves == decision.moves;
}

// A proposal that no other console has a say in.
void Planner::Conclude(double now_s, Proposal* proposal) {
  if (!std::exchange(proposal->goes, false)) return;
  Decision& decision = proposal->decision;
  if (const std::optional<Reason> held = HoldBack(*proposal->graph, decision, now_s)) {
    Hold(*held, &decision);
  } else {
    LetGo(*proposal->graph, proposal->window, decision, now_s);
  }
}

}  // namespace abacus::placement
