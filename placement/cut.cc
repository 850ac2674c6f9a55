#include "placement/cut.h"

#include <algorithm>
#include <cmath>

namespace abacus::placement {
namespace {

constexpr int kUnreached = -1;

// The state of one run: residual capacities beside the arcs of each vertex, which lie together.
class Dinic {
 public:
  Dinic(size_t vertices, size_t source, size_t sink)
      : source_(source), sink_(sink), first_(vertices + 1, 0), next_(vertices), level_(vertices) {}

  template <typename Arcs>
  void Load(const Arcs& arcs) {
    for (const auto& arc : arcs) ++first_[arc.from + 1];
    for (size_t v = 1; v < first_.size(); ++v) first_[v] += first_[v - 1];
    std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
    residual_.resize(arcs.size());
    for (size_t i = 0; i < arcs.size(); i += 2) {
      const uint32_t there = at[arcs[i].from]++;
      const uint32_t back = at[arcs[i + 1].from]++;
      residual_[there] = {arcs[i].to, back, arcs[i].capacity};
      residual_[back] = {arcs[i + 1].to, there, arcs[i + 1].capacity};
    }
  }

  // Returns the flow, infinite as soon as a path without a finite capacity is found.
  double Run() {
    double flow = 0;
    while (Level()) {
      std::copy(first_.begin(), first_.end() - 1, next_.begin());
      path_.clear();
      while (true) {
        const double pushed = Augment();
        if (pushed == 0) break;
        flow += pushed;
        if (std::isinf(flow)) return flow;
      }
    }
    return flow;
  }

  // What the source still reaches: vertices on its side of the smallest cut.
  std::vector<bool> Reached() const {
    std::vector<bool> reached(level_.size(), false);
    std::vector<size_t> stack = {source_};
    reached[source_] = true;
    while (!stack.empty()) {
      const size_t v = stack.back();
      stack.pop_back();
      for (uint32_t i = first_[v]; i < first_[v + 1]; ++i) {
        const Residual& arc = residual_[i];
        if (arc.capacity <= 0 || reached[arc.to]) continue;
        reached[arc.to] = true;
        stack.push_back(arc.to);
      }
    }
    return reached;
  }

 private:
  struct Residual {
    uint32_t to;
    uint32_t back;  // index of the way back
    double capacity;
  };

  // Distances to the sink, found backwards: vertices that cannot reach it are never walked into.
  bool Level() {
    std::fill(level_.begin(), level_.end(), kUnreached);
    queue_.assign(1, static_cast<uint32_t>(sink_));
    level_[sink_] = 0;
    for (size_t at = 0; at < queue_.size() && level_[source_] == kUnreached; ++at) {
      const uint32_t v = queue_[at];
      for (uint32_t i = first_[v]; i < first_[v + 1]; ++i) {
        const Residual& arc = residual_[i];
        if (level_[arc.to] != kUnreached || residual_[arc.back].capacity <= 0) continue;
        level_[arc.to] = level_[v] + 1;
        queue_.push_back(arc.to);
      }
    }
    return level_[source_] != kUnreached;
  }

  // One path of the level, without recursion: a path may be as long as the graph. It begins with
  // what the last one left, the part before the first arc that was filled.
  double Augment() {
    size_t v = path_.empty() ? source_ : residual_[path_.back()].to;
    while (v != sink_) {
      if (Advance(v)) {
        path_.push_back(next_[v]);
        v = residual_[next_[v]].to;
        continue;
      }
      if (v == source_) return 0;
      level_[v] = kUnreached;  // a dead end for the rest of this level
      v = residual_[residual_[path_.back()].back].to;
      path_.pop_back();
    }
    double smallest = INFINITY;
    for (const uint32_t i : path_) smallest = std::min(smallest, residual_[i].capacity);
    if (std::isinf(smallest)) return smallest;
    size_t open = path_.size();
    for (size_t i = path_.size(); i-- > 0;) {
      Residual& arc = residual_[path_[i]];
      arc.capacity -= smallest;
      residual_[arc.back].capacity += smallest;
      if (arc.capacity <= 0) open = i;
    }
    path_.resize(open);
    return smallest;
  }

  // Moves next_[v] to an arc that leads one step nearer to the sink; false if there is none left.
  bool Advance(size_t v) {
    for (uint32_t& i = next_[v]; i < first_[v + 1]; ++i) {
      const Residual& arc = residual_[i];
      if (arc.capacity > 0 && level_[arc.to] != kUnreached && level_[arc.to] + 1 == level_[v]) {
        return true;
      }
    }
    return false;
  }

  const size_t source_;
  const size_t sink_;
  std::vector<uint32_t> first_;  // of each vertex's arcs, with an end
  std::vector<uint32_t> next_;   // the arc to be tried next
  std::vector<int> level_;
  std::vector<Residual> residual_;
  std::vector<uint32_t> queue_;
  std::vector<uint32_t> path_;
};

}  // namespace

void CutGraph::AddArc(size_t from, size_t to, double capacity, double back) {
  if (from == to) return;
  const auto a = static_cast<uint32_t>(from);
  const auto b = static_cast<uint32_t>(to);
  arcs_.push_back({a, b, capacity});
  arcs_.push_back({b, a, back});
}

Cut CutGraph::MinCut(size_t source, size_t sink) const {
  Dinic dinic(vertices_, source, sink);
  dinic.Load(arcs_);
  Cut cut;
  cut.flow = dinic.Run();
  if (std::isinf(cut.flow)) {
    cut.capacity = cut.flow;
    cut.source_side.assign(vertices_, false);
    cut.source_side[source] = true;
    return cut;
  }
  cut.source_side = dinic.Reached();
  for (const Arc& arc : arcs_) {
    if (cut.source_side[arc.from] && !cut.source_side[arc.to]) cut.capacity += arc.capacity;
  }
  return cut;
}

}  // namespace abacus::placement
