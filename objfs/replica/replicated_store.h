#ifndef ABACUS_OBJFS_REPLICA_REPLICATED_STORE_H_
#define ABACUS_OBJFS_REPLICA_REPLICATED_STORE_H_

// How it is wired (objfs/replica/README.md tells more). At the primary, in a new epoch of the map:
//
//   store = OpenPrimaryStore(*disk, epoch, options);              // replica_record.h
//   replicated = ReplicatedStore::Make(store, {.epoch = epoch, .copy_counts = map.copy_counts},
//                                      {.find_copy = ..., .drop_copy = ..., ...});
//   Volume::Make(replicated, ...);
//
// At the copy's server: ReplicaStore::Open(disk, options), adopted by the node, its reference
// published where `find_copy` looks. When it is to take over, in a new epoch that the map has given
// to this server: replica->Retire(epoch), node.Destroy(replica), then as above, without a copy or
// with the old primary as one: there ReplicaStore::Open() on the old directory.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/replica/replica_link.h"
#include "objfs/replica/replica_stream.h"
#include "objfs/replica/slow_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/object_store.h"
#include "objfs/store/turns.h"
#include "runtime/base/mutex.h"
#include "runtime/base/sync_point.h"

namespace abacus::objfs {

// How a primary stands with its copy.
struct ReplicationReport {
  enum class Link : uint8_t {
    kAbsent,     // there is none that can be reached
    kResyncing,  // it is being brought up to date
    kCurrent,    // each flush waits for it
    kFenced,     // a later primary was met: this one acknowledges nothing any more
  };
  Link link = Link::kAbsent;
  bool copy_counts = false;  // as far as is known here: the map may name it as the next primary
  uint64_t epoch = 0;
  uint64_t resyncs = 0;                        // that came to their end
  uint64_t objects_done = 0, objects_all = 0;  // of the resync that lasts, or was the last
  uint64_t objects_sent = 0;                   // of these, such as differed
  uint64_t operations = 0, answered = 0;       // put into the session's stream, and applied
  uint64_t repaired_blocks = 0;                // damaged here, and put back from the copy
  uint64_t unrepaired_blocks = 0;              // damaged here, and the copy could not help
  uint64_t repaired_objects = 0;               // of damaged tables here, made whole from the copy
  uint64_t reads_at_copy = 0;                  // as the disk here was slow
  std::string why;  // there is no copy, or what failed last; empty: nothing did
};

// A volume's object store with a copy at another server: what a flush has acknowledged is durable
// at both, and the copy can take over at any moment.
//
// Changes are made in the local store, and put into a stream to the copy in an order that gives it
// the same state of every object (an object's turn is held over both). A flush is made by both at
// the same time. Reads are local, but where the disk here is slow (SlowDisk) and the copy is
// current: then contents are read there, and taken by the checksums that are known here.
//
// Invariants:
// 1. While the volume map may name the copy as the next primary, no flush is acknowledged before
//    the copy has made durable all that it covers. The map names it no more once drop_copy() was
//    OK, and may from before copy_is_current() on.
// 2. What updates did is there wholly or not at all at the copy too, whenever it is promoted.
// 3. A resync leaves the copy equal in every object: attributes, block versions, and bytes where
//    `compares_contents`.
// 4. Nothing is acknowledged once a later primary was met, or may_serve() is not OK.
// Errors, besides the store's: kUnavailable of a flush - the copy does not answer and the map does
//    not let it go (yet), or this server is the primary no more; what was to be flushed may be
//    durable or not. The message names what can be done.
// Thread-safety: thread-safe. Blocking: disk I/O; changes, while the stream to the copy is full;
//    flushes, for the copy, at most `flush_wait` after it was lost.
// Source: ours; a primary and its log shipped to a backup is Alsberg and Day, 1976; the map that
//    decides who counts is as in chain replication and boxwood.
class ReplicatedStore final : public ObjectStore {
 public:
  struct Options {
    uint64_t epoch = 0;  // that the store was opened in (OpenPrimaryStore)
    // The map may name a copy as the next primary when this begins. If in doubt, true.
    bool copy_counts = true;
    ReplicaStream::Options stream;
    // How long between tries to find the copy, to have it dropped, or to have it count.
    absl::Duration retry = absl::Seconds(1);
    // A flush fails when it has waited so long for a lost copy to be dropped or to come back.
    absl::Duration flush_wait = absl::Seconds(10);
    absl::Duration tell_again = absl::Seconds(5);
    SlowDisk::Options slow, slow_copy;  // the disk here, and the copy
    // Of a resync, the share of time that it works; the rest it leaves to others.
    double resync_share = 0.5;
    // A resync reads blocks of equal versions at both ends and compares their checksums: finds bit
    // rot, and versions that two primaries gave.
    bool compares_contents = true;
    runtime::SyncPoints* points = nullptr;  // of a test, which outlive the store
  };
  // What the wirer does for it. Called without locks, from threads of its own but for may_serve and
  // local_fails.
  struct Host {
    // The way to the copy (LinkTo), where there is one now; asked every `retry` without one. Should
    // not block for long. Errors: any; the message is reported.
    std::function<absl::StatusOr<std::shared_ptr<ReplicaLink>>()> find_copy;
    // Has the map name the copy no more, by compare-and-set under this epoch. OK: durably so.
    // Called again every `retry` until then. May block for a few seconds.
    std::function<absl::Status()> drop_copy;
    // Has the map name the copy as one that may take over. Called when it is current, again every
    // `retry` until OK while it stays so. After an error the map may name it or not. kAborted: this
    // is the copy no more, and find_copy() tells of another one.
    std::function<absl::Status()> copy_is_current;
    // The store here fails (kUnavailable), and the copy, which is current as far as is known here,
    // could go on as the primary. Called at most every `tell_again`, on a caller's thread, with
    // turns of objects held; must not block. Empty: nobody is told.
    std::function<void(const absl::Status& why)> local_fails;
    // Whether this server is the primary now (its lease lasts). Asked before each flush is
    // acknowledged, on the caller's thread; must not block.
    std::function<absl::Status()> may_serve;
  };

