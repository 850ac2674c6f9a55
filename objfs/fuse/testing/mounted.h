#ifndef ABACUS_OBJFS_FUSE_TESTING_MOUNTED_H_
#define ABACUS_OBJFS_FUSE_TESTING_MOUNTED_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "objfs/fs/file_system.h"
#include "objfs/fuse/mount.h"

namespace abacus::objfs {

// Why nothing can be mounted on this machine; empty where it can.
std::string WhyNoMount();

// A directory of its own under the system's temporary one, which goes with it.
//
// Whoever waits for an answer of a mount cannot be killed until it comes. A process that waits for
// a mount of its own, as most tests here are, and is killed meanwhile, as ctest does with one that
// takes too long, would therefore stay for ever, and ctest with it. So each mount point has a
// guard, a process that breaks off what is mounted there when this one is gone or about to go.
class MountPoint {
 public:
  MountPoint();
  // Whatever is still mounted there is taken away: a test leaves no mount behind.
  ~MountPoint();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t guard_ = -1;
};

// A file system, mounted and served, until it is destroyed; also where the test fails in between.
class Mounted {
 public:
  // Aborts where it cannot be mounted: ask WhyNoMount() first.
  explicit Mounted(FileSystem& files, Mount::Options options = {});
  ~Mounted();

  // Paths in it.
  const std::string& path() const { return point_.path(); }
  std::string operator/(const std::string& name) const { return path() + "/" + name; }

  // Ends it, and returns what Mount::Run() returned.
  absl::Status Stop();
  // Waits until it has ended by itself.
  absl::Status Wait();

 private:
  const MountPoint point_;
  std::unique_ptr<Mount> mount_;
  absl::Status result_;
  std::thread server_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_TESTING_MOUNTED_H_
