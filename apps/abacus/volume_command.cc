// abacus volume and abacus stack: a server's volumes, and what a file's layers are.

#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/map_health.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volumes.h"
#include "apps/cli/table.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/stack_rules.h"
#include "objfs/fuse/mount.h"
#include "objfs/layer/stack.h"
#include "objfs/map/map_place.h"
#include "objfs/volume/shard.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

// Servers that are named by others may take so long to answer.
constexpr absl::Duration kNamesServerPatience = absl::Seconds(5);
// The copies of a new volume's names and inodes are filled within some seconds.
constexpr absl::Duration kCopiesPatience = absl::Seconds(10);

// Where there are more servers, what one had can be rebuilt at another.
constexpr size_t kColumnsOfExample = 5;

// A volume, as the list shows it: what is there of its shards.
struct ListedVolume {
  std::string name;
  uint32_t shards = 1;
  std::map<uint32_t, objfs::VolumeSummary> there = {};
  // Where the first shard is no more, or was not made yet.
  bool IsVolume() const { return shards > 1 || there.contains(0); }
};

absl::StatusOr<objfs::VolumeSummary> SummaryOf(runtime::Node& node, const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const auto set, FirstServerOf(node, name));
  ABACUS_ASSIGN_OR_RETURN(const auto all, set->List());
  for (const objfs::VolumeSummary& summary : all) {
    if (summary.name == name) return summary;
  }
  return absl::UnavailableError(absl::StrCat("volume '", name, "' is not served now"));
}

// All that the sets have, and the other shards of these wherever they are.
absl::StatusOr<std::vector<ListedVolume>> AllVolumes(runtime::Node& node, const VolumeSets& sets) {
  std::vector<ListedVolume> all;
  std::set<std::string> unfinished;
  for (const auto& set : sets) {
    ABACUS_ASSIGN_OR_RETURN(const auto its, set->List());
    for (const objfs::VolumeSummary& summary : its) {
      const objfs::ShardPlace place = objfs::PlaceOfShard(summary.name);
      // Volumes of one name at several servers are several.
      const auto same = std::find_if(all.begin(), all.end(), [&](const ListedVolume& volume) {
        return volume.name == place.volume && volume.shards > 1 && summary.shards > 1;
      });
      ListedVolume& volume =
          same != all.end() ? *same : all.emplace_back(ListedVolume{place.volume, summary.shards});
      volume.there[place.shard] = summary;
      const bool is_alone = place.shard == 0 && summary.shards == 1;
      if (is_alone && IsUnfinished(set, summary.name)) unfinished.insert(summary.name);
    }
  }
  for (ListedVolume& volume : all) {
    for (uint32_t shard = 0; volume.shards > 1 && shard < volume.shards; ++shard) {
      if (volume.there.contains(shard)) continue;
      const auto summary = SummaryOf(node, objfs::ShardName(volume.name, shard));
      // One that says that it is alone is listed by itself.
      if (summary.ok() && summary->shards > 1) volume.there[shard] = *summary;
      // Without its first shard there is no volume, whatever is left of the others.
      const bool is_left = absl::IsNotFound(summary.status()) || unfinished.contains(volume.name);
      if (shard == 0 && is_left) volume.shards = 1;
    }
  }
  return all;
}

objfs::VolumeSummary SumOf(const ListedVolume& volume) {
  objfs::VolumeSummary sum{.name = volume.name, .space = {}, .clients = {}, .commits = {}};
  for (const auto& [shard, summary] : volume.there) {
    sum.own_file_stack = summary.own_file_stack;  // all have the same
    sum.space.objects += summary.space.objects;
    sum.space.capacity_bytes += summary.space.capacity_bytes;
    sum.space.available_bytes += summary.space.available_bytes;
    sum.space.damaged += summary.space.damaged;
    sum.space.refused += summary.space.refused;
    sum.commits.committed += summary.commits.committed;
    sum.commits.stale += summary.commits.stale;
    // Each client is one of every shard.
    for (const std::string& client : summary.clients) {
      const auto known = std::find(sum.clients.begin(), sum.clients.end(), client);
      if (known == sum.clients.end()) sum.clients.push_back(client);
    }
  }
  return sum;
}

