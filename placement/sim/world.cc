#include "placement/sim/world.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace abacus::placement::sim {
namespace {

constexpr double kRoundTripsOfAMove = 2.5;
constexpr double kFramesOfACall = 2;
constexpr double kNoLimitBytes = 1e18;
constexpr double kUnitsEps = 1e-12;
// A scheme that failed so often would fall back to another one.
constexpr double kAttemptsMax = 64;

uint64_t LinkKey(size_t a, size_t b) {
  const auto [low, high] = std::minmax(a, b);
  return uint64_t{low} << 32 | high;
}

}  // namespace

World::World(const Cluster& cluster) : cluster_(cluster) {
  for (size_t i = 0; i < cluster.links.size(); ++i) {
    links_[LinkKey(cluster.links[i].a, cluster.links[i].b)] = i;
  }
  for (const Node& node : cluster.nodes) others_.push_back(node.others_load);
  load_ = others_;
  nic_.assign(cluster.nodes.size(), 0);
  consoles_of_.resize(cluster.objects.size());
  memory_used_.assign(cluster.nodes.size(), 0);
  for (const Object& object : cluster.objects) {
    placement_.push_back(object.node);
    if (object.mobile) memory_used_[object.node] += static_cast<double>(object.memory_bytes);
  }
  for (size_t c = 0; c < cluster.consoles.size(); ++c) {
    const Console& console = cluster.consoles[c];
    for (const size_t object : console.objects) consoles_of_[object].push_back(c);
    ConsoleState state;
    state.units_left = console.phases[0].units;
    state.phase_since_s = console.starts_s;
    state.units_by_phase.assign(console.phases.size(), 0);
    state.usage.cpu_s.assign(console.objects.size(), 0);
    state.usage.stall_s.assign(console.objects.size(), 0);
    state.usage.edges.assign(console.edges.size(), EdgeNeed{0, 0, 0});
    states_.push_back(std::move(state));
  }
}

const Link& World::LinkBetween(size_t a, size_t b) const {
  const auto it = links_.find(LinkKey(a, b));
  if (it == links_.end()) std::abort();  // the constructor's requirement
  return cluster_.links[it->second];
}

double World::Bandwidth(size_t a, size_t b) const {
  double bandwidth = LinkBetween(a, b).bandwidth_bytes_s;
  for (const size_t node : {a, b}) {
    bandwidth = std::min(bandwidth, cluster_.nodes[node].nic_bytes_s / std::max(1.0, nic_[node]));
  }
  double byte_s = 0;
  for (const size_t node : {a, b}) byte_s += MessageTime(node, 0, 1) * Crowd(node);
  return byte_s > 0 ? 1 / (1 / bandwidth + byte_s) : bandwidth;
}

double World::RoundTrip(size_t a, size_t b) const {
  double total_s = LinkBetween(a, b).round_trip_s;
  for (const size_t node : {a, b}) total_s += MessageTime(node, 1, 0) * Crowd(node);
  return total_s;
}

double World::FreeMemory(size_t node) const {
  if (!cluster_.nodes[node].memory_bytes) return kNoLimitBytes;
  return std::max(0.0, *cluster_.nodes[node].memory_bytes - memory_used_[node]);
}

// The objects of a graph end with it; shared ones with the last.
void World::ReleaseMemory(size_t console) {
  for (const size_t object : cluster_.consoles[console].objects) {
    const std::vector<size_t>& users = consoles_of_[object];
    const bool used =
        std::any_of(users.begin(), users.end(), [&](size_t user) { return !states_[user].ended; });
    if (used || !cluster_.objects[object].mobile) continue;
    memory_used_[placement_[object]] -= static_cast<double>(cluster_.objects[object].memory_bytes);
  }
}

void World::Place(size_t object, size_t node) {
  const auto bytes = static_cast<double>(cluster_.objects[object].memory_bytes);
  if (cluster_.objects[object].mobile) {
    memory_used_[placement_[object]] -= bytes;
    memory_used_[node] += bytes;
  }
  placement_[object] = node;
}

double World::Move(const std::vector<size_t>& objects, size_t to, double quiesce_s) {
  double bytes = 0;
  for (const size_t object : objects) {
    bytes += static_cast<double>(cluster_.objects[object].checkpoint_bytes);
  }
  const size_t from = placement_[objects.front()];
  double blackout_s = quiesce_s;
  if (from != to) {
    blackout_s +=
        kRoundTripsOfAMove * RoundTrip(from, to) + bytes / LinkBetween(from, to).bandwidth_bytes_s;
  }
  for (const size_t object : objects) {
    Place(object, to);
    for (const size_t console : consoles_of_[object]) {
      double& until_s = states_[console].blackout_until_s;
      until_s = std::max(until_s, now_s_ + blackout_s);
    }
  }
  return blackout_s;
}

