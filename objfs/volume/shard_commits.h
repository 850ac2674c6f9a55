#ifndef ABACUS_OBJFS_VOLUME_SHARD_COMMITS_H_
#define ABACUS_OBJFS_VOLUME_SHARD_COMMITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/volume/callbacks.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/shard_records.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/codec.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What one of the other shards does of a transaction.
struct ShardTransaction {
  uint32_t shard = 0;
  uint16_t writer = 0;  // the client's number there
  Transaction transaction;
  // VolumeInfo::life of what the client has joined there: in a later one its number is another
  // client's. 0: whichever it is.
  uint64_t life = 0;
  ABACUS_FIELDS(shard, writer, transaction, life)
};

// Asks a shard to be ready to commit its part, whatever happens to it meanwhile.
struct ShardPrepare {
  ShardGroup group = 0;
  uint32_t coordinator = 0;  // a shard
  uint16_t writer = 0;
  Transaction transaction;
  uint64_t life = 0;  // as the client has told it
  ABACUS_FIELDS(group, coordinator, writer, transaction, life)
};

enum class ShardDecision : uint8_t {
  kUndecided = 0,  // ask again
  kCommitted,
  kAborted,  // of whatever the coordinator does not know: presumed abort
};

// The calls of shards to each other. Thread-safety: thread-safe. Blocking: for messages and disks.
// Errors: those of the other shard, and of the way to it.
class ShardPeers {
 public:
  virtual ~ShardPeers() = default;
  virtual absl::StatusOr<Outcome> Prepare(uint32_t shard, const ShardPrepare& prepare) = 0;
  // Returns what its objects are then; none, where it had done so before.
  virtual absl::StatusOr<Outcome> Decide(uint32_t shard, ShardGroup group, bool commits) = 0;
  virtual absl::StatusOr<ShardDecision> DecisionOf(uint32_t shard, ShardGroup group) = 0;
  // Returns OK once none of these is prepared there any more, and what they changed is durable.
  virtual absl::Status Settle(uint32_t shard, const std::vector<ShardGroup>& groups) = 0;
};

// What Commit() answers where another shard cannot be asked, or knows the client no more (its
// server was started again, or another one answers for it): nothing was done. The client sees to
// its joining of that shard, and asks again. It is kUnavailable, and comes through as what it is.
absl::Status ShardIsAway(uint32_t shard, const absl::Status& why);
// nullopt: the status is another one.
std::optional<uint32_t> ShardThatIsAway(const absl::Status& status);

// Transactions over several shards of a volume, at one of them: each happens wholly or not at all,
// whoever dies.
//
//   client -> coordinator: Commit(own part, the others')
//     1. it holds its own objects (ObjectTable::Hold): as they were read, and changed by nobody
//     2. Prepare -> each other shard: holds its objects, writes a record of its part, durable
//     3. it commits its own part, and in the same step of its store a record that says so; durable:
//        THE COMMIT POINT. Any refusal before it: all that were asked are told to abort.
//     4. Decide -> each other shard: commits its part, and removes its record in the same step
//     5. later, when that is durable everywhere: its own record goes
//
// What is held cannot be changed by other transactions, which are told to come again; bytes of
// files can. Nobody waits for what is held, so there are no deadlocks.
//
// Who is in doubt, as the coordinator died or nobody heard of it, asks the coordinator: that shard,
// whichever server answers for it then. Records are objects' contents of the store, so a copy has
// them too. Presumed abort: of what it has no record, and is not doing, the coordinator says that
// it is aborted. That is right, as its record goes only when nobody is in doubt any more; and as
// who does not serve (Host::serves) answers nothing, after it looked.
//
// What is seen before all have committed: the coordinator's part is seen first. So the client
// chooses it (fs/across_shards.cc): a name that comes is seen after what it leads to, and one that
// goes is gone before that. While a file is renamed both names are there for a moment, never none;
// of two that are exchanged one may be gone.
//
// Invariants:
// 1. All shards of a group come to the same end, and to commit only where all prepared.
// 2. What Commit() acknowledged is durable at its coordinator, and prepared or committed, durably,
//    at the others.
// 3. A group that nobody can decide blocks transactions of its own objects only.
// Thread-safety: thread-safe. Blocking: disk I/O, and for other shards (Commit(), Tick()); never
// for a client. No lock is held over a call.
// Source: two-phase commit with presumed abort (Mohan, Lindsay, Obermarck 1986); paper, section
// 4.3.1, CommitAction.
class ShardCommits {
 public:
  // Of the slots for records. Each kind has its share: else shards that wait for slots of each
  // other could have all of their own taken.
  static constexpr size_t kPreparedMax = 24;
  // Of one coordinator: others find some where it is away, and its groups stay.
  static constexpr size_t kPreparedOfOneMax = kPreparedMax / 2;
  static constexpr size_t kCoordinatedMax = ShardRecords::kSlots - kPreparedMax;

