#include "runtime/resource/resource_manager.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace abacus::runtime {
namespace {

// What an object's checkpoint is taken to be until one was made: its cost is the transfer, and a
// small state is the usual case of what pays to be moved.
constexpr uint64_t kCheckpointBytesPrior = 16 * 1024;

// An edge stands in digests for so many windows after its last call, with zeros: a graph whose
// edges are used now and then is the same graph all the time.
constexpr double kEdgeWindows = 5;

// What load does to tasks changes with who makes it: half of what was seen counts after so many
// windows.
constexpr double kContentionWindows = 10;

// What a digest says in words is one line, and every program can show it: paths may hold any bytes.
std::string OneLine(std::string text) {
  constexpr size_t kBytesMax = 400;
  text.resize(std::min(text.find('\n'), std::min(text.size(), kBytesMax)));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// What the figures of a node lack, and what lacks them altogether.
std::string MissingOf(const monitor::Monitor& monitor,
                      const absl::StatusOr<monitor::NodeLoad>& load) {
  std::vector<std::string> missing;
  if (!load.ok()) {
    missing.push_back(absl::StrCat("the node's load is not known: ", load.status().message()));
  } else if (!load->degraded.empty()) {
    missing.push_back(load->degraded);
  }
  if (std::string of_source = monitor.Missing(); !of_source.empty()) {
    missing.push_back(std::move(of_source));
  }
  return absl::StrJoin(missing, "; ");
}

// Objects whose memory is added up for a limit on it; more than a node is meant to host.
constexpr size_t kObjectsCountedMax = size_t{1} << 20;

// A quota slows a node's core down, which its rate says (monitor::NodeLoad::rate_share): so what is
// a second of a whole core's time is as much longer on it, and what threads waited for the quota to
// be renewed is part of that. Else work that a node with 12 % of a core did for all of a window was
// 0.12 s of it, at a rate of 0.12: next to nothing, wherever it might be done.
//   Worked: 0.12 s of CPU time and 0.88 s of waiting at a share of 0.12 are 1 s of computing.
void CountByTheNodesCore(double share, placement::ObjectStatistics& object) {
  const double cpu_s = object.cpu_s / share;
  object.ready_s = std::max(0.0, object.ready_s - (cpu_s - object.cpu_s));
  object.cpu_s = cpu_s;
  object.background_cpu_s /= share;
  object.cpu_s_variance /= share * share;
}

// The same for a load: half of a quota that is used is half a task. Where the quota stops tasks,
// the share says what they left each other, and no more of that is in the load than they occupy.
double LoadOfTheNodesCores(const monitor::NodeLoad& load, double cores) {
  return std::max(load.running + load.ready, std::min(load.running / load.rate_share, cores));
}

}  // namespace

ResourceManager::ResourceManager(BindingManager* binding, monitor::Monitor* monitor,
                                 ResourceOptions options)
    : binding_(*binding),
      monitor_(*monitor),
      options_(std::move(options)),
      window_(options_.window),
      memory_limit_bytes_(options_.memory_limit_bytes) {
  monitor_.SetWindow(options_.window);
}

void ResourceManager::SetWindow(absl::Duration window) {
  monitor_.SetWindow(window);
  MutexLock lock(mutex_);
  window_ = window;
}

void ResourceManager::SetMemoryLimit(uint64_t bytes) {
  MutexLock lock(mutex_);
  memory_limit_bytes_ = bytes;
}

void ResourceManager::OnRemoteCall(NodeInstance peer, uint64_t request_bytes, uint64_t reply_bytes,
                                   uint64_t network_ns, uint64_t quiet_ns) {
  links_.Observe(peer, request_bytes, reply_bytes, network_ns, quiet_ns);
}

void ResourceManager::OnMoved(const MigrationReport& report) {
  if (report.status.ok()) {
    {
      MutexLock lock(mutex_);
      for (const Rid& rid : report.rids) {
        checkpoint_bytes_[rid] = report.state_bytes / report.rids.size();
      }
    }
    BeginAnew(report.rids);
  }
  if (next_ != nullptr) next_->OnMoved(report);
}

void ResourceManager::OnArriving(const std::vector<Rid>& rids) {
  BeginAnew(rids);
  if (next_ != nullptr) next_->OnArriving(rids);
}

void ResourceManager::BeginAnew(const std::vector<Rid>& rids) {
  MutexLock lock(mutex_);
  moved_.insert(rids.begin(), rids.end());
}

void ResourceManager::AddConsole(const Rid& rid, std::string name,
                                 std::shared_ptr<const ActivityMeter> meter) {
  MutexLock lock(mutex_);
  consoles_[rid] = {std::move(name), std::move(meter), {}};
}

void ResourceManager::RemoveConsole(const Rid& rid) {
  MutexLock lock(mutex_);
  consoles_.erase(rid);
}

void ResourceManager::Pin(const Rid& rid, std::string reason, absl::Time until) {
  MutexLock lock(mutex_);
  PinState& pin = pins_[rid];
  if (pin.until > until) return;
  pin = {std::move(reason), until};
}

void ResourceManager::Unpin(const Rid& rid) {
  MutexLock lock(mutex_);
  pins_.erase(rid);
}

void ResourceManager::Allow(const Rid& rid, std::vector<NodeId> nodes) {
  MutexLock lock(mutex_);
  PinRecord& rule = rules_[rid];
  rule.rid = rid;
  rule.allowed = std::move(nodes);
  if (rule.allowed.empty() && rule.attach_group == 0) rules_.erase(rid);
}

void ResourceManager::Attach(const Rid& rid, uint32_t group) {
  MutexLock lock(mutex_);
  PinRecord& rule = rules_[rid];
  rule.rid = rid;
  rule.attach_group = group;
  if (rule.allowed.empty() && rule.attach_group == 0) rules_.erase(rid);
}

std::vector<PinRecord> ResourceManager::Pins(const std::vector<Rid>& rids, absl::Time now) const {
  std::vector<PinRecord> records;
  MutexLock lock(mutex_);
  for (const Rid& rid : rids) {
    const auto rule = rules_.find(rid);
    PinRecord record = rule == rules_.end() ? PinRecord{.rid = rid} : rule->second;
    const auto pin = pins_.find(rid);
    const bool is_held = pin != pins_.end() && pin->second.until > now;
    if (is_held) record.reason = pin->second.reason;
    if (is_held || rule != rules_.end()) records.push_back(std::move(record));
  }
  return records;
}

// Sums of an edge are read as differences over a window, so they stay for two windows after the
// object is gone.
void ResourceManager::ForgetTheGone(absl::Time now) {
  std::vector<uint32_t> gone = binding_.TakeRetiredSlots();
  std::vector<uint32_t> to_forget;
  std::vector<Rid> named;
  {
    MutexLock lock(mutex_);
    if (!gone.empty()) retired_.push_back({now, std::move(gone)});
    while (!retired_.empty() && now - retired_.front().at > 2 * window_) {
      const std::vector<uint32_t>& slots = retired_.front().slots;
      to_forget.insert(to_forget.end(), slots.begin(), slots.end());
      retired_.pop_front();
    }
    if (to_forget.empty()) return;  // nothing is named here that was not referred to
    for (const auto& [rid, pin] : pins_) named.push_back(rid);
    for (const auto& [rid, rule] : rules_) named.push_back(rid);
    for (const auto& [rid, bytes] : checkpoint_bytes_) named.push_back(rid);
  }
  binding_.ForgetSlots(to_forget);
  for (const uint32_t slot : to_forget) monitor_.ForgetObject(slot);
  for (const Rid& rid : named) {
    const bool lives =
        rid.home == binding_.self() ? binding_.HasRow(rid) : binding_.Locate(rid).has_value();
    if (lives) continue;
    MutexLock lock(mutex_);
    pins_.erase(rid);
    rules_.erase(rid);
    checkpoint_bytes_.erase(rid);
  }
}

void ResourceManager::NoteRates(const EdgeSumsByKey& sums, double length_s) {
  const double s_per_tick = monitor::ThreadClock::NsPerTick() * 1e-9;
  // In ticks: their length is known better and better, and a sum of seconds would grow by that.
  absl::flat_hash_map<uint32_t, double> busy_ticks;
  absl::flat_hash_map<EdgeKey, double> bytes;
  for (const auto& [key, edge] : sums) {
    if (IsBackground(key)) continue;
    busy_ticks[CalleeOf(key)] += static_cast<double>(edge.busy_ticks);
    if (edge.calls > 0) bytes[key] = static_cast<double>(edge.request_bytes + edge.reply_bytes);
  }
  const double window_s = absl::ToDoubleSeconds(window_);
  const auto note = [&](auto& known, const auto& now, double unit) {
    for (const auto& [name, sum] : now) {
      Steadiness& of_it = known[name];
      // A sum shrinks when callers that are gone are dropped from it; this sample says nothing
      // then.
      const double since = sum - std::exchange(of_it.sum, sum);
      // The first look only says where the sums stand.
      if (length_s > 0 && since >= 0) of_it.rate.Add(since * unit / length_s, length_s, window_s);
    }
    absl::erase_if(known, [&](const auto& one) { return !now.contains(one.first); });
  };
  note(steadiness_, busy_ticks, s_per_tick);
  note(edge_steadiness_, bytes, 1);
}

double ResourceManager::NoteContention(const EdgeFlowsByKey& window,
                                       const placement::NodeStatistics& node, double length_s) {
  double busy_s = 0;
  double ready_s = 0;
  for (const auto& [key, flow] : window) {
    if (CalleeOf(key) == kOutsideSlot) continue;
    busy_s += flow.busy_s;
    ready_s += flow.ready_s;
  }
  MutexLock lock(mutex_);
  contention_.Add(busy_s, ready_s, node.load, node.cores, length_s,
                  kContentionWindows * absl::ToDoubleSeconds(window_));
  return contention_.part();
}

ResourceManager::IoBySlot ResourceManager::IoSince(const IoBySlot& now, const IoBySlot& before) {
  IoBySlot since;
  for (const auto& [slot, io] : now) {
    const auto then = before.find(slot);
    monitor::ObjectIo part = io;
    if (then != before.end()) {
      part.bytes -= std::min(part.bytes, then->second.bytes);
      part.requests -= std::min(part.requests, then->second.requests);
      part.time = std::max(part.time - then->second.time, absl::ZeroDuration());
    }
    if (part.requests > 0 || part.time > absl::ZeroDuration()) since[slot] = part;
  }
  return since;
}

std::set<uint32_t> ResourceManager::SlotsOf(const std::set<Rid>& rids,
                                            const EdgeSumsByKey& sums) const {
  std::set<uint32_t> slots;
  if (rids.empty()) return slots;
  std::set<uint32_t> all;
  for (const auto& [key, edge] : sums) all.insert({CallerOf(key), CalleeOf(key)});
  for (const uint32_t slot : all) {
    if (rids.contains(binding_.Slot(slot).rid)) slots.insert(slot);
  }
  return slots;
}

EdgeFlowsByKey ResourceManager::FlowsOf(const EdgeSumsByKey& sums, const std::set<uint32_t>& moved,
                                        double length_s) {
  const auto of_moved = [&](EdgeKey key) {
    return moved.contains(CallerOf(key)) || moved.contains(CalleeOf(key));
  };
  spans_.Drop(of_moved);
  // Where the sums stand is known; how steady they are is learnt again.
  for (auto& [slot, steady] : steadiness_) {
    if (moved.contains(slot)) steady.rate = {};
  }
  for (auto& [key, steady] : edge_steadiness_) {
    if (of_moved(key)) steady.rate = {};
  }
  EdgeSumsByKey grown;
  for (const auto& [key, edge] : sums) {
    EdgeSums& since = grown[key];
    if (!last_ || of_moved(key)) continue;
    const auto before = last_->sums.find(key);
    since = before == last_->sums.end() ? edge : edge.Since(before->second);
  }
  if (length_s > 0) return spans_.Take(grown, length_s);
  EdgeFlowsByKey none;
  for (const auto& [key, edge] : grown) none[key] = {};
  return none;
}

Digest ResourceManager::TakeDigest(absl::Time now) {
  ForgetTheGone(now);
  std::set<Rid> moved;
  {
    MutexLock lock(mutex_);
    moved = std::exchange(moved_, {});
  }
  Sample newest{now, binding_.threads().CollectAccounts(), {}};
  for (const monitor::ObjectIo& io : monitor_.Io()) newest.io[io.object] = io;
  {
    // Who moves while the sums are collected begins anew in this digest and in the next one.
    MutexLock lock(mutex_);
    moved.insert(moved_.begin(), moved_.end());
  }
  const std::set<uint32_t> moved_slots = SlotsOf(moved, newest.sums);
  EdgeFlowsByKey window;
  IoBySlot io_window;
  Digest digest;
  digest.begin_anew.assign(moved.begin(), moved.end());
  {
    MutexLock lock(mutex_);
    digest.window_s = last_ ? std::max(0.0, absl::ToDoubleSeconds(now - last_->at)) : 0;
    window = FlowsOf(newest.sums, moved_slots, digest.window_s);
    NoteRates(newest.sums, digest.window_s);
    for (const auto& [key, flow] : window) {
      if (flow.calls > 0) edge_used_[key] = now;
    }
    if (last_) io_window = IoSince(newest.io, last_->io);
    const absl::Duration kept = kEdgeWindows * window_;
    absl::erase_if(edge_used_, [&](const auto& used) { return now - used.second > kept; });
    last_ = std::move(newest);
    for (const auto& [rid, console] : consoles_) digest.consoles.push_back(rid);
    std::erase_if(pins_, [now](const auto& pin) { return pin.second.until <= now; });
    std::map<Rid, PinRecord> told = rules_;
    for (const auto& [rid, pin] : pins_) {
      told[rid].rid = rid;
      told[rid].reason = pin.reason;
    }
    for (auto& [rid, record] : told) digest.pins.push_back(std::move(record));
  }
  digest.from = binding_.self();
  Fill(digest, window, io_window);
  return digest;
}

void ResourceManager::FillActivity(const Rid& rid, placement::ObjectStatistics& console) {
  const auto it = consoles_.find(rid);
  if (it == consoles_.end() || it->second.meter == nullptr) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const ActivityMeter::Times sum =
      it->second.meter->Sum(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  const ActivityMeter::Times before = std::exchange(it->second.seen, sum);
  console.threads_s = static_cast<double>(sum.threads_ns - before.threads_ns) * 1e-9;
  console.busy_s = static_cast<double>(sum.busy_ns - before.busy_ns) * 1e-9;
}

void ResourceManager::FillMemory(placement::NodeStatistics& node) {
  if (const auto memory = monitor_.Memory(); memory.ok()) {
    node.memory_bytes = static_cast<double>(memory->total_bytes);
    node.memory_free_bytes = static_cast<double>(memory->available_bytes);
  }
  uint64_t limit = 0;
  {
    MutexLock lock(mutex_);
    limit = memory_limit_bytes_;
  }
  if (limit == 0) return;
  uint64_t held = 0;
  for (const BindingManager::ObjectStatus& status : binding_.Objects(kObjectsCountedMax)) {
    held += monitor_.MemoryOf(status.slot).value_or(0);
  }
  node.memory_limit_bytes = static_cast<double>(limit);
  const auto left = static_cast<double>(limit - std::min(limit, held));
  node.memory_free_bytes = std::min(node.memory_free_bytes.value_or(left), left);
}

void ResourceManager::Fill(Digest& digest, const EdgeFlowsByKey& window,
                           const IoBySlot& io_window) {
  const NodeId self = binding_.self().node;
  // First: rate and cores are of the moment at which the load was looked at.
  const absl::StatusOr<monitor::NodeLoad> load = monitor_.Load();
  digest.node = {.node = self,
                 .name = options_.node_name,
                 .is_server = options_.server,
                 .rate = monitor_.Rate(),
                 .cores = monitor_.Cores(),
                 .source = monitor_.Source(),
                 .sees_switches = monitor_.Sees().switches,
                 .sees_io = monitor_.Sees().block_io,
                 .source_missing = OneLine(MissingOf(monitor_, load))};
  const monitor::MonitorLosses lost = monitor_.Losses();
  digest.node.lost = {.threads = lost.threads_without_slot,
                      .io_requests = lost.requests_without_slot,
                      .io_times = lost.requests_without_end,
                      .edges = binding_.threads().lost_sums()};
  if (load.ok()) {
    digest.node.load = LoadOfTheNodesCores(*load, digest.node.cores);
    digest.node.source += "; load: " + load->source;
  }
  const double rate_share = load.ok() ? load->rate_share : 1;
  digest.node.contention = NoteContention(window, digest.node, digest.window_s);
  FillMemory(digest.node);
  for (const LinkEstimator::Estimate& link : links_.Estimates()) {
    digest.links.push_back({.a = self,
                            .b = link.peer.node,
                            .bandwidth_bytes_s = link.bandwidth_bytes_s,
                            .round_trip_s = link.round_trip_s,
                            .measured_bytes = link.measured_bytes,
                            .bandwidth_variance = link.bandwidth_variance,
                            .round_trip_bytes = link.round_trip_bytes});
  }

  std::map<uint32_t, placement::ObjectStatistics> used;  // by slot, what is hosted here
  std::set<uint32_t> seen;
  for (const auto& [key, flow] : window) {
    const uint32_t caller = CallerOf(key);
    const uint32_t callee = CalleeOf(key);
    seen.insert(caller);
    seen.insert(callee);
    placement::ObjectStatistics& of_callee = used[callee];
    of_callee.voluntary_switches += flow.voluntary_switches;
    of_callee.involuntary_switches += flow.involuntary_switches;
    if (IsBackground(key)) {
      of_callee.background_cpu_s += flow.busy_s;
      continue;
    }
    of_callee.cpu_s += flow.busy_s;
    of_callee.own_stall_s += flow.blocked_s;
    of_callee.disk_s += flow.disk_s;
    of_callee.ready_s += flow.ready_s;
    // An account is read while it is written: a call may be seen as remote and not yet as one.
    of_callee.calls += std::max(0.0, flow.calls - flow.remote_calls);
    of_callee.bytes_processed += flow.request_bytes + flow.reply_bytes;
    used[caller].stall_s += flow.remote_wait_s;
    if (caller == kOutsideSlot) continue;
    {
      MutexLock lock(mutex_);
      if (!edge_used_.contains(key)) continue;
    }
    if (!binding_.Slot(caller).rid.valid() || !binding_.Slot(callee).rid.valid()) continue;
    placement::EdgeStatistics edge{.from = ToObjectId(binding_.Slot(caller).rid),
                                   .to = ToObjectId(binding_.Slot(callee).rid),
                                   .calls = flow.calls,
                                   .request_bytes = flow.request_bytes,
                                   .reply_bytes = flow.reply_bytes};
    MutexLock lock(mutex_);
    if (const auto steady = edge_steadiness_.find(key); steady != edge_steadiness_.end()) {
      edge.samples = steady->second.rate.samples();
      edge.bytes_variance = steady->second.rate.VarianceOfWindow(digest.window_s);
    }
    digest.edges.push_back(edge);
  }
  for (const auto& [slot, io] : io_window) {
    seen.insert(slot);
    used[slot].io_bytes = static_cast<double>(io.bytes);
    used[slot].io_requests = static_cast<double>(io.requests);
    used[slot].io_s = absl::ToDoubleSeconds(io.time);
  }
  seen.erase(kOutsideSlot);
  for (const BindingManager::ObjectStatus& status : binding_.ObjectsOf(seen)) {
    placement::ObjectStatistics object = used[status.slot];
    object.id = ToObjectId(status.rid);
    object.class_name = status.class_name;
    object.node = self;
    object.mobile = !status.anchored;
    const std::optional<uint64_t> memory_bytes = monitor_.MemoryOf(status.slot);
    object.memory_bytes = memory_bytes.value_or(0);
    digest.node.sees_memory &= memory_bytes.has_value();
    object.checkpoint_bytes = kCheckpointBytesPrior;
    {
      MutexLock lock(mutex_);
      if (const auto steady = steadiness_.find(status.slot); steady != steadiness_.end()) {
        object.samples = steady->second.rate.samples();
        object.cpu_s_variance = steady->second.rate.VarianceOfWindow(digest.window_s);
      }
      FillActivity(status.rid, object);
      const auto bytes = checkpoint_bytes_.find(status.rid);
      if (bytes != checkpoint_bytes_.end()) object.checkpoint_bytes = bytes->second;
    }
    CountByTheNodesCore(rate_share, object);
    digest.objects.push_back(std::move(object));
  }
}

}  // namespace abacus::runtime
