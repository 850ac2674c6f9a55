#ifndef ABACUS_OBJFS_VOLUME_VOLUME_H_
#define ABACUS_OBJFS_VOLUME_VOLUME_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/check/report.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/replica/store_scrub.h"
#include "objfs/spread/column_servers.h"
#include "objfs/spread/column_store.h"
#include "objfs/storage/storage_layer.h"
#include "objfs/store/object_store.h"
#include "objfs/store/turns.h"
#include "objfs/volume/callbacks.h"
#include "objfs/volume/client_end.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/isolation_layer.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_commits.h"
#include "objfs/volume/transaction.h"
#include "objfs/volume/volume_locks.h"
#include "objfs/volume/witness_layer.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// An extended attribute of a volume's root: Volume::KeepFileStack().
inline constexpr char kFileStackXattr[] = "abacus.file-stack";

// Whether it is one of those that no program can set, or sees.
inline bool IsServersXattr(std::string_view name) {
  return name == kShardsXattr || name == kFileStackXattr;
}

// What a client is told when it begins with a volume.
struct VolumeInfo {
  std::string name;
  ObjectId root = 0;
  uint16_t writer = 0;  // the client's, in versions
  std::string file_stack, directory_stack;
  int64_t lease_ns = 0;  // a client that was silent for so long may have lost its promises
  int64_t born_ns = 0;   // when the volume was made, since 1970: which one of this name it is
  // The servers that files may be spread over, the first of which has the inodes; none: they are
  // not.
  std::vector<std::string> servers;
  // How long the volume may be away until another of its servers answers for it; 0: none will.
  int64_t takeover_ns = 0;
  int64_t promised_ns = 0;  // as from Renew()
  // How many shards the volume has (shard.h), of which this is one; a client joins each of them.
  uint32_t shards = 1;
  // Tells the volume's openings apart: a client's number is another client's after the next one.
  uint64_t life = 0;
  uint64_t volume = 0;  // ShardState::volume; 0: it has one shard
  // Of files that are made from now on, where nobody says another one; empty: nobody has chosen it.
  // `file_stack` is that of files whose inode has none.
  std::string own_file_stack;
  ABACUS_FIELDS(name, root, writer, file_stack, directory_stack, lease_ns, born_ns, servers,
                takeover_ns, promised_ns, shards, life, volume, own_file_stack)
};

// Files with columns, and where to go on looking for more.
struct SpreadFiles {
  std::vector<Node> files;
  ObjectId next = 0;
  // Of files that were passed and have none: how many have bytes, and how many of the disk's. They
  // are where the inodes are.
  uint64_t others = 0, other_bytes = 0;
  ABACUS_FIELDS(files, next, others, other_bytes)
};

// The columns of a file, for the client that has been promised to be the only one that writes it.
struct OpenedColumns {
  std::vector<runtime::Ref<Layer>> columns;  // in their order; some may answer kUnavailable
  uint64_t size = 0;                         // of the file, as its inode has it
  runtime::Ref<Layer> witness;               // of which of them lack something (witness_layer.h)
  // Bytes of the columns that were written while the file was shared, and that a column which does
  // not answer lacks, or may lack (ColumnsLayer::NoteMissed).
  std::vector<Range> missed;
  ABACUS_FIELDS(columns, size, witness, missed)
};

// A column of a file is to be at another of the volume's servers.
struct ColumnMove {
  uint32_t from = 0, to = 0;  // servers
  uint64_t copy = 0;          // of the column at `to` (ColumnStore::CopyFrom); 0: none was begun
  ABACUS_FIELDS(from, to, copy)
};

struct VolumeSpace {
  uint64_t block_bytes = 0;
  uint64_t capacity_bytes = 0, available_bytes = 0;
  uint64_t objects = 0;
  // Since the server began.
  uint64_t damaged = 0;  // reads that met wrong bytes on the disk, and were errors therefore
  uint64_t refused = 0;  // changes that there was no space for, or that the quota forbids
  ABACUS_FIELDS(block_bytes, capacity_bytes, available_bytes, objects, damaged, refused)
};

// Transactions since the volume was opened.
struct CommitCounts {
  uint64_t committed = 0;
  // Refused because another client had changed what was read: each is a retry (paper, table 1).
  uint64_t stale = 0;
  ABACUS_FIELDS(committed, stale)
};

