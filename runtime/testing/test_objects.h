#ifndef ABACUS_RUNTIME_TESTING_TEST_OBJECTS_H_
#define ABACUS_RUNTIME_TESTING_TEST_OBJECTS_H_

// The objects that the runtime's tests call and move.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/block.h"
#include "runtime/base/mutex.h"
#include "runtime/base/sync_point.h"
#include "runtime/object/manager.h"
#include "runtime/object/mobile_object.h"

namespace abacus::runtime::testing {

// Notices every call that is lost, run twice or out of order. Clients number their calls from 1.
class Ledger : public MobileObject {
 public:
  // What the object has seen of one client.
  struct Row {
    uint64_t last = 0;
    uint64_t calls = 0;
    uint64_t doubled = 0;  // a number that had been seen
    uint64_t skipped = 0;  // numbers that had not come when a later one did
    ABACUS_FIELDS(last, calls, doubled, skipped)
    bool operator==(const Row&) const = default;
  };

  // Returns how many calls of that client have come, this one included.
  absl::StatusOr<uint64_t> Record(uint64_t client, uint64_t number);
  // The same through another object, so that the call is nested.
  absl::StatusOr<uint64_t> RecordIn(Ref<Ledger> other, uint64_t client, uint64_t number);
  absl::StatusOr<Row> Read(uint64_t client);

  void Checkpoint(CheckpointWriter& writer) const override;
  absl::Status Restore(CheckpointReader& reader) override;
  ABACUS_OBJECT(Ledger, "test.Ledger", 1, Record, RecordIn, Read)

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);
};

// Follows a script, so that one class makes any pattern of nested calls:
//   +        counts one up
//   @name;   reaches the node's sync point `name`
//   2(...)   calls actor 2 of the cast, which follows what stands in the parentheses
//   [2(...)3(...)]   the same for several at once: forks all, then joins all
//   [2(...)]!        forks, and drops the branches
//   ?        fails, with kFailedPrecondition and its own count as the message
// Returns the number of steps that it and those below it have taken, calls not counted.
class Actor : public MobileObject {
 public:
  using Cast = std::vector<Ref<Actor>>;

  Actor() = default;
  explicit Actor(SyncPoints* points) : points_(points) {}

  absl::StatusOr<int64_t> Play(std::string script, Cast cast);
  absl::StatusOr<int64_t> Count();
  // Calls `other`, which calls back here, and so on until `depth` calls are nested.
  absl::StatusOr<int64_t> Bounce(Ref<Actor> other, int64_t depth);

  void Checkpoint(CheckpointWriter& writer) const override;
  absl::Status Restore(CheckpointReader& reader) override;
  ABACUS_OBJECT(Actor, "test.Actor", 1, Play, Count, Bounce)

 private:
  absl::StatusOr<int64_t> Fork(const std::vector<std::pair<size_t, std::string>>& branches,
                               bool abandon, const Cast& cast);

  SyncPoints* const points_ = nullptr;
  std::atomic<int64_t> count_{0};
};

// Gives its actors the sync points of the node that they are on.
class ActorManager : public ObjectManager {
 public:
  explicit ActorManager(SyncPoints* points) : points_(points) {}
  absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo&, size_t) override {
    return std::make_unique<Actor>(points_);
  }

 private:
  SyncPoints* const points_;
};

// Callers wait for each other inside.
class Rendezvous : public MobileObject {
 public:
  // Returns true once `callers` calls are inside at the same time, and false where they were not
  // within a minute.
  absl::StatusOr<bool> Meet(uint32_t callers);

  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Rendezvous, "test.Rendezvous", 1, Meet)

 private:
  Mutex mutex_;
  CondVar changed_;
  uint32_t inside_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t met_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Takes one activity at a time, without a lock of its own: the runtime is what keeps its members
// whole.
class Solo : public MobileObject {
 public:
  static constexpr bool kOneAtATime = true;

  // Adds one in steps that another thread would disturb; returns the sum.
  absl::StatusOr<int64_t> Add();
  // Adds one, through `via` and back into this object while it is inside.
  absl::StatusOr<int64_t> AddThrough(Ref<Solo> via, uint32_t hops);
  // Plays a part while it has the turn.
  absl::StatusOr<int64_t> PlayInside(Ref<Actor> actor, std::string script, Actor::Cast cast);

  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(sum_); }
  absl::Status Restore(CheckpointReader& reader) override {
    reader.Read(sum_);
    return reader.status();
  }
  ABACUS_OBJECT(Solo, "test.Solo", 1, Add, AddThrough, PlayInside)

 private:
  int64_t sum_ = 0;
};

// State of any size.
class Store : public MobileObject {
 public:
  // `blocks`: how many blocks, which are kept by reference; else the state is one long vector of
  // numbers, which is written inline.
  absl::Status Fill(uint64_t bytes, uint64_t seed, uint32_t blocks);
  absl::StatusOr<uint64_t> Digest();

  void Checkpoint(CheckpointWriter& writer) const override;
  absl::Status Restore(CheckpointReader& reader) override;
  ABACUS_OBJECT(Store, "test.Store", 1, Fill, Digest)

 private:
  mutable Mutex mutex_;
  std::vector<uint64_t> numbers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

// Its manager lets a limited number of them onto a node.
class Tenant : public MobileObject {
 public:
  absl::StatusOr<int64_t> Add(int64_t n) { return sum_ += n; }

  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(sum_.load()); }
  absl::Status Restore(CheckpointReader& reader) override {
    sum_ = reader.Read<int64_t>();
    return reader.status();
  }
  ABACUS_OBJECT(Tenant, "test.Tenant", 1, Add)

 private:
  std::atomic<int64_t> sum_{0};
};

class TenantManager : public ObjectManager {
 public:
  // What all managers of one test count together.
  struct Counts {
    std::atomic<int> managers{0};
    std::atomic<int> tenants{0};
    std::atomic<size_t> state_bytes_seen{0};  // of the newest
  };
  TenantManager(int max, Counts* counts) : max_(max), counts_(*counts) { ++counts_.managers; }

  absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo& info,
                                                          size_t state_bytes) override;
  void Released(MobileObject&) override {
    --here_;
    --counts_.tenants;
  }

 private:
  const int max_;
  std::atomic<int> here_{0};
  Counts& counts_;
};

// A fixed sequence of bytes.
Block MakeBytes(size_t bytes, uint64_t seed);
// A 64-bit FNV-1a hash; `hash` continues one.
uint64_t HashBytes(std::string_view bytes, uint64_t hash = 14695981039346656037u);
// The next number of a simple generator: the same everywhere, which <random>'s distributions are
// not.
uint64_t NextRandom(uint64_t& state);

// All classes above; a node takes `max_tenants` tenants.
void AddTestObjects(ObjectTypes& types, SyncPoints* points, int max_tenants,
                    TenantManager::Counts* tenants);

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_TESTING_TEST_OBJECTS_H_
