// VolumeSet: a server that lives leaves a volume.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// Of VolumeSet::names_, as its other files have it. Who changes the row of a volume with a map
// takes kRowsTurn, and asks other servers for what takes this one there.
constexpr ObjectId kCopiesTurn = 1;
// Until the next primary is in the row: a lease, and some looks at the map.
constexpr std::chrono::seconds kHandOverPatience{30};
constexpr std::chrono::milliseconds kMapLook{200};
// A volume that was left, and that nobody took over, stays here for so long at least.
constexpr std::chrono::minutes kLeaveAgain{5};
constexpr uint64_t kFilesLookedAtOnce = 1000;

absl::Status KeepsTheNames(const std::string& server, const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrCat("server ", server, " alone has the names and inodes of ", VolumeText(name),
                   ", and cannot leave it: only of a volume with a map elsewhere and a second copy "
                   "of them that is current (--map, --metadata-copies 2) can it"));
}

// The row as its map says now; epoch 0: the map did not answer.
VolumeRow RowIn(MapStore& map) {
  absl::StatusOr<MapAnswer> answer = map.Call({.kind = MapCall::Kind::kRead});
  return answer.ok() ? answer->reading.row : VolumeRow{.epoch = 0, .servers = {}, .copies = {}};
}

}  // namespace

absl::Status VolumeSet::HandOver(const std::string& name) {
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr) {
    ABACUS_ASSIGN_OR_RETURN(const KnownServers known, Know(name));
    return KeepsTheNames(known.row().servers[0], name);
  }
  const Turns::Turn turn(names_, kCopiesTurn);
  const MapPlace place = mapped->place();
  const MapKeeper::State state = mapped->keeper().Get();
  if (state.role != LeaseCore::Role::kPrimary) return absl::OkStatus();
  const VolumeRow& row = state.row;
  const bool another = std::any_of(
      row.copies.begin(), row.copies.end(),
      [&](const VolumeRow::Copy& copy) { return copy.place != place.place && copy.current; });
  if (!another) return KeepsTheNames(row.servers[place.place], name);
  ABACUS_ASSIGN_OR_RETURN(const auto map, host_.open_map(place.url, name, place.key));
  // As when the server is stopped: what it has is at the copy, which takes over when the lease
  // ends.
  mapped->Stop(/*closes=*/true);
  VolumeRow now = row;
  const auto end = std::chrono::steady_clock::now() + kHandOverPatience;
  while (now.primary == place.place && std::chrono::steady_clock::now() < end &&
         !leaver_.is_stopping()) {
    std::this_thread::sleep_for(kMapLook);
    if (VolumeRow read = RowIn(*map); read.epoch != 0) now = std::move(read);
  }
  // Where the server is being stopped nothing is begun again: it would take the volume back.
  if (leaver_.is_stopping()) return absl::UnavailableError("the server is being stopped");
  {
    MutexLock lock(mutex_);
    mapped_.erase(name);
  }
  ABACUS_RETURN_IF_ERROR(BeginMapped(name));
  if (now.primary != place.place) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no other server has taken over ", VolumeText(name),
                                             " in time; ", row.servers[place.place],
                                             " answers for it again"));
}

void VolumeSet::LeaveFailing(const std::string& name, const absl::Status& why) {
  if (host_.on_damage) {
    host_.on_damage(name,
                    absl::UnavailableError(absl::StrCat(
                        "the store here fails, and the volume is left to the server that has ",
                        "a current copy, if that can go on: ", why.message())));
  }
  leaver_.Take(name);
}

// Not where nobody could take over: what can be read here would not be either meanwhile. Who has
// told tells again.
void VolumeSet::Leave(const std::string& name) {
  const auto now = std::chrono::steady_clock::now();
  if (const auto tried = left_in_vain_.find(name);
      tried != left_in_vain_.end() && now < tried->second + kLeaveAgain) {
    return;
  }
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || !mapped->CopyCouldTakeOver()) return;
  const absl::Status left = HandOver(name);
  if (left.ok() || leaver_.is_stopping()) return;
  left_in_vain_[name] = std::chrono::steady_clock::now();
  if (host_.on_damage) host_.on_damage(name, left);
}

