#ifndef ABACUS_APPS_ABACUS_MAP_HEALTH_H_
#define ABACUS_APPS_ABACUS_MAP_HEALTH_H_

#include <string>

#include "absl/status/statusor.h"
#include "objfs/volume/mapped_volume.h"
#include "runtime/node/node.h"

namespace abacus::apps {

// What the servers of a volume know of its map: the one that answers for it, else any that keeps
// its metadata.
absl::StatusOr<objfs::MapReport> MapOfVolume(runtime::Node& node, const std::string& name);
// It stays where it was made, also where that server is none of the volume's any more. False: the
// server at `address` does not keep it, or nobody answered.
bool KeepsTheMap(runtime::Node& node, const std::string& name, const std::string& address);
// The map answers, the volume is answered for, and all copies of its metadata have everything.
bool IsMapWhole(const objfs::MapReport& map);
// For people, some lines. `what`: the volume, or the shard of one, as people are told of it.
std::string MapText(const std::string& what, const objfs::MapReport& map);
std::string MapJson(const objfs::MapReport& map);  // an object

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_MAP_HEALTH_H_
