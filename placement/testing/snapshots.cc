#include "placement/testing/snapshots.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

namespace abacus::placement::testing {
namespace {

template <typename T, typename Predicate>
T& Find(std::vector<T>& entries, Predicate predicate) {
  const auto it = std::find_if(entries.begin(), entries.end(), predicate);
  if (it == entries.end()) std::abort();
  return *it;
}

template <typename T>
void Shuffle(std::vector<T>& entries, Random& random) {
  for (size_t i = entries.size(); i > 1; --i) {
    std::swap(entries[i - 1], entries[random.Below(i)]);
  }
}

}  // namespace

Snapshot GrepSnapshot() {
  constexpr double kBlocks = 18;
  Snapshot s;
  s.window_s = 1;
  s.console = kConsole;
  s.measured_t_app_s = 1.0;
  s.nodes = {{.node = kClient, .name = "client", .rate = 1, .cores = 2, .load = 0.1},
             {.node = kServer,
              .name = "server",
              .is_server = true,
              .rate = 0.5,
              .cores = 2,
              .load = 0.05}};
  s.objects = {
      {.id = kConsole, .class_name = "console", .node = kClient, .cpu_s = 0.001},
      {.id = kGrep,
       .class_name = "grep",
       .node = kClient,
       .mobile = true,
       .cpu_s = 0.020,
       .calls = kBlocks,
       .checkpoint_bytes = 4096,
       .memory_bytes = 100'000},
      {.id = kStorage, .class_name = "storage", .node = kServer, .cpu_s = 0.004, .calls = kBlocks},
  };
  s.edges = {{.from = kConsole,
              .to = kGrep,
              .calls = kBlocks,
              .request_bytes = 64 * kBlocks,
              .reply_bytes = 36 * kBlocks},
             {.from = kGrep,
              .to = kStorage,
              .calls = kBlocks,
              .request_bytes = 64 * kBlocks,
              .reply_bytes = 65536 * kBlocks}};
  s.links = {{.a = kClient,
              .b = kServer,
              .bandwidth_bytes_s = 1.25e6,
              .round_trip_s = 0.001,
              .measured_bytes = 1.2e6}};
  return s;
}

// splitmix64: every seed is as good as another.
uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::Uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(Next() >> 11) * 0x1p-53);
}

double Random::LogUniform(double low, double high) {
  return std::exp(Uniform(std::log(low), std::log(high)));
}

Snapshot RandomSnapshot(Random& random) {
  Snapshot s;
  s.window_s = random.Chance(0.5) ? 1.0 : random.LogUniform(0.05, 5);
  s.console = {kClient, 1, 1};
  if (random.Chance(0.5)) s.measured_t_app_s = random.Uniform(0, s.window_s);
  for (const NodeId node : {kClient, kServer}) {
    NodeStatistics n{.node = node, .rate = random.LogUniform(0.1, 10)};
    n.cores = static_cast<double>(1 + random.Below(4));
    n.load = random.Chance(0.5) ? 0 : random.LogUniform(0.05, 20);  // of others; own added below
    if (random.Chance(0.2)) n.memory_free_bytes = random.LogUniform(1e4, 1e8);
    s.nodes.push_back(n);
  }
  const uint64_t objects = 2 + random.Below(8);
  const bool busy = random.Chance(0.5);
  for (uint64_t j = 0; j < objects; ++j) {
    const bool end = j == 0 || j + 1 == objects;
    ObjectStatistics o{.id = {kClient, 1, j + 1}, .class_name = "object"};
    o.node = j == 0 ? kClient : j + 1 == objects ? kServer : random.Chance(0.5) ? kClient : kServer;
    o.mobile = !end && random.Chance(0.9);
    o.pinned = random.Chance(0.05);
    const double share = random.Chance(0.2) ? 0 : random.LogUniform(1e-5, busy ? 1 : 0.01);
    o.cpu_s = share * s.window_s / static_cast<double>(objects);
    o.own_stall_s = random.Chance(0.8) ? 0 : random.LogUniform(1e-4, 0.1) * s.window_s;
    o.checkpoint_bytes = static_cast<uint64_t>(random.LogUniform(16, 1e8));
    o.memory_bytes = static_cast<uint64_t>(random.LogUniform(1e3, 1e7));
    NodeOf(s, o.node).load += o.cpu_s / s.window_s;
    s.objects.push_back(o);
    if (j == 0) continue;
    EdgeStatistics e{.from = {kClient, 1, j}, .to = {kClient, 1, j + 1}};
    if (random.Chance(0.1)) std::swap(e.from, e.to);  // called from below
    e.calls = random.LogUniform(1, 1e4);
    e.request_bytes = e.calls * 64;
    e.reply_bytes = e.calls * random.LogUniform(16, 1e5) + 2e4;
    s.edges.push_back(e);
  }
  s.links = {{.a = kServer,
              .b = kClient,
              .bandwidth_bytes_s = random.LogUniform(1e4, 1e10),
              .round_trip_s = random.LogUniform(1e-6, 0.1),
              .measured_bytes = 1e6}};
  if (random.Chance(0.5)) {
    s.history = {.quiesce_s = random.LogUniform(1e-5, 0.1), .count = 1 + random.Below(50)};
  }
  Shuffle(s.objects, random);
  Shuffle(s.edges, random);
  Shuffle(s.nodes, random);
  return s;
}

Snapshot After(const Snapshot& snapshot, const Decision& decision, const Config& config) {
  Snapshot after = snapshot;
  for (const Move& move : decision.moves) {
    ObjectStatistics& object = ObjectOf(after, move.object);
    NodeStatistics& from = NodeOf(after, move.from);
    NodeStatistics& to = NodeOf(after, move.to);
    const auto change_load = [&](NodeStatistics& node, double by) {
      if (config.client_load_constant && node.node == decision.client.node) return;
      node.load += by;
    };
    // Less than it contains cannot be measured: a snapshot that claimed so is put right here.
    change_load(from, -std::min(from.load, object.cpu_s / after.window_s));
    object.cpu_s *= from.rate / to.rate;
    change_load(to, object.cpu_s / after.window_s);
    const auto memory_bytes = static_cast<double>(object.memory_bytes);
    if (from.memory_free_bytes) *from.memory_free_bytes += memory_bytes;
    if (to.memory_free_bytes) *to.memory_free_bytes -= memory_bytes;
    object.node = move.to;
  }
  return after;
}

ObjectStatistics& ObjectOf(Snapshot& snapshot, const ObjectId& id) {
  return Find(snapshot.objects, [&](const ObjectStatistics& o) { return o.id == id; });
}

NodeStatistics& NodeOf(Snapshot& snapshot, NodeId node) {
  return Find(snapshot.nodes, [&](const NodeStatistics& n) { return n.node == node; });
}

EdgeStatistics& EdgeOf(Snapshot& snapshot, const ObjectId& from, const ObjectId& to) {
  return Find(snapshot.edges,
              [&](const EdgeStatistics& e) { return e.from == from && e.to == to; });
}

}  // namespace abacus::placement::testing
