#ifndef ABACUS_MONITOR_EBPF_THREAD_CLOCK_H_
#define ABACUS_MONITOR_EBPF_THREAD_CLOCK_H_

// What one thread did with its time, cheap enough to be asked at every call and every return.
//
// A thread spends its time computing, blocked, or ready and waiting for a processor (paper, 5.3).
// Reading the thread's CPU clock costs 200 ns, so the invocation path cannot do it twice per call.
// Instead it reads the cycle counter, takes what passed since the last reading as busy, and looks
// at one word that changes only when the kernel (or, in the plain source, a rare reading of the
// thread's CPU clock) has found time in which the thread did not run.
//
// This header is inlined into the invocation path: no virtual call, no lock, no allocation.

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "monitor-ebpf/memory_object.h"

namespace abacus::monitor {

// -- ticks ----------------------------------------------------------------------------------------

// Where time comes from on this machine. A template argument of the clock, so that a test can put a
// scripted one in its place at no cost.
//
// Ticks are cycles of the time-stamp counter where the kernel itself trusts it as its clock source,
// else nanoseconds of the monotonic clock. They mean nothing on another node: only durations, in
// nanoseconds, cross nodes. Thread-safety: thread-safe. REQUIRES: main() has begun.
class MachineTime {
 public:
  static uint64_t Ticks() noexcept {
#if defined(__x86_64__)
    if (origin_.ticks_are_cycles) [[likely]]
      return __rdtsc();
#endif
    return ReadNs(CLOCK_MONOTONIC_RAW);
  }

  static uint64_t MonotonicNs() noexcept { return ReadNs(CLOCK_MONOTONIC_RAW); }
  static uint64_t ThreadCpuNs() noexcept { return ReadNs(CLOCK_THREAD_CPUTIME_ID); }
  // How often the calling thread has left its processor because it blocked.
  static uint64_t VoluntarySwitches() noexcept {
    rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nvcsw) : 0;
  }

  // Measured against the monotonic clock since the process began, so it grows more exact with age:
  // the error is about 50 ns over the process's age. Blocking: spins during the process's first
  // 5 ms, later about 60 ns.
  static double NsPerTick() noexcept {
    if (!origin_.ticks_are_cycles) return 1.0;
    for (;;) {
      const Pair now = ReadPair();
      const uint64_t age_ns = now.ns - origin_.at.ns;
      if (age_ns < kShortestBaseNs) continue;
      // A machine that was stopped and resumed elsewhere may have a counter that began anew.
      if (now.ticks <= origin_.at.ticks) return last_ns_per_tick_.load(std::memory_order_relaxed);
      const double ns_per_tick =
          static_cast<double>(age_ns) / static_cast<double>(now.ticks - origin_.at.ticks);
      last_ns_per_tick_.store(ns_per_tick, std::memory_order_relaxed);
      return ns_per_tick;
    }
  }

  static bool ticks_are_cycles() noexcept { return origin_.ticks_are_cycles; }

 private:
  static constexpr uint64_t kShortestBaseNs = 5'000'000;
  static constexpr uint64_t kPairGapMaxNs = 1'000;
  static inline std::atomic<double> last_ns_per_tick_{1.0};

  struct Pair {
    uint64_t ticks = 0;
    uint64_t ns = 0;
  };
  struct Origin {
    bool ticks_are_cycles = false;
    Pair at;
  };

  static uint64_t ReadNs(clockid_t clock) noexcept {
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
  }

  // Both clocks at one instant. A context switch between the readings would put them apart, so the
  // attempt with the smallest gap counts.
  static Pair ReadPair() noexcept {
    Pair best;
    uint64_t best_gap_ns = std::numeric_limits<uint64_t>::max();
    for (int attempt = 0; attempt < 8 && best_gap_ns > kPairGapMaxNs; ++attempt) {
      const uint64_t before_ns = MonotonicNs();
#if defined(__x86_64__)
      const uint64_t ticks = __rdtsc();
#else
      const uint64_t ticks = before_ns;
#endif
      const uint64_t gap_ns = MonotonicNs() - before_ns;
      if (gap_ns >= best_gap_ns) continue;
      best_gap_ns = gap_ns;
      best = {ticks, before_ns + gap_ns / 2};
    }
    return best;
  }

