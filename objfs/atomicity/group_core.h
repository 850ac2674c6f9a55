#ifndef ABACUS_OBJFS_ATOMICITY_GROUP_CORE_H_
#define ABACUS_OBJFS_ATOMICITY_GROUP_CORE_H_

// What one server decides about groups of block writes, without I/O: CommitLog without its log, its
// store and its threads. README.md, "A server's log object", says why it is right.

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/block_claims.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_peers.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// A group that is in a server's log, as one of the objects that it has a fence of is concerned.
struct PendingGroup {
  Version id;
  std::vector<CommitPart> group;  // all its members
  Version opening;                // of the object, in its fence
  bool committed = false;
  bool held = false;          // committed, without the word of all members (GroupFate)
  std::vector<Range> ranges;  // bytes of the object that it writes here, in whole blocks
  ABACUS_FIELDS(id, group, opening, committed, held, ranges)
};

// What becomes of a group, by the word of who has shut out all that could still prepare it at the
// members that answer him.
enum class GroupFate : uint8_t {
  kCommit,  // all members have prepared it
  // All that answer have, and one does not answer: it may have prepared the group or not. So it is
  // told by PendingOf() and kept, whatever other servers say, until kForget, or its object is gone:
  // who opens it before has to know.
  kCommitHeld,
  kAbort,  // a member has not prepared it, and never will
  // All members have it in their stores, or records of the object tell who may not, and are seen by
  // whoever opens it. Also of one that is held.
  kForget,
};
struct GroupOrder {
  Version id;
  GroupFate fate = GroupFate::kAbort;
  ABACUS_FIELDS(id, fate)
};

// The rules that the simulator of shared stripes breaks one at a time (cf. FaithfulCommitPolicy).
struct FaithfulGroupPolicy {
  static constexpr bool kClaimBlocks = true;
  static constexpr bool kReleaseDecided = true;
  static constexpr bool kCompareReads = true;
  static constexpr bool kCompareWrites = true;
};

// Invariants:
// 1. Between Begin() that lets a group in and the group's end here (applied, undone or refused)
//    nobody else begins with a block that it writes, nor writes one that it reads.
// 2. What PendingOf() has told is aborted by an order, and by nothing else.
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class GroupCore {
 public:
  using Participant = CommitParticipant<FaithfulCommitPolicy>;

  // After a restart, `durable` is what the records that were found come to. TakeClaims() and then
  // Start() are due.
  GroupCore(const CommitOptions& options, uint64_t server, const CommitEntries& durable, Nanos now);
  // What is prepared has its blocks again. Errors: kDataLoss - two groups are to write one block,
  // or a payload is no GroupPart.
  absl::Status TakeClaims();
  void Start(CommitActions* out) { participant_.Start(out); }

  struct Begun {
    Refusal refusal = Refusal::kNone;
    bool is_new = false;  // else it was answered before, or never will be prepared
  };
  // A kPrepare has come; `is_let_in`: by CommitLog::Host::enter. One that is new and not refused
  // has its blocks from now on: look at the store, by the two rules below, and then call Handle().
  Begun Begin(const CommitKey& key, const GroupPart& part, bool is_let_in);
  // Whether a block that it was planned with is as it was, by the version that is there now.
  static bool IsUnchanged(const GroupRead& read, Version there);
  // Whether its write would be seen over what is there.
  static bool IsNewer(Version id, Version there);
  // It was not handed to Handle() after all.
  void GiveUp(const CommitKey& key);

  // Whether that is a kAbort of what an opening was told of, which its own order decides: it is not
  // answered.
  bool IsKept(const CommitMessage& question) const;
  // A message of `from`; `vote`: whether a kPrepare that is new here is agreed to.
  void Handle(uint64_t from, const CommitMessage& message, bool vote, Nanos now,
              CommitActions* out);
  void Tick(Nanos now, CommitActions* out) { participant_.Tick(now, out); }
  // Before a committed group is written: after a restart it has its blocks again, but where another
  // one has prepared them since, which began when this one was written.
  void TakeBlocks(Version id, const GroupPart& part) { Claim(id, part); }
  void Applied(const CommitKey& key, CommitActions* out);

  // The groups that have a fence of that object, oldest first. `held`: those that are committed
  // without the word of all. Errors: kDataLoss - a payload is no GroupPart.
  absl::StatusOr<std::vector<PendingGroup>> PendingOf(ObjectId id, const std::set<CommitKey>& held);
  // The question that an order is here. One that is to be held is so, durably, before it is put.
  CommitMessage BeginOrder(const GroupOrder& order);
  // When it is done, or has failed: true where the group was to be aborted and is committed by now,
  // as all had prepared it once. Then kCommit is to be asked, as who has given the order writes
  // over it next, and must not be written over.
  bool EndOrder(const GroupOrder& order);

  const Participant& participant() const { return participant_; }
  const BlockClaims& claims() const { return claims_; }

 private:
  bool Claim(Version id, const GroupPart& part);
  void Release(Version id);

  const uint64_t server_;
  Participant participant_;
  BlockClaims claims_;
  // Groups that PendingOf() has told and that are not settled yet; some may be gone.
  std::set<CommitKey> told_;
};

extern template class GroupCore<FaithfulGroupPolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_GROUP_CORE_H_
