// abacus fsck: whether volumes are as they should be, and what can be done where they are not.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/fsck_report.h"
#include "apps/abacus/interrupt.h"
#include "objfs/check/checker.h"
#include "objfs/store/local_disk.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/shard.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

namespace fs = std::filesystem;
using objfs::CheckOptions;
using objfs::Fault;
using objfs::FaultKind;
using objfs::ServerList;

constexpr char kColumnsPrefix[] = ".columns-", kServersSuffix[] = ".servers";

absl::Status InUse(const std::string& directory) {
  return absl::FailedPreconditionError(absl::StrCat(
      directory, " is in use by a server or a mount. Stop it, and check again; or ask the server ",
      "that has it to check while clients work: abacus fsck --volume NAME HOST:PORT"));
}

// The lock of a server's directory (runtime::DataDirectory), without what else belongs to a start.
// -1: no server has had it yet.
absl::StatusOr<int> LockData(const std::string& directory) {
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return -1;
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int why = errno;
  close(fd);
  if (why == EWOULDBLOCK) return InUse(directory);
  return absl::ErrnoToStatus(why, absl::StrCat("cannot lock ", path));
}

// What is in the directory of a server's volumes, by name.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& volumes) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(volumes, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", volumes));
  std::sort(names.begin(), names.end());
  return names;
}

// The directory of the volumes in a server's directory.
absl::StatusOr<std::string> VolumesIn(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat(
        directory, " is no directory. What is checked is what a server was given by --data"));
  }
  const std::string volumes = directory + "/volumes";
  if (fs::is_directory(volumes, error)) return volumes;
  if (fs::exists(directory + "/superblock", error)) {
    const fs::path path = fs::absolute(directory, error).lexically_normal();
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is one volume's own. Say: abacus fsck ",
        path.parent_path().parent_path().string(), " --volume ", path.filename().string()));
  }
  return absl::NotFoundError(absl::StrCat(directory,
                                          " has no volumes: it is not what a server was ",
                                          "given by --data, or no server has used it yet"));
}

absl::StatusOr<std::vector<std::string>> NamesOf(const std::vector<std::string>& files,
                                                 const std::string& wanted) {
  std::vector<std::string> names;
  for (const std::string& file : files) {
    if (file.front() != '.') names.push_back(file);
  }
  if (wanted.empty()) return names;
  if (std::find(names.begin(), names.end(), wanted) != names.end()) {
    return std::vector<std::string>{wanted};
  }
  const bool has_columns = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return absl::StartsWith(file, absl::StrCat(kColumnsPrefix, wanted, "-"));
  });
  if (has_columns) return std::vector<std::string>();
  const std::string nearest = runtime::Nearest(wanted, names);
  return absl::NotFoundError(
      absl::StrCat("there is no volume '", wanted, "'",
                   nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?"),
                   names.empty() ? "" : absl::StrCat(" There are: ", absl::StrJoin(names, ", "))));
}

// A list of a volume's servers; where it is damaged, one that should say the same takes its place.
struct ListFile {
  std::string path;
  std::vector<std::string> others;
};

class Fsck {
 public:
  Fsck(const FsckOptions& options, std::string volumes, std::vector<std::string> files)
      : options_(options), volumes_(std::move(volumes)), files_(std::move(files)) {}

  absl::Status CheckVolume(const std::string& name, std::vector<CheckedVolume>* checked) {
    name_ = name;
    CheckedVolume volume{name, {}};
    size_t servers = 0;
    ABACUS_RETURN_IF_ERROR(CheckList(OwnList(), &volume.report, &servers));
    CheckOptions check = Options();
    check.servers = servers;
    auto disk = objfs::LocalDisk::At(volumes_ + "/" + name);
    if (absl::IsFailedPrecondition(disk.status())) return InUse(options_.where);
    ABACUS_RETURN_IF_ERROR(disk.status());
    ABACUS_ASSIGN_OR_RETURN(const objfs::CheckReport report, objfs::CheckVolumeOn(**disk, check));
    Merge(report, &volume.report);
    ABACUS_RETURN_IF_ERROR(CheckColumns(&volume.report));
    checked->push_back(std::move(volume));
    return absl::OkStatus();
  }

  // Of a volume whose inodes another server has.
  absl::Status CheckColumnsOnly(const std::string& name, std::vector<CheckedVolume>* checked) {
    name_ = name;
    CheckedVolume volume{name, {}};
    ABACUS_RETURN_IF_ERROR(CheckColumns(&volume.report));
    checked->push_back(std::move(volume));
    return absl::OkStatus();
  }

  // Names of volumes of which there are columns here, and no inodes.
  std::vector<std::string> ColumnsOnly() const {
    constexpr size_t kKeyBytes = 17;  // a dash and the digits
    std::vector<std::string> names;
    for (const std::string& file : files_) {
      if (!IsColumns(file)) continue;
      const size_t begin = sizeof kColumnsPrefix - 1;
      if (file.size() <= begin + kKeyBytes) continue;
      std::string name = file.substr(begin, file.size() - begin - kKeyBytes);
      const bool has_inodes = std::binary_search(files_.begin(), files_.end(), name);
      if (!has_inodes && (names.empty() || names.back() != name)) names.push_back(std::move(name));
    }
    return names;
  }

 private:
  static bool IsColumns(const std::string& file) {
    return absl::StartsWith(file, kColumnsPrefix) && !absl::EndsWith(file, kServersSuffix) &&
           !absl::EndsWith(file, ".new");
  }
  CheckOptions Options() const {
    CheckOptions check;
    check.repair = options_.repair;
    check.data = options_.data;
    check.tell = [name = name_](const Fault& fault) { PrintFault(name, fault); };
    check.goes_on = [] { return !Interrupted(); };
    return check;
  }
  static void Merge(const objfs::CheckReport& from, objfs::CheckReport* to) {
    const auto before = std::move(*to);
    *to = from;
    to->faults.insert(to->faults.begin(), before.faults.begin(), before.faults.end());
    to->found += before.found;
    to->repaired += before.repaired;
  }