  // The kernel has compared the counters of all processors before it makes the TSC its own clock;
  // CPUID's "invariant" bit alone does not say that they agree, and is often hidden from guests.
  static Origin Detect() noexcept {
    Origin origin;
#if defined(__x86_64__)
    char name[32] = {};
    const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      const ssize_t bytes = read(fd, name, sizeof(name) - 1);
      close(fd);
      origin.ticks_are_cycles =
          bytes > 0 && std::string_view(name, static_cast<size_t>(bytes)) == "tsc\n";
    }
#endif
    origin.at = ReadPair();
    return origin;
  }

  static const Origin origin_;
};

inline const MachineTime::Origin MachineTime::origin_ = MachineTime::Detect();

// -- what the clock reports -----------------------------------------------------------------------

// A stretch of one thread's time, taken apart. Units: ticks of this machine's MachineTime; whoever
// reads an account multiplies by MachineTime::NsPerTick(), the invocation path never does.
struct Interval {
  uint64_t busy_ticks = 0;
  uint64_t blocked_ticks = 0;  // not running and not able to: disk, lock, sleep
  uint64_t ready_ticks = 0;    // able to run, but no processor was free
  uint64_t disk_ticks = 0;     // the part of blocked_ticks spent on a disk; 0 where unknown
  // Context switches because the thread blocked, and because another one was to run; 0 where
  // unknown. Counted in the interval in which the thread runs again.
  uint32_t voluntary_switches = 0;
  uint32_t involuntary_switches = 0;

  uint64_t wall_ticks() const { return busy_ticks + blocked_ticks + ready_ticks; }
};

// Time in which a thread did not run, cumulative since the thread was attached. Written by whoever
// sees context switches (a BPF program through an mmap-ed page, or the clock itself in the plain
// source), read by the thread. `changes` is written last and tells the reader that the others
// moved. `object` goes the other way: the thread writes there which object it is in, for whoever
// has something to charge to it while the thread is inside (I/O that it begins).
struct ThreadCounters {
  std::atomic<uint64_t> changes = 0;
  std::atomic<uint64_t> blocked_ns = 0;
  std::atomic<uint64_t> ready_ns = 0;
  std::atomic<uint64_t> disk_ns = 0;
  std::atomic<uint64_t> object = 0;
  std::atomic<uint64_t> voluntary_switches = 0;
  std::atomic<uint64_t> involuntary_switches = 0;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(ThreadCounters) == 56,
              "the kernel's side writes this layout");

// How a declared wait for a reply was spent, as far as the waiter knows.
enum class WaitKind : uint8_t {
  kParked,  // asleep, or spinning up to Spun() and then asleep
  kSpun,    // spinning until the end
};

// -- the clock ------------------------------------------------------------------------------------

// The plain source's options.
struct ThreadClockOptions {
  // Where the thread's own schedstat is found; empty leaves schedstat out.
  std::string proc_root = "/proc";
  // An interval longer than this reads the thread's CPU clock at once, so that a wait on a disk or
  // a lock of this length is charged to the very object in which it happened.
  uint64_t long_interval_ns = 100'000;
  // The CPU clock is read at least this often while laps are taken, for waits shorter than that.
  uint64_t sync_period_ns = 1'000'000;
};

