#include "placement/chain.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::placement {
namespace {

// Beyond these a figure is a fault of its source and not a measurement. They also keep every
// product and quotient of the equations far from the ends of double.
constexpr double kCountMax = 1e18;   // bytes, calls
constexpr double kSecondsMax = 1e6;  // of a window, of CPU time in it
constexpr double kRateMin = 1e-9;    // work units per second
constexpr double kRateMax = 1e18;
constexpr double kCoresMin = 1e-3;
constexpr double kCoresMax = 1e6;
constexpr double kLoadMax = 1e6;
constexpr double kBandwidthMin = 1;  // bytes per second
constexpr double kBandwidthMax = 1e15;
constexpr double kRoundTripMax = 1e3;
constexpr double kWindowMin = 1e-6;
// CPU time below a nanosecond is rounding of whoever averaged it.
constexpr double kCpuMin = 1e-9;

std::string NameOf(const ObjectStatistics& object) {
  return absl::StrCat(object.class_name.empty() ? "object" : object.class_name, " ",
                      ToString(object.id));
}

// Remembers the first figure that is out of its range. NaN is out of every range.
class FigureCheck {
 public:
  void Check(const std::string& of, const char* figure, double value, double low, double high) {
    if (refusal_ || (value >= low && value <= high)) return;
    refusal_ = Refusal{Reason::kBadFigure, absl::StrCat(figure, " of ", of, " is ", value,
                                                        ", not from ", low, " to ", high)};
  }

  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  std::optional<Refusal> refusal_;
};

// The entries of a snapshot by their keys. An entry that is there twice is refused when it is used.
class Index {
 public:
  explicit Index(const Snapshot& snapshot) {
    for (const auto& object : snapshot.objects) Add(objects_, object.id, object);
    for (const auto& node : snapshot.nodes) Add(nodes_, node.node, node);
    for (const auto& link : snapshot.links) Add(links_, Ordered(link.a, link.b), link);
    for (const auto& edge : snapshot.edges) {
      Add(edges_, std::pair(edge.from, edge.to), edge);
      if (edge.from == edge.to) continue;
      neighbours_[edge.from].insert(edge.to);
      neighbours_[edge.to].insert(edge.from);
    }
  }

  template <typename T>
  struct Entry {
    const T* value = nullptr;
    int times = 0;
  };

  Entry<ObjectStatistics> Object(const ObjectId& id) const { return Find(objects_, id); }
  Entry<NodeStatistics> Node(NodeId node) const { return Find(nodes_, node); }
  Entry<LinkStatistics> Link(NodeId a, NodeId b) const { return Find(links_, Ordered(a, b)); }
  Entry<EdgeStatistics> Edge(const ObjectId& from, const ObjectId& to) const {
    return Find(edges_, std::pair(from, to));
  }
  const std::set<ObjectId>& Neighbours(const ObjectId& id) const {
    const auto it = neighbours_.find(id);
    return it == neighbours_.end() ? none_ : it->second;
  }

 private:
  template <typename K, typename T>
  using Map = std::map<K, Entry<T>>;

  static std::pair<NodeId, NodeId> Ordered(NodeId a, NodeId b) { return std::minmax(a, b); }

  template <typename K, typename T>
  static void Add(Map<K, T>& map, const K& key, const T& value) {
    Entry<T>& entry = map[key];
    entry.value = &value;
    ++entry.times;
  }

  template <typename K, typename T>
  static Entry<T> Find(const Map<K, T>& map, const K& key) {
    const auto it = map.find(key);
    return it == map.end() ? Entry<T>{} : it->second;
  }

