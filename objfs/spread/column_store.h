#ifndef ABACUS_OBJFS_SPREAD_COLUMN_STORE_H_
#define ABACUS_OBJFS_SPREAD_COLUMN_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "objfs/spread/column_watches.h"
#include "objfs/storage/storage_layer.h"
#include "objfs/store/object_store.h"
#include "objfs/store/turns.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// Who may use a column now: those whose opening is of this epoch. Thread-safety: thread-safe.
class ColumnFence {
 public:
  // From now on only calls of `epoch` begin; returns when all others have ended.
  // Errors: kUnauthenticated - there was a later one.
  absl::Status Raise(Version epoch);

  class Pass {
   public:
    explicit Pass(ColumnFence* fence) : fence_(fence) {}
    Pass(Pass&& other) noexcept : fence_(std::exchange(other.fence_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass();

   private:
    ColumnFence* fence_;
  };
  // Errors: kUnauthenticated - the column was opened for somebody else since.
  absl::StatusOr<Pass> Enter(Version epoch);

  // How often it was raised to a new epoch, and entered, so far.
  struct Uses {
    uint64_t openings = 0, calls = 0;
  };
  Uses uses();

 private:
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  Version epoch_ ABSL_GUARDED_BY(mutex_);
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  Uses uses_ ABSL_GUARDED_BY(mutex_);
};

// The fences of a server's columns that are open: for the groups that write to columns beside their
// layers (CommitLog), which may be at it yet when the ColumnStore is gone.
// Thread-safety: thread-safe. Blocking: no.
class ColumnFences {
 public:
  // That of a column that is being opened; the one that it has.
  std::shared_ptr<ColumnFence> Make(ObjectId id);
  // The column is open no more: nobody enters by its fence from now on.
  void Forget(ObjectId id);
  // Passes of all that a group has to do with; they live as long as what is returned.
  // Errors: kUnauthenticated - one of the columns was opened for somebody else since, or is not
  // open, as after a restart of the server; or the group names no opening of it.
  absl::StatusOr<std::shared_ptr<const void>> Enter(const GroupPart& part);
  // Of all columns that are open: the calls, but of that file the openings.
  uint64_t UsesBut(ObjectId id);

 private:
  std::shared_ptr<ColumnFence> Find(ObjectId id);

  runtime::Mutex mutex_;
  std::map<ObjectId, std::shared_ptr<ColumnFence>> fences_ ABSL_GUARDED_BY(mutex_);
};

// One opening of a column: its object in the store, for the client that it was opened for, and
// until it is opened for another one. What that client still has under way is refused then, however
// late it comes: two that each believe to be the only one never write to one column. Errors:
// kUnauthenticated, which is IsNoClient() - it was opened for another one. As StorageLayer.
class ColumnLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"column", "objfs.ColumnLayer", {}, 0, 0, true};

  ColumnLayer(std::shared_ptr<ObjectStore> store, ObjectId id, std::shared_ptr<ColumnFence> fence,
              Version epoch, std::shared_ptr<ColumnWatches> watches)
      : storage_(std::move(store), id),
        id_(id),
        fence_(std::move(fence)),
        epoch_(epoch),
        watches_(std::move(watches)) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  ABACUS_LAYER(ColumnLayer, 1)

 private:
  template <typename F>
  auto Inside(F&& call) -> decltype(call());

  StorageLayer storage_;  // called as it is: it is in no node's table
  const ObjectId id_;
  const std::shared_ptr<ColumnFence> fence_;
  const Version epoch_;
  // Told of each change before the fence lets the call go.
  const std::shared_ptr<ColumnWatches> watches_;
};

// Stands in for a column whose server does not answer: each call is kUnavailable.
class AbsentColumn final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"absent", "objfs.AbsentColumn", {}, 0, 0, true};

  explicit AbsentColumn(std::string why) : why_(std::move(why)) {}

  absl::StatusOr<ReadResult> Read(uint64_t, uint64_t, Version) override { return Why(); }
  absl::Status Write(uint64_t, const runtime::Block&, Version) override { return Why(); }
  absl::StatusOr<uint64_t> Append(const runtime::Block&, Version) override { return Why(); }
  absl::Status Truncate(uint64_t, Version) override { return Why(); }
  absl::Status Punch(Range, Version) override { return Why(); }
  absl::StatusOr<uint64_t> Seek(uint64_t, bool, Version) override { return Why(); }
  absl::Status Push(Version) override { return Why(); }
  absl::Status Flush(Version) override { return Why(); }
  absl::StatusOr<Attributes> GetAttributes(Version) override { return Why(); }
  absl::Status SetInode(const std::string&, Version) override { return Why(); }
  ABACUS_LAYER(AbsentColumn, 1)

 private:
  absl::Status Why() const { return absl::UnavailableError(why_); }
  const std::string why_;
};