// Takes the time of one thread apart. The invocation path calls Lap() whenever the thread passes
// from one object into another and charges what it returns to the object that the thread was in.
//
// Invariants: (1) the parts of an Interval add up to the ticks that passed, and none is negative;
// (2) a declared wait is in no Interval; (3) time is charged once: off-CPU time that is found late
// is taken out of the following intervals and never reported twice; but for what external counters
// find that the laps since have no room for, which was in a declared wait.
//
// Errors of the plain source: off-CPU time in pieces shorter than long_interval_ns is found up to
// sync_period_ns late and charged to the objects that follow; up to kPublishNs of it is still
// unseen at any time; the CPU that the kernel spends on putting the thread to sleep in a declared
// wait (2-5 us each) hides as much real off-CPU time. busy_ticks errs upwards, never above wall
// time. With schedstat, what a hypervisor took from a thread that did not block is ready time; of
// one that did block it cannot be told apart, and is blocked time.
//
// Thread-safety: owner-thread, the one that constructed it; counters() may be read by any.
// Blocking: no. Source: ABACUS paper 5.3 (cycle counter with context-switch detection).
template <typename Time>
class BasicThreadClock {
 public:
  // Starts the first lap now, on the calling thread. Costs two system calls and one file descriptor
  // (none where schedstat cannot be opened, for example because descriptors have run out: then
  // ready time is reported as blocked, and Source() says so).
  explicit BasicThreadClock(const ThreadClockOptions& options = {});
  ~BasicThreadClock() {
    if (schedstat_fd_ >= 0) close(schedstat_fd_);
  }
  BasicThreadClock(const BasicThreadClock&) = delete;
  BasicThreadClock& operator=(const BasicThreadClock&) = delete;

  // A timestamp of this machine, for durations outside of laps. Units: ticks.
  static uint64_t Ticks() noexcept { return Time::Ticks(); }
  static double NsPerTick() noexcept { return Time::NsPerTick(); }

  // Ends the current lap and starts the next; returns what the thread did in it.
  // Cost: one reading of the cycle counter and three predicted branches.
  Interval Lap() noexcept {
    const uint64_t now = Time::Ticks();
    const uint64_t wall = now - last_ticks_;
    last_ticks_ = now;
    // A counter of another processor that is behind makes `wall` huge, and so takes the slow path.
    if (wall > long_interval_ticks_ || now >= check_at_ticks_ ||
        counters_->changes.load(std::memory_order_relaxed) != seen_changes_) [[unlikely]] {
      return SlowLap(now, wall);
    }
    return {.busy_ticks = wall};
  }

  // Ends the lap as Lap() does, and begins a wait that the runtime knows of (for a reply, for a
  // join, of a worker for its next call). It is stall, not CPU, even where the thread spins.
  // REQUIRES: no wait is open.
  Interval BeginWait() noexcept { return Lap(); }

  // The thread has been spinning since BeginWait() and is about to sleep.
  // REQUIRES: a wait is open; at most once per wait.
  void Spun() noexcept { AddSpun(Time::Ticks() - last_ticks_); }

  // Ends the wait and starts the next lap. Returns the length of the wait in ticks.
  // Also drops a lap that is nobody's: the time since the last Lap() is then what is returned.
  uint64_t EndWait(WaitKind kind = WaitKind::kParked) noexcept {
    const uint64_t now = Time::Ticks();
    uint64_t wait = now - last_ticks_;
    if (static_cast<int64_t>(wait) < 0) [[unlikely]]
      wait = 0;
    last_ticks_ = now;
    waited_ticks_ += wait;
    if (kind == WaitKind::kSpun) AddSpun(wait);
    if (wait > long_interval_ticks_ || now >= check_at_ticks_ ||
        counters_->changes.load(std::memory_order_relaxed) != seen_changes_) [[unlikely]] {
      SlowEndWait(now, wait);
    }
    return wait;
  }

  // The thread is in this object now (a slot of the runtime; 0: in none): what it allocates and
  // the I/O that it begins are the object's. Two stores.
  void SetObject(uint32_t object) noexcept {
    counters_->object.store(object, std::memory_order_relaxed);
    SetMemoryObject(object);
  }

  // From now on the off-CPU time comes from `counters`, which another party advances (BPF); null
  // goes back to the plain source. What they held before is not charged.
  // Ownership: `counters` must outlive the clock or the next call of this.
  void UseCounters(ThreadCounters* counters) noexcept;

  // Leaves schedstat out from now on: ready time is then reported as blocked, and Source() says so.
  void LeaveOutSchedstat() noexcept {
    if (schedstat_fd_ >= 0) close(schedstat_fd_);
    schedstat_fd_ = -1;
  }