  struct Options {
    uint32_t shard = 0;
    // Another shard that does not answer is told for so long that a group is committed, before the
    // client is; it will hear of it later. A server that ends may have to wait for that.
    absl::Duration patience = absl::Seconds(5);
    // Who has prepared and hears nothing asks after this time.
    absl::Duration ask_after = absl::Seconds(2);
  };
  struct Host {
    std::shared_ptr<ShardPeers> peers;
    // OK where this server answers for the shard now. May not block.
    std::function<absl::Status()> serves;
    // Callbacks::BeginAlter: nobody may know of the objects what is about to change.
    std::function<absl::StatusOr<Callbacks::Alteration>(std::vector<ObjectId> ids, uint16_t writer)>
        begin_alter;
    // Callbacks::GoOnAltering.
    std::function<Callbacks::Alteration(std::vector<ObjectId> ids)> go_on_altering;
    // Is told of objects that are held no more, for those who were refused. May not block.
    std::function<void(const std::vector<ObjectId>& ids)> released;
    std::function<int64_t()> steady_ns;
    // Between two tries; false: this is to end.
    std::function<bool(absl::Duration)> rest;
  };
  // `records`: with what an earlier one of this store has left.
  // Makes what is prepared held again. REQUIRES: nobody has changed anything of `table` yet.
  static absl::StatusOr<std::unique_ptr<ShardCommits>> Make(Options options, Host host,
                                                            std::shared_ptr<ObjectTable> table,
                                                            std::unique_ptr<ShardRecords> records);

  // -- as the coordinator ------------------------------------------------------------------------

  // One outcome for all: `nodes` has those of all shards that answered. The object that the own
  // part makes, if it makes one, is reserved and has its columns chosen (Volume::CommitMaking).
  // Errors: IsWouldBlock() - an object is held, or known to other clients, here or elsewhere, or
  //         too many groups are under way; nothing was done, come again. ShardThatIsAway().
  //         IsOutcomeUnknown() - the own part was done, and could not be made durable: it will be
  //         wholly done or not at all. As ObjectTable::Commit(), of whichever shard.
  //         kInvalidArgument - a shard twice, or this one; or another one is to make an object, or
  //         to close one.
  absl::StatusOr<Outcome> Commit(uint16_t writer, const Transaction& own,
                                 const std::vector<ShardTransaction>& others);
  absl::StatusOr<ShardDecision> DecisionOf(ShardGroup group);

  // -- as one of the others ----------------------------------------------------------------------

  // A second time: as it was answered, for as long as it is prepared.
  absl::StatusOr<Outcome> Prepare(const ShardPrepare& prepare);
  // Errors: kUnavailable - somebody is about to do so; ask again. Those of the store: it is tried
  //         again.
  absl::StatusOr<Outcome> Decide(ShardGroup group, bool commits);
  // Errors: kFailedPrecondition - one of them is prepared yet.
  absl::Status Settle(const std::vector<ShardGroup>& groups);

  // Asks for what is in doubt, tells what was not heard, forgets what is settled. To be called now
  // and then, by one thread; not needed for what goes well but to forget it.
  void Tick();
  // Groups that this shard has prepared, and of which it does not know the end.
  size_t in_doubt();
  // Those of them that were prepared before its store was opened.
  size_t in_doubt_from_before();
  size_t records_used() { return records_->used(); }

