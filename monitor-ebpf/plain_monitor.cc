#include "monitor-ebpf/plain_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "monitor-ebpf/calibration.h"
#include "monitor-ebpf/links.h"
#include "monitor-ebpf/memory.h"
#include "monitor-ebpf/node_files.h"
#include "monitor-ebpf/task_scan.h"

namespace abacus::monitor {
namespace {

// /proc/stat counts in 10 ms steps, so a shorter stretch says nothing.
constexpr uint64_t kWindowMinNs = 50'000'000;
// A window is made of so many samples: asked again sooner, Load() repeats its last answer. Looking
// at 110 tasks costs 0.15 ms, and a host may have twelve nodes.
constexpr uint64_t kSamplesOfWindow = 4;
constexpr double kRateShareMin = 0.001;
// Part of a processor that a node must have wanted before its waiting says anything about
// neighbours, and from which on all of it does. Tasks that run now and then wait for a processor to
// wake each time: that is a large part of the little that they want, and nothing that a task would
// meet that runs for longer.
constexpr double kEvidenceMin = 0.1;
constexpr double kEvidenceFull = 0.5;

constexpr char kClockSourceFile[] =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

// Where the time comes from that tasks waited for a processor, the best first.
enum class WaitSource : uint8_t {
  kMachine,  // /proc/schedstat: of all tasks, in one file
  kTasks,    // the sum of each task's own
  kGuess,
};

// Cumulative figures at one moment.
struct Sample {
  uint64_t t_ns = 0;
  uint64_t run_ns = 0;   // of a cgroup
  uint64_t idle_ns = 0;  // of a machine
  size_t cpus = 0;       // that idle_ns is the sum of
  bool run_by_scan = false;
  WaitSource wait_source = WaitSource::kGuess;
  uint64_t wait_ns = 0;
  // Of the tasks one by one, where these are looked at: TaskScan.
  uint64_t tasks_run_ns = 0;
  double run_at_share_ns = 0;
  uint64_t throttled_ns = 0;
  uint64_t stolen_ns = 0;
};

uint64_t Since(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// The part of all waiting that the work which was done had to do: threads that wake while a quota
// has stopped the node wait until it goes on, each for itself, and would run for microseconds. That
// is nothing that a task meets which computes, and it would lower the rate by their number.
double PartOfWaitingOfWork(const Sample& from, const Sample& to, double waiting_ns) {
  const auto run_ns = static_cast<double>(Since(to.tasks_run_ns, from.tasks_run_ns));
  const double at_share_ns = to.run_at_share_ns - from.run_at_share_ns;
  if (run_ns <= 0 || at_share_ns <= 0 || waiting_ns <= 0) return 1;
  const double waited_ns = run_ns * (run_ns / at_share_ns - 1);
  return std::clamp(waited_ns / waiting_ns, 0.0, 1.0);
}

class PlainMonitor : public Monitor {
 public:
  explicit PlainMonitor(PlainMonitorOptions options);

  std::string Source() const override { return source_; }
  std::string Missing() const override { return options_.missing; }
  absl::StatusOr<NodeLoad> Load() override;
  void SetWindow(absl::Duration window) override {
    std::lock_guard<std::mutex> lock(mutex_);
    window_ns_ = Nanoseconds(window);
  }
  double Rate() const override;
  double Cores() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return UsableCores();
  }
  absl::StatusOr<MemoryInfo> Memory() override;
  std::vector<LinkInfo> Links() override { return ScanLinks(); }
  std::optional<uint64_t> MemoryOf(uint32_t object) override {
    if (!MemoryIsCounted()) return std::nullopt;
    return abacus::monitor::MemoryOf(object);
  }
  void AttachThread(ThreadClock& clock) override {
    if (!options_.use_schedstat) clock.LeaveOutSchedstat();
  }

 private:
  void FindNode();
  TaskScan::Options ScanOptions() const;
  absl::StatusOr<Sample> TakeSample();
  absl::Status ReadRunning(Sample* sample, uint64_t* procs_running) const;
  std::optional<uint64_t> ReadMachineWait() const;
  uint64_t EstimateWait(const Sample& sample, uint64_t procs_running);
  NodeLoad Describe(const Sample& from, const Sample& to) const;
  bool ClockSourceChanged() const;
  bool IsOurs(int cpu) const {
    return cpus_.empty() || std::find(cpus_.begin(), cpus_.end(), cpu) != cpus_.end();
  }
  static uint64_t Nanoseconds(absl::Duration duration) {
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration));
  }
  uint64_t SampleGapNs() const { return window_ns_ / kSamplesOfWindow; }
  // What a quota leaves of the processors; at least one: less than that is a slower processor.
  double UsableCores() const {
    const auto cores = static_cast<double>(cores_);
    return quota_cores_ ? std::clamp(*quota_cores_, 1.0, cores) : cores;
  }
  double RateShare(double running, double waiting, double throttled, double load) const;

