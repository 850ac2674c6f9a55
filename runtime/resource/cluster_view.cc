#include "runtime/resource/cluster_view.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace abacus::runtime {
namespace {

placement::ObjectStatistics Scaled(placement::ObjectStatistics object, double scale) {
  for (const auto figure : placement::kObjectSums) object.*figure *= scale;
  object.cpu_s_variance *= scale * scale;
  return object;
}

placement::EdgeStatistics Scaled(placement::EdgeStatistics edge, double scale) {
  for (const auto figure : placement::kEdgeSums) edge.*figure *= scale;
  edge.bytes_variance *= scale * scale;
  return edge;
}

// Servers that a volume is spread over stand beside each other: where nothing was measured they are
// taken for no slower than this, a quarter of what the slowest network of today carries, as
// messages cost processors too.
constexpr double kServerLinkBytes_s = 3e6;
// What such a guess is worth: as much as a bandwidth of before a restart, and less certain.
constexpr double kGuessBytes = 32 * 1024;
// Over so many bytes a bandwidth is measured well enough to be decided by.
constexpr double kEvidenceBytes = 16 * 1024;
constexpr double kGuessDeviation = 0.5;

void Guess(double bandwidth_bytes_s, placement::LinkStatistics* link) {
  const double deviation = kGuessDeviation * bandwidth_bytes_s;
  link->bandwidth_bytes_s = bandwidth_bytes_s;
  link->bandwidth_variance = deviation * deviation;
  link->measured_bytes = kGuessBytes;
}

double ScaleOf(double window_s, double length_s) { return length_s > 0 ? window_s / length_s : 0; }

// Edges of an object that moved within a window are reported by both hosts.
void Merge(std::vector<placement::EdgeStatistics>* edges) {
  std::sort(edges->begin(), edges->end(), [](const auto& a, const auto& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  std::vector<placement::EdgeStatistics> merged;
  for (const auto& edge : *edges) {
    if (merged.empty() || merged.back().from != edge.from || merged.back().to != edge.to) {
      merged.push_back(edge);
      continue;
    }
    for (const auto figure : placement::kEdgeSums) merged.back().*figure += edge.*figure;
    merged.back().bytes_variance += edge.bytes_variance;
    merged.back().samples = std::max(merged.back().samples, edge.samples);
  }
  *edges = std::move(merged);
}

}  // namespace

ClusterView::ClusterView(const std::map<NodeInstance, Digest>& digests) {
  size_t objects = 0;
  for (const auto& [from, digest] : digests) objects += digest.objects.size();
  objects_.reserve(objects);
  calls_.reserve(objects);
  callers_.reserve(objects);
  nodes_.reserve(digests.size());
  links_.reserve(digests.size());
  for (const auto& [from, digest] : digests) AddDigest(digest);
}

void ClusterView::AddDigest(const Digest& digest) {
  nodes_[digest.from.node] = &digest.node;
  for (const Rid& rid : digest.consoles) consoles_.insert(ToObjectId(rid));
  for (const Rid& rid : digest.begin_anew) anew_.insert(ToObjectId(rid));
  for (const PinRecord& record : digest.pins) {
    const ObjectId id = ToObjectId(record.rid);
    if (told_.insert_or_assign(id, &record).second && record.attach_group != 0) {
      groups_[record.attach_group].push_back(id);
    }
  }
  for (const auto& object : digest.objects) {
    const bool anew = digest.window_s <= 0;
    const auto [it, first] =
        objects_.try_emplace(object.id, Object{&object, digest.window_s, anew, false});
    if (!first) it->second.on_two_nodes = true;
  }
  for (const auto& edge : digest.edges) {
    calls_[edge.from].push_back({&edge, digest.window_s});
    callers_[edge.to].push_back(edge.from);
  }
  for (const auto& link : digest.links) {
    const placement::LinkStatistics*& known = links_[std::minmax(link.a, link.b)];
    if (known == nullptr || link.measured_bytes > known->measured_bytes) known = &link;
    for (const NodeId end : {link.a, link.b}) {
      Reach& reach = reach_[end];
      reach.bandwidth_bytes_s =
          std::max(reach.bandwidth_bytes_s, link.bandwidth_bytes_s.value_or(0));
      if (link.measured_bytes >= kEvidenceBytes) {
        reach.evident_bandwidth_bytes_s =
            std::max(reach.evident_bandwidth_bytes_s, link.bandwidth_bytes_s.value_or(0));
      }
      reach.round_trip_s =
          std::min(reach.round_trip_s, link.round_trip_s.value_or(reach.round_trip_s));
    }
  }
}

ClusterView::Ids ClusterView::Reachable(const std::vector<ObjectId>& consoles) const {
  Ids reached(consoles.begin(), consoles.end());
  std::vector<ObjectId> next(consoles);
  while (!next.empty()) {
    const ObjectId id = next.back();
    next.pop_back();
    for (const ObjectId& other : AttachedTo(id)) {
      if (reached.insert(other).second) next.push_back(other);
    }
    const auto calls = calls_.find(id);
    if (calls == calls_.end()) continue;
    for (const Call& call : calls->second) {
      if (reached.insert(call.figures->to).second) next.push_back(call.figures->to);
    }
  }
  return reached;
}

// What goes where the object goes, itself included; empty where it goes alone.
absl::Span<const placement::ObjectId> ClusterView::AttachedTo(const ObjectId& id) const {
  const auto told = told_.find(id);
  if (told == told_.end() || told->second->attach_group == 0) return {};
  const auto group = groups_.find(told->second->attach_group);
  if (group == groups_.end()) return {};
  return group->second;
}

bool ClusterView::IsMobile(const ObjectId& id) const {
  const auto it = objects_.find(id);
  return it != objects_.end() && it->second.figures->mobile;
}

std::set<placement::ObjectId> ClusterView::ConsolesThatReach(
    const std::vector<ObjectId>& objects) const {
  std::set<ObjectId> consoles;
  Ids seen(objects.begin(), objects.end());
  std::vector<ObjectId> next(objects);
  while (!next.empty()) {
    const ObjectId id = next.back();
    next.pop_back();
    if (consoles_.contains(id)) consoles.insert(id);
    for (const ObjectId& other : AttachedTo(id)) {
      if (seen.insert(other).second) next.push_back(other);
    }
    const auto callers = callers_.find(id);
    if (callers == callers_.end()) continue;
    for (const ObjectId& caller : callers->second) {
      if (seen.insert(caller).second) next.push_back(caller);
    }
  }
  return consoles;
}

// The console and all whose graphs reach a mobile object that its graph reaches, or that of one of
// these: they cannot be decided apart. Storage that many use is no such object.
std::vector<placement::ObjectId> ClusterView::ConsolesBeside(const ObjectId& console,
                                                             const Ids& own) const {
  std::vector<ObjectId> joined = {console};
  Ids known = {console};
  std::vector<ObjectId> mobile;
  for (const ObjectId& id : own) {
    if (IsMobile(id)) mobile.push_back(id);
  }
  while (!mobile.empty()) {
    std::vector<ObjectId> came;
    for (const ObjectId& id : ConsolesThatReach(mobile)) {
      if (known.insert(id).second) came.push_back(id);
    }
    joined.insert(joined.end(), came.begin(), came.end());
    mobile.clear();
    if (came.empty()) break;
    for (const ObjectId& id : Reachable(came)) {
      if (IsMobile(id)) mobile.push_back(id);
    }
  }
  return joined;
}

void ClusterView::AddObjects(const Ids& reached, double window_s, Joined* joined) const {
  placement::Snapshot* snapshot = &joined->snapshot;
  for (const ObjectId& id : reached) {
    if (anew_.contains(id)) joined->begins_anew = true;
    const auto it = objects_.find(id);
    if (it == objects_.end()) continue;
    if (it->second.anew) joined->begins_anew = true;
    if (it->second.on_two_nodes) joined->on_two_nodes = true;
    snapshot->objects.push_back(
        Scaled(*it->second.figures, ScaleOf(window_s, it->second.length_s)));
    placement::ObjectStatistics& object = snapshot->objects.back();
    const auto told = told_.find(id);
    if (told == told_.end()) continue;
    object.pinned = !told->second->reason.empty();
    object.pinned_reason = told->second->reason;
    object.allowed = told->second->allowed;
    object.attach_group = told->second->attach_group;
  }
  // Hash order differs from run to run, and the same digests are to give the same record.
  std::sort(snapshot->objects.begin(), snapshot->objects.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
}

void ClusterView::AddEdges(const Ids& reached, double window_s,
                           placement::Snapshot* snapshot) const {
  for (const ObjectId& id : reached) {
    const auto calls = calls_.find(id);
    if (calls == calls_.end()) continue;
    for (const Call& call : calls->second) {
      snapshot->edges.push_back(Scaled(*call.figures, ScaleOf(window_s, call.length_s)));
    }
  }
  AddAttachments(&snapshot->edges);
  Merge(&snapshot->edges);
}

// What is attached to an object that is called belongs to its graph though nobody calls it: an edge
// over which nothing passes leads there.
void ClusterView::AddAttachments(std::vector<placement::EdgeStatistics>* edges) const {
  Ids called;
  for (const auto& edge : *edges) called.insert(edge.to);
  std::set<ObjectId> bound;  // ends of edges that were added
  std::vector<placement::EdgeStatistics> added;
  for (const auto& edge : *edges) {
    for (const ObjectId& other : AttachedTo(edge.to)) {
      if (called.contains(other) || !objects_.contains(other)) continue;
      if (!bound.insert(other).second) continue;
      added.emplace_back();
      added.back().from = edge.to;
      added.back().to = other;
    }
  }
  edges->insert(edges->end(), added.begin(), added.end());
}

// Leaves out nodes that hold nothing of the graph and that it may not go to, and links to them: who
// else is in the cluster is not to make another graph of it.
void ClusterView::AddNodes(placement::Snapshot* snapshot) const {
  std::set<NodeId> ids;
  for (const auto& object : snapshot->objects) {
    ids.insert(object.node);
    ids.insert(object.allowed.begin(), object.allowed.end());
  }
  for (auto a = ids.begin(); a != ids.end(); ++a) {
    if (const auto node = nodes_.find(*a); node != nodes_.end()) {
      snapshot->nodes.push_back(*node->second);
    }
    for (auto b = ids.begin(); b != a; ++b) {
      if (const auto link = LinkBetween(*b, *a)) snapshot->links.push_back(*link);
    }
  }
}

// As it was measured; else as the other links of its ends suggest: each was seen to carry so much.
// Without a guess an object that talks to several servers could never be tried at one of them,
// which is what would make them talk; and a graph would not be decided on as long as there is a
// server that its client has only said little to. Calls that cross the way put right what the guess
// had wrong, and the planner takes a move back.
std::optional<placement::LinkStatistics> ClusterView::LinkBetween(NodeId a, NodeId b) const {
  const auto known = links_.find(std::minmax(a, b));
  std::optional<placement::LinkStatistics> link;
  if (known != links_.end()) link = *known->second;
  const auto of_a = nodes_.find(a);
  const auto of_b = nodes_.find(b);
  if (of_a == nodes_.end() || of_b == nodes_.end()) return link;
  const bool both_serve = of_a->second->is_server && of_b->second->is_server;
  const bool one_serves = of_a->second->is_server != of_b->second->is_server;
  const double enough_bytes = both_serve ? kGuessBytes : kEvidenceBytes;
  const bool measured =
      link && link->bandwidth_bytes_s.value_or(0) > 0 && link->measured_bytes >= enough_bytes;
  if (measured || !(both_serve || one_serves)) return link;
  const auto reach_of_a = reach_.find(a);
  const auto reach_of_b = reach_.find(b);
  if (reach_of_a == reach_.end() || reach_of_b == reach_.end()) return link;
  return both_serve
             ? BetweenServers(a, b, link, reach_of_a->second, reach_of_b->second)
             : OfClient(link, of_a->second->is_server ? reach_of_b->second : reach_of_a->second);
}

std::optional<placement::LinkStatistics> ClusterView::BetweenServers(
    NodeId a, NodeId b, std::optional<placement::LinkStatistics> link, const Reach& of_a,
    const Reach& of_b) {
  const double round_trip_s = std::max(of_a.round_trip_s, of_b.round_trip_s);
  if (!std::isfinite(round_trip_s)) return link;
  if (!link) link = placement::LinkStatistics{.a = a, .b = b};
  Guess(std::max(kServerLinkBytes_s, std::min(of_a.bandwidth_bytes_s, of_b.bandwidth_bytes_s)),
        &*link);
  if (!link->round_trip_s) link->round_trip_s = round_trip_s;
  return link;
}

// Its way into the network is the same whichever server it talks to: the best that was seen of it,
// as a slower one would make going away from it pay. A round trip to just that server is known from
// the first call on.
std::optional<placement::LinkStatistics> ClusterView::OfClient(
    std::optional<placement::LinkStatistics> link, const Reach& of_client) {
  if (!link || !link->round_trip_s || of_client.evident_bandwidth_bytes_s <= 0) return link;
  Guess(of_client.evident_bandwidth_bytes_s, &*link);
  return link;
}

ClusterView::Joined ClusterView::SnapshotOf(const Rid& console, const Digest& client) const {
  Joined joined;
  placement::Snapshot& snapshot = joined.snapshot;
  snapshot.window_s = client.window_s;
  snapshot.console = ToObjectId(console);
  const Ids own = Reachable({snapshot.console});
  const std::vector<ObjectId> consoles = ConsolesBeside(snapshot.console, own);
  const Ids reached = consoles.size() == 1 ? own : Reachable(consoles);
  AddObjects(reached, client.window_s, &joined);
  AddEdges(reached, client.window_s, &snapshot);
  AddNodes(&snapshot);
  // Of several consoles the sum is predicted, of which this node sees its own part only.
  if (consoles.size() > 1) {
    snapshot.consoles = consoles;
    return joined;
  }
  double t_app_s = 0;
  for (const auto& object : snapshot.objects) {
    if (object.node != console.home.node) continue;
    // The activity's time as its own node saw it: what is here, and what it waited for from there.
    t_app_s += object.cpu_s + object.ready_s + object.own_stall_s + object.stall_s;
  }
  // A sample in which no call ended has a time of 0, which is as well measured as any.
  snapshot.measured_t_app_s = t_app_s;
  return joined;
}

}  // namespace abacus::runtime