// A volume's server side: where its inodes are made, changed and removed, and where transactions
// are put in an order. One for all clients, anchored at the volume's store.
//
// Invariants:
// 1. Transactions and changes of one object happen one after the other, each seen whole by every
//    Stat() and transaction that begins after it; their versions rise.
// 2. An inode without a name is removed when the last client that had it open has closed it or has
//    left, and not before.
// 3. The removal of a name is on the disk before the object behind it is removed.
//    What had no name and was open when the server died is looked for one lease after the start,
//    when clients that go on have opened it again, and is removed where nobody has.
// 4. What clients keep of files under promises is what was written last (callbacks.h).
// Errors: kNotFound - no such object. kResourceExhausted - no space. Those of the store.
// Thread-safety: thread-safe. Blocking: disk I/O; never for a client.
class Volume final : public runtime::AnchoredObject {
 public:
  // How the volume brings the lowest layers of files into the runtime.
  struct Host {
    std::function<runtime::Ref<Layer>(std::unique_ptr<StorageLayer>)> adopt_storage;
    std::function<runtime::Ref<Layer>(std::unique_ptr<IsolationLayer>)> adopt_isolation;
    std::function<void(const runtime::Ref<Layer>&)> end;
    std::function<int64_t()> now_ns;     // since 1970
    std::function<int64_t()> steady_ns;  // monotonic, for leases; empty: this machine's
    // The columns that one of Options::servers keeps for this volume; not asked without servers.
    std::function<absl::StatusOr<runtime::Ref<ColumnStore>>(size_t server)> find_columns;
    std::function<runtime::Ref<Layer>(std::unique_ptr<AbsentColumn>)> adopt_absent;
    // Looks at all of the volume (check/checker.h); empty: it cannot be looked at.
    std::function<absl::StatusOr<OnlineCheck>(ObjectTable& table, const CheckRequest& request)>
        check;
    std::function<runtime::Ref<Layer>(std::unique_ptr<WitnessLayer>)> adopt_witness;
    // Whether this server is the one that answers for the volume now; empty: it always is. While it
    // is not, all is refused as to no client (IsNoClient), who looks for the volume elsewhere. May
    // not block.
    std::function<bool()> may_serve;
    // How long from now no other server will answer for it; empty: for ever. May not block.
    std::function<int64_t()> serves_for_ns;
    // Another shard of this volume, where it is served now; empty: it has one only. May block for a
    // while.
    std::function<absl::StatusOr<runtime::Ref<Volume>>(uint32_t shard)> find_shard;
  };
  struct Options {
    std::string name;
    std::string file_stack = "isolation/storage";
    std::string directory_stack = "isolation/storage";
    // What nobody asked to be durable is so after this time.
    absl::Duration flush_interval = absl::Seconds(5);
    // A client that was silent for so long loses its promises to those who wait for them, and has
    // left after twice as long.
    absl::Duration lease = absl::Seconds(30);
    // How long nobody may keep what is known of an object that another client has just changed.
    absl::Duration quiet = absl::Seconds(1);
    // Where the columns of files may be; the first is this one. Null: files are not spread.
    std::shared_ptr<const ServerAddresses> servers;
    // That the volume's map has given this server, by which columns are opened: above each one in
    // which another server opened them. 0: there is no such map, nor another server.
    uint64_t epoch = 0;
    absl::Duration takeover = absl::ZeroDuration();  // VolumeInfo::takeover_ns
    // A change of a directory is refused where any of its blocks was changed since those that it
    // rests on were read: all are its readSet, as those of the paper's linear directories are
    // (section 4.3.1). For experiments; it costs retries and gains nothing.
    bool whole_read_sets = false;
  };
  static constexpr char kOwnClients[] = "\1";  // which no name in a configuration has
  static constexpr uint64_t kEpochMax = kIdEpochMax;

  // The volume that the store holds; makes its root directory where the store is new.
  // Errors: kFailedPrecondition - the store is of something else.
  static absl::StatusOr<std::unique_ptr<Volume>> Make(std::shared_ptr<ObjectStore> store,
                                                      Options options, Host host);
  ~Volume() override;

  // A client begins; `client` names it for people, and one whose name begins with kOwnClients is of
  // the server's own: it is not listed and keeps nobody from deleting the volume. Its number is
  // given again when all others were. At `end` it is told what breaks; without one it may keep
  // nothing.
  // Errors: kUnavailable - for seconds after the volume was opened: transactions with other shards
  //         were under way then, and their ends are being asked for.
  absl::StatusOr<VolumeInfo> Join(const std::string& client, const runtime::Ref<ClientEnd>& end);
  // The client lives, and what it was promised holds for another lease, or for as long as no other
  // server can come to answer for the volume, if that is less: for so many nanoseconds, counted
  // from when the client asked.
  // Errors: IsNoClient() - it has left, or was silent for too long. All calls of such a client that
  //         change something answer so, whatever it believes to have been promised.
  absl::StatusOr<int64_t> Renew(uint16_t writer);
  // All that the client has open is closed, and its locks go.
  absl::Status Leave(uint16_t writer);

