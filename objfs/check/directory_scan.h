#ifndef ABACUS_OBJFS_CHECK_DIRECTORY_SCAN_H_
#define ABACUS_OBJFS_CHECK_DIRECTORY_SCAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "objfs/directory/entry.h"
#include "objfs/directory/siphash.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

struct ScannedName {
  std::string name;
  Entry entry;
};

// All that a directory's blocks say.
struct ScannedDirectory {
  std::vector<ScannedName> names;   // where there are faults, those that can be read; each once
  std::vector<std::string> faults;  // of its blocks; none: it is as FORMAT.md says
  std::optional<HashSeed> seed;     // none: it never had a name
  uint64_t blocks = 0;              // that it reaches to
};

// Reads a directory whole, beginning with its block 0, and compares each block with what led to it
// and with FORMAT.md.
// Why not by DirectoryTree: that proves of one name that it is there, whatever else is damaged;
// here all of it is looked at, and what is damaged is to be told, and gone around. Limits: its
// names are in memory, 48 bytes each beside what is longer than 15 bytes. Errors: those of the
// store but kDataLoss, which is a fault. Thread-safety: thread-safe. Blocking: disk I/O. What
// changes meanwhile looks like faults.
absl::StatusOr<ScannedDirectory> ScanDirectory(ObjectStore& store, ObjectId id);

// The blocks of a directory with these names. REQUIRES: each name once, and good.
// Errors: kResourceExhausted - more than a directory can have.
absl::StatusOr<std::vector<std::string>> BuildDirectory(const std::vector<ScannedName>& names,
                                                        const std::optional<HashSeed>& seed);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_DIRECTORY_SCAN_H_
