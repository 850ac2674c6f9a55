// VolumeSet: the maps of volumes that are kept here.

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr ObjectId kKeptMapsTurn = 3;  // of VolumeSet::names_
constexpr char kKeptMapsFolder[] = "/.kept-maps";
constexpr size_t kKeptKeyDigits = 16;

std::string KeptMapFile(const std::string& name, uint64_t key) {
  return absl::StrCat(name, "-", absl::Hex(key, absl::kZeroPad16));
}

// The volume's name. Empty: it is the file of none, as what a save that was cut off has left.
std::string NameInKeptMapFile(const std::string& file) {
  if (file.size() <= kKeptKeyDigits) return "";
  const size_t name_end = file.size() - kKeptKeyDigits - 1;
  const bool has_key =
      file.find_first_not_of("0123456789abcdef", name_end + 1) == std::string::npos;
  return has_key && file[name_end] == '-' ? file.substr(0, name_end) : "";
}

// The clock of the servers that have the leases (MapKeeper): where this machine sleeps it stands
// still, and leases last longer by it, never less.
int64_t MapClockNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::Status VolumeSet::OpenKeptMapsDisk() {
  {
    MutexLock lock(mutex_);
    if (kept_maps_disk_ != nullptr) return absl::OkStatus();
  }
  ABACUS_ASSIGN_OR_RETURN(std::shared_ptr<Disk> disk, OpenDisk(directory_ + kKeptMapsFolder));
  ABACUS_RETURN_IF_ERROR(SyncNames(directory_));  // it may just have been made
  MutexLock lock(mutex_);
  kept_maps_disk_ = std::move(disk);
  return absl::OkStatus();
}

std::shared_ptr<KeptMap> VolumeSet::OpenKeptMap(const std::string& file) {
  MutexLock lock(mutex_);
  std::shared_ptr<KeptMap>& map = kept_maps_[file];
  if (map == nullptr) map = std::make_shared<KeptMap>(kept_maps_disk_, file, MapClockNs);
  return map;
}

std::shared_ptr<KeptMap> VolumeSet::FindKeptMap(const std::string& name, uint64_t key) {
  MutexLock lock(mutex_);
  const auto found = kept_maps_.find(KeptMapFile(name, key));
  return found == kept_maps_.end() ? nullptr : found->second;
}

// At once, as their leases count from the first call on.
absl::Status VolumeSet::OpenKeptMaps() {
  std::error_code error;
  const bool has_any = std::filesystem::exists(directory_ + kKeptMapsFolder, error);
  if (host_.open_map == nullptr || !has_any) return absl::OkStatus();  // they are a server's only
  ABACUS_RETURN_IF_ERROR(OpenKeptMapsDisk());
  std::shared_ptr<Disk> disk;
  {
    MutexLock lock(mutex_);
    disk = kept_maps_disk_;
  }
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, disk->List(""));
  for (const std::string& file : files) {
    const std::string name = NameInKeptMapFile(file);
    if (!CheckName(name).ok()) continue;
    const absl::Status read = OpenKeptMap(file)->Call({.kind = MapCall::Kind::kRead}).status();
    const bool is_told = absl::IsDataLoss(read) || absl::IsFailedPrecondition(read);
    if (is_told && host_.on_damage) host_.on_damage(name, OfKeptMap(file, read));
  }
  return absl::OkStatus();
}

absl::Status VolumeSet::OfKeptMap(const std::string& file, const absl::Status& answer) const {
  if (!absl::IsDataLoss(answer)) return answer;
  return absl::DataLossError(absl::StrCat(
      answer.message(), ". Nothing was changed. Remove ", directory_, kKeptMapsFolder, "/", file,
      ", and put the row back from what the volume's servers remember: abacus volume restore-map ",
      PlaceOfShard(NameInKeptMapFile(file)).volume));
}

absl::StatusOr<MapAnswer> VolumeSet::AskMap(const std::string& name, uint64_t key,
                                            const MapCall& call) {
  const std::shared_ptr<KeptMap> map = FindKeptMap(name, key);
  if (map == nullptr) {
    const bool reads = call.kind == MapCall::Kind::kRead || call.kind == MapCall::Kind::kGrant;
    if (reads) return absl::NotFoundError("this server keeps no map of that volume");
    return MapAnswer{.state = MapAnswer::State::kRefused, .reading = {}};
  }
  absl::StatusOr<MapAnswer> answer = map->Call(call);
  if (answer.ok()) return answer;
  return OfKeptMap(KeptMapFile(name, key), answer.status());
}

absl::Status VolumeSet::CreateMap(const std::string& name, uint64_t key, const VolumeRow& row) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  if (host_.open_map == nullptr) {
    return absl::FailedPreconditionError(
        "a map is kept by a server: a directory that no server keeps has none");
  }
  if (row.key != key) {
    return absl::InvalidArgumentError(absl::StrCat("the row is none of this ", VolumeText(name)));
  }
  const Turns::Turn turn(names_, kKeptMapsTurn);
  ABACUS_RETURN_IF_ERROR(OpenKeptMapsDisk());
  const std::string file = KeptMapFile(name, key);
  return OfKeptMap(file, OpenKeptMap(file)->Create(row));
}

absl::Status VolumeSet::RemoveMap(const std::string& name, uint64_t key) {
  const std::shared_ptr<KeptMap> map = FindKeptMap(name, key);
  return map == nullptr ? absl::OkStatus() : OfKeptMap(KeptMapFile(name, key), map->Remove());
}

}  // namespace abacus::objfs
