// VolumeSet: volumes that are spread over several servers, and the columns that are kept here.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/map/embedded_map.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// Where one server more comes to be. It may keep names and inodes, too, where none did before.
size_t PlaceForOneMore(const VolumeRow& row) {
  size_t former = row.servers.size();
  for (size_t place = 0; place < row.servers.size(); ++place) {
    if (!IsVacant(row.servers[place])) continue;
    if (std::count(row.former.begin(), row.former.end(), place) == 0) return place;
    former = place;
  }
  return row.servers.size() < ServerList::kServersMax ? row.servers.size() : former;
}

constexpr char kColumnsPrefix[] = ".columns-", kServersSuffix[] = ".servers";
// How long a server that was just named may take to answer.
constexpr std::chrono::seconds kPatience{5};

struct ColumnsOnDisk {
  std::unique_ptr<Disk> disk;
  std::unique_ptr<ObjectStore> store;
};

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Status NoNetwork() {
  return absl::FailedPreconditionError(
      "a volume over several servers needs a server: a directory that no server keeps has none");
}

}  // namespace

uint64_t VolumeSet::NewVolumeKey() {
  std::random_device random;
  return (uint64_t{random()} << 32) ^ random();
}

VolumeSet::Here::Use::Use(Here& here) : here_(here) {
  MutexLock lock(here_.mutex);
  set_ = here_.set;
  ++here_.inside;
}

VolumeSet::Here::Use::~Use() {
  MutexLock lock(here_.mutex);
  --here_.inside;
  here_.changed.SignalAll();
}

VolumeSet::VolumeSet(std::string directory, Host host)
    : directory_(std::move(directory)), host_(std::move(host)) {
  MutexLock lock(here_->mutex);
  here_->set = this;
}

VolumeSet::~VolumeSet() {
  leaver_.Stop();
  std::map<std::string, std::shared_ptr<MappedVolume>> mapped;
  {
    MutexLock lock(mutex_);
    mapped = mapped_;
  }
  for (const auto& [name, volume] : mapped) volume->Stop(/*closes=*/false);
  MutexLock lock(here_->mutex);
  here_->set = nullptr;
  while (here_->inside > 0) here_->changed.Wait(here_->mutex);
}

std::string VolumeSet::ColumnsOf(const std::string& name, uint64_t key) const {
  return absl::StrCat(directory_, "/", kColumnsPrefix, name, "-", absl::Hex(key, absl::kZeroPad16));
}

std::string VolumeSet::LeftText(const std::string& name, uint64_t key, bool has_copy) {
  const std::string copy =
      has_copy ? absl::StrCat(name, ", .map-", name, ", .row-", name, " and ") : "";
  return absl::StrCat("there, in the folder volumes of its --data, remove ", copy, kColumnsPrefix,
                      name, "-", absl::Hex(key, absl::kZeroPad16), "*");
}

