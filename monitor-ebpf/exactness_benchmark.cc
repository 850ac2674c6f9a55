// How far the figures of a thread are from the kernel's own, on mixes of what threads do.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "monitor-ebpf/testing/bench_parts.h"
#include "monitor-ebpf/testing/block_for.h"

namespace abacus::monitor {
namespace {

using runtime::BenchReport;

constexpr uint64_t kMs = 1'000'000;

uint64_t read_sink = 0;

// -- exactness ------------------------------------------------------------------------------------

struct Mix {
  const char* name;
  std::function<void(uint64_t until_ns)> work;
};

// Parts of the window.
struct Error {
  double busy = 0;    // against the thread's CPU clock
  double rusage = 0;  // the same, against getrusage()
  double ready = 0;   // against schedstat
};

uint64_t RusageNs() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1000 * kMs +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::optional<uint64_t> RunDelayNs() {
  unsigned long long run = 0, delay = 0;
  FILE* file = fopen("/proc/thread-self/schedstat", "re");
  if (file == nullptr) return std::nullopt;
  const bool ok = fscanf(file, "%llu %llu", &run, &delay) == 2;
  fclose(file);
  return ok ? std::optional<uint64_t>(delay) : std::nullopt;
}

Error Measure(Monitor& ebpf, const Mix& mix, uint64_t window_ns) {
  Error error;
  std::thread([&] {
    ThreadClock clock;
    ebpf.AttachThread(clock);
    const double ns_per_tick = ThreadClock::NsPerTick();
    clock.Lap();
    const uint64_t cpu_before = MachineTime::ThreadCpuNs();
    const uint64_t rusage_before = RusageNs();
    const auto delay_before = RunDelayNs();
    const uint64_t begin = MachineTime::MonotonicNs();
    Interval sum;
    while (MachineTime::MonotonicNs() < begin + window_ns) {
      mix.work(begin + window_ns);
      const Interval lap = clock.Lap();
      sum.busy_ticks += lap.busy_ticks;
      sum.blocked_ticks += lap.blocked_ticks;
      sum.ready_ticks += lap.ready_ticks;
    }
    const auto wall = static_cast<double>(MachineTime::MonotonicNs() - begin);
    const auto cpu = static_cast<double>(MachineTime::ThreadCpuNs() - cpu_before);
    const double busy = static_cast<double>(sum.busy_ticks) * ns_per_tick;
    error.busy = std::abs(busy - cpu) / wall;
    error.rusage = std::abs(busy - static_cast<double>(RusageNs() - rusage_before)) / wall;
    if (const auto delay = RunDelayNs(); delay && delay_before) {
      error.ready = std::abs(static_cast<double>(sum.ready_ticks) * ns_per_tick -
                             static_cast<double>(*delay - *delay_before)) /
                    wall;
    }
  }).join();
  return error;
}

// Limits the calling thread to a fifth of a processor, as a container would be, while it lives.
class Quota {
 public:
  Quota() : path_(absl::StrCat("/sys/fs/cgroup/cpu/abacus_bench_", getpid())) {
    good_ = mkdir(path_.c_str(), 0755) == 0 && Write("cpu.cfs_period_us", "20000") &&
            Write("cpu.cfs_quota_us", "4000");
  }
  ~Quota() { rmdir(path_.c_str()); }
  bool Enter() const { return Write("tasks", std::to_string(syscall(SYS_gettid))); }
  static void Leave() {
    if (FILE* file = fopen("/sys/fs/cgroup/cpu/tasks", "we"); file != nullptr) {
      fprintf(file, "%ld", syscall(SYS_gettid));
      fclose(file);
    }
  }
  bool good() const { return good_; }

 private:
  bool Write(const char* name, const std::string& text) const {
    FILE* file = fopen((path_ + "/" + name).c_str(), "we");
    if (file == nullptr) return false;
    const bool written = fputs(text.c_str(), file) >= 0;
    return fclose(file) == 0 && written;
  }
  const std::string path_;
  bool good_ = false;
};

std::optional<uint64_t> ReadBytesOfProcess() {
  std::ifstream file("/proc/self/io");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("read_bytes: ")) return std::stoull(line.substr(12));
  }
  return std::nullopt;
}

