// VolumeSet: a volume's map has lost its row, and the volume's servers remember it.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/replica/replica_record.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Ref;

namespace {

// All servers together.
constexpr std::chrono::seconds kAnswerPatience{5};
// The row is not there for so long before one is made. That is longer than a lease of the lost map,
// and than what its holder promised to clients by it; and than any call of before, which may
// compare with a revision that a map that was begun anew gives a second time (map/README.md).
constexpr std::chrono::seconds kAbsence{6};
// What was promised is over by then.
constexpr std::chrono::seconds kPromisePatience{10};
constexpr std::chrono::milliseconds kLookAgain{50};
// Whoever is asked what it remembers looks at all its columns.
constexpr std::chrono::milliseconds kAskAgain{500};
// The next call of a map that has not answered goes to another of its members.
constexpr int kReadsMax = 5;

// What a volume's directory is worth, open or not.
absl::StatusOr<ReplicaRecord> RecordIn(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/", ReplicaRecord::kFileName));
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("has lost the volume's names and inodes, or their disk is not mounted: there "
                     "is no file '",
                     ReplicaRecord::kFileName, "'"));
  }
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ReplicaRecord::Decode(bytes);
}

// Errors: kAlreadyExists - there is a row. kUnavailable.
absl::Status CheckThereIsNone(MapStore& map, const std::string& url, const std::string& name) {
  absl::StatusOr<MapAnswer> answer = map.Call({.kind = MapCall::Kind::kRead});
  for (int i = 1; i < kReadsMax && absl::IsUnavailable(answer.status()); ++i) {
    answer = map.Call({.kind = MapCall::Kind::kRead});
  }
  if (absl::IsNotFound(answer.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(answer.status());
  const VolumeRow& row = answer->reading.row;
  return absl::AlreadyExistsError(absl::StrCat(
      "the map at ", url, " has a row of volume '", name, "', of epoch ", row.epoch, ", by which ",
      row.servers[row.primary], " answers for it. Nothing was changed; see abacus volume status ",
      PlaceOfShard(name).volume));
}

absl::Status CreateRow(MapStore& map, const VolumeRow& row, const std::string& url,
                       const std::string& name) {
  const absl::Status created = map.Create(row);
  if (!absl::IsAlreadyExists(created)) return created;
  // One member of the map may have made it, and not said so; or it is somebody else's.
  const absl::StatusOr<MapAnswer> there = map.Call({.kind = MapCall::Kind::kRead});
  if (there.ok() && there->reading.row == row) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(CheckThereIsNone(map, url, name));
  return created;
}

}  // namespace

absl::StatusOr<MapMemory> VolumeSet::Remembered(const std::string& name, uint64_t key) {
  MapMemory memory;
  for (const std::string& path : KeptServers(name)) {
    const absl::StatusOr<std::optional<ServerList>> list = ServerList::Load(path);
    if (!list.ok()) memory.doubt = std::string(runtime::ToStd(list.status().message()));
    if (list.ok() && list->has_value() && (*list)->key == key) memory.servers = (*list)->servers;
  }
  if (!memory.servers.empty()) {
    const absl::StatusOr<Ref<ColumnStore>> columns = Columns(name, key, kPlaceUnknown);
    const absl::StatusOr<uint64_t> seen =
        columns.ok() ? (*columns)->SeenEpoch() : absl::StatusOr<uint64_t>(columns.status());
    if (seen.ok()) memory.seen_epoch = *seen;
    if (!seen.ok()) memory.doubt = std::string(runtime::ToStd(seen.status().message()));
  }
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || mapped->place().key != key) return memory;
  memory.keeps_names = true;
  memory.url = mapped->place().url;
  memory.place = mapped->place().place;
  const MapKeeper::State state = mapped->keeper().Get();
  memory.serves_epoch = state.may_serve ? state.row.epoch : 0;
  memory.has_promised = state.has_promised;
  // Also one that could not be remembered.
  memory.seen_epoch = std::max(memory.seen_epoch, state.row.epoch);
  const absl::StatusOr<std::optional<RememberedRow>> row = mapped->memory().Get();
  if (!row.ok()) memory.doubt = std::string(runtime::ToStd(row.status().message()));
  if (row.ok() && row->has_value()) {
    memory.row = (*row)->row.Encode();
    memory.revision = (*row)->revision;
    memory.seen_epoch = std::max(memory.seen_epoch, (*row)->row.epoch);
  }
  const absl::StatusOr<ReplicaRecord> record = RecordIn(PathOf(name));
  if (record.ok()) {
    memory.seen_epoch = std::max(memory.seen_epoch, record->epoch);
    memory.is_whole = record->is_whole;
    memory.why = record->is_whole ? "" : "missed something, or was being brought up to date";
  } else {
    memory.why = std::string(runtime::ToStd(record.status().message()));
  }
  return memory;
}

