#include "monitor-ebpf/bpf_monitor.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/types.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "monitor-ebpf/bpf/thread_time.h"
#include "monitor-ebpf/links.h"
#include "thread_time.skel.h"

namespace abacus::monitor {
namespace {

static_assert(offsetof(abacus_thread, object) == offsetof(ThreadCounters, object) &&
                  offsetof(abacus_thread, disk_ns) == offsetof(ThreadCounters, disk_ns) &&
                  offsetof(abacus_thread, involuntary) ==
                      offsetof(ThreadCounters, involuntary_switches) &&
                  sizeof(abacus_thread) == 128,
              "a thread's record begins with its counters");

// -- libbpf's messages ----------------------------------------------------------------------------

// What libbpf warned of on this thread since Begin(): the kernel's reason stands in there.
thread_local std::string* warnings_of_load = nullptr;

int KeepWarning(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || warnings_of_load == nullptr) return 0;
  char line[512];
  const int bytes = vsnprintf(line, sizeof(line), format, arguments);
  constexpr size_t kKept = 4096;
  if (bytes > 0 && warnings_of_load->size() < kKept) warnings_of_load->append(line);
  return bytes;
}

class KeepWarnings {
 public:
  KeepWarnings() {
    static std::once_flag once;  // libbpf has one printer for the whole process
    std::call_once(once, [] { libbpf_set_print(KeepWarning); });
    warnings_of_load = &text_;
  }
  ~KeepWarnings() { warnings_of_load = nullptr; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::Status LoadError(int error, const std::string& warnings) {
  // The verifier has the same code for an access that it refuses, but it explains itself.
  const bool verified = warnings.find("PROG LOAD LOG") != std::string::npos;
  if (error == EPERM || (error == EACCES && !verified)) {
    char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path));
    return absl::PermissionDeniedError(absl::StrCat(
        "no right to load eBPF programs; to grant it: sudo setcap cap_bpf,cap_perfmon+ep ",
        bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : "PROGRAM"));
  }
  const std::string reason = warnings.substr(0, warnings.find('\n'));
  return absl::FailedPreconditionError(absl::StrCat("this kernel does not take the eBPF programs (",
                                                    strerror(error), reason.empty() ? "" : ": ",
                                                    reason, ")"));
}

// -- fork -----------------------------------------------------------------------------------------

// The records of threads are shared memory, so a forked child would read what its parent's threads
// do. In the child they are replaced by memory of its own in which nothing ever changes.
class MappingsOfProcess {
 public:
  struct Mapping {
    void* address;
    size_t bytes;
  };
  static void Add(const Mapping& mapping) {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(&Lock, &Unlock, &ReplaceInChild); });
    std::lock_guard<std::mutex> lock(mutex_);
    mappings_.push_back(mapping);
  }
  static void Remove(void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(mappings_, [address](const Mapping& m) { return m.address == address; });
  }

 private:
  static void Lock() { mutex_.lock(); }
  static void Unlock() { mutex_.unlock(); }
  static void ReplaceInChild() {
    for (const Mapping& mapping : mappings_) {
      mmap(mapping.address, mapping.bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    mutex_.unlock();
  }

  static inline std::mutex mutex_;
  static inline std::vector<Mapping> mappings_;
};

// -- the monitor ----------------------------------------------------------------------------------

struct SkeletonDeleter {
  void operator()(thread_time_bpf* skeleton) const { thread_time_bpf__destroy(skeleton); }
};

struct Loaded {
  std::unique_ptr<thread_time_bpf, SkeletonDeleter> skeleton;
  abacus_thread* threads = nullptr;  // mmap-ed
  bool sees_block_io = false;
};

// How long no thread may have had an id until its slot is taken, and how often that is looked at:
// 0.2 us a thread.
constexpr uint64_t kGoneNs = 100'000'000;
constexpr uint64_t kSweepNs = 1'000'000'000;

size_t BytesOfThreads(const BpfMonitorOptions& options) {
  return options.threads_max * sizeof(abacus_thread);
}

absl::StatusOr<Loaded> Load(const BpfMonitorOptions& options, bool with_block_io,
                            const KeepWarnings& warnings) {
  LIBBPF_OPTS(bpf_object_open_opts, open, );
  if (!options.btf_path.empty()) open.btf_custom_path = options.btf_path.c_str();
  Loaded loaded{.skeleton = std::unique_ptr<thread_time_bpf, SkeletonDeleter>(
                    thread_time_bpf__open_opts(&open))};
  thread_time_bpf* skeleton = loaded.skeleton.get();
  if (skeleton == nullptr) return LoadError(errno, warnings.text());
  bpf_map__set_max_entries(skeleton->maps.threads, options.threads_max);
  bpf_map__set_max_entries(skeleton->maps.slots, options.threads_max);
  bpf_map__set_max_entries(skeleton->maps.io, options.io_objects_max);
  bpf_map__set_max_entries(skeleton->maps.requests, options.io_requests_max);
  skeleton->rodata->unacceptable = options.unacceptable;
  for (bpf_program* of_block_io : {skeleton->progs.on_submit, skeleton->progs.on_request_complete,
                                   skeleton->progs.on_bio_complete}) {
    bpf_program__set_autoload(of_block_io, with_block_io);
  }
  if (const int error = thread_time_bpf__load(skeleton); error != 0) {
    return LoadError(-error, warnings.text());
  }
  void* threads = mmap(nullptr, BytesOfThreads(options), PROT_READ | PROT_WRITE, MAP_SHARED,
                       bpf_map__fd(skeleton->maps.threads), 0);
  if (threads == MAP_FAILED) return LoadError(errno, warnings.text());
  if (const int error = thread_time_bpf__attach(skeleton); error != 0) {
    munmap(threads, BytesOfThreads(options));
    return LoadError(-error, warnings.text());
  }
  loaded.sees_block_io = with_block_io;
  loaded.threads = static_cast<abacus_thread*>(threads);
  return loaded;
}

class BpfMonitor final : public Monitor {
 public:
  BpfMonitor(Loaded loaded, std::string missing, PlainMonitorOptions plain,
             const BpfMonitorOptions& options)
      : options_(options),
        missing_(std::move(missing)),
        plain_(NewPlainMonitor(std::move(plain))),
        skeleton_(std::move(loaded.skeleton)),
        threads_(loaded.threads),
        sees_block_io_(loaded.sees_block_io) {
    MappingsOfProcess::Add({threads_, mapped_bytes()});
    // The highest slots last, so that slots are given away from 0.
    for (uint32_t i = options_.threads_max; i > 0; --i) free_slots_.push_back(i - 1);
  }
  ~BpfMonitor() override {
    MappingsOfProcess::Remove(threads_);
    // In a forked child the kernel's side belongs to the parent; closing descriptors does not end
    // it.
    munmap(threads_, mapped_bytes());
  }

  std::string Source() const override { return forked() ? "none (a forked child)" : "ebpf"; }
  std::string Missing() const override { return missing_; }
  MonitorSees Sees() const override {
    return {.switches = !forked(), .block_io = !forked() && sees_block_io_};
  }
  absl::StatusOr<NodeLoad> Load() override {
    SweepAtTimes();
    return plain_->Load();
  }
  void SetWindow(absl::Duration window) override { plain_->SetWindow(window); }
  double Rate() const override { return plain_->Rate(); }
  double Cores() const override { return plain_->Cores(); }
  absl::StatusOr<MemoryInfo> Memory() override { return plain_->Memory(); }
  std::vector<LinkInfo> Links() override { return plain_->Links(); }
  std::optional<uint64_t> MemoryOf(uint32_t object) override { return plain_->MemoryOf(object); }
  std::vector<ObjectIo> Io() override;
  void ForgetObject(uint32_t object) override {
    const uint64_t key = object;
    if (!forked()) bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.io), &key);
  }
  MonitorLosses Losses() const override;
  void AttachThread(ThreadClock& clock) override;
  void DetachThread(ThreadClock& clock) override;

 private:
  size_t mapped_bytes() const { return BytesOfThreads(options_); }
  bool forked() const { return getpid() != owner_; }
  struct Used {
    uint32_t slot = 0;
    pid_t tid = 0;         // as this process sees it
    uint64_t gone_ns = 0;  // since when no thread has that id; 0: one had it, when last looked at
  };
  // A slot that no thread has; options_.threads_max where there is none.
  uint32_t TakeSlot();
  void ReturnSlot(uint32_t slot);
  // Takes the slots of threads whose exit the kernel's side did not see.
  void SweepGone(uint64_t now_ns);
  void SweepAtTimes();
  bool IsDead(uint32_t slot) const {
    return std::atomic_ref(threads_[slot].state).load(std::memory_order_acquire) ==
           ABACUS_THREAD_DEAD;
  }
  bool RunInKernel(const bpf_program* program, uint64_t argument) const;
  // Block I/O whose end was not seen, as far as that is known by now.
  uint64_t RequestsWithoutEnd() const;

  const BpfMonitorOptions options_;
  const std::string missing_;
  const pid_t owner_ = getpid();
  const std::unique_ptr<Monitor> plain_;
  const std::unique_ptr<thread_time_bpf, SkeletonDeleter> skeleton_;
  abacus_thread* const threads_;  // mmap-ed
  const bool sees_block_io_;

  std::mutex mutex_;                  // guards what follows
  std::vector<uint32_t> free_slots_;  // never used, or given back
  std::vector<Used> used_slots_;      // the dead among them are found when others run out
  uint64_t swept_ns_ = 0;
  std::atomic<uint64_t> threads_without_slot_{0};
  mutable std::atomic<uint64_t> requests_without_end_{0};  // the most that was found
};