  static std::shared_ptr<ReplicatedStore> Make(std::shared_ptr<LocalObjectStore> local,
                                               Options options, Host host);
  // REQUIRES: no call is under way. Blocking: for a call to the copy or the host that lasts.
  ~ReplicatedStore() override;

  absl::StatusOr<ObjectId> Create(std::string_view blob, VersionNumber version) override;
  absl::StatusOr<ObjectId> Reserve() override;
  absl::Status CreateAs(ObjectId id, std::string_view blob, VersionNumber version) override;
  absl::Status Remove(ObjectId id) override;
  absl::StatusOr<uint64_t> Read(ObjectId id, uint64_t offset, std::span<char> bytes) override;
  absl::Status Write(ObjectId id, uint64_t offset, std::string_view bytes,
                     VersionNumber version) override;
  absl::Status Update(std::span<const ObjectUpdate> updates, VersionNumber version) override;
  absl::Status Truncate(ObjectId id, uint64_t size_bytes, VersionNumber version) override;
  absl::Status Punch(ObjectId id, uint64_t offset, uint64_t bytes, VersionNumber version) override;
  absl::StatusOr<uint64_t> NextData(ObjectId id, uint64_t offset) override;
  absl::StatusOr<uint64_t> NextHole(ObjectId id, uint64_t offset) override;
  absl::StatusOr<std::vector<VersionNumber>> ReadVersions(ObjectId id, uint64_t first,
                                                          uint64_t count) override;
  absl::StatusOr<ObjectAttributes> GetAttributes(ObjectId id) override;
  absl::Status SetAttributes(ObjectId id, std::string_view blob, VersionNumber version) override;
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) override;
  absl::Status Flush(ObjectId id) override;
  absl::Status FlushTogether(std::span<const ObjectId> ids) override;
  absl::Status FlushAll() override;
  absl::StatusOr<StoreSpace> Space() override;
  StoreStatistics Statistics() override;

  // What was the matter with some blocks of the copy.
  struct CopyCheck {
    uint64_t repaired = 0;  // damaged, and put back from here
    uint64_t damaged = 0;   // and not put back; one where the whole object cannot be used
  };
  // Has the copy read `count` blocks of an object from `first` on, and its table. Blocks that are
  // damaged there and not here are put back, durable with the object's next flush at the copy.
  // Where the table is damaged a resync begins, which makes the object anew there.
  // Errors: kUnavailable - there is no copy now, or it is being brought up to date, which reads
  //         all of it anyway. Those of the copy.
  // REQUIRES: count <= ReplicaStore::kDescribedMax. Blocking: calls to the copy.
  absl::StatusOr<CopyCheck> CheckCopy(ObjectId id, uint64_t first, uint64_t count);

  // The same as Read(), but here however slow the disk is: of who wants to know what is here.
  absl::StatusOr<uint64_t> ReadHere(ObjectId id, uint64_t offset, std::span<char> bytes);

  ReplicationReport Report();
  // Looks for the copy now, and not after `retry`: the map has changed, or a server came.
  void Poke();

 private:
  struct Extent {
    ObjectId id = 0;
    uint64_t offset = 0, bytes = 0;
  };
  class Resync;  // resync.cc

  ReplicatedStore(std::shared_ptr<LocalObjectStore> local, Options options, Host host);

  // -- changes -----------------------------------------------------------------------------------