nlohmann::json VolumeFigures(const objfs::VolumeSummary& volume) {
  return {{"objects", volume.space.objects},
          {"capacity_bytes", volume.space.capacity_bytes},
          {"available_bytes", volume.space.available_bytes},
          {"commits", volume.commits.committed},
          {"retries", volume.commits.stale},
          {"damaged", volume.space.damaged},
          {"refused", volume.space.refused},
          {"clients", volume.clients}};
}

nlohmann::json RowOf(const ListedVolume& volume) {
  const objfs::VolumeSummary sum = SumOf(volume);
  nlohmann::json row = VolumeFigures(sum);
  row["name"] = volume.name;
  row["stack"] = sum.own_file_stack;
  row["shards"] = volume.shards;
  if (volume.shards == 1) return row;
  row["by_shard"] = nlohmann::json::array();
  for (const auto& [shard, summary] : volume.there) {
    row["by_shard"].push_back(VolumeFigures(summary));
    row["by_shard"].back()["shard"] = shard;
  }
  return row;
}

absl::Status ListVolumes(runtime::Node& node, const VolumeSets& sets, const std::string& json) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ListedVolume> all, AllVolumes(node, sets));
  nlohmann::json rows = nlohmann::json::array();
  Table table({"volume", "shards", "objects", "available", "of", "commits", "retries", "damaged",
               "clients", "files' stack"});
  std::set<std::string> left;
  for (const ListedVolume& volume : all) {
    if (!volume.IsVolume()) {
      left.insert(volume.name);
      continue;
    }
    rows.push_back(RowOf(volume));
    const objfs::VolumeSummary sum = SumOf(volume);
    const bool all_answer = volume.there.size() == volume.shards;
    table.AddRow({volume.name,
                  all_answer ? absl::StrCat(volume.shards)
                             : absl::StrCat(volume.there.size(), " of ", volume.shards),
                  absl::StrCat(sum.space.objects), runtime::FormatBytes(sum.space.available_bytes),
                  runtime::FormatBytes(sum.space.capacity_bytes),
                  absl::StrCat(sum.commits.committed), absl::StrCat(sum.commits.stale),
                  absl::StrCat(sum.space.damaged),
                  sum.clients.empty() ? "-" : absl::StrJoin(sum.clients, ", "),
                  sum.own_file_stack.empty() ? "-" : sum.own_file_stack});
  }
  if (!json.empty()) {
    ABACUS_RETURN_IF_ERROR(WriteFile(json, nlohmann::json{{"volumes", rows}}.dump(2) + "\n"));
  }
  printf("%s", table.ToString().c_str());
  for (const std::string& name : left) fprintf(stderr, "%s\n", LeftShardsText(name).c_str());
  return absl::OkStatus();
}

// -- creation -------------------------------------------------------------------------------------

// The servers in the order of a volume's places: the first of them keep its names and inodes, and
// the one that keeps its map none of these.
VolumeOptions WithTheMapsServerLast(const VolumeOptions& options) {
  VolumeOptions ordered = options;
  const std::string keeper = objfs::MapServerOf(options.map);
  std::stable_partition(ordered.servers.begin(), ordered.servers.end(),
                        [&](const std::string& server) { return server != keeper; });
  return ordered;
}

// Of these, how many may keep names and inodes.
size_t CountForNames(const VolumeOptions& options) {
  const std::vector<std::string>& all = options.servers;
  const std::string keeper = objfs::MapServerOf(options.map);
  return all.size() - static_cast<size_t>(std::count(all.begin(), all.end(), keeper));
}

absl::Status CheckNewVolume(const VolumeOptions& options) {
  if (!options.stack.empty()) {
    ABACUS_RETURN_IF_ERROR(objfs::CheckFileStack(options.stack, Kinds(), options.servers.size()));
  }
  if (options.map.empty() && options.metadata_copies != 1) {
    return absl::InvalidArgumentError(
        "--metadata-copies goes with --map: without one nobody says which copy counts");
  }
  if (!options.map.empty() && options.servers.empty()) {
    return absl::InvalidArgumentError(
        "--map goes with --servers: a volume on one server has no use for it");
  }
  if (!options.metadata_shards.has_value()) return absl::OkStatus();
  const uint32_t shards = *options.metadata_shards;
  if (options.servers.empty()) {
    return absl::InvalidArgumentError(
        "--metadata-shards goes with --servers: each shard is at another one of them");
  }
  const size_t servers = CountForNames(options);
  if (shards >= 2 && shards <= objfs::kShardsMax && shards <= servers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--metadata-shards takes 2 to ", objfs::kShardsMax,
                   ", and at most one for each of the ", servers, " servers of --servers",
                   servers < options.servers.size() ? " that do not keep the map" : "", ": ",
                   shards, " was given"));
}

