#ifndef ABACUS_OBJFS_VOLUME_LOCK_TABLE_H_
#define ABACUS_OBJFS_VOLUME_LOCK_TABLE_H_

// Advisory locks of files, as fcntl(2) and flock(2) know them: who has which bytes, who waits for
// them, and who would wait for ever.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// Locks of the two kinds know nothing of each other.
enum class LockKind : uint8_t {
  kRecord = 0,  // of bytes: fcntl(2), POSIX ones and those of an open file description
  kFlock,       // of whole files: flock(2)
};

// Bytes `first` to `last`, both included; kLockEnd: however long the file becomes.
inline constexpr uint64_t kLockEnd = UINT64_MAX;
struct LockRange {
  uint64_t first = 0;
  uint64_t last = kLockEnd;
  friend bool operator==(const LockRange&, const LockRange&) = default;
  ABACUS_FIELDS(first, last)
};

// What a client asks for. `owner` is the client's word for a process or an open file: locks of one
// owner do not exclude each other.
struct LockRequest {
  ObjectId file = 0;
  LockKind kind = LockKind::kRecord;
  bool exclusive = false;  // else shared
  LockRange range;
  uint64_t owner = 0;
  uint32_t pid = 0;  // for people
  // 0: an answer at once. Else the client's name for the request while it waits, which it gives no
  // other one.
  uint64_t ticket = 0;
  ABACUS_FIELDS(file, kind, exclusive, range, owner, pid, ticket)
};

enum class LockState : uint8_t {
  kGranted = 0,
  kHeld,      // another owner has a lock that excludes it
  kWaiting,   // the same, and the request waits
  kDeadlock,  // it would wait for an owner that waits for it
};

// A lock that somebody has.
struct HeldLock {
  uint16_t writer = 0;  // the client
  uint64_t owner = 0;
  uint32_t pid = 0;
  bool exclusive = false;
  LockRange range;
  ABACUS_FIELDS(writer, owner, pid, exclusive, range)
};

struct LockCounts {
  uint64_t held = 0;     // ranges
  uint64_t waiting = 0;  // requests
  ABACUS_FIELDS(held, waiting)
};

// The locks of a volume: a state machine, calls in, grants out.
//
// A lock is had by an owner, {client, owner}. What an owner locks takes the place of what it had of
// these bytes before: a part of a lock can become shared, exclusive or free. Upgrading a record
// lock keeps the shared one until the exclusive one is there; flock(2) lets go first, as it does
// elsewhere. A request that cannot be granted waits; when something is let go, those that wait are
// looked at in the order in which they came. A newcomer that nothing held excludes does not stand
// behind them, so that the only thing to wait for are held locks.
//
// Invariants:
// 1. No two owners have overlapping locks of one file and kind, one of them exclusive.
// 2. Nobody waits whom no held lock excludes.
// 3. A record lock whose owner would wait, over however many others, for itself is refused
//    (kDeadlock). An owner whose threads wait for several locks waits for all of their holders:
//    this is one cycle more than there is where another thread could let go.
// Limits: kLocksPerClientMax ranges and waiting requests a client (kResourceExhausted).
// Thread-safety: none; its user has a lock. Blocking: no. Cost: linear in the locks of the file.
class LockTable {
 public:
  static constexpr uint64_t kLocksPerClientMax = 65536;

  // A request that waited, and has its lock now.
  struct Grant {
    uint16_t writer = 0;
    uint64_t ticket = 0;
    friend auto operator<=>(const Grant&, const Grant&) = default;
  };
  using Grants = std::vector<Grant>;

  // Errors: kInvalidArgument - a range that ends before it begins. kResourceExhausted.
  absl::StatusOr<LockState> Lock(uint16_t writer, const LockRequest& request, Grants* grants);
  // Lets go what the owner has of the range. Nothing: nothing is wrong.
  absl::Status Unlock(uint16_t writer, const LockRequest& request, Grants* grants);
  // The lock that excludes the request, the first in the file; none: it would be granted.
  std::optional<HeldLock> Excluding(uint16_t writer, const LockRequest& request) const;
  // The request waits no more. False: it did not: it was granted, or never there.
  bool Cancel(uint16_t writer, uint64_t ticket);
  bool Waits(uint16_t writer, uint64_t ticket) const;
  // All that the client has and waits for.
  void Drop(uint16_t writer, Grants* grants);

  LockCounts counts() const { return {held_, waiting_.size()}; }
  // In the order of their bytes.
  std::vector<HeldLock> Held(ObjectId file, LockKind kind) const;

 private:
  using Key = std::pair<ObjectId, LockKind>;
  using Owner = std::pair<uint16_t, uint64_t>;
  struct Waiting {
    uint16_t writer = 0;
    LockRequest request;
  };
  using Locks = std::vector<HeldLock>;  // sorted by first byte; of one owner without overlap

  static bool Excludes(const HeldLock& held, uint16_t writer, const LockRequest& request);
  const Locks* LocksOf(const Key& key) const;
  bool IsFree(uint16_t writer, const LockRequest& request) const;
  bool WouldDeadlock(uint16_t writer, const LockRequest& request) const;
  // All owners that exclude the request.
  void AddHolders(uint16_t writer, const LockRequest& request, std::vector<Owner>* owners) const;
  // Gives the owner the range in this mode, or takes it (nullopt).
  void Set(uint16_t writer, const LockRequest& request, std::optional<bool> exclusive);
  // Grants what has become free in the file.
  void Wake(const Key& key, Grants* grants);

  std::map<Key, Locks> locks_;
  std::list<Waiting> waiting_;  // the oldest first
  std::map<uint16_t, uint64_t> of_client_;
  uint64_t held_ = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_LOCK_TABLE_H_
