// VolumeSet: volumes whose map is elsewhere, so that they outlive each of their servers.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "objfs/map/embedded_map.h"
#include "objfs/replica/replica_record.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr ObjectId kTheMapsTurn = 1;  // of VolumeSet::names_
constexpr char kMapPrefix[] = ".map-";

// The disk lives as long as anybody uses the store on it.
struct PrimaryOnDisk {
  std::unique_ptr<Disk> disk;
  std::unique_ptr<LocalObjectStore> store;
};

// How long a volume that was just made may take to be open.
constexpr std::chrono::seconds kOpenPatience{10};

// Whether there are servers for so many copies of the names and inodes, and those that are to keep
// them can.
absl::Status CheckCopies(const NewVolume& volume) {
  const std::vector<std::string>& servers = volume.servers;
  const uint64_t copies = volume.metadata_copies;
  if (copies < 1 || copies > VolumeSet::kMetadataCopiesMax || copies > servers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a volume over ", servers.size(), " servers has 1 to ",
                     std::min<uint64_t>(VolumeSet::kMetadataCopiesMax, servers.size()),
                     " copies of its metadata, not ", copies));
  }
  const std::string keeper = MapServerOf(volume.map_url);
  const auto found = std::find(servers.begin(), servers.end(), keeper);
  if (found == servers.end()) return absl::OkStatus();
  if (copies == servers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        copies, " copies of the names and inodes of ", VolumeText(volume.name),
        " need one server more than ", ServersText(servers), ": ", keeper,
        ", which keeps its map, keeps none of them, so that the others go on when it dies"));
  }
  if (static_cast<uint64_t>(found - servers.begin()) >= copies) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("server ", keeper, " keeps the map of ", VolumeText(volume.name),
                   ", and cannot be among the first ", copies,
                   " of its servers, which keep its names and inodes"));
}

// Its map has answered that it has no row of it: one that was removed, be it that this was not
// told.
bool HasNoRow(MapStore& map) {
  return absl::IsNotFound(map.Call({.kind = MapCall::Kind::kRead}).status());
}

// Of a volume that is not to be; what is left of it, for people. Empty: nothing.
std::string RemoveRow(MapStore& map, const NewVolume& volume, uint64_t key) {
  if (map.Remove().ok()) return "";
  return absl::StrCat("; its row may be left in the map at ", volume.map_url,
                      ", where nobody uses it: ", volume.name, "-",
                      absl::Hex(key, absl::kZeroPad16),
                      MapServerOf(volume.map_url).empty()
                          ? ""
                          : ", in the folder volumes/.kept-maps of that server's --data");
}

absl::Status NoMaps() {
  return absl::FailedPreconditionError(
      "a volume with a map needs a server: a directory that no server keeps has none");
}

}  // namespace

std::string VolumeSet::MapOf(const std::string& name) const {
  return absl::StrCat(directory_, "/", kMapPrefix, name);
}

std::shared_ptr<MappedVolume> VolumeSet::FindMapped(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = mapped_.find(name);
  return found == mapped_.end() ? nullptr : found->second;
}