  // Makes the change here in the turns of `ids`, then puts what `operation` gives into the stream.
  template <typename Local, typename Operation>
  absl::Status Change(std::span<const ObjectId> ids, Local local, Operation operation);
  // The same, and once more where damage of `ids`' tables or of blocks of `extents` was in its way
  // and was repaired.
  template <typename Local, typename Operation>
  absl::Status ChangeBytes(std::span<const ObjectId> ids, std::span<const Extent> extents,
                           Local local, Operation operation);
  bool Streams();
  // In the turns of its objects. What the copy is not to know yet is left out.
  void Stream(ReplicaOperation operation);
  bool IsInStep(ObjectId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- flushes -----------------------------------------------------------------------------------

  template <typename Local>
  absl::Status FlushBoth(ReplicaFlush kind, std::span<const ObjectId> ids, Local local);
  // The copy was lost: until the map lets it go, or a resync has ended whose end was asked for
  // after that of number `finish`.
  absl::Status AwaitRelief(uint64_t finish);
  absl::Status MayAcknowledge();
  void TellThatLocalFails(const absl::Status& why);

  // -- the copy ----------------------------------------------------------------------------------

  void Work();
  // Until the copy is lost, which it says why, or the end.
  absl::Status Serve(const std::shared_ptr<ReplicaLink>& link);
  absl::Status BeginSession(ReplicaLink& link);
  void BeginStream(const std::shared_ptr<ReplicaLink>& link);
  void EndStream(const absl::Status& why);
  void Send(ReplicaLink& link);
  absl::Status BecomeCurrent();
  // Until it is lost, or the end.
  absl::Status StayCurrent();
  void TryDrop();
  // Until Poke(), at most `limit`. True at the end.
  bool Sleep(absl::Duration limit);
  // True at the end, or where the copy is lost.
  bool Pause(absl::Duration limit);
  void Note(const absl::Status& why);
  // Notes who is fenced.
  absl::Status Heard(absl::Status status);

  // -- reads -------------------------------------------------------------------------------------

  absl::StatusOr<uint64_t> ReadHere(SlowDisk::Ticket ticket, ObjectId id, uint64_t offset,
                                    std::span<char> bytes);
  absl::StatusOr<uint64_t> ReadAtCopy(SlowDisk::Ticket ticket, ObjectId id, uint64_t offset,
                                      std::span<char> bytes);
  // The way to the copy, where that has all there is. Errors: kUnavailable.
  absl::StatusOr<std::shared_ptr<ReplicaLink>> CurrentCopy();
  // What `call` says, which compares what the copy has with what is here; and once more where that
  // is not the same (kFailedPrecondition), when all that was put into the stream has come there.
  template <typename Call>
  auto InStep(Call call) -> decltype(call());

  // -- damage ------------------------------------------------------------------------------------

  // Makes objects whole whose tables are damaged, and puts damaged blocks back; true where all of
  // these are whole now.
  bool Repair(std::span<const ObjectId> ids, std::span<const Extent> extents);
  absl::Status RepairBlock(ObjectId id, uint64_t block);
  absl::Status RepairObject(ObjectId id);
  absl::Status RepairAtCopy(ReplicaLink& link, ObjectId id, uint64_t block);
  // What `call` says of the object, and once more where its table was damaged and was repaired.
  template <typename Call>
  auto WithTable(ObjectId id, Call call) -> decltype(call());
  absl::StatusOr<std::shared_ptr<ReplicaLink>> LinkToRepairFrom();

  const std::shared_ptr<LocalObjectStore> local_;
  const Options options_;
  const Host host_;
  Turns turns_;  // of objects that are being changed
  ReplicaStream stream_;
  SlowDisk here_, there_;  // reads of contents, and such at the copy

  runtime::Mutex mutex_;  // before the stream's
  runtime::CondVar changed_;
  std::optional<std::chrono::steady_clock::time_point> told_at_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_poked_ ABSL_GUARDED_BY(mutex_) = false;
  // The map may name the copy, or is about to be told (invariant 1).
  bool counts_ ABSL_GUARDED_BY(mutex_);
  // Flushes go to the copy: it has all that was flushed before, or will with the next one.
  bool flushes_go_ ABSL_GUARDED_BY(mutex_) = false;
  // Ends of resyncs: how many were asked for, and the last that was reached.
  uint64_t finishes_ ABSL_GUARDED_BY(mutex_) = 0, finished_ ABSL_GUARDED_BY(mutex_) = 0;
  // Objects that the copy has as they are here, and whose changes it is told: all up to `cursor_`,
  // and those made since the resync began.
  bool streams_ ABSL_GUARDED_BY(mutex_) = false;
  ObjectId cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<ObjectId> born_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ReplicaLink> link_ ABSL_GUARDED_BY(mutex_);
  absl::Status fenced_ ABSL_GUARDED_BY(mutex_);
  ReplicationReport report_ ABSL_GUARDED_BY(mutex_);

  uint64_t session_ = 0;  // the worker's
  std::thread worker_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_REPLICATED_STORE_H_