  const ThreadCounters& counters() const { return *counters_; }

  // The source of the figures: "schedstat+thread-clock" or "thread-clock"; "external" where
  // UseCounters() is in force and the party that advances them knows its name.
  std::string_view Source() const {
    if (counters_ != &own_counters_) return "external";
    return schedstat_fd_ >= 0 ? "schedstat+thread-clock" : "thread-clock";
  }

  // Off-CPU time shorter than this, in sum, is not reported yet: it keeps the jitter of two clocks
  // that are read one after the other out of the accounts.
  static constexpr int64_t kPublishNs = 50'000;
  // A spin is believed up to this length: longer means the spinner was preempted.
  static constexpr uint64_t kSpinMaxNs = 100'000;

 private:
  static constexpr int64_t kOverdrawnMaxNs = 10'000;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  struct OffTime {
    uint64_t blocked = 0;
    uint64_t ready = 0;
    uint64_t disk = 0;
  };
  struct Switches {
    uint64_t voluntary = 0;
    uint64_t involuntary = 0;
  };

  void AddSpun(uint64_t ticks) noexcept {
    if (static_cast<int64_t>(ticks) > 0) spun_ticks_ += std::min(ticks, spin_max_ticks_);
  }
  bool is_plain() const { return counters_ == &own_counters_; }

  [[gnu::noinline, gnu::cold]] Interval SlowLap(uint64_t now, uint64_t wall) noexcept;
  [[gnu::noinline, gnu::cold]] void SlowEndWait(uint64_t now, uint64_t wait) noexcept;
  void Sync(uint64_t now) noexcept;
  void Publish() noexcept;
  bool ReadRunDelay(uint64_t* run_delay_ns) const noexcept;
  bool HasBlocked() noexcept;
  OffTime LoadCounters() const noexcept;
  Switches LoadSwitches() const noexcept;
  void TakeNewCounters(uint64_t now, uint64_t lap_began) noexcept;
  void ForgiveWaits(uint64_t now, uint64_t lap_began, const OffTime& owed_before) noexcept;
  Interval Settle(uint64_t wall) noexcept;

  // Read by every lap: one cache line.
  uint64_t last_ticks_ = 0;
  uint64_t check_at_ticks_ = 0;  // sync_at_ticks_, or 0 while something is owed
  uint64_t long_interval_ticks_ = 0;
  uint64_t seen_changes_ = 0;
  ThreadCounters* counters_ = &own_counters_;
  uint64_t waited_ticks_ = 0;  // in declared waits since the last sync, or UseCounters()
  uint64_t spun_ticks_ = 0;    // the part of it that used CPU

  OffTime seen_ns_;     // the counters as far as they have been taken over
  OffTime owed_ticks_;  // taken over, but not yet charged to an interval
  Switches seen_switches_;
  Switches new_switches_;  // since the last interval
  // Another party's counters have not moved since, as far as was looked: the beginning of the lap
  // that found them moved, or the end of the wait that did; and the declared waits until then.
  uint64_t unmoved_since_ticks_ = 0;
  uint64_t waited_until_then_ticks_ = 0;
  uint64_t sync_at_ticks_ = 0;
  uint64_t synced_mono_ns_ = 0;
  uint64_t synced_cpu_ns_ = 0;
  uint64_t run_delay_ns_ = 0;  // schedstat's run-queue wait, when last read
  uint64_t voluntary_ = 0;     // switches because the thread blocked, when last read
  int64_t unpublished_ns_ = 0;
  double ns_per_tick_ = 1;
  uint64_t plain_long_interval_ticks_ = 0;
  uint64_t sync_period_ticks_ = 0;
  uint64_t spin_max_ticks_ = 0;
  int schedstat_fd_ = -1;
  ThreadCounters own_counters_;
};

using ThreadClock = BasicThreadClock<MachineTime>;

// -- the rare path --------------------------------------------------------------------------------

