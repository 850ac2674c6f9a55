#include "objfs/volume/volume_set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/timed_call.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_finder.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr size_t kNameBytesMax = 64;
constexpr ObjectId kTheTurn = 1;

// The disk lives as long as anybody uses the store on it.
struct StoreOnDisk {
  std::unique_ptr<Disk> disk;
  std::unique_ptr<ObjectStore> store;
};

constexpr char kDeleted[] = ".deleted-", kMaking[] = ".making-";

// How long a server is waited for that may have another shard: it says what it knows.
constexpr absl::Duration kFinderAnswerMax = absl::Seconds(3);

absl::Status HasNotAnswered(const std::string& address) {
  return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable,
                            absl::StrCat("server ", address, " has not answered in time"));
}

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

absl::Status VolumeSet::CheckName(const std::string& name) {
  const std::string volume = PlaceOfShard(name).volume;
  const bool good = !volume.empty() && volume.size() <= kNameBytesMax && volume[0] != '.' &&
                    std::all_of(volume.begin(), volume.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                             c == '_' || c == '.';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no name of a volume: 1 to ", kNameBytesMax,
                   " letters, digits, '-', '_' and '.', the first of them no dot"));
}

absl::StatusOr<std::unique_ptr<VolumeSet>> VolumeSet::Make(const std::string& directory,
                                                           Host host) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return OsError(error, absl::StrCat("cannot make ", directory));
  auto set = std::unique_ptr<VolumeSet>(new VolumeSet(directory, std::move(host)));
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    // What a crash left of a deletion, or of a creation.
    if (name.rfind(kDeleted, 0) == 0 || name.rfind(kMaking, 0) == 0) {
      ABACUS_RETURN_IF_ERROR(RemoveAll(it->path().string()));
    }
    if (!CheckName(name).ok() || std::filesystem::exists(set->MapOf(name), error)) continue;
    ABACUS_RETURN_IF_ERROR(set->OpenVolume(name));
  }
  for (const std::string& path : set->KeptServers("")) {
    ABACUS_ASSIGN_OR_RETURN(const auto list, ServerList::Load(path));
    if (!list.has_value() || set->host_.reach == nullptr) continue;
    for (const std::string& server : list->servers) set->Reach(server);
  }
  if (error) return OsError(error, absl::StrCat("cannot read ", directory));
  ABACUS_RETURN_IF_ERROR(set->OpenKeptMaps());
  ABACUS_RETURN_IF_ERROR(set->BeginAllMapped());
  return set;
}

absl::StatusOr<std::unique_ptr<Disk>> VolumeSet::OpenDisk(const std::string& path) {
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<Disk> disk, LocalDisk::At(path));
  return host_.wrap_disk ? host_.wrap_disk(std::move(disk)) : std::move(disk);
}

absl::StatusOr<LocalObjectStoreOptions> VolumeSet::StoreOptions(const std::string& name) {
  LocalObjectStoreOptions options;
  ABACUS_ASSIGN_OR_RETURN(options.quota_bytes, ReadQuota(QuotaOf(name)));
  if (host_.on_damage) {
    options.on_damage = [tell = host_.on_damage, name](const absl::Status& damage) {
      tell(name, damage);
    };
  }
  return options;
}

absl::StatusOr<std::shared_ptr<ObjectStore>> VolumeSet::OpenStore(const std::string& name,
                                                                  const std::string& path) {
  auto both = std::make_shared<StoreOnDisk>();
  ABACUS_ASSIGN_OR_RETURN(both->disk, OpenDisk(path));
  ABACUS_ASSIGN_OR_RETURN(LocalObjectStoreOptions options, StoreOptions(name));
  options.ids_begin = FirstIdOf(PlaceOfShard(name).shard, /*epoch=*/1);
  auto opened = LocalObjectStore::Open(*both->disk, std::move(options));
  if (absl::IsDataLoss(opened.status())) {
    return absl::DataLossError(absl::StrCat(
        "volume ", name, " is damaged: ", opened.status().message(), ". Nothing was changed. ",
        "abacus fsck DIRECTORY --volume ", name, ", of the server's --data, tells what is left of ",
        "it, and with --repair makes that right"));
  }
  ABACUS_ASSIGN_OR_RETURN(both->store, std::move(opened));
  return std::shared_ptr<ObjectStore>(both, both->store.get());
}

