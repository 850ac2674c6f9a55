#ifndef ABACUS_OBJFS_REPLICA_STORE_SCRUB_H_
#define ABACUS_OBJFS_REPLICA_STORE_SCRUB_H_

// Reading all that a store has, so that what rots is met while there is something to repair it
// from.

#include <cstdint>

#include "absl/status/statusor.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// How far a scrub of a store is: all objects below `id` are done, and of that one, if there is one,
// the bytes below `offset`.
struct StorePlace {
  ObjectId id = 0;
  uint64_t offset = 0;
  bool copy_missed = false;  // of some of these the copy was not looked at
  ABACUS_FIELDS(id, offset, copy_missed)
  friend bool operator==(const StorePlace&, const StorePlace&) = default;
};

// What a step of it found.
struct StoreScrub {
  StorePlace next;                // where to go on
  bool done = false;              // there is nothing behind it
  uint64_t bytes = 0;             // that it read, or may have read, of the disk
  uint64_t objects = 0;           // whose end it came to
  uint64_t repaired = 0;          // blocks that were put back meanwhile, by it or by another reader
  uint64_t damaged = 0;           // blocks that are damaged and were not put back
  uint64_t objects_failed = 0;    // that cannot be used, or could not be read to their end
  uint64_t objects_repaired = 0;  // of damaged tables, as blocks in `repaired`
  // At the copy, where the store is to have one.
  uint64_t copy_objects = 0;   // whose end it came to there
  uint64_t copy_missed = 0;    // of which it missed some: the copy is away, or not up to date
  uint64_t copy_repaired = 0;  // blocks that were put back there
  uint64_t copy_damaged = 0;   // blocks that were not; an object that cannot be used counts as one
  ABACUS_FIELDS(next, done, bytes, objects, repaired, damaged, objects_failed, objects_repaired,
                copy_objects, copy_missed, copy_repaired, copy_damaged)
};

// Reads some of what the store has from `from` on: attributes and blocks. A ReplicatedStore puts
// back what is damaged, where its copy has it, and has its copy read the same and puts back what is
// damaged there (ReplicatedStore::CheckCopy()); blocks that are put back are durable with the
// object's next flush. What is removed meanwhile is passed over.
// Errors: those of ObjectStore::List(); what is the matter with an object is counted.
// Thread-safety: thread-safe. Blocking: disk I/O, and calls to the copy.
// Limits: it reads some 1 MiB; its caller paces.
absl::StatusOr<StoreScrub> ScrubSome(ObjectStore& store, const StorePlace& from);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_STORE_SCRUB_H_