// Of all volumes where `name` is empty.
std::vector<std::string> VolumeSet::KeptServers(const std::string& name) const {
  std::vector<std::string> paths;
  std::error_code error;
  constexpr size_t kKeyDigits = 16;
  for (auto it = std::filesystem::directory_iterator(directory_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string file = it->path().filename().string();
    const size_t around = sizeof(kColumnsPrefix) - 1 + 1 + kKeyDigits + sizeof(kServersSuffix) - 1;
    if (!absl::StartsWith(file, kColumnsPrefix) || !absl::EndsWith(file, kServersSuffix) ||
        file.size() <= around) {
      continue;
    }
    const std::string of = file.substr(sizeof(kColumnsPrefix) - 1, file.size() - around);
    if (name.empty() || of == name) paths.push_back(it->path().string());
  }
  return paths;
}

absl::StatusOr<std::vector<std::string>> VolumeSet::LeftColumns(const std::string& name) {
  std::vector<std::string> files;
  std::error_code error;
  if (std::filesystem::exists(ServersOf(name), error)) return files;
  {
    MutexLock lock(mutex_);
    if (volumes_.contains(name) || mapped_.contains(name)) return files;
  }
  for (const std::string& path : KeptServers(name)) {
    const std::string file = std::filesystem::path(path).filename().string();
    files.push_back(file.substr(0, file.size() - (sizeof(kServersSuffix) - 1)) + "*");
  }
  return files;
}

absl::StatusOr<std::vector<std::string>> VolumeSet::Servers(const std::string& name) {
  if (const auto mapped = FindMapped(name); mapped != nullptr) {
    if (auto servers = mapped->servers()->All(); !servers.empty()) return servers;
  }
  ABACUS_ASSIGN_OR_RETURN(const auto own, ServerList::Load(ServersOf(name)));
  if (own.has_value()) return own->servers;
  {
    MutexLock lock(mutex_);
    if (volumes_.contains(name)) return std::vector<std::string>();
  }
  for (const std::string& path : KeptServers(name)) {
    ABACUS_ASSIGN_OR_RETURN(const auto list, ServerList::Load(path));
    if (list.has_value()) return list->servers;
  }
  MutexLock lock(mutex_);
  return NoSuch(name);
}

absl::Status VolumeSet::CreateSpread(const NewVolume& made) {
  const std::string& name = made.name;
  const std::vector<std::string>& servers = made.servers;
  ABACUS_RETURN_IF_ERROR(CheckServers(servers));
  if (host_.find_set == nullptr) return NoNetwork();
  // All are asked before anything is made anywhere.
  ABACUS_ASSIGN_OR_RETURN(const std::vector<Ref<VolumeSet>> all, MeetAll(servers));
  const Turns::Turn turn(names_, kTheColumnsTurn);
  return CreateLocked(made, [&]() -> absl::Status {
    const ServerList list{.key = NewVolumeKey(), .servers = servers};
    // First: whatever ends this from here on, DropSpread() finds the columns by it.
    ABACUS_RETURN_IF_ERROR(list.Save(ServersOf(name)));
    for (uint32_t place = 0; place < all.size(); ++place) {
      ABACUS_RETURN_IF_ERROR(all[place]->KeepColumns(name, list.key, servers, place));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<ServerList>> VolumeSet::LoadList(const std::string& name) {
  absl::StatusOr<std::optional<ServerList>> list = ServerList::Load(ServersOf(name));
  if (!absl::IsDataLoss(list.status())) return list;
  // Each server with columns has the same list, this one too.
  const std::vector<std::string> same = KeptServers(name);
  const std::string way_out =
      same.empty() ? absl::StrCat("remove it and, at each of the volume's servers, in the folder ",
                                  "volumes of its --data, ", kColumnsPrefix, name, "-KEY*")
                   : absl::StrCat("copy over it the one in ", absl::StrJoin(same, " or "));
  return absl::DataLossError(absl::StrCat(
      list.status().message(), ". No columns were removed, as it says who has them: ", way_out));
}

absl::Status VolumeSet::CheckNoListIsLeft(const std::string& name) {
  std::error_code error;
  if (!std::filesystem::exists(ServersOf(name), error)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      ServersOf(name), " is left of ", VolumeText(name), ", with its columns, and its names and ",
      "inodes are not there: of a creation or deletion that was interrupted, or they are lost. If ",
      "they are not to come back, and no volume of that name is in use, remove what is left: ",
      "abacus volume delete ", PlaceOfShard(name).volume));
}

absl::Status VolumeSet::DropSpread(const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ServerList> list, LoadList(name));
  if (!list.has_value()) return absl::OkStatus();
  const std::vector<std::string>& servers = list->servers;
  const auto drop_at = [&](const std::string& server,
                           std::chrono::steady_clock::time_point end) -> absl::Status {
    if (host_.find_set == nullptr) return NoNetwork();
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> other, MeetUntil(server, end));
    return other->DropColumns(name, list->key);
  };
  for (size_t i = 1; host_.find_set != nullptr && i < servers.size(); ++i) Reach(servers[i]);
  const auto end = std::chrono::steady_clock::now() + kPatience;  // for all of them
  absl::Status why;
  std::vector<std::string> left;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (IsVacant(servers[i])) continue;
    const absl::Status dropped = i == 0 ? DropColumns(name, list->key) : drop_at(servers[i], end);
    if (dropped.ok()) continue;
    why.Update(dropped);
    left.push_back(servers[i]);
  }
  if (!left.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "columns of ", VolumeText(name), " are left at ", absl::StrJoin(left, ", "), " (",
        why.message(), "). When that runs, remove them: abacus volume delete ",
        PlaceOfShard(name).volume, ". If it is gone for good, at ", servers[0],
        ", in the folder volumes of its --data, remove .servers-", name,
        "; and if it comes back after all, ", LeftText(name, list->key, /*has_copy=*/false)));
  }
  std::error_code error;
  std::filesystem::remove(ServersOf(name), error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", ServersOf(name)));
}