// What a creation or deletion has left that was broken off would be taken for parts of a new
// volume. `first`: of the shards that are looked for at `sets`.
absl::Status CheckNothingIsThere(runtime::Node& node, const VolumeSets& sets,
                                 const std::string& name, uint32_t first) {
  // A new one with a single shard would be taken for one that was not made to its end.
  bool has_others = first > 0 && IsUnfinished(sets.front(), name);
  for (const auto& set : sets) {
    for (uint32_t shard = first; shard < objfs::kShardsMax; ++shard) {
      const absl::Status there = set->Open(objfs::ShardName(name, shard)).status();
      if (runtime::KindOf(there) != runtime::ErrorKind::kNone) return there;
      if (absl::IsNotFound(there)) continue;
      if (shard == 0) {
        return absl::AlreadyExistsError(absl::StrCat("there is a volume '", name, "'"));
      }
      has_others = true;
    }
  }
  if (!has_others) return absl::OkStatus();
  // The volume that they are of may have its first shard at other servers.
  const bool is_left = absl::IsNotFound(FirstServerOf(node, name).status());
  return absl::AlreadyExistsError(is_left ? LeftShardsText(name)
                                          : absl::StrCat("there is a volume '", name, "'"));
}

// One with a single shard.
objfs::NewVolume WholeOf(const VolumeOptions& options, uint64_t quota_bytes) {
  return {.name = options.name,
          .quota_bytes = quota_bytes,
          .servers = options.servers,
          .map_url = options.map,
          .metadata_copies = options.metadata_copies,
          .own_file_stack = options.stack};
}

// Where several servers may be taken for as many copies.
void TellWhetherKeptOnce(const VolumeOptions& options) {
  const size_t servers = options.servers.size();
  // A copy of names and inodes is one of the whole store, with the bytes of files without columns.
  if (servers < 2 || !options.stack.empty() || options.metadata_copies > 1) return;
  const std::string example = servers == 2 ? "cache/mirror/(isolation/storage)*2"
                                           : absl::StrCat("cache/raid5/(isolation/storage)*",
                                                          std::min(servers, kColumnsOfExample));
  printf(
      "files of volume '%s' are kept once, each at one server, unless --stack here or a mount's "
      "-o stack= says otherwise, as --stack '%s'\n",
      options.name.c_str(), example.c_str());
}

// Of one over more servers than two, which could outlive each of them.
void TellWhoIsIrreplaceable(const VolumeOptions& options) {
  if (options.servers.size() < 3 || !options.map.empty()) return;
  const std::string what = options.metadata_shards.has_value()
                               ? "each part of the names and inodes of volume '"
                               : "names and inodes of volume '";
  const std::string where = options.metadata_shards.has_value() ? "one server" : options.servers[0];
  fprintf(stderr,
          "%s%s' are at %s alone, and while that is down nobody serves them: a volume made with "
          "--map abacus://%s --metadata-copies 2 goes on with another server\n",
          what.c_str(), options.name.c_str(), where.c_str(), options.servers.back().c_str());
}

// Ties the shards of a new volume to each other, and to none of another volume of that name.
uint64_t DrawShardsNumber() {
  std::random_device random;
  const uint64_t drawn = (uint64_t{random()} << 32) ^ random();
  return std::max<uint64_t>(drawn, 1);  // 0 is none
}