absl::Status VolumeSet::BeginAllMapped() {
  std::error_code error;
  std::vector<std::string> names;
  for (auto it = std::filesystem::directory_iterator(directory_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (absl::StartsWith(file, kMapPrefix) && !absl::EndsWith(file, ".new")) {
      names.push_back(file.substr(sizeof(kMapPrefix) - 1));
    }
  }
  if (host_.open_map == nullptr) return absl::OkStatus();  // they are a server's only
  for (const std::string& name : names) ABACUS_RETURN_IF_ERROR(BeginMapped(name));
  return absl::OkStatus();
}

absl::Status VolumeSet::BeginMapped(const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const auto place, MapPlace::Load(MapOf(name)));
  if (!place.has_value()) return absl::NotFoundError(absl::StrCat("there is no ", MapOf(name)));
  ABACUS_ASSIGN_OR_RETURN(auto map, host_.open_map(place->url, name, place->key));
  auto servers = std::make_shared<ServerAddresses>();
  MappedVolume::Host host;
  host.open_store = [this, name](uint64_t epoch) { return OpenPrimary(name, PathOf(name), epoch); };
  host.check_store = [this, name](const std::function<bool()>& reads_on) {
    return CheckPrimary(name, reads_on);
  };
  host.open_copy = [this, name]() -> absl::StatusOr<std::unique_ptr<ReplicaStore>> {
    ABACUS_ASSIGN_OR_RETURN(std::shared_ptr<Disk> disk, OpenDisk(PathOf(name)));
    ABACUS_ASSIGN_OR_RETURN(LocalObjectStoreOptions options, StoreOptions(name));
    return ReplicaStore::Open(std::move(disk), std::move(options));
  };
  host.memory = std::make_shared<RowMemory>(RowOf(name), place->key);
  host.adopt_copy = host_.adopt_copy;
  host.end_copy = host_.end_copy;
  host.find_copy = [find = host_.find_set, name, key = place->key](
                       const std::string& address) -> absl::StatusOr<Ref<ReplicaStore>> {
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> other, find(address));
    return other->Copy(name, key);
  };
  host.open_volume = [this, name, key = place->key, own = place->place, servers](
                         std::shared_ptr<ObjectStore> store, Volume::Options options,
                         std::function<bool()> may_serve,
                         std::function<int64_t()> serves_for_ns) -> absl::StatusOr<Ref<Volume>> {
    options.lease = host_.lease;
    options.whole_read_sets = host_.whole_read_sets;
    Volume::Host volume_host = host_.volume;
    volume_host.find_columns = FinderOf(name, key, own, servers);
    volume_host.find_shard = ShardFinderOf(name, own, servers);
    volume_host.may_serve = std::move(may_serve);
    volume_host.serves_for_ns = std::move(serves_for_ns);
    for (const std::string& server : servers->All()) Reach(server);
    ABACUS_ASSIGN_OR_RETURN(
        auto volume, Volume::Make(std::move(store), std::move(options), std::move(volume_host)));
    return host_.adopt(std::move(volume));
  };
  host.end_volume = host_.end;
  host.store_fails = [here = here_, name](const absl::Status& why) {
    const Here::Use use(*here);
    if (use.set() != nullptr) use.set()->LeaveFailing(name, why);
  };
  host.ask = [find = host_.find_set, name, key = place->key](
                 const std::string& address, uint64_t epoch) -> absl::StatusOr<PromiseAnswer> {
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> other, find(address));
    return other->Promise(name, key, epoch);
  };
  auto mapped = std::make_shared<MappedVolume>(name, *place, std::move(map), std::move(servers),
                                               std::move(host));
  MutexLock lock(mutex_);
  mapped_[name] = std::move(mapped);
  return absl::OkStatus();
}

absl::Status VolumeSet::CreateMapped(const NewVolume& volume) {
  const std::string& name = volume.name;
  const std::vector<std::string>& servers = volume.servers;
  const uint64_t copies = volume.metadata_copies;
  ABACUS_RETURN_IF_ERROR(CheckServers(servers));
  ABACUS_RETURN_IF_ERROR(CheckCopies(volume));
  if (host_.find_set == nullptr || host_.open_map == nullptr) return NoMaps();
  const uint64_t key = NewVolumeKey();
  ABACUS_ASSIGN_OR_RETURN(const auto map, host_.open_map(volume.map_url, name, key));
  ABACUS_ASSIGN_OR_RETURN(const std::vector<Ref<VolumeSet>> all, MeetAll(servers));
  ABACUS_RETURN_IF_ERROR(CheckKeeper(volume, all));
  const Turns::Turn turn(names_, kTheMapsTurn + 1);  // KeepCopy() takes the other one
  VolumeRow row{.key = key, .epoch = 1, .primary = 0, .servers = servers, .copies = {}};
  for (uint32_t i = 0; i < copies; ++i) row.copies.push_back({i, i == 0});
  absl::Status made = map->Create(row);
  if (!made.ok()) {  // without an answer it may be there
    return absl::Status(made.code(), absl::StrCat(made.message(), RemoveRow(*map, volume, key)));
  }
  for (size_t i = 0; i < all.size() && made.ok(); ++i) {
    const auto place = static_cast<uint32_t>(i);
    made = all[i]->KeepColumns(name, key, servers, place);
    if (!made.ok() || i >= copies) continue;
    made = i == 0 ? KeepPrimary(volume, key)
                  : all[i]->KeepCopy(name, volume.quota_bytes, volume.map_url, key, place);
  }
  if (made.ok()) {
    const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
    made = mapped == nullptr ? absl::UnavailableError("the volume is being deleted")
                             : mapped->AwaitVolume(kOpenPatience);
  }
  if (made.ok()) return made;
  std::vector<std::string> left;
  for (size_t i = 0; i < all.size(); ++i) {
    absl::Status dropped = i < copies ? all[i]->DropCopy(name, key) : absl::OkStatus();
    dropped.Update(all[i]->DropColumns(name, key));
    if (!dropped.ok()) left.push_back(servers[i]);
  }
  std::string left_text = RemoveRow(*map, volume, key);
  if (!left.empty()) {
    absl::StrAppend(&left_text, "; something of it may be left at ", absl::StrJoin(left, ", "),
                    ": ", LeftText(name, key, /*has_copy=*/true));
  }
  if (left_text.empty()) return made;
  return absl::Status(made.code(), absl::StrCat(made.message(), left_text));
}