void VolumeSet::Reach(const std::string& server) {
  if (!IsVacant(server)) host_.reach(server);
}

absl::StatusOr<Ref<VolumeSet>> VolumeSet::MeetAny(const std::string& address) {
  return MeetUntil(address, std::chrono::steady_clock::now() + kPatience);
}

absl::StatusOr<Ref<VolumeSet>> VolumeSet::MeetUntil(const std::string& address,
                                                    std::chrono::steady_clock::time_point end) {
  host_.reach(address);
  absl::StatusOr<Ref<VolumeSet>> other = host_.find_set(address);
  while (!other.ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other = host_.find_set(address);
  }
  return other;
}

absl::StatusOr<Ref<VolumeSet>> VolumeSet::Meet(const std::string& address) {
  absl::StatusOr<Ref<VolumeSet>> other = MeetAny(address);
  if (!other.ok() || !(other->rid() == SelfRef<VolumeSet>().rid())) return other;
  return absl::InvalidArgumentError(
      absl::StrCat("server ", address, " is the one that is asked, which is the first"));
}

absl::StatusOr<std::vector<Ref<VolumeSet>>> VolumeSet::MeetAll(
    const std::vector<std::string>& servers) {
  for (size_t i = 1; i < servers.size(); ++i) host_.reach(servers[i]);  // all at once
  std::vector<Ref<VolumeSet>> all = {SelfRef<VolumeSet>()};
  for (size_t i = 1; i < servers.size(); ++i) {
    ABACUS_ASSIGN_OR_RETURN(Ref<VolumeSet> other, Meet(servers[i]));
    all.push_back(std::move(other));
  }
  return all;
}

absl::Status VolumeSet::NobodyLeftForNames(const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrCat("all other servers of ", VolumeText(name), " keep its names and inodes, or did ",
                   "once, or keep its map: add one first, abacus volume add-server ",
                   PlaceOfShard(name).volume, " HOST:PORT"));
}

// A server that keeps the volume's names and inodes is to be replaced.
absl::Status VolumeSet::CheckCopyCanGo(const std::string& name, const VolumeRow& row,
                                       uint32_t place) {
  const std::string& before = row.servers[place];
  if (row.copies.size() == 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", before, " alone has the names and inodes of ", VolumeText(name),
                     ": only servers of columns can be replaced"));
  }
  if (place == row.primary) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", before, " answers for ", VolumeText(name), ": it can be replaced ",
                     "when another one has taken over that keeps its names and inodes too"));
  }
  if (row.IsCurrent(place) || host_.find_set(before).ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", before, " keeps a copy of the names and inodes of ", VolumeText(name),
        ", and is in use. Stop it first; once the volume's status calls it behind, it ",
        "can be replaced"));
  }
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped != nullptr && !mapped->place().PlacesForNames(row).empty()) return absl::OkStatus();
  // Who comes in its place keeps its columns; the names and inodes go to yet another one.
  const std::string volume = PlaceOfShard(name).volume;
  return absl::FailedPreconditionError(absl::StrCat(
      "what ", before, " kept of names and inodes of ", VolumeText(name),
      " goes to one of its other servers, and these all keep some, or did once, or keep its map: ",
      "two new servers are needed, which may be on one machine. The one is added first, abacus ",
      "volume add-server ", volume, " HOST:PORT, and the other comes in its place then, abacus ",
      "volume replace-server ", volume, " ", before, " HOST:PORT"));
}

