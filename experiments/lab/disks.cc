#include "experiments/lab/disks.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "experiments/lab/paper_node.h"
#include "runtime/base/status.h"

namespace abacus::lab {
namespace {

using objfs::VolumeSet;
using runtime::MutexLock;
using runtime::Ref;

constexpr char kDiskName[] = "disk-";  // and its number, and a port, as a server's address has one

std::string NameOfDisk(size_t disk) { return absl::StrCat(kDiskName, disk + 1, ":1"); }

}  // namespace

Disks::Disks(size_t count, bool modelled, objfs::DiskModel disk) : count_(count) {
  for (size_t i = 0; modelled && i < count; ++i) {
    caches_.push_back(std::make_shared<PageCache>(CacheModel{
        .disk = disk, .memory_bytes = kPageCacheBytes / count, .ahead_bytes = kReadAheadBytes}));
  }
}

apps::WrapDisk Disks::WrapOf(size_t disk) const {
  if (caches_.empty()) return {};
  return [cache = caches_[disk]](std::unique_ptr<objfs::Disk> below) {
    return std::make_unique<CachedDisk>(std::move(below), cache);
  };
}

apps::StandIns Disks::StandInsOf(std::shared_ptr<Found> found) {
  using Answer = absl::StatusOr<Ref<VolumeSet>>;
  return [found = std::move(found)](const std::string& address) -> std::optional<Answer> {
    MutexLock lock(found->mutex);
    if (address == found->failed) {
      return Answer(absl::UnavailableError(absl::StrCat(address, " has failed")));
    }
    const auto disk = found->disks.find(address);
    if (disk != found->disks.end()) return Answer(disk->second);
    if (!absl::StartsWith(address, kDiskName)) return std::nullopt;
    return Answer(absl::NotFoundError(absl::StrCat(address, " is a disk of another server")));
  };
}

absl::Status Disks::Open(runtime::Node& node, const std::string& directory, bool whole_read_sets) {
  const auto options_of = [&](size_t disk) {
    return apps::VolumesOptions{.whole_read_sets = whole_read_sets,
                                .wrap_disk = WrapOf(disk),
                                .stand_ins = StandInsOf(found_)};
  };
  ABACUS_ASSIGN_OR_RETURN(
      first_, apps::PublishVolumes(node, absl::StrCat(directory, "/volumes"), options_of(0)));
  for (size_t i = 1; i < count_; ++i) {
    ABACUS_ASSIGN_OR_RETURN(
        const auto volumes,
        apps::OpenVolumes(node.binding(), absl::StrCat(directory, "/volumes-", i + 1),
                          options_of(i), &node));
    MutexLock lock(found_->mutex);
    found_->disks[NameOfDisk(i)] = volumes;
  }
  return absl::OkStatus();
}

std::vector<std::string> Disks::Names(const std::string& first) const {
  std::vector<std::string> names = {first};
  for (size_t i = 1; i < count_; ++i) names.push_back(NameOfDisk(i));
  return names;
}

void Disks::Fail(const std::string& name) {
  MutexLock lock(found_->mutex);
  found_->failed = name;
}

void Disks::Drop() {
  for (const auto& cache : caches_) cache->Drop();
}

void Disks::Close() {
  first_ = Ref<VolumeSet>();
  MutexLock lock(found_->mutex);
  found_->disks.clear();
}

}  // namespace abacus::lab
