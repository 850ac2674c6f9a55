#include "monitor-ebpf/node_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace abacus::monitor {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr int kCpuMax = 4095;
constexpr int kQuotaLevelsMax = 32;

// A number above what any of these files can hold is damage.
constexpr uint64_t kPlausibleMax = uint64_t{1} << 63;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kPlausibleMax) {
    return std::nullopt;
  }
  return value;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator, bool skip_empty = true) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    const std::string_view part = text.substr(0, at);
    if (!skip_empty || !part.empty()) parts.push_back(part);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<uint64_t> UsecToNs(std::optional<uint64_t> usec) {
  if (!usec || *usec > kPlausibleMax / 1'000) return std::nullopt;
  return *usec * 1'000;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool ListHas(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A mounted hierarchy: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - cgroup cgroup rw,cpu".
struct Mount {
  std::string_view root;   // the part of the hierarchy that is visible
  std::string_view point;  // where
};

std::optional<Mount> FindMount(std::string_view mountinfo, std::string_view type,
                               std::string_view controller) {
  for (const std::string_view line : Split(mountinfo, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = Split(line.substr(0, dash), ' ');
    const auto right = Split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3 || right[0] != type) continue;
    if (!controller.empty() && !ListHas(right[2], controller)) continue;
    return Mount{left[3], left[4]};
  }
  return std::nullopt;
}

// The path of this process in a hierarchy: "4:cpu,cpuacct:/a/b", for version 2 "0::/a/b".
std::optional<std::string_view> FindPath(std::string_view self_cgroup,
                                         std::string_view controller) {
  for (const std::string_view line : Split(self_cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : ListHas(controllers, controller);
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Where a cgroup's files are, and the mount point, at which a walk upwards ends.
struct Place {
  std::string dir;
  std::string top;
};

std::optional<Place> FindPlace(const std::string& root, std::string_view mountinfo,
                               std::string_view self_cgroup, std::string_view controller) {
  const auto mount = FindMount(mountinfo, controller.empty() ? "cgroup2" : "cgroup", controller);
  const auto path = FindPath(self_cgroup, controller);
  if (!mount || !path) return std::nullopt;
  std::string_view relative = *path;
  // A container often sees only its own part of the hierarchy, mounted at the top.
  if (mount->root != "/") {
    if (relative.substr(0, mount->root.size()) == mount->root) {
      relative.remove_prefix(mount->root.size());
    } else {
      relative = {};
    }
  }
  if (relative == "/" || relative.substr(0, 3) == "/..") relative = {};
  Place place;
  place.top = root + std::string(mount->point);
  place.dir = place.top + std::string(relative);
  return place;
}

// Only the real top of a hierarchy has (version 1) or lacks (version 2) these files; the top of a
// container's own view is an ordinary cgroup.
bool IsRootV1(const std::string& dir) { return Exists(dir + "/release_agent"); }
bool IsRootV2(const std::string& dir) { return !Exists(dir + "/cgroup.type"); }

std::vector<std::string> Upwards(const Place& place) {
  std::vector<std::string> dirs;
  std::string dir = place.dir;
  for (int level = 0; level < kQuotaLevelsMax; ++level) {
    dirs.push_back(dir);
    if (dir.size() <= place.top.size()) break;
    dir.resize(dir.rfind('/'));
  }
  return dirs;
}

std::optional<double> ReadQuotaOf(const std::string& dir, bool v2) {
  if (v2) {  // "max 100000" or "16000 100000"
    const auto text = ReadSmallFile(dir + "/cpu.max");
    if (!text.ok()) return std::nullopt;
    const auto words = Split(Trim(*text), ' ');
    if (words.size() != 2) return std::nullopt;
    const auto quota = ParseNumber(words[0]);
    const auto period = ParseNumber(words[1]);
    if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota = ReadNumber(dir + "/cpu.cfs_quota_us");  // -1, no quota, is no number here
  const auto period = ReadNumber(dir + "/cpu.cfs_period_us");
  if (!quota.ok() || !period.ok() || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  std::string text;
  std::array<char, 8192> buffer;
  for (;;) {
    const ssize_t bytes = read(fd, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      const int error = errno;
      close(fd);
      return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
    }
    text.append(buffer.data(), static_cast<size_t>(bytes));
    if (bytes == 0 || text.size() > kFileBytesMax) break;
  }
  close(fd);
  if (text.size() > kFileBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(path, " is larger than 1 MiB"));
  }
  return text;
}

absl::StatusOr<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadSmallFile(path);
  if (!text.ok()) return text.status();
  const auto value = ParseNumber(Trim(*text));
  if (!value) return absl::DataLossError(absl::StrCat(path, " does not hold a number"));
  return *value;
}

std::optional<uint64_t> FindKey(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    if (line.size() <= key.size() || line.substr(0, key.size()) != key) continue;
    const std::string_view rest = line.substr(key.size());
    if (rest.front() != ' ' && rest.front() != ':') continue;
    const auto words = Split(Trim(rest.substr(1)), ' ');  // "key: 5 kB" has a unit
    return words.empty() ? std::nullopt : ParseNumber(words[0]);
  }
  return std::nullopt;
}

std::optional<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view part : Split(Trim(text), ',')) {
    const size_t dash = part.find('-');
    const auto first = ParseNumber(part.substr(0, dash));
    const auto last = dash == part.npos ? first : ParseNumber(part.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (uint64_t cpu = *first; cpu <= *last && cpu <= kCpuMax; ++cpu) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }
  if (cpus.empty()) return std::nullopt;
  return cpus;
}

absl::StatusOr<MachineStat> ParseMachineStat(std::string_view text) {
  MachineStat stat;
  for (const std::string_view line : Split(text, '\n')) {
    // "cpu0 user nice system idle iowait irq softirq steal ..."; "cpu " is the sum of all.
    if (line.substr(0, 3) == "cpu" && line.substr(0, 4) != "cpu ") {
      const auto words = Split(line, ' ');
      const auto cpu = ParseNumber(words[0].substr(3));
      if (!cpu || *cpu > kCpuMax || words.size() < 9) continue;
      const auto idle = ParseNumber(words[4]);
      const auto iowait = ParseNumber(words[5]);
      const auto steal = ParseNumber(words[8]);
      if (!idle || !iowait || !steal) continue;
      stat.cpus.push_back({static_cast<int>(*cpu), *idle + *iowait, *steal});
    }
  }
  if (stat.cpus.empty()) return absl::DataLossError("no processor in it");
  stat.procs_running = FindKey(text, "procs_running").value_or(0);
  return stat;
}

std::optional<TaskTimes> ParseSchedstat(std::string_view text) {
  const auto words = Split(Trim(text), ' ');
  if (words.size() != 3) return std::nullopt;
  const auto run = ParseNumber(words[0]);
  const auto wait = ParseNumber(words[1]);
  if (!run || !wait) return std::nullopt;
  return TaskTimes{*run, *wait};
}

// "cpu0 0 0 0 0 0 0 RUN WAIT SLICES": the fields of task time have stood there since version 15.
absl::StatusOr<std::vector<CpuTimes>> ParseMachineSchedstat(std::string_view text) {
  const auto version = FindKey(text, "version");
  if (!version || *version < 15 || *version > 17) {
    return absl::DataLossError("a version that is not known");
  }
  std::vector<CpuTimes> cpus;
  bool any = false;
  for (const std::string_view line : Split(text, '\n')) {
    if (line.substr(0, 3) != "cpu") continue;
    const auto words = Split(line, ' ');
    if (words.size() != 10) return absl::DataLossError("a processor's line of another length");
    const auto cpu = ParseNumber(words[0].substr(3));
    const auto run = ParseNumber(words[7]);
    const auto wait = ParseNumber(words[8]);
    if (!cpu || *cpu > kCpuMax || !run || !wait) {
      return absl::DataLossError("a processor's line without its numbers");
    }
    cpus.push_back({static_cast<int>(*cpu), {*run, *wait}});
    any = any || *run > 0;
  }
  if (!any) return absl::DataLossError("no task's time in it");
  return cpus;
}

std::optional<uint64_t> ParsePressureSomeTotal(std::string_view text) {
  for (const std::string_view line : Split(text, '\n')) {
    if (line.substr(0, 5) != "some ") continue;
    const size_t at = line.find("total=");
    if (at == line.npos) return std::nullopt;
    return ParseNumber(Trim(line.substr(at + 6)));
  }
  return std::nullopt;
}

absl::StatusOr<CgroupFiles> FindCgroup(const std::string& root) {
  const auto self_cgroup = ReadSmallFile(root + "/proc/self/cgroup");
  if (!self_cgroup.ok()) return self_cgroup.status();
  const auto mountinfo = ReadSmallFile(root + "/proc/self/mountinfo");
  if (!mountinfo.ok()) return mountinfo.status();

  auto place = [&](std::string_view controller) {
    return FindPlace(root, *mountinfo, *self_cgroup, controller);
  };
  CgroupFiles files;
  const auto v2 = place("");
  const auto cpu = place("cpu");
  const auto cpuacct = place("cpuacct");
  const auto memory = place("memory");
  if (cpu && !IsRootV1(cpu->dir)) {
    files.limits_cpu = true;
    files.cpu_dir = cpu->dir;
    files.quota_dirs = Upwards(*cpu);
    // The two controllers may be mounted apart, and then need not agree on who is in the cgroup.
    const bool same = cpuacct && FindPath(*self_cgroup, "cpu") == FindPath(*self_cgroup, "cpuacct");
    if (same) files.usage_file = cpuacct->dir + "/cpuacct.usage";
  } else if (cpuacct && !IsRootV1(cpuacct->dir)) {
    files.limits_cpu = true;
    files.cpu_dir = cpuacct->dir;
    files.usage_file = cpuacct->dir + "/cpuacct.usage";
  } else if (!cpu && !cpuacct && v2 && !IsRootV2(v2->dir)) {
    files.limits_cpu = true;
    files.v2 = true;
    files.cpu_dir = v2->dir;
    files.quota_dirs = Upwards(*v2);
    files.usage_file = v2->dir + "/cpu.stat";
  }
  if (memory && !IsRootV1(memory->dir)) {
    files.memory_dir = memory->dir;
  } else if (!memory && v2 && !IsRootV2(v2->dir)) {
    files.memory_dir = v2->dir;
    files.memory_v2 = true;
  }
  return files;
}

std::optional<double> ReadQuotaCores(const CgroupFiles& cgroup) {
  std::optional<double> smallest;
  for (const std::string& dir : cgroup.quota_dirs) {
    const auto quota = ReadQuotaOf(dir, cgroup.v2);
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
  }
  return smallest;
}

uint64_t ReadThrottledNs(const CgroupFiles& cgroup) {
  // A level that is throttled stops those below it, which do not count it themselves.
  uint64_t throttled_ns = 0;
  for (const std::string& dir : cgroup.quota_dirs) {
    const auto text = ReadSmallFile(dir + "/cpu.stat");
    if (!text.ok()) continue;
    const auto ns =
        cgroup.v2 ? UsecToNs(FindKey(*text, "throttled_usec")) : FindKey(*text, "throttled_time");
    throttled_ns += ns.value_or(0);
  }
  return throttled_ns;
}

absl::StatusOr<uint64_t> ReadCgroupUsageNs(const CgroupFiles& cgroup) {
  if (cgroup.usage_file.empty()) return absl::UnavailableError("the cgroup has no usage file");
  if (!cgroup.v2) return ReadNumber(cgroup.usage_file);
  const auto text = ReadSmallFile(cgroup.usage_file);
  if (!text.ok()) return text.status();
  const auto ns = UsecToNs(FindKey(*text, "usage_usec"));
  if (!ns) return absl::DataLossError(absl::StrCat(cgroup.usage_file, " has no usage_usec"));
  return *ns;
}

}  // namespace abacus::monitor
