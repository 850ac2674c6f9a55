#ifndef ABACUS_OBJFS_VOLUME_VOLUME_SET_H_
#define ABACUS_OBJFS_VOLUME_VOLUME_SET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

struct VolumeSummary {
  std::string name;
  VolumeSpace space;
  std::vector<std::string> clients;
  CommitCounts commits;
  ABACUS_FIELDS(name, space, clients, commits)
};

// A server's volumes, by name: each in a directory of its own with a store of its own. A quota is
// in the file ".quota-NAME" beside it: a decimal number of bytes and the end of the line.
//
// Names are 1 to 64 letters, digits, '-', '_' and '.', and do not begin with a dot.
// Errors: kInvalidArgument - a name, or a stack; the message tells the way out. kNotFound - the
//         message lists the volumes there are.
// Thread-safety: thread-safe. Blocking: disk I/O.
class VolumeSet final : public runtime::AnchoredObject {
 public:
  struct Host {
    Volume::Host volume;
    std::function<runtime::Ref<Volume>(std::unique_ptr<Volume>)> adopt;
    std::function<void(const runtime::Ref<Volume>&)> end;
    absl::Duration lease = Volume::Options().lease;  // of all volumes
    // Is told of wrong bytes on a disk, whenever they are met; empty: nobody is. May not block.
    std::function<void(const std::string& volume, const absl::Status& damage)> on_damage;
    // Puts another disk over the directory of each volume, a model of one for example; empty: none.
    std::function<std::unique_ptr<Disk>(std::unique_ptr<Disk>)> wrap_disk;
  };

  // Opens all volumes under `directory`, which is made where it is not there.
  // Errors: those of the first volume that cannot be opened.
  static absl::StatusOr<std::unique_ptr<VolumeSet>> Make(const std::string& directory, Host host);

  // `quota_bytes`: how much its files may hold, kept beside it; 0: as much as the disk has.
  // Errors: kAlreadyExists.
  absl::Status Create(const std::string& name, uint64_t quota_bytes);
  absl::StatusOr<runtime::Ref<Volume>> Open(const std::string& name);
  absl::StatusOr<std::vector<VolumeSummary>> List();
  // Removes the volume with all that is in it.
  // Errors: kFailedPrecondition - clients are using it.
  absl::Status Delete(const std::string& name);

  ABACUS_OBJECT(VolumeSet, "objfs.VolumeSet", 1, Create, Open, List, Delete)

 private:
  VolumeSet(std::string directory, Host host)
      : directory_(std::move(directory)), host_(std::move(host)) {}
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  std::string QuotaOf(const std::string& name) const { return directory_ + "/.quota-" + name; }
  absl::Status OpenVolume(const std::string& name);
  absl::Status NoSuch(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const Host host_;
  Turns names_;  // one call about a volume's existence at a time

  runtime::Mutex mutex_;
  std::map<std::string, runtime::Ref<Volume>> volumes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_VOLUME_SET_H_
