#ifndef ABACUS_OBJFS_REPLICA_REPLICA_STORE_H_
#define ABACUS_OBJFS_REPLICA_REPLICA_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/replica/replica_operation.h"
#include "objfs/replica/replica_record.h"
#include "objfs/store/disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/shared_gate.h"
#include "objfs/store/turns.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

// The copy of a volume's object store at another server. The primary (ReplicatedStore) brings it
// what it does itself, in the same order; when the primary dies the copy is promoted: Retire(),
// then OpenPrimaryStore() on the same disk.
//
// Invariants:
// 1. What comes under a lower epoch than one that was seen changes nothing, however late it comes,
//    and after restarts too; within an epoch, what comes of an earlier session.
// 2. Operations are applied in the order of their numbers, each once. Where one is missing, or the
//    store refuses one, the copy is not whole any more, durably, before anything else.
// 3. A copy that is not whole becomes so by a resync to its end alone, and durably; before the
//    first change of a resync it is durably not whole.
//
// Errors of every call of a primary:
//   kPermissionDenied   - a later epoch or session was seen: this primary is one no more.
//   kFailedPrecondition - Begin() first: the copy was opened anew, or a change failed or is missing
//                         since.
//   those of the store. A call that fails with one may have changed something.
// Thread-safety: thread-safe; changes one after the other. Blocking: disk I/O.
class ReplicaStore final : public runtime::AnchoredObject {
 public:
  // At most so many blocks are described at once.
  static constexpr uint64_t kDescribedMax = 1024;

  // Opens the copy in a directory, an empty one, or what an old primary left: that is not whole.
  // Errors: those of LocalObjectStore::Open() and ReplicaRecord::Load().
  static absl::StatusOr<std::unique_ptr<ReplicaStore>> Open(std::shared_ptr<Disk> disk,
                                                            LocalObjectStoreOptions options);
  ~ReplicaStore() override;

  // -- for who wires it, at the copy's server ----------------------------------------------------

  // Ends it for a promotion in `epoch`: when it returns the old primary gets nothing acknowledged
  // here any more, what it had brought is durable as far as the disk allows, and the directory is
  // free for OpenPrimaryStore() with the same epoch. Every later call is kPermissionDenied.
  // Errors: kFailedPrecondition - not whole, or `epoch` is not above all that were seen; the copy
  //         goes on.
  absl::Status Retire(uint64_t epoch);
  // The map calls this copy current, and another server the primary. What this server left when it
  // was the primary itself is whole then: whoever began after it has given up, and acknowledged
  // nothing. Does nothing where a primary has begun a session here since. Blocking: no.
  void BelieveWhatWasLeft();

  // -- for anybody -------------------------------------------------------------------------------

  absl::StatusOr<ReplicaState> State();

  // -- for the primary ---------------------------------------------------------------------------

  // A session of a primary begins; its operations are numbered from 1. `session` is above that of
  // every earlier one of the epoch. Returns the state before it.
  absl::StatusOr<ReplicaState> Begin(uint64_t epoch, uint64_t session);
  absl::Status Apply(uint64_t epoch, uint64_t session, const ReplicaBatch& batch);
  // Up to `count_max` objects above `after`, rising.
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max);
  // An object, and `count` of its blocks from `first` on, with digests where asked for.
  absl::StatusOr<ReplicaObject> Describe(ObjectId id, uint64_t first, uint64_t count, bool digests);
  // A whole block: 8192 bytes, zeros behind the end of the object.
  absl::StatusOr<runtime::Block> ReadBlock(ObjectId id, uint64_t block);
  // Puts a damaged block back, as LocalObjectStore::PutBack(): whoever brings it, and whenever,
  // nothing else is taken than what the copy had there.
  absl::Status PutBack(ObjectId id, uint64_t block, const runtime::Block& bytes);

  ABACUS_OBJECT(ReplicaStore, "objfs.ReplicaStore", 1, State, Begin, Apply, List, Describe,
                ReadBlock, PutBack)

 private:
  ReplicaStore(std::shared_ptr<Disk> disk, std::unique_ptr<LocalObjectStore> store,
               ReplicaRecord record);

  // Errors: kPermissionDenied - retired.
  absl::Status CheckOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSession(uint64_t epoch, uint64_t session);
  // Durable first, then in memory. In the turn.
  absl::Status SetRecord(ReplicaRecord record);
  absl::Status SetWhole(bool is_whole);
  absl::Status ApplyAll(const ReplicaBatch& batch);
  absl::Status ApplyOne(const ReplicaOperation& operation);
  absl::Status MakeAnew(const ReplicaOperation& operation);
  absl::Status Flush(const ReplicaBatch& batch);
  // This session brings nothing any more.
  absl::Status Broken(absl::Status why);
  absl::Status DescribeBlocks(ObjectId id, uint64_t first, uint64_t count, bool digests,
                              ReplicaObject* object);

  const std::shared_ptr<Disk> disk_;
  std::unique_ptr<LocalObjectStore> store_;  // constant while `users_` is entered
  SharedGate users_;                         // exclusive: the store is closed
  Turns changes_;                            // one turn for all
  runtime::Mutex mutex_;
  ReplicaRecord record_ ABSL_GUARDED_BY(mutex_);  // changed in the turn; believed at any time
  uint64_t session_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t applied_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_broken_ ABSL_GUARDED_BY(mutex_) = true;  // until Begin()
  bool is_retired_ ABSL_GUARDED_BY(mutex_) = false;
  // A session has made it whole: its changes leave it so.
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICA_STORE_H_
