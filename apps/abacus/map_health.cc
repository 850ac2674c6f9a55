#include "apps/abacus/map_health.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "apps/abacus/volumes.h"
#include "objfs/map/map_place.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::MapReport;

bool IsCurrentAt(const MapReport& map, uint32_t place) {
  return std::count(map.current.begin(), map.current.end(), place) > 0;
}

std::string KindOfMap(const MapReport& map) {
  if (map.url.empty()) return "embedded";
  return objfs::MapServerOf(map.url).empty() ? "etcd" : "server";
}

// One that was drained may be taken for one that is not needed.
std::string KeeperText(const MapReport& map) {
  const std::string keeper = objfs::MapServerOf(map.url);
  if (keeper.empty() || std::count(map.servers.begin(), map.servers.end(), keeper) > 0) return "";
  return absl::StrCat("  ", keeper,
                      " is none of the volume's servers, and keeps its map: while it ",
                      "is down the map cannot change, and nobody takes over\n");
}

std::string AddressAt(const MapReport& map, uint64_t place) {
  return place < map.servers.size() ? map.servers[place] : "?";
}

}  // namespace

bool KeepsTheMap(runtime::Node& node, const std::string& name, const std::string& address) {
  const absl::StatusOr<MapReport> map = MapOfVolume(node, name);
  return map.ok() && objfs::MapServerOf(map->url) == address;
}

absl::StatusOr<MapReport> MapOfVolume(runtime::Node& node, const std::string& name) {
  const auto first = FirstServerOf(node, name);
  if (first.ok()) return (*first)->Map(name);
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  for (const auto& set : sets) {
    absl::StatusOr<MapReport> map = set->Map(name);
    if (map.ok()) return map;
  }
  return first.status();
}

bool IsMapWhole(const MapReport& map) {
  return map.reachable && map.is_primary && map.may_serve &&
         map.current.size() == map.copies.size();
}

std::string MapText(const std::string& what, const MapReport& map) {
  if (map.url.empty()) {
    return absl::StrCat("map: at its first server, ", AddressAt(map, 0),
                        ", which nobody can replace: while that is down nothing of ", what,
                        " is served, and the volume cannot be mounted anew\n");
  }
  std::string text = absl::StrCat("map: ", map.url);
  if (map.epoch == 0) {
    return absl::StrCat(text, " has not been read yet: ", map.why, "\n");
  }
  absl::StrAppend(&text, ", epoch ", map.epoch, ", answered for by ", AddressAt(map, map.primary),
                  "\n", KeeperText(map));
  for (const uint32_t place : map.copies) {
    absl::StrAppend(&text, "  names and inodes at ", AddressAt(map, place), ": ",
                    IsCurrentAt(map, place) ? "current" : "behind, cannot take over",
                    map.objects_all > 0 && !IsCurrentAt(map, place)
                        ? absl::StrCat(": ", map.objects_done, " of ", map.objects_all,
                                       " objects are brought up to date")
                        : "",
                    map.copy_why.empty() || IsCurrentAt(map, place)
                        ? ""
                        : absl::StrCat(" (", map.copy_why, ")"),
                    "\n");
  }
  if (map.repaired_blocks > 0) {
    absl::StrAppend(&text, "  damaged blocks of names and inodes at ", AddressAt(map, map.primary),
                    ", put back from the copy: ", map.repaired_blocks, "\n");
  }
  if (map.repaired_objects > 0) {
    absl::StrAppend(&text, "  objects with damaged tables at ", AddressAt(map, map.primary),
                    ", made whole from the copy: ", map.repaired_objects, "\n");
  }
  if (map.unrepaired_blocks > 0) {
    absl::StrAppend(
        &text, "  damaged blocks of names and inodes were met at ", AddressAt(map, map.primary),
        " that the copy could not help with, each time counted: ", map.unrepaired_blocks, "\n");
  }
  if (map.reads_at_copy > 0) {
    absl::StrAppend(&text, "  reads of directories and files that went round the disk of ",
                    AddressAt(map, map.primary), ", as it was slow: ", map.reads_at_copy, "\n");
  }
  if (!map.reachable) {
    absl::StrAppend(&text, "  the map does not answer (", map.why, "): ",
                    map.may_serve ? "reads and writes go on, but no server can be changed or take "
                                    "over until it does\n"
                                  : "nothing is served until it does\n");
  } else if (!map.may_serve) {
    absl::StrAppend(&text, "  nobody answers for ", what, " now\n");
  }
  return text;
}

std::string MapJson(const MapReport& map) {
  nlohmann::json copies = nlohmann::json::array();
  for (const uint32_t place : map.copies) {
    copies.push_back({{"server", AddressAt(map, place)}, {"current", IsCurrentAt(map, place)}});
  }
  return nlohmann::json{{"kind", KindOfMap(map)},
                        {"address", map.url},
                        {"reachable", map.reachable},
                        {"why", map.why},
                        {"epoch", map.epoch},
                        {"primary", map.epoch == 0 ? "" : AddressAt(map, map.primary)},
                        {"serves", map.may_serve},
                        {"has_lease", map.has_lease},
                        {"objects_done", map.objects_done},
                        {"objects_all", map.objects_all},
                        {"copy_why", map.copy_why},
                        {"repaired_blocks", map.repaired_blocks},
                        {"unrepaired_blocks", map.unrepaired_blocks},
                        {"repaired_objects", map.repaired_objects},
                        {"reads_at_copy", map.reads_at_copy},
                        {"copies", copies}}
      .dump();
}

}  // namespace abacus::apps
