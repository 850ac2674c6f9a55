#ifndef ABACUS_OBJFS_RAID_SHARED_COLUMNS_H_
#define ABACUS_OBJFS_RAID_SHARED_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// Times of groups of columns, the same at the servers and at those who write the groups: a server
// resolves what is older than the lease.
inline CommitOptions ColumnGroupOptions() {
  CommitOptions options;
  options.lease_ns = 5'000'000'000;
  options.decide_ns = 2'000'000'000;
  return options;
}

// A file's columns for one of several clients that use them at once: each reads the columns, and
// writes groups of blocks at their servers (atomicity/README.md). What is read and written by it is
// of this opening, and is refused when there is a later one.
struct SharedColumns {
  std::vector<runtime::Ref<Layer>> columns;   // in their order, all of one opening
  std::vector<runtime::Ref<CommitLog>> logs;  // of their servers, in the same order
  std::vector<uint32_t> servers;              // the servers' numbers in groups, likewise
  ObjectId id = 0;                            // of the file, and so of each column
  Version opening;                            // GroupFence
  uint16_t writer = 0;  // of the identifiers of this holder's groups; nobody else has it
  uint64_t size = 0;    // of the file; it does not change while it is shared
  ABACUS_FIELDS(columns, logs, servers, id, opening, writer, size)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_SHARED_COLUMNS_H_
