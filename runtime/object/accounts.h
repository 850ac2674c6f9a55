#ifndef ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_
#define ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_

// What the invocation path counts, per edge (caller, callee) and thread.
//
// Each thread writes cells of its own, with plain stores: two threads in one object share no cache
// line. A reader sums over the threads. Slots are the dense 32-bit names of a node's objects; slot
// 0 stands for whatever is outside of all objects here (another node's caller, a bare thread).

#include <array>
#include <atomic>
#include <cstdint>

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
  // Of calls that left the node: the caller's wait, and the part of it that was not spent at the
  // callee, which is the network's.
  uint64_t remote_calls = 0;
  uint64_t remote_wait_ns = 0;
  uint64_t remote_network_ns = 0;

  void Add(const EdgeSums& other);
  EdgeSums Since(const EdgeSums& before) const;
};

// A cell is written by its thread alone and read by any.
class AccountCell {
 public:
  using Field = std::atomic<uint64_t>;
  static void Bump(Field& field, uint64_t by) {
    field.store(field.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  uint64_t key() const { return key_.load(std::memory_order_relaxed); }
  EdgeSums Sums() const;

  Field calls{0}, request_bytes{0}, reply_bytes{0};
  Field busy_ticks{0}, blocked_ticks{0}, ready_ticks{0}, disk_ticks{0};
  Field remote_calls{0}, remote_wait_ns{0}, remote_network_ns{0};

 private:
  friend class ThreadAccounts;
  Field key_{0};
};

// Caller's slot << 32 | callee's slot. The top bit: a background activity's share of the edge,
// which has sums of its own.
using EdgeKey = uint64_t;
inline constexpr uint32_t kBackgroundBit = 1u << 31;  // of the caller's half

inline uint32_t CallerOf(EdgeKey key) { return static_cast<uint32_t>(key >> 32) & ~kBackgroundBit; }
inline uint32_t CalleeOf(EdgeKey key) { return static_cast<uint32_t>(key); }
inline bool IsBackground(EdgeKey key) { return (key >> 63) != 0; }

using EdgeSumsByKey = absl::flat_hash_map<EdgeKey, EdgeSums>;

// The cells of one thread: a table of groups of four, of which the most recently used is found at
// once. Where a fifth edge falls into a group, the oldest of it is evicted into a map.
class ThreadAccounts {
 public:
  static constexpr size_t kCells = 256;

  // Owner-thread. The cell stays valid until this thread asks for a cell again.
  AccountCell& Cell(uint32_t caller, uint32_t callee) {
    const EdgeKey key = static_cast<EdgeKey>(caller) << 32 | callee;
    const size_t place = (key * 0x9e3779b97f4a7c15u) >> 56;
    AccountCell& cell = cells_[place];
    if (cell.key() == key) [[likely]]
      return cell;
    return CellBeside(place, key);
  }

  // Adds this thread's sums to `out`. Any thread.
  void Collect(EdgeSumsByKey& out) const;
  // Drops evicted sums of edges for which `known` is false: their objects are gone. Any thread.
  void Prune(absl::FunctionRef<bool(EdgeKey)> known);

 private:
  static constexpr size_t kGroup = 4;

  AccountCell& CellBeside(size_t place, EdgeKey key);
  void Evict(AccountCell& cell, EdgeKey key);

  size_t evictions_ = 0;  // owner-thread

  std::array<AccountCell, kCells> cells_;
  mutable Mutex
      mutex_;  // held to evict and to collect, so that no edge is seen twice or not at all
  EdgeSumsByKey evicted_ ABSL_GUARDED_BY(mutex_);
};
static_assert(ThreadAccounts::kCells == 256, "Cell() takes the top 8 bits of the hash");

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_ACCOUNTS_H_
