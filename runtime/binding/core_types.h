#ifndef ABACUS_RUNTIME_BINDING_CORE_TYPES_H_
#define ABACUS_RUNTIME_BINDING_CORE_TYPES_H_

// What goes into and comes out of the protocol core (runtime/binding/call_core.h and
// runtime/migration/migration_core.h).
//
// The core is a state machine: an event comes in under the core's lock, actions come out and are
// done after the lock is dropped. It has no threads, clocks, sockets or randomness; the node and
// the simulator drive the same library.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/codec.h"
#include "runtime/base/ids.h"
#include "runtime/binding/dedup_table.h"
#include "runtime/binding/location_table.h"
#include "runtime/binding/messages.h"
#include "runtime/object/entry.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

using Nanos = int64_t;  // of a clock that only has to go forward

struct CoreOptions {
  size_t hints_max = 65536;
  DedupLimits dedup;
  uint32_t nesting_max = 64;
  Nanos probe_interval_ns = 2'000'000'000;
  Nanos retry_min_ns = 1'000'000;
  Nanos retry_max_ns = 200'000'000;
  Nanos drain_deadline_ns = 2'000'000'000;
  Nanos transfer_deadline_ns = 60'000'000'000;
  Nanos orphan_grace_ns = 30'000'000'000;
};

// The life of an object on one node. An object that is not in the table is absent; `departed` is
// the moment at which it leaves the table.
enum class ObjectPhase : uint8_t {
  kRestoring,  // target: state is being restored
  kRestored,   // target: restored, does not admit
  kActive,
  kQuiescing,  // source: admits only activities that are inside the moving set
  kQuiesced,   // source: nobody inside; the checkpoint is taken or under way
};

struct MovingSet;

// A call that came from another node and waits until the object admits it.
struct ParkedCall {
  NodeInstance from;
  CallMessage message;
  Frame frame;
  size_t tail = 0;
};

struct PendingCall;

// The core's record of an object on this node.
struct ObjectState {
  Rid rid;
  void* host = nullptr;  // the environment's own record (an Entry, or the simulator's object)
  ObjectPhase phase = ObjectPhase::kActive;
  bool anchored = false;
  bool destroying = false;
  uint64_t epoch = 1;
  MovingSet* moving = nullptr;
  std::vector<ActivityId> inside;     // roots of the calls that the core has admitted and that run
  std::unique_ptr<DedupTable> dedup;  // made at the first call from another node
  struct Waiting {
    std::vector<ParkedCall> remote;
    std::vector<PendingCall*> local;
  };
  std::unique_ptr<Waiting> waiting;  // made when the first call has to wait

  // True where invocations run here or will again: this node is the object's host.
  bool hosted() const { return phase >= ObjectPhase::kActive; }
};

// Objects of one host that move together behind one gate.
struct MovingSet {
  MigrationId id;
  std::vector<ObjectState*> members;
  Rid lowest;
  bool drained = false;
};

// A call of a thread of this node. The thread owns it and keeps it alive until it is woken for it
// or has given it up (CallCore::Abandon).
struct PendingCall {
  Rid rid;
  CallId id;
  ActivityId root;
  Lineage lineage;
  uint32_t method = 0;
  Payload arguments;

  enum class State : uint8_t {
    kIdle,
    kSent,
    kBackingOff,  // it will be routed again at `due_ns`
    kParkedHere,  // the object is here and being moved
    kAnswered,    // `reply` and `result` are the answer
    kRetry,       // where it should go has changed: Start() again
  };
  State state = State::kIdle;
  NodeInstance destination;
  uint64_t hint_epoch = 0;    // under which `destination` was believed to host the object
  NodeInstance dead_host;     // a process that had the call when it died
  bool may_have_run = false;  // it was sent, and what became of it there is not known
  uint64_t issue = 0;         // its number among the calls that this node has sent
  uint32_t transmissions = 0;
  uint32_t redirects = 0;
  Nanos due_ns = 0;
  Nanos interval_ns = 0;  // of probes
  Nanos backoff_ns = 0;
  Rid parked_behind;  // lowest rid of a set that the call waits for, here or elsewhere
  ReplyMessage reply;
  Payload result;
  void* host = nullptr;  // the environment's own record
};

