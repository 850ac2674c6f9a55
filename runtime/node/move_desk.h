#ifndef ABACUS_RUNTIME_NODE_MOVE_DESK_H_
#define ABACUS_RUNTIME_NODE_MOVE_DESK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/binding/worker_pool.h"
#include "runtime/migration/migrator.h"
#include "runtime/node/control_client.h"
#include "runtime/node/control_types.h"
#include "runtime/node/membership_agent.h"
#include "runtime/node/serial_queue.h"
#include "runtime/resource/placement_loop.h"
#include "runtime/resource/resource_manager.h"

namespace abacus::runtime {

struct MoveDeskOptions {
  // The engine leaves an object alone for so long after it was moved by hand.
  absl::Duration hand_move_hold = absl::Seconds(300);
  // A command that was passed on to another node is waited for at most so long.
  absl::Duration command_deadline = absl::Seconds(90);
};

// Where moves are ordered and told of: takes commands by hand and by the engine, brings each to the
// node that hosts its objects, has the migrator carry it out there, and tells those who are
// concerned how it went.
//
// By hand takes precedence: a command by hand waits for a move of the engine that is under way,
// follows the object and is then held at its home; the engine's moves ask the home first, and are
// not passed on, because a decision about another placement is no decision about this one.
//
// Thread-safety: thread-safe.
class MoveDesk final : public MigrationObserver {
 public:
  static constexpr size_t kRecentMax = 256;
  // Moves of the engine under way, and tellings under way; more fail, or are dropped and counted.
  static constexpr size_t kMovesMax = 64;
  static constexpr size_t kTellingsMax = 256;

  // All must outlive the desk.
  MoveDesk(const MoveDeskOptions& options, BindingManager* binding, Migrator* migrator,
           ResourceManager* resources, MembershipAgent* membership, ControlClients* clients);

  // Moves objects wherever they are now, all of them hosted by one node.
  // Errors: as Migrator::Move; kNotFound - no such node is alive; kNodeUnreachable - a node on the
  // way is not reached, or the objects' place is not known; kAborted - they move faster than the
  // command follows.
  // Blocking: until the move has ended.
  absl::StatusOr<MoveRecord> Move(const MoveCommand& command);

  // Pins or unpins at the object's home, which is asked where it is another node.
  // Errors: as Move(); kObjectNotFound - the home knows no such object.
  absl::Status Pin(const PinCommand& command);
  // What the engine has been told of those of `rids` (of this home) that it has been told of.
  std::vector<PinRecord> PinsHere(const std::vector<Rid>& rids) const;

  // Carries out a move of this node's engine in the background, and then calls `done` on a thread
  // of the desk's.
  using Done = std::function<void(const PlannedMove&, const absl::StatusOr<MoveRecord>&)>;
  void CarryOut(const PlannedMove& move, Done done);

  // Another node tells of a move that has ended.
  void Told(const MoveRecord& record);

  // See Node::SetMoveObserver.
  void SetObserver(std::function<void(const MoveEvent&)> observer);
  // Newest first.
  std::vector<MoveRecord> Recent() const;
  // Tellings that were dropped or did not arrive.
  uint64_t untold() const;

  // Ends waiting; commands fail from now on.
  void Stop();
  // After ControlClients::CancelAll() and Migrator::OnStop().
  void Join();

  // MigrationObserver: moves that began here.
  void OnMoved(const MigrationReport& report) override;

 private:
  // A move under way here, from its command to its report.
  struct UnderWay {
    MoveCommand command;
    std::vector<std::string> class_names;
    std::optional<MoveRecord> record;
  };

  absl::StatusOr<MoveRecord> Follow(const MoveCommand& command);
  absl::StatusOr<MoveRecord> Execute(const MoveCommand& command, const MemberInfo& target);
  absl::StatusOr<MoveRecord> CarryOutNow(const PlannedMove& move);
  // Errors: kMoveCancelled - an object is held, or not allowed on `target`. The engine decides on
  // digests, which may be of before that was said.
  absl::Status CheckPins(const std::vector<Rid>& rids, NodeId target);
  absl::Status CheckPinsAt(NodeInstance home, const std::vector<Rid>& rids, NodeId target);
  absl::StatusOr<std::shared_ptr<UnderWay>> Enter(const MoveCommand& command);
  MoveRecord AlreadyThere(const MoveCommand& command) const;
  bool HostedHere(const Rid& rid) const;
  NodeInstance WhereIs(const Rid& rid) const;
  void Hold(const std::vector<Rid>& rids);
  absl::Status PinHere(const PinCommand& command);
  void Tell(const MoveRecord& record);
  void Keep(const MoveRecord& record);
  bool Pause(absl::Duration time);
  std::string ClassName(const Rid& rid) const;

  const MoveDeskOptions options_;
  BindingManager& binding_;
  Migrator& migrator_;
  ResourceManager& resources_;
  MembershipAgent& membership_;
  ControlClients& clients_;

  mutable Mutex mutex_;  // a leaf
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Rid, std::shared_ptr<UnderWay>> under_way_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_serial_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<MoveRecord> recent_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const MoveEvent&)> observer_ ABSL_GUARDED_BY(mutex_);
  size_t engine_moves_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t tellings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> untold_{0};
  SerialQueue observations_;
  WorkerPool pool_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_MOVE_DESK_H_