template <typename Time>
BasicThreadClock<Time>::BasicThreadClock(const ThreadClockOptions& options) {
  ns_per_tick_ = Time::NsPerTick();
  auto ticks = [this](uint64_t ns) { return static_cast<uint64_t>(ns / ns_per_tick_); };
  plain_long_interval_ticks_ = ticks(options.long_interval_ns);
  sync_period_ticks_ = ticks(options.sync_period_ns);
  spin_max_ticks_ = ticks(kSpinMaxNs);
  if (!options.proc_root.empty()) {
    const std::string path = options.proc_root + "/thread-self/schedstat";
    schedstat_fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (schedstat_fd_ >= 0 && !ReadRunDelay(&run_delay_ns_)) {
      close(schedstat_fd_);
      schedstat_fd_ = -1;
    }
    voluntary_ = Time::VoluntarySwitches();
  }
  UseCounters(nullptr);
}

template <typename Time>
void BasicThreadClock<Time>::UseCounters(ThreadCounters* counters) noexcept {
  const uint64_t object = counters_->object.load(std::memory_order_relaxed);
  counters_ = counters != nullptr ? counters : &own_counters_;
  counters_->object.store(object, std::memory_order_relaxed);
  seen_changes_ = counters_->changes.load(std::memory_order_acquire);
  seen_ns_ = LoadCounters();
  seen_switches_ = LoadSwitches();
  owed_ticks_ = {};
  new_switches_ = {};
  waited_ticks_ = spun_ticks_ = 0;
  unpublished_ns_ = 0;
  long_interval_ticks_ = is_plain() ? plain_long_interval_ticks_ : kNever >> 1;
  last_ticks_ = unmoved_since_ticks_ = Time::Ticks();
  waited_until_then_ticks_ = 0;
  synced_mono_ns_ = Time::MonotonicNs();
  synced_cpu_ns_ = Time::ThreadCpuNs();
  sync_at_ticks_ = is_plain() ? last_ticks_ + sync_period_ticks_ : kNever;
  check_at_ticks_ = sync_at_ticks_;
}

template <typename Time>
Interval BasicThreadClock<Time>::SlowLap(uint64_t now, uint64_t wall) noexcept {
  if (static_cast<int64_t>(wall) < 0) wall = 0;
  if (is_plain() && (wall > long_interval_ticks_ || now >= sync_at_ticks_)) Sync(now);
  TakeNewCounters(now, now - wall);
  return Settle(wall);
}

template <typename Time>
void BasicThreadClock<Time>::SlowEndWait(uint64_t now, uint64_t wait) noexcept {
  if (!is_plain()) {
    const uint64_t changes = counters_->changes.load(std::memory_order_acquire);
    if (changes == seen_changes_) return;  // here only because of a debt
    // The kernel saw the thread asleep, but it was asleep in a wait that is already accounted for.
    // What it found before the wait was taken over by BeginWait().
    seen_changes_ = changes;
    seen_ns_ = LoadCounters();
    seen_switches_ = LoadSwitches();
    unmoved_since_ticks_ = now;
    waited_until_then_ticks_ = waited_ticks_;
    return;
  }
  if (wait <= long_interval_ticks_ && now < sync_at_ticks_) return;  // here only because of a debt
  Sync(now);
  TakeNewCounters(now, now);
  if (owed_ticks_.blocked + owed_ticks_.ready > 0) check_at_ticks_ = 0;
  // The run-queue wait between the wake-up and now belongs to the wait, as do its switches.
  if (schedstat_fd_ >= 0 && wait > long_interval_ticks_) {
    ReadRunDelay(&run_delay_ns_);
    HasBlocked();
  }
}

