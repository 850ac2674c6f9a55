#ifndef ABACUS_RUNTIME_TESTING_SIM_CORES_H_
#define ABACUS_RUNTIME_TESTING_SIM_CORES_H_

// The protocol core of one simulated process, whatever policy it is built with.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/binding/call_core.h"
#include "runtime/migration/migration_core.h"

namespace abacus::runtime::sim {

class SimCores {
 public:
  virtual ~SimCores() = default;

  // See CallCore.
  virtual ObjectState& Create(void* host) = 0;
  virtual ObjectState* Find(const Rid& rid) = 0;
  virtual absl::Status Destroy(const Rid& rid, Actions& out) = 0;
  virtual bool MaybeDestroy(const Rid& rid, bool idle, Actions& out) = 0;
  virtual CallStarted Start(PendingCall& call, bool has_arguments, Nanos now, Actions& out) = 0;
  virtual bool Abandon(PendingCall& call) = 0;
  virtual void LeaveInside(const Rid& rid, const ActivityId& root, Actions& out) = 0;
  virtual void FinishExecution(NodeInstance from, const CallMessage& message, ReplyMessage reply,
                               const Payload& result, Actions& out) = 0;
  virtual bool IsDead(NodeInstance instance) const = 0;
  virtual bool Inside(const std::vector<ObjectState*>& objects, const ActivityId& root) const = 0;
  virtual LocationTable& locations() = 0;
  virtual const CoreCounters& counters() = 0;
  virtual void ForEachObject(const std::function<void(ObjectState&)>& visit) = 0;

  // See MigrationCore.
  virtual absl::StatusOr<MigrationId> StartMove(const std::vector<Rid>& rids, NodeInstance target,
                                                Nanos now, Actions& out) = 0;
  virtual const MovingSet* Draining(const MigrationId& id) const = 0;
  virtual std::vector<ObjectState*> Members(const MigrationId& id) const = 0;
  virtual void OnDrained(const MigrationId& id, Nanos now, Actions& out) = 0;
  virtual void OnCheckpointed(const MigrationId& id,
                              absl::StatusOr<std::vector<SavedObject>> objects, Nanos now,
                              Actions& out) = 0;
  virtual void OnRestored(const MigrationId& id, const absl::StatusOr<std::vector<void*>>& hosts,
                          Nanos now, Actions& out) = 0;
  virtual void Cancel(const MigrationId& id, const absl::Status& why, Nanos now, Actions& out) = 0;
  virtual const MigrationCounters& moves() const = 0;

  // Both halves.
  virtual void OnFrame(NodeInstance from, Frame frame, Nanos now, Actions& out) = 0;
  virtual void OnReconnected(NodeInstance peer, Nanos now, Actions& out) = 0;
  virtual void OnPeerDead(NodeInstance peer, Nanos now, Actions& out) = 0;
  virtual void Tick(Nanos now, Actions& out) = 0;

  // What is under way; all zero when a process is at rest.
  struct Load {
    size_t pending = 0, running = 0, destroyed = 0, outgoing = 0, incoming = 0, claims = 0;
    bool zero() const { return pending + running + destroyed + outgoing + incoming + claims == 0; }
  };
  virtual Load load() const = 0;
  virtual size_t sworn_off() const = 0;
};

using SimCoresFactory =
    std::function<std::unique_ptr<SimCores>(NodeInstance, const CoreOptions&, CoreEnvironment*)>;

template <class Policy>
class SimCoresOf final : public SimCores {
 public:
  SimCoresOf(NodeInstance self, const CoreOptions& options, CoreEnvironment* environment)
      : calls_(self, options, environment), moves_(&calls_) {}

