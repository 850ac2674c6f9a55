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

namespace {

// Edges of a graph whose objects are the console (0), `mobile` movable ones and the storage
// objects: everybody has a caller before it, some have two, and storage has at least one.
std::vector<std::pair<uint64_t, uint64_t>> RandomArcs(Random& random, uint64_t mobile,
                                                      uint64_t servers) {
  std::vector<std::pair<uint64_t, uint64_t>> arcs;
  const auto add = [&](uint64_t from, uint64_t to) {
    const std::pair arc(from, to);
    if (std::find(arcs.begin(), arcs.end(), arc) == arcs.end()) arcs.push_back(arc);
  };
  for (uint64_t j = 1; j <= mobile + servers; ++j) {
    const uint64_t callers = std::min(j, mobile + 1);
    add(random.Below(callers), j);
    if (random.Chance(0.4)) add(random.Below(callers), j);
  }
  return arcs;
}

ObjectStatistics RandomObject(Random& random, double window_s, bool busy) {
  ObjectStatistics o{.class_name = "object"};
  const double share = random.Chance(0.2) ? 0 : random.LogUniform(1e-5, busy ? 0.5 : 0.01);
  o.cpu_s = share * window_s;
  o.background_cpu_s = random.Chance(0.2) ? 0.1 * share * window_s : 0;
  o.own_stall_s = random.Chance(0.8) ? 0 : random.LogUniform(1e-4, 0.1) * window_s;
  o.checkpoint_bytes = static_cast<uint64_t>(random.LogUniform(16, 1e7));
  o.memory_bytes = static_cast<uint64_t>(random.LogUniform(1e3, 1e7));
  return o;
}

void MakeUncertain(Snapshot& s, Random& random) {
  const auto spread = [&](double value) {
    const double deviation = random.Uniform(0, 0.5) * value;
    return deviation * deviation;
  };
  for (ObjectStatistics& o : s.objects) o.cpu_s_variance = spread(o.cpu_s);
  for (EdgeStatistics& e : s.edges) e.bytes_variance = spread(e.request_bytes + e.reply_bytes);
  for (LinkStatistics& l : s.links) l.bandwidth_variance = spread(*l.bandwidth_bytes_s);
}

void AddLinks(Snapshot& s, Random& random, uint64_t servers) {
  for (NodeId a = 0; a <= servers; ++a) {
    for (NodeId b = a + 1; b <= servers; ++b) {
      if (a > 0 && random.Chance(0.2)) continue;
      s.links.push_back({.a = a,
                         .b = b,
                         .bandwidth_bytes_s = random.LogUniform(1e5, 1e9),
                         .round_trip_s = random.LogUniform(1e-5, 0.01),
                         .measured_bytes = 1e6});
    }
  }
}

// Two of three anchored objects are called by others too, twice or three times as often in sum.
void CallAnchoredFromElsewhere(Snapshot& s) {
  for (ObjectStatistics& object : s.objects) {
    if (object.mobile) continue;
    double calls = 0;
    for (const EdgeStatistics& edge : s.edges) calls += edge.to == object.id ? edge.calls : 0;
    object.calls = calls * static_cast<double>(1 + object.id.local % 3);
  }
}

}  // namespace

Snapshot RandomGraph(Random& random, const GraphShape& shape) {
  Snapshot s;
  s.window_s = random.Chance(0.5) ? 1.0 : random.LogUniform(0.05, 5);
  const uint64_t servers = 1 + random.Below(shape.servers_max);
  const uint64_t mobile = 1 + random.Below(shape.mobile_max);
  const bool busy = random.Chance(0.5);
  for (NodeId node = 0; node <= servers; ++node) {  // 0 is the client
    NodeStatistics n{.node = node, .is_server = node > 0, .rate = random.LogUniform(0.2, 5)};
    n.cores = static_cast<double>(1 + random.Below(3));
    n.load = random.Chance(0.5) ? 0 : random.LogUniform(0.05, 10);
    if (random.Chance(shape.memory_limits)) n.memory_free_bytes = random.LogUniform(1e4, 1e7);
    s.nodes.push_back(n);
  }
  AddLinks(s, random, servers);
  s.console = {0, 1, 0};
  // Where the servers do not know each other, nothing starts on a server: all else is crossed.
  const bool linked = s.links.size() == servers * (servers + 1) / 2;
  for (uint64_t j = 0; j <= mobile + servers; ++j) {
    ObjectStatistics o = RandomObject(random, s.window_s / static_cast<double>(mobile), busy);
    o.id = {0, 1, j};
    o.mobile = j > 0 && j <= mobile;
    if (j > mobile) o.node = static_cast<NodeId>(j - mobile);
    if (o.mobile && linked) o.node = static_cast<NodeId>(random.Below(servers + 1));
    o.pinned = random.Chance(0.05);
    if (o.mobile && random.Chance(0.15)) o.attach_group = 1;
    if (o.mobile && random.Chance(0.1)) o.allowed = {0, static_cast<NodeId>(1 + random.Below(2))};
    NodeOf(s, o.node).load += (o.cpu_s + o.background_cpu_s) / s.window_s;
    s.objects.push_back(o);
  }
  for (const auto& [from, to] : RandomArcs(random, mobile, servers)) {
    EdgeStatistics e{.from = {0, 1, from}, .to = {0, 1, to}};
    e.calls = random.LogUniform(1, 1e3);
    e.request_bytes = e.calls * 64;
    e.reply_bytes = e.calls * random.LogUniform(16, 1e4) + 2e4;
    s.edges.push_back(e);
  }
  CallAnchoredFromElsewhere(s);
  if (random.Chance(shape.uncertain)) MakeUncertain(s, random);
  Shuffle(s.objects, random);
  Shuffle(s.edges, random);
  Shuffle(s.nodes, random);
  return s;
}