bool World::Running(size_t console) const {
  return !states_[console].ended && now_s_ >= cluster_.consoles[console].starts_s;
}

double World::ElapsedOf(size_t console) const {
  const double end_s = states_[console].ended ? states_[console].ended_s : now_s_;
  return std::max(0.0, end_s - cluster_.consoles[console].starts_s);
}

const World::Share* World::ShareOn(const ConsoleState& state, size_t node) const {
  for (const Share& share : state.shares) {
    if (share.node == node) return &share;
  }
  return nullptr;
}

double World::Slowdown(size_t node, double own) const {
  return std::max(1.0, (std::max(0.0, load_[node] - own) + 1) / cluster_.nodes[node].cores);
}

double World::Crowd(size_t node) const {
  return std::max(1.0, load_[node] / cluster_.nodes[node].cores);
}

double World::MessageTime(size_t node, double calls, double bytes) const {
  const Node& n = cluster_.nodes[node];
  return (calls * kFramesOfACall * n.frame_work + bytes * n.byte_work) / n.rate;
}

double World::UnitTimeWith(const Console& console, const Phase& phase, const ConsoleState* own,
                           std::vector<Share>* shares) const {
  const auto at = [shares](size_t node) -> Share& {
    for (Share& share : *shares) {
      if (share.node == node) return share;
    }
    return shares->emplace_back(Share{.node = node});
  };
  if (shares != nullptr) shares->clear();
  const double attempts = AttemptsOf(console, own);
  double total_s = 0;
  for (size_t j = 0; j < console.objects.size(); ++j) {
    const size_t node = placement_[console.objects[j]];
    const Share* share = own == nullptr ? nullptr : ShareOn(*own, node);
    double cpu_s = phase.objects[j].work / cluster_.nodes[node].rate;
    if (attempts > 1 && j == console.edges[console.contended_edge].from) cpu_s *= attempts;
    if (cluster_.nodes[node].is_server) cpu_s *= cluster_.objects[console.objects[j]].server_factor;
    cpu_s *= Slowdown(node, share == nullptr ? 0 : share->cpu);
    total_s += cpu_s + phase.objects[j].stall_s;
    if (shares != nullptr) at(node).cpu += cpu_s;
  }
  for (size_t e = 0; e < console.edges.size(); ++e) {
    const size_t a = placement_[console.objects[console.edges[e].from]];
    const size_t b = placement_[console.objects[console.edges[e].to]];
    if (a == b) continue;
    const Link& link = LinkBetween(a, b);
    double bandwidth = link.bandwidth_bytes_s;
    for (const size_t node : {a, b}) {
      const Share* share = own == nullptr ? nullptr : ShareOn(*own, node);
      const double flows = std::max(0.0, nic_[node] - (share == nullptr ? 0 : share->nic)) + 1;
      bandwidth = std::min(bandwidth, cluster_.nodes[node].nic_bytes_s / flows);
    }
    const EdgeNeed& need = phase.edges[e];
    const double times = attempts > 1 && e == console.contended_edge ? attempts : 1;
    const double bytes = times * (need.request_bytes + need.reply_bytes);
    const double bytes_s = bytes / bandwidth;
    total_s += times * need.calls * link.round_trip_s + bytes_s;
    for (const size_t node : {a, b}) {
      const Share* share = own == nullptr ? nullptr : ShareOn(*own, node);
      const double cpu_s = MessageTime(node, times * need.calls, bytes) *
                           Slowdown(node, share == nullptr ? 0 : share->cpu);
      total_s += cpu_s;
      if (shares != nullptr) at(node).cpu += cpu_s;
    }
    if (shares != nullptr) at(a).nic += bytes_s;
    if (shares != nullptr) at(b).nic += bytes_s;
  }
  return total_s;
}

double World::UnitTime(size_t console, size_t phase) const {
  const Console& c = cluster_.consoles[console];
  return UnitTimeWith(c, c.phases[phase], &states_[console], nullptr);
}

