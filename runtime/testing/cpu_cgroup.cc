#include "runtime/testing/cpu_cgroup.h"

#include <mntent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

// Where the hierarchies are mounted that count CPU time: those of version 1 if there are any.
std::vector<std::string> Hierarchies() {
  std::vector<std::string> first, second;
  FILE* mounts = setmntent("/proc/self/mounts", "r");
  if (mounts == nullptr) return {};
  while (const mntent* mount = getmntent(mounts)) {
    const std::string type = mount->mnt_type;
    if (type == "cgroup2") second.emplace_back(mount->mnt_dir);
    if (type != "cgroup") continue;
    if (hasmntopt(mount, "cpu") != nullptr || hasmntopt(mount, "cpuacct") != nullptr) {
      first.emplace_back(mount->mnt_dir);
    }
  }
  endmntent(mounts);
  return first.empty() ? second : first;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuCgroup>> CpuCgroup::Make(const std::string& name) {
  const std::vector<std::string> hierarchies = Hierarchies();
  if (hierarchies.empty()) {
    return absl::UnavailableError("no hierarchy of cgroups that counts CPU time is mounted");
  }
  // What was made goes with it where the rest cannot be made.
  std::unique_ptr<CpuCgroup> cgroup(new CpuCgroup({}));
  for (const std::string& hierarchy : hierarchies) {
    const std::string directory = absl::StrCat(hierarchy, "/", name);
    if (mkdir(directory.c_str(), 0755) != 0) {
      const absl::Status why = absl::ErrnoToStatus(errno, directory);
      return absl::UnavailableError(
          absl::StrCat("a cgroup cannot be made (as root it can): ", why.message()));
    }
    cgroup->directories_.push_back(directory);
  }
  return cgroup;
}

CpuCgroup::~CpuCgroup() {
  for (const std::string& directory : directories_) rmdir(directory.c_str());
}

absl::Status CpuCgroup::Enter() const {
  for (const std::string& directory : directories_) {
    const std::string path = directory + "/cgroup.procs";
    std::ofstream file(path);
    file << getpid() << std::flush;
    if (!file) return absl::UnavailableError("cannot enter the cgroup by " + path);
  }
  return absl::OkStatus();
}

}  // namespace abacus::runtime