  // Constant after construction.
  PlainMonitorOptions options_;
  std::string proc_;
  uint64_t clock_tick_ns_ = 10'000'000;
  CgroupFiles cgroup_;
  std::vector<int> cpus_;  // of a machine; empty: all
  size_t cores_ = 1;
  std::string source_;
  std::string found_missing_;  // what FindNode() could not read
  double rate_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  uint64_t window_ns_;
  std::optional<TaskScan> scan_;
  std::deque<Sample> samples_;
  uint64_t estimated_wait_ns_ = 0;
  uint64_t pressure_us_ = 0;
  bool has_pressure_ = false;
  std::optional<double> quota_cores_;
  NodeLoad last_;
};

PlainMonitor::PlainMonitor(PlainMonitorOptions options)
    : options_(std::move(options)),
      proc_(options_.root + "/proc"),
      window_ns_(Nanoseconds(options_.window)) {
  if (!options_.now_ns) options_.now_ns = [] { return MachineTime::MonotonicNs(); };
  if (const long ticks_per_s = sysconf(_SC_CLK_TCK); ticks_per_s > 0) {
    clock_tick_ns_ = 1'000'000'000u / static_cast<uint64_t>(ticks_per_s);
  }
  const auto own = ReadSmallFile(proc_ + "/thread-self/schedstat");
  source_ = options_.use_schedstat && own.ok() && ParseSchedstat(*own) ? "schedstat+thread-clock"
                                                                       : "thread-clock";
  rate_ = options_.rate > 0 ? options_.rate : CalibrateRate();
  FindNode();
  scan_.emplace(ScanOptions());
  quota_cores_ = ReadQuotaCores(cgroup_);
  last_.rate_share = RateShare(0, 0, 0, 1);
  if (auto sample = TakeSample(); sample.ok()) {
    samples_.push_back(*sample);
    last_ = Describe(*sample, *sample);
  }
}

