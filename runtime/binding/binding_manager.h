#ifndef ABACUS_RUNTIME_BINDING_BINDING_MANAGER_H_
#define ABACUS_RUNTIME_BINDING_BINDING_MANAGER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/sync_point.h"
#include "runtime/binding/call_core.h"
#include "runtime/binding/worker_pool.h"
#include "runtime/object/invoker.h"
#include "runtime/object/manager.h"
#include "runtime/object/mobile_object.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

struct BindingOptions {
  CoreOptions core;
  size_t workers_max = 64;            // activities of other nodes that run here at once
  size_t admission_queue_max = 4096;  // that wait for one of them; beyond, callers are refused
};

// Is told of every call that another node has answered: what links are measured by.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // `network_ns` is the wait without the callee's residence time. `quiet_ns`: for how long this
  // thread had nothing to do with any link at a stretch, which is while the callee had the call or
  // between the answer to its last one and this one, whichever took longer. Thread-safety:
  // thread-safe.
  virtual void OnRemoteCall(NodeInstance peer, uint64_t request_bytes, uint64_t reply_bytes,
                            uint64_t network_ns, uint64_t quiet_ns) = 0;
};

// The migration half of the core, as the binding manager drives it. All methods but Perform() and
// OnStop() are called under the core's lock.
class MigrationHook {
 public:
  virtual ~MigrationHook() = default;
  virtual void OnFrame(NodeInstance from, const Frame& frame, Nanos now, Actions& out) = 0;
  virtual void OnPeerDead(NodeInstance peer, Nanos now, Actions& out) = 0;
  virtual void Tick(Nanos now, Actions& out) = 0;
  // Does the actions that concern migration. Called without locks; must not block for long.
  virtual void Perform(Actions& actions) = 0;
  // The node ends: nobody may wait for a migration any more. Called without locks.
  virtual void OnStop() {}
};