// Of a volume over several servers: each with another one of them first. `all`: what is the same of
// all of them, by the volume's name, in the servers' order, with the one that keeps the map last.
objfs::NewVolume ShardOfNew(const objfs::NewVolume& all, uint32_t shard) {
  objfs::NewVolume one = all;
  one.name = objfs::ShardName(all.name, shard);
  const auto end =
      std::find(one.servers.begin(), one.servers.end(), objfs::MapServerOf(all.map_url));
  std::rotate(one.servers.begin(), one.servers.begin() + shard, end);
  return one;
}

// What was made goes again; empty: all of it.
std::string UndoCreation(const VolumeSets& servers, const std::string& name,
                         const std::vector<uint32_t>& made) {
  std::string left;
  for (const uint32_t shard : made) {
    const absl::Status undone = servers[shard]->Delete(objfs::ShardName(name, shard));
    if (!undone.ok()) {
      absl::StrAppend(&left, "; shard ", shard, " is not removed again: ", undone.message());
    }
  }
  return left;
}

// The first shard last: until it is there the volume is not.
absl::Status CreateShards(runtime::Node& node, const VolumeOptions& options, uint32_t count,
                          uint64_t quota_bytes) {
  VolumeSets servers;
  for (const std::string& address : options.servers) node.Reach(address);  // all at once
  for (const std::string& address : options.servers) {
    ABACUS_ASSIGN_OR_RETURN(auto set, VolumesAt(node, address));
    servers.push_back(std::move(set));
  }
  ABACUS_RETURN_IF_ERROR(CheckNothingIsThere(node, servers, options.name, 0));
  objfs::NewVolume all = WholeOf(options, (quota_bytes + count - 1) / count);
  all.shards = count;
  all.shards_number = DrawShardsNumber();
  std::vector<uint32_t> made;
  for (uint32_t shard = count; shard-- > 0;) {
    const absl::Status status = servers[shard]->Create(ShardOfNew(all, shard));
    if (status.ok()) {
      made.insert(made.begin(), shard);
      continue;
    }
    const std::string left = UndoCreation(servers, options.name, made);
    // One that did not answer to the end may have made something.
    const bool is_clear = left.empty() && !runtime::IsOutcomeUnknown(status);
    return absl::Status(status.code(),
                        absl::StrCat("shard ", shard, " of volume '", options.name,
                                     "' cannot be made: ", status.message(), left,
                                     is_clear ? "" : ". Remove what is left: abacus volume delete ",
                                     is_clear ? "" : options.name));
  }
  return absl::OkStatus();
}

// At the first server.
absl::Status CreateVolume(runtime::Node& node, const VolumeSets& sets,
                          const VolumeOptions& options) {
  uint64_t quota_bytes = 0;
  if (!options.quota.empty()) {
    quota_bytes = runtime::ParseBytes(options.quota).value_or(0);
    if (quota_bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--quota takes a size such as '10 GiB', not '", options.quota, "'"));
    }
  }
  ABACUS_RETURN_IF_ERROR(CheckNewVolume(options));
  if (options.metadata_shards.has_value()) {
    return CreateShards(node, options, *options.metadata_shards, quota_bytes);
  }
  ABACUS_RETURN_IF_ERROR(CheckNothingIsThere(node, {sets.front()}, options.name, 1));
  return sets.front()->Create(WholeOf(options, quota_bytes));
}

// From here on any one server may die, or else that is told.
void AwaitCopies(runtime::Node& node, const VolumeOptions& options) {
  if (options.metadata_copies < 2) return;
  const absl::Time end = absl::Now() + kCopiesPatience;
  for (uint32_t shard = 0; shard < options.metadata_shards.value_or(1);) {
    const std::string name = objfs::ShardName(options.name, shard);
    const auto set = FirstServerOf(node, name);
    const auto map = set.ok() ? (*set)->Map(name) : absl::StatusOr<objfs::MapReport>(set.status());
    if (map.ok() && map->current.size() == map->copies.size()) {
      ++shard;
    } else if (absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(50));
    } else {
      fprintf(stderr,
              "not every copy of the names and inodes of volume '%s' has everything yet: until "
              "`abacus volume status %s` calls them current, the volume is away with one server\n",
              options.name.c_str(), options.name.c_str());
      return;
    }
  }
}