// A column as its server knows it, without opening it.
struct ColumnState {
  ObjectId id = 0;  // of the file
  uint64_t size = 0, allocated = 0;
  std::string record;  // what the layer above keeps of it (column_record.h)
  Version opening;     // by which it was written; 0: not told
  ABACUS_FIELDS(id, size, allocated, record, opening)
};

// What was found damaged of a server's columns since it was started.
struct ColumnDamage {
  uint64_t blocks = 0;  // each time that somebody read one
  uint64_t tables = 0;  // of objects that cannot be used
  ABACUS_FIELDS(blocks, tables)
};

// A column that was just opened, and what its server knows of what was written by groups before.
struct OpenedColumn {
  runtime::Ref<Layer> layer;
  runtime::Ref<CommitLog> log;        // the server's; none: it has none
  Version recorded;                   // by which opening the record that is there was written
  std::vector<PendingGroup> pending;  // of the column, in that log
  ABACUS_FIELDS(layer, log, recorded, pending)
};

// A part of a column, for a copy of it.
struct ColumnPiece {
  uint64_t offset = 0;
  runtime::Block bytes;  // none: nothing but holes was left; `offset` is where they end
  uint64_t version = 0;  // the newest of its blocks
  ABACUS_FIELDS(offset, bytes, version)
};

// How far the copy of a column has come.
struct CopyProgress {
  uint64_t copy = 0;    // which copy of the column this is
  uint64_t next = 0;    // where to go on
  uint64_t copied = 0;  // bytes, by this step
  bool whole = false;
  ABACUS_FIELDS(copy, next, copied, whole)
};

// The columns that one server keeps of a volume's files, each under the file's own number, in a
// store of their own. The volume says what is made and removed, and for whom a column is opened.
//
// Groups of blocks may be written to columns through the server's CommitLog, by several clients
// that have one opening of a column together. They are fenced as the layers of openings are: a new
// opening waits for those that are being prepared, and all others of before are refused.
//
// Thread-safety: thread-safe. Blocking: disk I/O; Open() also for calls of an earlier opening.
class ColumnStore final : public runtime::AnchoredObject {
 public:
  struct Host {
    std::function<runtime::Ref<Layer>(std::unique_ptr<ColumnLayer>)> adopt;
    std::function<void(const runtime::Ref<Layer>&)> end;
  };
  ColumnStore(std::shared_ptr<ObjectStore> store, Host host);
  ~ColumnStore() override;

  // What the log of groups on this store is to ask and to tell. It may outlive the columns.
  void AddHooks(CommitLog::Host* host) const;
  // The log that was made with these. Once.
  void TakeLog(const runtime::Ref<CommitLog>& log);