absl::Status VolumeSet::OpenVolume(const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> store, OpenStore(name, PathOf(name)));
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ServerList> list, ServerList::Load(ServersOf(name)));
  Volume::Host volume_host = host_.volume;
  std::shared_ptr<ServerAddresses> servers;
  if (list.has_value()) {
    servers = std::make_shared<ServerAddresses>(list->servers);
    volume_host.find_columns = FinderOf(name, list->key, 0, servers);
    volume_host.find_shard = ShardFinderOf(name, 0, servers);
  }
  ABACUS_ASSIGN_OR_RETURN(auto volume, Volume::Make(std::move(store),
                                                    {.name = name,
                                                     .lease = host_.lease,
                                                     .servers = servers,
                                                     .whole_read_sets = host_.whole_read_sets},
                                                    std::move(volume_host)));
  Ref<Volume> ref = host_.adopt(std::move(volume));
  MutexLock lock(mutex_);
  volumes_[name] = std::move(ref);
  if (servers != nullptr) servers_[name] = std::move(servers);
  return absl::OkStatus();
}

std::function<absl::StatusOr<Ref<Volume>>(uint32_t)> VolumeSet::ShardFinderOf(
    const std::string& name, size_t own, std::shared_ptr<const ServerAddresses> servers) {
  const auto set_at = [reach = host_.reach, find = host_.find_set,
                       volume = PlaceOfShard(name).volume](
                          const std::string& address) -> absl::StatusOr<Ref<VolumeSet>> {
    if (find == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("the other shards of volume '", volume, "' are at its servers, and nobody ",
                       "is asked here: mount it from them: abacus mount SERVER/", volume, " DIR"));
    }
    reach(address);
    return find(address);
  };
  const auto alarm = std::make_shared<Alarm>();
  ShardFinder::Host host;
  host.open = [set_at, alarm](const std::string& address,
                              const std::string& shard) -> absl::StatusOr<Ref<Volume>> {
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, set_at(address));
    auto opened = CallWithin<&VolumeSet::Open>(*alarm, kFinderAnswerMax, set.base(), shard);
    if (!opened.has_value()) return HasNotAnswered(address);
    return *std::move(opened);
  };
  host.open_here = [here = here_](const std::string& shard) -> absl::StatusOr<Ref<Volume>> {
    const Here::Use use(*here);
    if (use.set() == nullptr) return absl::UnavailableError("the server is being stopped");
    return use.set()->Open(shard);
  };
  host.servers = [set_at, alarm](
                     const std::string& address,
                     const std::string& shard) -> absl::StatusOr<std::vector<std::string>> {
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, set_at(address));
    auto named = CallWithin<&VolumeSet::Servers>(*alarm, kFinderAnswerMax, set.base(), shard);
    if (!named.has_value()) return HasNotAnswered(address);
    return *std::move(named);
  };
  host.steady_ns = host_.volume.steady_ns;
  auto finder = std::make_shared<ShardFinder>(name, own, std::move(servers), std::move(host));
  return [finder = std::move(finder)](uint32_t shard) { return finder->Find(shard); };
}

absl::Status VolumeSet::NoSuch(const std::string& name) {
  std::vector<std::string> others;
  for (const auto& [other, volume] : volumes_) {
    if (PlaceOfShard(other).shard == 0) others.push_back(other);
  }
  if (others.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no volume '", name,
                                            "', nor any other: abacus volume create ",
                                            PlaceOfShard(name).volume));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no volume '", name, "'; there are: ", absl::StrJoin(others, ", ")));
}

absl::Status VolumeSet::Create(const NewVolume& volume) {
  ABACUS_RETURN_IF_ERROR(CheckName(volume.name));
  if (!volume.map_url.empty()) return CreateMapped(volume);
  if (!volume.servers.empty()) return CreateSpread(volume);
  const Turns::Turn turn(names_, kTheTurn);
  return CreateLocked(volume, [] { return absl::OkStatus(); });
}

absl::Status VolumeSet::CreateLocked(const NewVolume& made,
                                     absl::FunctionRef<absl::Status()> before) {
  const std::string& name = made.name;
  {
    MutexLock lock(mutex_);
    if (volumes_.contains(name) || mapped_.contains(name)) {
      return absl::AlreadyExistsError(absl::StrCat("there is a volume '", name, "'"));
    }
  }
  std::error_code error;
  if (std::filesystem::exists(PathOf(name), error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(PathOf(name), " is there, and not a volume since the server was started: ",
                     "start it again to have it served, or remove it"));
  }
  ABACUS_RETURN_IF_ERROR(CheckNoListIsLeft(name));
  ABACUS_RETURN_IF_ERROR(SetQuota(name, made.quota_bytes));
  absl::Status created = before();
  if (created.ok()) {
    created = MakeStore(made, [&](const std::string& path) { return OpenStore(name, path); });
  }
  if (created.ok()) created = OpenVolume(name);
  if (created.ok()) return created;
  // The list last: a directory alone is a volume on this server.
  absl::Status undone = RemoveStore(name);
  if (undone.ok()) undone = DropSpread(name);
  if (undone.ok()) return created;
  return absl::Status(created.code(), absl::StrCat(created.message(), "; ", undone.message()));
}

