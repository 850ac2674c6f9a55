#ifndef ABACUS_OBJFS_ATOMICITY_GROUP_CORE_INL_H_
#define ABACUS_OBJFS_ATOMICITY_GROUP_CORE_INL_H_

// The bodies of group_core.h's template.

#include <utility>

#include "objfs/atomicity/group_core.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

template <typename Policy>
GroupCore<Policy>::GroupCore(const CommitOptions& options, uint64_t server,
                             const CommitEntries& durable, Nanos now)
    : server_(server), participant_(options, server, durable, now) {}

template <typename Policy>
absl::Status GroupCore<Policy>::TakeClaims() {
  for (const auto& [key, entry] : participant_.entries()) {
    ABACUS_ASSIGN_OR_RETURN(const GroupPart part, GroupPart::Decode(entry.payload));
    // Of what is committed, another one may have prepared the same blocks after it was applied.
    if (!entry.committed && !Claim(key.id, part)) {
      return absl::DataLossError("two groups in the log are to write one block");
    }
  }
  return absl::OkStatus();
}

template <typename Policy>
bool GroupCore<Policy>::Claim(Version id, const GroupPart& part) {
  return !Policy::kClaimBlocks || claims_.Take(id, part);
}

template <typename Policy>
void GroupCore<Policy>::Release(Version id) {
  if (Policy::kReleaseDecided) claims_.Release(id);
}

// -- preparing ------------------------------------------------------------------------------------

template <typename Policy>
auto GroupCore<Policy>::Begin(const CommitKey& key, const GroupPart& part, bool is_let_in)
    -> Begun {
  Begun begun;
  begun.is_new = participant_.Find(key) == nullptr && participant_.Admits(key);
  if (!is_let_in) {
    begun.refusal = Refusal::kShutOut;
  } else if (begun.is_new && !Claim(key.id, part)) {
    begun.refusal = Refusal::kClaimed;
  }
  return begun;
}

template <typename Policy>
bool GroupCore<Policy>::IsUnchanged(const GroupRead& read, Version there) {
  return !Policy::kCompareReads || there == read.version;
}

template <typename Policy>
bool GroupCore<Policy>::IsNewer(Version id, Version there) {
  return !Policy::kCompareWrites || there < id;
}

template <typename Policy>
void GroupCore<Policy>::GiveUp(const CommitKey& key) {
  if (participant_.Find(key) == nullptr) Release(key.id);
}

// -- questions ------------------------------------------------------------------------------------

template <typename Policy>
bool GroupCore<Policy>::IsKept(const CommitMessage& question) const {
  if (question.kind != CommitKind::kAbort) return false;
  const CommitKey key{question.id, question.part.part};
  const auto* const entry = participant_.Find(key);
  return entry != nullptr && !entry->committed && told_.contains(key);
}

template <typename Policy>
void GroupCore<Policy>::Handle(uint64_t from, const CommitMessage& message, bool vote, Nanos now,
                               CommitActions* out) {
  participant_.Handle(from, message, vote, now, out);
  for (const CommitKey& key : out->undone) Release(key.id);
  for (const CommitRecord& record : out->persist) {
    const bool is_gone =
        record.kind == CommitRecord::Kind::kAbort || record.kind == CommitRecord::Kind::kForget;
    if (is_gone) told_.erase(record.key);
  }
  if (message.kind == CommitKind::kPrepare) GiveUp({message.id, message.part.part});
}

template <typename Policy>
void GroupCore<Policy>::Applied(const CommitKey& key, CommitActions* out) {
  participant_.Applied(key, out);
  Release(key.id);
}

// -- settling -------------------------------------------------------------------------------------

template <typename Policy>
absl::StatusOr<std::vector<PendingGroup>> GroupCore<Policy>::PendingOf(
    ObjectId id, const std::set<CommitKey>& held) {
  std::vector<PendingGroup> pending;
  for (const auto& [key, entry] : participant_.entries()) {
    ABACUS_ASSIGN_OR_RETURN(const GroupPart part, GroupPart::Decode(entry.payload));
    for (const GroupFence& fence : part.fences) {
      if (fence.id != id) continue;
      PendingGroup group{.id = key.id,
                         .group = entry.group,
                         .opening = fence.opening,
                         .committed = entry.committed,
                         .held = held.contains(key),
                         .ranges = {}};
      for (const GroupWrite& write : part.writes) {
        if (write.id != id) continue;
        group.ranges.push_back({write.block * ObjectStore::kBlockBytes, write.bytes.size()});
      }
      told_.insert(key);
      pending.push_back(std::move(group));
    }
  }
  return pending;
}

template <typename Policy>
CommitMessage GroupCore<Policy>::BeginOrder(const GroupOrder& order) {
  CommitMessage question{.kind = CommitKind::kCommit, .id = order.id, .part = {server_, 0}};
  if (order.fate == GroupFate::kAbort) {
    question.kind = CommitKind::kAbort;
    told_.erase({order.id, 0});
  }
  if (order.fate == GroupFate::kForget) question.kind = CommitKind::kForget;
  return question;
}

template <typename Policy>
bool GroupCore<Policy>::EndOrder(const GroupOrder& order) {
  const CommitKey key{order.id, 0};
  told_.erase(key);
  const auto* const entry = participant_.Find(key);
  return order.fate == GroupFate::kAbort && entry != nullptr && entry->committed;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_GROUP_CORE_INL_H_
