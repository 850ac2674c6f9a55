// Plays clients that are given as JSON in the placement simulator, under given placements, and says
// how long each takes and where its objects end.
//
//   abacus_placement_play < WORLD.json > TIMES.json
//
//   {"duration_s": 600, "digest_s": 0.2, "window_s": 1, "threshold": 0.3,
//    "nodes":   [{"name", "rate", "cores", "nic_bytes_s", "frame_work", "byte_work", "is_server"}],
//    "links":   [{"a", "b", "bandwidth_bytes_s", "round_trip_s"}],
//    "clients": [{"name", "node", "server", "units",
//                 "objects": [{"class", "work"}, ...],     a chain, as AddChain() places it
//                 "edges": [{"calls", "request_bytes", "reply_bytes"}, ...]}],
//    "runs":    ["client", "adaptive", "server", ["names of clients", "at the server"]]}
//
// What each figure is stands in placement/sim/cluster.h.

#include <cmath>
#include <exception>
#include <iostream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "placement/sim/simulator.h"

namespace {

using abacus::placement::sim::AddChain;
using abacus::placement::sim::AllAtClient;
using abacus::placement::sim::AllAtServer;
using abacus::placement::sim::Cluster;
using abacus::placement::sim::Console;
using abacus::placement::sim::EdgeNeed;
using abacus::placement::sim::MoveRecord;
using abacus::placement::sim::Node;
using abacus::placement::sim::Options;
using abacus::placement::sim::Phase;
using abacus::placement::sim::Report;
using abacus::placement::sim::RunAdaptive;
using abacus::placement::sim::RunStatic;
using nlohmann::json;

struct World {
  Cluster cluster;
  Options options;
  std::vector<std::string> clients;  // names, as Cluster::consoles
};

size_t IndexOf(const std::map<std::string, size_t>& nodes, const json& name) {
  const auto found = nodes.find(name.get<std::string>());
  if (found == nodes.end()) throw std::invalid_argument("there is no node " + name.dump());
  return found->second;
}

void ReadClient(const json& client, const std::map<std::string, size_t>& nodes, World* world) {
  Phase phase{.name = "work", .units = client.at("units").get<double>()};
  std::vector<std::string> classes;
  for (const json& object : client.at("objects")) {
    classes.push_back(object.at("class").get<std::string>());
    phase.objects.push_back({.work = object.at("work").get<double>()});
  }
  for (const json& edge : client.at("edges")) {
    phase.edges.push_back({.calls = edge.at("calls").get<double>(),
                           .request_bytes = edge.at("request_bytes").get<double>(),
                           .reply_bytes = edge.at("reply_bytes").get<double>()});
  }
  if (classes.size() < 2 || phase.edges.size() + 1 != classes.size()) {
    throw std::invalid_argument("a chain has an edge less than objects");
  }
  const size_t console = AddChain(world->cluster, IndexOf(nodes, client.at("node")),
                                  IndexOf(nodes, client.at("server")), classes, {std::move(phase)});
  world->cluster.consoles[console].passes = 1;
  world->clients.push_back(client.at("name").get<std::string>());
}

World ReadWorld(const json& given) {
  World world;
  std::map<std::string, size_t> nodes;
  for (const json& node : given.at("nodes")) {
    nodes[node.at("name").get<std::string>()] = world.cluster.nodes.size();
    world.cluster.nodes.push_back(Node{.rate = node.at("rate").get<double>(),
                                       .cores = node.at("cores").get<double>(),
                                       .nic_bytes_s = node.at("nic_bytes_s").get<double>(),
                                       .frame_work = node.at("frame_work").get<double>(),
                                       .byte_work = node.at("byte_work").get<double>(),
                                       .is_server = node.at("is_server").get<bool>()});
  }
  for (const json& link : given.at("links")) {
    world.cluster.links.push_back({.a = IndexOf(nodes, link.at("a")),
                                   .b = IndexOf(nodes, link.at("b")),
                                   .bandwidth_bytes_s = link.at("bandwidth_bytes_s").get<double>(),
                                   .round_trip_s = link.at("round_trip_s").get<double>()});
  }
  for (const json& client : given.at("clients")) ReadClient(client, nodes, &world);
  Options& options = world.options;
  options.duration_s = given.at("duration_s").get<double>();
  options.sample_ticks =
      static_cast<size_t>(std::lround(given.at("digest_s").get<double>() / options.tick_s));
  options.config.window_s = given.at("window_s").get<double>();
  options.config.b_thresh = options.planner.settled_thresh = given.at("threshold").get<double>();
  if (options.sample_ticks == 0) throw std::invalid_argument("digest_s is less than a tick");
  return world;
}

// The named clients' mobile objects at their servers, the others' at the client.
std::vector<size_t> AtServer(const World& world, const json& names) {
  std::set<std::string> wanted = names.get<std::set<std::string>>();
  const std::vector<size_t> server = AllAtServer(world.cluster);
  std::vector<size_t> placement = AllAtClient(world.cluster);
  for (size_t c = 0; c < world.clients.size(); ++c) {
    if (wanted.erase(world.clients[c]) == 0) continue;
    for (const size_t object : world.cluster.consoles[c].objects) {
      placement[object] = server[object];
    }
  }
  if (!wanted.empty()) throw std::invalid_argument("there is no client " + *wanted.begin());
  return placement;
}

Report Play(const World& world, const json& run) {
  if (run.is_array()) return RunStatic(world.cluster, world.options, AtServer(world, run));
  const auto name = run.get<std::string>();
  if (name == "adaptive") return RunAdaptive(world.cluster, world.options);
  if (name == "client") {
    return RunStatic(world.cluster, world.options, AllAtClient(world.cluster));
  }
  if (name == "server") {
    return RunStatic(world.cluster, world.options, AllAtServer(world.cluster));
  }
  throw std::invalid_argument("there is no placement " + name);
}

json ToJson(const World& world, const json& run, const Report& report) {
  json clients = json::object();
  for (size_t c = 0; c < world.clients.size(); ++c) {
    json places = json::object();
    const Console& console = world.cluster.consoles[c];
    for (const size_t object : console.objects) {
      if (!world.cluster.objects[object].mobile) continue;
      const bool home = report.placement[object] == world.cluster.objects[console.objects[0]].node;
      places[world.cluster.objects[object].class_name] = home ? "client" : "server";
    }
    clients[world.clients[c]] = {{"elapsed_s", report.elapsed_s[c]}, {"places", places}};
  }
  json moves = json::array();
  for (const MoveRecord& move : report.moves) {
    moves.push_back({{"at_s", move.at_s},
                     {"client", world.clients[move.console]},
                     {"to", world.cluster.nodes[move.to].is_server ? "server" : "client"},
                     {"explanation", move.explanation}});
  }
  return {{"placement", run},
          {"clients", clients},
          {"moves", moves},
          {"mean_elapsed_s", report.mean_elapsed_s},
          {"slowdown", report.slowdown},
          {"worst_slowdown", report.worst_slowdown},
          {"ended", report.ended}};
}

}  // namespace

int main(int argc, char**) {
  if (argc != 1) {
    std::cerr << "usage: abacus_placement_play < WORLD.json > TIMES.json\n";
    return 2;
  }
  try {
    const json given = json::parse(std::cin);
    const World world = ReadWorld(given);
    json runs = json::array();
    for (const json& run : given.at("runs")) {
      runs.push_back(ToJson(world, run, Play(world, run)));
    }
    std::cout << runs.dump(1) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "abacus_placement_play: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