absl::StatusOr<std::vector<std::string>> VolumeSet::PlanServers(const std::string& name,
                                                                const VolumeRow& row,
                                                                const std::string& before,
                                                                const std::string& now,
                                                                bool forced) {
  const std::vector<std::string>& all = row.servers;
  const auto found = before.empty() ? all.end() : std::find(all.begin(), all.end(), before);
  const auto place = static_cast<uint32_t>(found - all.begin());
  if (!before.empty() && found == all.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", before, "' is no server of ", VolumeText(name), "; it has: ", ServersText(all)));
  }
  if (found != all.end() && row.IsCopy(place)) {
    ABACUS_RETURN_IF_ERROR(CheckCopyCanGo(name, row, place));
    if (!IsVacant(now) && std::find(all.begin(), all.end(), now) != all.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "server ", now, " is one of ", VolumeText(name), " already, and stays at its own place: ",
          "in that of ", before, " comes one that is none of them"));
    }
  }
  std::vector<std::string> next = all;
  if (found != all.end()) {
    next[place] = now;
  } else if (const auto vacant = PlaceForOneMore(row); vacant < all.size()) {
    next[vacant] = now;
  } else {
    next.push_back(now);
  }
  if (IsVacant(now)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", now, "' is no server's address: HOST:PORT"));
  }
  ABACUS_RETURN_IF_ERROR(CheckServers(next, /*vacancies=*/true));
  if (found != all.end() && !forced && host_.find_set(before).ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", before, " answers. What it keeps would have to be written anew, and until then ",
        "no other server may be lost: --force, if that is what you want"));
  }
  return next;
}

absl::Status VolumeSet::ChangeMapped(MappedVolume& mapped, const std::string& name,
                                     const VolumeRow& known, const std::string& before,
                                     const std::vector<std::string>& next) {
  const auto changes = [&](const VolumeRow& row) -> absl::Status {
    return row.IsPlacedAs(known)
               ? absl::OkStatus()
               : absl::AbortedError(
                     "the volume's servers have just been changed by somebody else; try again");
  };
  const auto found = std::find(known.servers.begin(), known.servers.end(), before);
  const auto from = static_cast<uint32_t>(found - known.servers.begin());
  if (!known.IsCopy(from)) {
    return mapped.keeper().Edit([&](VolumeRow& row) -> absl::Status {
      if (row.servers == next) return absl::OkStatus();
      // Who goes, and has nothing, has none by what this epoch's volume knows.
      const bool another = HasVacancy(next) && row.epoch != known.epoch;
      if (row.servers != known.servers || another) return changes(row);
      row.servers = next;
      return absl::OkStatus();
    });
  }
  // Another of the volume's servers comes to keep its metadata: what is at the place of the lost
  // one may come back, and must not be taken for the new copy.
  ABACUS_ASSIGN_OR_RETURN(
      const uint32_t to,
      KeepCopyAnywhere(mapped, name, mapped.place().PlacesForNames(known), next));
  // What was kept for a change that did not come is in no row, and does nothing.
  return mapped.keeper().Edit([&](VolumeRow& row) -> absl::Status {
    if (row.servers == next && row.IsCopy(to)) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(changes(row));
    row.servers = next;
    row.MoveCopy(from, to);
    return absl::OkStatus();
  });
}