  // In the order asked for; an object that is not there has id 0.
  absl::StatusOr<std::vector<Node>> Stat(const std::vector<ObjectId>& ids);
  // As Stat(), and what it tells may be kept until the client's end is told to forget it, where a
  // promise is given: the inode, and of a directory also what is read of its names after this call.
  // `returned`: what the client keeps no more.
  absl::StatusOr<KnownNodes> Know(uint16_t writer, const std::vector<ObjectId>& ids,
                                  const std::vector<KnownInode>& returned);
  // Returns OK once Stat() tells of all that was written before this call, also of what another
  // client keeps. Errors: IsWouldBlock().
  absl::Status Settle(uint16_t writer, ObjectId id);
  // A call about the object that was answered IsWouldBlock() has been served: the client takes no
  // turn that it had waited for.
  absl::Status Pass(uint16_t writer, ObjectId id);
  // Identifiers of objects that the client will make, each once (Part::creation).
  // Limits: `count` <= kReservedMax, and so many are remembered of a client's, the newest.
  absl::StatusOr<std::vector<ObjectId>> Reserve(uint16_t writer, uint32_t count);
  // This and Change() are refused as IsWouldBlock() while other clients have yet to forget what
  // they know of the objects; then the client's end is woken. What is told of an object that the
  // transaction makes may be kept as what Know() tells: so a client asks once for what it needs of
  // a new file. A refused one makes nothing.
  // Where the new file's stack has columns, their servers are chosen here, and stay.
  // Errors: kInvalidArgument - it makes more than one object. kFailedPrecondition - that one's
  // identifier is none that the client has reserved and not used yet, or its stack has more columns
  // than there are servers.
  absl::StatusOr<Outcome> Commit(uint16_t writer, const Transaction& transaction);
  // A transaction over several shards, which this one coordinates: its own part is seen first
  // (shard_commits.h). The own part may make one object, and none is opened.
  // Errors: as Commit(), of whichever shard; ShardThatIsAway() - as ShardCommits::Commit().
  //         kUnknown - what that one calls IsOutcomeUnknown(): not to be asked again. Of the server
  //         it says nothing. kFailedPrecondition - the volume has one shard only.
  absl::StatusOr<Outcome> CommitTogether(uint16_t writer, const Transaction& own,
                                         const std::vector<ShardTransaction>& others);
  // What a shard that coordinates one asks the others. `volume`, here and below: that of who asks
  // (ShardState). Errors: the runtime's kObjectNotFound - it is not this one's: a shard of that
  // volume is not here, and nothing is said of its groups.
  absl::StatusOr<Outcome> PrepareShard(uint64_t volume, const ShardPrepare& prepare);
  absl::StatusOr<Outcome> DecideShard(uint64_t volume, uint64_t group, bool commits);
  absl::Status SettleShards(uint64_t volume, const std::vector<uint64_t>& groups);
  // What the others ask it.
  absl::StatusOr<ShardDecision> DecisionOfShards(uint64_t volume, uint64_t group);
  // The volume has so many shards from now on, this one among them; durable. Once: before anybody
  // has joined. It takes 1 MiB of the volume's space, for records. `volume`: ShardState::volume,
  // the same for all of them. Errors: kFailedPrecondition - it has others of these numbers, or
  // clients. kInvalidArgument - it
  //         can have no such numbers.
  absl::Status BecomeShard(uint32_t shards, uint64_t volume);
  // How many it has.
  absl::StatusOr<uint32_t> Shards() { return shards_.load(); }
  // VolumeInfo's.
  absl::StatusOr<std::string> OwnFileStack();
  // Keeps VolumeInfo::own_file_stack, as text, durably. Whether clients can build it, and have
  // servers enough for it, is for who asks to know (CheckFileStack in fs/stack_rules.h).
  // Errors: kFailedPrecondition - it has clients, who would go on without it. kInvalidArgument - it
  //         is no stack. Those of the store.
  absl::Status KeepFileStack(const std::string& stack);