uint32_t BpfMonitor::TakeSlot() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_slots_.empty()) {
    SweepGone(MachineTime::MonotonicNs());
    std::erase_if(used_slots_, [this](const Used& used) {
      const bool dead = IsDead(used.slot);
      if (dead) free_slots_.push_back(used.slot);
      return dead;
    });
  }
  if (free_slots_.empty()) return options_.threads_max;
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  used_slots_.push_back({.slot = slot, .tid = gettid()});
  threads_[slot] = {};  // ABACUS_THREAD_FREE: the kernel's side does not touch it
  return slot;
}

void BpfMonitor::ReturnSlot(uint32_t slot) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(used_slots_, [slot](const Used& used) { return used.slot == slot; });
  free_slots_.push_back(slot);
}

// A thread's id is free a little before its last switch, after which the kernel's side writes to
// its record no more: so a slot is taken only where the id was free for a while. An id that another
// thread of this process has got meanwhile keeps the slot until that one exits or registers.
void BpfMonitor::SweepGone(uint64_t now_ns) {
  for (Used& used : used_slots_) {
    if (IsDead(used.slot)) continue;
    if (tgkill(owner_, used.tid, 0) == 0 || errno != ESRCH) {
      used.gone_ns = 0;
    } else if (used.gone_ns == 0) {
      used.gone_ns = now_ns;
    } else if (now_ns - used.gone_ns > kGoneNs) {
      // Whichever side deletes the entry counts it out of the filter.
      const uint32_t tid = threads_[used.slot].tid;
      if (bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.slots), &tid) == 0) {
        std::atomic_ref(skeleton_->bss->filter[tid % ABACUS_FILTER_BUCKETS].threads).fetch_sub(1);
      }
      std::atomic_ref(threads_[used.slot].state)
          .store(ABACUS_THREAD_DEAD, std::memory_order_release);
    }
  }
}