// What it cannot find out is told by whoever makes files.
void WarnOfTheStack(runtime::Node& node, const std::string& name) {
  const auto set = FirstServerOf(node, name);
  if (!set.ok()) return;
  const auto servers = (*set)->Servers(name);
  const auto volume = (*set)->Open(name);
  if (!servers.ok() || !volume.ok()) return;
  const auto stack = (*volume)->OwnFileStack();
  if (!stack.ok()) return;
  const std::string text = TooFewServersText(name, *stack, CountServers(*servers));
  if (!text.empty()) fprintf(stderr, "%s\n", text.c_str());
}

absl::Status ChangeServer(runtime::Node& node, const VolumeOptions& options) {
  ShardWork work;
  work.run = [&](const std::string& shard) -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(const auto set, FirstServerOf(node, shard));
    return set->ChangeServer(shard, options.before, options.now, options.force);
  };
  work.was_done = absl::IsInvalidArgument;  // `now` is one already, and `before` is none
  // A shard whose server is away, or that cannot do without the one that goes, is no reason to
  // leave the others without another one.
  work.goes_on = true;
  ABACUS_RETURN_IF_ERROR(WithEachShard(node, options.name, work));
  if (options.before.empty()) {
    printf("new files of volume '%s' may be spread over %s too\n", options.name.c_str(),
           options.now.c_str());
  } else {
    printf("%s is in the place of %s, and empty; next: abacus rebuild %s\n", options.now.c_str(),
           options.before.c_str(), options.name.c_str());
    if (KeepsTheMap(node, options.name, options.before)) {
      printf(
          "the map of volume '%s' stays at %s: while that is down the map cannot change, and "
          "nobody "
          "takes over\n",
          options.name.c_str(), options.before.c_str());
    }
  }
  WarnOfTheStack(node, options.name);
  return absl::OkStatus();
}

// -- deletion -------------------------------------------------------------------------------------

// What a creation or deletion that was cut off has left of a volume that no server has.
// Errors: kNotFound - nothing. As VolumeSet::Delete().
absl::Status DeleteLeft(runtime::Node& node, const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  absl::Status deleted;
  bool is_found = false;
  for (const auto& set : sets) {
    const absl::Status status = set->Delete(name);
    if (HasNone(status)) continue;
    is_found = true;
    deleted.Update(status);
  }
  if (is_found) return deleted;
  return absl::NotFoundError(absl::StrCat("there is no volume '", name, "'"));
}

// What people are to remove of columns of these volumes and shards, which no list tells of; empty:
// nothing. Asks the servers that these columns' lists name, where they answer.
std::string LeftColumnsText(runtime::Node& node, std::set<std::string> names) {
  const absl::StatusOr<VolumeSets> sets = VolumesOf(node);
  if (!sets.ok()) return "";
  // Not those that a server has, be it that it does not serve them now.
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(sets->begin(), sets->end(), [&](const auto& set) {
      const absl::Status opened = set->Open(name).status();
      return runtime::KindOf(opened) == runtime::ErrorKind::kNone && !HasNone(opened);
    });
  });
  std::set<std::string> servers;
  for (const auto& set : *sets) {
    for (const std::string& name : names) {
      const auto its = set->Servers(name);
      if (its.ok()) servers.insert(its->begin(), its->end());
    }
  }
  std::vector<std::string> left;
  for (const std::string& server : servers) {
    if (objfs::IsVacant(server)) continue;
    const auto found = node.LookupAt(server, kVolumesName);
    if (!found.ok()) continue;
    const auto set = node.binding().RefTo<objfs::VolumeSet>(*found);
    std::vector<std::string> files;
    for (const std::string& name : names) {
      const auto its = set->LeftColumns(name);
      if (its.ok()) files.insert(files.end(), its->begin(), its->end());
    }
    if (!files.empty()) {
      left.push_back(absl::StrCat("at ", server, " ", absl::StrJoin(files, " ")));
    }
  }
  if (left.empty()) return "";
  return absl::StrCat("columns are left (", absl::StrJoin(left, "; "),
                      "), and no server that answers has their names and inodes: if these are not ",
                      "to come back, remove the columns there, in the folder volumes of --data");
}

// Whether nobody can use it any more, whatever is left of it. kUnknown: who may have it does not
// answer.
enum class Gone { kNo, kYes, kUnknown };