  // Changes of one inode that depend on nothing that was read.
  absl::StatusOr<Node> Change(uint16_t writer, ObjectId id, const InodeChange& change);
  // The bytes of the file that the client has brought last were written at `when_ns`; ignored where
  // what others changed since is newer (ObjectTable::ToldWhenWritten).
  absl::Status TellWhenWritten(uint16_t writer, ObjectId id, int64_t when_ns);
  absl::StatusOr<uint64_t> TreeVersion();

  // The object's lowest layer, and that the client needs it: it stays while it is open, with a name
  // or without. Each Open() needs a Close().
  absl::StatusOr<runtime::Ref<Layer>> Open(uint16_t writer, ObjectId id);
  absl::Status Close(uint16_t writer, ObjectId id);
  // The first error; all that can be are closed.
  absl::Status CloseAll(uint16_t writer, const std::vector<ObjectId>& ids);
  // The columns of a file that the client has open and has a promise to write. Whoever had them
  // before is shut out of them.
  // Errors: IsWouldBlock() - it has no such promise any more. kFailedPrecondition - the file has no
  //         columns, or is not open.
  absl::StatusOr<OpenedColumns> OpenColumns(uint16_t writer, ObjectId id);
  // The client's promise to write is one together from now on, and it and all others that have one
  // use the columns at once, by an opening that is made now. It lasts until the columns are opened
  // for one of them alone.
  // REQUIRES: the client has closed the columns clean, and told the file's size (CloseToShare).
  // Errors: IsWouldBlock() - it has no such promise any more, or one that is being broken; the
  //         columns are to be opened anew. kUnavailable - a column does not answer, its server has
  //         no log of groups, or their records are not of one moment: likewise, and the promise is
  //         as it was. kFailedPrecondition - as OpenColumns(). kResourceExhausted - all numbers of
  //         writers are used.
  absl::StatusOr<SharedColumns> BeginShared(uint16_t writer, ObjectId id);
  // The columns for one more client that has the file open and a promise together.
  // Errors: IsWouldBlock() - they are not shared any more: claim anew. kFailedPrecondition,
  //         kResourceExhausted - as BeginShared().
  absl::StatusOr<SharedColumns> OpenShared(uint16_t writer, ObjectId id);
  // Up to `count_max` files behind `after` that have columns, by rising identifiers, after looking
  // at as many objects; `next` is where to go on, 0 where these were the last.
  absl::StatusOr<SpreadFiles> Spread(ObjectId after, uint64_t count_max);
  // What one of the servers keeps for this volume.
  absl::StatusOr<runtime::Ref<ColumnStore>> ColumnsAt(uint64_t server);

  // Copies what the column at `to` lacks of that at `from`, and has the file use that one from then
  // on. Nobody uses the file's bytes meanwhile; whoever keeps something of it brings it before.
  // Whatever fails, the file has the one column or the other, and all of it; what was moved already
  // is OK again.
  // REQUIRES: the client has the file open.
  // Errors: IsWouldBlock() - others keep something of the file, and were told: ask again soon.
  //         kCancelled - the copy is to be begun anew. kUnavailable - one of the two servers does
  //         not answer, or a column has missed what was written to the others while the file was
  //         shared: to be opened for writing first. kAlreadyExists - the file has a column at `to`.
  //         kNotFound - it has none at `from`, nor at `to`. kDataLoss - a block of the column is
  //         damaged: a scrub repairs it.
  // Blocking: for the copying.
  absl::Status MoveColumn(uint16_t writer, ObjectId id, const ColumnMove& move);
  // From now on no file is made with a column at this server, until the volume is opened anew.
  // Blocking: for those that are being made.
  absl::Status AvoidServer(uint64_t server);

  // -- locks: see LockTable. No call waits; who waits is told by the object that it listens with
  // ---

  absl::Status ListenForLocks(uint16_t writer, const runtime::Ref<LockClient>& client);
  absl::StatusOr<LockState> Lock(uint16_t writer, const LockRequest& request);
  absl::Status Unlock(uint16_t writer, const LockRequest& request);
  // The lock that excludes the request; none: it would be granted.
  absl::StatusOr<std::optional<HeldLock>> GetLock(uint16_t writer, const LockRequest& request);
  // False: the request does not wait any more, it was granted.
  absl::StatusOr<bool> CancelLock(uint16_t writer, uint64_t ticket);
  // Those of `tickets` that still wait.
  absl::StatusOr<std::vector<uint64_t>> WaitingLocks(uint16_t writer,
                                                     const std::vector<uint64_t>& tickets);
  absl::StatusOr<LockCounts> Locks();

