#include "runtime/testing/simulator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace abacus::runtime::sim {
namespace {

// Everything that is under way must end within this, once the network is whole.
constexpr Nanos kRestLimit = 5'000 * kMs;

class Simulation {
 public:
  Simulation(const SimulationOptions& options, const SimCoresFactory& factory)
      : options_(options), world_(options.world, factory) {}

  SimulationResult Run();

 private:
  SimRandom& random() { return world_.random(); }
  bool working() const { return world_.now() < end_; }

  void StartNode(NodeId id);
  // Repeats `task` at random intervals while the work lasts.
  void Every(Nanos mean, void (Simulation::*task)());
  std::vector<NodeId> Living();

  Script RandomScript(uint32_t depth, std::vector<size_t>& outer);
  void NextCall(SimNode& node, uint64_t thread);

  void MoveSomething();
  void DestroySomething();
  void CrashSomething();
  void CutSomething();
  void Heal(NodeId a, NodeId b);
  void ComeToRest();
  void CallEverything();
  void CheckLastCall(const CallRecord& call);

  const SimulationOptions options_;
  SimWorld world_;
  Nanos end_ = 0;
};

SimulationResult Simulation::Run() {
  end_ = world_.now() + options_.duration_ns;
  world_.on_root_idle = [this](SimNode& node, uint64_t thread) {
    if (!working()) return;
    const Nanos think = random().Between(0, options_.think_max_ns);
    world_.AfterAt(node.self(), think, [this, thread](SimNode& n) { NextCall(n, thread); });
  };
  for (NodeId id = 1; id <= options_.nodes; ++id) StartNode(id);
  Every(options_.move_every_ns, &Simulation::MoveSomething);
  Every(options_.destroy_every_ns, &Simulation::DestroySomething);
  Every(options_.crash_every_ns, &Simulation::CrashSomething);
  Every(options_.cut_every_ns, &Simulation::CutSomething);
  world_.RunFor(options_.duration_ns);
  ComeToRest();
  if (!world_.oracle().failed()) CallEverything();
  world_.CollectCounters();
  ++world_.stats()[Stat::kSeeds];
  SimulationResult result;
  result.ok = !world_.oracle().failed();
  result.check = world_.oracle().check();
  result.what = world_.oracle().what();
  result.stats = world_.stats();
  result.trace.assign(world_.trace().begin(), world_.trace().end());
  return result;
}

void Simulation::StartNode(NodeId id) {
  SimNode& node = world_.Start(id);
  for (size_t i = 0; i < options_.objects_per_node; ++i) node.CreateObject();
  for (size_t i = 0; i < options_.roots_per_node; ++i) node.StartRoot();
}

void Simulation::Every(Nanos mean, void (Simulation::*task)()) {
  if (mean == 0) return;
  world_.After(random().Between(0, 2 * mean), [this, mean, task] {
    if (!working()) return;
    (this->*task)();
    Every(mean, task);
  });
}

std::vector<NodeId> Simulation::Living() {
  std::vector<NodeId> ids;
  world_.ForEachNode([&](SimNode& node) { ids.push_back(node.self().node); });
  return ids;
}

// -- work ---------------------------------------------------------------------------------------

Script Simulation::RandomScript(uint32_t depth, std::vector<size_t>& outer) {
  Script script;
  script.object = random().Below(world_.oracle().objects());
  // A call-back into an object that the activity is already inside.
  if (!outer.empty() && random().Chance(300)) script.object = outer[random().Below(outer.size())];
  script.work_ns = random().Between(0, options_.call_work_max_ns);
  if (depth + 1 >= options_.depth_max) return script;
  outer.push_back(script.object);
  for (uint64_t steps = random().Below(3); steps > 0; --steps) {
    Script::Step& step = script.steps.emplace_back();
    step.work_ns = random().Between(0, options_.call_work_max_ns / 4);
    const size_t calls = random().Chance(150) ? 2 : 1;
    if (calls > 1 && random().Chance(300)) step.hedge_ns = random().Between(1, 3 * kMs);
    for (size_t i = 0; i < calls; ++i) step.calls.push_back(RandomScript(depth + 1, outer));
  }
  outer.pop_back();
  return script;
}

void Simulation::NextCall(SimNode& node, uint64_t thread) {
  std::vector<size_t> outer;
  if (working()) node.CallFrom(thread, RandomScript(0, outer));
}

// -- what happens to it -------------------------------------------------------------------------

void Simulation::MoveSomething() {
  const size_t first = random().Below(world_.oracle().objects());
  SimNode* host = world_.HostOf(first);
  const std::vector<NodeId> living = Living();
  const NodeId target = living[random().Below(living.size())];
  if (host == nullptr || host->self().node == target) return;
  std::vector<size_t> set = {first};
  const Rid& rid = world_.oracle().object(first).rid;
  for (size_t other = 0; other < world_.oracle().objects(); ++other) {
    const bool fits = other != first && world_.HostOf(other) == host &&
                      world_.oracle().object(other).rid.home == rid.home;
    if (fits && random().Chance(400)) set.push_back(other);
  }
  const absl::StatusOr<MigrationId> id = host->Move(set, target);
  world_.oracle().AfterEvent(*host);
  if (id.ok() && random().Chance(options_.moves_cancelled)) {
    world_.AfterAt(host->self(), random().Between(0, 8 * kMs),
                   [id = *id](SimNode& node) { node.Cancel(id); });
  }
}

void Simulation::DestroySomething() {
  const size_t object = random().Below(world_.oracle().objects());
  SimNode* host = world_.HostOf(object);
  if (host == nullptr || !host->Destroy(object).ok()) return;
  world_.oracle().AfterEvent(*host);
  const std::vector<NodeId> living = Living();
  world_.node(living[random().Below(living.size())])->CreateObject();
}

void Simulation::CrashSomething() {
  const std::vector<NodeId> living = Living();
  if (living.size() <= 2) return;
  const NodeId id = living[random().Below(living.size())];
  const NodeInstance dead = world_.node(id)->self();
  world_.Crash(id);
  const auto tell = [this](NodeId observer, NodeInstance whom) {
    world_.After(random().Between(0, options_.told_dead_max_ns),
                 [this, observer, whom] { world_.TellDead(observer, whom); });
  };
  for (const NodeId observer : Living()) tell(observer, dead);
  if (!random().Chance(600)) return;
  world_.After(random().Between(0, 2 * options_.told_dead_max_ns), [this, id, tell] {
    ++world_.stats()[Stat::kRestarts];
    StartNode(id);
    for (const NodeInstance& whom : world_.dead()) tell(id, whom);
  });
}

void Simulation::CutSomething() {
  const std::vector<NodeId> living = Living();
  const NodeId a = living[random().Below(living.size())];
  const NodeId b = living[random().Below(living.size())];
  if (a == b || world_.IsCut(a, b) || world_.IsCut(b, a)) return;
  ++world_.stats()[Stat::kPartitions];
  world_.Cut(a, b, true);
  if (random().Chance(700)) world_.Cut(b, a, true);
  world_.After(random().Between(kMs, 120 * kMs), [this, a, b] { Heal(a, b); });
}

void Simulation::Heal(NodeId a, NodeId b) {
  world_.Cut(a, b, false);
  world_.Cut(b, a, false);
  SimNode* one = world_.node(a);
  SimNode* other = world_.node(b);
  if (one == nullptr || other == nullptr) return;
  one->OnReconnected(other->self());
  other->OnReconnected(one->self());
}

// -- the end ------------------------------------------------------------------------------------

void Simulation::ComeToRest() {
  for (NodeId a = 1; a <= options_.nodes; ++a) {
    for (NodeId b = 1; b <= options_.nodes; ++b) world_.Cut(a, b, false);
  }
  world_.network().lost = world_.network().copied = world_.network().late = 0;
  // Whoever is dead, all learn of it: it takes at most that long, and so do restarts.
  world_.RunFor(3 * options_.told_dead_max_ns + world_.network().late_max_ns);
  world_.RunUntil([this] { return world_.Quiet(); }, kRestLimit);
  if (!world_.oracle().failed()) world_.oracle().AtEnd();
}

// Every process calls every object once more: who is asked must know where it is, or say why not.
void Simulation::CallEverything() {
  std::vector<uint64_t> calls;
  world_.ForEachNode([&](SimNode& node) {
    for (size_t i = 0; i < world_.oracle().objects(); ++i) {
      calls.push_back(node.Call({.object = i}));
    }
  });
  world_.RunUntil([this] { return world_.Quiet(); }, kRestLimit);
  if (!world_.oracle().failed()) world_.oracle().AtEnd();
  for (const uint64_t call : calls) CheckLastCall(world_.oracle().call(call));
}

void Simulation::CheckLastCall(const CallRecord& call) {
  const ObjectRecord& object = world_.oracle().object(call.object);
  const bool home_lives = world_.Alive(object.rid.home);
  const bool lives = world_.HostOf(call.object) != nullptr;
  bool right = call.status.ok();  // it may have gone since: orphans do
  if (lives) {
    right = right || (!home_lives && call.kind == ErrorKind::kNodeUnreachable);
  } else if (!home_lives) {
    right = right || call.kind == ErrorKind::kNodeUnreachable ||
            call.kind == ErrorKind::kObjectNotFound;
  } else {
    right = right || call.kind == ErrorKind::kObjectLost ||
            (object.destroyed && call.kind == ErrorKind::kObjectNotFound);
  }
  if (right) return;
  world_.oracle().Fail(
      "typed-error",
      absl::StrCat("the last call of ", call.caller.ToString(), " to object ", call.object,
                   lives ? ", which lives" : ", which is gone",
                   home_lives ? "" : " and whose home is dead", ": ", call.status.ToString()));
}

}  // namespace