// off-CPU time = wall time - declared waits - CPU time outside of those waits. The wall time comes
// from the kernel's clock and not from ticks: over an interval of 10 s a scale that is wrong by
// 1e-5 would invent 100 us.
template <typename Time>
void BasicThreadClock<Time>::Sync(uint64_t now) noexcept {
  const uint64_t mono_ns = Time::MonotonicNs();
  const uint64_t cpu_ns = Time::ThreadCpuNs();
  const auto wall_ns = static_cast<int64_t>(mono_ns - synced_mono_ns_);
  const auto waited_ns = static_cast<int64_t>(static_cast<double>(waited_ticks_) * ns_per_tick_);
  const auto spun_ns = static_cast<int64_t>(static_cast<double>(spun_ticks_) * ns_per_tick_);
  const int64_t own_cpu_ns =
      std::max<int64_t>(0, static_cast<int64_t>(cpu_ns - synced_cpu_ns_) - spun_ns);
  unpublished_ns_ += wall_ns - waited_ns - own_cpu_ns;
  // CPU that was used inside waits makes the sum negative; without this floor it would hide real
  // off-CPU time for ever.
  unpublished_ns_ = std::max(unpublished_ns_, -kOverdrawnMaxNs);
  synced_mono_ns_ = mono_ns;
  synced_cpu_ns_ = cpu_ns;
  waited_ticks_ = spun_ticks_ = 0;
  sync_at_ticks_ = now + sync_period_ticks_;
  check_at_ticks_ = sync_at_ticks_;
  if (unpublished_ns_ >= kPublishNs) Publish();
}

