#ifndef ABACUS_OBJFS_FUSE_LISTING_H_
#define ABACUS_OBJFS_FUSE_LISTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "objfs/fs/file_system.h"
#include "objfs/fuse/request.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::fuse {

// An open directory. The kernel's place in it is a cookie of the file system's, and any that was
// given out may be asked for again (seekdir(3)); what is kept here is only read ahead.
//
// Names are read ahead from one request to the next, until the kernel goes elsewhere; names with
// attributes are not: the kernel may keep those for long, and takes them for as new as the request.
// Thread-safety: thread-safe. Blocking: as the file system.
class Listing {
 public:
  static constexpr uint32_t kBatch = 512;  // names of one List()

  explicit Listing(ObjectId directory) : directory_(directory) {}

  ObjectId directory() const { return directory_; }

  // Fills a buffer of the kernel's with entries behind `cookie`; empty: the end.
  // An error after the first entry is left to the next call.
  absl::StatusOr<std::string> Names(const Request& request, uint64_t cookie, size_t bytes);
  absl::StatusOr<std::string> NamesAndAttributes(const Request& request, uint64_t cookie,
                                                 size_t bytes);

 private:
  struct Batch {
    std::vector<FileSystem::Listed> entries;
    size_t next = 0;
    uint64_t cookie = 0;  // entries[next] is what follows it
  };
  Batch Take(uint64_t cookie);
  void Keep(Batch batch);

  const ObjectId directory_;
  runtime::Mutex mutex_;  // not held over calls
  Batch batch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_LISTING_H_