void PlainMonitor::FindNode() {
  if (auto cgroup = FindCgroup(options_.root); cgroup.ok()) {
    cgroup_ = *std::move(cgroup);
  } else {
    found_missing_ = absl::StrCat("no cgroup found (", cgroup.status().message(),
                                  "): the figures are the machine's");
  }
  std::vector<int> online;
  if (const auto text = ReadSmallFile(proc_ + "/stat"); text.ok()) {
    if (const auto stat = ParseMachineStat(*text); stat.ok()) {
      for (const CpuLine& line : stat->cpus) online.push_back(line.cpu);
    }
  }
  cores_ = online.size();
  const auto status = ReadSmallFile(proc_ + "/self/status");
  if (status.ok() && !online.empty()) {
    constexpr std::string_view kKey = "\nCpus_allowed_list:";
    const size_t at = status->find(kKey);
    const size_t begin = at == std::string::npos ? at : at + kKey.size();
    const auto allowed =
        begin == std::string::npos
            ? std::nullopt
            : ParseCpuList(std::string_view(*status).substr(
                  begin, std::min(status->find('\n', begin), status->size()) - begin));
    if (allowed) {
      std::vector<int> both;
      std::sort(online.begin(), online.end());
      std::set_intersection(online.begin(), online.end(), allowed->begin(), allowed->end(),
                            std::back_inserter(both));
      if (!both.empty() && both.size() < online.size()) {
        cores_ = both.size();
        if (!cgroup_.limits_cpu) cpus_ = std::move(both);
      }
    }
  }
  if (cores_ == 0) cores_ = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

TaskScan::Options PlainMonitor::ScanOptions() const {
  TaskScan::Options scan;
  scan.proc_root = proc_;
  if (cgroup_.limits_cpu) scan.cgroup_dir = cgroup_.cpu_dir;
  scan.cpus = cpus_;
  return scan;
}

absl::Status PlainMonitor::ReadRunning(Sample* sample, uint64_t* procs_running) const {
  if (cgroup_.limits_cpu) {
    if (const auto usage_ns = ReadCgroupUsageNs(cgroup_); usage_ns.ok()) {
      sample->run_ns = *usage_ns;
      return absl::OkStatus();
    } else if (!scan_->works()) {
      return absl::UnavailableError(
          absl::StrCat("the cgroup's CPU time cannot be read: ", usage_ns.status().message()));
    }
    sample->run_by_scan = true;
    sample->run_ns = scan_->total().run_ns;
    return absl::OkStatus();
  }
  const std::string path = proc_ + "/stat";
  const auto text = ReadSmallFile(path);
  if (!text.ok()) return absl::UnavailableError(text.status().message());
  const auto stat = ParseMachineStat(*text);
  if (!stat.ok()) {
    return absl::UnavailableError(absl::StrCat(path, ": ", stat.status().message()));
  }
  for (const CpuLine& line : stat->cpus) {
    if (!IsOurs(line.cpu)) continue;
    sample->idle_ns += line.idle * clock_tick_ns_;
    sample->stolen_ns += line.steal * clock_tick_ns_;
    ++sample->cpus;
  }
  *procs_running = stat->procs_running;
  return absl::OkStatus();
}

absl::StatusOr<Sample> PlainMonitor::TakeSample() {
  Sample sample;
  sample.t_ns = options_.now_ns();
  const std::optional<uint64_t> machine_wait_ns = ReadMachineWait();
  if (!machine_wait_ns) {
    scan_->Step(samples_.empty() ? 0 : Since(sample.t_ns, samples_.back().t_ns));
  }
  uint64_t procs_running = 0;
  if (absl::Status status = ReadRunning(&sample, &procs_running); !status.ok()) return status;
  sample.throttled_ns = ReadThrottledNs(cgroup_);
  if (machine_wait_ns) {
    sample.wait_source = WaitSource::kMachine;
    sample.wait_ns = *machine_wait_ns;
  } else if (scan_->works()) {
    sample.wait_source = WaitSource::kTasks;
    sample.wait_ns = scan_->total().wait_ns;
    sample.tasks_run_ns = scan_->total().run_ns;
    sample.run_at_share_ns = scan_->run_at_share_ns();
  } else {
    sample.wait_ns = EstimateWait(sample, procs_running);
  }
  return sample;
}

// Has tasks that ended between two looks as well, which the tasks' own files cannot tell. Nothing
// of a cgroup, and where the kernel has no such file.
std::optional<uint64_t> PlainMonitor::ReadMachineWait() const {
  if (cgroup_.limits_cpu) return std::nullopt;
  const auto text = ReadSmallFile(proc_ + "/schedstat");
  if (!text.ok()) return std::nullopt;
  const auto cpus = ParseMachineSchedstat(*text);
  if (!cpus.ok()) return std::nullopt;
  uint64_t wait_ns = 0;
  for (const CpuTimes& of_cpu : *cpus) {
    if (IsOurs(of_cpu.cpu)) wait_ns += of_cpu.times.wait_ns;
  }
  return wait_ns;
}

// Without schedstat: the larger of two estimates, both of which err low on average.
uint64_t PlainMonitor::EstimateWait(const Sample& sample, uint64_t procs_running) {
  const std::string path =
      cgroup_.limits_cpu ? cgroup_.cpu_dir + "/cpu.pressure" : options_.root + "/proc/pressure/cpu";
  uint64_t by_pressure_ns = 0;
  const auto text = ReadSmallFile(path);
  const auto total_us = text.ok() ? ParsePressureSomeTotal(*text) : std::nullopt;
  if (total_us) {
    if (has_pressure_) by_pressure_ns = Since(*total_us, pressure_us_) * 1'000;
    pressure_us_ = *total_us;
  }
  has_pressure_ = total_us.has_value();
  // The reader of the file runs itself, so of n runnable tasks n - cores wait.
  uint64_t by_queue_ns = 0;
  if (cpus_.empty() && !samples_.empty() && procs_running > cores_) {
    by_queue_ns = std::min<uint64_t>(procs_running - cores_, 1'000) *
                  Since(sample.t_ns, samples_.back().t_ns);
  }
  estimated_wait_ns_ += std::max(by_pressure_ns, by_queue_ns);
  return estimated_wait_ns_;
}

absl::StatusOr<NodeLoad> PlainMonitor::Load() {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t now_ns = options_.now_ns();
  if (!samples_.empty() && Since(now_ns, samples_.back().t_ns) < SampleGapNs()) return last_;
  quota_cores_ = ReadQuotaCores(cgroup_);
  auto sample = TakeSample();
  if (!sample.ok()) return sample.status();
  // A processor or a file that came or went makes the sums incomparable: begin anew.
  if (!samples_.empty() &&
      (samples_.back().cpus != sample->cpus || samples_.back().run_by_scan != sample->run_by_scan ||
       samples_.back().wait_source != sample->wait_source)) {
    samples_.clear();
  }
  samples_.push_back(*sample);
  while (samples_.size() > 2 && Since(sample->t_ns, samples_[1].t_ns) >= window_ns_) {
    samples_.pop_front();
  }
  last_ = Describe(samples_.front(), samples_.back());
  return last_;
}

// Ticks are cycles for as long as a process lives: accounts that it has begun cannot change units.
bool PlainMonitor::ClockSourceChanged() const {
  if (!MachineTime::ticks_are_cycles()) return false;
  const auto now = ReadSmallFile(options_.root + kClockSourceFile);
  return now.ok() && *now != "tsc\n";
}

NodeLoad PlainMonitor::Describe(const Sample& from, const Sample& to) const {
  NodeLoad load;
  std::vector<std::string> missing;
  if (!found_missing_.empty()) missing.push_back(found_missing_);
  const bool guessed = to.wait_source == WaitSource::kGuess;
  load.source = absl::StrCat(cgroup_.limits_cpu ? "cgroup" : "proc-stat",
                             to.wait_source == WaitSource::kMachine ? "+schedstat"
                             : !guessed                             ? "+task-schedstat"
                             : has_pressure_                        ? "+pressure"
                                                                    : "+procs-running");
  if (guessed) {
    missing.push_back(
        has_pressure_
            ? "no task schedstat: ready time is a lower bound from CPU pressure"
            : "no task schedstat and no CPU pressure: ready time is a guess from the run queue");
  }
  if (ClockSourceChanged()) {
    missing.push_back(
        "the kernel trusts the processors' cycle counters no more: times of calls may be wrong "
        "until this process is started anew");
  }
  if (scan_->left_out() > 0) missing.push_back("too many tasks: ready time leaves some out");
  load.degraded = absl::StrJoin(missing, "; ");
  load.rate_share = RateShare(0, 0, 0, 1);
  const uint64_t span_ns = Since(to.t_ns, from.t_ns);
  if (span_ns < kWindowMinNs) return load;

  const auto span = static_cast<double>(span_ns);
  const double most = static_cast<double>(cores_);
  load.window = absl::Nanoseconds(static_cast<int64_t>(span_ns));
  if (cgroup_.limits_cpu) {
    load.running = static_cast<double>(Since(to.run_ns, from.run_ns)) / span;
  } else {
    load.running =
        static_cast<double>(to.cpus) - static_cast<double>(Since(to.idle_ns, from.idle_ns)) / span;
    load.stolen = std::min(most, static_cast<double>(Since(to.stolen_ns, from.stolen_ns)) / span);
  }
  load.running = std::clamp(load.running, 0.0, most);
  const double waiting = static_cast<double>(Since(to.wait_ns, from.wait_ns)) / span;
  // The kernel counts throttled time once per processor that the quota stopped; each of the tasks
  // there counts it as waiting. With k tasks on each processor in use it is k times as much.
  const double stopped = static_cast<double>(Since(to.throttled_ns, from.throttled_ns)) / span;
  const double tasks_per_cpu = std::max(1.0, (load.running + waiting) / most);
  load.throttled = guessed ? stopped : std::min(waiting, stopped * tasks_per_cpu);
  load.ready = std::max(0.0, waiting - load.throttled);
  load.load = std::max(1.0, load.running + load.ready);
  const double part = PartOfWaitingOfWork(from, to, waiting * span);
  load.rate_share = RateShare(load.running, part * waiting, part * load.throttled, load.load);
  return load;
}

// What the node's own load does not explain: chosen so that share x min(1, cores / load) is running
// / (running + waiting), the part of its time in which a task that wanted a processor had one.
// Example: one busy task under a quota of 0.16 cores: running 0.16, waiting 0.84, load 1, so the
// share is 0.16. Two on two processors: running 0.16, waiting 1.84, load 1, so it is 0.08. Without
// a quota, and where the node is its cgroup, what is left unexplained was taken by neighbours
// outside it: one busy task that runs 0.3 and waits 0.7 on an idle-looking node has a share of 0.3.
// Of a machine all tasks are in the load.
double PlainMonitor::RateShare(double running, double waiting, double throttled,
                               double load) const {
  double share = quota_cores_ ? std::min(1.0, *quota_cores_) : 1.0;
  const double evidence =
      cgroup_.limits_cpu
          ? std::clamp((running + waiting - kEvidenceMin) / (kEvidenceFull - kEvidenceMin), 0.0,
                       1.0)
          : 0;
  const double by_neighbours = evidence * std::max(0.0, waiting - throttled);
  if (running > 0 && throttled + by_neighbours > 0) {
    const double had = running / (running + throttled + by_neighbours);
    share = std::min(share, had / std::min(1.0, UsableCores() / load));
  }
  return std::clamp(share, kRateShareMin, 1.0);
}

double PlainMonitor::Rate() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return rate_ * last_.rate_share;
}

absl::StatusOr<MemoryInfo> PlainMonitor::Memory() {
  const std::string path = proc_ + "/meminfo";
  const auto text = ReadSmallFile(path);
  if (!text.ok()) return absl::UnavailableError(text.status().message());
  const auto total_kib = FindKey(*text, "MemTotal");
  const auto available_kib = FindKey(*text, "MemAvailable");
  if (!total_kib || !available_kib || *total_kib > uint64_t{1} << 50 ||
      *available_kib > *total_kib) {
    return absl::UnavailableError(absl::StrCat(path, " has no MemTotal and MemAvailable"));
  }
  MemoryInfo info;
  info.total_bytes = *total_kib * 1024;
  info.available_bytes = *available_kib * 1024;
  if (const auto statm = ReadSmallFile(proc_ + "/self/statm"); statm.ok()) {
    unsigned long long size_pages = 0;
    unsigned long long resident_pages = 0;
    if (sscanf(statm->c_str(), "%llu %llu", &size_pages, &resident_pages) == 2) {
      info.process_resident_bytes = resident_pages * static_cast<uint64_t>(getpagesize());
    }
  }
  if (cgroup_.memory_dir.empty()) return info;
  const bool v2 = cgroup_.memory_v2;
  const std::string& dir = cgroup_.memory_dir;
  const auto limit = ReadNumber(dir + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = ReadNumber(dir + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  // No limit is "max" in version 2 and a number above all memory in version 1.
  if (!limit.ok() || !used.ok() || *limit >= info.total_bytes) return info;
  // File pages that nobody has used of late are given back under pressure.
  uint64_t reclaimable = 0;
  if (const auto stat = ReadSmallFile(dir + "/memory.stat"); stat.ok()) {
    reclaimable = FindKey(*stat, v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  }
  info.total_bytes = *limit;
  info.available_bytes =
      std::min(info.available_bytes, Since(*limit, *used - std::min(*used, reclaimable)));
  return info;
}

}  // namespace

std::unique_ptr<Monitor> NewPlainMonitor(PlainMonitorOptions options) {
  return std::make_unique<PlainMonitor>(std::move(options));
}

}  // namespace abacus::monitor
