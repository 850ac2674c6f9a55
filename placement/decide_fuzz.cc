// Builds a snapshot from the input's bytes and decides on it: no crash, no figure that is not a
// number, and a decision that was carried out is followed by staying. The first byte's second bit
// chooses between one stack and a graph of several consoles, servers and shared objects, decided
// one by one and in a round.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "placement/engine.h"
#include "placement/testing/snapshots.h"

namespace {

using namespace abacus::placement;  // NOLINT: the whole vocabulary

// Past its end an input goes on with zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t Byte() { return at_ < size_ ? data_[at_++] : 0; }

  // One byte chooses the kind: mostly figures that a measurement could give, so that inputs get
  // past the checks, sometimes eight raw bytes.
  double Figure(double low, double high) {
    const uint8_t kind = Byte();
    if (kind == 255) return Raw();
    return low * std::pow(high / low, kind / 254.0);
  }

 private:
  double Raw() {
    uint8_t raw[sizeof(double)];
    for (uint8_t& byte : raw) byte = Byte();
    double value;
    std::memcpy(&value, raw, sizeof value);
    return value;
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

Snapshot SnapshotFrom(Bytes& bytes) {
  Snapshot s;
  const uint8_t flags = bytes.Byte();
  s.console = {1, 1, 0};
  s.window_s = flags & 1 ? 1 : bytes.Figure(1e-3, 10);
  s.options.suspended = (flags & 6) == 6;
  if (flags & 8) s.measured_t_app_s = bytes.Figure(1e-6, 10);
  if (flags & 16) s.history = {.quiesce_s = bytes.Figure(1e-6, 1), .count = 1};
  for (NodeId node = 1; node <= 2; ++node) {
    s.nodes.push_back({.node = node,
                       .rate = bytes.Figure(0.01, 100),
                       .cores = bytes.Figure(0.5, 64),
                       .load = bytes.Figure(1e-3, 100)});
    if (flags & 32) s.nodes.back().memory_free_bytes = bytes.Figure(1, 1e9);
  }
  LinkStatistics link{.a = 1, .b = 2, .round_trip_s = bytes.Figure(1e-7, 1)};
  if (!(flags & 64)) link.bandwidth_bytes_s = bytes.Figure(1e3, 1e11);
  link.measured_bytes = bytes.Figure(1e5, 1e12);
  s.links.push_back(link);

  const uint8_t objects = 2 + bytes.Byte() % 8;
  for (uint8_t j = 0; j < objects; ++j) {
    const uint8_t kind = bytes.Byte();
    ObjectStatistics o{.id = {1, 1, j}, .class_name = "o"};
    o.node = j == 0 ? 1 : j + 1 == objects ? 2 : 1 + (kind & 1);
    if (kind == 255) o.node = bytes.Byte();
    o.mobile = j > 0 && j + 1 < objects && (kind & 6) != 6;
    o.pinned = (kind & 24) == 24;
    o.cpu_s = bytes.Figure(1e-7, 1);
    o.own_stall_s = kind & 32 ? bytes.Figure(1e-7, 1) : 0;
    o.checkpoint_bytes = uint64_t{1} << bytes.Byte() % 64;
    o.memory_bytes = uint64_t{1} << bytes.Byte() % 64;
    s.objects.push_back(o);
    if (j == 0) continue;
    // Mostly the next in the chain; else any two, which makes forks, cycles and strangers.
    EdgeStatistics e{.from = {1, 1, uint64_t{j} - 1}, .to = {1, 1, j}};
    if (kind >= 250) e = {.from = {1, 1, bytes.Byte()}, .to = {1, 1, bytes.Byte() % 16u}};
    e.calls = bytes.Figure(1e-3, 1e6);
    e.request_bytes = bytes.Figure(1, 1e9);
    e.reply_bytes = bytes.Figure(1, 1e9);
    s.edges.push_back(e);
  }
  return s;
}

// Nodes 1 (client), 2 and 3 (servers), 4 (another client).
Snapshot GraphFrom(Bytes& bytes) {
  Snapshot s;
  const uint8_t flags = bytes.Byte();
  s.window_s = flags & 1 ? 1 : bytes.Figure(1e-3, 10);
  s.console = {1, 1, 0};
  if (flags & 2) s.consoles = {{1, 1, 0}, {1, 1, 1}};
  for (NodeId node = 1; node <= 4; ++node) {
    s.nodes.push_back({.node = node,
                       .rate = bytes.Figure(0.1, 10),
                       .cores = bytes.Figure(0.5, 8),
                       .load = bytes.Figure(1e-3, 10)});
    if (flags & 4) s.nodes.back().memory_free_bytes = bytes.Figure(1, 1e9);
    if (flags & 8) s.nodes.back().memory_bytes = bytes.Figure(1e6, 1e10);
  }
  for (NodeId a = 1; a <= 4; ++a) {
    for (NodeId b = a + 1; b <= 4; ++b) {
      const uint8_t kind = bytes.Byte();
      if (kind == 255) continue;
      s.links.push_back({.a = a,
                         .b = b,
                         .bandwidth_bytes_s = bytes.Figure(1e4, 1e10),
                         .round_trip_s = bytes.Figure(1e-6, 0.1),
                         .measured_bytes = 1e6});
      if (kind & 1) s.links.back().bandwidth_variance = bytes.Figure(1, 1e16);
    }
  }
  const uint8_t objects = 4 + bytes.Byte() % 7;
  for (uint64_t j = 0; j < objects; ++j) {
    const uint8_t kind = bytes.Byte();
    ObjectStatistics o{.id = {1, 1, j}, .class_name = "o", .node = 1 + (kind & 3u)};
    if (j == 0) o.node = 1;
    if (j == 1 && (flags & 2)) o.node = 4;
    o.mobile = j > 1 && j + 2 < objects;
    if (!o.mobile && j > 1) o.node = 2 + (j & 1u);
    o.pinned = (kind & 12) == 12;
    if ((kind & 48) == 48) o.allowed = {2, 1u + kind % 5u};
    o.attach_group = kind >= 192 ? 1 : 0;
    o.cpu_s = bytes.Figure(1e-6, 1);
    if (flags & 16) o.background_cpu_s = bytes.Figure(1e-6, 1);
    if (flags & 32) o.cpu_s_variance = bytes.Figure(1e-12, 1);
    o.checkpoint_bytes = uint64_t{1} << bytes.Byte() % 32;
    o.memory_bytes = uint64_t{1} << bytes.Byte() % 32;
    s.objects.push_back(std::move(o));
    if (j == 0 || (j == 1 && (flags & 2))) continue;
    for (int callers = 1 + (kind >> 6 & 1); callers > 0; --callers) {
      EdgeStatistics e{.from = {1, 1, bytes.Byte() % j}, .to = {1, 1, j}};
      e.calls = bytes.Figure(1e-3, 1e4);
      e.reply_bytes = bytes.Figure(1, 1e8);
      if (flags & 32) e.bytes_variance = bytes.Figure(1, 1e14);
      const auto same = [&](const EdgeStatistics& other) {
        return other.from == e.from && other.to == e.to;
      };
      if (std::none_of(s.edges.begin(), s.edges.end(), same)) s.edges.push_back(e);
    }
  }
  return s;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireFinite(const Prediction& p) {
  Require(std::isfinite(p.response_s) && p.response_s >= 0);
  Require(std::isfinite(p.loads.client) && std::isfinite(p.loads.server));
}

void RequireFinite(const Decision& d) {
  if (d.present) RequireFinite(*d.present);
  for (const Candidate& c : d.candidates) {
    RequireFinite(c.prediction);
    Require(std::isfinite(c.net_benefit_s) && std::isfinite(c.threshold_s));
  }
  Require(!d.model_error || std::isfinite(*d.model_error));
  Require(!Format(d).empty());
}

}  // namespace

namespace {

void DecideOne(const Snapshot& snapshot, const Config& config) {
  const Decision decision = Decide(snapshot, config);
  RequireFinite(decision);
  Require((decision.outcome == Outcome::kMove) == !decision.moves.empty());
  if (decision.outcome == Outcome::kStay) return;

  const Decision again = Decide(testing::After(snapshot, decision, config), config);
  RequireFinite(again);
  Require(again.outcome == Outcome::kStay);
}

std::vector<Move> MovesOf(const Round& round) {
  std::vector<Move> moves;
  for (const RoundStep& step : round.steps) {
    Require(std::isfinite(step.net_benefit_s) && std::isfinite(step.threshold_s));
    moves.insert(moves.end(), step.moves.begin(), step.moves.end());
  }
  Require(std::isfinite(round.mean_now_s) && std::isfinite(round.mean_new_s));
  return moves;
}

void DecideRound(const Snapshot& snapshot, const Config& config) {
  const Round round = DecideAll(snapshot, {}, config);
  const std::vector<Move> moves = MovesOf(round);
  if (moves.empty() || round.cut_off > 0) return;
  Require(MovesOf(DecideAll(testing::After(snapshot, moves, config), {}, config)).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  Config config;
  const uint8_t kind = bytes.Byte();
  config.client_load_constant = kind & 1;
  const bool graph = kind & 2;
  const Snapshot snapshot = graph ? GraphFrom(bytes) : SnapshotFrom(bytes);
  DecideOne(snapshot, config);
  if (graph) DecideRound(snapshot, config);
  return 0;
}
