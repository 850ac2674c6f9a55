#ifndef ABACUS_RUNTIME_TESTING_SIM_ORACLE_H_
#define ABACUS_RUNTIME_TESTING_SIM_ORACLE_H_

// What really happened in a simulation, seen from above, and the checks of the protocol's
// promises. The nodes report to it; nothing flows back into them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "runtime/base/codec.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"
#include "runtime/binding/core_types.h"
#include "runtime/object/entry.h"

namespace abacus::runtime::sim {

class SimNode;
class SimWorld;

// What a call does inside its object: it works, then takes its steps in turn.
struct Script {
  struct Step;
  size_t object = 0;  // index of the object that is called
  Nanos work_ns = 0;
  std::vector<Step> steps;
};
struct Script::Step {
  Nanos work_ns = 0;
  std::vector<Script> calls;  // one: a nested call; more: a fork, joined before the next step
  Nanos hedge_ns = 0;         // of a fork: the last branch is given up after so long; 0: never
};

// A call that ran, as its object remembers it.
struct LedgerEntry {
  ActivityId activity;
  uint32_t level = 0;
  uint64_t sequence = 0;
  uint64_t number = 0;
  ABACUS_FIELDS(activity, level, sequence, number)
  bool operator==(const LedgerEntry&) const = default;
};

// An object of the simulation: the list of the calls that ran in it.
struct Ledger {
  Rid rid;
  size_t index = 0;
  Gate gate = Gate::kAbsent;
  std::vector<LedgerEntry> entries;
  uint64_t digest = 0;

  void Append(const LedgerEntry& entry);
};

// A call, from its beginning to its end, over all nodes that see it.
struct CallRecord {
  enum class End : uint8_t {
    kNone,  // under way
    kOk,
    kUnknown,  // typed: ran once or not at all
    kNotRun,   // typed: did not run and will not
    kCallerDied,
    kGivenUp,  // the branch of a fork whose result is not wanted any more
  };
  uint64_t number = 0;  // unique; grows in the order in which calls begin
  uint64_t parent = 0;  // 0: begun by a root
  size_t object = 0;
  ActivityId activity;
  NodeInstance caller;
  const Script* script = nullptr;
  std::unique_ptr<Script> owned_script;
  End end = End::kNone;
  ErrorKind kind = ErrorKind::kNone;
  absl::Status status;
  bool ran = false;
  bool copied = false;  // the network duplicated a frame that carried it
  NodeInstance ran_on;
  uint64_t value = 0;  // what it returns
};

struct ObjectRecord {
  Rid rid;
  std::vector<LedgerEntry> ran;  // the truth
  uint64_t digest = 0;
  absl::flat_hash_map<ActivityId, uint64_t> newest;  // call of each activity
  NodeInstance holder;                               // of the live copy: the last committed host
  NodeInstance previous_holder;
  bool destroyed = false;
  bool may_be_lost = false;  // the process that held the live copy is dead
  bool seen_lost = false;    // its home said so
  uint64_t row_epoch = 0;
  uint64_t host_epoch = 0;
};

class Oracle {
 public:
  explicit Oracle(SimWorld* world) : world_(*world) {}

  // The first broken promise. `check` is the promise's name.
  void Fail(const std::string& check, const std::string& what);
  bool failed() const { return !check_.empty(); }
  const std::string& check() const { return check_; }
  const std::string& what() const { return what_; }

  size_t AddObject(const Rid& rid, NodeInstance holder);
  CallRecord& NewCall(const Script* script, uint64_t parent, NodeInstance caller,
                      const ActivityId& activity);
  CallRecord& call(uint64_t number) { return *calls_[number - 1]; }
  ObjectRecord& object(size_t index) { return objects_[index]; }
  size_t objects() const { return objects_.size(); }
  size_t calls() const { return calls_.size(); }
  int IndexOf(const Rid& rid) const;  // -1 where it is no object of this simulation

  // A call begins to run in a copy: checks that this is the live, latest copy, that the call has
  // not run and is in order, and appends it to copy and truth.
  void OnRun(SimNode& node, Ledger& copy, CallRecord& call, uint32_t level, uint64_t sequence);
  // It has left the copy, which must still be the live one.
  void OnLeave(SimNode& node, const Ledger& copy, const CallRecord& call);
  // The caller has its answer.
  void OnEnd(CallRecord& call, const absl::Status& status, uint64_t value);
  void OnDestroyed(size_t object);
  void OnCrash(NodeInstance dead);

  // After every event at `node`: one live copy, epochs, rows, insiders.
  void AfterEvent(SimNode& node);
  // When all is quiet: nothing is left over, rows agree with hosts, nothing was lost in vain.
  void AtEnd();

 private:
  bool Detached(const CallRecord& call) const;
  void CheckRow(SimNode& home, ObjectRecord& object);
  void CheckInsiders(SimNode& node);
  void CheckAtRest(SimNode& node);
  void CheckObjectAtEnd(size_t index);

  SimWorld& world_;
  std::string check_;
  std::string what_;
  std::vector<std::unique_ptr<CallRecord>> calls_;
  std::vector<ObjectRecord> objects_;
  absl::flat_hash_map<Rid, size_t> index_;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_ORACLE_H_