SimulationOptions OptionsForSeed(uint64_t seed) {
  SimRandom random(seed * 0x9e3779b97f4a7c15 + 1);
  SimulationOptions options;
  WorldOptions& world = options.world;
  world.seed = seed;
  world.core = SimCoreOptions();
  options.nodes = static_cast<NodeId>(random.Between(3, 5));
  options.objects_per_node = static_cast<size_t>(random.Between(1, 3));
  options.roots_per_node = static_cast<size_t>(random.Between(1, 3));
  options.think_max_ns = random.Between(500 * kUs, 8 * kMs);
  options.call_work_max_ns = random.Between(50 * kUs, 2 * kMs);
  options.move_every_ns = random.Between(kMs, 12 * kMs);
  world.pool_max_ns = random.Chance(700) ? random.Between(0, 200 * kUs) : 0;
  world.checkpoint_max_ns = random.Between(0, 2 * kMs);
  world.restore_max_ns = random.Between(0, 3 * kMs);
  if (random.Chance(300)) world.restore_fails = 100;
  options.moves_cancelled = random.Chance(500) ? 50 : 250;
  if (random.Chance(300)) world.core.transfer_deadline_ns = random.Between(2 * kMs, 30 * kMs);
  // Each fault in a part of the seeds, so that none hides another.
  if (random.Chance(600)) world.network.lost = static_cast<uint32_t>(random.Between(5, 150));
  if (random.Chance(600)) world.network.copied = static_cast<uint32_t>(random.Between(5, 250));
  if (random.Chance(600)) world.network.late = static_cast<uint32_t>(random.Between(5, 200));
  world.network.late_max_ns = random.Between(5 * kMs, 150 * kMs);
  if (random.Chance(600)) options.crash_every_ns = random.Between(30 * kMs, 200 * kMs);
  if (random.Chance(500)) options.cut_every_ns = random.Between(10 * kMs, 100 * kMs);
  if (random.Chance(400)) options.destroy_every_ns = random.Between(10 * kMs, 80 * kMs);
  options.told_dead_max_ns = random.Between(kMs, 100 * kMs);
  if (random.Chance(200)) world.core.orphan_grace_ns = random.Between(10 * kMs, 100 * kMs);
  if (random.Chance(200)) world.core.dedup.entries_max = static_cast<size_t>(random.Between(2, 8));
  if (random.Chance(200)) world.core.dedup.result_bytes_max = 16;
  if (random.Chance(200)) world.core.hints_max = static_cast<size_t>(random.Between(1, 3));
  return options;
}

