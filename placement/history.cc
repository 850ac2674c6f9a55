#include "placement/history.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace abacus::placement {
namespace {

// How much a figure is taken to vary from sample to sample: at most, and where nothing else is
// known, and at least, whatever was seen.
constexpr double kPriorDeviation = 0.2;
constexpr double kPriorDeviationMin = 0.05;
constexpr double kPriorSamples = 2;
// Samples from before the window that tell more than the prior.
constexpr size_t kEarlierMin = 8;
// A sample that began this part of its length before a window still belongs to it: ends of samples
// and of windows come from clocks of their own.
constexpr double kSlack = 0.01;

// Window() tells figures by their places.
static_assert(kObjectSums[0] == &ObjectStatistics::cpu_s);
static_assert(kEdgeSums[1] == &EdgeStatistics::request_bytes &&
              kEdgeSums[2] == &EdgeStatistics::reply_bytes);

void Sort(Snapshot& s) {
  std::sort(s.nodes.begin(), s.nodes.end(),
            [](const auto& a, const auto& b) { return a.node < b.node; });
  std::sort(s.objects.begin(), s.objects.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  std::sort(s.edges.begin(), s.edges.end(), [](const auto& a, const auto& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  std::sort(s.links.begin(), s.links.end(),
            [](const auto& x, const auto& y) { return std::tie(x.a, x.b) < std::tie(y.a, y.b); });
}

// Whether figures of the two can be added up one by one.
bool SameGraph(const Snapshot& a, const Snapshot& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const auto& x, const auto& y) { return x.node == y.node; }) &&
         std::equal(
             a.objects.begin(), a.objects.end(), b.objects.begin(), b.objects.end(),
             [](const auto& x, const auto& y) { return x.id == y.id && x.node == y.node; }) &&
         std::equal(
             a.edges.begin(), a.edges.end(), b.edges.begin(), b.edges.end(),
             [](const auto& x, const auto& y) { return x.from == y.from && x.to == y.to; }) &&
         std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(),
                    [](const auto& x, const auto& y) { return x.a == y.a && x.b == y.b; });
}

// What is a level and no sum: two figures of each node, then two of each link.
std::vector<double> LevelsOf(const Snapshot& s) {
  std::vector<double> levels;
  for (const auto& node : s.nodes) {
    levels.push_back(node.load);
    levels.push_back(node.rate);
  }
  for (const auto& link : s.links) {
    levels.push_back(link.bandwidth_bytes_s.value_or(0));
    levels.push_back(link.round_trip_s.value_or(0));
  }
  return levels;
}

// Variance of what n samples add up to, from their sum and sum of squares and from how much, as a
// part of it, the figure is known to vary.
double VarianceOfSum(double n, double sum, double squares, double prior_deviation) {
  const double mean = sum / n;
  const double seen = std::max(0.0, squares - sum * mean);
  const double prior = kPriorSamples * prior_deviation * mean * prior_deviation * mean;
  return n * (seen + prior) / (n - 1 + kPriorSamples);
}

}  // namespace

bool GraphHistory::Add(Snapshot sample, double end_s) {
  Sort(sample);
  const bool continued = !rows_.empty() && SameGraph(sample, latest_);
  if (!continued) Clear();
  if (rows_.size() >= samples_max_) DropOldest(rows_.size() - samples_max_ + 1);
  rows_.push_back({.end_s = end_s,
                   .length_s = sample.window_s,
                   .has_t_app = sample.measured_t_app_s.has_value()});
  if (continued) figures_.reserve(std::min(samples_max_, std::bit_ceil(rows_.size())) * width_);
  const auto add = [this](double figure) { figures_.push_back(static_cast<float>(figure)); };
  for (const double level : LevelsOf(sample)) add(level);
  for (const auto& object : sample.objects) {
    for (const auto figure : kObjectSums) add(object.*figure);
  }
  for (const auto& edge : sample.edges) {
    for (const auto figure : kEdgeSums) add(edge.*figure);
  }
  add(sample.measured_t_app_s.value_or(0));
  width_ = figures_.size() / rows_.size();
  latest_ = std::move(sample);
  return continued;
}

void GraphHistory::SetSamplesMax(size_t samples_max) {
  samples_max_ = samples_max;
  if (rows_.size() > samples_max_) DropOldest(rows_.size() - samples_max_);
}

void GraphHistory::DropOldest(size_t rows) {
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(rows));
  figures_.erase(figures_.begin(), figures_.begin() + static_cast<ptrdiff_t>(rows * width_));
}

double GraphHistory::begin_s() const {
  return rows_.empty() ? 0 : rows_.front().end_s - rows_.front().length_s;
}

// By how much, as a part of it, each figure varied in the first `rows` samples. What was measured
// in another phase has other figures, but noise and the grain of the work are much the same.
std::vector<double> GraphHistory::EarlierDeviations(size_t rows) const {
  std::vector<double> deviations(width_, kPriorDeviation);
  if (rows < kEarlierMin) return deviations;
  const auto n = static_cast<double>(rows);
  for (size_t i = 0; i < width_; ++i) {
    double sum = 0;
    double squares = 0;
    for (size_t r = 0; r < rows; ++r) {
      const double x = FiguresOf(r)[i];
      sum += x;
      squares += x * x;
    }
    if (sum <= 0) continue;
    const double variance = std::max(0.0, squares - sum * sum / n) / (n - 1);
    deviations[i] = std::clamp(std::sqrt(variance) * n / sum, kPriorDeviationMin, kPriorDeviation);
  }
  return deviations;
}

