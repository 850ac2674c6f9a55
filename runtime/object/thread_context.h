#ifndef ABACUS_RUNTIME_OBJECT_THREAD_CONTEXT_H_
#define ABACUS_RUNTIME_OBJECT_THREAD_CONTEXT_H_

// What a thread is doing: the stack of objects that it is inside of, the activity that it works
// for, and what it has counted. One per thread and node.
//
// The stack is the gate. A call publishes its frame with a plain store and then looks at the
// object's gate word; whoever quiesces closes the gate word, makes every thread's stores visible
// with one membarrier(2), and then looks at the stacks. That puts the cost on the rare side: a
// shared counter of calls inside costs tens of nanoseconds when two threads use it, this store
// under two. The acquire/release pairs are: closing stores `gate` (release) and reads `depth`
// (acquire); a call stores `depth` (release) and reads `gate` (acquire); membarrier orders each
// side's store before its load, which acquire/release alone would not.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "monitor-ebpf/monitor.h"
#include "monitor-ebpf/thread_clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/object/accounts.h"
#include "runtime/object/entry.h"

namespace abacus::runtime {

// Calls may be nested this deep, over all nodes of an activity.
inline constexpr uint32_t kNestingMax = 64;

class ThreadContext {
 public:
  // The calling thread's context at the node of `invoker`; made at the first call.
  static ThreadContext& Of(Invoker& invoker) {
    ThreadContext* context = current_;
    if (context == nullptr || context->invoker_.load(std::memory_order_relaxed) != &invoker)
        [[unlikely]] {
      context = &Find(invoker);
    }
    return *context;
  }

  uint32_t depth() const { return depth_.load(std::memory_order_relaxed); }
  // Nesting level of the next call, over all nodes.
  uint32_t level() const { return base_level + depth(); }

