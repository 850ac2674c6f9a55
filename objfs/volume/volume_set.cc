#include "objfs/volume/volume_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr size_t kNameBytesMax = 64;
constexpr ObjectId kTheTurn = 1;

absl::Status CheckName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kNameBytesMax && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                             c == '_' || c == '.';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no name of a volume: 1 to ", kNameBytesMax,
                   " letters, digits, '-', '_' and '.', the first of them no dot"));
}

// The disk lives as long as anybody uses the store on it.
struct StoreOnDisk {
  std::unique_ptr<Disk> disk;
  std::unique_ptr<ObjectStore> store;
};

constexpr char kDeleted[] = ".deleted-";

absl::Status OsError(const std::error_code& error, const std::string& what) {
  return absl::ErrnoToStatus(error.value(), what);
}

// In one step, and durable with the directory's next flush at the latest.
absl::Status WriteQuota(const std::string& path, uint64_t bytes) {
  std::ofstream file(path + ".new", std::ios::trunc);
  file << bytes << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(path + ".new", path, error);
  if (file && !error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

// UINT64_MAX: there is none.
absl::StatusOr<uint64_t> ReadQuota(const std::string& path) {
  std::ifstream file(path);
  if (!file) return UINT64_MAX;
  std::string line;
  uint64_t bytes = 0;
  std::getline(file, line);
  if (absl::SimpleAtoi(line, &bytes) && bytes > 0) return bytes;
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: write the volume's quota into it, a number of bytes, or ",
                   "remove it for none"));
}

// Also where somebody removes a part of it meanwhile.
absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  for (int i = 0; i < 100; ++i) {
    std::filesystem::remove_all(path, error);
    if (!error) return absl::OkStatus();
    if (error != std::errc::no_such_file_or_directory && error != std::errc::directory_not_empty) {
      break;
    }
  }
  return OsError(error, absl::StrCat("cannot remove ", path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VolumeSet>> VolumeSet::Make(const std::string& directory,
                                                           Host host) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return OsError(error, absl::StrCat("cannot make ", directory));
  auto set = std::unique_ptr<VolumeSet>(new VolumeSet(directory, std::move(host)));
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.rfind(kDeleted, 0) == 0) {  // what a crash left of a deletion
      ABACUS_RETURN_IF_ERROR(RemoveAll(it->path().string()));
    }
    if (!CheckName(name).ok()) continue;
    ABACUS_RETURN_IF_ERROR(set->OpenVolume(name));
  }
  if (error) return OsError(error, absl::StrCat("cannot read ", directory));
  return set;
}

absl::Status VolumeSet::OpenVolume(const std::string& name) {
  auto both = std::make_shared<StoreOnDisk>();
  ABACUS_ASSIGN_OR_RETURN(both->disk, LocalDisk::At(PathOf(name)));
  if (host_.wrap_disk) both->disk = host_.wrap_disk(std::move(both->disk));
  ABACUS_ASSIGN_OR_RETURN(const uint64_t quota_bytes, ReadQuota(QuotaOf(name)));
  LocalObjectStoreOptions options;
  options.quota_bytes = quota_bytes;
  if (host_.on_damage) {
    options.on_damage = [tell = host_.on_damage, name](const absl::Status& damage) {
      tell(name, damage);
    };
  }
  ABACUS_ASSIGN_OR_RETURN(both->store, LocalObjectStore::Open(*both->disk, std::move(options)));
  std::shared_ptr<ObjectStore> store(both, both->store.get());
  ABACUS_ASSIGN_OR_RETURN(
      auto volume,
      Volume::Make(std::move(store), {.name = name, .lease = host_.lease}, host_.volume));
  Ref<Volume> ref = host_.adopt(std::move(volume));
  MutexLock lock(mutex_);
  volumes_[name] = std::move(ref);
  return absl::OkStatus();
}

absl::Status VolumeSet::NoSuch(const std::string& name) {
  if (volumes_.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no volume '", name,
                                            "', nor any other: abacus volume create ", name));
  }
  const auto append = [](std::string* out, const auto& volume) { out->append(volume.first); };
  return absl::NotFoundError(absl::StrCat("there is no volume '", name,
                                          "'; there are: ", absl::StrJoin(volumes_, ", ", append)));
}

absl::Status VolumeSet::Create(const std::string& name, uint64_t quota_bytes) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  const Turns::Turn turn(names_, kTheTurn);
  {
    MutexLock lock(mutex_);
    if (volumes_.contains(name)) {
      return absl::AlreadyExistsError(absl::StrCat("there is a volume '", name, "'"));
    }
  }
  std::error_code error;
  if (std::filesystem::exists(PathOf(name), error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(PathOf(name), " is there, and not a volume since the server was started: ",
                     "start it again to have it served, or remove it"));
  }
  std::filesystem::remove(QuotaOf(name), error);  // of a creation or deletion that was cut off
  if (quota_bytes != 0) ABACUS_RETURN_IF_ERROR(WriteQuota(QuotaOf(name), quota_bytes));
  return OpenVolume(name);
}

absl::StatusOr<Ref<Volume>> VolumeSet::Open(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = volumes_.find(name);
  if (found == volumes_.end()) return NoSuch(name);
  return found->second;
}

absl::StatusOr<std::vector<VolumeSummary>> VolumeSet::List() {
  std::vector<std::pair<std::string, Ref<Volume>>> volumes;
  {
    MutexLock lock(mutex_);
    volumes.assign(volumes_.begin(), volumes_.end());
  }
  std::vector<VolumeSummary> summaries;
  for (const auto& [name, volume] : volumes) {
    VolumeSummary summary{.name = name, .space = {}, .clients = {}, .commits = {}};
    ABACUS_ASSIGN_OR_RETURN(summary.space, volume->Space());
    ABACUS_ASSIGN_OR_RETURN(summary.clients, volume->Clients());
    ABACUS_ASSIGN_OR_RETURN(summary.commits, volume->Commits());
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

absl::Status VolumeSet::Delete(const std::string& name) {
  const Turns::Turn turn(names_, kTheTurn);
  Ref<Volume> volume;
  {
    MutexLock lock(mutex_);
    const auto found = volumes_.find(name);
    if (found == volumes_.end()) return NoSuch(name);
    volume = found->second;
  }
  const std::string deleted = absl::StrCat(directory_, "/", kDeleted, name);
  ABACUS_RETURN_IF_ERROR(RemoveAll(deleted));  // what an earlier deletion left
  // From here on nobody joins it.
  ABACUS_RETURN_IF_ERROR(volume->Retire());
  host_.end(volume);
  {
    MutexLock lock(mutex_);
    volumes_.erase(name);
  }
  // Under another name first: the volume may still be flushing, and a crash leaves no half of one.
  std::error_code error;
  std::filesystem::rename(PathOf(name), deleted, error);
  if (error) return OsError(error, absl::StrCat("cannot remove ", PathOf(name)));
  std::filesystem::remove(QuotaOf(name), error);
  return RemoveAll(deleted);
}

}  // namespace abacus::objfs