// What the kernel says that this process had read from devices, and what was charged to the object
// that read.
void BytesRead(Monitor& ebpf, int file, void* memory, BenchReport& report) {
  constexpr uint32_t kObject = 5;
  const auto charged = [&] {
    for (const ObjectIo& io : ebpf.Io()) {
      if (io.object == kObject) return io.bytes;
    }
    return uint64_t{0};
  };
  const auto kernel_before = ReadBytesOfProcess();
  if (!kernel_before) return report.Note("no /proc/self/io: the row of bytes read is missing");
  std::thread([&] {
    ThreadClock clock;
    ebpf.AttachThread(clock);
    clock.SetObject(kObject);
    for (int i = 0; i < 200; ++i)
      read_sink += static_cast<uint64_t>(pread(file, memory, 1 << 20, 0));
    clock.SetObject(0);
  }).join();
  const auto kernel = static_cast<double>(*ReadBytesOfProcess() - *kernel_before);
  const double error = static_cast<double>(charged()) - kernel;
  report.Add({.name = "bytes read from a device: charged to the object, less /proc/self/io",
              .value = error,
              .unit = "B",
              .baseline_name = "/proc/self/io",
              .baseline = kernel,
              .goal = "0",
              .met = error == 0});
}

}  // namespace

void BenchExactness(Monitor& ebpf, BenchReport& report) {
  char path[] = "/var/tmp/abacus_bench_XXXXXX";
  const int file = mkstemp(path);
  const std::vector<char> bytes(4 << 20, 'x');
  const bool has_file =
      file >= 0 && write(file, bytes.data(), bytes.size()) > 0 && fsync(file) == 0;
  const int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  unlink(path);
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, 1 << 20) != 0) return;
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    while (!stop) {
      {
        std::lock_guard<std::mutex> lock(mutex);
        BlockFor(3 * kMs);
      }
      BlockFor(kMs);
    }
  });
  std::atomic<bool> rival_runs{false};
  std::thread rival([&] {
    BindTo(0);
    while (!stop) {
      if (!rival_runs) BlockFor(5 * kMs);
    }
  });
  const Quota quota;
  std::vector<Mix> mixes = {{"compute", [](uint64_t) { SpinFor(10 * kMs); }},
                            {"sleep",
                             [](uint64_t) {
                               SpinFor(2 * kMs);
                               BlockFor(3 * kMs);
                             }},
                            {"a contended lock",
                             [&](uint64_t) {
                               SpinFor(kMs);
                               std::lock_guard<std::mutex> lock(mutex);
                             }},
                            {"an overloaded run queue", [&](uint64_t) {
                               BindTo(0);
                               rival_runs = true;
                               SpinFor(5 * kMs);
                             }}};
  if (has_file && direct >= 0) {
    mixes.push_back({"disk reads", [&](uint64_t) {
                       SpinFor(kMs);
                       read_sink += static_cast<uint64_t>(pread(direct, memory, 1 << 20, 0));
                     }});
  } else {
    report.Note("/var/tmp has no direct reads: the row of disk reads is missing");
  }
  if (quota.good()) {
    mixes.push_back({"a CPU quota", [&](uint64_t until_ns) {
                       static thread_local const bool inside = quota.Enter();
                       SpinFor(kMs);
                       if (inside && MachineTime::MonotonicNs() >= until_ns) Quota::Leave();
                     }});
  } else {
    report.Note("no cgroup of version 1 to make: the row of a CPU quota is missing");
  }
  for (const uint64_t seconds : {1, 10}) {
    const double goal = seconds == 1 ? 2 : 0.5;
    double worst_rusage = 0, worst_ready = 0;
    for (const Mix& mix : mixes) {
      rival_runs = false;
      const Error error = Measure(ebpf, mix, seconds * 1000 * kMs);
      worst_rusage = std::max(worst_rusage, 100 * error.rusage);
      worst_ready = std::max(worst_ready, 100 * error.ready);
      report.Add({.name = absl::StrCat("error of CPU time over ", seconds, " s: ", mix.name),
                  .value = 100 * error.busy,
                  .unit = "%",
                  .baseline_name = "error of ready time against schedstat, %",
                  .baseline = 100 * error.ready,
                  .goal = absl::StrFormat("<= %.1f %% of the window", goal),
                  .met = 100 * error.busy <= goal});
    }
    const auto add_worst = [&](const char* of, double percent) {
      report.Add({.name = absl::StrCat("error of ", of, ", over ", seconds, " s: the worst mix"),
                  .value = percent,
                  .unit = "%",
                  .goal = absl::StrFormat("<= %.1f %% of the window", goal),
                  .met = percent <= goal});
    };
    add_worst("CPU time against getrusage", worst_rusage);
    add_worst("ready time against schedstat", worst_ready);
  }
  if (has_file && direct >= 0) BytesRead(ebpf, direct, memory, report);
  stop = true;
  holder.join();
  rival.join();
  free(memory);
  close(file);
  close(direct);
}

}  // namespace abacus::monitor
