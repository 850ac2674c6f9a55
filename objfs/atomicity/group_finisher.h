#ifndef ABACUS_OBJFS_ATOMICITY_GROUP_FINISHER_H_
#define ABACUS_OBJFS_ATOMICITY_GROUP_FINISHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_peers.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Brings groups that are committed to their end, on a thread of its own, while their writer goes
// on: all servers are told to write them, and then to forget them. All groups are asked for in one
// round of messages. What is not at its end when this one ends, the servers resolve by themselves
// after its lease.
// Thread-safety: thread-safe. Blocking: no; the destructor for a round of messages.
class GroupFinisher {
 public:
  using Driver = CommitDriver<FaithfulCommitPolicy>;
  static constexpr size_t kGroupsMax = 1024;

  GroupFinisher(CommitOptions options, std::function<int64_t()> steady_ns,
                std::function<uint64_t()> epoch, std::shared_ptr<CommitPeers> peers);
  ~GroupFinisher();

  // Takes a committed group, with what is to be sent next; it is given up at `give_up_at`. False,
  // and it is left as it was, where there are too many already.
  bool Take(Driver& driver, std::vector<CommitSend>& sends, Nanos give_up_at);

 private:
  struct One {
    Driver driver;
    std::vector<CommitSend> sends;
    Nanos give_up_at;
  };
  void Work();
  // Returns when the next one is due.
  Nanos AskRound(std::list<One>& groups);

  const CommitOptions options_;
  const std::function<int64_t()> steady_ns_;
  const std::function<uint64_t()> epoch_;
  const std::shared_ptr<CommitPeers> peers_;
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::list<One> taken_ ABSL_GUARDED_BY(mutex_);
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_GROUP_FINISHER_H_
