#ifndef ABACUS_OBJFS_VOLUME_RESTORE_PLAN_H_
#define ABACUS_OBJFS_VOLUME_RESTORE_PLAN_H_

// A volume's map has lost its row: what the row is to be, by what the volume's servers remember.
//
// Who has all that was acknowledged? The primary of the newest epoch, as whoever begins one has
// everything of those before it (map/lease_core.h), and remembers its row before it opens anything
// (MappedVolume). And whoever its newest row calls current: it acknowledges nothing that such a one
// lacks before it remembers a row that calls it behind. So of rows of one epoch that of its primary
// counts, where that one answers. Of these one server is called current in the new row, and all
// others behind: they are filled by it, whatever they have.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "objfs/map/volume_row.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// What one server knows of a volume, over restarts.
struct MapMemory {
  bool keeps_names = false;   // names and inodes; false: columns at most, and what follows up to
                              // `seen_epoch` is not there
  std::string url;            // of the map
  uint64_t place = 0;         // of this server
  std::string row;            // that it has seen last (VolumeRow); empty: none
  int64_t revision = 0;       // of that, in the map
  bool is_whole = false;      // what it has of names and inodes can be served
  std::string why;            // it cannot
  uint64_t serves_epoch = 0;  // it answers for the volume now, in that epoch; 0: it does not
  bool has_promised = false;  // to another server, to leave the volume to that one for some seconds
  uint64_t seen_epoch = 0;    // the highest that it has seen in anything
  std::string doubt;          // something of this could not be read
  std::vector<std::string> servers;  // of the volume, by what it was told last of columns
  ABACUS_FIELDS(keeps_names, url, place, row, revision, is_whole, why, serves_epoch, has_promised,
                seen_epoch, doubt, servers)
};

// What came of asking the server at an address.
struct ServerMemory {
  std::string address;
  absl::StatusOr<MapMemory> memory;
};

// The servers that it names, in its row and in its list.
std::vector<std::string> ServersNamedIn(const MapMemory& memory);

struct RestorePlan {
  VolumeRow row;
  // The server of the row's primary may have left the volume to another one, which serves: not
  // before that is over.
  bool waits = false;
  std::vector<std::string> doubts;  // in spite of which it is `forced`, for people
};

// `url`, `key`: of the volume. `asked`: all servers that any of them names.
// The row's epoch is above all that any of them has seen; where something is not known, by
// kEpochsSkipped more.
// Errors: kFailedPrecondition - the message says what is in the way, and the way out: something is
//         not known, and this is not `forced`; or nobody has what could be served, somebody else
//         serves it, or servers name different maps, which no force helps.
absl::StatusOr<RestorePlan> PlanRestore(const std::string& name, const std::string& url,
                                        uint64_t key, const std::vector<ServerMemory>& asked,
                                        bool forced);
// Who did not answer may have begun so many epochs of which nobody knows.
inline constexpr uint64_t kEpochsSkipped = 1000;

// What RestoreMap() has done.
struct RestoredMap {
  std::string url;
  uint64_t epoch = 0;
  std::string primary;  // the server that is to answer for the volume
  std::vector<std::string> doubts;
  ABACUS_FIELDS(url, epoch, primary, doubts)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_RESTORE_PLAN_H_
