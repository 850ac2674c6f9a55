#ifndef ABACUS_OBJFS_VOLUME_OBJECT_TABLE_H_
#define ABACUS_OBJFS_VOLUME_OBJECT_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"
#include "objfs/store/turns.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The inodes of a volume over its object store: orders what changes them, and removes those that
// nobody needs any more. It knows nothing of the runtime; volume.h puts it before the clients.
//
// Invariants: those of Volume, and:
// 1. Each change has a version greater than every earlier one of this volume.
// 2. A write to an open object changes its times in memory; they reach the store with the next
//    change of the inode, with Flush(), or when it is closed.
// Thread-safety: thread-safe. Blocking: disk I/O, and while another change of the object lasts.
// Lock order: a turn, then mutex_; no store call under mutex_.
class ObjectTable {
 public:
  // `whole_read_sets`: Volume::Options.
  ObjectTable(std::shared_ptr<ObjectStore> store, std::function<int64_t()> now_ns,
              bool whole_read_sets = false);

  ObjectStore& store() { return *store_; }
  std::shared_ptr<ObjectStore> shared_store() const { return store_; }

  // Id 0 where there is none.
  absl::StatusOr<Node> Stat(ObjectId id);
  absl::StatusOr<Node> Make(uint16_t writer, const Inode& inode, std::string_view contents);
  absl::StatusOr<ObjectId> Reserve() { return store_->Reserve(); }
  // Takes back what a Commit() that failed has made. Errors: kNotFound - it had not come to that.
  // kFailedPrecondition - it is open, or held.
  absl::Status Discard(ObjectId id);
  // What it makes is open by `writer` where its creation says so. Where the store refuses the
  // whole, the object may be there without a name: it is tried again, or Discard().
  absl::StatusOr<Outcome> Commit(uint16_t writer, const Transaction& transaction);
  absl::StatusOr<Node> Change(uint16_t writer, ObjectId id, const InodeChange& change);

  // -- transactions that other tables take part in (shard_commits.h) -----------------------------

  // Whether Commit() would commit it now, and then it stays so: its objects, and the tree where it
  // changes that, are held for `group`. Other transactions of them are answered IsWouldBlock(),
  // until CommitHeld() or Release(); what changes bytes or columns alone goes on. Nothing is
  // changed. One state of the outcome refuses it, as of Commit(), and no more is in there.
  // Errors: IsWouldBlock() - one of its objects is held for another group.
  absl::StatusOr<Outcome> Hold(uint16_t writer, const Transaction& transaction, uint64_t group);
  // Of a transaction that was held when the store was closed: no question is asked. What loses its
  // name by it may have been open then, and is not removed before CollectOrphans() is called.
  void HoldAgain(const Transaction& transaction, uint64_t group);
  // Commits what is held for `group`, as Commit() does, with `beside` in the same step of the
  // store; what it holds is held no more. Where the store refuses it, it is held as before.
  absl::StatusOr<Outcome> CommitHeld(uint16_t writer, const Transaction& transaction,
                                     uint64_t group, const ObjectUpdate& beside);
  void Release(const Transaction& transaction, uint64_t group);
  // The clients whose transactions were refused for these being held, each told once; and those
  // that were for the tree, where nobody holds it now.
  std::vector<uint16_t> TakeRefused(const std::vector<ObjectId>& ids);
  // A step of the store that is no transaction of clients'.
  absl::Status Put(const ObjectUpdate& update);
  // Nobody is given it, and it is no object's: the name of a group.
  absl::StatusOr<uint64_t> NewGroup() { return store_->Reserve(); }

  // Which columns of a file lack something (Inode::lacking). Not durable yet.
  absl::Status SetLacking(ObjectId id, const std::vector<uint32_t>& lacking);
  // The file's column at server `from` is at `to` from now on. Not durable yet.
  // Errors: kNotFound - it has none there.
  absl::Status MoveColumn(ObjectId id, uint32_t from, uint32_t to);
  // What a reader of some of a directory's blocks is to take for their version, where all of them
  // count as read: that of the newest block; 0 where none was ever written. nullopt: each block's
  // own. Asked for before the blocks are read, so that no change goes unnoticed.
  absl::StatusOr<std::optional<Version>> VersionOfAll(ObjectId id);
  uint64_t TreeVersion() const { return tree_.load(); }
  // Calls `look` while nobody changes the object.
  absl::Status InTurn(ObjectId id, const std::function<absl::Status()>& look);
  // Greater than all that were given before.
  Version NextVersion() { return Next(0); }
  // Is told of files with columns that are no more; may not block. Null: nobody.
  using Removed = std::function<void(ObjectId id, const std::vector<uint32_t>& columns)>;
  void OnRemoved(Removed removed);

  // -- open objects ------------------------------------------------------------------------------

  // Counts an opening by `writer`; true where it is the first of all.
  absl::StatusOr<bool> Open(uint16_t writer, ObjectId id);
  // True where it was the last of all. Errors: kFailedPrecondition - it was not open.
  absl::StatusOr<bool> Close(uint16_t writer, ObjectId id);
  bool IsOpenBy(uint16_t writer, ObjectId id);
  // What `writer` has open, each as often as it is.
  std::vector<ObjectId> OpenedBy(uint16_t writer);

  // Runs a change of an object's bytes in its turn, with the version that it is to have. Its times
  // become now.
  absl::Status ChangeBytes(uint16_t writer, ObjectId id,
                           const std::function<absl::Status(Version)>& change);
  // `writer` tells that it had written at `when_ns` what it brought by ChangeBytes() before: that
  // is then the time of the modification. Ignored where somebody else has changed the bytes or set
  // that time since, and where it is not newer than what the time was before those changes: what is
  // told late sets no time back.
  absl::Status ToldWhenWritten(uint16_t writer, ObjectId id, int64_t when_ns);

