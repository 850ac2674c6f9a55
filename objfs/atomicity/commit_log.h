#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_log_state.h"
#include "objfs/atomicity/commit_peers.h"
#include "objfs/atomicity/group_core.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/atomicity/log_core.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "objfs/store/disk.h"
#include "objfs/store/object_store.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

// Since it was opened, but for `pending`.
struct CommitLogCounts {
  uint64_t prepared = 0;
  uint64_t applied = 0;
  uint64_t undone = 0;
  uint64_t refused = 0;
  uint64_t resolved = 0;  // groups that this server began to resolve after their lease
  uint64_t pending = 0;   // entries now
  uint64_t stuck = 0;     // of them, committed ones that the store does not take; tried again
  uint64_t dropped = 0;   // writes of committed groups to objects that were removed meanwhile, or
                          // that a later opening has settled (Host::is_over)
  uint64_t records = 0;
  uint64_t flushes = 0;  // of the log
  uint64_t checkpoints = 0;
  ABACUS_FIELDS(prepared, applied, undone, refused, resolved, pending, stuck, dropped, records,
                flushes, checkpoints)
};

// A server's log object: all that this server does for groups of block writes (README.md), for
// whoever writes them. It keeps what was prepared in the file `atomicity` beside the object store's
// own, and writes what is committed into the store.
//
// Invariants, beside CommitParticipant's and LogCore's:
// 1. An answer leaves when all that it says is durable; what is committed is durable in the store
//    before the log forgets it.
// 2. From the answer kPrepared until the group is applied or undone here, no other group has
//    prepared a write of a block that it reads or writes.
// 3. A call of an older epoch than one that was seen changes nothing, after restarts too.
// 4. The file takes two halves and a header, whatever is asked.
// 5. A group that was refused by Host::enter is not prepared. While a group is inside (what
//    Host::enter has given lives) no more than this server's disk is waited for.
//
// Flushes are made by the threads of the calls: one at a time, for all that wait for one.
//
// Errors of calls: kPermissionDenied - an older epoch. kInvalidArgument - no message that makes
// sense here, or an identifier an hour ahead of this server's clock, or that of another group that
// is here. kResourceExhausted - the disk has no room for the log: what was asked for is done or
// not, as where an answer is lost, and is written as soon as there is; what is prepared from then
// on is refused (kFull) where that is to be durable already. kUnavailable - a write or flush of the
// log has failed otherwise: the server must be restarted; or the store did not take what was
// committed in time, and will be asked again; or a group is not to be aborted now (PendingOf).
// Thread-safety: thread-safe. Blocking: disk I/O.
class CommitLog final : public runtime::AnchoredObject {
 public:
  struct Options {
    uint64_t server = 0;  // this one's number in the groups
    uint64_t epoch = 0;   // of the volume map, as far as it is known
    CommitOptions commit;
    // Of a log that is made. All that is prepared and not yet forgotten must fit into a half.
    uint64_t half_bytes = uint64_t{8} << 20;
    // How often the leases are looked at; 0: never, the owner calls Resolve().
    absl::Duration resolve_every = absl::Seconds(1);
    // How long another server is waited for in one round of questions, and an answer here for the
    // store.
    absl::Duration answer_wait = absl::Seconds(2);
  };
  struct Host {
    std::function<int64_t()> steady_ns;  // the clock of the leases
    std::function<int64_t()> now_us;     // since 1970
    std::shared_ptr<CommitPeers> peers;  // the other servers; null: there are none
    std::function<uint64_t()> epoch;     // of the map, now; empty: none but what calls bring

    // What follows is for objects that are opened (spread/column_store.h); each may be empty, and
    // is called without a lock and from any thread, until this log is gone.
    // Before a group is prepared; what it returns lives until that is durable, or will not be. An
    // error refuses the group for ever, as Refusal::kShutOut. Also before groups are settled, with
    // a part that has nothing but the fence of who settles them. Blocking: must not.
    std::function<absl::StatusOr<std::shared_ptr<const void>>(const GroupPart& part)> enter;
    // Before what is committed is written: true where a later opening has written a record of the
    // object, or it is gone. The group was in the store before that opening began, and what was cut
    // off or punched since must not come back.
    std::function<absl::StatusOr<bool>(const GroupFence& fence)> is_over;
    // Blocks of an object were written. Blocking: must not.
    std::function<void(ObjectId id, uint64_t offset, uint64_t bytes)> written;
  };

  // Recovers the log of a store, or makes one, and applies what was committed.
  // REQUIRES: nobody else has opened the log, and `store` is the one on that disk.
  // Errors: as LogFile::Open(); kDataLoss - a record is damaged. What the store does not take is no
  //         error; it is tried again.
  // Ownership: disk and store are shared.
  static absl::StatusOr<std::unique_ptr<CommitLog>> Open(std::shared_ptr<Disk> disk,
                                                         std::shared_ptr<ObjectStore> store,
                                                         const Options& options, Host host);
  ~CommitLog() override;

  // Answers a question of CommitDriver's.
  absl::StatusOr<CommitReply> Ask(uint64_t epoch, const CommitMessage& question);
  absl::StatusOr<CommitLogCounts> Counts();
  // The groups here that have a fence of that object, oldest first, for who has opened it. Those of
  // an opening that is shut out by now become no more. What of them is prepared stays so until it
  // is settled, or committed: nobody else has it aborted, or one of its servers would do what is
  // made of this answer, and another one not.
  absl::StatusOr<std::vector<PendingGroup>> PendingOf(ObjectId id);
  // Does so, for the opening `by`; returns when what is committed is durable in the store, and what
  // is aborted undone, durably. What was to be aborted, and is committed by now, is so, and is
  // written when it returns. A later opening waits for it, and so finds each order done or not.
  // Stops at the first error. Errors: kFailedPrecondition - a group that is to be held is not here.
  // Those of Host::enter - there is a later opening, which settles what is left.
  absl::Status Settle(const GroupFence& by, const std::vector<GroupOrder>& orders);
  // The newest one in any fence of the groups here; 0: there is none.
  absl::StatusOr<Version> NewestOpening();