void BpfMonitor::SweepAtTimes() {
  if (forked()) return;
  const uint64_t now_ns = MachineTime::MonotonicNs();
  std::lock_guard<std::mutex> lock(mutex_);
  if (now_ns - swept_ns_ < kSweepNs) return;
  swept_ns_ = now_ns;
  SweepGone(now_ns);
}

bool BpfMonitor::RunInKernel(const bpf_program* program, uint64_t argument) const {
  uint64_t arguments[] = {argument};
  LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = arguments, .ctx_size_in = sizeof(arguments));
  return bpf_prog_test_run_opts(bpf_program__fd(program), &run) == 0 &&
         static_cast<int>(run.retval) == 0;
}

void BpfMonitor::AttachThread(ThreadClock& clock) {
  if (forked()) return;
  const uint32_t slot = TakeSlot();
  if (slot == options_.threads_max) {
    threads_without_slot_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  threads_[slot].exec_ns = MachineTime::ThreadCpuNs();
  if (!RunInKernel(skeleton_->progs.register_thread, slot)) {
    ReturnSlot(slot);
    threads_without_slot_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  clock.UseCounters(reinterpret_cast<ThreadCounters*>(&threads_[slot]));
}

void BpfMonitor::DetachThread(ThreadClock& clock) {
  const auto* record = reinterpret_cast<const abacus_thread*>(&clock.counters());
  if (record < threads_ || record >= threads_ + options_.threads_max) return;
  clock.UseCounters(nullptr);
  if (!forked()) RunInKernel(skeleton_->progs.unregister_thread, 0);
}

std::vector<ObjectIo> BpfMonitor::Io() {
  std::vector<ObjectIo> all;
  const int map = bpf_map__fd(skeleton_->maps.io);
  uint64_t key = 0;
  const uint64_t* previous = nullptr;
  while (bpf_map_get_next_key(map, previous, &key) == 0) {
    previous = &key;
    abacus_io io;
    if (bpf_map_lookup_elem(map, &key, &io) != 0) continue;
    all.push_back({.object = static_cast<uint32_t>(key),
                   .bytes = io.bytes,
                   .requests = io.requests,
                   .time = absl::Nanoseconds(static_cast<int64_t>(io.time_ns))});
  }
  return all;
}

uint64_t BpfMonitor::RequestsWithoutEnd() const {
  const auto count = [](auto& of_kernel) -> uint64_t {
    return std::atomic_ref(of_kernel).load(std::memory_order_acquire);
  };
  // In this order: see thread_time.bpf.c. What changes meanwhile makes the difference smaller, so
  // the greatest that was ever found is right. Most of the time nothing is under way.
  const uint64_t begun = count(skeleton_->bss->begun_io);
  uint64_t seen = count(skeleton_->bss->ended_io);
  if (begun > seen && !forked()) {
    const int map = bpf_map__fd(skeleton_->maps.requests);
    uint64_t under_way = 0;
    uint64_t key = 0;
    const uint64_t* previous = nullptr;
    // Where the previous one has gone the kernel begins anew: so there is a bound.
    while (under_way < options_.io_requests_max && bpf_map_get_next_key(map, previous, &key) == 0) {
      previous = &key;
      ++under_way;
    }
    seen = count(skeleton_->bss->ended_io) + under_way;
    uint64_t most = requests_without_end_.load(std::memory_order_relaxed);
    while (begun > seen && begun - seen > most &&
           !requests_without_end_.compare_exchange_weak(most, begun - seen)) {
    }
  }
  return requests_without_end_.load(std::memory_order_relaxed);
}

MonitorLosses BpfMonitor::Losses() const {
  return {.threads_without_slot = threads_without_slot_.load(std::memory_order_relaxed),
          .requests_without_slot =
              std::atomic_ref(skeleton_->bss->lost_io).load(std::memory_order_relaxed),
          .requests_without_end = RequestsWithoutEnd()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Monitor>> NewBpfMonitor(PlainMonitorOptions plain,
                                                       const BpfMonitorOptions& options) {
  if (options.threads_max == 0 || options.io_objects_max == 0 || options.io_requests_max == 0) {
    return absl::InvalidArgumentError(
        "a monitor needs room for at least one thread, object and request");
  }
  const KeepWarnings warnings;
  std::string missing;
  auto loaded = Load(options, /*with_block_io=*/true, warnings);
  if (loaded.status().code() == absl::StatusCode::kFailedPrecondition) {
    // A kernel without block devices, or one whose block layer is built in another way.
    missing = absl::StrCat("block I/O is not seen: ", loaded.status().message());
    if (auto without = Load(options, /*with_block_io=*/false, warnings); without.ok()) {
      loaded = std::move(without);
    }
  }
  if (!loaded.ok()) return loaded.status();
  return std::make_unique<BpfMonitor>(*std::move(loaded), std::move(missing), std::move(plain),
                                      options);
}

}  // namespace abacus::monitor