absl::Status DeleteShard(runtime::Node& node, const std::string& name, Gone* gone) {
  const auto set = FirstServerOf(node, name);
  if (!set.ok()) {
    // Also where somebody does not answer: a server that has gone for good never does.
    const absl::Status left = DeleteLeft(node, name);
    const bool has_no_more = left.ok() || absl::IsNotFound(left);
    if (HasNone(set.status())) {
      *gone = has_no_more || absl::IsUnavailable(left) ? Gone::kYes : Gone::kNo;
      return left;
    }
    *gone = Gone::kUnknown;
    if (has_no_more) return set.status();
    return absl::UnavailableError(absl::StrCat(set.status().message(), "; ", left.message()));
  }
  const absl::Status deleted = (*set)->Delete(name);
  // Not where this server had none to delete any more: another one may have taken over meanwhile.
  const bool had_it = !absl::IsNotFound(deleted);
  const bool is_gone = deleted.ok() || (had_it && HasNone((*set)->Open(name).status()));
  *gone = is_gone ? Gone::kYes : Gone::kNo;
  return deleted;
}

// The first shard first: then the volume is no more, whatever comes of the others. Also what was
// left where that happened before.
absl::Status DeleteVolume(runtime::Node& node, const VolumeSets& sets, const std::string& name) {
  const auto known = ShardNames(node, name);
  std::set<std::string> others;
  if (known.ok()) others.insert(known->begin() + 1, known->end());
  for (const std::string& other : OtherShardsAt(sets, name)) others.insert(other);
  Gone gone = Gone::kNo;
  const absl::Status first = DeleteShard(node, name, &gone);
  if (gone == Gone::kNo) return first;
  if (gone == Gone::kUnknown) {
    others.insert(name);
    const std::string columns = LeftColumnsText(node, others);
    if (columns.empty()) return first;
    return absl::UnavailableError(absl::StrCat(first.message(), "; ", columns));
  }
  std::set<std::string> nobodys;  // of these there was nothing to be deleted
  if (absl::IsNotFound(first)) nobodys.insert(name);
  std::vector<std::string> left;
  if (!first.ok() && !absl::IsNotFound(first)) left.push_back(std::string(first.message()));
  size_t deleted = 0;
  bool helps_again = false;  // to say this again
  for (const std::string& other : others) {
    const absl::Status status = DeleteShard(node, other, &gone);
    if (status.ok()) ++deleted;
    if (gone != Gone::kYes) helps_again = true;
    const bool was_none = gone == Gone::kYes && absl::IsNotFound(status);
    if (was_none || gone == Gone::kUnknown) nobodys.insert(other);
    if (status.ok() || was_none) continue;
    left.push_back(
        absl::StrCat("shard ", objfs::PlaceOfShard(other).shard, ": ", status.message()));
  }
  const std::string columns = LeftColumnsText(node, nobodys);
  if (!columns.empty()) left.push_back(columns);
  if (left.empty()) return deleted == 0 ? first : absl::OkStatus();
  if (others.empty() && columns.empty()) return first;
  return absl::UnavailableError(
      absl::StrCat("volume '", name, "' is gone, but not all of it: ", absl::StrJoin(left, "; "),
                   helps_again ? ". Say this again when all its servers run" : ""));
}

