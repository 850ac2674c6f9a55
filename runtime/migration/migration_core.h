#ifndef ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_H_
#define ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/binding/call_core.h"
#include "runtime/migration/messages.h"

namespace abacus::runtime {

// All since the node started.
struct MigrationCounters {
  uint64_t begun = 0;
  uint64_t committed = 0;
  uint64_t cancelled = 0;
  uint64_t cancelled_slow_drain = 0;
  uint64_t cancelled_crossing = 0;  // two sets waited for each other
  uint64_t taken_over = 0;          // a target committed for a dead source
  uint64_t refused = 0;
};

// The migration half of the protocol core: moves a set of objects of one home from their host to
// another node, so that at every instant at most one node executes their invocations and exactly
// one does after the end (paper, section 5.2).
//
//   source                       home                        target
//   close the gate, drain
//   kBegin ------------------->  note the intent
//          <------------------ kBeginReply
//   checkpoint
//   kTransfer ------------------------------------------->   restore, do not admit
//          <--------------------------------------------- kRestored
//   kCommit ------------------>  row: epoch e -> e+1     <-- THE COMMIT
//          <------------------ kCommitReply
//   kActivate ------------------------------------------->   admit
//   depart, redirect  <----------------------------------- kActivated
//
// Rules:
//  1. Before the transfer is sent the source aborts alone. After it the home decides: an abort is a
//     change of the row too (e -> e+1, still at the source), so that a target that takes over and a
//     source that aborts can never both win, whatever each believes of the other.
//  2. A target that has restored and learns that the source is dead asks the home to commit.
//  3. When the home dies, the source asks the target: activated means committed; otherwise the
//     target swears off this migration and the source goes on at e+2.
//  4. Every message may come twice, late or never: each step is repeated until it is answered, and
//     each answer is computed from state and not from the fact that a message came.
//  5. The home announces the loss of an object only when its host is dead and no target holds it.
//
// Thread-compatible: the lock of the CallCore protects it.
template <class Policy>
class MigrationCore {
 public:
  explicit MigrationCore(CallCore<Policy>* calls) : calls_(*calls) {}

  // -- at the source -------------------------------------------------------------------------

  // Begins to move objects that this node hosts: closes their gate. The environment now watches for
  // the set to drain and calls OnDrained().
  // Errors: kObjectNotFound (not here), kFailedPrecondition (anchored, or several homes, or the
  // target is this node or dead), kAborted (one of them is being moved or destroyed).
  absl::StatusOr<MigrationId> StartMove(const std::vector<Rid>& rids, NodeInstance target,
                                        Nanos now, Actions& out);
  // No co-located call is inside the set. Goes on where no admitted call is inside either.
  void OnDrained(const MigrationId& id, Nanos now, Actions& out);
  // The checkpoints that an Actions::Checkpoint asked for, without the de-duplication tables.
  void OnCheckpointed(const MigrationId& id, absl::StatusOr<std::vector<SavedObject>> objects,
                      Nanos now, Actions& out);
  // Gives up a move where that is still possible; it ends, one way or the other, in Actions::Ended.
  void Cancel(const MigrationId& id, const absl::Status& why, Nanos now, Actions& out);
  // The set of a migration that is under way and not drained yet; null otherwise.
  const MovingSet* Draining(const MigrationId& id) const;
  // Objects of a migration that is being checkpointed.
  std::vector<ObjectState*> Members(const MigrationId& id) const;

  // -- at the target -------------------------------------------------------------------------

  // The objects of an Actions::Restore have been made (their hosts, in order), or could not be.
  void OnRestored(const MigrationId& id, const absl::StatusOr<std::vector<void*>>& hosts, Nanos now,
                  Actions& out);

  // -- all -----------------------------------------------------------------------------------

  // A frame of a type from kFirstOfMigration on.
  void OnFrame(NodeInstance from, const Frame& frame, Nanos now, Actions& out);
  // What was sent to `peer` may have been lost: it is sent again at the next Tick().
  void OnReconnected(NodeInstance peer, Nanos now);
  // Call after CallCore::OnPeerDead.
  void OnPeerDead(NodeInstance peer, Nanos now, Actions& out);
  void Tick(Nanos now, Actions& out);

  size_t outgoing() const { return outgoing_.size(); }
  size_t incoming() const { return incoming_.size(); }
  size_t claims() const { return claims_.size(); }
  size_t sworn_off() const { return over_.size(); }

  using Counters = MigrationCounters;
  const Counters& counters() const { return counters_; }