absl::Status VolumeSet::CheckKeeper(const NewVolume& volume,
                                    const std::vector<Ref<VolumeSet>>& all) {
  const std::string address = MapServerOf(volume.map_url);
  if (address.empty()) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> keeper, MeetAny(address));
  for (size_t i = 0; i < volume.metadata_copies; ++i) {
    if (!(all[i].rid() == keeper.rid())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("server ", volume.servers[i], " is ", address, ", which keeps the map of ",
                     VolumeText(volume.name), ", by another address: it keeps no names and inodes ",
                     "of it, so that the others go on when it dies"));
  }
  return absl::OkStatus();
}

absl::Status VolumeSet::KeepCopy(const std::string& name, uint64_t quota_bytes,
                                 const std::string& map_url, uint64_t key, uint32_t place) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  if (host_.open_map == nullptr) return NoMaps();
  // By another address than that of the map, or its place would have been left out.
  if (FindKeptMap(name, key) != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server keeps the map of ", VolumeText(name), ", by another address: it ",
                     "keeps no names and inodes of it, so that the others go on when it dies"));
  }
  return KeepMade(name, quota_bytes, {.url = map_url, .key = key, .place = place},
                  [] { return absl::OkStatus(); });
}

// In the row's first epoch, which is over with the first taking of it: from then on a directory
// without a record is a lost one.
absl::Status VolumeSet::KeepPrimary(const NewVolume& volume, uint64_t key) {
  const auto open = [&](const std::string& path) -> absl::StatusOr<std::shared_ptr<ObjectStore>> {
    return OpenPrimary(volume.name, path, /*epoch=*/1);
  };
  return KeepMade(volume.name, volume.quota_bytes, {.url = volume.map_url, .key = key, .place = 0},
                  [&] { return MakeStore(volume, open); });
}

absl::Status VolumeSet::KeepMade(const std::string& name, uint64_t quota_bytes,
                                 const MapPlace& here, absl::FunctionRef<absl::Status()> make) {
  const Turns::Turn turn(names_, kTheMapsTurn);
  std::error_code error;
  // Asked once more, as the answer was lost or what came after it failed.
  if (const auto kept = FindMapped(name); kept != nullptr && kept->place() == here) {
    return absl::OkStatus();
  }
  if (FindMapped(name) != nullptr || std::filesystem::exists(PathOf(name), error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("a server that is to keep its metadata has a volume '", name, "' already"));
  }
  ABACUS_RETURN_IF_ERROR(CheckNoListIsLeft(name));
  ABACUS_RETURN_IF_ERROR(SetQuota(name, quota_bytes));
  absl::Status kept = SaveDurably(MapOf(name), here.Encode());
  if (kept.ok()) kept = make();
  if (kept.ok()) kept = BeginMapped(name);
  if (kept.ok()) return kept;
  RemoveStore(name).IgnoreError();
  std::filesystem::remove(MapOf(name), error);  // last: a directory alone is a volume without a map
  return kept;
}

absl::Status VolumeSet::DropCopy(const std::string& name, uint64_t key) {
  const Turns::Turn turn(names_, kTheMapsTurn);
  std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || mapped->place().key != key) return absl::OkStatus();
  mapped->Stop(/*closes=*/true);
  {
    MutexLock lock(mutex_);
    mapped_.erase(name);
  }
  std::error_code error;
  std::filesystem::remove(MapOf(name), error);
  mapped->memory().Forget();
  return RemoveStore(name);
}