// A server that keeps the volume's names and inodes, whoever answers for it.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> NamesServerOf(runtime::Node& node,
                                                             const VolumeSets& sets,
                                                             const std::string& name) {
  const auto keeps_names = [&](const runtime::Ref<objfs::VolumeSet>& set) {
    const auto map = set->Map(name);
    return map.ok() && !map->url.empty();
  };
  absl::Status none = absl::NotFoundError(absl::StrCat(
      "no server that was asked keeps names and inodes of a volume '", name, "' made with --map"));
  std::vector<std::string> servers;
  for (const auto& set : sets) {
    if (keeps_names(set)) return set;
    const auto its = set->Servers(name);
    if (its.ok()) servers.insert(servers.end(), its->begin(), its->end());
  }
  std::erase_if(servers, [](const std::string& server) { return objfs::IsVacant(server); });
  for (const std::string& server : servers) node.Reach(server);
  for (const absl::Time end = absl::Now() + kNamesServerPatience;;) {
    for (const std::string& server : servers) {
      const auto found = node.LookupAt(server, kVolumesName);
      if (!found.ok()) continue;
      const auto set = node.binding().RefTo<objfs::VolumeSet>(*found);
      if (keeps_names(set)) return set;
    }
    if (servers.empty() || absl::Now() >= end) return none;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::Status RestoreRow(runtime::Node& node, const VolumeSets& sets, const std::string& shard,
                        const VolumeOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(const auto set, NamesServerOf(node, sets, shard));
  ABACUS_ASSIGN_OR_RETURN(const objfs::RestoredMap restored, set->RestoreMap(shard, options.force));
  for (const std::string& doubt : restored.doubts) {
    fprintf(stderr, "gone on by --force: %s\n", doubt.c_str());
  }
  printf(
      "the map at %s has a row of volume '%s' again, of epoch %llu: %s is to answer for it; next: "
      "abacus volume status %s\n",
      restored.url.c_str(), shard.c_str(), static_cast<unsigned long long>(restored.epoch),
      restored.primary.c_str(), options.name.c_str());
  return absl::OkStatus();
}

absl::Status RestoreRows(runtime::Node& node, const VolumeSets& sets,
                         const VolumeOptions& options) {
  ShardWork work;
  work.run = [&](const std::string& shard) { return RestoreRow(node, sets, shard, options); };
  work.was_done = absl::IsAlreadyExists;  // the map has its row
  return WithEachShard(node, options.name, work);
}

// An extended attribute; nullopt where there is none.
absl::StatusOr<std::optional<std::string>> Attribute(const std::string& path, const char* name) {
  std::string text(65536, '\0');
  const ssize_t bytes = lgetxattr(path.c_str(), name, text.data(), text.size());
  if (bytes < 0 && errno == ENODATA) return std::nullopt;
  if (bytes < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot tell the layers of ", path,
                            errno == EOPNOTSUPP ? " (is it on a mount of abacus?)" : ""));
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
}

absl::Status SetAttribute(const std::string& path, const char* name, const std::string& text) {
  const int done = text.empty() ? removexattr(path.c_str(), name)
                                : setxattr(path.c_str(), name, text.data(), text.size(), 0);
  if (done == 0 || (text.empty() && errno == ENODATA)) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the layers of files in ", path));
}

// Before the kernel is asked: it would say no more than that something is wrong.
absl::Status CheckStackText(const std::string& text) {
  ABACUS_ASSIGN_OR_RETURN(const objfs::Stack stack, objfs::ParseStack(text));
  return objfs::CheckStack(stack, Kinds());
}

absl::Status ChangeStack(const StackOptions& options) {
  const bool sets = options.what == StackOptions::What::kSet;
  if (sets) ABACUS_RETURN_IF_ERROR(CheckStackText(options.stack));
  struct stat seen = {};
  if (stat(options.path.c_str(), &seen) == 0 && !S_ISDIR(seen.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, " is no directory: a file keeps the layers that it was made with"));
  }
  if (options.pattern.empty()) {
    return SetAttribute(options.path, objfs::kStackXattr, sets ? options.stack : "");
  }
  if (options.pattern.find_first_of(" \t\n/") != std::string::npos) {
    return absl::InvalidArgumentError("--for takes a pattern of names, without / and white space");
  }
  ABACUS_ASSIGN_OR_RETURN(const auto text, Attribute(options.path, objfs::kStackRulesXattr));
  ABACUS_ASSIGN_OR_RETURN(std::vector<objfs::StackRule> rules,
                          objfs::ParseStackRules(text.value_or("")));
  if (!objfs::SetStackRule(&rules, options.pattern,
                           sets ? std::optional(options.stack) : std::nullopt)) {
    return absl::NotFoundError(
        absl::StrCat("there is no rule for '", options.pattern, "' in ", options.path));
  }
  return SetAttribute(options.path, objfs::kStackRulesXattr, objfs::StackRulesText(rules));
}

