#ifndef ABACUS_OBJFS_CHECK_CHECKER_H_
#define ABACUS_OBJFS_CHECK_CHECKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/check/report.h"
#include "objfs/store/disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/object_table.h"

namespace abacus::objfs {

struct CheckOptions {
  bool repair = false;
  bool data = false;  // reads the contents of all files as well
  // Clients work meanwhile: what looks wrong counts only where nobody changed it since, and only
  // names that lead nowhere and counts are repaired.
  bool online = false;
  size_t servers = 0;  // of the volume; 0: its files are not spread
  uint64_t faults_max = 10'000;
  std::vector<ObjectId> gone;  // as CheckRequest has them
  // Is told of each fault, once it is known what becomes of it; empty: nobody is.
  std::function<void(const Fault&)> tell;
  // Is asked now and then whether to go on; empty: yes.
  std::function<bool()> goes_on;
  // The store's own, where it is a local one that salvages tables (LocalObjectStoreOptions), and
  // nobody else uses it; empty: it is not.
  std::function<std::optional<SalvagedTable>(ObjectId)> salvaged;
  std::function<absl::Status(ObjectId, const std::function<absl::Status(std::string_view block)>&)>
      read_unnamed;
  // LocalObjectStore::Rest; empty: tables stay in memory.
  std::function<void(ObjectId)> rest;
};

// Looks at all of a volume: each object's attributes, each directory's blocks, each name, and
// whether what they say fits together; with CheckOptions::repair makes right what can be.
//
// The order of repairs: first what objects are, then directories' blocks, then names, then what no
// name leads to, then counts. After each of these all is looked at again, so that each rests on
// what is known to be right. Each repair is one step of the store (ObjectStore::Update), and a kind
// of repairs is durable before the next begins: a crash in between leaves a volume of which the
// next check goes on.
//
// Nothing is removed that may hold a user's bytes: what has no name gets one in /lost+found.
//
// Where the volume is one shard of several (volume/shard.h) only what its own names say is judged:
// what leads to other shards, or may have names there, is left for shards_scan.h, and what
// transactions in doubt hold is left alone.
//
// Limits: 64 bytes of memory for each object, and the names of one directory at a time.
// Errors: those of the store but kDataLoss, which is a fault: what could not be read nothing can be
//         said of. kCancelled - goes_on() said so.
// Thread-safety: thread-safe where `options.online`, else nobody else may use the volume.
// Blocking: disk I/O, as long as all of it takes.
absl::StatusOr<CheckReport> CheckVolume(ObjectTable& table, const CheckOptions& options);

// The same of the store on a disk that nobody uses. Without CheckOptions::repair nothing of the
// disk is changed: what opening a store after a crash changes is in memory. First it looks at what
// the store knows of itself (store_repair.h). That the store cannot be opened is a fault as well,
// where it is damaged. Errors: as CheckVolume(), and LocalObjectStore::Open().
absl::StatusOr<CheckReport> CheckVolumeOn(Disk& disk, const CheckOptions& options);

// Of a volume that clients work with. Names that lead nowhere, and counts, are not made right here:
// a client commits the transactions. Of a LocalObjectStore also LocalObjectStore::Examine(). Of a
// shard also what there is to be compared with the others.
absl::StatusOr<OnlineCheck> CheckOnline(ObjectTable& table, CheckOptions options);

// Looks at the columns that a server keeps of a volume: their records, and with `data` their bytes.
// It repairs nothing: the other columns have what it needs (abacus scrub). Faults and counts are
// added to `report`. ...On() repairs of the store itself what it can without loss (store_repair.h).
absl::Status CheckColumns(ObjectStore& store, const CheckOptions& options, CheckReport* report);
absl::Status CheckColumnsOn(Disk& disk, const CheckOptions& options, CheckReport* report);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_CHECKER_H_
