#ifndef ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_
#define ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_

// What the invocation path counts, per edge (caller, callee) and thread.
//
// Each thread writes cells of its own, with plain stores: two threads in one object share no cache
// line. A reader sums over the threads. Slots are the dense 32-bit names of a node's objects; slot
// 0 stands for whatever is outside of all objects here (another node's caller, a bare thread).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {

inline constexpr uint32_t kOutsideSlot = 0;

// Sums over one edge since the node started. Ticks are those of
// monitor-ebpf/thread_clock.h. Busy, blocked and ready time are the callee's own while it was
// called over this edge: what it spent in its callees stands on their edges.
struct EdgeSums {
  uint64_t calls = 0;
  uint64_t request_bytes = 0;
  uint64_t reply_bytes = 0;
  uint64_t busy_ticks = 0;
  uint64_t blocked_ticks = 0;
  uint64_t ready_ticks = 0;
  uint64_t disk_ticks = 0;  // part of blocked_ticks
  // Context switches, as far as the source of the times sees them.
  uint64_t voluntary_switches = 0;
  uint64_t involuntary_switches = 0;
  // Of calls that left the node: the caller's wait, and the part of it that was not spent at the
  // callee, which is the network's.
  uint64_t remote_calls = 0;
  uint64_t remote_wait_ns = 0;
  uint64_t remote_network_ns = 0;

  void Add(const EdgeSums& other);
  EdgeSums Since(const EdgeSums& before) const;
};