absl::Status ShowStack(const StackOptions& options) {
  const bool state = options.what == StackOptions::What::kState;
  ABACUS_ASSIGN_OR_RETURN(
      const auto own, Attribute(options.path, state ? objfs::kStateXattr : objfs::kOwnStackXattr));
  if (!own.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("cannot tell the layers of ", options.path, " (is it on a mount of abacus?)"));
  }
  printf("%s%s", own->c_str(), state ? "" : "\n");
  if (state) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const auto columns, Attribute(options.path, objfs::kColumnsXattr));
  if (columns.has_value()) printf("%s", columns->c_str());
  // Of a directory, what its files will have.
  ABACUS_ASSIGN_OR_RETURN(const auto text, Attribute(options.path, objfs::kStackRulesXattr));
  ABACUS_ASSIGN_OR_RETURN(const auto rules, objfs::ParseStackRules(text.value_or("")));
  for (const objfs::StackRule& rule : rules) {
    printf("new files like %s: %s\n", rule.pattern.c_str(), rule.stack.c_str());
  }
  ABACUS_ASSIGN_OR_RETURN(const auto files, Attribute(options.path, objfs::kStackXattr));
  if (files.has_value()) printf("%s files: %s\n", rules.empty() ? "new" : "other", files->c_str());
  return absl::OkStatus();
}

void PrintKinds() {
  Table table({"layer", "option", "standard", "takes", "what it is"});
  for (const objfs::LayerKind& kind : Kinds().All()) {
    if (kind.options.empty()) table.AddRow({kind.name, "", "", "", ""});
    for (const objfs::OptionSpec& option : kind.options) {
      table.AddRow({&option == kind.options.data() ? kind.name : "", option.name, option.standard,
                    objfs::OptionRange(option), option.help});
    }
  }
  printf("%s", table.ToString().c_str());
}

}  // namespace

int VolumeCommand(const VolumeOptions& asked) {
  if (auto status = CheckNoShard(asked.name); !status.ok()) return Fail(status);
  if (asked.what == VolumeOptions::What::kDrain) return DrainCommand(asked);
  const VolumeOptions options = WithTheMapsServerLast(asked);
  ClientOptions joined = options.client;
  // The first of a volume's servers is the one that is asked to make it.
  if (!options.servers.empty()) joined.servers = {options.servers.front()};
  const auto client = ClientNode::Start(joined);
  if (!client.ok()) return Fail(client.status());
  const auto volumes = VolumesOf((*client)->node());
  if (!volumes.ok()) return Fail(volumes.status());
  absl::Status status;
  switch (options.what) {
    case VolumeOptions::What::kCreate:
      status = CreateVolume((*client)->node(), *volumes, options);
      if (status.ok()) TellWhetherKeptOnce(options);
      if (status.ok()) TellWhoIsIrreplaceable(options);
      if (status.ok()) AwaitCopies((*client)->node(), options);
      break;
    case VolumeOptions::What::kDelete:
      status = DeleteVolume((*client)->node(), *volumes, options.name);
      break;
    case VolumeOptions::What::kAddServer:
    case VolumeOptions::What::kReplaceServer:
      status = ChangeServer((*client)->node(), options);
      break;
    case VolumeOptions::What::kRestoreMap:
      status = RestoreRows((*client)->node(), *volumes, options);
      break;
    case VolumeOptions::What::kDrain:  // above
      break;
    case VolumeOptions::What::kList:
      status = ListVolumes((*client)->node(), *volumes, options.json);
      break;
  }
  return status.ok() ? kExitOk : Fail(status);
}

int StackCommand(const StackOptions& options) {
  using What = StackOptions::What;
  if (options.what == What::kKinds) {
    PrintKinds();
    return kExitOk;
  }
  if (options.path.empty()) {
    return Fail(absl::InvalidArgumentError("of which file? Say: abacus stack PATH"));
  }
  const bool changes = options.what == What::kSet || options.what == What::kUnset;
  if (!options.pattern.empty() && !changes) {
    return Fail(absl::InvalidArgumentError("--for goes with --set or --unset"));
  }
  const absl::Status status = changes ? ChangeStack(options) : ShowStack(options);
  return status.ok() ? kExitOk : Fail(status);
}

int Unmount(const UnmountOptions& options) {
  const absl::Status status = objfs::Unmount(options.directory, options.lazily);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace abacus::apps