SimulationOptions MovingOptionsForSeed(uint64_t seed) {
  SimRandom random(seed * 0xbf58476d1ce4e5b9 + 2);
  SimulationOptions options = OptionsForSeed(seed);
  WorldOptions& world = options.world;
  options.nodes = static_cast<NodeId>(random.Between(3, 4));
  options.objects_per_node = 1;
  options.roots_per_node = 1;
  options.depth_max = 2;
  options.move_every_ns = random.Between(500 * kUs, 3 * kMs);
  options.moves_cancelled = 300;
  options.destroy_every_ns = 0;
  options.crash_every_ns = random.Between(20 * kMs, 60 * kMs);
  options.cut_every_ns = random.Between(3 * kMs, 30 * kMs);
  world.core.transfer_deadline_ns = random.Between(2 * kMs, 30 * kMs);
  world.network.lost = 50;
  world.network.copied = 250;
  world.network.late = 250;
  return options;
}

SimulationResult RunSimulation(const SimulationOptions& options, const SimCoresFactory& factory) {
  return Simulation(options, factory).Run();
}

bool SimulationSeries::Run(uint64_t seed) { return Run(OptionsForSeed(seed)); }

bool SimulationSeries::Run(const SimulationOptions& options) {
  SimulationResult result = RunSimulation(options, factory_);
  stats_.Add(result.stats);
  if (result.ok) return true;
  check_ = result.check;
  SimulationOptions again = options;
  again.world.trace = true;
  const SimulationResult traced = RunSimulation(again, factory_);
  report_ = absl::StrCat("seed ", options.world.seed, ", after ", result.stats[Stat::kSteps],
                         " steps: ", result.check, ": ", result.what, "\n",
                         absl::StrJoin(traced.trace, "\n"), "\n");
  if (traced.what != result.what) {
    absl::StrAppend(&report_, "The run with a trace went another way: ", traced.what, "\n");
  }
  return false;
}

}  // namespace abacus::runtime::sim