  ListFile OwnList() const {
    ListFile list{.path = absl::StrCat(volumes_, "/.servers-", name_), .others = {}};
    for (const std::string& file : files_) {
      const bool of_columns = absl::StartsWith(file, absl::StrCat(kColumnsPrefix, name_, "-")) &&
                              absl::EndsWith(file, kServersSuffix);
      if (of_columns) list.others.push_back(absl::StrCat(volumes_, "/", file));
    }
    return list;
  }

  absl::Status CheckList(const ListFile& file, objfs::CheckReport* report, size_t* servers) {
    const auto list = ServerList::Load(file.path);
    if (list.ok()) {
      *servers = list->has_value() ? (*list)->servers.size() : 0;
      return absl::OkStatus();
    }
    if (!absl::IsDataLoss(list.status())) return list.status();
    Fault fault;
    fault.kind = FaultKind::kServers;
    fault.text =
        absl::StrCat(list.status().message(), "; the volume's other servers have the same");
    std::optional<ServerList> other;
    // Of a volume of the same name that was deleted there may be one too.
    for (const std::string& path : file.others) {
      const auto loaded = ServerList::Load(path);
      const bool good = loaded.ok() && loaded->has_value();
      if (good) other = file.others.size() == 1 ? *loaded : std::nullopt;
    }
    if (other.has_value()) *servers = other->servers.size();
    if (other.has_value() && options_.repair) {
      ABACUS_RETURN_IF_ERROR(other->Save(file.path));
      fault.done = "written anew from the list that goes with the columns";
    }
    PrintFault(name_, fault);
    report->Add(std::move(fault), CheckOptions().faults_max);
    return absl::OkStatus();
  }

  absl::Status CheckColumns(objfs::CheckReport* report) {
    for (const std::string& file : files_) {
      const bool ours =
          IsColumns(file) && absl::StartsWith(file, absl::StrCat(kColumnsPrefix, name_, "-"));
      if (!ours) continue;
      const std::string path = absl::StrCat(volumes_, "/", file);
      size_t servers = 0;
      ListFile list{.path = path + kServersSuffix, .others = {}};
      if (std::binary_search(files_.begin(), files_.end(), ".servers-" + name_)) {
        list.others.push_back(absl::StrCat(volumes_, "/.servers-", name_));
      }
      ABACUS_RETURN_IF_ERROR(CheckList(list, report, &servers));
      auto disk = objfs::LocalDisk::At(path);
      if (absl::IsFailedPrecondition(disk.status())) return InUse(options_.where);
      ABACUS_RETURN_IF_ERROR(disk.status());
      ABACUS_RETURN_IF_ERROR(objfs::CheckColumnsOn(**disk, Options(), report));
    }
    return absl::OkStatus();
  }

  const FsckOptions& options_;
  const std::string volumes_;
  const std::vector<std::string> files_;  // sorted
  std::string name_;                      // of the volume that is looked at
};

absl::Status CheckDirectory(const FsckOptions& options, std::vector<CheckedVolume>* checked) {
  ABACUS_ASSIGN_OR_RETURN(const std::string volumes, VolumesIn(options.where));
  ABACUS_ASSIGN_OR_RETURN(const int lock, LockData(options.where));
  const absl::Cleanup unlock = [lock] {
    if (lock >= 0) close(lock);
  };
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(volumes));
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOf(files, options.volume));
  Fsck fsck(options, volumes, files);
  for (const std::string& name : names) {
    ABACUS_RETURN_IF_ERROR(fsck.CheckVolume(name, checked));
    PrintTotals(checked->back(), options,
                options.repair
                    ? ""
                    : absl::StrCat("abacus fsck ", options.where, " --volume ", name, " --repair"));
    PrintNotFollowed(checked->back(),
                     absl::StrCat("abacus fsck --volume ", objfs::PlaceOfShard(name).volume,
                                  " HOST:PORT does that, while the servers of all shards run"));
  }
  for (const std::string& name : fsck.ColumnsOnly()) {
    if (!options.volume.empty() && options.volume != name) continue;
    ABACUS_RETURN_IF_ERROR(fsck.CheckColumnsOnly(name, checked));
    PrintTotals(checked->back(), options, "");
  }
  if (checked->empty()) printf("%s has no volume: nothing was checked\n", options.where.c_str());
  return absl::OkStatus();
}

// HOST:PORT, and no directory of that name.
bool IsServer(const std::string& where) {
  std::error_code error;
  return where.find(':') != std::string::npos && where.find('/') == std::string::npos &&
         !fs::exists(where, error);
}

}  // namespace

int FsckCommand(const FsckOptions& options) {
  if (options.where.empty() || IsServer(options.where)) {
    if (options.volume.empty()) {
      return FailFsck(absl::InvalidArgumentError(
          "which volume? Say: abacus fsck --volume NAME HOST:PORT, or abacus fsck DIRECTORY"));
    }
    FsckOptions asked = options;
    if (!options.where.empty()) asked.client.servers = {options.where};
    return FsckOnline(asked);
  }
  EndInOrder();
  std::vector<CheckedVolume> checked;
  const absl::Status status = CheckDirectory(options, &checked);
  return status.ok() ? FinishFsck(checked, options) : FailFsck(status);
}

}  // namespace abacus::apps