absl::StatusOr<uint32_t> VolumeSet::KeepCopyAnywhere(MappedVolume& mapped, const std::string& name,
                                                     const std::vector<uint32_t>& places,
                                                     const std::vector<std::string>& servers) {
  ABACUS_ASSIGN_OR_RETURN(const LocalObjectStoreOptions options, StoreOptions(name));
  const uint64_t quota = options.quota_bytes == UINT64_MAX ? 0 : options.quota_bytes;
  const MapPlace& here = mapped.place();
  absl::Status worst = absl::FailedPreconditionError("no server is left to keep the copy");
  for (const uint32_t place : places) {
    const absl::StatusOr<Ref<VolumeSet>> server = Meet(servers[place]);
    const absl::Status kept =
        server.ok() ? (*server)->KeepCopy(name, quota, here.url, here.key, place) : server.status();
    if (kept.ok()) return place;
    worst = absl::Status(kept.code(), absl::StrCat("server ", servers[place],
                                                   " cannot keep the copy: ", kept.message()));
  }
  return worst;
}

absl::StatusOr<VolumeSet::KnownServers> VolumeSet::Know(const std::string& name) {
  KnownServers known;
  known.mapped = FindMapped(name);
  if (known.mapped != nullptr) {
    known.reading.row = known.mapped->keeper().Get().row;
    ABACUS_ASSIGN_OR_RETURN(known.volume, known.mapped->volume());
    known.addresses = known.mapped->servers();
    return known;
  }
  {
    MutexLock lock(mutex_);
    const auto volume = volumes_.find(name);
    if (volume == volumes_.end()) return NoSuch(name);
    known.volume = volume->second;
    if (const auto found = servers_.find(name); found != servers_.end()) {
      known.addresses = found->second;
    }
  }
  if (known.addresses == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(VolumeText(name), " was made without --servers, and stays on this server"));
  }
  EmbeddedMap embedded(ServersOf(name));
  ABACUS_ASSIGN_OR_RETURN(const MapAnswer answer, embedded.Call({.kind = MapCall::Kind::kRead}));
  known.reading = answer.reading;
  return known;
}

absl::Status VolumeSet::SetServers(const KnownServers& known, const std::string& name,
                                   const std::string& before,
                                   const std::vector<std::string>& next) {
  if (known.mapped != nullptr) {
    return ChangeMapped(*known.mapped, name, known.row(), before, next);
  }
  VolumeRow row = known.row();
  row.servers = next;
  return EmbeddedMap(ServersOf(name))
      .Call(
          {.kind = MapCall::Kind::kSet, .revision = known.reading.revision, .row = std::move(row)})
      .status();
}

absl::Status VolumeSet::TellServers(const KnownServers& known, const std::string& name,
                                    const std::vector<std::string>& servers) {
  const uint64_t key = known.row().key;
  known.addresses->Set(servers);
  const uint32_t own = known.mapped == nullptr ? 0 : known.mapped->place().place;
  ABACUS_RETURN_IF_ERROR(KeepColumns(name, key, servers, own));
  for (uint32_t place = 0; place < servers.size(); ++place) {
    if (IsVacant(servers[place])) continue;
    const absl::StatusOr<Ref<VolumeSet>> told = host_.find_set(servers[place]);
    if (told.ok() && !(told->rid() == SelfRef<VolumeSet>().rid())) {
      (*told)->KeepColumns(name, key, servers, place).IgnoreError();
    }
  }
  return absl::OkStatus();
}

bool VolumeSet::IsListedStill(const KnownServers& known, const std::string& name,
                              const std::string& before, size_t place) {
  const auto lists = [&](const std::vector<std::string>& servers) {
    return place < servers.size() && servers[place] == before;
  };
  const auto own = ServerList::Load(ColumnsOf(name, known.row().key) + kServersSuffix);
  if (own.ok() && own->has_value() && lists((*own)->servers)) return true;
  std::vector<std::string> asked = known.row().servers;
  asked.push_back(before);
  return std::any_of(asked.begin(), asked.end(), [&](const std::string& server) {
    if (IsVacant(server)) return false;
    const absl::StatusOr<Ref<VolumeSet>> set = host_.find_set(server);
    if (!set.ok() || set->rid() == SelfRef<VolumeSet>().rid()) return false;
    const absl::StatusOr<std::vector<std::string>> told = (*set)->Servers(name);
    return told.ok() && lists(*told);
  });
}