template <typename Time>
void BasicThreadClock<Time>::Publish() noexcept {
  const auto off_ns = static_cast<uint64_t>(unpublished_ns_);
  unpublished_ns_ = 0;
  uint64_t ready_ns = 0;
  if (uint64_t run_delay_ns = 0; schedstat_fd_ >= 0 && ReadRunDelay(&run_delay_ns)) {
    if (run_delay_ns > run_delay_ns_) ready_ns = std::min(off_ns, run_delay_ns - run_delay_ns_);
    run_delay_ns_ = run_delay_ns;
    // A thread that never let go of its processor was able to run all the time. What the run queue
    // does not know of is then time that a hypervisor took.
    if (!HasBlocked()) ready_ns = off_ns;
  }
  auto add = [](std::atomic<uint64_t>& counter, uint64_t ns) {
    counter.store(counter.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  };
  add(own_counters_.ready_ns, ready_ns);
  add(own_counters_.blocked_ns, off_ns - ready_ns);
  own_counters_.changes.store(own_counters_.changes.load(std::memory_order_relaxed) + 1,
                              std::memory_order_release);
}

// "run_ns run_queue_wait_ns slices". Reading it costs 0.2 us, and it is read only after at least
// kPublishNs of off-CPU time. run_ns is not used: it is as old as the last scheduler tick.
template <typename Time>
bool BasicThreadClock<Time>::ReadRunDelay(uint64_t* run_delay_ns) const noexcept {
  char text[96];
  const ssize_t bytes = pread(schedstat_fd_, text, sizeof(text) - 1, 0);
  if (bytes <= 0) return false;
  text[bytes] = '\0';
  char* after_run = nullptr;
  std::strtoull(text, &after_run, 10);
  if (after_run == text || *after_run != ' ') return false;
  char* after_wait = nullptr;
  const uint64_t value = std::strtoull(after_run + 1, &after_wait, 10);
  if (after_wait == after_run + 1) return false;
  *run_delay_ns = value;
  return true;
}

// Whether the thread has blocked since this was last asked. 0.3 us.
template <typename Time>
bool BasicThreadClock<Time>::HasBlocked() noexcept {
  const uint64_t before = std::exchange(voluntary_, Time::VoluntarySwitches());
  return voluntary_ != before;
}

template <typename Time>
auto BasicThreadClock<Time>::LoadCounters() const noexcept -> OffTime {
  return {counters_->blocked_ns.load(std::memory_order_relaxed),
          counters_->ready_ns.load(std::memory_order_relaxed),
          counters_->disk_ns.load(std::memory_order_relaxed)};
}

template <typename Time>
auto BasicThreadClock<Time>::LoadSwitches() const noexcept -> Switches {
  return {counters_->voluntary_switches.load(std::memory_order_relaxed),
          counters_->involuntary_switches.load(std::memory_order_relaxed)};
}

template <typename Time>
void BasicThreadClock<Time>::TakeNewCounters(uint64_t now, uint64_t lap_began) noexcept {
  const uint64_t changes = counters_->changes.load(std::memory_order_acquire);
  if (changes == seen_changes_) return;
  seen_changes_ = changes;
  const OffTime owed_before = owed_ticks_;
  const OffTime now_ns = LoadCounters();
  auto owe = [this](uint64_t* owed, uint64_t new_ns, uint64_t old_ns) {
    // Counters that went backwards (a slot that was given to another thread) charge nothing.
    if (new_ns <= old_ns) return;
    *owed += static_cast<uint64_t>(static_cast<double>(new_ns - old_ns) / ns_per_tick_);
  };
  owe(&owed_ticks_.blocked, now_ns.blocked, seen_ns_.blocked);
  owe(&owed_ticks_.ready, now_ns.ready, seen_ns_.ready);
  owe(&owed_ticks_.disk, now_ns.disk, seen_ns_.disk);
  seen_ns_ = now_ns;
  if (!is_plain()) ForgiveWaits(now, lap_began, owed_before);
  const auto since = [](uint64_t after, uint64_t before) {
    return after > before ? after - before : 0;
  };
  const Switches switches = LoadSwitches();
  new_switches_.voluntary += since(switches.voluntary, seen_switches_.voluntary);
  new_switches_.involuntary += since(switches.involuntary, seen_switches_.involuntary);
  seen_switches_ = switches;
}

// What the counters moved by is off-CPU time since they moved before: since the beginning of the
// lap that found that, at the earliest. What the laps since then have no room for was off the
// processor in a declared wait, which is accounted for: a hypervisor stopped the thread after it
// was woken and before it could say so. It comes off what was found late, ready time, first.
template <typename Time>
void BasicThreadClock<Time>::ForgiveWaits(uint64_t now, uint64_t lap_began,
                                          const OffTime& owed_before) noexcept {
  // Another processor's counter that is behind makes this huge, and nothing is forgiven.
  const uint64_t laps = (now - unmoved_since_ticks_) - (waited_ticks_ - waited_until_then_ticks_);
  unmoved_since_ticks_ = lap_began;
  waited_until_then_ticks_ = waited_ticks_;
  const uint64_t blocked = owed_ticks_.blocked - owed_before.blocked;
  const uint64_t ready = owed_ticks_.ready - owed_before.ready;
  if (blocked + ready <= laps) return;
  const uint64_t forgiven = blocked + ready - laps;
  const uint64_t forgiven_ready = std::min(forgiven, ready);
  const uint64_t forgiven_blocked = forgiven - forgiven_ready;
  owed_ticks_.ready -= forgiven_ready;
  owed_ticks_.blocked -= forgiven_blocked;
  owed_ticks_.disk = std::min(owed_ticks_.disk, owed_before.disk + blocked - forgiven_blocked);
}

// Takes what is owed out of an interval, as far as the interval reaches; the rest waits for the
// next ones, each of which then comes through the slow path.
template <typename Time>
Interval BasicThreadClock<Time>::Settle(uint64_t wall) noexcept {
  Interval interval;
  interval.blocked_ticks = std::min(owed_ticks_.blocked, wall);
  interval.ready_ticks = std::min(owed_ticks_.ready, wall - interval.blocked_ticks);
  interval.disk_ticks = std::min(owed_ticks_.disk, interval.blocked_ticks);
  interval.busy_ticks = wall - interval.blocked_ticks - interval.ready_ticks;
  owed_ticks_.blocked -= interval.blocked_ticks;
  owed_ticks_.ready -= interval.ready_ticks;
  owed_ticks_.disk = std::min(owed_ticks_.disk - interval.disk_ticks, owed_ticks_.blocked);
  interval.voluntary_switches = static_cast<uint32_t>(new_switches_.voluntary);
  interval.involuntary_switches = static_cast<uint32_t>(new_switches_.involuntary);
  new_switches_ = {};
  const bool owes = owed_ticks_.blocked + owed_ticks_.ready > 0;
  check_at_ticks_ = owes ? 0 : sync_at_ticks_;
  return interval;
}

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_THREAD_CLOCK_H_