absl::Status VolumeSet::MoveCopy(const std::string& name, const std::string& before,
                                 const std::string& preferred) {
  if (host_.find_set == nullptr) return KeepsTheNames(before, name);
  const Turns::Turn turn(names_, FindMapped(name) == nullptr ? kCopiesTurn : kRowsTurn);
  ABACUS_ASSIGN_OR_RETURN(const KnownServers known, Know(name));
  const VolumeRow& row = known.row();
  const std::vector<std::string>& all = row.servers;
  const auto from = static_cast<uint32_t>(std::find(all.begin(), all.end(), before) - all.begin());
  if (known.mapped == nullptr) return from == 0 ? KeepsTheNames(before, name) : absl::OkStatus();
  if (!row.IsCopy(from)) return absl::OkStatus();
  if (row.primary == from) return KeepsTheNames(before, name);
  std::vector<uint32_t> places = known.mapped->place().PlacesForNames(row);
  std::stable_partition(places.begin(), places.end(),
                        [&](uint32_t place) { return all[place] == preferred; });
  if (places.empty()) return NobodyLeftForNames(name);
  ABACUS_ASSIGN_OR_RETURN(const uint32_t to, KeepCopyAnywhere(*known.mapped, name, places, all));
  // What was kept for a change that did not come is in no row, and does nothing.
  ABACUS_RETURN_IF_ERROR(known.mapped->keeper().Edit([&](VolumeRow& edited) -> absl::Status {
    if (!edited.IsCopy(from) && edited.IsCopy(to)) return absl::OkStatus();
    if (!edited.IsPlacedAs(row)) {
      return absl::AbortedError(
          "the volume's servers have just been changed by somebody else; try again");
    }
    edited.MoveCopy(from, to);
    return absl::OkStatus();
  }));
  // The stream to it ends with it, and the one to the new copy begins. It may be gone already.
  const absl::StatusOr<Ref<VolumeSet>> old = host_.find_set(before);
  if (old.ok()) (*old)->DropCopy(name, row.key).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> VolumeSet::CountColumnsAt(const Ref<Volume>& volume, uint32_t server) {
  uint64_t count = 0;
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const SpreadFiles files, volume->Spread(after, kFilesLookedAtOnce));
    for (const Node& node : files.files) {
      count += static_cast<uint64_t>(
          std::count(node.inode.columns.begin(), node.inode.columns.end(), server));
    }
    if (files.next == 0) return count;
    after = files.next;
  }
}

absl::Status VolumeSet::DropAt(const KnownServers& known, const std::string& name,
                               const std::string& server) {
  const uint64_t key = known.row().key;
  const absl::StatusOr<Ref<VolumeSet>> set = host_.find_set(server);
  absl::Status dropped = set.status();
  if (set.ok()) dropped = (*set)->DropColumns(name, key);
  if (set.ok() && known.mapped != nullptr) dropped.Update((*set)->DropCopy(name, key));
  if (dropped.ok()) return dropped;
  return absl::UnavailableError(absl::StrCat("server ", server, " is none of ", VolumeText(name),
                                             " any more, but has not removed what it kept of it: ",
                                             LeftText(name, key, known.mapped != nullptr), " (",
                                             dropped.message(), ")"));
}

absl::Status VolumeSet::RemoveServer(const std::string& name, const std::string& before) {
  if (host_.find_set == nullptr) return KeepsTheNames(before, name);
  const Turns::Turn turn(names_, FindMapped(name) == nullptr ? kCopiesTurn : kRowsTurn);
  ABACUS_ASSIGN_OR_RETURN(const KnownServers known, Know(name));
  const VolumeRow& row = known.row();
  const auto found = std::find(row.servers.begin(), row.servers.end(), before);
  const auto place = static_cast<uint32_t>(found - row.servers.begin());
  if (IsVacant(before) || found == row.servers.end()) {
    // The row has changed, and who asked for it was not told.
    for (size_t i = 0; !IsVacant(before) && i < row.servers.size(); ++i) {
      if (!IsVacant(row.servers[i]) || !IsListedStill(known, name, before, i)) continue;
      ABACUS_RETURN_IF_ERROR(TellServers(known, name, row.servers));
      return DropAt(known, name, before);
    }
    return absl::InvalidArgumentError(absl::StrCat("'", before, "' is no server of ",
                                                   VolumeText(name),
                                                   "; it has: ", ServersText(row.servers)));
  }
  const bool has_names = known.mapped == nullptr ? place == 0 : row.IsCopy(place);
  if (has_names) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", before, " keeps the names and inodes of ", VolumeText(name)));
  }
  std::vector<std::string> next = row.servers;
  next[place] = kVacant;
  ABACUS_RETURN_IF_ERROR(CheckServers(next, /*vacancies=*/true));
  // No file comes to have a column there, then none has one, and that is durable.
  ABACUS_RETURN_IF_ERROR(known.volume->AvoidServer(place));
  ABACUS_ASSIGN_OR_RETURN(const uint64_t left, CountColumnsAt(known.volume, place));
  if (left > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        left, " files of ", VolumeText(name), " have a column at server ", before,
        ": abacus volume drain ", PlaceOfShard(name).volume, " ", before, " --to HOST:PORT"));
  }
  ABACUS_RETURN_IF_ERROR(known.volume->Flush(std::vector<ObjectId>()));
  // All that by the volume of this epoch, which SetServers() compares.
  if (known.mapped != nullptr) {
    ABACUS_ASSIGN_OR_RETURN(const Ref<Volume> volume, known.mapped->volume());
    if (!(volume == known.volume)) {
      return absl::AbortedError("the volume was opened anew meanwhile; try again");
    }
  }
  ABACUS_RETURN_IF_ERROR(SetServers(known, name, before, next));
  ABACUS_RETURN_IF_ERROR(TellServers(known, name, next));
  return DropAt(known, name, before);
}

}  // namespace abacus::objfs
