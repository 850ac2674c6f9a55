#include "apps/abacus/doctor_checks.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "apps/abacus/commands.h"
#include "apps/cli/progress.h"
#include "monitor-ebpf/plain_monitor.h"
#include "runtime/base/config.h"

namespace abacus::apps {
namespace {

using Level = Finding::Level;

// A connection, an open file and a few of the runtime's own each take one.
constexpr uint64_t kDescriptorsMin = 256;
constexpr uint64_t kDescriptorsGood = 4096;

constexpr char kOtherDirectory[] =
    "name another in the configuration: [migration] spill_dir = \"/var/tmp\"";

std::string ErrorText(int error) { return std::strerror(error); }

bool InPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  // The folders of the administrator's programs are not in everybody's PATH.
  std::istringstream folders(absl::StrCat(path == nullptr ? "" : path, ":/usr/sbin:/sbin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Loads the smallest program of the kind that watches the scheduler: "return 0".
int TryBpf() {
  const bpf_insn program[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                              {.code = BPF_JMP | BPF_EXIT}};
  const char license[] = "GPL";
  union bpf_attr attributes;
  std::memset(&attributes, 0, sizeof(attributes));
  attributes.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
  attributes.insns = reinterpret_cast<uintptr_t>(program);
  attributes.insn_cnt = 2;
  attributes.license = reinterpret_cast<uintptr_t>(license);
  const long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof(attributes));
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

// In a child: a network that is left is gone.
int TryNamespace() {
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) _exit(unshare(CLONE_NEWNET) == 0 ? 0 : errno);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

int TryOpen(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

Finding Figures() {
  const auto monitor = monitor::NewPlainMonitor({.rate = 1});  // a rate: nothing is calibrated here
  monitor->Load().IgnoreError();
  // The monitor's shortest window.
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const auto load = monitor->Load();
  if (!load.ok()) return JudgeFigures("", "", std::string(load.status().message()));
  return JudgeFigures(load->source, load->degraded, "");
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Finding Spill() {
  const runtime::Config::Migration config;
  const std::string directory = config.spill_dir.empty() ? "/tmp" : config.spill_dir;
  struct statvfs facts;
  int error = access(directory.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  if (error == 0 && statvfs(directory.c_str(), &facts) != 0) error = errno;
  const uint64_t free_bytes = error == 0 ? uint64_t{facts.f_bavail} * facts.f_frsize : 0;
  return JudgeSpill(directory, error, free_bytes, 16 * config.checkpoint_memory_bytes_max);
}

Finding Port() {
  const auto address = runtime::SplitAddress(kDefaultServer);
  const absl::Status free = runtime::CheckListen(*address);
  return JudgePort(*address, free.ok() ? "" : std::string(free.message()));
}

}  // namespace

std::string LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "OK";
    case Level::kDegraded:
      return "DEGRADED";
    case Level::kFail:
      return "FAIL";
  }
  return "?";
}

Finding JudgeBpf(int error, bool has_types) {
  const std::string effect =
      "what objects cost is read from the threads' clocks and schedstat, at a higher price per "
      "call and with less detail";
  if (!has_types) {
    return {"BPF", Level::kDegraded,
            "the kernel does not tell its types: no /sys/kernel/btf/vmlinux", effect,
            "a kernel with CONFIG_DEBUG_INFO_BTF; in a container: do not mask /sys"};
  }
  if (error == 0)
    return {"BPF", Level::kOk, "programs that watch the scheduler may be loaded", "", ""};
  return {"BPF", Level::kDegraded, absl::StrCat("not permitted: ", ErrorText(error)), effect,
          "sudo setcap cap_bpf,cap_perfmon+ep \"$(command -v abacus)\"; in a container: "
          "--cap-add BPF --cap-add PERFMON"};
}

Finding JudgeNamespaces(int error, bool has_ip, bool has_tc) {
  const std::string effect =
      "the demo's slow link is loopback with a rate limit in the data plane, not a shaped veth "
      "pair";
  if (error != 0) {
    return {"network namespaces", Level::kDegraded,
            absl::StrCat("none can be made: ", ErrorText(error)), effect,
            "run the demo as root; in a container: --cap-add SYS_ADMIN --cap-add NET_ADMIN"};
  }
  if (!has_ip || !has_tc) {
    return {"network namespaces", Level::kDegraded,
            absl::StrCat("allowed, but there is no ", has_ip ? "tc" : "ip"), effect,
            "sudo apt-get install iproute2"};
  }
  return {"network namespaces", Level::kOk, "can be made and shaped", "", ""};
}

Finding JudgeFuse(int error, bool has_fusermount) {
  const std::string effect = "the object file system cannot be mounted; everything else works";
  if (error == ENOENT || error == ENODEV || error == ENXIO) {
    return {"FUSE", Level::kDegraded, "no /dev/fuse", effect,
            "sudo modprobe fuse; in a container: --device /dev/fuse"};
  }
  if (error != 0) {
    return {"FUSE", Level::kDegraded, absl::StrCat("/dev/fuse: ", ErrorText(error)), effect,
            "sudo chmod 666 /dev/fuse"};
  }
  if (!has_fusermount) {
    return {"FUSE", Level::kDegraded, "/dev/fuse is there, fusermount3 is not", effect,
            "sudo apt-get install fuse3"};
  }
  return {"FUSE", Level::kOk, "/dev/fuse and fusermount3", "", ""};
}

Finding JudgeMembarrier(long commands) {
  if (commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    return {"membarrier", Level::kOk, "expedited", "", ""};
  }
  return {"membarrier", Level::kFail, "membarrier(2) is missing or not permitted",
          "a moving object's last calls cannot be told to have ended",
          "boot a kernel from 4.14 on with CONFIG_MEMBARRIER: sudo apt-get install "
          "linux-image-$(dpkg --print-architecture); in a container: --security-opt "
          "seccomp=unconfined, or a profile that allows membarrier"};
}

Finding JudgeDescriptors(uint64_t soft, uint64_t hard) {
  const std::string found = absl::StrCat(soft, " open files allowed, ", hard, " can be asked for");
  const std::string mend = hard >= kDescriptorsGood
                               ? absl::StrCat("ulimit -n ", kDescriptorsGood)
                               : "raise nofile in /etc/security/limits.conf, then log in again";
  if (soft < kDescriptorsMin) {
    return {"file descriptors", Level::kFail, found, "a node runs out of connections", mend};
  }
  if (soft < kDescriptorsGood) {
    return {"file descriptors", Level::kDegraded, found,
            absl::StrCat("a server cannot have ", kDescriptorsGood, " files and peers open"), mend};
  }
  return {"file descriptors", Level::kOk, found, "", ""};
}

Finding JudgeFigures(const std::string& source, const std::string& degraded,
                     const std::string& error) {
  if (!error.empty()) {
    return {"load figures", Level::kFail, error, "placement does not know how busy this node is",
            "mount proc: sudo mount -t proc proc /proc; in a container: do not mask /proc/stat"};
  }
  if (!degraded.empty()) {
    return {
        "load figures", Level::kDegraded, source, degraded,
        "a kernel with CONFIG_SCHEDSTATS; in a container: do not mask /proc and /sys/fs/cgroup"};
  }
  return {"load figures", Level::kOk, source, "", ""};
}

Finding JudgeCgroup(const std::string& text) {
  if (text.empty()) {
    return {"cgroup", Level::kDegraded, "/proc/self/cgroup is not readable",
            "this node's load is taken to be the machine's, and CPU quotas are not seen",
            "a kernel with CONFIG_CGROUPS"};
  }
  // "0::/path" is the second version's; every controller of the first has a line of its own.
  std::istringstream lines(text);
  std::string unified, cpu;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") unified = line.substr(second + 1);
    if (controllers.find(",cpu,") != std::string::npos) cpu = line.substr(second + 1);
  }
  if (!cpu.empty()) {
    return {"cgroup", Level::kOk, absl::StrCat("version 1, cpu controller at ", cpu), "", ""};
  }
  return {"cgroup", Level::kOk, absl::StrCat("version 2, at ", unified), "", ""};
}

Finding JudgeSpill(const std::string& directory, int error, uint64_t free_bytes,
                   uint64_t wanted_bytes) {
  if (error != 0) {
    return {"large checkpoints", Level::kFail, absl::StrCat(directory, ": ", ErrorText(error)),
            "objects with large state cannot move",
            absl::StrCat("sudo install -d -m 1777 ", directory, "; or ", kOtherDirectory)};
  }
  const std::string found =
      absl::StrCat(HumanBytes(static_cast<double>(free_bytes)), " free in ", directory);
  if (free_bytes < wanted_bytes) {
    return {"large checkpoints", Level::kDegraded, found, "objects with large state cannot move",
            absl::StrCat("make room there; or ", kOtherDirectory)};
  }
  return {"large checkpoints", Level::kOk, found, "", ""};
}

Finding JudgePort(const runtime::HostAndPort& address, const std::string& error) {
  const std::string name = absl::StrCat(address.host, ":", address.port);
  if (error.empty()) return {"default port", Level::kOk, absl::StrCat(name, " is free"), "", ""};
  return {"default port", Level::kDegraded, error,
          "a server runs there already, or another program's; a second one needs another port",
          "abacus serve --listen HOST:PORT"};
}

std::vector<Finding> Examine() {
  rlimit descriptors = {};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  return {
      JudgeMembarrier(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0)),
      JudgeDescriptors(descriptors.rlim_cur, descriptors.rlim_max),
      Figures(),
      JudgeCgroup(ReadFile("/proc/self/cgroup")),
      JudgeBpf(TryBpf(), access("/sys/kernel/btf/vmlinux", R_OK) == 0),
      JudgeNamespaces(TryNamespace(), InPath("ip"), InPath("tc")),
      JudgeFuse(TryOpen("/dev/fuse"), InPath("fusermount3")),
      Spill(),
      Port(),
  };
}

}  // namespace abacus::apps