absl::Status VolumeSet::ChangeServer(const std::string& name, const std::string& before,
                                     const std::string& now, bool forced) {
  if (host_.find_set == nullptr) return NoNetwork();
  // Servers that ask each other to keep a copy (KeepCopy) must not hold the turn that this takes.
  const Turns::Turn turn(names_,
                         FindMapped(name) == nullptr ? kTheColumnsTurn : kTheColumnsTurn + 1);
  ABACUS_ASSIGN_OR_RETURN(const KnownServers known, Know(name));
  const std::vector<std::string>& all = known.row().servers;
  const auto is_there = std::find(all.begin(), all.end(), now);
  // The row has changed, and who asked for it was not told.
  const bool was_done =
      !before.empty() && !IsVacant(now) && is_there != all.end() &&
      std::find(all.begin(), all.end(), before) == all.end() &&
      IsListedStill(known, name, before, static_cast<size_t>(is_there - all.begin()));
  std::vector<std::string> next = all;
  if (!was_done) {
    ABACUS_ASSIGN_OR_RETURN(next, PlanServers(name, known.row(), before, now, forced));
  }
  ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> other, Meet(now));
  // The map's list is the one that counts: the servers need it to find the one with the inodes.
  const auto place = static_cast<uint32_t>(std::find(next.begin(), next.end(), now) - next.begin());
  ABACUS_RETURN_IF_ERROR(other->KeepColumns(name, known.row().key, next, place));
  if (!was_done) ABACUS_RETURN_IF_ERROR(SetServers(known, name, before, next));
  return TellServers(known, name, next);
}

absl::Status VolumeSet::KeepColumns(const std::string& name, uint64_t key,
                                    const std::vector<std::string>& servers, uint32_t place) {
  ABACUS_RETURN_IF_ERROR(CheckServers(servers, /*vacancies=*/true));
  if (host_.adopt_columns == nullptr) return NoNetwork();
  const ServerList list{.key = key, .servers = servers};
  ABACUS_RETURN_IF_ERROR(list.Save(ColumnsOf(name, key) + kServersSuffix));
  for (const std::string& server : servers) Reach(server);
  ABACUS_RETURN_IF_ERROR(OpenColumns(name, key, place, /*is_told=*/true).status());
  MutexLock lock(mutex_);
  const auto found = columns_.find(ColumnsOf(name, key));
  if (found != columns_.end()) found->second.servers->Set(servers);
  return absl::OkStatus();
}

absl::StatusOr<Ref<ColumnStore>> VolumeSet::Columns(const std::string& name, uint64_t key,
                                                    uint32_t place) {
  return OpenColumns(name, key, place, /*is_told=*/false);
}

absl::StatusOr<Ref<ColumnStore>> VolumeSet::OpenColumns(const std::string& name, uint64_t key,
                                                        uint32_t place, bool is_told) {
  if (host_.adopt_columns == nullptr) return NoNetwork();
  const std::string path = ColumnsOf(name, key);
  const Turns::Turn turn(columns_turns_, kTheColumnsTurn);
  KeptColumns kept;
  {
    MutexLock lock(mutex_);
    const auto found = columns_.find(path);
    if (found != columns_.end()) kept = found->second;
  }
  std::unique_ptr<ColumnStore> made;
  if (kept.here == nullptr) {
    ABACUS_RETURN_IF_ERROR(OpenColumnsDisk(name, path, &kept));
    made = std::make_unique<ColumnStore>(kept.store, host_.columns);
    kept.here = made.get();
  }
  // Before anybody can open a column: what was committed is in the store then.
  if (host_.adopt_log) ABACUS_RETURN_IF_ERROR(OpenLog(name, key, place, is_told, &kept));
  if (made != nullptr) kept.columns = host_.adopt_columns(std::move(made));
  if (kept.log) {  // they end with those that use them
    kept.disk.reset();
    kept.store.reset();
  }
  MutexLock lock(mutex_);
  columns_[path] = kept;
  return kept.columns;
}