// One node's binding manager (paper, section 5.1): makes objects, finds them wherever they are, and
// carries invocations to them. It drives the protocol core with threads and a transport.
//
// Thread-safety: thread-safe. Lock order: core_mutex_ -> the thread registry's and the entries'
// mutexes; no lock is held while a method of an object or of the transport runs.
class BindingManager final : public Invoker,
                             public FrameHandler,
                             private CoreEnvironment,
                             private ObjectHost {
 public:
  using Core = CallCore<FaithfulPolicy>;

  // `types` and `transport` must outlive the manager; `points` may be null.
  BindingManager(NodeInstance self, const BindingOptions& options, const ObjectTypes& types,
                 Transport* transport, SyncPoints* points);
  ~BindingManager() override;

  void set_migration_hook(MigrationHook* hook) { hook_ = hook; }
  void set_call_observer(CallObserver* observer) { observer_ = observer; }

  // Starts the clock of the core. Call once the transport delivers here.
  void Start();
  // Fails all calls under way with kUnavailable and stops all threads. Objects stay until
  // EndObjects().
  void Stop();
  // Lets no invocation begin any more and deletes the objects that are here. What an object keeps
  // (threads of its own, which may call others) ends with it: the transport, the hook and the
  // observer must still be there, and are used no more after it. The destructor does it where
  // nobody has. Call after Stop(). Blocking: until no thread is inside an object; after 10 s it
  // goes on all the same, and says so in the log. Must not be called from inside an object.
  void EndObjects();

  // While fenced, this process may have been declared dead by the others: no invocation begins
  // here, co-located ones included, and no frame is taken. Those that are inside run on. Calls that
  // begin fail with `why`; `for_good`, also those under way. Without it, Unfence() opens the gates
  // again and calls under way go on.
  void Fence(const absl::Status& why, bool for_good);
  void Unfence();

  // -- objects -------------------------------------------------------------------------------

  // Makes an object of class T here, through its object manager, and calls its Init.
  // Errors: the manager's and Init's; kNoSuchClass where T was not added to the ObjectTypes.
  template <typename T, typename... Args>
  absl::StatusOr<Ref<T>> Create(const Args&... args) {
    auto made = CreateObject(T::kAbacusName, internal::EncodeInit<T>(args...));
    if (!made.ok()) return made.status();
    return Ref<T>(*std::move(made));
  }
  absl::StatusOr<RefBase> CreateObject(std::string_view class_name, const Payload& init);
  // Takes over an object that the program made itself (an anchored one with parts of its own).
  template <typename T>
  Ref<T> Adopt(std::unique_ptr<T> object) {
    return Ref<T>(AdoptObject(std::move(object), T::kAbacusName));
  }
  RefBase AdoptObject(std::unique_ptr<MobileObject> object, std::string_view class_name);
  // A reference to an object by its name.
  template <typename T>
  Ref<T> RefTo(const Rid& rid) {
    return Ref<T>(RefBase(Intern(rid)));
  }
  // Ends an object that is on this node, once nobody is inside. Returns without waiting.
  // Errors: kObjectNotFound, kUnavailable (it is being moved).
  absl::Status Destroy(const Rid& rid);

  struct ObjectStatus {
    Rid rid;
    std::string class_name;
    uint32_t slot = 0;
    uint64_t epoch = 0;
    bool anchored = false;
    bool hosted = false;
    bool moving = false;
  };
  // The objects that this node hosts. Limits: at most `max` of them.
  std::vector<ObjectStatus> Objects(size_t max) const;
  // Those of the objects with these slots that this node hosts.
  std::vector<ObjectStatus> ObjectsOf(const std::set<uint32_t>& slots) const;
  // The name behind an account's slot.
  struct SlotInfo {
    Rid rid;
    const ClassInfo* info = nullptr;  // null: never been here
  };
  SlotInfo Slot(uint32_t slot) const;
  // Slots of objects that nobody here refers to any more, each once. Their accounts stay until
  // ForgetSlots(), for whoever has still to read them; a slot is never given away again.
  std::vector<uint32_t> TakeRetiredSlots();
  void ForgetSlots(const std::vector<uint32_t>& slots);
  // Whether an object with this home lives. REQUIRES: its home is this node.
  bool HasRow(const Rid& rid) const;
  // OK where that much fits into one message; kTooLarge otherwise: it could never be sent.
  absl::Status CheckFits(uint64_t bytes, size_t blocks, std::string_view what) const;
  // Where this node believes an object to be.
  std::optional<LocationHint> Locate(const Rid& rid) const;
  // A name for a console: what calls of a thread that belongs to no object are charged to.
  RefBase NewConsole();

  // -- the rest of the runtime ---------------------------------------------------------------

  // Runs `event` under the core's lock and then does what came out of it.
  template <typename Event>
  auto WithCore(Event event) {
    Actions actions;
    Captured captured;
    if constexpr (std::is_void_v<decltype(event(core_, Nanos{}, actions))>) {
      {
        MutexLock lock(core_mutex_);
        event(core_, Now(), actions);
        captured = Capture(actions);
      }
      Perform(actions, captured, false);
    } else {
      auto result = [&] {
        MutexLock lock(core_mutex_);
        auto value = event(core_, Now(), actions);
        captured = Capture(actions);
        return value;
      }();
      Perform(actions, captured, false);
      return result;
    }
  }
  // The core itself, for the migration core that is built on it. Only under its lock.
  Core& core() { return core_; }
  void OnPeerDead(NodeInstance peer);
  // Makes an object from a checkpoint that came here; not admitted yet.
  absl::StatusOr<Entry*> Restore(const Rid& rid, std::string_view class_name,
                                 const Payload& checkpoint);
  // Deletes an object that Restore() made and that the core does not know.
  void Remove(Entry* entry);
  // True where no thread is inside any of the entries by a co-located call. `first` after the gates
  // were closed: makes the closing visible to all threads.
  bool NobodyInside(const std::vector<Entry*>& entries, bool first);
  WorkerPool& pool() { return pool_; }
  SyncPoints* points() const { return points_; }
  NodeInstance self() const { return self_; }
  const CoreOptions& core_options() const { return options_.core; }
  CoreCounters Counters() const;
  uint64_t refused_for_back_pressure() const { return refused_.load(std::memory_order_relaxed); }

  // -- Invoker -------------------------------------------------------------------------------

  Route Start(ThreadContext& thread, Entry& entry, MethodId method,
              absl::FunctionRef<Payload()> encode, std::unique_ptr<OutgoingCall>* call,
              absl::Status* status) override;
  Route Finish(ThreadContext& thread, OutgoingCall& call, Payload* result,
               absl::Status* status) override;
  void Decoded(ThreadContext& thread, std::unique_ptr<OutgoingCall> call) override;
  void LeftInside(ThreadContext& thread, Entry& entry) override;
  void Left(Entry& entry) override;
  Entry* Intern(const Rid& rid) override;
  void Unreferenced(Entry* entry) override;
  ActivityId NewActivity() override;

  // -- FrameHandler --------------------------------------------------------------------------

  void OnFrame(NodeInstance from, Frame frame) override;
  void OnReconnected(NodeInstance peer) override;
  void OnPeerReplaced(NodeInstance peer) override { OnPeerDead(peer); }

 private:
  class Call;

  // CoreEnvironment
  void SetGate(const ObjectState& object, Gate gate) override;
  bool LocalInside(absl::Span<ObjectState* const> objects, const ActivityId& root) override;

  static Nanos Now();
  // What the actions refer to, taken under the lock, because other events may come before they are
  // done.
  struct Captured {
    // What the threads to be woken wait on: another event may wake the thread first, which then
    // goes on.
    std::vector<std::shared_ptr<Waiter>> waiters;
    // Objects that have left: the same object may come back and take the entry before this one is
    // deleted.
    std::vector<std::pair<Entry*, MobileObject*>> departed;
  };
  static Captured Capture(const Actions& actions);
  // Without the lock. `inline_execution`: the last method may run on this thread.
  // `may_block`: this thread may wait for peers that take no data; else the pool's threads do.
  void Perform(Actions& actions, const Captured& captured, bool inline_execution,
               bool may_block = true);
  void SendOut(Actions::Send& send);
  void Delete(Entry* entry, MobileObject* object);
  void Dispatch(NodeInstance from, Frame frame, bool inline_execution, bool may_block = true);
  enum class Admission { kRun, kQueued, kRefused };
  Admission TryAdmit(const std::shared_ptr<Actions::Execute>& execution);
  void Admit(std::shared_ptr<Actions::Execute> execution, bool inline_execution);
  void Refuse(const Actions::Execute& execution);
  void Execute(Actions::Execute& execution);
  void ReleaseWorker();
  void CheckIdle(const Rid& rid, bool first);
  absl::StatusOr<ObjectManager*> ManagerOf(const ClassInfo& info);
  RefBase Enter(std::unique_ptr<MobileObject> object, const ClassInfo* info, uint32_t slot);
  // The entries with an object.
  std::vector<Entry*> Hosted() const;
  Entry* NewEntry(const Rid& rid, uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entries_mutex_);
  uint32_t NewSlot();
  void SetObject(Entry* entry, std::unique_ptr<MobileObject> object, const ClassInfo* info);
  absl::Status Answer(ThreadContext& thread, Call& call, Payload* result);
  // Counts a call whose answer was taken in: the time since is the way's.
  void AccountRemote(ThreadContext& thread, Call& call);
  void Tick();

  const NodeInstance self_;
  const BindingOptions options_;
  const ObjectTypes& types_;
  Transport* const transport_;
  SyncPoints* const points_;
  MigrationHook* hook_ = nullptr;     // constant from Start() to EndObjects()
  CallObserver* observer_ = nullptr;  // likewise
  bool ended_ = false;                // EndObjects() was called

  mutable Mutex core_mutex_;
  Core core_;  // protected by core_mutex_ (its own classes carry no annotations)

  mutable Mutex entries_mutex_;
  absl::flat_hash_map<Rid, Entry*> entries_ ABSL_GUARDED_BY(entries_mutex_);
  uint32_t last_slot_ ABSL_GUARDED_BY(entries_mutex_) = kOutsideSlot;
  absl::flat_hash_map<uint32_t, Entry*> slots_ ABSL_GUARDED_BY(entries_mutex_);
  // Of entries that are gone, until ForgetSlots(); and those of them that nobody has taken yet.
  absl::flat_hash_map<uint32_t, SlotInfo> gone_slots_ ABSL_GUARDED_BY(entries_mutex_);
  std::vector<uint32_t> retired_slots_ ABSL_GUARDED_BY(entries_mutex_);

  Mutex managers_mutex_;
  absl::flat_hash_map<const ClassInfo*, std::unique_ptr<ObjectManager>> managers_
      ABSL_GUARDED_BY(managers_mutex_);

  Mutex admission_mutex_;
  size_t working_ ABSL_GUARDED_BY(admission_mutex_) = 0;  // activities at level 0 that run here
  std::deque<std::shared_ptr<Actions::Execute>> admission_queue_ ABSL_GUARDED_BY(admission_mutex_);
  std::atomic<uint64_t> refused_{0};

  Mutex long_sends_mutex_;
  absl::flat_hash_set<uint64_t> long_sends_ ABSL_GUARDED_BY(long_sends_mutex_);  // under way

  std::atomic<uint64_t> last_activity_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> fenced_{false};
  absl::Status fence_;            // why; protected by core_mutex_
  bool fenced_for_good_ = false;  // likewise
  WorkerPool pool_;

  Mutex ticker_mutex_;
  CondVar ticker_changed_;
  bool ticking_ ABSL_GUARDED_BY(ticker_mutex_) = false;
  std::thread ticker_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_BINDING_MANAGER_H_
