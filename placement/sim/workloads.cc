#include "placement/sim/workloads.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace abacus::placement::sim {
namespace {

constexpr double kLanBytesS = 1.25e6;

// splitmix64, as the tests' Random, which programs do not see.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  double Uniform(double low, double high) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return low + (high - low) * (static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53);
  }
  double LogUniform(double low, double high) {
    return std::exp(Uniform(std::log(low), std::log(high)));
  }
  bool Chance(double p) { return Uniform(0, 1) < p; }
  size_t Below(size_t n) { return std::min(n - 1, static_cast<size_t>(Uniform(0, 1) * n)); }

 private:
  uint64_t state_;
};

Phase InsertPhase(double units) {
  return {.name = "insert",
          .units = units,
          .objects = {{}, {.work = 0.001}, {.stall_s = 0.004}},
          .edges = {{.calls = 1, .request_bytes = 2100, .reply_bytes = 100},
                    {.calls = 2, .request_bytes = 11900, .reply_bytes = 11887.5}}};
}

Phase ScanPhase(double units) {
  return {.name = "scan",
          .units = units,
          .objects = {{}, {.work = 0.001025}, {}},
          .edges = {{.calls = 2, .request_bytes = 100, .reply_bytes = 87400},
                    {.calls = 0.001, .request_bytes = 0.1, .reply_bytes = 1}}};
}

// 64 KiB read, `selectivity` of it passed on, `work` of CPU.
Phase FilterPhase(double units, double selectivity, double work) {
  return {.name = "filter",
          .units = units,
          .objects = {{.work = 0.0002}, {.work = work}, {.work = 0.0005}},
          .edges = {{.calls = 1, .request_bytes = 64, .reply_bytes = 65536 * selectivity},
                    {.calls = 1, .request_bytes = 64, .reply_bytes = 65536}}};
}

}  // namespace

Cluster InsertScan(double insert_s, double scan_s, size_t passes) {
  Cluster cluster;
  cluster.nodes = {{.rate = 1, .cores = 2}, {.rate = 1, .cores = 2, .is_server = true}};
  cluster.links = {{.a = 0, .b = 1, .bandwidth_bytes_s = kLanBytesS, .round_trip_s = 0.001}};
  const size_t console = AddChain(cluster, 0, 1, {"console", "cache", "storage"},
                                  {InsertPhase(insert_s / 0.00776), ScanPhase(scan_s / 0.001025)});
  cluster.consoles[console].passes = passes;
  cluster.objects[1].checkpoint_bytes = 65536;
  return cluster;
}

Cluster Filter(double selectivity, double server_rate, double bandwidth_bytes_s) {
  Cluster cluster;
  cluster.nodes = {{.rate = 1, .cores = 2}, {.rate = server_rate, .cores = 2, .is_server = true}};
  cluster.links = {{.a = 0, .b = 1, .bandwidth_bytes_s = bandwidth_bytes_s, .round_trip_s = 0.001}};
  AddChain(cluster, 0, 1, {"console", "filter", "storage"},
           {FilterPhase(1e12, selectivity, 0.005)});
  return cluster;
}

Cluster StripedWrites(double stripe_s) {
  constexpr size_t kColumns = 4;
  constexpr double kUnit = 32768;
  Cluster cluster;
  for (size_t i = 0; i < kColumns; ++i) cluster.nodes.push_back({.is_server = true});
  cluster.nodes.push_back({});
  const size_t client = kColumns;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    for (size_t j = i + 1; j < cluster.nodes.size(); ++j) {
      const bool far = j == client;
      cluster.links.push_back({.a = i,
                               .b = j,
                               .bandwidth_bytes_s = far ? 8e6 : 1.25e7,
                               .round_trip_s = far ? 0.001 : 0.0002});
    }
  }
  const size_t console = AddChain(cluster, client, 0, {"console", "raid", "column"}, {});
  Console& writer = cluster.consoles[console];
  for (size_t i = 1; i < kColumns; ++i) {
    writer.edges.push_back({.from = 1, .to = writer.objects.size()});
    writer.objects.push_back(cluster.objects.size());
    cluster.objects.push_back({.class_name = "column", .node = i});
  }
  for (size_t stripe = 0; stripe < kColumns; ++stripe) {
    Phase phase{.name = "stripe", .units = stripe_s / 0.0214};
    phase.objects = {{}, {.work = 0.001}, {}, {}, {}, {}};
    phase.edges = {{.calls = 1, .request_bytes = kUnit, .reply_bytes = 64}};
    for (size_t i = 0; i < kColumns; ++i) {
      const bool used = i == stripe || i == (stripe + 1) % kColumns;
      const double bytes = used ? kUnit : 0;
      phase.edges.push_back(
          {.calls = used ? 2.0 : 0.0, .request_bytes = bytes, .reply_bytes = bytes});
    }
    writer.phases.push_back(std::move(phase));
  }
  return cluster;
}

Cluster SharedServer(size_t clients, double cores, double stagger_s) {
  Cluster cluster;
  cluster.consoles_alike = stagger_s == 0;
  cluster.nodes = {{.rate = 1, .cores = cores, .is_server = true}};
  for (size_t i = 0; i < clients; ++i) {
    cluster.nodes.push_back({.rate = 1, .cores = 2});
    cluster.links.push_back({.a = 0, .b = i + 1, .bandwidth_bytes_s = kLanBytesS});
    const size_t console = AddChain(cluster, i + 1, 0, {"console", "filter", "storage"},
                                    {FilterPhase(1e12, 0.1, 0.015)});
    cluster.consoles[console].starts_s = stagger_s * static_cast<double>(i);
  }
  return cluster;
}

