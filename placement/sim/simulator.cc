#include "placement/sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "placement/sim/world.h"

namespace abacus::placement::sim {
namespace {

constexpr double kTimeEps = 1e-9;
// Figures of a sample, for Noisy(): what was counted in it has numbers from 0, levels (cores,
// bytes) from this one, and this is how long a quiesce took.
constexpr uint64_t kFirstLevel = 1'000'000;
constexpr uint64_t kQuiesce = 2'000'000;

// splitmix64 of a few numbers: noise that needs no state, so that one figure's does not depend on
// how many others were drawn before.
double UniformOf(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u;
  for (const uint64_t x : {a, b, c}) {
    z += x + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1p-53;
}

std::vector<size_t> NodesOf(const Cluster& cluster, const Console& console) {
  std::vector<size_t> nodes;
  for (const size_t object : console.objects) {
    if (cluster.objects[object].mobile) continue;
    const size_t node = cluster.objects[object].node;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

// The node of the console's first anchored object beside itself: its server decides.
size_t ServerOf(const Cluster& cluster, const Console& console) {
  for (size_t j = 1; j < console.objects.size(); ++j) {
    if (!cluster.objects[console.objects[j]].mobile)
      return cluster.objects[console.objects[j]].node;
  }
  return cluster.objects[console.objects.front()].node;
}

struct Digest {
  double due_s = 0;
  double end_s = 0;
  Snapshot sample;
};

class Simulator {
 public:
  Simulator(const Cluster& cluster, const Options& options)
      : cluster_(cluster), options_(options), world_(cluster), consoles_(cluster.consoles.size()) {
    for (size_t c = 0; c < cluster.consoles.size(); ++c) {
      consoles_[c].nodes = NodesOf(cluster, cluster.consoles[c]);
      consoles_[c].server = ServerOf(cluster, cluster.consoles[c]);
      consoles_[c].change_s = cluster.consoles[c].starts_s;
      console_of_[IdOf(c)] = c;
      for (const size_t object : cluster.consoles[c].objects)
        index_[ToObjectId(cluster, object)] = object;
    }
  }

  void Place(const std::vector<size_t>& placement) {
    for (size_t o = 0; o < placement.size(); ++o) world_.Place(o, placement[o]);
  }

  Report Run(bool adaptive) {
    const auto ticks =
        static_cast<uint64_t>(std::ceil(options_.duration_s / options_.tick_s - 1e-6));
    for (uint64_t tick = 1; tick <= ticks && !AllEnded(); ++tick) {
      world_.Step(options_.tick_s);
      if (!adaptive) continue;
      EndMoves();
      if (tick % options_.sample_ticks != 0) continue;
      const uint64_t sample = tick / options_.sample_ticks;
      for (size_t c = 0; c < consoles_.size(); ++c) Sample(c, sample);
      if (sample % options_.decision_samples != 0) continue;
      Decide();
    }
    Finish();
    if (options_.memory_bytes && adaptive) {
      const double with_bytes = options_.memory_bytes();
      planners_.clear();
      report_.engine_memory_bytes = with_bytes - options_.memory_bytes();
    }
    return std::move(report_);
  }

 private:
  struct ConsoleRun {
    std::vector<size_t> nodes;
    size_t server = 0;
    bool moving = false;
    double move_ends_s = 0;
    double sampled_s = 0;
    bool sampled = false;
    // The last change of phase that a move was counted for.
    double change_s = 0;
    bool reacted = false;
    std::deque<Digest> digests;
    bool fresh = false;
    bool forgotten = false;
  };

  template <typename F>
  void Timed(F f) {
    const double before_s = options_.cpu_s ? options_.cpu_s() : 0;
    f();
    if (options_.cpu_s) report_.engine_cpu_s += options_.cpu_s() - before_s;
  }

  bool AllEnded() const {
    for (size_t c = 0; c < consoles_.size(); ++c) {
      if (!world_.Ended(c)) return false;
    }
    return true;
  }

  Planner& PlannerOf(size_t server) {
    std::unique_ptr<Planner>& planner = planners_[server];
    if (planner == nullptr) planner = std::make_unique<Planner>(options_.config, options_.planner);
    return *planner;
  }

  double Noisy(double value, size_t console, uint64_t figure) const {
    if (options_.noise == 0) return value;
    const auto draw = static_cast<uint64_t>(world_.now_s() / options_.noise_holds_s + kTimeEps);
    const double u = UniformOf(options_.seed, console, figure, draw);
    return value * (1 + options_.noise * (2 * u - 1));
  }

  uint64_t NoisyBytes(uint64_t bytes, size_t console, uint64_t figure) const {
    return static_cast<uint64_t>(std::llround(Noisy(static_cast<double>(bytes), console, figure)));
  }

  Snapshot MakeSample(size_t c, double length_s);
  void Corrupt(size_t c, uint64_t sample, Snapshot* s) const;
  void Sample(size_t c, uint64_t sample);
  void Decide();
  void CarryOut(size_t c, const Decision& decision);
  void EndMoves();
  void Finish();
  ObjectId IdOf(size_t c) const { return ToObjectId(cluster_, cluster_.consoles[c].objects[0]); }

  const Cluster& cluster_;
  const Options& options_;
  World world_;
  std::vector<ConsoleRun> consoles_;
  std::vector<size_t> moving_;
  absl::flat_hash_map<size_t, std::unique_ptr<Planner>> planners_;
  absl::flat_hash_map<ObjectId, size_t> index_;
  absl::flat_hash_map<ObjectId, size_t> console_of_;
  struct Came {
    size_t from = 0;
    uint64_t phase_changes = 0;
  };
  absl::flat_hash_map<size_t, Came> came_;  // by object: its last move
  Report report_;
};

Snapshot Simulator::MakeSample(size_t c, double length_s) {
  const Console& console = cluster_.consoles[c];
  const Usage usage = world_.TakeUsage(c);
  Snapshot s;
  s.window_s = length_s;
  s.console = IdOf(c);
  s.measured_t_app_s = std::min(length_s, Noisy(usage.active_s, c, 0));
  uint64_t figure = 1;
  uint64_t level = kFirstLevel;
  for (const size_t n : consoles_[c].nodes) {
    const Node& node = cluster_.nodes[n];
    NodeStatistics& stats = s.nodes.emplace_back();
    stats.node = ToNodeId(n);
    stats.is_server = node.is_server;
    stats.rate = Noisy(node.rate, c, figure++);
    stats.cores = node.cores;
    stats.load = Noisy(world_.Load(n), c, figure++);
    if (!node.memory_bytes) continue;
    stats.memory_bytes = Noisy(*node.memory_bytes, c, level++);
    stats.memory_free_bytes = Noisy(world_.FreeMemory(n), c, level++);
  }
  for (size_t i = 0; i < consoles_[c].nodes.size(); ++i) {
    for (size_t j = i + 1; j < consoles_[c].nodes.size(); ++j) {
      const size_t a = consoles_[c].nodes[i];
      const size_t b = consoles_[c].nodes[j];
      LinkStatistics& link = s.links.emplace_back();
      link.a = ToNodeId(a);
      link.b = ToNodeId(b);
      link.bandwidth_bytes_s = Noisy(world_.Bandwidth(a, b), c, figure++);
      link.round_trip_s = Noisy(world_.RoundTrip(a, b), c, figure++);
      link.measured_bytes = 1e6;
    }
  }
  for (size_t j = 0; j < console.objects.size(); ++j) {
    const Object& object = cluster_.objects[console.objects[j]];
    ObjectStatistics& stats = s.objects.emplace_back();
    stats.id = ToObjectId(cluster_, console.objects[j]);
    stats.class_name = object.class_name;
    stats.node = ToNodeId(world_.NodeOf(console.objects[j]));
    stats.mobile = object.mobile;
    stats.cpu_s = Noisy(usage.cpu_s[j], c, figure++);
    stats.own_stall_s = Noisy(usage.stall_s[j], c, figure++);
    stats.checkpoint_bytes = NoisyBytes(object.checkpoint_bytes, c, level++);
    stats.memory_bytes = NoisyBytes(object.memory_bytes, c, level++);
  }
  for (size_t e = 0; e < console.edges.size(); ++e) {
    EdgeStatistics& edge = s.edges.emplace_back();
    edge.from = s.objects[console.edges[e].from].id;
    edge.to = s.objects[console.edges[e].to].id;
    edge.calls = Noisy(usage.edges[e].calls, c, figure++);
    edge.request_bytes = Noisy(usage.edges[e].request_bytes, c, figure++);
    edge.reply_bytes = Noisy(usage.edges[e].reply_bytes, c, figure++);
  }
  return s;
}

// One figure that is not true: impossible, out of all range, contradicting, or just wrong.
void Simulator::Corrupt(size_t c, uint64_t sample, Snapshot* s) const {
  const auto draw = [&](uint64_t what) { return UniformOf(options_.seed + 1, c, sample, what); };
  if (options_.lying == 0 || draw(0) >= options_.lying) return;
  ObjectStatistics& object = s->objects[static_cast<size_t>(draw(1) * 0.999 * s->objects.size())];
  EdgeStatistics& edge = s->edges[static_cast<size_t>(draw(2) * 0.999 * s->edges.size())];
  NodeStatistics& node = s->nodes[static_cast<size_t>(draw(3) * 0.999 * s->nodes.size())];
  switch (static_cast<int>(draw(4) * 8)) {
    case 0:
      object.cpu_s = std::numeric_limits<double>::quiet_NaN();
      break;
    case 1:
      edge.reply_bytes = -1e6;
      break;
    case 2:
      node.load = std::numeric_limits<double>::infinity();
      break;
    case 3:
      object.cpu_s = 1e9;
      break;
    case 4:
      edge.reply_bytes = 1e15;
      break;
    case 5:
      node.load *= 1000;
      break;
    case 6:
      if (!s->links.empty()) s->links[0].bandwidth_bytes_s = 1e3;
      break;
    default:
      node.rate = 0;
  }
}

void Simulator::Sample(size_t c, uint64_t sample) {
  ConsoleRun& run = consoles_[c];
  const double now_s = world_.now_s();
  if (!world_.Running(c)) {
    if (world_.Ended(c) && !run.forgotten) {
      Timed([&] { PlannerOf(run.server).Forget(IdOf(c)); });
      run.forgotten = true;
    }
    return;
  }
  if (run.moving) return;
  if (!run.sampled) {
    run.sampled = true;
    run.sampled_s =
        std::max(cluster_.consoles[c].starts_s, now_s - options_.tick_s * options_.sample_ticks);
  }
  const double length_s = now_s - run.sampled_s;
  if (length_s <= kTimeEps) return;
  run.sampled_s = now_s;
  Digest digest{.due_s = now_s + options_.digest_delay_s, .end_s = now_s};
  digest.sample = MakeSample(c, length_s);
  Corrupt(c, sample, &digest.sample);
  const bool lost = options_.lost > 0 && UniformOf(options_.seed + 2, c, sample, 0) < options_.lost;
  if (!lost) run.digests.push_back(std::move(digest));
  while (!run.digests.empty() && run.digests.front().due_s <= now_s + kTimeEps) {
    const Digest& due = run.digests.front();
    Timed([&] { PlannerOf(run.server).Observe(due.sample, due.end_s, now_s).IgnoreError(); });
    run.fresh = true;
    run.digests.pop_front();
  }
}

// Each server decides on all consoles of which it has a new digest.
void Simulator::Decide() {
  std::map<size_t, std::vector<ObjectId>> fresh;
  for (size_t c = 0; c < consoles_.size(); ++c) {
    ConsoleRun& run = consoles_[c];
    if (!run.fresh || run.moving || !world_.Running(c)) continue;
    run.fresh = false;
    fresh[run.server].push_back(IdOf(c));
  }
  for (const auto& of_server : fresh) {  // no binding: C++20 lambdas of clang 14 capture none
    std::vector<Planner::Decided> decided;
    Timed([&] {
      decided = PlannerOf(of_server.first).DecideRound(of_server.second, world_.now_s());
    });
    report_.decisions += decided.size();
    for (const Planner::Decided& one : decided) {
      if (one.decision.outcome != placement::Outcome::kMove) continue;
      CarryOut(console_of_.at(one.decision.console), one.decision);
    }
  }
}

void Simulator::CarryOut(size_t c, const Decision& decision) {
  ConsoleRun& run = consoles_[c];
  const double now_s = world_.now_s();
  if (world_.PhaseSince(c) != run.change_s) {
    run.change_s = world_.PhaseSince(c);
    run.reacted = false;
  }
  if (!run.reacted) report_.reaction_s.push_back(now_s - run.change_s);
  run.reacted = true;
  std::vector<std::pair<size_t, std::vector<size_t>>> by_target;
  for (const Move& move : decision.moves) {
    const size_t object = index_.at(move.object);
    const size_t to = move.to - 1;
    report_.moves.push_back({.at_s = now_s,
                             .console = c,
                             .object = object,
                             .from = world_.NodeOf(object),
                             .to = to,
                             .reason = decision.reason,
                             .explanation = decision.Explanation(),
                             .since_change_s = now_s - run.change_s});
    Came& came = came_[object];
    if (came.phase_changes == world_.PhaseChanges(c) + 1 && came.from == to) ++report_.reversals;
    came = {world_.NodeOf(object), world_.PhaseChanges(c) + 1};
    auto it = std::find_if(by_target.begin(), by_target.end(),
                           [&](const auto& target) { return target.first == to; });
    if (it == by_target.end()) it = by_target.insert(it, {to, {}});
    it->second.push_back(object);
  }
  double blackout_s = 0;
  for (const auto& [to, objects] : by_target) {
    blackout_s = std::max(blackout_s, world_.Move(objects, to, options_.quiesce_s));
  }
  for (size_t i = 0; i < decision.moves.size(); ++i) {
    report_.moves[report_.moves.size() - 1 - i].blackout_s = blackout_s;
  }
  run.moving = true;
  run.move_ends_s = now_s + blackout_s;
  run.digests.clear();
  moving_.push_back(c);
}

void Simulator::EndMoves() {
  std::erase_if(moving_, [&](size_t c) {
    ConsoleRun& run = consoles_[c];
    if (world_.now_s() < run.move_ends_s - kTimeEps) return false;
    run.moving = false;
    // The node's window begins anew: what was used in the rest of this tick is of both.
    world_.TakeUsage(c);
    run.sampled_s = world_.now_s();
    Timed([&] {
      PlannerOf(run.server)
          .OnMoveEnded(IdOf(c), true, Noisy(options_.quiesce_s, c, kQuiesce), world_.now_s());
    });
    return true;
  });
}

void Simulator::Finish() {
  double elapsed_s = 0;
  double ideal_s = 0;
  for (size_t c = 0; c < consoles_.size(); ++c) {
    double own_s = 0;
    for (size_t p = 0; p < cluster_.consoles[c].phases.size(); ++p) {
      own_s += world_.UnitsByPhase(c)[p] * BestUnitTime(world_, cluster_, c, p);
    }
    elapsed_s += world_.ElapsedOf(c);
    report_.elapsed_s.push_back(world_.ElapsedOf(c));
    ideal_s += own_s;
    if (own_s > 0) {
      report_.worst_slowdown = std::max(report_.worst_slowdown, world_.ElapsedOf(c) / own_s);
    }
    report_.ended += world_.Ended(c) ? 1 : 0;
    report_.phase_changes += world_.PhaseChanges(c);
    report_.retries += world_.RetriesOf(c);
  }
  for (size_t o = 0; o < cluster_.objects.size(); ++o) {
    report_.placement.push_back(world_.NodeOf(o));
  }
  report_.slowdown = ideal_s > 0 ? elapsed_s / ideal_s : 0;
  report_.mean_elapsed_s = elapsed_s / static_cast<double>(std::max<size_t>(1, consoles_.size()));
  report_.simulated_s = world_.now_s();
  report_.by_reason.assign(AllReasons().size(), 0);
  std::sort(report_.reaction_s.begin(), report_.reaction_s.end());
  for (const auto& [server, planner] : planners_) {
    report_.errors.Pool(planner->present_error());
    report_.move_errors.Pool(planner->move_error());
    const Planner::Counters& counters = planner->counters();
    report_.audits += counters.audits;
    report_.counters.samples_refused += counters.samples_refused;
    report_.counters.samples_late += counters.samples_late;
    report_.counters.clock_steps += counters.clock_steps;
    report_.counters.audits += counters.audits;
    report_.counters.audits_dropped += counters.audits_dropped;
    report_.counters.undone += counters.undone;
    report_.counters.undos_held_back += counters.undos_held_back;
    report_.counters.graphs_evicted += counters.graphs_evicted;
    report_.counters.moves_failed += counters.moves_failed;
    for (const Reason reason : AllReasons()) {
      report_.by_reason[static_cast<size_t>(reason)] += planner->DecisionsFor(reason);
    }
  }
}

}  // namespace

Report RunAdaptive(const Cluster& cluster, const Options& options) {
  return Simulator(cluster, options).Run(true);
}

Report RunStatic(const Cluster& cluster, const Options& options,
                 const std::vector<size_t>& placement) {
  Simulator simulator(cluster, options);
  simulator.Place(placement);
  return simulator.Run(false);
}

}  // namespace abacus::placement::sim
