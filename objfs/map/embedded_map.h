#ifndef ABACUS_OBJFS_MAP_EMBEDDED_MAP_H_
#define ABACUS_OBJFS_MAP_EMBEDDED_MAP_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "objfs/map/map_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The map of a volume without another one: the list of its servers, in a file of the first of them
// (volume/server_list.h). That one is the primary for ever, in the first epoch, and needs no lease:
// while it is down nothing changes.
class EmbeddedMap final : public MapStore {
 public:
  explicit EmbeddedMap(std::string path) : path_(std::move(path)) {}

  // Errors: the disk's; kNotFound - there is no such file.
  absl::StatusOr<MapAnswer> Call(const MapCall& call) override;
  absl::Status Create(const VolumeRow& row) override;
  absl::Status Remove() override;

 private:
  const std::string path_;
  runtime::Mutex mutex_;
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;  // as of the start of this server
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_EMBEDDED_MAP_H_