absl::Status VolumeSet::OpenLog(const std::string& name, uint64_t key, uint32_t place, bool is_told,
                                KeptColumns* kept) {
  std::optional<uint64_t> number;
  if (kept->log) {
    number = kept->place;
  } else {
    const absl::StatusOr<std::optional<uint64_t>> found = LogFile::ServerOf(*kept->disk);
    if (!found.ok()) return TellDamagedLog(name, key, found.status());
    number = *found;
    if (!number.has_value() && place == kPlaceUnknown) return absl::OkStatus();
  }
  if (number.has_value() && place != kPlaceUnknown && *number != place) {
    if (!is_told || kept->log) {
      return absl::FailedPreconditionError(
          absl::StrCat("this server is at place ", *number, " of ", VolumeText(name),
                       ", and is asked ", "for the columns of the one at place ", place,
                       ": the list of servers of who asks is not the volume's any more, or this ",
                       "server has come to another place, and is to be started again"));
    }
    // What it was to write is at that place's server since, or nowhere.
    ABACUS_RETURN_IF_ERROR(kept->disk->Remove(LogFile::Name()));
    ABACUS_RETURN_IF_ERROR(kept->disk->SyncDirectory(""));
    number.reset();
  }
  if (kept->log) return absl::OkStatus();
  CommitLog::Options options;
  options.server = number.value_or(place);
  options.commit = ColumnGroupOptions();
  CommitLog::Host host;
  host.steady_ns = SteadyNs;
  if (host_.volume.steady_ns) host.steady_ns = host_.volume.steady_ns;
  host.now_us = [now_ns = host_.volume.now_ns] { return now_ns() / 1000; };
  host.peers = PeersThrough(LogFinderOf(name, key, options.server, kept->servers));
  kept->here->AddHooks(&host);
  auto log = CommitLog::Open(kept->disk, kept->store, options, std::move(host));
  if (!log.ok()) return TellDamagedLog(name, key, log.status());
  kept->place = options.server;
  kept->log = host_.adopt_log(*std::move(log));
  kept->here->TakeLog(kept->log);
  return absl::OkStatus();
}

absl::Status VolumeSet::TellDamagedLog(const std::string& name, uint64_t key,
                                       const absl::Status& why) {
  if (!absl::IsDataLoss(why)) return why;
  const absl::Status damaged = absl::DataLossError(absl::StrCat(
      "the log of groups ", LogFile::Name(), " in ", ColumnsOf(name, key), " is damaged: ",
      why.message(), ". Nothing was changed. What it has is at the volume's other servers too: ",
      "stop this one, move that directory away, start it again, and abacus rebuild ",
      PlaceOfShard(name).volume, " makes it anew"));
  // Who asks takes the server for one that does not answer.
  if (host_.on_damage) host_.on_damage(name + " (columns)", damaged);
  return damaged;
}