absl::Status VolumeSet::LetGo() {
  leaver_.Stop();
  std::map<std::string, std::shared_ptr<MappedVolume>> mapped;
  {
    MutexLock lock(mutex_);
    mapped = mapped_;
  }
  for (const auto& [name, volume] : mapped) volume->Stop(/*closes=*/true);
  return absl::OkStatus();
}

absl::StatusOr<PromiseAnswer> VolumeSet::Promise(const std::string& name, uint64_t key,
                                                 uint64_t epoch) {
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || mapped->place().key != key) {
    return absl::NotFoundError(absl::StrCat("this server keeps no metadata of '", name, "'"));
  }
  return mapped->keeper().OnAsk(epoch);
}

absl::StatusOr<Ref<ReplicaStore>> VolumeSet::Copy(const std::string& name, uint64_t key) {
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || mapped->place().key != key) {
    return absl::NotFoundError(absl::StrCat("this server keeps no metadata of '", name, "'"));
  }
  return mapped->copy();
}

absl::StatusOr<std::shared_ptr<LocalObjectStore>> VolumeSet::OpenPrimary(const std::string& name,
                                                                         const std::string& path,
                                                                         uint64_t epoch) {
  auto both = std::make_shared<PrimaryOnDisk>();
  ABACUS_ASSIGN_OR_RETURN(both->disk, OpenDisk(path));
  ABACUS_ASSIGN_OR_RETURN(LocalObjectStoreOptions options, StoreOptions(name));
  ABACUS_ASSIGN_OR_RETURN(both->store, OpenPrimaryStore(*both->disk, epoch, std::move(options),
                                                        PlaceOfShard(name).shard));
  return std::shared_ptr<LocalObjectStore>(both, both->store.get());
}

absl::Status VolumeSet::CheckPrimary(const std::string& name,
                                     const std::function<bool()>& reads_on) {
  ABACUS_ASSIGN_OR_RETURN(const std::unique_ptr<Disk> disk, OpenDisk(PathOf(name)));
  ABACUS_ASSIGN_OR_RETURN(LocalObjectStoreOptions options, StoreOptions(name));
  return CheckPrimaryStore(*disk, std::move(options), reads_on);
}

absl::StatusOr<MapReport> VolumeSet::Map(const std::string& name) {
  if (const auto mapped = FindMapped(name); mapped != nullptr) return mapped->Report();
  ABACUS_ASSIGN_OR_RETURN(const MapAnswer answer,
                          EmbeddedMap(ServersOf(name)).Call({.kind = MapCall::Kind::kRead}));
  return MapReport{.reachable = true,
                   .epoch = answer.reading.row.epoch,
                   .is_primary = true,
                   .may_serve = true,
                   .has_lease = true,
                   .servers = answer.reading.row.servers,
                   .copies = {0},
                   .current = {0}};
}

absl::Status VolumeSet::DeleteMapped(MappedVolume& mapped, const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<Volume> volume, mapped.volume());
  const MapKeeper::State state = mapped.keeper().Get();
  MapStore& map = mapped.keeper().store();
  // A row that is gone is of a deletion that was not told so, or lost: deleted it is to be anyway.
  if (!state.reachable && !HasNoRow(map)) {
    return absl::UnavailableError(absl::StrCat("the volume's map does not answer: ", state.why));
  }
  const uint64_t key = mapped.place().key;
  ABACUS_RETURN_IF_ERROR(volume->Retire());
  // Nobody begins with it any more, whatever is left of it.
  const absl::Status row_removed = map.Remove();
  if (!row_removed.ok() && !HasNoRow(map)) return row_removed;
  absl::Status removed = DropCopy(name, key);
  removed.Update(DropColumns(name, key));
  const std::vector<std::string>& servers = state.row.servers;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    if (i == mapped.place().place || IsVacant(servers[i])) continue;
    const auto other = host_.find_set(servers[i]);
    absl::Status dropped = other.status();
    if (other.ok()) dropped = (*other)->DropCopy(name, key);
    if (other.ok()) dropped.Update((*other)->DropColumns(name, key));
    if (dropped.ok()) continue;
    removed.Update(absl::UnavailableError(absl::StrCat(
        "the volume is gone, but server ", servers[i], " has not removed what it keeps of it: ",
        LeftText(name, key, /*has_copy=*/true), " (", dropped.message(), ")")));
  }
  return removed;
}

}  // namespace abacus::objfs