Snapshot GraphHistory::Window(double from_s) const {
  size_t first = rows_.size() - 1;
  while (first > 0) {
    const Row& before = rows_[first - 1];
    if (before.end_s - before.length_s < from_s - kSlack * before.length_s) break;
    --first;
  }
  std::vector<double> sum(width_, 0), squares(width_, 0);
  double window_s = 0;
  bool has_t_app = true;
  const size_t levels = 2 * latest_.nodes.size() + 2 * latest_.links.size();
  for (size_t r = first; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    window_s += row.length_s;
    has_t_app = has_t_app && row.has_t_app;
    const float* figures = FiguresOf(r);
    for (size_t i = 0; i < width_; ++i) {
      const double x = figures[i];
      sum[i] += i < levels ? x * row.length_s : x;
      squares[i] += x * x;
    }
  }
  const auto n = static_cast<double>(rows_.size() - first);

  const std::vector<double> prior = EarlierDeviations(first);
  Snapshot window = latest_;
  window.window_s = window_s;
  size_t i = 0;
  for (auto& node : window.nodes) {
    node.load = sum[i++] / window_s;
    if (node.rate > 0) node.rate = sum[i] / window_s;
    ++i;
  }
  for (auto& link : window.links) {
    const double mean = sum[i] / window_s;
    if (link.bandwidth_bytes_s.value_or(0) > 0) {
      link.bandwidth_bytes_s = mean;
      // Of the mean: that of a sum of n, over n squared.
      link.bandwidth_variance = std::max(
          link.bandwidth_variance / n, VarianceOfSum(n, n * mean, squares[i], prior[i]) / (n * n));
    }
    ++i;
    if (link.round_trip_s) link.round_trip_s = sum[i] / window_s;
    ++i;
  }
  for (auto& object : window.objects) {
    object.samples = n;
    object.cpu_s_variance = VarianceOfSum(n, sum[i], squares[i], prior[i]);
    for (const auto figure : kObjectSums) object.*figure = sum[i++];
  }
  for (auto& edge : window.edges) {
    edge.samples = n;
    // Requests and replies of one call go together: the deviations add up, not the variances.
    const double deviation = std::sqrt(VarianceOfSum(n, sum[i + 1], squares[i + 1], prior[i + 1])) +
                             std::sqrt(VarianceOfSum(n, sum[i + 2], squares[i + 2], prior[i + 2]));
    edge.bytes_variance = deviation * deviation;
    for (const auto figure : kEdgeSums) edge.*figure = sum[i++];
  }
  // Not the last sample's, where an earlier one has none: that would be of another length.
  window.measured_t_app_s = has_t_app ? std::optional(sum[i]) : std::nullopt;
  AlignCalls(&window);
  return window;
}

void AlignCalls(Snapshot* window) {
  absl::flat_hash_map<ObjectId, ObjectStatistics*> objects;
  absl::flat_hash_map<ObjectId, std::vector<EdgeStatistics*>> called, calls;
  for (auto& object : window->objects) objects[object.id] = &object;
  for (auto& edge : window->edges) {
    if (!objects.contains(edge.from) || !objects.contains(edge.to)) return;
    called[edge.to].push_back(&edge);
    calls[edge.from].push_back(&edge);
  }
  const double consoles = static_cast<double>(std::max<size_t>(1, window->consoles.size()));
  // From the top, each object after all that call it; of a cycle none, as there is no top.
  absl::flat_hash_map<ObjectId, size_t> callers_left;
  std::vector<ObjectId> next;
  for (const auto& [id, object] : objects) {
    callers_left[id] = called[id].size();
    if (called[id].empty()) next.push_back(id);
  }
  absl::flat_hash_map<const EdgeStatistics*, double> raw_calls;
  for (const auto& edge : window->edges) raw_calls[&edge] = edge.calls;
  while (!next.empty()) {
    const ObjectId id = next.back();
    next.pop_back();
    double seen = 0, raw = 0;
    bool from_afar = false;
    for (const EdgeStatistics* edge : called[id]) {
      seen += edge->calls;
      raw += raw_calls[edge];
      from_afar = from_afar || objects[edge->from]->node != objects[id]->node;
    }
    ObjectStatistics& object = *objects[id];
    const bool off = from_afar && object.calls > 0 && std::abs(raw - object.calls) <= consoles;
    const double counted = off ? object.calls : raw;
    const double factor = seen > 0 && counted > 0 ? seen / counted : 1;
    if (factor != 1) {
      for (const auto figure : kObjectSums) object.*figure *= factor;
      object.cpu_s_variance *= factor * factor;
    }
    for (EdgeStatistics* edge : calls[id]) {
      if (factor != 1) {
        for (const auto figure : kEdgeSums) edge->*figure *= factor;
        edge->bytes_variance *= factor * factor;
      }
      if (--callers_left[edge->to] == 0) next.push_back(edge->to);
    }
  }
}

}  // namespace abacus::placement