  // One look at the leases: goes on with resolving what is over, tries again what is stuck, and
  // makes durable what nobody has waited for. For its own thread, or for the owner where there is
  // none. Blocking: calls to other servers.
  void Resolve();
  // From now on it writes nothing to the log, and answers nothing. For who opens it once more on
  // the same disk. Blocking: for a write that is under way, and for Resolve().
  void Stop();

  ABACUS_OBJECT(CommitLog, "objfs.CommitLog", 1, Ask, Counts, PendingOf, Settle, NewestOpening)

 private:
  using Groups = GroupCore<FaithfulGroupPolicy>;
  using Core = LogCore<FaithfulLogPolicy>;
  // Who asks is numbered from here, and servers below it.
  static constexpr uint64_t kFirstCall = uint64_t{1} << 63;
  // A question that is not answered yet.
  struct Call {
    std::optional<CommitMessage> answer;
    uint64_t after = 0;  // a sequence of the log
  };

  CommitLog(std::shared_ptr<ObjectStore> store, const Options& options, Host host);
  absl::Status Recover(Disk& disk);
  absl::Status Check(const CommitMessage& question);
  absl::Status CheckEpoch(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Durable when it returns.
  absl::Status RaiseEpoch(uint64_t epoch);
  absl::StatusOr<CommitReply> Prepare(uint64_t epoch, const CommitMessage& question);
  // Whether the store is as the group has to find it. Its blocks are claimed.
  // `pending_bytes`: that other groups will take of it.
  CommitReply Validate(Version id, const GroupPart& part, uint64_t pending_bytes);
  absl::Status ValidateReads(const GroupPart& part, CommitReply* reply);
  absl::Status ValidateWrites(Version id, const GroupPart& part, CommitReply* reply);
  // Hands `question` to the participant, and does what it says; returns the answer when it may be
  // given. `holds`: a kCommit that does not rest on the word of all members (GroupFate).
  absl::StatusOr<CommitMessage> Handle(uint64_t epoch, const CommitMessage& question,
                                       Refusal* refusal, bool holds = false);
  absl::Status SettleOne(const GroupOrder& order);
  // That it is held is durable when it returns: before any of it is in the store, or who finds it
  // only prepared after a crash could abort it. Gives the mutex up meanwhile.
  // Errors: kFailedPrecondition - it is not here.
  absl::Status HoldNow(const CommitKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckThere(const CommitKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it is held, and one of its objects is here.
  bool StaysHeld(const CommitKey& key);
  absl::StatusOr<CommitMessage> AwaitAnswer(uint64_t call, const CommitKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What the participant wants, but for applying.
  void Do(CommitActions actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t Append(std::string_view payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Account(const CommitRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until all up to `sequence` is durable. Gives the mutex up meanwhile.
  absl::Status AwaitDurable(uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Errors: kResourceExhausted - the disk is full, and the next one tries the same again; else
  // broken_.
  absl::Status WriteOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes a committed group into the store, durably.
  void Apply(const CommitKey& key);
  absl::Status WriteToStore(Version id, const GroupPart& part);
  // The objects of its fences that are over.
  absl::StatusOr<std::set<ObjectId>> ObjectsOver(const GroupPart& part);
  // What of it is newer than what is there; counts the writes that have no object any more, or one
  // of `over`.
  absl::StatusOr<std::vector<ObjectUpdate>> PlanUpdates(Version id, const GroupPart& part,
                                                        const std::set<ObjectId>& over,
                                                        uint64_t* dropped);
  void TellWritten(const std::vector<ObjectUpdate>& updates);

  void Work();
  // Asks all that the resolutions want to know; false where that is nothing.
  bool AskOnce();
  void TakeReply(uint64_t from, const CommitReply& reply);

  const std::shared_ptr<ObjectStore> store_;
  const Options options_;
  const Host host_;
  HybridClock clock_;
  std::unique_ptr<LogFile> file_;  // constant after Recover()

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  CommitLogState state_ ABSL_GUARDED_BY(mutex_);  // that all appended records come to
  // Not less than what state_ takes in a checkpoint, for each entry.
  std::map<CommitKey, uint64_t> entry_bytes_ ABSL_GUARDED_BY(mutex_);
  uint64_t state_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Core> log_ ABSL_GUARDED_BY(mutex_);
  std::optional<Groups> groups_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // of the record of state_.epoch
  uint64_t records_ ABSL_GUARDED_BY(mutex_) = 0;         // as the participant counts them
  // Sequences of its records that are not durable yet.
  std::map<uint64_t, uint64_t> sequences_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<LogWrite> unwritten_ ABSL_GUARDED_BY(mutex_);  // constant while writing_
  bool lacks_room_ ABSL_GUARDED_BY(mutex_) = false;            // it was tried, on a full disk
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = kFirstCall;
  std::vector<CommitSend> outgoing_ ABSL_GUARDED_BY(mutex_);  // of resolutions
  std::map<CommitKey, absl::Status> stuck_ ABSL_GUARDED_BY(mutex_);
  CommitLogCounts counts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  runtime::CondVar stopped_;
  std::thread worker_;  // constant after Open()
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_H_