  // Publishes that this thread is about to enter `entry`, and returns the object's gate as seen
  // afterwards. REQUIRES: depth() < kNestingMax.
  Gate Push(Entry* entry) {
    const uint32_t depth = this->depth();
    // Release: whoever sees that this frame has taken the place of another one sees what was done
    // inside of that.
    frames_[depth].store(entry, std::memory_order_release);
    slots_[depth + 1] = entry->slot;
#if defined(__SANITIZE_THREAD__)
    depth_.store(depth + 1, std::memory_order_seq_cst);
    return entry->gate.load(std::memory_order_seq_cst);
#else
    depth_.store(depth + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler's half of the membarrier
    return entry->gate.load(std::memory_order_acquire);
#endif
  }
  // Takes the top frame back and returns the gate as seen afterwards: where it is closed, somebody
  // may be waiting for this thread to leave (Invoker::Left).
  Gate Pop(Entry* entry) {
    const uint32_t depth = this->depth();
#if defined(__SANITIZE_THREAD__)
    depth_.store(depth - 1, std::memory_order_seq_cst);
    return entry->gate.load(std::memory_order_seq_cst);
#else
    depth_.store(depth - 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return entry->gate.load(std::memory_order_acquire);
#endif
  }

  // Accounting around a call: the time until now belongs to the caller, then to the callee.
  // Called after Push() and before Pop().
  void AccountEnter() {
    const uint32_t depth = this->depth();
    accounts.Prefetch(slots_[depth - 1] | background_, slots_[depth]);  // while the callee works
    Charge(accounts.Cell(CallerSlot(depth - 1) | background_, slots_[depth - 1]));
    clock.SetObject(slots_[depth]);
  }
  void AccountLeave(uint64_t request_bytes, uint64_t reply_bytes) {
    const uint32_t depth = this->depth();
    AccountCell& cell = accounts.Cell(slots_[depth - 1] | background_, slots_[depth]);
    Charge(cell);
    clock.SetObject(slots_[depth - 1]);
    AccountCell::Bump(cell.calls, 1);
    AccountCell::Bump(cell.request_bytes, request_bytes);
    AccountCell::Bump(cell.reply_bytes, reply_bytes);
  }
  // Around a wait for another node: the time until now belongs to the object that the thread is in,
  // the wait to nobody. What is allocated meanwhile still counts for the object: it is the answer.
  // EndWait() returns the wait's length in ticks.
  // kSpun: the thread was at work for the call, which is the way's time and not the object's.
  void BeginWait() { AccountHere(); }
  uint64_t EndWait(monitor::WaitKind kind = monitor::WaitKind::kParked) {
    const uint64_t ticks = clock.EndWait(kind);
    totals.waited_ticks += ticks;
    return ticks;
  }
  // Counts a call that was answered by another node, on the edge to `callee`.
  void AccountRemote(uint32_t callee, uint64_t request_bytes, uint64_t reply_bytes,
                     uint64_t wait_ns, uint64_t network_ns) {
    AccountCell& cell = accounts.Cell(slot() | background_, callee);
    AccountCell::Bump(cell.calls, 1);
    AccountCell::Bump(cell.request_bytes, request_bytes);
    AccountCell::Bump(cell.reply_bytes, reply_bytes);
    AccountCell::Rest& rest = cell.rest();
    AccountCell::Bump(rest.remote_calls, 1);
    AccountCell::Bump(rest.remote_wait_ns, wait_ns);
    AccountCell::Bump(rest.remote_network_ns, network_ns);
  }
  // Slot of the object that the thread is in now.
  uint32_t slot() const { return slots_[depth()]; }
  // Charges the time until now to the object that the thread is in.
  void AccountHere() {
    const uint32_t depth = this->depth();
    Charge(accounts.Cell(CallerSlot(depth) | background_, slots_[depth]));
  }
  // A call from another node begins: the time until now was spent outside of all objects. Called
  // after Push().
  void AccountArrival() {
    clock.EndWait();
    clock.SetObject(slot());
  }
  // The object that the thread's outermost calls come from: a console, or nobody.
  void SetBase(uint32_t slot) {
    AccountHere();
    slots_[0] = slot;
    if (depth() == 0) clock.SetObject(slot);
  }
  uint32_t base_slot() const { return slots_[0]; }

  // Any thread: true where this thread is inside `entry`, or on its way in.
  bool IsInside(const Entry* entry) const {
    const uint32_t depth = depth_.load(std::memory_order_seq_cst);
    for (uint32_t i = 0; i < depth && i < kNestingMax; ++i) {
      if (frames_[i].load(std::memory_order_acquire) == entry) return true;
    }
    return false;
  }
  // Any thread: the root of the activity that this thread works for. Meaningful while it is inside
  // something: it changes only at depth 0.
  ActivityId PublishedRoot() const {
    const uint64_t origin = root_origin_.load(std::memory_order_acquire);
    return {{static_cast<NodeId>(origin >> 32), static_cast<uint32_t>(origin)},
            root_local_.load(std::memory_order_acquire)};
  }

  // The activity that calls of this thread belong to. REQUIRES: depth() == 0, or a branch that the
  // thread runs for its own root.
  void SetActivity(const ActivityId& activity, const ActivityId& root, uint32_t level,
                   uint64_t sequence) {
    this->activity = activity;
    this->root = root;
    base_level = level;
    this->sequence = sequence;
    background_ = root.is_background() ? kBackgroundBit : 0;
    root_origin_.store(static_cast<uint64_t>(root.origin.node) << 32 | root.origin.incarnation,
                       std::memory_order_release);
    root_local_.store(root.local, std::memory_order_release);
  }

  // REQUIRES: the node has not ended.
  Invoker& invoker() const { return *invoker_.load(std::memory_order_relaxed); }

  // Owner-thread.
  ActivityId activity;
  ActivityId root;
  uint32_t base_level = 0;
  uint64_t sequence = 0;
  Lineage lineage;  // of the activity, where it is a branch
  // That of this thread's background work, once there was any, and where it stands.
  ActivityId background_activity;
  uint64_t background_sequence = 0;
  monitor::ThreadClock clock;
  ThreadAccounts accounts;
  // Everything that the thread has charged, to whichever object: differences of it are what a call
  // from another node took here.
  struct Totals {
    uint64_t busy_ticks = 0;
    uint64_t ready_ticks = 0;
    uint64_t waited_ticks = 0;
  };
  Totals totals;
  uint64_t answered_ticks = 0;  // when another node answered its last call
  const double ns_per_tick = monitor::ThreadClock::NsPerTick();

 private:
  friend class ThreadRegistry;
  ThreadContext(Invoker& invoker, std::shared_ptr<AccountPool> pool)
      : accounts(std::move(pool)), invoker_(&invoker) {}

  static ThreadContext& Find(Invoker& invoker);
  uint32_t CallerSlot(uint32_t depth) const {
    return depth == 0 ? kOutsideSlot : slots_[depth - 1];
  }
  void Charge(AccountCell& cell) {
    const monitor::Interval lap = clock.Lap();
    AccountCell::Bump(cell.busy_ticks, lap.busy_ticks);
    totals.busy_ticks += lap.busy_ticks;
    if ((lap.blocked_ticks | lap.ready_ticks | lap.voluntary_switches | lap.involuntary_switches) !=
        0) [[unlikely]] {
      AccountCell::Bump(cell.blocked_ticks, lap.blocked_ticks);
      AccountCell::Bump(cell.ready_ticks, lap.ready_ticks);
      if ((lap.disk_ticks | lap.voluntary_switches | lap.involuntary_switches) != 0) {
        AccountCell::Rest& rest = cell.rest();
        AccountCell::Bump(rest.disk_ticks, lap.disk_ticks);
        AccountCell::Bump(rest.voluntary_switches, lap.voluntary_switches);
        AccountCell::Bump(rest.involuntary_switches, lap.involuntary_switches);
      }
      totals.ready_ticks += lap.ready_ticks;
    }
  }

  static inline thread_local ThreadContext* current_ = nullptr;

  // Null once the node has ended: another may come to live at its address.
  std::atomic<Invoker*> invoker_;
  std::atomic<uint32_t> depth_{0};
  std::array<std::atomic<Entry*>, kNestingMax> frames_{};
  std::array<uint32_t, kNestingMax + 1> slots_{};  // slots_[0]: the base; then one per frame
  uint32_t background_ = 0;  // kBackgroundBit while the activity is a background one
  std::atomic<uint64_t> root_origin_{0};
  std::atomic<uint64_t> root_local_{0};
  std::atomic<bool> ended_{false};  // the thread is gone; its sums stay until they are folded
};

// All threads that have called objects of one node. Thread-safety: thread-safe.
class ThreadRegistry {
 public:
  ThreadRegistry() = default;
  // REQUIRES: no thread is inside an object of the node.
  ~ThreadRegistry();
  ThreadRegistry(const ThreadRegistry&) = delete;
  ThreadRegistry& operator=(const ThreadRegistry&) = delete;

  // From now on `monitor` serves the clock of each thread that calls objects of the node; null:
  // none does. REQUIRES: it outlives the calls, or is taken back when none is under way.
  void UseMonitor(monitor::Monitor* monitor) { monitor_.store(monitor); }

  // A context for the calling thread, which gives it back when it ends.
  std::shared_ptr<ThreadContext> Register(Invoker& invoker);

  // Calls `visit` for every thread that is alive, or was alive when the visit began.
  template <typename Visit>
  void ForEach(Visit visit) const {
    MutexLock lock(mutex_);
    for (const auto& context : contexts_) visit(*context);
  }
  // The sums of all threads, dead ones included.
  EdgeSumsByKey CollectAccounts();
  // How often an edge's sums were dropped for want of room.
  uint64_t lost_sums() const { return accounts_->lost(); }
  // Drops the sums of edges for which `known` is false: their objects are gone.
  void PruneAccounts(absl::FunctionRef<bool(EdgeKey)> known);

 private:
  // Drops the contexts of threads that have ended, and not their sums.
  void DropEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<monitor::Monitor*> monitor_{nullptr};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<ThreadContext>> contexts_ ABSL_GUARDED_BY(mutex_);
  // Shared with the threads' contexts, of which some outlive the node.
  const std::shared_ptr<AccountPool> accounts_ = std::make_shared<AccountPool>();
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_THREAD_CONTEXT_H_
