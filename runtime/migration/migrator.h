#ifndef ABACUS_RUNTIME_MIGRATION_MIGRATOR_H_
#define ABACUS_RUNTIME_MIGRATION_MIGRATOR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migration_core.h"

namespace abacus::runtime {

// How a move went. Durations are wall time at the source.
struct MigrationReport {
  std::vector<Rid> rids;
  NodeInstance from;
  NodeInstance to;
  absl::Status status;     // OK: committed
  absl::Duration quiesce;  // from the closed gate to the empty set
  absl::Duration checkpoint;
  absl::Duration blackout;  // from the closed gate until the objects admit calls again
  uint64_t state_bytes = 0;
  bool had_calls = false;  // a call was inside when the gate closed, or waited meanwhile
};

// Told of every move that began here and has ended, before Migrator::Move returns, and of what
// comes here. Thread-safety: thread-safe.
class MigrationObserver {
 public:
  virtual ~MigrationObserver() = default;
  virtual void OnMoved(const MigrationReport& report) = 0;
  // Objects have been restored here and are about to be admitted.
  virtual void OnArriving(const std::vector<Rid>& rids) { (void)rids; }
};

// Drives the migration half of the protocol core: drains, checkpoints and restores objects on
// threads of the binding manager's pool. Mechanism only: who moves where is decided elsewhere.
//
// Thread-safety: thread-safe.
class Migrator final : public MigrationHook {
 public:
  // Both must outlive the migrator; the binding manager is stopped before the migrator is deleted.
  Migrator(BindingManager* binding, CheckpointOptions checkpoints);
  // Ends the objects of the binding manager: their threads may be in calls, which pass the gates
  // that the migrator watches.
  ~Migrator() override;

  void set_observer(MigrationObserver* observer) { observer_ = observer; }

  // Moves objects that this node hosts to `target`, in one step behind one gate, and returns once
  // the move has ended. Before the gate is closed each may make itself lighter (BeforeMove), and
  // once more where the target had no room for what came along: then the move is tried twice, and
  // the observer told of both. When it fails the objects are active here and no invocation was
  // lost. REQUIRES: all rids have one home node. Errors: kObjectNotFound     - not on this node;
  // ask its home node.
  //         kMoveCancelled      - drained too slowly, refused by the target, crossed another move:
  //                               re-read the placement, do not retry blindly.
  //         kFailedPrecondition - anchored, or the target is this node or dead.
  //         kObjectLost         - the home had taken this node for dead: the objects are gone.
  //         kNodeUnreachable    - this node was stopped first; whether they moved is not known.
  // Blocking: yes; drain and transfer have deadlines of their own, but an undecided commit blocks
  // until the home answers or is dead. Limits: one move per object at a time.
  // Source: ABACUS paper, section 5.2.
  absl::StatusOr<MigrationReport> Move(const std::vector<Rid>& rids, NodeInstance target);

  using Core = MigrationCore<FaithfulPolicy>;
  Core::Counters Counters() const;

  // -- MigrationHook -------------------------------------------------------------------------
  void OnFrame(NodeInstance from, const Frame& frame, Nanos now, Actions& out) override;
  void OnPeerDead(NodeInstance peer, Nanos now, Actions& out) override;
  void Tick(Nanos now, Actions& out) override;
  void Perform(Actions& actions) override;
  void OnStop() override;

 private:
  // A move of this node, from its start to its report.
  struct Record {
    MigrationReport report;
    std::vector<Entry*> entries;
    Nanos begun_ns = 0;
    Nanos drained_ns = 0;
    bool scanned = false;
    bool ended = false;
    bool no_room = false;  // failed: what the objects bring along is too much
  };

  absl::StatusOr<MigrationReport> MoveOnce(const std::vector<Rid>& rids, NodeInstance target,
                                           bool* no_room);
  // Has those of the objects that are here and admit calls prepare for the move, in the order
  // given; `prepared` are those that did. True where one of them has become lighter.
  bool Prepare(const std::vector<Rid>& rids, NodeInstance target, bool no_room,
               std::vector<Rid>* prepared);
  void TellTheyStay(const std::vector<Rid>& prepared);
  // Calls `call` inside the object, as an invocation from this node that is background work of the
  // object. False where the object is not here, or admits nobody.
  bool RunInside(const Rid& rid, absl::FunctionRef<void(MobileObject&)> call);

  // Under the core's lock: marks the moves that calls wait for now.
  void NoteParkedCalls();
  void CheckDrained(const MigrationId& id);
  void Checkpoint(const MigrationId& id);
  void Restore(const Actions::Restore& restore);
  void End(const Actions::Ended& ended);

  BindingManager& binding_;
  const CheckpointOptions checkpoints_;
  MigrationObserver* observer_ = nullptr;  // constant once the node runs
  Core core_;                              // under the binding manager's core lock

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<MigrationId, Record> records_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_MIGRATION_MIGRATOR_H_