  // The column for who was promised the file by `epoch`, an empty one where there was none. Who had
  // it before is shut out. Errors: kUnauthenticated - a later epoch has opened it since the server
  // was started, and has not closed it; or has written the record that it has (fenced_record.h).
  absl::StatusOr<runtime::Ref<Layer>> Open(ObjectId id, Version epoch);
  // Open(), and what is to be known then of groups of before, of which none is prepared any more.
  // Errors: those of Open(); of the log: then nothing is known.
  absl::StatusOr<OpenedColumn> OpenAndTell(ObjectId id, Version epoch);
  // Errors: kUnimplemented - this server has none.
  absl::StatusOr<runtime::Ref<CommitLog>> Log();
  // What was opened up to `epoch` is not used any more.
  absl::Status Close(ObjectId id, Version epoch);
  // For good, where they are there; durable when it returns.
  absl::Status Remove(const std::vector<ObjectId>& ids);
  // Up to `count_max` columns of files above `after`, rising.
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max);
  absl::StatusOr<std::vector<ColumnState>> States(ObjectId after, uint64_t count_max);
  // Of a volume whose map is elsewhere: the highest epoch in which a file that has a column here
  // was made, or a column here was opened, as far as is known; of groups that are not forgotten,
  // too. Reads the attributes of all columns.
  absl::StatusOr<uint64_t> SeenEpoch();
  // For who repairs that file, and leaves the disk to others where there are any: a number that is
  // the same as before where since then nobody opened a column here, closed one, or used another
  // one than this file's.
  absl::StatusOr<uint64_t> UsesBut(ObjectId id);
  // Whoever reads what is damaged repairs it where it can, and the server's log names it.
  absl::StatusOr<ColumnDamage> Damage();
  // The record as it is kept, with its opening (FencedRecord): a copy refuses the same.
  absl::StatusOr<ColumnState> State(ObjectId id);

  // -- a column comes here from the server that has it, which serves it meanwhile ----------------
  //
  // CopyFrom() brings most of it, in steps, and FollowFrom() what was changed since, as often as
  // one likes; then the volume lets nobody change it, and FinishFrom() brings the rest. Until the
  // file names this server what came is used by nobody, and each beginning takes it away.
  // Errors of all three: kCancelled - that copy is not known here any more (a server was started
  // again, another copy was begun, too many are under way): begin anew. kDataLoss - a block there
  // is damaged: a scrub repairs it. Those of `source`, and of the disks.

  // `copy` 0: begins, at the beginning. Limits: `bytes` a step, or kPieceBytes more.
  // Errors: kAlreadyExists - there is a column here that has a record, or is open: the file may be
  // using it.
  absl::StatusOr<CopyProgress> CopyFrom(runtime::Ref<ColumnStore> source, ObjectId id,
                                        uint64_t copy, uint64_t from, uint64_t bytes);
  // Bytes that it copied. REQUIRES: CopyFrom() said that it is whole.
  absl::StatusOr<uint64_t> FollowFrom(runtime::Ref<ColumnStore> source, ObjectId id, uint64_t copy);
  // All of the column is here, its record too, durably. `copy` 0: none was begun, and this copies
  // the whole, in the place of whatever is here.
  // REQUIRES: nobody changes it, and the file has no column here.
  absl::Status FinishFrom(runtime::Ref<ColumnStore> source, ObjectId id, uint64_t copy);

  // -- asked by the server that it goes to -------------------------------------------------------

  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  // The first run of data in [from, end), as much of it as a piece has.
  absl::StatusOr<ColumnPiece> ReadPiece(ObjectId id, uint64_t from, uint64_t end);
  // See ColumnWatches.
  absl::StatusOr<uint64_t> Watch(ObjectId id);
  absl::StatusOr<ColumnChanges> TakeChanges(ObjectId id, uint64_t watch);

  ABACUS_OBJECT(ColumnStore, "objfs.ColumnStore", 1, Open, Close, Remove, List, States, State,
                CopyFrom, FollowFrom, FinishFrom, ReadPiece, Watch, TakeChanges, SeenEpoch, Log,
                OpenAndTell, UsesBut, Damage)

 private:
  // A copy that has been begun here.
  struct Incoming {
    runtime::Ref<ColumnStore> source;
    uint64_t watch = 0;  // by which the copy is known
    bool whole = false;
  };
  absl::StatusOr<uint64_t> BeginCopy(const runtime::Ref<ColumnStore>& source, ObjectId id);
  absl::Status CheckNotInUse(ObjectId id);
  absl::StatusOr<Incoming> IncomingOf(const runtime::Ref<ColumnStore>& source, ObjectId id,
                                      uint64_t copy);
  absl::StatusOr<CopyProgress> CopyPieces(const runtime::Ref<ColumnStore>& source, ObjectId id,
                                          Range within, uint64_t bytes_max);
  absl::StatusOr<uint64_t> Follow(const runtime::Ref<ColumnStore>& source, ObjectId id,
                                  uint64_t copy);
  absl::StatusOr<uint64_t> CopyChanges(const runtime::Ref<ColumnStore>& source, ObjectId id,
                                       const ColumnChanges& changes);
  absl::Status PunchHere(ObjectId id, uint64_t from, uint64_t end);
  absl::Status Finish(const runtime::Ref<ColumnStore>& source, ObjectId id, uint64_t copy);
  void ForgetCopy(ObjectId id);

  // Errors: kUnauthenticated - the record that is there was written by a later opening.
  absl::Status CheckNotLate(ObjectId id, Version epoch);

  struct Opened {
    std::shared_ptr<ColumnFence> fence;
    Version epoch;
    runtime::Ref<Layer> layer;
    runtime::Ref<Layer> before;  // shut out: who has it shall be told so
  };
  void End(const runtime::Ref<Layer>& layer) {
    if (layer) host_.end(layer);
  }

  const std::shared_ptr<ObjectStore> store_;
  const Host host_;
  const std::shared_ptr<ColumnWatches> watches_ = std::make_shared<ColumnWatches>();
  const std::shared_ptr<ColumnFences> fences_ = std::make_shared<ColumnFences>();
  Turns turns_;  // by file
  runtime::Mutex mutex_;
  runtime::Ref<CommitLog> log_ ABSL_GUARDED_BY(mutex_);
  std::map<ObjectId, Opened> opened_ ABSL_GUARDED_BY(mutex_);
  std::map<ObjectId, Incoming> incoming_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_COLUMN_STORE_H_