double World::UnitTimeAlone(size_t console, size_t phase,
                            const std::vector<size_t>& placement) const {
  const Console& c = cluster_.consoles[console];
  double total_s = 0;
  for (size_t j = 0; j < c.objects.size(); ++j) {
    const Node& node = cluster_.nodes[placement[j]];
    const double factor = node.is_server ? cluster_.objects[c.objects[j]].server_factor : 1;
    total_s +=
        c.phases[phase].objects[j].stall_s + c.phases[phase].objects[j].work / node.rate * factor *
                                                 std::max(1.0, (node.others_load + 1) / node.cores);
  }
  for (size_t e = 0; e < c.edges.size(); ++e) {
    const size_t a = placement[c.edges[e].from];
    const size_t b = placement[c.edges[e].to];
    if (a == b) continue;
    const EdgeNeed& need = c.phases[phase].edges[e];
    const double bandwidth =
        std::min({LinkBetween(a, b).bandwidth_bytes_s, cluster_.nodes[a].nic_bytes_s,
                  cluster_.nodes[b].nic_bytes_s});
    const double bytes = need.request_bytes + need.reply_bytes;
    total_s += need.calls * LinkBetween(a, b).round_trip_s + bytes / bandwidth;
    for (const size_t n : {a, b}) {
      const Node& node = cluster_.nodes[n];
      total_s +=
          MessageTime(n, need.calls, bytes) * std::max(1.0, (node.others_load + 1) / node.cores);
    }
  }
  return total_s;
}

void World::ApplyEvents() {
  while (next_event_ < cluster_.events.size() &&
         cluster_.events[next_event_].at_s <= now_s_ + 1e-9) {
    const NodeEvent& event = cluster_.events[next_event_++];
    load_[event.node] += event.others_load - others_[event.node];
    others_[event.node] = event.others_load;
  }
}

void World::AddUsage(size_t console, double units, double active_s) {
  ConsoleState& state = states_[console];
  const Console& c = cluster_.consoles[console];
  const Phase& phase = c.phases[state.phase];
  const double attempts = AttemptsOf(c, &state);
  state.retries += units * (attempts - 1);
  state.usage.active_s += active_s;
  state.usage.units += units;
  for (size_t j = 0; j < c.objects.size(); ++j) {
    const Node& node = cluster_.nodes[placement_[c.objects[j]]];
    const double factor = node.is_server ? cluster_.objects[c.objects[j]].server_factor : 1;
    const bool again = attempts > 1 && j == c.edges[c.contended_edge].from;
    state.usage.cpu_s[j] +=
        units * (again ? attempts : 1) * phase.objects[j].work / node.rate * factor;
    state.usage.stall_s[j] += units * phase.objects[j].stall_s;
  }
  for (size_t e = 0; e < c.edges.size(); ++e) {
    const double times = units * (attempts > 1 && e == c.contended_edge ? attempts : 1);
    state.usage.edges[e].calls += times * phase.edges[e].calls;
    state.usage.edges[e].request_bytes += times * phase.edges[e].request_bytes;
    state.usage.edges[e].reply_bytes += times * phase.edges[e].reply_bytes;
  }
}

void World::Progress(size_t console, double units) {
  ConsoleState& state = states_[console];
  const Console& c = cluster_.consoles[console];
  state.units_by_phase[state.phase] += units;
  state.units_left -= units;
  if (state.units_left > kUnitsEps * c.phases[state.phase].units) return;
  if (state.phase + 1 == c.phases.size() && ++state.pass == c.passes) {
    state.ended = true;
    return;
  }
  state.phase = (state.phase + 1) % c.phases.size();
  state.units_left = c.phases[state.phase].units;
  if (c.phases.size() > 1) ++state.phase_changes;
}

double World::AttemptsOf(const Console& console, const ConsoleState* state) const {
  if (console.contention_group == 0 || state == nullptr) return 1;
  const Console::Edge& edge = console.edges[console.contended_edge];
  const bool crosses =
      placement_[console.objects[edge.from]] != placement_[console.objects[edge.to]];
  return crosses ? state->attempts : 1;
}