// What the core wants done, in this order: wakes, sends, then the rest.
struct Actions {
  struct Send {
    NodeInstance to;
    Lane lane;
    Frame frame;
    // Of a message that takes long to send and is repeated until it is answered: while one is being
    // sent, another one of the same number is not begun. 0: of none.
    uint64_t long_send = 0;
  };
  // Run a method. When it has returned: CallCore::FinishExecution.
  struct Execute {
    void* host;
    NodeInstance from;
    CallMessage message;
    Frame frame;
    size_t tail = 0;
  };
  struct RestoreObject {
    Rid rid;
    std::string class_name;
    Payload checkpoint;
  };
  // Make the objects from their checkpoints. Then: MigrationCore::OnRestored.
  struct Restore {
    MigrationId migration;
    std::vector<RestoreObject> objects;
  };
  // Take checkpoints of a drained set. Then: MigrationCore::OnCheckpointed.
  struct Checkpoint {
    MigrationId migration;
  };
  // Delete an object that is not here any more. Nobody is inside.
  struct Destroy {
    Rid rid;
    void* host;
  };
  // A migration that this node began has ended.
  struct Ended {
    MigrationId migration;
    absl::Status status;   // OK: committed
    bool no_room = false;  // else: because what the objects bring along is too much
  };

  std::vector<PendingCall*> wakes;
  std::vector<PendingCall*> rerouted;  // sent again, perhaps elsewhere: the answer comes from there
  std::vector<Send> sends;
  std::vector<Execute> executes;
  std::vector<MigrationId> check_drained;  // somebody left a set that is being quiesced
  std::vector<Checkpoint> checkpoints;
  std::vector<Restore> restores;
  std::vector<Destroy> destroys;
  std::vector<Rid> check_idle;  // an object that is to be destroyed may be idle now
  std::vector<Ended> ended;

  bool empty() const {
    return wakes.empty() && rerouted.empty() && sends.empty() && executes.empty() &&
           check_drained.empty() && checkpoints.empty() && restores.empty() && destroys.empty() &&
           check_idle.empty() && ended.empty();
  }
  void clear() { *this = Actions(); }
};

// What the core asks of its surroundings while it decides. Called under the core's lock: no method
// blocks, takes a lock that is held around the core, or calls back.
class CoreEnvironment {
 public:
  virtual ~CoreEnvironment() = default;
  virtual void SetGate(const ObjectState& object, Gate gate) = 0;
  // True where an activity with that root is inside one of the objects by a co-located call.
  virtual bool LocalInside(absl::Span<ObjectState* const> objects, const ActivityId& root) = 0;
};

// Counted, typed outcomes. All since the node started.
struct CoreCounters {
  DedupCounters dedup;
  uint64_t calls_sent = 0;
  uint64_t calls_executed = 0;
  uint64_t redirects = 0;
  uint64_t probes = 0;
  uint64_t resent = 0;
  uint64_t parked = 0;
  uint64_t outcome_unknown = 0;
  uint64_t objects_lost = 0;
  uint64_t bad_frames = 0;
  uint64_t from_the_dead = 0;  // messages of processes that are known to be dead
  uint64_t orphans_destroyed = 0;
};

// The rules of the protocol that the simulator breaks one at a time to see that its checks notice.
// The library is built with this one, in which every rule holds: the broken ones are compiled into
// the test only (runtime/migration/core_mutation_test.cc).
struct FaithfulPolicy {
  static constexpr bool kCheckDuplicates = true;
  static constexpr bool kDropOlderCalls = true;
  static constexpr bool kKeepTombstones = true;
  static constexpr bool kCarrySequence = true;
  static constexpr bool kParkWhileQuiescing = true;
  static constexpr bool kAdmitInsiders = true;
  static constexpr bool kFenceTheDead = true;
  static constexpr bool kReportUnknownOutcome = true;
  static constexpr bool kCheckEpochAtHome = true;
  static constexpr bool kRecordCommit = true;
  static constexpr bool kMoveDedupTable = true;
  static constexpr bool kWaitForDrain = true;
  static constexpr bool kActivateAfterCommit = true;
  static constexpr bool kDepartAfterCommit = true;
  static constexpr bool kNoRollbackAfterCommit = true;
  static constexpr bool kAbortThroughHome = true;
  static constexpr bool kDiscardOnAbort = true;
  static constexpr bool kTakeOverThroughHome = true;
  static constexpr bool kHonourRefusal = true;
  static constexpr bool kSwearOff = true;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_CORE_TYPES_H_