Cluster MemoryForOne(double second_starts_s, double second_ends_s) {
  Cluster cluster;
  cluster.nodes = {{.rate = 1, .cores = 2, .is_server = true}};
  for (const double selectivity : {0.6, 0.1}) {
    const size_t client = cluster.nodes.size();
    cluster.nodes.push_back({.rate = 1, .cores = 2});
    cluster.links.push_back({.a = 0, .b = client, .bandwidth_bytes_s = kLanBytesS});
    AddChain(cluster, client, 0, {"console", "filter", "storage"},
             {FilterPhase(1e12, selectivity, 0.005)});
  }
  const Object& filter = cluster.objects[cluster.consoles[0].objects[1]];
  cluster.nodes[0].memory_bytes = 1.5 * static_cast<double>(filter.memory_bytes);
  cluster.consoles[1].starts_s = second_starts_s;
  cluster.consoles[1].ends_s = second_ends_s;
  return cluster;
}

Cluster DirectoryInserts(size_t clients, bool lan) {
  Cluster cluster;
  cluster.consoles_alike = true;
  cluster.nodes = {{.rate = 1, .cores = 4, .is_server = true}};
  const Phase insert{.name = "insert",
                     .units = 1e12,
                     .objects = {{}, {.work = 0.0005}, {.work = 0.0002}},
                     .edges = {{.calls = 1, .request_bytes = 200, .reply_bytes = 100},
                               {.calls = 2, .request_bytes = 2000, .reply_bytes = 4000}}};
  for (size_t i = 0; i < clients; ++i) {
    cluster.nodes.push_back({.rate = 1, .cores = 2});
    cluster.links.push_back({.a = 0,
                             .b = i + 1,
                             .bandwidth_bytes_s = lan ? kLanBytesS : 10 * kLanBytesS,
                             .round_trip_s = lan ? 0.001 : 0.0002});
    const size_t console =
        AddChain(cluster, i + 1, 0, {"console", "directory", "isolation"}, {insert});
    cluster.consoles[console].contention_group = 1;
    cluster.consoles[console].contended_edge = 1;
  }
  return cluster;
}

Cluster OneDirectory(size_t clients) {
  Cluster cluster = DirectoryInserts(clients, true);
  cluster.nodes[0].cores = 1;
  for (Console& console : cluster.consoles) {
    console.objects.back() = cluster.consoles.front().objects.back();
  }
  return cluster;
}

Cluster RandomCluster(const ClusterShape& shape, uint64_t seed) {
  Draw draw(seed);
  Cluster cluster;
  for (size_t i = 0; i < shape.servers; ++i) {
    cluster.nodes.push_back({.rate = draw.LogUniform(0.5, 2),
                             .cores = 2.0 * static_cast<double>(1 + draw.Below(4)),
                             .nic_bytes_s = 1.25e8,
                             .is_server = true});
    if (draw.Chance(shape.hot_spots)) {
      const double from_s = draw.Uniform(0.2, 0.5) * shape.duration_s;
      const double load = draw.Uniform(1, 4) * cluster.nodes.back().cores;
      cluster.events.push_back({.at_s = from_s, .node = i, .others_load = load});
      cluster.events.push_back({.at_s = from_s + 0.3 * shape.duration_s, .node = i});
    }
  }
  std::sort(cluster.events.begin(), cluster.events.end(),
            [](const NodeEvent& a, const NodeEvent& b) { return a.at_s < b.at_s; });
  for (size_t i = 0; i < shape.consoles; ++i) {
    const size_t client = cluster.nodes.size();
    const size_t server = draw.Below(shape.servers);
    cluster.nodes.push_back({.rate = draw.LogUniform(0.5, 2), .cores = 2});
    cluster.links.push_back({.a = client,
                             .b = server,
                             .bandwidth_bytes_s = draw.LogUniform(1e6, 1e8),
                             .round_trip_s = draw.LogUniform(0.0001, 0.002)});
    std::vector<Phase> phases;
    const size_t kind = draw.Below(3);
    if (kind == 0)
      phases = {FilterPhase(1e12, draw.Uniform(0.01, 0.9), draw.LogUniform(1e-3, 0.05))};
    if (kind == 1) {
      phases = {InsertPhase(draw.LogUniform(300, 3000)), ScanPhase(draw.LogUniform(1000, 10000))};
    }
    if (kind == 2) {
      phases = {FilterPhase(draw.LogUniform(100, 1000), 0.02, 0.002),
                FilterPhase(draw.LogUniform(100, 1000), 1.2, draw.LogUniform(0.01, 0.1))};
    }
    const size_t console =
        AddChain(cluster, client, server, {"console", "layer", "storage"}, std::move(phases));
    Console& c = cluster.consoles[console];
    cluster.objects[c.objects[1]].checkpoint_bytes =
        static_cast<uint64_t>(draw.LogUniform(4096, 1 << 20));
    if (draw.Chance(shape.churn / 2)) c.starts_s = draw.Uniform(0.1, 0.6) * shape.duration_s;
    if (draw.Chance(shape.churn / 2)) c.ends_s = draw.Uniform(0.7, 0.95) * shape.duration_s;
  }
  return cluster;
}

}  // namespace abacus::placement::sim
