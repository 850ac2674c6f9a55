#ifndef ABACUS_OBJFS_FUSE_MOUNT_H_
#define ABACUS_OBJFS_FUSE_MOUNT_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/fs/file_system.h"

namespace abacus::objfs {

// A FileSystem as a directory of this machine, for programs that know nothing of objects: answers
// the kernel's FUSE requests, on many threads.
//
// Invariants:
// 1. Each request is answered once, with what the FileSystem said or with an error.
// 2. Who may do what is the kernel's to check (default_permissions), against attributes that it
//    asks for; the FileSystem hears `checked`. The one exception: a file that another client made
//    between the kernel's look and its create is opened as its owner and mode allow.
// 3. Unless `exclusive`, nothing is answered from the kernel's caches without asking whether it has
//    changed: names and attributes are valid for as long as Options say (0), and pages go when size
//    or modification time are others than before, and when a promise of the file breaks
//    (FileSystem::AddKeeper). objfs/README.md says what programs see of that.
// 4. What is written to a file that is open to append, and not to read, goes to its end in pieces
//    of up to Options::request_bytes_max, whatever other mounts append. Of one that is open to read
//    as well the pieces end with the pages.
// 5. A file's inode number is its ObjectId. The kernel calls the root 1; the object 1, where it is
//    not the root, gets the root's number.
//
// Lifecycle: Make() mounts; requests wait until Run() serves them; it returns when the directory
// was unmounted by whomever, or after Stop(). The end of the process, however it comes, fails all
// requests that wait and leaves a mount that answers "not connected" until it is unmounted.
//
// Thread-safety: thread-safe. Source: ours (libfuse's low-level interface).
class Mount {
 public:
  struct Options {
    std::string name = "abacus";  // what `mount` shows as its source

    // No other client changes the volume: the kernel may keep names, attributes and pages for
    // `exclusive_for`, and has its own locks.
    bool exclusive = false;
    absl::Duration exclusive_for = absl::Minutes(10);
    // How long the kernel may use attributes and names without asking, where not `exclusive`.
    absl::Duration attributes_for = absl::ZeroDuration();
    absl::Duration names_for = absl::ZeroDuration();
    bool direct_io = false;  // every read and write is a request: no pages are kept

    // Limits. A request beyond `threads` waits in the kernel; one thread serves one at a time.
    unsigned threads = 16;
    unsigned background_max = 64;          // read-ahead and write-back requests at a time
    unsigned request_bytes_max = 1 << 20;  // of data in one read or write
    // How far the kernel reads ahead of who reads in order. Where root mounts; else, and where /sys
    // cannot be written to, it is what the kernel takes itself (128 KiB).
    unsigned read_ahead_bytes = 1 << 20;
    unsigned logs_per_second_max = 10;  // the rest is counted and told with the next

    // Others than who mounts may use it. Default: where that is root.
    bool allow_other = true;
    // As mount(8) has them: "ro", "noatime", "nodev", ...
    std::vector<std::string> more;

    // Is told of each failure that has no better name than "input/output error". Default: the log.
    std::function<void(std::string_view message)> log;
  };

  // Mounts on `directory`.
  // REQUIRES: `files` outlives the mount.
  // Errors: kNotFound - no such directory. kFailedPrecondition - it is none, or a mount whose
  //         process is dead is on it, or there is no /dev/fuse. kInvalidArgument - an option.
  //         kPermissionDenied - mount(2) or fusermount3 refuses; their message is on stderr.
  static absl::StatusOr<std::unique_ptr<Mount>> Make(FileSystem& files, std::string directory,
                                                     Options options);
  // Unmounts, lazily where files are open. REQUIRES: Run() is not running.
  ~Mount();

  // Serves until the directory is unmounted. REQUIRES: called once.
  // Blocking: yes. Errors: kInternal - the kernel and libfuse do not understand each other.
  absl::Status Run();

  // Ends Run(): the directory is unmounted; where it is in use, it is taken out of the tree
  // nevertheless and its users get errors. What write(2) has returned for is with the FileSystem;
  // of pages that a program wrote through a mapping and did not sync, this promises nothing.
  // Blocking: no; Run() returns when it is done. Again, or before Run(): allowed.
  void Stop();

  const std::string& directory() const { return directory_; }

 private:
  struct Impl;
  Mount(std::string directory, std::unique_ptr<Impl> impl);

  const std::string directory_;
  const std::unique_ptr<Impl> impl_;
};

// What `umount` does, also for who is not root but mounted it. `lazily`: also where it is in use;
// it is gone when its last user is.
// Errors: kFailedPrecondition - it is in use, or nothing is mounted there. kNotFound - to root:
// there
//         is no such directory.
absl::Status Unmount(const std::string& directory, bool lazily);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_MOUNT_H_
