#include "placement/confidence.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"

namespace abacus::placement {
namespace {

double Square(double x) { return x * x; }

double SlowdownOn(const NodeStatistics& node, double load) {
  return std::max(1.0, load / node.cores);
}

}  // namespace

double BenefitDeviation(const Snapshot& snapshot, const Decision& decision, size_t candidate) {
  if (!decision.present || snapshot.window_s <= 0) return 0;
  const double scale = decision.window_s / snapshot.window_s;
  const Candidate& c = decision.candidates[candidate];
  const Sides after = SidesOfSplit(c.split, decision.stack.size());
  const auto slowdown = [&](const Prediction& p, Side side) {
    return side == Side::kClient ? SlowdownOn(decision.client, p.loads.client)
                                 : SlowdownOn(decision.server, p.loads.server);
  };
  const auto rate = [&](Side side) {
    return side == Side::kClient ? decision.client.rate : decision.server.rate;
  };
  absl::flat_hash_map<ObjectId, size_t> position;
  for (size_t j = 0; j < decision.stack.size(); ++j) position[decision.stack[j].id] = j;

  double variance = 0;
  for (const ObjectStatistics& object : snapshot.objects) {
    const auto it = position.find(object.id);
    if (it == position.end()) continue;
    const Side from = decision.stack[it->second].side;
    const Side to = after[it->second];
    const double weight =
        slowdown(*decision.present, from) - slowdown(c.prediction, to) * rate(from) / rate(to);
    variance += Square(weight * scale) * object.cpu_s_variance;
  }
  const double bandwidth = decision.link.bandwidth_bytes_s.value_or(0);
  if (bandwidth <= 0) return std::sqrt(variance);
  double more_bytes = 0;
  for (const EdgeStatistics& edge : snapshot.edges) {
    const auto from = position.find(edge.from);
    const auto to = position.find(edge.to);
    if (from == position.end() || to == position.end()) continue;
    const bool crosses = decision.stack[from->second].side != decision.stack[to->second].side;
    const bool will_cross = after[from->second] != after[to->second];
    if (crosses == will_cross) continue;
    const double bytes = (edge.request_bytes + edge.reply_bytes) * scale;
    more_bytes += crosses ? bytes : -bytes;
    variance += Square(scale / bandwidth) * edge.bytes_variance;
  }
  variance += Square(more_bytes / Square(bandwidth)) * decision.link.bandwidth_variance;
  return std::isfinite(variance) ? std::sqrt(std::max(0.0, variance)) : 0;
}

}  // namespace abacus::placement