// At the rates of the last tick, and half of what it was, as with shares.
void World::CountAttempts(size_t console) {
  const Console& c = cluster_.consoles[console];
  if (c.contention_group == 0) return;
  double rate = 0;
  for (size_t other = 0; other < states_.size(); ++other) {
    if (other == console || !Running(other)) continue;
    if (cluster_.consoles[other].contention_group == c.contention_group) {
      rate += states_[other].rate;
    }
  }
  ConsoleState& state = states_[console];
  const Phase& phase = c.phases[state.phase];
  const Console::Edge& edge = c.edges[c.contended_edge];
  const size_t from = placement_[c.objects[edge.from]];
  const size_t to = placement_[c.objects[edge.to]];
  if (from == to) return;
  const EdgeNeed& need = phase.edges[c.contended_edge];
  const Link& link = LinkBetween(from, to);
  const double attempt_s = phase.objects[edge.from].work / cluster_.nodes[from].rate +
                           need.calls * link.round_trip_s +
                           (need.request_bytes + need.reply_bytes) / link.bandwidth_bytes_s +
                           MessageTime(from, need.calls, need.request_bytes + need.reply_bytes) +
                           MessageTime(to, need.calls, need.request_bytes + need.reply_bytes);
  const double attempts = std::min(kAttemptsMax, std::exp(attempt_s * rate));
  state.attempts = (state.attempts + attempts) / 2;
}

void World::StepConsole(size_t console, double dt_s) {
  ConsoleState& state = states_[console];
  const double units_before = state.usage.units;
  const Console& c = cluster_.consoles[console];
  state.usage.wall_s += dt_s;
  const double end_s = now_s_ + dt_s;
  double at_s = std::max({now_s_, state.blackout_until_s, c.starts_s});
  if (!state.ended && c.ends_s <= at_s) {
    state.ended = true;
    state.ended_s = c.ends_s;
  }
  std::vector<Share> used;
  std::vector<Share> unit;
  while (!state.ended && at_s < end_s) {
    const double unit_s = UnitTimeWith(c, c.phases[state.phase], &state, &unit);
    const double units = std::min(state.units_left, (end_s - at_s) / unit_s);
    for (const Share& share : unit) {
      auto it = std::find_if(used.begin(), used.end(),
                             [&](const Share& other) { return other.node == share.node; });
      if (it == used.end()) it = used.insert(used.end(), Share{.node = share.node});
      it->cpu += share.cpu * units / dt_s;
      it->nic += share.nic * units / dt_s;
    }
    AddUsage(console, units, units * unit_s);
    at_s += units * unit_s;
    const size_t phase = state.phase;
    Progress(console, units);
    if (state.phase != phase) state.phase_since_s = at_s;
    if (state.ended) state.ended_s = at_s;
    // Rounding may leave less than any unit can fill.
    if (end_s - at_s < 1e-12 * end_s) break;
  }
  state.rate = (state.rate + (state.usage.units - units_before) / dt_s) / 2;
  // Half of what it was: two consoles that answer to each other's last tick do not swing.
  const bool alone = state.shares.empty();
  for (Share& share : state.shares) share.cpu /= 2, share.nic /= 2;
  for (const Share& share : used) {
    auto it = std::find_if(state.shares.begin(), state.shares.end(),
                           [&](const Share& other) { return other.node == share.node; });
    if (it == state.shares.end()) it = state.shares.insert(it, Share{.node = share.node});
    it->cpu += alone ? share.cpu : share.cpu / 2;
    it->nic += alone ? share.nic : share.nic / 2;
  }
  std::erase_if(state.shares, [](const Share& s) { return s.cpu + s.nic < 1e-9; });
}

void World::Step(double dt_s) {
  ApplyEvents();
  for (size_t c = 0; c < states_.size(); ++c) {
    if (states_[c].ended || cluster_.consoles[c].starts_s >= now_s_ + dt_s) continue;
    CountAttempts(c);
    StepConsole(c, dt_s);
    if (states_[c].ended) ReleaseMemory(c);
  }
  load_ = others_;
  std::fill(nic_.begin(), nic_.end(), 0);
  for (ConsoleState& state : states_) {
    if (state.ended) state.shares.clear();
    for (const Share& share : state.shares) {
      load_[share.node] += share.cpu;
      nic_[share.node] += share.nic;
    }
  }
  now_s_ += dt_s;
}

Usage World::TakeUsage(size_t console) {
  Usage& usage = states_[console].usage;
  Usage taken = usage;
  usage.wall_s = usage.active_s = usage.units = 0;
  std::fill(usage.cpu_s.begin(), usage.cpu_s.end(), 0);
  std::fill(usage.stall_s.begin(), usage.stall_s.end(), 0);
  std::fill(usage.edges.begin(), usage.edges.end(), EdgeNeed{0, 0, 0});
  return taken;
}

}  // namespace abacus::placement::sim