absl::Status VolumeSet::MakeStore(
    const NewVolume& made,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<ObjectStore>>(const std::string& path)> open) {
  const std::string path = absl::StrCat(directory_, "/", kMaking, made.name);
  ABACUS_RETURN_IF_ERROR(RemoveAll(path));  // what an earlier creation left
  ABACUS_ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> store, open(path));
  ABACUS_RETURN_IF_ERROR(FillStore(made, std::move(store)));
  return RenameDurably(path, PathOf(made.name));
}

// As a volume that nobody finds; it is closed when this returns.
absl::Status VolumeSet::FillStore(const NewVolume& made, std::shared_ptr<ObjectStore> store) {
  Volume::Host host;
  host.now_ns = host_.volume.now_ns;
  host.steady_ns = host_.volume.steady_ns;
  ABACUS_ASSIGN_OR_RETURN(
      const std::unique_ptr<Volume> volume,
      Volume::Make(std::move(store), {.name = made.name, .servers = nullptr}, std::move(host)));
  if (!made.own_file_stack.empty()) {
    ABACUS_RETURN_IF_ERROR(volume->KeepFileStack(made.own_file_stack));
  }
  if (made.shards == 1) return absl::OkStatus();
  return volume->BecomeShard(made.shards, made.shards_number);
}

absl::Status VolumeSet::SetQuota(const std::string& name, uint64_t bytes) const {
  if (bytes != 0) return WriteQuota(QuotaOf(name), bytes);
  std::error_code error;
  std::filesystem::remove(QuotaOf(name), error);
  return absl::OkStatus();
}

absl::StatusOr<Ref<Volume>> VolumeSet::Open(const std::string& name) {
  if (const auto mapped = FindMapped(name); mapped != nullptr) return mapped->volume();
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
    for (const auto& [name, mapped] : mapped_) {
      if (auto volume = mapped->volume(); volume.ok()) volumes.emplace_back(name, *volume);
    }
  }
  std::vector<VolumeSummary> summaries;
  for (const auto& [name, volume] : volumes) {
    VolumeSummary summary{.name = name, .space = {}, .clients = {}, .commits = {}};
    ABACUS_ASSIGN_OR_RETURN(summary.space, volume->Space());
    ABACUS_ASSIGN_OR_RETURN(summary.clients, volume->Clients());
    ABACUS_ASSIGN_OR_RETURN(summary.commits, volume->Commits());
    ABACUS_ASSIGN_OR_RETURN(summary.shards, volume->Shards());
    ABACUS_ASSIGN_OR_RETURN(summary.own_file_stack, volume->OwnFileStack());
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

absl::Status VolumeSet::RemoveStore(const std::string& name) {
  // Under another name first: the volume may still be flushing, and a crash leaves no half of one.
  const std::string deleted = absl::StrCat(directory_, "/", kDeleted, name);
  ABACUS_RETURN_IF_ERROR(RemoveAll(deleted));  // what an earlier deletion left
  std::error_code error;
  std::filesystem::rename(PathOf(name), deleted, error);
  const bool is_there = error != std::errc::no_such_file_or_directory;
  if (error && is_there) return OsError(error, absl::StrCat("cannot remove ", PathOf(name)));
  std::filesystem::remove(QuotaOf(name), error);
  absl::Status removed = RemoveAll(deleted);
  removed.Update(RemoveAll(absl::StrCat(directory_, "/", kMaking, name)));
  return removed;
}

absl::Status VolumeSet::Delete(const std::string& name) {
  if (const auto mapped = FindMapped(name); mapped != nullptr) return DeleteMapped(*mapped, name);
  const Turns::Turn turn(names_, kTheTurn);
  std::error_code error;
  const bool has_list_only = CheckName(name).ok() &&
                             std::filesystem::exists(ServersOf(name), error) &&
                             !std::filesystem::exists(PathOf(name), error);
  Ref<Volume> volume;
  {
    MutexLock lock(mutex_);
    if (mapped_.contains(name)) {
      return absl::AbortedError(absl::StrCat(
          VolumeText(name), " was made here just now: to delete that, say this again"));
    }
    const auto found = volumes_.find(name);
    if (found != volumes_.end()) {
      volume = found->second;
    } else if (!has_list_only) {
      return NoSuch(name);
    }
  }
  // Without it nobody finds the columns.
  ABACUS_RETURN_IF_ERROR(LoadList(name).status());
  if (volume) {
    // From here on nobody joins it.
    ABACUS_RETURN_IF_ERROR(volume->Retire());
    host_.end(volume);
    MutexLock lock(mutex_);
    volumes_.erase(name);
    servers_.erase(name);
  }
  ABACUS_RETURN_IF_ERROR(RemoveStore(name));
  const absl::Status dropped = DropSpread(name);
  if (dropped.ok()) return dropped;
  return absl::Status(dropped.code(), absl::StrCat("the volume is gone, but ", dropped.message()));
}

}  // namespace abacus::objfs
