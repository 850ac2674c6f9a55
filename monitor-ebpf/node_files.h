#ifndef ABACUS_MONITOR_EBPF_NODE_FILES_H_
#define ABACUS_MONITOR_EBPF_NODE_FILES_H_

// Reads what the kernel says about a machine and a cgroup in text files.
//
// Every path is looked up below a root directory, empty on a real machine, so that a test can lay
// out any machine it likes. The files are input like any other: what is missing, cut short or
// garbage is an error with the file's name in it, never a crash and never a number.
// Thread-safety: thread-safe (no state). Blocking: no; these files are not on a disk.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace abacus::monitor {

// Errors: kNotFound, kPermissionDenied, kUnavailable; kResourceExhausted for more than 1 MiB.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// One number that stands alone in a file. Errors: as above; kDataLoss where it is none.
absl::StatusOr<uint64_t> ReadNumber(const std::string& path);

// The number behind "key " at the start of a line.
std::optional<uint64_t> FindKey(std::string_view text, std::string_view key);

// A list such as "0-3,8". Nothing where it is malformed; processors above 4095 are not counted.
std::optional<std::vector<int>> ParseCpuList(std::string_view text);

// One line of /proc/stat. Units: clock ticks of user space (1/sysconf(_SC_CLK_TCK) s).
struct CpuLine {
  int cpu = 0;
  uint64_t idle = 0;   // idle and waiting for I/O: nothing to run
  uint64_t steal = 0;  // the hypervisor ran somebody else while this processor had work
};

struct MachineStat {
  std::vector<CpuLine> cpus;
  uint64_t procs_running = 0;
};

// Errors: kDataLoss - not one well-formed "cpuN" line.
absl::StatusOr<MachineStat> ParseMachineStat(std::string_view text);

// "run_ns wait_ns slices", as /proc/PID/task/TID/schedstat has it.
struct TaskTimes {
  uint64_t run_ns = 0;
  uint64_t wait_ns = 0;
};
std::optional<TaskTimes> ParseSchedstat(std::string_view text);

// The same sums of each processor, of all tasks that ran on it, ended ones included:
// /proc/schedstat. Errors: kDataLoss - malformed, of a version that is not known here (15 to 17
// are), or all zero.
struct CpuTimes {
  int cpu = 0;
  TaskTimes times;
};
absl::StatusOr<std::vector<CpuTimes>> ParseMachineSchedstat(std::string_view text);

// "some ... total=N": the time in which at least one task waited. Units: microseconds.
std::optional<uint64_t> ParsePressureSomeTotal(std::string_view text);

// The cgroup that this process is in, as far as it governs processor time and memory.
struct CgroupFiles {
  bool limits_cpu = false;  // the process's cgroup for CPU is not the root: the node is this cgroup
  bool v2 = false;
  std::string cpu_dir;                  // where its tasks are listed
  std::string usage_file;               // cumulative CPU time; empty where there is none
  std::vector<std::string> quota_dirs;  // its own directory first, then those above it
  std::string memory_dir;               // empty: no memory cgroup but the root
  bool memory_v2 = false;
};

// Finds it from /proc/self/cgroup and /proc/self/mountinfo; version 1, version 2 and both at once.
// Errors: the files'.
absl::StatusOr<CgroupFiles> FindCgroup(const std::string& root);

// The CPU time that a quota allows, in cores: the smallest of all levels. Nothing: no quota.
std::optional<double> ReadQuotaCores(const CgroupFiles& cgroup);

// The time that the quota kept tasks from running, summed over processors, cumulative. Units: ns.
uint64_t ReadThrottledNs(const CgroupFiles& cgroup);

// The CPU time used by all tasks of the cgroup. Units: ns. Errors: kUnavailable - cannot be read.
absl::StatusOr<uint64_t> ReadCgroupUsageNs(const CgroupFiles& cgroup);

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_NODE_FILES_H_
