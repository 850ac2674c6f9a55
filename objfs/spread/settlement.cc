#include "objfs/spread/settlement.h"

#include <algorithm>
#include <utility>

namespace abacus::objfs {
namespace {

using ColumnAnswers = std::map<uint64_t, ColumnAnswer>;

// A group, by all that have it.
struct FoundGroup {
  std::set<uint64_t> members;
  Version opening;
  std::set<uint64_t> prepared, committed;  // who has it
  bool held = false;
  std::vector<Range> ranges;

  bool IsAt(uint64_t server) const {
    return prepared.contains(server) || committed.contains(server);
  }
};

std::map<Version, FoundGroup> FindGroups(const ColumnAnswers& answers) {
  std::map<Version, FoundGroup> found;
  for (const auto& [server, answer] : answers) {
    for (const PendingGroup& pending : answer.pending) {
      FoundGroup& group = found[pending.id];
      for (const CommitPart& member : pending.group) group.members.insert(member.server);
      group.opening = pending.opening;
      (pending.committed ? group.committed : group.prepared).insert(server);
      group.held = group.held || pending.held;
      group.ranges.insert(group.ranges.end(), pending.ranges.begin(), pending.ranges.end());
    }
  }
  return found;
}

// A later opening has settled it, and has written down what its members lack.
bool IsSettled(const FoundGroup& group, const ColumnAnswers& answers) {
  return std::any_of(answers.begin(), answers.end(),
                     [&](const auto& answer) { return group.opening < answer.second.recorded; });
}

}  // namespace

Settlement PlanSettlement(const ColumnAnswers& answers) {
  Settlement plan;
  for (auto& [id, group] : FindGroups(answers)) {
    std::set<uint64_t> lack, away;  // of its members: without it, and those that do not answer
    for (const uint64_t member : group.members) {
      if (!answers.contains(member)) {
        away.insert(member);
      } else if (!group.IsAt(member)) {
        lack.insert(member);
      }
    }
    SettledGroup settled{.id = id,
                         .fate = GroupFate::kAbort,
                         .members = {group.members.begin(), group.members.end()},
                         .told = {},
                         .ranges = std::move(group.ranges)};
    if (IsSettled(group, answers)) {
      // What is committed is forgotten when all have been asked; what is prepared was not to be.
      settled.told.assign(group.prepared.begin(), group.prepared.end());
      plan.groups.push_back(std::move(settled));
      continue;
    }
    if (group.held) plan.lacking.insert(lack.begin(), lack.end());
    if (lack.empty() && away.empty()) {
      settled.fate = GroupFate::kCommit;
    } else if (group.held || (group.committed.empty() && lack.empty())) {
      settled.fate = GroupFate::kCommitHeld;
    } else if (!group.committed.empty()) {
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
