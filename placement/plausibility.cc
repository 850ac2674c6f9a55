#include "placement/plausibility.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace abacus::placement {
namespace {

constexpr double kCpuMargin = 1.5;
constexpr double kBandwidthMargin = 3;
constexpr double kTimeMargin = 1.5;
constexpr double kSmallS = 0.05;
constexpr double kSmallPart = 0.1;

bool IsSane(double x) { return std::isfinite(x) && x >= 0; }

struct Seen {
  double at_once = 0;  // calls, of all consoles in question
  absl::flat_hash_map<NodeId, double> cpu_s;
  absl::flat_hash_map<uint64_t, double> bytes;
  absl::flat_hash_map<ObjectId, NodeId> node_of;
};

uint64_t Key(NodeId a, NodeId b) { return uint64_t{std::min(a, b)} << 32 | std::max(a, b); }

Seen Add(const Snapshot& s) {
  Seen seen;
  const auto is_console = [&](const ObjectId& id) {
    return id == s.console ||
           std::find(s.consoles.begin(), s.consoles.end(), id) != s.consoles.end();
  };
  for (const auto& object : s.objects) {
    if (is_console(object.id)) seen.at_once += object.CallsAtOnce();
    seen.node_of[object.id] = object.node;
    if (IsSane(object.cpu_s)) seen.cpu_s[object.node] += object.cpu_s;
  }
  seen.at_once = std::max(1.0, seen.at_once);
  for (const auto& edge : s.edges) {
    const auto from = seen.node_of.find(edge.from);
    const auto to = seen.node_of.find(edge.to);
    if (from == seen.node_of.end() || to == seen.node_of.end()) continue;
    const double bytes = edge.request_bytes + edge.reply_bytes;
    if (from->second != to->second && IsSane(bytes)) {
      seen.bytes[Key(from->second, to->second)] += bytes;
    }
  }
  return seen;
}

}  // namespace

std::optional<std::string> FindContradiction(const Snapshot& s) {
  if (!IsSane(s.window_s) || s.window_s == 0) return std::nullopt;
  const Seen seen = Add(s);
  if (s.measured_t_app_s &&
      *s.measured_t_app_s > kTimeMargin * seen.at_once * s.window_s + kSmallS) {
    return absl::StrCat(
        "the activity was inside invocations for ", *s.measured_t_app_s, " s of a window of ",
        s.window_s, " s",
        seen.at_once > 1 ? absl::StrCat(", with ", seen.at_once, " calls at once") : "");
  }
  const double small_s = std::max(kSmallS, kSmallPart * s.window_s);
  for (const auto& node : s.nodes) {
    const auto it = seen.cpu_s.find(node.node);
    if (it == seen.cpu_s.end() || it->second <= small_s) continue;
    if (IsSane(node.cores) && it->second > kCpuMargin * node.cores * s.window_s + small_s) {
      return absl::StrCat("objects on node ", node.node, " used ", it->second, " s of CPU in ",
                          s.window_s, " s on ", node.cores, " cores");
    }
    if (IsSane(node.load) && it->second > kCpuMargin * node.load * s.window_s + 2 * small_s) {
      return absl::StrCat("objects on node ", node.node, " used ", it->second, " s of CPU in ",
                          s.window_s, " s under a load of ", node.load);
    }
  }
  for (const auto& link : s.links) {
    const auto it = seen.bytes.find(Key(link.a, link.b));
    if (it == seen.bytes.end() || !link.bandwidth_bytes_s || !IsSane(*link.bandwidth_bytes_s))
      continue;
    if (*link.bandwidth_bytes_s <= 0) continue;
    if (it->second / *link.bandwidth_bytes_s >
        kBandwidthMargin * seen.at_once * s.window_s + small_s) {
      return absl::StrCat(it->second, " bytes crossed the link between nodes ", link.a, " and ",
                          link.b, " in ", s.window_s, " s, which carries ", *link.bandwidth_bytes_s,
                          " bytes/s");
    }
  }
  return std::nullopt;
}

}  // namespace abacus::placement