absl::Status VolumeSet::OpenColumnsDisk(const std::string& name, const std::string& path,
                                        KeptColumns* kept) {
  ABACUS_ASSIGN_OR_RETURN(const auto list, ServerList::Load(path + kServersSuffix));
  if (!list.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("this server keeps no columns of that ", VolumeText(name)));
  }
  auto both = std::make_shared<ColumnsOnDisk>();
  ABACUS_ASSIGN_OR_RETURN(both->disk, LocalDisk::At(path));
  if (host_.wrap_disk) both->disk = host_.wrap_disk(std::move(both->disk));
  LocalObjectStoreOptions options;
  if (host_.on_damage) {
    options.on_damage = [tell = host_.on_damage, name](const absl::Status& damage) {
      tell(name + " (columns)", damage);
    };
  }
  ABACUS_ASSIGN_OR_RETURN(both->store, LocalObjectStore::Open(*both->disk, std::move(options)));
  kept->disk = std::shared_ptr<Disk>(both, both->disk.get());
  kept->store = std::shared_ptr<ObjectStore>(both, both->store.get());
  kept->servers = std::make_shared<ServerAddresses>(list->servers);
  return absl::OkStatus();
}

absl::Status VolumeSet::DropColumns(const std::string& name, uint64_t key) {
  const std::string path = ColumnsOf(name, key);
  const Turns::Turn turn(columns_turns_, kTheColumnsTurn);
  KeptColumns kept;
  {
    MutexLock lock(mutex_);
    const auto found = columns_.find(path);
    if (found != columns_.end()) {
      kept = std::move(found->second);
      columns_.erase(found);
    }
  }
  if (kept.columns) host_.end_columns(kept.columns);
  if (kept.log) host_.end_log(kept.log);
  kept = KeptColumns();  // what is closed writes to its disk
  std::error_code error;
  std::filesystem::remove(path + kServersSuffix, error);
  std::filesystem::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path));
}

// A server's is asked for once for each life of that server.
std::function<absl::StatusOr<Ref<ColumnStore>>(size_t)> VolumeSet::FinderOf(
    const std::string& name, uint64_t key, size_t own,
    std::shared_ptr<const ServerAddresses> servers) {
  struct Found {
    runtime::Mutex mutex;
    std::map<size_t, std::pair<runtime::Rid, Ref<ColumnStore>>> by_server ABSL_GUARDED_BY(mutex);
  };
  return [here = here_, find_set = host_.find_set, name, key, own, servers,
          found = std::make_shared<Found>()](size_t server) -> absl::StatusOr<Ref<ColumnStore>> {
    if (server == own) {
      const Here::Use use(*here);
      if (use.set() == nullptr) return absl::UnavailableError("the server is being stopped");
      return use.set()->Columns(name, key, static_cast<uint32_t>(own));
    }
    if (find_set == nullptr) return NoNetwork();
    const std::string address = servers->At(server);
    if (IsVacant(address)) {
      return absl::NotFoundError(absl::StrCat("no server is at place ", server, " any more"));
    }
    ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, find_set(address));
    {
      MutexLock lock(found->mutex);
      const auto known = found->by_server.find(server);
      if (known != found->by_server.end() && known->second.first == set.rid()) {
        return known->second.second;
      }
    }
    ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> columns,
                            set->Columns(name, key, static_cast<uint32_t>(server)));
    MutexLock lock(found->mutex);
    found->by_server[server] = {set.rid(), columns};
    return columns;
  };
}

FindCommitLog VolumeSet::LogFinderOf(const std::string& name, uint64_t key, size_t own,
                                     std::shared_ptr<const ServerAddresses> servers) {
  struct Found {
    runtime::Mutex mutex;
    std::map<uint64_t, std::pair<runtime::Rid, Ref<CommitLog>>> by_server ABSL_GUARDED_BY(mutex);
  };
  return [find = FinderOf(name, key, own, std::move(servers)),
          found = std::make_shared<Found>()](uint64_t server) -> absl::StatusOr<Ref<CommitLog>> {
    ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> columns, find(server));
    {
      MutexLock lock(found->mutex);
      const auto known = found->by_server.find(server);
      if (known != found->by_server.end() && known->second.first == columns.rid()) {
        return known->second.second;
      }
    }
    ABACUS_ASSIGN_OR_RETURN(const Ref<CommitLog> log, columns->Log());
    MutexLock lock(found->mutex);
    found->by_server[server] = {columns.rid(), log};
    return log;
  };
}

}  // namespace abacus::objfs
