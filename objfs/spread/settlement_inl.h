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

inline Version NewestRecord(const ColumnAnswers& answers) {
  Version newest;
  for (const auto& [server, answer] : answers) newest = std::max(newest, answer.recorded);
  return newest;
}

// Of one that a later opening has settled: who holds it has no record of the newest opening, as it
// was away, or its writer died. A record of an opening in between does not help: it may be the only
// one, and the newest opening, without this column, have known nothing of it.
inline bool IsStale(const FoundGroup& group, const ColumnAnswers& answers) {
  const Version newest = NewestRecord(answers);
  return std::any_of(group.held.begin(), group.held.end(),
                     [&](uint64_t server) { return answers.at(server).recorded < newest; });
}

// Likewise: who holds it and has the newest opening's record, where another column has that, too.
// All but one answer whenever the file is used, so one of the two will be seen, or a later record
// that follows from it.
inline std::vector<uint64_t> DoneAt(const FoundGroup& group, const ColumnAnswers& answers) {
  const Version newest = NewestRecord(answers);
  const auto has_it = [&](const auto& answer) { return answer.second.recorded == newest; };
  std::vector<uint64_t> done;
  if (std::count_if(answers.begin(), answers.end(), has_it) < 2) return done;
  for (const uint64_t server : group.held) {
    if (answers.at(server).recorded == newest) done.push_back(server);
  }
  return done;
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
      // Who has yet only prepared it was away, and the newest record says what it lacks. But one
      // column alone may have that record, if its writer died, and be away next time: then this one
      // has to go with the others. So it commits what one of them has committed; where only one
      // that does not answer could have, it waits (such a file lacks two columns, and is not used);
      // and it aborts what one of them has not prepared, and never will.
      if (!group.committed.empty()) {
        settled.finish.assign(group.committed.begin(), group.committed.end());
        settled.finish.insert(settled.finish.end(), group.prepared.begin(), group.prepared.end());
      } else if (!lack.empty() || away.empty()) {
        settled.told.assign(group.prepared.begin(), group.prepared.end());
      }
      settled.is_stale = settlement::IsStale(group, answers);
      settled.done = settlement::DoneAt(group, answers);
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
