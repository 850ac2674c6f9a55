#ifndef ABACUS_OBJFS_SPREAD_SETTLEMENT_H_
#define ABACUS_OBJFS_SPREAD_SETTLEMENT_H_

// What becomes of the groups of blocks that an opening of a file's columns finds, from what their
// servers say. Without I/O.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "objfs/atomicity/group_core.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"

namespace abacus::objfs {

// What the server of a column says when it has opened it: no group of before is prepared there any
// more.
struct ColumnAnswer {
  Version recorded;  // by which opening the column's record was written
  std::vector<PendingGroup> pending;
};

struct SettledGroup {
  Version id;
  GroupFate fate = GroupFate::kAbort;  // never kForget
  std::vector<uint64_t> members;       // servers
  std::vector<uint64_t> told;          // those of them that answer, have it, and are told `fate`
  std::vector<Range> ranges;           // bytes of a column that it writes, by those that have it

  // Of one that a later opening has settled, and that somebody has committed: who has it. It is
  // waited for until it has written it or never will, or it could write over what comes now.
  std::vector<uint64_t> finish;
  // Likewise: one of them wrote it, and was away when the others were settled, which may have
  // nothing of it. What that one has of these bytes may not go with the rest.
  bool is_stale = false;
  // Likewise: who holds it and no longer needs to, as whoever opens the file will see a record that
  // tells of it.
  std::vector<uint64_t> done;
};

struct Settlement {
  std::vector<SettledGroup> groups;  // oldest first
  // Members of groups that were committed without the word of all, which answer and have nothing of
  // them: what they have of these stripes may not go with the rest. Where one alone has it, and the
  // others are of one mind, that one.
  std::set<uint64_t> lacking;
};

// By what the servers of a file's columns say, by their numbers; those of `columns` that are not
// among them do not answer. A member that is not one of `columns` had a column that was moved
// since. Why it is right: atomicity/README.md, "Settling".
Settlement PlanSettlement(const std::map<uint64_t, ColumnAnswer>& answers,
                          const std::set<uint64_t>& columns);

// What each server is told, in this order.
using GroupOrders = std::map<uint64_t, std::vector<GroupOrder>>;
GroupOrders OrdersOf(const Settlement& plan);

// When they have been told, or have failed.
struct SettlementEnd {
  // Servers whose columns do not go with the rest: those that failed, and those that lack
  // something. Where all others are there, and more than one lacks something, these stay.
  std::set<uint64_t> gone;
  GroupOrders forgets;        // of what all have now
  std::vector<Range> missed;  // bytes of a column that not all have, in whole blocks
};
// `failed`: servers that have not done what they were told.
SettlementEnd EndSettlement(const Settlement& plan, const std::map<uint64_t, ColumnAnswer>& answers,
                            const std::set<uint64_t>& columns, std::set<uint64_t> failed);

// The rules that the simulator of shared stripes breaks one at a time (cf. FaithfulCommitPolicy).
struct FaithfulSettlementPolicy {
  static constexpr bool kCommitOnlyIfAll = true;
  static constexpr bool kKeepCommitted = true;
};
// PlanSettlement() by these rules or by others (settlement_inl.h).
template <typename Policy>
Settlement PlanSettlementBy(const std::map<uint64_t, ColumnAnswer>& answers,
                            const std::set<uint64_t>& columns);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_SETTLEMENT_H_
