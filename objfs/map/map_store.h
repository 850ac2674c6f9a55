#ifndef ABACUS_OBJFS_MAP_MAP_STORE_H_
#define ABACUS_OBJFS_MAP_MAP_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/lease_core.h"

namespace abacus::objfs {

// Where one volume's row is kept, and the lease of its primary.
// Thread-safety: thread-safe. Blocking: up to a few seconds; for a map that a server keeps also as
// long as its call cannot be sent (volume/server_map.h).
class MapStore {
 public:
  virtual ~MapStore() = default;

  // Errors: any - it is not known whether the call was made, or will be; the message tells people
  //         what does not answer.
  virtual absl::StatusOr<MapAnswer> Call(const MapCall& call) = 0;
  // Errors: kAlreadyExists. kUnavailable - the map does not answer; the row may be there or not.
  virtual absl::Status Create(const VolumeRow& row) = 0;
  // With the lease. No row is not an error.
  virtual absl::Status Remove() = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_MAP_STORE_H_
