#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_PEERS_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_PEERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/atomicity/commit_core.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// Why a group was refused, for who began it. What the protocol rests on is the refusal alone.
enum class Refusal : uint8_t {
  kNone,
  kOld,       // its identifier is too old there: again, with one above `newest`
  kClaimed,   // another group has to do with a block of it and is not decided: again, later
  kFull,      // no room in the log or the store: again, later
  kChanged,   // a block that it rests on is not as it was
  kNoObject,  // an object that it writes to is not there
  kUnusable,  // the store cannot read what it needs; the message says why
  kShutOut,   // CommitLog::Host::enter has refused it: what it rests on is over
};

// An answer; to kForget an empty one.
struct CommitReply {
  CommitMessage message;
  Refusal refusal = Refusal::kNone;
  std::string why;
  ABACUS_FIELDS(message, refusal, why)
};

// The way to the servers' logs. Thread-safety: thread-safe. Blocking: Ask(), up to `wait`, and
// where a server is sought; not under a lock.
class CommitPeers {
 public:
  using Take = std::function<void(size_t send, const absl::StatusOr<CommitReply>& reply)>;

  virtual ~CommitPeers() = default;
  // Asks all at once, and calls `take` for each of `sends` before it returns, on this thread and
  // without a lock: with the answer, or the error. kNotFound: it was not sent, as there is no way
  // to that server now. Others that are none of CommitLog::Ask()'s: nobody knows whether it
  // arrived. To kForget nobody waits for an answer.
  virtual void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration wait,
                   const Take& take) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_PEERS_H_
