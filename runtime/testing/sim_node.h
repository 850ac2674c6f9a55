#ifndef ABACUS_RUNTIME_TESTING_SIM_NODE_H_
#define ABACUS_RUNTIME_TESTING_SIM_NODE_H_

// One simulated process: the protocol core and what the node keeps around it (objects with gates,
// threads with stacks of frames), driven event by event.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/testing/sim_cores.h"
#include "runtime/testing/sim_oracle.h"

namespace abacus::runtime::sim {

class SimNode final : public CoreEnvironment {
 public:
  SimNode(SimWorld* world, NodeInstance self, const SimCoresFactory& factory);
  ~SimNode() override;

  NodeInstance self() const { return self_; }
  SimCores& cores() { return *cores_; }

  // Makes an object whose home is this node; returns its index.
  size_t CreateObject();
  // Begins a call on a thread of its own, and returns its number.
  uint64_t Call(Script script);
  // Makes a thread that stays, and asks SimWorld::on_root_idle what to do.
  void StartRoot();
  // The next call of a root thread.
  uint64_t CallFrom(uint64_t thread, Script script);
  absl::StatusOr<MigrationId> Move(const std::vector<size_t>& objects, NodeId target);
  void Cancel(const MigrationId& id);
  absl::Status Destroy(size_t object);

  void Receive(NodeInstance from, Frame frame);
  void Tick();
  void OnPeerDead(NodeInstance peer);
  void OnReconnected(NodeInstance peer);

  // The status of a move that has ended.
  const absl::Status* Ended(const MigrationId& id) const;
  const Ledger* FindCopy(const Rid& rid);
  // Threads that are in the middle of a call.
  size_t busy_threads() const;
  bool AnybodyInside(const Ledger& copy) const;

  // -- CoreEnvironment -----------------------------------------------------------------------
  void SetGate(const ObjectState& object, Gate gate) override;
  bool LocalInside(absl::Span<ObjectState* const> objects, const ActivityId& root) override;

  // For the oracle: which objects this process hosts, by index.
  std::vector<bool> hosts;

 private:
  struct SimFrame {
    uint64_t number = 0;
    Ledger* copy = nullptr;
    bool admitted_inside = false;  // by the core: it must be told when this frame goes
    size_t step = 0;
    size_t branches_left = 0;
  };
  struct SimThread {
    uint64_t id = 0;
    ActivityId activity;
    ActivityId root;
    uint32_t base_level = 0;
    uint64_t sequence = 0;
    std::vector<SimFrame> frames;
    std::unique_ptr<Actions::Execute> execution;  // of a worker
    uint64_t parent = 0;                          // of a branch: the thread that joins it
    bool stays = false;
    uint64_t number = 0;  // the call that it is making, not counting those it is inside of
    PendingCall call;
    uint32_t level() const { return base_level + static_cast<uint32_t>(frames.size()); }
  };

  ActivityId NewActivity() { return {self_, ++last_activity_}; }
  SimThread& NewThread(const ActivityId& activity, const ActivityId& root, uint32_t level,
                       uint64_t sequence);
  SimThread* FindThread(uint64_t id);
  void Perform(Actions& actions);
  Nanos PoolDelay();

  // A thread's way through its calls; each may delete the thread.
  void Begin(SimThread& thread, const Script& script, uint64_t parent_call);
  void Dispatch(SimThread& thread);
  void Resume(SimThread& thread);
  void Enter(SimThread& thread, Ledger& copy, uint64_t number, bool admitted_inside);
  void StepFrame(SimThread& thread);
  void Fork(SimThread& thread, const Script::Step& step);
  void GiveUp(uint64_t branch);
  void Leave(SimThread& thread);
  void Finish(SimThread& thread, uint64_t value);
  void EndCall(SimThread& thread, const absl::Status& status, uint64_t value);
  void GoOn(SimThread& thread);

  void StartWorker(Actions::Execute execution);
  void CheckDrained(const MigrationId& id);
  void CheckIdle(const Rid& rid);
  void Left(const Ledger& copy);
  void TakeCheckpoint(const MigrationId& id);
  void Restore(const Actions::Restore& restore);

  SimWorld& world_;
  const NodeInstance self_;
  std::unique_ptr<SimCores> cores_;
  absl::flat_hash_map<const void*, std::unique_ptr<Ledger>> copies_;
  std::map<uint64_t, std::unique_ptr<SimThread>> threads_;
  std::map<MigrationId, absl::Status> ended_;
  uint64_t last_activity_ = 0;
  uint64_t last_thread_ = 0;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_NODE_H_