// The sums of one edge in one thread: what a local call changes is one cache line, so that a call
// over another edge each time, of however many, waits for memory once. What few calls change
// (those that block or leave the node) is in a second line, which only edges with such calls have.
//
// A cell is written by its thread alone and read by any.
class alignas(64) AccountCell {
 public:
  using Field = std::atomic<uint64_t>;
  struct alignas(64) Rest {
    Field disk_ticks{0}, voluntary_switches{0}, involuntary_switches{0};
    Field remote_calls{0}, remote_wait_ns{0}, remote_network_ns{0};
  };
  static void Bump(Field& field, uint64_t by) {
    field.store(field.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  AccountCell() = default;
  ~AccountCell() { delete rest_.load(std::memory_order_relaxed); }
  AccountCell(const AccountCell&) = delete;
  AccountCell& operator=(const AccountCell&) = delete;

  EdgeSums Sums() const;
  // Owner-thread. The first time it takes memory.
  Rest& rest() {
    Rest* rest = rest_.load(std::memory_order_relaxed);
    return rest != nullptr ? *rest : MakeRest();
  }

 private:
  friend class ThreadAccounts;

  // Empty, an edge, or an edge that was dropped.
  uint64_t name() const { return name_.load(std::memory_order_relaxed); }
  Rest& MakeRest();
  // Neither is anybody's meanwhile but the caller's.
  void MoveTo(AccountCell& other);
  void Clear();

  Field name_{0};
  std::atomic<Rest*> rest_{nullptr};

 public:
  Field calls{0}, request_bytes{0}, reply_bytes{0};
  Field busy_ticks{0}, blocked_ticks{0}, ready_ticks{0};
};
static_assert(sizeof(AccountCell) == 64, "a call changes one cache line");

// Caller's slot << 32 | callee's slot. The top bit: a background activity's share of the edge,
// which has sums of its own.
using EdgeKey = uint64_t;
inline constexpr uint32_t kBackgroundBit = 1u << 31;  // of the caller's half

inline uint32_t CallerOf(EdgeKey key) { return static_cast<uint32_t>(key >> 32) & ~kBackgroundBit; }
inline uint32_t CalleeOf(EdgeKey key) { return static_cast<uint32_t>(key); }
inline bool IsBackground(EdgeKey key) { return (key >> 63) != 0; }

using EdgeSumsByKey = absl::flat_hash_map<EdgeKey, EdgeSums>;

class ThreadAccounts;

// How much may be kept. Units: edges.
struct AccountLimits {
  size_t of_thread = size_t{1} << 17;    // cells of one thread: 16 MiB
  size_t of_threads = size_t{1} << 20;   // cells of all threads beyond the first few of each
  size_t of_the_rest = size_t{1} << 20;  // sums of threads that ended or had no room
};

// The accounts of a node: knows those of each thread, and keeps what came out of them.
//
// A thread that has called over more edges than its cells may hold adds them all to the common
// sums and begins anew, so that a call over yet another edge costs the same on average. What the
// common sums have no room for is dropped, and counted.
//
// Thread-safety: thread-safe. Blocking: Collect() and Prune() take 10 to 100 ns an edge and
// thread; threads that need room for further edges wait for them, the others do not.
// Source: ours.
class AccountPool {
 public:
  explicit AccountPool(const AccountLimits& limits = {}) : limits_(limits) {}
  AccountPool(const AccountPool&) = delete;
  AccountPool& operator=(const AccountPool&) = delete;

  // The sums of all threads, ended ones included. No edge is in it twice or not at all.
  EdgeSumsByKey Collect() const;
  // Drops the sums of edges for which `known` is false: their objects are gone.
  void Prune(absl::FunctionRef<bool(EdgeKey)> known);
  // How often an edge's sums were dropped for want of room.
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  friend class ThreadAccounts;

  void Join(ThreadAccounts* accounts);
  // Keeps its sums.
  void Leave(ThreadAccounts* accounts);
  bool TakeCells(size_t cells) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const ThreadAccounts& accounts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AccountLimits limits_;
  std::atomic<uint64_t> lost_{0};
  // Held to collect, and by a thread to move its cells.
  mutable Mutex mutex_;
  size_t cells_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ThreadAccounts*> members_ ABSL_GUARDED_BY(mutex_);
  EdgeSumsByKey rest_ ABSL_GUARDED_BY(mutex_);
};

// The cells of one thread: a hash table in place, at most half full. A cell is found by one
// comparison as a rule, in the line that the call then changes.
//
// The thread takes an empty cell without a lock; whoever collects looks at all of them. To move or
// empty cells (to grow, to leave out those of objects that are gone) the thread takes the pool's
// lock, which whoever collects holds.
class ThreadAccounts {
 public:
  static constexpr size_t kCellsAtFirst = 64;

  // Owner-thread: the one that will ask for cells.
  explicit ThreadAccounts(std::shared_ptr<AccountPool> pool = std::make_shared<AccountPool>());
  ~ThreadAccounts();
  ThreadAccounts(const ThreadAccounts&) = delete;
  ThreadAccounts& operator=(const ThreadAccounts&) = delete;

  // Owner-thread. The cell stays valid until this thread asks for a cell again.
  AccountCell& Cell(uint32_t caller, uint32_t callee) {
    const EdgeKey key = static_cast<EdgeKey>(caller) << 32 | callee;
    AccountCell& cell = cells_[Hash(key) >> shift_];
    if (cell.name() == NameOf(key)) [[likely]]
      return cell;
    return CellBeside(key);
  }
  // Has memory send the edge's cell, which is wanted soon: over many objects it is in no cache.
  void Prefetch(uint32_t caller, uint32_t callee) const {
    const EdgeKey key = static_cast<EdgeKey>(caller) << 32 | callee;
    __builtin_prefetch(&cells_[Hash(key) >> shift_], 1);
  }

 private:
  friend class AccountPool;

  // Cells on large pages where there are many: a call over one of 100,000 edges would as a rule
  // look for its page in memory first.
  class Table {
   public:
    Table() = default;
    explicit Table(size_t places);
    ~Table();
    Table(Table&& other) noexcept
        : cells_(std::exchange(other.cells_, nullptr)), places_(std::exchange(other.places_, 0)) {}
    Table& operator=(Table&& other) noexcept {
      std::swap(cells_, other.cells_);
      std::swap(places_, other.places_);
      return *this;
    }

    AccountCell* begin() const { return cells_; }
    AccountCell* end() const { return cells_ + places_; }
    size_t places() const { return places_; }

   private:
    AccountCell* cells_ = nullptr;
    size_t places_ = 0;
  };

  // Empty cells are named 0. No edge has the greatest keys: slots are counted upwards.
  static uint64_t NameOf(EdgeKey key) { return key + 1; }
  static EdgeKey KeyOf(uint64_t name) { return name - 1; }
  static constexpr uint64_t kEmpty = 0;
  static constexpr uint64_t kGone = ~uint64_t{0};  // its edge was dropped
  // Whether it holds sums of an edge: not of time outside of all objects, which is nobody's.
  static bool IsOfAnEdge(uint64_t name) {
    return name != kEmpty && name != kGone && KeyOf(name) != 0;
  }
  static constexpr size_t kPlacesPerCell = 2;

  static uint64_t Hash(EdgeKey key) { return key * 0x9e3779b97f4a7c15u; }

  AccountCell& CellBeside(EdgeKey key);
  // The edge's cell, or the empty one where it belongs.
  AccountCell& Find(EdgeKey key);
  void MakeRoom();
  void Rebuild(size_t cells);
  // The pool's lock is held.
  void AddTo(EdgeSumsByKey& sums) const;
  void DropUnknown(absl::FunctionRef<bool(EdgeKey)> known);

  // Owner-thread.
  unsigned shift_ = 0;
  size_t used_ = 0;  // cells that are not empty

  // Written by the owner with the pool's lock held.
  AccountCell* cells_ = nullptr;  // of table_
  Table table_;
  size_t capacity_ = 0;
  size_t gone_ = 0;  // cells whose name is kGone; written with the lock held, by whoever drops them

  const std::shared_ptr<AccountPool> pool_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_
