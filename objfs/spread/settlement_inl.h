#ifndef ABACUS_OBJFS_SPREAD_SETTLEMENT_INL_H_
#define ABACUS_OBJFS_SPREAD_SETTLEMENT_INL_H_

// The body of settlement.h's template.

#include <algorithm>
#include <utility>

#include "objfs/spread/settlement.h"

namespace abacus::objfs {
namespace settlement {

using ColumnAnswers = std::map<uint64_t, ColumnAnswer>;

// A group, by all that have it.
struct FoundGroup {
  std::set<uint64_t> members;
  Version opening;
  std::set<uint64_t> prepared, committed;  // who has it
  std::set<uint64_t> held;                 // who has committed it without the word of all
  std::vector<Range> ranges;

  bool IsAt(uint64_t server) const {
    return prepared.contains(server) || committed.contains(server);
  }
};

inline std::map<Version, FoundGroup> FindGroups(const ColumnAnswers& answers) {
  std::map<Version, FoundGroup> found;
  for (const auto& [server, answer] : answers) {
    for (const PendingGroup& pending : answer.pending) {
      FoundGroup& group = found[pending.id];
      for (const CommitPart& member : pending.group) group.members.insert(member.server);
      group.opening = pending.opening;
      (pending.committed ? group.committed : group.prepared).insert(server);
      if (pending.held) group.held.insert(server);
      group.ranges.insert(group.ranges.end(), pending.ranges.begin(), pending.ranges.end());
    }
  }
  return found;
}

// A later opening has settled it, and has written down what its members lack.
inline bool IsSettled(const FoundGroup& group, const ColumnAnswers& answers) {
  return std::any_of(answers.begin(), answers.end(),
                     [&](const auto& answer) { return group.opening < answer.second.recorded; });
}

// Of one that a later opening has settled, in which somebody was away that had written it.
inline bool IsStale(const FoundGroup& group, const ColumnAnswers& answers) {
  return std::any_of(group.held.begin(), group.held.end(), [&](uint64_t server) {
    return !(group.opening < answers.at(server).recorded);
  });
}

// One alone has it, and all others are there and of one mind: they go together, and not with that
// one. Where one of them has no record, and so no column, nobody else can be done without.
inline bool IsAloneWithIt(const FoundGroup& group, const std::set<uint64_t>& lack, bool moved,
                          const ColumnAnswers& answers) {
  if (group.prepared.size() + group.committed.size() != 1) return false;
  if (!moved && lack.size() < 2) return false;
  return std::all_of(lack.begin(), lack.end(),
                     [&](uint64_t server) { return answers.at(server).recorded != Version(); });
}

}  // namespace settlement

template <typename Policy>
Settlement PlanSettlementBy(const settlement::ColumnAnswers& answers,
                            const std::set<uint64_t>& columns) {
  Settlement plan;
  for (auto& [id, group] : settlement::FindGroups(answers)) {
    std::set<uint64_t> lack, away;  // of its members: without it, and those that do not answer
    // The column of one was moved since, by an opening that settled it at all who answered: who has
    // it yet only prepared was away, and the others had none of it.
    bool moved = false;
    for (const uint64_t member : group.members) {
      if (!columns.contains(member)) {
        moved = true;
      } else if (!answers.contains(member)) {
        away.insert(member);
      } else if (!group.IsAt(member)) {
        lack.insert(member);
      }
    }
    SettledGroup settled{.id = id,
                         .fate = GroupFate::kAbort,
                         .members = {group.members.begin(), group.members.end()},
                         .told = {},
                         .ranges = std::move(group.ranges),
                         .finish = {}};
    if (settlement::IsSettled(group, answers)) {
      // What is committed is forgotten when all have been asked; what is prepared was not to be.
      settled.told.assign(group.prepared.begin(), group.prepared.end());
      settled.finish.assign(group.committed.begin(), group.committed.end());
      settled.is_stale = settlement::IsStale(group, answers);
      plan.groups.push_back(std::move(settled));
      continue;
    }
    if (!group.held.empty()) {
      const bool alone = away.empty() && settlement::IsAloneWithIt(group, lack, moved, answers);
      const std::set<uint64_t>& out = alone ? group.held : lack;
      plan.lacking.insert(out.begin(), out.end());
    }
    const bool none_lacks = lack.empty() || !Policy::kCommitOnlyIfAll;
    if (lack.empty() && away.empty() && !(moved && group.committed.empty())) {
      settled.fate = GroupFate::kCommit;
    } else if (!group.held.empty() || (group.committed.empty() && none_lacks && !moved)) {
      settled.fate = GroupFate::kCommitHeld;
    } else if (!group.committed.empty() && Policy::kKeepCommitted) {
      settled.fate = GroupFate::kCommit;  // all had it: who has not, has forgotten it
    }
    for (const std::set<uint64_t>* have : {&group.prepared, &group.committed}) {
      settled.told.insert(settled.told.end(), have->begin(), have->end());
    }
    plan.groups.push_back(std::move(settled));
  }
  return plan;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_SETTLEMENT_INL_H_
