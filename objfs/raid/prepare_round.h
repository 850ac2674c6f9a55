#ifndef ABACUS_OBJFS_RAID_PREPARE_ROUND_H_
#define ABACUS_OBJFS_RAID_PREPARE_ROUND_H_

#include <cstddef>
#include <set>
#include <vector>

#include "objfs/atomicity/commit_core.h"

namespace abacus::objfs {

// The rule that the simulator of shared stripes breaks (cf. FaithfulCommitPolicy): without it the
// last server is asked first, and the others when it has prepared the group.
struct FaithfulRoundPolicy {
  static constexpr bool kLastWhenAllHave = true;
};

// One round of a group's messages, of which the last server's kPrepare leaves when all others have
// prepared the group: SHARED_STRIPES.md, "The parity's server is the last".
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class PrepareRound {
 public:
  explicit PrepareRound(const std::vector<CommitSend>& sends) {
    for (size_t i = 0; i < sends.size(); ++i)
      (Waits(sends[i].message) ? last_ : first_).push_back(i);
    // Who has prepared it is not asked again.
    unprepared_.insert(first_.begin(), first_.end());
  }

  // Which of the messages leave at once, and which when all_have().
  const std::vector<size_t>& first() const { return first_; }
  const std::vector<size_t>& last() const { return last_; }
  // One of the first was answered with kPrepared.
  void Prepared(size_t i) { unprepared_.erase(i); }
  bool all_have() const { return unprepared_.empty(); }

 private:
  static bool Waits(const CommitMessage& message) {
    if (message.kind != CommitKind::kPrepare || message.group.size() < 2) return false;
    return (message.part == message.group.back()) == Policy::kLastWhenAllHave;
  }

  std::vector<size_t> first_, last_;
  std::set<size_t> unprepared_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_PREPARE_ROUND_H_
