#include "runtime/resource/digest_window.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace abacus::runtime {

// FNV-1a: the number must be the same in every process, which absl::Hash is not.
uint32_t AttachGroupOf(std::vector<Rid> rids) {
  std::sort(rids.begin(), rids.end());
  uint32_t hash = 2166136261u;
  const auto add = [&hash](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ static_cast<uint8_t>(value >> (8 * byte))) * 16777619u;
    }
  };
  for (const Rid& rid : rids) {
    add(uint64_t{rid.home.node} << 32 | rid.home.incarnation);
    add(rid.local);
  }
  return std::max(hash, 1u);
}

void Append(Digest& into, const Digest& later) {
  if (!into.from.valid() || later.window_s <= 0) {
    into = later;
    return;
  }
  Digest sum = later;
  sum.window_s += into.window_s;
  std::set<placement::ObjectId> anew;
  for (const Rid& rid : later.begin_anew) anew.insert(ToObjectId(rid));
  for (const Rid& rid : into.begin_anew) {
    if (!anew.contains(ToObjectId(rid))) sum.begin_anew.push_back(rid);
  }
  std::erase_if(into.objects, [&](const auto& object) { return anew.contains(object.id); });
  std::erase_if(into.edges, [&](const auto& edge) {
    return anew.contains(edge.from) || anew.contains(edge.to);
  });

  std::map<placement::ObjectId, const placement::ObjectStatistics*> objects;
  for (const placement::ObjectStatistics& object : into.objects) objects[object.id] = &object;
  for (placement::ObjectStatistics& object : sum.objects) {
    const auto before = objects.find(object.id);
    if (before == objects.end()) continue;
    const placement::ObjectStatistics& earlier = *before->second;
    for (const auto figure : placement::kObjectSums) object.*figure += earlier.*figure;
    object.cpu_s_variance += earlier.cpu_s_variance;
    objects.erase(before);
  }
  // Those that did nothing in the later part.
  for (const placement::ObjectStatistics& object : into.objects) {
    if (objects.contains(object.id)) sum.objects.push_back(object);
  }

  using Ends = std::pair<placement::ObjectId, placement::ObjectId>;
  std::map<Ends, const placement::EdgeStatistics*> edges;
  for (const placement::EdgeStatistics& edge : into.edges) edges[{edge.from, edge.to}] = &edge;
  for (placement::EdgeStatistics& edge : sum.edges) {
    const auto before = edges.find({edge.from, edge.to});
    if (before == edges.end()) continue;
    const placement::EdgeStatistics& earlier = *before->second;
    for (const auto figure : placement::kEdgeSums) edge.*figure += earlier.*figure;
    edge.bytes_variance += earlier.bytes_variance;
    edges.erase(before);
  }
  for (const placement::EdgeStatistics& edge : into.edges) {
    if (edges.contains({edge.from, edge.to})) sum.edges.push_back(edge);
  }
  into = std::move(sum);
}

void DigestWindow::Add(const Digest& digest, absl::Time now, absl::Duration window) {
  if (digest.window_s <= 0) parts_.clear();
  if (!parts_.empty() && now - parts_.back().from < window / 2) {
    Append(parts_.back().digest, digest);
    parts_.back().at = now;
  } else {
    parts_.push_back({now, now, digest});
  }
  while (parts_.size() > 1 && now - parts_.front().at >= window) parts_.pop_front();
}

Digest DigestWindow::Sum() const {
  Digest sum;
  for (const Part& part : parts_) Append(sum, part.digest);
  return sum;
}

}  // namespace abacus::runtime