absl::StatusOr<std::vector<ServerMemory>> VolumeSet::AskAllWhatTheyRemember(const std::string& name,
                                                                            const MapPlace& place) {
  ABACUS_ASSIGN_OR_RETURN(const MapMemory own, Remembered(name, place.key));
  std::map<std::string, absl::StatusOr<MapMemory>> answers;
  std::set<std::string> named;
  const auto answered = [&](const std::string& server, absl::StatusOr<MapMemory> memory) {
    if (memory.ok()) {
      for (const std::string& more : ServersNamedIn(*memory)) named.insert(more);
    }
    answers.insert_or_assign(server, std::move(memory));
  };
  // By its place, whatever the cluster calls it.
  const absl::StatusOr<VolumeRow> row = VolumeRow::Decode(own.row);
  const std::vector<std::string>& listed = row.ok() ? row->servers : own.servers;
  if (place.place >= listed.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server does not remember which servers volume '", name, "' has"));
  }
  answered(listed[place.place], own);
  const auto end = std::chrono::steady_clock::now() + kAnswerPatience;
  for (;;) {
    std::vector<std::string> next;
    for (const std::string& server : named) {
      if (!answers.contains(server)) next.push_back(server);
    }
    if (next.empty()) break;
    for (const std::string& server : next) host_.reach(server);  // all at once
    for (const std::string& server : next) {
      absl::StatusOr<Ref<VolumeSet>> other = host_.find_set(server);
      while (!other.ok() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(kLookAgain);
        other = host_.find_set(server);
      }
      if (other.ok()) {
        answered(server, (*other)->Remembered(name, place.key));
      } else {
        answered(server, other.status());
      }
    }
  }
  std::vector<ServerMemory> all;
  for (auto& [server, memory] : answers) all.push_back({server, std::move(memory)});
  return all;
}

absl::StatusOr<RestoredMap> VolumeSet::RestoreMap(const std::string& name, bool forced) {
  const std::shared_ptr<MappedVolume> mapped = FindMapped(name);
  if (mapped == nullptr || host_.find_set == nullptr || host_.open_map == nullptr) {
    return absl::NotFoundError(absl::StrCat("this server keeps no names and inodes of a volume '",
                                            name, "' with a map elsewhere"));
  }
  const MapPlace place = mapped->place();
  const Turns::Turn turn(names_, kRowsTurn);
  ABACUS_ASSIGN_OR_RETURN(const auto map, host_.open_map(place.url, name, place.key));
  ABACUS_RETURN_IF_ERROR(CheckThereIsNone(*map, place.url, name));
  std::this_thread::sleep_for(kAbsence);
  // What is remembered changes no more while there is no row.
  const auto end = std::chrono::steady_clock::now() + kPromisePatience;
  RestorePlan plan;
  for (plan.waits = true; plan.waits;) {
    ABACUS_RETURN_IF_ERROR(CheckThereIsNone(*map, place.url, name));
    ABACUS_ASSIGN_OR_RETURN(const auto asked, AskAllWhatTheyRemember(name, place));
    ABACUS_ASSIGN_OR_RETURN(plan, PlanRestore(name, place.url, place.key, asked, forced));
    if (!plan.waits) break;
    if (std::chrono::steady_clock::now() >= end) {
      // All have answered, and none of them has served all the while: it leads to nothing that one
      // asks which does not know yet that its epoch is over.
      if (plan.doubts.empty()) break;
      return absl::FailedPreconditionError(absl::StrCat(
          "the row of volume '", name, "' is not put back: another server, which has not answered ",
          "here, asks ", plan.row.servers[plan.row.primary],
          " again and again to leave the volume to it, and serves it. Stop that one, or have it "
          "answer"));
    }
    std::this_thread::sleep_for(kAskAgain);
  }
  ABACUS_RETURN_IF_ERROR(CreateRow(*map, plan.row, place.url, name));
  return RestoredMap{.url = place.url,
                     .epoch = plan.row.epoch,
                     .primary = plan.row.servers[plan.row.primary],
                     .doubts = std::move(plan.doubts)};
}

}  // namespace abacus::objfs