  // Returns once all changes of these objects that returned before are durable.
  absl::Status Flush(const std::vector<ObjectId>& ids);
  absl::StatusOr<VolumeSpace> Space();
  absl::StatusOr<CommitCounts> Commits();
  absl::StatusOr<std::vector<std::string>> Clients();
  // Looks at all of it while clients work; takes as long as that takes.
  // Errors: kUnimplemented - this server cannot. Those of the store.
  absl::StatusOr<OnlineCheck> Check(const CheckRequest& request);
  // One step of reading all that the volume's own store has, its names and inodes above all: what
  // is damaged is put back where another server has a copy (ScrubSome()). The caller paces.
  // Errors: IsNoClient() - this server does not answer for the volume. Those of the store.
  absl::StatusOr<StoreScrub> ScrubStore(const StorePlace& from);
  // From now on nobody can join; what the server's own clients have open is closed.
  // Errors: kFailedPrecondition - other clients are there.
  absl::Status Retire();
  // For the server that has it, before it ends it while clients are there: nobody can join, and all
  // that they have open here is closed. What the store holds is as it is.
  absl::Status Cease();

  static constexpr size_t kReservedMax = 1024;

  ABACUS_OBJECT(Volume, "objfs.Volume", 1, Join, Renew, Leave, Stat, Reserve, CloseAll, Commit,
                Change, TreeVersion, Open, Close, ListenForLocks, Lock, Unlock, GetLock, CancelLock,
                WaitingLocks, Locks, Flush, Space, Clients, Retire, Settle, Pass, TellWhenWritten,
                Commits, Know, OpenColumns, Spread, ColumnsAt, Check, Cease, MoveColumn,
                AvoidServer, BeginShared, OpenShared, CommitTogether, PrepareShard, DecideShard,
                SettleShards, DecisionOfShards, Shards, OwnFileStack, KeepFileStack, ScrubStore)

