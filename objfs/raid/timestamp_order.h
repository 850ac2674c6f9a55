#ifndef ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_H_
#define ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_H_

// The block server's half of stripes that several clients share: reads and writes of each block in
// the order of their timestamps, without locks. A state machine without I/O; small_write.h is the
// client's half, TIMESTAMP_ORDER.md the reasons.

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "objfs/atomicity/commit_core.h"

namespace abacus::objfs {

// A block of a server is a CommitPart; a write's timestamp is its identifier in commit_core.h,
// where the messages of rounds 2 and 3 stand. These are the others.
enum class OrderKind : uint8_t {
  kRead,
  kReserve,     // round 1: a read that leaves a reservation
  kRelease,     // of a reservation; not answered
  kContent,     // answers: the block as of the timestamp
  kTooOld,      // the timestamp is under the block's; come again with one above `newest`
  kWouldBlock,  // an older write is not decided; kWake comes when it is, or ask again
  kWake,
};

struct OrderMessage {
  OrderKind kind = OrderKind::kRead;
  Version time;
  CommitPart block;
  std::string content;  // kContent: the bytes, or the driver's name for where they lie
  Version written;      // kContent: when they were written
  Version newest;       // kTooOld
  ABACUS_FIELDS(kind, time, block, content, written, newest)
};

struct OrderSend {
  uint64_t to = 0;
  OrderMessage message;
  uint64_t after = 0;  // may leave once the record of that number is durable
};

struct OrderActions {
  // Records and messages of the rounds 2 and 3. Its `apply` is dealt with here.
  CommitActions commit;
  std::vector<OrderSend> sends;
};

// What the durable records of a server come to.
struct OrderState {
  struct Content {
    Version written;
    std::string content;
  };
  CommitEntries commit;
  std::map<uint64_t, Content> blocks;

  // Takes a commit's content ONLY OVER AN OLDER ONE: commits come in any order.
  void Apply(const CommitRecord& record);
};

struct OrderOptions {
  CommitOptions commit;
  size_t pending_max = 16;  // undecided writes of a block; more are refused
  size_t waiting_max = 64;  // of a block; who is not remembered must ask again by itself
};

// Rules that the simulator breaks one at a time (cf. FaithfulCommitPolicy).
struct FaithfulOrderPolicy : FaithfulCommitPolicy {
  static constexpr bool kRefuseUnderReads = true;
  static constexpr bool kRefuseUnderWrites = true;
  static constexpr bool kRefuseReadUnderWrites = true;
  static constexpr bool kWaitForPrewrites = true;
  static constexpr bool kWaitForReservations = true;
  static constexpr bool kReadsCount = true;
  static constexpr bool kReservationsCount = true;
  static constexpr bool kReadsRaiseCeiling = true;
  static constexpr bool kOnlyOverOlder = true;
  static constexpr bool kReservationsEnd = true;
  static constexpr bool kRecoverPending = true;
  // Of the client's half.
  static constexpr bool kRetryNewer = true;
  static constexpr bool kLearnFromRefusal = true;
};

// The blocks of one server.
//
// Invariants:
// 1. What is read at a time is what the newest write before that time wrote, of those that commit:
//    a write under a read or under a newer write is refused, and a read of what an older write may
//    yet change would block.
// 2. Only the newer waits for the older, so nobody waits in a circle.
// 3. A reservation ends with its lease; who comes with its content then is refused, as its time is
//    that of a read.
// 4. After a restart, nothing is admitted up to the durable ceiling, which is above every time at
//    which anything was read, as those times themselves are not kept.
// And those of CommitParticipant.
// REQUIRES: no time that is far ahead of the server's clock comes in (HybridClock::Observe), or the
// ceiling follows it.
// Limits: state for each block that was read or written; nothing is evicted yet.
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class TimestampOrder {
 public:
  TimestampOrder(const OrderOptions& options, uint64_t server, OrderState durable, Nanos now);
  // To be called once, before anything else.
  void Start(OrderActions* out);

  // Reads, reservations and their release. A block that nobody wrote is empty, of version 0.
  void Handle(uint64_t from, const OrderMessage& message, Nanos now, OrderActions* out);
  // Rounds 2 and 3, and what others ask when they resolve a write of a dead client.
  void Handle(uint64_t from, const CommitMessage& message, Nanos now, OrderActions* out);
  // Ends reservations and resolves prewrites whose lease is over. To be called often enough: each
  // tenth of the lease will do.
  void Tick(Nanos now, OrderActions* out);

  struct Block {
    Version read;
    OrderState::Content now;
    std::map<Version, Nanos> reservations;  // until when
    std::set<Version> prewrites;            // undecided
    std::deque<std::pair<uint64_t, Version>> waiting;
  };
  const std::map<uint64_t, Block>& blocks() const { return blocks_; }
  const CommitParticipant<Policy>& participant() const { return participant_; }

 private:
  void OnRead(uint64_t from, const OrderMessage& message, Nanos now, OrderActions* out);
  bool IsTooOld(const Block& block, const OrderMessage& message) const;
  static bool HasOlder(const Block& block, Version time);
  bool Votes(const Block& block, Version time, Nanos now) const;
  void Wake(uint64_t number, Block& block, OrderActions* out);
  void Settle(OrderActions* out);

  const OrderOptions options_;
  const uint64_t server_;
  std::map<uint64_t, Block> blocks_;
  CommitParticipant<Policy> participant_;
};

extern template class TimestampOrder<FaithfulOrderPolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_H_