  Map<ObjectId, ObjectStatistics> objects_;
  Map<NodeId, NodeStatistics> nodes_;
  Map<std::pair<NodeId, NodeId>, LinkStatistics> links_;
  Map<std::pair<ObjectId, ObjectId>, EdgeStatistics> edges_;
  std::map<ObjectId, std::set<ObjectId>> neighbours_;
  const std::set<ObjectId> none_;
};

// Follows the only way that leads on from the console until there is none.
std::optional<Refusal> Walk(const Index& index, const ObjectId& console, size_t objects_max,
                            Chain* chain) {
  ObjectId at = console;
  std::optional<ObjectId> before;
  while (true) {
    const auto entry = index.Object(at);
    if (entry.times == 0) {
      return before ? Refusal{Reason::kUnknownObject,
                              absl::StrCat("an edge of ", ToString(*before), " leads to ",
                                           ToString(at), ", which the snapshot does not hold")}
                    : Refusal{Reason::kUnknownConsole,
                              absl::StrCat("the snapshot does not hold the console ",
                                           ToString(console))};
    }
    if (entry.times > 1) {
      return Refusal{Reason::kDuplicateEntry,
                     absl::StrCat("the snapshot holds ", NameOf(*entry.value), " twice")};
    }
    chain->objects.push_back(entry.value);
    if (chain->objects.size() > objects_max) {
      return Refusal{Reason::kStackTooLong,
                     absl::StrCat("the stack has more than ", objects_max, " objects")};
    }
    // Two ways on: a fork, or a cycle, which the walk enters at an object with two ways on.
    std::optional<ObjectId> next;
    for (const ObjectId& neighbour : index.Neighbours(at)) {
      if (neighbour == before) continue;
      if (next) {
        return Refusal{Reason::kNotAChain,
                       absl::StrCat("the graph is not a single stack at ", NameOf(*entry.value))};
      }
      next = neighbour;
    }
    if (!next) break;
    before = at;
    at = *next;
  }
  if (chain->objects.size() < 2) {
    return Refusal{Reason::kNotAChain, "the console has called no other object"};
  }
  return std::nullopt;
}

// The two nodes, and that every object is on one of them.
std::optional<Refusal> FindNodes(const Index& index, Chain* chain) {
  const ObjectStatistics& console = *chain->objects.front();
  const ObjectStatistics& storage = *chain->objects.back();
  if (storage.mobile && !storage.pinned) {
    return Refusal{Reason::kNoStorage,
                   absl::StrCat("the stack ends in ", NameOf(storage), ", which is not anchored")};
  }
  for (const ObjectStatistics* end : {&console, &storage}) {
    const auto entry = index.Node(end->node);
    if (entry.times == 0) {
      return Refusal{Reason::kUnknownNode, absl::StrCat(NameOf(*end), " is on node ", end->node,
                                                        ", which the snapshot does not hold")};
    }
    if (entry.times > 1) {
      return Refusal{Reason::kDuplicateEntry,
                     absl::StrCat("the snapshot holds node ", end->node, " twice")};
    }
    (end == &console ? chain->client : chain->server) = entry.value;
  }
  if (chain->client == chain->server) {
    return Refusal{Reason::kOneNode,
                   absl::StrCat("console and storage are both on node ", console.node)};
  }
  for (const ObjectStatistics* object : chain->objects) {
    const bool at_client = object->node == console.node;
    if (!at_client && object->node != storage.node) {
      const bool known = index.Node(object->node).times > 0;
      return Refusal{known ? Reason::kThirdNode : Reason::kUnknownNode,
                     absl::StrCat(NameOf(*object), " is on node ", object->node, ", neither ",
                                  console.node, " nor ", storage.node)};
    }
    chain->present.push_back(at_client ? Side::kClient : Side::kServer);
    chain->fixed.push_back(object == &console || object == &storage || !object->mobile ||
                           object->pinned);
  }
  return std::nullopt;
}

std::optional<Refusal> FindLink(const Index& index, const Config& config, Chain* chain) {
  const NodeId a = chain->client->node;
  const NodeId b = chain->server->node;
  const std::string name = absl::StrCat("the link between nodes ", a, " and ", b);
  const auto entry = index.Link(a, b);
  if (entry.times == 0) {
    return Refusal{Reason::kUnknownLink, absl::StrCat("the snapshot does not hold ", name)};
  }
  if (entry.times > 1) {
    return Refusal{Reason::kDuplicateEntry, absl::StrCat("the snapshot holds ", name, " twice")};
  }
  chain->link = entry.value;
  const LinkStatistics& link = *entry.value;
  if (!link.bandwidth_bytes_s || *link.bandwidth_bytes_s == 0) {
    return Refusal{Reason::kBandwidthUnknown,
                   absl::StrCat("the bandwidth of ", name, " is not known yet")};
  }
  if (!link.round_trip_s) {
    return Refusal{Reason::kRoundTripUnknown,
                   absl::StrCat("the round trip time of ", name, " is not known yet")};
  }
  FigureCheck figures;
  figures.Check(name, "bandwidth_bytes_s", *link.bandwidth_bytes_s, kBandwidthMin, kBandwidthMax);
  figures.Check(name, "round_trip_s", *link.round_trip_s, 0, kRoundTripMax);
  figures.Check(name, "measured_bytes", link.measured_bytes, 0, kCountMax);
  if (figures.refusal()) return figures.refusal();
  if (link.measured_bytes < config.min_link_evidence_bytes) {
    return Refusal{
        Reason::kWeakLinkEvidence,
        absl::StrCat("the bandwidth of ", name, " was measured over ", link.measured_bytes,
                     " bytes, fewer than ", config.min_link_evidence_bytes)};
  }
  return std::nullopt;
}

std::optional<Refusal> CheckNode(const NodeStatistics& node) {
  const std::string name = absl::StrCat("node ", node.node);
  if (node.rate == 0) {
    return Refusal{Reason::kRateUnknown,
                   absl::StrCat("the processing rate of ", name, " is not calibrated yet")};
  }
  FigureCheck figures;
  figures.Check(name, "rate", node.rate, kRateMin, kRateMax);
  figures.Check(name, "cores", node.cores, kCoresMin, kCoresMax);
  figures.Check(name, "load", node.load, 0, kLoadMax);
  figures.Check(name, "memory_bytes", node.memory_bytes.value_or(0), 0, kCountMax);
  figures.Check(name, "memory_free_bytes", node.memory_free_bytes.value_or(0), 0, kCountMax);
  // More free than there is: one of the two is wrong, and nothing says which.
  if (node.memory_bytes) {
    figures.Check(name, "memory_free_bytes", node.memory_free_bytes.value_or(0), 0,
                  *node.memory_bytes);
  }
  return figures.refusal();
}

std::optional<Refusal> CheckWhole(const Snapshot& snapshot) {
  FigureCheck figures;
  figures.Check("the snapshot", "window_s", snapshot.window_s, kWindowMin, kSecondsMax);
  figures.Check("the snapshot", "measured_t_app_s", snapshot.measured_t_app_s.value_or(0), 0,
                kSecondsMax);
  if (snapshot.history.count > 0) {
    figures.Check("the migration history", "quiesce_s", snapshot.history.quiesce_s, 0, kSecondsMax);
  }
  return figures.refusal();
}

std::optional<Refusal> ReadObjects(Chain* chain) {
  FigureCheck figures;
  for (size_t j = 0; j < chain->objects.size(); ++j) {
    const ObjectStatistics& object = *chain->objects[j];
    const std::string name = NameOf(object);
    figures.Check(name, "cpu_s", object.cpu_s, 0, kSecondsMax);
    figures.Check(name, "own_stall_s", object.own_stall_s, 0, kSecondsMax);
    figures.Check(name, "stall_s", object.stall_s, 0, kSecondsMax);
    figures.Check(name, "bytes_processed", object.bytes_processed, 0, kCountMax);
    figures.Check(name, "calls", object.calls, 0, kCountMax);
    figures.Check(name, "checkpoint_bytes", static_cast<double>(object.checkpoint_bytes), 0,
                  kCountMax);
    figures.Check(name, "memory_bytes", static_cast<double>(object.memory_bytes), 0, kCountMax);
    if (figures.refusal()) return figures.refusal();

    const NodeStatistics& node =
        chain->present[j] == Side::kClient ? *chain->client : *chain->server;
    const double cpu_s = object.cpu_s < kCpuMin ? 0 : object.cpu_s;
    chain->stack.layers.push_back({.work = WorkOf(cpu_s, node.rate) * chain->scale,
                                   .own_stall_s = object.own_stall_s * chain->scale});
  }
  return std::nullopt;
}

std::optional<Refusal> ReadFlows(const Index& index, const Config& config, Chain* chain) {
  double seen_bytes = 0;
  for (size_t j = 0; j + 1 < chain->objects.size(); ++j) {
    const ObjectId& above = chain->objects[j]->id;
    const ObjectId& below = chain->objects[j + 1]->id;
    Flow flow;
    for (const auto& [from, to] : {std::pair(above, below), std::pair(below, above)}) {
      const auto entry = index.Edge(from, to);
      if (entry.times == 0) continue;
      const std::string name = absl::StrCat("the edge ", ToString(from), " to ", ToString(to));
      if (entry.times > 1) {
        return Refusal{Reason::kDuplicateEntry,
                       absl::StrCat("the snapshot holds ", name, " twice")};
      }
      const EdgeStatistics& edge = *entry.value;
      FigureCheck figures;
      figures.Check(name, "calls", edge.calls, 0, kCountMax);
      figures.Check(name, "request_bytes", edge.request_bytes, 0, kCountMax);
      figures.Check(name, "reply_bytes", edge.reply_bytes, 0, kCountMax);
      if (figures.refusal()) return figures.refusal();
      flow.calls += edge.calls * chain->scale;
      flow.bytes += (edge.request_bytes + edge.reply_bytes) * chain->scale;
      seen_bytes += edge.request_bytes + edge.reply_bytes;
    }
    chain->stack.flows.push_back(flow);
  }
  if (seen_bytes < config.min_evidence_bytes) {
    return Refusal{Reason::kTooLittleEvidence,
                   absl::StrCat(seen_bytes,
                                " bytes flowed along the stack in the window, fewer "
                                "than ",
                                config.min_evidence_bytes)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> ReadChain(const Snapshot& snapshot, const Config& config, Chain* chain) {
  *chain = Chain{};
  const Index index(snapshot);
  std::optional<Refusal> refusal = Walk(index, snapshot.console, config.stack_objects_max, chain);
  if (!refusal) refusal = FindNodes(index, chain);
  if (!refusal) refusal = CheckWhole(snapshot);
  if (!refusal) refusal = CheckNode(*chain->client);
  if (!refusal) refusal = CheckNode(*chain->server);
  if (!refusal) refusal = FindLink(index, config, chain);
  if (refusal) return refusal;

  chain->scale = config.window_s / snapshot.window_s;
  chain->stack.client = {.rate = chain->client->rate, .cores = chain->client->cores};
  chain->stack.server = {.rate = chain->server->rate, .cores = chain->server->cores};
  chain->stack.link = {.bandwidth_bytes_s = *chain->link->bandwidth_bytes_s,
                       .round_trip_s = *chain->link->round_trip_s};
  refusal = ReadObjects(chain);
  if (!refusal) refusal = ReadFlows(index, config, chain);
  return refusal;
}

}  // namespace abacus::placement