  // -- what becomes durable, and what is removed -------------------------------------------------

  // These objects, and all names: what transactions did, to whatever object. All of it becomes
  // durable in one step, so that each transaction is on the disk wholly or not at all. Contents
  // that an object was made with, those of a symbolic link, are there before its name or with it;
  // where they are lost (a failed sync), the flushes of that step say so and no name waits.
  absl::Status Flush(std::span<const ObjectId> ids);
  absl::Status Flush(ObjectId id) { return Flush(std::span(&id, 1)); }
  // Flushes all, then removes the objects without a name. Where names cannot become durable nothing
  // is removed.
  absl::Status FlushAndRemove();
  // How many wait for it.
  size_t waiting_removals();
  // Has those removed of the `count_max` objects behind `after` that have no name, and that nobody
  // has open: they were open, or not yet removed, when a server died. Returns where to go on;
  // nullopt: these were the last. Why no list of them on the disk: nothing has to be kept in step
  // with the counts of names, and nobody waits for the search.
  absl::StatusOr<std::optional<ObjectId>> CollectOrphans(ObjectId after, uint64_t count_max);

 private:
  // Takes part in the turns of transactions that move directories, and is held; no object has it.
  static constexpr ObjectId kTreeTurn = 0;
  struct Opened {
    std::map<uint16_t, uint32_t> by;  // writer: how often
    // Of bytes that were written; 0: the inode has it.
    int64_t modified_ns = 0, changed_ns = 0;
    // Who wrote the newest bytes, where nobody has set the time of the modification since; else 0.
    uint16_t newest_by = 0;
    // What that time was before, or what that client has told: it may tell newer ones.
    int64_t newer_than_ns = 0;
  };
  // What a transaction comes to: its nodes, and what the store is to do for it.
  struct Plan {
    Outcome outcome;                    // without a version
    std::vector<ObjectUpdate> updates;  // valid as long as the transaction
  };
  // In the turns of its objects. `is_held`: it was looked at when it was held, and stays as it was.
  absl::StatusOr<Plan> PlanOf(const Transaction& transaction, bool is_held);
  // Commit(), in the turns of its objects. `beside`, where there is one, goes into the same step,
  // and the objects are held.
  absl::StatusOr<Outcome> CommitInTurn(uint16_t writer, const Transaction& transaction,
                                       const ObjectUpdate* beside);
  // The objects that it has to do with, for turns: kTreeTurn too, where it changes the tree.
  static std::vector<ObjectId> TurnsOf(const Transaction& transaction);
  // Errors: IsWouldBlock() - one of them is held, for another group than this one.
  absl::Status CheckNotHeld(const std::vector<ObjectId>& ids, uint16_t writer, uint64_t group);
  // Errors: kFailedPrecondition - one of them is not held for it.
  absl::Status CheckHeld(const std::vector<ObjectId>& ids, uint64_t group);
  // An inode as it is now, with the times of its last write. nullopt: there is none.
  absl::StatusOr<std::optional<Node>> Load(ObjectId id);
  Version Next(uint16_t writer);
  // The object of a part as it is before: read, or as it is to be made.
  absl::StatusOr<std::optional<Node>> LoadPart(const Part& part, int64_t now_ns);
  // Before the step that gives it a name. Until then it has no links: whoever looks for what a
  // crash left behind removes it.
  absl::Status MakePart(uint16_t writer, const Part& part);
  void UndoOpen(uint16_t writer, const Part& part);
  // The state that refuses the part; kCommitted where none does.
  absl::StatusOr<CommitState> CheckPart(const Part& part, const Node& node);
  absl::StatusOr<bool> IsNewest(const RangeVersion& read, const Node& node);
  absl::StatusOr<VersionNumber> NewestOf(ObjectId id, Range range, uint64_t size);
  // Whether a change of the object rests on all of it.
  bool IsOneReadSet(const Node& node) const { return whole_read_sets_ && node.inode.IsDirectory(); }
  void Written(uint16_t writer, ObjectId id, int64_t modified_before_ns);
  // The inode has the times.
  void ForgetWritten(ObjectId id);
  // Somebody has set the time of the modification.
  void ForgetWriter(ObjectId id);
  bool IsNewestBy(uint16_t writer, ObjectId id);
  // Has it removed when nobody has it open any more.
  void LostItsName(ObjectId id);
  // In the object's turn.
  absl::Status SaveTimes(ObjectId id);
  absl::Status SaveAllTimes();
  // Unless it is open or has a name by now; what is held, or awaited, stays for later.
  absl::Status RemoveNow(ObjectId id);
  absl::Status RemoveFromStore(ObjectId id, const std::vector<uint32_t>& columns);

  const std::shared_ptr<ObjectStore> store_;
  const std::function<int64_t()> now_ns_;
  const bool whole_read_sets_;
  HybridClock clock_;
  Turns turns_;
  // Begins anywhere: a value from before a restart, which a transaction of another table may name,
  // is not given a second time.
  std::atomic<uint64_t> tree_;

  runtime::Mutex mutex_;
  absl::flat_hash_map<ObjectId, Opened> opened_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<ObjectId> removals_ ABSL_GUARDED_BY(mutex_);
  Removed on_removed_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ObjectId, uint64_t> held_ ABSL_GUARDED_BY(mutex_);  // for which group
  // By HoldAgain(): clients may open them again.
  absl::flat_hash_set<ObjectId> awaited_ ABSL_GUARDED_BY(mutex_);
  std::map<ObjectId, std::set<uint16_t>> refused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_OBJECT_TABLE_H_
