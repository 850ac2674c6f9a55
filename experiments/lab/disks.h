#ifndef ABACUS_EXPERIMENTS_LAB_DISKS_H_
#define ABACUS_EXPERIMENTS_LAB_DISKS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "apps/abacus/volumes.h"
#include "experiments/lab/cached_disk.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/mutex.h"
#include "runtime/node/node.h"

namespace abacus::lab {

// The modelled disks of a server. A volume names servers; a second disk stands in its list as if it
// were one, by a name that no server of the experiments has, and a call to it is a local one.
//
// Thread-safety: thread-safe.
class Disks {
 public:
  // `modelled`: each with the times of `disk` and behind a page cache, which share the memory of
  // the paper's node.
  Disks(size_t count, bool modelled, objfs::DiskModel disk);

  // Publishes the volumes of the first disk, and opens those of the others, each in a directory of
  // its own below `directory`. `whole_read_sets`: objfs::Volume::Options.
  absl::Status Open(runtime::Node& node, const std::string& directory, bool whole_read_sets);
  const runtime::Ref<objfs::VolumeSet>& first() const { return first_; }
  // As what the disks stand in a volume's list of servers.
  std::vector<std::string> Names(const std::string& first) const;
  // From now on nobody finds it: the name of a disk, or of a server that has one.
  void Fail(const std::string& name);
  // Nothing is in the page caches.
  void Drop();
  // REQUIRES: the node has been stopped. Gives back what belongs to it.
  void Close();

 private:
  // What apps::StandIns asks for; shared with the node's objects, which end after the disks.
  struct Found {
    runtime::Mutex mutex;
    std::map<std::string, runtime::Ref<objfs::VolumeSet>> disks ABSL_GUARDED_BY(mutex);
    std::string failed ABSL_GUARDED_BY(mutex);
  };
  apps::WrapDisk WrapOf(size_t disk) const;
  static apps::StandIns StandInsOf(std::shared_ptr<Found> found);

  const size_t count_;
  std::vector<std::shared_ptr<PageCache>> caches_;  // constant; none where they are not modelled
  const std::shared_ptr<Found> found_ = std::make_shared<Found>();
  runtime::Ref<objfs::VolumeSet> first_;
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_DISKS_H_
