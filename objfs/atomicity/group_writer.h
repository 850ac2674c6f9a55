#ifndef ABACUS_OBJFS_ATOMICITY_GROUP_WRITER_H_
#define ABACUS_OBJFS_ATOMICITY_GROUP_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_peers.h"
#include "objfs/atomicity/group_finisher.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/layer/version.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What a group does at one of its servers.
struct ServerPart {
  uint64_t server = 0;
  GroupPart part;
};

struct GroupOutcome {
  enum class Kind {
    kCommitted,  // all of it is durable, and stays so whoever dies
    kAborted,    // nothing of it has happened, or will, but by settling (README.md)
    kInDoubt,    // one of the two, and its servers will decide which without anybody's help
  };
  Kind kind = Kind::kInDoubt;
  Version id;        // of the blocks that it wrote, where it is committed
  absl::Status why;  // where it is not. kAborted: something that it read has changed
};

// A client's half of groups of block writes over several servers: each happens whole or not at all
// (README.md). Groups of several clients that have to do with the same blocks are as if one came
// after the other.
//
// Thread-safety: thread-safe; groups run in parallel. Blocking: Write(), for messages to all
// servers of the group and their disks, and up to Options::give_up; not under a lock.
// Source: paper, section 4.3.1 (CommitAction over several objects); ours: the protocol.
class GroupWriter {
 public:
  struct Options {
    CommitOptions commit;  // the lease is the servers'
    // A group that is refused for another one's sake, or for want of room, is tried again with a
    // new identifier until then; what is not decided by then is in doubt.
    absl::Duration give_up = absl::Seconds(30);
    absl::Duration retry = absl::Milliseconds(2);  // the first wait; it grows to 32 times that
    // Write() returns when the group is written at all its servers, where readers see it; else when
    // it is committed: durable in their logs, and soon written, on a thread of this writer.
    bool until_applied = true;
    uint64_t seed = 1;  // of the waits
  };
  struct Host {
    std::function<int64_t()> steady_ns;
    std::function<uint64_t()> epoch;  // of the volume map, as this client knows it
    std::function<void(absl::Duration)> wait;
    std::shared_ptr<CommitPeers> peers;
  };
  // `clock`: the client's, whose versions also its other writes carry. Ownership: it outlives this.
  GroupWriter(const Options& options, Host host, HybridClock* clock);

  // Writes a group; where it is committed, readers at all its servers see it (until_applied),
  // unless one did not answer for long. Which blocks are whose is the caller's to know; that they
  // are as the group's reads say is looked at by the servers. Errors, in GroupOutcome::why:
  // kInvalidArgument - as GroupPart::Check(), no part, or a server twice; kAborted - a block that
  // it reads has changed; plan it anew. kNotFound - an object is not there. kResourceExhausted -
  // the log or the disk of a server was full until the end. kPermissionDenied - a later epoch of
  // the map has begun. kUnauthenticated - a column was opened for somebody else since
  // (Refusal::kShutOut). kUnavailable, kDeadlineExceeded - a server did not answer.
  GroupOutcome Write(const std::vector<ServerPart>& parts);

 private:
  using Driver = CommitDriver<FaithfulCommitPolicy>;
  struct Attempt;
  static absl::Status Check(const std::vector<ServerPart>& parts);
  // Returns whether another attempt may succeed; then this one is aborted.
  bool TryOnce(const std::vector<CommitPart>& group, const std::vector<std::string>& payloads,
               Nanos give_up_at, GroupOutcome* outcome);
  // Asks, and tells the driver what comes.
  std::vector<CommitSend> AskAll(Attempt& attempt, const std::vector<CommitSend>& sends,
                                 Nanos give_up_at);
  // Of a group that one server has certainly not been asked to prepare, and never will be.
  void CallOff(Attempt& attempt);
  // Draws the next wait.
  absl::Duration Backoff(int attempts);

  const Options options_;
  const Host host_;
  HybridClock* const clock_;
  const std::unique_ptr<GroupFinisher> finisher_;  // null: until_applied
  runtime::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_GROUP_WRITER_H_