  ObjectState& Create(void* host) override { return calls_.Create(host, false); }
  ObjectState* Find(const Rid& rid) override { return calls_.Find(rid); }
  absl::Status Destroy(const Rid& rid, Actions& out) override { return calls_.Destroy(rid, out); }
  bool MaybeDestroy(const Rid& rid, bool idle, Actions& out) override {
    return calls_.MaybeDestroy(rid, idle, out);
  }
  CallStarted Start(PendingCall& call, bool has_arguments, Nanos now, Actions& out) override {
    return calls_.Start(call, has_arguments, now, out);
  }
  bool Abandon(PendingCall& call) override { return calls_.Abandon(call); }
  void LeaveInside(const Rid& rid, const ActivityId& root, Actions& out) override {
    calls_.LeaveInside(rid, root, out);
  }
  void FinishExecution(NodeInstance from, const CallMessage& message, ReplyMessage reply,
                       const Payload& result, Actions& out) override {
    calls_.FinishExecution(from, message, std::move(reply), result, out);
  }
  bool IsDead(NodeInstance instance) const override { return calls_.IsDead(instance); }
  bool Inside(const std::vector<ObjectState*>& objects, const ActivityId& root) const override {
    return calls_.Inside(objects, root);
  }
  LocationTable& locations() override { return calls_.locations(); }
  const CoreCounters& counters() override { return calls_.counters(); }
  void ForEachObject(const std::function<void(ObjectState&)>& visit) override {
    calls_.ForEachObject(visit);
  }
  absl::StatusOr<MigrationId> StartMove(const std::vector<Rid>& rids, NodeInstance target,
                                        Nanos now, Actions& out) override {
    return moves_.StartMove(rids, target, now, out);
  }
  const MovingSet* Draining(const MigrationId& id) const override { return moves_.Draining(id); }
  std::vector<ObjectState*> Members(const MigrationId& id) const override {
    return moves_.Members(id);
  }
  void OnDrained(const MigrationId& id, Nanos now, Actions& out) override {
    moves_.OnDrained(id, now, out);
  }
  void OnCheckpointed(const MigrationId& id, absl::StatusOr<std::vector<SavedObject>> objects,
                      Nanos now, Actions& out) override {
    moves_.OnCheckpointed(id, std::move(objects), now, out);
  }
  void OnRestored(const MigrationId& id, const absl::StatusOr<std::vector<void*>>& hosts, Nanos now,
                  Actions& out) override {
    moves_.OnRestored(id, hosts, now, out);
  }
  void Cancel(const MigrationId& id, const absl::Status& why, Nanos now, Actions& out) override {
    moves_.Cancel(id, why, now, out);
  }
  const MigrationCounters& moves() const override { return moves_.counters(); }
  void OnFrame(NodeInstance from, Frame frame, Nanos now, Actions& out) override {
    if (frame.type < static_cast<uint16_t>(MessageType::kFirstOfMigration)) {
      calls_.OnFrame(from, std::move(frame), now, out);
    } else {
      moves_.OnFrame(from, frame, now, out);
    }
  }
  void OnReconnected(NodeInstance peer, Nanos now, Actions& out) override {
    calls_.OnReconnected(peer, now, out);
    moves_.OnReconnected(peer, now);
  }
  void OnPeerDead(NodeInstance peer, Nanos now, Actions& out) override {
    calls_.OnPeerDead(peer, now, out);
    moves_.OnPeerDead(peer, now, out);
  }
  void Tick(Nanos now, Actions& out) override {
    calls_.Tick(now, out);
    moves_.Tick(now, out);
  }
  Load load() const override {
    return {.pending = calls_.pending(),
            .running = calls_.running(),
            .destroyed = calls_.destroyed(),
            .outgoing = moves_.outgoing(),
            .incoming = moves_.incoming(),
            .claims = moves_.claims()};
  }
  size_t sworn_off() const override { return moves_.sworn_off(); }

  static SimCoresFactory Factory() {
    return [](NodeInstance self, const CoreOptions& options, CoreEnvironment* environment) {
      return std::make_unique<SimCoresOf>(self, options, environment);
    };
  }

 private:
  CallCore<Policy> calls_;
  MigrationCore<Policy> moves_;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_CORES_H_