 private:
  struct Prepared {
    ShardPrepare prepare;  // constant while it is in the map
    ShardRecords::Slot slot = 0;
    int64_t since_ns = 0;
    std::optional<Callbacks::Alteration> alteration;
    bool from_before = false;  // the store was opened with it
    bool preparing = false;    // Prepare() has not answered yet
    bool called_off = false;   // it is aborted, and that is to be carried out
    bool deciding = false;     // somebody carries the decision out
  };
  struct Decided {
    ShardRecords::Slot slot = 0;
    std::set<uint32_t> untold;  // shards that have not answered Decide() yet
    std::vector<uint32_t> shards;
    bool durable = false;
    bool telling = false;  // Commit() has not answered yet
  };
  using Others = std::map<uint32_t, const ShardTransaction*>;  // by shard

  ShardCommits(Options options, Host host, std::shared_ptr<ObjectTable> table,
               std::unique_ptr<ShardRecords> records);
  absl::Status TakeUp();
  absl::StatusOr<Others> InOrder(const std::vector<ShardTransaction>& others) const;
  // Whether there is space now that what was removed takes none any more.
  bool MadeRoom(const absl::Status& refused);
  // Errors: IsWouldBlock() - all slots are taken. kResourceExhausted - the record is too large.
  absl::StatusOr<ShardRecords::Slot> TakeSlot(const ShardRecord& record,
                                              ShardRecords::Change* change);

  absl::Status BeginGroup(ShardGroup group);
  // Up to the own part, which is seen then and not durable yet. Where it is not committed, `asked`
  // are those that are to be told so.
  absl::StatusOr<Outcome> CommitHere(ShardGroup group, uint16_t writer, const Transaction& own,
                                     const Others& others, std::vector<uint32_t>* asked);
  absl::StatusOr<Outcome> AskOthers(ShardGroup group, const Others& others,
                                    std::vector<uint32_t>* asked);
  absl::StatusOr<Outcome> CommitOwn(ShardGroup group, uint16_t writer, const Transaction& own,
                                    const Others& others);
  // It is aborted; tells all of `asked`, as far as they answer; the others ask.
  void Abort(ShardGroup group, const std::vector<uint32_t>& asked);
  // Those that this shard has decided; the commit point.
  absl::Status MakeDecisionsDurable();
  // Phase two, for as long as Options::patience; adds what the shards answer to `outcome`.
  void Tell(ShardGroup group, absl::Duration patience, Outcome* outcome);
  // `outcome` may be null.
  absl::Status TellOne(ShardGroup group, uint32_t shard, Outcome* outcome);
  std::set<uint32_t> Untold(ShardGroup group);
  void EndTelling(ShardGroup group);

  // Whether it may be prepared now, and then `group` is in prepared_; OK with false: it was before.
  absl::StatusOr<bool> BeginPrepare(const ShardPrepare& prepare);
  // Holds the objects, and has a record of that in the store, which is not durable yet.
  absl::StatusOr<Outcome> HoldFor(const ShardPrepare& prepare);
  absl::Status EndPrepare(ShardGroup group, absl::Status durable);
  // Does with the store, and the table, what was decided.
  absl::StatusOr<Outcome> DoPart(const Prepared& prepared, bool commits);
  absl::StatusOr<Outcome> CarryOut(ShardGroup group, bool commits);

  // The steps of a look. `silent`: shards that did not answer in it, and are asked no more.
  void AskForWhatIsInDoubt(std::set<uint32_t>* silent);
  void TellWhatIsUntold(std::set<uint32_t>* silent);
  void ForgetWhatIsSettled(const std::set<uint32_t>& silent);
  // Those of `groups` that this shard has settled.
  std::vector<ShardGroup> SettledAt(uint32_t shard, const std::vector<ShardGroup>& groups);
  void Forget(ShardGroup group);

  const Options options_;
  const Host host_;
  const std::shared_ptr<ObjectTable> table_;
  const std::unique_ptr<ShardRecords> records_;

  runtime::Mutex mutex_;
  std::set<ShardGroup> undecided_ ABSL_GUARDED_BY(mutex_);  // this one coordinates them
  std::map<ShardGroup, Decided> decided_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardGroup, Prepared> prepared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SHARD_COMMITS_H_