 private:
  enum class Step : uint8_t {
    kDraining,
    kCheckpointing,
    kTransferring,  // until kRestored
    kCommitting,    // until the home answers
    kAborting,      // likewise
    kAskingTarget,  // the home is dead
    kActivating,    // committed; until the target has it
    kDiscarding,    // aborted; until the target has let go
  };
  struct Outgoing {
    MigrationId id;
    NodeInstance target;
    NodeInstance home;
    MovingSet set;  // members are valid until the objects depart
    std::vector<Rid> rids;
    std::vector<uint64_t> epochs;
    Step step = Step::kDraining;
    bool begun = false;        // the home has noted the intent
    bool transferred = false;  // the target may have a copy
    absl::Status why;          // of a cancellation
    bool no_room = false;      // which was: what the objects bring along is too much
    std::vector<SavedObject> saved;
    Nanos due_ns = 0;
    Nanos interval_ns = 0;
    Nanos deadline_ns = 0;
  };
  struct Incoming {
    MigrationId id;
    NodeInstance home;
    std::vector<Rid> rids;
    std::vector<uint64_t> epochs;
    std::vector<SavedObject> saved;
    bool restored = false;
    bool discarded = false;
    Nanos due_ns = 0;
    Nanos interval_ns = 0;
  };
  struct Claim {
    MigrationId id;
    NodeInstance target;
    Nanos due_ns = 0;
  };

  Outgoing* FindOutgoing(const MigrationId& id);
  Incoming* FindIncoming(const MigrationId& id);
  void Enter(Outgoing& move, Step step, Nanos now, Actions& out);
  void Repeat(const Outgoing& move, Actions& out);
  void Transfer(Outgoing& move, Nanos now, Actions& out);
  void AskHome(const Outgoing& move, CommitMessage::Verb verb, Actions& out);
  void Resume(Outgoing& move, uint64_t epochs_further, Nanos now, Actions& out);
  void Depart(Outgoing& move, bool to_target, Nanos now, Actions& out);
  void End(Outgoing& move, const absl::Status& status, Actions& out);
  void CancelCrossing(Nanos now, Actions& out);

  void OnBegin(NodeInstance from, const BeginMessage& message, Actions& out);
  void OnBeginReply(const AnswerMessage& message, Nanos now, Actions& out);
  void OnTransfer(NodeInstance from, TransferMessage message, Nanos now, Actions& out);
  void OnRestoredReply(NodeInstance from, const AnswerMessage& message, Nanos now, Actions& out);
  void OnCommit(NodeInstance from, const CommitMessage& message, Actions& out);
  CommitReplyMessage::Outcome Decide(const CommitMessage& message);
  void OnCommitReply(const CommitReplyMessage& message, Nanos now, Actions& out);
  void OnHomeSaid(Outgoing& move, CommitReplyMessage::Outcome outcome, Nanos now, Actions& out);
  void OnActivate(NodeInstance from, const MigrationId& id, Nanos now, Actions& out);
  void OnDiscard(NodeInstance from, const MigrationId& id, uint64_t epochs_further, Nanos now,
                 Actions& out);
  void OnQuery(NodeInstance from, const MigrationId& id, Nanos now, Actions& out);
  void OnQueryReply(const AnswerMessage& message, Nanos now, Actions& out);
  void OnClaim(NodeInstance from, const MigrationId& id, Nanos now, Actions& out);
  void OnNotHeld(const MigrationId& id, Nanos now, Actions& out);

  void TakeOver(Incoming& move, Nanos now, Actions& out);
  void Activate(Incoming& move, Nanos now, Actions& out);
  void Drop(Incoming& move, uint64_t epochs_further, Nanos now, Actions& out);
  void Finish(Incoming& move);
  void SwearOff(const MigrationId& id);
  bool IsOver(const MigrationId& id) const;
  void ForgetOver(NodeInstance source, uint64_t oldest);

  template <typename Message>
  void Send(NodeInstance to, Lane lane, MigrationMessageType type, const Message& message,
            Actions& out, uint64_t long_send = 0) {
    if (!calls_.IsDead(to)) out.sends.push_back({to, lane, MakeFrame(type, message), long_send});
  }

  CallCore<Policy>& calls_;
  uint64_t last_local_ = 0;
  // Ordered maps: a run of the simulator must not depend on addresses or hash seeds.
  std::map<MigrationId, std::unique_ptr<Outgoing>> outgoing_;
  std::map<MigrationId, std::unique_ptr<Incoming>> incoming_;
  std::map<Rid, Claim> claims_;
  // Migrations that must never be restored here: finished, discarded or sworn off ones, so that a
  // late duplicate of their transfer is known: those named here, and of each source all below a
  // number that it tells. Those of a dead source are forgotten.
  std::set<MigrationId> over_;
  std::map<NodeInstance, uint64_t> over_below_;
  Counters counters_;
};

extern template class MigrationCore<FaithfulPolicy>;

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_MIGRATION_MIGRATION_CORE_H_