Snapshot RandomRound(Random& random, size_t stacks) {
  Snapshot s;
  s.window_s = 1;
  const auto servers = static_cast<NodeId>(1 + random.Below(2));
  const auto add_node = [&](NodeId node, bool server) {
    NodeStatistics n{.node = node, .is_server = server, .rate = random.LogUniform(0.3, 3)};
    n.cores = static_cast<double>(1 + random.Below(4));
    n.load = random.Chance(0.5) ? 0 : random.LogUniform(0.05, 5);
    if (server && random.Chance(0.6)) n.memory_free_bytes = random.LogUniform(1e5, 3e7);
    s.nodes.push_back(n);
  };
  const auto add_link = [&](NodeId a, NodeId b) {
    s.links.push_back({.a = a,
                       .b = b,
                       .bandwidth_bytes_s = random.LogUniform(1e6, 1e8),
                       .round_trip_s = random.LogUniform(1e-5, 2e-3),
                       .measured_bytes = 1e6});
  };
  const auto add_object = [&](const ObjectId& id, NodeId node, bool mobile) {
    ObjectStatistics o = RandomObject(random, 0.3, true);
    o.id = id;
    o.node = node;
    o.mobile = mobile;
    NodeOf(s, node).load += (o.cpu_s + o.background_cpu_s) / s.window_s;
    s.objects.push_back(o);
  };
  const auto add_edge = [&](const ObjectId& from, const ObjectId& to) {
    EdgeStatistics e{.from = from, .to = to, .calls = random.LogUniform(1, 300)};
    e.reply_bytes = 2e4 + random.LogUniform(1e3, 2e7);
    s.edges.push_back(e);
  };
  for (NodeId node = 1; node <= servers; ++node) add_node(node, true);
  if (servers == 2) add_link(1, 2);
  const bool shared = random.Chance(0.3);
  const ObjectId directory{1, 1, 99};
  if (shared) {
    add_object(directory, 1, true);
    add_object({1, 1, 98}, 1, false);
    add_edge(directory, {1, 1, 98});
  }
  for (size_t c = 0; c < stacks; ++c) {
    const auto client = static_cast<NodeId>(10 + c);
    const auto server = static_cast<NodeId>(1 + random.Below(servers));
    add_node(client, false);
    for (NodeId node = 1; node <= servers; ++node) add_link(client, node);
    s.consoles.push_back({client, 1, 0});
    const uint64_t mobile = 1 + random.Below(2);
    add_object({client, 1, 0}, client, false);
    for (uint64_t j = 1; j <= mobile; ++j) {
      add_object({client, 1, j}, random.Chance(0.5) ? client : server, true);
    }
    add_object({server, 2, c}, server, false);
    for (uint64_t j = 0; j < mobile; ++j) add_edge({client, 1, j}, {client, 1, j + 1});
    add_edge({client, 1, mobile}, {server, 2, c});
    if (shared && random.Chance(0.5)) add_edge({client, 1, 0}, directory);
    // Clients that share what may move must be able to reach each other, should it be at one.
    for (size_t d = 0; shared && d < c; ++d) add_link(client, static_cast<NodeId>(10 + d));
  }
  s.console = s.consoles.front();
  CallAnchoredFromElsewhere(s);
  return s;
}

Snapshot After(const Snapshot& snapshot, const Decision& decision, const Config& config) {
  return After(snapshot, decision.moves, config);
}

Snapshot After(const Snapshot& snapshot, const std::vector<Move>& moves, const Config& config) {
  Snapshot after = snapshot;
  std::vector<NodeId> clients;
  for (const ObjectStatistics& object : snapshot.objects) {
    const auto& consoles = snapshot.consoles;
    const bool console = object.id == snapshot.console ||
                         std::find(consoles.begin(), consoles.end(), object.id) != consoles.end();
    if (console && config.client_load_constant) clients.push_back(object.node);
  }
  const auto change_load = [&](NodeStatistics& node, double by) {
    if (std::find(clients.begin(), clients.end(), node.node) == clients.end()) node.load += by;
  };
  for (const Move& move : moves) {
    ObjectStatistics& object = ObjectOf(after, move.object);
    NodeStatistics& from = NodeOf(after, move.from);
    NodeStatistics& to = NodeOf(after, move.to);
    // Less than it contains cannot be measured: a snapshot that claimed so is put right here.
    change_load(from,
                -std::min(from.load, (object.cpu_s + object.background_cpu_s) / after.window_s));
    const double ratio = from.rate / to.rate;
    object.cpu_s *= ratio;
    object.background_cpu_s *= ratio;
    object.cpu_s_variance *= ratio * ratio;
    change_load(to, (object.cpu_s + object.background_cpu_s) / after.window_s);
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

void SetMatching(Snapshot& snapshot, double factor) {
  EdgeOf(snapshot, kConsole, kGrep).reply_bytes =
      factor * EdgeOf(snapshot, kGrep, kStorage).reply_bytes;
}

EdgeStatistics& EdgeOf(Snapshot& snapshot, const ObjectId& from, const ObjectId& to) {
  return Find(snapshot.edges,
              [&](const EdgeStatistics& e) { return e.from == from && e.to == to; });
}

}  // namespace abacus::placement::testing