 private:
  struct Bottom {
    runtime::Ref<Layer> storage, isolation;
  };
  Volume(std::shared_ptr<ObjectStore> store, Options options, Host host);
  absl::Status FindRoot();
  absl::Status FinishRoot(ObjectId id);
  // Of the columns' last opening.
  struct Witness {
    std::shared_ptr<ColumnFence> fence = std::make_shared<ColumnFence>();
    runtime::Ref<Layer> layer;
    Version opening;
    // Where clients use the columns together; `writer` is none's.
    std::optional<SharedColumns> shared;
    std::map<uint16_t, uint16_t> group_writers;  // of these clients
  };
  // Errors: IsNoClient() - Host::may_serve says no.
  absl::Status Serves(uint16_t writer) const;
  int64_t PromisesFor() const;
  // The clients that are none of the server's own.
  std::vector<std::string> OthersThanOwn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Version NextOpening();
  // For who has the promise to write the file: what it opens is refused where somebody else was
  // promised the file since. Errors: as OpenColumns().
  absl::StatusOr<Version> BeginOpening(uint16_t writer, ObjectId id);
  absl::Status CheckHasColumns(uint16_t writer, ObjectId id);
  // The columns for one of those that share them.
  absl::StatusOr<SharedColumns> SharedFor(uint16_t writer, Witness* witness)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetShared(Witness* witness) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next number behind `*last` that no client and no holder of shared columns has.
  // REQUIRES: there is one.
  uint16_t NextWriter(uint16_t* last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllWritersUsed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<runtime::Ref<Layer>> MakeBottom(ObjectId id);
  absl::StatusOr<runtime::Ref<Layer>> MakeWitness(ObjectId id, Version epoch);
  // REQUIRES: nobody is promised anything of the file's bytes.
  absl::Status MoveColumnNow(ObjectId id, const ColumnMove& move);
  std::shared_ptr<ColumnFence> FenceOf(ObjectId id);
  void EndBottom(ObjectId id);
  // What the inode of a new file has beside what its client wants.
  absl::StatusOr<Inode> WithColumns(const Inode& inode);
  void BeginServers();
  size_t CountServers() const {  // 0: files are not spread
    return options_.servers == nullptr ? 0 : options_.servers->size();
  }
  // Whether the client had reserved it; from now on it has not.
  bool TakeReserved(uint16_t writer, ObjectId id);
  void PutReserved(uint16_t writer, ObjectId id);
  absl::StatusOr<Outcome> CommitParts(uint16_t writer, const Transaction& transaction);
  using Committing = absl::FunctionRef<absl::StatusOr<Outcome>(const Transaction& whole)>;
  // What all transactions of clients have in common; `commit` commits it.
  absl::StatusOr<Outcome> CommitBy(uint16_t writer, const Transaction& transaction,
                                   Committing commit);
  // One of whose parts makes an object.
  absl::StatusOr<Outcome> CommitMaking(uint16_t writer, const Transaction& transaction,
                                       const Part& made, Committing commit);
  void Count(const absl::StatusOr<Outcome>& outcome);
  // Where many removals wait, has them done now.
  void HurryRemovals();
  // Errors, of these: kInvalidArgument - it changes what no client may, or is of such an object.
  static absl::Status CheckChange(const InodeChange& change);
  absl::Status CheckObject(ObjectId id) const;
  absl::Status CheckParts(const Transaction& transaction) const;
  // The layers of an object that was just made and is open. In its turn of `openings_`.
  runtime::Ref<Layer> LayerOfMade(uint16_t writer, ObjectId id);
  // volume_shards.cc: where its root says that it is a shard of several.
  absl::Status BeginShards();
  absl::Status SetShards(uint32_t shards, uint64_t volume);
  ShardCommits::Host ShardsHost();
  // Errors: kFailedPrecondition - it is no shard.
  absl::StatusOr<ShardCommits*> Together();
  // The same for a shard of that volume; as PrepareShard().
  absl::StatusOr<ShardCommits*> TogetherIn(uint64_t volume);
  // Whether it is not known yet what came of transactions from before it was opened.
  bool IsInDoubt();
  // False: there is no time for more, as the volume is being ended here.
  bool RestBetweenTries(absl::Duration time);
  void ResolveShards();
  void FlushNowAndThen();
  void DropTheSilent();
  // Looks through a part of what there was at the start, once the clients have had their time.
  void CollectOrphans();

  const Options options_;
  const Host host_;
  const std::shared_ptr<ObjectTable> table_;
  const std::shared_ptr<Callbacks> callbacks_;
  std::unique_ptr<ColumnServers> servers_;  // constant after Make()
  std::atomic<uint64_t> committed_{0}, stale_{0};
  std::atomic<uint64_t> column_openings_{0};
  // Others than 1: there are the three below, and they stay.
  std::atomic<uint32_t> shards_{1};
  std::unique_ptr<ShardCommits> shard_commits_;
  std::atomic<ObjectId> records_{0};  // the object with their records
  uint64_t volume_number_ = 0;        // ShardState::volume
  const uint64_t life_;               // VolumeInfo::life
  ObjectId root_ = 0;
  int64_t born_ns_ = 0;                        // the root's
  const int64_t orphans_due_ns_;               // steady
  const int64_t doubt_ends_ns_;                // steady; from then on who is in doubt waits alone
  std::optional<ObjectId> orphans_after_ = 0;  // the flusher's; nullopt: all are looked through
  VolumeLocks locks_;
  // Opening and closing of one object happen one after the other: its layers are made by the first
  // and ended by the last.
  Turns openings_;
  Turns moves_;  // of columns

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::map<uint16_t, std::string> clients_ ABSL_GUARDED_BY(mutex_);  // their names, by writer
  uint16_t last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  // Numbers of holders of shared columns (SharedColumns::writer), which no client has. They begin
  // anywhere: what was given before the volume was opened, here or by another server, may be used
  // for a while yet, and two with one number would take each other's groups for their own.
  std::set<uint16_t> group_writers_ ABSL_GUARDED_BY(mutex_);
  uint16_t last_group_writer_ ABSL_GUARDED_BY(mutex_);
  bool retired_ ABSL_GUARDED_BY(mutex_) = false;
  // What it is to be before it has clients, a shard for one: nobody joins meanwhile.
  bool becoming_ ABSL_GUARDED_BY(mutex_) = false;
  std::string own_file_stack_ ABSL_GUARDED_BY(mutex_);  // as in VolumeInfo
  bool resolves_now_ ABSL_GUARDED_BY(mutex_) = false;   // the resolver is to wait no longer
  absl::flat_hash_map<ObjectId, Bottom> bottoms_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ObjectId, Witness> witnesses_ ABSL_GUARDED_BY(mutex_);
  // By writer: what it may make objects as.
  absl::flat_hash_map<uint16_t, std::set<ObjectId>> reserved_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread flusher_, resolver_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_VOLUME_H_
